//! The Events that were written recently, so that the writer patches the same Event for a repeat.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::pending::EventKey;

/// The most Events to remember; the least recently written goes first.
const BOUND: usize = 10_000;
/// How long after its last write an Event is patched. After that a repeat creates a new one. By
/// default the API server keeps events for an hour.
const WINDOW: Duration = Duration::from_mins(55);

/// An Event that the API server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// `metadata.name`.
    pub(super) name: String,
    /// `count`.
    pub(super) count: i32,
    /// How often it was written.
    pub(super) writes: u32,
}

impl Written {
    /// How long the next repeat waits: not at all for the first few, then longer and longer. After
    /// 25 writes there is one repeat in five minutes, as in client-go.
    fn gap(&self) -> Duration {
        Duration::from_secs(match self.writes {
            0..=3 => 0,
            4..=8 => 10,
            9..=12 => 30,
            13..=24 => 60,
            _ => 300,
        })
    }
}

/// Each Event, with the time of its last write.
#[derive(Default)]
pub(super) struct Series(BTreeMap<Arc<EventKey>, (Instant, Written)>);

impl Series {
    /// The earliest time for a repeat of that Event. `None`: it would create a new Event.
    pub(super) fn not_before(&self, key: &EventKey, now: Instant) -> Option<Instant> {
        let (at, written) = self.0.get(key)?;
        (now.saturating_duration_since(*at) < WINDOW).then(|| *at + written.gap())
    }

    /// Removes and returns the Event that a repeat patches.
    pub(super) fn take(&mut self, key: &EventKey, now: Instant) -> Option<Written> {
        let (at, written) = self.0.remove(key)?;
        (now.saturating_duration_since(at) < WINDOW).then_some(written)
    }

    /// Remembers an Event that was written.
    pub(super) fn put(&mut self, key: Arc<EventKey>, written: Written, now: Instant) {
        self.0.insert(key, (now, written));
        if self.0.len() > BOUND {
            let oldest = self.0.iter().min_by_key(|(_, (at, _))| *at);
            if let Some(oldest) = oldest.map(|(key, _)| Arc::clone(key)) {
                self.0.remove(&oldest);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
