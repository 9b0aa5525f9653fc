//! The Nodes that can be targets, and the sets that are built from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;

use super::settle::Settle;
use super::{Candidate, Candidates, NodeSelector, Sets, TargetSet};
use crate::planted::planted;

/// All targets of one provider. Changes of Nodes settle before load balancers are updated (▲S12).
#[derive(Debug, Default)]
pub(in crate::controllers::service) struct Pool {
    candidates: Candidates,
    pub(in crate::controllers::service) sets: Sets,
    settle: Settle,
    /// Current sets while changes of Nodes settle, for calls that are made meanwhile.
    unsettled: BTreeMap<NodeSelector, Arc<TargetSet>>,
}

impl Pool {
    /// Forgets all Nodes, and sets the most targets of a set; zero: no limit.
    pub(in crate::controllers::service) fn clear(&mut self, most: usize) {
        self.candidates.clear(most);
    }

    /// As [`Candidates::observe`].
    pub(in crate::controllers::service) fn observe(
        &mut self,
        name: &str,
        now: Option<Candidate>,
    ) -> bool {
        self.candidates.observe(name, now)
    }

    /// A Node changed in a way that can change a set.
    pub(in crate::controllers::service) fn changed(&mut self, now: Instant) {
        self.settle.note(now);
    }

    /// When the changes settle. `None`: there are none.
    pub(in crate::controllers::service) fn settled_at(&self) -> Option<Instant> {
        self.settle.due()
    }

    /// Builds the used sets again. No change waits any longer. Returns the sets that leave out
    /// matching Nodes.
    pub(in crate::controllers::service) fn settle(
        &mut self,
        used: &BTreeSet<&NodeSelector>,
    ) -> Vec<(NodeSelector, Arc<TargetSet>)> {
        self.settle.clear();
        self.unsettled.clear();
        self.sets.retain(|selector| used.contains(selector));
        let mut cut = Vec::new();
        for selector in self.sets.selectors() {
            self.select(&selector);
            let set = self.sets.get(&selector).filter(|set| set.left_out > 0);
            cut.extend(set.cloned().map(|set| (selector, set)));
        }
        cut
    }

    fn select(&mut self, selector: &NodeSelector) {
        let set = self.candidates.select(selector);
        self.sets.offer(selector, set);
    }

    /// The current targets for a call that is made anyway, or the last settled ones while the
    /// current set is empty and not confirmed. `None`: not known yet. The call does not wait for
    /// changes to settle: a Service that is created while its Nodes join must not be ensured
    /// without them.
    pub(in crate::controllers::service) fn targets_now(
        &mut self,
        selector: &NodeSelector,
    ) -> Option<Arc<TargetSet>> {
        let known = self.sets.get(selector);
        let Some(settled) = known.filter(|set| {
            let waits = self.settle.due().is_some();
            waits || self.candidates.is_current(set)
        }) else {
            // There is no set yet, or its targets have newer views.
            self.select(selector);
            return self.sets.get(selector).cloned();
        };
        if self.candidates.is_current(settled) {
            return Some(Arc::clone(settled));
        }
        let known = self.unsettled.get(selector);
        let known = known.filter(|set| self.candidates.is_current(set));
        let now = known.map_or_else(|| Arc::new(self.candidates.select(selector)), Arc::clone);
        self.unsettled.insert(selector.clone(), Arc::clone(&now));
        if planted!(SettlingTargetsCountAsNew) {
            return Some(Arc::new(TargetSet {
                nodes: settled.nodes.clone(),
                fingerprint: now.fingerprint,
                version: now.version,
                left_out: now.left_out,
            }));
        }
        // The API server must first confirm that the set is empty.
        Some(if now.is_empty() {
            Arc::clone(settled)
        } else {
            now
        })
    }
}
