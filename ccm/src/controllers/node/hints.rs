//! Hints: a Node that waits for its instance is asked about at once, and no more often than in a few seconds, whatever is hinted.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::{Worker, name, plan};
use crate::core::Key;
use crate::provider::Hint;

/// Hints make at most one look at a Node in this time.
const LOOK_GAP: Duration = Duration::from_secs(5);

/// When a hint last had, or will have, a Node looked at.
#[derive(Debug, Default)]
struct Looks(BTreeMap<String, Instant>);

impl Looks {
    /// When this Node is to be looked at for a hint that comes now.
    fn at(&mut self, name: &str, now: Instant) -> Instant {
        let at = match self.0.get(name) {
            Some(planned) if *planned > now => *planned,
            Some(last) => (*last + LOOK_GAP).max(now),
            None => now,
        };
        self.0.insert(name.to_owned(), at);
        at
    }

    fn forget_old(&mut self, now: Instant) {
        self.0.retain(|_, at| *at + LOOK_GAP > now);
    }
}

impl Worker {
    /// Makes Nodes due that a hint is about. A look only reads; that the cloud said slow down holds for it too.
    pub(super) async fn follow_hints(&self) {
        let mut hints = self.context.hints.subscribe();
        let mut looks = Looks::default();
        loop {
            let hint = tokio::select! {
                biased;
                () = self.context.stop.cancelled() => return,
                hint = hints.recv() => hint,
            };
            let hint = match hint {
                Ok(hint) => hint,
                Err(RecvError::Lagged(_)) => Hint::Resync,
                Err(RecvError::Closed) => return self.context.stop.cancelled().await,
            };
            let now = Instant::now();
            looks.forget_old(now);
            for name in self.hinted_at(&hint) {
                let at = looks.at(&name, now);
                // One that a lookup is under way for may be initialised by it, and is not asked about twice then.
                self.queue.hasten(name, at);
            }
        }
    }

    /// The Nodes that wait, and are meant. A new Node has no provider ID yet: where the hint has nothing else, any of them may be.
    fn hinted_at(&self, hint: &Hint) -> Vec<String> {
        let named = match hint {
            Hint::Resync => None,
            Hint::Instance {
                provider_id,
                node_name,
            } => {
                let mut named: Vec<_> = self
                    .context
                    .cluster
                    .nodes
                    .get(&Key::node(node_name))
                    .into_iter()
                    .collect();
                if named.is_empty() && !provider_id.is_empty() {
                    named = self.context.cluster.nodes.found_by(provider_id);
                }
                (!named.is_empty()).then_some(named)
            }
            Hint::LoadBalancer { .. } | Hint::Routes => return Vec::new(),
        };
        let waits = |node: &Node| plan::is_uninitialized(node).then(|| name(node).to_owned());
        if let Some(nodes) = named {
            return nodes.iter().filter_map(|node| waits(node)).collect();
        }
        // Those that wait are known without a look at all Nodes.
        let waiting = self.waiting().keys();
        let nodes = waiting.iter().filter_map(|name| self.node(name));
        nodes.filter_map(|node| waits(&node)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l7_hints_make_one_look_at_a_node_in_five_seconds() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut looks = Looks::default();
        assert_eq!(looks.at("n", at(0)), at(0));
        // However many come: one.
        for now in [0, 1, 4] {
            assert_eq!(looks.at("n", at(now)), at(5));
        }
        assert_eq!(looks.at("other", at(4)), at(4));
        assert_eq!(looks.at("n", at(6)), at(10));
        assert_eq!(looks.at("n", at(60)), at(60));
        looks.forget_old(at(64));
        assert_eq!(looks.0.len(), 1);
        looks.forget_old(at(66));
        assert!(looks.0.is_empty());
    }
}
