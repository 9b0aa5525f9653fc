//! Limits on event writes. A provider's answers cause events, and the provider may invent their
//! reasons. The limits keep its events from filling etcd.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::pending::{EventKey, Object};

/// For each object, as client-go's spam filter: a burst, then one in each pause.
const OF_OBJECT: Rate = Rate {
    burst: 25,
    pause: Duration::from_mins(5),
};
/// For all objects together: repeats, warnings, and a provider's events.
const OF_ALL: Rate = Rate {
    burst: 1_000,
    pause: Duration::from_millis(600),
};
/// From this many objects on, those whose whole burst is available again are forgotten.
const OBJECTS: usize = 10_000;

struct Rate {
    burst: u32,
    pause: Duration,
}

/// The spent part of a rate.
#[derive(Clone, Copy)]
struct Spent {
    /// When the whole burst is available again.
    full_at: Instant,
}

impl Spent {
    /// When one more may be written.
    fn free_at(self, rate: &Rate, now: Instant) -> Instant {
        let debt = self.full_at.saturating_duration_since(now);
        let wait = (debt + rate.pause).saturating_sub(rate.pause * rate.burst);
        now + wait
    }

    fn spend(&mut self, rate: &Rate, now: Instant) {
        self.full_at = self.full_at.max(now) + rate.pause;
    }
}

pub(super) struct Limits {
    objects: BTreeMap<Arc<Object>, Spent>,
    all: Spent,
}

impl Limits {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            objects: BTreeMap::new(),
            all: Spent { full_at: now },
        }
    }

    /// When one more event that counts for all objects together may be written.
    pub(super) fn all_free_at(&self, now: Instant) -> Instant {
        self.all.free_at(&OF_ALL, now)
    }

    /// When one more event may be written on this object.
    pub(super) fn object_free_at(&self, key: &EventKey, now: Instant) -> Instant {
        let spent = self.objects.get(&key.object);
        spent.map_or(now, |spent| spent.free_at(&OF_OBJECT, now))
    }

    /// Counts an event that is written now. `repeat`: the API server already has this Event.
    pub(super) fn spend(&mut self, key: &EventKey, repeat: bool, now: Instant) {
        if self.objects.len() >= OBJECTS {
            self.objects.retain(|_, spent| spent.full_at > now);
        }
        let spent = self.objects.entry(Arc::clone(&key.object));
        let spent = spent.or_insert(Spent { full_at: now });
        spent.spend(&OF_OBJECT, now);
        if repeat || key.is_limited() {
            self.all.spend(&OF_ALL, now);
        }
    }
}
