//! An API server in memory: merge patches of Services with their preconditions, reads, a list of Nodes; what it holds is what the stores show.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Client;
use kube::client::Body;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Key};

#[derive(Default)]
struct State {
    services: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
    version: u64,
    writes: Vec<String>,
    refused: Option<String>,
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

    /// Makes or replaces a Service.
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
        let value = self.state.lock().unwrap().services.remove(name).unwrap();
        let service = serde_json::from_value(value).unwrap();
        self.cluster.services.apply(Event::Delete(service));
    }

    pub(super) fn get(&self, name: &str) -> Option<Service> {
        let state = self.state.lock().unwrap();
        let value = state.services.get(name)?.clone();
        Some(serde_json::from_value(value).unwrap())
    }

    /// `hidden`: the watch does not show it.
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

    /// The watch loses a Node that is still there.
    pub(super) fn lose_node(&self, name: &str) {
        let node = self.cluster.nodes.get(&Key::node(name)).unwrap();
        self.cluster.nodes.apply(Event::Delete((*node).clone()));
    }

    /// Refuses each patch of this annotation from now on.
    pub(super) fn refuse(&self, annotation: &str) {
        self.state.lock().unwrap().refused = Some(annotation.to_owned());
    }

    /// How many patches were refused.
    pub(super) fn refusals(&self) -> usize {
        self.state.lock().unwrap().refusals
    }

    /// How many patches there were.
    pub(super) fn writes(&self) -> Vec<String> {
        self.state.lock().unwrap().writes.clone()
    }

    /// Stores, and shows it to the watch.
    fn store(&self, state: &mut State, name: &str, mut value: Value) -> Value {
        state.version += 1;
        value["metadata"]["resourceVersion"] = json!(state.version.to_string());
        value["apiVersion"] = json!("v1");
        value["kind"] = json!("Service");
        let service: Service = serde_json::from_value(value.clone()).unwrap();
        let finalizers = service.metadata.finalizers.as_ref();
        if service.metadata.deletion_timestamp.is_some() && finalizers.is_none_or(Vec::is_empty) {
            state.services.remove(name);
            self.cluster.services.apply(Event::Delete(service));
        } else {
            state.services.insert(name.to_owned(), value.clone());
            self.cluster.services.apply(Event::Apply(service));
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
        let mut state = self.state.lock().unwrap();
        let Some(mut value) = state.services.get(name).cloned() else {
            return refuse(StatusCode::NOT_FOUND, "NotFound");
        };
        if parts.method == Method::GET {
            return respond(StatusCode::OK, &value);
        }
        assert_eq!(parts.method, Method::PATCH, "{path}");
        let patch: Value = serde_json::from_slice(&body).unwrap();
        for field in ["uid", "resourceVersion"] {
            let expected = &patch["metadata"][field];
            if !expected.is_null() && *expected != value["metadata"][field] {
                return refuse(StatusCode::CONFLICT, "Conflict");
            }
        }
        assert!(patch.get("spec").is_none(), "never spec (B-S2)");
        let annotations = &patch["metadata"]["annotations"];
        if let Some(refused) = &state.refused
            && annotations.get(refused).is_some()
        {
            state.refusals += 1;
            return refuse(StatusCode::UNPROCESSABLE_ENTITY, "Invalid");
        }
        state.writes.push(tail.join("/"));
        merge(&mut value, &patch);
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

fn refuse(code: StatusCode, reason: &str) -> Response<Body> {
    respond(
        code,
        &json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code.as_u16()}),
    )
}

fn respond(code: StatusCode, body: &Value) -> Response<Body> {
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(Body::from(serde_json::to_vec(body).unwrap()))
        .unwrap()
}
