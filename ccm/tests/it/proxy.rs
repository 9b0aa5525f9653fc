//! A proxy between a ccm and the API server. It records requests, answers some in the server's
//! place, and cuts watches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http_body_util::BodyExt;
use kube::Client;
use kube::config::AuthInfo;
use testenv::{ControlPlane, User};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A proxy for `--master`, beside the ccm's kubeconfig.
pub struct Proxy {
    shared: Arc<Shared>,
    port: u16,
    task: JoinHandle<()>,
}

struct Shared {
    /// The client with the ccm's identity.
    client: Client,
    /// The client without an identity, for requests that bring their own.
    anonymous: Client,
    state: Mutex<Inner>,
    /// Notified when a ccm waits at the write at which the test kills it.
    trapped: Notify,
}

#[derive(Default)]
struct Inner {
    rules: Vec<Rule>,
    seen: Vec<Seen>,
    streams: CancellationToken,
    trap: Option<Trap>,
}

/// The write at which the test kills the ccm.
struct Trap {
    /// A part of the paths of the writes that count.
    path: String,
    /// How many more such writes pass before the trap.
    passes: usize,
    /// Whether the proxy forwards the write before it stops.
    forwarded: bool,
}

/// An answer in the server's place.
pub struct Rule {
    /// The request's method.
    pub method: &'static str,
    /// A part of its path and query.
    pub path: &'static str,
    /// For how many requests the rule holds.
    pub times: usize,
    /// The answer's status.
    pub status: u16,
    /// Its `Retry-After`.
    pub retry_after: Option<u32>,
    /// Its body. If empty, a Kubernetes Status.
    pub body: String,
}

/// A request, and the status of its answer.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    /// With its query.
    pub path: String,
    pub status: u16,
    pub at: Instant,
}

impl Rule {
    /// Gives this answer to the next `times` such requests.
    pub fn new(method: &'static str, path: &'static str, times: usize, status: u16) -> Self {
        Self {
            method,
            path,
            times,
            status,
            retry_after: None,
            body: String::new(),
        }
    }

    fn answer(&self) -> Response {
        let body = if self.body.is_empty() {
            serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "scripted by the test", "reason": "Test", "code": self.status,
            })
            .to_string()
        } else {
            self.body.clone()
        };
        let status = StatusCode::from_u16(self.status).unwrap();
        let mut answer =
            (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if let Some(seconds) = self.retry_after {
            answer
                .headers_mut()
                .insert(header::RETRY_AFTER, seconds.into());
        }
        answer
    }
}

impl Proxy {
    /// Starts a proxy in front of this control plane.
    pub async fn start(plane: &ControlPlane) -> Self {
        let mut config = plane.config(User::Ccm);
        config.default_retry = false;
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        let shared = Arc::new(Shared {
            client: Client::try_from(config).unwrap(),
            anonymous: Client::try_from(anonymous).unwrap(),
            state: Mutex::default(),
            trapped: Notify::new(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self { shared, port, task }
    }

    /// The flag with which a ccm uses this proxy.
    pub fn flag(&self) -> String {
        format!("--master=http://127.0.0.1:{}", self.port)
    }

    /// Adds a rule.
    pub fn answer(&self, rule: Rule) {
        self.shared.state().rules.push(rule);
    }

    /// Stops at the write with this number (1 is the first) among the writes with `path` in their
    /// paths: right before the proxy forwards it, or when the API server has executed it. The ccm
    /// gets no answer to the write.
    pub fn trap(&self, path: &str, number: usize, forwarded: bool) {
        let trap = Trap {
            path: path.to_owned(),
            passes: number.saturating_sub(1),
            forwarded,
        };
        self.shared.state().trap = Some(trap);
    }

    /// Returns true when a ccm waits in the trap: then the test can kill it. Returns false when
    /// `what` has ended without that. In both cases the trap is gone.
    pub async fn trapped_during<T>(&self, what: impl Future<Output = T>) -> bool {
        let trapped = tokio::select! {
            _ = what => false,
            () = self.shared.trapped.notified() => true,
        };
        // The forwarded request may end `what` before the trap is signalled.
        trapped
            || self.shared.state().trap.take().is_none() && {
                self.shared.trapped.notified().await;
                true
            }
    }

    /// Cuts all answers that are still being streamed: the watches.
    pub fn cut(&self) {
        std::mem::take(&mut self.shared.state().streams).cancel();
    }

    /// Answered requests so far with this method (any if empty) and this text in their path.
    pub fn seen(&self, method: &str, path: &str) -> Vec<Seen> {
        let state = self.shared.state();
        let fits =
            |seen: &&Seen| (method.is_empty() || seen.method == method) && seen.path.contains(path);
        state.seen.iter().filter(fits).cloned().collect()
    }

    /// Answered requests so far that are no GET and not about a Lease.
    pub fn writes(&self) -> Vec<Seen> {
        let state = self.shared.state();
        let fits = |seen: &&Seen| seen.method != "GET" && !seen.path.contains("/leases");
        state.seen.iter().filter(fits).cloned().collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Takes the trap if this is its write.
    fn springs(&mut self, method: &str, path: &str) -> Option<Trap> {
        let trap = self.trap.as_mut()?;
        if method == "GET" || !path.contains(&trap.path) {
            return None;
        }
        if trap.passes > 0 {
            trap.passes -= 1;
            return None;
        }
        self.trap.take()
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let method = request.method().to_string();
    let path = request.uri().path_and_query().unwrap().to_string();
    let (scripted, streams) = {
        let mut state = shared.state();
        let rule = state
            .rules
            .iter_mut()
            .find(|rule| rule.times > 0 && rule.method == method && path.contains(rule.path));
        let scripted = rule.map(|rule| {
            rule.times -= 1;
            rule.answer()
        });
        (scripted, state.streams.clone())
    };
    let at = Instant::now();
    let trap = shared.state().springs(&method, &path);
    if let Some(Trap { forwarded, .. }) = trap {
        if forwarded {
            forward(&shared, request, streams).await;
        }
        shared.trapped.notify_one();
        return std::future::pending().await;
    }
    let answer = match scripted {
        Some(answer) => answer,
        None => forward(&shared, request, streams).await,
    };
    let status = answer.status().as_u16();
    shared.state().seen.push(Seen {
        method,
        path,
        status,
        at,
    });
    answer
}

async fn forward(shared: &Shared, request: Request, streams: CancellationToken) -> Response {
    let (mut head, body) = request.into_parts();
    // The proxy's client sets these headers itself.
    head.headers.remove(header::HOST);
    head.headers.remove(header::CONNECTION);
    let client = if head.headers.contains_key(header::AUTHORIZATION) {
        &shared.anonymous
    } else {
        &shared.client
    };
    let Ok(body) = body.collect().await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let request = Request::from_parts(head, kube::client::Body::from(body.to_bytes()));
    let (mut head, body) = match client.send(request).await {
        Ok(answer) => answer.into_parts(),
        Err(error) => return (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    };
    head.headers.remove(header::TRANSFER_ENCODING);
    let cut = futures::stream::once(streams.cancelled_owned())
        .map(|()| Err::<Bytes, axum::BoxError>("cut by the test".into()));
    let data = body
        .into_data_stream()
        .map(|data| data.map_err(axum::BoxError::from));
    // Ends with the data, or with the cut.
    let mut over = false;
    let data = data.map(Some).chain(futures::stream::once(async { None }));
    let body = futures::stream::select(data, cut.map(Some)).take_while(move |item| {
        let go_on = !over && item.is_some();
        over = matches!(item, Some(Err(_)));
        std::future::ready(go_on)
    });
    Response::from_parts(
        head,
        Body::from_stream(body.map(|item| item.unwrap_or_else(|| Ok(Bytes::new())))),
    )
}
