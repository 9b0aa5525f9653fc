//! The [`Fence`]: a fencing token in memory that says whether this process may still write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Whether this process may still write: until the deadline of its own term of the Lease. Every
/// write of a controller and every mutating RPC checks it (▲M12).
///
/// Clones share one state. It is closed until this process holds the Lease. Without leader
/// election it is always open.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    base: Instant,
    /// Nanoseconds after `base` until which writes may be issued; 0: closed; [`FOR_EVER`]: open.
    until: Arc<AtomicU64>,
    /// Notified when the fence closes before its deadline.
    closing: Arc<Notify>,
    /// Nanoseconds after `base` at which a mutating RPC was last abandoned without an answer; 0:
    /// never.
    given_up: Arc<AtomicU64>,
    /// The mutating RPCs in flight.
    in_flight: Arc<AtomicUsize>,
}

/// A mutating RPC, from its sending to its answer. Dropping it without an answer counts as
/// abandoned: a provider that ignores the cancellation is still working on the RPC.
pub(crate) struct Changing {
    fence: Fence,
    answered: bool,
}

impl Changing {
    /// The RPC has ended in the provider too, or was not sent.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        if !self.answered {
            let now = Instant::now().saturating_duration_since(self.fence.base);
            let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
            self.fence
                .given_up
                .fetch_max(nanos.max(1), Ordering::SeqCst);
        }
        self.fence.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The fence is closed, or its deadline has passed. This process must not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the leader any more: writing nothing")]
pub(crate) struct Fenced;

const FOR_EVER: u64 = u64::MAX;

impl Fence {
    /// A fence that is closed until `extend` opens it.
    pub(crate) fn closed() -> Self {
        Self {
            base: Instant::now(),
            until: Arc::new(AtomicU64::new(0)),
            closing: Arc::new(Notify::new()),
            given_up: Arc::new(AtomicU64::new(0)),
            in_flight: Arc::new(AtomicUsize::new(0)),
        }
    }

    /// A fence that is always open: for `--leader-elect=false`, and for tests.
    pub(crate) fn open() -> Self {
        let fence = Self::closed();
        fence.until.store(FOR_EVER, Ordering::SeqCst);
        fence
    }

    /// Ok while the fence is open.
    pub(crate) fn check(&self) -> Result<(), Fenced> {
        let until = self.until.load(Ordering::SeqCst);
        let now = Instant::now().saturating_duration_since(self.base);
        if until == FOR_EVER || now < Duration::from_nanos(until) {
            Ok(())
        } else {
            Err(Fenced)
        }
    }

    /// Tracks a mutating RPC, which is about to be sent.
    pub(crate) fn changing(&self) -> Changing {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        Changing {
            fence: self.clone(),
            answered: false,
        }
    }

    /// Whether a mutating RPC is in flight. The RPC of a cancelled task counts until the runtime
    /// drops the task.
    pub(crate) fn is_changing(&self) -> bool {
        self.in_flight.load(Ordering::SeqCst) > 0
    }

    /// How long ago a mutating RPC was last abandoned without an answer.
    pub(crate) fn given_up(&self) -> Option<Duration> {
        let nanos = self.given_up.load(Ordering::SeqCst);
        let at = self.base + Duration::from_nanos(nanos);
        (nanos > 0).then(|| Instant::now().saturating_duration_since(at))
    }

    /// Returns as soon as writing is forbidden: at once when the fence is closed, else when
    /// somebody closes it or its deadline passes. The caller then drops its requests in flight.
    pub(crate) async fn wait_closed(&self) {
        loop {
            let mut closing = std::pin::pin!(self.closing.notified());
            closing.as_mut().enable();
            if self.check().is_err() {
                return;
            }
            let until = self.until.load(Ordering::SeqCst);
            let deadline = (until != FOR_EVER)
                .then(|| self.base.checked_add(Duration::from_nanos(until)))
                .flatten();
            match deadline {
                Some(deadline) => tokio::select! {
                    biased;
                    () = closing => {}
                    () = sleep_until(deadline) => {}
                },
                None => closing.await,
            }
        }
    }

    /// Allows writes until `deadline`.
    pub(crate) fn extend(&self, deadline: Instant) {
        let nanos = deadline.saturating_duration_since(self.base).as_nanos();
        let nanos = u64::try_from(nanos).unwrap_or(FOR_EVER);
        self.until.store(nanos, Ordering::SeqCst);
    }

    /// Forbids writes from now on.
    pub(crate) fn close(&self) {
        self.until.store(0, Ordering::SeqCst);
        self.closing.notify_waiters();
    }
}
