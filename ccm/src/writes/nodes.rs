//! Writes to Nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeAddress, Taint};

use super::{WriteError, Writes};

/// A merge patch of a Node's metadata and spec. Empty fields are left alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodePatch {
    /// `spec.providerID`.
    pub(crate) provider_id: Option<String>,
    /// Labels to set (`Some`) or remove (`None`).
    pub(crate) labels: BTreeMap<String, Option<String>>,
    /// Annotations to set or remove.
    pub(crate) annotations: BTreeMap<String, Option<String>>,
    /// The whole of `spec.taints`; the patch then carries the resourceVersion.
    pub(crate) taints: Option<Vec<Taint>>,
}

/// A merge patch of a Node's status. Empty fields are left alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeStatusPatch {
    /// The whole of `status.addresses` (a merge patch: the strategic one merges by type and mangles two addresses of one type).
    pub(crate) addresses: Option<Vec<NodeAddress>>,
}

impl Writes {
    /// Patches metadata and spec of the Node that `base` is a view of. Returns the Node as it is then.
    pub(crate) async fn patch_node(
        &self,
        _base: &Node,
        _patch: &NodePatch,
    ) -> Result<Node, WriteError> {
        todo!()
    }
    /// Patches the status.
    pub(crate) async fn patch_node_status(
        &self,
        _base: &Node,
        _patch: &NodeStatusPatch,
    ) -> Result<Node, WriteError> {
        todo!()
    }
    /// Reads the Node from the API server, not from the cache; `None` when there is none.
    pub(crate) async fn read_node(&self, _name: &str) -> Result<Option<Node>, WriteError> {
        todo!()
    }
    /// Deletes the Node with its UID and resourceVersion as preconditions.
    pub(crate) async fn delete_node(&self, _node: &Node) -> Result<(), WriteError> {
        todo!()
    }
}
