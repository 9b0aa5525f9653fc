//! Writes to Nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, Taint};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, Preconditions};
use serde_json::{Value, json};

use super::{Part, WriteError, Writes, name_of, patch_metadata, told_apart};
use crate::core::Lenient;

/// Nodes in a page of a list.
const PAGE: u32 = 500;
/// The most pages to read. A longer list is an error.
const MOST_PAGES: usize = 100;

/// A merge patch of a Node's metadata and spec. Empty fields leave the Node's as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodePatch {
    /// `spec.providerID`.
    pub(crate) provider_id: Option<String>,
    /// Labels to set.
    pub(crate) labels: BTreeMap<String, String>,
    /// The whole of `spec.taints`; the patch then carries the resourceVersion.
    pub(crate) taints: Option<Vec<Taint>>,
}

impl NodePatch {
    /// The body of the request. `None`: there is nothing to write.
    pub(super) fn body(&self, base: &Node) -> Option<Value> {
        if *self == Self::default() {
            return None;
        }
        let mut metadata = patch_metadata(base, self.taints.is_some());
        if !self.labels.is_empty() {
            metadata.insert("labels".to_owned(), json!(self.labels));
        }
        let mut body = json!({ "metadata": metadata });
        if let Some(provider_id) = &self.provider_id {
            body["spec"]["providerID"] = json!(provider_id);
        }
        if let Some(taints) = &self.taints {
            body["spec"]["taints"] = json!(taints);
        }
        Some(body)
    }
}

/// The body of a patch of all addresses. It is a merge patch because the strategic one merges by
/// type, which mangles two addresses of one type.
pub(super) fn addresses_body(base: &Node, addresses: &[NodeAddress]) -> Value {
    let metadata = patch_metadata(base, false);
    json!({ "metadata": metadata, "status": { "addresses": addresses } })
}

pub(super) fn condition_body(base: &Node, condition: &NodeCondition) -> Value {
    let metadata = patch_metadata(base, true);
    json!({ "metadata": metadata, "status": { "conditions": [condition] } })
}

impl Writes {
    fn nodes(&self) -> Api<Lenient<Node>> {
        Api::all(self.client.clone())
    }

    /// Patches metadata and spec of the Node that `base` is a view of. Returns the patched Node,
    /// pruned like those of the store. An empty patch sends no request and returns `base`.
    pub(crate) async fn patch_node(
        &self,
        base: &Node,
        patch: &NodePatch,
    ) -> Result<Node, WriteError> {
        Self::patch(&self.nodes(), base, patch.body(base), Part::Object).await
    }

    /// Replaces the addresses in the status. Returns as `patch_node`.
    pub(crate) async fn patch_node_addresses(
        &self,
        base: &Node,
        addresses: &[NodeAddress],
    ) -> Result<Node, WriteError> {
        let patch = Patch::Merge(addresses_body(base, addresses));
        Self::send(&self.nodes(), base, &patch, Part::Status).await
    }

    /// Sets this condition and leaves the others, at the resourceVersion of `base`. Returns as
    /// `patch_node`.
    pub(crate) async fn set_node_condition(
        &self,
        base: &Node,
        condition: &NodeCondition,
    ) -> Result<Node, WriteError> {
        let patch = Patch::Strategic(condition_body(base, condition));
        Self::send(&self.nodes(), base, &patch, Part::Status).await
    }

    /// Reads the Node from the API server instead of the store, with all its fields (managed fields
    /// too). `None`: it does not exist.
    pub(crate) async fn read_node(&self, name: &str) -> Result<Option<Node>, WriteError> {
        Self::read(&self.nodes(), name).await
    }

    /// Lists the Nodes from the API server instead of the store, until `each` returns false.
    pub(crate) async fn list_nodes(
        &self,
        mut each: impl FnMut(&Node) -> bool,
    ) -> Result<(), WriteError> {
        let mut params = ListParams::default().limit(PAGE);
        for _ in 0..MOST_PAGES {
            let page = self.nodes().list(&params).await?;
            if !page.items.iter().all(|node| each(&node.0)) {
                return Ok(());
            }
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => params = params.continue_token(&token),
                _ => return Ok(()),
            }
        }
        let text = format!("the list of Nodes has more than {MOST_PAGES} pages");
        Err(WriteError::Unavailable(text))
    }

    /// Deletes the Node with its UID and resourceVersion as preconditions.
    pub(crate) async fn delete_node(&self, node: &Node) -> Result<(), WriteError> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: node.metadata.uid.clone(),
                resource_version: node.metadata.resource_version.clone(),
            }),
            ..DeleteParams::default()
        };
        let nodes = self.nodes();
        match nodes.delete(name_of(node)?, &params).await {
            Ok(_) => Ok(()),
            // The API server did nothing, and the client layer repeats no DELETE.
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 429) => {
                Err(WriteError::Refused(status.message))
            }
            Err(error) => Err(told_apart(&nodes, node, error.into()).await),
        }
    }
}
