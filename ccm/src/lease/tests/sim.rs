//! An API server in memory for Leases only, with optimistic locking and watches. Its network delays
//! requests, fails them, loses answers and delivers requests twice. A sent request takes effect
//! even if the sender has given up.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::sync::{broadcast, oneshot};
use tokio::time::sleep;
use tokio_stream::wrappers::BroadcastStream;

type Answer = UnsyncBoxBody<Bytes, kube::Error>;

/// The faults on the way to the server and back. Chances are per request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// The longest random time of each way. It is added to `least`.
    pub(super) delay: Duration,
    /// The shortest time of each way.
    pub(super) least: Duration,
    /// The chance that a way may take up to ten times `delay`.
    pub(super) slow: f64,
    /// The chance of a 500 or 429 without effect.
    pub(super) refuse: f64,
    /// The chance that the server never sees the request. Half of these hang, half break.
    pub(super) cut: f64,
    /// The chance that the request takes effect but its answer is lost. Half of these hang, half
    /// break.
    pub(super) lose: f64,
    /// The chance that a write arrives a second time, later.
    pub(super) twice: f64,
}

const GOOD: Faults = Faults {
    delay: Duration::ZERO,
    least: Duration::ZERO,
    slow: 0.0,
    refuse: 0.0,
    cut: 0.0,
    lose: 0.0,
    twice: 0.0,
};

/// No request arrives, and all hang.
pub(super) const CUT_OFF: Faults = Faults { cut: 2.0, ..GOOD };

/// All requests take effect, and no answer comes back.
pub(super) const UNANSWERED: Faults = Faults { lose: 2.0, ..GOOD };

#[derive(Clone)]
pub(super) struct Sim {
    state: Arc<Mutex<State>>,
    events: broadcast::Sender<Value>,
}

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    /// The method of each request that arrived, and whether it is a watch.
    seen: Vec<(Method, bool)>,
}

/// One process's connection to the server, with faults that can change.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) client: Client,
    faults: Arc<Mutex<Faults>>,
}

impl Wire {
    pub(super) fn set(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }
}

/// The fate of one request.
struct Fate {
    there: Duration,
    back: Duration,
    cut: bool,
    refuse: Option<StatusCode>,
    lose: bool,
    hang: bool,
    again: Option<Duration>,
}

fn fate(faults: Faults, rng: &mut StdRng) -> Fate {
    let way = |rng: &mut StdRng| {
        let most = if rng.random::<f64>() < faults.slow {
            10.0
        } else {
            1.0
        };
        faults.least + faults.delay.mul_f64(most * rng.random::<f64>())
    };
    let all = faults.lose > 1.0 || faults.cut > 1.0;
    Fate {
        there: way(rng),
        back: way(rng),
        cut: rng.random::<f64>() < faults.cut,
        refuse: (rng.random::<f64>() < faults.refuse).then(|| {
            if rng.random::<bool>() {
                StatusCode::TOO_MANY_REQUESTS
            } else {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }),
        lose: rng.random::<f64>() < faults.lose,
        hang: all || rng.random::<bool>(),
        again: (rng.random::<f64>() < faults.twice).then(|| way(rng) * 3),
    }
}

impl Sim {
    pub(super) fn new() -> Self {
        Self {
            state: Arc::default(),
            events: broadcast::Sender::new(1024),
        }
    }

    pub(super) fn wire(&self, faults: Faults, seed: u64) -> Wire {
        let faults = Arc::new(Mutex::new(faults));
        let rng = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
        let (sim, now) = (self.clone(), Arc::clone(&faults));
        let service = tower::service_fn(move |request: Request<Body>| {
            let sim = sim.clone();
            let faults = *now.lock().unwrap();
            let fate = fate(faults, &mut rng.lock().unwrap());
            async move { sim.carry(request, fate).await }
        });
        Wire {
            client: Client::new(service, "default"),
            faults,
        }
    }

    /// The present Lease.
    pub(super) fn lease(&self) -> Option<Value> {
        self.state.lock().unwrap().lease.clone()
    }

    pub(super) fn holder(&self) -> String {
        let lease = self.lease().unwrap_or_default();
        lease["spec"]["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// How many requests have arrived: watches, and others.
    pub(super) fn requests(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        let watches = state.seen.iter().filter(|(_, watch)| *watch).count();
        (watches, state.seen.len() - watches)
    }

    /// Changes the Lease as with kubectl, or creates it.
    pub(super) fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut lease = self.lease().unwrap_or_else(|| {
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"},
            })
        });
        change(&mut lease);
        self.store(&mut self.state.lock().unwrap(), lease, "MODIFIED");
    }

    pub(super) fn delete(&self) {
        let lease = self.state.lock().unwrap().lease.take();
        let _ = self
            .events
            .send(json!({"type": "DELETED", "object": lease}));
    }

    fn store(&self, state: &mut State, mut lease: Value, kind: &str) -> Value {
        state.version += 1;
        lease["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.lease = Some(lease.clone());
        let _ = self.events.send(json!({"type": kind, "object": lease}));
        lease
    }

    async fn carry(
        self,
        request: Request<Body>,
        fate: Fate,
    ) -> Result<Response<Answer>, kube::Error> {
        let broken = || kube::Error::Service("connection reset by peer".into());
        let (parts, body) = request.into_parts();
        let watch = parts
            .uri
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let body = body.collect_bytes().await?;
        if fate.cut {
            sleep(fate.there).await;
            if fate.hang {
                std::future::pending::<Infallible>().await;
            }
            return Err(broken());
        }
        if watch && !fate.lose {
            return Ok(self.watch());
        }
        // In a task of its own: a sent request takes effect even if the sender stops waiting.
        let (answered, answer) = oneshot::channel();
        let (sim, method) = (self.clone(), parts.method);
        tokio::spawn(async move {
            sleep(fate.there).await;
            let _ = answered.send(match fate.refuse {
                Some(code) => Err(code),
                None => sim.handle(&method, &body, watch),
            });
            if let Some(later) = fate.again.filter(|_| method != Method::GET) {
                sleep(later).await;
                let _ = sim.handle(&method, &body, watch);
            }
        });
        let answer = answer.await.map_err(|_| broken())?;
        if fate.lose {
            if fate.hang {
                std::future::pending::<Infallible>().await;
            }
            return Err(broken());
        }
        sleep(fate.back).await;
        Ok(match answer {
            Ok(lease) => respond(StatusCode::OK, &lease),
            Err(code) => respond(
                code,
                &json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": code.as_u16(), "message": code.to_string(), "reason": reason(code),
                }),
            ),
        })
    }

    fn watch(&self) -> Response<Answer> {
        let mut state = self.state.lock().unwrap();
        state.seen.push((Method::GET, true));
        let first = state
            .lease
            .clone()
            .map(|lease| json!({"type": "ADDED", "object": lease}));
        let later =
            BroadcastStream::new(self.events.subscribe()).filter_map(|event| async { event.ok() });
        let lines = futures::stream::iter(first).chain(later);
        let frames = lines.map(|event| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    fn handle(&self, method: &Method, body: &[u8], watch: bool) -> Result<Value, StatusCode> {
        let mut state = self.state.lock().unwrap();
        state.seen.push((method.clone(), watch));
        if watch {
            return Ok(Value::Null);
        }
        let sent = || serde_json::from_slice::<Value>(body).map_err(|_| StatusCode::BAD_REQUEST);
        match (method, state.lease.clone()) {
            (&Method::GET, lease) => lease.ok_or(StatusCode::NOT_FOUND),
            (&Method::POST, None) => {
                let mut lease = sent()?;
                lease["metadata"]["uid"] = format!("uid-{}", state.version).into();
                Ok(self.store(&mut state, lease, "ADDED"))
            }
            (&Method::PUT, Some(lease)) => {
                let sent = sent()?;
                if sent["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] {
                    return Err(StatusCode::CONFLICT);
                }
                Ok(self.store(&mut state, sent, "MODIFIED"))
            }
            (&Method::POST, Some(_)) => Err(StatusCode::CONFLICT),
            (&Method::PUT, None) => Err(StatusCode::NOT_FOUND),
            _ => Err(StatusCode::METHOD_NOT_ALLOWED),
        }
    }
}

fn respond(code: StatusCode, body: &Value) -> Response<Answer> {
    let body = Full::new(Bytes::from(body.to_string()));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = code;
    response
}

fn reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::CONFLICT => "Conflict",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
        _ => "",
    }
}
