//! Nodes that join and cannot be initialised, or only in part.

use provider_mock::{Fault, FaultKind};
use provider_sdk::FailureCode;
use testenv::objects::UNINITIALIZED;

use super::{
    BETA_REGION, BETA_TYPE, BETA_ZONE, LOOKUP, PROVIDED, REGION, TYPE, ZONE, instance, joining,
    stays, told, v4,
};
use crate::scenario::{Scenario, nothing};
use crate::side::{Side, Who};

pub fn kept_out() -> Vec<Scenario> {
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
            "the provider reports no address 10.99.99.99 for this instance, but the kubelet's node IP is that address",
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
            "the provider reports no provider ID, and the Node has none",
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
            "the cloud does not report this Node's instance yet",
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
                side.register(node).await;
                side.renewals(6).await;
                nothing()
            },
        ),
        label_invalid(),
    ]
}

/// Upstream cannot write a Node with an invalid label at all. The ccm leaves that label out.
fn label_invalid() -> Scenario {
    const NAME: &str = "label-invalid";
    const WHY: &str = "the ccm leaves the label out, records an event and initialises the Node";
    let what = "the provider gives a label whose value is not valid";
    let mut scenario = Scenario::new(NAME, what, &["▲N14"], async |side: Side, name| {
        let instance = instance(name).label("example.com/rack", "not a value!");
        side.cloud().add_instance(instance).unwrap();
        side.register(joining(name)).await;
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
