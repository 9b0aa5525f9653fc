//! An API server in memory: merge patches of Services with their preconditions, reads, and a list
//! of Nodes. The stores have the same objects, unless a test cuts the watch or lets a store lose an
//! object.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Client;
use kube::client::Body;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::core::Key;

/// The fault of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteFault {
    /// Refused with this status, and not executed.
    Refused(u16),
    /// Neither executed nor answered.
    Hangs,
    /// Executed but not answered.
    Lost,
    /// The ccm dies before the write is executed.
    CcmDiesBefore,
    /// The ccm dies after the write was executed.
    CcmDiesAfter,
}

/// A fault for `times` writes of one object. The first of them is the write with number `from` or a
/// later one.
struct Script {
    from: usize,
    times: usize,
    fault: WriteFault,
    of: Option<String>,
}

/// A patch that arrived.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// The Service's name, followed by `/status` if the patch is of the status.
    pub(super) of: String,
    pub(super) at: tokio::time::Instant,
    pub(super) fault: Option<WriteFault>,
}

#[derive(Default)]
struct State {
    /// All patches that arrived, whatever their results.
    attempts: Vec<Attempt>,
    script: Option<Script>,
    /// Whether the ccm has to die.
    kill_ccm: bool,
    /// Whether the watch delivers nothing.
    cut: bool,
    /// How many of the next reads of Services fail.
    unread: usize,
    /// How many reads of Services arrived.
    reads: usize,
    services: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
    version: u64,
    writes: Vec<String>,
    refused: Option<String>,
    /// The annotation that admission removes.
    removed: Option<String>,
    refusals: usize,
}

#[derive(Clone, Default)]
pub(super) struct ApiServer {
    state: Arc<Mutex<State>>,
    pub(super) cluster: Cluster,
}

impl ApiServer {
    pub(super) fn new() -> Self {
        let server = Self::default();
        server.cluster.nodes.apply(Event::Init);
        server.cluster.nodes.apply(Event::InitDone);
        server.cluster.services.apply(Event::Init);
        server.cluster.services.apply(Event::InitDone);
        server
    }

    pub(super) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, std::convert::Infallible>(server.serve(request).await) }
        });
        Client::new(service, "default")
    }

    /// Creates or replaces a Service.
    pub(super) fn put(&self, service: &Service) {
        let mut state = self.state.lock().unwrap();
        let name = service.metadata.name.clone().unwrap();
        let value = serde_json::to_value(service).unwrap();
        self.store(&mut state, &name, value);
    }

    pub(super) fn edit(&self, name: &str, edit: impl FnOnce(&mut Service)) {
        let mut service = self.get(name).unwrap();
        edit(&mut service);
        self.put(&service);
    }

    pub(super) fn remove(&self, name: &str) {
        let mut state = self.state.lock().unwrap();
        let value = state.services.remove(name).unwrap();
        let service = serde_json::from_value(value).unwrap();
        self.show(&state, Event::Delete(service));
    }

    pub(super) fn get(&self, name: &str) -> Option<Service> {
        let state = self.state.lock().unwrap();
        let value = state.services.get(name)?.clone();
        Some(serde_json::from_value(value).unwrap())
    }

    /// Creates or replaces a Node.
    pub(super) fn put_node(&self, node: Node) {
        let name = node.metadata.name.clone().unwrap();
        let value = serde_json::to_value(&node).unwrap();
        self.state.lock().unwrap().nodes.insert(name, value);
        self.cluster.nodes.apply(Event::Apply(node));
    }

    pub(super) fn remove_node(&self, name: &str) {
        let value = self.state.lock().unwrap().nodes.remove(name).unwrap();
        let node: Node = serde_json::from_value(value).unwrap();
        self.cluster.nodes.apply(Event::Delete(node));
    }

    /// Removes a Node from the store only.
    pub(super) fn lose_node(&self, name: &str) {
        let node = self.cluster.nodes.get(&Key::node(name)).unwrap();
        self.cluster.nodes.apply(Event::Delete((*node).clone()));
    }

    /// Gives a fault to `times` writes of one object, beginning with the write that has the number
    /// `from` (1 is the first).
    pub(super) fn fault(&self, from: usize, times: usize, fault: WriteFault) {
        let script = Script {
            from,
            times,
            fault,
            of: None,
        };
        self.state.lock().unwrap().script = Some(script);
    }

    /// All attempted writes.
    pub(super) fn attempts(&self) -> Vec<Attempt> {
        self.state.lock().unwrap().attempts.clone()
    }

    /// Whether the ccm has to die now.
    pub(super) fn kills_ccm(&self) -> bool {
        std::mem::take(&mut self.state.lock().unwrap().kill_ccm)
    }

    /// From now on the watch of Services delivers nothing.
    pub(super) fn cut_watch(&self) {
        self.state.lock().unwrap().cut = true;
    }

    /// Makes the next `times` reads of Services fail.
    pub(super) fn fail_reads(&self, times: usize) {
        self.state.lock().unwrap().unread = times;
    }

    /// How many reads of Services arrived.
    pub(super) fn reads(&self) -> usize {
        self.state.lock().unwrap().reads
    }

    /// Restarts the watch of Services with a list, as after a 410 Gone.
    pub(super) fn list_again(&self) {
        let mut state = self.state.lock().unwrap();
        state.cut = false;
        self.cluster.services.apply(Event::Init);
        for value in state.services.values() {
            let service = serde_json::from_value(value.clone()).unwrap();
            self.cluster.services.apply(Event::InitApply(service));
        }
        self.cluster.services.apply(Event::InitDone);
    }

    fn show(&self, state: &State, event: Event<Service>) {
        if !state.cut {
            self.cluster.services.apply(event);
        }
    }

    /// Removes a Service from the store only.
    pub(super) fn lose_service(&self, name: &str) {
        let service = self.get(name).unwrap();
        self.cluster.services.apply(Event::Delete(service));
    }

    /// Refuses each patch with this JSON pointer (RFC 6901) from now on.
    pub(super) fn refuse(&self, pointer: &str) {
        self.state.lock().unwrap().refused = Some(pointer.to_owned());
    }

    /// Removes this annotation from each Service that a patch sets it on.
    pub(super) fn remove_annotation(&self, annotation: &str) {
        self.state.lock().unwrap().removed = Some(annotation.to_owned());
    }

    pub(super) fn refusals(&self) -> usize {
        self.state.lock().unwrap().refusals
    }

    /// The successful patches.
    pub(super) fn writes(&self) -> Vec<String> {
        self.state.lock().unwrap().writes.clone()
    }

    /// Stores the object and delivers it to the watch.
    fn store(&self, state: &mut State, name: &str, mut value: Value) -> Value {
        state.version += 1;
        value["metadata"]["resourceVersion"] = json!(state.version.to_string());
        value["apiVersion"] = json!("v1");
        value["kind"] = json!("Service");
        let service: Service = serde_json::from_value(value.clone()).unwrap();
        let finalizers = service.metadata.finalizers.as_ref();
        if service.metadata.deletion_timestamp.is_some() && finalizers.is_none_or(Vec::is_empty) {
            state.services.remove(name);
            self.show(state, Event::Delete(service));
        } else {
            state.services.insert(name.to_owned(), value.clone());
            self.show(state, Event::Apply(service));
        }
        value
    }

    async fn serve(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        if path == "/api/v1/nodes" {
            let state = self.state.lock().unwrap();
            let items: Vec<_> = state.nodes.values().collect();
            return respond(
                StatusCode::OK,
                &json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": items}),
            );
        }
        let tail: Vec<&str> = path
            .strip_prefix("/api/v1/namespaces/default/services/")
            .unwrap_or_else(|| panic!("not served: {path}"))
            .split('/')
            .collect();
        let name = tail[0];
        let body = body.collect().await.unwrap().to_bytes();
        let fault = (parts.method == Method::PATCH)
            .then(|| self.next_fault(tail.join("/")))
            .flatten();
        let die = |state: &Self| state.state.lock().unwrap().kill_ccm = true;
        match fault {
            Some(WriteFault::Refused(code)) => return refused(code),
            Some(WriteFault::Hangs) => return std::future::pending().await,
            Some(WriteFault::CcmDiesBefore) => {
                die(self);
                return std::future::pending().await;
            }
            Some(WriteFault::Lost | WriteFault::CcmDiesAfter) | None => {}
        }
        let answer = self.answer(&parts.method, &tail, name, &body);
        match fault {
            None => answer,
            Some(fault) => {
                if fault == WriteFault::CcmDiesAfter {
                    die(self);
                }
                std::future::pending().await
            }
        }
    }

    /// The fault of the current write.
    fn next_fault(&self, of: String) -> Option<WriteFault> {
        let mut state = self.state.lock().unwrap();
        let number = state.attempts.len() + 1;
        let script = state.script.as_mut();
        let fault = script
            .filter(|script| number >= script.from && script.times > 0)
            .filter(|script| script.of.as_ref().is_none_or(|it| *it == of))
            .map(|script| {
                script.of = Some(of.clone());
                script.times -= 1;
                script.fault
            });
        state.attempts.push(Attempt {
            of,
            at: tokio::time::Instant::now(),
            fault,
        });
        fault
    }

    fn answer(&self, method: &Method, tail: &[&str], name: &str, body: &[u8]) -> Response<Body> {
        let mut state = self.state.lock().unwrap();
        if *method == Method::GET {
            state.reads += 1;
            if state.unread > 0 {
                state.unread -= 1;
                return refused(503);
            }
        }
        let Some(mut value) = state.services.get(name).cloned() else {
            return refuse(StatusCode::NOT_FOUND, "NotFound");
        };
        if *method == Method::GET {
            return respond(StatusCode::OK, &value);
        }
        assert_eq!(*method, Method::PATCH, "{tail:?}");
        let patch: Value = serde_json::from_slice(body).unwrap();
        for field in ["uid", "resourceVersion"] {
            let expected = &patch["metadata"][field];
            if !expected.is_null() && *expected != value["metadata"][field] {
                return refuse(StatusCode::CONFLICT, "Conflict");
            }
        }
        assert!(patch.get("spec").is_none(), "never spec (B-S2)");
        if let Some(refused) = &state.refused
            && patch.pointer(refused).is_some()
        {
            state.refusals += 1;
            return refuse(StatusCode::UNPROCESSABLE_ENTITY, "Invalid");
        }
        state.writes.push(tail.join("/"));
        merge(&mut value, &patch);
        if let Some(annotations) = value["metadata"]["annotations"].as_object_mut()
            && let Some(removed) = &state.removed
        {
            annotations.remove(removed);
        }
        respond(StatusCode::OK, &self.store(&mut state, name, value))
    }
}

fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    let object = value.as_object_mut().unwrap();
    for (key, patch) in patch {
        if patch.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), patch);
        }
    }
}

/// A refusal with this status. A 429 has a Retry-After of 2 s.
fn refused(code: u16) -> Response<Body> {
    let reason = match code {
        409 => "Conflict",
        422 => "Invalid",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    let status = StatusCode::from_u16(code).unwrap();
    let mut answer = refusal(status, reason, "on purpose");
    if code == 429 {
        let headers = answer.headers_mut();
        headers.insert("retry-after", http::HeaderValue::from_static("2"));
    }
    answer
}

fn refuse(code: StatusCode, reason: &str) -> Response<Body> {
    refusal(code, reason, reason)
}

fn refusal(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    respond(
        code,
        &json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code.as_u16()}),
    )
}

fn respond(code: StatusCode, body: &Value) -> Response<Body> {
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(Body::from(serde_json::to_vec(body).unwrap()))
        .unwrap()
}
