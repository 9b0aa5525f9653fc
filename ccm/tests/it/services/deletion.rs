//! Deletions that take long, fail, or happen while no ccm runs.

use std::time::Duration;

use kube::api::PostParams;
use provider_mock::fixture::FailureSpec;
use provider_mock::{Fault, FaultKind, Fixture};
use provider_sdk::FailureCode;
use testenv::eventually;
use testenv::objects::ingress;

use super::{DELETE, ENSURE, HANDLE, balancer, has_finalizer, stored_handle, subject};
use crate::world::{SOON, World};

#[tokio::test]
async fn s18_b_s5_delete_until_it_is_done() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    for name in ["slow", "refused", "unclear", "remnant", "lied-about"] {
        world.create_service(balancer(name)).await;
    }
    for name in ["slow", "refused", "unclear", "remnant", "lied-about"] {
        world.shows_address(name).await;
    }
    let again = FailureSpec::new(FailureCode::Precondition).retry_after(Duration::from_secs(1));
    world.fault(
        Fault::new(DELETE, FaultKind::Failure)
            .with_failure(again)
            .subject(subject("refused"))
            .times(2),
    );
    // A status is no answer, whatever it says.
    world.fault(
        Fault::status(DELETE, tonic::Code::NotFound)
            .subject(subject("unclear"))
            .times(1),
    );
    // The ccm calls Delete even if Get answers ABSENT.
    world.fault(
        Fault::new("GetLoadBalancer", FaultKind::Presence)
            .value("ABSENT")
            .subject(subject("lied-about")),
    );
    let remnant = world.made("remnant").unwrap().handle;
    world
        .cloud()
        .change_load_balancer(&remnant, |lb| lb.remnant = true)
        .unwrap();
    world.cloud().reset_calls();

    for name in ["refused", "unclear"] {
        world.delete_service(name).await;
        world.asked_times(DELETE, name, 1).await;
        let service = world.service(name).await;
        assert!(has_finalizer(&service), "{name}");
        assert!(stored_handle(&service).is_some(), "{name}");
        assert!(world.made(name).is_some(), "{name}");
    }
    world
        .event(
            "refused",
            "Warning SyncLoadBalancerFailed Error syncing load balancer: failed to delete load balancer: scripted by the mock",
        )
        .await;
    for name in ["remnant", "lied-about"] {
        world.delete_service(name).await;
        world.service_goes(name).await;
        assert!(world.made(name).is_none(), "{name} was left behind");
    }
    world.service_goes("refused").await;
    assert_eq!(world.times(DELETE, "refused"), 3);

    world
        .cloud()
        .set_provisioning(Duration::ZERO, Duration::from_secs(6))
        .unwrap();
    world.delete_service("slow").await;
    world
        .event(
            "slow",
            "Normal DeletingLoadBalancer Deleting load balancer: the load balancer is being deleted",
        )
        .await;
    assert!(has_finalizer(&world.service("slow").await));
    world.service_goes("slow").await;
    assert!(world.made("slow").is_none());
    // The ccm repeats the Delete after the delay, and only once. Without a delay in the answer it
    // would ask every 5 s.
    let calls = world.asked(DELETE, "slow");
    assert_eq!(calls.len(), 2, "{calls:?}");
    let waited = calls[1].at_ms - calls[0].at_ms;
    assert!((6_000..12_000).contains(&waited), "{calls:?}");

    world.service_goes("unclear").await;
    assert!(world.made("unclear").is_none());
}

#[tokio::test]
async fn s9_without_the_finalizer_nothing_is_left_behind() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    // The finalizer is removed while the Service exists: the ccm adds it again, and calls no
    // Ensure.
    world.balanced("web").await;
    world.force_finalizers_off("web").await;
    world
        .service_becomes("web", "has the finalizer again", has_finalizer)
        .await;
    world.later_one_is_served("later").await;
    assert_eq!(world.times(ENSURE, "web"), 1);

    // A Service is deleted while its first Ensure runs: the ccm deletes its load balancer all the
    // same.
    world.fault(
        Fault::delay(ENSURE, Duration::from_secs(15))
            .subject(subject("hasty"))
            .times(1),
    );
    world.create_service(balancer("hasty")).await;
    world.in_flight(ENSURE).await;
    world.delete_service("hasty").await;
    world.force_finalizers_off("hasty").await;
    world.service_goes("hasty").await;
    assert!(world.made("hasty").is_none(), "not yet");
    world.asked_times(ENSURE, "hasty", 1).await;
    eventually("what was made is gone again", SOON, async || {
        world
            .asked(DELETE, "hasty")
            .pop()
            .filter(|_| world.made("hasty").is_none())
    })
    .await;

    // The finalizer is removed while the deletion is stuck: the Service is gone first, its load
    // balancer a little later.
    world.fault(
        Fault::failure(DELETE, FailureCode::Internal)
            .subject(subject("web"))
            .times(1),
    );
    let old = world.made("web").unwrap();
    let old_service = world.service("web").await;
    world.delete_service("web").await;
    world.asked_times(DELETE, "web", 1).await;
    world.force_finalizers_off("web").await;
    world.service_goes("web").await;

    // At once a user creates another Service of this name, from a copy with the annotation. It gets
    // a load balancer of its own.
    let mut copy = balancer("web").build();
    let text = super::annotation(&old_service, HANDLE).unwrap().to_owned();
    copy.metadata.annotations = Some([(HANDLE.to_owned(), text)].into());
    world
        .services()
        .create(&PostParams::default(), &copy)
        .await
        .unwrap();
    let new = world.shows_address("web").await;
    let handle = stored_handle(&new).expect("of its own");
    assert_ne!(handle, old.handle);
    eventually("the old one is gone", SOON, async || {
        let left = world.cloud().load_balancers();
        let gone = left.iter().all(|lb| lb.handle != old.handle);
        gone.then_some(()).ok_or(format!("{left:?}"))
    })
    .await;
    assert_eq!(world.made("web").map(|lb| lb.handle), Some(handle));
    assert_eq!(ingress(&world.service("web").await), ingress(&new));
}

#[tokio::test]
async fn b_s5_s16_what_happened_while_nobody_looked() {
    let (mut world, mut ccm) = World::with_ccm(Fixture::default()).await;
    for name in ["deleted", "retyped", "replaced", "changed"] {
        world.create_service(balancer(name)).await;
    }
    for name in ["deleted", "retyped", "replaced", "changed"] {
        world.shows_address(name).await;
    }
    world.crash(&mut ccm).await;
    world.delete_service("deleted").await;
    world
        .edit(
            "retyped",
            serde_json::json!({"spec": {"type": "ClusterIP"}}),
        )
        .await;
    world
        .edit(
            "changed",
            serde_json::json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}),
        )
        .await;
    // Only the cloud still knows this Service's load balancer. The new Service of the same name
    // must get another one.
    let lost = world.made("replaced").unwrap().handle;
    world.delete_service("replaced").await;
    world.force_finalizers_off("replaced").await;
    world.service_goes("replaced").await;
    world.create_service(balancer("replaced")).await;
    world.cloud().reset_calls();

    let _ccm = world.ccm(&[
        "--orphaned-load-balancers=delete",
        "--orphaned-load-balancer-period=1s",
    ]);
    world.service_goes("deleted").await;
    assert!(world.made("deleted").is_none());
    world
        .service_becomes("retyped", "is clean", |service| {
            !has_finalizer(service) && ingress(service).is_none()
        })
        .await;
    assert!(world.made("retyped").is_none());
    let new = world.shows_address("replaced").await;
    assert_ne!(stored_handle(&new).as_ref(), Some(&lost));
    eventually("the lost one is found and deleted", SOON, async || {
        let balancers = world.cloud().load_balancers();
        let there: Vec<_> = balancers.into_iter().map(|lb| lb.handle).collect();
        (!there.contains(&lost))
            .then_some(())
            .ok_or(format!("{there:?}"))
    })
    .await;
    assert!(world.made("replaced").is_some());
    world.asked_times(ENSURE, "changed", 1).await;
    assert_eq!(
        world.made("changed").unwrap().config.source_ranges,
        ["10.0.0.0/8"]
    );
}
