use std::collections::BTreeMap;

use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::{
    LoadBalancerStatus, Node, NodeAddress, NodeCondition, Service, Taint,
};
use kube::client::Body;

use super::*;

fn node() -> Node {
    let mut node = Node::default();
    node.metadata.name = Some("a".to_owned());
    node.metadata.uid = Some("u".to_owned());
    node.metadata.resource_version = Some("7".to_owned());
    node
}

fn service() -> Service {
    Service {
        metadata: node().metadata,
        ..Service::default()
    }
}

#[test]
fn nothing_to_write_is_no_patch() {
    assert_eq!(NodePatch::default().body(&node()), None);
    assert_eq!(ServicePatch::default().body(&service()), None);
    assert_eq!(ServiceStatusPatch::default().body(&service()), None);
}

#[test]
fn m12_a_patch_carries_the_uid_and_for_whole_lists_the_version() {
    let patch = NodePatch {
        provider_id: Some("p".to_owned()),
        labels: BTreeMap::from([("set".to_owned(), "x".to_owned())]),
        ..NodePatch::default()
    };
    assert_eq!(
        patch.body(&node()),
        Some(json!({
            "metadata": { "uid": "u", "labels": { "set": "x" } },
            "spec": { "providerID": "p" },
        }))
    );
    let patch = NodePatch {
        taints: Some(vec![Taint {
            key: "k".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        }]),
        ..NodePatch::default()
    };
    assert_eq!(
        patch.body(&node()),
        Some(json!({
            "metadata": { "uid": "u", "resourceVersion": "7" },
            "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] },
        }))
    );
    let address = NodeAddress {
        type_: "InternalIP".to_owned(),
        address: "10.0.0.1".to_owned(),
    };
    assert_eq!(
        nodes::addresses_body(&node(), &[address]),
        json!({
            "metadata": { "uid": "u" },
            "status": { "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }] },
        })
    );
}

#[test]
fn b_s2_a_service_patch_never_touches_the_spec() {
    let patch = ServicePatch {
        finalizers: Some(vec![]),
        annotations: BTreeMap::from([("a".to_owned(), None)]),
    };
    assert_eq!(
        patch.body(&service()),
        Some(json!({
            "metadata": { "uid": "u", "resourceVersion": "7", "finalizers": [], "annotations": { "a": null } },
        }))
    );
}

#[test]
fn b_s5_an_empty_status_clears_the_ingresses() {
    let patch = ServiceStatusPatch {
        load_balancer: Some(LoadBalancerStatus::default()),
        conditions: Some(vec![]),
    };
    assert_eq!(
        patch.body(&service()),
        Some(json!({
            "metadata": { "uid": "u", "resourceVersion": "7" },
            "status": { "loadBalancer": { "ingress": null }, "conditions": [] },
        }))
    );
}

#[test]
fn b_r4_a_condition_is_set_alone_at_the_version_that_was_read() {
    let condition = NodeCondition {
        type_: "NetworkUnavailable".to_owned(),
        status: "False".to_owned(),
        ..NodeCondition::default()
    };
    assert_eq!(
        nodes::condition_body(&node(), &condition),
        json!({
            "metadata": { "uid": "u", "resourceVersion": "7" },
            "status": { "conditions": [{ "type": "NetworkUnavailable", "status": "False" }] },
        })
    );
}

/// Writes to an API server that answers 409 to every write, and 404 with this body to every read.
fn not_found(body: &'static str) -> Writes {
    let server = tower::service_fn(move |request: Request<Body>| {
        let conflict = r#"{"kind":"Status","status":"Failure","reason":"Conflict","code":409}"#;
        let (code, body) = match *request.method() {
            Method::GET => (404, body),
            _ => (409, conflict),
        };
        let body = Body::from(body.as_bytes().to_vec());
        std::future::ready(Response::builder().status(code).body(body))
    });
    Writes::new(Client::new(server, "default"), EventSink::unwritten())
}

#[tokio::test]
async fn m11_only_the_api_servers_own_404_means_that_an_object_does_not_exist() {
    let patch = NodePatch {
        provider_id: Some("p".to_owned()),
        ..NodePatch::default()
    };
    let proxy = not_found("<html>default backend</html>");
    let read = proxy.read_service("default", "a").await;
    assert!(matches!(read, Err(WriteError::Unavailable(_))), "{read:?}");
    let read = proxy.read_node("a").await;
    assert!(matches!(read, Err(WriteError::Unavailable(_))), "{read:?}");
    let patched = proxy.patch_node(&node(), &patch).await;
    assert!(matches!(patched, Err(WriteError::Conflict)), "{patched:?}");

    let own = not_found(r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#);
    let read = own.read_service("default", "a").await;
    assert!(matches!(read, Ok(None)), "{read:?}");
    let read = own.read_node("a").await;
    assert!(matches!(read, Ok(None)), "{read:?}");
    let patched = own.patch_node(&node(), &patch).await;
    assert!(matches!(patched, Err(WriteError::Gone)), "{patched:?}");
}

#[tokio::test]
async fn b_m8_a_node_with_a_time_beyond_jiffs_range_is_listed_read_and_patched() {
    let odd = json!({
        "metadata": {"name": "odd"},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "9999-12-31T23:59:59Z"},
        ]},
    });
    let server = tower::service_fn(move |request: Request<Body>| {
        let body = if request.uri().path().ends_with("/nodes") {
            json!({"metadata": {}, "items": [odd, {"metadata": {"name": "plain"}}]})
        } else {
            odd.clone()
        };
        let body = Body::from(body.to_string().into_bytes());
        std::future::ready(Response::builder().body(body))
    });
    let writes = Writes::new(Client::new(server, "default"), EventSink::unwritten());
    let mut names = Vec::new();
    let listed = writes.list_nodes(|node| {
        names.extend(node.metadata.name.clone());
        true
    });
    listed.await.unwrap();
    assert_eq!(names, ["odd", "plain"]);
    assert!(writes.read_node("odd").await.unwrap().is_some());
    let patch = NodePatch {
        provider_id: Some("p".to_owned()),
        ..NodePatch::default()
    };
    assert!(writes.patch_node(&node(), &patch).await.is_ok());
}
