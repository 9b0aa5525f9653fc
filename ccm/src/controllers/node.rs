//! The node controller (B-N1 to ▲N14): initialises Nodes and keeps their addresses and labels current.
//!
//! ```text
//! Change -> queue -> batch -> lookup -> plan::changes -> writes -> done        (Nodes with the taint)
//! every --node-status-update-frequency: batches, spread -> lookup -> plan::changes -> writes   (the others)
//! ```

mod addresses;
mod claimants;
mod claims;
#[cfg(test)]
pub(crate) mod fuzz;
mod hints;
pub(crate) mod labels;
mod managed;
mod metrics;
mod plan;
mod refresh;
mod sync;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::Change;
use crate::controller::LoopContext;
use crate::core::{Key, wall_time};
use crate::ownership::Ownership;
use crate::provider::lookup::Loners;
use crate::provider::{Capability, Projection, Session};
use crate::queue::{Backoff, Outcome, Queue};
use crate::report::{self, Answered, Away, Next, Waiting};
use crate::writes::{EventType, node_reference, reason};

pub(crate) use metrics::Metrics;
use sync::HandedOut;

/// Writes to the API server that run at once, over all batches.
const WRITERS: usize = 64;
/// No new batch is taken while so many answered Nodes wait for their writes: the batches grow fuller meanwhile.
const WRITE_BACKLOG: usize = 4 * WRITERS;
/// How often it is looked at who waits for too long.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_mins(2),
};

/// The loop of one provider. Returns after `context.stop`, when what is in flight is over.
pub(crate) async fn run(mut context: LoopContext, metrics: Metrics) {
    context.writes = context.writes.with_component("cloud-node-controller");
    let worker = Arc::new(Worker::new(context, metrics));
    tokio::join!(
        worker.watch_nodes(),
        worker.follow_provider(),
        worker.follow_hints(),
        worker.housekeep(),
        worker.dispatch(),
        worker.refresh(),
    );
}

/// What the parts of the loop share.
struct Worker {
    context: LoopContext,
    metrics: Metrics,
    /// Names of Nodes with the taint.
    queue: Queue<String>,
    waiting: Mutex<Waiting<String>>,
    claims: claims::Claims,
    /// The Nodes that a lookup is under way for, since when.
    asked: Mutex<BTreeMap<String, Instant>>,
    loners: Loners,
    managed: managed::Managed,
    writers: Semaphore,
    load: watch::Sender<Load>,
    lookups: Mutex<Lookups>,
    /// The cloud said slow down: no lookup before this (THROTTLED).
    not_before: Mutex<Instant>,
    /// When it was last told that the cloud refuses the provider's credentials.
    credentials_told: Mutex<Option<Instant>>,
    /// What the provider said last; it holds also while the provider is away.
    said: Mutex<Option<Arc<Said>>>,
    /// The addresses that were written to Nodes that still have the taint: they come back by the watch and are no news.
    addressed: Mutex<BTreeMap<String, Vec<NodeAddress>>>,
}

/// What a provider said of itself.
struct Said {
    ownership: Arc<Ownership>,
    /// What it sees of Nodes.
    projection: Projection,
}

/// What is under way.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Batches whose lookup is not over.
    asking: usize,
    /// Nodes whose writes are not over.
    writing: usize,
}

/// The lookups that one session allows at once.
struct Lookups {
    session: Weak<Session>,
    limit: usize,
    permits: Arc<Semaphore>,
}

impl Worker {
    fn new(context: LoopContext, metrics: Metrics) -> Self {
        let queue = Queue::new("Nodes", BACKOFF, context.seed, &context.queue_metrics);
        queue.pause();
        Self {
            queue,
            waiting: Mutex::default(),
            claims: claims::Claims::default(),
            asked: Mutex::default(),
            loners: Loners::default(),
            managed: managed::Managed::default(),
            writers: Semaphore::new(WRITERS),
            load: watch::Sender::new(Load::default()),
            lookups: Mutex::new(Lookups {
                session: Weak::new(),
                limit: 1,
                permits: Arc::new(Semaphore::new(1)),
            }),
            not_before: Mutex::new(Instant::now()),
            credentials_told: Mutex::default(),
            said: Mutex::default(),
            addressed: Mutex::default(),
            context,
            metrics,
        }
    }

    /// Feeds the queue from the store.
    async fn watch_nodes(&self) {
        let mut changes = self.context.cluster.nodes.subscribe();
        loop {
            let batch = tokio::select! {
                biased;
                () = self.context.stop.cancelled() => return,
                batch = changes.next() => batch,
            };
            for change in &batch {
                self.note(change);
            }
        }
    }

    fn note(&self, change: &Change<Node>) {
        match (&change.old, &change.new) {
            (_, Some(node)) => {
                let name = name(node);
                if !plan::gets_id(node) {
                    self.claims.settled(name);
                }
                if !plan::is_uninitialized(node) || !self.concerns(node) {
                    self.waiting().gone(&name.to_owned());
                    self.addressed().remove(name);
                    return;
                }
                // One that is left alone, with its taint, is waited for no more, whatever else changes.
                let said = self.said();
                let nothing = Projection::default();
                let projection = said.as_ref().map_or(&nothing, |said| &said.projection);
                let own = self.addressed().get(name).cloned();
                if plan::wakes(change.old.as_deref(), node, projection, own.as_deref()) {
                    self.wait_for(node);
                    self.queue.add(name.to_owned());
                }
            }
            (Some(node), None) => {
                let name = name(node).to_owned();
                self.claims.settled(&name);
                self.waiting().gone(&name);
                self.addressed().remove(&name);
                self.queue.remove(&name);
            }
            (None, None) => {}
        }
    }

    /// Pauses while the provider cannot be asked, and goes on at once when it can again (▲M9).
    async fn follow_provider(&self) {
        let mut status = self.context.status.clone();
        let mut last: Weak<Session> = Weak::new();
        let mut scope_told = false;
        loop {
            let (session, working) = {
                let status = status.borrow_and_update();
                (
                    status.usable(Capability::Instances),
                    status.working().is_some(),
                )
            };
            if let Some(session) = &session {
                let current = Arc::downgrade(session);
                if !current.ptr_eq(&last) {
                    last = current;
                    *self.said.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(Arc::new(Said {
                            ownership: Arc::clone(&session.ownership),
                            projection: session.projection.clone(),
                        }));
                    self.queue.reset_transport_backoffs();
                    self.add_all();
                }
                self.queue.resume();
                scope_told = false;
            } else {
                self.queue.pause();
                if working && !scope_told {
                    scope_told = true;
                    tracing::warn!(
                        provider = %self.context.provider,
                        "no Node is initialised or refreshed: the cloud scope is not the accepted one"
                    );
                }
            }
            drop(session);
            tokio::select! {
                biased;
                () = self.context.stop.cancelled() => return,
                changed = status.changed() => if changed.is_err() {
                    self.queue.pause();
                    return self.context.stop.cancelled().await;
                },
            }
        }
    }

    /// A new session may know what the last one did not, and own other Nodes.
    fn add_all(&self) {
        for node in self.context.cluster.nodes.all() {
            if !plan::is_uninitialized(&node) {
                continue;
            }
            if self.concerns(&node) {
                self.wait_for(&node);
                self.queue.add(name(&node).to_owned());
            } else {
                self.waiting().gone(&name(&node).to_owned());
            }
        }
    }

    /// ▲N13: tells about the Nodes that wait, also while there is no provider to ask.
    async fn housekeep(&self) {
        let mut ticks = tokio::time::interval(HOUSEKEEPING);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut away = Away::default();
        loop {
            tokio::select! {
                biased;
                () = self.context.stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            let patience = away.patience(&self.context.status.borrow(), Instant::now());
            self.tell_the_overdue(patience);
            let oldest = self.waiting().oldest((self.context.wall)());
            self.metrics.oldest(&self.context.provider, oldest);
        }
        // Until somebody leads again nobody may tell.
        let patience = Away::last_patience(&self.context.status.borrow());
        if let Some(patience) = patience {
            self.tell_the_overdue(patience);
        }
        // Whoever leads next reports it.
        self.metrics.oldest(&self.context.provider, Duration::ZERO);
    }

    fn tell_the_overdue(&self, patience: Duration) {
        let state = |name: &String, answered: Option<&Answered>| {
            let obstacle = self.obstacle(name).map(|obstacle| obstacle.text);
            let state = obstacle.or_else(|| answered.map(|answered| answered.words.clone()));
            state.unwrap_or_default()
        };
        let overdue = self.waiting().overdue(Instant::now(), patience, state);
        for (name, answered, attempts) in overdue {
            let Some(node) = self.node(&name) else {
                continue;
            };
            let (reason, text) = match (self.obstacle(&name), answered) {
                (Some(obstacle), _) => (reason::NODE_NOT_INITIALIZED, obstacle.in_full()),
                (None, Some(answered)) => {
                    let text = self.told(&node, &answered, attempts, false);
                    (answered.reason, text)
                }
                (None, None) => {
                    let provider = &self.context.provider;
                    let text = format!(
                        "provider {provider} has not been asked about this Node yet: it waits for its turn"
                    );
                    (reason::NODE_NOT_INITIALIZED, text)
                }
            };
            self.event(&node, EventType::Warning, reason, text);
        }
    }

    /// Why nothing is tried for this Node now.
    fn obstacle(&self, name: &str) -> Option<report::Obstacle> {
        let provider = &self.context.provider;
        let status = self.context.status.borrow();
        if let Some(obstacle) = report::Obstacle::of_provider(provider, &status) {
            return Some(obstacle);
        }
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *asked.get(name)?;
        let deadline = status.usable(Capability::Instances);
        let deadline = deadline.map(|session| session.lookup_deadline());
        let (rpc, since) = ("LookupInstances", self.wall_time(since));
        Some(report::Obstacle::unanswered(provider, rpc, since, deadline))
    }

    /// What is told of the last attempt. `changes`: it is tried again as soon as the Node changes.
    fn told(&self, node: &Node, answered: &Answered, attempt: u32, changes: bool) -> String {
        let provider = &self.context.provider;
        let next = self.queue.due(&name(node).to_owned()).map(|at| {
            if self.session().is_none() {
                Next::WhenBack
            } else if changes {
                Next::WhenChangedOr(self.wall_time(at))
            } else {
                Next::At(self.wall_time(at))
            }
        });
        let about = plan::asked_for(node);
        report::told(answered, provider, Some(&about), attempt, next)
    }

    fn wall_time(&self, at: Instant) -> jiff::Timestamp {
        wall_time(at, Instant::now(), (self.context.wall)())
    }

    /// Takes batches while there is room for them.
    async fn dispatch(self: &Arc<Self>) {
        let mut load = self.load.subscribe();
        let mut tasks = JoinSet::new();
        loop {
            let batch = async {
                let limit = self.session().map_or(1, |session| self.lookups(&session).0);
                let room = |load: &Load| load.asking < limit && load.writing < WRITE_BACKLOG;
                // Its sender is our own.
                drop(load.wait_for(room).await);
                let not_before = *self
                    .not_before
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                tokio::time::sleep_until(not_before).await;
                let max = self.session().map_or(100, |session| session.max_batch());
                self.queue
                    .next_batch(max, self.context.config.node.batch_linger)
                    .await
            };
            tokio::select! {
                biased;
                () = self.context.stop.cancelled() => break,
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => report(ended),
                names = batch => {
                    let asking = self.asking();
                    let worker = Arc::clone(self);
                    tasks.spawn(async move { worker.initialize(names, asking).await });
                }
            }
        }
        while let Some(ended) = tasks.join_next().await {
            report(ended);
        }
    }

    /// What one batch of the queue becomes.
    async fn initialize(&self, names: Vec<String>, asking: Asking) {
        let handed = HandedOut::new(&self.queue, names.clone());
        let Some(session) = self.session() else {
            for name in &names {
                handed.done(name, Outcome::RetryTransport);
            }
            return;
        };
        let mut nodes = Vec::with_capacity(names.len());
        for name in names {
            let node = self.node(&name).filter(|node| {
                let ours = session.ownership.concerns(&self.context.provider, node);
                ours && plan::is_uninitialized(node)
            });
            if let Some(node) = node {
                nodes.push(node);
            } else {
                self.waiting().gone(&name);
                handed.done(&name, Outcome::Forget);
            }
        }
        let _asked = Asked::about(self, &nodes);
        self.sync(&session, nodes, Duration::ZERO, asking, &handed)
            .await;
    }

    /// The session, while Nodes may be looked up and written.
    fn session(&self) -> Option<Arc<Session>> {
        self.context.status.borrow().usable(Capability::Instances)
    }

    /// How many lookups may run at once, and the permits for them.
    fn lookups(&self, session: &Arc<Session>) -> (usize, Arc<Semaphore>) {
        let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        let current = Arc::downgrade(session);
        if !current.ptr_eq(&lookups.session) {
            // The flag only lowers it.
            let lowered = self.context.config.node.concurrent_syncs;
            let limit = session
                .max_lookups()
                .min(lowered.unwrap_or(usize::MAX))
                .max(1);
            *lookups = Lookups {
                session: current,
                limit,
                permits: Arc::new(Semaphore::new(limit)),
            };
        }
        (lookups.limit, Arc::clone(&lookups.permits))
    }

    fn asking(&self) -> Asking {
        self.load.send_modify(|load| load.asking += 1);
        Asking(self.load.clone())
    }

    fn addressed(&self) -> MutexGuard<'_, BTreeMap<String, Vec<NodeAddress>>> {
        self.addressed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn said(&self) -> Option<Arc<Said>> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.clone()
    }

    /// Whether the Node may be this provider's. Until the provider has said what is its own, each may be.
    fn concerns(&self, node: &Node) -> bool {
        self.said()
            .is_none_or(|said| said.ownership.concerns(&self.context.provider, node))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, node: &Node) {
        let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let uid = node.metadata.uid.as_deref();
        self.waiting()
            .seen(&name(node).to_owned(), uid, created, Instant::now());
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.context.cluster.nodes.get(&Key::node(name))
    }

    fn event(&self, node: &Node, kind: EventType, reason: &str, message: String) {
        let reference = node_reference(node);
        self.context
            .writes
            .events
            .record(&reference, kind, reason, message);
    }
}

/// Nodes that a lookup is under way for; each until it is answered, all of them no longer than this.
struct Asked<'a> {
    worker: &'a Worker,
    names: Vec<String>,
}

impl<'a> Asked<'a> {
    fn about(worker: &'a Worker, nodes: &[Arc<Node>]) -> Self {
        let names: Vec<String> = nodes.iter().map(|node| name(node).to_owned()).collect();
        let now = Instant::now();
        let mut asked = worker.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.extend(names.iter().map(|name| (name.clone(), now)));
        drop(asked);
        Self { worker, names }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut asked = self
            .worker
            .asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for name in &self.names {
            asked.remove(name);
        }
    }
}

/// A batch whose lookup is not over.
struct Asking(watch::Sender<Load>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0
            .send_modify(|load| load.asking = load.asking.saturating_sub(1));
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a batch of Nodes ended early");
    }
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}
