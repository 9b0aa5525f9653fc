//! The call that a trait method answers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Cluster, Failure};

/// A call in progress: its cluster, its deadline, and whether the controller still waits for the
/// answer.
///
/// # A cancelled call stops before its next cloud write (CORE-8)
///
/// A call **ends** when the SDK sends its answer, the controller cancels it, the connection is
/// lost, its deadline passes, or the server's drain is over. WatchChanges ends already when the
/// server's shutdown begins. From then on:
///
/// - The SDK never polls the vendor's future again. It drops the future at the `.await` where the
///   future waits, or at the next `.await` where it would have to wait. A provider that awaits its
///   cloud writes inside its trait methods needs nothing else.
/// - [`Call::checkpoint`] and [`Call::before_write`] return an error, on every clone. Code that the
///   drop does not reach must call one of them before **each** write to the cloud: a task that the
///   vendor spawned, `spawn_blocking`, a long stretch without an `.await`.
/// - [`Call::cancelled`] resolves.
///
/// A write that the cloud has already received cannot be cancelled. This is one reason why RPCs
/// must be idempotent (CORE-6).
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

    /// A call for unit tests of a vendor's methods. It has no deadline, and nothing cancels it.
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

    /// The cluster of the call.
    pub fn cluster(&self) -> &Cluster {
        &self.inner.cluster
    }

    /// Former owner IDs of this cluster, from the last `Initialize` that had succeeded when the SDK
    /// admitted the call. In `initialize` itself, they are from the request.
    pub fn previous_owner_ids(&self) -> &[String] {
        &self.inner.previous_owner_ids
    }

    /// Whether a mark with this owner ID belongs to this cluster. True for the current owner ID and
    /// for the former ones.
    pub fn owns(&self, owner_id: &str) -> bool {
        self.inner.cluster.owner_id == owner_id
            || self
                .inner
                .previous_owner_ids
                .iter()
                .any(|previous| previous == owner_id)
    }

    /// The latest time at which the call ends. `None`: the controller sent no deadline, or the call
    /// is WatchChanges. If the work takes longer and the RPC has a pending answer, give that answer
    /// before 80 % of the time has passed (CORE-9).
    pub fn deadline(&self) -> Option<std::time::Instant> {
        self.inner.deadline.map(Instant::into_std)
    }

    /// Whether the call has ended (see [`Call`]).
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

    /// Fails with `UNAVAILABLE` (reason `CallEnded`) if the call has ended. This method needs no
    /// runtime, so it works in `spawn_blocking`.
    pub fn checkpoint(&self) -> Result<(), Failure> {
        if self.is_cancelled() {
            Err(Failure::unavailable(format!(
                "{} was cancelled, disconnected or ran past its deadline: it writes nothing more to the cloud",
                self.inner.rpc
            ))
            .with_reason("CallEnded"))
        } else {
            Ok(())
        }
    }

    /// Call this before each write to the cloud. It first yields, so that the runtime can process a
    /// cancellation that has arrived. Then it does the same as [`Call::checkpoint`].
    pub async fn before_write(&self) -> Result<(), Failure> {
        tokio::task::yield_now().await;
        self.checkpoint()
    }

    /// Records a successful answer of the cloud. `Probe` reports the time of the last one.
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

/// The time of the cloud's last successful answer. Clones share it. [`Call::cloud_answered`] writes
/// to the server's own record. A provider that asks the cloud outside of calls keeps a
/// `CloudContact` of its own, and returns [`CloudContact::last`] from
/// [`Provider::last_cloud_success`](crate::Provider::last_cloud_success).
#[derive(Debug, Clone, Default)]
pub struct CloudContact {
    last: Arc<Mutex<Option<SystemTime>>>,
}

impl CloudContact {
    /// A record without an answer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a successful answer of the cloud, now.
    pub fn record(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(SystemTime::now());
    }

    /// The time of the last successful answer. `None`: there was none.
    pub fn last(&self) -> Option<SystemTime> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
