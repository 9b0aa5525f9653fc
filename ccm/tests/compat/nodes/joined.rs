//! Nodes that join and are initialised.

use provider_mock::{Address, Fault, Instance};
use provider_sdk::FailureCode;
use testenv::objects::NodeBuilder;

use super::{BETA_ZONE, LOOKUP, PROVIDED, ZONE, instance, joining, joins, stays, told};
use crate::scenario::{Scenario, nothing};
use crate::side::Side;

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

/// An instance with addresses of two families.
fn two_families(name: &str) -> Instance {
    let first = instance(name);
    first.internal_ip("fd00:1::7".parse().unwrap())
}

pub fn joined() -> Vec<Scenario> {
    let mut all = addresses();
    all.extend(labels_and_taints());
    all.extend(later());
    all
}

/// Addresses of a Node that joins.
fn addresses() -> Vec<Scenario> {
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
    ]
}

/// Labels and taints of a Node that joins, and what the cloud leaves out.
fn labels_and_taints() -> Vec<Scenario> {
    vec![
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
    ]
}

/// Nodes that are not initialised by their first lookup, or register again.
fn later() -> Vec<Scenario> {
    vec![
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
                side.register(joining(name)).await;
                side.initialised(name).await;
                nothing()
            },
        ),
    ]
}
