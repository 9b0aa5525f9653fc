//! The Nodes that can be targets, and the sets that are built from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Candidates, NodeSelector, Sets, TargetSet};
use crate::planted::planted;

/// Changes of Nodes settle after this time without another one.
const QUIET: Duration = Duration::from_secs(1);
/// The longest delay of a change.
const LONGEST: Duration = Duration::from_secs(5);

/// All targets of one provider. Changes of Nodes settle before load balancers are updated (▲S12).
#[derive(Debug, Default)]
pub(in crate::controllers::service) struct Pool {
    pub(in crate::controllers::service) candidates: Candidates,
    pub(in crate::controllers::service) sets: Sets,
    /// When the first and the last change came that have not settled yet.
    waiting: Option<(Instant, Instant)>,
    /// Current sets while changes of Nodes settle, for calls that are made meanwhile.
    unsettled: BTreeMap<NodeSelector, Arc<TargetSet>>,
}

impl Pool {
    /// A Node changed in a way that can change a set.
    pub(in crate::controllers::service) fn changed(&mut self, now: Instant) {
        let first = self.waiting.map_or(now, |(first, _)| first);
        self.waiting = Some((first, now));
    }

    /// When the changes settle. `None`: there are none.
    pub(in crate::controllers::service) fn settled_at(&self) -> Option<Instant> {
        self.waiting
            .map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }

    /// Builds the used sets again. After that, no change waits. Returns the sets that leave out
    /// matching Nodes.
    pub(in crate::controllers::service) fn settle(
        &mut self,
        used: &BTreeSet<&NodeSelector>,
    ) -> Vec<(NodeSelector, Arc<TargetSet>)> {
        self.waiting = None;
        self.unsettled.clear();
        self.sets.retain(|selector| used.contains(selector));
        let mut cut = Vec::new();
        for &selector in used {
            self.select(selector);
            let set = self.sets.get(selector).filter(|set| set.left_out > 0);
            cut.extend(set.map(|set| (selector.clone(), Arc::clone(set))));
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
        let Some(settled) =
            known.filter(|set| self.waiting.is_some() || self.candidates.is_current(set))
        else {
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

#[cfg(test)]
mod tests {
    use cloud_provider_api::v1alpha1 as api;
    use k8s_openapi::api::core::v1::Node;

    use super::super::Candidate;
    use super::*;

    /// When sets are built if Nodes change at these milliseconds.
    fn rounds(changes: impl IntoIterator<Item = u64>) -> Vec<u128> {
        let start = Instant::now();
        let mut pool = Pool::default();
        let mut rounds = Vec::new();
        for at in changes.into_iter().map(Duration::from_millis) {
            if let Some(due) = pool.settled_at().filter(|due| *due <= start + at) {
                rounds.push((due - start).as_millis());
                pool.settle(&BTreeSet::new());
            }
            pool.changed(start + at);
        }
        rounds.extend(pool.settled_at().map(|due| (due - start).as_millis()));
        rounds
    }

    #[test]
    fn s12_changes_settle_for_a_second_and_at_most_five() {
        assert_eq!(rounds([]), Vec::<u128>::new());
        assert_eq!(rounds([0]), [1000]);
        assert_eq!(rounds([0, 900, 1800]), [2800]);
        assert_eq!(rounds([0, 2000]), [1000, 3000]);
        // Fifty joins within five seconds are one round: 200 updates for 200 load balancers.
        assert_eq!(rounds((0..50).map(|i| i * 100)), [5000]);
        // Twenty joins half a second apart are at most three rounds: 600 updates for 200 load
        // balancers.
        assert!(rounds((0..20).map(|i| i * 500)).len() <= 3);
        // Endless changes still lead to rounds.
        assert_eq!(rounds((0..200).map(|i| i * 100)).len(), 4);
    }

    fn join(pool: &mut Pool, name: &str) {
        let view = api::NodeView {
            name: name.to_owned(),
            ..api::NodeView::default()
        };
        let node = Arc::new(Node::default());
        let candidate = Candidate::new(node, view.clone(), &view);
        pool.candidates.observe(name, Some(candidate));
    }

    #[test]
    fn s17_each_round_tells_which_sets_are_cut() {
        let all = NodeSelector::default();
        for (most, cut) in [(None, 0), (Some(0), 0), (Some(1), 1), (Some(2), 0)] {
            let mut pool = Pool::default();
            pool.candidates.clear(most);
            for name in ["a", "b"] {
                join(&mut pool, name);
            }
            let told = pool.settle(&[&all].into());
            assert_eq!(told.len(), cut, "{most:?}");
            assert!(told.iter().all(|(_, set)| set.left_out == 1));
        }
    }

    #[test]
    fn s12_a_call_sees_changes_that_settle_and_the_other_services_wait() {
        let all = NodeSelector::default();
        let mut pool = Pool::default();
        join(&mut pool, "a");
        pool.settle(&[&all].into());
        join(&mut pool, "b");
        pool.changed(Instant::now());
        let targets = |set: &TargetSet| set.nodes.len();
        assert_eq!(pool.targets_now(&all).as_deref().map(targets), Some(2));
        assert_eq!(pool.sets.get(&all).map(|set| targets(set)), Some(1));
        pool.settle(&[&all].into());
        assert_eq!(pool.sets.get(&all).map(|set| targets(set)), Some(2));
    }
}
