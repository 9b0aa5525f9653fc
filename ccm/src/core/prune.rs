//! Drops fields of watched objects that no controller reads (▲M8).
//!
//! A patch that replaces a list (such as a Node's conditions) must not be built from an object
//! whose list was pruned.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Service};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::node::{NETWORK_UNAVAILABLE, READY, provider_id};

/// `kubectl apply` stores a second copy of the whole object in this annotation.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The Node conditions that a controller reads.
const READ_CONDITIONS: [&str; 2] = [READY, NETWORK_UNAVAILABLE];

/// An object whose unread fields can be dropped.
pub(crate) trait Prune: PartialEq {
    fn prune(&mut self);

    /// The object's value in the store's second index: a Node's provider ID. `None`: the object has
    /// none.
    fn found_by(&self) -> Option<&str> {
        None
    }
}

fn prune_meta(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    meta.self_link = None;
    meta.generate_name = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

impl Prune for Node {
    /// Keeps the addresses and nodeInfo of the status, and the fields of metadata and spec except a
    /// few that no controller reads. Of the two conditions that controllers read, it keeps type,
    /// status, reason and the time of the last transition. Heartbeat times and messages go: with
    /// them, every heartbeat would be a change.
    fn prune(&mut self) {
        prune_meta(&mut self.metadata);
        if let Some(spec) = &mut self.spec {
            spec.config_source = None;
            spec.external_id = None;
        }
        let Some(mut status) = self.status.take() else {
            return;
        };
        let conditions = status.conditions.take().map(|conditions| {
            let mut read: Vec<_> = conditions
                .into_iter()
                .filter(|condition| READ_CONDITIONS.contains(&condition.type_.as_str()))
                .collect();
            for condition in &mut read {
                condition.last_heartbeat_time = None;
                condition.message = None;
            }
            read.shrink_to_fit();
            read
        });
        self.status = Some(k8s_openapi::api::core::v1::NodeStatus {
            addresses: status.addresses,
            conditions,
            node_info: status.node_info,
            ..Default::default()
        });
    }

    fn found_by(&self) -> Option<&str> {
        provider_id(self)
    }
}

impl Prune for PersistentVolume {
    /// Keeps most of the metadata, the node affinity, and the source. Of a CSI source it drops the
    /// attributes and the references to Secrets.
    fn prune(&mut self) {
        prune_meta(&mut self.metadata);
        self.metadata.owner_references = None;
        self.metadata.finalizers = None;
        self.status = None;
        let Some(spec) = &mut self.spec else {
            return;
        };
        spec.access_modes = None;
        spec.capacity = None;
        spec.claim_ref = None;
        spec.mount_options = None;
        spec.persistent_volume_reclaim_policy = None;
        spec.storage_class_name = None;
        spec.volume_attributes_class_name = None;
        spec.volume_mode = None;
        if let Some(csi) = &mut spec.csi {
            csi.volume_attributes = None;
            csi.controller_expand_secret_ref = None;
            csi.controller_publish_secret_ref = None;
            csi.node_expand_secret_ref = None;
            csi.node_publish_secret_ref = None;
            csi.node_stage_secret_ref = None;
        }
    }
}

impl Prune for Service {
    fn prune(&mut self) {
        prune_meta(&mut self.metadata);
    }
}

impl Prune for ServiceCIDR {
    fn prune(&mut self) {
        prune_meta(&mut self.metadata);
        self.status = None;
    }
}
