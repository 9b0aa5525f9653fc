//! The answers that lead to the deletion of a Node, and the Nodes that the ccm may delete.

use std::time::Duration;

use kube::api::DeleteParams;
use provider_mock::{Fault, FaultKind, Fixture};
use testenv::objects::{NodeBuilder, set_ready};

use super::{EVERY_SECOND, ONLY_LIFECYCLE, asked, crowd, known, names, passes, settle, state, uid};
use crate::world::{SOON, World, instance};

/// A brake that allows all deletions of these tests.
const OPEN_BRAKE: &str = "--node-deletion-brake=min-age=1s,floor=20";

#[tokio::test]
async fn b_l2_b_l4_l4_l6_only_an_instance_that_is_gone_and_nothing_else_deletes_a_node() {
    let mut world = World::new(Fixture::default()).await;
    crowd(&world, 45).await;
    settle(&world, "limping", "False").await;
    let _ccm = world.ccm(&[ONLY_LIFECYCLE, EVERY_SECOND, OPEN_BRAKE]);

    let kept = doubtful(&world).await;
    gone(&world).await;
    never_ours(&world).await;
    // The ccm has asked about the Nodes of `doubtful` all the time.
    passes(&world, 3).await;
    let there = names(&world).await;
    for name in &kept {
        assert!(there.iter().any(|there| there == name), "{name}");
        if *name == "listed" {
            let said = world.event(name, "Warning NodeDeletionHeld").await;
            assert!(said.contains("its list has the instance"), "{said}");
        } else {
            assert_eq!(world.events(name).await, [""; 0], "{name}");
        }
    }
    // Now the provider says that they are gone, except for `listed`, which has an instance.
    world.cloud().clear_faults();
    for name in kept.into_iter().filter(|name| *name != "listed") {
        world.node_goes(name).await;
    }

    now_and_then(&world).await;
    delete_refused(&world).await;
}

/// B-L2; a Node that never reported is not Ready either.
async fn gone(world: &World) {
    for node in [
        known("gone").ready("False"),
        known("unknown").ready("Unknown"),
        known("silent").never_reported(),
    ] {
        world.register(node).await;
    }
    for name in ["gone", "unknown", "silent"] {
        world.node_goes(name).await;
        let event = format!(
            "Normal DeletingNode Deleting node {name} because it does not exist in the cloud provider"
        );
        world.event(name, &event).await;
    }
}

/// Nodes that are not Ready. B-L4: the answers about them are failures, or say nothing certain.
/// ▲L6: the provider's own list has the instance of `listed`.
async fn doubtful(world: &World) -> Vec<&'static str> {
    let cloud = world.cloud();
    let on = |kind, name| Fault::new("LookupInstances", kind).subject(name);
    let absent = |name| state("ABSENT", Some(name));
    let cases = [
        ("failing", vec![on(FaultKind::Failure, "failing")]),
        ("unset", vec![on(FaultKind::UnsetOutcome, "unset")]),
        ("missing", vec![on(FaultKind::ResultsMissing, "missing")]),
        ("number", vec![state("77", Some("number"))]),
        (
            "unspecified",
            vec![state("UNSPECIFIED", Some("unspecified"))],
        ),
        (
            "doubled",
            vec![
                absent("doubled"),
                on(FaultKind::ResultsDuplicated, "doubled"),
            ],
        ),
        (
            "misnamed",
            vec![absent("misnamed"), on(FaultKind::WrongUid, "misnamed")],
        ),
        ("pending", vec![state("PENDING", Some("pending"))]),
        ("unmanaged", vec![state("UNMANAGED", Some("unmanaged"))]),
        ("listed", vec![absent("listed")]),
    ];
    let mut names = Vec::new();
    for (name, faults) in cases {
        for fault in faults {
            cloud.set_fault(fault).unwrap();
        }
        if name == "listed" {
            settle(world, name, "False").await;
        } else {
            world.register(known(name).ready("False")).await;
        }
        names.push(name);
    }
    names
}

/// ▲L4: the lifecycle controller asks neither about another cloud's Node, nor about a Node without
/// an ID.
async fn never_ours(world: &World) {
    let cloud = world.cloud();
    let names = ["foreign", "without-id"];
    for name in names {
        // The fault is spent as soon as the ccm asks about the Node once.
        cloud
            .set_fault(state("ABSENT", Some(name)).times(1))
            .unwrap();
    }
    let foreign = NodeBuilder::new("foreign").provider_id("other://zone-1/foreign");
    for node in [foreign, NodeBuilder::new("without-id")] {
        world.register(node.ready("False")).await;
    }
    passes(world, 3).await;
    for name in names {
        world.node(name).await.unwrap();
        let unspent = cloud.faults();
        let unspent = unspent
            .iter()
            .any(|(_, fault)| fault.subject.as_deref() == Some(name));
        assert!(unspent, "{name} was asked about");
    }
}

/// ▲L6: two ABSENT answers count only in a row.
async fn now_and_then(world: &World) {
    let cloud = world.cloud();
    settle(world, "flapping", "False").await;
    // The list contains the instance and would protect the Node, so here the list fails.
    let broken = Fault::new("ListInstances", FaultKind::EndMissing);
    cloud.set_fault(broken).unwrap();
    let spent = |fault: u64| {
        cloud.wait_until(SOON, move |cloud| {
            cloud.faults().iter().all(|(other, _)| *other != fault)
        })
    };
    let failed = Fault::new("LookupInstances", FaultKind::Failure).subject("flapping");
    for between in [state("RUNNING", Some("flapping")), failed] {
        for _ in 0..2 {
            for fault in [state("ABSENT", Some("flapping")), between.clone()] {
                let fault = cloud.set_fault(fault.times(1)).unwrap();
                assert!(spent(fault).await);
            }
        }
    }
    passes(world, 1).await;
    world.node("flapping").await.unwrap();
    assert_eq!(world.events("flapping").await, [""; 0]);
    let absent = cloud.set_fault(state("ABSENT", Some("flapping"))).unwrap();
    world.node_goes("flapping").await;
    cloud.clear_fault(absent);
}

/// B-L2: a refused delete is reported and retried.
async fn delete_refused(world: &World) {
    let role = "system:cloud-controller-manager:controllers";
    let verbs =
        |verbs: &str| format!(r#"[{{"op":"replace","path":"/rules/0/verbs","value":[{verbs}]}}]"#);
    let patch = |patch: String| {
        let patched = world
            .plane
            .kubectl()
            .args(["patch", "clusterrole", role, "--type=json", "-p", &patch])
            .output()
            .unwrap();
        assert!(patched.status.success(), "{patched:?}");
    };
    patch(verbs(r#""get","patch""#));
    world.register(known("kept").ready("False")).await;
    let said = world.event("kept", "Warning DeletingNodeFailed").await;
    assert!(said.contains("forbidden"), "{said}");
    world.node("kept").await.unwrap();
    patch(verbs(r#""get","patch","delete""#));
    world.node_goes("kept").await;
}

#[tokio::test]
async fn l6_the_node_is_looked_at_again_just_before() {
    let mut world = World::new(Fixture::default()).await;
    crowd(&world, 10).await;
    settle(&world, "limping", "False").await;
    let cloud = world.cloud().clone();
    // There is time between the decision and the delete: the list that can prevent the delete is
    // slow.
    let slow = Fault::delay("ListInstances", Duration::from_secs(8));
    let slow = cloud.set_fault(slow).unwrap();
    for name in ["better", "anew"] {
        world.register(known(name).ready("False")).await;
    }
    let before = uid(&world, "anew").await;
    let _ccm = world.ccm(&[ONLY_LIFECYCLE, EVERY_SECOND, OPEN_BRAKE]);
    let decided = cloud
        .wait_until(SOON, |cloud| cloud.in_flight("ListInstances") == 1)
        .await;
    assert!(decided);

    set_ready(&world.client, "better", "True").await.unwrap();
    let nodes = world.nodes();
    nodes
        .delete("anew", &DeleteParams::default())
        .await
        .unwrap();
    world.register(known("anew").ready("False")).await;
    let now = uid(&world, "anew").await;
    assert_ne!(now, before);

    // That pass is over when the next one asks.
    let before = asked(&cloud);
    let over = cloud.wait_until(SOON, |cloud| asked(cloud) > before).await;
    assert!(over);
    assert_eq!(cloud.call_count("ListInstances"), 1);
    assert_eq!(uid(&world, "anew").await, now);
    world.node("better").await.unwrap();
    for name in ["better", "anew"] {
        assert_eq!(world.events(name).await, [""; 0], "{name}");
    }

    // Two answers about the new Node delete it. First the Ready Node gets an instance: without it
    // every pass would be void.
    cloud.add_instance(instance("better")).unwrap();
    cloud.clear_fault(slow);
    world.node_goes("anew").await;
    world.node("better").await.unwrap();
}

#[tokio::test]
async fn b_l2_l6_a_node_that_is_too_young_stays_until_it_is_older() {
    // A list that is not complete vetoes nothing.
    let mut world = World::new(Fixture::default()).await;
    let broken = Fault::new("ListInstances", FaultKind::EndMissing);
    world.cloud().set_fault(broken).unwrap();
    crowd(&world, 5).await;
    let _ccm = world.ccm(&[
        ONLY_LIFECYCLE,
        EVERY_SECOND,
        "--node-deletion-brake=min-age=8s",
    ]);
    world.leader().await;
    let since = tokio::time::Instant::now();
    settle(&world, "young", "False").await;
    let cloud = world.cloud();
    cloud.remove_instance("young").unwrap();
    let twice = cloud.wait_until(SOON, |cloud| asked(cloud) >= 4).await;
    assert!(twice);
    world.node_goes("young").await;
    // Kubernetes stores whole seconds.
    assert!(
        since.elapsed() > Duration::from_secs(7),
        "{:?}",
        since.elapsed()
    );
}
