//! The provider's process: the mock's services over pipes in memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use provider_mock::{Cloud, FaultKind, MUTATING_RPCS, throttled};
use provider_sdk::GrpcService;
use tokio::io::DuplexStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tower::ServiceExt as _;

use crate::checker::Checker;
use crate::faults::Faults;
use crate::trace::Trace;

/// The provider of a run. Clones share it.
#[derive(Clone)]
pub struct Provider(Arc<Inner>);

struct Inner {
    cloud: Cloud,
    checker: Checker,
    faults: Faults,
    trace: Trace,
    process: Mutex<Option<Process>>,
    draining: Mutex<Vec<Process>>,
    /// Notified when a scripted fault has killed the process.
    died: tokio::sync::Notify,
    /// Notified when a call that may have changed the cloud is answered.
    done: tokio::sync::Notify,
}

struct Process {
    service: GrpcService,
    tasks: Tasks,
    terminate: CancellationToken,
    /// Whether the process finishes its calls in flight on open connections.
    drains: Arc<AtomicBool>,
}

/// The tasks of one process, which end with it.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

impl Provider {
    /// A provider of this cloud. Its process does not run yet.
    #[must_use]
    pub fn new(cloud: Cloud, checker: Checker, faults: Faults, trace: Trace) -> Self {
        Self(Arc::new(Inner {
            cloud,
            checker,
            faults,
            trace,
            process: Mutex::new(None),
            draining: Mutex::default(),
            died: tokio::sync::Notify::new(),
            done: tokio::sync::Notify::new(),
        }))
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.0
            .process
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process, and kills the old one if it runs.
    pub async fn start(&self) -> anyhow::Result<()> {
        let weak = Arc::downgrade(&self.0);
        let service = provider_mock::service(&self.0.cloud, move |crash| {
            let Some(inner) = weak.upgrade() else { return };
            let provider = Provider(inner);
            if crash {
                provider.kill();
                provider.0.died.notify_one();
            } else {
                provider.disconnect();
            }
        })
        .await?;
        // The old process's connections would outlive it.
        self.kill();
        *self.process() = Some(Process {
            service,
            tasks: Tasks::default(),
            terminate: CancellationToken::new(),
            drains: Arc::default(),
        });
        self.0.trace.note("provider: starts");
        Ok(())
    }

    /// Kills the process: its connections break, and its handlers are dropped.
    pub fn kill(&self) {
        if let Some(process) = self.process().take() {
            self.0.trace.note("provider: is killed");
            process.end();
        }
    }

    /// Breaks all connections. The process lives on.
    pub fn disconnect(&self) {
        if let Some(process) = &mut *self.process() {
            self.0.trace.note("provider: its connections break");
            // If a shutdown follows at the same moment, it drains only connections that come later.
            process.drains = Arc::default();
            process
                .tasks
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .abort_all();
        }
    }

    /// SIGTERM: the process accepts no connection any more, and may finish its calls in flight.
    pub fn shut_down(&self) {
        if let Some(process) = self.process().take() {
            self.0.trace.note("provider: shuts down");
            process.drains.store(true, Ordering::Relaxed);
            process.terminate.cancel();
            let mut draining = self
                .0
                .draining
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            draining.push(process);
        }
    }

    /// Returns when a scripted fault has killed the process.
    pub async fn died(&self) {
        self.0.died.notified().await;
    }

    /// Returns when a call that may have changed the cloud is answered.
    pub async fn changed(&self) {
        self.0.done.notified().await;
    }

    /// A pipe to the process, for the ccm of this identity.
    #[must_use]
    pub fn dial(&self, identity: &Arc<str>) -> Option<DuplexStream> {
        use hyper::rt::Executor as _;

        let process = self.process();
        let process = process.as_ref()?;
        let (ours, theirs) = tokio::io::duplex(256 * 1024);
        let (service, tasks, terminate) = (
            process.service.clone(),
            process.tasks.clone(),
            process.terminate.clone(),
        );
        let (identity, inner) = (Arc::clone(identity), Arc::clone(&self.0));
        let drains = Arc::clone(&process.drains);
        let connection = inner.checker.connection();
        let handler = service_fn(move |request: http::Request<Incoming>| {
            let rpc = request
                .uri()
                .path()
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            let mutates = MUTATING_RPCS.contains(&rpc.as_str());
            if mutates {
                inner.checker.sent(&identity, &rpc);
            }
            let call = (rpc != "Probe").then(|| {
                inner.trace.note(format_args!("{identity} calls {rpc}"));
                let call = inner
                    .checker
                    .call(&identity, connection, &rpc, timeout(&request));
                if inner.strike(&rpc, &identity) {
                    // A provider that shuts down does not finish a hanging call.
                    call
                } else {
                    call.of(Arc::clone(&drains))
                }
            });
            let answer = service.clone().oneshot(request.map(Body::new));
            let inner = Arc::clone(&inner);
            async move {
                let mut answer = answer.await.map_err(std::io::Error::other)?;
                // The stream of hints has no end.
                if rpc != "WatchChanges" {
                    let (parts, body) = answer.into_parts();
                    let body = body.collect().await.map_err(std::io::Error::other)?;
                    let trailers = body.trailers().cloned();
                    let body = body.to_bytes();
                    if let Some(call) = call {
                        call.answered(throttled(&rpc, &body));
                    }
                    let trailers = std::future::ready(trailers.map(Ok));
                    let body = Full::new(body).with_trailers(trailers);
                    answer = http::Response::from_parts(parts, Body::new(body));
                }
                if mutates {
                    inner.done.notify_one();
                }
                Ok::<_, std::io::Error>(answer)
            }
        });
        // A Date header would have the machine's date.
        let connection = hyper::server::conn::http2::Builder::new(tasks.clone())
            .auto_date_header(false)
            .serve_connection(TokioIo::new(theirs), handler);
        tasks.execute(async move {
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                biased;
                _ = &mut connection => return,
                () = terminate.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        });
        Some(ours)
    }
}

impl Inner {
    /// Applies the planned fault of this call. Returns whether the call hangs.
    fn strike(&self, rpc: &str, identity: &Arc<str>) -> bool {
        let Some(fault) = self.faults.rpc(rpc, identity) else {
            return false;
        };
        self.trace.note(format!("{rpc} goes wrong: {fault:?}"));
        let hangs = matches!(fault.kind, FaultKind::Hang | FaultKind::HangAfter);
        if let Err(error) = self.cloud.set_fault(fault) {
            self.trace.note(format!("no such fault: {error}"));
        }
        hangs
    }
}

/// The caller's deadline for the answer.
fn timeout<T>(request: &http::Request<T>) -> Duration {
    let told = request.headers().get("grpc-timeout");
    let told = told.and_then(|value| value.to_str().ok());
    let (number, unit) = told.map_or(("", ""), |told| told.split_at(told.len() - 1));
    let number: u64 = number.parse().unwrap_or(u64::MAX);
    match unit {
        "n" => Duration::from_nanos(number),
        "u" => Duration::from_micros(number),
        "m" => Duration::from_millis(number),
        "S" => Duration::from_secs(number),
        _ => Duration::MAX,
    }
}

impl Process {
    fn end(self) {
        self.drains.store(false, Ordering::Relaxed);
        self.tasks
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .abort_all();
    }
}
