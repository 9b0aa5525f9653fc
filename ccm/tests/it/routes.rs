//! Routes: what only the real API server, the real process and a real socket can show.

mod life;

use k8s_openapi::api::core::v1::Node;
use provider_mock::Route;
use testenv::objects::NodeBuilder;
use testenv::{Process, eventually};

use crate::world::{SOON, World, instance};

/// Enables the route controller, with short pauses between passes.
pub const FLAGS: [&str; 3] = [
    "--allocate-node-cidrs",
    "--cluster-cidr=10.244.0.0/16,fd00:244::/48",
    "--route-reconciliation-period=1s",
];

/// Starts a ccm with the route controller, and waits until it leads.
pub async fn ccm(world: &mut World, more: &[&str]) -> Process {
    let flags: Vec<&str> = FLAGS.iter().chain(more).copied().collect();
    let ccm = world.ccm(&flags);
    world.led_by(&ccm).await;
    ccm
}

/// A Node with an instance, and the Pod CIDRs that the kube-controller-manager would give it.
pub async fn join(world: &World, name: &str, pod_cidrs: &[&str]) {
    world.cloud().add_instance(instance(name)).unwrap();
    register(world, name, pod_cidrs).await;
}

/// Registers the Node, without an instance.
pub async fn register(world: &World, name: &str, pod_cidrs: &[&str]) {
    let node = NodeBuilder::new(name).uninitialized().pod_cidrs(pod_cidrs);
    world.register(node).await;
}

/// Waits until the condition NetworkUnavailable has this status, reason and message.
pub async fn condition(world: &World, name: &str, wanted: [&str; 3]) -> Node {
    world
        .node_becomes(name, "the condition NetworkUnavailable", |node| {
            let conditions = node.status.iter().flat_map(|status| &status.conditions);
            conditions.flatten().any(|condition| {
                let shown = [
                    Some(condition.status.as_str()),
                    condition.reason.as_deref(),
                    condition.message.as_deref(),
                ];
                condition.type_ == "NetworkUnavailable" && shown == wanted.map(Some)
            })
        })
        .await
}

/// The condition of a Node that has its routes.
pub const CREATED: [&str; 3] = ["False", "RouteCreated", "RouteController created a route"];
/// The condition of a Node whose routes could not be created.
pub const FAILED: [&str; 3] = [
    "True",
    "NoRouteCreated",
    "RouteController failed to create a route",
];

/// Waits until the cloud has these routes, as `destination node`.
pub async fn cloud_has(world: &World, wanted: &[&str]) {
    eventually("the cloud's routes", SOON, async || {
        let mut routes: Vec<String> = world.cloud().routes().iter().map(shown).collect();
        routes.sort();
        if routes == wanted {
            Ok(())
        } else {
            Err(format!("{routes:?}"))
        }
    })
    .await;
}

fn shown(route: &Route) -> String {
    let node = route.node_name.as_deref().unwrap_or("-");
    format!("{} {node}", route.destination_cidr)
}
