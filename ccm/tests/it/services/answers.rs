//! Answers of a provider besides "done": elsewhere, retained, pending, events, annotations.

use std::time::Duration;

use provider_mock::Fixture;
use provider_mock::fixture::{EventSpec, ServiceBehaviour, Targets};
use serde_json::json;
use testenv::objects::{NodeBuilder, ingress};

use super::{DELETE, ENSURE, UPDATE, annotation, balancer, has_finalizer, stored_handle};
use crate::world::{World, instance};

const ELSEWHERE: &str = "mock.grpc-ccm.io/handled-elsewhere";
const RETAIN: &str = "mock.grpc-ccm.io/retain";

#[tokio::test]
async fn b_s8_s8_handled_elsewhere_and_retained() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    world
        .create_service(balancer("elsewhere").annotation(ELSEWHERE, "true"))
        .await;
    world
        .create_service(balancer("elsewhere-too").annotation(ELSEWHERE, "true"))
        .await;
    world
        .create_service(balancer("kept").annotation(RETAIN, "true"))
        .await;
    world.create_service(balancer("handed-over")).await;
    world.asked_times(ENSURE, "elsewhere", 1).await;
    world.asked_times(ENSURE, "elsewhere-too", 1).await;
    world.shows_address("kept").await;
    world.shows_address("handed-over").await;

    // The other component writes the status and handles changes of Nodes.
    let theirs = json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}});
    world
        .services()
        .patch_status(
            "elsewhere",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(theirs),
        )
        .await
        .unwrap();
    world.cloud().add_instance(instance("a")).unwrap();
    world
        .register(NodeBuilder::new("a").provider_id("mock://zone-1/a"))
        .await;
    world.targeted("kept", &["a"]).await;
    let service = world.service("elsewhere").await;
    assert_eq!(ingress(&service).as_deref(), Some("203.0.113.9"));
    assert!(has_finalizer(&service));
    assert_eq!(stored_handle(&service), None);
    assert_eq!(world.times(ENSURE, "elsewhere"), 1);
    assert_eq!(world.times(UPDATE, "elsewhere"), 0);
    // After another change the ccm asks again: the Service may be the provider's now.
    world
        .edit(
            "elsewhere-too",
            json!({"metadata": {"annotations": {ELSEWHERE: null}}}),
        )
        .await;
    world.shows_address("elsewhere-too").await;

    world.delete_service("elsewhere").await;
    world.service_goes("elsewhere").await;
    assert_eq!(world.times(DELETE, "elsewhere"), 1);

    // The provider made this load balancer, and then reports it as another component's. The Service
    // keeps its finalizer, so that the load balancer does not leak.
    world.annotate("handed-over", ELSEWHERE, "true").await;
    world.asked_times(ENSURE, "handed-over", 2).await;
    world.delete_service("handed-over").await;
    world
        .event(
            "handed-over",
            "Warning SyncLoadBalancerFailed Error syncing load balancer: failed to delete load balancer: the provider reports that another component handles it",
        )
        .await;
    assert!(has_finalizer(&world.service("handed-over").await));
    assert!(world.made("handed-over").is_some());
    world
        .edit(
            "handed-over",
            json!({"metadata": {"annotations": {ELSEWHERE: null}}}),
        )
        .await;
    world.service_goes("handed-over").await;
    assert!(world.made("handed-over").is_none());

    // The provider keeps this load balancer, and uses it again when the type changes back.
    let kept = world.made("kept").unwrap();
    world
        .edit("kept", json!({"spec": {"type": "ClusterIP"}}))
        .await;
    world
        .service_becomes("kept", "is let go", |service| !has_finalizer(service))
        .await;
    world
        .edit("kept", json!({"spec": {"type": "LoadBalancer"}}))
        .await;
    let again = world.shows_address("kept").await;
    assert_eq!(stored_handle(&again), Some(kept.handle));

    world.delete_service("kept").await;
    world.service_goes("kept").await;
    assert!(world.made("kept").is_some());
    world
        .event("kept", "Warning RetainedLoadBalancer The provider keeps the load balancer in the cloud: kept load balancer")
        .await;
    let events = world.events("kept").await;
    assert!(
        !events
            .iter()
            .any(|event| event.contains("DeletedLoadBalancer")),
        "{events:?}"
    );
}

#[tokio::test]
async fn b_s9_s19_pending_is_asked_again_after_exactly_the_delay() {
    let mut fixture = Fixture::default();
    fixture.provisioning.load_balancer = Duration::from_secs(8).into();
    let (mut world, mut ccm) = World::with_ccm(fixture).await;
    world.create_service(balancer("web")).await;
    world.asked_times(ENSURE, "web", 1).await;
    // The handle is there long before the address.
    let pending = world
        .service_becomes("web", "has a handle", |web| stored_handle(web).is_some())
        .await;
    assert_eq!(ingress(&pending), None);
    assert!(has_finalizer(&pending));
    // A new Node and a label are no reason to ask earlier.
    world.cloud().add_instance(instance("a")).unwrap();
    world
        .register(NodeBuilder::new("a").provider_id("mock://zone-1/a"))
        .await;
    world
        .edit("web", json!({"metadata": {"labels": {"any": "1"}}}))
        .await;
    world.shows_address("web").await;
    let calls = world.asked(ENSURE, "web");
    assert_eq!(calls.len(), 2, "{calls:?}");
    // Without a delay in the answer the ccm would ask every 5 s.
    let waited = calls[1].at_ms - calls[0].at_ms;
    assert!((8_000..16_000).contains(&waited), "{calls:?}");
    // The second Ensure set the target that joined meanwhile.
    assert_eq!(world.targets("web"), ["a"]);
    assert_eq!(world.times(UPDATE, "web"), 0);
    let events = world.events("web").await;
    assert!(
        !events
            .iter()
            .any(|event| event.contains("SyncLoadBalancerFailed")),
        "{events:?}"
    );

    // A change of the Service itself does not wait for the delay.
    world.create_service(balancer("second")).await;
    world
        .service_becomes("second", "has a handle", |web| stored_handle(web).is_some())
        .await;
    world.annotate("second", "mock.grpc-ccm.io/any", "1").await;
    world.asked_times(ENSURE, "second", 2).await;
    let calls = world.asked(ENSURE, "second");
    assert!(calls[1].at_ms - calls[0].at_ms < 8_000, "{calls:?}");
    // Neither does its deletion.
    world.create_service(balancer("third")).await;
    world.asked_times(ENSURE, "third", 1).await;
    world.delete_service("third").await;
    world.service_goes("third").await;
    assert_eq!(world.times(ENSURE, "third"), 1);
    // kill -9 of the ccm while a load balancer is pending: the next ccm goes on with the same one.
    let handle = stored_handle(&world.service("second").await);
    world.crash(&mut ccm).await;
    let _ccm = world.ccm(&[]);
    let second = world.shows_address("second").await;
    assert_eq!(stored_handle(&second), handle);
    assert_eq!(world.cloud().load_balancers().len(), 2);
}

#[tokio::test]
async fn s15_events_and_annotations_of_the_provider() {
    let mut fixture = Fixture::default();
    fixture.capabilities.load_balancers.features.clear();
    // Nodes do not matter to this provider.
    fixture.capabilities.load_balancers.targets = Targets::Ignored;
    let mut world = World::new(fixture).await;
    let _ccm =
        world.ccm(&["--provider-annotation-prefixes=mock.grpc-ccm.io/,example.com/granted-"]);
    let set = [
        ("mock.grpc-ccm.io/id", "lb"),
        ("example.com/granted-one", "1"),
        ("example.com/other", "no"),
        ("grpc-ccm.io/load-balancer", "no"),
        ("mock.grpc-ccm.io/not a key", "no"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let behaviour = ServiceBehaviour {
        set_annotations: set.into(),
        remove_annotations: vec!["mock.grpc-ccm.io/old".into(), "example.com/keep".into()],
        events: vec![
            EventSpec {
                warning: true,
                reason: "QuotaLow".into(),
                message: "two load balancers are left".into(),
            },
            EventSpec {
                warning: false,
                reason: "no word".into(),
                message: "said all the same".into(),
            },
        ],
        ..ServiceBehaviour::default()
    };
    world.cloud().set_service("default/web", behaviour).unwrap();
    let service = balancer("web")
        .port("dns", 53, "UDP")
        .annotation("mock.grpc-ccm.io/old", "1")
        .annotation("example.com/keep", "1");
    world.create_service(service).await;
    let web = world.shows_address("web").await;
    for (key, value) in [
        ("mock.grpc-ccm.io/id", Some("lb")),
        ("example.com/granted-one", Some("1")),
        ("example.com/other", None),
        ("mock.grpc-ccm.io/not a key", None),
        ("mock.grpc-ccm.io/old", None),
        ("example.com/keep", Some("1")),
    ] {
        assert_eq!(annotation(&web, key), value, "{key}");
    }
    assert_eq!(stored_handle(&web), world.made("web").map(|lb| lb.handle));
    let conditions = web.status.and_then(|status| status.conditions);
    let condition = &conditions.unwrap()[0];
    assert_eq!(
        (condition.type_.as_str(), condition.status.as_str()),
        ("LoadBalancerPortsError", "True")
    );
    for event in [
        "Warning QuotaLow two load balancers are left",
        "Normal ProviderEvent said all the same",
        "Warning AnnotationsRefused The provider may not write 4 annotation(s)",
        "Warning UnsupportedServiceField Provider \"mock\" does not honour spec.ports[].protocol: UDP",
    ] {
        world.event("web", event).await;
    }
    // The provider's own annotations are no change of the user's.
    world.later_one_is_served("later").await;
    assert_eq!(
        world.times(ENSURE, "web"),
        1,
        "{:?}",
        world.asked(ENSURE, "web")
    );

    world.cloud().add_instance(instance("a")).unwrap();
    world
        .register(NodeBuilder::new("a").provider_id("mock://zone-1/a"))
        .await;

    // After the provider's hint the ccm creates a deleted load balancer again.
    let gone = world.made("later").unwrap().handle;
    world.cloud().remove_load_balancer(&gone).unwrap();
    world
        .service_becomes("later", "has another one", |service| {
            stored_handle(service).is_some_and(|handle| handle != gone)
        })
        .await;
    world.renewals(2).await;
    assert_eq!(world.cloud().call_count(UPDATE), 0);
    let events = world.events("web").await;
    assert!(
        !events.iter().any(|event| event.contains("UnAvailable")),
        "{events:?}"
    );

    // If the user sets such fields later, an event names all of them.
    world
        .edit("later", json!({"spec": {"sessionAffinity": "ClientIP", "loadBalancerSourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Local"}}))
        .await;
    world
        .event(
            "later",
            "Warning UnsupportedServiceField Provider \"mock\" does not honour spec.loadBalancerSourceRanges, spec.sessionAffinity: ClientIP, spec.externalTrafficPolicy: Local",
        )
        .await;
}
