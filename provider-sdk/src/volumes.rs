//! Labels for persistent volumes (`volume.proto`; Go's PVLabeler).

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::{Call, Failure};

/// Labels for persistent volumes.
#[async_trait]
pub trait Volumes: Send + Sync {
    /// Which labels should this volume have? A source that is not this cloud's has none: an empty map (VOL-1). Zone and region become node affinity too; several zones
    /// are joined by `__`.
    ///
    /// Failures: INVALID, NOT_FOUND (no such disk), THROTTLED, CREDENTIALS, UNAVAILABLE, INTERNAL. Deadline 60 s.
    async fn labels(
        &self,
        call: &Call,
        volume: &Volume,
    ) -> Result<BTreeMap<String, String>, Failure>;
}

/// A persistent volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Volume {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// The field of `spec` that holds the source, for example `awsElasticBlockStore` or `csi`.
    pub source_type: String,
    /// The fields of that source with their values as text, for example `volumeID`.
    pub source: BTreeMap<String, String>,
}
