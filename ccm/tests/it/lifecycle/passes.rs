//! When the ccm asks the provider, about which Nodes, and the shutdown taint.

use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use provider_mock::Fixture;
use serde_json::json;
use testenv::objects::set_ready;

use super::{EVERY_SECOND, ONLY_LIFECYCLE, asked, crowd, known, passes, settle};
use crate::world::{SOON, World, instance, taints};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

fn is_shut_down(node: &Node) -> bool {
    taints(node).contains(&SHUTDOWN)
}

#[tokio::test]
async fn b_l1_b_l3_only_nodes_that_are_not_ready_are_asked_about_and_the_stopped_are_tainted() {
    let mut world = World::new(Fixture::default()).await;
    let _ccm = world.ccm(&[ONLY_LIFECYCLE, EVERY_SECOND]);
    crowd(&world, 2).await;
    let cloud = world.cloud();

    // B-L1: passes over Ready Nodes remove the taint and ask nothing, whatever the cloud would say.
    world.register(known("gone-and-ready")).await;
    for round in 0..2 {
        let node = known(&format!("up-{round}")).taint(SHUTDOWN, "", "NoSchedule");
        let node = node.taint("example.com/mine", "", "NoSchedule");
        let name = format!("up-{round}");
        world.register(node).await;
        let node = world
            .node_becomes(&name, "not shut down", |node| !is_shut_down(node))
            .await;
        assert_eq!(taints(&node), ["example.com/mine"]);
    }
    assert_eq!(asked(cloud), 0);
    let nodes = world.nodes();
    for name in ["gone-and-ready", "up-0", "up-1"] {
        nodes.delete(name, &DeleteParams::default()).await.unwrap();
    }

    // B-L3: shut down and not Ready; and back.
    let node = known("stopped").taint("example.com/mine", "", "NoSchedule");
    cloud.add_instance(instance("stopped")).unwrap();
    world.register(node.ready("False")).await;
    passes(&world, 1).await;
    assert!(!is_shut_down(&world.node("stopped").await.unwrap()));
    cloud.stop_instance("stopped").unwrap();
    let node = world
        .node_becomes("stopped", "shut down", is_shut_down)
        .await;
    let all = serde_json::to_value(node.spec.unwrap().taints).unwrap();
    assert_eq!(
        all,
        json!([
            { "key": "example.com/mine", "effect": "NoSchedule" },
            { "key": SHUTDOWN, "effect": "NoSchedule" },
        ])
    );
    // The machine runs, and its kubelet does not report yet.
    cloud.start_instance("stopped").unwrap();
    passes(&world, 2).await;
    assert!(is_shut_down(&world.node("stopped").await.unwrap()));
    set_ready(&world.client, "stopped", "True").await.unwrap();
    let node = world
        .node_becomes("stopped", "not shut down", |node| !is_shut_down(node))
        .await;
    assert_eq!(taints(&node), ["example.com/mine"]);
    // The machine is stopped while its Node is still Ready: the ccm adds no taint.
    cloud.stop_instance("stopped").unwrap();
    settle(&world, "limping", "False").await;
    passes(&world, 2).await;
    assert!(!is_shut_down(&world.node("stopped").await.unwrap()));
}

#[tokio::test]
async fn l7_a_hint_makes_a_pass_at_once() {
    let mut world = World::new(Fixture::default()).await;
    crowd(&world, 3).await;
    settle(&world, "stopping", "False").await;
    settle(&world, "going", "False").await;
    let _ccm = world.ccm(&[
        ONLY_LIFECYCLE,
        "--node-monitor-period=1h",
        "--node-deletion-brake=min-age=1s",
    ]);
    let cloud = world.cloud();
    // Waits for the first pass, and for the stream of hints, whose beginning causes another pass.
    let watched = cloud
        .wait_until(SOON, |cloud| {
            cloud.in_flight("WatchChanges") == 1 && asked(cloud) >= 1
        })
        .await;
    assert!(watched, "{:?}", cloud.call_counts());
    cloud.stop_instance("stopping").unwrap();
    world
        .node_becomes("stopping", "shut down", is_shut_down)
        .await;
    let passes = asked(cloud);
    assert!(passes <= 3, "{passes}");
    cloud.remove_instance("going").unwrap();
    assert!(cloud.wait_until(SOON, |cloud| asked(cloud) > passes).await);
    // A second answer deletes it.
    let passes = asked(cloud);
    cloud.hint_resync();
    assert!(cloud.wait_until(SOON, |cloud| asked(cloud) > passes).await);
    world.node_goes("going").await;
}
