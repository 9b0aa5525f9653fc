//! Writes to PersistentVolumes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, VolumeNodeAffinity};
use kube::Api;
use serde_json::{Value, json};

use super::{Part, WriteError, Writes, patch_metadata};

/// A merge patch of a PersistentVolume's metadata and node affinity. Empty fields leave the
/// volume's as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VolumePatch {
    /// Labels to set.
    pub(crate) labels: BTreeMap<String, String>,
    /// Annotations to set.
    pub(crate) annotations: BTreeMap<String, String>,
    /// The whole of `spec.nodeAffinity`. The API server lets a writer set it once, and refuses
    /// changes.
    pub(crate) node_affinity: Option<VolumeNodeAffinity>,
}

impl VolumePatch {
    /// The body of the request. `None`: there is nothing to write. It always has the
    /// resourceVersion: the new affinity is made from the volume's current one, and a label that
    /// somebody set in between must not be overwritten unseen.
    pub(super) fn body(&self, base: &PersistentVolume) -> Option<Value> {
        if *self == Self::default() {
            return None;
        }
        let mut metadata = patch_metadata(base, true);
        for (field, entries) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            if !entries.is_empty() {
                metadata.insert(field.to_owned(), json!(entries));
            }
        }
        let mut body = json!({ "metadata": metadata });
        if let Some(affinity) = &self.node_affinity {
            body["spec"]["nodeAffinity"] = json!(affinity);
        }
        Some(body)
    }
}

impl Writes {
    /// Patches the PersistentVolume that `base` is a view of. Returns the patched volume, pruned
    /// like those of the store. An empty patch sends no request and returns `base`.
    pub(crate) async fn patch_volume(
        &self,
        base: &PersistentVolume,
        patch: &VolumePatch,
    ) -> Result<PersistentVolume, WriteError> {
        let volumes = Api::all(self.client.clone());
        Self::patch(&volumes, base, patch.body(base), Part::Object).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_v1_a_patch_of_a_volume_carries_its_uid_and_version() {
        let mut volume = PersistentVolume::default();
        volume.metadata.uid = Some("u".to_owned());
        volume.metadata.resource_version = Some("7".to_owned());
        assert_eq!(VolumePatch::default().body(&volume), None);
        let patch = VolumePatch {
            labels: [("l".to_owned(), "x".to_owned())].into(),
            annotations: [("a".to_owned(), "y".to_owned())].into(),
            node_affinity: Some(VolumeNodeAffinity::default()),
        };
        assert_eq!(
            patch.body(&volume),
            Some(json!({
                "metadata": {
                    "uid": "u", "resourceVersion": "7", "labels": { "l": "x" }, "annotations": { "a": "y" },
                },
                "spec": { "nodeAffinity": {} },
            }))
        );
    }
}
