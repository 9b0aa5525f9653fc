//! Looks up a batch of Nodes, and writes the changes. After each attempt it decides when the ccm
//! tries the Node again, and what the ccm reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::plan::{self, Known, NodePlan, Then};
use super::{Stage, Worker, claims, name};
use crate::controller::Batch;
use crate::core::{lock, millis, provider_id};
use crate::planted::planted;
use crate::provider::lookup::{self, Called, Lookup};
use crate::provider::{CallError, Retry, Session};
use crate::queue::Requeue;
use crate::report::Answered;
use crate::writes::{EventType, WriteError, reason};

/// The facets that the node controller requests.
const FACETS: [api::InstanceFacet; 2] =
    [api::InstanceFacet::Existence, api::InstanceFacet::Metadata];
/// The RPC that looks Nodes up.
const RPC: &str = "LookupInstances";
/// The most attempts to write one Node by one answer. Another attempt follows after a conflict, or
/// if the Node must not get the ID of the answer.
const ATTEMPTS: usize = 5;

/// An attempt that did not succeed.
pub(super) struct Report {
    answered: Answered,
    /// The event is recorded at once.
    at_once: bool,
    /// A change of the Node leads to another attempt at once.
    when_changed: bool,
    /// The log does not warn.
    quiet: bool,
}

impl Report {
    fn not_initialized(words: String, code: Option<&'static str>) -> Self {
        Self {
            answered: Answered {
                kind: EventType::Warning,
                reason: reason::NODE_NOT_INITIALIZED,
                words,
                code,
                rpc: Some(RPC),
                call_id: None,
            },
            at_once: false,
            when_changed: false,
            quiet: false,
        }
    }
}

impl Worker {
    /// Looks these Nodes up and writes the changes. It settles the keys of the Nodes with the
    /// taint.
    pub(super) async fn sync(
        &self,
        session: &Arc<Session>,
        nodes: Vec<Arc<Node>>,
        max_age: Duration,
        batch: &Batch<'_, String>,
    ) {
        let (places, isolated) = (&self.places, &self.isolated);
        let batches = session.batches(isolated, nodes).into_iter();
        let (alone, together): (Vec<_>, Vec<_>) =
            batches.partition(|nodes| isolated.are_alone(nodes));
        let refreshes = max_age > Duration::ZERO;
        let ask = |nodes: Vec<Arc<Node>>| async move {
            let _permits = places.take(session, isolated, &nodes, refreshes).await;
            let asked: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
            let outcome = session.lookup_instances(&asked, &FACETS, max_age).await;
            if isolated.late(&nodes, &outcome) {
                // The parts of this call may hang too. The next batch does not wait for them.
                batch.called();
            }
            (nodes, outcome) as Called<api::Instance>
        };
        let stopped = || self.context().stop.cancelled();
        // Isolated Nodes may hang. The next batch does not wait for their calls.
        let over = stream::once(async move {
            batch.called();
            Vec::new()
        });
        // The stop drops lookups in flight, but lets writes in flight finish.
        let together = lookup::answers(together, ask).take_until(stopped());
        let alone = lookup::answers(alone, ask).take_until(stopped());
        stream::select(together.chain(over), alone)
            .for_each_concurrent(None, |found| self.apply(session, found, batch))
            .await;
    }

    /// Handles the answer of one call.
    async fn apply(
        &self,
        session: &Arc<Session>,
        mut found: Vec<Lookup<api::Instance>>,
        batch: &Batch<'_, String>,
    ) {
        if let Some(Lookup {
            item: node,
            answer: Err(trouble),
            whole: true,
            ..
        }) = found.first()
        {
            let (provider, error, nodes) = (&self.context().provider, trouble, found.len());
            let call_id = trouble.call_id();
            tracing::warn!(%provider, rpc = RPC, call_id, nodes, first = name(node), %error, "Node lookup failed");
        }
        let (wall, nodes) = ((self.context().wall)(), &self.context().cluster.nodes);
        claims::refuse_what_is_given_twice(&mut found, wall);
        claims::refuse_what_is_mixed_up(&mut found, nodes, wall);
        let offered = session.info.capabilities.as_ref();
        let zones = offered.is_some_and(|offered| offered.zones.is_some());
        let lacks = |found: &Lookup<api::Instance>| {
            zones && found.answer.as_ref().is_ok_and(plan::lacks_zone)
        };
        let (lacking, found): (Vec<_>, Vec<_>) = found.into_iter().partition(lacks);
        self.isolated.learn(&found);
        tokio::join!(
            self.settle_all(session, found, batch),
            self.add_zones(session, lacking, batch),
        );
    }

    /// Writes the changes for these Nodes.
    async fn settle_all(
        &self,
        session: &Session,
        found: Vec<Lookup<api::Instance>>,
        batch: &Batch<'_, String>,
    ) {
        let writes = found.iter().filter(|lookup| lookup.answer.is_ok());
        self.now_at(Stage::Writes, writes);
        let found = found.into_iter();
        let found: Vec<_> = found.map(|it| (it, self.driver.writing())).collect();
        stream::iter(found)
            .for_each_concurrent(None, |(lookup, writing)| async move {
                // The semaphore is never closed.
                let _permit = self.writers.acquire().await;
                // The next leader writes the changes.
                if self.context().stop.is_cancelled() {
                    return;
                }
                self.settle(&session.info.provider_id_prefixes, lookup, batch)
                    .await;
                drop(writing);
            })
            .await;
    }

    /// Adds zones and regions that the metadata lacks. It settles each call's Nodes when the call
    /// has ended.
    async fn add_zones(
        &self,
        session: &Arc<Session>,
        lacking: Vec<Lookup<api::Instance>>,
        batch: &Batch<'_, String>,
    ) {
        self.now_at(Stage::Zones, &lacking);
        let nodes: Vec<Arc<Node>> = lacking
            .iter()
            .map(|found| Arc::clone(&found.item))
            .collect();
        let mut lacking: BTreeMap<String, Lookup<api::Instance>> = lacking
            .into_iter()
            .map(|found| (name(&found.item).to_owned(), found))
            .collect();
        let (places, isolated) = (&self.places, &self.isolated);
        let batches = session.batches(isolated, nodes);
        lookup::answers(batches, |nodes| async move {
            let _permits = places.take(session, isolated, &nodes, false).await;
            let asked: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
            let outcome = session.lookup_zones(&asked).await;
            isolated.late(&nodes, &outcome);
            (nodes, outcome) as Called<api::Zone>
        })
        .take_until(self.context().stop.cancelled())
        .map(|zones| {
            // A Node that made its call fail is looked up alone until it gets an answer of its own.
            isolated.learn(&zones);
            let with_zone = zones.into_iter().filter_map(|zone| {
                let found = lacking.remove(name(&zone.item))?;
                let answer = found.answer;
                Some(Lookup {
                    answer: answer.and_then(|i| plan::with_zone(&found.item, i, zone.answer)),
                    ..found
                })
            });
            with_zone.collect()
        })
        .for_each_concurrent(None, |found| self.settle_all(session, found, batch))
        .await;
    }

    /// Writes the changes for one Node.
    pub(super) async fn settle(
        &self,
        prefixes: &[String],
        lookup: Lookup<api::Instance>,
        batch: &Batch<'_, String>,
    ) {
        let key = name(&lookup.item).to_owned();
        let took = self.driver.queue.working_since(&key);
        let took = took.map(|began| began.elapsed());
        let written = self.write(prefixes, &lookup.item, &lookup.answer).await;
        let (node, report) = match written {
            Ok((node, plan)) => {
                self.note_answer(&lookup, &plan, batch);
                let report = self.conclude(&node, plan, took, batch);
                (node, report)
            }
            Err(error) => {
                let (outcome, report) = Self::excuse(&error);
                batch.settle(&key, outcome);
                (Arc::clone(&lookup.item), report)
            }
        };
        // Only here, because the stage shows what the Node waits for until its key is settled.
        lock(&self.stages).remove(&key);
        if let Some(report) = report {
            self.report(&node, &report, lookup.whole);
        }
    }

    /// Tells the batch of a success. A refresh retries no failure, so only the log has it.
    fn note_answer(
        &self,
        lookup: &Lookup<api::Instance>,
        plan: &NodePlan,
        batch: &Batch<'_, String>,
    ) {
        let (key, provider) = (name(&lookup.item).to_owned(), &self.context().provider);
        match &lookup.answer {
            Ok(_) if !matches!(plan.then, Then::CallError(_)) => batch.answered(&key),
            // A call that failed as a whole is in the log already.
            Err(trouble) if plan.then == Then::Done && !lookup.whole => {
                tracing::debug!(node = key, %provider, rpc = RPC, call_id = trouble.call_id(), error = %trouble, "Node not refreshed");
            }
            _ => {}
        }
    }

    /// Writes by [`Self::attempts`]. Without a written ID, it ends the Node's claim.
    async fn write(
        &self,
        prefixes: &[String],
        node: &Arc<Node>,
        answer: &Result<api::Instance, CallError>,
    ) -> Result<(Arc<Node>, NodePlan), WriteError> {
        let written = self.attempts(prefixes, node, answer).await;
        let unwritten = match &written {
            Ok((_, plan)) => plan.new_id().is_none(),
            Err(WriteError::Refused(_) | WriteError::Gone | WriteError::Conflict) => true,
            // The ID may have been written, so the claim stays until the next attempt or the watch
            // ends it.
            Err(WriteError::Fenced(_) | WriteError::Unavailable(_)) => false,
        };
        if unwritten {
            self.release(node).await;
        }
        written
    }

    /// Plans and writes. After a conflict, it reads the Node and plans again. Returns the last
    /// plan, and the version of the Node that this plan is for.
    async fn attempts(
        &self,
        prefixes: &[String],
        node: &Arc<Node>,
        answer: &Result<api::Instance, CallError>,
    ) -> Result<(Arc<Node>, NodePlan), WriteError> {
        let mut node = Arc::clone(node);
        let mut managed = self.managed.of(&node);
        // An answer with another Node's ID counts as failed.
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            let answer = refused.as_ref().unwrap_or(answer);
            let planned = |node: &Node, managed: Option<&BTreeSet<String>>| {
                plan::changes(node, answer, Known { prefixes, managed })
            };
            let mut plan = planned(&node, managed.as_deref());
            if plan.needs_managed {
                node = self.read(&node).await?;
                managed = Some(self.managed.learn(&node));
                plan = planned(&node, managed.as_deref());
            }
            if let Err(trouble) = self.claim_planned(&node, &plan).await {
                refused = Some(Err(trouble));
                continue;
            }
            let again = |node: &Node| planned(node, managed.as_deref());
            let outcome = self.patch(&mut node, &mut plan, again).await;
            match outcome {
                Ok(()) => return Ok((node, plan)),
                Err(WriteError::Conflict) => {
                    node = self.read(&node).await?;
                    managed = self.managed.of(&node);
                }
                Err(error) => return Err(error),
            }
        }
        Err(WriteError::Conflict)
    }

    /// Writes a plan, the addresses first. After that write, `node` is the version that the API
    /// server returned, and `plan` is planned again for it. A main patch that sets taints carries
    /// the resourceVersion of `node`.
    async fn patch(
        &self,
        node: &mut Arc<Node>,
        plan: &mut NodePlan,
        planned_again: impl Fn(&Node) -> NodePlan,
    ) -> Result<(), WriteError> {
        let writes = &self.context().writes;
        if let Some(addresses) = &plan.addresses {
            if plan::is_uninitialized(node) {
                let written = addresses.clone();
                self.addressed().insert(name(node).to_owned(), written);
            }
            let fresh = writes.patch_node_addresses(node, addresses).await?;
            *node = Arc::new(fresh);
            *plan = planned_again(node);
        }
        if let Some(main) = &plan.main {
            self.managed.forget(node);
            writes.patch_node(node, main).await?;
        }
        Ok(())
    }

    /// Records what these Nodes wait for, for `Worker::obstacle`.
    fn now_at<'a>(&self, stage: Stage, found: impl IntoIterator<Item = &'a Lookup<api::Instance>>) {
        let now = Instant::now();
        let names = found.into_iter().map(|it| name(&it.item).to_owned());
        lock(&self.stages).extend(names.map(|name| (name, (stage, now))));
    }

    /// Claims the ID that the plan gives the Node.
    async fn claim_planned(&self, node: &Node, plan: &NodePlan) -> Result<(), CallError> {
        let nodes = &self.context().cluster.nodes;
        let Some(id) = plan.new_id() else {
            // This plan gives the Node no ID, so its claim from an earlier answer may end.
            self.release(node).await;
            return Ok(());
        };
        let wall = (self.context().wall)();
        self.claims.claim(node, id, nodes, wall)
    }

    /// Ends the Node's claim. But the API server may have an ID of the Node that the watch does not
    /// show yet. Then the claim stays, and `Worker::wakes` ends it.
    async fn release(&self, node: &Node) {
        let name = name(node);
        if !self.claims.holds(name) {
            return;
        }
        if self.node(name).is_some_and(|seen| plan::gets_id(&seen)) {
            match self.read(node).await {
                Ok(fresh) if provider_id(&fresh).is_some() => return,
                Ok(_) | Err(WriteError::Gone) => {}
                // Not known: the next attempt decides.
                Err(_) => return,
            }
        }
        self.claims.settled(name);
    }

    /// The same Node from the API server. `Gone` if it no longer exists, or can no longer belong to
    /// this provider.
    async fn read(&self, node: &Node) -> Result<Arc<Node>, WriteError> {
        let fresh = self.context().writes.read_node(name(node)).await?;
        let same = fresh.filter(|fresh| fresh.metadata.uid == node.metadata.uid);
        let same = same.filter(|fresh| self.concerns(fresh));
        same.map(Arc::new).ok_or(WriteError::Gone)
    }

    /// Settles the Node's key after the writes. `took` is the time from the queue to these writes,
    /// for a Node that came from the queue.
    fn conclude(
        &self,
        node: &Node,
        plan: NodePlan,
        took: Option<Duration>,
        batch: &Batch<'_, String>,
    ) -> Option<Report> {
        let key = name(node).to_owned();
        for event in plan.events {
            self.event(node, event.kind, event.reason, event.message);
        }
        let report = Report::not_initialized;
        let (outcome, report) = match plan.then {
            Then::Initialized => {
                self.initialized(node, &plan.reserved, took);
                (Requeue::Forget, None)
            }
            Then::Done => (Requeue::Forget, None),
            Then::LeftAlone => (Requeue::Idle, None),
            Then::After(delay, why) => {
                let mut report = report(why, Some("PENDING"));
                report.quiet = true;
                (Requeue::At(Instant::now() + delay), Some(report))
            }
            Then::Retry(why) => (Requeue::Retry, Some(report(why, None))),
            Then::Lasting(why) => {
                let mut report = report(why, None);
                report.at_once = true;
                (Requeue::Retry, Some(report))
            }
            Then::CallError(trouble) => {
                let failed = batch.failed(&key, &trouble);
                let mut report = report(describe(&trouble), Some(trouble.code.name()));
                report.answered.rpc = trouble.rpc.or(Some(RPC));
                report.answered.call_id.clone_from(&trouble.call_id);
                report.at_once = failed.event;
                report.when_changed = matches!(failed.retry, Retry::WhenChangedElse(_));
                report.quiet = !failed.warn;
                return Some(report);
            }
        };
        // A Node of a refresh may have been made again with the taint meanwhile.
        if report.is_none() && plan::is_uninitialized(node) {
            let uid = node.metadata.uid.as_deref();
            self.waiting().done(&key, uid);
        }
        batch.settle(&key, outcome);
        report
    }

    /// The writes have initialised the Node.
    fn initialized(&self, node: &Node, reserved: &[String], took: Option<Duration>) {
        let (key, provider) = (name(node).to_owned(), &self.context().provider);
        if let Some(first) = reserved.first() {
            let labels = reserved.len();
            self.metrics.reserved_labels(provider, labels);
            tracing::warn!(node = key, %provider, labels, first, "left out labels in reserved namespaces: the provider may not set them");
        }
        if let Some(created) = &node.metadata.creation_timestamp {
            let age = (self.context().wall)().duration_since(created.0);
            self.metrics
                .initialized(Duration::try_from(age).unwrap_or_default());
        }
        let attempt = self.waiting().attempts(&key) + 1;
        let took_ms = took.map(millis);
        tracing::info!(node = key, %provider, rpc = RPC, took_ms, attempt, "Node initialised");
    }

    /// How to react to a write that failed.
    fn excuse(error: &WriteError) -> (Requeue, Option<Report>) {
        let mut report = Report::not_initialized(error.to_string(), None);
        report.answered.rpc = None;
        match error {
            // If another Node has this name now, its own change makes it due.
            WriteError::Gone => return (Requeue::Forget, None),
            WriteError::Conflict | WriteError::Fenced(_) | WriteError::Unavailable(_) => {}
            WriteError::Refused(_) => {
                report.answered.reason = reason::NODE_WRITE_REFUSED;
                report.at_once = true;
            }
        }
        if planted!(NodeRetryIsLost) && matches!(error, WriteError::Unavailable(_)) {
            return (Requeue::Forget, Some(report));
        }
        (Requeue::Retry, Some(report))
    }

    /// Logs a failed attempt and, if it is time, records an event (▲N13).
    fn report(&self, node: &Node, report: &Report, logged: bool) {
        let key = name(node).to_owned();
        let answered = &report.answered;
        let now = Instant::now();
        let (tell, attempt) = {
            let mut waiting = self.waiting();
            let tell = waiting.answered(&key, answered, report.at_once, now);
            (tell, waiting.attempts(&key))
        };
        let reported = self.reported(node, answered, attempt, report.when_changed);
        let (provider, error) = (&self.context().provider, answered.words.as_str());
        let due = self.driver.queue.due(&key);
        let retry_in_ms = due.map(|at| millis(at.saturating_duration_since(now)));
        let (code, rpc) = (answered.code, answered.rpc);
        let call_id = answered.call_id.as_deref();
        // Only the first failure of a waiting Node is a warning. A call that failed as a whole is
        // in the log already.
        if logged || report.quiet || attempt > 1 {
            tracing::debug!(node = key, %provider, rpc, call_id, code, error, attempt, retry_in_ms, "Node not synced");
        } else {
            tracing::warn!(node = key, %provider, rpc, call_id, code, error, attempt, retry_in_ms, "Node not synced");
        }
        if tell {
            self.event(node, answered.kind, answered.reason, reported);
        }
    }
}

fn describe(trouble: &CallError) -> String {
    if trouble.reason.is_empty() {
        trouble.message.clone()
    } else {
        format!("{}: {}", trouble.reason, trouble.message)
    }
}
