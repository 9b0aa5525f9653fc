//! Events within a minute on a Service that is not done (▲N13, ▲S18).

use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::sleep;

use super::api_server::WriteFault;
use super::cloud::{Fault, pending};
use super::{World, named};
use crate::controllers::service::fixtures::{node, service};
use crate::controllers::service::handle;
use crate::provider::Hint;

/// The events on this Service after a minute.
async fn after_a_minute(world: &World, name: &str) -> Vec<String> {
    sleep(Duration::from_mins(1)).await;
    reported(world, name)
}

fn reported(world: &World, name: &str) -> Vec<String> {
    let about = format!(" default/{name}: ");
    let events = world.events.recorded();
    events
        .into_iter()
        .filter(|event| event.contains(&about))
        .collect()
}

fn has(events: &[String], words: &[&str]) {
    let found = events
        .iter()
        .any(|event| words.iter().all(|word| event.contains(word)));
    assert!(found, "{words:?} in {events:#?}");
}

fn failing(code: api::FailureCode, times: usize) -> std::collections::VecDeque<Fault> {
    let failure = api::Failure {
        code: code.into(),
        reason: "NoSubnet".into(),
        message: "there is no subnet in zone-1".into(),
        retry_after: None,
    };
    std::iter::repeat_n(Fault::Fails(failure), times).collect()
}

#[tokio::test(start_paused = true)]
async fn n13_a_service_tells_who_answered_what_how_often_and_when_it_is_tried_next() {
    // Each of these codes leads to an event within a minute.
    for (code, name) in [
        (api::FailureCode::Invalid, "INVALID"),
        (api::FailureCode::Precondition, "PRECONDITION"),
        // EnsureLoadBalancer does not list NOT_FOUND, so it counts as INTERNAL.
        (api::FailureCode::NotFound, "INTERNAL"),
        (api::FailureCode::Conflict, "CONFLICT"),
        (api::FailureCode::Busy, "BUSY"),
        (api::FailureCode::Throttled, "THROTTLED"),
        (api::FailureCode::Credentials, "CREDENTIALS"),
        (api::FailureCode::Unavailable, "UNAVAILABLE"),
        (api::FailureCode::Internal, "INTERNAL"),
    ] {
        let world = World::new(1).await;
        let faults = failing(code, 100);
        world.cloud.state().faults.insert("Ensure", faults);
        world.server.put(&service());
        let events = after_a_minute(&world, "web").await;
        has(
            &events,
            &[
                "Warning SyncLoadBalancerFailed",
                "Error syncing load balancer: failed to ensure load balancer: there is no subnet in zone-1",
                " (NoSubnet)",
                &format!(" ({name} from EnsureLoadBalancer of provider mock, attempt "),
                ", next try ",
            ],
        );
        // One Event, with the newest text.
        let of_it = events
            .iter()
            .filter(|event| event.contains("SyncLoadBalancerFailed"));
        assert_eq!(of_it.count(), 1, "{events:#?}");
        let attempts = world.cloud.called("Ensure");
        has(&events, &[&format!("attempt {attempts}, ")]);
        if code == api::FailureCode::Invalid {
            has(
                &events,
                &["next try when the object changes, at the latest at 1970-01-01T00:30:0"],
            );
        }
    }
}

/// Shows ▲M10 too: no Service waits for an event to be written. Here nothing writes events.
#[tokio::test(start_paused = true)]
async fn n13_a_cloud_that_throttles_or_is_down_is_told_at_once_on_each_of_a_thousand_services() {
    use api::ensure_load_balancer_response::Outcome;
    // While the cloud throttles, the other Services wait and have no failed call.
    for (code, services) in [
        (api::FailureCode::Throttled, 1),
        (api::FailureCode::Unavailable, 1_000),
    ] {
        let world = World::new(1).await;
        let failed = Outcome::Failed(api::Failure {
            code: code.into(),
            message: "the cloud is down".into(),
            retry_after: Some(prost_types::Duration {
                seconds: 1,
                nanos: 0,
            }),
            ..Default::default()
        });
        let failed = std::iter::repeat_n(failed, 100_000);
        world.cloud.state().instead.extend(failed);
        for i in 0..services {
            world.server.put(&named(i));
        }
        // Four calls run at once, for 20 ms each.
        sleep(Duration::from_secs(12)).await;
        let events = world.events.recorded();
        let reported = events
            .iter()
            .filter(|event| event.contains("Warning SyncLoadBalancerFailed"))
            .filter(|event| event.contains("the cloud is down"));
        assert_eq!(reported.count(), services, "{code:?}");
        assert!(world.cloud.called("Ensure") > services, "{code:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn n13_a_service_tells_that_no_answer_comes() {
    let world = World::new(1).await;
    let hangs = [Fault::Hangs].into();
    world.cloud.state().faults.insert("Ensure", hangs);
    world.server.put(&service());
    has(
        &after_a_minute(&world, "web").await,
        &[
            "Warning LoadBalancerPending",
            "provider mock has not answered EnsureLoadBalancer yet; it was asked at ",
            "; the ccm gives up a call after 300 s, and retries",
        ],
    );
    sleep(Duration::from_mins(5)).await;
    has(
        &reported(&world, "web"),
        &[
            "was not answered within 300 s",
            "no answer in time from EnsureLoadBalancer",
            "attempt 1",
        ],
    );
}

/// The Service vanishes before the Delete, or during it.
#[tokio::test(start_paused = true)]
async fn n13_s9_a_service_that_is_gone_tells_that_no_answer_to_its_delete_comes() {
    for (during, again) in [(false, false), (true, false), (true, true)] {
        let world = World::new(1).await;
        let hangs = [Fault::Hangs].into();
        world.cloud.state().faults.insert("Delete", hangs);
        world.server.put(&service());
        world
            .until("it is made", |w| w.address("web").is_some())
            .await;
        if during {
            world.server.edit("web", |service| {
                service.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
            });
            world
                .until("a Delete", |w| w.cloud.called("Delete") == 1)
                .await;
        }
        world.server.remove("web");
        if again {
            let mut other = service();
            other.metadata.uid = Some("another".into());
            other.spec.as_mut().unwrap().type_ = Some("NodePort".into());
            world.server.put(&other);
        }
        has(
            &after_a_minute(&world, "web").await,
            &[
                "Warning LoadBalancerPending",
                "provider mock has not answered DeleteLoadBalancer yet; it was asked at ",
            ],
        );
        assert_eq!(world.cloud.called("Delete"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn n13_a_service_tells_that_the_provider_is_away_or_may_not_be_used() {
    let world = World::new(1).await;
    world.provider.kill();
    world
        .running
        .until("it is away", |status| status.working().is_none())
        .await;
    world.server.put(&service());
    let mut other = named(1);
    other.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".into());
    world.server.put(&other);
    has(
        &after_a_minute(&world, "web").await,
        &[
            "Warning LoadBalancerPending",
            "provider mock is not available: ",
            "next try as soon as the provider is available",
        ],
    );
    assert_eq!(reported(&world, "s1"), [""; 0], "another's");
    world.provider.start(world.cloud.service());
    world
        .until("it is made", |w| w.address("web").is_some())
        .await;

    let scope = |scope: &str| {
        let key = crate::provider::testing::SCOPE_KEY.to_owned();
        world
            .running
            .annotations
            .send_replace([(key, scope.to_owned())].into());
    };
    scope("another account");
    world
        .running
        .until("refused", |status| !status.scope_accepted)
        .await;
    world.server.put(&named(2));
    world.server.edit("web", |service| {
        service.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    });
    sleep(Duration::from_mins(1)).await;
    for name in ["web", "s2"] {
        has(
            &reported(&world, name),
            &[
                "the cloud scope of provider mock is not the accepted one, so the ccm creates, changes and deletes nothing",
            ],
        );
    }
}

#[tokio::test(start_paused = true)]
async fn n13_a_service_that_comes_late_while_the_provider_is_away_is_told_before_nobody_leads() {
    // The Service is created well before the leader steps down, or just before.
    for (comes, ends) in [(45, 55), (58, 60)] {
        let mut world = World::new(1).await;
        world.provider.kill();
        world
            .running
            .until("it is away", |status| status.working().is_none())
            .await;
        sleep(Duration::from_secs(comes)).await;
        world.server.put(&service());
        sleep(Duration::from_secs(ends - comes)).await;
        world.stop.cancel();
        world.tasks.join_next().await.unwrap().unwrap();
        has(
            &reported(&world, "web"),
            &["LoadBalancerPending", "provider mock is not available: "],
        );
    }
}

#[tokio::test(start_paused = true)]
async fn n13_a_service_tells_that_it_waits_for_its_turn() {
    let world = World::new(1).await;
    // The provider allows four calls at once, and these four hang.
    world.cloud.state().hang = 4;
    for number in 0..4 {
        world.server.put(&named(number));
    }
    world
        .until("all four", |w| w.cloud.called("Ensure") == 4)
        .await;
    world.server.put(&service());
    has(
        &after_a_minute(&world, "web").await,
        &[
            "Warning LoadBalancerPending",
            "waits for a free call: provider mock works on 4 other load balancers",
        ],
    );
    assert_eq!(world.cloud.called("Ensure"), 4);
}

#[tokio::test(start_paused = true)]
async fn n13_s18_a_service_tells_what_is_pending() {
    use api::ensure_load_balancer_response::Outcome;
    let world = World::new(1).await;
    let pending = Outcome::Pending(pending(45, "the network is being made"));
    let many = std::iter::repeat_n(pending, 100);
    world.cloud.state().instead.extend(many);
    world.server.put(&service());
    let words = [
        "Normal LoadBalancerPending",
        "The load balancer is not ready yet: the network is being made (PENDING from EnsureLoadBalancer of provider mock, attempt 2, next try at 1970-01-01T00:00:4",
    ];
    has(&after_a_minute(&world, "web").await, &words);
    world.cloud.state().instead.clear();
    world
        .until("it is made", |w| w.address("web").is_some())
        .await;
    world.rest().await;

    world
        .cloud
        .state()
        .faults
        .insert("Delete", failing(api::FailureCode::Unavailable, 100));
    world.server.edit("web", |service| {
        service.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    });
    has(
        &after_a_minute(&world, "web").await,
        &[
            "failed to delete load balancer: there is no subnet in zone-1",
            "UNAVAILABLE from DeleteLoadBalancer of provider mock, attempt 4",
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn n13_who_is_done_is_told_nothing_more() {
    let world = World::new(1).await;
    world
        .cloud
        .state()
        .faults
        .insert("Ensure", failing(api::FailureCode::Precondition, 2));
    world.server.put(&service());
    world
        .until("it is made", |w| w.address("web").is_some())
        .await;
    for number in 0..50 {
        world.server.put(&named(number));
    }
    world.rest().await;
    let before = world.events.recorded();
    world.server.put_node(node("n1"));
    sleep(Duration::from_hours(1)).await;
    let after = world.events.recorded();
    let new: Vec<&String> = after
        .iter()
        .filter(|event| !before.contains(event))
        .collect();
    assert!(
        !new.is_empty()
            && new
                .iter()
                .all(|event| event.contains("UpdatedLoadBalancer")),
        "{new:#?}"
    );
}

/// Get finds the load balancer out of sync. The write of its handle is refused, and the same job
/// writes it after Ensure.
#[tokio::test(start_paused = true)]
async fn n13_s19_a_refused_write_is_told_also_if_the_same_job_repeats_it() {
    let world = World::new(1).await;
    world.server.put(&service());
    world
        .until("it is made", |w| w.address("web").is_some())
        .await;
    let without = handle::render("mock", Some("uid-1"), Some(""), None);
    world.server.edit("web", |service| {
        service.metadata.annotations = Some([(handle::ANNOTATION.to_owned(), without)].into());
    });
    world.rest().await;
    let outside = vec!["somebody else's".to_owned()];
    {
        let mut state = world.cloud.state();
        state.balancers.get_mut("uid-1").unwrap().targets = outside;
    }
    let writes = world.server.attempts().len();
    let refused = WriteFault::Refused(422);
    world.server.fault(writes + 1, 1, refused);
    let hint = Hint::LoadBalancer {
        namespace: "default".into(),
        name: "web".into(),
    };
    world.running.hints.send(hint).unwrap();
    world.rest().await;
    assert_eq!(
        world.calls(),
        ["Ensure web -", "Get web -", "Ensure web h-uid-1"]
    );
    let attempts = world.server.attempts();
    let faults: Vec<_> = attempts[writes..].iter().map(|it| it.fault).collect();
    assert_eq!(faults, [Some(refused), None], "refused, then stored");
    let events = reported(&world, "web");
    let warnings = events.iter().filter(|event| event.contains("Warning"));
    assert_eq!(warnings.count(), 1, "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn m7_services_that_wait_for_longer_than_half_a_minute_are_counted_until_they_are_done() {
    let world = World::new(1).await;
    let shown = |world: &World| world.metrics.overdue.get_or_create(&"mock".into()).get();
    let faults = failing(api::FailureCode::Unavailable, 5);
    world.cloud.state().faults.insert("Ensure", faults);
    world.server.put(&service());
    world.until("it waits", |w| shown(w) == 1).await;
    world
        .until("it is made", |w| w.address("web").is_some())
        .await;
    world.until("nothing waits", |w| shown(w) == 0).await;
}
