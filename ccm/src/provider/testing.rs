//! For tests: a provider process in memory, which a test can start, stop and start again, and a
//! `maintain` that works with it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use provider_sdk::GrpcService;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::connect::{Pipe, Tasks};
use super::{Connector, Hint, Maintain, Memory, Metrics, ProviderStatus, Session, maintain};
use crate::args::ProviderEndpoint;

/// The annotation in which the Lease remembers the cloud scope in tests.
pub(crate) const SCOPE_KEY: &str = "grpc-ccm.io/cloud-scope-mock";
const CLAIMS_KEY: &str = "grpc-ccm.io/claims-mock";

/// A provider process in memory, or none. It serves a gRPC service, such as the result of
/// `provider_sdk::Server::into_service`.
#[derive(Clone, Default)]
pub(crate) struct InMemory(Arc<Mutex<Processes>>);

#[derive(Default)]
struct Processes {
    runs: Option<Process>,
    /// The processes that shut down.
    drain: Vec<Process>,
}

struct Process {
    service: GrpcService,
    tasks: Tasks,
    /// When cancelled, each connection ends once its calls are over.
    terminate: CancellationToken,
}

impl InMemory {
    /// A provider with a running process.
    pub(crate) fn running(service: GrpcService) -> Self {
        let provider = Self::default();
        provider.start(service);
        provider
    }

    /// Starts a process. A running one is killed.
    pub(crate) fn start(&self, service: GrpcService) {
        self.0.lock().unwrap().runs = Some(Process {
            service,
            tasks: Tasks::default(),
            terminate: CancellationToken::new(),
        });
    }

    /// SIGTERM: the process accepts no connections any more. Calls in flight may finish, however
    /// long they take.
    pub(crate) fn shut_down(&self) {
        let mut processes = self.0.lock().unwrap();
        if let Some(process) = processes.runs.take() {
            process.terminate.cancel();
            processes.drain.push(process);
        }
    }

    /// Kills the process, and those that shut down. Their connections break, and their handlers are
    /// dropped.
    pub(crate) fn kill(&self) {
        *self.0.lock().unwrap() = Processes::default();
    }
}

#[async_trait::async_trait]
impl Connector for InMemory {
    async fn connect(&self) -> Result<Box<dyn Pipe>, String> {
        use hyper::rt::Executor as _;

        let processes = self.0.lock().unwrap();
        let Some(process) = &processes.runs else {
            return Err("waiting for the socket /in/memory: it does not exist yet".to_owned());
        };
        let (ours, theirs) = tokio::io::duplex(256 * 1024);
        let (service, tasks) = (process.service.clone(), &process.tasks);
        let terminate = process.terminate.clone();
        let handler = service_fn(move |request: http::Request<Incoming>| {
            let answer = service.clone().oneshot(request.map(tonic::body::Body::new));
            async move { answer.await.map_err(std::io::Error::other) }
        });
        let connection = hyper::server::conn::http2::Builder::new(tasks.executor())
            .serve_connection(TokioIo::new(theirs), handler);
        tasks.executor().execute(async move {
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                _ = &mut connection => return,
                () = terminate.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        });
        Ok(Box::new(ours))
    }
}

/// A running `maintain`. It ends when this is dropped.
pub(crate) struct Running {
    pub(crate) status: watch::Receiver<ProviderStatus>,
    pub(crate) leading: watch::Sender<Option<Arc<api::InitializeRequest>>>,
    /// The Lease's annotations.
    pub(crate) annotations: watch::Sender<BTreeMap<String, String>>,
    /// The cloud scopes that `maintain` asked to store.
    pub(crate) recorded: Arc<Mutex<Vec<String>>>,
    /// While true, cloud scopes are not stored.
    pub(crate) unwritable: Arc<AtomicBool>,
    pub(crate) hints: broadcast::Sender<Hint>,
    pub(crate) metrics: prometheus_client::registry::Registry,
    _tasks: JoinSet<()>,
}

/// The leader's request for Initialize in tests.
pub(crate) fn initialize_request() -> Arc<api::InitializeRequest> {
    Arc::new(api::InitializeRequest {
        cluster: Some(api::ClusterRef {
            name: "kubernetes".into(),
            owner_id: "owner".into(),
        }),
        ..Default::default()
    })
}

/// Starts `maintain` for a provider `mock`. It leads once `lead` is called.
pub(crate) fn maintained(connector: impl Connector + 'static) -> Running {
    maintained_probed(connector, super::PROBE_PERIOD)
}

/// As [`maintained`], with another probe period, for tests that last days.
pub(crate) fn maintained_probed(
    connector: impl Connector + 'static,
    probe_period: Duration,
) -> Running {
    let annotate = "kubectl annotate lease -n kube-system ccm --overwrite";
    maintained_as("mock", annotate, connector, probe_period)
}

/// As [`maintained_probed`], for a provider of this name. `annotate` is the command that annotates
/// the Lease.
pub(crate) fn maintained_as(
    name: &str,
    annotate: &str,
    connector: impl Connector + 'static,
    probe_period: Duration,
) -> Running {
    let (status, watching) = watch::channel(ProviderStatus::default());
    let (leading, led) = watch::channel(None);
    let (annotations, annotated) = watch::channel(BTreeMap::new());
    let (hints, _) = broadcast::channel(64);
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let mut registry = prometheus_client::registry::Registry::default();
    let unwritable = Arc::new(AtomicBool::new(false));
    let store = {
        let (recorded, annotations) = (Arc::clone(&recorded), annotations.clone());
        let unwritable = Arc::clone(&unwritable);
        move |key: &str, value: &str| {
            if key == SCOPE_KEY {
                recorded.lock().unwrap().push(value.to_owned());
                if unwritable.load(Ordering::SeqCst) {
                    return;
                }
            }
            annotations.send_modify(|all| {
                all.insert(key.to_owned(), value.to_owned());
            });
        }
    };
    let with = Maintain {
        endpoint: ProviderEndpoint {
            name: name.into(),
            socket: "/in/memory".into(),
            peer_uid: None,
            accepted_cloud_scope: None,
            load_balancer_classes: None,
            provider_id_prefixes: None,
        },
        connector: Arc::new(connector),
        leading: led,
        status,
        hints: hints.clone(),
        memory: Memory::new(name, annotated, Some(annotate.to_owned()), store),
        probe_period,
        max_call_deadline: Duration::from_mins(15),
        metrics: Metrics::register(&mut registry),
        seed: 7,
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        maintain(with).await;
    });
    Running {
        status: watching,
        leading,
        annotations,
        recorded,
        unwritable,
        hints,
        metrics: registry,
        _tasks: tasks,
    }
}

impl Running {
    /// The metrics in Prometheus' text format.
    pub(crate) fn exposition(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.metrics).unwrap();
        text
    }

    /// Accepts the held claims, as the command in the status says.
    pub(crate) async fn accept_claims(&self) {
        let held = |status: &ProviderStatus| status.session.is_some() && !status.held.is_empty();
        let status = self.until("something is held", held).await;
        let (_, accepted) = status.held.split_once("claims-mock='").unwrap();
        let accepted = accepted.trim_end_matches('\'').to_owned();
        self.annotations.send_modify(|all| {
            all.insert(CLAIMS_KEY.to_owned(), accepted);
        });
    }

    /// Takes the lead.
    pub(crate) fn lead(&self) {
        self.leading.send_replace(Some(initialize_request()));
    }

    /// Waits until the status is as wanted, for at most 10 minutes of tokio's time.
    pub(crate) async fn until(
        &self,
        what: &str,
        wanted: impl FnMut(&ProviderStatus) -> bool,
    ) -> ProviderStatus {
        let mut status = self.status.clone();
        let waiting = tokio::time::timeout(Duration::from_mins(10), status.wait_for(wanted));
        match waiting.await {
            Ok(status) => status.unwrap().clone(),
            Err(tokio::time::error::Elapsed { .. }) => panic!(
                "never came: {what}; it says {:?}",
                self.status.borrow().complaint()
            ),
        }
    }

    /// Waits until the controllers may work.
    pub(crate) async fn session(&self) -> Arc<Session> {
        let status = self
            .until("a working session", |status| status.working().is_some())
            .await;
        Arc::clone(status.working().unwrap())
    }
}
