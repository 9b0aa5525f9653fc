//! Nodes.

mod afterwards;
mod joined;
mod kept_out;
mod lifecycle;
mod zones;

use provider_mock::Instance;
use testenv::objects::NodeBuilder;

use crate::scenario::Scenario;
use crate::side::{Side, Who};

pub use lifecycle::{lie, lifecycle};

const LOOKUP: &str = "LookupInstances";
const PROVIDED: &str = "alpha.kubernetes.io/provided-node-ip";
const ZONE: &str = "topology.kubernetes.io/zone";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
const TYPE: &str = "node.kubernetes.io/instance-type";
const BETA_TYPE: &str = "beta.kubernetes.io/instance-type";

/// An instance with an address, a type, a zone and a region.
pub fn instance(name: &str) -> Instance {
    let number = name
        .bytes()
        .fold(7_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    Instance::new(name)
        .instance_type("mock.large")
        .place("zone-1", "region-1")
        .internal_ip([10, 1, number, name.len() as u8].into())
}

fn joining(name: &str) -> NodeBuilder {
    NodeBuilder::new(name).uninitialized()
}

/// A Node that counts as initialised: it has a provider ID, all labels and no taint.
fn known(name: &str) -> NodeBuilder {
    NodeBuilder::new(name)
        .provider_id(format!("mock://zone-1/{name}"))
        .label(ZONE, "zone-1")
        .label(BETA_ZONE, "zone-1")
        .label(REGION, "region-1")
        .label(BETA_REGION, "region-1")
        .label(TYPE, "mock.large")
        .label(BETA_TYPE, "mock.large")
}

/// Adds the instance, registers the Node, and waits until it is initialised.
async fn joins(side: &Side, instance: Instance, node: NodeBuilder) {
    let name = instance.name.clone();
    side.cloud().add_instance(instance).unwrap();
    side.register(node).await;
    side.initialised(&name).await;
}

/// Registers a Node that must stay uninitialised. Waits until a later Node is initialised, and for
/// some renewals of the Lease.
async fn stays(side: &Side, name: &str, node: NodeBuilder) {
    side.register(node).await;
    let later = format!("{name}--later");
    joins(side, instance(&later), joining(&later)).await;
    side.renewals(4).await;
}

/// Requires on the ccm's side an event that says why the scenario's Node waits.
fn told(text: &str, scenario: Scenario) -> Scenario {
    let line = format!(
        "event on {}: Warning NodeNotInitialized: {text} [cloud-node-controller]",
        scenario.name
    );
    // How often the ccm records the event depends on time.
    scenario.only_there("▲N13", "an event says why", Who::Ours, &line)
}

fn v4(name: &str) -> String {
    instance(name).addresses[0].text()
}

pub fn scenarios() -> Vec<Scenario> {
    let mut all = joined::joined();
    all.extend(kept_out::kept_out());
    all.extend(afterwards::afterwards());
    all.extend(zones::zones());
    all
}
