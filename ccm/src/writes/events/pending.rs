//! Events that wait for the writer: in order, one for each key, bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::Instant;

use super::EventType;
use crate::writes::reason;

/// The object of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Object {
    pub(super) uid: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Two events with the same key are repeats of one event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EventKey {
    pub(super) object: Arc<Object>,
    pub(super) reason: String,
    pub(super) kind: EventType,
    pub(super) component: &'static str,
}

impl EventKey {
    /// Whether its first write counts against the limit for all objects, as repeats do.
    /// The first write of a `Normal` event of the ccm itself does not count: the number of objects
    /// bounds these.
    pub(super) fn is_limited(&self) -> bool {
        self.kind == EventType::Warning || self.is_foreign()
    }

    /// Whether it is a provider's event, by its reason.
    fn is_foreign(&self) -> bool {
        self.reason == reason::PROVIDER_EVENT || !reason::is_ours(&self.reason)
    }
}

/// An event to write.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) object: ObjectReference,
    pub(super) message: String,
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

pub(super) struct Pending {
    /// The drafts to write, by (limited, turn).
    order: BTreeMap<(bool, u64), Arc<EventKey>>,
    turn: u64,
    /// Repeats, each with the time until which it is held back.
    held: BTreeSet<(Instant, Arc<EventKey>)>,
    drafts: BTreeMap<Arc<EventKey>, Draft>,
    bound: usize,
    /// How many of the drafts are a provider's events.
    foreign: usize,
    /// Whether a popped draft is being written.
    writing: bool,
}

impl Pending {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            order: BTreeMap::new(),
            turn: 0,
            held: BTreeSet::new(),
            drafts: BTreeMap::new(),
            bound,
            foreign: 0,
            writing: false,
        }
    }

    /// Returns whether it was kept. The newest text wins.
    pub(super) fn add(&mut self, key: EventKey, draft: Draft) -> bool {
        if let Some(waiting) = self.drafts.get_mut(&key) {
            waiting.count = waiting.count.saturating_add(draft.count);
            waiting.last = draft.last;
            waiting.message = draft.message;
            waiting.object = draft.object;
            return true;
        }
        // A provider's events take at most a quarter of the space, so that space is left for the
        // ccm's.
        let crowded = key.is_foreign() && self.foreign >= self.bound / 4;
        if crowded || self.drafts.len() >= self.bound {
            return false;
        }
        let key = Arc::new(key);
        self.turn += 1;
        self.order
            .insert((key.is_limited(), self.turn), Arc::clone(&key));
        self.insert(key, draft);
        true
    }

    fn insert(&mut self, key: Arc<EventKey>, draft: Draft) {
        self.foreign += usize::from(key.is_foreign());
        self.drafts.insert(key, draft);
    }

    fn remove(&mut self, key: Arc<EventKey>) -> Option<(Arc<EventKey>, Draft)> {
        let draft = self.drafts.remove(&key)?;
        self.foreign -= usize::from(key.is_foreign());
        self.writing = true;
        Some((key, draft))
    }

    /// The next limited or unlimited draft.
    pub(super) fn pop(&mut self, limited: bool) -> Option<(Arc<EventKey>, Draft)> {
        let place = *self
            .order
            .range((limited, 0)..=(limited, u64::MAX))
            .next()?
            .0;
        let key = self.order.remove(&place)?;
        self.remove(key)
    }

    /// Whether a limited draft that was not held is waiting.
    pub(super) fn has_limited(&self) -> bool {
        self.order.range((true, 0)..).next().is_some()
    }

    /// Puts a popped draft back until this time. A draft that was added meanwhile has the newer
    /// text.
    pub(super) fn hold(&mut self, key: Arc<EventKey>, draft: Draft, until: Instant) {
        self.writing = false;
        if let Some(newer) = self.drafts.get_mut(&key) {
            newer.count = newer.count.saturating_add(draft.count);
            newer.first = draft.first;
            return;
        }
        self.insert(Arc::clone(&key), draft);
        self.held.insert((until, key));
    }

    /// When the next held draft may be written.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.held.first().map(|(until, _)| *until)
    }

    /// The next held draft.
    pub(super) fn pop_held(&mut self) -> Option<(Arc<EventKey>, Draft)> {
        let (_, key) = self.held.pop_first()?;
        self.remove(key)
    }

    /// The popped draft is written or dropped. Returns whether no draft is left.
    pub(super) fn written(&mut self) -> bool {
        self.writing = false;
        self.is_idle()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.drafts.is_empty() && !self.writing
    }

    pub(super) fn len(&self) -> usize {
        self.drafts.len()
    }

    #[cfg(test)]
    pub(super) fn shown(&self) -> Vec<String> {
        let show = |key: &Arc<EventKey>| {
            let draft = self.drafts.get(key)?;
            let object = &key.object;
            let separator = if object.namespace.is_empty() { "" } else { "/" };
            let times = match draft.count {
                1 => String::new(),
                count => format!(" (x{count})"),
            };
            Some(format!(
                "{} {} {}{separator}{}: {}{times}",
                key.kind.as_str(),
                key.reason,
                object.namespace,
                object.name,
                draft.message
            ))
        };
        let mut all: Vec<_> = self.order.iter().collect();
        all.sort_by_key(|((_, turn), _)| *turn);
        all.into_iter().filter_map(|(_, key)| show(key)).collect()
    }
}
