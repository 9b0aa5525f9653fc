//! The handle of a load balancer: storage, edits, and adoption from a Go CCM.

use provider_mock::{Fault, FaultKind, Fixture, LoadBalancer, native_name};
use serde_json::json;
use testenv::eventually;
use testenv::objects::ingress;

use super::{DELETE, ENSURE, HANDLE, annotation, balancer, has_finalizer, stored_handle, subject};
use crate::world::{SOON, World};

fn record(provider: &str, handle: &str) -> String {
    json!({"provider": provider, "handle": handle}).to_string()
}

#[tokio::test]
async fn s19_killed_between_the_cloud_and_the_api_server() {
    let (mut world, mut ccm) = World::with_ccm(Fixture::default()).await;
    // The provider creates the load balancer, but does not answer.
    world.fault(Fault::new(ENSURE, FaultKind::HangAfter).subject(subject("unanswered")));
    world.create_service(balancer("unanswered")).await;
    eventually("it stands in the cloud", SOON, async || {
        world.made("unanswered")
    })
    .await;
    let first = world.made("unanswered").unwrap().handle;
    // The provider deletes the load balancer, but does not answer.
    world.balanced("leaving").await;
    world.fault(Fault::new(DELETE, FaultKind::HangAfter).subject(subject("leaving")));
    world.delete_service("leaving").await;
    eventually("it is gone from the cloud", SOON, async || {
        world.made("leaving").is_none().then_some(())
    })
    .await;
    assert!(has_finalizer(&world.service("leaving").await));
    world.crash(&mut ccm).await;
    assert_eq!(stored_handle(&world.service("unanswered").await), None);
    world.cloud().clear_faults();

    let _ccm = world.ccm(&[]);
    let service = world.shows_address("unanswered").await;
    assert_eq!(stored_handle(&service), Some(first));
    world.service_goes("leaving").await;
    assert_eq!(world.cloud().load_balancers().len(), 1);
}

#[tokio::test]
async fn s19_an_edited_handle_harms_nobody() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    for name in ["victim", "thief", "garbled", "emptied", "another"] {
        world.create_service(balancer(name)).await;
    }
    for name in ["victim", "thief", "garbled", "emptied", "another"] {
        world.shows_address(name).await;
    }
    let victim = world.made("victim").unwrap();
    let own = world.made("thief").unwrap();

    // Somebody else's load balancer: CONFLICT, and that load balancer stays as it is.
    world
        .annotate("thief", HANDLE, &record("mock", &victim.handle))
        .await;
    world
        .edit(
            "thief",
            json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}),
        )
        .await;
    world
        .event(
            "thief",
            &format!("Warning SyncLoadBalancerFailed Error syncing load balancer: failed to ensure load balancer: load balancer {} ", victim.handle),
        )
        .await;
    world.delete_service("thief").await;
    world
        .event(
            "thief",
            &format!("Warning SyncLoadBalancerFailed Error syncing load balancer: failed to delete load balancer: load balancer {} ", victim.handle),
        )
        .await;
    assert!(has_finalizer(&world.service("thief").await));
    assert_eq!(world.made("victim"), Some(victim));
    assert_eq!(world.made("thief").map(|lb| lb.handle), Some(own.handle));
    // A handle in a copied manifest does not count.
    let text = annotation(&world.service("victim").await, HANDLE)
        .unwrap()
        .to_owned();
    world
        .create_service(balancer("copied").annotation(HANDLE, &text))
        .await;
    world.shows_address("copied").await;
    assert_eq!(world.times(ENSURE, "copied"), 1);
    let copied = world.service("copied").await;
    assert_eq!(
        stored_handle(&copied),
        world.made("copied").map(|lb| lb.handle)
    );
    // The user removes the annotation: the provider finds the load balancer by its mark.
    world
        .edit(
            "thief",
            json!({"metadata": {"annotations": {HANDLE: null}}}),
        )
        .await;
    world.service_goes("thief").await;
    assert!(world.made("thief").is_none());

    // An unreadable annotation is reported, and corrected with the provider's answer.
    for (name, text) in [("garbled", "lb-1"), ("emptied", "")] {
        let before = world.made(name).unwrap().handle;
        world.annotate(name, HANDLE, text).await;
        world.annotate(name, "example.com/any", "1").await;
        world
            .event(name, "Warning InvalidLoadBalancerHandle Cannot read the annotation grpc-ccm.io/load-balancer")
            .await;
        world
            .service_becomes(name, "has its handle again", |service| {
                let text = annotation(service, HANDLE).unwrap_or_default();
                text.starts_with('{') && stored_handle(service).as_deref() == Some(before.as_str())
            })
            .await;
    }

    // The handle is another provider's: the ccm calls no Ensure, and an event says why.
    let calls = world.times(ENSURE, "another");
    world
        .annotate("another", HANDLE, &record("aws", "arn:1"))
        .await;
    world.annotate("another", "example.com/any", "1").await;
    world
        .event("another", "Warning SyncLoadBalancerFailed Error syncing load balancer: provider \"aws\" made a load balancer for this Service")
        .await;
    assert_eq!(world.times(ENSURE, "another"), calls);
    assert_eq!(world.cloud().load_balancers().len(), 5);
}

#[tokio::test]
async fn s19_unmarked_load_balancers_are_adopted_only_where_that_is_granted() {
    let mut world = World::new(Fixture::default()).await;
    // As a Go CCM leaves them: finalizer and status on the Service, no annotation, no mark in the
    // cloud.
    let mut planted = Vec::new();
    for (name, by_name) in [("by-name", true), ("by-address", false)] {
        let service = world.create_service(balancer(name)).await;
        let address = if by_name {
            "192.0.2.200"
        } else {
            "192.0.2.201"
        };
        let uid = service.metadata.uid.unwrap();
        let native = if by_name {
            native_name(&uid)
        } else {
            "made-by-hand".into()
        };
        let lb = LoadBalancer {
            name: native,
            addresses: vec![address.parse().unwrap()],
            ..LoadBalancer::default()
        };
        planted.push((
            name,
            world.cloud().plant_load_balancer(lb).unwrap(),
            address,
        ));
        world
            .edit(
                name,
                json!({"metadata": {"finalizers": [super::FINALIZER]}}),
            )
            .await;
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}});
        world
            .services()
            .patch_status(
                name,
                &kube::api::PatchParams::default(),
                &kube::api::Patch::Merge(status),
            )
            .await
            .unwrap();
    }
    let before = world.cloud().load_balancers();

    let mut ccm = world.ccm(&[]);
    for (name, handle, address) in &planted {
        world
            .event(
                name,
                &format!("Warning SyncLoadBalancerFailed Error syncing load balancer: failed to ensure load balancer: load balancer {handle} "),
            )
            .await;
        assert_eq!(
            ingress(&world.service(name).await).as_deref(),
            Some(*address)
        );
    }
    assert_eq!(world.cloud().load_balancers(), before);
    assert_eq!(world.cloud().cloud_writes(), 0);
    world.crash(&mut ccm).await;

    let mut ccm = world.ccm(&["--adopt-unmarked-load-balancers"]);
    for (name, handle, address) in &planted {
        let service = world
            .service_becomes(name, "has a handle", |service| {
                stored_handle(service).is_some()
            })
            .await;
        assert_eq!(stored_handle(&service).as_ref(), Some(handle));
        assert_eq!(ingress(&service).as_deref(), Some(*address));
        assert_eq!(&world.made(name).expect("it is marked").handle, handle);
    }
    assert_eq!(world.cloud().load_balancers().len(), 2);

    anothers_handle(&world).await;

    // Afterwards the ccm does not need the flag any more.
    world.crash(&mut ccm).await;
    let _ccm = world.ccm(&[]);
    for (name, ..) in &planted {
        world.delete_service(name).await;
        world.service_goes(name).await;
    }
    assert_eq!(world.cloud().load_balancers().len(), 1, "only the others'");
}

/// Finding B5: a user names another's load balancer in the annotation. The Service gets a load
/// balancer of its own, and the named one stays as it is.
async fn anothers_handle(world: &World) {
    let others = LoadBalancer {
        name: "others".into(),
        addresses: vec!["192.0.2.202".parse().unwrap()],
        ..LoadBalancer::default()
    };
    let others = world.cloud().plant_load_balancer(others).unwrap();
    let as_it_is = |world: &World| {
        let all = world.cloud().load_balancers();
        all.into_iter().find(|it| it.handle == others).unwrap()
    };
    let before = as_it_is(world);
    let named = balancer("greedy").annotation(HANDLE, &record("mock", &others));
    world.create_service(named).await;
    let greedy = world
        .service_becomes("greedy", "has an address", |service| {
            ingress(service).is_some()
        })
        .await;
    assert_ne!(stored_handle(&greedy).as_ref(), Some(&others));
    assert_ne!(ingress(&greedy).as_deref(), Some("192.0.2.202"));
    assert_eq!(as_it_is(world), before);
    world.delete_service("greedy").await;
    world.service_goes("greedy").await;
    assert_eq!(as_it_is(world), before);
}
