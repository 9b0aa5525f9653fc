//! The objects and their history. Watches read the history, and so do lists of older versions.

mod write;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::kind::{KINDS, Kind};

pub use super::patch::Patch;
pub use super::refusal::Refusal;

/// Names an object. The kind is the resource's plural; the namespace is empty if the object has
/// none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// The plural, for example `nodes`.
    pub kind: &'static str,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Id {
    /// An ID.
    #[must_use]
    pub fn new(kind: &'static str, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// An object at one version, without `apiVersion` and `kind`. Readers share it and its text.
#[derive(Debug)]
pub struct Object {
    value: Value,
    text: OnceLock<String>,
}

impl Deref for Object {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

impl Object {
    fn new(value: Value) -> Arc<Self> {
        Arc::new(Self {
            value,
            text: OnceLock::new(),
        })
    }

    /// As JSON.
    pub(super) fn text(&self) -> &str {
        self.text.get_or_init(|| self.value.to_string())
    }
}

/// One entry of the history.
#[derive(Clone, Debug)]
pub struct Change {
    /// The resourceVersion.
    pub version: u64,
    /// The time of the change.
    pub at: Instant,
    /// ADDED, MODIFIED or DELETED.
    pub what: &'static str,
    /// The changed object.
    pub id: Id,
    /// The object after the change.
    pub object: Arc<Object>,
    /// The object before the change.
    before: Option<Arc<Object>>,
}

/// The effect of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The object was created.
    Created,
    /// The object exists, changed or not.
    Kept,
    /// The object is gone.
    Deleted,
}

/// A write that succeeded.
#[derive(Clone, Debug)]
pub struct Done {
    /// The object in the answer.
    pub object: Arc<Object>,
    /// Its effect.
    pub effect: Effect,
}

/// A list, or a page of it.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) version: u64,
    pub(super) items: Vec<Arc<Object>>,
    /// The first object of the next page, and how many objects remain from there on.
    pub(super) rest: Option<(Id, usize)>,
}

/// The contents of the API server.
#[derive(Default)]
pub struct Store {
    version: u64,
    /// The newest version of each kind.
    newest: [u64; KINDS.len()],
    /// A counter for UIDs, names, addresses and ports.
    chosen: u64,
    objects: BTreeMap<Id, Arc<Object>>,
    history: VecDeque<Change>,
    /// The oldest version for watches and lists.
    oldest: u64,
    /// Wall time in seconds, as `creationTimestamp` shows it.
    pub wall: Option<Box<dyn Fn() -> String + Send>>,
}

impl Store {
    /// The newest resourceVersion.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn newest(&self) -> [u64; KINDS.len()] {
        self.newest
    }

    /// The oldest version that a watch may begin from.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Makes all earlier versions too old for watches and pages. Open watches still get unread
    /// changes.
    pub fn compact(&mut self) {
        self.oldest = self.version;
    }

    /// Changes after this version.
    pub fn since(&self, version: u64) -> impl Iterator<Item = &Change> {
        let from = self
            .history
            .partition_point(|change| change.version <= version);
        self.history.range(from..)
    }

    /// One object.
    #[must_use]
    pub fn get(&self, id: &Id) -> Option<&Arc<Object>> {
        self.objects.get(id)
    }

    fn of_kind(
        &self,
        kind: &'static str,
        namespace: &str,
    ) -> impl Iterator<Item = (&Id, &Arc<Object>)> {
        let from = Id::new(kind, namespace, "");
        let namespace = namespace.to_owned();
        self.objects.range(from..).take_while(move |(id, _)| {
            id.kind == kind && (namespace.is_empty() || id.namespace == namespace)
        })
    }

    /// All of a kind, in one namespace or in all.
    #[must_use]
    pub fn list(&self, kind: &'static str, namespace: &str) -> Vec<Arc<Object>> {
        self.of_kind(kind, namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// A page of a list as of `version` (0: now), from `begin` on, of the objects that match
    /// `shown`.
    pub(super) fn page(
        &self,
        kind: &'static str,
        namespace: &str,
        version: u64,
        begin: Option<&Id>,
        limit: usize,
        shown: impl Fn(&Id) -> bool,
    ) -> Result<Page, Refusal> {
        let then;
        let mut all: Vec<(&Id, &Arc<Object>)> = if version == 0 || version == self.version {
            self.of_kind(kind, namespace).collect()
        } else {
            if version < self.oldest {
                return Err(Refusal::expired("objects as they were then are not kept"));
            }
            let mut objects: BTreeMap<&Id, &Arc<Object>> = self.of_kind(kind, namespace).collect();
            let undone: Vec<&Change> = self
                .since(version)
                .filter(|change| change.id.kind == kind)
                .collect();
            for change in undone.into_iter().rev() {
                match &change.before {
                    Some(before) => objects.insert(&change.id, before),
                    None => objects.remove(&change.id),
                };
            }
            then = objects;
            then.into_iter()
                .filter(|(id, _)| namespace.is_empty() || id.namespace == namespace)
                .collect()
        };
        all.retain(|(id, _)| begin.is_none_or(|begin| *id >= begin) && shown(id));
        let rest = all
            .get(limit)
            .map(|(id, _)| ((*id).clone(), all.len() - limit));
        all.truncate(limit);
        Ok(Page {
            version: if version == 0 { self.version } else { version },
            items: all
                .into_iter()
                .map(|(_, object)| Arc::clone(object))
                .collect(),
            rest,
        })
    }

    fn now(&self) -> String {
        let wall = self.wall.as_ref();
        wall.map_or_else(|| "1970-01-01T00:00:00Z".to_owned(), |wall| wall())
    }

    fn keep(&mut self, what: &'static str, id: &Id, mut value: Value) -> Arc<Object> {
        self.version += 1;
        if let Some(place) = Kind::place(id.kind) {
            self.newest[place] = self.version;
        }
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Object::new(value);
        let before = if what == "DELETED" {
            self.objects.remove(id)
        } else {
            self.objects.insert(id.clone(), Arc::clone(&object))
        };
        self.history.push_back(Change {
            version: self.version,
            at: Instant::now(),
            what,
            id: id.clone(),
            object: Arc::clone(&object),
            before,
        });
        object
    }
}
