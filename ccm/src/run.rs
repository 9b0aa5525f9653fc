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
use prometheus_client::registry::Registry;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::{Config, Controller, LeaderElectionConfig};
use crate::cluster::Cluster;
use crate::controller::LoopContext;
use crate::core::{Fence, WallClock};
use crate::lease::Elector;
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
    let metrics = Metrics::register(&mut registry, &health);
    let seed = |salt: u64| {
        deps.seed
            .wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    };

    let mut tasks = Tasks::default();
    let fence = if config.leader_election.enabled {
        Fence::closed()
    } else {
        tracing::warn!(
            "--leader-elect=false: nothing prevents a second ccm from working at the same time"
        );
        Fence::open()
    };
    let clients = kube_client::clients(
        deps.kube,
        fence.clone(),
        &metrics.kube,
        kube_client::Limits::of(&config),
        seed(1),
    );
    let (events, event_writer) = EventSink::new(
        clients.write.clone(),
        deps.identity.clone(),
        Arc::clone(&deps.wall),
        metrics.events.clone(),
    );
    tasks.closing.spawn(event_writer.run(tasks.stop.clone()));
    let cluster = Cluster::start(&clients.watch, seed(2), &config, &mut tasks.background);
    let elector = |election, fence: &Fence, salt| {
        Elector::new(
            clients.lease.clone(),
            election,
            deps.identity.clone(),
            fence.clone(),
            Arc::clone(&deps.wall),
            seed(salt),
            metrics.lease.clone(),
        )
    };
    let migration_fence = Fence::closed();
    let migration_elector = config.leader_migration.as_ref().map(|migration| {
        let election = LeaderElectionConfig {
            resource_name: migration.lease.clone(),
            ..config.leader_election.clone()
        };
        elector(election, &migration_fence, 7)
    });
    let election = config.leader_election.clone();
    let elector = election.enabled.then(|| elector(election, &fence, 3));

    let (status_sender, status) = watch::channel(ProviderStatus::default());
    let (leading, leading_receiver) = watch::channel(None);
    let hints = broadcast::Sender::new(1024);
    let memory = scope::memory(elector.as_ref(), &config.leader_election, &provider);
    let maintain = provider::maintain(provider::Maintain {
        endpoint,
        connector: deps.connector,
        leading: leading_receiver,
        status: status_sender,
        hints: hints.clone(),
        memory,
        probe_period: provider::PROBE_PERIOD.min(config.provider_timeout / 3),
        max_call_deadline: config.max_call_deadline,
        metrics: metrics.provider.clone(),
        seed: seed(4),
    });
    tasks.background.spawn(async move {
        maintain.await;
    });

    let (misconfigured, mut refused) = mpsc::channel::<String>(1);
    if let Some(listener) = deps.listener {
        let review = |base: Option<kube_client::Base>| match base {
            Some(base) => kube_client::review_client(base, &metrics.kube, seed(6)),
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
        tasks.background.spawn(async move {
            let refused = authorities.keep(authentication).await;
            // The receiver lives as long as this task.
            let _ = misconfigured.send(refused).await;
            std::future::pending::<()>().await;
        });
        let migration = migration_elector.clone();
        let page = status::Page {
            provider: Arc::clone(&provider),
            status: status.clone(),
            fence: fence.clone(),
            elector: elector.clone(),
            migration: migration.map(|elector| (migration_fence.clone(), elector)),
            node_lifecycle: metrics.loops.node_lifecycle.clone(),
            route: metrics.loops.route.clone(),
        };
        health::checks(&health, &cluster, &page);
        let site = serve::Site {
            status: Arc::new(move || page.text()),
            health,
            registry: Arc::new(registry),
            config: Arc::clone(&config),
            reviewer,
        };
        let serving = serve::serve(listener, site, tasks.stop_serving.clone());
        tasks.closing.spawn(serving);
    }
    if let Some(listener) = deps.webhook_listener {
        let site = webhooks::site(&config, &provider, &status, metrics.webhooks);
        let serving = serve::serve_webhooks(listener, site, tasks.stop_serving.clone());
        tasks.closing.spawn(serving);
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
        queue_metrics: metrics.queues,
        hints,
    };
    let own = |fence: &Fence| own_clients(&clients, deps.anonymous.as_ref(), fence);
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
        metrics: &metrics.loops,
        provider_metrics: &metrics.provider,
        client: &clients.watch,
        elector: elector.as_ref(),
        leading: &leading,
        shutdown: &deps.shutdown,
    });
    let result = tokio::select! {
        biased;
        result = working => result,
        Some(why) = refused.recv() => Err(RunError::Start(why)),
        broken = tasks.break_off() => Err(broken),
    };
    drop(leading);
    tasks.end().await;
    result
}

/// The tasks of a run, which end with it.
#[derive(Default)]
struct Tasks {
    /// They never end by themselves.
    background: JoinSet<()>,
    /// They end when they are told to: `stop` and `stop_serving`.
    closing: JoinSet<()>,
    stop: CancellationToken,
    stop_serving: CancellationToken,
}

impl Tasks {
    /// Returns when one of them has ended. Without it the process would go on with a cache that stands still, or without its provider.
    async fn break_off(&mut self) -> RunError {
        tokio::select! {
            biased;
            Some(ended) = self.background.join_next() => broken(&ended),
            Some(ended) = self.closing.join_next() => broken(&ended),
            else => std::future::pending().await,
        }
    }

    async fn end(mut self) {
        self.stop.cancel();
        self.stop_serving.cancel();
        let ends = async { while self.closing.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_WORDS, ends).await;
        self.closing.shutdown().await;
        self.background.shutdown().await;
    }
}

/// Each controller's client, where they have identities of their own.
fn own_clients(
    clients: &kube_client::KubeClients,
    anonymous: Option<&kube_client::Base>,
    fence: &Fence,
) -> lead::Own {
    let Some(anonymous) = anonymous else {
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
    let memories = lead::Memories::default();
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
                memories: &memories,
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
