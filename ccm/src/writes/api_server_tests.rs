//! How a real API server applies the ccm's patches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Event, LoadBalancerIngress, LoadBalancerStatus, Namespace, Node, NodeAddress, Service, Taint,
};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use testenv::objects::{LoadBalancerBuilder, NodeBuilder};
use testenv::{ControlPlane, eventually};
use tokio_util::sync::CancellationToken;

use super::events::EventWriter;
use super::*;

const DEADLINE: Duration = Duration::from_mins(1);

async fn writes() -> (Writes, EventWriter) {
    let client = ControlPlane::shared().await.client();
    let metrics = EventMetrics::register(&mut prometheus_client::registry::Registry::default());
    let wall = Arc::new(Timestamp::now);
    let (events, writer) = EventSink::new(client.clone(), "test".to_owned(), wall, metrics);
    (Writes::new(client, events), writer)
}

async fn create_node(client: &Client, node: NodeBuilder) -> Node {
    let nodes = Api::<Node>::all(client.clone());
    nodes
        .create(&PostParams::default(), &node.build())
        .await
        .unwrap()
}

async fn delete_node(client: &Client, name: &str) {
    let nodes = Api::<Node>::all(client.clone());
    nodes.delete(name, &DeleteParams::default()).await.unwrap();
}

fn label(value: &str) -> NodePatch {
    NodePatch {
        labels: BTreeMap::from([("l".to_owned(), value.to_owned())]),
        ..NodePatch::default()
    }
}

fn taints(keys: &[&str]) -> NodePatch {
    let taints = keys.iter().map(|key| Taint {
        key: (*key).to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    });
    NodePatch {
        taints: Some(taints.collect()),
        ..NodePatch::default()
    }
}

fn address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress {
        type_: type_.to_owned(),
        address: address.to_owned(),
    }
}

fn addresses(patched: &Node) -> &[NodeAddress] {
    let status = patched.status.as_ref();
    status
        .and_then(|status| status.addresses.as_deref())
        .unwrap_or_default()
}

#[tokio::test]
async fn m12_another_node_of_the_name_is_never_written_to() {
    let (writes, _) = writes().await;
    let old = create_node(&writes.client, NodeBuilder::new("w-again")).await;
    delete_node(&writes.client, "w-again").await;
    let gone = writes.patch_node(&old, &label("x")).await;
    assert!(matches!(gone, Err(WriteError::Gone)), "{gone:?}");

    let new = create_node(&writes.client, NodeBuilder::new("w-again")).await;
    let addresses = [address("InternalIP", "10.9.9.9")];
    for refused in [
        writes.patch_node(&old, &label("x")).await,
        // The resourceVersion is wrong too.
        writes.patch_node(&old, &taints(&["t"])).await,
        writes.patch_node_addresses(&old, &addresses).await,
    ] {
        assert!(matches!(refused, Err(WriteError::Gone)), "{refused:?}");
    }
    let refused = writes.delete_node(&old).await;
    assert!(matches!(refused, Err(WriteError::Gone)), "{refused:?}");
    let now = writes.read_node("w-again").await.unwrap().unwrap();
    assert_eq!(now.metadata.resource_version, new.metadata.resource_version);
}

#[tokio::test]
async fn m12_whole_lists_are_replaced_only_at_the_version_they_were_read_at() {
    let (writes, _) = writes().await;
    let first = create_node(
        &writes.client,
        NodeBuilder::new("w-versions").label("kubelet", "1"),
    )
    .await;
    let second = writes.patch_node(&first, &label("x")).await.unwrap();
    let third = writes.patch_node(&first, &label("y")).await.unwrap();
    assert_eq!(third.metadata.managed_fields, None, "pruned");
    let conflict = writes.patch_node(&second, &taints(&["t"])).await;
    assert!(
        matches!(conflict, Err(WriteError::Conflict)),
        "{conflict:?}"
    );
    let conflict = writes.delete_node(&second).await;
    assert!(
        matches!(conflict, Err(WriteError::Conflict)),
        "{conflict:?}"
    );
    let tainted = writes
        .patch_node(&third, &taints(&["t", "u"]))
        .await
        .unwrap();
    let untainted = writes.patch_node(&tainted, &taints(&[])).await.unwrap();
    let spec = untainted.spec.clone().unwrap_or_default();
    assert_eq!(spec.taints.unwrap_or_default(), []);

    // The API server tracks managed fields only if the object was created with a label, an
    // annotation or a field of spec.
    let now = writes.read_node("w-versions").await.unwrap().unwrap();
    let managers: Vec<_> = now.metadata.managed_fields.iter().flatten().collect();
    assert!(
        managers
            .iter()
            .any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER)),
        "{managers:?}"
    );
    let now = writes.read_node("w-versions").await.unwrap().unwrap();
    writes.delete_node(&now).await.unwrap();
    assert!(writes.read_node("w-versions").await.unwrap().is_none());
    let gone = writes.delete_node(&now).await;
    assert!(matches!(gone, Err(WriteError::Gone)), "{gone:?}");
}

#[tokio::test]
async fn n11_two_addresses_of_one_type_stay_in_their_order() {
    let (writes, _) = writes().await;
    let node = create_node(&writes.client, NodeBuilder::new("w-addresses")).await;
    let wanted = [
        address("InternalIP", "10.0.0.2"),
        address("InternalIP", "fd00::2"),
        address("Hostname", "w-addresses"),
        address("InternalIP", "10.0.0.1"),
    ];
    for wanted in [&wanted[..], &wanted[1..], &wanted[2..]] {
        let patched = writes.patch_node_addresses(&node, wanted).await.unwrap();
        assert_eq!(addresses(&patched), wanted);
        let now = writes.read_node("w-addresses").await.unwrap().unwrap();
        assert_eq!(addresses(&now), wanted);
        let conditions = now.status.unwrap().conditions.unwrap_or_default();
        assert!(!conditions.is_empty(), "the rest of the status stays");
    }
}

#[tokio::test]
async fn b_n4_what_the_api_server_refuses_is_told_with_its_reason() {
    let (writes, _) = writes().await;
    let node = create_node(&writes.client, NodeBuilder::new("w-refused")).await;
    let refused = writes.patch_node(&node, &label("not a label value!")).await;
    let Err(WriteError::Refused(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains("metadata.labels"), "{why}");
    let patch = |id: &str| NodePatch {
        provider_id: Some(id.to_owned()),
        ..NodePatch::default()
    };
    let patched = writes.patch_node(&node, &patch("mock://1")).await.unwrap();
    let refused = writes.patch_node(&patched, &patch("mock://2")).await;
    assert!(
        matches!(refused, Err(WriteError::Refused(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn b_s2_services_finalizer_annotation_status_and_back() {
    let (writes, _) = writes().await;
    let services = Api::<Service>::namespaced(writes.client.clone(), "default");
    let service = LoadBalancerBuilder::new("default", "w-service").build();
    let service = services
        .create(&PostParams::default(), &service)
        .await
        .unwrap();
    let finalizer = |finalizers: &[&str], annotation: Option<&str>| ServicePatch {
        finalizers: Some(finalizers.iter().map(|&name| name.to_owned()).collect()),
        annotations: BTreeMap::from([("grpc-ccm.io/x".to_owned(), annotation.map(str::to_owned))]),
    };
    let held = finalizer(&["service.kubernetes.io/load-balancer-cleanup"], Some("1"));
    let patched = writes.patch_service(&service, &held).await.unwrap();
    assert_eq!(patched.metadata.finalizers.as_ref().map(Vec::len), Some(1));
    let conflict = writes.patch_service(&service, &finalizer(&[], None)).await;
    assert!(
        matches!(conflict, Err(WriteError::Conflict)),
        "{conflict:?}"
    );

    let ingress = |ip: &str| LoadBalancerIngress {
        ip: Some(ip.to_owned()),
        ip_mode: Some("VIP".to_owned()),
        ..LoadBalancerIngress::default()
    };
    let status = |ingresses: Vec<LoadBalancerIngress>| ServiceStatusPatch {
        load_balancer: Some(LoadBalancerStatus {
            ingress: (!ingresses.is_empty()).then_some(ingresses),
        }),
        conditions: None,
    };
    let two = status(vec![ingress("192.0.2.1"), ingress("192.0.2.2")]);
    let late = writes.patch_service_status(&service, &two).await;
    assert!(
        matches!(late, Err(WriteError::Conflict)),
        "a status that was decided for an older version: {late:?}"
    );
    let handle = ServicePatch {
        finalizers: None,
        ..finalizer(&[], Some("2"))
    };
    let late = writes.patch_service(&service, &handle).await;
    assert!(
        matches!(late, Err(WriteError::Conflict)),
        "a handle of a former leader: {late:?}"
    );
    let patched = writes.patch_service_status(&patched, &two).await.unwrap();
    let shown = patched.status.as_ref().unwrap();
    assert_eq!(shown.load_balancer, two.load_balancer);
    let none = status(vec![]);
    let cleared = writes.patch_service_status(&patched, &none).await.unwrap();
    let cleared_status = cleared
        .status
        .clone()
        .unwrap()
        .load_balancer
        .unwrap_or_default();
    assert_eq!(cleared_status.ingress.unwrap_or_default(), []);

    services
        .delete("w-service", &DeleteParams::default())
        .await
        .unwrap();
    let deleting = writes
        .read_service("default", "w-service")
        .await
        .unwrap()
        .unwrap();
    assert!(deleting.metadata.deletion_timestamp.is_some());
    let released = writes
        .patch_service(&deleting, &finalizer(&[], None))
        .await
        .unwrap();
    assert_eq!(
        released.metadata.finalizers.unwrap_or_default(),
        Vec::<String>::new()
    );
    assert!(
        writes
            .read_service("default", "w-service")
            .await
            .unwrap()
            .is_none()
    );
    let gone = writes.patch_service_status(&deleting, &two).await;
    assert!(matches!(gone, Err(WriteError::Gone)), "{gone:?}");
}

async fn events_of(client: &Client, namespace: &str, uid: &str) -> Vec<Event> {
    let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    let events = Api::<Event>::namespaced(client.clone(), namespace);
    events.list(&params).await.unwrap().items
}

#[tokio::test]
async fn b_n7_events_are_on_the_node_and_a_repeat_writes_on_the_same_event() {
    let (writes, writer) = writes().await;
    let node = create_node(&writes.client, NodeBuilder::new("w-events")).await;
    let uid = node.metadata.uid.clone().unwrap();
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(writer.run(stop.clone()));
    let events = writes.with_component("cloud-node-controller").events;
    let record = |message: &str| {
        let kind = EventType::Warning;
        events.record(&reference(&node), kind, "CallError", message.to_owned());
    };
    let seen = async |count: i32| {
        eventually("the event is there", DEADLINE, async || {
            let events = events_of(&writes.client, "default", &uid).await;
            assert!(events.len() <= 1, "{events:?}");
            events.into_iter().find(|event| event.count == Some(count))
        })
        .await
    };
    record("first");
    let first = seen(1).await;
    assert_eq!(
        first.source.unwrap().component.as_deref(),
        Some("cloud-node-controller")
    );
    assert_eq!(first.type_.as_deref(), Some("Warning"));
    record("second");
    assert_eq!(seen(2).await.message.as_deref(), Some("second"));

    let described = ControlPlane::shared()
        .await
        .kubectl()
        .args(["describe", "node", "w-events"])
        .output()
        .unwrap();
    let described = String::from_utf8_lossy(&described.stdout).into_owned();
    assert!(
        described.contains("CallError") && described.contains("second"),
        "{described}"
    );

    // Somebody deleted the Event: the next write creates a new one.
    let all = Api::<Event>::namespaced(writes.client.clone(), "default");
    all.delete(&first.metadata.name.unwrap(), &DeleteParams::default())
        .await
        .unwrap();
    record("third");
    assert_eq!(seen(1).await.message.as_deref(), Some("third"));

    // The writer still writes the events that wait at the stop. It has 5 s for them.
    let reference = reference(&node);
    for number in 0..2 {
        let reason = format!("Reason{number}");
        events.record(&reference, EventType::Normal, &reason, String::new());
    }
    stop.cancel();
    tokio::time::timeout(DEADLINE, tasks.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(events_of(&writes.client, "default", &uid).await.len(), 3);
}

#[tokio::test]
async fn m10_an_event_that_is_refused_holds_up_no_other() {
    let (writes, writer) = writes().await;
    let namespaces = Api::<Namespace>::all(writes.client.clone());
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some("w-events".to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let reference = |namespace: &str| {
        let mut service = LoadBalancerBuilder::new(namespace, "s").build();
        service.metadata.uid = Some(format!("uid-in-{namespace}"));
        reference(&service)
    };
    let kind = EventType::Normal;
    writes.events.record(
        &reference("w-no-such-namespace"),
        kind,
        "One",
        String::new(),
    );
    writes
        .events
        .record(&reference("w-events"), kind, "Two", String::new());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(writer.run(CancellationToken::new()));
    eventually("the event is there", DEADLINE, async || {
        let events = events_of(&writes.client, "w-events", "uid-in-w-events").await;
        (events.len() == 1).then_some(())
    })
    .await;
}
