//! Kubernetes objects as the provider sees them. Pure.

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{Node, Service};

/// What the provider wants to see of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Projection {}

/// The Node as the provider asked to see it.
pub(crate) fn node_view(_node: &Node, _projection: &Projection) -> api::NodeView {
    todo!()
}

/// The Service as the provider sees it.
pub(crate) fn service_view(_service: &Service) -> api::ServiceView {
    todo!()
}
