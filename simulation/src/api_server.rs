//! kube-apiserver in memory, behind `kube::Client`. `tests/api_server.rs` compares it with a real
//! one.
//!
//! ```text
//! request   what a request asks for
//! store     objects and the one history: POST, PUT, PATCH, DELETE, lists
//! patch, defaults, services, managed, validate, names
//!           complete and check an object before it is stored
//! watch     readers of the history
//! refusal, answer
//!           the answers
//! kind      the kinds that are served
//! ```

mod answer;
mod defaults;
mod kind;
mod managed;
mod names;
mod patch;
mod refusal;
mod request;
mod services;
pub mod store;
mod validate;
mod watch;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch::Sender;
use tokio::time::{Instant, sleep, sleep_until};

use crate::checker::{Checker, Sent};
use crate::faults::{ApiFault, Faults};
use crate::trace::Trace;
use answer::{Answer, Broken};
use kind::{KINDS, Kind, Trait};
use patch::Patch;
use refusal::Refusal;
use request::Asked;
use store::{Done, Effect, Id, Object, Store};
use watch::Watcher;

/// The API server. Clones share its state.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

struct Inner {
    store: Mutex<Store>,
    /// The newest version of each kind. A watch wakes only for its own kind.
    changed: [Sender<u64>; KINDS.len()],
    seed: u64,
    /// How often a number was drawn for each purpose.
    drawn: Mutex<BTreeMap<u64, u64>>,
    /// Requests of these processes, and their answers, wait until this time.
    cut_off: Mutex<BTreeMap<String, Instant>>,
    faults: Faults,
    checker: Checker,
    trace: Trace,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ApiServer {
    /// An API server with the namespaces `default` and `kube-system`.
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
            let namespace = json!({"metadata": {"name": name}});
            // The store is empty, so this cannot fail.
            let _ = store.create_as("namespaces", "", namespace, "kube-apiserver");
        }
        Self {
            inner: Arc::new(Inner {
                store: Mutex::new(store),
                changed: std::array::from_fn(|_| Sender::new(0)),
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
        lock(&self.inner.store)
    }

    /// Changes objects as a user, a kubelet or another controller.
    pub fn act<T>(&self, act: impl FnOnce(&mut Store) -> T) -> T {
        let done = act(&mut self.store());
        self.tell();
        done
    }

    fn tell(&self) {
        let newest = self.store().newest();
        for (changed, newest) in self.inner.changed.iter().zip(newest) {
            changed.send_if_modified(|told| std::mem::replace(told, newest) != newest);
        }
    }

    /// One object.
    #[must_use]
    pub fn get(&self, id: &Id) -> Option<Arc<Object>> {
        self.store().get(id).cloned()
    }

    /// All of a kind.
    #[must_use]
    pub fn list(&self, kind: &'static str) -> Vec<Arc<Object>> {
        self.store().list(kind, "")
    }

    /// Holds the requests of this process, and their answers, until this time has passed.
    pub fn cut_off(&self, identity: &str, wait: Duration) {
        lock(&self.inner.cut_off).insert(identity.to_owned(), Instant::now() + wait);
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
                // The request arrives even if its sender ends.
                let arrives = async move { server.serve(&identity, request).await };
                tokio::spawn(arrives).await.unwrap_or(Err(Broken))
            }
        });
        kube::Client::new(service, "default")
    }

    /// A number from the seed, the purpose, and the count of earlier draws for this purpose. It
    /// does not depend on the order of events at one instant.
    fn draw(&self, what: impl std::hash::Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.inner.seed, what).hash(&mut hasher);
        let mut drawn = lock(&self.inner.drawn);
        let count = drawn.entry(hasher.finish()).or_default();
        *count += 1;
        count.hash(&mut hasher);
        hasher.finish()
    }

    fn latency(&self, identity: &str, asked: &Asked) -> Duration {
        let what = (
            asked.verb,
            asked.kind.plural,
            asked.status,
            &asked.namespace,
            &asked.name,
        );
        Duration::from_millis(1 + self.draw((identity, what)) % 15)
    }

    async fn connected(&self, identity: &str) {
        loop {
            let until = lock(&self.inner.cut_off).get(identity).copied();
            match until {
                Some(until) if until > Instant::now() => sleep_until(until).await,
                _ => return,
            }
        }
    }

    fn note(&self, identity: &str, asked: &Asked, what: impl Display) {
        let Asked {
            namespace, name, ..
        } = asked;
        self.inner.trace.note(format_args!(
            "{identity} {} {namespace}/{name}{what}",
            asked.site()
        ));
    }

    async fn serve(&self, identity: &Arc<str>, request: Request<Body>) -> Result<Answer, Broken> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        if path == "/version" {
            let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
            return Ok(answer::of_value(StatusCode::OK, &version));
        }
        let asked = Asked::of(&parts.method, path, parts.uri.query().unwrap_or_default());
        let Some(asked) = asked else {
            self.inner.trace.violation(format_args!(
                "{identity} asks for {} {}, which is not served",
                parts.method, parts.uri
            ));
            let refused = Refusal::new(404, "NotFound", "this is not served");
            return Ok(answer::refused(&refused));
        };
        let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
        let body = match body.as_ref() {
            [] => Ok(Value::Null),
            body => serde_json::from_slice(body)
                .map_err(|error| Refusal::bad_request(format!("the body is no JSON: {error}"))),
        };
        let sent = Sent {
            at: Instant::now(),
            over: self.get(&asked.id()).filter(|_| asked.changes()),
        };
        let site = asked.site();
        let counts = asked.changes() && !["leases", "events"].contains(&asked.kind.plural);
        if counts {
            self.inner.checker.sent(identity, &site);
        }
        let deletes = sent.over.clone().filter(|_| site == "DELETE nodes");
        if let Some(node) = &deletes {
            self.inner.checker.deletes(node);
        }
        let renews = body
            .as_ref()
            .ok()
            .filter(|body| body["spec"]["holderIdentity"] == **identity)
            .and_then(|lease| lease["metadata"]["name"].as_str())
            .map(str::to_owned);
        let fault = self.inner.faults.api(&site, identity);
        self.connected(identity).await;
        sleep(self.latency(identity, &asked)).await;
        match fault {
            None | Some(ApiFault::Lost) => {}
            Some(ApiFault::Code(code)) => {
                self.note(identity, &asked, format_args!(" -> {code} (fault)"));
                if let Some(node) = deletes.filter(|_| code < 500) {
                    self.inner.checker.does_not_delete(&node);
                }
                return Ok(answer::refused(&on_purpose(code)));
            }
            Some(ApiFault::Late(wait)) => sleep(wait).await,
            Some(ApiFault::Broken) => {
                self.note(identity, &asked, " breaks (fault)");
                return Err(Broken);
            }
        }
        if asked.verb == "WATCH" {
            return Ok(self.watch(identity, asked));
        }
        let header = |name| {
            parts
                .headers
                .get(name)
                .map_or(&[][..], http::HeaderValue::as_bytes)
        };
        let done = body.and_then(|body| {
            if !asked.changes() {
                let partial = header(header::ACCEPT).starts_with(b"application/json;as=Partial");
                return self.read(&asked, partial);
            }
            // Most writes renew a Lease. The trace does not have their text.
            let text = (asked.kind.plural != "leases").then(|| body.to_string());
            let done = self.write(identity, &sent, &asked, header(header::CONTENT_TYPE), body);
            let code = done.as_ref().map_or_else(|refused| refused.code, |_| 200);
            if let Some(text) = text {
                self.note(identity, &asked, format_args!(" -> {code} {text}"));
            } else if code != 200 {
                self.note(identity, &asked, format_args!(" -> {code}"));
            }
            done
        });
        if let Some(node) = deletes.filter(|_| done.is_err()) {
            self.inner.checker.does_not_delete(&node);
        }
        if fault == Some(ApiFault::Lost) {
            self.note(identity, &asked, ": the answer is lost (fault)");
            return Err(Broken);
        }
        sleep(self.latency(identity, &asked)).await;
        self.connected(identity).await;
        if let Some(lease) = renews.filter(|_| done.is_ok()) {
            let checker = &self.inner.checker;
            checker.renewal_answered(identity, &lease, sent.at);
        }
        Ok(done.unwrap_or_else(|refused| answer::refused(&refused)))
    }

    /// GET and LIST.
    fn read(&self, asked: &Asked, partial: bool) -> Result<Answer, Refusal> {
        let (kind, store) = (asked.kind, self.store());
        if asked.verb == "GET" {
            let object = store.get(&asked.id());
            let object = object.ok_or_else(|| Refusal::not_found(kind, &asked.name))?;
            return Ok(if partial {
                answer::of_metadata(object)
            } else {
                answer::of_object(StatusCode::OK, kind, object)
            });
        }
        let version = asked.number("resourceVersion")?;
        let exact = asked.parameter("resourceVersionMatch") == "Exact";
        let limit = asked.number("limit")?.filter(|limit| *limit > 0);
        // A read that may be arbitrarily old comes from a cache, which has no pages.
        let limit = limit.filter(|_| version != Some(0));
        let limit = limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        });
        let (version, begin) = match asked.continued()? {
            Some((version, begin)) => (version, Some(begin)),
            None => (version.filter(|_| exact).unwrap_or(0), None),
        };
        let shown = |id: &Id| asked.shows(id);
        let page = store.page(
            kind.plural,
            &asked.namespace,
            version,
            begin.as_ref(),
            limit,
            shown,
        )?;
        Ok(answer::of_page(kind, &page, asked.selected().is_none()))
    }

    /// POST, PUT, PATCH and DELETE. The checker judges the effect.
    fn write(
        &self,
        identity: &str,
        sent: &Sent,
        asked: &Asked,
        content: &[u8],
        body: Value,
    ) -> Result<Answer, Refusal> {
        let (kind, id) = (asked.kind, asked.id());
        let manager = match asked.parameter("fieldManager") {
            "" => "unknown",
            manager => manager,
        };
        let before = matches!(asked.verb, "DELETE" | "PATCH")
            .then(|| self.get(&id))
            .flatten();
        let done = {
            let mut store = self.store();
            match asked.verb {
                "POST" => store.create_as(kind.plural, &asked.namespace, body, manager),
                "PUT" => store.replace(&id, asked.status, body, manager),
                "PATCH" => {
                    if let Some(how) = Patch::of(content) {
                        store.patch(&id, how, asked.status, &body, manager)
                    } else {
                        let content = String::from_utf8_lossy(content).into_owned();
                        Err(Refusal {
                            details: json!({}),
                            ..Refusal::new(415, "UnsupportedMediaType", content)
                        })
                    }
                }
                _ => store.delete(&id, &body["preconditions"]),
            }
        };
        self.tell();
        let Done { object, effect } = done?;
        let (checker, before) = (&self.inner.checker, before.as_deref());
        checker.wrote(
            identity,
            sent,
            &asked.site(),
            before.map(|object| &**object),
            &object,
        );
        Ok(
            if asked.verb == "DELETE"
                && effect == Effect::Deleted
                && !kind.has(Trait::ReturnsDeleted)
            {
                let status = refusal::deleted(kind, &asked.name, &object["metadata"]["uid"]);
                answer::of_value(StatusCode::OK, &status)
            } else if effect == Effect::Created {
                answer::of_object(StatusCode::CREATED, kind, &object)
            } else {
                answer::of_object(StatusCode::OK, kind, &object)
            },
        )
    }

    fn watch(&self, identity: &Arc<str>, asked: Asked) -> Answer {
        let lag = 1 + self.draw((&**identity, "lag", asked.kind.plural)) % 100;
        let place = Kind::place(asked.kind.plural).unwrap_or_default();
        let changed = self.inner.changed[place].subscribe();
        let lag = Duration::from_millis(lag);
        match Watcher::new(self.clone(), identity, asked, lag, changed) {
            Ok(watcher) => watcher.answer(),
            Err(refused) => answer::refused(&refused),
        }
    }
}

/// The refusal for a fault with this status code.
fn on_purpose(code: u16) -> Refusal {
    let reason = match code {
        409 => "Conflict",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    Refusal::new(code, reason, "on purpose")
}
