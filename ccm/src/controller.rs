//! The loop that every controller runs on, the policies that all controllers share, and the loop's
//! inputs.
//!
//! | policy | where |
//! |---|---|
//! | reconcile only while the provider works, offers the capability and has the accepted scope | [`gate`] |
//! | changes and hints make keys due | [`sources`] |
//! | batches, calls at once, writes at once, THROTTLED, drain | [`driver`], [`load`] |
//! | each key is settled once, however its task ends | [`batch`] |
//! | BUSY, jitter, how often credential events and warnings are repeated | [`failures`] |

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
pub(crate) use sources::{Wake, changes, hints};

/// The inputs of one loop for one pair of controller and provider.
#[derive(Clone)]
pub(crate) struct LoopContext {
    /// The provider's name in the configuration.
    pub(crate) provider: Arc<str>,
    pub(crate) config: Arc<Config>,
    pub(crate) cluster: Cluster,
    /// For a watch that only one loop needs, and for reading the cluster's identity.
    pub(crate) watch_client: kube::Client,
    pub(crate) writes: Writes,
    /// The provider's status, as it changes.
    pub(crate) status: watch::Receiver<ProviderStatus>,
    /// Whether this process still leads.
    pub(crate) fence: Fence,
    pub(crate) wall: WallClock,
    /// The seed of all randomness in this loop.
    pub(crate) seed: u64,
    /// Cancelled when the loop must begin no new work. The loop returns when the work in flight has
    /// ended.
    pub(crate) stop: CancellationToken,
    pub(crate) queue_metrics: queue::Metrics,
    /// Hints of the provider (WatchChanges), for loops that use them.
    pub(crate) hints: broadcast::Sender<Hint>,
}

impl LoopContext {
    /// The wall-clock time of this instant, to show to people.
    pub(crate) fn wall_time(&self, at: Instant) -> Timestamp {
        wall_time(at, Instant::now(), (self.wall)())
    }
}
