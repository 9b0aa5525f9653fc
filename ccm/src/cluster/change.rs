//! What changed between two views of an object.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::Store;
use crate::core::{Key, lock};

/// An object as it was when the reader last looked, and as it is now. Both may be of different UIDs
/// (deleted and made again under the same name). Never both `None`.
#[derive(Debug)]
pub(crate) struct Change<K> {
    /// What the reader saw last.
    pub(crate) old: Option<Arc<K>>,
    /// What is there now; `None`: deleted.
    pub(crate) new: Option<Arc<K>>,
}

#[cfg(test)]
impl<K> Change<K> {
    /// The object as it is, or as it was before it was deleted.
    pub(crate) fn latest(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// One reader's unread changes, at most one per key.
pub(crate) struct Changes<K> {
    store: Store<K>,
    inbox: Arc<Inbox<K>>,
}

/// What a reader has not read yet: by key, the object as it saw it last. The new one is looked up when it reads.
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
    /// Notes that the object of this key is not any more what the reader saw last, unless that is noted already.
    pub(super) fn note(&self, key: &Key, old: Option<&Arc<K>>) {
        {
            let mut unread = lock(&self.unread);
            if !unread.contains_key(key) {
                unread.insert(key.clone(), old.cloned());
            }
        }
        // One reader: a permit waits for it where it is not waiting.
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

    /// All unread changes, in the order of their keys; waits until there is one. Dropped while it waits, it loses none.
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
        // Under the lock of the store, so that what is unread and what is there are of one moment.
        let state = self.store.read();
        let unread = self.inbox.take();
        unread
            .into_iter()
            .filter_map(|(key, old)| {
                let new = state.objects.get(&key).cloned();
                // Made and deleted between two looks: nothing to tell.
                (old.is_some() || new.is_some()).then_some(Change { old, new })
            })
            .collect()
    }
}
