//! Nodes, from joining to being initialised.

mod killed;
mod many;
mod refresh;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use provider_mock::{Address, Fault, Fixture, Instance, Power};
use testenv::objects::{NodeBuilder, UNINITIALIZED};
use tokio::task::JoinHandle;

use crate::world::{World, addresses, instance, label, taints};

/// The annotation with the kubelet's `--node-ip`.
const PROVIDED: &str = "alpha.kubernetes.io/provided-node-ip";

/// A Node as a kubelet registers it.
fn fresh(name: &str) -> NodeBuilder {
    NodeBuilder::new(name).uninitialized()
}

/// An address inside the cluster's network.
fn internal(ip: &str) -> Address {
    Address::InternalIp(ip.parse().unwrap())
}

/// An instance with these addresses and nothing else.
fn with_addresses(name: &str, addresses: &[Address]) -> Instance {
    let mut instance = Instance::new(name);
    instance.addresses = addresses.to_vec();
    instance
}

/// Writes labels of a Node as another writer than the ccm. `None` removes the label.
async fn write_labels(world: &World, node: &str, labels: &[(&str, Option<&str>)]) {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    let patch = serde_json::json!({ "metadata": { "labels": labels } });
    let user = PatchParams {
        field_manager: Some("somebody".to_owned()),
        ..PatchParams::default()
    };
    world
        .nodes()
        .patch(node, &user, &Patch::Merge(patch))
        .await
        .unwrap();
}

/// The Node's resourceVersion, which changes with the Node.
fn version(node: &Node) -> String {
    node.metadata.resource_version.clone().unwrap()
}

/// The resourceVersions of all Nodes, by name.
async fn versions(world: &World) -> BTreeMap<String, String> {
    let nodes = world.nodes().list(&ListParams::default()).await.unwrap();
    let name = |node: &Node| node.metadata.name.clone().unwrap();
    nodes
        .iter()
        .map(|node| (name(node), version(node)))
        .collect()
}

/// How many patches of Nodes the API server has received, also those that changed nothing.
async fn patches(world: &World) -> f64 {
    let metrics = Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = world.client.request_text(metrics).await.unwrap();
    let of_nodes = metrics.lines().filter(|line| {
        line.starts_with("apiserver_request_total{")
            && line.contains("resource=\"nodes\"")
            && line.contains("verb=\"PATCH\"")
    });
    of_nodes
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

/// How many lookups asked about this Node.
fn lookups_of(world: &World, node: &str) -> usize {
    let calls = world.cloud().calls(Some("LookupInstances"));
    let asked = |names: &[String]| names.iter().any(|name| name == node);
    calls.iter().filter(|call| asked(&call.names)).count()
}

/// Every version of every Node, from now on until a Node of this name is there.
fn all_versions(nodes: Api<Node>, until: &'static str) -> JoinHandle<Vec<Node>> {
    tokio::spawn(async move {
        let params = WatchParams::default();
        let events = nodes.watch(&params, "0").await.unwrap();
        let versions = events.try_filter_map(async |event| {
            Ok(match event {
                WatchEvent::Added(node) | WatchEvent::Modified(node) => Some(node),
                _ => None,
            })
        });
        let mut seen = Vec::new();
        let mut versions = Box::pin(versions);
        while let Some(node) = versions.next().await {
            let node = node.unwrap();
            if node.metadata.name.as_deref() == Some(until) {
                return seen;
            }
            seen.push(node);
        }
        panic!("the watch ended before {until} was there");
    })
}

/// Shows B-N3, B-N4, B-N5 and B-N6 too.
#[tokio::test]
async fn b_n2_b_n7_n7_n14_what_a_node_is_given() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    let versions = all_versions(world.nodes(), "the-end");

    world.join("plain").await;
    plain(&world).await;
    labels(&world).await;
    node_ips(&world).await;
    host_names(&world).await;
    ids(&world).await;

    // ▲N7: the watch showed no Node that had neither the taint nor an address.
    world.register(NodeBuilder::new("the-end")).await;
    let versions = versions.await.unwrap();
    let name = |node: &Node| node.metadata.name.clone().unwrap();
    let open = versions
        .iter()
        .filter(|node| !taints(node).contains(&UNINITIALIZED));
    let open: Vec<&Node> = open.collect();
    let names: BTreeSet<String> = open.iter().map(|node| name(node)).collect();
    assert_eq!(names.len(), 9, "{names:?}");
    for node in open {
        assert!(!addresses(node).is_empty(), "{} has none", name(node));
    }
}

/// B-N2, B-N3, B-N7.
async fn plain(world: &World) {
    let node = world.initialised("plain").await;
    assert_eq!(
        node.spec.as_ref().unwrap().provider_id.as_deref(),
        Some("mock://zone-1/plain")
    );
    for (key, value) in [
        ("node.kubernetes.io/instance-type", "mock.large"),
        ("beta.kubernetes.io/instance-type", "mock.large"),
        ("topology.kubernetes.io/zone", "zone-1"),
        ("failure-domain.beta.kubernetes.io/zone", "zone-1"),
        ("topology.kubernetes.io/region", "region-1"),
        ("failure-domain.beta.kubernetes.io/region", "region-1"),
    ] {
        assert_eq!(label(&node, key), Some(value), "{key}");
    }
    assert_eq!(addresses(&node).len(), 1);
    world
        .event("plain", "Normal Synced Node synced successfully")
        .await;
}

/// B-N3, B-N4, ▲N14; other taints stay.
async fn labels(world: &World) {
    let generous = instance("labelled")
        .instance_type("no label: with spaces")
        .label("free", "cloud")
        .label("example.com/free", "cloud")
        .label("taken", "cloud")
        .label("node.kubernetes.io/theirs", "cloud")
        .label("kubernetes.io/theirs", "cloud")
        .label("a.b.k8s.io/theirs", "cloud")
        .label("grpc-ccm.io/provider", "another")
        .label("bad", "not a value!")
        .label("bad key", "cloud");
    world.cloud().add_instance(generous).unwrap();
    let node = fresh("labelled")
        .taint("example.com/mine", "yes", "NoExecute")
        .label("taken", "user")
        .label("topology.kubernetes.io/zone", "by-the-kubelet");
    world.register(node).await;
    let node = world.initialised("labelled").await;
    for (key, value) in [
        ("free", Some("cloud")),
        ("example.com/free", Some("cloud")),
        ("taken", Some("user")),
        ("node.kubernetes.io/theirs", None),
        ("kubernetes.io/theirs", None),
        ("a.b.k8s.io/theirs", None),
        ("grpc-ccm.io/provider", None),
        ("bad", None),
        ("bad key", None),
        ("node.kubernetes.io/instance-type", None),
        ("beta.kubernetes.io/instance-type", None),
        ("topology.kubernetes.io/zone", Some("zone-1")),
        ("failure-domain.beta.kubernetes.io/zone", Some("zone-1")),
    ] {
        assert_eq!(label(&node, key), value, "{key}");
    }
    assert_eq!(taints(&node), ["example.com/mine"]);
    let dropped = world.event("labelled", "Warning InvalidNodeLabel").await;
    // The provider itself leaves out a type that is no label value (INST-15).
    for named in ["\"bad\" = \"not a value!\"", "bad key"] {
        assert!(dropped.contains(named), "{dropped}");
    }
}

/// B-N5, if the provided IPs are the instance's.
async fn node_ips(world: &World) {
    let many = [
        Address::ExternalIp("192.0.2.1".parse().unwrap()),
        internal("10.0.0.1"),
        internal("10.0.0.2"),
        internal("fd00::1"),
        Address::InternalDns("n.internal".to_owned()),
    ];
    for (name, provided, expected) in [
        (
            "one-ip",
            "10.0.0.2",
            [
                "InternalIP=10.0.0.2",
                "ExternalIP=192.0.2.1",
                "InternalDNS=n.internal",
            ]
            .as_slice(),
        ),
        (
            "two-ips",
            "fd00::1,10.0.0.2",
            &[
                "InternalIP=fd00::1",
                "InternalIP=10.0.0.2",
                "ExternalIP=192.0.2.1",
                "InternalDNS=n.internal",
            ],
        ),
        (
            "two-types",
            "192.0.2.1",
            &[
                "ExternalIP=192.0.2.1",
                "InternalIP=10.0.0.1",
                "InternalIP=10.0.0.2",
                "InternalIP=fd00::1",
                "InternalDNS=n.internal",
            ],
        ),
    ] {
        let added = world.cloud().add_instance(with_addresses(name, &many));
        added.unwrap();
        let node = fresh(name).annotation(PROVIDED, provided);
        world.register(node).await;
        let node = world.initialised(name).await;
        assert_eq!(addresses(&node), expected, "{name}");
    }
}

/// B-N6, and the order of many addresses of one type.
async fn host_names(world: &World) {
    let kubelet = |name: &str| {
        let node = fresh(name).address("InternalIP", "10.9.9.9");
        node.address("Hostname", "kubelet")
    };
    let many = [
        internal("10.0.0.2"),
        internal("fd00::2"),
        internal("10.0.0.1"),
    ];
    let named = [internal("10.0.0.3"), Address::Hostname("cloud".to_owned())];
    for (name, given, expected) in [
        (
            "many",
            many.as_slice(),
            [
                "InternalIP=10.0.0.2",
                "InternalIP=fd00::2",
                "InternalIP=10.0.0.1",
                "Hostname=kubelet",
            ]
            .as_slice(),
        ),
        ("named", &named, &["InternalIP=10.0.0.3", "Hostname=cloud"]),
        (
            "no-address",
            &[],
            &["InternalIP=10.9.9.9", "Hostname=kubelet"],
        ),
    ] {
        let added = world.cloud().add_instance(with_addresses(name, given));
        added.unwrap();
        world.register(kubelet(name)).await;
        let node = world.initialised(name).await;
        assert_eq!(addresses(&node), expected, "{name}");
    }
}

/// B-N2: the ccm keeps the ID that the Node has, and finds the instance by it, whatever the
/// instance's name is. A machine that is shut down exists.
async fn ids(world: &World) {
    let mut renamed = instance("in-the-cloud").power(Power::Stopped);
    renamed.provider_id = String::from("mock://by-hand");
    world.cloud().add_instance(renamed).unwrap();
    // Another machine has the Node's name.
    let other = instance("in-the-cluster").instance_type("mock.other");
    world.cloud().add_instance(other).unwrap();
    let node = fresh("in-the-cluster").provider_id("mock://by-hand");
    world.register(node).await;
    let node = world.initialised("in-the-cluster").await;
    let spec = node.spec.as_ref().unwrap();
    assert_eq!(spec.provider_id.as_deref(), Some("mock://by-hand"));
    assert_eq!(
        label(&node, "node.kubernetes.io/instance-type"),
        Some("mock.large")
    );
}

#[tokio::test]
async fn n11_one_node_that_breaks_every_call_starves_nobody() {
    let mut world = World::new(Fixture::default()).await;
    let poison = Fault::status("LookupInstances", tonic::Code::Unknown).subject("poison");
    world.cloud().set_fault(poison).unwrap();
    // All come in one batch.
    for name in ["a", "b", "poison", "c", "d"] {
        world.join(name).await;
    }
    let _ccm = world.ccm(&[]);
    for name in ["a", "b", "c", "d"] {
        world.initialised(name).await;
    }
    world.is_uninitialised("poison").await;
    // The call was halved.
    let calls = world.cloud().calls(Some("LookupInstances"));
    let counts: Vec<usize> = calls.iter().map(|call| call.count).collect();
    assert!(
        counts[0] == 5 && counts[1] < 5 && counts[1] + counts[2] == 5,
        "{counts:?}"
    );
    world.cloud().clear_faults();
    world.initialised("poison").await;
}
