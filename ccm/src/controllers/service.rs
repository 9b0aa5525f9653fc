//! The service controller (B-S1 to ▲S22): load balancers for Services.
//!
//! A change of a Service's inputs, or of its target set, can make the Service due. A job ([`sync`])
//! reconciles the Service step by step. Many jobs run at once, but at most one for each Service.
//! The [`record`] is this process's knowledge of a Service.

mod answer;
mod fingerprint;
#[cfg(test)]
mod fixtures;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod handle;
mod job;
mod ledger;
mod lists;
mod memory;
mod metrics;
mod nodes;
mod notes;
mod orphans;
mod plan;
mod record;
mod reported;
mod settle;
mod standing;
mod support;
mod sync;
mod targets;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use cloud_provider_api::v1alpha1::LoadBalancerCapability;
use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;

use crate::args::OrphanPolicy;
use crate::cluster::Change;
use crate::controller::{
    Batch, Driver, LoopContext, Reconciler, Spec, Wake, Width, changes, hints, lowered,
};
use crate::core::{Backoff, Key, lock};
use crate::ownership::Ownership;
use crate::planted::planted;
use crate::provider::{Capability, Hint, Projections, ProviderStatus, Session};
use crate::report::Waiting;
use ledger::{Ledger, Task};
use lists::Lists;
pub(crate) use memory::Memory;
pub(crate) use metrics::Metrics;
use targets::Pool;

/// The least time between two checks of a Service because of hints.
const CHECK_GAP: Duration = Duration::from_secs(10);

/// The loop of one provider. Returns after `context.stop`, when the work in flight has ended.
pub(crate) async fn run(context: LoopContext, memory: Arc<Memory>, metrics: Metrics) {
    let synced = async {
        context.cluster.nodes.synced().await;
        context.cluster.services.synced().await;
    };
    if context.stop.run_until_cancelled(synced).await.is_none() {
        return;
    }
    if context.cluster.service_ranges().is_none() {
        tracing::warn!(
            "the ServiceCIDRs are not read yet: a load balancer may show the address of another Service until the ccm has read them (it needs the right to list and watch them), or --service-cluster-ip-range gives the range"
        );
    }
    let worker = Arc::new(Worker::new(context, memory, metrics));
    let _leaving = Leaving(&worker);
    tokio::join!(
        crate::controller::run(&worker),
        worker.follow_nodes(),
        worker.housekeep(),
    );
}

struct Worker {
    driver: Driver<Task>,
    memory: Arc<Memory>,
    metrics: Metrics,
    state: Mutex<State>,
}

/// The state that jobs, watches and the provider's lists share.
#[derive(Default)]
struct State {
    ledger: Ledger,
    /// The session whose offer is stored.
    session: Weak<Session>,
    /// The provider's last offer. It stays while the provider is unavailable.
    offer: Option<Arc<Offer>>,
    pool: Pool,
    /// Nodes whose part of a request would be too large. They are no targets.
    too_large: BTreeSet<String>,
    /// When the current round of target updates began, and the Services that it has not tried yet.
    round: Option<(Instant, BTreeSet<Task>)>,
    waiting: Waiting<Task>,
    lists: Lists,
}

/// Information about a provider, from its session and its status.
#[derive(PartialEq)]
struct Offer {
    /// The name that the provider states.
    name: String,
    /// The load balancers of another scope do not exist in this one.
    cloud_scope: Option<String>,
    load_balancers: LoadBalancerCapability,
    ownership: Arc<Ownership>,
    projections: Projections,
}

impl Offer {
    fn of(session: &Session, cloud_scope: Option<String>) -> Self {
        let offered = session.info.capabilities.as_ref();
        let load_balancers = offered.and_then(|offered| offered.load_balancers.clone());
        Self {
            name: session.info.provider_name.clone(),
            cloud_scope,
            load_balancers: load_balancers.unwrap_or_default(),
            ownership: Arc::clone(&session.ownership),
            projections: session.projections.clone(),
        }
    }

    /// Whether the Service is this provider's.
    fn owns(&self, service: &Service, provider: &str) -> bool {
        self.ownership.service_owner(service) == Some(provider)
    }
}

/// When this loop ends or is dropped, hands the records of load balancers that may exist to the
/// next loop.
struct Leaving<'a>(&'a Worker);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let known = self.0.state().ledger.leave();
        self.0.memory.keep(known);
    }
}

impl Worker {
    fn new(context: LoopContext, memory: Arc<Memory>, metrics: Metrics) -> Self {
        let spec = Spec {
            name: "service-controller",
            queue: "service",
            backoff: Backoff::new(Duration::from_secs(5), Duration::from_mins(5)),
            needs: Capability::LoadBalancers,
        };
        let driver = Driver::new(context, spec);
        let mut state = State::default();
        for (task, record) in memory.take() {
            let shown = match &task {
                Task::Service(key) => driver.context.cluster.services.get(key),
                _ => None,
            };
            let record = record.inherited(shown.as_deref());
            state.ledger.put(&task, Some(record));
            driver.queue.add(task);
        }
        let config = &driver.context.config.service;
        if config.orphans != OrphanPolicy::Ignore {
            let first = Instant::now() + config.orphan_period;
            driver.queue.add_at(Task::List, first);
        }
        Self {
            driver,
            memory,
            metrics,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn wakes(&self, change: &Change<Service>) -> Option<Wake<Task>> {
        let service = change.new.as_ref().or(change.old.as_ref())?;
        let key = Key::of(&**service);
        let task = Task::Service(key.clone());
        let mut state = self.state();
        if state.ledger.changed(&task) {
            None
        } else if state.ledger.is_news(&key, change.new.as_deref()) {
            Some(Wake::Due(task))
        } else if change.new.is_none() {
            state.ledger.uses(&key, None);
            Some(Wake::Gone(task))
        } else {
            None
        }
    }

    /// The tasks that a hint makes due.
    fn hinted_at(&self, hint: &Hint) -> Vec<Task> {
        let mut state = self.state();
        let offer = state.offer.as_ref();
        let in_sync = offer.is_some_and(|offer| offer.load_balancers.in_sync);
        let mut tasks = match hint {
            Hint::LoadBalancer { namespace, name } => vec![Task::Service(Key {
                namespace: namespace.clone(),
                name: name.clone(),
            })],
            // Without the capability `in_sync`, the check of a wanted Service would be an Ensure.
            Hint::Resync if in_sync => state.ledger.tasks(),
            Hint::Resync | Hint::Instance { .. } | Hint::Routes => Vec::new(),
        };
        tasks.retain(|task| self.check(&mut state, task));
        tasks
    }

    /// Marks the task for a check. Returns whether the task becomes due. A retry after a failure
    /// keeps its time, so hints do not speed up retries.
    fn check(&self, state: &mut State, task: &Task) -> bool {
        // `pending` is not a failure, and a hint may report its end.
        state.ledger.check(task)
            && (self.driver.queue.due(task).is_none() || state.ledger.is_pending(task))
    }

    /// Stores the offer of this session. Returns the tasks that become due.
    fn learn(&self, state: &mut State, session: &Arc<Session>) -> Vec<Task> {
        let current = Arc::downgrade(session);
        if current.ptr_eq(&state.session) {
            return Vec::new();
        }
        state.session = current;
        // The lists of another provider or session do not count.
        state.lists = Lists::default();
        let cloud_scope = self.driver.context.status.borrow().cloud_scope.clone();
        let offer = Arc::new(Offer::of(session, cloud_scope));
        if state.offer.as_ref() == Some(&offer) {
            return Vec::new();
        }
        let before = state.offer.replace(Arc::clone(&offer));
        self.rebuild(state);
        let Some(before) = before else {
            return Vec::new();
        };
        if before.cloud_scope != offer.cloud_scope {
            state.ledger.check_all();
        }
        self.metrics.unsaid(&self.driver.context.provider);
        // Includes Services without a record: the provider may not have served their class before.
        let services = self.driver.context.cluster.services.all();
        let wanted = services
            .iter()
            .map(|service| (Key::of(&**service), service))
            .filter(|(key, service)| {
                state.ledger.is_news(key, Some(service)) && !planted!(LaterClassesAreNotServed)
            })
            .map(|(key, _)| Task::Service(key));
        state.ledger.known().into_iter().chain(wanted).collect()
    }

    /// The most Services that are reconciled at once.
    fn most_jobs(&self, session: &Session) -> usize {
        let flag = self.driver.context.config.service.concurrent_syncs;
        lowered(session.limiters.load_balancers.width, flag)
    }
}

impl Reconciler for Worker {
    type Key = Task;

    fn driver(&self) -> &Driver<Task> {
        &self.driver
    }

    async fn sources(&self) {
        let (driver, services) = (&self.driver, &self.driver.context.cluster.services);
        let about = |hint: &Hint| self.hinted_at(hint);
        tokio::join!(
            changes(driver, services, |change| self.wakes(change)),
            hints(driver, Duration::ZERO, CHECK_GAP, about),
        );
    }

    fn renewed(&self, session: &Arc<Session>, _: &ProviderStatus) -> Vec<Task> {
        self.learn(&mut self.state(), session)
    }

    /// A job alternates calls and writes, so it holds one place for both.
    fn width(&self, session: &Arc<Session>) -> Width {
        let calls = self.most_jobs(session);
        Width {
            batch: 1,
            linger: Duration::ZERO,
            calls,
            writes: calls,
        }
    }

    async fn reconcile(&self, session: &Arc<Session>, batch: &Batch<'_, Task>) {
        for task in batch.keys() {
            match task {
                Task::EmptySets => self.recheck(batch).await,
                Task::List => self.list(session, batch).await,
                Task::Service(_) | Task::Departed(..) => self.sync(session, &task, batch).await,
            }
        }
    }
}

impl State {
    /// Whether the provider does not use the targets of Services.
    fn ignores_nodes(&self) -> bool {
        let offer = self.offer.as_ref();
        offer.is_some_and(|offer| offer.load_balancers.ignores_nodes)
    }
}
