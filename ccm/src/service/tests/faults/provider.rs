//! The provider fails, hangs, dies.

use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;

use super::super::World;
use super::super::cloud::Fault;
use super::{AT_ONCE, End};

const RPCS: [&str; 4] = ["Get", "Ensure", "Update", "Delete"];

fn failure(code: i32) -> Fault {
    Fault::Fails(api::Failure {
        code,
        message: "on purpose".into(),
        ..Default::default()
    })
}

/// What follows from a call that goes wrong.
#[derive(Clone, Copy)]
struct Row {
    /// The next call comes after so many tenths of a second,
    least: u64,
    /// and before so many.
    most: u64,
    /// An event tells the provider's words, whatever the call.
    told: bool,
    /// Another Service is served meanwhile.
    others: bool,
}

/// The backoff from 5 s, to which jitter adds up to a fifth.
const BACKOFF: Row = Row {
    least: 50,
    most: 62,
    told: true,
    others: true,
};
/// What ends with the connection is tried again as soon as there is another.
const RECONNECT: Row = Row {
    least: 0,
    most: 80,
    told: false,
    others: false,
};

/// A life with this fault in each RPC in turn.
async fn in_each_rpc(fault: &Fault, row: Row) {
    for rpc in RPCS {
        in_one_rpc(rpc, fault, row).await;
    }
}

async fn in_one_rpc(rpc: &'static str, fault: &Fault, row: Row) {
    let mut world = World::new(1).await;
    world
        .cloud
        .state()
        .faults
        .insert(rpc, [fault.clone()].into());
    let pace = row.others.then_some(AT_ONCE);
    world.lives(End::Deleted, pace).await;
    let waited = world.waited();
    let (least, most) = (
        Duration::from_millis(row.least * 100),
        Duration::from_millis(row.most * 100),
    );
    assert!(
        (least..=most).contains(&waited),
        "{rpc} with {fault:?}: {waited:?}"
    );
    if row.told {
        assert!(
            world.told("on purpose"),
            "{rpc} with {fault:?}: {:?}",
            world.events.recorded()
        );
    }
    // Once more than without a fault, and Ensure instead of an Update of what is not there.
    let calls = world.calls();
    let of_web = calls.iter().filter(|call| call.contains(" web "));
    assert_eq!(of_web.count(), 5, "{calls:?}");
}

/// Fault: the provider answers INVALID to Get, Ensure, Update or Delete | a Warning event tells its words; asked again when the Service or its targets change, else after 30 min
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_invalid() {
    let row = Row {
        least: 17_990,
        most: 18_010,
        ..BACKOFF
    };
    in_each_rpc(&failure(api::FailureCode::Invalid.into()), row).await;
}

/// Fault: the provider answers PRECONDITION to Get, Ensure, Update or Delete | a Warning event tells its words; asked again with backoff, 5 s to 5 min, an Update that failed as an Ensure
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_precondition() {
    in_each_rpc(&failure(api::FailureCode::Precondition.into()), BACKOFF).await;
}

/// Fault: the provider answers NOT_FOUND to Update | Ensure is called at once, which makes the load balancer anew where it is really gone; to Get, Ensure or Delete, which do not list it, it is read as INTERNAL
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_not_found() {
    let fault = failure(api::FailureCode::NotFound.into());
    for rpc in ["Get", "Ensure", "Delete"] {
        in_one_rpc(rpc, &fault, BACKOFF).await;
    }
    let row = Row {
        least: 0,
        most: 1,
        told: false,
        others: true,
    };
    in_one_rpc("Update", &fault, row).await;
}

/// Fault: the provider answers CONFLICT to Get, Ensure, Update or Delete | nothing is adopted; a Warning event tells its words; asked again after 5 min
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_conflict() {
    let row = Row {
        least: 2_990,
        most: 3_010,
        ..BACKOFF
    };
    in_each_rpc(&failure(api::FailureCode::Conflict.into()), row).await;
}

/// Fault: the provider answers BUSY to Get, Ensure, Update or Delete | asked again after 1 s to 1.5 s, five times, then with backoff and an event
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_busy() {
    let row = Row {
        least: 10,
        most: 16,
        told: false,
        others: true,
    };
    in_each_rpc(&failure(api::FailureCode::Busy.into()), row).await;
}

/// Fault: the provider answers THROTTLED to Get, Ensure, Update or Delete | a Warning event tells its words; all calls about load balancers wait for its `retry_after` (5 s without one), of every Service
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_throttled() {
    let row = Row {
        least: 50,
        most: 105,
        told: true,
        others: false,
    };
    in_each_rpc(&failure(api::FailureCode::Throttled.into()), row).await;
}

/// Fault: the provider answers CREDENTIALS to Get, Ensure, Update or Delete | told on one Service for all, at most every 10 min; one is asked again every 20 s, and the others as soon as that is answered, else after 5 min
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_credentials() {
    let row = Row {
        least: 199,
        most: 202,
        ..BACKOFF
    };
    in_each_rpc(&failure(api::FailureCode::Credentials.into()), row).await;
}

/// Fault: the provider answers UNAVAILABLE to Get, Ensure, Update or Delete | a Warning event tells its words; asked again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_unavailable() {
    in_each_rpc(&failure(api::FailureCode::Unavailable.into()), BACKOFF).await;
}

/// Fault: the provider answers NOT_INITIALIZED to Get, Ensure, Update or Delete | it is initialised again, then asked again
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_not_initialized() {
    let fault = failure(api::FailureCode::NotInitialized.into());
    in_each_rpc(&fault, RECONNECT).await;
}

/// Fault: the provider answers INTERNAL, or a code that nobody knows, to Get, Ensure, Update or Delete | a Warning event tells its words; asked again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_internal() {
    for code in [api::FailureCode::Internal.into(), 0, 4_711] {
        in_each_rpc(&failure(code), BACKOFF).await;
    }
}

/// Fault: the provider's answer to Get, Ensure, Update or Delete has no outcome | a fault of the provider: an event says so, nothing is concluded, asked again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_nothing() {
    let row = Row {
        told: false,
        ..BACKOFF
    };
    in_each_rpc(&Fault::Unset, row).await;
}

/// Fault: the provider answers a gRPC status other than OK to Get, Ensure, Update or Delete | never read as an answer: nothing is known, asked again with backoff
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_a_grpc_status() {
    let row = Row {
        told: false,
        ..BACKOFF
    };
    for code in [
        tonic::Code::Unknown,
        tonic::Code::DeadlineExceeded,
        tonic::Code::NotFound,
        tonic::Code::Unimplemented,
        tonic::Code::Unavailable,
    ] {
        in_each_rpc(&Fault::Status(code), row).await;
    }
}

/// Fault: the provider hangs in Get, Ensure, Update or Delete, and nothing is done | given up after the deadline (5 min), told, asked again with backoff; other Services are served meanwhile
#[tokio::test(start_paused = true)]
async fn fault_service_provider_hangs() {
    let row = Row {
        least: 3_050,
        most: 3_062,
        told: false,
        others: true,
    };
    in_each_rpc(&Fault::Hangs, row).await;
}

/// Fault: the provider does what Get, Ensure, Update or Delete asked for, and answers after the deadline | the answer is not heard; asked again with backoff, which finds it done: nothing is made twice
#[tokio::test(start_paused = true)]
async fn fault_service_provider_answers_late() {
    let row = Row {
        least: 3_050,
        most: 3_062,
        told: false,
        others: true,
    };
    in_each_rpc(&Fault::Late, row).await;
}

/// Fault: the provider dies in Get, Ensure, Update or Delete before it does anything | asked again as soon as it is back and initialised; the backoff is reset
#[tokio::test(start_paused = true)]
async fn fault_service_provider_dies_before_the_effect() {
    in_each_rpc(&Fault::DiesBefore, RECONNECT).await;
}

/// Fault: the provider dies in Get, Ensure, Update or Delete after its effect and before it says so | asked again as soon as it is back, which finds it done: nothing is made twice, nothing is left
#[tokio::test(start_paused = true)]
async fn fault_service_provider_dies_after_the_effect() {
    in_each_rpc(&Fault::DiesAfter, RECONNECT).await;
}

/// Fault: the provider shuts down in Get, Ensure, Update or Delete, and the next process is there at once | the call ends with its own answer; there is no other call for the Service meanwhile
#[tokio::test(start_paused = true)]
async fn fault_service_provider_shuts_down_gracefully() {
    for rpc in RPCS {
        let mut world = World::new(1).await;
        let drains = Fault::Drains(Duration::from_secs(8));
        world.cloud.state().faults.insert(rpc, [drains].into());
        let pace = (rpc == "Ensure").then_some(Duration::from_secs(4));
        world.lives(End::Deleted, pace).await;
        let state = world.cloud.state();
        assert_eq!(state.overlaps, 0, "{:?}", state.calls);
        let of_web = state.log.iter().filter(|call| call.name == "web");
        let calls: Vec<&str> = of_web.map(|call| call.rpc).collect();
        assert_eq!(calls, ["Ensure", "Get", "Update", "Delete"], "{rpc} drains");
    }
}

/// Fault: the provider fails again and again | asked ever less often, with at most 5 min between two tries, until it works
#[tokio::test(start_paused = true)]
async fn fault_service_provider_fails_for_an_hour() {
    let mut world = World::new(1).await;
    let down = failure(api::FailureCode::Unavailable.into());
    let many: std::collections::VecDeque<_> = std::iter::repeat_n(down, 12).collect();
    world.cloud.state().faults.insert("Ensure", many);
    world.lives(End::Deleted, Some(AT_ONCE)).await;
    let state = world.cloud.state();
    let at: Vec<_> = state
        .log
        .iter()
        .filter(|call| call.name == "web" && call.rpc == "Ensure")
        .map(|call| call.at)
        .collect();
    let gaps: Vec<u64> = at
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs())
        .collect();
    assert_eq!(gaps.len(), 12);
    assert!(gaps[0] < 6 && (225..=301).contains(&gaps[11]), "{gaps:?}");
}
