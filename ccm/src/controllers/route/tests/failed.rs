//! When a Node's condition says that its routes are missing (B-R4, ▲R4).

use super::*;

const NOW: Duration = Duration::from_secs(1);
/// The longest time to the next list. After some failures only a list shows the result.
const LIST: Duration = Duration::from_secs(11);

/// How long after the first call the condition is set. Checks that later attempts do not change the
/// condition, and that the route is created in the end.
async fn set_after(fault: Fault) -> Duration {
    let shown = format!("{fault:?}");
    let mut world = World::of_days(1).await;
    world.lead().await;
    world.until("at rest", |world| world.all_created(1)).await;
    sleep(Duration::from_mins(1)).await;
    let creates = world.creates();
    world.fault(fault);
    world.join(1);
    world
        .until("tried", |world| world.creates() > creates)
        .await;
    let set = |world: &World| world.condition(1) == "True NoRouteCreated";
    let after = world.until(&shown, set).await;
    sleep(Duration::from_mins(2)).await;
    assert_eq!(world.condition(0), "False RouteCreated", "{shown}");
    assert_eq!(world.api.writes().len(), 2, "{shown}");
    world.cloud.clear_faults();
    // After a failure that only a change can fix, the ccm waits for a change, or for half an hour.
    sleep(Duration::from_mins(31)).await;
    assert!(world.all_created(2), "{shown}");
    assert_eq!(world.api.writes().len(), 3, "{shown}: one for each change");
    after
}

#[tokio::test(start_paused = true)]
async fn b_r4_r4_the_condition_is_set_at_the_first_failure() {
    let codes = [
        (FailureCode::Invalid, NOW),
        (FailureCode::Precondition, NOW),
        (FailureCode::Conflict, NOW),
        (FailureCode::Throttled, NOW),
        (FailureCode::Credentials, NOW),
        (FailureCode::Unavailable, NOW),
        (FailureCode::Internal, NOW),
        // Another operation usually ends in a moment, so the quick attempts count as one.
        (FailureCode::Busy, Duration::from_secs(8)),
    ];
    for (code, most) in codes {
        let fault = Fault::failure("CreateRoutes", code);
        let after = set_after(fault.clone().subject(cidr(1))).await;
        assert!(after <= most, "{code:?}: {after:?}");
        let after = set_after(fault).await;
        assert!(after <= NOW, "{code:?}, the call as a whole: {after:?}");
    }
    // A missing answer proves nothing about the route.
    let after = set_after(Fault::status("CreateRoutes", tonic::Code::Unknown)).await;
    assert!(after <= LIST, "{after:?}");
    let after = set_after(Fault::new("CreateRoutes", FaultKind::Hang)).await;
    assert!(after <= Duration::from_mins(2) + LIST, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn r4_a_provider_that_goes_away_with_the_call_makes_no_condition_flap() {
    for fault in [
        Fault::failure("CreateRoutes", FailureCode::NotInitialized),
        Fault::new("CreateRoutes", FaultKind::Crash),
        Fault::new("CreateRoutes", FaultKind::CrashAfter),
    ] {
        let shown = format!("{fault:?}");
        let world = World::started(1, |_| {}).await;
        world.until("at rest", |world| world.all_created(1)).await;
        let creates = world.creates();
        world.fault(fault.times(1));
        world.join(1);
        world
            .until("tried", |world| world.creates() > creates)
            .await;
        sleep(Duration::from_secs(3)).await;
        start(&world.process, &world.cloud).await;
        world.until("made", |world| world.all_created(2)).await;
        assert_eq!(world.api.writes().len(), 2, "{shown}");
    }
    // Every call with this route kills the provider: the second failure counts.
    let world = World::started(1, |_| {}).await;
    world.until("at rest", |world| world.all_created(1)).await;
    world.fault(Fault::new("CreateRoutes", FaultKind::Crash));
    world.join(1);
    for crashes in 2..=3 {
        world
            .until("tried", |world| world.creates() >= crashes)
            .await;
        assert_eq!(world.condition(1), "");
        sleep(Duration::from_secs(3)).await;
        start(&world.process, &world.cloud).await;
    }
    world
        .until("set", |world| world.condition(1) == "True NoRouteCreated")
        .await;
    assert_eq!(world.creates(), 4, "the list before the third try says so");
}

/// The ccm made no attempt, so the state of the routes is unknown.
#[tokio::test(start_paused = true)]
async fn r4_who_only_waits_for_the_provider_keeps_the_condition_that_it_has() {
    let world = World::started(1, |_| {}).await;
    world.until("routes", |world| world.all_created(1)).await;
    let writes = world.api.writes().len();
    world.fault(Fault::failure("ListRoutes", FailureCode::Throttled));
    world.join(1);
    sleep(Duration::from_mins(5)).await;
    world.process.kill();
    world.join(2);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(world.condition(0), "False RouteCreated");
    assert_eq!((world.condition(1), world.condition(2)), Default::default());
    assert_eq!(world.api.writes().len(), writes);
}
