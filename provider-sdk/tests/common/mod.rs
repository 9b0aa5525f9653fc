//! A server with a cloud for tests, and clients of its socket.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses a part of it"
)]

mod cloud;
mod requests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use provider_sdk::prelude::*;
use tempfile::TempDir;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

pub(crate) use cloud::{Cloud, Journal};
pub(crate) use requests::{cluster, code, ensure, named_cluster, node};

/// How long a test waits for an expected event.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(SOON, future).await;
    waited.unwrap_or_else(|_| panic!("waited in vain for: {what}"))
}

/// A server that runs in this process.
pub(crate) struct Running {
    pub(crate) directory: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) cloud: Cloud,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) served: JoinHandle<Result<(), ServeError>>,
}

/// A temporary directory, and the path of a test's socket in it.
pub(crate) fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("socket/p.sock");
    (directory, path)
}

pub(crate) fn endpoint(path: &Path) -> String {
    format!("unix://{}", path.display())
}

impl Running {
    pub(crate) async fn start() -> Self {
        Self::start_with(|server| server).await
    }

    pub(crate) async fn start_with(configure: impl FnOnce(Server) -> Server) -> Self {
        let (directory, path) = place();
        let cloud = Cloud::new();
        let server = configure(Server::new(cloud.clone()).endpoint(endpoint(&path)));
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.serve(async {
            let _ = stopped.await;
        }));
        let running = Self {
            directory,
            path,
            cloud,
            stop: Some(stop),
            served,
        };
        answering(&running.path).await;
        running
    }

    /// A started server after a successful `Initialize`.
    pub(crate) async fn initialized() -> Self {
        let running = Self::start().await;
        running.initialize().await;
        running
    }

    pub(crate) async fn initialize(&self) {
        self.initialize_for(cluster(), "owner-0").await;
    }

    pub(crate) async fn initialize_for(&self, cluster: Option<pb::ClusterRef>, previous: &str) {
        let request = pb::InitializeRequest {
            cluster,
            previous_owner_ids: vec![previous.into()],
            ..Default::default()
        };
        let outcome = self
            .provider()
            .await
            .initialize(request)
            .await
            .unwrap()
            .into_inner()
            .outcome;
        assert!(
            matches!(
                outcome,
                Some(pb::initialize_response::Outcome::Initialized(_))
            ),
            "{outcome:?}"
        );
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().expect("stopped once").send(());
    }

    pub(crate) async fn channel(&self) -> Channel {
        channel(&self.path).await
    }

    pub(crate) async fn provider(
        &self,
    ) -> pb::provider_service_client::ProviderServiceClient<Channel> {
        pb::provider_service_client::ProviderServiceClient::new(self.channel().await)
    }

    pub(crate) async fn instances(
        &self,
    ) -> pb::instance_service_client::InstanceServiceClient<Channel> {
        pb::instance_service_client::InstanceServiceClient::new(self.channel().await)
            .max_encoding_message_size(64 << 20)
    }

    pub(crate) async fn load_balancers(
        &self,
    ) -> pb::load_balancer_service_client::LoadBalancerServiceClient<Channel> {
        pb::load_balancer_service_client::LoadBalancerServiceClient::new(self.channel().await)
    }

    pub(crate) async fn routes(&self) -> pb::route_service_client::RouteServiceClient<Channel> {
        pb::route_service_client::RouteServiceClient::new(self.channel().await)
    }

    pub(crate) async fn lookup(&self, names: &[&str]) -> pb::LookupInstancesResponse {
        let request = pb::LookupInstancesRequest {
            cluster: cluster(),
            nodes: names.iter().map(|name| node(name)).collect(),
            facets: vec![pb::InstanceFacet::Metadata.into()],
            max_age: None,
        };
        let response = self.instances().await.lookup_instances(request).await;
        response.expect("status OK").into_inner()
    }

    pub(crate) async fn ensure(
        &self,
        name: &str,
    ) -> Result<pb::EnsureLoadBalancerResponse, tonic::Status> {
        let mut client = self.load_balancers().await;
        Ok(client
            .ensure_load_balancer(ensure(name))
            .await?
            .into_inner())
    }
}

pub(crate) async fn channel(path: &Path) -> Channel {
    Endpoint::try_from(endpoint(path))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

/// A channel over one connection, and its socket, by which a test can cut it.
pub(crate) async fn channel_and_socket(path: &Path) -> (Channel, std::os::unix::net::UnixStream) {
    let socket = std::os::unix::net::UnixStream::connect(path).unwrap();
    let cut = socket.try_clone().unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut once = Some(tokio::net::UnixStream::from_std(socket).unwrap());
    let connector = tower::service_fn(move |_: tonic::codegen::http::Uri| {
        let stream = once.take().map(hyper_util::rt::TokioIo::new);
        async move { stream.ok_or(std::io::ErrorKind::NotConnected.into()) as std::io::Result<_> }
    });
    let channel = Endpoint::from_static("http://localhost")
        .connect_with_connector(connector)
        .await
        .unwrap();
    (channel, cut)
}

/// Waits until a server accepts connections at the path.
pub(crate) async fn answering(path: &Path) {
    let tried = async {
        while tokio::net::UnixStream::connect(path).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    soon("a server that answers", tried).await;
}
