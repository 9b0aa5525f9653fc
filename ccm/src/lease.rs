//! Leader election by a Lease, after client-go's rules, and the [`Fence`] that follows from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Whether this process may still write: the Lease's own deadline, checked before each write (▲M12).
///
/// Clones share one state. It is closed until the Lease is held.
#[derive(Clone, Debug)]
pub struct Fence {
    base: Instant,
    /// Nanoseconds after `base` until which writes may be issued; 0 is closed.
    until: Arc<AtomicU64>,
}

/// The Lease is not held, or its deadline has passed: nothing may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the leader any more: nothing is written")]
pub struct Fenced;

impl Fence {
    /// A fence that lets nothing through until it is opened.
    pub fn closed() -> Self {
        Self {
            base: Instant::now(),
            until: Arc::new(AtomicU64::new(0)),
        }
    }

    /// A fence that is open for ever: `--leader-elect=false`, and tests.
    pub fn open() -> Self {
        let fence = Self::closed();
        fence.until.store(u64::MAX, Ordering::SeqCst);
        fence
    }

    /// Ok while the Lease's deadline has not passed.
    pub fn check(&self) -> Result<(), Fenced> {
        let until = self.until.load(Ordering::SeqCst);
        let now = Instant::now().saturating_duration_since(self.base);
        if until == u64::MAX || now < Duration::from_nanos(until) {
            Ok(())
        } else {
            Err(Fenced)
        }
    }

    /// Lets writes through until `deadline`.
    pub(crate) fn extend(&self, deadline: Instant) {
        let nanos = deadline.saturating_duration_since(self.base).as_nanos();
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX - 1);
        self.until.store(nanos, Ordering::SeqCst);
    }

    /// Lets nothing through from now on.
    pub(crate) fn close(&self) {
        self.until.store(0, Ordering::SeqCst);
    }
}
