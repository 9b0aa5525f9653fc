//! What happened, one line per event, and a digest of it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// The trace of a run. Clones share it.
#[derive(Clone)]
pub struct Trace {
    began: Instant,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    lines: Vec<String>,
    /// Keys are fixed, so that the same trace has the same digest in every process.
    hasher: DefaultHasher,
    violations: Vec<String>,
}

impl Trace {
    /// An empty one; its time begins now.
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner {
            lines: Vec::new(),
            hasher: DefaultHasher::new(),
            violations: Vec::new(),
        };
        Self {
            began: Instant::now(),
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds of virtual time since the beginning.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Notes an event.
    pub fn note(&self, event: impl AsRef<str>) {
        let line = format!("{:>10.3} {}", self.now_ms() as f64 / 1000.0, event.as_ref());
        let mut inner = self.inner();
        line.hash(&mut inner.hasher);
        inner.lines.push(line);
    }

    /// Notes that an invariant does not hold.
    pub fn violation(&self, what: impl AsRef<str>) {
        let line = format!("VIOLATION {}", what.as_ref());
        self.note(&line);
        self.inner().violations.push(what.as_ref().to_owned());
    }

    /// The invariants that did not hold, in their order.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.inner().violations.clone()
    }

    /// All lines.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.inner().lines.clone()
    }

    /// A digest of all lines.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.inner().hasher.finish()
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}
