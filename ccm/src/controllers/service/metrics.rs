//! The metrics of the service controller.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::core::{ProviderLabel, registered, set_gauge};

#[derive(Clone)]
pub(crate) struct Metrics {
    synced: Counter,
    nodesync_errors: Counter,
    pub(super) nodesync_latency: Histogram,
    update_latency: Histogram,
    pub(super) overdue: Family<ProviderLabel, Gauge>,
    pub(super) orphans: Family<ProviderLabel, Gauge>,
    pub(super) duplicates: Family<ProviderLabel, Gauge>,
    pub(super) unlisted: Family<ProviderLabel, Gauge>,
}

impl Metrics {
    /// Registers the families (B-M7).
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            synced: registered(
                registry,
                "service_controller_loadbalancer_sync",
                "Updates of a load balancer's targets, as upstream counts them",
                Counter::default(),
            ),
            nodesync_errors: registered(
                registry,
                "service_controller_nodesync_error",
                "Updates of a load balancer's targets that failed",
                Counter::default(),
            ),
            nodesync_latency: registered(
                registry,
                "service_controller_nodesync_latency_seconds",
                "Time from a settled change of Nodes until the ccm tried every load balancer that it concerns",
                Histogram::new(exponential_buckets(1.0, 2.0, 15)),
            ),
            update_latency: registered(
                registry,
                "service_controller_update_loadbalancer_host_latency_seconds",
                "Time that one update of a load balancer's targets took",
                Histogram::new(exponential_buckets(1.0, 2.0, 15)),
            ),
            overdue: registered(
                registry,
                "service_controller_overdue_services",
                "Services that have waited for more than 30 s: for the ccm, the provider or the cloud",
                Family::default(),
            ),
            orphans: registered(
                registry,
                "service_controller_orphaned_loadbalancers",
                "Load balancers that two lists in a row mark for no Service, or for a Service that does not exist any more",
                Family::default(),
            ),
            duplicates: registered(
                registry,
                "service_controller_duplicated_loadbalancers",
                "Services for which two lists in a row show more than one load balancer",
                Family::default(),
            ),
            unlisted: registered(
                registry,
                "service_controller_unlisted_loadbalancers",
                "Services whose load balancer the provider reported as ready, but which two lists in a row lack",
                Family::default(),
            ),
        }
    }

    /// Sets the gauges, for tests that list the metrics.
    #[cfg(test)]
    pub(crate) fn touch(&self) {
        self.overdue("mock", 1);
        self.orphans("mock", 1);
        self.standing("mock", 1, 1);
    }

    /// An update of a load balancer's targets ended.
    pub(super) fn updated(&self, took: Duration, failed: bool) {
        self.synced.inc();
        self.update_latency.observe(took.as_secs_f64());
        self.nodesync_errors.inc_by(failed.into());
    }

    /// Resets the gauges of this provider: the next leader or provider sets its own values.
    pub(super) fn unsaid(&self, provider: &str) {
        self.overdue(provider, 0);
        self.orphans(provider, 0);
        self.standing(provider, 0, 0);
    }

    /// Sets the number of Services that have waited for longer than
    /// [`PATIENCE`](crate::report::PATIENCE).
    pub(super) fn overdue(&self, provider: &str, count: usize) {
        set_gauge(&self.overdue, provider, count);
    }

    pub(super) fn orphans(&self, provider: &str, count: usize) {
        set_gauge(&self.orphans, provider, count);
    }

    /// Sets the number of Services that have several load balancers, and the number of Services
    /// whose load balancer is missing in the list.
    pub(super) fn standing(&self, provider: &str, several: usize, unlisted: usize) {
        set_gauge(&self.duplicates, provider, several);
        set_gauge(&self.unlisted, provider, unlisted);
    }
}
