use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::sync::watch;

use super::super::{Memory, Metrics};
use super::*;
use crate::controllers::node::testing::{FakeApi, Fault};
use crate::core::Key;
use crate::ownership::Ownership;
use crate::provider::ProviderStatus;

fn node(ready: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some("n".to_owned());
    node.metadata.creation_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    node.spec.get_or_insert_default().provider_id = Some("mock://n".to_owned());
    let condition = NodeCondition {
        type_: "Ready".to_owned(),
        status: ready.to_owned(),
        ..NodeCondition::default()
    };
    node.status.get_or_insert_default().conditions = Some(vec![condition]);
    node
}

/// A cluster with the Node `n`, which is not Ready, and the Node as the loop read it.
fn bench() -> (FakeApi, Lifecycle, Arc<Node>) {
    let api = FakeApi::default();
    api.put(&node("Unknown"));
    let (_, status) = watch::channel(ProviderStatus::default());
    let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
    let lifecycle = Lifecycle::new(api.context(status), &Memory::default(), metrics);
    let seen = lifecycle
        .context()
        .cluster
        .nodes
        .get(&Key::node("n"))
        .unwrap();
    (api, lifecycle, seen)
}

fn events(lifecycle: &Lifecycle) -> Vec<String> {
    lifecycle.context().writes.events.recorded()
}

#[tokio::test(start_paused = true)]
async fn b_l2_a_node_is_deleted_with_an_event() {
    let (api, lifecycle, seen) = bench();
    assert_eq!(lifecycle.delete_one(&seen, || true).await, Fate::Deleted);
    assert!(api.node("n").is_none());
    let events = events(&lifecycle);
    assert_eq!(events.len(), 1);
    let wanted = "Deleting node n because it does not exist in the cloud provider";
    assert!(
        events[0].contains("Normal DeletingNode") && events[0].contains(wanted),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn l6_what_changed_since_is_seen_and_the_node_stays() {
    type Edit = fn(&FakeApi);
    let edits: [Edit; 5] = [
        |api| {
            api.edit("n", |old| {
                old.status = node("True").status;
            });
        },
        |api| {
            api.delete("n");
            api.put(&node("Unknown"));
        },
        |api| {
            api.edit("n", |node| {
                node.spec.get_or_insert_default().provider_id = None;
            });
        },
        |api| api.delete("n"),
        // Another Node has its provider ID now.
        |api| {
            let mut other = node("True");
            other.metadata.name = Some("m".to_owned());
            api.put(&other);
        },
    ];
    for edit in edits {
        let (api, lifecycle, seen) = bench();
        edit(&api);
        assert_eq!(lifecycle.delete_one(&seen, || true).await, Fate::Spared);
        assert!(api.writes().is_empty() && events(&lifecycle).is_empty());
    }
    let (api, lifecycle, seen) = bench();
    let fate = lifecycle.delete_one(&seen, || false).await;
    assert_eq!(fate, Fate::Interrupted);
    assert!(api.writes().is_empty());
    // A change between the last read and the request: the preconditions catch it.
    for (edit, expected) in [(edits[0], Fate::Interrupted), (edits[1], Fate::Spared)] {
        let (api, lifecycle, seen) = bench();
        api.before_next_write(edit);
        assert_eq!(lifecycle.delete_one(&seen, || true).await, expected);
        assert!(api.node("n").is_some() && api.writes().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn l5_a_deletion_that_the_fence_cut_off_may_have_happened() {
    let (api, lifecycle, seen) = bench();
    api.faults.writes(1, 1, Fault::Lost);
    let closed = async {
        while api.node("n").is_some() {
            tokio::task::yield_now().await;
        }
        api.fence.close();
    };
    let (fate, ()) = tokio::join!(lifecycle.delete_one(&seen, || true), closed);
    assert_eq!(fate, Fate::Unknown);
}

#[tokio::test(start_paused = true)]
async fn b_l3_the_shutdown_taint_comes_and_goes() {
    let (server, lifecycle, seen) = bench();
    let context = lifecycle.context();
    change_taints(context, &[seen], plan::with_shutdown_taint, "set").await;
    let taints = server.node("n").unwrap().spec.unwrap().taints.unwrap();
    assert_eq!(taints[0].key, "node.cloudprovider.kubernetes.io/shutdown");
    server.edit("n", |old| {
        old.status = node("True").status;
    });
    let info = api::GetProviderInfoResponse {
        provider_id_prefixes: vec!["mock://".to_owned()],
        ..api::GetProviderInfoResponse::default()
    };
    let ownership = Ownership::of(&[("mock", &info)], None).unwrap();
    let take_off = async || {
        let nodes = owned(context, &ownership);
        change_taints(context, &nodes, plan::without_shutdown_taint, "removed").await;
    };
    take_off().await;
    assert_eq!(
        server.node("n").unwrap().spec.unwrap().taints,
        Some(Vec::new())
    );
    // A second call finds nothing to do, so it writes nothing.
    let writes = server.writes().len();
    take_off().await;
    assert_eq!(server.writes().len(), writes);
}
