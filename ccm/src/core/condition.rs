//! The conditions of a Node that controllers read; [`prune`](super::prune) keeps no others.

use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// What the kubelet, and for one that is silent the node lifecycle controller of kube-controller-manager, says of the Node.
pub(super) const READY: &str = "Ready";
/// What the route controller says of the Node.
pub(super) const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// The Ready condition, where the Node has one.
pub(crate) fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .find(|condition| condition.type_ == READY)
}

/// Whether the Ready condition is True; a Node without one is not ready.
pub(crate) fn is_ready(node: &Node) -> bool {
    ready_condition(node).is_some_and(|ready| ready.status == "True")
}
