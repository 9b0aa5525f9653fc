//! A small API server in memory for PersistentVolumes. As in the real one, UID and resourceVersion
//! are preconditions, and existing node affinity is immutable. Every change reaches the store,
//! unless a test cuts the watch.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Client;
use kube::client::Body;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use crate::cluster::Store;

#[derive(Clone)]
pub(super) struct ApiServer {
    state: Arc<Mutex<State>>,
    pub(super) store: Store<PersistentVolume>,
}

#[derive(Default)]
struct State {
    volumes: BTreeMap<String, Value>,
    version: u64,
    /// The bodies of all patches that arrived.
    patches: Vec<Value>,
    /// The answers to the next patches.
    instead: VecDeque<u16>,
    /// How long a request takes.
    delay: std::time::Duration,
    /// The volume to delete before the next patch.
    gone: Option<String>,
    /// Whether the watch delivers nothing.
    cut: bool,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self {
            state: Arc::default(),
            store: std::iter::empty().collect(),
        }
    }
}

impl ApiServer {
    pub(super) fn put(&self, mut volume: Value) {
        let mut state = self.state.lock().unwrap();
        let name = volume["metadata"]["name"].as_str().unwrap().to_owned();
        if volume["metadata"]["uid"].is_null() {
            volume["metadata"]["uid"] = format!("{name}-{}", state.version).into();
        }
        state.version += 1;
        volume["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.volumes.insert(name, volume.clone());
        let cut = state.cut;
        drop(state);
        let volume = serde_json::from_value(volume).unwrap();
        if !cut {
            self.store.apply(Event::Apply(volume));
        }
    }

    /// From now on the watch delivers nothing.
    pub(super) fn cut_watch(&self) {
        self.state.lock().unwrap().cut = true;
    }

    /// Restarts the watch with a new list.
    pub(super) fn list_again(&self) {
        let volumes = {
            let mut state = self.state.lock().unwrap();
            state.cut = false;
            state.volumes.clone()
        };
        self.store.apply(Event::Init);
        for volume in volumes.into_values() {
            let volume = serde_json::from_value(volume).unwrap();
            self.store.apply(Event::InitApply(volume));
        }
        self.store.apply(Event::InitDone);
    }

    pub(super) fn delete(&self, name: &str) {
        let (gone, cut) = {
            let mut state = self.state.lock().unwrap();
            (state.volumes.remove(name).unwrap(), state.cut)
        };
        let gone = serde_json::from_value(gone).unwrap();
        if !cut {
            self.store.apply(Event::Delete(gone));
        }
    }

    pub(super) fn volume(&self, name: &str) -> PersistentVolume {
        let volume = self.state.lock().unwrap().volumes[name].clone();
        serde_json::from_value(volume).unwrap()
    }

    /// The bodies of the patches so far.
    pub(super) fn patches(&self) -> Vec<Value> {
        self.state.lock().unwrap().patches.clone()
    }

    pub(super) fn answer_next_patch(&self, code: u16) {
        self.state.lock().unwrap().instead.push_back(code);
    }

    pub(super) fn delay_patches(&self, delay: std::time::Duration) {
        self.state.lock().unwrap().delay = delay;
    }

    pub(super) fn gone_before_next_patch(&self, name: &str) {
        self.state.lock().unwrap().gone = Some(name.to_owned());
    }

    pub(super) fn client(&self) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let this = this.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap_or_default();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let delay = this.state.lock().unwrap().delay;
                tokio::time::sleep(delay).await;
                let (code, answer) = this.handle(&parts.method, parts.uri.path(), &body);
                let response = Response::builder()
                    .status(code)
                    .header("content-type", "application/json")
                    .body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn handle(&self, method: &Method, path: &str, body: &Value) -> (StatusCode, Value) {
        let name = path.strip_prefix("/api/v1/persistentvolumes/").unwrap();
        if *method == Method::PATCH {
            let (instead, gone) = {
                let mut state = self.state.lock().unwrap();
                state.patches.push(body.clone());
                (state.instead.pop_front(), state.gone.take())
            };
            if let Some(gone) = gone {
                self.delete(&gone);
            }
            if let Some(code) = instead {
                return refused(code);
            }
        }
        let Some(mut volume) = self.state.lock().unwrap().volumes.get(name).cloned() else {
            return refused(404);
        };
        if *method == Method::GET {
            return (StatusCode::OK, volume);
        }
        for field in ["uid", "resourceVersion"] {
            if body["metadata"][field] != volume["metadata"][field] {
                return refused(409);
            }
        }
        let affinity = volume["spec"]["nodeAffinity"].clone();
        json_patch::merge(&mut volume, body);
        if !affinity.is_null() && volume["spec"]["nodeAffinity"] != affinity {
            return refused(422);
        }
        self.put(volume);
        (
            StatusCode::OK,
            serde_json::to_value(self.volume(name)).unwrap(),
        )
    }
}

fn refused(code: u16) -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": "Refused", "message": format!("answered {code}"),
    });
    (StatusCode::from_u16(code).unwrap(), status)
}
