//! The creation and deletion of load balancers, with failures.

use std::time::Duration;

use provider_mock::fixture::{EventSpec, FailureSpec, ServiceBehaviour};
use provider_mock::{Fault, FaultKind};
use provider_sdk::FailureCode;
use serde_json::json;

use super::{DELETE, ENSURE, ENSURED, ENSURING, balancer, ensured, made, spec, subject};
use crate::scenario::{Facts, Scenario, fact, nothing};
use crate::side::{Side, Who, ingress};

const DELETING: &str = "event on the service: Normal DeletingLoadBalancer: Deleting load balancer [service-controller]";
const DELETED: &str =
    "event on the service: Normal DeletedLoadBalancer: Deleted load balancer [service-controller]";

/// Answers calls about this Service with `pending`, this many times.
fn pending(rpc: &str, namespace: &str, times: u32) -> Fault {
    let fault = Fault::new(rpc, FaultKind::Pending);
    Fault {
        delay: Some(Duration::from_secs(1).into()),
        ..fault.subject(subject(namespace)).times(times)
    }
}

fn failing(rpc: &str, namespace: &str, code: FailureCode) -> Fault {
    let failure = FailureSpec {
        reason: Some("SubnetMissing".into()),
        message: Some("there is no subnet".into()),
        ..FailureSpec::new(code)
    };
    let fault = Fault::new(rpc, FaultKind::Failure);
    fault.subject(subject(namespace)).with_failure(failure)
}

async fn gone(side: &Side, namespace: &str) -> Facts {
    side.service_is(namespace, "is gone", |it| it.is_none())
        .await;
    fact("calls of Delete", &side.asked(DELETE, &subject(namespace)))
}

/// Changes the type to one without load balancers, and waits until the Service shows nothing of its
/// load balancer.
async fn away(side: &Side, namespace: &str) {
    side.edit_service(namespace, spec(&json!({"type": "ClusterIP"})))
        .await;
    side.service_is(
        namespace,
        "has nothing left of its load balancer",
        |service| {
            service.is_some_and(|it| ingress(it).is_empty() && it.metadata.finalizers.is_none())
        },
    )
    .await;
}

pub(super) fn life() -> Vec<Scenario> {
    let mut all = changes();
    all.extend(answers());
    all.extend(beyond());
    all
}

fn changes() -> Vec<Scenario> {
    let mut all = ordinary_changes();
    all.extend(losses());
    all
}

/// Ordinary changes by users.
fn ordinary_changes() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "created",
            "a Service is created",
            &["B-S1", "B-S2", "B-S3"],
            async |side: Side, name| {
                made(&side, name, balancer(name)).await;
                ensured(&side, name).await
            },
        )
        .stored(),
        Scenario::new(
            "two-ports",
            "a Service with a TCP and a UDP port is created",
            &["B-S1"],
            async |side: Side, name| {
                made(&side, name, balancer(name).port("dns", 53, "UDP")).await;
                ensured(&side, name).await
            },
        )
        .stored(),
        Scenario::new(
            "deleted",
            "a Service is deleted",
            &["B-S2", "B-S5"],
            async |side: Side, name| {
                made(&side, name, balancer(name)).await;
                side.delete_service(name).await;
                gone(&side, name).await
            },
        ),
        Scenario::new(
            "type-away",
            "a Service becomes ClusterIP",
            &["B-S5"],
            async |side: Side, name| {
                made(&side, name, balancer(name)).await;
                away(&side, name).await;
                fact("calls of Delete", &side.asked(DELETE, &subject(name)))
            },
        ),
        Scenario::new(
            "type-back",
            "a Service becomes ClusterIP, and LoadBalancer again",
            &["B-S5"],
            async |side: Side, name| {
                made(&side, name, balancer(name)).await;
                away(&side, name).await;
                side.edit_service(name, spec(&json!({"type": "LoadBalancer"})))
                    .await;
                side.balanced(name).await;
                ensured(&side, name).await
            },
        )
        .stored(),
        Scenario::new(
            "recreated",
            "a Service is deleted, and created again under the same name",
            &["B-S2", "B-S5"],
            async |side: Side, name| {
                made(&side, name, balancer(name)).await;
                side.delete_service(name).await;
                gone(&side, name).await;
                side.create_service(balancer(name)).await;
                side.balanced(name).await;
                ensured(&side, name).await
            },
        )
        .stored(),
    ]
}

/// The finalizer or the load balancer is lost.
fn losses() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "without-finalizer",
            "a user takes the finalizer off and deletes the Service",
            &["B-S9"],
            async |side: Side, name| {
                made(&side, name, balancer(name)).await;
                side.edit_service(name, json!({"metadata": {"finalizers": null}}))
                    .await;
                side.delete_service(name).await;
                side.service_is(name, "is gone", |it| it.is_none()).await;
                nothing()
            },
        )
        .only_there("▲S9", "upstream leaks the load balancer", Who::Go, "cloud ")
        .only("▲S9", "ours deletes it", Who::Ours, DELETING)
        .only("▲S9", "ours deletes it", Who::Ours, DELETED),
        Scenario::new(
            "lost-in-cloud",
            "the load balancer vanishes from the cloud, then the Service is deleted",
            &["B-S5"],
            async |side: Side, name| {
                made(&side, name, balancer(name)).await;
                let balancer = side.cloud().load_balancer(name, "web").unwrap();
                side.cloud().remove_load_balancer(&balancer.handle).unwrap();
                side.delete_service(name).await;
                side.service_is(name, "is gone", |it| it.is_none()).await;
                nothing()
            },
        )
        .only("▲S18", "the ccm always calls Delete", Who::Ours, DELETING)
        // Whether the ccm hears of the loss before the deletion is a race.
        .again(
            "▲S10",
            "the ccm may make it again before the Service is deleted",
            Who::Ours,
            ENSURING,
            1,
        )
        .again(
            "▲S10",
            "the ccm may make it again before the Service is deleted",
            Who::Ours,
            ENSURED,
            1,
        ),
    ]
}

fn answers() -> Vec<Scenario> {
    let mut all = answers_of_ensure();
    all.extend(answers_of_delete());
    all
}

/// Answers of Ensure.
fn answers_of_ensure() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "elsewhere",
            "the provider answers that another controller handles the Service",
            &["B-S8"],
            async |side: Side, name| {
                side.namespace(name).await;
                let elsewhere = balancer(name).annotation("mock.grpc-ccm.io/handled-elsewhere", "true");
                side.create_service(elsewhere).await;
                side.asked_times(ENSURE, &subject(name), 1).await;
                side.renewals(4).await;
                ensured(&side, name).await
            },
        )
        .claimed(),
        Scenario::new(
            "elsewhere-deleted",
            "a Service that another controller handles is deleted",
            &["B-S8"],
            async |side: Side, name| {
                side.namespace(name).await;
                let elsewhere = balancer(name).annotation("mock.grpc-ccm.io/handled-elsewhere", "true");
                side.create_service(elsewhere).await;
                side.asked_times(ENSURE, &subject(name), 1).await;
                side.delete_service(name).await;
                side.service_is(name, "is gone", |it| it.is_none()).await;
                nothing()
            },
        )
        .only("▲S18", "the ccm always calls Delete", Who::Ours, DELETING),
        Scenario::new(
            "pending",
            "Ensure is pending twice",
            &["B-S9"],
            async |side: Side, name| {
                side.fault(pending(ENSURE, name, 2));
                made(&side, name, balancer(name)).await;
                ensured(&side, name).await
            },
        )
        .stored()
        .again("▲S9", "pending is no failure", Who::Go, ENSURING, 3)
        .only_times("▲S9", "pending is no failure", Who::Go,
            "event on the service: Warning SyncLoadBalancerFailed: Error syncing load balancer: failed to ensure load balancer: scripted by the mock [service-controller]", 2)
        .only_times("▲N13", "an event says what the ccm waits for", Who::Ours,
            "event on the service: Normal LoadBalancerPending: The load balancer is not ready yet: scripted by the mock [service-controller]", 2),
        Scenario::new(
            "ensure-fails-once",
            "Ensure fails once",
            &["B-S3", "B-S9"],
            async |side: Side, name| {
                side.fault(failing(ENSURE, name, FailureCode::Internal).times(1));
                made(&side, name, balancer(name)).await;
                ensured(&side, name).await
            },
        )
        .stored(),
        Scenario::new(
            "ensure-invalid",
            "Ensure fails for good: the Service itself is wrong",
            &["B-S3"],
            async |side: Side, name| {
                side.fault(failing(ENSURE, name, FailureCode::Invalid));
                side.namespace(name).await;
                side.create_service(balancer(name)).await;
                side.asked_times(ENSURE, &subject(name), 1).await;
                nothing()
            },
        )
        .claimed()
        .again("▲S9", "the ccm retries an invalid Service after half an hour", Who::Go, ENSURING, 2)
        .again("▲S9", "the ccm retries an invalid Service after half an hour", Who::Go,
            "event on the service: Warning SyncLoadBalancerFailed: Error syncing load balancer: failed to ensure load balancer: there is no subnet (SubnetMissing) [service-controller]", 2),
    ]
}

/// Answers of Delete, and events that come with an answer.
fn answers_of_delete() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "delete-fails-once",
            "Delete fails once",
            &["B-S3", "B-S5"],
            async |side: Side, name| {
                made(&side, name, balancer(name)).await;
                side.fault(failing(DELETE, name, FailureCode::Internal).times(1));
                side.delete_service(name).await;
                gone(&side, name).await
            },
        )
        .again("▲S18", "the ccm reports a deletion once, even if it retries it", Who::Go, DELETING, 2),
        Scenario::new(
            "delete-pending",
            "Delete is pending once",
            &["B-S5", "▲S18"],
            async |side: Side, name| {
                made(&side, name, balancer(name)).await;
                side.fault(pending(DELETE, name, 1));
                side.delete_service(name).await;
                gone(&side, name).await
            },
        )
        .differs("▲S18", "the ccm calls Delete until it answers `done`", "fact: calls of Delete", Some("1"), Some("2"))
        .only("▲S18", "an event says what the ccm waits for", Who::Go, DELETING)
        .only("▲S18", "an event says what the ccm waits for", Who::Go,
            "event on the service: Warning SyncLoadBalancerFailed: Error syncing load balancer: failed to delete load balancer: scripted by the mock [service-controller]")
        .only_times("▲S18", "an event says what the ccm waits for", Who::Ours,
            "event on the service: Normal DeletingLoadBalancer: Deleting load balancer: scripted by the mock [service-controller]", 2),
        Scenario::new(
            "retained",
            "the provider keeps the load balancer on purpose",
            &["B-S8"],
            async |side: Side, name| {
                let retained = balancer(name).annotation("mock.grpc-ccm.io/retain", "true");
                made(&side, name, retained).await;
                side.delete_service(name).await;
                gone(&side, name).await
            },
        )
        .only("▲S8", "the ccm does not report a load balancer as deleted if the provider keeps it", Who::Go, DELETED),
        Scenario::new(
            "provider-events",
            "the provider's answers carry an event",
            &["B-S3"],
            async |side: Side, name| {
                let event = EventSpec {
                    warning: true,
                    reason: "QuotaLow".into(),
                    message: "one address is left".into(),
                };
                let events = vec![event];
                let behaviour = ServiceBehaviour { events, ..Default::default() };
                side.cloud().set_service(&subject(name), behaviour).unwrap();
                made(&side, name, balancer(name)).await;
                nothing()
            },
        )
        .stored(),
    ]
}

fn beyond() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "get-is-wrong",
            "the provider's Get does not find the load balancer of a Service that is deleted",
            &["▲S18"],
            async |side: Side, name| {
                made(&side, name, balancer(name)).await;
                let absent = Fault::new("GetLoadBalancer", FaultKind::Presence);
                side.fault(absent.subject(subject(name)).value("ABSENT"));
                side.delete_service(name).await;
                side.service_is(name, "is gone", |it| it.is_none()).await;
                nothing()
            },
        )
        .only_there("▲S18", "upstream leaks the load balancer", Who::Go, "cloud ")
        .only("▲S18", "the ccm always calls Delete", Who::Ours, DELETING),
        Scenario::new(
            "unsupported",
            "a Service uses a field that the provider does not honour",
            &["▲S15"],
            async |side: Side, name| {
                made(&side, name, balancer(name).port("sigtran", 2905, "SCTP")).await;
                nothing()
            },
        )
        .stored()
        .differs("▲S15", "a condition names the field", "service status conditions 0 message", None, Some("The provider does not honour spec.ports[].protocol: SCTP"))
        .differs("▲S15", "a condition names the field", "service status conditions 0 reason", None, Some("ProtocolNotSupported"))
        .differs("▲S15", "a condition names the field", "service status conditions 0 status", None, Some("True"))
        .differs("▲S15", "a condition names the field", "service status conditions 0 type", None, Some("LoadBalancerPortsError"))
        .only("▲S15", "an event names the field", Who::Ours,
            "event on the service: Warning UnsupportedServiceField: Provider \"mock\" does not honour spec.ports[].protocol: SCTP [service-controller]"),
        Scenario::new(
            "node-selector",
            "a Service limits its targets",
            &["▲S17"],
            async |side: Side, name| {
                let zone = "topology.kubernetes.io/zone=zone-2";
                let limited = balancer(name).annotation("grpc-ccm.io/node-selector", zone);
                made(&side, name, limited).await;
                nothing()
            },
        )
        .stored()
        .differs("▲S17", "only the selected Nodes are targets", "cloud targets 0", Some("target-1"), Some("target-3"))
        .differs("▲S17", "only the selected Nodes are targets", "cloud targets 1", Some("target-2"), None)
        .differs("▲S17", "only the selected Nodes are targets", "cloud targets 2", Some("target-3"), None),
    ]
}
