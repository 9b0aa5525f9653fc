//! A small API server in memory for Nodes. As in the real one, UID and resourceVersion are
//! preconditions, merge patches merge, and the status is a subresource. Every change reaches the
//! store, unless a test prevents that.

mod cloud;
mod faults;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::client::Body;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Store};
use crate::controller::LoopContext;
use crate::core::Fence;
use crate::provider::ProviderStatus;
use crate::writes::{EventSink, Writes};

pub(crate) use cloud::{Cloud, Instead, ListingEnd, State as CloudState, Zones};
pub(crate) use faults::{Fault, Faults};

/// The API server. Clones share one state.
#[derive(Clone)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    store: Store<Node>,
    /// The faults of requests through `LoopContext::writes`, and of the watch.
    pub(crate) faults: Faults,
    /// Guards the writes of `LoopContext::writes`.
    pub(crate) fence: Fence,
}

impl Default for FakeApi {
    fn default() -> Self {
        Self {
            state: Arc::default(),
            store: std::iter::empty().collect(),
            faults: Faults::default(),
            fence: Fence::open(),
        }
    }
}

type Interference = Box<dyn FnOnce(&FakeApi) + Send>;

#[derive(Default)]
struct State {
    nodes: BTreeMap<String, Value>,
    version: u64,
    writes: Vec<String>,
    /// Runs before the next write: a concurrent writer.
    before: Option<Interference>,
    /// The status codes for the next requests.
    refusals: VecDeque<StatusCode>,
    /// Lists of Nodes so far.
    lists: usize,
    /// Reads of single Nodes so far.
    reads: usize,
}

impl FakeApi {
    /// Stores a Node. If it has no UID, it gets one from its name and version.
    pub(crate) fn put(&self, node: &Node) {
        let mut node = serde_json::to_value(node).unwrap();
        let mut state = self.state.lock().unwrap();
        let name = node["metadata"]["name"].as_str().unwrap().to_owned();
        if node["metadata"]["uid"].is_null() {
            node["metadata"]["uid"] = format!("{name}-{}", state.version).into();
        }
        state.version += 1;
        node["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.nodes.insert(name, node.clone());
        drop(state);
        self.tell(Event::Apply(serde_json::from_value(node).unwrap()));
    }

    /// Changes a Node as another writer.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Node)) {
        let mut node = self.node(name).unwrap();
        change(&mut node);
        self.put(&node);
    }

    pub(crate) fn delete(&self, name: &str) {
        let gone = self.state.lock().unwrap().nodes.remove(name);
        if let Some(gone) = gone {
            self.tell(Event::Delete(serde_json::from_value(gone).unwrap()));
        }
    }

    fn tell(&self, event: Event<Node>) {
        if !self.faults.watch_is_cut() {
            self.store.apply(event);
        }
    }

    /// Restarts the watch with a list, as after a cut or 410 Gone.
    pub(crate) fn relist(&self) {
        self.faults.cut_watch(false);
        self.store.apply(Event::Init);
        for node in self.nodes() {
            self.store.apply(Event::InitApply(node));
        }
        self.store.apply(Event::InitDone);
    }

    pub(crate) fn node(&self, name: &str) -> Option<Node> {
        let state = self.state.lock().unwrap();
        let node = state.nodes.get(name).cloned();
        node.map(|node| serde_json::from_value(node).unwrap())
    }

    pub(crate) fn nodes(&self) -> Vec<Node> {
        let state = self.state.lock().unwrap();
        let nodes = state.nodes.values().cloned();
        nodes
            .map(|node| serde_json::from_value(node).unwrap())
            .collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.state.lock().unwrap().nodes.len()
    }

    /// The successful writes so far, as `PATCH n`, `PATCH n/status` or `DELETE n`.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.state.lock().unwrap().writes.clone()
    }

    /// Lets another writer act before the next write.
    pub(crate) fn before_next_write(&self, act: impl FnOnce(&FakeApi) + Send + 'static) {
        self.state.lock().unwrap().before = Some(Box::new(act));
    }

    /// Answers the next requests with these codes.
    pub(crate) fn refuse(&self, codes: impl IntoIterator<Item = u16>) {
        let codes = codes
            .into_iter()
            .map(|code| StatusCode::from_u16(code).unwrap());
        self.state.lock().unwrap().refusals.extend(codes);
    }

    pub(crate) fn lists(&self) -> usize {
        self.state.lock().unwrap().lists
    }

    pub(crate) fn reads(&self) -> usize {
        self.state.lock().unwrap().reads
    }

    /// Deletes a Node without a watch event.
    pub(crate) fn forget(&self, name: &str) {
        self.state.lock().unwrap().nodes.remove(name);
    }

    /// Removes a Node from the store only.
    pub(crate) fn hide(&self, name: &str) {
        if let Some(node) = self.node(name) {
            self.store.apply(Event::Delete(node));
        }
    }

    pub(crate) fn client(&self) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let this = this.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap_or_default();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let by_type = parts
                    .headers
                    .get(http::header::CONTENT_TYPE)
                    .is_some_and(|kind| kind == "application/strategic-merge-patch+json");
                let (code, answer) = this.handle(&parts.method, parts.uri.path(), &body, by_type);
                let response = Response::builder()
                    .status(code)
                    .header("content-type", "application/json")
                    .body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        Client::new(service, "default")
    }

    /// The client with the faults, below the layer of `kube_client`.
    fn gated(&self) -> Client {
        let metrics = crate::kube_client::Metrics::register(
            &mut prometheus_client::registry::Registry::default(),
        );
        let faulty = self.faults.around(self.client());
        crate::kube_client::clients(faulty, self.fence.clone(), &metrics, None, 1).write
    }

    /// The inputs of a loop for provider `mock`.
    pub(crate) fn context(
        &self,
        status: tokio::sync::watch::Receiver<ProviderStatus>,
    ) -> LoopContext {
        self.context_with(status, &[])
    }

    /// As `context`, with these flags.
    pub(crate) fn context_with(
        &self,
        status: tokio::sync::watch::Receiver<ProviderStatus>,
        flags: &[&str],
    ) -> LoopContext {
        use clap::Parser as _;
        let config = crate::args::Args::try_parse_from(std::iter::once(&"ccm").chain(flags))
            .unwrap()
            .into_config()
            .unwrap();
        LoopContext {
            provider: "mock".into(),
            config: Arc::new(config),
            cluster: Cluster::of_nodes(self.store.clone()),
            watch_client: self.client(),
            writes: Writes::new(self.gated(), EventSink::unwritten()),
            status,
            fence: self.fence.clone(),
            wall: Arc::new(|| jiff::Timestamp::from_second(1_000_000).unwrap()),
            seed: 1,
            stop: tokio_util::sync::CancellationToken::new(),
            queue_metrics: crate::queue::Metrics::register(
                &mut prometheus_client::registry::Registry::default(),
            ),
            hints: tokio::sync::broadcast::Sender::new(16),
        }
    }

    /// `by_type`: a strategic merge patch, which merges conditions by their type.
    fn handle(
        &self,
        method: &Method,
        path: &str,
        body: &Value,
        by_type: bool,
    ) -> (StatusCode, Value) {
        let refusal = self.state.lock().unwrap().refusals.pop_front();
        if let Some(code) = refusal {
            return refused(code);
        }
        if *method != Method::GET {
            let before = self.state.lock().unwrap().before.take();
            if let Some(before) = before {
                before(self);
            }
        }
        if *method == Method::GET && path == "/api/v1/nodes" {
            let mut state = self.state.lock().unwrap();
            state.lists += 1;
            let items: Vec<&Value> = state.nodes.values().collect();
            let list =
                json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items});
            return (StatusCode::OK, list);
        }
        let Some(rest) = path.strip_prefix("/api/v1/nodes/") else {
            return refused(StatusCode::NOT_FOUND);
        };
        let (name, status) = match rest.strip_suffix("/status") {
            Some(name) => (name, true),
            None => (rest, false),
        };
        let Some(mut node) = self.state.lock().unwrap().nodes.get(name).cloned() else {
            return refused(StatusCode::NOT_FOUND);
        };
        if *method == Method::GET {
            self.state.lock().unwrap().reads += 1;
            return (StatusCode::OK, node);
        }
        let wanted = if *method == Method::DELETE {
            &body["preconditions"]
        } else {
            &body["metadata"]
        };
        let same =
            |field: &str| wanted[field].is_null() || wanted[field] == node["metadata"][field];
        if !same("uid") || !same("resourceVersion") {
            return refused(StatusCode::CONFLICT);
        }
        self.state
            .lock()
            .unwrap()
            .writes
            .push(format!("{method} {rest}"));
        if *method == Method::DELETE {
            self.delete(name);
            return (
                StatusCode::OK,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
            );
        }
        let kept = node["status"].clone();
        if status && by_type {
            merge_conditions(&mut node["status"], &body["status"]);
        } else if status {
            merge(&mut node["status"], &body["status"]);
        } else {
            merge(&mut node, body);
            node["status"] = kept;
        }
        self.put(&serde_json::from_value(node).unwrap());
        (
            StatusCode::OK,
            serde_json::to_value(self.node(name)).unwrap(),
        )
    }
}

/// Sets one condition of each type. Unlike a strategic merge patch, it keeps no field of the old
/// condition.
fn merge_conditions(status: &mut Value, patch: &Value) {
    let empty = Vec::new();
    let mut all = status["conditions"].as_array().unwrap_or(&empty).clone();
    for condition in patch["conditions"].as_array().unwrap() {
        all.retain(|old| old["type"] != condition["type"]);
        all.push(condition.clone());
    }
    status["conditions"] = all.into();
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

fn refused(code: StatusCode) -> (StatusCode, Value) {
    let reason = match code {
        StatusCode::CONFLICT => "Conflict",
        StatusCode::NOT_FOUND => "NotFound",
        _ => "Refused",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code.as_u16(), "reason": reason, "message": reason,
    });
    (code, status)
}
