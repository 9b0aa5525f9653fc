//! Which events were written lately, so that a repeat is a patch of the same Event.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::pending::EventKey;

/// Events remembered at most; the one written longest ago goes first.
const BOUND: usize = 10_000;
/// For so long after its last write an Event is written on; then a new one is begun. The API server keeps events for an hour.
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
    /// For so long the next repeat waits: the first few do not, and what goes on and on is written ever less often. In the end as client-go does it: after 25 writes once in five
    /// minutes.
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

/// The Events written lately.
#[derive(Default)]
pub(super) struct Series {
    written: BTreeMap<Arc<EventKey>, (u64, Instant, Written)>,
    /// By the order of the last write.
    order: BTreeMap<u64, Arc<EventKey>>,
    turn: u64,
}

impl Series {
    /// Not before this a repeat of that Event may be written; `None`: it would be the first.
    pub(super) fn not_before(&self, key: &EventKey, now: Instant) -> Option<Instant> {
        let (_, at, written) = self.written.get(key)?;
        (now.saturating_duration_since(*at) < WINDOW).then(|| *at + written.gap())
    }

    /// Takes the Event out that a repeat is to be written to.
    pub(super) fn take(&mut self, key: &EventKey, now: Instant) -> Option<Written> {
        let (turn, at, written) = self.written.remove(key)?;
        self.order.remove(&turn);
        (now.saturating_duration_since(at) < WINDOW).then_some(written)
    }

    /// Remembers what was written.
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
