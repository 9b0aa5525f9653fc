//! The parts of a running process, and how they fit together.

use std::collections::BTreeMap;
use std::sync::Arc;

use cloud_provider_api::v1alpha1 as api;
use prometheus_client::registry::Registry;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::candidate::Candidate;
use super::identity::Identity;
use super::lead::{LeaseLoops, Memories, Migration, Own};
use super::leases::Leases;
use super::metrics::Metrics;
use super::status::Page;
use super::{Deps, RunError, Tasks, health, leases, scope, webhooks};
use crate::args::{Config, Controller, ProviderEndpoint};
use crate::cluster::Cluster;
use crate::controller::LoopContext;
use crate::core::Fence;
use crate::kube_client::KubeClients;
use crate::lease::Elector;
use crate::provider::{Hint, ProviderStatus};
use crate::writes::{EventSink, Writes};
use crate::{kube_client, provider, serve};

/// The parts that work until the process ends. Their tasks are in [`Tasks`].
pub(super) struct Process {
    config: Arc<Config>,
    metrics: Metrics,
    registry: Registry,
    health: serve::Health,
    clients: KubeClients,
    events: EventSink,
    cluster: Cluster,
    identity: Identity,
    leases: Leases,
    provider: Provider,
}

/// The provider, which a task keeps connected.
struct Provider {
    /// The configured name.
    name: Arc<str>,
    status: watch::Receiver<ProviderStatus>,
    hints: broadcast::Sender<Hint>,
    /// The Initialize request, while this process leads.
    leading: watch::Sender<Option<Arc<api::InitializeRequest>>>,
}

impl Provider {
    fn keep(
        deps: &Deps,
        endpoint: ProviderEndpoint,
        config: &Config,
        leases: &Leases,
        metrics: &Metrics,
        tasks: &mut Tasks,
    ) -> Self {
        let name: Arc<str> = endpoint.name.as_str().into();
        let (status_sender, status) = watch::channel(ProviderStatus::default());
        let (leading, leading_receiver) = watch::channel(None);
        let hints = broadcast::Sender::new(1024);
        let maintain = provider::maintain(provider::Maintain {
            endpoint,
            connector: Arc::clone(&deps.connector),
            leading: leading_receiver,
            status: status_sender,
            hints: hints.clone(),
            memory: scope::memory(leases.elector.as_ref(), &config.leader_election, &name),
            probe_period: provider::PROBE_PERIOD.min(config.provider_timeout / 3),
            max_call_deadline: config.max_call_deadline,
            metrics: metrics.provider.clone(),
            seed: deps.seed(4),
        });
        tasks.background.spawn(async move {
            maintain.await;
        });
        Self {
            name,
            status,
            hints,
            leading,
        }
    }
}

impl Process {
    pub(super) fn start(deps: &Deps, config: Config, tasks: &mut Tasks) -> Result<Self, RunError> {
        let config = Arc::new(config);
        let endpoint = config.providers.first().cloned();
        let endpoint = endpoint.ok_or(RunError::NoProvider)?;
        let mut registry = Registry::default();
        let health = serve::Health::default();
        let metrics = Metrics::register(&mut registry, &health);
        let fence = leases::fence(&config.leader_election);
        let clients = kube_client::clients(
            deps.kube.clone(),
            fence.clone(),
            &metrics.kube,
            kube_client::Limits::of(&config),
            deps.seed(1),
        );
        let (events, event_writer) = EventSink::new(
            clients.write.clone(),
            deps.identity.clone(),
            Arc::clone(&deps.wall),
            metrics.events.clone(),
        );
        tasks.closing.spawn(event_writer.run(tasks.stop.clone()));
        let background = &mut tasks.background;
        let cluster = Cluster::start(&clients.watch, deps.seed(2), &config, background);
        let leases = Leases::new(fence, &config, |election, fence, salt| {
            Elector::new(
                clients.lease.clone(),
                election,
                deps.identity.clone(),
                fence.clone(),
                Arc::clone(&deps.wall),
                deps.seed(salt),
                metrics.lease.clone(),
            )
        });
        let provider = Provider::keep(deps, endpoint, &config, &leases, &metrics, tasks);
        Ok(Self {
            config,
            metrics,
            registry,
            health,
            clients,
            events,
            cluster,
            identity: Identity::default(),
            leases,
            provider,
        })
    }

    /// Serves the bound ports.
    pub(super) fn serve(&mut self, deps: &mut Deps, tasks: &mut Tasks) {
        let (config, status) = (&self.config, &self.provider.status);
        if let Some(listener) = deps.listener.take() {
            let review = |base: Option<kube_client::Base>| match base {
                Some(base) => kube_client::review_client(base, &self.metrics.kube, deps.seed(6)),
                None => self.clients.review.clone(),
            };
            let authentication = review(deps.authentication.clone());
            let authorities = listener.authorities();
            let reviewer = serve::Reviewer::new(
                authentication.clone(),
                review(deps.authorization.clone()),
                authorities.clone(),
                &config.serve,
            );
            let keeping = async move { authorities.keep(authentication).await };
            tasks.authorities.spawn(keeping);
            let page = Page {
                health: self.health.clone(),
                provider: Arc::clone(&self.provider.name),
                status: status.clone(),
                leases: self.leases.clone(),
                node_lifecycle: self.metrics.loops.node_lifecycle.clone(),
                route: self.metrics.loops.route.clone(),
            };
            health::checks(&self.cluster, &self.identity, &page);
            let site = serve::Site {
                status: Arc::new(move || page.text()),
                health: self.health.clone(),
                registry: Arc::new(std::mem::take(&mut self.registry)),
                config: Arc::clone(config),
                reviewer,
            };
            let serving = serve::serve(listener, site, tasks.stop_serving.clone());
            tasks.closing.spawn(serving);
        }
        if let Some(listener) = deps.webhook_listener.take() {
            let metrics = self.metrics.webhooks.clone();
            let site = webhooks::site(config, &self.provider.name, status, metrics);
            let serving = serve::serve_webhooks(listener, site, tasks.stop_serving.clone());
            tasks.closing.spawn(serving);
        }
    }

    /// Leads whenever this process holds the Lease, until the end.
    pub(super) async fn work(&self, deps: &Deps) -> Result<(), RunError> {
        let migration = self.leases.migration.as_ref();
        // Migrated controllers get the same context, behind the fence of their own Lease.
        let migration = migration.map(|(fence, elector)| Migration {
            elector: elector.clone(),
            loops: self.loops(deps, self.clients.fenced_by(fence.clone()), fence),
        });
        let candidate = Candidate {
            main: self.loops(deps, self.clients.write.clone(), &self.leases.fence),
            elector: self.leases.elector.as_ref(),
            migration: migration.as_ref(),
            memories: Memories::default(),
            identity: &self.identity,
            metrics: &self.metrics.loops,
            shutdown: &deps.shutdown,
            provider_metrics: &self.metrics.provider,
            leading: &self.provider.leading,
        };
        candidate.work().await
    }

    fn loops(&self, deps: &Deps, client: kube::Client, fence: &Fence) -> LeaseLoops {
        let context = LoopContext {
            provider: Arc::clone(&self.provider.name),
            config: Arc::clone(&self.config),
            cluster: self.cluster.clone(),
            watch_client: self.clients.watch.clone(),
            writes: Writes::new(client, self.events.clone()),
            status: self.provider.status.clone(),
            fence: fence.clone(),
            wall: Arc::clone(&deps.wall),
            seed: deps.seed(5),
            stop: CancellationToken::new(),
            queue_metrics: self.metrics.queues.clone(),
            hints: self.provider.hints.clone(),
        };
        LeaseLoops {
            context,
            own: own_clients(&self.clients, deps.anonymous.as_ref(), fence),
        }
    }
}

/// The client of each controller that has an identity of its own.
fn own_clients(
    clients: &kube_client::KubeClients,
    anonymous: Option<&kube_client::Base>,
    fence: &Fence,
) -> Own {
    let Some(anonymous) = anonymous else {
        return Own::new();
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
