//! For tests: a provider process in memory, which can be started, killed and started again, and a `maintain` that works with it.

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

use super::connect::Tasks;
use super::connect::{DialError, Pipe};
use super::{Connector, Hint, Maintain, Memory, Metrics, ProviderStatus, Session, maintain};
use crate::args::ProviderEndpoint;

/// Where the Lease remembers the cloud scope in tests.
pub(crate) const SCOPE_KEY: &str = "grpc-ccm.io/cloud-scope-mock";
const CLAIMS_KEY: &str = "grpc-ccm.io/claims-mock";

/// A provider process in memory, or none. It serves what `provider_sdk::Server::into_service` gives.
#[derive(Clone, Default)]
pub(crate) struct InMemory(Arc<Mutex<Processes>>);

#[derive(Default)]
struct Processes {
    runs: Option<Process>,
    /// Those that shut down.
    drain: Vec<Process>,
}

struct Process {
    service: GrpcService,
    tasks: Tasks,
    /// Its connections end when their calls are over.
    terminate: CancellationToken,
}

impl InMemory {
    /// A provider that runs.
    pub(crate) fn running(service: GrpcService) -> Self {
        let provider = Self::default();
        provider.start(service);
        provider
    }

    /// Starts a process; one that runs is killed.
    pub(crate) fn start(&self, service: GrpcService) {
        self.0.lock().unwrap().runs = Some(Process {
            service,
            tasks: Tasks::default(),
            terminate: CancellationToken::new(),
        });
    }

    /// SIGTERM: nobody is accepted any more, and calls in flight may finish, however long that takes.
    pub(crate) fn shut_down(&self) {
        let mut processes = self.0.lock().unwrap();
        if let Some(process) = processes.runs.take() {
            process.terminate.cancel();
            processes.drain.push(process);
        }
    }

    /// Kills the process, and those that shut down: connections break, handlers are dropped.
    pub(crate) fn kill(&self) {
        *self.0.lock().unwrap() = Processes::default();
    }
}

#[async_trait::async_trait]
impl Connector for InMemory {
    async fn connect(&self) -> Result<Box<dyn Pipe>, DialError> {
        use hyper::rt::Executor as _;

        let processes = self.0.lock().unwrap();
        let Some(process) = &processes.runs else {
            return Err(DialError::Missing("/in/memory".into()));
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

/// A `maintain` at work. It ends with this.
pub(crate) struct Running {
    pub(crate) status: watch::Receiver<ProviderStatus>,
    pub(crate) leading: watch::Sender<Option<Arc<api::InitializeRequest>>>,
    /// The Lease's annotations.
    pub(crate) annotations: watch::Sender<BTreeMap<String, String>>,
    /// The cloud scopes that were to be stored.
    pub(crate) recorded: Arc<Mutex<Vec<String>>>,
    /// The Lease cannot be written.
    pub(crate) unwritable: Arc<AtomicBool>,
    pub(crate) hints: broadcast::Sender<Hint>,
    pub(crate) metrics: prometheus_client::registry::Registry,
    _tasks: JoinSet<()>,
}

/// What the leader initialises with in tests.
pub(crate) fn initialize_request() -> Arc<api::InitializeRequest> {
    Arc::new(api::InitializeRequest {
        cluster: Some(api::ClusterRef {
            name: "kubernetes".into(),
            owner_id: "owner".into(),
        }),
        ..Default::default()
    })
}

/// Starts `maintain` for a provider `mock`; it leads when `lead` is called.
pub(crate) fn maintained(connector: impl Connector + 'static) -> Running {
    maintained_probed(connector, super::PROBE_PERIOD)
}

/// The same with another probe period: for tests of days.
pub(crate) fn maintained_probed(
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
    let annotate = "kubectl annotate lease -n kube-system ccm --overwrite".to_owned();
    let with = Maintain {
        endpoint: ProviderEndpoint {
            name: "mock".into(),
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
        memory: Memory::new("mock", annotated, Some(annotate), store),
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
    /// Accepts what is held of the provider's claims, as the command says that stands in the status.
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

    /// Waits until the status is as asked; 10 minutes of tokio's time at most.
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
