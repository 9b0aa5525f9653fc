//! The route controller (B-R1 to ▲R10): routes to the Pods of each Node.
//!
//! ```text
//! a pass (after a change of Nodes, a hint, a new session, a provider that becomes READY while the
//! ccm keeps routes for it, a pass or work that needs another list, or the resync):
//!     ListRoutes -> plan::pass -> destinations with work become due; conditions
//! a destination that is due: DeleteRoutes, CreateRoutes -> condition
//! ```
//!
//! A pass does not wait for the calls of an earlier pass, unless `max_in_flight` is 1. It skips a
//! destination with a call in flight, so that a hanging call does not delay the next pass (▲M10).
//! Therefore passes and destinations are the keys of two drivers.

mod calls;
mod condition;
mod facts;
mod ledger;
mod lists;
mod plan;
mod reported;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use ipnet::IpNet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use crate::controller::{self, Driver, LoopContext, Permits, Spec};
use crate::core::{Backoff, ProviderLabel, changed, lock, registered, set_gauge};
use crate::ownership::Ownership;
use crate::provider::lookup::IsolatedKeys;
use crate::provider::{Capability, Session};
use crate::queue::Queue;
use crate::report::Waiting;
use calls::Calls;
use facts::NodeFacts;
use ledger::{Ledger, NodeName};
use lists::Lists;

/// Without any change, a pass starts after this time and up to a quarter more (▲R6), or after the
/// period if that is longer. A destination that still waits for a list after this time asks again.
pub(crate) const RESYNC: Duration = Duration::from_hours(1);
/// The longest backoff after a failed list or call. For lists it is the period if that is longer.
const LONGEST_DELAY: Duration = Duration::from_mins(5);

/// The loop of one provider. Returns after `context.stop`, when the work in flight has ended.
pub(crate) async fn run(context: LoopContext, metrics: Metrics) {
    let routes = Arc::new(Routes::new(context, metrics));
    let lists = Arc::new(Lists(Arc::clone(&routes)));
    let calls = Arc::new(Calls(Arc::clone(&routes)));
    tokio::join!(
        controller::run(&lists),
        controller::run(&calls),
        routes.write_conditions(),
        routes.lists.housekeep(|_| routes.report_overdue()),
    );
    routes.metrics.forget(&routes.context().provider);
}

struct Routes {
    /// Its only key is the pass.
    lists: Driver<()>,
    /// Its keys are destinations.
    calls: Driver<IpNet>,
    /// The Nodes whose condition has to be written.
    conditions: Queue<NodeName>,
    permits: Permits,
    /// By destination and `route_key`.
    isolated: IsolatedKeys<(IpNet, String)>,
    metrics: Metrics,
    state: Mutex<State>,
}

/// The state that passes and calls share.
struct State {
    ledger: Ledger,
    /// Routes that failed, and what the controller reported about them.
    waiting: Waiting<IpNet>,
    /// The session of the last list.
    session: Weak<Session>,
    /// Which Nodes are the provider's. It is kept while the provider is away.
    ownership: Option<Arc<Ownership>>,
    last_list: Option<Instant>,
    /// How many routes the last pass kept because the provider was not READY, or no Node was known.
    held: usize,
    /// The complaint of the last pass, which is logged once.
    complaint: Option<String>,
    /// Pod CIDRs that two Nodes have. Each is reported once as long as it lasts.
    clashes: BTreeSet<(String, IpNet)>,
    random: ChaCha8Rng,
}

impl Routes {
    fn new(context: LoopContext, metrics: Metrics) -> Self {
        let period = context.config.route.reconciliation_period;
        let spec = |queue, base: Duration| Spec {
            name: "route_controller",
            queue,
            backoff: Backoff::new(base, LONGEST_DELAY.max(base)),
            needs: Capability::Routes,
        };
        let (seed, queues) = (context.seed, &context.queue_metrics);
        Self {
            conditions: Queue::new("RouteConditions", condition::BACKOFF, seed, queues),
            lists: Driver::new(context.clone(), spec("Routes", period)),
            calls: Driver::new(context, spec("RouteCalls", Duration::from_secs(5))),
            permits: Permits::default(),
            isolated: IsolatedKeys::default(),
            metrics,
            state: Mutex::new(State {
                ledger: Ledger::default(),
                waiting: Waiting::default(),
                session: Weak::new(),
                ownership: None,
                last_list: None,
                held: 0,
                complaint: None,
                clashes: BTreeSet::new(),
                random: ChaCha8Rng::seed_from_u64(seed),
            }),
        }
    }

    fn context(&self) -> &LoopContext {
        &self.lists.context
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn period(&self) -> Duration {
        self.context().config.route.reconciliation_period
    }

    /// All Nodes, with their owners according to this session.
    fn facts(&self, session: &Session) -> Vec<NodeFacts> {
        let (context, ownership) = (self.context(), &session.ownership);
        let nodes = context.cluster.nodes.all();
        nodes
            .iter()
            .map(|node| NodeFacts::of(node, ownership, &context.provider))
            .collect()
    }

    /// Makes a pass due when the provider becomes READY and routes were kept.
    async fn follow_readiness(&self) {
        let mut status = self.context().status.clone();
        let mut ready = false;
        loop {
            let now = status.borrow_and_update().may_delete();
            if now && !ready && self.state().held > 0 {
                self.lists.queue.add(());
            }
            ready = now;
            changed(&mut status).await;
        }
    }
}

/// `route_controller_*`.
#[derive(Clone)]
pub(crate) struct Metrics {
    synced: Counter,
    failing: Family<ProviderLabel, Gauge>,
    /// The result of the last pass, for the status page, by provider.
    found: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Metrics {
    /// Registers the families (B-M7).
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            synced: registered(
                registry,
                "route_controller_route_sync",
                "Reconciliations of all routes",
                Counter::default(),
            ),
            failing: registered(
                registry,
                "route_controller_failing_routes",
                "Routes of Nodes that could not be created: the ccm tries them again",
                Family::default(),
            ),
            found: Arc::default(),
        }
    }

    /// Sets one failing route, for tests of the metrics.
    #[cfg(test)]
    pub(crate) fn touch(&self) {
        self.failing("mock", 1);
    }

    /// Lines for the status page, one for each provider with a pass.
    pub(crate) fn status_lines(&self) -> Vec<String> {
        let found = lock(&self.found);
        let lines = found.iter();
        lines
            .map(|(provider, found)| format!("{provider}: {found}"))
            .collect()
    }

    pub(crate) fn found(&self, provider: &str, found: String) {
        let mut all = lock(&self.found);
        all.insert(provider.to_owned(), found);
    }

    fn failing(&self, provider: &str, count: usize) {
        set_gauge(&self.failing, provider, count);
    }

    /// Forgets the provider's result, because its loop has ended.
    fn forget(&self, provider: &str) {
        self.failing(provider, 0);
        let mut all = lock(&self.found);
        all.remove(provider);
    }
}

#[cfg(test)]
mod tests;
