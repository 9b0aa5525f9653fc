//! Upstream's `node_controller_*` metrics, and the ccm's own.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::core::{ProviderLabel, registered};

/// The metrics of the node controller. The two histograms are upstream's, with its buckets (B-M7).
#[derive(Clone)]
pub(crate) struct Metrics {
    taint_removal: Histogram,
    initial_sync: Histogram,
    oldest: Family<ProviderLabel, Gauge<f64, AtomicU64>>,
    reserved: Family<ProviderLabel, Counter>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        // 1 s to about 17 min.
        let delay = || Histogram::new(exponential_buckets(1.0, 4.0, 6));
        Self {
            taint_removal: registered(
                registry,
                "node_controller_cloud_provider_taint_removal_delay_seconds",
                "Seconds from the creation of a Node to the removal of its uninitialized taint",
                delay(),
            ),
            initial_sync: registered(
                registry,
                "node_controller_initial_node_sync_delay_seconds",
                "Seconds from the creation of a Node to the end of its initialisation",
                delay(),
            ),
            oldest: registered(
                registry,
                "node_controller_oldest_uninitialized_node_age_seconds",
                "Age of the oldest Node that still waits to be initialised; 0 when none does",
                Family::default(),
            ),
            reserved: registered(
                registry,
                "ccm_node_reserved_labels",
                "Labels in reserved namespaces that the provider reported when a Node was initialised, and that the ccm left out, as upstream does",
                Family::default(),
            ),
        }
    }

    /// A Node of this age was initialised. The last write removes the taint, so both histograms get
    /// the same value.
    pub(super) fn initialized(&self, age: Duration) {
        self.taint_removal.observe(age.as_secs_f64());
        self.initial_sync.observe(age.as_secs_f64());
    }

    /// Creates the series with the label `provider`, for tests that list the metrics.
    #[cfg(test)]
    pub(crate) fn touch(&self) {
        self.oldest("mock", Duration::ZERO);
        self.reserved_labels("mock", 1);
    }

    /// Counts labels of a Node that were left out (B-N4).
    pub(super) fn reserved_labels(&self, provider: &str, count: usize) {
        self.reserved
            .get_or_create(&provider.into())
            .inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// The age of the oldest waiting Node.
    pub(super) fn oldest(&self, provider: &str, age: Duration) {
        self.oldest
            .get_or_create(&provider.into())
            .set(age.as_secs_f64());
    }
}
