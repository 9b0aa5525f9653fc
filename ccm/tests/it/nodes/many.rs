//! Many Nodes at once.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use kube::api::ListParams;
use provider_mock::Fixture;
use provider_mock::fixture::{Place, Zones};
use testenv::eventually;
use tokio::time::Instant;

use super::{patches, versions};
use crate::world::{SOON, World, label, taints};

const NODES: usize = 300;

#[tokio::test]
async fn b_n3_n11_three_hundred_nodes_cost_few_calls() {
    let mut fixture = Fixture::default();
    fixture.capabilities.instances.zones = Zones::Lookup;
    let elsewhere = Place {
        zone: Some("zone-9".to_owned()),
        region: None,
    };
    fixture.zones.insert("node-7".to_owned(), elsewhere);
    let mut world = World::new(fixture).await;
    let mut ccm = world.ccm(&["--controllers=cloud-node"]);
    world.leader().await;
    world
        .cloud()
        .set_latency("LookupInstances", Duration::from_millis(100))
        .unwrap();

    let began = Instant::now();
    stream::iter(0..NODES)
        .for_each_concurrent(64, |number| {
            let world = &world;
            async move { world.join(&format!("node-{number}")).await }
        })
        .await;
    eventually("all are initialised", SOON, async || {
        let nodes = world.nodes().list(&ListParams::default()).await.unwrap();
        let done = nodes.iter().filter(|node| taints(node).is_empty()).count();
        if done == NODES { Ok(()) } else { Err(done) }
    })
    .await;
    let (instances, zones) = (
        count(&world, "LookupInstances"),
        count(&world, "LookupZones"),
    );
    // A partial batch waits for 100 ms, so the number of batches depends on how fast the machine
    // registers the Nodes. A call for each Node is too many in any case.
    let batches = 5 + began.elapsed().as_millis() as u64 / 100;
    let most = batches.min(NODES as u64 - 1);
    assert!(instances <= most, "{instances} in the time of {batches}");
    assert!(zones <= instances, "{zones} {instances}");

    // B-N3: zones from the ZoneService.
    for (name, zone, region) in [
        ("node-7", Some("zone-9"), None),
        ("node-8", Some("zone-1"), Some("region-1")),
    ] {
        let node = world.node(name).await.unwrap();
        assert_eq!(label(&node, "topology.kubernetes.io/zone"), zone);
        assert_eq!(
            label(&node, "failure-domain.beta.kubernetes.io/region"),
            region
        );
    }

    // A round of the refresh asks about all of them in three calls, and writes nothing.
    let before = (versions(&world).await, patches(&world).await);
    ccm.terminate();
    ccm.wait(SOON).await.unwrap();
    world.cloud().reset_calls();
    let _ccm = world.ccm(&[
        "--controllers=cloud-node",
        "--node-status-update-frequency=2s",
    ]);
    let rounds = world
        .cloud()
        .wait_until(SOON, |cloud| cloud.call_count("LookupInstances") >= 12)
        .await;
    assert!(rounds);
    let calls = world.cloud().calls(Some("LookupInstances"));
    assert!(calls[..12].iter().all(|call| call.count == 100));
    assert!(calls[11].at_ms - calls[0].at_ms >= 5_500);
    // All three are of one round: with one call a round they would take 4 s.
    assert!(calls[2].at_ms - calls[0].at_ms < 4_000);
    assert_eq!((versions(&world).await, patches(&world).await), before);
}

fn count(world: &World, rpc: &str) -> u64 {
    world.cloud().call_count(rpc)
}
