//! Who owns which Node and Service: pure.

use k8s_openapi::api::core::v1::{Node, Service};

/// What each connected provider claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ownership {}

/// Whose a Node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeOwner<'a> {
    /// It belongs to this provider, by its provider ID or its label.
    Provider(&'a str),
    /// It has no provider ID and no label: all are asked.
    AskAll,
    /// It belongs to nobody here: it is left alone.
    Nobody,
}

impl Ownership {
    /// Whose the Node is: the longest prefix of its provider ID, else the label `grpc-ccm.io/provider`.
    pub(crate) fn node_owner(&self, _node: &Node) -> NodeOwner<'_> {
        todo!()
    }
    /// Whether `provider` should be asked about this Node (it owns it, or all are asked).
    pub(crate) fn concerns(&self, _provider: &str, _node: &Node) -> bool {
        todo!()
    }
    /// The provider of a Service, by its class; `None` when no provider serves the class.
    pub(crate) fn service_owner(&self, _service: &Service) -> Option<&str> {
        todo!()
    }
}
