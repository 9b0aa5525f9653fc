//! Initialised Nodes.

use provider_mock::{Address, Instance};
use serde_json::json;
use testenv::objects::NodeBuilder;

use super::{BETA_REGION, BETA_TYPE, BETA_ZONE, ZONE, instance, joining, joins, v4};
use crate::scenario::{Scenario, nothing};
use crate::side::Side;

/// A Node that is built with `change` registers without the taint, as if it was initialised.
fn initialised(
    name: &'static str,
    what: &'static str,
    change: fn(NodeBuilder) -> NodeBuilder,
) -> Scenario {
    Scenario::new(name, what, &["B-N10"], move |side: Side, name| async move {
        // An instance without metadata: only the controller determines the labels.
        side.cloud().add_instance(Instance::new(name)).unwrap();
        let node = NodeBuilder::new(name).provider_id(format!("mock://{name}"));
        side.register(change(node)).await;
        nothing()
    })
}

pub fn afterwards() -> Vec<Scenario> {
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
            "the ccm keeps the type label current",
            "node type-changed metadata labels node.kubernetes.io/instance-type",
            Some("mock.large"),
            Some("mock.huge"),
        )
        .differs(
            "▲N12",
            "the ccm keeps the type label current",
            "node type-changed metadata labels beta.kubernetes.io/instance-type",
            Some("mock.large"),
            Some("mock.huge"),
        ),
    ]
}
