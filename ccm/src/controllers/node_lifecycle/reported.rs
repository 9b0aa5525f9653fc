//! Reports passes to operators and users. Within a term, the report of a lasting state is repeated
//! after [`REPORT_AGAIN`] at the earliest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::Lifecycle;
use super::plan::{self, Pass};
use crate::core::lock;
use crate::report::REPORT_AGAIN;
use crate::writes::{EventType, reason};

/// One message names at most this many Nodes. A report about the brake records events on at most
/// this many Nodes.
const TOLD_AT: usize = 10;

/// The last reports and their times.
#[derive(Default)]
pub(super) struct Reported {
    /// The last pass was void, or learned nothing.
    void: bool,
    /// When this term last reported the brake's present hold. `None`: not yet.
    brake: Option<Instant>,
    /// When the ccm last reported that a Node stays: by UID, and whether it shares its provider ID.
    stays: BTreeMap<(String, bool), Instant>,
}

/// Why a Node stays although the answers say that its instance is gone.
#[derive(Clone, Copy)]
pub(super) enum Stays<'a> {
    /// Other Nodes have the same provider ID.
    Shared,
    /// The provider's own list has its instance.
    Listed,
    /// It is one of two Nodes, and the list of instances failed with this error.
    NoList(&'a str),
}

impl Reported {
    /// Reports the result of a pass. `absent`: how many Nodes are reported gone, and stay.
    pub(super) fn pass(&mut self, lifecycle: &Lifecycle, pass: &Pass, absent: usize) {
        let (provider, metrics) = (&lifecycle.context().provider, &lifecycle.metrics);
        let void = pass.void.as_ref().or(pass.failed.as_ref());
        if let Some(reason) = void {
            metrics.void(provider);
            if !self.void {
                tracing::warn!(%provider, reason, "discarding this pass: lookup results are not trustworthy");
            }
        } else if self.void {
            tracing::info!(%provider, "lookup results are trustworthy again");
        }
        self.void = void.is_some();
        if pass.void.is_none() {
            self.shared(lifecycle, &pass.shared);
        }
        // Also if none of them is due just now, for example because the provider is DEGRADED.
        let holds = lock(&lifecycle.brake).holds();
        metrics.held(provider, if holds { absent } else { 0 });
        if !holds {
            self.brake = None;
        }
        // The brake may have begun to hold in an earlier term.
        let due = self.brake.is_none_or(|at| at.elapsed() >= REPORT_AGAIN);
        if due && !pass.held.is_empty() {
            self.brake = Some(Instant::now());
            brake(lifecycle, &pass.held);
        }
    }

    /// Reports each Node that stays because it shares its provider ID.
    fn shared(&mut self, lifecycle: &Lifecycle, shared: &[Arc<Node>]) {
        let there: BTreeSet<&str> = shared.iter().map(|node| plan::uid(node)).collect();
        self.stays.retain(|(uid, shared), at| {
            at.elapsed() < REPORT_AGAIN && (!shared || there.contains(uid.as_str()))
        });
        for node in shared {
            self.stays(lifecycle, node, Stays::Shared);
        }
    }

    /// Reports that a Node stays, and why.
    pub(super) fn stays(&mut self, lifecycle: &Lifecycle, node: &Node, why: Stays<'_>) {
        let key = (plan::uid(node).to_owned(), matches!(why, Stays::Shared));
        let before = self.stays.get(&key);
        if before.is_some_and(|at| at.elapsed() < REPORT_AGAIN) {
            return;
        }
        self.stays.insert(key, Instant::now());
        let context = lifecycle.context();
        let (name, provider) = (plan::name(node), &context.provider);
        let why = match why {
            Stays::Shared => {
                let id = plan::provider_id(node);
                let holders = context.cluster.nodes.found_by(id);
                let others: Vec<&str> = holders
                    .iter()
                    .map(|holder| plan::name(holder))
                    .filter(|other| *other != name)
                    .take(TOLD_AT)
                    .collect();
                let others = others.join(", ");
                format!(
                    "provider {provider} reports that instance {id} is gone, but Node {others} has the same provider ID, so the ccm does not delete this Node; delete the Node whose machine is gone by hand"
                )
            }
            Stays::Listed => format!(
                "provider {provider} reports that this Node's instance is gone, but its list has the instance, so the ccm does not delete the Node"
            ),
            Stays::NoList(error) => {
                let minutes = minutes_of_the_hold(lifecycle);
                format!(
                    "provider {provider} reports that this Node's instance is gone, but its list of instances failed: {error}. The Node is one of two: without a list the ccm deletes it only after its instance has been gone for {minutes} min"
                )
            }
        };
        tracing::warn!(node = name, %provider, reason = why, "Node not deleted");
        held(lifecycle, node, why);
    }
}

/// Reports that the brake holds.
fn brake(lifecycle: &Lifecycle, nodes: &[Arc<Node>]) {
    let (provider, count) = (&lifecycle.context().provider, nodes.len());
    let first = || nodes.iter().take(TOLD_AT);
    let names: Vec<&str> = first().map(|node| plan::name(node)).collect();
    let minutes = minutes_of_the_hold(lifecycle);
    tracing::warn!(%provider, count, nodes = ?names, "the deletion brake holds: the provider reports more instances gone than the brake allows within its window");
    for node in first() {
        held(
            lifecycle,
            node,
            format!(
                "provider {provider} reports that the instances of {count} Nodes are gone. The deletion brake holds: the ccm deletes a Node only after its instance has been gone for {minutes} min"
            ),
        );
    }
}

fn minutes_of_the_hold(lifecycle: &Lifecycle) -> u64 {
    let hold = lifecycle.context().config.node_lifecycle.brake.hold;
    hold.as_secs().div_ceil(60)
}

/// Records an event: the deletion of this Node is held, and why.
fn held(lifecycle: &Lifecycle, node: &Node, why: String) {
    let writes = &lifecycle.context().writes;
    writes.node_event(node, EventType::Warning, reason::NODE_DELETION_HELD, why);
}
