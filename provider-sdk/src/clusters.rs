//! Clusters that the cloud knows (`cluster.proto`; Go's Clusters).

use async_trait::async_trait;

use crate::{Call, Failure};

/// Clusters that the cloud knows. For tools: no controller calls this.
#[async_trait]
pub trait Clusters: Send + Sync {
    /// The names of the clusters in the cloud's scope, each 1 to 253 bytes. The list must be
    /// complete; otherwise return a failure (CLUSTER-1). Deadline 5 min.
    async fn list(&self, call: &Call) -> Result<Vec<String>, Failure>;

    /// The address of the named cluster's control plane: a host name or an IP address, without a
    /// port, 1 to 253 bytes.
    ///
    /// Failures: INVALID, NOT_FOUND (no such cluster), THROTTLED, CREDENTIALS, UNAVAILABLE,
    /// INTERNAL. Deadline 60 s.
    async fn control_plane_address(
        &self,
        call: &Call,
        cluster_name: &str,
    ) -> Result<String, Failure>;
}
