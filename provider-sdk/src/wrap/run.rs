//! Runs one call of the vendor's code: admits it, applies its deadline, cancels it when its client
//! does, and catches panics.

use std::any::Any;
use std::collections::BTreeSet;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::metadata::MetadataMap;
use tracing::Instrument;

use cloud_provider_api::v1alpha1 as pb;

use crate::{Call, CloudContact, Cluster, Failure, Provider};

/// The state that all services share.
pub(crate) struct Core {
    pub(crate) provider: Arc<dyn Provider>,
    /// Different in every process (PROV-7).
    pub(crate) boot_id: String,
    pub(crate) max_message_bytes: usize,
    /// The cluster of the last successful `Initialize`.
    pub(crate) ready: RwLock<Option<Arc<Ready>>>,
    /// Held while the vendor's `initialize` runs.
    pub(crate) initializing: tokio::sync::Mutex<()>,
    pub(crate) contact: CloudContact,
    pub(crate) held: Held,
    /// Cancelled when the shutdown begins, which ends every WatchChanges.
    pub(crate) streams: CancellationToken,
    /// Cancelled when the drain is over, which ends every call.
    pub(crate) calls: CancellationToken,
}

/// The values of an `Initialize`. If a call has another cluster name, [`Core::admit`] takes that
/// name.
pub(crate) struct Ready {
    pub(crate) cluster: Cluster,
    pub(crate) previous_owner_ids: Arc<[String]>,
    /// Nothing may be written to the cloud (PROV-20).
    pub(crate) read_only: bool,
}

/// The RPCs that write to the cloud.
const WRITES: [&str; 5] = [
    "EnsureLoadBalancer",
    "UpdateLoadBalancer",
    "DeleteLoadBalancer",
    "CreateRoutes",
    "DeleteRoutes",
];

impl Core {
    pub(crate) fn new(provider: Arc<dyn Provider>, max_message_bytes: usize) -> Self {
        Self {
            provider,
            boot_id: uuid::Uuid::new_v4().to_string(),
            max_message_bytes,
            ready: RwLock::new(None),
            initializing: tokio::sync::Mutex::new(()),
            contact: CloudContact::new(),
            held: Held::default(),
            streams: CancellationToken::new(),
            calls: CancellationToken::new(),
        }
    }

    /// Checks whether a call for this cluster is allowed (CORE-10).
    pub(crate) fn admit(&self, cluster: Option<pb::ClusterRef>) -> Result<Arc<Ready>, Failure> {
        let cluster = cluster_of(cluster)?;
        let ready = self
            .ready
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match ready {
            None => Err(Failure::not_initialized(
                "this provider process has not seen a successful Initialize",
            )),
            Some(ready) if ready.cluster.owner_id != cluster.owner_id => {
                Err(Failure::not_initialized(format!(
                    "this provider is initialised for the cluster with owner ID {:?}, not for {:?}",
                    ready.cluster.owner_id, cluster.owner_id
                )))
            }
            Some(ready) if ready.cluster == cluster => Ok(ready),
            // The name is for people, and may differ from that in Initialize.
            Some(ready) => Ok(Arc::new(Ready {
                cluster,
                previous_owner_ids: ready.previous_owner_ids.clone(),
                read_only: ready.read_only,
            })),
        }
    }

    /// Admits and runs a call. The outer error is a gRPC status ("unknown"). The inner one is a
    /// failure of the provider or of the SDK's checks.
    pub(crate) async fn call<T, E, W, F>(
        &self,
        rpc: &'static str,
        metadata: &MetadataMap,
        cluster: Option<pb::ClusterRef>,
        work: W,
    ) -> Result<Result<T, E>, Status>
    where
        T: Send + 'static,
        E: From<Failure> + Send + 'static,
        W: FnOnce(Arc<dyn Provider>, Call) -> F,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        match self.admit(cluster) {
            Ok(ready) if ready.read_only && WRITES.contains(&rpc) => {
                Ok(Err(Failure::precondition(format!(
                    "{rpc} writes to the cloud, and this provider was initialised with read_only; only an Initialize without it lets it write"
                ))
                .with_reason("ReadOnly")
                .into()))
            }
            Ok(ready) => self.run(rpc, metadata, &ready, work).await,
            Err(failure) => Ok(Err(failure.into())),
        }
    }

    /// Runs a call in its own task, so that this future can end even if the vendor's code does not
    /// yield. tonic drops this future when the client cancels or disconnects. The drop cancels the
    /// call's token and aborts the task.
    pub(crate) async fn run<T, W, F>(
        &self,
        rpc: &'static str,
        metadata: &MetadataMap,
        ready: &Ready,
        work: W,
    ) -> Result<T, Status>
    where
        T: Send + 'static,
        W: FnOnce(Arc<dyn Provider>, Call) -> F,
        F: Future<Output = T> + Send + 'static,
    {
        let deadline = deadline_of(metadata);
        let ended = self.calls.child_token();
        let _end = ended.clone().drop_guard();
        let call = Call::new(
            rpc,
            ready.cluster.clone(),
            ready.previous_owner_ids.clone(),
            deadline,
            ended,
            self.contact.clone(),
        );
        let mut task = Task(tokio::spawn(
            work(self.provider.clone(), call).in_current_span(),
        ));
        let expired = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            joined = &mut task.0 => joined.map_err(|error| died(rpc, error)),
            () = self.calls.cancelled() => Err(Status::unavailable("the provider shuts down")),
            () = expired => Err(Status::deadline_exceeded(format!("{rpc} ran past its deadline"))),
        }
    }

    /// Runs a short method of the vendor without a task.
    pub(crate) fn inline<T>(
        &self,
        rpc: &'static str,
        work: impl FnOnce(&dyn Provider) -> T,
    ) -> Result<T, Status> {
        catch_unwind(AssertUnwindSafe(|| work(&*self.provider)))
            .map_err(|panic| panicked(rpc, &*panic))
    }
}

/// A task that is aborted when this value is dropped.
pub(crate) struct Task<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The status for a call whose task ended without an answer.
pub(crate) fn died(rpc: &'static str, error: JoinError) -> Status {
    match error.try_into_panic() {
        Ok(panic) => panicked(rpc, &*panic),
        Err(_) => Status::cancelled(format!("{rpc} was cancelled")),
    }
}

fn panicked(rpc: &'static str, panic: &(dyn Any + Send)) -> Status {
    let text = panic_text(panic);
    tracing::error!(rpc, panic = text, "the provider's code panicked");
    Status::internal(format!("the provider's code panicked in {rpc}: {text}"))
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
}

pub(crate) fn cluster_of(cluster: Option<pb::ClusterRef>) -> Result<Cluster, Failure> {
    match cluster {
        Some(cluster) if !cluster.owner_id.is_empty() => {
            Ok(Cluster::new(cluster.name, cluster.owner_id))
        }
        Some(cluster) => Err(Failure::invalid(format!(
            "the request's cluster {:?} has no owner_id",
            cluster.name
        ))),
        None => Err(Failure::invalid("the request has no cluster")),
    }
}

/// The deadline from `grpc-timeout` (at most eight digits and a unit).
pub(crate) fn deadline_of(metadata: &MetadataMap) -> Option<Instant> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    let left = match unit {
        "H" => Duration::from_secs(value * 3600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    };
    Instant::now().checked_add(left)
}

/// The objects that mutating calls work on (CORE-7).
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<Mutex<BTreeSet<String>>>);

impl Held {
    /// Holds an object until the guard is dropped. Fails if another call holds it.
    pub(crate) fn take(&self, object: String) -> Result<Hold, Failure> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.insert(object.clone()) {
            Ok(Hold {
                held: self.clone(),
                object,
            })
        } else {
            Err(Failure::busy(format!(
                "another call is in progress for {object}; ask again in a second"
            )))
        }
    }
}

/// See [`Held::take`]. The vendor's task owns it, so the object is not free before that task has
/// ended.
pub(crate) struct Hold {
    held: Held,
    object: String,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_deadline_is_read_from_grpc_timeout() {
        let left = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            deadline_of(&metadata).map(|deadline| deadline - Instant::now())
        };
        assert_eq!(left("2H"), Some(Duration::from_hours(2)));
        assert_eq!(left("3M"), Some(Duration::from_mins(3)));
        assert_eq!(left("5S"), Some(Duration::from_secs(5)));
        assert_eq!(left("250m"), Some(Duration::from_millis(250)));
        assert_eq!(left("99999999u"), Some(Duration::from_micros(99_999_999)));
        assert_eq!(left("7n"), Some(Duration::from_nanos(7)));
        for wrong in ["S", "123456789S", "+5S", "5", "5x", "-1S"] {
            assert_eq!(left(wrong), None, "{wrong}");
        }
        assert_eq!(deadline_of(&MetadataMap::new()), None);
    }
}
