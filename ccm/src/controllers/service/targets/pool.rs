//! The Nodes that are targets, and the sets that are made of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;

use super::settle::Settle;
use super::{Candidate, Candidates, NodeSelector, Sets, TargetSet};
use crate::planted::planted;

/// All targets of one provider. Changes of Nodes wait to settle before load balancers hear of them (▲S12).
#[derive(Debug, Default)]
pub(in crate::controllers::service) struct Pool {
    candidates: Candidates,
    pub(in crate::controllers::service) sets: Sets,
    settle: Settle,
    /// Sets as they are while changes of Nodes wait to settle, for the calls that are made meanwhile.
    unsettled: BTreeMap<NodeSelector, Arc<TargetSet>>,
}

impl Pool {
    /// Forgets all Nodes. From now on a set has at most so many; zero: all.
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

    /// A Node changed in what can change a set.
    pub(in crate::controllers::service) fn changed(&mut self, now: Instant) {
        self.settle.note(now);
    }

    /// When the changes that wait have settled; `None`: none waits.
    pub(in crate::controllers::service) fn settled_at(&self) -> Option<Instant> {
        self.settle.due()
    }

    /// The changes have settled: makes the sets that are used again. Returns those that have fewer Nodes than match.
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

    /// The targets for a call that is made now anyway; `None` while they are not known. They are sent as they are now, also while changes wait to settle: a Service
    /// that is made in the moment in which its Nodes join is not ensured without them.
    pub(in crate::controllers::service) fn targets_now(
        &mut self,
        selector: &NodeSelector,
    ) -> Option<Arc<TargetSet>> {
        let known = self.sets.get(selector);
        let Some(settled) = known.filter(|set| {
            let waits = self.settle.due().is_some();
            waits || self.candidates.is_current(set)
        }) else {
            // None yet, or the same targets, which are sent otherwise now.
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
        // That there are none any more is not believed before the API server was asked.
        Some(if now.is_empty() {
            Arc::clone(settled)
        } else {
            now
        })
    }
}
