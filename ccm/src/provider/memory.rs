//! The stored facts about a provider: its cloud scope (▲S20) and its claims (▲S21). They are on the
//! Lease, or in memory without one.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::sync::watch;

use crate::core::lock;

type Annotations = BTreeMap<String, String>;
/// Stores an annotation by its key and value.
type Store = Box<dyn Fn(&str, &str) + Send + Sync>;

/// Reads and stores what the next leader needs to know of a provider.
pub(crate) struct Memory {
    /// The Lease's annotations (`Elector::annotations`), or the values in memory without a Lease.
    annotations: watch::Receiver<Annotations>,
    store: Store,
    /// The command that sets an annotation when `KEY=VALUE` is appended to it. `None` without a
    /// Lease.
    annotate: Option<String>,
    scope: Note,
    claims: Note,
}

/// One annotation, and the last value that was seen.
struct Note {
    key: String,
    seen: Mutex<Option<String>>,
}

impl Note {
    fn new(name: &str, provider: &str) -> Self {
        // A provider's name has at most 47 bytes, so the key fits into the 63 bytes of an
        // annotation's name.
        Self {
            key: format!("{}{name}-{provider}", crate::core::DOMAIN),
            seen: Mutex::default(),
        }
    }
}

impl Memory {
    /// `store` stores an annotation by its key and value, and must not block.
    pub(crate) fn new(
        provider: &str,
        annotations: watch::Receiver<Annotations>,
        annotate: Option<String>,
        store: impl Fn(&str, &str) + Send + Sync + 'static,
    ) -> Self {
        Self {
            annotations,
            store: Box::new(store),
            annotate,
            scope: Note::new("cloud-scope", provider),
            claims: Note::new("claims", provider),
        }
    }

    /// A receiver that is notified whenever the stored values may have changed.
    pub(crate) fn changes(&self) -> watch::Receiver<Annotations> {
        self.annotations.clone()
    }

    /// The stored cloud scope.
    pub(super) fn scope(&self) -> Option<String> {
        self.seen(&self.scope)
    }

    /// The stored claims.
    pub(super) fn claims(&self) -> Option<String> {
        self.seen(&self.claims)
    }

    /// Stores a scope. [`Self::scope`] returns it as soon as it is stored.
    pub(crate) fn store_scope(&self, scope: &str) {
        (self.store)(&self.scope.key, scope);
    }

    /// Stores claims. If no others are stored, [`Self::claims`] returns them at once, even before
    /// they are stored. So no other claims can count as the first ones.
    pub(super) fn store_claims(&self, claims: &str) {
        let mut seen = lock(&self.claims.seen);
        *seen = Some(claims.to_owned());
        (self.store)(&self.claims.key, claims);
    }

    /// The command that accepts a scope when `='SCOPE'` is appended to it. `None` without a Lease.
    pub(super) fn accept_scope(&self) -> Option<String> {
        let annotate = self.annotate.as_ref()?;
        Some(format!("{annotate} {}", self.scope.key))
    }

    /// The command that accepts claims when `='CLAIMS'` is appended to it. `None` without a Lease.
    pub(super) fn accept_claims(&self) -> Option<String> {
        let annotate = self.annotate.as_ref()?;
        Some(format!("{annotate} {}", self.claims.key))
    }

    /// The value of an annotation. If it was deleted since this process saw it (with the Lease, or
    /// alone), it is stored again: a deletion accepts no other value.
    fn seen(&self, note: &Note) -> Option<String> {
        let now = self.annotations.borrow().get(&note.key).cloned();
        let mut seen = lock(&note.seen);
        match (&now, &*seen) {
            (Some(text), _) => *seen = Some(text.clone()),
            (None, Some(text)) => (self.store)(&note.key, text),
            (None, None) => {}
        }
        seen.clone()
    }
}
