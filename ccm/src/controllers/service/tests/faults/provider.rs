//! The provider fails, hangs, dies.

use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;

use super::super::cloud::Fault;
use super::super::{World, named};
use super::{AT_ONCE, End, has_event};
use crate::controllers::service::fixtures::{node, service};

const RPCS: [&str; 4] = ["Get", "Ensure", "Update", "Delete"];

fn failure(code: i32) -> Fault {
    Fault::Fails(api::Failure {
        code,
        message: "on purpose".into(),
        ..Default::default()
    })
}

/// A check after the whole life of a Service in which one call failed. The message of its assertion
/// is a part of the fault's row.
type Check = fn(&World, &str);

/// Whether the call after the one with the fault came `least` to `most` seconds later.
fn waits(world: &World, least: f64, most: f64) -> bool {
    (least..=most).contains(&world.waited().as_secs_f64())
}

fn reported(world: &World, what: &str) {
    assert!(
        has_event(world, &["Warning ", " default/web: ", "on purpose"]),
        "a Warning event has the provider's message: {what}: {:?}",
        world.events.recorded()
    );
}

fn told_of_the_call(world: &World, what: &str) {
    let events = world.events.recorded();
    assert!(
        has_event(world, &["Warning ", "Failed default/web: "]),
        "a Warning event says so: {what}: {events:?}"
    );
}

/// The first delay is 5 s, with jitter of up to a fifth.
fn backoff(world: &World, what: &str) {
    assert!(
        waits(world, 5.0, 6.2),
        "asks again with backoff: {what}: {:?}",
        world.waited()
    );
}

/// The controller does not wait for the deadline: an answer or the end of the connection ends the
/// call.
fn reconnects(world: &World, what: &str) {
    assert!(
        waits(world, 0.0, 8.0),
        "asks again as soon as the provider is back: {what}: {:?}",
        world.waited()
    );
}

fn deadline(world: &World, what: &str) {
    assert!(
        waits(world, 305.0, 306.2),
        "gives up after 5 min and asks again with backoff: {what}: {:?}",
        world.waited()
    );
}

/// Plays a life for each RPC with this fault. If `others`, another Service must not wait.
async fn in_each_rpc(fault: &Fault, others: bool, checks: &[Check]) {
    for rpc in RPCS {
        in_one_rpc(rpc, fault, others, checks).await;
    }
}

async fn in_one_rpc(rpc: &'static str, fault: &Fault, others: bool, checks: &[Check]) {
    let mut world = World::new(1).await;
    world
        .cloud
        .state()
        .faults
        .insert(rpc, [fault.clone()].into());
    world.lives(End::Deleted, others.then_some(AT_ONCE)).await;
    let what = format!("{rpc} with {fault:?}");
    for check in checks {
        check(&world, &what);
    }
    // One call more than without a fault: the call again, or an Ensure after an Update that failed.
    let calls = world.calls();
    let of_web = calls.iter().filter(|call| call.contains(" web "));
    assert_eq!(of_web.count(), 5, "asks once more: {what}: {calls:?}");
}

/// Fault: the provider answers INVALID to Get, Ensure, Update or Delete | a Warning event has the
/// provider's message; asks again after 30 min; asks again when the Service changes; asks again
/// when its targets change
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_invalid() {
    fn half_an_hour(world: &World, what: &str) {
        assert!(
            waits(world, 1_799.0, 1_801.0),
            "asks again after 30 min: {what}: {:?}",
            world.waited()
        );
    }
    let invalid = failure(api::FailureCode::Invalid.into());
    in_each_rpc(&invalid, true, &[reported, half_an_hour]).await;
    for targets in [false, true] {
        let mut world = World::new(1).await;
        let faults = [invalid.clone()].into();
        world.cloud.state().faults.insert("Ensure", faults);
        world.server.put(&service());
        world.rest().await;
        if targets {
            world.server.put_node(node("n1"));
            let asked_again = |w: &World| w.times("Ensure web") == 2;
            let soon = Duration::from_secs(6);
            world
                .comes_within("asks again when its targets change", soon, asked_again)
                .await;
        } else {
            world.server.edit("web", |service| {
                service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 81;
            });
            let asked_again = |w: &World| w.times("Ensure web") == 2;
            world
                .comes_within("asks again when the Service changes", AT_ONCE, asked_again)
                .await;
        }
    }
}

/// Fault: the provider answers PRECONDITION to Get, Ensure, Update or Delete | a Warning event has
/// the provider's message; asks again with backoff; an Ensure follows an Update that failed
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_precondition() {
    let precondition = failure(api::FailureCode::Precondition.into());
    in_each_rpc(&precondition, true, &[reported, backoff]).await;
    in_one_rpc("Update", &precondition, true, &[ensures]).await;
}

fn ensures(world: &World, what: &str) {
    let next = world.wrong_and_next().1.rpc;
    assert_eq!(
        next, "Ensure",
        "an Ensure follows an Update that failed: {what}"
    );
}

/// Fault: the provider answers NOT_FOUND to Update, or to Get, Ensure or Delete, which do not list
/// that code | an Ensure follows an Update that failed; the Ensure follows at once; after the
/// others a Warning event has the provider's message, and the controller asks again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_not_found() {
    fn as_internal(world: &World, what: &str) {
        assert!(
            waits(world, 5.0, 6.2) && has_event(world, &["Warning", "on purpose"]),
            "after the others a Warning event has the provider's message, and the controller asks again with backoff: {what}"
        );
    }
    fn at_once(world: &World, what: &str) {
        assert!(waits(world, 0.0, 0.1), "the Ensure follows at once: {what}");
    }
    let fault = failure(api::FailureCode::NotFound.into());
    for rpc in ["Get", "Ensure", "Delete"] {
        in_one_rpc(rpc, &fault, true, &[as_internal]).await;
    }
    in_one_rpc("Update", &fault, true, &[ensures, at_once]).await;
}

/// Fault: the provider answers CONFLICT to Get, Ensure, Update or Delete | a Warning event has the
/// provider's message; asks again after 5 min; adopts nothing meanwhile
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_conflict() {
    fn five_minutes(world: &World, what: &str) {
        assert!(
            waits(world, 299.0, 301.0),
            "asks again after 5 min: {what}: {:?}",
            world.waited()
        );
    }
    let conflict = failure(api::FailureCode::Conflict.into());
    in_each_rpc(&conflict, true, &[reported, five_minutes]).await;
    let world = World::new(1).await;
    let faults = [conflict].into();
    world.cloud.state().faults.insert("Ensure", faults);
    world.server.put(&service());
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert!(
        !world.is_whole("web") && world.address("web").is_none(),
        "adopts nothing meanwhile"
    );
}

/// The seconds between the Ensures of `web`. The first `times` of them get this fault.
async fn gaps(fault: &Fault, times: usize) -> (World, Vec<f64>) {
    let mut world = World::new(1).await;
    let many = std::iter::repeat_n(fault.clone(), times).collect();
    world.cloud.state().faults.insert("Ensure", many);
    world.lives(End::Deleted, Some(AT_ONCE)).await;
    let ensures: Vec<_> = world
        .cloud
        .state()
        .log
        .iter()
        .filter(|call| call.name == "web" && call.rpc == "Ensure")
        .map(|call| call.at)
        .collect();
    let gaps = ensures
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs_f64());
    let gaps: Vec<f64> = gaps.take(times).collect();
    (world, gaps)
}

/// Fault: the provider answers BUSY to Get, Ensure, Update or Delete | asks again after 1 s to 1.5
/// s; asks five times like that, then with backoff; then an event has the provider's message
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_busy() {
    fn soon(world: &World, what: &str) {
        assert!(
            waits(world, 1.0, 1.6),
            "asks again after 1 s to 1.5 s: {what}: {:?}",
            world.waited()
        );
    }
    let busy = failure(api::FailureCode::Busy.into());
    in_each_rpc(&busy, true, &[soon]).await;
    let (world, gaps) = gaps(&busy, 7).await;
    assert!(
        gaps[..5].iter().all(|gap| *gap < 1.7) && gaps[5..].iter().all(|gap| *gap >= 5.0),
        "asks five times like that, then with backoff: {gaps:?}"
    );
    assert!(
        has_event(&world, &["on purpose"]),
        "then an event has the provider's message: {:?}",
        world.events.recorded()
    );
}

/// Fault: the provider answers THROTTLED to Get, Ensure, Update or Delete | a Warning event has the
/// provider's message; asks again after 5 s if the answer has no `retry_after`; all Services wait
/// for its `retry_after`
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_throttled() {
    fn five_seconds(world: &World, what: &str) {
        assert!(
            waits(world, 5.0, 10.5),
            "asks again after 5 s if the answer has no `retry_after`: {what}: {:?}",
            world.waited()
        );
    }
    let throttled = failure(api::FailureCode::Throttled.into());
    in_each_rpc(&throttled, false, &[reported, five_seconds]).await;
    let world = World::new(1).await;
    let half_a_minute = prost_types::Duration {
        seconds: 30,
        nanos: 0,
    };
    let throttled = Fault::Fails(api::Failure {
        code: api::FailureCode::Throttled.into(),
        retry_after: Some(half_a_minute),
        ..Default::default()
    });
    world
        .cloud
        .state()
        .faults
        .insert("Ensure", [throttled].into());
    world.server.put(&service());
    world
        .until("throttled", |w| w.times("Ensure web") == 1)
        .await;
    // Meanwhile the answer arrives.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.server.put(&named(2));
    world
        .until("the other is asked about", |w| w.times("Ensure s2") == 1)
        .await;
    let state = world.cloud.state();
    let took = state.log.last().unwrap().at - state.log[0].at;
    assert!(
        took >= Duration::from_secs(30),
        "all Services wait for its `retry_after`: {took:?}"
    );
}

/// Fault: the provider answers CREDENTIALS to Get, Ensure, Update or Delete | a Warning event has
/// the provider's message; asks again after 20 s
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_credentials() {
    fn later(world: &World, what: &str) {
        assert!(
            waits(world, 19.9, 20.2),
            "asks again after 20 s: {what}: {:?}",
            world.waited()
        );
    }
    let refused = failure(api::FailureCode::Credentials.into());
    in_each_rpc(&refused, true, &[reported, later]).await;
}

/// Fault: the provider answers UNAVAILABLE to Get, Ensure, Update or Delete | a Warning event has
/// the provider's message; asks again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_unavailable() {
    let unavailable = failure(api::FailureCode::Unavailable.into());
    in_each_rpc(&unavailable, true, &[reported, backoff]).await;
}

/// Fault: the provider answers NOT_INITIALIZED to Get, Ensure, Update or Delete | initialises the
/// provider again; asks again as soon as the provider is back
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_not_initialized() {
    fn again(world: &World, what: &str) {
        let times = world.cloud.state().initialized;
        assert_eq!(times, 2, "initialises the provider again: {what}");
    }
    let fault = failure(api::FailureCode::NotInitialized.into());
    in_each_rpc(&fault, false, &[again, reconnects]).await;
}

/// Fault: the provider answers INTERNAL, or an unknown code, to Get, Ensure, Update or Delete | a
/// Warning event has the provider's message; asks again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_internal() {
    for code in [api::FailureCode::Internal.into(), 0, 4_711] {
        in_each_rpc(&failure(code), true, &[reported, backoff]).await;
    }
}

/// Fault: the provider's answer to Get, Ensure, Update or Delete has no outcome | a Warning event
/// says so; asks again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_nothing() {
    in_each_rpc(&Fault::Unset, true, &[told_of_the_call, backoff]).await;
}

/// Fault: the provider answers a gRPC status other than OK to Get, Ensure, Update or Delete | asks
/// again with backoff; makes nothing twice; leaves nothing
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_a_grpc_status() {
    for code in [
        tonic::Code::Unknown,
        tonic::Code::DeadlineExceeded,
        tonic::Code::NotFound,
        tonic::Code::Unimplemented,
        tonic::Code::Unavailable,
    ] {
        in_each_rpc(&Fault::Status(code), true, &[backoff]).await;
    }
}

/// Fault: the provider hangs in Get, Ensure, Update or Delete, and does nothing | gives up after 5
/// min and asks again with backoff; a Warning event says so; serves other Services meanwhile
#[tokio::test(start_paused = true)]
async fn fault_service_provider_hangs() {
    in_each_rpc(&Fault::Hangs, true, &[deadline, told_of_the_call]).await;
}

/// Fault: the provider does what Get, Ensure, Update or Delete asked for, and answers after the
/// deadline | gives up after 5 min and asks again with backoff; a Warning event says so; makes
/// nothing twice
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_late() {
    in_each_rpc(&Fault::Late, true, &[deadline, told_of_the_call]).await;
}

/// Fault: the provider dies in Get, Ensure, Update or Delete before it does anything | asks again
/// as soon as the provider is back; asks once more
#[tokio::test(start_paused = true)]
async fn fault_service_provider_dies_before_the_effect() {
    in_each_rpc(&Fault::DiesBefore, false, &[reconnects]).await;
}

/// Fault: the provider dies in Get, Ensure, Update or Delete after the effect and before the answer
/// | asks again as soon as the provider is back; makes nothing twice; leaves nothing
#[tokio::test(start_paused = true)]
async fn fault_service_provider_dies_after_the_effect() {
    in_each_rpc(&Fault::DiesAfter, false, &[reconnects]).await;
}

/// Fault: the provider shuts down in Get, Ensure, Update or Delete, and the next process is there
/// at once | the call ends with its own answer; makes no other call for the Service meanwhile
#[tokio::test(start_paused = true)]
async fn fault_service_provider_shuts_down_gracefully() {
    for rpc in RPCS {
        let mut world = World::new(1).await;
        let drains = Fault::Drains(Duration::from_secs(8));
        world.cloud.state().faults.insert(rpc, [drains].into());
        let pace = (rpc == "Ensure").then_some(Duration::from_secs(4));
        world.lives(End::Deleted, pace).await;
        let state = world.cloud.state();
        assert_eq!(
            state.overlaps, 0,
            "makes no other call for the Service meanwhile: {:?}",
            state.calls
        );
        let of_web = state.log.iter().filter(|call| call.name == "web");
        let calls: Vec<&str> = of_web.map(|call| call.rpc).collect();
        assert_eq!(
            calls,
            ["Ensure", "Get", "Update", "Delete"],
            "the call ends with its own answer: {rpc}"
        );
    }
}

/// Fault: the provider fails again and again | asks less and less often; waits at most 5 min
/// between two tries
#[tokio::test(start_paused = true)]
async fn fault_service_provider_fails_for_an_hour() {
    let down = failure(api::FailureCode::Unavailable.into());
    let (_world, gaps) = gaps(&down, 12).await;
    assert!(
        gaps[0] < 6.2 && gaps[11] >= 225.0,
        "asks less and less often: {gaps:?}"
    );
    assert!(
        gaps.iter().all(|gap| *gap <= 301.0),
        "waits at most 5 min between two tries: {gaps:?}"
    );
}
