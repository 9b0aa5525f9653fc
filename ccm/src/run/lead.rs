//! One term as leader: starts the loops and ends them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1::Capabilities;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::LoopMetrics;
use super::candidate::{Candidate, announce};
use crate::args::{Controller, RouteConfig, Side};
use crate::cluster::Store;
use crate::controller::LoopContext;
use crate::controllers::{node, node_lifecycle, route, service, volume};
use crate::lease::{Elector, Lost, Term};
use crate::provider::{Capability, ProviderStatus};

/// How long loops may go on with calls in flight before they are cancelled.
const DRAIN: Duration = Duration::from_secs(20);

/// How long a step-down waits for the end of an attempt to acquire the migration's Lease.
const STOOD: Duration = Duration::from_secs(5);

/// Why a term ended. The loops have ended in any case.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The process should end. The caller may release the Lease.
    Stopped,
    /// The provider has not answered for too long. The caller may release the Lease and acquire it
    /// again.
    ProviderGone,
    /// This process does not hold the Lease any more.
    Lost(Lost),
    /// This process does not hold the migration's Lease any more. The caller may release the main
    /// one.
    MigrationLost(Lost),
    /// A loop ended by itself, which is a bug. The caller may release the Lease.
    Broken(Controller),
}

/// The clients of controllers with an identity of their own.
pub(super) type Own = BTreeMap<Controller, kube::Client>;

/// The second Lease (B-M6). A process acquires it only while it holds the main one. So one replica
/// of this program normally holds both.
pub(super) struct Migration {
    pub(super) elector: Elector,
    pub(super) loops: LeaseLoops,
}

/// What the loops under one Lease work with.
pub(super) struct LeaseLoops {
    /// Its fence is that of the Lease, and guards their writes and calls.
    pub(super) context: LoopContext,
    pub(super) own: Own,
}

/// State that controllers keep when their loops start again in this process.
#[derive(Clone, Default)]
pub(super) struct Memories {
    node_lifecycle: Arc<node_lifecycle::Memory>,
    service: Arc<service::Memory>,
}

impl Candidate<'_> {
    /// Leads until something ends the term. Renews the Leases while the loops drain. Releases the
    /// migration's Lease, unless a Lease was lost; the caller releases the main one. `term` is
    /// `None` with `--leader-elect=false`.
    pub(super) async fn lead(&self, term: Option<&mut Term>) -> End {
        let mut second = None;
        let end = self.lead_with(term, &mut second).await;
        if let (Some(term), Some(Migration { elector, loops })) = (second, self.migration)
            && !matches!(end, End::Lost(_) | End::MigrationLost(_))
        {
            announce(&loops.context, elector, "stopped leading");
            term.release().await;
        }
        end
    }

    async fn lead_with(&self, term: Option<&mut Term>, second: &mut Option<Term>) -> End {
        let stop_standing = CancellationToken::new();
        let (standing, mut stands) = watch::channel(match self.migration {
            Some(_) => Standing::Stands,
            None => Standing::Over,
        });
        // Each Lease has one future for the whole term, so that no other event cuts a renewal
        // short.
        let mut lost = pin!(hold(term));
        let migration_lost = stand_and_hold(self.migration, &stop_standing, &standing, second);
        let mut migration_lost = pin!(migration_lost);
        let mut loops = Loops {
            metrics: self.metrics.clone(),
            memories: self.memories.clone(),
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            ending: BTreeMap::new(),
            skipped: BTreeMap::new(),
        };
        let context = &self.main.context;
        let mut status = context.status.clone();
        let silence = context.status.clone();
        let timeout = context.config.provider_timeout;
        let began = Instant::now();
        let mut end = loop {
            let info = status.borrow_and_update().info.clone();
            let holds = *stands.borrow_and_update() == Standing::Holds;
            if let Some(info) = info {
                // A provider without capabilities offers nothing (B-M2): each controller is logged
                // as skipped.
                let capabilities = info.capabilities.clone().unwrap_or_default();
                let migrated = self.migration.filter(|_| holds);
                loops.follow(&capabilities, &self.main, migrated.map(|it| &it.loops));
            }
            tokio::select! {
                biased;
                lost = &mut lost => break End::Lost(lost),
                lost = &mut migration_lost => break End::MigrationLost(lost),
                () = self.shutdown.cancelled() => break End::Stopped,
                () = silent(&silence, began, timeout) => break End::ProviderGone,
                ended = loops.ended() => if let Some(controller) = ended { break End::Broken(controller) },
                Ok(()) = status.changed() => {}
                Ok(()) = stands.changed() => {}
            }
        };
        stop_standing.cancel();
        if !matches!(end, End::Lost(_)) {
            tracing::info!(reason = ?end, "stepping down: finishing the calls in flight first");
            let migration_is_over = matches!(end, End::MigrationLost(_));
            if migration_is_over {
                loops.abort_migrated(context);
            }
            let ends = step_down(&mut loops, &mut stands);
            // The fence of a lost Lease is closed: loops that drain under it change nothing any
            // more.
            let renewing = async {
                if !migration_is_over {
                    migration_lost.await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                lost = &mut lost => end = End::Lost(lost),
                () = renewing => {}
                () = ends => {}
            }
        }
        loops.abort().await;
        end
    }
}

/// Returns when the loops have drained and the attempt to acquire the migration's Lease is over, or
/// when their time ([`DRAIN`], [`STOOD`]) is over.
async fn step_down(loops: &mut Loops, stands: &mut watch::Receiver<Standing>) {
    let stood = async {
        let _ = stands
            .wait_for(|standing| *standing != Standing::Stands)
            .await;
    };
    let _ = tokio::join!(loops.drain(), timeout(STOOD, stood));
}

/// The state of the migration's Lease in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Stands,
    Holds,
    /// No migration, or the attempt to acquire the Lease is over.
    Over,
}

/// Acquires the migration's Lease, and returns when it is lost. Keeps the term in `second`, so that
/// the caller has it after this future is dropped.
async fn stand_and_hold(
    migration: Option<&Migration>,
    stop: &CancellationToken,
    standing: &watch::Sender<Standing>,
    second: &mut Option<Term>,
) -> Lost {
    let Some(Migration { elector, loops }) = migration else {
        return std::future::pending().await;
    };
    // No check of the provider is needed here: if it is silent for too long, the term ends.
    let always = watch::Sender::new(true);
    let Some(term) = elector.acquire(always.subscribe(), stop).await else {
        standing.send_replace(Standing::Over);
        return std::future::pending().await;
    };
    announce(&loops.context, elector, "became leader");
    let term = second.insert(term);
    standing.send_replace(Standing::Holds);
    term.hold().await
}

async fn hold(term: Option<&mut Term>) -> Lost {
    match term {
        Some(term) => term.hold().await,
        None => std::future::pending().await,
    }
}

/// Returns when the provider has not answered for `timeout`.
async fn silent(status: &watch::Receiver<ProviderStatus>, began: Instant, timeout: Duration) {
    loop {
        let heard = status
            .borrow()
            .last_answer
            .map_or(began, |at| at.max(began));
        let until = heard + timeout;
        if Instant::now() >= until {
            return;
        }
        sleep_until(until).await;
    }
}

/// Why a controller cannot run on a provider's capabilities; `None` if it can (B-M2, B-R1).
fn obstacle(
    controller: Controller,
    capabilities: &Capabilities,
    route: &RouteConfig,
) -> Option<&'static str> {
    let (capability, missing) = match controller {
        Controller::CloudNode | Controller::CloudNodeLifecycle => {
            (Capability::Instances, "the provider offers no instances")
        }
        Controller::ServiceLb => (
            Capability::LoadBalancers,
            "the provider offers no load balancers",
        ),
        Controller::NodeRoute if !route.configure_cloud_routes => {
            return Some("--configure-cloud-routes is false");
        }
        Controller::NodeRoute if !route.allocate_node_cidrs => {
            return Some("--allocate-node-cidrs is not set");
        }
        Controller::NodeRoute => (Capability::Routes, "the provider offers no routes"),
        Controller::VolumeLabel => (Capability::Volumes, "the provider offers no volumes"),
    };
    (!capability.is_in(capabilities)).then_some(missing)
}

/// The loops of one provider. Each has its own stop token.
struct Loops {
    metrics: LoopMetrics,
    memories: Memories,
    tasks: JoinSet<()>,
    running: BTreeMap<Controller, (CancellationToken, AbortHandle)>,
    /// Loops that still drain after their stop.
    ending: BTreeMap<Controller, AbortHandle>,
    skipped: BTreeMap<Controller, &'static str>,
}

impl Loops {
    /// Starts loops for the offered capabilities and stops the others: another version of the
    /// provider may have taken the socket.
    fn follow(
        &mut self,
        capabilities: &Capabilities,
        main: &LeaseLoops,
        migrated: Option<&LeaseLoops>,
    ) {
        let config = &main.context.config;
        for controller in &config.controllers {
            let name = controller.name();
            let side = config
                .leader_migration
                .as_ref()
                .map_or(Side::Main, |migration| migration.side(*controller));
            let (LeaseLoops { context, own }, kept_off) = match (side, migrated) {
                (Side::Main, _) => (main, None),
                (Side::Migration, Some(migrated)) => (migrated, None),
                (Side::Migration, None) => (
                    main,
                    Some("this process does not hold the Lease of the leader migration"),
                ),
                (Side::Elsewhere, _) => (
                    main,
                    Some("the leader migration gives it to another component"),
                ),
            };
            let why = kept_off.or_else(|| obstacle(*controller, capabilities, &config.route));
            match (why, self.running.contains_key(controller)) {
                (None, true) => {}
                // A controller has one loop at a time: the new one starts when the old one is over.
                (None, false) if self.is_ending(*controller) => {}
                (None, false) => {
                    self.skipped.remove(controller);
                    self.start(*controller, context, own);
                    tracing::info!(controller = name, provider = &*context.provider, "started");
                }
                (Some(why), _) => {
                    if let Some((stop, task)) = self.running.remove(controller) {
                        stop.cancel();
                        self.ending.insert(*controller, task);
                        self.metrics.running(*controller, false);
                    }
                    if self.skipped.insert(*controller, why) != Some(why) {
                        tracing::info!(
                            controller = name,
                            provider = &*context.provider,
                            why,
                            "skipped"
                        );
                    }
                }
            }
        }
    }

    fn is_ending(&self, controller: Controller) -> bool {
        self.ending
            .get(&controller)
            .is_some_and(|task| !task.is_finished())
    }

    fn start(&mut self, controller: Controller, context: &LoopContext, own: &Own) {
        let mut context = context.clone();
        context.stop = CancellationToken::new();
        if let Some(own) = own.get(&controller) {
            context.writes.client = own.clone();
            context.writes.events = context.writes.events.written_by(own.clone());
        }
        let stop = context.stop.clone();
        let loops = self.metrics.clone();
        let memories = self.memories.clone();
        let task = self.tasks.spawn(async move {
            match controller {
                Controller::CloudNode => node::run(context, loops.node).await,
                Controller::CloudNodeLifecycle => {
                    node_lifecycle::run(context, memories.node_lifecycle, loops.node_lifecycle)
                        .await;
                }
                Controller::ServiceLb => {
                    service::run(context, memories.service, loops.service).await;
                }
                Controller::VolumeLabel => {
                    let volumes = Store::default();
                    let _awaited = loops.awaits("persistentvolumes", &volumes);
                    volume::run(context, volumes).await;
                }
                Controller::NodeRoute => route::run(context, loops.route).await,
            }
        });
        self.running.insert(controller, (stop, task));
        self.metrics.running(controller, true);
    }

    /// Returns when a loop has ended. `Some`: that controller's loop should still run.
    async fn ended(&mut self) -> Option<Controller> {
        let ended = match self.tasks.join_next_with_id().await {
            None => std::future::pending().await,
            Some(Ok((id, ()))) => id,
            // A panic; the panic hook has logged its text.
            Some(Err(error)) => error.id(),
        };
        let (&controller, _) = self
            .running
            .iter()
            .find(|(_, (_, task))| task.id() == ended)?;
        tracing::error!(
            controller = controller.name(),
            "a controller ended by itself: this is a bug"
        );
        Some(controller)
    }

    /// Stops all loops, and waits at most [`DRAIN`] until they have drained.
    async fn drain(&mut self) {
        for (controller, (stop, _)) in std::mem::take(&mut self.running) {
            stop.cancel();
            self.metrics.running(controller, false);
        }
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(DRAIN, all).await.is_err() {
            tracing::warn!(after = ?DRAIN, "calls still run: they are cancelled");
        }
    }

    /// Cancels the loops under the migration's Lease, which is lost.
    fn abort_migrated(&mut self, context: &LoopContext) {
        let migration = context.config.leader_migration.as_ref();
        let migrated = |controller: &Controller| {
            migration.is_some_and(|migration| migration.side(*controller) == Side::Migration)
        };
        for (controller, (_, task)) in self
            .running
            .extract_if(.., |controller, _| migrated(controller))
        {
            task.abort();
            self.metrics.running(controller, false);
        }
    }

    /// Cancels all loops at once, and waits until they have ended.
    async fn abort(&mut self) {
        for controller in std::mem::take(&mut self.running).into_keys() {
            self.metrics.running(controller, false);
        }
        self.tasks.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use cloud_provider_api::v1alpha1 as api;

    use super::*;

    const ROUTES: RouteConfig = RouteConfig {
        allocate_node_cidrs: true,
        configure_cloud_routes: true,
        reconciliation_period: Duration::from_secs(10),
        concurrent_syncs: None,
    };

    #[test]
    fn b_m2_a_controller_without_its_capability_is_skipped() {
        let nothing = Capabilities::default();
        let instances = Capabilities {
            instances: Some(api::InstanceCapability::default()),
            ..Capabilities::default()
        };
        let balancers = Capabilities {
            load_balancers: Some(api::LoadBalancerCapability::default()),
            ..Capabilities::default()
        };
        let volumes = Capabilities {
            volumes: Some(api::VolumeCapability::default()),
            ..Capabilities::default()
        };
        let routes = Capabilities {
            routes: Some(api::RouteCapability::default()),
            ..Capabilities::default()
        };
        for (controller, capabilities, runs) in [
            (Controller::VolumeLabel, &volumes, true),
            (Controller::VolumeLabel, &instances, false),
            (Controller::CloudNode, &nothing, false),
            (Controller::CloudNode, &instances, true),
            (Controller::CloudNodeLifecycle, &instances, true),
            (Controller::CloudNodeLifecycle, &balancers, false),
            (Controller::ServiceLb, &balancers, true),
            (Controller::ServiceLb, &instances, false),
            (Controller::NodeRoute, &routes, true),
            (Controller::NodeRoute, &instances, false),
        ] {
            assert_eq!(
                obstacle(controller, capabilities, &ROUTES).is_none(),
                runs,
                "{controller:?}"
            );
        }
    }

    #[test]
    fn b_r1_routes_are_configured_only_where_both_flags_ask_for_it() {
        let routes = Capabilities {
            routes: Some(api::RouteCapability::default()),
            ..Capabilities::default()
        };
        for (allocate_node_cidrs, configure_cloud_routes, why) in [
            (true, true, None),
            (false, true, Some("--allocate-node-cidrs is not set")),
            (true, false, Some("--configure-cloud-routes is false")),
        ] {
            let config = RouteConfig {
                allocate_node_cidrs,
                configure_cloud_routes,
                ..ROUTES
            };
            assert_eq!(obstacle(Controller::NodeRoute, &routes, &config), why);
        }
    }
}
