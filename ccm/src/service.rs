//! The service controller (B-S1 to ▲S20): load balancers for Services.

mod fingerprint;

mod plan;
mod support;
mod targets;

/// The loop of one provider. Returns after `context.stop`, when what is in flight is over.
pub(crate) async fn run(_context: crate::run::LoopContext, _metrics: Metrics) {
    todo!()
}

/// `service_controller_*`.
#[derive(Clone)]
pub(crate) struct Metrics {}

impl Metrics {
    /// Registers the families.
    pub(crate) fn register(_registry: &mut prometheus_client::registry::Registry) -> Self {
        todo!()
    }
}
