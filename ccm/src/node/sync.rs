//! From a batch of Nodes to their writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::lookup::{self, Called, Lookup};
use super::plan::{self, Known, NodePlan, Then};
use super::{Asking, WRITERS, Worker, claims, labels, name};
use crate::provider::{Retry, Session, Trouble, TroubleCode};
use crate::queue::{Outcome, Queue};
use crate::stuck::Answered;
use crate::writes::{EventType, FIELD_MANAGER, WriteError, reason};

/// What is asked for the node controller.
const FACETS: [api::InstanceFacet; 2] =
    [api::InstanceFacet::Existence, api::InstanceFacet::Metadata];
/// That the cloud refuses the provider's credentials is told no more often.
const CREDENTIALS_AGAIN: Duration = Duration::from_mins(10);
/// How often a Node is planned anew because somebody else wrote to it in between.
const ATTEMPTS: usize = 5;
/// What asks about a Node.
const RPC: &str = "LookupInstances";

impl Worker {
    /// Looks these Nodes up and writes what follows; the keys of those with the taint are done then.
    pub(super) async fn sync(
        &self,
        session: &Arc<Session>,
        nodes: Vec<Arc<Node>>,
        max_age: Duration,
        asking: Asking,
        handed: &HandedOut<'_>,
    ) {
        let (_, permits) = self.lookups(session);
        let lookups = lookup::answers(self.loners.batches(nodes, session.max_batch()), |nodes| {
            let (session, permits) = (Arc::clone(session), Arc::clone(&permits));
            async move {
                // Never closed.
                let _permit = permits.acquire().await;
                let asked: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
                let outcome = session.lookup_instances(&asked, &FACETS, max_age).await;
                (nodes, outcome) as Called<api::Instance>
            }
        });
        let over = stream::once(async move {
            drop(asking);
            Vec::new()
        });
        // A lookup may be dropped at any time; only writes are finished.
        lookups
            .take_until(self.context.stop.cancelled())
            .chain(over)
            .for_each_concurrent(None, |found| self.apply(session, found, handed))
            .await;
    }

    /// What one call brought.
    async fn apply(
        &self,
        session: &Arc<Session>,
        mut found: Vec<Lookup<api::Instance>>,
        handed: &HandedOut<'_>,
    ) {
        self.loners.learn(&found);
        if let Some(Lookup {
            node,
            answer: Err(trouble),
            whole: true,
            ..
        }) = found.first()
        {
            let (provider, error, nodes) = (&self.context.provider, trouble, found.len());
            tracing::warn!(%provider, rpc = RPC, nodes, first = name(node), %error, "a lookup of Nodes failed");
        }
        self.slow_down(&found);
        let offered = session.info.capabilities.as_ref();
        if offered.is_some_and(|offered| offered.zones.is_some()) {
            let zones = self.add_zones(session, &mut found);
            if self.context.stop.run_until_cancelled(zones).await.is_none() {
                return;
            }
        }
        claims::refuse_what_is_given_twice(&mut found, (self.context.wall)());
        let writing = Writing::of(self, found.len());
        stream::iter(found)
            .for_each_concurrent(WRITERS, |lookup| async {
                // Never closed.
                let _permit = self.writers.acquire().await;
                // Whoever leads next begins with it.
                if self.context.stop.is_cancelled() {
                    return;
                }
                self.settle(&session.info.provider_id_prefixes, lookup, handed)
                    .await;
                writing.one_less();
            })
            .await;
    }

    /// Zones and regions that the metadata left out.
    async fn add_zones(&self, session: &Arc<Session>, found: &mut [Lookup<api::Instance>]) {
        let lacking = found.iter().filter(|lookup| {
            let instance = lookup.answer.as_ref();
            instance.is_ok_and(plan::lacks_zone)
        });
        let nodes: Vec<Arc<Node>> = lacking.map(|lookup| Arc::clone(&lookup.node)).collect();
        if nodes.is_empty() {
            return;
        }
        let (_, permits) = self.lookups(session);
        let zones: Vec<Vec<Lookup<api::Zone>>> = lookup::answers(vec![nodes], |nodes| {
            let (session, permits) = (Arc::clone(session), Arc::clone(&permits));
            async move {
                // Never closed.
                let _permit = permits.acquire().await;
                let asked: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
                let outcome = session.lookup_zones(&asked).await;
                (nodes, outcome) as Called<api::Zone>
            }
        })
        .collect()
        .await;
        let mut zones: BTreeMap<String, Result<api::Zone, Trouble>> = zones
            .into_iter()
            .flatten()
            .map(|lookup| (name(&lookup.node).to_owned(), lookup.answer))
            .collect();
        for lookup in found {
            if let (Some(zone), Ok(instance)) =
                (zones.remove(name(&lookup.node)), &mut lookup.answer)
            {
                let instance = std::mem::take(instance);
                lookup.answer = plan::with_zone(&lookup.node, instance, zone);
            }
        }
    }

    /// THROTTLED slows all lookups of this loop.
    fn slow_down(&self, found: &[Lookup<api::Instance>]) {
        let throttled = found.iter().filter_map(|lookup| match &lookup.answer {
            Err(trouble) if trouble.code == TroubleCode::Throttled => {
                Some(trouble.retry_after.unwrap_or(Duration::from_secs(1)))
            }
            _ => None,
        });
        if let Some(longest) = throttled.max() {
            let mut not_before = self
                .not_before
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *not_before = (*not_before).max(Instant::now() + longest);
        }
    }

    /// Writes what follows for one Node.
    pub(super) async fn settle(
        &self,
        prefixes: &[String],
        lookup: Lookup<api::Instance>,
        handed: &HandedOut<'_>,
    ) {
        let key = name(&lookup.node).to_owned();
        let asked = self
            .asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&key);
        let took = asked.map(|since| since.elapsed());
        let (node, (outcome, report)) =
            match self.write(prefixes, &lookup.node, &lookup.answer).await {
                Ok((node, plan)) => {
                    let concluded = self.conclude(&node, plan, took);
                    (node, concluded)
                }
                Err(error) => (Arc::clone(&lookup.node), Self::excuse(&error)),
            };
        handed.done(&key, outcome);
        if let Some(report) = report {
            self.report(&node, &report, lookup.whole);
        }
    }

    /// Says what an attempt brought, in the log and, where it is time, to the user (▲N13).
    fn report(&self, node: &Node, report: &Report, logged: bool) {
        let key = name(node).to_owned();
        let answered = &report.answered;
        let now = Instant::now();
        let (tell, attempt) = {
            let mut waiting = self.waiting();
            let tell = waiting.answered(&key, answered, report.at_once, now);
            (tell, waiting.attempts(&key))
        };
        let told = self.told(node, answered, attempt, report.when_changed);
        let (provider, error) = (&self.context.provider, answered.words.as_str());
        let next_ms = self
            .queue
            .due(&key)
            .map(|at| at.saturating_duration_since(now))
            .and_then(|wait| u64::try_from(wait.as_millis()).ok());
        let (code, rpc) = (answered.code, answered.rpc);
        // One warning for the first failure; a call that failed as a whole was logged already.
        if logged || report.quiet || attempt > 1 {
            tracing::debug!(node = key, %provider, rpc, code, error, attempt, next_ms, "Node not synced");
        } else {
            tracing::warn!(node = key, %provider, rpc, code, error, attempt, next_ms, "Node not synced");
        }
        if tell {
            self.event(node, answered.kind, answered.reason, told);
        }
    }

    /// Plans and writes, and plans anew from the fresh Node where somebody else wrote in between. Returns the Node as it was last seen, and
    /// what was planned for it last.
    async fn write(
        &self,
        prefixes: &[String],
        node: &Arc<Node>,
        answer: &Result<api::Instance, Trouble>,
    ) -> Result<(Arc<Node>, NodePlan), WriteError> {
        let writes = &self.context.writes;
        let mut node = Arc::clone(node);
        let mut managed = None;
        // An answer with another Node's ID is none.
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            let answer = refused.as_ref().unwrap_or(answer);
            let known = Known {
                prefixes,
                managed: managed.as_ref(),
            };
            let mut plan = plan::changes(&node, answer, known);
            if plan.needs_managed {
                node = self.read(&node).await?;
                let fields = node.metadata.managed_fields.as_deref().unwrap_or_default();
                managed = Some(labels::managed_keys(fields, FIELD_MANAGER));
                plan = plan::changes(
                    &node,
                    answer,
                    Known {
                        prefixes,
                        managed: managed.as_ref(),
                    },
                );
            }
            let id = plan
                .main
                .as_ref()
                .and_then(|main| main.provider_id.as_deref());
            if let Some(id) = id
                && let Err(trouble) = self.claim(&node, id)
            {
                refused = Some(Err(trouble));
                continue;
            }
            let mut outcome = Ok(());
            if let Some(status) = &plan.status {
                match writes.patch_node_status(&node, status).await {
                    // The main patch carries the resourceVersion: it is planned from the Node as it is now.
                    Ok(fresh) => {
                        node = Arc::new(fresh);
                        plan = plan::changes(
                            &node,
                            answer,
                            Known {
                                prefixes,
                                managed: managed.as_ref(),
                            },
                        );
                    }
                    Err(error) => outcome = Err(error),
                }
            }
            if let (Ok(()), Some(main)) = (&outcome, &plan.main) {
                outcome = writes.patch_node(&node, main).await.map(drop);
            }
            match outcome {
                Ok(()) => return Ok((node, plan)),
                Err(WriteError::Conflict) => node = self.read(&node).await?,
                Err(error) => return Err(error),
            }
        }
        Err(WriteError::Conflict)
    }

    fn claim(&self, node: &Node, id: &str) -> Result<(), Trouble> {
        let nodes = &self.context.cluster.nodes;
        self.claims.claim(node, id, nodes, (self.context.wall)())
    }

    /// The same Node, from the API server. One that is another provider's by now is gone for us.
    async fn read(&self, node: &Node) -> Result<Arc<Node>, WriteError> {
        let fresh = self.context.writes.read_node(name(node)).await?;
        let same = fresh.filter(|fresh| fresh.metadata.uid == node.metadata.uid);
        let same = same.filter(|fresh| {
            let session = self.session();
            session.is_none_or(|session| session.ownership.concerns(&self.context.provider, fresh))
        });
        same.map(Arc::new).ok_or(WriteError::Gone)
    }

    /// The writes are done.
    /// `took`: how long the lookup did.
    fn conclude(
        &self,
        node: &Node,
        plan: NodePlan,
        took: Option<Duration>,
    ) -> (Outcome, Option<Report>) {
        let (key, provider) = (name(node).to_owned(), &self.context.provider);
        let mut lasting = false;
        for event in plan.events {
            // That is told with the attempt and the next one.
            if event.reason == reason::NODE_NOT_INITIALIZED {
                lasting = true;
            } else {
                self.event(node, event.kind, event.reason, event.message);
            }
        }
        let report = |words: String, code| Report {
            answered: Answered {
                kind: EventType::Warning,
                reason: reason::NODE_NOT_INITIALIZED,
                words,
                code,
                rpc: Some(RPC),
            },
            at_once: lasting,
            when_changed: false,
            quiet: false,
        };
        match plan.then {
            Then::Initialized => {
                if let Some(first) = plan.reserved.first() {
                    let labels = plan.reserved.len();
                    self.metrics.reserved_labels(provider, labels);
                    tracing::warn!(node = key, %provider, labels, first, "labels in reserved namespaces were left out: they are not the provider's to give");
                }
                let created = node.metadata.creation_timestamp.as_ref();
                if let Some(created) = created {
                    let age = (self.context.wall)().duration_since(created.0);
                    self.metrics
                        .initialized(Duration::try_from(age).unwrap_or_default());
                }
                let attempt = {
                    let mut waiting = self.waiting();
                    let before = waiting.attempts(&key);
                    waiting.gone(&key);
                    before + 1
                };
                let took_ms = took.and_then(|took| u64::try_from(took.as_millis()).ok());
                tracing::info!(node = key, %provider, rpc = RPC, took_ms, attempt, "Node initialised");
                (Outcome::Forget, None)
            }
            Then::Done => {
                self.waiting().gone(&key);
                (Outcome::Forget, None)
            }
            Then::LeftAlone => {
                self.waiting().gone(&key);
                (Outcome::Idle, None)
            }
            Then::After(delay, why) => {
                let report = Report {
                    quiet: true,
                    ..report(why, Some("PENDING"))
                };
                (Outcome::At(Instant::now() + delay), Some(report))
            }
            Then::Retry(why) => (Outcome::Retry, Some(report(why, None))),
            Then::Trouble(trouble) => {
                // `Outcome::At` leaves the failures of the queue as they are.
                let is_busy = trouble.code == TroubleCode::Busy;
                let busy = self.waiting().busy(&key, is_busy);
                let failures = if is_busy {
                    busy
                } else {
                    self.queue.failures(&key)
                };
                let reaction = trouble.reaction_jittered(failures, self.jitter(&key, failures));
                let refused = trouble.code == TroubleCode::Credentials;
                let report = Report {
                    at_once: reaction.event || refused && self.tells_credentials(),
                    when_changed: matches!(reaction.retry, Retry::WhenChangedElse(_)),
                    ..report(describe(&trouble), Some(trouble.code.name()))
                };
                let outcome = match reaction.retry {
                    Retry::WhenChangedElse(delay) | Retry::After(delay) => {
                        Outcome::At(Instant::now() + delay)
                    }
                    Retry::Backoff => Outcome::Retry,
                    Retry::TransportBackoff => Outcome::RetryTransport,
                };
                (outcome, Some(report))
            }
        }
    }

    /// Whether it is to be told now that the cloud refuses the provider's credentials: on one Node for all of them.
    fn tells_credentials(&self) -> bool {
        let told = &mut *self
            .credentials_told
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let due = told.is_none_or(|at| at.elapsed() >= CREDENTIALS_AGAIN);
        if due {
            *told = Some(Instant::now());
        }
        due
    }

    /// 0.0 to 1.0: Nodes that were BUSY together do not come back together.
    fn jitter(&self, key: &str, failures: u32) -> f64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (self.context.seed, key, failures).hash(&mut hasher);
        f64::from((hasher.finish() >> 32) as u32) / f64::from(u32::MAX)
    }

    /// A write did not happen.
    fn excuse(error: &WriteError) -> (Outcome, Option<Report>) {
        let (reason, at_once) = match error {
            // Another Node of this name has its own change, and so is asked about anew.
            WriteError::Gone => return (Outcome::Forget, None),
            WriteError::Conflict | WriteError::Fenced(_) | WriteError::Unavailable(_) => {
                (reason::NODE_NOT_INITIALIZED, false)
            }
            WriteError::Refused(_) => (reason::NODE_WRITE_REFUSED, true),
        };
        let report = Report {
            answered: Answered {
                kind: EventType::Warning,
                reason,
                words: error.to_string(),
                code: None,
                rpc: None,
            },
            at_once,
            when_changed: false,
            quiet: false,
        };
        (Outcome::Retry, Some(report))
    }
}

/// What an attempt brought that did not succeed.
struct Report {
    answered: Answered,
    /// It does not pass by itself: the user is told at once.
    at_once: bool,
    /// Another try comes as soon as the Node changes.
    when_changed: bool,
    /// It is no failure.
    quiet: bool,
}

/// The keys that a batch took from the queue. Those that it did not settle, because it ended early, come again: else nobody would ever work on them.
pub(super) struct HandedOut<'a> {
    queue: &'a Queue<String>,
    left: Mutex<BTreeSet<String>>,
}

impl<'a> HandedOut<'a> {
    pub(super) fn new(queue: &'a Queue<String>, names: Vec<String>) -> Self {
        let left = Mutex::new(names.into_iter().collect());
        Self { queue, left }
    }

    /// The work on this key is over. One that the batch did not take is somebody else's.
    pub(super) fn done(&self, name: &str, outcome: Outcome) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let name = left.take(name);
        drop(left);
        if let Some(name) = name {
            self.queue.done(&name, outcome);
        }
    }
}

impl Drop for HandedOut<'_> {
    fn drop(&mut self) {
        let left = self.left.get_mut().unwrap_or_else(PoisonError::into_inner);
        for name in std::mem::take(left) {
            self.queue.done(&name, Outcome::Retry);
        }
    }
}

/// Nodes whose writes are not over.
struct Writing<'a> {
    worker: &'a Worker,
    left: std::sync::atomic::AtomicUsize,
}

impl<'a> Writing<'a> {
    fn of(worker: &'a Worker, count: usize) -> Self {
        worker.load.send_modify(|load| load.writing += count);
        let left = count.into();
        Self { worker, left }
    }

    fn one_less(&self) {
        self.left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        self.give_back(1);
    }

    fn give_back(&self, count: usize) {
        let load = &self.worker.load;
        load.send_modify(|load| load.writing = load.writing.saturating_sub(count));
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.give_back(self.left.load(std::sync::atomic::Ordering::Relaxed));
    }
}

fn describe(trouble: &Trouble) -> String {
    if trouble.reason.is_empty() {
        trouble.message.clone()
    } else {
        format!("{}: {}", trouble.reason, trouble.message)
    }
}
