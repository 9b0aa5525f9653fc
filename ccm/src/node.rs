//! The node controller (B-N1 to ▲N14): initialises Nodes and keeps their addresses current.

mod addresses;
mod labels;
mod plan;

/// The loop of one provider. Returns after `context.stop`, when what is in flight is over.
pub(crate) async fn run(_context: crate::run::LoopContext, _metrics: Metrics) {
    todo!()
}

/// `node_controller_*`.
#[derive(Clone)]
pub(crate) struct Metrics {}

impl Metrics {
    /// Registers the families.
    pub(crate) fn register(_registry: &mut prometheus_client::registry::Registry) -> Self {
        todo!()
    }
}
