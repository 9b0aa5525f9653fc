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

#[derive(Default)]
pub(super) struct Series {
    written: BTreeMap<Arc<EventKey>, (u64, Instant, Written)>,
    /// By the order of the last write.
    order: BTreeMap<u64, Arc<EventKey>>,
    turn: u64,
}

impl Series {
    /// The earliest time for a repeat of that Event. `None`: it would create a new Event.
    pub(super) fn not_before(&self, key: &EventKey, now: Instant) -> Option<Instant> {
        let (_, at, written) = self.written.get(key)?;
        (now.saturating_duration_since(*at) < WINDOW).then(|| *at + written.gap())
    }

    /// Removes and returns the Event that a repeat patches.
    pub(super) fn take(&mut self, key: &EventKey, now: Instant) -> Option<Written> {
        let (turn, at, written) = self.written.remove(key)?;
        self.order.remove(&turn);
        (now.saturating_duration_since(at) < WINDOW).then_some(written)
    }

    /// Remembers an Event that was written.
    pub(super) fn put(&mut self, key: Arc<EventKey>, written: Written, now: Instant) {
        self.turn += 1;
        self.order.insert(self.turn, Arc::clone(&key));
        if let Some((before, ..)) = self.written.insert(key, (self.turn, now, written)) {
            self.order.remove(&before);
        }
        while self.written.len() > BOUND {
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            self.written.remove(&oldest);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.written.len(), self.order.len());
        self.written.len()
    }
}
