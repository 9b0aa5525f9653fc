//! The loop that every controller runs on, with the policies that they share, and what it is given.
//!
//! | policy | where |
//! |---|---|
//! | reconcile only while the provider works, offers the capability and has the accepted scope | [`gate`] |
//! | changes and hints make keys due | [`sources`] |
//! | batches, calls at once, writes at once, THROTTLED, drain | [`driver`], [`load`] |
//! | each key is settled once, however its task ends | [`batch`] |
//! | BUSY, jitter, credentials reported once, common failures logged once | [`failures`] |

mod batch;
mod driver;
mod failures;
mod gate;
mod load;
mod sources;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::args::Config;
use crate::cluster::Cluster;
use crate::core::{Fence, WallClock, wall_time};
use crate::provider::{Hint, ProviderStatus};
use crate::queue;
use crate::writes::Writes;

pub(crate) use batch::Batch;
pub(crate) use driver::{Driver, Reconciler, Spec, run};
pub(crate) use failures::Failed;
pub(crate) use load::{Permits, Width, lowered};
pub(crate) use sources::{Sources, Wake};

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

impl LoopContext {
    /// When this instant is, or was, by the wall clock; for people.
    pub(crate) fn wall_time(&self, at: Instant) -> Timestamp {
        wall_time(at, Instant::now(), (self.wall)())
    }
}
