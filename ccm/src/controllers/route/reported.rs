//! Events on a Node whose routes cannot be created (B-R5, ▲R9).

use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::calls::{Item, Kind};
use super::ledger::NodeName;
use super::{Routes, State};
use crate::core::Key;
use crate::provider::CallError;
use crate::report::{self, Answered, Next, Obstacle, PATIENCE};
use crate::writes::{EventType, reason};

impl Routes {
    /// Stores why a wanted route was not created, or why a route in its way was not removed.
    /// Reports the failure at once if `event` is set or the controller reported this route before.
    /// Otherwise the report follows if the route is still missing after half a minute.
    pub(super) fn not_routed(
        &self,
        state: &mut State,
        node: &NodeName,
        item: &Item,
        kind: Kind,
        trouble: &CallError,
        event: bool,
    ) {
        let now = Instant::now();
        let destination = item.destination;
        let waiting = &mut state.waiting;
        waiting.seen(&destination, Some(&node.uid), None, now);
        let (name, cidr, why) = (&node.name, &item.route.destination_cidr, trouble.why());
        let (rpc, words) = match kind {
            Kind::Create => (
                "CreateRoutes",
                format!(
                    "Could not create route {} {cidr} for node {name} after {:.1}s: {why}",
                    item.route.name_hint,
                    item.took.as_secs_f64(),
                ),
            ),
            Kind::Delete => (
                "DeleteRoutes",
                format!(
                    "Could not create route {cidr} for node {name}: the route {} is in the way and could not be deleted: {why}",
                    item.route.name,
                ),
            ),
        };
        let answered = Answered {
            kind: EventType::Warning,
            reason: reason::FAILED_TO_CREATE_ROUTE,
            words,
            code: Some(trouble.code.name()),
            rpc: Some(rpc),
            call_id: trouble.call_id.clone(),
        };
        let tell = waiting.answered(&destination, &answered, event, now);
        if tell && let Some(object) = self.node(node) {
            let attempt = waiting.attempts(&destination);
            let message = self.reported(state, &destination, &answered, attempt);
            self.report_node(&object, message);
        }
    }

    /// Reports the routes that wait for too long, also while the provider is unavailable.
    pub(super) fn report_overdue(&self) {
        let (context, now) = (self.context(), Instant::now());
        let mut state = self.state();
        let State {
            ledger, waiting, ..
        } = &mut *state;
        waiting.keep(|destination| ledger.is_failing(destination));
        self.metrics.failing(&context.provider, waiting.len());
        let obstacle = Obstacle::of_provider(&context.provider, &context.status.borrow());
        let overdue = waiting.overdue(now, PATIENCE, |_, _| obstacle.clone());
        for overdue in overdue {
            let destination = overdue.key;
            let Some(node) = state.ledger.node_of(&destination) else {
                continue;
            };
            let Some(object) = self.node(&node) else {
                continue;
            };
            let message = match (overdue.obstacle, overdue.answered) {
                (Some(obstacle), _) => format!(
                    "Could not create route {destination} for node {}: {}",
                    node.name,
                    obstacle.in_full()
                ),
                (None, Some(answered)) => {
                    self.reported(&state, &destination, &answered, overdue.attempts)
                }
                (None, None) => continue,
            };
            self.report_node(&object, message);
        }
    }

    fn reported(
        &self,
        state: &State,
        destination: &IpNet,
        answered: &Answered,
        attempt: u32,
    ) -> String {
        let context = self.context();
        let due = if state.ledger.waits_for_list(destination) {
            self.lists.queue.due(&())
        } else {
            let list = self.earliest(state);
            let list = list.filter(|_| !state.ledger.has_plan(destination));
            let due = self.calls.queue.due(destination);
            due.map(|due| list.map_or(due, |list| due.max(list)))
        };
        let due = due.map(|due| Next::At(context.wall_time(due)));
        report::reported(answered, &context.provider, None, attempt, due)
    }

    /// Reports that another Node has the same Pod CIDR.
    pub(super) fn report_clash(&self, node: &NodeName, cidr: &IpNet, other: &str) {
        let Some(object) = self.node(node) else {
            return;
        };
        let NodeName { name, uid } = node;
        self.report_node(
            &object,
            format!(
                "Could not create route {uid} {cidr} for node {name}: node {other} has the same Pod CIDR"
            ),
        );
    }

    fn report_node(&self, object: &Node, message: String) {
        let (writes, reason) = (&self.context().writes, reason::FAILED_TO_CREATE_ROUTE);
        writes.node_event(object, EventType::Warning, reason, message);
    }

    /// The Node, if it still has this UID and is not being deleted.
    pub(super) fn node(&self, node: &NodeName) -> Option<Arc<Node>> {
        let object = self
            .context()
            .cluster
            .nodes
            .get(&Key::node(node.name.as_str()))?;
        let same = object.metadata.uid.as_deref() == Some(node.uid.as_str());
        (same && object.metadata.deletion_timestamp.is_none()).then_some(object)
    }
}
