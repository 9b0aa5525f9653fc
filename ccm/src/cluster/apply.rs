//! How one event of a watch changes a store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use kube::Resource;
use kube::runtime::watcher::Event;

use super::Store;
use super::change::Inbox;
use crate::core::{Key, Prune};
use crate::planted::planted;

/// The state of the first list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    Awaited,
    /// The API server refused the list. The watch requests it again.
    Refused,
    Complete,
}

pub(super) struct State<K> {
    pub(super) objects: BTreeMap<Key, Arc<K>>,
    /// The second index: keys by `Prune::found_by`.
    pub(super) found_by: BTreeMap<String, BTreeSet<Key>>,
    /// The keys in the current list so far; `None` outside a list. Objects enter the store page by
    /// page, so that a relist holds no second copy.
    listed: Option<BTreeSet<Key>>,
    pub(super) readers: Vec<Weak<Inbox<K>>>,
}

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            found_by: BTreeMap::new(),
            listed: None,
            readers: Vec::new(),
        }
    }
}

impl<K> State<K> {
    pub(super) fn subscribe(&mut self, inbox: &Arc<Inbox<K>>) {
        for key in self.objects.keys() {
            inbox.note(key, None);
        }
        self.readers.push(Arc::downgrade(inbox));
    }

    fn note(&mut self, key: &Key, old: Option<&Arc<K>>) {
        self.readers.retain(|reader| {
            let reader = reader.upgrade();
            if let Some(reader) = &reader {
                reader.note(key, old);
            }
            reader.is_some()
        });
    }
}

impl<K: Resource + Prune + Clone> State<K> {
    fn remove(&mut self, key: &Key) {
        if let Some(old) = self.objects.remove(key) {
            self.lose(key, &old);
            self.note(key, Some(&old));
        }
    }

    /// Removes the object from the second index.
    fn lose(&mut self, key: &Key, old: &K) {
        if let Some(by) = old.found_by()
            && let Some(keys) = self.found_by.get_mut(by)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.found_by.remove(by);
            }
        }
    }

    fn upsert(&mut self, mut object: K) {
        let key = Key::of(&object);
        if let Some(old) = self.objects.get_mut(&key)
            && same_but_version(old.as_ref(), &mut object)
        {
            // Updated in place, because most events are heartbeats. New allocations would scatter
            // the live objects over the heap.
            Arc::make_mut(old).meta_mut().resource_version =
                object.meta_mut().resource_version.take();
            return;
        }
        let old = self.objects.get(&key).cloned();
        self.note(&key, old.as_ref());
        if old.as_ref().and_then(|old| old.found_by()) != object.found_by() {
            if let Some(old) = &old {
                self.lose(&key, old);
            }
            if let Some(by) = object.found_by() {
                let keys = self.found_by.entry(by.to_owned()).or_default();
                keys.insert(key.clone());
            }
        }
        self.objects.insert(key, Arc::new(object));
    }

    /// Returns whether this event completes a list.
    pub(super) fn apply(&mut self, event: Event<K>) -> bool {
        match event {
            Event::Init => self.listed = Some(BTreeSet::new()),
            Event::InitApply(mut object) | Event::Apply(mut object) => {
                object.prune();
                if let Some(listed) = &mut self.listed {
                    listed.insert(Key::of(&object));
                }
                self.upsert(object);
            }
            Event::InitDone => {
                // An object that is not in the list was deleted while the watch was down.
                let listed = self.listed.take().unwrap_or_default();
                let gone: Vec<Key> = self
                    .objects
                    .keys()
                    .filter(|key| !listed.contains(*key) && !planted!(VanishedIsNotSeen))
                    .cloned()
                    .collect();
                for key in &gone {
                    self.remove(key);
                }
                return true;
            }
            Event::Delete(object) => self.remove(&Key::of(&object)),
        }
        false
    }
}

impl<K: Resource + Prune + Clone> Store<K> {
    /// Applies one event of the watch.
    pub(crate) fn apply(&self, event: Event<K>) {
        if self.state().apply(event) {
            self.shared.first.send_replace(First::Complete);
        }
    }
}

/// Whether only the resourceVersion differs. Leaves `new` as it was.
fn same_but_version<K: Resource + PartialEq>(old: &K, new: &mut K) -> bool {
    let version = std::mem::replace(
        &mut new.meta_mut().resource_version,
        old.meta().resource_version.clone(),
    );
    let same = old == new;
    new.meta_mut().resource_version = version;
    same
}
