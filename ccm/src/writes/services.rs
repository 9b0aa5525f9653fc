//! Writes to Services: metadata and status, never spec (B-S2). Each carries the resourceVersion.
//! Without it, a late write of a former leader could replace the handle or the status that the next
//! leader wrote.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use serde_json::{Value, json};

use super::{Part, WriteError, Writes, patch_metadata};
use crate::core::Lenient;

/// A merge patch of a Service's metadata. Empty fields leave the Service's as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServicePatch {
    /// The whole of `metadata.finalizers`.
    pub(crate) finalizers: Option<Vec<String>>,
    /// Annotations to set or remove.
    pub(crate) annotations: BTreeMap<String, Option<String>>,
}

impl ServicePatch {
    /// The body of the request. `None`: there is nothing to write.
    pub(super) fn body(&self, base: &Service) -> Option<Value> {
        if *self == Self::default() {
            return None;
        }
        let mut metadata = patch_metadata(base, true);
        if let Some(finalizers) = &self.finalizers {
            metadata.insert("finalizers".to_owned(), json!(finalizers));
        }
        if !self.annotations.is_empty() {
            metadata.insert("annotations".to_owned(), json!(self.annotations));
        }
        Some(json!({ "metadata": metadata }))
    }
}

/// A merge patch of a Service's status. Empty fields leave the Service's as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServiceStatusPatch {
    /// The whole of `status.loadBalancer`; the default clears it.
    pub(crate) load_balancer: Option<LoadBalancerStatus>,
    /// The whole of `status.conditions`.
    pub(crate) conditions: Option<Vec<Condition>>,
}

impl ServiceStatusPatch {
    pub(super) fn body(&self, base: &Service) -> Option<Value> {
        if *self == Self::default() {
            return None;
        }
        let metadata = patch_metadata(base, true);
        let mut body = json!({ "metadata": metadata });
        if let Some(load_balancer) = &self.load_balancer {
            // Written out in full: `{}` would leave the old ingress in place.
            body["status"]["loadBalancer"] = json!({ "ingress": load_balancer.ingress });
        }
        if let Some(conditions) = &self.conditions {
            body["status"]["conditions"] = json!(conditions);
        }
        Some(body)
    }
}

impl Writes {
    fn services(&self, namespace: &str) -> Api<Lenient<Service>> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn services_of(&self, base: &Service) -> Result<Api<Lenient<Service>>, WriteError> {
        let namespace = base.metadata.namespace.as_deref();
        let namespace = namespace
            .ok_or_else(|| WriteError::Refused("the Service has no namespace".to_owned()))?;
        Ok(self.services(namespace))
    }

    /// Patches the metadata of the Service that `base` is a view of. Returns the patched Service,
    /// pruned like those of the store. An empty patch sends no request and returns `base`.
    pub(crate) async fn patch_service(
        &self,
        base: &Service,
        patch: &ServicePatch,
    ) -> Result<Service, WriteError> {
        let services = self.services_of(base)?;
        Self::patch(&services, base, patch.body(base), Part::Object).await
    }

    /// Patches the status. Returns as `patch_service`.
    pub(crate) async fn patch_service_status(
        &self,
        base: &Service,
        patch: &ServiceStatusPatch,
    ) -> Result<Service, WriteError> {
        let services = self.services_of(base)?;
        Self::patch(&services, base, patch.body(base), Part::Status).await
    }

    /// Reads the Service from the API server, with all its fields. `None`: it does not exist.
    pub(crate) async fn read_service(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Service>, WriteError> {
        Self::read(&self.services(namespace), name).await
    }
}
