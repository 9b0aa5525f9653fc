//! The effect of Node changes on target sets, and of changed sets on Services.

use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Node;
use prost::Message;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::ledger::Task;
use super::targets::{Candidate, NodeSelector, TargetSet, eligible};
use super::{Offer, State, Worker, notes};
use crate::cluster::Change;
use crate::controller::Batch;
use crate::core::millis;
use crate::ownership::NodeOwner;
use crate::provider::node_view;
use crate::queue::Requeue;
use crate::writes::{EventType, WriteError, reason};

/// The delay before the controller asks the API server again whether a set is empty.
const RECHECK_AGAIN: Duration = Duration::from_secs(5);

/// The most bytes of one target in a request. A kubelet can write its Node's addresses and labels.
/// A few Nodes must not make the requests of all load balancers too large (CORE-11).
const TARGET_BYTES: usize = 64 * 1024;

impl Worker {
    /// Follows the Nodes until the stop. Their changes settle before the sets are built again
    /// (▲S12).
    pub(super) async fn follow_nodes(&self) {
        let context = &self.driver.context;
        let mut changes = context.cluster.nodes.subscribe();
        loop {
            let settled = self.state().pool.settled_at();
            tokio::select! {
                biased;
                () = context.stop.cancelled() => return,
                changes = changes.next() => self.nodes_changed(&changes),
                () = sleep_until(settled.unwrap_or_else(Instant::now)), if settled.is_some() => {
                    self.nodes_settled(&mut self.state());
                }
            }
        }
    }

    /// Examines all Nodes again, because the provider's offer changed.
    pub(super) fn rebuild(&self, state: &mut State) {
        let Some(offer) = state.offer.clone() else {
            return;
        };
        let candidates = &mut state.pool.candidates;
        candidates.clear(offer.load_balancers.max_targets);
        for node in self.driver.context.cluster.nodes.all() {
            self.observe(state, &offer, &node);
        }
        self.nodes_settled(state);
    }

    /// Stores the current state of a Node. Returns whether this can change a set.
    fn observe(&self, state: &mut State, offer: &Offer, node: &Arc<Node>) -> bool {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let view =
            is_target(node, offer, &self.driver.context.provider).then(|| target_view(node, offer));
        let bytes = view.as_ref().map_or(0, Message::encoded_len);
        let now = view.filter(|_| bytes <= TARGET_BYTES).map(|view| {
            let identity = node_view(node, &offer.projections.target_identity);
            Candidate::new(Arc::clone(node), view, &identity)
        });
        if bytes <= TARGET_BYTES {
            state.too_large.remove(name);
        } else if state.too_large.insert(name.to_owned()) {
            let text = format!(
                "the Node is no target of load balancers: its part of a request has {bytes} bytes, at most {TARGET_BYTES} are allowed; check its addresses, labels and annotations"
            );
            warn!(node = name, "{text}");
            let writes = &self.driver.context.writes;
            let reason = reason::NODE_TOO_LARGE_FOR_TARGET;
            writes.node_event(node, EventType::Warning, reason, text);
        }
        state.pool.candidates.observe(name, now)
    }

    fn nodes_changed(&self, changes: &[Change<Node>]) {
        let mut state = self.state();
        let Some(offer) = state.offer.clone() else {
            // The controller examines the Nodes when the first session gives the offer.
            return;
        };
        let mut relevant = false;
        for change in changes {
            relevant |= match (&change.new, &change.old) {
                (Some(node), _) => self.observe(&mut state, &offer, node),
                (None, Some(old)) => {
                    let name = old.metadata.name.as_deref().unwrap_or_default();
                    state.too_large.remove(name);
                    state.pool.candidates.observe(name, None)
                }
                (None, None) => false,
            };
        }
        if relevant {
            state.pool.changed(Instant::now());
        }
    }

    /// Builds the sets again for all Services, after changes of Nodes settled or the provider's
    /// offer changed.
    fn nodes_settled(&self, state: &mut State) {
        let cut = state.pool.settle(&state.ledger.selectors());
        for (selector, set) in cut {
            self.report_cut(state, &selector, &set);
        }
        // Runs even if no set changed: before the changes settled, a Service may have got other
        // targets.
        self.sets_changed(state);
        self.doubt(state);
    }

    /// Reports that a set is cut, even if no call follows.
    fn report_cut(&self, state: &mut State, selector: &NodeSelector, set: &TargetSet) {
        if state.ignores_nodes() {
            return;
        }
        for service in state.ledger.report_cut(selector) {
            self.event(&service, notes::targets_cut(set, &service));
        }
    }

    /// Queues the Services whose changed targets are a reason for a call now.
    fn sets_changed(&self, state: &mut State) {
        if state.ignores_nodes() {
            return;
        }
        let tasks = state.ledger.retargeted(&state.pool.sets);
        for task in &tasks {
            self.driver.queue.add(task.clone());
        }
        if !tasks.is_empty() {
            let started = state.round.take().map_or_else(Instant::now, |(at, _)| at);
            state.round = Some((started, tasks.into_iter().collect()));
        }
    }

    /// Queues [`Task::EmptySets`] if the controller must now ask the API server about empty sets.
    pub(super) fn doubt(&self, state: &State) {
        if !state.pool.sets.to_ask(Instant::now()).is_empty() {
            self.driver.queue.add(Task::EmptySets);
        }
    }

    /// Asks the API server about the empty sets that it has to confirm now. A store that lost its
    /// Nodes must not empty every load balancer.
    pub(super) async fn recheck(&self, batch: &Batch<'_, Task>) {
        // The request must not take a Service's place.
        batch.called();
        let (selectors, offer) = {
            let state = self.state();
            let selectors = state.pool.sets.to_ask(Instant::now());
            (selectors, state.offer.clone())
        };
        if let Some(offer) = offer.filter(|_| !selectors.is_empty()) {
            let context = &self.driver.context;
            let mut empty = selectors.clone();
            let asked = context.writes.list_nodes(|node| {
                if is_target(node, &offer, &context.provider)
                    && target_view(node, &offer).encoded_len() <= TARGET_BYTES
                {
                    empty.retain(|selector| !selector.matches(node));
                }
                !empty.is_empty()
            });
            let Some(listed) = context.stop.run_until_cancelled(asked).await else {
                return;
            };
            self.rechecked(&selectors, &listed.map(|()| empty));
        }
        let next = self.state().pool.sets.next_ask();
        batch.settle(&Task::EmptySets, next.map_or(Requeue::Forget, Requeue::At));
    }

    fn rechecked(&self, asked: &[NodeSelector], empty: &Result<Vec<NodeSelector>, WriteError>) {
        let (mut state, provider) = (self.state(), &self.driver.context.provider);
        let state = &mut *state;
        let mut changed = false;
        for selector in empty.iter().flatten() {
            changed |= state.pool.sets.confirm_empty(selector);
        }
        if changed {
            self.sets_changed(state);
        }
        let again = Instant::now() + RECHECK_AGAIN;
        let mut in_doubt = false;
        for selector in asked {
            in_doubt |= state.pool.sets.ask_again(selector, again);
        }
        if let Err(error) = empty {
            warn!(%provider, %error, selectors = asked.len(), retry_in_ms = millis(RECHECK_AGAIN), "cannot read the Nodes to confirm an empty target set: load balancers keep their targets");
        } else if in_doubt {
            warn!(%provider, "the cache has no target, but the API server did not confirm that: keeping the targets");
        }
    }
}

/// The Node as a request has it among the targets.
fn target_view(node: &Node, offer: &Offer) -> api::NodeView {
    node_view(node, &offer.projections.targets)
}

fn is_target(node: &Node, offer: &Offer, provider: &str) -> bool {
    let owned = offer.ownership.node_owner(node) == NodeOwner::Provider(provider);
    eligible(node, offer.load_balancers.target_scope(), owned)
}
