//! A Service's load balancer from its creation to its deletion, without failures.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use provider_mock::{Fault, Fixture};
use serde_json::json;

use testenv::objects::ingress;

use super::{
    DELETE, ENSURE, FINALIZER, GET, UPDATE, balancer, has_finalizer, stored_handle, subject,
};
use crate::world::World;

#[tokio::test]
async fn b_s1_b_s2_b_s3_b_s5_a_load_balancer_from_first_to_last() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    // The finalizer is there before the first Ensure has any effect.
    world.fault(Fault::delay(ENSURE, Duration::from_secs(1)).times(1));
    let user = world.create_service(balancer("web")).await;
    world.in_flight(ENSURE).await;
    assert!(world.made("web").is_none());
    assert!(has_finalizer(&world.service("web").await));

    let web = world.shows_address("web").await;
    let made = world.made("web").expect("it stands in the cloud");
    assert_eq!(ingress(&web).unwrap(), made.addresses[0].to_string());
    assert_eq!(stored_handle(&web), Some(made.handle));
    assert_eq!(web.spec, user.spec, "spec is the user's");
    for entry in web.metadata.managed_fields.iter().flatten() {
        let fields = serde_json::to_string(&entry.fields_v1).unwrap();
        let ours = fields.contains(FINALIZER) || fields.contains("f:loadBalancer\"");
        assert!(!(ours && fields.contains("f:spec")), "{entry:?}");
    }
    for event in [
        "Normal EnsuringLoadBalancer Ensuring load balancer",
        "Normal EnsuredLoadBalancer Ensured load balancer",
        "Warning UnAvailableLoadBalancer There are no available nodes for LoadBalancer",
    ] {
        world.event("web", event).await;
    }
    assert_eq!(world.times(ENSURE, "web"), 1);
    // For a new Service the ccm calls no Get.
    assert_eq!(world.times(GET, "web"), 0);

    world.delete_service("web").await;
    world.service_goes("web").await;
    assert!(world.made("web").is_none());
    world
        .event("web", "Normal DeletingLoadBalancer Deleting load balancer")
        .await;
    world
        .event("web", "Normal DeletedLoadBalancer Deleted load balancer")
        .await;
    assert_eq!(world.times(DELETE, "web"), 1);

    // Services of other types are left alone.
    let mut other = balancer("other").build();
    other.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
    world
        .services()
        .create(&kube::api::PostParams::default(), &other)
        .await
        .unwrap();
    world.later_one_is_served("later").await;
    assert!(!has_finalizer(&world.service("other").await));
    assert_eq!(world.times(ENSURE, "other"), 0);
}

#[tokio::test]
async fn b_s4_only_a_change_that_concerns_the_provider_calls_it() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    world.balanced("web").await;

    world
        .edit("web", json!({"metadata": {"labels": {"team": "a"}}}))
        .await;
    for spec in [
        json!({"selector": {"app": "another"}}),
        json!({"internalTrafficPolicy": "Local"}),
        json!({"publishNotReadyAddresses": true}),
    ] {
        world.edit("web", json!({ "spec": spec })).await;
    }
    let condition = json!({"type": "Seen", "status": "True", "reason": "ByUser", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    world
        .services()
        .patch_status(
            "web",
            &PatchParams::default(),
            &Patch::Merge(json!({"status": {"conditions": [condition]}})),
        )
        .await
        .unwrap();
    world.later_one_is_served("later-1").await;
    assert_eq!(world.times(ENSURE, "web"), 1);

    let port = |port: u16, name: &str, protocol: &str, target: u16| json!({"name": name, "port": port, "protocol": protocol, "targetPort": target, "nodePort": 30080});
    let mut with_protocol = port(81, "web", "UDP", 8081);
    with_protocol["appProtocol"] = json!("https");
    let mut on_node_port = with_protocol.clone();
    on_node_port["nodePort"] = json!(30081);
    let mut ensured = 1;
    for spec in [
        json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}),
        json!({"ports": [port(80, "http", "TCP", 8080)]}),
        json!({"ports": [port(81, "http", "TCP", 8080)]}),
        json!({"ports": [port(81, "web", "TCP", 8080)]}),
        json!({"ports": [port(81, "web", "UDP", 8080)]}),
        json!({"ports": [port(81, "web", "UDP", 8081)]}),
        json!({"ports": [with_protocol]}),
        json!({"ports": [on_node_port]}),
        json!({"sessionAffinity": "ClientIP"}),
        json!({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 77}}}),
        json!({"loadBalancerIP": "192.0.2.77"}),
        json!({"externalIPs": ["198.51.100.7"]}),
        json!({"externalTrafficPolicy": "Local"}),
    ] {
        world.edit("web", json!({ "spec": spec })).await;
        ensured += 1;
        world.asked_times(ENSURE, "web", ensured).await;
    }
    world.annotate("web", "example.com/any", "1").await;
    ensured += 1;
    world.asked_times(ENSURE, "web", ensured).await;
    world.later_one_is_served("later-2").await;
    assert_eq!(world.times(ENSURE, "web"), ensured, "one call each");
    assert_eq!(world.times(UPDATE, "web") + world.times(GET, "web"), 0);

    let config = world.made("web").unwrap().config;
    assert_eq!(config.ports, ["web:UDP:81:30081:https"]);
    assert_eq!(config.source_ranges, ["10.0.0.0/8"]);
    assert_eq!(config.session_affinity, "ClientIP:77");
    assert!(config.external_traffic_policy.starts_with("Local:"));
    world
        .service_becomes("web", "has the address that was asked for", |web| {
            ingress(web).as_deref() == Some("192.0.2.77")
        })
        .await;

    // Settings that are no longer requested are removed.
    world
        .edit("web", json!({"spec": {"loadBalancerSourceRanges": null}}))
        .await;
    world.asked_times(ENSURE, "web", ensured + 1).await;
    assert!(world.made("web").unwrap().config.source_ranges.is_empty());

    // Changes while a call runs: the ccm never makes two calls at once, and the last change counts.
    world.fault(Fault::delay(ENSURE, Duration::from_millis(300)).subject(subject("web")));
    world.cloud().reset_calls();
    for value in ["2", "3", "4", "5", "6"] {
        let key = format!("{}n", provider_mock::ANNOTATION_PREFIX);
        world.annotate("web", &key, value).await;
        world.in_flight(ENSURE).await;
    }
    testenv::eventually(
        "the last change has arrived",
        crate::world::SOON,
        async || {
            let annotations = world.made("web").unwrap().config.annotations;
            let last = annotations.values().any(|value| value == "6");
            last.then_some(()).ok_or(format!("{annotations:?}"))
        },
    )
    .await;
    assert_eq!(world.cloud().most_in_flight(ENSURE), 1);
}

#[tokio::test]
async fn b_s5_the_type_changes_away_and_back() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    let before = world.balanced("web").await;
    let away = json!({"spec": {"type": "ClusterIP"}});
    let back = json!({"spec": {"type": "LoadBalancer"}});
    world.edit("web", away.clone()).await;
    let clean = world
        .service_becomes("web", "is as if never balanced", |web| {
            !has_finalizer(web)
                && ingress(web).is_none()
                && super::annotation(web, super::HANDLE).is_none()
        })
        .await;
    assert_eq!(clean.metadata.uid, before.metadata.uid);
    assert!(world.cloud().load_balancers().is_empty());
    world
        .event("web", "Normal DeletedLoadBalancer Deleted load balancer")
        .await;

    world.edit("web", back.clone()).await;
    let again = world.shows_address("web").await;
    assert!(has_finalizer(&again));
    assert_eq!(
        stored_handle(&again),
        Some(world.made("web").unwrap().handle)
    );
    assert_ne!(stored_handle(&again), stored_handle(&before));

    // Wanted again during the deletion: the old one is deleted, then a new one is created.
    world
        .cloud()
        .set_provisioning(Duration::ZERO, Duration::from_secs(8))
        .unwrap();
    world.cloud().reset_calls();
    world.edit("web", away).await;
    world.asked_times(DELETE, "web", 1).await;
    world.edit("web", back).await;
    world
        .service_becomes("web", "has a new load balancer", |web| {
            stored_handle(web).is_some()
                && stored_handle(web) != stored_handle(&again)
                && ingress(web).is_some()
        })
        .await;
    assert_eq!(world.cloud().load_balancers().len(), 1);
    assert_eq!(
        world.times(DELETE, "web"),
        1,
        "{:?}",
        world.cloud().calls(None)
    );
}
