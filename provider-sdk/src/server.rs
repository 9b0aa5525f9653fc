//! The server: one provider on one Unix socket.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::TryFutureExt;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, HealthService};
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt};
use tracing::Instrument;

use cloud_provider_api::v1alpha1 as pb;
use pb::cluster_service_server::ClusterServiceServer;
use pb::instance_service_server::InstanceServiceServer;
use pb::load_balancer_service_server::LoadBalancerServiceServer;
use pb::provider_service_server::ProviderServiceServer;
use pb::route_service_server::RouteServiceServer;
use pb::volume_service_server::VolumeServiceServer;
use pb::zone_service_server::ZoneServiceServer;

use crate::socket::{self, Connections, DEFAULT_ENDPOINT, Peers, ServeError};
use crate::wrap::{Core, Wrap};
use crate::{LoadBalancers, Provider};

/// All gRPC services of a provider as one tower service. [`Server::layer`] wraps it.
pub type GrpcService =
    BoxCloneSyncService<http::Request<Body>, http::Response<Body>, tonic::codegen::StdError>;

/// The default time for calls in flight after the shutdown begins.
const DRAIN: Duration = Duration::from_secs(20);
/// How long the server waits for connections to close: once after it cancels the calls, and once
/// after it cuts the connections.
const CLOSE: Duration = Duration::from_secs(1);

/// Serves one provider on one Unix socket, with health (`grpc.health.v1`) and reflection
/// (`grpc.reflection.v1`).
///
/// ```no_run
/// # use provider_sdk::*;
/// # async fn serve(my_cloud: impl Provider) -> Result<(), ServeError> {
/// Server::new(my_cloud).serve_until_signal().await
/// # }
/// ```
///
/// At the start the server creates a missing directory with mode 0750. The socket appears at its
/// path with mode 0660. The server does not start if the path has a symbolic link, if a process
/// answers on an existing socket, or if the file at the path is no socket. It replaces a socket on
/// which no process answers.
///
/// At the shutdown the open health streams get `NOT_SERVING`. The server removes the socket's file,
/// accepts no more connections, and ends the health and the WatchChanges streams with status OK.
/// Calls in flight may finish within [`Server::drain`]. After that the server cancels them (gRPC
/// status UNAVAILABLE, "unknown" to the controller), and cuts what is open a second later.
///
/// The process must be built with `panic = "unwind"` (Cargo's default), or a panic ends it.
#[must_use = "a server does nothing until it is served"]
pub struct Server {
    provider: Arc<dyn Provider>,
    endpoint: String,
    peer_uid: Option<u32>,
    socket_group: Option<u32>,
    drain: Duration,
    connections: Connections,
    max_message_bytes: usize,
    extra: Routes,
    extra_names: Vec<&'static str>,
    descriptors: Vec<&'static [u8]>,
    layers: Vec<Box<dyn FnOnce(GrpcService) -> GrpcService + Send>>,
}

impl Server {
    /// A server of this provider at [`DEFAULT_ENDPOINT`].
    pub fn new(provider: impl Provider) -> Self {
        Self::from_arc(Arc::new(provider))
    }

    /// The same for a shared provider, for example if a further gRPC service uses it too.
    pub fn from_arc(provider: Arc<dyn Provider>) -> Self {
        Self {
            provider,
            endpoint: DEFAULT_ENDPOINT.to_owned(),
            peer_uid: None,
            socket_group: None,
            drain: DRAIN,
            connections: Connections::new(),
            max_message_bytes: pb::MOST_MESSAGE_BYTES,
            extra: Routes::default(),
            extra_names: Vec::new(),
            descriptors: Vec::new(),
            layers: Vec::new(),
        }
    }

    /// Sets the endpoint: `unix://` and an absolute path of at most 107 bytes, in a directory of
    /// its own.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = endpoint.into();
        self
    }

    /// Accepts only connections of this user and of the server's own user. `None`, the default:
    /// accepts every user whom the mode of the socket and its directory allows.
    pub fn peer_uid(mut self, uid: impl Into<Option<u32>>) -> Self {
        self.peer_uid = uid.into();
        self
    }

    /// Sets the group of the socket, and of the directories that the server creates for it. `None`,
    /// the default: each has the group of its parent directory if that has the setgid bit, else the
    /// process's primary group. The directories that the server creates have no setgid bit.
    pub fn socket_group(mut self, gid: impl Into<Option<u32>>) -> Self {
        self.socket_group = gid.into();
        self
    }

    /// Sets how long calls in flight may take after the shutdown begins; 20 s by default.
    pub fn drain(mut self, cap: Duration) -> Self {
        self.drain = cap;
        self
    }

    /// Adds the server's connections to `connections`, so that a clone of it can cut them while the
    /// server runs: for tests of broken connections.
    pub fn connections(mut self, connections: Connections) -> Self {
        self.connections = connections;
        self
    }

    /// Sets the size limit of requests and answers; 16 MiB by default, at least 64 KiB. The SDK
    /// reports it to the controller as `max_request_bytes`.
    pub fn max_message_bytes(mut self, bytes: usize) -> Self {
        self.max_message_bytes = bytes.max(64 * 1024);
        self
    }

    /// Serves another gRPC service on the same socket, and reports its health. The SDK does not
    /// catch panics in this service.
    pub fn add_service<S>(mut self, service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.extra = self.extra.add_service(service);
        self.extra_names.push(S::NAME);
        self
    }

    /// Adds an encoded `FileDescriptorSet`, so that reflection knows the services of
    /// [`Server::add_service`].
    pub fn reflect(mut self, descriptors: &'static [u8]) -> Self {
        self.descriptors.push(descriptors);
        self
    }

    /// Wraps all services in a tower layer: for call logs, metrics or scripted faults. The last
    /// layer is the outermost.
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<GrpcService> + Send + 'static,
        L::Service: Service<http::Request<Body>, Response = http::Response<Body>>
            + Clone
            + Send
            + Sync
            + 'static,
        <L::Service as Service<http::Request<Body>>>::Error: Into<tonic::codegen::StdError>,
        <L::Service as Service<http::Request<Body>>>::Future: Send + 'static,
    {
        self.layers.push(Box::new(move |inner| {
            BoxCloneSyncService::new(layer.layer(inner).map_err(Into::into))
        }));
        self
    }

    /// Serves until SIGTERM or SIGINT, then shuts down as described above.
    pub async fn serve_until_signal(self) -> Result<(), ServeError> {
        use tokio::signal::unix::{SignalKind, signal};
        let on = |kind, what| {
            signal(kind).map_err(|source| ServeError::Io {
                what: "wait for the signal",
                path: what,
                source,
            })
        };
        let mut terminate = on(SignalKind::terminate(), "SIGTERM".into())?;
        let mut interrupt = on(SignalKind::interrupt(), "SIGINT".into())?;
        self.serve(async move {
            tokio::select! {
                biased;
                _ = terminate.recv() => tracing::info!("SIGTERM: the provider shuts down"),
                _ = interrupt.recv() => tracing::info!("SIGINT: the provider shuts down"),
            }
        })
        .await
    }

    /// Serves until `shutdown` resolves, then shuts down as described above.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let path = socket::path_of(&self.endpoint)?;
        let (drain, group) = (self.drain, self.socket_group);
        let peers = Peers {
            uid: self.peer_uid,
            own: rustix::process::geteuid().as_raw(),
        };
        let endpoint = self.endpoint.clone();
        let open = self.connections.clone();
        let Services {
            service,
            core,
            mut health,
            names,
        } = self.build().await?;
        let (socket, listener) = socket::bind(path, group).await?;
        tracing::info!(endpoint, services = ?names, "the provider serves");

        let connections = futures::stream::unfold(
            (listener, open.clone()),
            move |(listener, open)| async move {
                let connection = socket::accept(&listener, peers, &open).await;
                Some((Ok::<_, Infallible>(connection), (listener, open)))
            },
        );
        let closing = CancellationToken::new();
        let mut server = std::pin::pin!(
            tonic::transport::Server::builder()
                .initial_stream_window_size(1024 * 1024)
                .initial_connection_window_size(4 * 1024 * 1024)
                .serve_with_incoming_shutdown(
                    service,
                    connections,
                    closing.clone().cancelled_owned()
                )
        );
        tokio::select! {
            biased;
            ended = &mut server => return Ok(ended?),
            () = shutdown => {}
        }

        not_serving(&mut health, &names).await;
        // The order of CORE-17: the socket's file, GOAWAY, the streams. tonic would wait for the
        // streams for ever. Calls in flight may finish.
        drop(socket);
        closing.cancel();
        core.streams.cancel();
        if let Ok(ended) = tokio::time::timeout(drain, &mut server).await {
            tracing::info!("the provider has shut down");
            return Ok(ended?);
        }
        tracing::warn!(?drain, "calls still run after the drain; cancelling them");
        core.calls.cancel();
        if let Ok(ended) = tokio::time::timeout(CLOSE, &mut server).await {
            return Ok(ended?);
        }
        tracing::warn!("connections are still open; cutting them");
        open.cut();
        match tokio::time::timeout(CLOSE, &mut server).await {
            Ok(ended) => Ok(ended?),
            Err(_) => Ok(()),
        }
    }

    /// All services without a socket, for tests that serve over a pipe in memory. The caller then
    /// has to implement the shutdown, the peer check and the drain.
    pub async fn into_service(self) -> Result<GrpcService, ServeError> {
        Ok(self.build().await?.service)
    }

    async fn build(self) -> Result<Services, ServeError> {
        let provider = &self.provider;
        let info = provider.info();
        let balancers = provider.load_balancers();
        let balancers = balancers.map(LoadBalancers::options);
        if let Some(fault) = info.fault(provider.instances().is_some(), balancers.as_ref()) {
            return Err(ServeError::Provider(fault));
        }
        let core = Arc::new(Core::new(Arc::clone(provider), self.max_message_bytes));
        let mut routes = self.extra;
        let mut names: Vec<&'static str> = Vec::new();

        // Registers the services that the provider offers. Its capabilities omit the others.
        macro_rules! offer {
            ($offered:expr, $server:ident) => {
                if $offered {
                    let service = $server::new(Wrap(Arc::clone(&core)))
                        .max_decoding_message_size(self.max_message_bytes)
                        .max_encoding_message_size(self.max_message_bytes);
                    names.push($server::<Wrap>::NAME);
                    routes = routes.add_service(service);
                }
            };
        }
        offer!(true, ProviderServiceServer);
        offer!(provider.instances().is_some(), InstanceServiceServer);
        offer!(provider.zones().is_some(), ZoneServiceServer);
        offer!(
            provider.load_balancers().is_some(),
            LoadBalancerServiceServer
        );
        offer!(provider.routes().is_some(), RouteServiceServer);
        offer!(provider.clusters().is_some(), ClusterServiceServer);
        offer!(provider.volumes().is_some(), VolumeServiceServer);
        names.extend(self.extra_names);

        let mut reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .with_service_name("grpc.health.v1.Health")
            .with_service_name("grpc.reflection.v1.ServerReflection");
        for descriptors in self.descriptors {
            reflection = reflection.register_encoded_file_descriptor_set(descriptors);
        }
        for name in &names {
            reflection = reflection.with_service_name(*name);
        }
        let reflection = reflection.build_v1().map_err(|error| {
            ServeError::Provider(format!(
                "cannot read the file descriptors for reflection: {error}"
            ))
        })?;

        let health = HealthReporter::new();
        let health_service = HealthService::from_health_reporter(health.clone());
        routes = routes
            .add_service(tonic_health::pb::health_server::HealthServer::new(
                health_service,
            ))
            .add_service(reflection);

        let routes = routes.prepare();
        let mut service =
            BoxCloneSyncService::new(tower::service_fn(move |request: http::Request<Body>| {
                let span = span_of(&request);
                let answered = routes.clone().oneshot(request);
                answered
                    .err_into::<tonic::codegen::StdError>()
                    .instrument(span)
            }));
        for layer in self.layers {
            service = layer(service);
        }
        for name in &names {
            health
                .set_service_status(name, ServingStatus::Serving)
                .await;
        }
        Ok(Services {
            service,
            core,
            health,
            names,
        })
    }
}

/// The span of a call. The `ccm` logs the same call ID.
fn span_of(request: &http::Request<Body>) -> tracing::Span {
    /// The longest call ID that the span records: other callers may send a header of any length.
    const MOST: usize = 64;
    let rpc = request.uri().path().rsplit('/').next();
    let call_id = request.headers().get("ccm-call-id");
    let call_id = call_id.and_then(|id| id.to_str().ok());
    tracing::info_span!("call", rpc, call_id = call_id.filter(|id| id.len() <= MOST))
}

struct Services {
    service: GrpcService,
    core: Arc<Core>,
    health: HealthReporter,
    names: Vec<&'static str>,
}

/// Reports `NOT_SERVING` to all health watchers, then ends their streams by removing the status.
async fn not_serving(health: &mut HealthReporter, names: &[&'static str]) {
    for name in names.iter().copied().chain([""]) {
        health
            .set_service_status(name, ServingStatus::NotServing)
            .await;
        health.clear_service_status(name).await;
    }
}
