//! The persistent volume label controller and its webhook.

mod controller;
mod webhook;

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Api, PostParams};
use provider_mock::Fixture;
use serde_json::{Value, json};
use testenv::eventually;

use crate::world::{SOON, World};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const GET: &str = "GetVolumeLabels";

/// A cloud with the disks d-1 to d-4 in zones a and b of region r.
fn disks() -> Fixture {
    let labels = BTreeMap::from([
        (ZONE.to_owned(), "b__a".to_owned()),
        (REGION.to_owned(), "r".to_owned()),
    ]);
    let disks = ["d-1", "d-2", "d-3", "d-4"].map(|disk| (disk.to_owned(), labels.clone()));
    Fixture {
        volumes: disks.into(),
        ..Fixture::default()
    }
}

/// A volume of this disk, with a term of node affinity for each of `keys`.
fn volume(name: &str, disk: &str, keys: &[&str]) -> PersistentVolume {
    let mut volume = json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": "disk.mock.grpc-ccm.io", "volumeHandle": disk},
        },
    });
    if !keys.is_empty() {
        let term = |key: &&str| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
        let terms: Vec<Value> = keys.iter().map(term).collect();
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
    }
    serde_json::from_value(volume).unwrap()
}

fn deploy(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy")).join(file)
}

/// The keys of each term, as `k=values` if they have values.
fn terms(volume: &PersistentVolume) -> Vec<String> {
    let affinity = volume.spec.as_ref().unwrap().node_affinity.clone();
    let terms = affinity
        .and_then(|affinity| affinity.required)
        .unwrap_or_default();
    let term = |term: k8s_openapi::api::core::v1::NodeSelectorTerm| {
        let expressions = term.match_expressions.unwrap_or_default();
        let shown: Vec<_> = expressions
            .into_iter()
            .map(|it| match it.values {
                None => it.key,
                Some(values) => format!("{}={}", it.key, values.join("|")),
            })
            .collect();
        shown.join(",")
    };
    terms.node_selector_terms.into_iter().map(term).collect()
}

fn zone(volume: &PersistentVolume) -> Option<&str> {
    let labels = volume.metadata.labels.as_ref()?;
    labels.get(ZONE).map(String::as_str)
}

impl World {
    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    async fn create_volume(&self, volume: &PersistentVolume) -> PersistentVolume {
        let volumes = self.volumes();
        volumes
            .create(&PostParams::default(), volume)
            .await
            .unwrap()
    }

    /// Waits until the volume has its labels.
    async fn labelled(&self, name: &str) -> PersistentVolume {
        eventually(&format!("{name} is labelled"), SOON, async || {
            let volume = self
                .volumes()
                .get(name)
                .await
                .map_err(|error| error.to_string())?;
            if zone(&volume).is_some() {
                Ok(volume)
            } else {
                Err(format!("{:?}", volume.metadata))
            }
        })
        .await
    }

    /// Grants the rights of the component `volumes`, which the base does not have.
    fn grant_volumes(&self) {
        self.apply("kustomize/components/volumes/rbac.yaml");
    }
}
