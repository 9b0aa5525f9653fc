//! Which Nodes are targets of load balancers, and when the ccm updates the targets.

use kube::api::{DeleteParams, Patch, PatchParams};
use provider_mock::fixture::FailureSpec;
use provider_mock::{Address, Fault, Fixture};
use provider_sdk::FailureCode;
use serde_json::{Value, json};
use std::time::Duration;
use testenv::objects::{NodeBuilder, set_ready};

use super::{ENSURE, UPDATE, balancer, subject};
use crate::world::{World, addresses};

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const SELECTOR: &str = "grpc-ccm.io/node-selector";

impl World {
    async fn edit_node(&self, name: &str, patch: Value) {
        self.nodes()
            .patch(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .unwrap();
    }

    async fn label_node(&self, name: &str, key: &str, value: Option<&str>) {
        self.edit_node(name, json!({"metadata": {"labels": {key: value}}}))
            .await;
    }

    /// A Node of this cloud that counts as initialised: it has a provider ID and no taint.
    async fn old_node(&self, name: &str) {
        let node = NodeBuilder::new(name).provider_id(format!("mock://zone-1/{name}"));
        self.cloud()
            .add_instance(crate::world::instance(name))
            .unwrap();
        self.register(node).await;
    }
}

#[tokio::test]
async fn b_s6_b_s7_s7_s14_who_is_a_target() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    world.old_node("a").await;
    world.old_node("b").await;
    world.balanced("web").await;
    world.targeted("web", &["a", "b"]).await;
    world.balanced("second").await;
    world.targeted("second", &["a", "b"]).await;

    // A Node that is not ready is a target. A Node of another cloud is not, nor is one without an
    // owner.
    world
        .register(NodeBuilder::new("foreign").provider_id("other://x/foreign"))
        .await;
    world.register(NodeBuilder::new("nobody")).await;
    let sick = NodeBuilder::new("c")
        .provider_id("mock://zone-1/c")
        .ready("False");
    world
        .cloud()
        .add_instance(crate::world::instance("c"))
        .unwrap();
    world.register(sick).await;
    world.targeted("web", &["a", "b", "c"]).await;
    world.targeted("second", &["a", "b", "c"]).await;
    world
        .event(
            "web",
            "Normal UpdatedLoadBalancer Updated load balancer with new hosts",
        )
        .await;

    // A new Node becomes a target when it has its provider ID.
    world.join("d").await;
    world.targeted("web", &["a", "b", "c", "d"]).await;
    assert!(
        world
            .node("d")
            .await
            .unwrap()
            .spec
            .unwrap()
            .provider_id
            .is_some()
    );

    // The label excludes Node a, and the autoscaler is about to remove Node b. Then both become
    // targets again.
    world.label_node("a", EXCLUDE, Some("")).await;
    world.targeted("web", &["b", "c", "d"]).await;
    let taint = json!({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}]}});
    world.edit_node("b", taint).await;
    world.targeted("web", &["c", "d"]).await;
    world.label_node("a", EXCLUDE, Some("false")).await;
    world
        .edit_node("b", json!({"spec": {"taints": null}}))
        .await;
    world.targeted("web", &["a", "b", "c", "d"]).await;

    // A Node that is being deleted, and still exists, is no target.
    world
        .edit_node(
            "b",
            json!({"metadata": {"finalizers": ["example.com/hold"]}}),
        )
        .await;
    world
        .nodes()
        .delete("b", &DeleteParams::default())
        .await
        .unwrap();
    world.targeted("web", &["a", "c", "d"]).await;
    assert!(world.node("b").await.is_ok());
    world
        .nodes()
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    world.targeted("web", &["c", "d"]).await;
    world.targeted("second", &["c", "d"]).await;

    // The last Nodes go: the ccm asks the API server before it sets the empty target set.
    for name in ["c", "d"] {
        world
            .nodes()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }
    world.targeted("web", &[]).await;
    world
        .event(
            "web",
            "Warning UnAvailableLoadBalancer There are no available nodes for LoadBalancer",
        )
        .await;
    // Node changes are no reason for an Ensure.
    assert_eq!(world.times(ENSURE, "web"), 1);
    assert_eq!(world.times(ENSURE, "second"), 1);
}

#[tokio::test]
async fn b_s7_s12_s14_what_costs_an_update_and_what_does_not() {
    // This provider gets readiness and the label `seen` with each call. Of the labels, only changes
    // of `counts` cause a call.
    let mut fixture = Fixture::default();
    fixture.provider.node_readiness = true;
    fixture.provider.node_labels = vec!["example.com/seen".into()];
    fixture.capabilities.load_balancers.target_labels = vec!["example.com/counts".into()];
    let mut world = World::new(fixture).await;
    for name in ["a", "b"] {
        world.old_node(name).await;
    }
    let _ccm = world.ccm(&["--node-status-update-frequency=2s"]);
    world.balanced("web").await;
    world.targeted("web", &["a", "b"]).await;
    world
        .node_becomes("a", "has an address", |node| !addresses(node).is_empty())
        .await;
    world
        .node_becomes("b", "has an address", |node| !addresses(node).is_empty())
        .await;
    world.renewals(2).await;
    world.cloud().reset_calls();

    // None of these changes is a reason for a call.
    for status in ["False", "Unknown", "True", "False"] {
        set_ready(&world.client, "a", status).await.unwrap();
    }
    for label in ["example.com/any", "example.com/seen"] {
        world.label_node("a", label, Some("1")).await;
    }
    world
        .edit_node(
            "b",
            json!({"metadata": {"annotations": {"example.com/any": "1"}}}),
        )
        .await;
    world
        .edit_node("b", json!({"spec": {"unschedulable": true}}))
        .await;
    world
        .register(NodeBuilder::new("foreign").provider_id("other://x/foreign"))
        .await;
    world.label_node("a", EXCLUDE, Some("false")).await;
    // Time for the changes to settle.
    world.renewals(2).await;
    assert_eq!(
        world.cloud().mutating_calls(),
        0,
        "{:?}",
        world.cloud().calls(None)
    );

    // Another address is an update, with no Node more or less.
    world
        .cloud()
        .change_instance("a", |instance| {
            instance.addresses = vec![Address::InternalIp([10, 9, 9, 9].into())];
        })
        .unwrap();
    world.asked_times(UPDATE, "web", 1).await;
    let node = world.node("a").await.unwrap();
    assert_eq!(addresses(&node), ["InternalIP=10.9.9.9"]);
    assert_eq!(world.cloud().mutating_calls(), 1);
    // A change of a label in `target_labels` is an update too.
    world.label_node("b", "example.com/counts", Some("1")).await;
    world.asked_times(UPDATE, "web", 2).await;
    assert_eq!(world.cloud().mutating_calls(), 2);
}

#[tokio::test]
async fn s17_a_selector_and_the_most_targets() {
    let mut fixture = Fixture::default();
    fixture.capabilities.load_balancers.max_targets = Some(3);
    let (mut world, mut ccm) = World::with_ccm(fixture).await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        world.old_node(name).await;
    }
    for name in ["a", "b"] {
        world.label_node(name, "tier", Some("gold")).await;
    }
    world.create_service(balancer("web")).await;
    world
        .create_service(balancer("gold").annotation(SELECTOR, "tier=gold"))
        .await;
    world
        .create_service(balancer("wrong").annotation(SELECTOR, "tier in gold"))
        .await;
    world.shows_address("web").await;
    world.shows_address("gold").await;
    world.targeted("gold", &["a", "b"]).await;
    testenv::eventually(
        "web has as many as it may",
        crate::world::SOON,
        async || {
            let targets = world.targets("web");
            (targets.len() == 3)
                .then_some(())
                .ok_or(format!("{targets:?}"))
        },
    )
    .await;
    let words = "Warning SyncLoadBalancerFailed Error syncing load balancer: annotation grpc-ccm.io/node-selector";
    world.event("wrong", words).await;
    assert_eq!(world.times(ENSURE, "wrong"), 0);

    // The user mends one selector and changes another.
    world.annotate("wrong", SELECTOR, "tier!=gold,tier").await;
    world.shows_address("wrong").await;
    world.targeted("wrong", &[]).await;
    world.label_node("f", "tier", Some("silver")).await;
    world.targeted("wrong", &["f"]).await;
    world.annotate("gold", SELECTOR, "tier=silver").await;
    world.targeted("gold", &["f"]).await;

    // The choice is stable: another process chooses the same targets, and a Node that joins
    // displaces at most one.
    let before = world.targets("web");
    world.crash(&mut ccm).await;
    world.cloud().reset_calls();
    let _ccm = world.ccm(&[]);
    world.asked_times(super::GET, "web", 1).await;
    world.old_node("g").await;
    world.label_node("g", "tier", Some("silver")).await;
    world.targeted("gold", &["f", "g"]).await;
    world.later_one_is_served("later").await;
    let after = world.targets("web");
    let kept = after.iter().filter(|name| before.contains(name)).count();
    assert!(after.len() == 3 && kept >= 2, "{before:?} {after:?}");
    assert_eq!(world.times(ENSURE, "web"), 0);
}

#[tokio::test]
async fn s14_b_s10_s10_updates_in_trouble() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    world.old_node("a").await;
    for name in ["web", "gone"] {
        world.create_service(balancer(name)).await;
    }
    for name in ["web", "gone"] {
        world.shows_address(name).await;
        world.targeted(name, &["a"]).await;
    }
    world.cloud().reset_calls();
    let full = FailureSpec::new(FailureCode::Precondition).retry_after(Duration::from_secs(1));
    world.cloud().set_target_error("b", Some(full)).unwrap();
    world.fault(
        Fault::failure(UPDATE, FailureCode::NotFound)
            .subject(subject("gone"))
            .times(1),
    );
    world.old_node("b").await;
    world.old_node("c").await;
    // A target that fails does not stop the others, and is retried.
    world.targeted("web", &["a", "c"]).await;
    world
        .event("web", "Warning UpdateLoadBalancerFailed Error updating load balancer with new hosts [b]: scripted by the mock")
        .await;
    world.asked_times(UPDATE, "web", 3).await;
    world.cloud().set_target_error("b", None).unwrap();
    world.targeted("web", &["a", "b", "c"]).await;
    // A missing load balancer is created again, without a failure.
    world.targeted("gone", &["a", "b", "c"]).await;
    assert!(world.times(ENSURE, "gone") >= 1);
    assert_eq!(world.asked(UPDATE, "gone")[0].outcome, "failed:NOT_FOUND");
    assert_eq!(world.times(ENSURE, "web"), 0);
    // After an Update that fails, the controller tries again, and an event reports the failure.
    world.fault(
        Fault::failure(UPDATE, FailureCode::Precondition)
            .with_failure(
                FailureSpec::new(FailureCode::Precondition).retry_after(Duration::from_secs(1)),
            )
            .subject(subject("web"))
            .times(1),
    );
    world.old_node("d").await;
    world.targeted("web", &["a", "b", "c", "d"]).await;
    world
        .event("web", "Warning UpdateLoadBalancerFailed Error updating load balancer with new hosts [a b c d] [node names limited, total number of nodes: 4], error: scripted by the mock")
        .await;
    let events = world.events("gone").await;
    assert!(
        !events
            .iter()
            .any(|event| event.contains("NotFound") || event.contains("not found")),
        "{events:?}"
    );
}
