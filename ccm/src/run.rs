//! Wiring: start, lead, stop. One JoinSet, no detached task.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::args::Config;
use crate::cluster::Cluster;
use crate::lease::Fence;
use crate::provider::ProviderStatus;
use crate::writes::Writes;

/// Wall time, only for what Kubernetes stores.
pub type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What one loop of one (controller, provider) is given.
#[derive(Clone)]
pub(crate) struct LoopContext {
    /// The provider's name, as configured.
    pub(crate) provider: Arc<str>,
    /// The configuration.
    pub(crate) config: Arc<Config>,
    /// The stores.
    pub(crate) cluster: Cluster,
    /// Writes to Kubernetes.
    pub(crate) writes: Writes,
    /// The provider, as it is.
    pub(crate) status: watch::Receiver<ProviderStatus>,
    /// Whether we still lead.
    pub(crate) fence: Fence,
    /// Wall time.
    pub(crate) wall: WallClock,
    /// Seed of all randomness of this loop.
    pub(crate) seed: u64,
    /// Cancelled when the loop must take no new work; it returns when what is in flight is over.
    pub(crate) stop: CancellationToken,
    /// `workqueue_*`.
    pub(crate) queue_metrics: crate::queue::Metrics,
    /// Hints of the provider (WatchChanges), for loops that want them.
    pub(crate) hints: tokio::sync::broadcast::Sender<Hint>,
}

/// A hint of the provider that something may have changed; may be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Anything.
    Resync,
    /// An instance, by provider ID or Node name (either may be empty).
    Instance {
        provider_id: String,
        node_name: String,
    },
    /// A load balancer.
    LoadBalancer { namespace: String, name: String },
    /// Routes.
    Routes,
}

/// Why the process ends with a failure.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The Lease was lost (B-M3).
    #[error("the Lease was lost")]
    LeaseLost,
}

/// Runs until a signal, or until the Lease is lost.
pub async fn from_config(_config: Config) -> Result<(), RunError> {
    Ok(())
}
