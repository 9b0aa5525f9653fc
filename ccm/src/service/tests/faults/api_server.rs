//! The API server refuses, hangs, loses answers, cuts the watch.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::{Duration, sleep};

use super::super::World;
use super::super::api_server::WriteFault;
use super::End;
use crate::service::fixtures::service;
use crate::service::tests::named;

/// Both ends, with the writes that a life has, of both Services together.
const ENDS: [(End, usize); 2] = [(End::Deleted, 7), (End::TypeChanged, 8)];

/// A life in which each write in turn goes wrong, so often.
async fn in_each_write(fault: WriteFault, times: usize) {
    for (end, writes) in ENDS {
        for number in 1..=writes {
            let mut world = World::new(1).await;
            world.server.fault(number, times, fault);
            world.lives(end, None).await;
            let more = world.server.attempts() - writes;
            assert!(
                (times..=times + 2).contains(&more),
                "write {number}, {fault:?}, {end:?}: {more} more"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_life_without_faults_has_so_many_writes() {
    for (end, writes) in ENDS {
        let mut world = World::new(1).await;
        world.lives(end, None).await;
        assert_eq!(world.server.attempts(), writes, "{end:?}");
    }
}

/// Fault: the API server answers 409 to a write of a Service (finalizer, handle, status, clearing of the status, end of the finalizer) | the Service is read again and decided anew; nothing is called twice for it
#[tokio::test(start_paused = true)]
async fn fault_service_api_server_answers_409() {
    in_each_write(WriteFault::Refused(409), 1).await;
}

/// Fault: the API server answers 422 to a write of a Service | a Warning event says which and why; tried again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_api_server_answers_422() {
    in_each_write(WriteFault::Refused(422), 1).await;
    in_each_write(WriteFault::Refused(422), 3).await;
}

/// Fault: the API server answers 429 to a write of a Service | sent again after its Retry-After, five times, then tried again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_api_server_answers_429() {
    in_each_write(WriteFault::Refused(429), 1).await;
    in_each_write(WriteFault::Refused(429), 7).await;
}

/// Fault: the API server answers 500 to a write of a Service | a Warning event says so; tried again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_api_server_answers_500() {
    in_each_write(WriteFault::Refused(500), 1).await;
    in_each_write(WriteFault::Refused(500), 3).await;
}

/// Fault: the API server never answers a write of a Service, and did not do it | given up after 10 s; tried again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_api_server_hangs() {
    in_each_write(WriteFault::Hangs, 1).await;
}

/// Fault: the API server does a write of a Service, and its answer is lost | given up after 10 s; what the watch shows since is taken as it is, nothing is made twice
#[tokio::test(start_paused = true)]
async fn fault_service_api_server_loses_an_answer() {
    for (end, writes) in ENDS {
        for number in 1..=writes {
            let mut world = World::new(1).await;
            world.server.fault(number, 1, WriteFault::Lost);
            world.lives(end, None).await;
        }
    }
}

/// Fault: the API server cuts the watch of Services, or answers 410 Gone to it | listed again, and compared with what was known: what was made, changed, deleted or made anew under the same name meanwhile is acted upon
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
    // Without its finalizer, by an impatient user; and one more, made anew since.
    world.server.remove("forced");
    world.server.remove("again");
    let mut again = service();
    again.metadata.name = Some("again".into());
    again.metadata.uid = Some("uid-new".into());
    world.server.put(&again);
    let calls = world.calls().len();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(world.calls().len(), calls, "nothing is seen");

    world.server.list_again();
    world
        .until("all is as asked", |w| {
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
    assert!(world.server.get("deleted").is_none());
    assert_eq!(world.cloud.state().made, 6);
    assert_eq!(world.cloud.called("Delete"), 3);
    assert_eq!(world.address("again").as_deref(), Some("192.0.2.1"));
}
