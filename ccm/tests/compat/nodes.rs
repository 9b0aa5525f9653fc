//! Nodes that join, are initialised and stay.

mod lifecycle;
mod zones;

use provider_mock::{Address, Fault, FaultKind, Instance};
use provider_sdk::FailureCode;
use serde_json::json;
use testenv::objects::{NodeBuilder, UNINITIALIZED};

use crate::scenario::{Scenario, nothing};
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

/// A Node that was initialised long ago, with all labels.
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

/// Its instance is there, it joins, and is initialised.
async fn joins(side: &Side, instance: Instance, node: NodeBuilder) {
    let name = instance.name.clone();
    side.cloud().add_instance(instance).unwrap();
    side.create_node(node).await;
    side.initialised(&name).await;
}

/// It joins and must not be initialised: another Node that joins later is, and some renewals pass.
async fn stays(side: &Side, name: &str, node: NodeBuilder) {
    side.create_node(node).await;
    let later = format!("{name}--later");
    joins(side, instance(&later), joining(&later)).await;
    side.renewals(4).await;
}

/// A Node that stays uninitialised has an event with the reason.
fn told(text: &str, scenario: Scenario) -> Scenario {
    let line = format!(
        "event on {}: Warning NodeNotInitialized: {text} [cloud-node-controller]",
        scenario.name
    );
    scenario.only("▲N13", "an event tells why", Who::Ours, &line)
}

fn simple(
    name: &'static str,
    what: &'static str,
    ids: &'static [&'static str],
    make: fn(&'static str) -> (Instance, NodeBuilder),
) -> Scenario {
    Scenario::new(name, what, ids, move |side: Side, name| async move {
        let (instance, node) = make(name);
        joins(&side, instance, node).await;
        nothing()
    })
}

/// Already initialised: no taint, and what `change` does to it.
fn initialised(
    name: &'static str,
    what: &'static str,
    change: fn(NodeBuilder) -> NodeBuilder,
) -> Scenario {
    Scenario::new(name, what, &["B-N10"], move |side: Side, name| async move {
        // An instance of which the cloud tells nothing: what becomes of the labels is the controller's doing alone.
        side.cloud().add_instance(Instance::new(name)).unwrap();
        let node = NodeBuilder::new(name).provider_id(format!("mock://{name}"));
        side.create_node(change(node)).await;
        nothing()
    })
}

/// The two addresses of a dual stack instance.
fn two_families(name: &str) -> Instance {
    let first = instance(name);
    first.internal_ip("fd00:1::7".parse().unwrap())
}

fn v4(name: &str) -> String {
    instance(name).addresses[0].text()
}

pub fn scenarios() -> Vec<Scenario> {
    let mut all = joined();
    all.extend(kept_out());
    all.extend(afterwards());
    all.extend(zones::zones());
    all
}

fn joined() -> Vec<Scenario> {
    vec![
        simple(
            "fresh",
            "a Node joins",
            &["B-N1", "B-N2", "B-N3", "B-N7"],
            |name| (instance(name), joining(name)),
        ),
        simple(
            "dual-stack-node",
            "a Node with addresses of two families joins",
            &["B-N11"],
            |name| (two_families(name), joining(name)),
        ),
        simple(
            "all-addresses",
            "a Node with addresses of all types joins",
            &["B-N6"],
            |name| {
                let mut instance = instance(name);
                instance
                    .addresses
                    .push(Address::ExternalIp([198, 51, 100, 20].into()));
                instance.addresses.push(Address::Hostname("host".into()));
                instance
                    .addresses
                    .push(Address::InternalDns("host.internal".into()));
                instance
                    .addresses
                    .push(Address::ExternalDns("host.example.com".into()));
                (instance, joining(name))
            },
        ),
        simple(
            "hostname-kept",
            "the provider gives no host name, the kubelet did",
            &["B-N6"],
            |name| {
                (
                    instance(name),
                    joining(name).address("Hostname", "from-the-kubelet"),
                )
            },
        ),
        simple(
            "kubelet-addresses",
            "the kubelet gave another address",
            &["B-N6"],
            |name| {
                (
                    instance(name),
                    joining(name).address("InternalIP", "172.16.0.9"),
                )
            },
        ),
        simple(
            "provided-ip",
            "the kubelet was given one of several addresses",
            &["B-N5"],
            |name| {
                let instance = instance(name).internal_ip([10, 9, 9, 9].into());
                (instance, joining(name).annotation(PROVIDED, "10.9.9.9"))
            },
        ),
        simple(
            "provided-two-ips",
            "the kubelet was given two addresses",
            &["B-N5"],
            |name| {
                let instance = two_families(name).internal_ip([10, 9, 9, 8].into());
                (
                    instance,
                    joining(name).annotation(PROVIDED, "fd00:1::7,10.9.9.8"),
                )
            },
        ),
        simple(
            "labels-added",
            "the provider gives labels",
            &["B-N4"],
            |name| {
                (
                    instance(name).label("example.com/rack", "r1"),
                    joining(name),
                )
            },
        ),
        simple(
            "labels-kept",
            "the provider gives a label that the Node has",
            &["B-N4"],
            |name| {
                let node = joining(name)
                    .label("example.com/rack", "mine")
                    .label("team", "blue");
                (instance(name).label("example.com/rack", "r1"), node)
            },
        ),
        simple(
            "labels-reserved",
            "the provider gives labels in reserved namespaces",
            &["B-N4"],
            |name| {
                let instance = instance(name)
                    .label("kubernetes.io/role", "x")
                    .label("sub.k8s.io/y", "z");
                (instance, joining(name))
            },
        ),
        simple(
            "zone-overwritten",
            "the Node came with another zone",
            &["B-N3"],
            |name| {
                (
                    instance(name),
                    joining(name)
                        .label(ZONE, "elsewhere")
                        .label(BETA_ZONE, "elsewhere"),
                )
            },
        ),
        simple(
            "id-given",
            "the kubelet set the provider ID",
            &["B-N2"],
            |name| {
                (
                    instance(name),
                    joining(name).provider_id(format!("mock://zone-1/{name}")),
                )
            },
        ),
        simple(
            "taints-kept",
            "the Node has other taints",
            &["B-N7"],
            |name| {
                (
                    instance(name),
                    joining(name).taint("example.com/gpu", "a", "NoSchedule"),
                )
            },
        ),
        simple(
            "not-ready",
            "a Node that is not Ready joins",
            &["B-N1", "B-L1"],
            |name| (instance(name), joining(name).ready("False")),
        ),
        simple(
            "bare",
            "an instance without type, zone, region and addresses",
            &["B-N3", "B-N6"],
            |name| {
                (
                    Instance::new(name),
                    joining(name).address("InternalIP", "172.16.0.7"),
                )
            },
        ),
        told(
            "InternalError: scripted by the mock",
            Scenario::new(
                "fails-once",
                "the first lookup fails",
                &["B-N8"],
                async |side: Side, name| {
                    let failure = Fault::failure(LOOKUP, FailureCode::Internal);
                    side.fault(failure.subject(name).times(1));
                    joins(&side, instance(name), joining(name)).await;
                    nothing()
                },
            ),
        ),
        Scenario::new(
            "appears-later",
            "the instance appears after its Node",
            &["B-N8"],
            async |side: Side, name| {
                stays(&side, name, joining(name)).await;
                side.cloud().add_instance(instance(name)).unwrap();
                side.initialised(name).await;
                nothing()
            },
        ),
        Scenario::new(
            "node-recreated",
            "a Node is deleted and registers again under the same name, on another instance",
            &["B-N1", "B-N2"],
            async |side: Side, name| {
                joins(&side, instance(name), joining(name)).await;
                side.delete_node(name).await;
                side.cloud().remove_instance(name).unwrap();
                let mut second = instance(name).place("zone-2", "region-1");
                second.id = format!("{name}-second");
                side.cloud().add_instance(second).unwrap();
                side.create_node(joining(name)).await;
                side.initialised(name).await;
                nothing()
            },
        ),
    ]
}

fn kept_out() -> Vec<Scenario> {
    vec![
        told(
            "the provider says that this Node's instance does not exist",
            Scenario::new(
                "unknown",
                "there is no instance",
                &["B-N8"],
                async |side: Side, name| {
                    stays(&side, name, joining(name)).await;
                    nothing()
                },
            ),
        ),
        told(
            "the provider knows no address 10.99.99.99 of this instance, which the kubelet was given as its node IP",
            Scenario::new(
                "provided-wrong",
                "the kubelet was given an address that the instance does not have",
                &["B-N5"],
                async |side: Side, name| {
                    side.cloud().add_instance(instance(name)).unwrap();
                    stays(
                        &side,
                        name,
                        joining(name).annotation(PROVIDED, "10.99.99.99"),
                    )
                    .await;
                    nothing()
                },
            ),
        ),
        told(
            "the provider gave no provider ID, and the Node has none",
            Scenario::new(
                "no-provider-id",
                "the provider gives no provider ID",
                &["B-N2"],
                async |side: Side, name| {
                    side.fault(Fault::new(LOOKUP, FaultKind::ProviderId).subject(name));
                    side.cloud().add_instance(instance(name)).unwrap();
                    stays(&side, name, joining(name)).await;
                    nothing()
                },
            ),
        ),
        Scenario::new(
            "unmanaged",
            "the provider says that the instance is not its own",
            &["B-N9"],
            async |side: Side, name| {
                let unmanaged = Fault::new(LOOKUP, FaultKind::InstanceState).value("UNMANAGED");
                side.fault(unmanaged.subject(name));
                stays(&side, name, joining(name)).await;
                nothing()
            },
        ),
        told(
            "the cloud does not show this Node's instance yet",
            Scenario::new(
                "still-pending",
                "the cloud does not show the instance yet",
                &["B-N8"],
                async |side: Side, name| {
                    let pending = Fault::new(LOOKUP, FaultKind::InstanceState).value("PENDING");
                    side.fault(pending.subject(name));
                    stays(&side, name, joining(name)).await;
                    nothing()
                },
            ),
        ),
        told(
            "InternalError: scripted by the mock",
            Scenario::new(
                "lookup-fails",
                "every lookup fails",
                &["B-N8"],
                async |side: Side, name| {
                    side.fault(Fault::failure(LOOKUP, FailureCode::Internal).subject(name));
                    side.cloud().add_instance(instance(name)).unwrap();
                    stays(&side, name, joining(name)).await;
                    nothing()
                },
            ),
        ),
        Scenario::new(
            "other-cloud",
            "a Node of another cloud joins",
            &["B-N9", "B-L4"],
            async |side: Side, name| {
                let node = joining(name).provider_id("other://a/b").ready("False");
                side.create_node(node).await;
                side.renewals(6).await;
                nothing()
            },
        ),
        label_invalid(),
    ]
}

/// Upstream cannot write such a Node at all; ours leaves the label out.
fn label_invalid() -> Scenario {
    const NAME: &str = "label-invalid";
    const WHY: &str = "the label is left out with an event, and the Node is initialised";
    let what = "the provider gives a label whose value cannot be one";
    let mut scenario = Scenario::new(NAME, what, &["▲N14"], async |side: Side, name| {
        let instance = instance(name).label("example.com/rack", "not a value!");
        side.cloud().add_instance(instance).unwrap();
        side.create_node(joining(name)).await;
        match side.who() {
            Who::Go => side.renewals(8).await,
            Who::Ours => side.initialised(name).await,
        }
        nothing()
    });
    let (id, address) = (format!("mock://zone-1/{NAME}"), v4(NAME));
    for (path, go, ours) in [
        (format!("metadata labels {TYPE}"), None, Some("mock.large")),
        (
            format!("metadata labels {BETA_TYPE}"),
            None,
            Some("mock.large"),
        ),
        (format!("metadata labels {ZONE}"), None, Some("zone-1")),
        (format!("metadata labels {BETA_ZONE}"), None, Some("zone-1")),
        (format!("metadata labels {REGION}"), None, Some("region-1")),
        (
            format!("metadata labels {BETA_REGION}"),
            None,
            Some("region-1"),
        ),
        ("spec providerID".into(), None, Some(id.as_str())),
        ("spec taints 0 key".into(), Some(UNINITIALIZED), None),
        ("spec taints 0 value".into(), Some("true"), None),
        ("spec taints 0 effect".into(), Some("NoSchedule"), None),
        ("status addresses 0 type".into(), None, Some("InternalIP")),
        (
            "status addresses 0 address".into(),
            None,
            Some(address.as_str()),
        ),
    ] {
        scenario = scenario.differs("▲N14", WHY, &format!("node {NAME} {path}"), go, ours);
    }
    for event in [
        "Normal Synced: Node synced successfully",
        "Warning InvalidNodeLabel: not valid as a label, and left out: \"example.com/rack\" = \"not a value!\"",
    ] {
        let line = format!("event on {NAME}: {event} [cloud-node-controller]");
        scenario = scenario.only("▲N14", WHY, Who::Ours, &line);
    }
    scenario
}

fn afterwards() -> Vec<Scenario> {
    vec![
        initialised(
            "beta-zone-wins",
            "the beta zone label of an initialised Node differs",
            |node| node.label(ZONE, "ga").label(BETA_ZONE, "zone-1"),
        ),
        initialised(
            "beta-zone-only",
            "an initialised Node has only the beta zone label",
            |node| node.label(BETA_ZONE, "zone-1"),
        ),
        initialised(
            "beta-region-only",
            "an initialised Node has only the beta region label",
            |node| node.label(BETA_REGION, "region-1"),
        ),
        initialised(
            "beta-type-only",
            "an initialised Node has only the beta type label",
            |node| node.label(BETA_TYPE, "mock.large"),
        ),
        Scenario::new(
            "zone-edited",
            "a user changes the zone label of an initialised Node",
            &["B-N10"],
            async |side: Side, name| {
                joins(&side, instance(name), joining(name)).await;
                side.edit_node(name, json!({"metadata": {"labels": {ZONE: "mine"}}}))
                    .await;
                side.node_is(name, "has its zone back", |node| {
                    let labels = node.and_then(|node| node.metadata.labels.as_ref());
                    labels.is_some_and(|labels| labels[ZONE] == "zone-1")
                })
                .await;
                nothing()
            },
        ),
        Scenario::new(
            "address-changed",
            "the address of an instance changes",
            &["B-N11"],
            async |side: Side, name| {
                joins(&side, instance(name), joining(name)).await;
                let change = |instance: &mut Instance| {
                    instance.addresses = vec![Address::InternalIp([10, 77, 0, 1].into())];
                };
                side.cloud().change_instance(name, change).unwrap();
                side.node_is(name, "shows the new address", |node| {
                    format!("{node:?}").contains("10.77.0.1")
                })
                .await;
                nothing()
            },
        ),
        Scenario::new(
            "addresses-lost",
            "the provider gives no addresses any more",
            &["B-N6"],
            async |side: Side, name| {
                joins(&side, instance(name), joining(name)).await;
                side.node_is(name, "shows its address", |node| {
                    format!("{node:?}").contains(&v4(name))
                })
                .await;
                let change = |instance: &mut Instance| instance.addresses.clear();
                side.cloud().change_instance(name, change).unwrap();
                side.renewals(6).await;
                nothing()
            },
        ),
        Scenario::new(
            "type-changed",
            "the type of an instance changes",
            &["▲N12"],
            async |side: Side, name| {
                joins(&side, instance(name), joining(name)).await;
                let change =
                    |instance: &mut Instance| instance.instance_type = Some("mock.huge".into());
                side.cloud().change_instance(name, change).unwrap();
                side.renewals(6).await;
                nothing()
            },
        )
        .differs(
            "▲N12",
            "the type label is kept current",
            "node type-changed metadata labels node.kubernetes.io/instance-type",
            Some("mock.large"),
            Some("mock.huge"),
        )
        .differs(
            "▲N12",
            "the type label is kept current",
            "node type-changed metadata labels beta.kubernetes.io/instance-type",
            Some("mock.large"),
            Some("mock.huge"),
        ),
    ]
}
