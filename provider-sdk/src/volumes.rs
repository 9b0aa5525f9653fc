//! Labels for persistent volumes (`volume.proto`; Go's PVLabeler).

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::{Call, Failure};

/// Labels for persistent volumes.
#[async_trait]
pub trait Volumes: Send + Sync {
    /// The labels of this volume. If its source is not this cloud's, return an empty map (VOL-1).
    /// The controller also makes node affinity from zone and region. Join several zones with `__`.
    ///
    /// Failures: INVALID, NOT_FOUND (no such disk), THROTTLED, CREDENTIALS, UNAVAILABLE, INTERNAL.
    /// Deadline 60 s.
    async fn labels(
        &self,
        call: &Call,
        volume: &Volume,
    ) -> Result<BTreeMap<String, String>, Failure>;

    /// The capabilities of this service.
    fn options(&self) -> VolumeOptions {
        VolumeOptions::default()
    }
}

/// The capabilities of the volumes service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeOptions {
    /// The sources of this cloud (VOL-2): a field of `spec` such as `awsElasticBlockStore`, or
    /// `csi/DRIVER`. The controller asks only about volumes with these sources. If the list is
    /// empty (the default), it asks about volumes with any source.
    pub source_types: Vec<String>,
    /// How many calls of this service may run at once; 8 by default.
    pub max_in_flight: u32,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            source_types: Vec::new(),
            max_in_flight: 8,
        }
    }
}

/// A persistent volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Volume {
    /// `metadata.name`. Empty if the volume is being created with a generated name.
    pub name: String,
    /// `metadata.uid`. Empty if the volume is being created.
    pub uid: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`, without `kubectl.kubernetes.io/last-applied-configuration`.
    pub annotations: BTreeMap<String, String>,
    /// The field of `spec` with the source, for example `awsElasticBlockStore` or `csi`.
    pub source_type: String,
    /// The fields of that source as text, for example `volumeID`, without objects and lists.
    pub source: BTreeMap<String, String>,
}

impl Volume {
    /// The source in the format of [`VolumeOptions::source_types`]: `csi/DRIVER` for a CSI volume,
    /// else the field of `spec`.
    pub fn source_name(&self) -> String {
        match self.source.get("driver") {
            Some(driver) if self.source_type == "csi" => format!("csi/{driver}"),
            _ => self.source_type.clone(),
        }
    }
}
