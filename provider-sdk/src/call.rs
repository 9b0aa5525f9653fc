//! The call that is being answered.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Cluster, Failure};

/// The call that is being answered: for which cluster, until when, and whether anybody still waits for the answer.
///
/// # A cancelled call stops before its next cloud write (CORE-8)
///
/// A call **ends** when its answer is sent, the controller cancels it, the connection is lost, its deadline passes, or the server's drain is over. From
/// that moment:
///
/// - the vendor's future is never polled again: it is dropped at the `.await` where it stands, or at the next one that it reaches. A provider whose
///   cloud writes are awaited inside its trait methods therefore needs nothing else;
/// - [`Call::checkpoint`] and [`Call::before_write`] answer an error, on every clone. Code that the drop does not reach (a task that the
///   vendor spawned, `spawn_blocking`, a long stretch without an `.await`) asks one of them before **each** write to the cloud;
/// - [`Call::cancelled`] resolves.
///
/// A write that was already sent to the cloud cannot be called back: RPCs are idempotent for that reason (CORE-6).
#[derive(Clone)]
pub struct Call {
    inner: Arc<Inner>,
}

struct Inner {
    rpc: &'static str,
    cluster: Cluster,
    previous_owner_ids: Arc<[String]>,
    deadline: Option<Instant>,
    ended: CancellationToken,
    contact: CloudContact,
}

impl Call {
    pub(crate) fn new(
        rpc: &'static str,
        cluster: Cluster,
        previous_owner_ids: Arc<[String]>,
        deadline: Option<Instant>,
        ended: CancellationToken,
        contact: CloudContact,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                rpc,
                cluster,
                previous_owner_ids,
                deadline,
                ended,
                contact,
            }),
        }
    }

    /// A call that nobody made, without a deadline and never cancelled: for unit tests of a vendor's methods.
    pub fn for_test(cluster: Cluster) -> Self {
        Self::new(
            "test",
            cluster,
            Arc::default(),
            None,
            CancellationToken::new(),
            CloudContact::default(),
        )
    }

    /// The name of the RPC, for example `EnsureLoadBalancer`.
    pub fn rpc(&self) -> &'static str {
        self.inner.rpc
    }

    /// For which cluster the call is made.
    pub fn cluster(&self) -> &Cluster {
        &self.inner.cluster
    }

    /// Owner IDs that this cluster had before, as the last `Initialize` said. In `Initialize` itself: those of the request.
    pub fn previous_owner_ids(&self) -> &[String] {
        &self.inner.previous_owner_ids
    }

    /// Whether a mark with this owner ID is this cluster's: the present owner ID or a previous one.
    pub fn owns(&self, owner_id: &str) -> bool {
        self.inner.cluster.owner_id == owner_id
            || self
                .inner
                .previous_owner_ids
                .iter()
                .any(|previous| previous == owner_id)
    }

    /// When the controller stops waiting; `None` where it set no deadline. An answer after 80 % of the time that was left is late: answer pending
    /// instead, where the RPC has it (CORE-9).
    pub fn deadline(&self) -> Option<std::time::Instant> {
        self.inner.deadline.map(Instant::into_std)
    }

    /// Whether the call has ended: nobody waits for the answer any more.
    pub fn is_cancelled(&self) -> bool {
        self.inner.ended.is_cancelled()
            || self
                .inner
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Resolves when the call has ended. For `select!` in tasks that the vendor spawned.
    pub async fn cancelled(&self) {
        match self.inner.deadline {
            Some(deadline) => tokio::select! {
                biased;
                () = self.inner.ended.cancelled() => {}
                () = tokio::time::sleep_until(deadline) => {}
            },
            None => self.inner.ended.cancelled().await,
        }
    }

    /// Fails (`UNAVAILABLE`, reason `CallEnded`) once the call has ended. Needs no runtime: fit for `spawn_blocking`.
    pub fn checkpoint(&self) -> Result<(), Failure> {
        if self.is_cancelled() {
            Err(Failure::unavailable(format!(
                "{} was cancelled, disconnected or ran past its deadline: nothing more is written to the cloud",
                self.inner.rpc
            ))
            .with_reason("CallEnded"))
        } else {
            Ok(())
        }
    }

    /// What stands before each write to the cloud: lets the runtime see a cancellation that has arrived meanwhile, then does what
    /// [`Call::checkpoint`] does.
    pub async fn before_write(&self) -> Result<(), Failure> {
        tokio::task::yield_now().await;
        self.checkpoint()
    }

    /// Records that the cloud answered with success just now; `Probe` reports the last time.
    pub fn cloud_answered(&self) {
        self.inner.contact.record();
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("rpc", &self.inner.rpc)
            .field("cluster", &self.inner.cluster)
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// When the cloud last answered with success. Clones share one record. [`Call::cloud_answered`] writes into the server's own; a provider with
/// background refreshes keeps one of these and returns it from [`Provider::last_cloud_success`](crate::Provider::last_cloud_success).
#[derive(Debug, Clone, Default)]
pub struct CloudContact {
    last: Arc<Mutex<Option<SystemTime>>>,
}

impl CloudContact {
    /// No contact yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The cloud answered with success just now.
    pub fn record(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(SystemTime::now());
    }

    /// When it last did; `None` when it never did.
    pub fn last(&self) -> Option<SystemTime> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
