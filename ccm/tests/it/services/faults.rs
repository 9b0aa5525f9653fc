//! Every row of the contract's table of failures, on Ensure.

use std::time::Duration;

use provider_mock::fixture::FailureSpec;
use provider_mock::{Fault, FaultKind, Fixture};
use provider_sdk::FailureCode as Code;

use testenv::objects::ingress;

use super::{DELETE, ENSURE, GET, balancer, stored_handle, subject};
use crate::world::World;

/// How a Service is retried after failed calls.
enum Again {
    /// Each failure is followed by a call. The shortest time until then is between these two, in
    /// milliseconds.
    Between(u64, u64),
    /// For INVALID: not in the time of this test, unless the Service changes.
    WhenChanged,
    /// For CONFLICT: not in the time of this test, unless the Service changes.
    MuchLater,
}
use Again::{Between, MuchLater, WhenChanged};

/// The first backoff: 5 s and a jitter of up to a fifth more. The bounds leave room for a slow
/// machine. The upper limit of each kind is below the time of the next slower kind: 1 s, 5 s, 20 s,
/// 5 min.
const BACKOFF: Again = Between(3_700, 19_000);

/// Name, code, how often Ensure fails, whether an event reports it, and when the next try follows.
const ROWS: &[(&str, Code, u32, bool, Again)] = &[
    ("invalid", Code::Invalid, 1, true, WhenChanged),
    ("precondition", Code::Precondition, 1, true, BACKOFF),
    ("not-found", Code::NotFound, 1, true, BACKOFF),
    ("conflict", Code::Conflict, 1, true, MuchLater),
    ("busy", Code::Busy, 3, false, Between(1_000, 4_900)),
    // After 20 s the ccm tries one Service on behalf of all.
    (
        "credentials",
        Code::Credentials,
        1,
        false,
        Between(19_900, 60_000),
    ),
    ("unavailable", Code::Unavailable, 1, true, BACKOFF),
    ("internal", Code::Internal, 1, true, BACKOFF),
];

/// Answers that break the contract. An event reports each.
const BROKEN: &[(&str, FaultKind)] = &[
    ("garbage", FaultKind::Garbage),
    ("oversized", FaultKind::Oversized),
    ("unset", FaultKind::UnsetOutcome),
    ("empty", FaultKind::EmptyAnswer),
    ("no-address", FaultKind::IngressAddress),
    ("nowhere", FaultKind::IngressAddress),
    ("long-text", FaultKind::LongText),
    ("long-handle", FaultKind::Handle),
];

/// Answers that decide nothing. The first such failure gets no event.
fn silent() -> [(&'static str, Fault); 2] {
    [
        (
            "status",
            Fault::status(ENSURE, tonic::Code::InvalidArgument),
        ),
        ("no-answer", Fault::new(ENSURE, FaultKind::NoAnswer)),
    ]
}

#[tokio::test]
async fn every_failure_code_on_ensure_is_told_and_retried_as_the_contract_says() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    set_faults(&world);
    let silent = silent();
    let names: Vec<&str> = ROWS
        .iter()
        .map(|row| row.0)
        .chain(BROKEN.iter().map(|row| row.0))
        .chain(silent.iter().map(|row| row.0))
        .chain(["its-own-delay", "half-made"])
        .collect();
    for name in &names {
        world.create_service(balancer(name)).await;
    }
    let half_made = world
        .service_becomes("half-made", "has a handle", |service| {
            stored_handle(service).is_some()
        })
        .await;
    assert_eq!(ingress(&half_made), None);
    assert_eq!(world.times(ENSURE, "half-made"), 1);
    // Another Service is served meanwhile.
    world.later_one_is_served("later").await;

    told_and_retried(&world).await;
    for (name, kind) in BROKEN {
        world.shows_address(name).await;
        let words = "Warning SyncLoadBalancerFailed Error syncing load balancer: failed to ensure load balancer: ";
        let event = world.event(name, words).await;
        assert!(event.len() > words.len(), "{kind}: {event}");
        assert_eq!(world.times(ENSURE, name), 2, "{kind}");
    }
    for (name, _) in silent {
        world.shows_address(name).await;
        assert_eq!(world.times(ENSURE, name), 2, "{name}");
        let events = world.events(name).await;
        assert!(
            !events
                .iter()
                .any(|event| event.contains("SyncLoadBalancerFailed")),
            "{name}: {events:?}"
        );
    }
    world.shows_address("its-own-delay").await;
    let calls = world.asked(ENSURE, "its-own-delay");
    let waited = calls[1].at_ms - calls[0].at_ms;
    assert!(waited >= 12_000, "{calls:?}");
    let done = world.shows_address("half-made").await;
    assert_eq!(stored_handle(&done), stored_handle(&half_made));

    // All backoffs are over now. The ccm has not called Ensure again for these rows.
    world.renewals(2).await;
    for (name, code, _, _, again) in ROWS {
        if matches!(again, WhenChanged | MuchLater) {
            assert_eq!(world.times(ENSURE, name), 1, "{code:?}");
            // After a change of the Service the ccm calls Ensure in any case.
            world.annotate(name, "example.com/any", "1").await;
            world.shows_address(name).await;
            assert_eq!(world.times(ENSURE, name), 2, "{code:?}");
        }
    }
    assert_eq!(world.cloud().load_balancers().len(), names.len() + 1);
}

fn set_faults(world: &World) {
    for (name, code, times, ..) in ROWS {
        world.fault(
            Fault::failure(ENSURE, *code)
                .subject(subject(name))
                .times(*times),
        );
    }
    for (name, kind) in &BROKEN[..2] {
        let fault = Fault::new(ENSURE, *kind).subject(subject(name)).times(1);
        world.fault(fault);
    }
    world.fault(
        Fault::new(ENSURE, FaultKind::UnsetOutcome)
            .subject(subject("unset"))
            .times(1),
    );
    world.fault(
        Fault::new(ENSURE, FaultKind::EmptyAnswer)
            .subject(subject("empty"))
            .times(1),
    );
    world.fault(
        Fault::new(ENSURE, FaultKind::IngressAddress)
            .value("not an address")
            .subject(subject("no-address"))
            .times(1),
    );
    world.fault(
        Fault::new(ENSURE, FaultKind::IngressAddress)
            .subject(subject("nowhere"))
            .times(1),
    );
    world.fault(
        Fault::new(ENSURE, FaultKind::LongText)
            .subject(subject("long-text"))
            .times(1),
    );
    world.fault(
        Fault::new(ENSURE, FaultKind::Handle)
            .value("h".repeat(1_025))
            .subject(subject("long-handle"))
            .times(1),
    );
    for (name, fault) in silent() {
        world.fault(fault.subject(subject(name)).times(1));
    }
    // The provider's own delay replaces the table's.
    let late = FailureSpec::new(Code::Internal).retry_after(Duration::from_secs(12));
    world.fault(
        Fault::new(ENSURE, FaultKind::Failure)
            .with_failure(late)
            .subject(subject("its-own-delay"))
            .times(1),
    );
    // A failure does not undo the creation: the handle is stored.
    world.fault(
        Fault::new(ENSURE, FaultKind::FailureAfter)
            .subject(subject("half-made"))
            .times(1),
    );
}

async fn told_and_retried(world: &World) {
    for (name, code, times, told, again) in ROWS {
        let event = "Warning SyncLoadBalancerFailed Error syncing load balancer: failed to ensure load balancer: scripted by the mock";
        if *told {
            world.event(name, event).await;
        }
        match again {
            Between(least, most) => {
                world.shows_address(name).await;
                let calls = world.asked(ENSURE, name);
                assert_eq!(calls.len(), *times as usize + 1, "{code:?}: {calls:?}");
                let gaps = calls.windows(2).map(|pair| pair[1].at_ms - pair[0].at_ms);
                // A stall of the machine makes one gap longer.
                let shortest = gaps.min().unwrap();
                assert!((*least..*most).contains(&shortest), "{code:?}: {calls:?}");
            }
            WhenChanged | MuchLater => {}
        }
        if !told {
            let events = world.events(name).await;
            assert!(
                !events
                    .iter()
                    .any(|event| event.contains("SyncLoadBalancerFailed")),
                "{code:?}: {events:?}"
            );
        }
    }
}

#[tokio::test]
async fn throttled_slows_all_services_and_not_initialized_initialises_again() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    world.balanced("first").await;
    let slow = FailureSpec::new(Code::Throttled).retry_after(Duration::from_secs(3));
    world.fault(
        Fault::new(ENSURE, FaultKind::Failure)
            .with_failure(slow)
            .subject(subject("throttled"))
            .times(1),
    );
    world.create_service(balancer("throttled")).await;
    world.asked_times(ENSURE, "throttled", 1).await;
    let at = world.asked(ENSURE, "throttled")[0].at_ms;
    world.balanced("other").await;
    world.annotate("first", "example.com/any", "1").await;
    world.delete_service("first").await;
    world.service_goes("first").await;
    world.shows_address("throttled").await;
    let others = [world.asked(ENSURE, "other"), world.asked(DELETE, "first")].concat();
    assert!(!others.is_empty());
    for call in others.iter().chain(&world.asked(ENSURE, "throttled")[1..]) {
        let waited = call.at_ms - at;
        assert!((2_900..20_000).contains(&waited), "{waited} ms: {call:?}");
    }
    world
        .event("throttled", "Warning SyncLoadBalancerFailed")
        .await;

    let initialized = world.cloud().call_count("Initialize");
    world.cloud().forget_initialize();
    world.balanced("after").await;
    assert_eq!(world.cloud().call_count("Initialize"), initialized + 1);
    let calls = world.asked(ENSURE, "after");
    assert_eq!(calls[0].outcome, "failed:NOT_INITIALIZED");
    // Sooner than after a backoff.
    assert!(calls[1].at_ms - calls[0].at_ms < 4_900, "{calls:?}");
    let events = world.events("after").await;
    assert!(
        !events.iter().any(|event| event.contains("Failed")),
        "{events:?}"
    );
}

#[tokio::test]
async fn s13_trouble_of_get_is_no_reason_to_write() {
    let (mut world, mut ccm) = World::with_ccm(Fixture::default()).await;
    let names = ["failed", "status", "unset", "in-two-minds", "fine"];
    for name in names {
        world.balanced(name).await;
    }
    world.crash(&mut ccm).await;
    world.cloud().reset_calls();
    let soon = FailureSpec::new(Code::Internal).retry_after(Duration::from_secs(1));
    world.fault(
        Fault::new(GET, FaultKind::Failure)
            .with_failure(soon)
            .subject(subject("failed"))
            .times(2),
    );
    world.fault(
        Fault::status(GET, tonic::Code::NotFound)
            .subject(subject("status"))
            .times(1),
    );
    world.fault(
        Fault::new(GET, FaultKind::UnsetOutcome)
            .subject(subject("unset"))
            .times(1),
    );
    // Get answers that the load balancer is not in sync, although it is: the ccm calls Ensure,
    // which writes nothing.
    world.fault(
        Fault::new(GET, FaultKind::InSync)
            .value("false")
            .subject(subject("in-two-minds")),
    );
    let _ccm = world.ccm(&[]);
    for (name, times) in [
        ("failed", 3),
        ("status", 2),
        ("unset", 2),
        ("in-two-minds", 1),
        ("fine", 1),
    ] {
        world.asked_times(GET, name, times).await;
    }
    world.asked_times(ENSURE, "in-two-minds", 1).await;
    world.later_one_is_served("later").await;
    for (name, ensures) in [
        ("failed", 0),
        ("status", 0),
        ("unset", 0),
        ("in-two-minds", 1),
        ("fine", 0),
    ] {
        assert_eq!(world.times(ENSURE, name), ensures, "{name}");
    }
    assert_eq!(
        world.cloud().cloud_writes(),
        1,
        "{:?}",
        world.cloud().writes()
    );
    assert_eq!(world.cloud().load_balancers().len(), names.len() + 1);
}
