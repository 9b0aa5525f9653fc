//! Which Services wait, and how often the provider is called meanwhile.

use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, sleep, timeout};

use super::api_server::WriteFault;
use super::cloud::{Fault, pending};
use super::{World, named};
use crate::controller::Reconciler as _;
use crate::controllers::service::Worker;
use crate::controllers::service::fixtures::{node, service};
use crate::controllers::service::handle;
use crate::controllers::service::ledger::Task;
use crate::core::Key;
use crate::provider::Hint;

fn failure(code: api::FailureCode, message: &str) -> api::Failure {
    api::Failure {
        code: code.into(),
        message: message.into(),
        ..Default::default()
    }
}

/// Sets this annotation in the provider's answers from now on.
fn says(world: &World, annotation: &str, value: &str) {
    world.cloud.state().annotations = Some(api::AnnotationChanges {
        set: [(annotation.to_owned(), value.to_owned())].into(),
        ..Default::default()
    });
}

async fn made(nodes: usize) -> World {
    let world = World::new(nodes).await;
    world.server.put(&service());
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    world
}

#[tokio::test(start_paused = true)]
async fn b_s9_targets_that_are_invalid_are_not_tried_again_at_once() {
    let world = made(1).await;
    let invalid = failure(api::FailureCode::Invalid, "no such type of node");
    world.cloud.state().update_fails = Some(invalid.clone());
    world.server.put_node(node("n1"));
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.cloud.called("Update"), 1);
    // Other targets are tried at once, and only once more: by Ensure, because an Update failed
    // (B-S10).
    let failed = api::ensure_load_balancer_response::Outcome::Failed(invalid);
    world.cloud.state().instead.push_back(failed);
    world.server.put_node(node("n2"));
    sleep(Duration::from_mins(10)).await;
    let called = |rpc| world.cloud.called(rpc);
    assert_eq!((called("Update"), called("Ensure")), (1, 2));
    sleep(Duration::from_mins(21)).await;
    assert_eq!(world.targets().len(), 3, "after half an hour");
}

#[tokio::test(start_paused = true)]
async fn b_s7_s14_one_bad_target_does_not_delay_the_others() {
    let world = made(2).await;
    world.cloud.state().bad_targets = vec!["bad".to_owned()];
    world.server.put_node(node("bad"));
    sleep(Duration::from_mins(20)).await;
    let updates = world.cloud.called("Update");
    assert!((4..15).contains(&updates), "{updates} updates");
    let start = Instant::now();
    world.server.remove_node("n0");
    world
        .until("n0 is no target", |w| w.targets() == ["n1"])
        .await;
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );

    // The same holds if the whole call failed.
    let broken = failure(api::FailureCode::Precondition, "no quota");
    world.cloud.state().update_fails = Some(broken.clone());
    let failed = api::ensure_load_balancer_response::Outcome::Failed(broken);
    let many = std::iter::repeat_n(failed, 100);
    world.cloud.state().instead.extend(many);
    let before = world.cloud.called("Update");
    world.server.put_node(node("n2"));
    sleep(Duration::from_mins(20)).await;
    assert_eq!(world.cloud.called("Update"), before + 1);
    world.cloud.state().instead.clear();
    let start = Instant::now();
    world.server.put_node(node("n3"));
    world
        .until("n3 is a target", |w| w.targets().contains(&"n3".to_owned()))
        .await;
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn b_s9_an_annotation_that_is_refused_does_not_hurry_a_pending_ensure() {
    use api::ensure_load_balancer_response::Outcome;
    for (seconds, most) in [(30, 21), (1, 12)] {
        let world = World::new(1).await;
        let pending = Outcome::Pending(pending(seconds, "being made"));
        let pendings = std::iter::repeat_n(pending, 10_000);
        world.cloud.state().instead.extend(pendings);
        says(&world, "cloud.example/state", "making");
        world
            .server
            .refuse("/metadata/annotations/cloud.example~1state");
        world.server.put(&service());
        sleep(Duration::from_mins(10)).await;
        let ensures = world.cloud.called("Ensure");
        assert!(
            (5..=most).contains(&ensures),
            "{ensures} Ensures, {seconds} s"
        );
        assert_eq!(world.server.refusals(), ensures);
        let events = world.events.recorded();
        assert!(
            events.iter().any(|event| event.contains("failed to store")),
            "{events:?}"
        );
    }
}

/// Changes the annotation in the provider's answers every second, for ten minutes. Returns the
/// seconds in which `rpc` was called.
async fn called_while_it_writes(world: &World, rpc: &str) -> Vec<u64> {
    let mut times = Vec::new();
    for second in 0..600 {
        says(world, "cloud.example/state", &second.to_string());
        sleep(Duration::from_secs(1)).await;
        let called = world.cloud.called(rpc);
        times.resize(called.max(times.len()), second);
    }
    times
}

#[tokio::test(start_paused = true)]
async fn s9_a_provider_that_writes_something_new_with_each_failure_is_asked_less_often() {
    use api::ensure_load_balancer_response::Outcome;
    let failed = |code, after: Option<i64>| api::Failure {
        retry_after: after.map(|seconds| prost_types::Duration { seconds, nanos: 0 }),
        ..failure(code, "no")
    };
    for (code, after, expected) in [
        // The retries come after 5 s, 10 s, 20 s, and so on.
        (api::FailureCode::Internal, None, 6..=8),
        (api::FailureCode::Internal, Some(1), 15..=25),
        (api::FailureCode::Credentials, Some(1), 15..=25),
    ] {
        let world = World::new(1).await;
        let many = std::iter::repeat_n(Outcome::Failed(failed(code, after)), 10_000);
        world.cloud.state().instead.extend(many);
        world.server.put(&service());
        let times = called_while_it_writes(&world, "Ensure").await;
        assert!(
            expected.contains(&times.len()),
            "{code:?}: Ensures in the seconds {times:?}"
        );
    }

    let world = made(1).await;
    world.cloud.state().target_errors = vec![api::TargetError {
        node_name: "n1".to_owned(),
        failure: Some(failed(api::FailureCode::Precondition, Some(1))),
    }];
    world.server.put_node(node("n1"));
    let times = called_while_it_writes(&world, "Update").await;
    assert!(
        (15..=25).contains(&times.len()),
        "Updates in the seconds {times:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn s9_a_provider_whose_address_changes_with_each_answer_is_asked_less_often() {
    use api::ensure_load_balancer_response::Outcome;
    let soon = || api::Failure {
        retry_after: Some(prost_types::Duration {
            seconds: 1,
            nanos: 0,
        }),
        ..failure(api::FailureCode::Precondition, "no")
    };
    let ready = |i: u64| {
        Outcome::Ready(api::LoadBalancerReady {
            status: Some(api::LoadBalancerStatus {
                ingress: vec![api::LoadBalancerIngress {
                    ip: Some(format!("192.0.2.{}", i % 250)),
                    ..Default::default()
                }],
            }),
        })
    };
    let world = World::new(1).await;
    {
        let mut state = world.cloud.state();
        state.instead.extend((0..10_000).map(ready));
        state.target_errors = vec![api::TargetError {
            node_name: "n0".to_owned(),
            failure: Some(soon()),
        }];
        // Each Update fails, so an Ensure follows it.
        state.update_fails = Some(soon());
    }
    world.server.put(&service());
    sleep(Duration::from_mins(10)).await;
    let ensures = world.cloud.called("Ensure");
    assert!((15..=25).contains(&ensures), "{ensures} Ensures");
}

#[tokio::test(start_paused = true)]
async fn s9_a_service_whose_status_is_refused_is_tried_less_often() {
    let world = World::new(1).await;
    world.server.refuse("/status/loadBalancer");
    world.server.put(&service());
    // Each answer writes a new annotation, which is applied. It is no change by a user.
    let times = called_while_it_writes(&world, "Ensure").await;
    assert!(
        (6..=8).contains(&times.len()),
        "Ensures in the seconds {times:?}"
    );
    // A user's change does not wait.
    let before = world.cloud.called("Ensure");
    world.server.edit("web", |service| {
        let spec = service.spec.as_mut().unwrap();
        spec.load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned()]);
    });
    sleep(Duration::from_secs(5)).await;
    assert!(world.cloud.called("Ensure") > before);
}

#[tokio::test(start_paused = true)]
async fn s9_an_annotation_that_admission_removes_causes_no_other_ensure() {
    let world = World::new(1).await;
    says(&world, "cloud.example/by", "us");
    world.server.remove_annotation("cloud.example/by");
    world.server.put(&service());
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    world.rest().await;
    assert_eq!(world.cloud.called("Ensure"), 1);
}

/// The API server stores the handle, and its answer is lost.
#[tokio::test(start_paused = true)]
async fn s19_a_handle_that_a_user_changes_later_is_sent() {
    let world = World::new(1).await;
    // The first write adds the finalizer, the second one stores the handle.
    world.server.fault(2, 1, WriteFault::Lost);
    world.server.put(&service());
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    world.rest().await;
    let calls = world.calls().len();
    world.server.edit("web", |service| {
        let theirs = handle::render("mock", Some("uid-1"), Some(""), Some("theirs"));
        service.metadata.annotations = Some([(handle::ANNOTATION.to_owned(), theirs)].into());
        let spec = service.spec.as_mut().unwrap();
        spec.load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned()]);
    });
    world.rest().await;
    assert_eq!(world.calls()[calls..][..1], ["Ensure web theirs"]);
}

#[tokio::test(start_paused = true)]
async fn s9_what_is_served_elsewhere_gets_its_annotations_after_a_failed_write() {
    use api::ensure_load_balancer_response::Outcome;
    let world = World::new(1).await;
    for _ in 0..2 {
        let elsewhere = Outcome::HandledElsewhere(api::HandledElsewhere {});
        world.cloud.state().instead.push_back(elsewhere);
    }
    says(&world, "cloud.example/by", "another");
    // The first write adds the finalizer.
    world.server.fault(2, 1, WriteFault::Refused(500));
    world.server.put(&service());
    world
        .until("the annotation is written", |w| {
            let annotations = w.server.get("web").unwrap().metadata.annotations;
            annotations.is_some_and(|all| all.contains_key("cloud.example/by"))
        })
        .await;
    world.rest().await;
    assert_eq!(world.cloud.called("Ensure"), 2);
}

#[tokio::test(start_paused = true)]
async fn s9_a_provider_that_writes_something_new_with_each_pending_is_asked_less_often() {
    use api::ensure_load_balancer_response::Outcome;
    let world = World::new(1).await;
    let pending = Outcome::Pending(pending(1, "being made"));
    let pendings = std::iter::repeat_n(pending, 10_000);
    world.cloud.state().instead.extend(pendings);
    world.server.put(&service());
    let times = called_while_it_writes(&world, "Ensure").await;
    let ensures = times.len();
    assert!(
        (15..=25).contains(&ensures),
        "Ensures in the seconds {times:?}"
    );
    // After an answer that leads to no write, the next call comes at the time that the answer asks
    // for.
    world.cloud.state().annotations = None;
    sleep(Duration::from_mins(2)).await;
    let more = world.cloud.called("Ensure") - ensures;
    assert!(more >= 80, "{more} Ensures");
}

#[tokio::test(start_paused = true)]
async fn s9_a_vanished_service_whose_deletion_gives_a_new_handle_waits_as_asked() {
    use api::delete_load_balancer_response::Outcome;
    let pending = api::DeleteLoadBalancerResponse {
        outcome: Some(Outcome::Pending(pending(10, "being deleted"))),
        handle: Some("another".into()),
        ..Default::default()
    };
    for has_handle in [true, false] {
        let world = World::new(1).await;
        // With annotations the provider gives no handle.
        world.cloud.state().annotations = (!has_handle).then(api::AnnotationChanges::default);
        world.server.put(&service());
        world
            .until("an address", |w| w.address("web").is_some())
            .await;
        let pendings = std::iter::repeat_n(pending.clone(), 10_000);
        world.cloud.state().deletes.extend(pendings);
        world.server.remove("web");
        sleep(Duration::from_mins(5)).await;
        let deletes = world.cloud.called("Delete");
        assert!(
            (25..=35).contains(&deletes),
            "has a handle: {has_handle}; {deletes} Deletes"
        );
        world.cloud.state().deletes.clear();
        world
            .until("no load balancer is left", |w| {
                w.cloud.state().balancers.is_empty()
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn s9_a_service_that_vanished_is_not_forgotten_with_the_loop() {
    let mut world = made(1).await;
    world.provider.kill();
    world
        .running
        .until("away", |status| status.working().is_none())
        .await;
    // The Service vanishes during the first loop, after that loop, or during the second loop.
    let mut names = Vec::new();
    for when in 0..3 {
        let provider = world.cloud.service();
        world.provider.start(provider);
        world.running.session().await;
        let name = format!("s{when}");
        world.server.put(&named(when));
        world
            .until("an address", |w| w.address(&name).is_some())
            .await;
        world.provider.kill();
        world
            .running
            .until("away", |status| status.working().is_none())
            .await;
        if when == 0 {
            world.server.remove(&name);
            sleep(Duration::from_mins(1)).await;
        }
        world.stop.cancel();
        world.tasks.join_next().await;
        if when == 1 {
            world.server.remove(&name);
        }
        world.start();
        sleep(Duration::from_mins(1)).await;
        if when == 2 {
            world.server.remove(&name);
        }
        names.push(name);
    }
    let provider = world.cloud.service();
    world.provider.start(provider);
    world
        .until("only web is left", |w| {
            let state = w.cloud.state();
            state.balancers.keys().collect::<Vec<_>>() == ["uid-1"]
        })
        .await;
    world.rest().await;
    assert_eq!(world.cloud.called("Delete"), 3, "{names:?}");
    assert_eq!(world.cloud.called("Ensure"), 4);
}

#[tokio::test(start_paused = true)]
async fn s9_a_service_that_only_the_watch_has_lost_keeps_its_load_balancer() {
    let world = made(1).await;
    world.server.fail_reads(3);
    world.server.lose_service("web");
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.cloud.called("Delete"), 0);
    world.server.list_again();
    world.rest().await;
    assert!(world.cloud.state().balancers.contains_key("uid-1"));
    world.server.remove("web");
    world
        .until("the load balancer is gone", |w| {
            w.cloud.state().balancers.is_empty()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn s9_s19_what_a_call_may_have_made_when_the_loop_broke_off_is_not_forgotten() {
    let mut world = World::new(1).await;
    // The load balancer is created, but the answer never arrives.
    let late = [Fault::Late].into();
    world.cloud.state().faults.insert("Ensure", late);
    world.server.put(&service());
    world
        .until("it is made", |w| w.cloud.state().made == 1)
        .await;
    world.tasks.abort_all();
    while world.tasks.join_next().await.is_some() {}
    let known = world.memory.take();
    let by: Vec<_> = known.iter().map(|(_, it)| it.cloud.by()).collect();
    assert_eq!(by, [Some("mock")], "the provider is known");
    world.memory.keep(known.into_iter());
    // The load balancer's Service vanishes in spite of its finalizer, before the process's next
    // loop.
    world.server.remove("web");
    world.start();
    world
        .until("it is gone", |w| w.cloud.state().balancers.is_empty())
        .await;
    assert_eq!(world.cloud.called("Delete"), 1);
}

/// The test drops the job's future. A panic in the job drops the future, too.
#[tokio::test(start_paused = true)]
async fn s9_s19_what_a_call_may_have_made_when_its_job_broke_off_is_not_forgotten() {
    let mut world = World::new(1).await;
    world.stop.cancel();
    world.tasks.join_next().await;
    let late = [Fault::Late].into();
    world.cloud.state().faults.insert("Ensure", late);
    world.server.put(&service());
    let context = world.context(&mut Registry::default());
    let worker = Worker::new(context, Arc::default(), world.metrics.clone());
    let session = world.running.session().await;
    let key = Key::of(&service());
    let batch = || worker.driver.batch(vec![Task::Service(key.clone())]);
    {
        let batch = batch();
        let work = worker.reconcile(&session, &batch);
        let answer = timeout(Duration::from_secs(1), work).await;
        assert!(answer.is_err(), "none comes");
    }
    assert_eq!(world.calls(), ["Ensure web -"]);
    world.server.remove("web");
    worker.reconcile(&session, &batch()).await;
    let departed = Task::Departed(key.clone(), "uid-1".to_owned());
    assert!(worker.driver.queue.holds(&departed));
}

#[tokio::test(start_paused = true)]
async fn s9_of_a_call_that_changes_nothing_nothing_is_remembered_when_the_loop_breaks_off() {
    let mut world = World::new(1).await;
    let mut known = service();
    known.metadata.finalizers = Some(vec![
        crate::controllers::service::plan::FINALIZER.to_owned(),
    ]);
    world
        .cloud
        .state()
        .faults
        .insert("Get", [Fault::Hangs].into());
    world.server.put(&known);
    world.until("asked", |w| w.cloud.called("Get") == 1).await;
    world.tasks.abort_all();
    while world.tasks.join_next().await.is_some() {}
    assert!(world.memory.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn b_s9_n13_refused_credentials_are_told_at_once_on_one_service_and_later_on_each_that_waits()
{
    use api::ensure_load_balancer_response::Outcome;
    let world = World::new(1).await;
    let refused = Outcome::Failed(failure(api::FailureCode::Credentials, "token expired"));
    let many = std::iter::repeat_n(refused, 10_000);
    world.cloud.state().instead.extend(many);
    for i in 0..20 {
        world.server.put(&named(i));
    }
    sleep(Duration::from_secs(25)).await;
    let reported = || {
        let events = world.events.recorded();
        events
            .iter()
            .filter(|event| event.contains("token expired"))
            .count()
    };
    assert_eq!(reported(), 1);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(reported(), 1 + 20, "within a minute");
    sleep(Duration::from_mins(9)).await;
    assert!(world.cloud.called("Ensure") >= 40);
    assert_eq!(reported(), 1 + 20, "the same Events");
}

/// Shows B-S9 and ▲M10.
///
/// Fault: the cloud refuses the credentials for many Services, and then accepts them | makes one
/// call every 20 s for all of them; serves all when that call succeeds; makes no other call
#[tokio::test(start_paused = true)]
async fn fault_service_refused_credentials_are_tried_with_one_service() {
    use api::ensure_load_balancer_response::Outcome;
    for restarts in [false, true] {
        let world = World::new(1).await;
        let refused = Outcome::Failed(failure(api::FailureCode::Credentials, "token expired"));
        let many = std::iter::repeat_n(refused, 10_000);
        world.cloud.state().instead.extend(many);
        for i in 0..20 {
            world.server.put(&named(i));
        }
        sleep(Duration::from_secs(5)).await;
        assert_eq!(world.cloud.called("Ensure"), 20);
        sleep(Duration::from_mins(2)).await;
        assert_eq!(
            world.cloud.called("Ensure"),
            20 + 6,
            "makes one call every 20 s for all of them"
        );

        world.cloud.state().instead.clear();
        let mended = Instant::now();
        if restarts {
            world.provider.start(world.cloud.service());
        }
        world
            .until("all are served", |w| {
                (0..20).all(|i| w.address(&format!("s{i}")).is_some())
            })
            .await;
        let took = mended.elapsed();
        let most = Duration::from_secs(if restarts { 2 } else { 21 });
        assert!(took < most, "serves all when that call succeeds: {took:?}");
        let calls = world.cloud.called("Ensure");
        assert_eq!(calls, 20 + 6 + 20, "makes no other call");
    }
}

#[tokio::test(start_paused = true)]
async fn m10_accepted_credentials_end_the_wait_of_all_also_if_a_status_is_refused() {
    use api::ensure_load_balancer_response::Outcome;
    let world = World::new(1).await;
    let refused = Outcome::Failed(failure(api::FailureCode::Credentials, "token expired"));
    let many = std::iter::repeat_n(refused, 10_000);
    world.cloud.state().instead.extend(many);
    for i in 0..20 {
        world.server.put(&named(i));
    }
    sleep(Duration::from_mins(1)).await;
    world.server.refuse("/status/loadBalancer");
    world.cloud.state().instead.clear();
    let mended = Instant::now();
    world
        .until("each has a load balancer", |w| {
            w.cloud.state().balancers.len() == 20
        })
        .await;
    let took = mended.elapsed();
    assert!(took < Duration::from_secs(22), "{took:?}");
}

/// Sends a hint about `web` and a Resync, `times` times, with this gap.
async fn storm(world: &World, times: u32, gap: Duration) {
    // The loop has subscribed by then.
    sleep(Duration::from_millis(10)).await;
    for _ in 0..times {
        let hint = Hint::LoadBalancer {
            namespace: "default".into(),
            name: "web".into(),
        };
        for hint in [hint, Hint::Resync] {
            world.running.hints.send(hint).unwrap();
        }
        sleep(gap).await;
    }
}

#[tokio::test(start_paused = true)]
async fn m10_hints_bring_no_retry_forward() {
    use api::ensure_load_balancer_response::Outcome;
    for (code, after) in [
        (api::FailureCode::Precondition, None),
        (api::FailureCode::Conflict, Some(300)),
        (api::FailureCode::Internal, None),
        (api::FailureCode::Invalid, None),
    ] {
        let mut ensures = Vec::new();
        for hints in [false, true] {
            let world = World::new(1).await;
            let failed = Outcome::Failed(api::Failure {
                retry_after: after.map(|seconds| prost_types::Duration { seconds, nanos: 0 }),
                ..failure(code, "no")
            });
            let failed = std::iter::repeat_n(failed, 1_000);
            world.cloud.state().instead.extend(failed);
            world.server.put(&service());
            if hints {
                storm(&world, 1_000, Duration::from_secs(1)).await;
            } else {
                sleep(Duration::from_secs(1_000)).await;
            }
            ensures.push(world.cloud.called("Ensure"));
        }
        // Retries have jitter. If hints brought them forward, there would be many more Ensures.
        let (quiet, stormy) = (ensures[0], ensures[1]);
        assert!(quiet >= 1 && stormy <= quiet + 1, "{code:?}: {ensures:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn m10_a_storm_of_hints_makes_a_look_in_ten_seconds_and_the_last_one_counts() {
    let world = made(1).await;
    world.rest().await;
    let gets = world.cloud.called("Get");
    storm(&world, 600, Duration::from_millis(100)).await;
    let looked = world.cloud.called("Get") - gets;
    assert!((6..=8).contains(&looked), "{looked} Gets in a minute");
    // The ccm notices a load balancer that vanishes just before the last hint.
    let ensures = world.cloud.called("Ensure");
    world.cloud.state().balancers.clear();
    storm(&world, 1, Duration::from_secs(11)).await;
    assert_eq!(world.cloud.called("Ensure"), ensures + 1);
}

#[tokio::test(start_paused = true)]
async fn l7_a_resync_during_a_job_leads_to_a_check_after_it() {
    let world = made(1).await;
    world.rest().await;
    world.server.edit("web", |service| {
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 81;
    });
    world
        .until("a second Ensure", |w| w.cloud.called("Ensure") == 2)
        .await;
    world.running.hints.send(Hint::Resync).unwrap();
    world.rest().await;
    assert_eq!(
        world.calls()[1..],
        ["Ensure web h-uid-1", "Get web h-uid-1"]
    );
}

#[tokio::test(start_paused = true)]
async fn s18_a_hint_ends_the_wait_for_what_is_pending() {
    use api::ensure_load_balancer_response::Outcome;
    let world = World::new(1).await;
    let seconds = 300;
    world
        .cloud
        .state()
        .instead
        .push_back(Outcome::Pending(pending(seconds, "being made")));
    world.server.put(&service());
    sleep(Duration::from_secs(20)).await;
    assert_eq!(world.address("web"), None);
    storm(&world, 1, Duration::from_secs(11)).await;
    assert!(world.address("web").is_some());
}
