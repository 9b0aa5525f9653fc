//! The ccm is killed between any two writes of a Node's initialisation.

use provider_mock::Fixture;

use crate::proxy::Proxy;
use crate::world::{World, addresses, label, taints};

/// Fault: the ccm process is killed (SIGKILL) right before or right after each write of a Node's
/// initialisation reaches a real API server: addresses, then provider ID, labels and taint | the
/// next process goes on where the killed one ended; never removes the taint before the addresses
/// are there
#[tokio::test]
async fn fault_node_killed_between_writes_of_its_initialisation() {
    let mut world = World::new(Fixture::default()).await;
    let proxy = Proxy::start(&world.plane).await;
    let flag = proxy.flag();
    let mut ccm = world.ccm(&[&flag]);
    world.led_by(&ccm).await;
    for forwarded in [false, true] {
        let mut number = 1;
        loop {
            let name = format!("n{number}-{}", u8::from(forwarded));
            proxy.trap(&format!("/nodes/{name}"), number, forwarded);
            world.join(&name).await;
            let killed = proxy.trapped_during(world.initialised(&name)).await;
            if killed {
                world.crash(&mut ccm).await;
                let node = world.node(&name).await.unwrap();
                assert!(
                    !taints(&node).is_empty() || !addresses(&node).is_empty(),
                    "never removes the taint before the addresses are there: {node:?}"
                );
                ccm = world.ccm(&[&flag]);
            }
            let node = world.initialised(&name).await;
            assert_eq!(
                addresses(&node).len(),
                1,
                "the next process goes on where the killed one ended: {:?}",
                node.status
            );
            assert_eq!(label(&node, "topology.kubernetes.io/zone"), Some("zone-1"));
            assert_eq!(
                label(&node, "topology.kubernetes.io/region"),
                Some("region-1")
            );
            assert_eq!(
                label(&node, "node.kubernetes.io/instance-type"),
                Some("mock.large")
            );
            assert!(taints(&node).is_empty(), "{:?}", taints(&node));
            if !killed {
                assert!(number > 2, "only {number} writes had their turn");
                break;
            }
            number += 1;
        }
    }
    assert_eq!(world.cloud().mutating_calls(), 0);
    // If the ccm was not killed during a Node's initialisation, it records the event.
    world.event("n3-1", "Normal Synced").await;
}
