//! Keys that wait because the cloud refuses the credentials. One is tried as a probe for all. Pure.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

/// After this time, or the provider's `retry_after`, one key is tried as a probe for all keys that
/// wait for other credentials. The keys take turns, because the cloud may refuse a single key for a
/// missing right that concerns only that key.
pub(crate) const PROBE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Refused<K> {
    keys: BTreeSet<K>,
    /// The key that is tried next as the probe; `Some` while any key waits.
    probe: Option<K>,
}

impl<K> Default for Refused<K> {
    fn default() -> Self {
        Self {
            keys: BTreeSet::new(),
            probe: None,
        }
    }
}

impl<K: Clone + Ord> Refused<K> {
    /// The cloud refused the credentials for this key. Returns the new probe, if the refusal made
    /// one. The caller chooses the time of the probe.
    pub(super) fn add(&mut self, key: &K) -> Option<K> {
        self.keys.insert(key.clone());
        match &self.probe {
            Some(probe) if probe != key => None,
            _ => self.turn(key),
        }
    }

    /// The key no longer waits. That does not show whether the cloud accepts the credentials.
    /// Returns the new probe, if the removal made one.
    pub(super) fn remove(&mut self, key: &K) -> Option<K> {
        if !self.keys.remove(key) || self.probe.as_ref() != Some(key) {
            return None;
        }
        self.turn(key)
    }

    /// The cloud accepted the credentials for this key. If it had refused them before, no key waits
    /// any more; returns the other keys.
    pub(super) fn accept(&mut self, key: &K) -> BTreeSet<K> {
        if !self.keys.remove(key) {
            return BTreeSet::new();
        }
        self.probe = None;
        std::mem::take(&mut self.keys)
    }

    pub(super) fn probe(&self) -> Option<&K> {
        self.probe.as_ref()
    }

    /// Makes the next key after `last` the probe.
    fn turn(&mut self, last: &K) -> Option<K> {
        let later = (Bound::Excluded(last), Bound::Unbounded);
        let next = self.keys.range(later).next().or(self.keys.first());
        self.probe = next.cloned();
        self.probe.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m10_one_key_at_a_time_is_tried_and_they_take_turns() {
        let mut refused = Refused::default();
        assert_eq!(refused.add(&1), Some(1), "the first waits for itself");
        assert_eq!(refused.add(&2), None);
        assert_eq!(refused.add(&3), None);
        assert_eq!(refused.add(&1), Some(2));
        assert_eq!(refused.add(&1), None, "it is not its turn");
        assert_eq!(refused.add(&2), Some(3));
        assert_eq!(refused.add(&3), Some(1));
        assert_eq!(refused.remove(&2), None);
        assert_eq!(refused.remove(&1), Some(3));
        assert!(refused.accept(&1).is_empty(), "it says nothing of the rest");
        assert_eq!(refused.probe(), Some(&3));
        assert_eq!(refused.remove(&3), None);
        assert_eq!(refused.probe(), None);
    }

    #[test]
    fn m10_one_that_is_taken_releases_all() {
        let mut refused = Refused::default();
        for key in [1, 2, 3] {
            refused.add(&key);
        }
        assert_eq!(refused.accept(&2), [1, 3].into());
        assert_eq!(refused.probe(), None);
        assert!(refused.accept(&2).is_empty());
        assert_eq!(refused.add(&7), Some(7));
    }
}
