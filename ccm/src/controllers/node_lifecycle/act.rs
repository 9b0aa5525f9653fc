//! The writes to Nodes: those of a pass, and the removal of the shutdown taint.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{Node, Taint};
use tokio::time::{Instant, sleep_until};

use super::listing::Heard;
use super::plan::{self, Pass};
use super::reported::Stays;
use super::{Lifecycle, Passes, owned};
use crate::controller::LoopContext;
use crate::core::lock;
use crate::provider::Session;
use crate::writes::{EventType, NodePatch, WriteError, reason};

/// The most concurrent writes of a pass, and of [`watch_ready`].
const WRITERS: usize = 16;

/// The result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Deleted,
    /// Not deleted: the provider's own list has its instance.
    Listed,
    /// Not deleted: nothing may be deleted now, or a request failed.
    Interrupted,
    /// Not deleted: the Node is gone, or must stay.
    Spared,
    /// The API server may have deleted it.
    Unknown,
}

impl Lifecycle {
    /// Deletes the Nodes of `pass.delete`. Reads each again just before. `listing`: the provider
    /// offers a list, which may veto. `now`: the time of the pass.
    pub(super) async fn delete(
        &self,
        passes: &mut Passes,
        session: &Arc<Session>,
        pass: Pass,
        listing: bool,
        now: Instant,
    ) {
        let listed = if listing {
            self.listed(passes, session, &pass, now).await
        } else {
            Some(BTreeSet::new())
        };
        let Some(listed) = &listed else {
            return;
        };
        let fates: Vec<(Arc<Node>, Fate)> =
            stream::iter(pass.delete.into_iter().map(|node| async move {
                let fate = if listed.contains(plan::provider_id(&node)) {
                    Fate::Listed
                } else {
                    self.delete_one(&node, || self.may_delete(session)).await
                };
                (node, fate)
            }))
            .buffer_unordered(WRITERS)
            .collect()
            .await;
        for (node, fate) in fates {
            if fate == Fate::Listed {
                passes.reported.stays(self, &node, Stays::Listed);
            }
            let brake = &mut lock(&self.brake);
            match fate {
                Fate::Deleted => self.metrics.deleted(&self.context().provider),
                Fate::Interrupted => passes.ledger.interrupt(brake, &node, true),
                Fate::Listed => passes.ledger.listed(brake, &node),
                Fate::Spared => passes.ledger.spare(brake, &node),
                Fate::Unknown => passes.ledger.interrupt(brake, &node, false),
            }
        }
    }

    /// The provider IDs in the provider's own list: Nodes with these IDs stay. `None`: all Nodes to
    /// delete wait for a list. The deletion of one of two Nodes needs a complete list.
    async fn listed(
        &self,
        passes: &mut Passes,
        session: &Arc<Session>,
        pass: &Pass,
        now: Instant,
    ) -> Option<BTreeSet<String>> {
        let stop = &self.context().stop;
        let heard = stop.run_until_cancelled(passes.listing.hear(session)).await;
        let provider = &self.context().provider;
        let error = match heard.unwrap_or(Heard::NotYet) {
            Heard::List {
                ids,
                complete: true,
            } => return Some(ids),
            // What the list has vetoes all the same.
            Heard::List { ids, .. } if !pass.one_of_two => {
                tracing::warn!(%provider, "the list of instances is not complete: some have no provider ID");
                return Some(ids);
            }
            Heard::List { .. } => "some of its instances have no provider ID".to_owned(),
            // Without a list there is no veto.
            Heard::Nothing(error, call_id) if !pass.one_of_two => {
                tracing::warn!(%provider, rpc = "ListInstances", call_id = call_id.as_deref(), error, "there is no complete list of instances");
                return Some(BTreeSet::new());
            }
            Heard::Nothing(error, _) => error,
            Heard::NotYet => {
                for node in &pass.delete {
                    passes.ledger.postpone(&mut lock(&self.brake), node);
                    passes.ledger.hurry(node, now);
                }
                return None;
            }
        };
        for node in &pass.delete {
            passes.reported.stays(self, node, Stays::NoList(&error));
            passes.ledger.postpone(&mut lock(&self.brake), node);
        }
        None
    }

    /// Deletes a Node if its present state still allows that. Calls `may_delete` just before the
    /// request.
    async fn delete_one(&self, decided: &Node, may_delete: impl Fn() -> bool) -> Fate {
        let (name, provider) = (plan::name(decided), &self.context().provider);
        let writes = &self.context().writes;
        let fresh = match writes.read_node(name).await {
            Ok(Some(fresh)) => fresh,
            Ok(None) => return Fate::Spared,
            Err(error) => {
                tracing::warn!(node = name, %provider, %error, "Node not deleted: cannot read it again");
                return Fate::Interrupted;
            }
        };
        let min_age = self.context().config.node_lifecycle.brake.min_age;
        if let Err(reason) = plan::last_look(decided, &fresh, min_age, (self.context().wall)()) {
            tracing::info!(node = name, %provider, reason, "Node not deleted");
            return Fate::Spared;
        }
        // Another Node may have got this provider ID since the pass.
        let nodes = &self.context().cluster.nodes;
        let holders = nodes.found_by(plan::provider_id(&fresh));
        if holders.iter().any(|holder| plan::name(holder) != name) {
            let reason = "another Node has its provider ID now";
            tracing::info!(node = name, %provider, reason, "Node not deleted");
            return Fate::Spared;
        }
        if !may_delete() {
            return Fate::Interrupted;
        }
        let message =
            format!("Deleting node {name} because it does not exist in the cloud provider");
        writes.node_event(&fresh, EventType::Normal, reason::DELETING_NODE, message);
        let failed = |error: &WriteError| {
            tracing::warn!(node = name, %provider, %error, "Node not deleted");
            let message = format!("Failed deleting node {name}: {error}");
            let reason = reason::DELETING_NODE_FAILED;
            writes.node_event(&fresh, EventType::Warning, reason, message);
        };
        match writes.delete_node(&fresh).await {
            Ok(()) => {
                tracing::info!(node = name, %provider, provider_id = plan::provider_id(&fresh), "Node deleted: its instance does not exist any more");
                Fate::Deleted
            }
            Err(WriteError::Gone) => Fate::Spared,
            Err(WriteError::Conflict) => Fate::Interrupted,
            // The closed fence may have dropped a request that the API server executes.
            Err(WriteError::Fenced(_)) => Fate::Unknown,
            Err(error @ WriteError::Refused(_)) => {
                failed(&error);
                Fate::Interrupted
            }
            Err(error @ WriteError::Unavailable(_)) => {
                failed(&error);
                Fate::Unknown
            }
        }
    }
}

/// Sets the taints of each of these Nodes to those that `change` returns for it, if any.
pub(super) async fn change_taints(
    context: &LoopContext,
    nodes: &[Arc<Node>],
    change: fn(&Node) -> Option<Vec<Taint>>,
    what: &str,
) {
    stream::iter(nodes)
        .for_each_concurrent(WRITERS, |node| async move {
            if let Some(taints) = change(node) {
                set_taints(context, node, taints, what).await;
            }
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
        // The next try decides by the Node's new state.
        Err(WriteError::Gone | WriteError::Conflict | WriteError::Fenced(_)) => {}
        Err(error @ (WriteError::Refused(_) | WriteError::Unavailable(_))) => {
            tracing::warn!(node = name, %provider, %error, "shutdown taint not {what}");
        }
    }
}

/// Takes the shutdown taint off Nodes that are Ready again (B-L3), every period. It waits for no
/// lookup. It needs no provider once the ccm has learnt which Nodes are the provider's. Runs until
/// `context.stop`.
pub(super) async fn watch_ready(context: &LoopContext) {
    let period = context.config.node_lifecycle.monitor_period;
    loop {
        let start = Instant::now();
        let ownership = context.status.borrow().ownership.clone();
        if let Some(ownership) = ownership {
            let nodes = owned(context, &ownership);
            change_taints(context, &nodes, plan::without_shutdown_taint, "removed").await;
        }
        let next = sleep_until(start + period);
        if context.stop.run_until_cancelled(next).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
