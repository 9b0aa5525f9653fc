//! Hand-overs of the Lease in both directions: on each side the other controller takes over, and
//! then the first one again.

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use serde_json::json;
use testenv::eventually;
use testenv::objects::{LoadBalancerBuilder, NodeBuilder};

use crate::nodes::instance;
use crate::scenario::{Scenario, fact};
use crate::services::{ENSURED, ENSURING, UPDATED};
use crate::side::{SOON, Side, Who};

const ENSURE: &str = "EnsureLoadBalancer";

async fn joins(side: &Side, name: &str) {
    side.cloud().add_instance(instance(name)).unwrap();
    side.register(NodeBuilder::new(name).uninitialized()).await;
    side.initialised(name).await;
}

/// Objects of one leader stay the same under the next, which also handles new ones.
fn hand_over(name: &'static str, what: &'static str, to: fn(&Side) -> Who) -> Scenario {
    Scenario::new(
        name,
        what,
        &["B-M3", "▲S13"],
        move |side: Side, name| async move {
            let subject = format!("{name}/web");
            side.namespace(name).await;
            joins(&side, &format!("{name}--old")).await;
            // The Go CCM's Node informer may be behind its Service informer.
            side.renewals(2).await;
            side.create_service(LoadBalancerBuilder::new(name, "web"))
                .await;
            side.balanced(name).await;
            // The Go CCM writes events beside its work, and loses them when it ends.
            let events = side.namespaced::<Event>(name);
            eventually("the Service's event", SOON, async || {
                let seen = events.list(&ListParams::default()).await.unwrap();
                let mut reasons = seen.into_iter().filter_map(|event| event.reason);
                reasons.find(|reason| reason == "EnsuredLoadBalancer")
            })
            .await;
            side.event(&format!("{name}--old"), "Synced").await;

            let next = to(&side);
            let before = side.holder().await.unwrap();
            side.start(next);
            side.stop_first().await;
            side.led(&before).await;
            // The Node joins after the new leader has handled the Service. Otherwise the first
            // Ensure of a slow leader may already have the Node, and no Update follows.
            match next {
                Who::Ours if side.has_no_go_between() => {
                    side.asked_times("GetLoadBalancer", &subject, 1).await;
                }
                _ => side.asked_times(ENSURE, &subject, 2).await,
            }
            joins(&side, &format!("{name}--new")).await;
            side.renewals(4).await;
            let calls = side.asked(ENSURE, &subject);
            let ranges = json!({"spec": {"loadBalancerSourceRanges": ["198.51.100.0/24"]}});
            side.edit_service(name, ranges).await;
            side.asked_times(ENSURE, &subject, calls + 1).await;
            fact("calls of Ensure until the hand-over was over", &calls)
        },
    )
}

pub fn over() -> Vec<Scenario> {
    vec![
        // On the Go CCM's side the ccm leads now.
        hand_over("hand-over", "the other controller takes over", |side| {
            side.who().other()
        })
        .differs("▲S13", CALM, UNTIL, Some("1"), Some("2"))
        .differs("▲S13", CALM, ENSURING, Some(TWICE), Some(THRICE))
        .differs("▲S13", CALM, ENSURED, Some(TWICE), Some(THRICE))
        .not_less("▲S13", CALM, Who::Ours, UPDATED, 1),
    ]
}

pub fn back() -> Vec<Scenario> {
    vec![
        hand_over(
            "hand-back",
            "the first controller takes over again",
            Side::who,
        )
        .differs("▲S13", CALM, UNTIL, Some("2"), Some("1"))
        .differs("▲S13", CALM, ENSURING, Some(THRICE), Some(TWICE))
        .differs("▲S13", CALM, ENSURED, Some(THRICE), Some(TWICE))
        .not_less("▲S13", CALM, Who::Go, UPDATED, 1),
    ]
}

const CALM: &str = "the ccm takes over without a mutating call";
const TWICE: &str = "seen 2 times";
const THRICE: &str = "seen 3 times";
const UNTIL: &str = "fact: calls of Ensure until the hand-over was over";
