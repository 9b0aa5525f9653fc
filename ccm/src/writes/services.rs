//! Writes to Services: metadata and status, never spec (B-S2).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{WriteError, Writes};

/// A merge patch of a Service's metadata. Empty fields are left alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServicePatch {
    /// The whole of `metadata.finalizers`; the patch then carries the resourceVersion.
    pub(crate) finalizers: Option<Vec<String>>,
    /// Annotations to set or remove.
    pub(crate) annotations: BTreeMap<String, Option<String>>,
}

/// A merge patch of a Service's status. Empty fields are left alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServiceStatusPatch {
    /// The whole of `status.loadBalancer`.
    pub(crate) load_balancer: Option<LoadBalancerStatus>,
    /// The whole of `status.conditions`; the patch then carries the resourceVersion.
    pub(crate) conditions: Option<Vec<Condition>>,
}

impl Writes {
    /// Patches the metadata of the Service that `base` is a view of. Returns the Service as it is then.
    pub(crate) async fn patch_service(
        &self,
        _base: &Service,
        _patch: &ServicePatch,
    ) -> Result<Service, WriteError> {
        todo!()
    }
    /// Patches the status.
    pub(crate) async fn patch_service_status(
        &self,
        _base: &Service,
        _patch: &ServiceStatusPatch,
    ) -> Result<Service, WriteError> {
        todo!()
    }
    /// Reads the Service from the API server; `None` when there is none.
    pub(crate) async fn read_service(
        &self,
        _namespace: &str,
        _name: &str,
    ) -> Result<Option<Service>, WriteError> {
        todo!()
    }
}
