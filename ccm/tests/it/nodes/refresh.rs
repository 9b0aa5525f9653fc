//! Nodes that are initialised.

use provider_mock::{Address, Fault, FaultKind, Fixture};
use testenv::objects::NodeBuilder;

use super::{fresh, internal, lookups_of, patches, version, versions, write_labels};
use crate::world::{SOON, World, addresses, instance, label};

const TYPE: &str = "node.kubernetes.io/instance-type";
const BETA_TYPE: &str = "beta.kubernetes.io/instance-type";
const ZONE: &str = "topology.kubernetes.io/zone";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const FLAGS: [&str; 2] = [
    "--node-status-update-frequency=1s",
    "--controllers=cloud-node",
];

/// Waits until the ccm has refreshed the Node this many times from now on, and has written the
/// results.
async fn refreshed(world: &World, node: &str, times: usize) {
    let before = lookups_of(world, node);
    // One refresh may be under way, and the last one may not have written yet.
    let asked = world
        .cloud()
        .wait_until(SOON, |_| lookups_of(world, node) >= before + times + 2)
        .await;
    assert!(asked, "{node} is not refreshed");
}

#[tokio::test]
async fn b_n10_b_n11_n12_initialised_nodes_are_kept_current_and_left_alone() {
    let mut world = World::new(Fixture::default()).await;
    let mut ccm = world.ccm(&FLAGS);
    n12_labels_that_are_ours_follow_the_cloud(&world).await;
    b_n10_beta_labels_win(&world).await;
    b_n11_addresses_follow_the_cloud(&world).await;
    b_n11_nothing_is_written_without_a_change(&world).await;

    // Another process that takes over writes nothing either.
    let before = (versions(&world).await, patches(&world).await);
    ccm.terminate();
    ccm.wait(SOON).await.unwrap();
    let _ccm = world.ccm(&FLAGS);
    refreshed(&world, "typed", 2).await;
    assert_eq!((versions(&world).await, patches(&world).await), before);
}

async fn n12_labels_that_are_ours_follow_the_cloud(world: &World) {
    let cloud = world.cloud();
    let labelled = instance("typed").label("ours", "1").label("theirs", "1");
    cloud.add_instance(labelled).unwrap();
    world.register(fresh("typed")).await;
    world.initialised("typed").await;
    // From now on these labels have another writer.
    write_labels(world, "typed", &[("theirs", Some("user"))]).await;
    let zone = [(ZONE, Some("user")), (BETA_ZONE, Some("user"))];
    write_labels(world, "typed", &zone).await;
    cloud
        .change_instance("typed", |instance| {
            instance.instance_type = Some("mock.huge".to_owned());
            instance.zone = Some("zone-2".to_owned());
            instance.region = Some("region-2".to_owned());
            for key in ["ours", "theirs", "new"] {
                instance.labels.insert(key.to_owned(), "2".to_owned());
            }
        })
        .unwrap();
    world
        .node_becomes("typed", "of another type", |node| {
            label(node, TYPE) == Some("mock.huge")
        })
        .await;
    refreshed(world, "typed", 1).await;
    let node = world.node("typed").await.unwrap();
    for (key, value) in [
        (TYPE, "mock.huge"),
        (BETA_TYPE, "mock.huge"),
        ("topology.kubernetes.io/region", "region-2"),
        ("failure-domain.beta.kubernetes.io/region", "region-2"),
        ("ours", "2"),
        ("new", "2"),
        ("theirs", "user"),
        (ZONE, "user"),
        (BETA_ZONE, "user"),
    ] {
        assert_eq!(label(&node, key), Some(value), "{key}");
    }
}

async fn b_n10_beta_labels_win(world: &World) {
    // Nodes as another controller leaves them: initialised, with only beta labels, or with a beta
    // label that differs. The cloud does not know these Nodes.
    for (name, labels, expected) in [
        (
            "beta-only",
            [(BETA_TYPE, "old"), (BETA_ZONE, "old")].as_slice(),
            "old",
        ),
        (
            "beta-differs",
            &[(BETA_TYPE, "old"), (TYPE, "new"), (BETA_ZONE, "old")],
            "old",
        ),
    ] {
        let mut node = NodeBuilder::new(name).provider_id(format!("mock://zone-1/{name}"));
        for (key, value) in labels {
            node = node.label(key, value);
        }
        world.register(node).await;
        world
            .node_becomes(name, "with the labels of today", |node| {
                label(node, TYPE) == Some(expected) && label(node, ZONE) == Some(expected)
            })
            .await;
    }
    // If a user changes the type label and not its beta label, the ccm resets the type label.
    write_labels(world, "typed", &[(TYPE, Some("user"))]).await;
    world
        .node_becomes("typed", "of its old type", |node| {
            label(node, TYPE) == Some("mock.huge")
        })
        .await;
    write_labels(world, "typed", &[(TYPE, None)]).await;
    world
        .node_becomes("typed", "of its old type", |node| {
            label(node, TYPE) == Some("mock.huge")
        })
        .await;
}

async fn b_n11_addresses_follow_the_cloud(world: &World) {
    let cloud = world.cloud();
    let mut moving = instance("moving");
    moving.addresses = vec![internal("10.0.0.1")];
    cloud.add_instance(moving).unwrap();
    world
        .register(fresh("moving").address("Hostname", "kubelet"))
        .await;
    world.initialised("moving").await;
    // Dual stack, and several of one type.
    cloud
        .change_instance("moving", |instance| {
            instance.addresses = vec![
                internal("10.0.0.2"),
                internal("fd00::2"),
                internal("10.0.0.1"),
                Address::ExternalIp("192.0.2.1".parse().unwrap()),
                Address::ExternalIp("2001:db8::1".parse().unwrap()),
            ];
        })
        .unwrap();
    let expected = [
        "InternalIP=10.0.0.2",
        "InternalIP=fd00::2",
        "InternalIP=10.0.0.1",
        "ExternalIP=192.0.2.1",
        "ExternalIP=2001:db8::1",
        "Hostname=kubelet",
    ];
    let before = world
        .node_becomes("moving", "with all addresses", |node| {
            addresses(node) == expected
        })
        .await;

    // An answer without information changes nothing: no address, a failure, a machine that is gone.
    let nothing = Fault::new("LookupInstances", FaultKind::InstanceAddress).subject("moving");
    let absent = Fault::new("LookupInstances", FaultKind::InstanceState)
        .subject("moving")
        .value("ABSENT");
    let failed = Fault::new("LookupInstances", FaultKind::Failure).subject("moving");
    for fault in [nothing, absent, failed] {
        let kind = fault.kind;
        let fault = cloud.set_fault(fault).unwrap();
        refreshed(world, "moving", 1).await;
        let now = world.node("moving").await.unwrap();
        assert_eq!(version(&now), version(&before), "{kind}");
        cloud.clear_fault(fault);
    }
}

async fn b_n11_nothing_is_written_without_a_change(world: &World) {
    world
        .register(NodeBuilder::new("foreign").provider_id("other://foreign"))
        .await;
    refreshed(world, "typed", 1).await;
    let before = (versions(world).await, patches(world).await);
    refreshed(world, "typed", 2).await;
    assert_eq!((versions(world).await, patches(world).await), before);
    assert_eq!(lookups_of(world, "foreign"), 0);
}
