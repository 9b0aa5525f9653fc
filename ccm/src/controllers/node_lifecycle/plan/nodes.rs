//! The fields of a Node that a pass reads, and its shutdown taint. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::core::{self, is_ready, ready_condition, taints};
use crate::planted::planted;

/// The taint of a Node whose machine is shut down (B-L3).
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
pub(super) const NO_SCHEDULE: &str = "NoSchedule";

/// The status of a Node's Ready condition, and the time of its last transition.
pub(super) type Condition = (String, Option<Time>);

pub(super) fn is_suspect(node: &Node) -> bool {
    !is_ready(node) && !is_going(node)
}

pub(super) fn is_witness(node: &Node) -> bool {
    is_ready(node) && !is_going(node)
}

pub(super) fn condition(node: &Node) -> Option<Condition> {
    let ready = ready_condition(node)?;
    Some((ready.status.clone(), ready.last_transition_time.clone()))
}

/// The provider IDs that more than one Node has.
pub(super) fn ids_of_several(nodes: &[Arc<Node>]) -> BTreeSet<&str> {
    let mut once = BTreeSet::new();
    let ids = nodes.iter().map(|node| provider_id(node));
    ids.filter(|id| !once.insert(*id)).collect()
}

/// Whether the ccm may still delete the Node, by the copy just read. `Err` says why not.
pub(in super::super) fn last_look(
    decided: &Node,
    fresh: &Node,
    min_age: Duration,
    wall: Timestamp,
) -> Result<(), &'static str> {
    if planted!(NameIsTheNode) {
        Ok(())
    } else if uid(decided) != uid(fresh) || uid(fresh).is_empty() {
        Err("another Node has its name now")
    } else if is_ready(fresh) {
        Err("it is Ready again")
    } else if provider_id(decided) != provider_id(fresh) {
        Err("it has another provider ID now")
    } else if is_going(fresh) {
        Err("it is being deleted already")
    } else if is_older(fresh, min_age, wall) {
        Ok(())
    } else {
        Err("it is too young")
    }
}

/// The Node's taints plus the shutdown taint; `None` if the Node has it already.
pub(in super::super) fn with_shutdown_taint(node: &Node) -> Option<Vec<Taint>> {
    (!has_shutdown_taint(node)).then(|| {
        let shutdown = Taint {
            key: SHUTDOWN.to_owned(),
            effect: NO_SCHEDULE.to_owned(),
            ..Taint::default()
        };
        taints(node).iter().cloned().chain([shutdown]).collect()
    })
}

/// The taints without the shutdown taint, if the Node is Ready and has it (B-L3).
pub(in super::super) fn without_shutdown_taint(node: &Node) -> Option<Vec<Taint>> {
    (is_ready(node) && has_shutdown_taint(node)).then(|| {
        let others = taints(node).iter().filter(|taint| !is_shutdown(taint));
        others.cloned().collect()
    })
}

/// `spec.providerID`; empty if unset.
pub(in super::super) fn provider_id(node: &Node) -> &str {
    core::provider_id(node).unwrap_or_default()
}

/// `metadata.uid`; empty if unset.
pub(in super::super) fn uid(node: &Node) -> &str {
    node.metadata.uid.as_deref().unwrap_or_default()
}

pub(in super::super) fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn has_shutdown_taint(node: &Node) -> bool {
    taints(node).iter().any(is_shutdown)
}

fn is_shutdown(taint: &Taint) -> bool {
    taint.key == SHUTDOWN && taint.effect == NO_SCHEDULE
}

pub(super) fn is_going(node: &Node) -> bool {
    node.metadata.deletion_timestamp.is_some()
}

/// Whether the Node is older than `age`; false if its age is unknown.
pub(super) fn is_older(node: &Node, age: Duration, wall: Timestamp) -> bool {
    node.metadata
        .creation_timestamp
        .as_ref()
        .is_some_and(|created| {
            let lived = wall.duration_since(created.0);
            Duration::try_from(lived).is_ok_and(|lived| lived > age)
        })
}
