//! Changes of the set of target Nodes. The scenarios run one after the other, because a change
//! concerns all load balancers.

use provider_mock::Fault;
use provider_mock::fixture::FailureSpec;
use provider_sdk::FailureCode;
use serde_json::{Value, json};
use testenv::objects::{NodeBuilder, set_ready};

use super::{ENSURE, ENSURED, ENSURING, TARGETS, UPDATED, balancer, made, subject};
use crate::nodes::instance;
use crate::scenario::{Scenario, fact, nothing};
use crate::side::{Side, Who};

const UPDATE: &str = "UpdateLoadBalancer";
const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// A Node joins and is initialised.
async fn joins(side: &Side, name: &str) {
    side.cloud().add_instance(instance(name)).unwrap();
    side.register(NodeBuilder::new(name).uninitialized()).await;
    side.initialised(name).await;
}

/// Waits until the scenario's load balancer has these targets.
async fn balances_to(side: &Side, namespace: &str, wanted: &[&str]) {
    side.cloud_is(&format!("{namespace} balances to {wanted:?}"), |cloud| {
        let balancer = cloud.load_balancer(namespace, "web");
        balancer.is_some_and(|balancer| balancer.targets == wanted)
    })
    .await;
}

async fn label(side: &Side, node: &str, value: Value) {
    side.edit_node(node, json!({"metadata": {"labels": {EXCLUDE: value}}}))
        .await;
}

/// A scenario that acts on Nodes when its load balancer exists.
fn step<Play, Done>(
    name: &'static str,
    what: &'static str,
    ids: &'static [&'static str],
    play: Play,
) -> Scenario
where
    Play: Fn(Side, &'static str) -> Done + Clone + 'static,
    Done: Future<Output = crate::scenario::Facts> + 'static,
{
    Scenario::new(name, what, ids, move |side: Side, name| {
        let play = play.clone();
        async move {
            made(&side, name, balancer(name)).await;
            play(side, name).await
        }
    })
    .stored()
}

/// The scenarios, in their order.
pub fn steps() -> Vec<Scenario> {
    let mut all = nodes_change();
    all.extend(calls_fail());
    all.extend(addresses_and_taints());
    all
}

/// Nodes join, leave and change.
fn nodes_change() -> Vec<Scenario> {
    let [one, two, three] = TARGETS;
    vec![
        step(
            "set-joins",
            "a Node joins",
            &["B-S7"],
            async move |side, name| {
                joins(&side, "target-4").await;
                balances_to(&side, name, &[one, two, three, "target-4"]).await;
                nothing()
            },
        )
        // A Node joins in several writes: whether Go's controller reconciles between them depends
        // on timing.
        .not_less(
            "▲S12",
            "the ccm coalesces changes of Nodes",
            Who::Go,
            UPDATED,
            1,
        ),
        step(
            "set-excluded",
            "a Node gets the label that excludes it",
            &["B-S6", "B-S7"],
            async move |side, name| {
                label(&side, "target-4", json!("")).await;
                balances_to(&side, name, &TARGETS).await;
                nothing()
            },
        ),
        step(
            "set-included",
            "the label that excludes a Node becomes false",
            &["B-S6", "B-S7"],
            async move |side, name| {
                label(&side, "target-4", json!("false")).await;
                balances_to(&side, name, &[one, two, three, "target-4"]).await;
                nothing()
            },
        ),
        step(
            "set-deleted",
            "a Node is deleted",
            &["B-S7"],
            async move |side, name| {
                side.delete_node("target-4").await;
                side.cloud().remove_instance("target-4").unwrap();
                balances_to(&side, name, &TARGETS).await;
                nothing()
            },
        ),
        step(
            "set-ready-flap",
            "a Node is not Ready, and Ready again",
            &["B-S6", "B-S7"],
            async move |side, name| {
                set_ready(&side.client(), three, "False").await.unwrap();
                side.renewals(4).await;
                set_ready(&side.client(), three, "True").await.unwrap();
                side.renewals(4).await;
                fact("calls of Update", &side.asked(UPDATE, &subject(name)))
            },
        ),
        step(
            "set-cordoned",
            "a Node is cordoned, uncordoned, and gets a label",
            &["B-S6", "B-S7"],
            async move |side, name| {
                // A cordon as kubectl and Kubernetes' node lifecycle controller write it.
                let taint =
                    json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
                for patch in [
                    json!({"spec": {"unschedulable": true, "taints": taint}}),
                    json!({"spec": {"unschedulable": null, "taints": null}}),
                    json!({"metadata": {"labels": {"example.com/pool": "blue"}}}),
                ] {
                    side.edit_node(three, patch).await;
                    side.renewals(4).await;
                }
                let updates = side.asked(UPDATE, &subject(name));
                assert_eq!(updates, 0, "none of these changes concerns a load balancer");
                fact("calls of Update", &updates)
            },
        ),
    ]
}

/// An Update fails, or finds nothing.
fn calls_fail() -> Vec<Scenario> {
    let [one, two, three] = TARGETS;
    vec![
        step(
            "set-update-fails",
            "the update of the targets fails once",
            &["B-S3", "B-S7"],
            async move |side, name| {
                // The Node is initialised while the label excludes it, so the set of targets
                // changes only once.
                side.cloud().add_instance(instance("target-5")).unwrap();
                let node = NodeBuilder::new("target-5").uninitialized();
                side.register(node.label(EXCLUDE, "")).await;
                side.initialised("target-5").await;
                side.renewals(4).await;
                let failure = FailureSpec {
                    reason: Some("Flaky".into()),
                    message: Some("the cloud stumbled".into()),
                    ..FailureSpec::new(FailureCode::Internal)
                };
                let fault = Fault::new(UPDATE, provider_mock::FaultKind::Failure);
                side.fault(fault.subject(subject(name)).with_failure(failure).times(1));
                label(&side, "target-5", json!("false")).await;
                balances_to(&side, name, &[one, two, three, "target-5"]).await;
                nothing()
            },
        ),
        step(
            "set-lost",
            "the load balancer vanishes from the cloud, then a Node goes",
            &["B-S10"],
            async move |side, name| {
                let balancer = side.cloud().load_balancer(name, "web").unwrap();
                side.cloud().remove_load_balancer(&balancer.handle).unwrap();
                if side.is_ours_directly() {
                    // Waits until the ccm has created the load balancer again after the cloud's
                    // hint. After the Node's deletion it would create one that has the new targets
                    // already, and would not call Update.
                    side.asked_times(ENSURE, &subject(name), 2).await;
                }
                side.delete_node("target-5").await;
                side.cloud().remove_instance("target-5").unwrap();
                side.asked_times(UPDATE, &subject(name), 1).await;
                if side.is_ours_directly() {
                    balances_to(&side, name, &TARGETS).await;
                }
                nothing()
            },
        )
        .only_there("▲S10", "the ccm makes it again", Who::Ours, "cloud ")
        .again("▲S10", "the ccm makes it again", Who::Ours, ENSURING, 2)
        .again("▲S10", "the ccm makes it again", Who::Ours, ENSURED, 2)
        .only("▲S10", "the ccm makes it again", Who::Ours, UPDATED),
    ]
}

/// The address of a Node, and the taint of the autoscaler.
fn addresses_and_taints() -> Vec<Scenario> {
    let [one, two, three] = TARGETS;
    vec![
        step(
            "set-address",
            "the address of a Node changes",
            &["▲S14"],
            async move |side, name| {
                let address = provider_mock::Address::InternalIp([10, 78, 0, 1].into());
                side.cloud()
                    .change_instance(one, |instance| instance.addresses = vec![address])
                    .unwrap();
                side.node_is(one, "shows its new address", |node| {
                    format!("{node:?}").contains("10.78.0.1")
                })
                .await;
                if side.who() == Who::Ours {
                    side.asked_times(UPDATE, &subject(name), 1).await;
                }
                side.renewals(6).await;
                fact("calls of Update", &side.asked(UPDATE, &subject(name)))
            },
        )
        .differs(
            "▲S14",
            "a target's addresses matter",
            "fact: calls of Update",
            Some("0"),
            Some("1"),
        )
        .only("▲S14", "a target's addresses matter", Who::Ours, UPDATED),
        step(
            "set-autoscaler",
            "the cluster autoscaler is about to remove a Node",
            &["B-S6", "B-S7"],
            async move |side, name| {
                let taint =
                    json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
                side.edit_node(three, json!({"spec": {"taints": taint}}))
                    .await;
                match side.who() {
                    Who::Go => side.renewals(8).await,
                    Who::Ours => balances_to(&side, name, &[one, two]).await,
                }
                nothing()
            },
        )
        .differs(
            "▲S7",
            "the ccm reacts to the taint at once",
            "cloud targets 2",
            Some("target-3"),
            None,
        )
        .only(
            "▲S7",
            "the ccm reacts to the taint at once",
            Who::Ours,
            UPDATED,
        ),
    ]
}
