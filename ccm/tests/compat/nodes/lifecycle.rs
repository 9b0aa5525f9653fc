//! Nodes whose instance is stopped or deleted.

use provider_mock::{Fault, FaultKind};
use provider_sdk::FailureCode;
use testenv::objects::set_ready;

use super::{LOOKUP, instance, joining, joins, known};
use crate::scenario::{Scenario, nothing};
use crate::side::{Side, Who};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// A Node that is not Ready, and its instance.
async fn not_ready(side: &Side, name: &str) {
    side.cloud().add_instance(instance(name)).unwrap();
    side.register(known(name).ready("False")).await;
}

/// Waits for some passes over the Nodes that are not Ready. A pass runs each second, and the Lease
/// is renewed twice a second.
async fn passes(side: &Side) {
    side.renewals(8).await;
}

async fn deleted(side: &Side, name: &str) {
    side.node_is(name, "is deleted", |node| node.is_none())
        .await;
}

async fn shutdown(side: &Side, name: &str, wanted: bool) {
    side.node_is(name, "has the shutdown taint, or not", |node| {
        let spec = node.and_then(|node| node.spec.as_ref());
        let taints = spec
            .and_then(|spec| spec.taints.as_deref())
            .unwrap_or_default();
        taints.iter().any(|taint| taint.key == SHUTDOWN) == wanted
    })
    .await;
}

pub fn lifecycle() -> Vec<Scenario> {
    let mut all = shut_down();
    all.extend(deleted_or_not());
    all
}

/// Instances that are shut down.
fn shut_down() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "stopped",
            "an instance is shut down",
            &["B-L3"],
            async |side: Side, name| {
                not_ready(&side, name).await;
                side.cloud().stop_instance(name).unwrap();
                shutdown(&side, name, true).await;
                nothing()
            },
        ),
        Scenario::new(
            "back",
            "an instance is shut down and comes back",
            &["B-L3"],
            async |side: Side, name| {
                not_ready(&side, name).await;
                side.cloud().stop_instance(name).unwrap();
                shutdown(&side, name, true).await;
                side.cloud().start_instance(name).unwrap();
                set_ready(&side.client(), name, "True").await.unwrap();
                shutdown(&side, name, false).await;
                nothing()
            },
        ),
        Scenario::new(
            "started-not-ready",
            "an instance is shut down and started, its Node is not Ready yet",
            &["B-L3"],
            async |side: Side, name| {
                not_ready(&side, name).await;
                side.cloud().stop_instance(name).unwrap();
                shutdown(&side, name, true).await;
                side.cloud().start_instance(name).unwrap();
                passes(&side).await;
                nothing()
            },
        ),
    ]
}

/// Instances that are deleted, or seem so.
fn deleted_or_not() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "gone",
            "an instance is deleted",
            &["B-L2"],
            async |side: Side, name| {
                joins(&side, instance(name), joining(name)).await;
                side.cloud().remove_instance(name).unwrap();
                set_ready(&side.client(), name, "False").await.unwrap();
                deleted(&side, name).await;
                nothing()
            },
        ),
        Scenario::new(
            "gone-unknown",
            "an instance is deleted, its kubelet stops reporting",
            &["B-L1", "B-L2"],
            async |side: Side, name| {
                joins(&side, instance(name), joining(name)).await;
                side.cloud().remove_instance(name).unwrap();
                set_ready(&side.client(), name, "Unknown").await.unwrap();
                deleted(&side, name).await;
                nothing()
            },
        ),
        Scenario::new(
            "gone-but-ready",
            "an instance is called gone while its Node is Ready",
            &["B-L1"],
            async |side: Side, name| {
                joins(&side, instance(name), joining(name)).await;
                side.cloud().remove_instance(name).unwrap();
                passes(&side).await;
                nothing()
            },
        ),
        Scenario::new(
            "runs-not-ready",
            "a Node is not Ready, its instance runs",
            &["B-L1"],
            async |side: Side, name| {
                not_ready(&side, name).await;
                passes(&side).await;
                nothing()
            },
        ),
        Scenario::new(
            "renamed",
            "an instance is renamed",
            &["B-L1"],
            async |side: Side, name| {
                not_ready(&side, name).await;
                side.cloud()
                    .rename_instance(name, "renamed-in-the-cloud")
                    .unwrap();
                passes(&side).await;
                nothing()
            },
        ),
        Scenario::new(
            "gone-lookup-fails",
            "an instance is deleted, and every lookup fails",
            &["B-L4"],
            async |side: Side, name| {
                side.fault(Fault::failure(LOOKUP, FailureCode::Unavailable).subject(name));
                not_ready(&side, name).await;
                side.cloud().remove_instance(name).unwrap();
                passes(&side).await;
                nothing()
            },
        ),
        Scenario::new(
            "replaced",
            "an instance is replaced by one of the same name, and the Node registers again",
            &["B-L2", "B-N1"],
            async |side: Side, name| {
                not_ready(&side, name).await;
                side.cloud().remove_instance(name).unwrap();
                let mut second = instance(name);
                second.id = format!("{name}-second");
                side.cloud().add_instance(second).unwrap();
                deleted(&side, name).await;
                side.register(joining(name)).await;
                side.initialised(name).await;
                nothing()
            },
        ),
    ]
}

/// The provider reports every instance as gone, also those of Nodes that are Ready. Of all
/// scenarios, only `route-no-nodes` comes later.
pub fn lie() -> Vec<Scenario> {
    vec![
        Scenario::new("cloud-lies", "the cloud calls every instance gone", &["▲L6"], async |side: Side, name| {
            not_ready(&side, name).await;
            passes(&side).await;
            let gone = Fault::new(LOOKUP, FaultKind::InstanceState).value("ABSENT");
            side.fault(gone);
            match side.who() {
                Who::Go => deleted(&side, name).await,
                Who::Ours => passes(&side).await,
            }
            nothing()
        })
        .only_there("▲L6", "the ccm deletes no Node in a pass that calls a Ready Node gone", Who::Ours, "node cloud-lies ")
        .only(
            "▲L6",
            "the ccm deletes no Node in a pass that calls a Ready Node gone",
            Who::Go,
            "event on cloud-lies: Normal DeletingNode: Deleting node cloud-lies because it does not exist in the cloud provider [cloud-node-lifecycle-controller]",
        ),
    ]
}
