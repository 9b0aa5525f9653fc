//! The registration of a metric.

use prometheus_client::registry::{Metric, Registry};

/// Registers the metric and returns it.
pub(crate) fn registered<M: Metric + Clone>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    registry.register(name, help, metric.clone());
    metric
}
