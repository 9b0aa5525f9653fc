//! What is stored of a provider, on the Lease or, without one, in memory: its cloud scope (▲S20) and what it claims (▲S21).

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::core::lock;
use tokio::sync::watch;

type Annotations = BTreeMap<String, String>;
/// Stores an annotation of this key and value.
type Store = Box<dyn Fn(&str, &str) + Send + Sync>;

/// Reads and stores what the next leader needs to know of a provider.
pub(crate) struct Memory {
    /// The Lease's annotations (`Elector::annotations`).
    annotations: watch::Receiver<Annotations>,
    store: Store,
    /// The command that sets an annotation when `KEY=VALUE` is put behind it; `None` without a Lease.
    annotate: Option<String>,
    scope: Note,
    claims: Note,
}

/// One annotation, and its value when it was last seen.
struct Note {
    key: String,
    seen: Mutex<Option<String>>,
}

impl Note {
    fn new(name: &str, provider: &str) -> Self {
        // A provider's name has at most 47 bytes, so the key keeps within the 63 of an annotation's name.
        Self {
            key: format!("{}{name}-{provider}", crate::core::DOMAIN),
            seen: Mutex::default(),
        }
    }
}

impl Memory {
    /// `store` stores an annotation of this key and value, and must not block.
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

    /// Changes whenever something else may be stored.
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

    /// Stores claims. [`Self::claims`] returns them at once: until they are stored no other ones pass for the first.
    pub(super) fn store_claims(&self, claims: &str) {
        let mut seen = lock(&self.claims.seen);
        *seen = Some(claims.to_owned());
        (self.store)(&self.claims.key, claims);
    }

    /// The command that accepts a scope when `=SCOPE` is put behind it.
    pub(super) fn accept_scope(&self) -> String {
        let command = |annotate: &String| format!("{annotate} {}", self.scope.key);
        let annotate = self.annotate.as_ref();
        annotate.map_or_else(|| "ccm --accept-cloud-scope".to_owned(), command)
    }

    /// The command that accepts claims when `='CLAIMS'` is put behind it.
    pub(super) fn accept_claims(&self) -> Option<String> {
        let annotate = self.annotate.as_ref()?;
        Some(format!("{annotate} {}", self.claims.key))
    }

    /// A value that was deleted (with the Lease, or the annotation alone) is stored again: an operator accepts another one only by naming it.
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
