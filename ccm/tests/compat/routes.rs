//! Routes to the Pods of Nodes.

mod failing;
mod tracked;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams};
use provider_mock::{Fault, FaultKind, Instance, Route};
use serde_json::json;
use testenv::objects::NodeBuilder;

use crate::nodes::instance;
use crate::scenario::{Scenario, fact, nothing};
use crate::side::{Side, Who};

pub use tracked::{track, tracked};

const LIST: &str = "ListRoutes";

/// The Pod CIDR with this number, inside `--cluster-cidr`.
fn v4(number: u8) -> String {
    format!("10.244.{number}.0/24")
}

fn v6(number: u8) -> String {
    format!("fd00:10:244:0:{number}::/80")
}

async fn joins(side: &Side, instance: Instance, cidrs: &[String]) {
    let name = instance.name.clone();
    side.cloud().add_instance(instance).unwrap();
    registers(side, &name, cidrs).await;
}

/// A Node registers and is initialised, and gets its Pod CIDRs only then. Otherwise upstream would
/// create the route before the initialisation, when it knows only the Node's name (▲R8).
async fn registers(side: &Side, name: &str, cidrs: &[String]) {
    side.register(NodeBuilder::new(name).uninitialized()).await;
    side.initialised(name).await;
    gets_cidrs(side, name, cidrs).await;
}

async fn gets_cidrs(side: &Side, name: &str, cidrs: &[String]) {
    if let Some(first) = cidrs.first() {
        let spec = json!({"podCIDR": first, "podCIDRs": cidrs});
        side.edit_node(name, json!({ "spec": spec })).await;
    }
}

/// Waits until the Node's condition says that its routes exist (B-R4).
async fn routed(side: &Side, name: &str) {
    condition(side, name, "False").await;
}

/// Waits until the Node's condition says that routes are missing.
async fn unrouted(side: &Side, name: &str) {
    condition(side, name, "True").await;
}

async fn condition(side: &Side, name: &str, status: &str) {
    let what = format!("has the condition NetworkUnavailable={status}");
    side.node_is(name, &what, |node| {
        let of = |node: &Node| node.status.clone()?.conditions;
        let conditions = node.and_then(of).unwrap_or_default();
        let mut conditions = conditions.iter();
        conditions.any(|it| it.type_ == "NetworkUnavailable" && it.status == status)
    })
    .await;
}

/// Another Node joins later and gets its routes. By then a pass has handled all earlier changes.
/// Then this waits for four renewals of the Lease, so that a second pass can run.
async fn looks(side: &Side, name: &str, number: u8) {
    let later = format!("{name}--later");
    joins(side, instance(&later), &[v4(number)]).await;
    routed(side, &later).await;
    side.renewals(4).await;
}

async fn cloud_has(side: &Side, destination: &str, wanted: bool) {
    let what = format!("a route to {destination}: {wanted}");
    side.cloud_is(&what, |cloud| {
        let routes = cloud.routes();
        let mut routes = routes.iter();
        routes.any(|route| route.destination_cidr == destination) == wanted
    })
    .await;
}

/// A route in the cloud to this instance. Its name begins with the scenario's name.
fn planted(scenario: &str, destination: &str, target: &str, owner: Option<String>) -> Route {
    Route {
        node_name: Some(target.to_owned()),
        provider_id: Some(format!("mock://zone-1/{target}")),
        owner_id: owner,
        ..Route::new(format!("{scenario}--planted"), destination)
    }
}

/// An existing route whose target is no Node.
fn stands(
    name: &'static str,
    what: &'static str,
    numbers: [u8; 2],
    change: fn(Route, String) -> Route,
) -> Scenario {
    Scenario::new(name, what, &["B-R2"], move |side: Side, name| async move {
        let target = format!("{name}--target");
        side.cloud().add_instance(instance(&target)).unwrap();
        let route = planted(name, &v4(numbers[0]), &target, None);
        let route = change(route, side.owner().await);
        side.cloud().plant_route(route).unwrap();
        looks(&side, name, numbers[1]).await;
        nothing()
    })
}

/// A Node joins with these Pod CIDRs and gets its routes.
fn made(name: &'static str, what: &'static str, cidrs: fn() -> Vec<String>) -> Scenario {
    Scenario::new(
        name,
        what,
        &["B-R2", "B-R4"],
        move |side: Side, name| async move {
            joins(&side, instance(name), &cidrs()).await;
            routed(&side, name).await;
            nothing()
        },
    )
}

/// The scenarios of a cloud whose routes do not depend on Nodes' addresses.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = of_nodes();
    all.extend(of_others());
    all.extend(failing::failing());
    all.push(not_known());
    all
}

fn of_nodes() -> Vec<Scenario> {
    vec![
        made("route-missing", "a Node gets its Pod CIDR", || vec![v4(1)]),
        made(
            "route-dual-stack",
            "a Node gets Pod CIDRs of two families",
            || vec![v4(2), v6(2)],
        ),
        Scenario::new(
            "route-none",
            "a Node without a Pod CIDR joins",
            &["B-R4"],
            async |side: Side, name| {
                joins(&side, instance(name), &[]).await;
                looks(&side, name, 4).await;
                nothing()
            },
        ),
        Scenario::new(
            "route-node-gone",
            "a Node is deleted",
            &["B-R2"],
            async |side: Side, name| {
                joins(&side, instance(name), &[v4(5)]).await;
                routed(&side, name).await;
                side.cloud().remove_instance(name).unwrap();
                side.delete_node(name).await;
                cloud_has(&side, &v4(5), false).await;
                nothing()
            },
        ),
        Scenario::new(
            "route-node-again",
            "a Node is deleted, and registers again under its name with another Pod CIDR",
            &["B-R2", "B-R4"],
            async |side: Side, name| {
                joins(&side, instance(name), &[v4(6)]).await;
                routed(&side, name).await;
                side.delete_node(name).await;
                cloud_has(&side, &v4(6), false).await;
                registers(&side, name, &[v4(7)]).await;
                routed(&side, name).await;
                nothing()
            },
        ),
        Scenario::new(
            "route-moves",
            "a Node is deleted, and another one gets its Pod CIDR",
            &["B-R2", "B-R4"],
            async |side: Side, name| {
                let first = format!("{name}--first");
                joins(&side, instance(&first), &[v4(8)]).await;
                routed(&side, &first).await;
                side.delete_node(&first).await;
                cloud_has(&side, &v4(8), false).await;
                joins(&side, instance(name), &[v4(8)]).await;
                routed(&side, name).await;
                nothing()
            },
        ),
        Scenario::new(
            "route-removed",
            "a user removes a Node's route from the cloud",
            &["B-R2"],
            async |side: Side, name| {
                joins(&side, instance(name), &[v4(9)]).await;
                routed(&side, name).await;
                let routes = side.cloud().routes();
                let route = routes.iter().find(|it| it.destination_cidr == v4(9));
                side.cloud().remove_route(&route.unwrap().name).unwrap();
                cloud_has(&side, &v4(9), true).await;
                nothing()
            },
        ),
    ]
}

/// A Node that has its Pod CIDR, and whose instance the cloud does not show yet.
fn not_known() -> Scenario {
    const WHY: &str = "a Node gets no route before the ccm knows that it belongs to this provider";
    let what = "a Node with a Pod CIDR joins, and the cloud does not show its instance yet";
    let mut scenario = Scenario::new(
        "route-not-known",
        what,
        &["▲R8"],
        async |side: Side, name| {
            side.cloud().add_instance(instance(name)).unwrap();
            let pending = Fault::new("LookupInstances", FaultKind::InstanceState).value("PENDING");
            side.fault(pending.subject(name));
            let node = NodeBuilder::new(name).uninitialized().pod_cidrs(&[&v4(25)]);
            side.register(node).await;
            if side.who() == Who::Go {
                cloud_has(&side, &v4(25), true).await;
            }
            looks(&side, name, 26).await;
            nothing()
        },
    );
    for object in [
        "route 10.244.25.0/24 ",
        "node route-not-known status conditions 1 ",
    ] {
        scenario = scenario.only_there("▲R8", WHY, Who::Go, object);
    }
    // On upstream's side the condition of the route controller stands before the kubelet's.
    for (field, go, ours) in [
        ("type", "NetworkUnavailable", Some("Ready")),
        ("status", "False", Some("True")),
        ("reason", "RouteCreated", Some("Testenv")),
        ("message", "RouteController created a route", None),
    ] {
        let line = format!("node route-not-known status conditions 0 {field}");
        scenario = scenario.differs("▲R8", WHY, &line, Some(go), ours);
    }
    let told = "event on route-not-known: Warning NodeNotInitialized: the cloud does not report this Node's instance yet [cloud-node-controller]";
    scenario.only_there("▲N13", "an event says why", Who::Ours, told)
}

/// Routes that no Node needs.
fn of_others() -> Vec<Scenario> {
    vec![
        stands(
            "route-foreign",
            "another owner's route lies in the cluster's CIDR",
            [10, 11],
            |route, _| Route {
                owner_id: Some("another-cluster".to_owned()),
                ..route
            },
        ),
        stands(
            "route-outside",
            "a route of this cluster lies outside of its CIDR",
            [12, 13],
            |route, owner| Route {
                destination_cidr: "192.168.12.0/24".to_owned(),
                owner_id: Some(owner),
                ..route
            },
        ),
        stands(
            "route-left-over",
            "a route of this cluster leads to an instance that is no Node's",
            [14, 15],
            |route, owner| Route {
                owner_id: Some(owner),
                ..route
            },
        ),
        stands(
            "route-unmarked",
            "a route without a mark names a Node that does not exist",
            [16, 17],
            |route, _| route,
        ),
        stands(
            "route-blackhole",
            "a route's target is gone, and no Node has its CIDR",
            [18, 19],
            |route, owner| Route {
                node_name: Some("nobody".to_owned()),
                provider_id: Some("mock://zone-1/nobody".to_owned()),
                owner_id: Some(owner),
                ..route
            },
        ),
        Scenario::new(
            "route-twice",
            "a second route to a Node's Pod CIDR leads to another Node",
            &["B-R2"],
            async |side: Side, name| {
                let other = format!("{name}--other");
                joins(&side, instance(name), &[v4(20)]).await;
                joins(&side, instance(&other), &[v4(21)]).await;
                routed(&side, name).await;
                routed(&side, &other).await;
                let route = planted(name, &v4(20), &other, Some(side.owner().await));
                let planted = route.name.clone();
                side.cloud().plant_route(route).unwrap();
                side.cloud_is("one of the two routes goes", |cloud| {
                    let routes = cloud.routes();
                    routes.iter().all(|route| route.name != planted)
                })
                .await;
                nothing()
            },
        ),
    ]
}

/// Runs alone and before any route fails, because it counts how often all routes are listed.
pub fn idle() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "route-idle",
            "nothing changes for a while",
            &["▲R6"],
            async |side: Side, name| {
                joins(&side, instance(name), &[v4(30)]).await;
                routed(&side, name).await;
                // Waits until the work that follows from the last changes is done.
                side.renewals(4).await;
                let before = side.cloud().call_count(LIST);
                side.renewals(8).await;
                let lists = side.cloud().call_count(LIST) - before;
                fact(
                    "routes were listed",
                    if lists == 0 { "never" } else { "again" },
                )
            },
        )
        .differs(
            "▲R6",
            "the ccm lists no routes if nothing changed",
            "fact: routes were listed",
            Some("again"),
            Some("never"),
        ),
    ]
}

/// Runs after all other scenarios. All Nodes are deleted, the scenario's own Node last.
pub fn no_nodes_left() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "route-no-nodes",
            "all Nodes are deleted, this one last",
            &["▲R7"],
            async |side: Side, name| {
                // The scenario `cloud-lies` has set a fault before.
                side.cloud().clear_faults();
                joins(&side, instance(name), &[v4(31)]).await;
                routed(&side, name).await;
                all_but(&side, name).await;
                // Time for the work that the deletion of the other Nodes causes.
                side.renewals(6).await;
                side.delete_node(name).await;
                match side.who() {
                    Who::Go => cloud_has(&side, &v4(31), false).await,
                    Who::Ours => side.renewals(8).await,
                }
                nothing()
            },
        )
        .only_there(
            "▲R7",
            "the ccm removes no route while it knows no Node",
            Who::Ours,
            "route 10.244.31.0/24 ",
        ),
    ]
}

async fn all_but(side: &Side, name: &str) {
    let nodes = side.nodes();
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let other = node.metadata.name.unwrap_or_default();
        if other != name {
            // The lifecycle controller may have deleted the Node already.
            match nodes.delete(&other, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                deleted => drop(deleted.unwrap()),
            }
        }
    }
}
