//! kube-apiserver in memory, behind `kube::Client`.

pub mod store;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::checker::Checker;
use crate::faults::{ApiFault, Faults};
use crate::trace::Trace;
use store::{Id, KINDS, Patch, Refusal, Store};

type Answer = Response<UnsyncBoxBody<Bytes, Broken>>;

/// A connection that breaks.
#[derive(Debug, thiserror::Error)]
#[error("the connection broke")]
pub struct Broken;

/// The API server. Clones are the same one.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

struct Inner {
    store: Mutex<Store>,
    changed: watch::Sender<u64>,
    seed: u64,
    /// How often each thing was drawn for.
    drawn: Mutex<BTreeMap<String, u64>>,
    /// Requests of these processes wait until then.
    cut_off: Mutex<BTreeMap<String, Instant>>,
    faults: Faults,
    checker: Checker,
    trace: Trace,
}

/// What a request asks for.
struct Asked {
    verb: &'static str,
    kind: &'static str,
    namespace: String,
    name: String,
    status: bool,
}

impl Asked {
    /// The call site, as faults and coverage name it.
    fn site(&self) -> String {
        let part = if self.status { "/status" } else { "" };
        format!("{} {}{part}", self.verb, self.kind)
    }

    fn id(&self) -> Id {
        Id::new(self.kind, &self.namespace, &self.name)
    }
}

impl ApiServer {
    /// An API server with the namespaces that every cluster has.
    #[must_use]
    pub fn new(
        seed: u64,
        faults: Faults,
        checker: Checker,
        trace: Trace,
        wall: impl Fn() -> String + Send + 'static,
    ) -> Self {
        let mut store = Store::default();
        store.wall = Some(Box::new(wall));
        for name in ["default", "kube-system"] {
            // The store is empty.
            let _ = store.create("namespaces", "", json!({"metadata": {"name": name}}));
        }
        Self {
            inner: Arc::new(Inner {
                store: Mutex::new(store),
                changed: watch::Sender::new(0),
                seed,
                drawn: Mutex::default(),
                cut_off: Mutex::default(),
                faults,
                checker,
                trace,
            }),
        }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.inner
            .store
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody else does something to what it holds: a user, a kubelet, another controller.
    pub fn act<T>(&self, act: impl FnOnce(&mut Store) -> T) -> T {
        let done = act(&mut self.store());
        self.tell();
        done
    }

    fn tell(&self) {
        let version = self.store().version();
        self.inner.changed.send_replace(version);
    }

    /// One object.
    #[must_use]
    pub fn get(&self, id: &Id) -> Option<Value> {
        self.store().get(id).cloned()
    }

    /// All of a kind.
    #[must_use]
    pub fn list(&self, kind: &str) -> Vec<Value> {
        self.store().list(kind, "")
    }

    /// Holds back all requests of this process for so long.
    pub fn cut_off(&self, identity: &str, wait: Duration) {
        let mut cut = self
            .inner
            .cut_off
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        cut.insert(identity.to_owned(), Instant::now() + wait);
    }

    /// The client of a ccm.
    #[must_use]
    pub fn client(&self, identity: &str) -> kube::Client {
        let (server, identity) = (self.clone(), Arc::<str>::from(identity));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, identity) = (server.clone(), Arc::clone(&identity));
            async move {
                if request.method() == Method::GET {
                    return server.serve(&identity, request).await;
                }
                // What was sent arrives, whatever becomes of who sent it.
                let arrives = async move { server.serve(&identity, request).await };
                tokio::spawn(arrives).await.unwrap_or(Err(Broken))
            }
        });
        kube::Client::new(service, "default")
    }

    /// A number that follows from the seed and from what it is for, and not from the order of what happens at one instant.
    fn draw(&self, what: String) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.inner.seed, &what).hash(&mut hasher);
        let mut drawn = self
            .inner
            .drawn
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let count = drawn.entry(what).or_default();
        *count += 1;
        count.hash(&mut hasher);
        hasher.finish()
    }

    fn latency(&self, identity: &str, asked: &Asked) -> Duration {
        let what = format!(
            "{identity} {} {}/{}",
            asked.site(),
            asked.namespace,
            asked.name
        );
        Duration::from_millis(1 + self.draw(what) % 15)
    }

    async fn connected(&self, identity: &str) {
        loop {
            let until = {
                let cut = self
                    .inner
                    .cut_off
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                cut.get(identity).copied()
            };
            match until {
                Some(until) if until > Instant::now() => sleep_until(until).await,
                _ => return,
            }
        }
    }

    async fn serve(&self, identity: &Arc<str>, request: Request<Body>) -> Result<Answer, Broken> {
        let (parts, body) = request.into_parts();
        let query: BTreeMap<String, String> = parts
            .uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| {
                (
                    key.to_owned(),
                    value.replace("%3D", "=").replace("%2C", ","),
                )
            })
            .collect();
        if parts.uri.path() == "/version" {
            return Ok(answer(
                StatusCode::OK,
                &json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
            ));
        }
        let watches = query
            .get("watch")
            .is_some_and(|value| value == "true" || value == "1");
        let Some(asked) = asked(&parts.method, parts.uri.path(), watches) else {
            self.inner.trace.violation(format!(
                "{identity} asks for {} {}, which is not served",
                parts.method,
                parts.uri.path()
            ));
            return Ok(refuse(&Refusal(404, "NotFound", "no such path".to_owned())));
        };
        let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let sent = Instant::now();
        if asked.verb != "GET"
            && asked.verb != "LIST"
            && asked.verb != "WATCH"
            && asked.kind != "leases"
            && asked.kind != "events"
        {
            self.inner.checker.sent(identity, &asked.site());
        }
        let fault = self.inner.faults.api(&asked.site());
        self.connected(identity).await;
        sleep(self.latency(identity, &asked)).await;
        match fault {
            None | Some(ApiFault::Lost) => {}
            Some(ApiFault::Code(code)) => {
                self.inner.trace.note(format_args!(
                    "{identity} {} {}/{} -> {code} (fault)",
                    asked.site(),
                    asked.namespace,
                    asked.name
                ));
                let reason = match code {
                    409 => "Conflict",
                    422 => "Invalid",
                    429 => "TooManyRequests",
                    503 => "ServiceUnavailable",
                    _ => "InternalError",
                };
                return Ok(refuse(&Refusal(code, reason, "on purpose".to_owned())));
            }
            Some(ApiFault::Late(wait)) => sleep(wait).await,
            Some(ApiFault::Broken) => {
                self.inner.trace.note(format_args!(
                    "{identity} {} {}/{} breaks (fault)",
                    asked.site(),
                    asked.namespace,
                    asked.name
                ));
                return Err(Broken);
            }
        }
        if asked.verb == "WATCH" {
            return Ok(self.watch(identity, &asked, &query));
        }
        let manager = query.get("fieldManager").map_or("unknown", String::as_str);
        let strategic = parts
            .headers
            .get(http::header::CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"application/strategic"));
        let how = if strategic {
            Patch::Strategic
        } else {
            Patch::Merge
        };
        let before = (asked.verb == "DELETE" || asked.verb == "PATCH")
            .then(|| self.get(&asked.id()))
            .flatten();
        let done = {
            let mut store = self.store();
            match asked.verb {
                "GET" => store.get(&asked.id()).cloned().ok_or_else(|| {
                    Refusal(
                        404,
                        "NotFound",
                        format!("{} {:?} not found", asked.kind, asked.name),
                    )
                }),
                "LIST" => Ok(Self::page(&store, &asked)),
                "POST" => store.create(asked.kind, &asked.namespace, body.clone()),
                "PUT" => store.replace(&asked.id(), body.clone()),
                "PATCH" => store.patch(&asked.id(), how, asked.status, &body, manager),
                _ => store.delete(&asked.id(), &body["preconditions"]),
            }
        };
        self.tell();
        let code = done.as_ref().map_or_else(|refused| refused.0, |_| 200);
        if asked.verb != "GET" && asked.verb != "LIST" {
            if asked.kind != "leases" {
                self.inner.trace.note(format_args!(
                    "{identity} {} {}/{} -> {code} {body}",
                    asked.site(),
                    asked.namespace,
                    asked.name
                ));
            } else if code != 200 {
                self.inner.trace.note(format_args!(
                    "{identity} {} {}/{} -> {code}",
                    asked.site(),
                    asked.namespace,
                    asked.name
                ));
            }
            if let Ok(now) = &done {
                self.inner
                    .checker
                    .wrote(identity, sent, &asked.site(), before.as_ref(), now);
            }
        }
        if fault == Some(ApiFault::Lost) {
            self.inner.trace.note(format_args!(
                "{identity} {} {}/{}: the answer is lost (fault)",
                asked.site(),
                asked.namespace,
                asked.name
            ));
            return Err(Broken);
        }
        sleep(self.latency(identity, &asked)).await;
        self.connected(identity).await;
        Ok(match done {
            Ok(object) => answer(StatusCode::OK, &object),
            Err(refused) => refuse(&refused),
        })
    }

    fn page(store: &Store, asked: &Asked) -> Value {
        let (_, version, kind) = KINDS
            .iter()
            .find(|(plural, ..)| *plural == asked.kind)
            .copied()
            .unwrap_or(("", "v1", ""));
        json!({
            "apiVersion": version,
            "kind": format!("{kind}List"),
            "metadata": {"resourceVersion": store.version().to_string()},
            "items": store.list(asked.kind, &asked.namespace),
        })
    }

    fn watch(
        &self,
        identity: &Arc<str>,
        asked: &Asked,
        query: &BTreeMap<String, String>,
    ) -> Answer {
        let from: u64 = query
            .get("resourceVersion")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        if from != 0 && from < self.store().oldest() {
            return refuse(&Refusal(
                410,
                "Expired",
                "too old resource version".to_owned(),
            ));
        }
        let from = if from == 0 {
            self.store().version()
        } else {
            from
        };
        let seconds = query
            .get("timeoutSeconds")
            .and_then(|text| text.parse().ok())
            .unwrap_or(290);
        let lag =
            Duration::from_millis(1 + self.draw(format!("{identity} lag {}", asked.kind)) % 100);
        let watcher = Watcher {
            server: self.clone(),
            identity: Arc::clone(identity),
            kind: asked.kind,
            namespace: asked.namespace.clone(),
            name: query
                .get("fieldSelector")
                .and_then(|text| text.strip_prefix("metadata.name="))
                .map(str::to_owned),
            version: from,
            until: Instant::now() + Duration::from_secs(seconds),
            lag,
            changed: self.inner.changed.subscribe(),
        };
        let lines = stream::unfold(watcher, |mut watcher| async move {
            let line = watcher.next().await?;
            Some((line.map(|line| Frame::data(Bytes::from(line))), watcher))
        });
        let body = UnsyncBoxBody::new(StreamBody::new(lines));
        Response::new(body)
    }
}

struct Watcher {
    server: ApiServer,
    identity: Arc<str>,
    kind: &'static str,
    namespace: String,
    name: Option<String>,
    version: u64,
    until: Instant,
    lag: Duration,
    changed: watch::Receiver<u64>,
}

impl Watcher {
    fn shows(&self, id: &Id) -> bool {
        id.kind == self.kind
            && (self.namespace.is_empty() || id.namespace == self.namespace)
            && self.name.as_ref().is_none_or(|name| *name == id.name)
    }

    async fn next(&mut self) -> Option<Result<String, Broken>> {
        loop {
            self.changed.borrow_and_update();
            let (change, newest) = {
                let store = self.server.store();
                let mut since = store.since(self.version);
                (
                    since.find(|change| self.shows(&change.id)).cloned(),
                    store.version(),
                )
            };
            if let Some(change) = change {
                let visible = change.at + self.lag;
                if visible > self.until {
                    sleep_until(self.until).await;
                    return None;
                }
                sleep_until(visible).await;
                match self.server.inner.faults.watch(self.kind) {
                    Some(ApiFault::Late(wait)) => sleep(wait).await,
                    Some(_) => return Some(Err(Broken)),
                    None => {}
                }
                self.server.connected(&self.identity).await;
                self.version = change.version;
                return Some(Ok(format!(
                    "{}\n",
                    json!({"type": change.what, "object": change.object})
                )));
            }
            let bookmark = Instant::now() + Duration::from_mins(1);
            tokio::select! {
                biased;
                _ = self.changed.changed() => {}
                () = sleep_until(self.until.min(bookmark)) => {
                    if Instant::now() >= self.until {
                        return None;
                    }
                    self.version = self.version.max(newest);
                    let (_, version, kind) = KINDS.iter().find(|(plural, ..)| *plural == self.kind).copied().unwrap_or(("", "v1", ""));
                    let mark = json!({"type": "BOOKMARK", "object": {"apiVersion": version, "kind": kind, "metadata": {"resourceVersion": self.version.to_string(), "creationTimestamp": null}, "spec": {}, "status": {}}});
                    return Some(Ok(format!("{mark}\n")));
                }
            }
        }
    }
}

fn asked(method: &Method, path: &str, watches: bool) -> Option<Asked> {
    let path = path.strip_prefix("/api/v1/").or_else(|| {
        let rest = path.strip_prefix("/apis/")?;
        rest.split_once('/')?
            .1
            .split_once('/')
            .map(|(_, rest)| rest)
    })?;
    let parts: Vec<&str> = path.split('/').collect();
    let (namespace, rest) = match parts.as_slice() {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, status) = match rest {
        [plural] => (plural, "", false),
        [plural, name] => (plural, *name, false),
        [plural, name, "status"] => (plural, *name, true),
        _ => return None,
    };
    let (kind, ..) = KINDS.iter().find(|(known, ..)| known == plural)?;
    let verb = match (method.as_str(), name) {
        ("GET", _) if watches => "WATCH",
        ("GET", "") => "LIST",
        ("GET", _) => "GET",
        ("POST", "") => "POST",
        ("PUT", _) => "PUT",
        ("PATCH", _) => "PATCH",
        ("DELETE", _) => "DELETE",
        _ => return None,
    };
    Some(Asked {
        verb,
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        status,
    })
}

fn answer(code: StatusCode, object: &Value) -> Answer {
    let body = Full::new(Bytes::from(object.to_string()));
    let body = body.map_err(|never: Infallible| match never {});
    let mut response = Response::new(UnsyncBoxBody::new(body));
    *response.status_mut() = code;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}

fn refuse(Refusal(code, reason, message): &Refusal) -> Answer {
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code});
    let mut response = answer(
        StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        &status,
    );
    if *code == 429 {
        response.headers_mut().insert(
            http::header::RETRY_AFTER,
            http::HeaderValue::from_static("1"),
        );
    }
    response
}
