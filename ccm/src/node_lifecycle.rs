//! The node lifecycle controller (B-L1 to ▲L7): deletes Nodes whose instance is gone, taints those that are shut down.

mod brake;
mod plan;

/// The loop of one provider. Returns after `context.stop`, when what is in flight is over.
pub(crate) async fn run(_context: crate::run::LoopContext, _metrics: Metrics) {
    todo!()
}

/// Lifecycle metrics.
#[derive(Clone)]
pub(crate) struct Metrics {}

impl Metrics {
    /// Registers the families.
    pub(crate) fn register(_registry: &mut prometheus_client::registry::Registry) -> Self {
        todo!()
    }
}
