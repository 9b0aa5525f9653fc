//! The API server refuses, hangs, loses answers, cuts the watch.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::{Duration, sleep};

use super::super::World;
use super::super::api_server::WriteFault;
use super::{End, has_event};
use crate::controllers::service::fixtures::service;
use crate::controllers::service::tests::named;

/// The two ways in which the life of the Service `web` ends in these tests. Each has the number of
/// writes to `web` and to the Service beside it if nothing fails.
const ENDS: [(End, usize); 2] = [(End::Deleted, 7), (End::TypeChanged, 8)];

/// A check after the whole life of a Service in which one write failed. The message of its
/// assertion is a part of the fault's row.
type Check = fn(&Seen<'_>);

struct Seen<'a> {
    world: &'a World,
    /// The number of the first write that failed, and its Service.
    number: usize,
    service: &'a str,
    /// The seconds from each attempt at the failed write to the next one.
    gaps: Vec<f64>,
    /// The number of writes beyond those of a life without faults.
    writes_more: usize,
    what: String,
}

/// For each write, plays a Service's life in which that write gets `fault` `times` times.
async fn in_each_write(fault: WriteFault, times: usize, checks: &[Check]) {
    for (end, writes) in ENDS {
        for number in 1..=writes {
            let mut world = World::new(1).await;
            world.server.fault(number, times, fault);
            world.lives(end, None).await;
            let attempts = world.server.attempts();
            let more = attempts.len() - writes;
            let what = format!("write {number}, {fault:?} {times} times, {end:?}");
            assert!(more <= times + 2, "{what}: {more} more");
            let first = attempts.iter().position(|it| it.fault.is_some()).unwrap();
            let same: Vec<_> = attempts[first..]
                .iter()
                .filter(|it| it.of == attempts[first].of)
                .collect();
            let gaps = same
                .windows(2)
                .map(|pair| (pair[1].at - pair[0].at).as_secs_f64());
            let seen = Seen {
                world: &world,
                number,
                service: attempts[first].of.split('/').next().unwrap(),
                gaps: gaps.take(times).collect(),
                writes_more: more,
                what: format!("{what}: {}", attempts[first].of),
            };
            for check in checks {
                check(&seen);
            }
        }
    }
}

fn reported(seen: &Seen<'_>) {
    let about = format!(" default/{}: ", seen.service);
    assert!(
        has_event(seen.world, &["Warning ", &about, "on purpose"]),
        "a Warning event says why: {}: {:?}",
        seen.what,
        seen.world.events.recorded()
    );
}

fn backoff(seen: &Seen<'_>) {
    assert!(
        seen.gaps.iter().all(|gap| *gap >= 5.0),
        "tries again with backoff: {}: {:?}",
        seen.what,
        seen.gaps
    );
}

fn at_once(seen: &Seen<'_>) {
    let first = seen.gaps.first();
    assert!(
        first.is_some_and(|gap| *gap < 1.0),
        "reconciles the Service again at once: {}: {:?}",
        seen.what,
        seen.gaps
    );
}

fn no_call_more(seen: &Seen<'_>) {
    let calls = seen.world.calls();
    let of_web = calls.iter().filter(|call| call.contains(" web "));
    assert_eq!(
        of_web.count(),
        4,
        "makes no call twice for it: {}: {calls:?}",
        seen.what
    );
}

fn given_up(seen: &Seen<'_>) {
    let first = seen.gaps.first();
    assert!(
        first.is_some_and(|gap| (10.0..22.0).contains(gap)),
        "gives up after 10 s: {}: {:?}",
        seen.what,
        seen.gaps
    );
}

#[tokio::test(start_paused = true)]
async fn a_life_without_faults_has_so_many_writes() {
    for (end, writes) in ENDS {
        let mut world = World::new(1).await;
        world.lives(end, None).await;
        assert_eq!(world.server.attempts().len(), writes, "{end:?}");
    }
}

/// Fault: the API server answers 409 to a write of a Service (finalizer, handle, status, clearing
/// of the status, removal of the finalizer) | reconciles the Service again at once; makes no call
/// twice for it
#[tokio::test(start_paused = true)]
async fn fault_service_api_server_answers_409() {
    in_each_write(WriteFault::Refused(409), 1, &[at_once, no_call_more]).await;
}

/// Fault: the API server answers 422 to a write of a Service | a Warning event says why; tries
/// again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_api_server_answers_422() {
    for times in [1, 3] {
        in_each_write(WriteFault::Refused(422), times, &[reported, backoff]).await;
    }
}

/// Fault: the API server answers 429 to a write of a Service | sends it again after the
/// Retry-After; sends it five times in all, then tries again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_api_server_answers_429() {
    fn after_two_seconds(seen: &Seen<'_>) {
        let first = seen.gaps.first();
        assert!(
            first.is_some_and(|gap| (2.0..=3.0).contains(gap)),
            "sends it again after the Retry-After: {}: {:?}",
            seen.what,
            seen.gaps
        );
    }
    fn five_times(seen: &Seen<'_>) {
        let gaps = &seen.gaps;
        assert!(
            gaps[..4].iter().all(|gap| *gap <= 3.0) && gaps[4] >= 5.0,
            "sends it five times in all, then tries again with backoff: {}: {gaps:?}",
            seen.what
        );
    }
    let refused = WriteFault::Refused(429);
    in_each_write(refused, 1, &[after_two_seconds]).await;
    in_each_write(refused, 7, &[after_two_seconds, five_times]).await;
}

/// Fault: the API server answers 500 to a write of a Service | a Warning event says why; tries
/// again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_api_server_answers_500() {
    for times in [1, 3] {
        in_each_write(WriteFault::Refused(500), times, &[reported, backoff]).await;
    }
}

/// Fault: the API server never answers a write of a Service, and does not do it | gives up after 10
/// s; then tries again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_api_server_hangs() {
    fn then_backoff(seen: &Seen<'_>) {
        assert!(
            seen.gaps.iter().skip(1).all(|gap| *gap >= 15.0),
            "then tries again with backoff: {}: {:?}",
            seen.what,
            seen.gaps
        );
    }
    in_each_write(WriteFault::Hangs, 3, &[given_up, then_backoff]).await;
}

/// Fault: the API server does a write of a Service, and its answer is lost | gives up after 10 s;
/// does not repeat a write whose result the watch shows; makes nothing twice
#[tokio::test(start_paused = true)]
async fn fault_service_api_server_loses_an_answer() {
    /// The first two writes are those of the finalizers. After later ones, the next write of the
    /// same object comes after an edit by the test, so its gap shows nothing.
    fn first_given_up(seen: &Seen<'_>) {
        if seen.number <= 2 {
            given_up(seen);
        }
    }
    fn not_again(seen: &Seen<'_>) {
        let lost = seen.writes_more;
        assert_eq!(
            lost, 0,
            "does not repeat a write whose result the watch shows: {}",
            seen.what
        );
    }
    in_each_write(WriteFault::Lost, 1, &[first_given_up, not_again]).await;
}

/// Fault: the API server cuts the watch of Services, or answers 410 Gone to it | sees no change
/// until it lists again; then acts on Services that were created, changed, deleted or created again
/// under the same name; lets the deleted Service go; each change costs one call
#[tokio::test(start_paused = true)]
async fn fault_service_watch_is_cut() {
    let world = World::new(1).await;
    for name in ["changed", "deleted", "forced", "again"] {
        let mut service = service();
        service.metadata.name = Some(name.into());
        service.metadata.uid = Some(format!("uid-{name}"));
        world.server.put(&service);
    }
    for name in ["changed", "deleted", "forced", "again"] {
        world
            .until("an address", |w| w.address(name).is_some())
            .await;
    }
    world.rest().await;
    world.server.cut_watch();
    world.server.put(&named(7));
    world.server.edit("changed", |service| {
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 81;
    });
    world.server.edit("deleted", |service| {
        service.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    });
    // A user removed the finalizer of one Service, which is gone now. Another Service was deleted
    // and created again.
    world.server.remove("forced");
    world.server.remove("again");
    let mut again = service();
    again.metadata.name = Some("again".into());
    again.metadata.uid = Some("uid-new".into());
    world.server.put(&again);
    let calls = world.calls().len();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(
        world.calls().len(),
        calls,
        "sees no change until it lists again"
    );

    world.server.list_again();
    world
        .until("then acts on Services that were created, changed, deleted or created again under the same name", |w| {
            let state = w.cloud.state();
            let made: Vec<&String> = state.balancers.keys().collect();
            made == ["u7", "uid-changed", "uid-new"]
                && state
                    .calls
                    .iter()
                    .filter(|call| *call == "Ensure changed h-uid-changed")
                    .count()
                    == 1
        })
        .await;
    world.rest().await;
    assert!(
        world.server.get("deleted").is_none(),
        "lets the deleted Service go"
    );
    assert_eq!(world.cloud.state().made, 6);
    assert_eq!(
        world.cloud.called("Delete"),
        3,
        "each change costs one call"
    );
    assert_eq!(world.address("again").as_deref(), Some("192.0.2.1"));
}
