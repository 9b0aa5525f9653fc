//! `node_lifecycle_controller_*`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::core::{ProviderLabel, lock, registered, set_gauge};

/// The lifecycle metrics, and the brake's state for the status page.
#[derive(Clone)]
pub(crate) struct Metrics {
    deleted: Family<ProviderLabel, Counter>,
    held: Family<ProviderLabel, Gauge>,
    void: Family<ProviderLabel, Counter>,
    holding: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Metrics {
    /// Registers the families.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            deleted: registered(
                registry,
                "node_lifecycle_controller_nodes_deleted",
                "Nodes that were deleted because their instance does not exist any more",
                Family::default(),
            ),
            held: registered(
                registry,
                "node_lifecycle_controller_deletions_held",
                "Nodes that the deletion brake holds back",
                Family::default(),
            ),
            void: registered(
                registry,
                "node_lifecycle_controller_void_passes",
                "Passes whose lookups all failed (missed deadlines alone do not count), or whose results were discarded as not trustworthy",
                Family::default(),
            ),
            holding: Arc::default(),
        }
    }

    /// One line for the status page for each provider whose brake holds back Nodes.
    pub(crate) fn status_lines(&self) -> Vec<String> {
        let holding = lock(&self.holding);
        let line = |(provider, held): (&String, &usize)| {
            format!(
                "{provider}: the deletion brake holds back {held} Nodes whose instances are reported gone"
            )
        };
        holding.iter().map(line).collect()
    }

    /// Touches each family once, for tests of the exposition.
    #[cfg(test)]
    pub(crate) fn touch(&self) {
        self.deleted("mock");
        self.void("mock");
        self.held("mock", 1);
    }

    pub(super) fn deleted(&self, provider: &str) {
        self.deleted.get_or_create(&provider.into()).inc();
    }

    #[cfg(test)]
    pub(super) fn voids(&self, provider: &str) -> u64 {
        self.void.get_or_create(&provider.into()).get()
    }

    pub(super) fn void(&self, provider: &str) {
        self.void.get_or_create(&provider.into()).inc();
    }

    pub(super) fn held(&self, provider: &str, nodes: usize) {
        set_gauge(&self.held, provider, nodes);
        let mut holding = lock(&self.holding);
        if nodes == 0 {
            holding.remove(provider);
        } else {
            holding.insert(provider.to_owned(), nodes);
        }
    }
}
