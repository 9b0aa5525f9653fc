//! The fields of a Node that several rooms read. [`prune`](super::prune) drops the conditions that
//! have no constant here.

use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};

/// The kubelet sets it. For a silent kubelet, kube-controller-manager's node lifecycle controller
/// does.
pub(super) const READY: &str = "Ready";
/// The route controller sets it.
pub(super) const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

pub(crate) fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .find(|condition| condition.type_ == READY)
}

/// Whether the Ready condition is True. False for a Node without the condition.
pub(crate) fn is_ready(node: &Node) -> bool {
    ready_condition(node).is_some_and(|ready| ready.status == "True")
}

/// The Node's provider ID, unless it is empty.
pub(crate) fn provider_id(node: &Node) -> Option<&str> {
    let id = node.spec.as_ref()?.provider_id.as_deref()?;
    (!id.is_empty()).then_some(id)
}

pub(crate) fn taints(node: &Node) -> &[Taint] {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default()
}
