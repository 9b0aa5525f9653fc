//! The state of one provider's loop, and what each thing that happens does to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::facts::{NodeFacts, matters};
use super::jobs::{Batch, Done, Tools};
use super::ledger::Ledger;
use super::plan::{self, Look, Pass};
use super::{Found, Metrics};
use crate::cluster::Change;
use crate::controller::LoopContext;
use crate::provider::{Capability, Session, Trouble, TroubleCode};
use crate::queue::{Backoff, Outcome, PROBE, Queue};
use crate::report::Waiting;

/// The one key of the queue: a look is at everything.
const ROUTES: &str = "routes";
/// Changes that come together make one look.
const LINGER: Duration = Duration::from_millis(500);
/// Without any change everything is looked at again after this, and up to a quarter more (▲R6).
pub(crate) const RESYNC: Duration = Duration::from_hours(1);
/// `max_in_flight` where the provider states none.
const DEFAULT_IN_FLIGHT: usize = 8;
/// No provider gets more calls at once.
const MOST_IN_FLIGHT: usize = 32;
/// Writes to the API server that run at once.
const WRITERS: usize = 16;
/// A condition that could not be written is looked at again after this.
const CONDITION_AGAIN: Duration = Duration::from_mins(1);

/// The loop's state.
pub(super) struct Work {
    pub(super) queue: Queue<&'static str>,
    pub(super) jobs: JoinSet<Done>,
    pub(super) context: LoopContext,
    pub(super) ledger: Ledger,
    pub(super) session: Option<Arc<Session>>,
    /// How many calls that change routes run at once.
    pub(super) calls: Arc<Semaphore>,
    /// Creates that wait until what is in their way is gone.
    pub(super) chains: BTreeMap<IpNet, Chain>,
    /// Calls that failed as a whole, in a row.
    pub(super) failed_in_row: u32,
    writers: Arc<Semaphore>,
    /// Conditions that are being written, by the Node's UID; and what is wanted since.
    pub(super) writing: BTreeMap<String, (bool, Option<bool>)>,
    pub(super) metrics: Metrics,
    random: ChaCha8Rng,
    last_look: Option<Instant>,
    /// Routes that were not removed because the provider was not READY.
    pub(super) held: usize,
    may_delete: bool,
    /// What the last look complained of: it is told once.
    pub(super) complaint: Option<String>,
    /// Pod CIDRs that two Nodes have: told once.
    pub(super) clashes: BTreeSet<(String, IpNet)>,
    /// Routes that were tried in vain, and what was told of them.
    pub(super) waiting: Waiting<IpNet>,
}

/// What follows when the routes of a destination are removed.
pub(super) struct Chain {
    /// Removals that are not over yet.
    pub(super) left: usize,
    pub(super) failed: bool,
    pub(super) create: Option<api::Route>,
}

impl Work {
    pub(super) fn new(context: LoopContext, metrics: Metrics) -> Self {
        let backoff = Backoff {
            base: context.config.route.reconciliation_period,
            max: Duration::from_mins(5).max(context.config.route.reconciliation_period),
        };
        let queue = Queue::new("Routes", backoff, context.seed, &context.queue_metrics);
        queue.pause();
        Self {
            queue,
            jobs: JoinSet::new(),
            ledger: Ledger::new(context.seed),
            session: None,
            calls: Arc::new(Semaphore::new(1)),
            chains: BTreeMap::new(),
            failed_in_row: 0,
            writers: Arc::new(Semaphore::new(WRITERS)),
            writing: BTreeMap::new(),
            metrics,
            random: ChaCha8Rng::seed_from_u64(context.seed),
            last_look: None,
            held: 0,
            may_delete: false,
            complaint: None,
            clashes: BTreeSet::new(),
            waiting: Waiting::default(),
            context,
        }
    }

    /// With a new session everything is looked at: at once where there is a Node to route, else with the first such Node, or after one period.
    fn begin(&self, session: &Session) {
        let nodes = self.context.cluster.nodes.all();
        let mut facts = nodes
            .iter()
            .map(|node| NodeFacts::of(node, &session.ownership, &self.context.provider));
        let wait = if facts.any(|facts| facts.is_routed()) {
            Duration::ZERO
        } else {
            self.period()
        };
        self.look_at(Instant::now() + wait);
    }

    fn period(&self) -> Duration {
        self.context.config.route.reconciliation_period
    }

    /// Looks keep this far apart, whatever happens (▲R6).
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.last_look.map(|last| last + self.period())
    }

    /// A look at this time, or as soon after it as may be.
    pub(super) fn look_at(&self, at: Instant) {
        let at = self.not_before().map_or(at, |earliest| at.max(earliest));
        self.queue.add_at(ROUTES, at);
    }

    pub(super) fn hinted(&self) {
        self.look_at(Instant::now() + LINGER);
    }

    pub(super) fn nodes_changed(&mut self, changes: &[Change<Node>]) {
        let Some(session) = &self.session else {
            // A provider that comes back is a reason of its own.
            return;
        };
        let facts = |node: Option<&Arc<Node>>| {
            node.map(|node| NodeFacts::of(node, &session.ownership, &self.context.provider))
        };
        let any = changes.iter().any(|change| {
            let (old, new) = (facts(change.old.as_ref()), facts(change.new.as_ref()));
            matters(old.as_ref(), new.as_ref())
        });
        if any {
            self.look_at(Instant::now() + LINGER);
        }
    }

    pub(super) fn provider_changed(&mut self) {
        let (session, may_delete) = {
            let status = self.context.status.borrow();
            (
                status.usable(Capability::Routes),
                status.may_delete_routes(),
            )
        };
        let may_again = may_delete && !self.may_delete && self.held > 0;
        self.may_delete = may_delete;
        match (&session, &self.session) {
            (None, _) => self.queue.pause(),
            (Some(new), Some(old)) if Arc::ptr_eq(new, old) => {
                self.queue.resume();
                if may_again {
                    self.look_at(Instant::now());
                }
            }
            (Some(new), _) => {
                self.calls = Arc::new(Semaphore::new(self.width(new)));
                self.failed_in_row = 0;
                self.ledger.reset_transport_backoffs(Instant::now());
                self.queue.reset_transport_backoffs();
                self.queue.resume();
                self.begin(new);
            }
        }
        // While it pauses the old session tells whose a Node is.
        if session.is_some() {
            self.session = session;
        }
    }

    /// How many calls that change routes run at once: one place of `max_in_flight` is left to the list.
    fn width(&self, session: &Session) -> usize {
        let stated = session.route_capability().and_then(|it| it.max_in_flight);
        let most = match stated {
            None | Some(0) => DEFAULT_IN_FLIGHT,
            Some(width) => (width as usize).min(MOST_IN_FLIGHT),
        };
        let most = most.saturating_sub(1).max(1);
        let asked = self.context.config.route.concurrent_syncs;
        asked.map_or(most, |asked| asked.min(most))
    }

    /// A look begins: the provider's routes are listed.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        let session = self.context.status.borrow().usable(Capability::Routes);
        let Some(session) = session else {
            // The queue pauses when the news comes; whoever is back is looked at at once.
            self.queue.done(&ROUTES, Outcome::At(now));
            self.queue.pause();
            return;
        };
        if let Some(earliest) = self.not_before().filter(|earliest| *earliest > now) {
            self.queue.done(&ROUTES, Outcome::At(earliest));
            return;
        }
        self.last_look = Some(now);
        self.metrics.synced.inc();
        let tools = self.tools();
        self.jobs.spawn(tools.list(session, now));
    }

    pub(super) fn tools(&self) -> Tools {
        Tools {
            provider: Arc::clone(&self.context.provider),
            writes: self.context.writes.clone(),
            fence: self.context.fence.clone(),
            status: self.context.status.clone(),
            stop: self.context.stop.clone(),
            wall: Arc::clone(&self.context.wall),
            calls: Arc::clone(&self.calls),
            writers: Arc::clone(&self.writers),
        }
    }

    /// A job is over.
    pub(super) fn finished(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Listed {
                session,
                asked_at,
                routes,
            }) => {
                let outcome = self.listed(&session, asked_at, routes);
                self.queue.done(&ROUTES, outcome);
            }
            Ok(Done::Read {
                session,
                asked_at,
                routes,
                first,
                nodes,
            }) => self.read_again(&session, asked_at, &routes, &first, nodes),
            Ok(Done::Wrote {
                session,
                batch,
                answer,
                took,
            }) => self.wrote(&session, batch, answer, took),
            Ok(Done::Condition { node, written }) => self.condition_written(&node, written),
            Err(error) => {
                // Its text is in the log already.
                tracing::error!(%error, "a look at routes or a call died: this is a bug");
                let now = Instant::now();
                self.ledger.forget_work(now);
                self.chains.clear();
                self.writing.clear();
                self.queue.done(&ROUTES, Outcome::Retry);
                self.look_at(now + self.period());
            }
        }
    }

    fn listed(
        &mut self,
        session: &Arc<Session>,
        asked_at: Instant,
        routes: Option<Result<Vec<api::Route>, Trouble>>,
    ) -> Outcome {
        let now = Instant::now();
        let again = self.not_before().unwrap_or(now);
        let routes = match routes {
            Some(Ok(routes)) => routes,
            Some(Err(trouble)) => return self.no_list(&trouble, now),
            // Told to stop, or another session: the next look is at the routes of that one.
            None => return Outcome::At(again),
        };
        if !self.is_current(session) {
            return Outcome::At(again);
        }
        let nodes: Vec<NodeFacts> = {
            let nodes = self.context.cluster.nodes.all();
            let facts = nodes.iter();
            facts
                .map(|node| NodeFacts::of(node, &session.ownership, &self.context.provider))
                .collect()
        };
        let mut pass = self.pass(session, asked_at, &routes, &nodes);
        self.tell(&pass);
        let tasks = std::mem::take(&mut pass.tasks);
        let (ready, doubtful) = if pass.needs_second_look {
            tasks.into_iter().partition(|task| task.delete.is_empty())
        } else {
            (tasks, Vec::new())
        };
        self.start(session, ready);
        if !doubtful.is_empty() {
            tracing::warn!(
                provider = %self.context.provider,
                routes = deletions(&doubtful),
                of = pass.inside,
                "many routes would go: the Nodes are read from the API server first"
            );
            let tools = self.tools();
            let read = tools.read(Arc::clone(session), asked_at, routes, doubtful);
            self.jobs.spawn(read);
        }
        for node in &pass.unrouted {
            self.set_condition(node, false);
        }
        let nodes: Vec<_> = self.ledger.nodes().collect();
        for node in nodes {
            self.conclude(&node);
        }
        let resync = now + RESYNC.mul_f64(self.random.random_range(1.0..=1.25));
        let next = pass.again_at.map_or(resync, |at| at.max(again).min(resync));
        Outcome::At(next)
    }

    fn pass(
        &mut self,
        session: &Session,
        asked_at: Instant,
        routes: &[api::Route],
        nodes: &[NodeFacts],
    ) -> Pass {
        let viewed = self.context.cluster.nodes.is_synced() && !nodes.is_empty();
        let look = Look {
            nodes,
            routes,
            cluster_cidrs: &self.context.config.cluster.cidrs,
            tracks_addresses: session
                .route_capability()
                .is_some_and(|routes| routes.tracks_node_addresses),
            may_delete: viewed && self.context.status.borrow().may_delete_routes(),
            asked_at,
            now: Instant::now(),
        };
        plan::pass(&mut self.ledger, &look)
    }

    /// The API server was asked for its Nodes (▲R7).
    fn read_again(
        &mut self,
        session: &Arc<Session>,
        asked_at: Instant,
        routes: &[api::Route],
        first: &[plan::Task],
        nodes: Option<Result<Vec<NodeFacts>, String>>,
    ) {
        let provider = &self.context.provider;
        let nodes = match nodes {
            Some(Ok(nodes)) => nodes,
            Some(Err(error)) => {
                tracing::warn!(%provider, error, "no route is removed: the Nodes cannot be read from the API server");
                self.look_at(Instant::now());
                return;
            }
            None => return,
        };
        if !self.is_current(session) {
            return;
        }
        let second = self.pass(session, asked_at, routes, &nodes);
        let tasks = plan::confirmed(first, second.tasks);
        if deletions(&tasks) < deletions(first) {
            tracing::warn!(
                provider = %self.context.provider,
                kept = deletions(first) - deletions(&tasks),
                "routes stay: the API server has other Nodes than our view of it"
            );
            self.look_at(Instant::now());
        }
        self.start(session, tasks);
    }

    fn no_list(&mut self, trouble: &Trouble, now: Instant) -> Outcome {
        let provider = &self.context.provider;
        if self.complaint.as_ref() != Some(&trouble.message) {
            tracing::warn!(%provider, error = %trouble, "routes cannot be listed: none is made or removed");
            self.complaint = Some(trouble.message.clone());
        }
        let why = Found::NoList(trouble.to_string());
        self.metrics.found(provider, why);
        match (trouble.retry_after, trouble.code) {
            (Some(wait), _) => Outcome::At(now + wait),
            (None, TroubleCode::Credentials) => Outcome::At(now + PROBE),
            (
                None,
                TroubleCode::Unknown
                | TroubleCode::Deadline
                | TroubleCode::Disconnected
                | TroubleCode::NotInitialized,
            ) => Outcome::RetryTransport,
            (None, _) => Outcome::Retry,
        }
    }

    pub(super) fn is_current(&self, session: &Arc<Session>) -> bool {
        let current = self.context.status.borrow().usable(Capability::Routes);
        current.is_some_and(|current| Arc::ptr_eq(&current, session))
    }

    /// Begins the work of a look.
    fn start(&mut self, session: &Arc<Session>, tasks: Vec<plan::Task>) {
        let (mut deletes, mut creates) = (Vec::new(), Vec::new());
        for task in tasks {
            self.ledger.begin(task.destination);
            if task.delete.is_empty() {
                creates.extend(task.create.map(|route| (task.destination, route)));
                continue;
            }
            let chain = Chain {
                left: task.delete.len(),
                failed: false,
                create: task.create,
            };
            self.chains.insert(task.destination, chain);
            for route in task.delete {
                deletes.push((task.destination, route, task.in_the_way));
            }
        }
        self.send(session, Batch::deletes(deletes));
        self.send(session, Batch::creates(creates));
    }

    /// Sends a batch in as many calls as it takes.
    pub(super) fn send(&mut self, session: &Arc<Session>, batch: Batch) {
        let parts = batch.split(session.max_route_batch(), |destination| {
            self.ledger.is_alone(destination)
        });
        for part in parts {
            let tools = self.tools();
            self.jobs.spawn(tools.write(Arc::clone(session), part));
        }
    }

    /// 0.0 to 1.0: routes that were BUSY together do not come back together.
    pub(super) fn jitter(&mut self) -> f64 {
        self.random.random_range(0.0..=1.0)
    }

    pub(super) fn condition_again(&self) {
        self.look_at(Instant::now() + CONDITION_AGAIN);
    }
}

pub(super) fn deletions(tasks: &[plan::Task]) -> usize {
    tasks.iter().map(|task| task.delete.len()).sum()
}
