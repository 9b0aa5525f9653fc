//! Events that wait to be written: in order, one per key, bounded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::Instant;

use super::EventType;

/// What makes two events the same one, seen twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EventKey {
    pub(super) uid: String,
    pub(super) reason: String,
    pub(super) kind: EventType,
    pub(super) component: &'static str,
    pub(super) object_kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// What is to be written.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) object: ObjectReference,
    pub(super) message: String,
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

pub(super) struct Pending {
    order: VecDeque<Arc<EventKey>>,
    /// Repeats, each not to be written before this.
    held: BTreeSet<(Instant, Arc<EventKey>)>,
    drafts: BTreeMap<Arc<EventKey>, Draft>,
    bound: usize,
    /// One that was popped is being written.
    writing: bool,
}

impl Pending {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            order: VecDeque::new(),
            held: BTreeSet::new(),
            drafts: BTreeMap::new(),
            bound,
            writing: false,
        }
    }

    /// Whether it was kept. The newest text wins.
    pub(super) fn add(&mut self, key: EventKey, draft: Draft) -> bool {
        if let Some(waiting) = self.drafts.get_mut(&key) {
            waiting.count = waiting.count.saturating_add(draft.count);
            waiting.last = draft.last;
            waiting.message = draft.message;
            waiting.object = draft.object;
            return true;
        }
        if self.drafts.len() >= self.bound {
            return false;
        }
        let key = Arc::new(key);
        self.order.push_back(Arc::clone(&key));
        self.drafts.insert(key, draft);
        true
    }

    pub(super) fn pop(&mut self) -> Option<(Arc<EventKey>, Draft)> {
        let key = self.order.pop_front()?;
        let draft = self.drafts.remove(&key)?;
        self.writing = true;
        Some((key, draft))
    }

    /// Puts back what was popped, until then; what was added meanwhile is its newer text.
    pub(super) fn hold(&mut self, key: Arc<EventKey>, draft: Draft, until: Instant) {
        self.writing = false;
        if let Some(newer) = self.drafts.get_mut(&key) {
            newer.count = newer.count.saturating_add(draft.count);
            newer.first = draft.first;
            return;
        }
        self.drafts.insert(Arc::clone(&key), draft);
        self.held.insert((until, key));
    }

    /// When the next of those that are held may be written.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.held.first().map(|(until, _)| *until)
    }

    /// The next of those that are held.
    pub(super) fn pop_held(&mut self) -> Option<(Arc<EventKey>, Draft)> {
        let (_, key) = self.held.pop_first()?;
        let draft = self.drafts.remove(&key)?;
        self.writing = true;
        Some((key, draft))
    }

    /// The one that was popped is written, or given up. Whether none is left.
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
            let separator = if key.namespace.is_empty() { "" } else { "/" };
            let times = match draft.count {
                1 => String::new(),
                count => format!(" (x{count})"),
            };
            Some(format!(
                "{} {} {}{separator}{}: {}{times}",
                key.kind.as_str(),
                key.reason,
                key.namespace,
                key.name,
                draft.message
            ))
        };
        self.order.iter().filter_map(show).collect()
    }
}
