//! Cleans a used control plane: deletes a test's objects through the API, until etcd has none.

use std::{collections::BTreeSet, time::Duration};

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::contents::Contents;

/// The most objects to delete. With more of them a new control plane is ready sooner.
const MOST: usize = 1_000;

/// The first pass deletes, and the second removes finalizers. Objects that release other objects
/// may need a further pass.
const PASSES: usize = 8;

/// The kinds that tests create, with their paths in etcd and in the API. Any other new object makes
/// the control plane unusable, except [`ADDRESSES`] and what kube-apiserver writes by itself.
const KINDS: [(&str, &str, &str); 14] = [
    ("configmaps/", "/api/v1", "configmaps"),
    (
        "endpointslices/",
        "/apis/discovery.k8s.io/v1",
        "endpointslices",
    ),
    ("events/", "/api/v1", "events"),
    ("leases/", "/apis/coordination.k8s.io/v1", "leases"),
    ("minions/", "/api/v1", "nodes"),
    (NAMESPACES, "/api/v1", "namespaces"),
    (
        "persistentvolumeclaims/",
        "/api/v1",
        "persistentvolumeclaims",
    ),
    ("persistentvolumes/", "/api/v1", "persistentvolumes"),
    ("pods/", "/api/v1", "pods"),
    ("secrets/", "/api/v1", "secrets"),
    ("serviceaccounts/", "/api/v1", "serviceaccounts"),
    (
        "servicecidrs/",
        "/apis/networking.k8s.io/v1",
        "servicecidrs",
    ),
    ("services/endpoints/", "/api/v1", "endpoints"),
    ("services/specs/", "/api/v1", "services"),
];

const NAMESPACES: &str = "namespaces/";
/// Deleted with its Service.
const ADDRESSES: &str = "ipaddresses/";

/// An object that was left behind.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Left {
    /// The common prefix in etcd of all objects of its kind and namespace.
    prefix: String,
    /// The API's path of the kind in this namespace.
    collection: String,
    name: String,
}

impl Left {
    fn parse(key: &str) -> Option<Self> {
        let (kind, api, plural) = KINDS.iter().find(|(kind, ..)| key.starts_with(kind))?;
        let rest = &key[kind.len()..];
        let (prefix, collection, name) = match rest.rsplit_once('/') {
            Some((namespace, name)) => (
                format!("{kind}{namespace}/"),
                format!("{api}/namespaces/{namespace}/{plural}"),
                name,
            ),
            None => ((*kind).to_owned(), format!("{api}/{plural}"), rest),
        };
        Some(Self {
            prefix,
            collection,
            name: name.to_owned(),
        })
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection, self.name)
    }
}

/// Deletes what is new since `before`. `Err`: why this control plane is unusable.
pub(crate) async fn wipe(client: &Client, etcd_port: u16, before: &Contents) -> Result<(), String> {
    let mut tried = BTreeSet::new();
    for _ in 0..PASSES {
        let now = Contents::read(etcd_port).await?;
        let changed = now.changed_since(before);
        if !changed.is_empty() {
            return Err(format!("changed: {}", changed.join(", ")));
        }
        let left = now.added_since(before);
        if left.is_empty() {
            return Ok(());
        }
        if left.len() > MOST {
            return Err(format!("{} objects are left", left.len()));
        }
        let mut work = JoinSet::new();
        let mut paths = BTreeSet::new();
        for key in left.iter().filter(|key| !key.starts_with(ADDRESSES)) {
            let object = Left::parse(key).ok_or_else(|| format!("left: {key}"))?;
            if !tried.insert(key.clone()) {
                work.spawn(unbind(client.clone(), object));
                continue;
            }
            // Namespaces cannot be deleted as a collection.
            let whole = object.prefix != NAMESPACES && now.are_all_in(&object.prefix, &left);
            let path = if whole {
                object.collection
            } else {
                object.path()
            };
            if paths.insert(path.clone()) {
                work.spawn(send(client.clone(), Method::DELETE, path, at_once()));
            }
        }
        if work.is_empty() {
            sleep(Duration::from_millis(25)).await;
        }
        // A failure is visible in the objects that are left.
        while work.join_next().await.is_some() {}
    }
    Err("not empty after all".to_owned())
}

fn at_once() -> Value {
    json!({ "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Background" })
}

/// Removes the finalizers of a deleted object, and deletes it again in case that failed before.
async fn unbind(client: Client, left: Left) -> Option<Value> {
    let path = left.path();
    if left.prefix == NAMESPACES {
        // In other clusters, kube-controller-manager does this.
        let mut namespace = send(client.clone(), Method::GET, path.clone(), Value::Null).await?;
        namespace["spec"]["finalizers"] = json!([]);
        let finalize = format!("{path}/finalize");
        send(client.clone(), Method::PUT, finalize, namespace).await?;
    } else {
        let patch = json!({ "metadata": { "finalizers": null } });
        send(client.clone(), Method::PATCH, path.clone(), patch).await?;
    }
    send(client, Method::DELETE, path, at_once()).await
}

async fn send(client: Client, method: Method, path: String, body: Value) -> Option<Value> {
    let kind = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = Request::builder().method(method).uri(path);
    let request = request.header("Content-Type", kind).body(body).ok()?;
    client.request(request).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_etcd_says_where_the_api_has_the_object() {
        let path = |key| Left::parse(key).map(|left| (left.prefix.clone(), left.path()));
        let expected = |prefix: &str, path: &str| Some((prefix.to_owned(), path.to_owned()));
        assert_eq!(
            path("minions/node-1"),
            expected("minions/", "/api/v1/nodes/node-1")
        );
        assert_eq!(
            path("services/specs/default/web"),
            expected(
                "services/specs/default/",
                "/api/v1/namespaces/default/services/web"
            )
        );
        assert_eq!(
            path("leases/kube-system/ccm"),
            expected(
                "leases/kube-system/",
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm"
            )
        );
        assert_eq!(path("clusterroles/mine"), None);
    }
}
