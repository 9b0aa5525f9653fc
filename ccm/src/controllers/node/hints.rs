//! The Nodes that a hint is about.

use k8s_openapi::api::core::v1::Node;

use super::{Worker, name, plan};
use crate::core::Key;
use crate::provider::Hint;

impl Worker {
    /// The waiting Nodes that the hint is about. A new Node has no provider ID yet. So a hint with
    /// only an ID may be about any of them.
    pub(super) fn hinted_at(&self, hint: &Hint) -> Vec<String> {
        let named = match hint {
            Hint::Resync => None,
            Hint::Instance {
                provider_id,
                node_name,
            } => {
                let nodes = &self.driver.context.cluster.nodes;
                let mut named: Vec<_> = nodes.get(&Key::node(node_name)).into_iter().collect();
                if named.is_empty() && !provider_id.is_empty() {
                    named = nodes.found_by(provider_id);
                }
                (!named.is_empty()).then_some(named)
            }
            Hint::LoadBalancer { .. } | Hint::Routes => return Vec::new(),
        };
        let waits = |node: &Node| plan::is_uninitialized(node).then(|| name(node).to_owned());
        if let Some(nodes) = named {
            return nodes.iter().filter_map(|node| waits(node)).collect();
        }
        // The waiting Nodes are known, so this does not scan all Nodes.
        let waiting = self.waiting().keys();
        let nodes = waiting.iter().filter_map(|name| self.node(name));
        nodes.filter_map(|node| waits(&node)).collect()
    }
}
