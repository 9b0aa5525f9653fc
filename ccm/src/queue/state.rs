//! The queue without a clock: the caller passes `now`, and nothing waits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use super::metrics::Load;
use super::{PROBE, Refused, Requeue};
use crate::core::Backoff;

/// A key that is waiting or in work. Other keys have no entry.
#[derive(Debug)]
struct Entry {
    place: Place,
    /// Failures in a row.
    failures: u32,
    /// The last work ended in `RetryTransport`: a new session ends the backoff (▲M9).
    transport: bool,
}

#[derive(Debug)]
enum Place {
    /// In `due` with this time.
    Waits(Instant),
    /// Handed out.
    Works {
        since: Instant,
        /// Added during the work: due at this time.
        again: Option<Instant>,
        /// Hastened during the work: due at this time at the latest, unless the work ends in
        /// `Forget`.
        hastened: Option<Instant>,
        /// Removed during the work: the work's outcome is ignored.
        removed: bool,
    },
}

#[derive(Debug)]
pub(super) struct State<K> {
    entries: BTreeMap<K, Entry>,
    /// The waiting keys, by time, then by key.
    due: BTreeSet<(Instant, K)>,
    /// The keys that wait for other credentials.
    refused: Refused<K>,
    backoff: Backoff,
    random: ChaCha8Rng,
}

impl<K: Clone + Ord> State<K> {
    pub(super) fn new(backoff: Backoff, seed: u64) -> Self {
        Self {
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
            refused: Refused::default(),
            backoff,
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Returns whether the key begins to wait: it had no entry, or it is in work and this is the
    /// first `add_at` during that work.
    pub(super) fn add_at(&mut self, key: K, at: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(&key) else {
            self.due.insert((at, key.clone()));
            let entry = Entry {
                place: Place::Waits(at),
                failures: 0,
                transport: false,
            };
            self.entries.insert(key, entry);
            return true;
        };
        match &mut entry.place {
            Place::Waits(due) if at < *due => {
                let mut item = (*due, key);
                self.due.remove(&item);
                *due = at;
                item.0 = at;
                self.due.insert(item);
                false
            }
            Place::Waits(_) => false,
            Place::Works { again, .. } => {
                let first = again.is_none();
                *again = Some(earlier(*again, at));
                first
            }
        }
    }

    /// Returns whether the key begins to wait.
    pub(super) fn hasten(&mut self, key: K, at: Instant) -> bool {
        if let Some(entry) = self.entries.get_mut(&key)
            && let Place::Works { hastened, .. } = &mut entry.place
        {
            *hastened = Some(earlier(*hastened, at));
            return false;
        }
        self.add_at(key, at)
    }

    /// The earliest time at which a batch of at most `max` keys can leave, unless the state
    /// changes. `None`: not before a change.
    pub(super) fn next_wake(&self, max: usize, linger: Duration) -> Option<Instant> {
        let (first, _) = self.due.first()?;
        let lingered = *first + linger;
        // The batch is full when its last key is due.
        match self.due.iter().nth(max - 1) {
            Some((last, _)) => Some(lingered.min(*last)),
            None => Some(lingered),
        }
    }

    /// Hands out at most `max` due keys, with the times at which they became due.
    pub(super) fn take_due(&mut self, max: usize, now: Instant) -> Vec<(K, Instant)> {
        let mut taken = Vec::new();
        while taken.len() < max && self.due.first().is_some_and(|(at, _)| *at <= now) {
            let Some((at, key)) = self.due.pop_first() else {
                break;
            };
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.place = Place::Works {
                    since: now,
                    again: None,
                    hastened: None,
                    removed: false,
                };
                taken.push((key, at));
            }
        }
        taken
    }

    /// Returns when the work began; `None` for a key that was not handed out.
    pub(super) fn done(&mut self, key: &K, outcome: Requeue, now: Instant) -> Option<Instant> {
        let entry = self.entries.get_mut(key)?;
        let Place::Works {
            since,
            again,
            hastened,
            removed,
        } = entry.place
        else {
            return None;
        };
        let mut transport = false;
        let later = if removed {
            None
        } else {
            match outcome {
                Requeue::Forget => {
                    entry.failures = 0;
                    None
                }
                Requeue::Idle => {
                    entry.failures = 0;
                    hastened
                }
                Requeue::At(at) | Requeue::Refused { at, .. } => Some(earlier(hastened, at)),
                Requeue::Retry | Requeue::RetryTransport => {
                    transport = outcome == Requeue::RetryTransport;
                    let jitter = self.random.random_range(0.0..=1.0);
                    let delay = self.backoff.jittered(entry.failures, jitter);
                    entry.failures = entry.failures.saturating_add(1);
                    Some(earlier(hastened, now + delay))
                }
            }
        };
        entry.transport = transport;
        match again.into_iter().chain(later).min() {
            Some(at) => {
                entry.place = Place::Waits(at);
                self.due.insert((at, key.clone()));
            }
            None => {
                self.entries.remove(key);
            }
        }
        let (next, probe) = match outcome {
            Requeue::Refused { probe, .. } if !removed => (self.refused.add(key), probe),
            _ => (self.refused.remove(key), now + PROBE),
        };
        if let Some(next) = next {
            self.hasten(next, probe);
        }
        Some(since)
    }

    /// Returns whether other keys became due.
    pub(super) fn accepted(&mut self, key: &K, now: Instant) -> bool {
        let released = self.refused.accept(key);
        let any = !released.is_empty();
        for key in released {
            self.hasten(key, now);
        }
        any
    }

    pub(super) fn failures(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    pub(super) fn due(&self, key: &K) -> Option<Instant> {
        match self.entries.get(key)?.place {
            Place::Waits(at) => Some(at),
            Place::Works { again, .. } => again,
        }
    }

    pub(super) fn working_since(&self, key: &K) -> Option<Instant> {
        match self.entries.get(key)?.place {
            Place::Waits(_) => None,
            Place::Works { since, .. } => Some(since),
        }
    }

    /// O(n), where n includes keys that are due later.
    pub(super) fn busy(&self, now: Instant) -> Vec<K> {
        let busy = self.entries.iter().filter(|(_, entry)| match entry.place {
            Place::Waits(at) => at <= now,
            Place::Works { .. } => true,
        });
        busy.map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn holds(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    pub(super) fn remove(&mut self, key: &K, now: Instant) {
        if let Some(next) = self.refused.remove(key) {
            self.hasten(next, now + PROBE);
        }
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.failures = 0;
        entry.transport = false;
        match &mut entry.place {
            Place::Waits(at) => {
                let at = *at;
                self.due.remove(&(at, key.clone()));
                self.entries.remove(key);
            }
            Place::Works {
                again,
                hastened,
                removed,
                ..
            } => {
                *again = None;
                *hastened = None;
                *removed = true;
            }
        }
    }

    pub(super) fn reset_transport_backoffs(&mut self, now: Instant) {
        if let Some(probe) = self.refused.probe().cloned() {
            self.hasten(probe, now);
        }
        for (key, entry) in &mut self.entries {
            if !std::mem::take(&mut entry.transport) {
                continue;
            }
            entry.failures = 0;
            if let Place::Waits(at) = &mut entry.place
                && now < *at
            {
                self.due.remove(&(*at, key.clone()));
                *at = now;
                self.due.insert((now, key.clone()));
            }
        }
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.due.len()
    }

    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.entries.len() - self.due.len()
    }

    /// O(n); called once a scrape.
    pub(super) fn load(&self, now: Instant) -> Load {
        let mut load = Load {
            depth: self.due.iter().take_while(|(at, _)| *at <= now).count(),
            ..Load::default()
        };
        for entry in self.entries.values() {
            if let Place::Works { since, .. } = entry.place {
                let worked = now.saturating_duration_since(since);
                load.unfinished += worked;
                load.longest = load.longest.max(worked);
            }
        }
        load
    }
}

fn earlier(known: Option<Instant>, at: Instant) -> Instant {
    known.map_or(at, |known| known.min(at))
}
