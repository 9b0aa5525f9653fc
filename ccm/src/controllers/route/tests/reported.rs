//! Events for users while a Node's routes cannot be created.

use super::*;

fn reported(world: &World, i: usize) -> Vec<String> {
    let about = format!(" {}: ", name(i));
    let mut events = world.events();
    events.retain(|event| event.contains(&about));
    events
}

#[tokio::test(start_paused = true)]
async fn b_r5_r9_a_cloud_that_fails_for_everybody_is_told_on_each_node_that_waits() {
    for (code, at_once) in [
        (FailureCode::Unavailable, true),
        (FailureCode::Throttled, true),
        (FailureCode::Credentials, false),
    ] {
        let world = World::started(0, |_| {}).await;
        world.fault(Fault::failure("CreateRoutes", code));
        for i in 0..20 {
            world.join(i);
        }
        sleep(Duration::from_secs(5)).await;
        let events = world.events();
        let first = if at_once { 20 } else { 0 };
        assert_eq!(events.len(), first, "{code:?} {events:?}");
        sleep(Duration::from_secs(50)).await;
        for i in 0..20 {
            let events = reported(&world, i);
            assert_eq!(events.len(), 1, "{code:?} {events:?}");
            for part in [
                "Warning FailedToCreateRoute",
                "Could not create route ",
                &format!(" {} for node {} after ", cidr(i), name(i)),
                "scripted by the mock",
                " from CreateRoutes of provider mock, attempt ",
                ", next try at 1970-",
            ] {
                assert!(events[0].contains(part), "{part:?}: {events:?}");
            }
        }
        assert_eq!(world.failing(), 20, "{code:?}");
        world.cloud.clear_faults();
        world
            .until("made", |world| world.routed(20) && world.all_created(20))
            .await;
        let events = world.events();
        sleep(Duration::from_mins(30)).await;
        assert_eq!(world.events(), events, "{code:?}: nothing waits any more");
        assert_eq!(world.failing(), 0, "{code:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn r9_a_provider_that_goes_away_is_what_is_told_then() {
    let world = World::started(0, |_| {}).await;
    world.fault(Fault::failure("CreateRoutes", FailureCode::Unavailable).subject(cidr(1)));
    for i in 0..3 {
        world.join(i);
    }
    world
        .until("it failed", |world| {
            world.condition(1) == "True NoRouteCreated"
        })
        .await;
    world.process.kill();
    sleep(Duration::from_secs(50)).await;
    let events = reported(&world, 1);
    let text =
        "Could not create route 10.8.1.0/24 for node n0001: provider mock is not available: ";
    assert!(
        events.len() == 1 && events[0].contains(text),
        "{:?}",
        world.events()
    );
    // A Node whose routes exist gets no event.
    assert_eq!(world.events().len(), 1, "{:?}", world.events());
    // A deleted Node waits no longer.
    world.api.delete(&name(1));
    sleep(Duration::from_mins(30)).await;
    assert_eq!(reported(&world, 1), events);
}
