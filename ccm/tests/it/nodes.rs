//! Nodes, from joining to going.

use provider_mock::Fixture;

use crate::world::{World, addresses, label};

#[tokio::test]
async fn b_n2_b_n3_b_n7_a_fresh_node_is_initialised() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    world.join("node-1").await;
    let node = world.initialised("node-1").await;
    assert_eq!(
        node.spec.as_ref().unwrap().provider_id.as_deref(),
        Some("mock://zone-1/node-1")
    );
    for (key, value) in [
        ("node.kubernetes.io/instance-type", "mock.large"),
        ("beta.kubernetes.io/instance-type", "mock.large"),
        ("topology.kubernetes.io/zone", "zone-1"),
        ("failure-domain.beta.kubernetes.io/zone", "zone-1"),
        ("topology.kubernetes.io/region", "region-1"),
        ("failure-domain.beta.kubernetes.io/region", "region-1"),
    ] {
        assert_eq!(label(&node, key), Some(value), "{key}");
    }
    assert_eq!(addresses(&node).len(), 1);
    world
        .event("node-1", "Normal Synced Node synced successfully")
        .await;
}
