//! One connection to a provider. It never reconnects: a new connection has a new [`Link`].

use std::error::Error;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll};

use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response, Uri};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio_util::io::InspectReader;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::body::Body;

use super::call_log::CallId;
use super::error::causes;
use super::weigh::{Budget, Weight};
use crate::core::lock;
use frames::Frames;
use weighed::Weighed;

mod frames;
mod weighed;

/// A connected pipe to a provider.
pub(crate) trait Pipe: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Pipe for T {}

/// Dials a provider. It is a trait, so that a simulation can use an in-memory pipe.
#[async_trait::async_trait]
pub(crate) trait Connector: Send + Sync {
    /// Opens a new pipe to the provider. `Err` says, for the operator, why that failed.
    async fn connect(&self) -> Result<Box<dyn Pipe>, String>;
}

/// Dials a Unix socket, and checks the user of the process that listens on it.
#[derive(Clone, Debug)]
pub(crate) struct UnixConnector {
    /// The path of the socket.
    pub(crate) socket: PathBuf,
    /// The uid that the peer must have. `None`: not checked.
    pub(crate) peer_uid: Option<u32>,
}

#[async_trait::async_trait]
impl Connector for UnixConnector {
    async fn connect(&self) -> Result<Box<dyn Pipe>, String> {
        let path = self.socket.display();
        let other = |error| format!("cannot connect to the socket {path}: {error}");
        let stream = tokio::net::UnixStream::connect(&self.socket)
            .await
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    format!("waiting for the socket {path}: it does not exist yet")
                }
                io::ErrorKind::ConnectionRefused => format!(
                    "no process listens on the socket {path}: the provider is not running, or does not listen yet"
                ),
                io::ErrorKind::WouldBlock => format!(
                    "the queue of the socket {path} is full: the provider accepts no connections"
                ),
                io::ErrorKind::PermissionDenied => format!(
                    "uid {}, gid {} may not connect to the socket {path}: it must have mode 0660 in a directory of mode 0750, and both containers one primary group (runAsGroup)",
                    rustix::process::geteuid().as_raw(),
                    rustix::process::getegid().as_raw()
                ),
                _ => other(error),
            })?;
        if let Some(wanted) = self.peer_uid {
            let found = stream.peer_cred().map_err(other)?.uid();
            if found != wanted {
                return Err(format!(
                    "the socket {path} is served by uid {found}, but uid {wanted} is configured (--provider-peer-uid): sending nothing to it"
                ));
            }
        }
        Ok(Box::new(stream))
    }
}

/// The tasks of one connection. They end when this is dropped.
#[derive(Default)]
pub(super) struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    /// An executor that adds tasks to this set while the set exists.
    pub(super) fn executor(&self) -> Executor {
        Executor(Arc::downgrade(&self.0))
    }
}

/// Gives hyper's tasks to [`Tasks`]. The reference is weak, because these tasks hold clones of the
/// executor.
#[derive(Clone)]
pub(super) struct Executor(Weak<Mutex<JoinSet<()>>>);

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let Some(tasks) = self.0.upgrade() else {
            return;
        };
        let mut tasks = lock(&tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(future);
    }
}

/// The sending side of one connection. When the connection is over, every call fails.
///
/// A provider that shuts down sends GOAWAY. From then on the connection takes no new calls, and
/// waits for the calls in flight (CORE-17).
#[derive(Clone)]
pub(super) struct Link {
    send: SendRequest<Body>,
    /// The call's ID, if this link is for one call.
    call_id: Option<CallId>,
    /// The memory that all answers may take together.
    budget: Budget,
    ended: CancellationToken,
    /// Cancelled when the connection takes no new calls. A child of `ended`.
    closing: CancellationToken,
    /// The calls of sessions that are in flight. Each has a deadline.
    calls: TaskTracker,
    /// The error that ended the connection.
    broke: Arc<OnceLock<String>>,
}

/// One connection. It ends when this is dropped.
pub(super) struct Connection {
    pub(super) link: Link,
    _tasks: Tasks,
}

impl Connection {
    /// Speaks HTTP/2 over the pipe. The answers take their memory from `budget`.
    pub(super) async fn over(pipe: Box<dyn Pipe>, budget: Budget) -> Result<Self, hyper::Error> {
        use hyper::rt::Executor as _;

        const STREAM_WINDOW: u32 = 2 * 1024 * 1024;
        const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;

        let tasks = Tasks::default();
        let ended = CancellationToken::new();
        let closing = ended.child_token();
        let unplugged = CancellationToken::new();
        let (mut frames, goes_away) = (Frames::default(), closing.clone());
        let unplugs = unplugged.clone().drop_guard();
        let pipe = InspectReader::new(pipe, move |read: &[u8]| {
            // hyper drops the pipe, and so the guard, with the last stream.
            let _held = &unplugs;
            if frames.go_away(read) {
                goes_away.cancel();
            }
        });
        let (send, connection) = Builder::new(tasks.executor())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(TokioIo::new(pipe))
            .await?;
        let broke = Arc::new(OnceLock::new());
        let guard = ended.clone().drop_guard();
        let link = Link {
            send,
            call_id: None,
            budget,
            ended,
            closing,
            calls: TaskTracker::new(),
            broke,
        };
        let (broke, closing) = (Arc::clone(&link.broke), link.closing.clone());
        tasks.executor().execute(async move {
            // The guard reports the end of the connection also if this task is aborted.
            let _guard: DropGuard = guard;
            if let Err(error) = connection.await {
                // The tasks that the guard wakes read this.
                let _ = broke.set(in_full(&error));
            }
            // hyper sends no more requests. Its other task holds the pipe until the last stream is
            // over.
            closing.cancel();
            unplugged.cancelled().await;
        });
        Ok(Self {
            link,
            _tasks: tasks,
        })
    }

    /// Returns when the calls in flight are over. Each ends with its answer, at its deadline, or
    /// with the connection.
    pub(super) async fn drained(&self) {
        self.link.calls.close();
        tokio::select! {
            biased;
            () = self.link.calls.wait() => {}
            () = self.link.ended() => {}
        }
    }
}

/// An error and its causes.
fn in_full(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        let cause = cause.to_string();
        // Some errors already end with the text of their cause.
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

impl Link {
    /// Returns when the connection is over.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Returns when the connection takes no new calls: it is over, or the provider drains it.
    pub(super) async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// For people: why the connection takes no new calls.
    pub(super) fn why_closing(&self) -> String {
        match self.broke.get() {
            Some(error) => format!("the connection to the provider broke: {error}"),
            None if self.ended.is_cancelled() => "the provider closed the connection".to_owned(),
            None => "the provider is shutting down: it takes no new calls".to_owned(),
        }
    }

    /// Whether the connection takes no new calls.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_cancelled() || self.send.is_closed()
    }

    /// Marks a call with a deadline as in flight while the caller holds the token. A draining
    /// connection waits for this call.
    pub(super) fn in_flight(&self) -> TaskTrackerToken {
        self.calls.token()
    }

    /// The same connection, for one call with this ID.
    pub(super) fn for_call(&self, call_id: &CallId) -> Self {
        Self {
            call_id: Some(Arc::clone(call_id)),
            ..self.clone()
        }
    }

    /// The source of `:authority`. Some stacks reject a socket's path there.
    pub(super) fn origin() -> Uri {
        Uri::from_static("http://localhost")
    }
}

impl tower::Service<Request<Body>> for Link {
    type Response = Response<Weighed>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.send.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        const AGENT: HeaderValue =
            HeaderValue::from_static(concat!("grpc-ccm/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, AGENT);
        let id = self.call_id.as_deref();
        if let Some(Ok(id)) = id.map(HeaderValue::from_str) {
            request.headers_mut().insert("ccm-call-id", id);
        }
        let weight = Weight::of(request.uri().path(), &self.budget);
        let answer = self.send.send_request(request);
        Box::pin(async move { Ok(answer.await?.map(|body| Weighed::new(body, weight))) })
    }
}
