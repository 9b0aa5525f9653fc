//! What every controller is given.

use std::sync::Arc;

use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::args::Config;
use crate::cluster::Cluster;
use crate::core::{Fence, WallClock};
use crate::provider::{Hint, ProviderStatus};
use crate::queue;
use crate::writes::Writes;

/// What one loop of one (controller, provider) is given.
#[derive(Clone)]
pub(crate) struct LoopContext {
    /// The provider's name, as configured.
    pub(crate) provider: Arc<str>,
    /// The configuration.
    pub(crate) config: Arc<Config>,
    /// The stores.
    pub(crate) cluster: Cluster,
    /// For a watch that only one loop needs.
    pub(crate) watch_client: kube::Client,
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
    pub(crate) queue_metrics: queue::Metrics,
    /// Hints of the provider (WatchChanges), for loops that want them.
    pub(crate) hints: broadcast::Sender<Hint>,
}
