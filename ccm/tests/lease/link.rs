//! The connection of one contender to the API server. It records what the contender sends. It can
//! be slow or cut, and can shift the times in Leases.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header, request};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use futures::StreamExt;
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::Value;
use testenv::{ControlPlane, User};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// A server between a contender and the API server, for the contender's `--master`.
pub struct Link {
    shared: Arc<Shared>,
    port: u16,
    task: JoinHandle<()>,
}

struct Shared {
    client: Client,
    /// The contender's lists and watches show only Nodes and Services with this label, because
    /// several pairs share one API server.
    selector: String,
    condition: watch::Sender<Condition>,
    sent: Mutex<Sent>,
}

/// The state of the link.
#[derive(Clone, Copy, Debug, Default)]
struct Condition {
    /// Nothing passes. Everything that was sent arrives when the link is mended.
    cut: bool,
    /// How long the request, the head of the answer and each part of its body take.
    delay: Duration,
    /// How far ahead the clock of the Lease's writer is.
    ahead: SignedDuration,
}

#[derive(Default)]
struct Sent {
    writes: Vec<Write>,
    claims: Vec<Claim>,
    told: Vec<Told>,
    forbidden: Vec<String>,
}

/// A write to a Node: what only a leader does.
#[derive(Clone, Debug)]
pub struct Write {
    pub what: String,
    pub sent: Instant,
}

/// A successful write of the Lease.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Empty for a release.
    pub holder: String,
    pub sent: Instant,
    pub answered: Instant,
}

/// A read of the Lease that was answered.
#[derive(Clone, Debug)]
pub struct Told {
    /// Empty after a release.
    pub holder: String,
    pub answered: Instant,
}

impl Link {
    /// Starts a link to this API server, with this user's rights.
    pub async fn start(plane: &ControlPlane, user: User, selector: &str) -> Self {
        let mut config = plane.config(user);
        config.default_retry = false;
        let shared = Arc::new(Shared {
            client: Client::try_from(config).unwrap(),
            selector: selector.to_owned(),
            condition: watch::Sender::default(),
            sent: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new()
            .fallback(carry)
            .with_state(Arc::clone(&shared));
        let listener = listener.tap_io(|connection| connection.set_nodelay(true).unwrap());
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self { shared, port, task }
    }

    pub fn flag(&self) -> String {
        format!("--master=http://127.0.0.1:{}", self.port)
    }

    /// From now on nothing passes in either direction. No connection breaks.
    pub fn cut(&self) {
        self.shared.condition.send_modify(|now| now.cut = true);
    }

    /// Mends the link. Delayed requests continue, even if nobody waits for their answers.
    pub fn mend(&self) {
        self.shared.condition.send_modify(|now| now.cut = false);
    }

    pub fn slow(&self, delay: Duration) {
        self.shared.condition.send_modify(|now| now.delay = delay);
    }

    /// Shifts the times in the Leases that the process writes, as if its clock were wrong by this
    /// much.
    pub fn clock_ahead(&self, ahead: SignedDuration) {
        self.shared.condition.send_modify(|now| now.ahead = ahead);
    }

    pub fn writes(&self) -> Vec<Write> {
        self.shared.sent().writes.clone()
    }

    /// The requests that the user had no right to.
    pub fn forbidden(&self) -> Vec<String> {
        self.shared.sent().forbidden.clone()
    }

    /// The contender's reads of the Lease that were answered.
    pub fn told(&self) -> Vec<Told> {
        self.shared.sent().told.clone()
    }

    pub fn claims(&self) -> Vec<Claim> {
        self.shared.sent().claims.clone()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One part of a request or an answer: takes the delay, and waits while the link is cut.
    async fn way(&self) {
        let mut condition = self.condition.subscribe();
        let delay = condition.borrow_and_update().delay;
        sleep(delay).await;
        let _ = condition.wait_for(|now| !now.cut).await;
    }
}

async fn carry(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    // In its own task: the request arrives even if nobody waits for the answer.
    let (answer, answered) = oneshot::channel();
    tokio::spawn(async move {
        let _ = answer.send(shared.forward(head, body.to_bytes()).await);
    });
    let lost = |_| StatusCode::BAD_GATEWAY.into_response();
    answered.await.unwrap_or_else(lost)
}

impl Shared {
    async fn forward(self: Arc<Self>, mut head: request::Parts, body: Bytes) -> Response {
        let sent = Instant::now();
        let path = head.uri.path().to_owned();
        let what = format!("{} {path}", head.method);
        let reads = head.method == Method::GET;
        let lease = !reads && path.contains("/leases");
        if !reads && path.starts_with("/api/v1/nodes/") {
            let what = what.clone();
            self.sent().writes.push(Write { what, sent });
        }
        let (body, claim) = if lease {
            self.lease(&body)
        } else {
            (body, None)
        };
        let lists = ["/api/v1/nodes", "/api/v1/services"].contains(&path.as_str());
        if reads && lists {
            let query = head.uri.query().unwrap_or_default();
            let uri = format!("{path}?{query}&labelSelector={}", self.selector);
            head.uri = uri.parse().unwrap();
        }
        // The link's client sets these headers itself.
        for name in [header::HOST, header::AUTHORIZATION, header::CONNECTION] {
            head.headers.remove(name);
        }
        head.headers.remove(header::CONTENT_LENGTH);
        self.way().await;
        let request = Request::from_parts(head, kube::client::Body::from(body));
        let (mut head, data) = match self.client.send(request).await {
            Ok(answer) => answer.into_parts(),
            Err(error) => return (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
        };
        if head.status == StatusCode::FORBIDDEN {
            self.sent().forbidden.push(what);
        }
        self.way().await;
        if let Some(holder) = claim
            && head.status.is_success()
        {
            let answered = Instant::now();
            self.sent().claims.push(Claim {
                holder,
                sent,
                answered,
            });
        }
        head.headers.remove(header::TRANSFER_ENCODING);
        if reads && path.contains("/leases/") && head.status.is_success() {
            let Ok(data) = data.collect().await else {
                return StatusCode::BAD_GATEWAY.into_response();
            };
            let data = data.to_bytes();
            self.way().await;
            let holder = holder(&data);
            let answered = Instant::now();
            self.sent().told.push(Told { holder, answered });
            return Response::from_parts(head, Body::from(data));
        }
        let shared = Arc::clone(&self);
        let data = data.into_data_stream().then(move |data| {
            let shared = Arc::clone(&shared);
            async move {
                shared.way().await;
                data
            }
        });
        Response::from_parts(head, Body::from_stream(data))
    }

    /// The holder in a Lease that is being written, and the Lease as the contender's clock would
    /// have written it.
    fn lease(&self, body: &Bytes) -> (Bytes, Option<String>) {
        let Ok(mut lease) = serde_json::from_slice::<Value>(body) else {
            panic!("a Lease that is no JSON: {body:?}");
        };
        let ahead = self.condition.borrow().ahead;
        let spec = &mut lease["spec"];
        for field in ["acquireTime", "renewTime"] {
            let written = spec[field].as_str().and_then(|text| text.parse().ok());
            if let Some(written) = written.map(|written: Timestamp| written + ahead) {
                spec[field] = format!("{written:.6}").into();
            }
        }
        let lease = Bytes::from(lease.to_string());
        let holder = holder(&lease);
        (lease, Some(holder))
    }
}

/// The holder in a Lease.
fn holder(lease: &Bytes) -> String {
    let lease: Value = serde_json::from_slice(lease).unwrap_or_default();
    let holder = lease["spec"]["holderIdentity"].as_str();
    holder.unwrap_or_default().to_owned()
}
