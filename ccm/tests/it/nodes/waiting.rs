//! Nodes that cannot be initialised, or not yet.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use provider_mock::fixture::FailureSpec;
use provider_mock::{Fault, FaultKind, Fixture, Power};
use provider_sdk::FailureCode;
use serde_json::json;
use testenv::objects::NodeBuilder;
use testenv::{eventually, free_port};
use tokio::time::Instant;

use super::{PROVIDED, fresh, internal, lookups_of, version, with_addresses};
use crate::input::get;
use crate::world::{SOON, World, instance};

fn failure(code: FailureCode, node: &str, message: &str) -> Fault {
    let spec = FailureSpec {
        message: Some(message.to_owned()),
        ..FailureSpec::new(code)
    };
    let fault = Fault::new("LookupInstances", FaultKind::Failure);
    fault.subject(node).with_failure(spec)
}

#[tokio::test]
async fn b_n1_b_n2_b_n5_b_n8_b_n9_n13_who_stays_uninitialised_and_what_is_said() {
    let mut world = World::new(Fixture::default()).await;
    let port = free_port();
    let _ccm = world.ccm(&[&format!("--secure-port={port}"), "--bind-address=127.0.0.1"]);
    world.leader().await;
    let began = Instant::now();
    let cloud = world.cloud();

    // ▲N13, checked at the end: a Node whose instance the cloud never has, and a Node whose lookups
    // fail with UNAVAILABLE.
    world.register(fresh("never")).await;
    let down = failure(FailureCode::Unavailable, "down", "the cloud is on fire");
    cloud.set_fault(down).unwrap();
    world.join("down").await;

    let left_alone = left_alone(&world).await;
    absent_then_there(&world).await;
    pending_then_there(&world).await;
    no_provider_id(&world).await;
    wrong_node_ip(&world).await;
    lasting_failure(&world).await;

    for (node, why) in [
        ("never", "this Node's instance does not exist"),
        ("down", "the cloud is on fire"),
    ] {
        let minute = Duration::from_mins(1).saturating_sub(began.elapsed());
        // On a slow machine the minute may be over by now.
        let left = minute.max(Duration::from_secs(5));
        let said = eventually(&format!("{node}: a Warning"), left, async || {
            let events = world.events(node).await;
            let found = events.iter().find(|event| event.starts_with("Warning"));
            found.cloned().ok_or(format!("{events:?}"))
        })
        .await;
        assert!(said.contains(why), "{said}");
        world.is_uninitialised(node).await;
    }
    // By now the ccm could have asked about each of these again, and reported it.
    for (node, before) in left_alone {
        let now = world.node(node).await.unwrap();
        assert_eq!(version(&now), before, "{node} was written to");
        assert!(world.events(node).await.is_empty(), "{node}");
    }
    // A hint that may be about any Node repeats a lookup that is in flight, once.
    let lookups = lookups_of(&world, "unmanaged");
    assert!((1..=2).contains(&lookups), "{lookups} lookups");
    let (status, metrics) = get(port, "/metrics", Some("testenv-admin")).await;
    assert_eq!(status, 200);
    let oldest = metrics
        .lines()
        .find_map(|line| line.strip_prefix("node_controller_oldest_uninitialized_node_age_seconds"))
        .and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    assert!(oldest.is_some_and(|age| age >= 25.0), "{oldest:?}");
}

/// B-N1, ▲L4, B-N9: registers Nodes that the ccm does not ask about, and one whose instance the
/// provider does not manage. Returns their names and first versions.
async fn left_alone(world: &World) -> Vec<(&'static str, String)> {
    world
        .cloud()
        .add_instance(instance("unmanaged").power(Power::Unmanaged))
        .unwrap();
    let mut nodes = Vec::new();
    for (name, node) in [
        ("unmanaged", fresh("unmanaged")),
        (
            "foreign",
            fresh("foreign").provider_id("other://zone-1/foreign"),
        ),
        (
            "labelled",
            fresh("labelled").label("grpc-ccm.io/provider", "other"),
        ),
        // Without the taint the ccm leaves the Node alone before it has an ID (B-N1).
        ("untainted", NodeBuilder::new("untainted")),
    ] {
        nodes.push((name, version(&world.register(node).await)));
    }
    // When the ccm has handled a later Node, it has handled these too.
    world.join("later").await;
    world.initialised("later").await;
    for never in ["foreign", "labelled", "untainted"] {
        assert_eq!(lookups_of(world, never), 0, "{never}");
    }
    nodes
}

/// B-N8: ABSENT is an error here. The taint stays, and the ccm tries again, less and less often.
async fn absent_then_there(world: &World) {
    world.register(fresh("absent")).await;
    let asked = world
        .cloud()
        .wait_until(SOON, |_| lookups_of(world, "absent") >= 3)
        .await;
    assert!(asked);
    world.is_uninitialised("absent").await;
    let calls = world.cloud().calls(Some("LookupInstances"));
    let at: Vec<u64> = calls
        .iter()
        .filter(|call| call.names.iter().any(|name| name == "absent"))
        .map(|call| call.at_ms)
        .collect();
    assert!(at[1] - at[0] >= 500 && at[2] - at[1] >= 1_000, "{at:?}");
    world.cloud().add_instance(instance("absent")).unwrap();
    world.initialised("absent").await;
}

/// PENDING means not yet, and is no failure: the ccm asks again.
async fn pending_then_there(world: &World) {
    let cloud = world.cloud();
    cloud
        .add_instance(instance("pending").power(Power::Pending))
        .unwrap();
    world.register(fresh("pending")).await;
    let asked = cloud
        .wait_until(SOON, |_| lookups_of(world, "pending") >= 3)
        .await;
    assert!(asked);
    world.is_uninitialised("pending").await;
    cloud.start_instance("pending").unwrap();
    world.initialised("pending").await;
}

/// B-N2: no provider ID from anybody.
async fn no_provider_id(world: &World) {
    let cloud = world.cloud();
    let nameless = Fault::new("LookupInstances", FaultKind::ProviderId).subject("nameless");
    let nameless = cloud.set_fault(nameless).unwrap();
    world.join("nameless").await;
    world
        .event(
            "nameless",
            "Warning NodeNotInitialized the provider reports no provider ID",
        )
        .await;
    let node = world.is_uninitialised("nameless").await;
    assert!(node.spec.unwrap().provider_id.is_none());
    cloud.clear_fault(nameless);
    world.initialised("nameless").await;
}

/// B-N5: one annotation has an IP that the instance does not have, the other has a text that is no
/// IP.
async fn wrong_node_ip(world: &World) {
    let cloud = world.cloud();
    for (name, provided) in [("wrong-ip", "10.0.0.99"), ("no-ip", "ten")] {
        let added = cloud.add_instance(with_addresses(name, &[internal("10.0.0.1")]));
        added.unwrap();
        let node = fresh(name).annotation(PROVIDED, provided);
        world.register(node).await;
        let said = world.event(name, "Warning NodeNotInitialized").await;
        assert!(said.contains(provided), "{said}");
        let node = world.is_uninitialised(name).await;
        assert!(node.status.unwrap().addresses.is_none());
    }
    // The user corrects the annotation of `no-ip`. The instance of `wrong-ip` gets the address.
    let mended = json!({ "metadata": { "annotations": { PROVIDED: "10.0.0.1" } } });
    world
        .nodes()
        .patch("no-ip", &PatchParams::default(), &Patch::Merge(mended))
        .await
        .unwrap();
    world.initialised("no-ip").await;
    cloud
        .change_instance("wrong-ip", |instance| {
            instance.addresses.push(internal("10.0.0.99"));
        })
        .unwrap();
    world.initialised("wrong-ip").await;
}

/// ▲N13: a permanent failure is reported in the provider's own words.
async fn lasting_failure(world: &World) {
    let cloud = world.cloud();
    let quota = failure(
        FailureCode::Precondition,
        "quota",
        "no quota left in zone-1",
    );
    let quota = cloud.set_fault(quota).unwrap();
    world.join("quota").await;
    let said = world.event("quota", "Warning NodeNotInitialized").await;
    assert!(said.contains("no quota left in zone-1"), "{said}");
    world.is_uninitialised("quota").await;
    cloud.clear_fault(quota);
    world.initialised("quota").await;
}
