//! The loop with failures of the provider, the cloud or the user.

use std::sync::Arc;
use std::time::Duration;

use api::ensure_load_balancer_response::Outcome;
use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::LoadBalancerIngress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::{Instant, sleep};

use super::cloud::pending;
use super::{World, named};
use crate::controllers::service::fixtures::{node, service};
use crate::controllers::service::handle;
use crate::controllers::service::plan::has_finalizer;

#[tokio::test(start_paused = true)]
async fn b_s9_pending_and_failures() {
    use api::ensure_load_balancer_response::Outcome;
    let world = World::new(1).await;
    let pending = Outcome::Pending(pending(30, "being made"));
    let invalid = Outcome::Failed(api::Failure {
        code: api::FailureCode::Invalid.into(),
        message: "no such size".into(),
        ..Default::default()
    });
    world.cloud.state().instead.extend([pending, invalid]);
    world.server.put(&service());
    world
        .until("the first", |w| w.cloud.called("Ensure") == 1)
        .await;
    let first = Instant::now();
    sleep(Duration::from_secs(5)).await;
    // Neither the job's own write nor a new Node makes the retry earlier.
    world.server.put_node(node("n1"));
    world
        .until("the second", |w| w.cloud.called("Ensure") == 2)
        .await;
    let waited = first.elapsed();
    assert!(
        (Duration::from_secs(29)..Duration::from_secs(31)).contains(&waited),
        "{waited:?}"
    );
    assert_eq!(
        world.calls()[1],
        "Ensure web h-uid-1",
        "the handle was kept"
    );
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.cloud.called("Ensure"), 2, "wrong until it changes");
    let events = world.events.recorded();
    assert!(
        events
            .iter()
            .any(|event| event.contains("failed to ensure load balancer: no such size")),
        "{events:?}"
    );
    world.server.edit("web", |service| {
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 81;
    });
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    assert_eq!(world.targets(), ["n0", "n1"]);
}

#[tokio::test(start_paused = true)]
async fn m9_a_provider_that_is_away_is_waited_for() {
    let world = World::new(1).await;
    world.provider.kill();
    world
        .running
        .until("it is away", |status| status.working().is_none())
        .await;
    world.server.put(&service());
    sleep(Duration::from_mins(2)).await;
    assert!(world.calls().is_empty());
    world.provider.start(world.cloud.service());
    world.running.session().await;
    let back = Instant::now();
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    assert!(
        back.elapsed() < Duration::from_secs(1),
        "{:?}",
        back.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn s20_nothing_is_made_or_deleted_in_another_account() {
    let world = World::new(1).await;
    world.server.put(&service());
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    let say = |scope: &str| {
        let key = crate::provider::testing::SCOPE_KEY.to_owned();
        let annotations = &world.running.annotations;
        annotations.send_replace([(key, scope.to_owned())].into());
    };
    say("account 0");
    world
        .running
        .until("refused", |status| !status.scope_accepted)
        .await;
    let calls = world.calls();
    world.server.put(&named(1));
    world.server.put_node(node("n1"));
    world.server.edit("web", |service| {
        service.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    });
    world.rest().await;
    assert_eq!(world.calls(), calls);
    say("account 1");
    world
        .until("both", |w| {
            w.server.get("web").is_none() && w.address("s1").is_some()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn s20_in_an_accepted_new_account_each_load_balancer_is_made() {
    let world = World::new(1).await;
    for i in 0..3 {
        world.server.put(&named(i));
    }
    world
        .until("all made", |w| w.cloud.state().balancers.len() == 3)
        .await;
    world.rest().await;
    {
        let mut state = world.cloud.state();
        state.balancers.clear();
        state.scope = Some("account 2");
    }
    world.comes_back(|_| {}).await;
    let refused = world.running.until("refused", |status| {
        status.working().is_some() && !status.scope_accepted
    });
    refused.await;
    let key = crate::provider::testing::SCOPE_KEY.to_owned();
    let annotations = &world.running.annotations;
    annotations.send_replace([(key, "account 2".to_owned())].into());
    world
        .until("all made again", |w| w.cloud.state().balancers.len() == 3)
        .await;
}

/// The user gives the Service to another component while Ensure runs.
#[tokio::test(start_paused = true)]
async fn s1_the_status_of_a_service_that_went_to_another_class_is_left_alone() {
    let world = World::new(1).await;
    world.server.put(&service());
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    world.rest().await;
    world.server.edit("web", |service| {
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 81;
    });
    let address = api::LoadBalancerIngress {
        ip: Some("192.0.2.2".into()),
        ..Default::default()
    };
    let status = Some(api::LoadBalancerStatus {
        ingress: vec![address],
    });
    let ready = Outcome::Ready(api::LoadBalancerReady { status });
    world.cloud.state().instead.push_back(ready);
    world
        .until("a second Ensure", |w| w.cloud.called("Ensure") == 2)
        .await;
    world.server.edit("web", |service| {
        service.spec.as_mut().unwrap().load_balancer_class = Some("other.io/lb".to_owned());
        let ingress = LoadBalancerIngress {
            ip: Some("203.0.113.99".to_owned()),
            ..LoadBalancerIngress::default()
        };
        let status = service.status.get_or_insert_default();
        status.load_balancer.get_or_insert_default().ingress = Some(vec![ingress]);
    });
    world
        .until("released", |w| {
            !has_finalizer(&w.server.get("web").unwrap())
        })
        .await;
    let writes = world.server.writes();
    let statuses = writes.iter().filter(|of| *of == "web/status");
    assert_eq!(statuses.count(), 1, "{writes:?}");
    assert_eq!(world.address("web").as_deref(), Some("203.0.113.99"));
    assert!(world.cloud.state().balancers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn b_s9_throttled_slows_all_and_one_that_fails_stops_nobody() {
    use api::ensure_load_balancer_response::Outcome;
    let world = World::new(1).await;
    let throttled = |seconds| {
        Outcome::Failed(api::Failure {
            code: api::FailureCode::Throttled.into(),
            retry_after: Some(prost_types::Duration { seconds, nanos: 0 }),
            ..Default::default()
        })
    };
    world.cloud.state().instead.push_back(throttled(60));
    world.server.put(&named(0));
    world
        .until("the first", |w| w.cloud.called("Ensure") == 1)
        .await;
    world.rest().await;
    world.server.put(&named(1));
    world.rest().await;
    assert_eq!(world.cloud.called("Ensure"), 1, "all wait");
    world
        .until("both", |w| {
            w.address("s0").is_some() && w.address("s1").is_some()
        })
        .await;

    let broken = Outcome::Failed(api::Failure {
        code: api::FailureCode::Precondition.into(),
        message: "no subnet".into(),
        ..Default::default()
    });
    world.cloud.state().instead.push_back(broken);
    world.server.put(&named(2));
    world
        .until("one that fails", |w| w.cloud.called("Ensure s2") == 1)
        .await;
    let failed = Instant::now();
    world.server.put(&named(3));
    world.until("another", |w| w.address("s3").is_some()).await;
    assert!(failed.elapsed() < Duration::from_secs(1));
    world
        .until("the retry", |w| w.address("s2").is_some())
        .await;
    assert!(
        failed.elapsed() > Duration::from_secs(3),
        "backoff from 5 s"
    );
}

#[tokio::test(start_paused = true)]
async fn s19_another_providers_load_balancer_is_left_alone() {
    let world = World::new(1).await;
    let mut moved = service();
    moved.metadata.annotations = Some(
        [(
            handle::ANNOTATION.to_owned(),
            handle::render("other", Some("uid-1"), Some(""), Some("lb-9")),
        )]
        .into(),
    );
    world.server.put(&moved);
    world
        .until("it is reported", |w| {
            let events = w.events.recorded();
            events
                .iter()
                .any(|event| event.contains("provider \"other\" made"))
        })
        .await;
    world.rest().await;
    assert!(world.calls().is_empty() && world.server.writes().is_empty());
    world.server.edit("web", |service| {
        service.metadata.annotations = None;
    });
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
}

/// Another provider answers on the same socket. One Service of the first is being deleted, and the
/// other was deleted without its finalizer.
#[tokio::test(start_paused = true)]
async fn s19_what_another_provider_made_is_released_without_its_annotation_after_a_restart() {
    let mut world = World::new(1).await;
    for i in 0..2 {
        world.server.put(&named(i));
    }
    world
        .until("all made", |w| w.cloud.state().balancers.len() == 2)
        .await;
    world.rest().await;
    world
        .comes_back(|info| info.provider_name = "other".into())
        .await;
    world.running.session().await;
    world.server.edit("s0", |service| {
        service.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    });
    world.server.remove("s1");
    let told = |w: &World, of: &str, what: &str| {
        let events = w.events.recorded();
        let mut events = events.iter();
        events.any(|event| event.contains(of) && event.contains(what))
    };
    let remove = "remove the annotation grpc-ccm.io/load-balancer";
    world
        .until("s0", |w| told(w, "Failed default/s0: ", remove))
        .await;
    let restart = "Bring provider \"mock\" back, or delete the load balancer in the cloud by hand and restart the ccm";
    world
        .until("s1", |w| {
            told(w, "DeleteLoadBalancerFailed default/s1: ", restart)
        })
        .await;
    world.rest().await;
    assert_eq!(world.cloud.called("Delete"), 0);
    world.server.edit("s0", |service| {
        service.metadata.annotations = None;
    });
    world.rest().await;
    assert_eq!(world.cloud.called("Delete"), 0, "this process knows better");
    // A new process.
    world.memory = Arc::default();
    world.restart().await;
    world
        .until("it is released", |w| w.server.get("s0").is_none())
        .await;
    assert_eq!(world.cloud.called("Delete s0"), 1);
    assert_eq!(world.cloud.called("Delete s1"), 0);
}
