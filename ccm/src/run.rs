//! Wiring: start, lead, stop. One JoinSet, no detached task.

mod clouds;
mod health;
mod identity;
mod lead;
mod metrics;
#[cfg(test)]
pub(crate) mod operator_guide;
mod scope;
#[cfg(feature = "simulation")]
pub mod simulated;
mod status;
mod system;
#[cfg(test)]
mod upstream_metrics;
mod webhooks;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::{Config, Controller, LeaderElectionConfig};
use crate::cluster::Cluster;
use crate::lease::{Elector, Fence};
use crate::provider::{Connector, ProviderStatus};
use crate::writes::{EventSink, EventType, Writes, reason};
use crate::{kube_client, provider, serve};

pub(crate) use metrics::LoopMetrics;
use metrics::Metrics;
pub use system::{from_config, probe};

/// Before the Lease is released, events that wait are written for so long at most: a hand-over should take less than a second.
const EVENT_FLUSH: Duration = Duration::from_millis(300);

/// At the end, answers of the HTTPS port and, without a Lease, events are finished for so long at most.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Wall time, only for what Kubernetes stores.
pub type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What the outside gives a run: a simulation hands in its own.
pub(crate) struct Deps {
    /// The API server; the ccm puts its own layer over it.
    pub(crate) kube: kube_client::Base,
    /// The same API server without credentials, where each controller brings its own.
    pub(crate) anonymous: Option<kube_client::Base>,
    /// Dials the provider.
    pub(crate) connector: Arc<dyn Connector>,
    /// Wall time.
    pub(crate) wall: WallClock,
    /// Seed of all randomness.
    pub(crate) seed: u64,
    /// This process, as the Lease names it; no other has the same.
    pub(crate) identity: String,
    /// The HTTPS port, bound; `None`: there is none.
    pub(crate) listener: Option<serve::Listener>,
    /// The port of the admission webhooks, bound; `None`: there is none.
    pub(crate) webhook_listener: Option<serve::Listener>,
    /// Who is asked about the callers of the HTTPS port, where that is not the API server of `kube`.
    pub(crate) authentication: Option<kube_client::Base>,
    /// As `authentication`, for what they may do.
    pub(crate) authorization: Option<kube_client::Base>,
    /// Cancelled when the process shall end.
    pub(crate) shutdown: CancellationToken,
}

/// Why a run ends with a failure.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// B-M3.
    #[error("the Lease was lost, another process may lead: {0}")]
    LeaseLost(String),
    /// A bug.
    #[error("{0} ended by itself: this is a bug, and restarting is the best that can be done")]
    Broken(&'static str),
    /// The configuration has no provider.
    #[error("no provider is configured: see --provider")]
    NoProvider,
    /// A second signal came.
    #[error("asked to end a second time: what was in flight was given up")]
    Impatient,
    /// Signals cannot be received.
    #[error("signals cannot be received: {0}")]
    Signals(std::io::Error),
    /// A kubeconfig, the in-cluster configuration, the HTTPS port or its certificate cannot be used.
    #[error("{0}")]
    Start(String),
}

/// Runs until `shutdown`, or until the Lease is lost.
pub(crate) async fn run(deps: Deps, config: Config) -> Result<(), RunError> {
    let config = Arc::new(config);
    let endpoint = config
        .providers
        .first()
        .ok_or(RunError::NoProvider)?
        .clone();
    let provider: Arc<str> = endpoint.name.as_str().into();
    let mut registry = Registry::default();
    let health = serve::Health::default();
    let Metrics {
        queues: queue_metrics,
        loops: loop_metrics,
        events: event_metrics,
        provider: provider_metrics,
        lease: lease_metrics,
        kube: kube_metrics,
        webhooks: webhook_metrics,
    } = Metrics::register(&mut registry, &health);
    let seed = |salt: u64| {
        deps.seed
            .wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    };

    // Both end with this function, and everything in them: what never ends by itself, and what ends when it is told to.
    let mut background = JoinSet::new();
    let mut closing = JoinSet::new();
    let stop_background = CancellationToken::new();
    let fence = if config.leader_election.enabled {
        Fence::closed()
    } else {
        tracing::warn!(
            "--leader-elect=false: nothing keeps a second ccm from working at the same time"
        );
        Fence::open()
    };
    let clients = kube_client::clients(
        deps.kube,
        fence.clone(),
        &kube_metrics,
        kube_client::Limits::of(&config),
        seed(1),
    );
    let (events, event_writer) = EventSink::new(
        clients.write.clone(),
        deps.identity.clone(),
        Arc::clone(&deps.wall),
        event_metrics,
    );
    closing.spawn(event_writer.run(stop_background.clone()));
    let cluster = Cluster::start(&clients.watch, seed(2), &config, &mut background);
    let elector = config.leader_election.enabled.then(|| {
        Elector::new(
            clients.lease.clone(),
            config.leader_election.clone(),
            deps.identity.clone(),
            fence.clone(),
            Arc::clone(&deps.wall),
            seed(3),
            lease_metrics.clone(),
        )
    });

    let migration_fence = Fence::closed();
    let migration_elector = config.leader_migration.as_ref().map(|migration| {
        let election = LeaderElectionConfig {
            resource_name: migration.lease.clone(),
            ..config.leader_election.clone()
        };
        Elector::new(
            clients.lease.clone(),
            election,
            deps.identity.clone(),
            migration_fence.clone(),
            Arc::clone(&deps.wall),
            seed(7),
            lease_metrics.clone(),
        )
    });

    let (status_sender, status) = watch::channel(ProviderStatus::default());
    let (leading, leading_receiver) = watch::channel(None);
    let hints = broadcast::Sender::new(1024);
    let memory = scope::Memory::new(elector.as_ref(), &config.leader_election, &provider);
    let maintain = provider::maintain(provider::Maintain {
        endpoint,
        connector: deps.connector,
        leading: leading_receiver,
        status: status_sender,
        hints: hints.clone(),
        annotations: memory.annotations,
        scope_key: memory.key,
        record_scope: memory.record,
        accept_command: memory.accept_command,
        claims_key: memory.claims_key,
        record_claims: memory.record_claims,
        accept_claims: memory.accept_claims,
        probe_period: provider::PROBE_PERIOD.min(config.provider_timeout / 3),
        max_call_deadline: config.max_call_deadline,
        metrics: provider_metrics.clone(),
        seed: seed(4),
    });
    background.spawn(async move {
        maintain.await;
    });

    let stop_serving = CancellationToken::new();
    let (misconfigured, mut refused) = mpsc::channel::<String>(1);
    if let Some(listener) = deps.listener {
        let review = |base: Option<kube_client::Base>| match base {
            Some(base) => kube_client::review_client(base, &kube_metrics, seed(6)),
            None => clients.review.clone(),
        };
        let authentication = review(deps.authentication);
        let authorities = listener.authorities();
        let reviewer = serve::Reviewer::new(
            authentication.clone(),
            review(deps.authorization),
            authorities.clone(),
            &config.serve,
        );
        background.spawn(async move {
            let refused = authorities.keep(authentication).await;
            // The receiver lives as long as this task.
            let _ = misconfigured.send(refused).await;
            std::future::pending::<()>().await;
        });
        let page = status::Page {
            provider: Arc::clone(&provider),
            status: status.clone(),
            fence: fence.clone(),
            elector: elector.clone(),
            migration: migration_elector
                .clone()
                .map(|elector| (migration_fence.clone(), elector)),
            node_lifecycle: loop_metrics.node_lifecycle.clone(),
            route: loop_metrics.route.clone(),
        };
        health::checks(&health, &cluster, &status, &provider, elector.as_ref());
        if let Some(elector) = migration_elector.clone() {
            let check = move || elector.health();
            health.check(serve::Probe::Health, "leaderMigration", check);
        }
        let site = serve::Site {
            status: Arc::new(move || page.text()),
            health,
            registry: Arc::new(registry),
            config: Arc::clone(&config),
            reviewer,
        };
        closing.spawn(serve::serve(listener, site, stop_serving.clone()));
    }

    if let Some(listener) = deps.webhook_listener {
        let site = webhooks::site(&config, &provider, &status, webhook_metrics);
        closing.spawn(serve::serve_webhooks(listener, site, stop_serving.clone()));
    }

    let context = LoopContext {
        provider,
        config,
        cluster,
        watch_client: clients.watch.clone(),
        writes: Writes::new(clients.write.clone(), events),
        status,
        fence: fence.clone(),
        wall: deps.wall,
        seed: seed(5),
        stop: CancellationToken::new(),
        queue_metrics,
        hints,
        node_lifecycle_memory: Arc::default(),
        service_memory: Arc::default(),
    };
    // Each controller's client, where they have identities of their own.
    let own = |fence: &Fence| -> lead::Own {
        let Some(anonymous) = &deps.anonymous else {
            return lead::Own::new();
        };
        let mut by_account = BTreeMap::new();
        let of = |controller: Controller| {
            let account = controller.service_account();
            let client: &mut kube::Client = by_account
                .entry(account)
                .or_insert_with(|| clients.fenced_as(account, anonymous, fence.clone()));
            (controller, client.clone())
        };
        Controller::ALL.into_iter().map(of).collect()
    };
    // The controllers that are migrated: the same, behind the fence of their own Lease.
    let migration = migration_elector.map(|elector| lead::Migration {
        elector,
        own: own(&migration_fence),
        context: LoopContext {
            writes: Writes {
                client: clients.fenced_by(migration_fence.clone()),
                ..context.writes.clone()
            },
            fence: migration_fence,
            ..context.clone()
        },
    });
    let working = work(Work {
        context: &context,
        own: own(&fence),
        migration: migration.as_ref(),
        metrics: &loop_metrics,
        provider_metrics: &provider_metrics,
        client: &clients.watch,
        elector: elector.as_ref(),
        leading: &leading,
        shutdown: &deps.shutdown,
    });
    let result = tokio::select! {
        biased;
        result = working => result,
        Some(why) = refused.recv() => Err(RunError::Start(why)),
        // Without one of them the process would go on with a cache that stands still, or without its provider.
        Some(ended) = background.join_next() => Err(broken(&ended)),
        Some(ended) = closing.join_next() => Err(broken(&ended)),
    };
    stop_background.cancel();
    stop_serving.cancel();
    drop(leading);
    let ends = async { while closing.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_WORDS, ends).await;
    closing.shutdown().await;
    background.shutdown().await;
    result
}

/// A part of the process ended that should not have.
fn broken(ended: &Result<(), tokio::task::JoinError>) -> RunError {
    tracing::error!(
        ?ended,
        "a part of the process ended by itself: this is a bug"
    );
    RunError::Broken("a part of the process")
}

struct Work<'a> {
    context: &'a LoopContext,
    own: lead::Own,
    migration: Option<&'a lead::Migration>,
    metrics: &'a LoopMetrics,
    provider_metrics: &'a provider::Metrics,
    client: &'a kube::Client,
    elector: Option<&'a Elector>,
    leading: &'a watch::Sender<Option<Arc<api::InitializeRequest>>>,
    shutdown: &'a CancellationToken,
}

/// Candidate, leader, candidate again, until the end.
async fn work(with: Work<'_>) -> Result<(), RunError> {
    let shutdown = with.shutdown;
    // A replica that could not work yet does not stand in the way of one that can.
    let identity = identity::initialize_request(with.client, &with.context.config);
    let request = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        request = identity => Arc::new(request),
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        () = with.context.cluster.synced() => {}
    }
    let (standing_sender, standing) = watch::channel(false);
    let follow_provider = async {
        let mut status = with.context.status.clone();
        loop {
            let reachable = status.borrow_and_update().reachable();
            standing_sender
                .send_if_modified(|standing| std::mem::replace(standing, reachable) != reachable);
            if status.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    };
    let terms = async {
        loop {
            let mut term = match with.elector {
                None => None,
                Some(elector) => match elector.acquire(standing.clone(), shutdown).await {
                    None => return Ok(()),
                    Some(term) => {
                        announce(with.context, elector, "became leader");
                        Some(term)
                    }
                },
            };
            with.leading.send_replace(Some(Arc::clone(&request)));
            let end = lead::lead(lead::Leading {
                context: with.context,
                own: &with.own,
                migration: with.migration,
                metrics: with.metrics,
                term: term.as_mut(),
                shutdown,
            })
            .await;
            with.leading.send_replace(None);
            if let lead::End::Lost(lost) = end {
                return Err(RunError::LeaseLost(lost.to_string()));
            }
            if let (Some(term), Some(elector)) = (term, with.elector) {
                announce(with.context, elector, "stopped leading");
                with.context.writes.events.flush(EVENT_FLUSH).await;
                term.release().await;
            }
            match end {
                lead::End::Stopped => return Ok(()),
                lead::End::MigrationLost(lost) => {
                    return Err(RunError::LeaseLost(lost.to_string()));
                }
                lead::End::Broken(controller) => return Err(RunError::Broken(controller.name())),
                lead::End::ProviderGone | lead::End::Lost(_) => {}
            }
        }
    };
    let context = with.context;
    let on_the_lease = |kind, reason: &'static str, text| {
        if let Some(elector) = with.elector {
            let events = &context.writes.events;
            events.record(&elector.reference(), kind, reason, text);
        }
    };
    let tell_scope = scope::tell(context.status.clone(), &context.provider, on_the_lease);
    let tell_clouds = clouds::tell(
        context.status.clone(),
        &context.provider,
        context.cluster.watched_nodes(),
        with.provider_metrics,
        on_the_lease,
    );
    tokio::select! {
        biased;
        result = terms => result,
        never = follow_provider => never,
        () = tell_scope => Err(RunError::Broken("a part of the process")),
        () = tell_clouds => Err(RunError::Broken("a part of the process")),
    }
}

/// The event on the Lease that client-go's leader election records.
fn announce(context: &LoopContext, elector: &Elector, what: &str) {
    context.writes.events.record(
        &elector.reference(),
        EventType::Normal,
        reason::LEADER_ELECTION,
        format!("{} {what}", elector.identity()),
    );
}

/// What one loop of one (controller, provider) is given.
#[derive(Clone)]
pub(crate) struct LoopContext {
    /// The provider's name, as configured.
    pub(crate) provider: Arc<str>,
    /// The configuration.
    pub(crate) config: Arc<Config>,
    /// The stores.
    pub(crate) cluster: Cluster,
    /// For a watch that only one loop needs.
    pub(crate) watch_client: kube::Client,
    /// Writes to Kubernetes.
    pub(crate) writes: Writes,
    /// The provider, as it is.
    pub(crate) status: watch::Receiver<ProviderStatus>,
    /// Whether we still lead.
    pub(crate) fence: Fence,
    /// Wall time.
    pub(crate) wall: WallClock,
    /// Seed of all randomness of this loop.
    pub(crate) seed: u64,
    /// Cancelled when the loop must take no new work; it returns when what is in flight is over.
    pub(crate) stop: CancellationToken,
    /// `workqueue_*`.
    pub(crate) queue_metrics: crate::queue::Metrics,
    /// Hints of the provider (WatchChanges), for loops that want them.
    pub(crate) hints: broadcast::Sender<Hint>,
    /// What the lifecycle loop must not forget when it is started again in this process.
    pub(crate) node_lifecycle_memory: Arc<crate::node_lifecycle::Memory>,
    /// What the Service loop must not forget when it is started again in this process.
    pub(crate) service_memory: Arc<crate::service::Memory>,
}

/// A hint of the provider that something may have changed; may be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Anything.
    Resync,
    /// An instance, by provider ID or Node name (either may be empty).
    Instance {
        /// The provider ID, or empty.
        provider_id: String,
        /// The Node's name, or empty.
        node_name: String,
    },
    /// A load balancer.
    LoadBalancer {
        /// The Service's namespace.
        namespace: String,
        /// The Service's name.
        name: String,
    },
    /// Routes.
    Routes,
}
