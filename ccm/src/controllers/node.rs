//! The node controller (B-N1 to ▲N15): initialises Nodes, and keeps their addresses and labels
//! current.
//!
//! ```text
//! Change -> queue -> batch -> lookup -> plan::changes -> writes -> done        (Nodes with the taint)
//! every --node-status-update-frequency: batches, spread -> lookup -> plan::changes -> writes   (the others)
//! ```

mod addresses;
mod claimants;
mod claims;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod labels;
mod managed;
mod metrics;
mod places;
mod plan;
mod refresh;
mod sync;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::cluster::Change;
use crate::controller::{
    Batch, Driver, LoopContext, Reconciler, Spec, Wake, Width, changes, hints,
};
use crate::core::{Backoff, Key, lock};
use crate::ownership::Ownership;
use crate::provider::lookup::IsolatedKeys;
use crate::provider::{Capability, Hint, ProviderStatus, Session};
use crate::queue::Requeue;
use crate::report::{self, Answered, Waiting};
use crate::writes::{EventType, reason};

pub(crate) use metrics::Metrics;

/// How many Nodes may be written at once, over all batches.
const WRITERS: usize = 64;
/// If this many Nodes wait for their writes or are being written, no new batch leaves the queue.
const WRITE_BACKLOG: usize = 4 * WRITERS;
/// The least time between two moments at which hints make the same Node due.
const HINT_GAP: Duration = Duration::from_secs(5);

/// The controller's loop for one provider. Returns after `context.stop`, when the work in flight
/// has ended.
pub(crate) async fn run(context: LoopContext, metrics: Metrics) {
    let worker = Arc::new(Worker::new(context, metrics));
    tokio::join!(
        crate::controller::run(&worker),
        worker.housekeep(),
        worker.refresh(),
    );
}

struct Worker {
    /// Its keys are the names of Nodes with the taint.
    driver: Driver<String>,
    metrics: Metrics,
    waiting: Mutex<Waiting<String>>,
    claims: claims::Claims,
    /// For each Node in work whose LookupInstances has answered without a failure: its stage, and
    /// when the stage began.
    stages: Mutex<BTreeMap<String, (Stage, Instant)>>,
    isolated: IsolatedKeys,
    managed: managed::Managed,
    writers: Semaphore,
    places: places::Places,
    /// The fields of a Node that the provider of the last session sees.
    projection: Mutex<Arc<api::NodeProjection>>,
    /// The provider's claims when it was last decided which Nodes wait.
    claimed: Mutex<Option<Arc<Ownership>>>,
    /// The addresses that this controller wrote to Nodes that still have the taint. The watch
    /// returns them, and that change must not make the Node due.
    addressed: Mutex<BTreeMap<String, Vec<NodeAddress>>>,
}

/// What a Node in work waits for.
#[derive(Clone, Copy)]
enum Stage {
    Instances,
    Zones,
    Writes,
}

impl Worker {
    fn new(context: LoopContext, metrics: Metrics) -> Self {
        let spec = Spec {
            name: "cloud-node-controller",
            queue: "Nodes",
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_mins(2)),
            needs: Capability::Instances,
        };
        let concurrent_syncs = context.config.node.concurrent_syncs;
        Self {
            driver: Driver::new(context, spec),
            waiting: Mutex::default(),
            claims: claims::Claims::default(),
            stages: Mutex::default(),
            isolated: IsolatedKeys::default(),
            managed: managed::Managed::default(),
            writers: Semaphore::new(WRITERS),
            places: places::Places::new(concurrent_syncs),
            projection: Mutex::default(),
            claimed: Mutex::default(),
            addressed: Mutex::default(),
            metrics,
        }
    }

    fn wakes(&self, change: &Change<Node>) -> Option<Wake<String>> {
        match (&change.old, &change.new) {
            (_, Some(node)) => {
                let name = name(node);
                let old = change.old.as_deref();
                let another = old.is_some_and(|old| old.metadata.uid != node.metadata.uid);
                if another || !plan::gets_id(node) {
                    self.claims.settled(name);
                }
                if !plan::is_uninitialized(node) || !self.concerns(node) {
                    self.waiting().gone(&name.to_owned());
                    self.addressed().remove(name);
                    return None;
                }
                // The controller may have left this Node alone with its taint. Then the Node waits
                // again only after a change that `plan::wakes` accepts, a hint about it, other
                // claims or a new session.
                let projection = Arc::clone(&lock(&self.projection));
                let own = self.addressed().get(name).cloned();
                plan::wakes(change.old.as_deref(), node, &projection, own.as_deref()).then(|| {
                    self.wait_for(node);
                    Wake::Due(name.to_owned())
                })
            }
            (Some(node), None) => {
                let name = name(node).to_owned();
                self.claims.settled(&name);
                self.waiting().gone(&name);
                self.addressed().remove(&name);
                Some(Wake::Gone(name))
            }
            (None, None) => None,
        }
    }

    /// ▲N13: reports the Nodes that wait too long, also while the provider is unavailable.
    async fn housekeep(&self) {
        let context = self.context();
        let report = |patience| {
            self.report_overdue(patience);
            let oldest = self.waiting().oldest((context.wall)());
            self.metrics.oldest(&context.provider, oldest);
        };
        self.driver.housekeep(report).await;
        // The next leader reports the metric.
        self.metrics.oldest(&context.provider, Duration::ZERO);
    }

    fn report_overdue(&self, patience: Duration) {
        // Without a session, nothing else notices that the provider's claims have changed.
        if *lock(&self.claimed) != self.context().status.borrow().ownership {
            self.wait_again();
        }
        let obstacle = |name: &String, answered: Option<&Answered>| self.waits_for(name, answered);
        let overdue = self.waiting().overdue(Instant::now(), patience, obstacle);
        for overdue in overdue {
            let Some(node) = self.node(&overdue.key) else {
                continue;
            };
            let (reason, text) = match (overdue.obstacle, overdue.answered) {
                (Some(obstacle), _) => (reason::NODE_NOT_INITIALIZED, obstacle.in_full()),
                (None, Some(answered)) => {
                    let text = self.reported(&node, &answered, overdue.attempts, false);
                    (answered.reason, text)
                }
                (None, None) => {
                    let provider = &self.context().provider;
                    let text = format!(
                        "provider {provider} has not been asked about this Node yet: it waits for its turn"
                    );
                    (reason::NODE_NOT_INITIALIZED, text)
                }
            };
            self.event(&node, EventType::Warning, reason, text);
        }
    }

    /// [`Self::obstacle`]. If there is none and no answer about the Node: the wait after THROTTLED.
    fn waits_for(&self, name: &str, answered: Option<&Answered>) -> Option<report::Obstacle> {
        let obstacle = self.obstacle(name);
        if obstacle.is_some() || answered.is_some() {
            return obstacle;
        }
        let until = self.context().wall_time(self.driver.slowed_until()?);
        let provider = &self.context().provider;
        Some(report::Obstacle::slowed(provider, "new Nodes", until))
    }

    /// What the Node waits for: a usable provider, an answer or the writes. `None`: it waits in the
    /// queue.
    fn obstacle(&self, name: &str) -> Option<report::Obstacle> {
        let provider = &self.context().provider;
        let status = self.context().status.borrow();
        if let Some(obstacle) = report::Obstacle::of_provider(provider, &status) {
            return Some(obstacle);
        }
        let begun = self.driver.queue.working_since(&name.to_owned())?;
        // A stage from before this work does not count.
        let stage = lock(&self.stages).get(name).copied();
        let (stage, since) = stage
            .filter(|(_, since)| *since >= begun)
            .unwrap_or((Stage::Instances, begun));
        let rpc = match stage {
            Stage::Instances => "LookupInstances",
            Stage::Zones => "LookupZones",
            Stage::Writes => {
                let text = "the API server has not answered the writes of this Node yet, or those before them";
                return Some(report::Obstacle::new(text.to_owned(), None));
            }
        };
        let deadline = status.usable(Capability::Instances);
        let deadline = deadline.map(|session| session.deadlines.lookup);
        let since = self.context().wall_time(since);
        Some(report::Obstacle::unanswered(provider, rpc, since, deadline))
    }

    /// The event's text about the last attempt. `changes`: a change of the Node leads to another
    /// attempt at once.
    fn reported(&self, node: &Node, answered: &Answered, attempt: u32, changes: bool) -> String {
        let provider = &self.context().provider;
        let next = self.driver.next(&name(node).to_owned(), changes);
        let about = plan::asked_for(node);
        report::reported(answered, provider, Some(&about), attempt, next)
    }

    fn context(&self) -> &LoopContext {
        &self.driver.context
    }

    fn addressed(&self) -> MutexGuard<'_, BTreeMap<String, Vec<NodeAddress>>> {
        lock(&self.addressed)
    }

    /// Whether the Node may belong to this provider. Every Node may while its claims are unknown.
    fn concerns(&self, node: &Node) -> bool {
        let context = self.context();
        let status = context.status.borrow();
        let known = status.ownership.as_ref();
        known.is_none_or(|ownership| ownership.concerns(&context.provider, node))
    }

    /// All uninitialised Nodes that may belong to the provider wait, and no others. Returns them.
    fn wait_again(&self) -> Vec<Arc<Node>> {
        let context = self.context();
        lock(&self.claimed).clone_from(&context.status.borrow().ownership);
        let mut nodes = context.cluster.nodes.all();
        nodes.retain(|node| plan::is_uninitialized(node) && self.concerns(node));
        let names: BTreeSet<&str> = nodes.iter().map(|node| name(node)).collect();
        self.waiting().keep(|waits| names.contains(waits.as_str()));
        for node in &nodes {
            self.wait_for(node);
        }
        nodes
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<String>> {
        lock(&self.waiting)
    }

    fn wait_for(&self, node: &Node) {
        let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let uid = node.metadata.uid.as_deref();
        self.waiting()
            .seen(&name(node).to_owned(), uid, created, Instant::now());
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.context().cluster.nodes.get(&Key::node(name))
    }

    fn event(&self, node: &Node, kind: EventType, reason: &str, message: String) {
        let writes = &self.context().writes;
        writes.node_event(node, kind, reason, message);
    }
}

impl Worker {
    /// The Nodes with the taint that the hint may be about. A new Node may have no provider ID yet.
    /// So a hint that matches no known Node may be about any waiting Node.
    fn hinted_at(&self, hint: &Hint) -> Vec<String> {
        let mut nodes = match hint {
            Hint::Resync => Vec::new(),
            Hint::Instance {
                provider_id,
                node_name,
            } => match self.node(node_name) {
                Some(node) => vec![node],
                None => self.context().cluster.nodes.found_by(provider_id),
            },
            Hint::LoadBalancer { .. } | Hint::Routes => return Vec::new(),
        };
        if nodes.is_empty() {
            // `waiting` has the names of the waiting Nodes, so this does not scan all Nodes.
            let waiting = self.waiting().keys();
            nodes = waiting.iter().filter_map(|name| self.node(name)).collect();
        }
        nodes.retain(|node| plan::is_uninitialized(node));
        nodes.iter().map(|node| name(node).to_owned()).collect()
    }
}

impl Reconciler for Worker {
    type Key = String;

    fn driver(&self) -> &Driver<String> {
        &self.driver
    }

    async fn sources(&self) {
        let (driver, nodes) = (&self.driver, &self.context().cluster.nodes);
        let about = |hint: &Hint| self.hinted_at(hint);
        tokio::join!(
            changes(driver, nodes, |change| self.wakes(change)),
            hints(driver, Duration::ZERO, HINT_GAP, about),
        );
    }

    /// The provider of a new session may know other Nodes than before, and own other Nodes.
    fn renewed(&self, session: &Arc<Session>, _: &ProviderStatus) -> Vec<String> {
        *lock(&self.projection) = Arc::new(session.projections.nodes.clone());
        let nodes = self.wait_again();
        nodes.iter().map(|node| name(node).to_owned()).collect()
    }

    fn width(&self, session: &Arc<Session>) -> Width {
        Width {
            batch: session.max_batch(),
            linger: self.context().config.node.batch_linger,
            calls: self.places.most(session),
            writes: WRITE_BACKLOG,
        }
    }

    async fn reconcile(&self, session: &Arc<Session>, batch: &Batch<'_, String>) {
        let names = batch.keys();
        let mut nodes = Vec::with_capacity(names.len());
        for name in names {
            let node = self.node(&name).filter(|node| {
                let provider = &self.context().provider;
                session.ownership.concerns(provider, node) && plan::is_uninitialized(node)
            });
            if let Some(node) = node {
                // Needed if a hint, or a change during the last lookup, brought the Node back.
                self.wait_for(&node);
                nodes.push(node);
            } else {
                // The store reports no change of a Node that was created and deleted between two
                // reads of the changes.
                self.waiting().gone(&name);
                batch.settle(&name, Requeue::Forget);
            }
        }
        self.sync(session, nodes, Duration::ZERO, batch).await;
    }
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}
