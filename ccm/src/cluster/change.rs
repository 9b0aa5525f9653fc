//! The difference between two views of an object.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::Store;
use crate::core::{Key, lock};

/// An object as the reader last saw it, and as it is now. The two may have different UIDs (deleted
/// and created again under the same name). At least one of them is `Some`.
#[derive(Debug)]
pub(crate) struct Change<K> {
    /// The object as the reader last saw it.
    pub(crate) old: Option<Arc<K>>,
    /// The object now; `None`: it was deleted.
    pub(crate) new: Option<Arc<K>>,
}

#[cfg(test)]
impl<K> Change<K> {
    /// The current object or, if it was deleted, the last one that the reader saw.
    pub(crate) fn latest(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// One reader's unread changes, at most one for each key.
pub(crate) struct Changes<K> {
    store: Store<K>,
    inbox: Arc<Inbox<K>>,
}

/// The unread changes of a reader: by key, the object as the reader last saw it. The current object
/// is looked up at reading.
pub(super) struct Inbox<K> {
    unread: Mutex<BTreeMap<Key, Option<Arc<K>>>>,
    changed: Notify,
}

impl<K> Default for Inbox<K> {
    fn default() -> Self {
        Self {
            unread: Mutex::default(),
            changed: Notify::new(),
        }
    }
}

impl<K> Inbox<K> {
    /// Records that the object of this key changed, with the version that the reader last saw. A
    /// change that is recorded already stays as it is.
    pub(super) fn note(&self, key: &Key, old: Option<&Arc<K>>) {
        {
            let mut unread = lock(&self.unread);
            if !unread.contains_key(key) {
                unread.insert(key.clone(), old.cloned());
            }
        }
        // There is one reader. If it is not waiting now, its next wait returns at once.
        self.changed.notify_one();
    }

    fn take(&self) -> BTreeMap<Key, Option<Arc<K>>> {
        std::mem::take(&mut *lock(&self.unread))
    }
}

impl<K> Changes<K> {
    pub(super) fn new(store: Store<K>, inbox: Arc<Inbox<K>>) -> Self {
        Self { store, inbox }
    }

    /// All unread changes, in the order of their keys. It waits for the first one. Dropping the
    /// future loses none.
    pub(crate) async fn next(&mut self) -> Vec<Change<K>> {
        loop {
            let changes = self.unread();
            if !changes.is_empty() {
                return changes;
            }
            self.inbox.changed.notified().await;
        }
    }

    /// All unread changes, perhaps none.
    pub(crate) fn unread(&mut self) -> Vec<Change<K>> {
        // Locks the store, so that the unread changes and the current objects are consistent.
        let state = self.store.state();
        let unread = self.inbox.take();
        unread
            .into_iter()
            .filter_map(|(key, old)| {
                let new = state.objects.get(&key).cloned();
                // Created and deleted between two reads: no change.
                (old.is_some() || new.is_some()).then_some(Change { old, new })
            })
            .collect()
    }
}
