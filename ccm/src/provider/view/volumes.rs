//! PersistentVolumes as the provider sees them. Pure.

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::Value;

use crate::core::LAST_APPLIED;

/// The objects in a PersistentVolume's `spec` that are no volume source. Every other object is a
/// source, and a volume has one source.
const NO_SOURCES: [&str; 3] = ["capacity", "claimRef", "nodeAffinity"];

/// The volume with its source. `None` if it has no known source.
pub(crate) fn volume_view(volume: &PersistentVolume) -> Option<api::VolumeView> {
    let spec = serde_json::to_value(volume.spec.as_ref()?).ok()?;
    let objects = spec.as_object()?.iter();
    let (source_type, fields) = objects
        .filter(|(name, _)| !NO_SOURCES.contains(&name.as_str()))
        .find_map(|(name, value)| Some((name, value.as_object()?)))?;
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        // An object may hold references to Secrets, or data that only a driver understands.
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    let metadata = &volume.metadata;
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    annotations.remove(LAST_APPLIED);
    Some(api::VolumeView {
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations,
        source_type: source_type.clone(),
        source: fields
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), text(value)?)))
            .collect(),
    })
}

/// Whether to ask the provider about the volume. `source_types` are the sources that the provider
/// names as its own (VOL-2); if it names none, it is asked about all volumes.
pub(crate) fn is_asked_about(volume: &api::VolumeView, source_types: &[String]) -> bool {
    let driver = volume.source.get("driver").map(String::as_str);
    source_types.is_empty()
        || source_types.iter().any(|named| {
            *named == volume.source_type
                || named
                    .strip_prefix("csi/")
                    .is_some_and(|named| volume.source_type == "csi" && driver == Some(named))
        })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeSpec;
    use serde_json::json;

    use super::*;

    fn volume(spec: &Value) -> PersistentVolume {
        let metadata = json!({
            "name": "pv", "uid": "u", "labels": {"l": "1"},
            "annotations": {"a": "2", LAST_APPLIED: "{}"},
        });
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn b_v1_the_provider_sees_the_source_with_its_plain_fields() {
        let csi = json!({
            "driver": "disk.example.org", "volumeHandle": "d-1", "readOnly": true,
            "volumeAttributes": {"secret": "x"}, "nodeStageSecretRef": {"name": "s"},
        });
        let view = volume_view(&volume(&json!({"csi": csi, "storageClassName": "fast"}))).unwrap();
        assert_eq!((view.name.as_str(), view.uid.as_str()), ("pv", "u"));
        assert_eq!(view.labels, [("l".to_owned(), "1".to_owned())].into());
        assert_eq!(view.annotations, [("a".to_owned(), "2".to_owned())].into());
        assert_eq!(view.source_type, "csi");
        let source = [
            ("driver", "disk.example.org"),
            ("readOnly", "true"),
            ("volumeHandle", "d-1"),
        ];
        let source = source.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(view.source, source.into());

        let disk = json!({"gcePersistentDisk": {"pdName": "d", "partition": 3}});
        let view = volume_view(&volume(&disk)).unwrap();
        assert_eq!(view.source_type, "gcePersistentDisk");
        assert_eq!(view.source["partition"], "3");
        let portals =
            json!({"iscsi": {"iqn": "i", "lun": 0, "targetPortal": "t", "portals": ["p"]}});
        let view = volume_view(&volume(&portals)).unwrap();
        assert_eq!(
            view.source.keys().collect::<Vec<_>>(),
            ["iqn", "lun", "targetPortal"]
        );
    }

    #[test]
    fn b_v1_a_volume_without_a_known_source_has_no_view() {
        assert_eq!(volume_view(&PersistentVolume::default()), None);
        assert_eq!(
            volume_view(&volume(&json!({"fromTheFuture": {"id": "x"}}))),
            None
        );
    }

    fn empty<T: Default>() -> T {
        T::default()
    }

    /// If a new k8s-openapi adds a field to the spec, this does not compile. An object that is no
    /// source belongs into `NO_SOURCES`.
    #[test]
    fn b_v1_each_object_of_a_spec_is_a_source_or_is_known_to_be_none() {
        let everything = PersistentVolumeSpec {
            access_modes: None,
            aws_elastic_block_store: Some(empty()),
            azure_disk: Some(empty()),
            azure_file: Some(empty()),
            capacity: Some(empty()),
            cephfs: Some(empty()),
            cinder: Some(empty()),
            claim_ref: Some(empty()),
            csi: Some(empty()),
            fc: Some(empty()),
            flex_volume: Some(empty()),
            flocker: Some(empty()),
            gce_persistent_disk: Some(empty()),
            glusterfs: Some(empty()),
            host_path: Some(empty()),
            iscsi: Some(empty()),
            local: Some(empty()),
            mount_options: None,
            nfs: Some(empty()),
            node_affinity: Some(empty()),
            persistent_volume_reclaim_policy: None,
            photon_persistent_disk: Some(empty()),
            portworx_volume: Some(empty()),
            quobyte: Some(empty()),
            rbd: Some(empty()),
            scale_io: Some(empty()),
            storage_class_name: None,
            storageos: Some(empty()),
            volume_attributes_class_name: None,
            volume_mode: None,
            vsphere_volume: Some(empty()),
        };
        let sources = [
            "awsElasticBlockStore",
            "azureDisk",
            "azureFile",
            "cephfs",
            "cinder",
            "csi",
            "fc",
            "flexVolume",
            "flocker",
            "gcePersistentDisk",
            "glusterfs",
            "hostPath",
            "iscsi",
            "local",
            "nfs",
            "photonPersistentDisk",
            "portworxVolume",
            "quobyte",
            "rbd",
            "scaleIO",
            "storageos",
            "vsphereVolume",
        ];
        let everything = serde_json::to_value(everything).unwrap();
        let objects = everything.as_object().unwrap().iter();
        let objects: Vec<_> = objects.filter(|(_, value)| value.is_object()).collect();
        assert_eq!(objects.len(), sources.len() + NO_SOURCES.len());
        for (name, value) in objects {
            let view = volume_view(&volume(&json!({name: value})));
            let source = sources.contains(&name.as_str()).then_some(name);
            assert_eq!(view.as_ref().map(|view| &view.source_type), source);
        }
    }

    #[test]
    fn b_v1_only_sources_that_the_provider_names_are_asked_about() {
        let csi = volume(&json!({"csi": {"driver": "d.example.org", "volumeHandle": "1"}}));
        let aws = volume(&json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}));
        let (csi, aws) = (volume_view(&csi).unwrap(), volume_view(&aws).unwrap());
        for (named, asked_csi, asked_aws) in [
            (&[][..], true, true),
            (&["csi/d.example.org"], true, false),
            (&["csi/e.example.org"], false, false),
            (&["csi"], true, false),
            (&["awsElasticBlockStore"], false, true),
            (&["csi/awsElasticBlockStore"], false, false),
            (&["awsElasticBlockStore", "csi/d.example.org"], true, true),
            (&["AWSElasticBlockStore"], false, false),
        ] {
            let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(is_asked_about(&csi, &named), asked_csi, "{named:?}");
            assert_eq!(is_asked_about(&aws, &named), asked_aws, "{named:?}");
        }
    }
}
