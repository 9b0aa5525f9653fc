//! What a pass writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{Node, Taint};
use tokio::time::Instant;

use super::listing::Heard;
use super::{Lifecycle, lock, plan};
use crate::controller::LoopContext;
use crate::provider::Session;
use crate::report::TOLD_AGAIN;
use crate::writes::{EventType, NodePatch, WriteError, node_reference, reason};

/// Writes to the API server that run at once.
const WRITERS: usize = 16;
/// A brake that holds is told at so many of the Nodes that it holds.
const TOLD_AT: usize = 10;

/// What became of a Node that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Deleted,
    /// Not deleted: the provider's own list has its instance.
    Listed,
    /// Certainly not deleted by us.
    Spared,
    /// Nobody knows.
    Unknown,
}

/// When Nodes were last told that they are not deleted; by UID.
#[derive(Default)]
pub(super) struct Told(BTreeMap<String, Instant>);

impl Told {
    /// Whether this Node is to be told now; it counts as told then.
    fn is_due(&mut self, node: &Node) -> bool {
        let uid = plan::uid(node);
        let due = self
            .0
            .get(uid)
            .is_none_or(|told| told.elapsed() >= TOLD_AGAIN);
        if due {
            self.0.insert(uid.to_owned(), Instant::now());
        }
        due
    }
}

impl Lifecycle {
    /// Nodes whose machine is shut down (B-L3).
    pub(super) async fn put_taints_on(&self, nodes: &[Arc<Node>]) {
        let bare = nodes.iter().filter_map(|node| {
            let taints = plan::with_shutdown_taint(node)?;
            Some((Arc::clone(node), taints))
        });
        set_all_taints(&self.context, bare.collect(), "set").await;
    }

    /// Deletes these Nodes, each after a last look. `one_of_two`: where there is a list, it must say so too. `now`: that of their pass.
    pub(super) async fn delete(
        &mut self,
        session: &Arc<Session>,
        nodes: Vec<Arc<Node>>,
        one_of_two: bool,
        listing: bool,
        now: Instant,
    ) {
        let listed = if listing {
            let stop = self.context.stop.clone();
            match stop.run_until_cancelled(self.listing.hear(session)).await {
                Some(Heard::Complete(listed)) => listed,
                Some(Heard::Nothing(error)) if one_of_two => {
                    for node in nodes {
                        self.tell_of_no_list(&node, &error);
                        self.ledger.postpone(&mut lock(&self.brake), &node);
                    }
                    return;
                }
                // No list, no veto: it never testifies, neither way.
                Some(Heard::Nothing(error)) => {
                    let provider = &self.context.provider;
                    tracing::warn!(%provider, error, "the list of instances is not complete");
                    BTreeSet::new()
                }
                Some(Heard::NotYet) | None => {
                    for node in nodes {
                        self.ledger.postpone(&mut lock(&self.brake), &node);
                        self.ledger.hurry(&node, now);
                    }
                    return;
                }
            }
        } else {
            BTreeSet::new()
        };
        let this = &*self;
        let listed = &listed;
        let fates: Vec<(Arc<Node>, Fate)> =
            stream::iter(nodes.into_iter().map(|node| async move {
                let fate = if listed.contains(plan::provider_id(&node)) {
                    Fate::Listed
                } else {
                    this.delete_one(&node, || this.may_delete(session)).await
                };
                (node, fate)
            }))
            .buffer_unordered(WRITERS)
            .collect()
            .await;
        self.told_listed
            .0
            .retain(|_, told| told.elapsed() < TOLD_AGAIN);
        for (node, fate) in fates {
            match fate {
                Fate::Deleted => self.metrics.deleted(&self.context.provider),
                Fate::Listed => {
                    self.tell_of_listed(&node);
                    self.spare(&node, true);
                }
                Fate::Spared => self.spare(&node, true),
                Fate::Unknown => self.spare(&node, false),
            }
        }
    }

    /// As [`Ledger::spare`](plan::Ledger::spare).
    fn spare(&mut self, node: &Node, certain: bool) {
        self.ledger.spare(&mut lock(&self.brake), node, certain);
    }

    /// `may_delete` is asked at the last moment.
    async fn delete_one(&self, decided: &Node, may_delete: impl Fn() -> bool) -> Fate {
        let (name, provider) = (plan::name(decided), &self.context.provider);
        let writes = &self.context.writes;
        let fresh = match writes.read_node(name).await {
            Ok(Some(fresh)) => fresh,
            Ok(None) => return Fate::Spared,
            Err(error) => {
                tracing::warn!(node = name, %provider, %error, "Node not deleted: cannot read it again");
                return Fate::Spared;
            }
        };
        let min_age = self.context.config.node_lifecycle.brake.min_age;
        if let Err(reason) = plan::last_look(decided, &fresh, min_age, (self.context.wall)()) {
            tracing::info!(node = name, %provider, reason, "Node not deleted");
            return Fate::Spared;
        }
        // Since the pass.
        let holders = self
            .context
            .cluster
            .nodes
            .found_by(plan::provider_id(&fresh));
        if holders.iter().any(|holder| plan::name(holder) != name) {
            let reason = "another Node has its provider ID now";
            tracing::info!(node = name, %provider, reason, "Node not deleted");
            return Fate::Spared;
        }
        if !may_delete() {
            return Fate::Spared;
        }
        let reference = node_reference(&fresh);
        writes.events.record(
            &reference,
            EventType::Normal,
            reason::DELETING_NODE,
            format!("Deleting node {name} because it does not exist in the cloud provider"),
        );
        let failed = |error: &WriteError| {
            tracing::warn!(node = name, %provider, %error, "Node not deleted");
            let message = format!("Failed deleting node {name}: {error}");
            writes.events.record(
                &reference,
                EventType::Warning,
                reason::DELETING_NODE_FAILED,
                message,
            );
        };
        match writes.delete_node(&fresh).await {
            Ok(()) => {
                tracing::info!(node = name, %provider, provider_id = plan::provider_id(&fresh), "Node deleted: its instance does not exist any more");
                Fate::Deleted
            }
            Err(WriteError::Gone | WriteError::Conflict | WriteError::Fenced(_)) => Fate::Spared,
            Err(error @ WriteError::Refused(_)) => {
                failed(&error);
                Fate::Spared
            }
            Err(error @ WriteError::Unavailable(_)) => {
                failed(&error);
                Fate::Unknown
            }
        }
    }

    /// Nodes that are not deleted because they share their provider ID with others: each is told of the others, again and again.
    pub(super) fn tell_of_shared(&mut self, shared: &[Arc<Node>]) {
        let there: BTreeSet<&str> = shared.iter().map(|node| plan::uid(node)).collect();
        self.told_shared
            .0
            .retain(|uid, _| there.contains(uid.as_str()));
        for node in shared {
            if !self.told_shared.is_due(node) {
                continue;
            }
            let (name, id) = (plan::name(node), plan::provider_id(node));
            let holders = self.context.cluster.nodes.found_by(id);
            let others: Vec<&str> = holders
                .iter()
                .map(|holder| plan::name(holder))
                .filter(|other| *other != name)
                .take(TOLD_AT)
                .collect();
            let (provider, others) = (&self.context.provider, others.join(", "));
            tracing::warn!(node = name, %provider, provider_id = id, others, "Node not deleted: other Nodes have the same provider ID");
            self.tell_held(node, format!(
                "provider {provider} reports that instance {id} is gone, but Node {others} has the same provider ID, so the ccm does not delete this Node; delete the Node whose machine is gone by hand"
            ));
        }
    }

    /// A Node that is not deleted because the provider's answers contradict each other is told so, again and again.
    fn tell_of_listed(&mut self, node: &Node) {
        if !self.told_listed.is_due(node) {
            return;
        }
        let (name, provider) = (plan::name(node), &self.context.provider);
        tracing::warn!(node = name, %provider, "Node not deleted: the provider's list has its instance");
        self.tell_held(node, format!(
            "provider {provider} reports that this Node's instance is gone, but its list has the instance, so the ccm does not delete the Node"
        ));
    }

    /// One of two Nodes is not deleted because the provider's list cannot be had.
    fn tell_of_no_list(&mut self, node: &Node, error: &str) {
        if !self.told_listed.is_due(node) {
            return;
        }
        let (name, provider) = (plan::name(node), &self.context.provider);
        let hold = self.context.config.node_lifecycle.brake.hold;
        let minutes = hold.as_secs().div_ceil(60);
        tracing::warn!(node = name, %provider, error, "Node not deleted yet: the list of instances failed");
        self.tell_held(node, format!(
            "provider {provider} reports that this Node's instance is gone, but its list of instances, which must confirm that, failed: {error}; the Node is one of two, so the ccm deletes it only after that has held for {minutes} min"
        ));
    }

    /// That its deletion is held, and why.
    fn tell_held(&self, node: &Node, why: String) {
        let (reference, reason) = (node_reference(node), reason::NODE_DELETION_HELD);
        let events = &self.context.writes.events;
        events.record(&reference, EventType::Warning, reason, why);
    }

    /// A brake that holds says so.
    pub(super) fn tell_of_brake(&self, held: &[Arc<Node>]) {
        let provider = &self.context.provider;
        let names: Vec<&str> = held
            .iter()
            .take(TOLD_AT)
            .map(|node| plan::name(node))
            .collect();
        let minutes = self
            .context
            .config
            .node_lifecycle
            .brake
            .hold
            .as_secs()
            .div_ceil(60);
        let count = held.len();
        tracing::warn!(%provider, count, nodes = ?names, "the deletion brake holds: the provider reports too many instances gone at once");
        for node in held.iter().take(TOLD_AT) {
            self.tell_held(node, format!(
                "provider {provider} reports that the instances of {count} Nodes are gone, more than the brake lets the ccm delete at once; the ccm deletes none until that has held for {minutes} min"
            ));
        }
    }
}

/// Gives these Nodes these taints.
pub(super) async fn set_all_taints(
    context: &LoopContext,
    changes: Vec<(Arc<Node>, Vec<Taint>)>,
    what: &'static str,
) {
    stream::iter(changes)
        .for_each_concurrent(WRITERS, |(node, taints)| async move {
            set_taints(context, &node, taints, what).await;
        })
        .await;
}

async fn set_taints(context: &LoopContext, node: &Node, taints: Vec<Taint>, what: &str) {
    if context.stop.is_cancelled() {
        return;
    }
    let patch = NodePatch {
        taints: Some(taints),
        ..NodePatch::default()
    };
    let (name, provider) = (plan::name(node), &context.provider);
    match context.writes.patch_node(node, &patch).await {
        Ok(_) => tracing::info!(node = name, %provider, "shutdown taint {what}"),
        // The next round sees the Node as it is then.
        Err(WriteError::Gone | WriteError::Conflict | WriteError::Fenced(_)) => {}
        Err(error @ (WriteError::Refused(_) | WriteError::Unavailable(_))) => {
            tracing::warn!(node = name, %provider, %error, "shutdown taint not {what}");
        }
    }
}

#[cfg(test)]
mod tests;
