//! Serves a mock: as a task with [`Mock`], for tests, or with [`serve`], which takes a process of
//! its own.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use provider_sdk::{Connections, GrpcService, Server};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cloud::Cloud;
use crate::control::{Control, pb::control_service_server::ControlServiceServer};
use crate::error::StartError;
use crate::fixture::Fixture;
use crate::layer::{Death, FaultLayer};
use crate::lies::{Front, Twist, Twisted};

/// How long calls in flight may take after [`Mock::shutdown`].
const DRAIN: Duration = Duration::from_secs(5);

/// A mock provider that a task of this process serves on a Unix socket.
///
/// ```no_run
/// # async fn test() -> Result<(), provider_mock::StartError> {
/// use provider_mock::{Fault, Fixture, Instance, Mock};
///
/// let mock = Mock::start(Fixture::default(), "/tmp/x/provider.sock", None).await?;
/// mock.cloud().add_instance(Instance::new("node-1")).expect("a new name");
/// mock.kill();
/// mock.restart().await?;
/// mock.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Mock {
    cloud: Cloud,
    path: PathBuf,
    running: Mutex<Option<Running>>,
}

/// One run of the provider.
#[derive(Debug)]
struct Running {
    lines: Arc<Lines>,
    streams: CancellationToken,
    closing: CancellationToken,
    task: JoinHandle<()>,
    _front: Option<Front>,
}

/// Cuts the listener and its connections.
#[derive(Debug, Default)]
struct Lines {
    /// Ends the listener and all connections.
    kill: CancellationToken,
    connections: Connections,
}

impl Death for Lines {
    fn crash(&self) {
        self.kill.cancel();
        self.disconnect();
    }

    fn disconnect(&self) {
        self.connections.cut();
    }
}

impl Mock {
    /// Serves a cloud at this path (or `unix://` endpoint). The objects in a state file override
    /// the fixture's.
    pub async fn start(
        fixture: Fixture,
        endpoint: impl AsRef<Path>,
        state: Option<PathBuf>,
    ) -> Result<Self, StartError> {
        let cloud = Cloud::open_when_free(fixture, state.as_deref()).await?;
        Self::serve(cloud, endpoint).await
    }

    /// Serves an existing cloud. Several mocks may serve the same cloud.
    pub async fn serve(cloud: Cloud, endpoint: impl AsRef<Path>) -> Result<Self, StartError> {
        let path = endpoint.as_ref();
        let path = match path.to_str().and_then(|text| text.strip_prefix("unix://")) {
            Some(path) => PathBuf::from(path),
            None => path.to_owned(),
        };
        let mock = Self {
            cloud,
            path,
            running: Mutex::new(None),
        };
        mock.restart().await?;
        Ok(mock)
    }

    /// The cloud. Its methods can do everything that `ctl` can.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The endpoint in the format of the controller's flag.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.path.display())
    }

    /// Whether the provider serves. False after a kill, a crash or a shutdown.
    pub fn is_running(&self) -> bool {
        let running = self.running();
        running.as_ref().is_some_and(|running| {
            !running.lines.kill.is_cancelled() && !running.task.is_finished()
        })
    }

    /// Like `kill -9`: the listener and all connections end at once. The socket's file and the
    /// cloud stay.
    pub fn kill(&self) {
        if let Some(running) = self.running().take() {
            running.lines.crash();
            running.task.abort();
        }
        self.cloud.changed();
    }

    /// Cuts all connections. The provider accepts new connections.
    pub fn disconnect(&self) {
        if let Some(running) = &*self.running() {
            running.lines.disconnect();
        }
    }

    /// Serves the same cloud with a new provider and a new boot ID. Kills the current provider
    /// first, if it runs.
    pub async fn restart(&self) -> Result<(), StartError> {
        self.kill();
        let lines = Arc::new(Lines::default());
        let streams = CancellationToken::new();
        let service = grpc_service(
            &self.cloud,
            Arc::clone(&lines) as Arc<dyn Death>,
            streams.clone(),
        )
        .await?;
        let (behind, front) = front(&self.cloud, &self.path)?;
        let listener = bind(behind.as_deref().unwrap_or(&self.path))?;
        let closing = CancellationToken::new();
        let connections = futures::stream::unfold(
            (listener, lines.connections.clone()),
            |(listener, open)| async move {
                let accepted = listener.accept().await;
                let connection = accepted.map(|(stream, _)| open.guard(stream));
                Some((connection, (listener, open)))
            },
        );
        let server = tonic::transport::Server::builder()
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(4 * 1024 * 1024)
            .serve_with_incoming_shutdown(service, connections, closing.clone().cancelled_owned());
        let (kill, cloud) = (lines.kill.clone(), self.cloud.clone());
        let task = tokio::spawn(async move {
            tokio::select! {
                biased;
                ended = server => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "the mock has stopped serving");
                    }
                }
                () = kill.cancelled() => {}
            }
            cloud.changed();
        });
        *self.running() = Some(Running {
            lines,
            streams,
            closing,
            task,
            _front: front,
        });
        Ok(())
    }

    /// Like SIGTERM: open streams end with status OK, calls in flight may finish, and the socket's
    /// file is removed.
    pub async fn shutdown(&self) {
        let running = self.running().take();
        if let Some(running) = running {
            running.streams.cancel();
            running.closing.cancel();
            match tokio::time::timeout(DRAIN, running.task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "the mock's server panicked"),
                Err(_) => running.lines.crash(),
            }
            remove(&self.path);
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.kill();
        remove(&self.path);
    }
}

/// All services of a provider of this cloud without a socket, for tests over a pipe in memory.
/// `on_death` handles scripted crashes: it is called with `true` for a crash, and with `false` if
/// only the connections have to be cut.
pub async fn service(
    cloud: &Cloud,
    on_death: impl Fn(bool) + Send + Sync + 'static,
) -> Result<GrpcService, StartError> {
    struct Tell<F>(F);
    impl<F: Fn(bool) + Send + Sync + 'static> Death for Tell<F> {
        fn crash(&self) {
            (self.0)(true);
        }
        fn disconnect(&self) {
            (self.0)(false);
        }
    }
    grpc_service(cloud, Arc::new(Tell(on_death)), CancellationToken::new()).await
}

/// Serves this cloud until this process gets SIGTERM or SIGINT. A scripted crash ends the process
/// with status 137.
pub async fn serve(cloud: Cloud, endpoint: &str) -> Result<(), StartError> {
    struct Process {
        connections: Connections,
    }
    impl Death for Process {
        fn crash(&self) {
            tracing::warn!("a scripted crash ends the process");
            std::process::exit(137);
        }
        fn disconnect(&self) {
            self.connections.cut();
        }
    }
    let connections = Connections::new();
    let death = Arc::new(Process {
        connections: connections.clone(),
    });
    let path = Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
    let (behind, _front) = front(&cloud, path)?;
    let behind = behind.map(|behind| format!("unix://{}", behind.display()));
    let streams = CancellationToken::new();
    let served = server(&cloud, death.clone(), streams.clone())
        .connections(connections)
        .endpoint(behind.as_deref().unwrap_or(endpoint))
        .serve_until_signal();
    // The SDK ends the streams itself. The token `streams` is for the twist `DrainFails`. The
    // twists `DrainFails` and `DrainServes` have effects only during the drain.
    let told = async {
        let serves = cloud.twisted(Twist::DrainServes);
        if (serves || cloud.twisted(Twist::DrainFails))
            && let Ok(mut terminate) = signal(SignalKind::terminate())
        {
            terminate.recv().await;
            streams.cancel();
            if serves {
                // The SDK's first server removes its socket.
                while path.exists() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                let again = server(&cloud, death.clone(), CancellationToken::new());
                return again.endpoint(endpoint).serve_until_signal().await;
            }
        }
        std::future::pending().await
    };
    let ended = tokio::select! {
        biased;
        ended = served => ended,
        ended = told => ended,
    };
    ended.map_err(|error| StartError::Serve(error.to_string()))
}

/// If a twist needs it: a socket in front, and the path for the provider behind it.
fn front(cloud: &Cloud, path: &Path) -> Result<(Option<PathBuf>, Option<Front>), StartError> {
    let behind = path.with_extension("behind");
    let front = Front::serve(cloud, path, &behind)
        .map_err(|error| StartError::Serve(format!("{}: {error}", path.display())))?;
    Ok((front.is_some().then_some(behind), front))
}

/// The SDK's server with the mock's layer and control service.
fn server(cloud: &Cloud, death: Arc<dyn Death>, streams: CancellationToken) -> Server {
    let bytes = cloud.settings().provider.max_request_bytes;
    Server::new(Twisted::new(cloud.clone()))
        // The limit of requests, and of answers before the layer changes them.
        .max_message_bytes(bytes)
        .add_service(
            ControlServiceServer::new(Control::new(cloud.clone()))
                .max_encoding_message_size(usize::MAX),
        )
        .layer(FaultLayer {
            cloud: cloud.clone(),
            death,
            streams,
        })
}

async fn grpc_service(
    cloud: &Cloud,
    death: Arc<dyn Death>,
    streams: CancellationToken,
) -> Result<GrpcService, StartError> {
    server(cloud, death, streams)
        .into_service()
        .await
        .map_err(|error| StartError::Serve(error.to_string()))
}

/// Binds the path, and replaces an existing file.
fn bind(path: &Path) -> Result<UnixListener, StartError> {
    let fault = |what: &str, error: io::Error| {
        StartError::Serve(format!("{}: {what}: {error}", path.display()))
    };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .map_err(|error| fault("cannot make the directory", error))?;
    }
    remove(path);
    let listener =
        UnixListener::bind(path).map_err(|error| fault("cannot bind the socket", error))?;
    let mode = std::fs::Permissions::from_mode(0o660);
    std::fs::set_permissions(path, mode)
        .map_err(|error| fault("cannot set the socket's mode", error))?;
    Ok(listener)
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot remove the socket's file");
    }
}
