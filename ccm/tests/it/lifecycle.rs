//! Nodes whose instance is gone or stopped. docs/node-deletion.md lists what must hold for a
//! deletion. These tests show most of that list.

mod brake;
mod guards;
mod passes;
mod provider;

use kube::api::ListParams;
use provider_mock::{Cloud, Fault, FaultKind};
use testenv::objects::NodeBuilder;

use crate::world::{SOON, World, instance};

/// Runs only the lifecycle controller.
const ONLY_LIFECYCLE: &str = "--controllers=cloud-node-lifecycle";
const EVERY_SECOND: &str = "--node-monitor-period=1s";

/// A Node of this provider, which is initialised: it has a provider ID and no taint.
fn known(name: &str) -> NodeBuilder {
    NodeBuilder::new(name).provider_id(format!("mock://zone-1/{name}"))
}

/// A Node with this Ready condition, and its instance.
async fn settle(world: &World, name: &str, ready: &str) {
    world.cloud().add_instance(instance(name)).unwrap();
    world.register(known(name).ready(ready)).await;
}

/// Nodes that are Ready, with their instances.
async fn crowd(world: &World, count: usize) {
    for number in 0..count {
        settle(world, &format!("ready-{number:02}"), "True").await;
    }
}

/// Waits until this many passes that begin after this moment have ended, with their effects. A Node
/// that is never Ready keeps them going. A Node without changes is asked about less often, so each
/// pass gets a hint. If an answer is ABSENT, a pass makes a second call, about witnesses.
async fn passes(world: &World, count: u64) {
    let cloud = world.cloud();
    // One pass may be under way, and a pass has ended for sure when the next one asks.
    for _ in 0..2 * count + 2 {
        let before = asked(cloud);
        cloud.hint_resync();
        let more = cloud.wait_until(SOON, |cloud| asked(cloud) > before).await;
        assert!(more, "there are no passes");
    }
}

fn asked(cloud: &Cloud) -> u64 {
    cloud.call_count("LookupInstances")
}

/// A fault: the provider reports this state for the Node's instance, or for all instances.
fn state(value: &str, node: Option<&str>) -> Fault {
    let fault = Fault::new("LookupInstances", FaultKind::InstanceState).value(value);
    Fault {
        subject: node.map(str::to_owned),
        ..fault
    }
}

/// The names of all Nodes.
async fn names(world: &World) -> Vec<String> {
    let nodes = world.nodes().list(&ListParams::default()).await.unwrap();
    let names = nodes.iter().map(|node| node.metadata.name.clone());
    names.map(Option::unwrap).collect()
}

/// The Node's UID.
async fn uid(world: &World, name: &str) -> String {
    world.node(name).await.unwrap().metadata.uid.unwrap()
}
