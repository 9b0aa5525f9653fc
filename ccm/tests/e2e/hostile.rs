//! A hostile provider in the Pod: it answers too much, floods with events, and says that it is
//! another cloud's.

use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use testenv::eventually;
use testenv::objects::{LoadBalancerBuilder, NodeBuilder, is_tainted};

use crate::before::Before;
use crate::images::Image;
use crate::inside::Inside;
use crate::one_node::one_pod;
use crate::strangers::assert_goes_on;
use crate::world::{PATIENCE, World, is_initialised};

/// A Node without a machine.
const GHOST: &str = "ghost";
const OTHERS_CLASS: &str = "example.com/others";
/// How many times the answers get new events, and how many events an answer carries.
const FLOODS: usize = 4;
const EVENTS: usize = 16;
/// The most event writes that a provider can cause in ten minutes on one object.
const OF_OBJECT: usize = 27;
/// The first of the Service's ports. Each change takes a new one.
const PORTS: usize = 8_000;
const MIB: u64 = 1 << 20;
/// The most memory that answers may add.
const MOST_ADDED: u64 = 128 * MIB;
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Runs the mock's control command in its container.
fn ctl(world: &World, pod: &str, arguments: &[&str]) {
    let exec = ["exec", pod, "--container", "provider", "--"];
    let mock = ["/provider-mock", "ctl"];
    world.kubectl(&[&exec[..], &mock, arguments].concat());
}

/// A hostile provider: the ccm takes little more memory, writes few events, and Kubernetes loses
/// nothing.
pub async fn provider(world: &mut World) {
    let before = one_pod(world, Image::Mock).await;
    let pod = before.name_any();
    let ccm = Inside::of(&before, "ccm");
    let untouched = Before::of(world).await;
    let address = world.gets_address("web").await;
    let on_web = world.event_writes("web.");
    let base = ccm.resident_bytes_from_here();

    world.report.start();
    floods(world, &pod).await;
    world
        .report
        .lap("64 events with made-up reasons on one Service");
    answers_too_much(world, &pod).await;
    world.report.lap("answers that are too large");
    claims_a_class(world, &pod).await;
    claims_another_account(world, &pod).await;
    world
        .report
        .lap("another class, another account, and back to the right ones");

    assert_goes_on(world, &before).await;
    let added = ccm.most_resident_bytes().saturating_sub(base);
    let on_web = world.event_writes("web.") - on_web;
    eprintln!(
        "a hostile provider: {} MiB over {} MiB, {on_web} event writes on one Service",
        added / MIB,
        base / MIB
    );
    assert!(added < MOST_ADDED, "{added}");
    assert!((EVENTS..=OF_OBJECT).contains(&on_web), "{on_web}");
    untouched.assert_same_node(world).await;
    let node = world.node("node-a").await;
    assert!(is_initialised(&node) && !is_tainted(&node, SHUTDOWN));
    assert_eq!(world.cloud.load_balancers(), untouched.load_balancers);
    assert_eq!(world.gets_address("web").await, address);
}

/// Several times, the answers about one Service get events with new reasons.
async fn floods(world: &World, pod: &str) {
    for flood in 0..FLOODS {
        let mut arguments = vec!["service".to_owned(), "default/web".to_owned()];
        for event in 0..EVENTS {
            arguments.push("--event".to_owned());
            arguments.push(format!("MadeUp{flood}x{event}=nothing happened"));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        ctl(world, pod, &arguments);
        change(world, flood);
        changed(world, flood).await;
    }
    ctl(world, pod, &["service", "default/web"]);
}

/// An answer has more bytes than the RPC allows, or would take gigabytes when decoded: the ccm logs
/// that, and goes on without it.
async fn answers_too_much(world: &World, pod: &str) {
    let answers = [
        (
            "LookupInstances",
            "oversized",
            "the most that LookupInstances may answer",
        ),
        (
            "LookupInstances",
            "empty-items",
            "LookupInstances would take more than",
        ),
        (
            "EnsureLoadBalancer",
            "empty-items",
            "the most that EnsureLoadBalancer may answer",
        ),
    ];
    let nodes: Api<Node> = Api::all(world.client.clone());
    let mut number = FLOODS;
    for (rpc, kind, said) in answers {
        ctl(world, pod, &["fault", "set", rpc, kind]);
        // The new Node needs a LookupInstances, and the Service an EnsureLoadBalancer.
        let ghost = NodeBuilder::new(GHOST).uninitialized().build();
        nodes.create(&PostParams::default(), &ghost).await.unwrap();
        number += 1;
        change(world, number);
        world.said(pod, "ccm", said).await;
        ctl(world, pod, &["fault", "clear"]);
        world.kubectl(&["delete", "node", GHOST]);
    }
    changed(world, number).await;
}

/// The provider claims a class that it did not claim before: a Service of that class stays without
/// a load balancer.
async fn claims_a_class(world: &World, pod: &str) {
    let claim = ["--value", OTHERS_CLASS];
    let fault = ["fault", "set", "GetProviderInfo", "load-balancer-class"];
    ctl(world, pod, &[&fault[..], &claim].concat());
    connects_again(world, pod, "the ccm does not serve it until you accept it").await;
    let others = LoadBalancerBuilder::new("default", "others").class(OTHERS_CLASS);
    services(&world.client)
        .create(&PostParams::default(), &others.build())
        .await
        .unwrap();
    world.renewals(2).await;
    assert_eq!(world.address("others").await, None);
    assert_eq!(world.cloud.served(), ["web"]);
    world.kubectl(&["delete", "service", "others", "--namespace=default"]);
}

/// While the provider reports another account, the ccm changes nothing in the cloud.
async fn claims_another_account(world: &World, pod: &str) {
    let scope = ["--value", "another account"];
    let fault = ["fault", "set", "Initialize", "cloud-scope"];
    ctl(world, pod, &[&fault[..], &scope].concat());
    connects_again(world, pod, "the ccm creates and deletes nothing").await;
    let writes = world.cloud.writes();
    world.expose("waits").await;
    world.renewals(2).await;
    assert_eq!(world.cloud.writes(), writes);
    assert_eq!(world.address("waits").await, None);

    ctl(world, pod, &["fault", "clear"]);
    connects_again(world, pod, "initialised the provider").await;
    world.gets_address("waits").await;
    world.kubectl(&["delete", "service", "waits", "--namespace=default"]);
}

/// The provider answers one Probe with another boot ID, as after a restart. The ccm then calls
/// GetProviderInfo again, and logs `said`.
async fn connects_again(world: &World, pod: &str, said: &str) {
    let told = world.logs(pod, "ccm").matches(said).count();
    let fault = ["fault", "set", "Probe", "boot-id", "--value", "another"];
    ctl(world, pod, &[&fault[..], &["--times", "1"]].concat());
    world.said_times(pod, "ccm", said, told + 1).await;
}

/// The user wants another port of the Service: its load balancer has to be changed.
fn change(world: &World, number: usize) {
    let port = PORTS + number;
    let patch = format!(r#"[{{"op":"replace","path":"/spec/ports/0/port","value":{port}}}]"#);
    world.kubectl(&[
        "patch",
        "service",
        "web",
        "--namespace=default",
        "--type=json",
        &format!("--patch={patch}"),
    ]);
}

/// Waits until the load balancer has the port.
async fn changed(world: &World, number: usize) {
    eventually("web listens on the new port", PATIENCE, async || {
        let done = world.cloud.listens_on("web", PORTS + number);
        done.then_some(())
    })
    .await;
}

fn services(client: &Client) -> Api<Service> {
    Api::namespaced(client.clone(), "default")
}
