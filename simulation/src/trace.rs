//! The trace: one line for each event, and a digest.

use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// The trace of a run. Clones share it.
#[derive(Clone)]
pub struct Trace {
    began: Instant,
    /// Whether to format and keep events. Most runs hold, and nobody reads the traces of those.
    keeps: bool,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    lines: Vec<String>,
    /// Has fixed keys, so that the same trace has the same digest in every process.
    hasher: DefaultHasher,
    violations: Vec<String>,
}

impl Trace {
    /// An empty trace, whose time begins now.
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner {
            lines: Vec::new(),
            hasher: DefaultHasher::new(),
            violations: Vec::new(),
        };
        Self {
            began: Instant::now(),
            keeps: true,
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// A trace that keeps only violations.
    #[must_use]
    pub fn of_violations() -> Self {
        Self {
            keeps: false,
            ..Self::new()
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

    /// Notes an event. `format_args!` costs nothing if the trace is not kept.
    pub fn note(&self, event: impl Display) {
        if !self.keeps {
            return;
        }
        let line = format!("{:>10.3} {event}", self.now_ms() as f64 / 1000.0);
        let mut inner = self.inner();
        line.hash(&mut inner.hasher);
        inner.lines.push(line);
    }

    /// Adds log lines. They are not part of the digest.
    pub fn log(&self, lines: &str) {
        self.inner().lines.extend(lines.lines().map(str::to_owned));
    }

    /// Notes that an invariant does not hold.
    pub fn violation(&self, what: impl Display) {
        self.note(format_args!("VIOLATION {what}"));
        self.inner().violations.push(what.to_string());
    }

    /// The violated invariants, in order.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.inner().violations.clone()
    }

    /// All lines.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.inner().lines.clone()
    }

    /// A digest of all lines except those of logs.
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
