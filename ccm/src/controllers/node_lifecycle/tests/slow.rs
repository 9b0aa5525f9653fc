//! Lookups that are answered slowly, late or never, and how long they delay other Nodes (▲M10).

use super::*;

#[tokio::test(start_paused = true)]
async fn m10_a_node_whose_lookup_hangs_keeps_no_other_waiting() {
    let looping = Looping::start(200).await;
    looping.cloud.state().hang.insert("n0005".to_owned());
    looping.down([5], api::InstanceState::Running);
    looping.down([3], api::InstanceState::Absent);
    looping.down(10..150, api::InstanceState::Running);
    // The ccm does not know yet which lookup hangs. So the other Nodes wait for at most two
    // deadlines and two passes.
    let took = looping.until("deleted", |this| this.left() == 199).await;
    assert!(took <= 2 * DEADLINE + 2 * PERIOD + SOON, "{took:?}");
    // Now the ccm knows.
    tokio::time::sleep(Duration::from_mins(1)).await;
    for next in [4, 7] {
        looping.down([next], api::InstanceState::Absent);
        let left = looping.left();
        let took = looping.until("next", |this| this.left() < left).await;
        assert!(took <= 3 * PERIOD + SOON, "{took:?}");
        tokio::time::sleep(Duration::from_mins(11)).await;
    }
    // The ccm asks about n0005 alone.
    let lookups = looping.cloud.state().lookups.clone();
    let last = &lookups[lookups.len() - 20..];
    assert!(
        last.iter()
            .all(|names| names.len() == 1 || !names.iter().any(|name| name == "n0005")),
        "{last:?}"
    );
    // When its lookups are answered again, the ccm treats n0005 like all other Nodes.
    looping.cloud.state().hang.clear();
    looping.down([5], api::InstanceState::Absent);
    looping.until("it too", |this| this.left() == 196).await;
}

#[tokio::test(start_paused = true)]
async fn m10_many_nodes_whose_lookups_hang_keep_no_other_waiting() {
    let looping = Looping::start(200).await;
    // The lookups of every third Node hang, so each batch has some.
    let zone = (0..100).filter(|i| i % 3 == 0);
    let hang = zone.map(|i| format!("n{i:04}"));
    looping.cloud.state().hang.extend(hang);
    looping.down(0..100, api::InstanceState::Running);
    looping.down([50], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 199).await;
    assert!(took <= Duration::from_mins(7), "{took:?}");
    tokio::time::sleep(Duration::from_mins(5)).await;
    looping.down([52], api::InstanceState::Absent);
    // The Node has been not Ready for so long that the ccm asks about it every half minute.
    let took = looping.until("next", |this| this.left() == 198).await;
    assert!(took <= 8 * PERIOD, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn m10_a_slow_answer_about_one_node_counts_and_holds_nobody_up() {
    let looping = Looping::start(20).await;
    let slow = ("n0003".to_owned(), Duration::from_secs(30));
    looping.cloud.state().slow.insert(slow.0, slow.1);
    looping.down([3], api::InstanceState::Absent);
    looping.down([5], api::InstanceState::Absent);
    let gone = |name: &'static str| move |this: &Looping| this.api.node(name).is_none();
    // One call asks about n0003 and n0005.
    let took = looping.until("the other", gone("n0005")).await;
    assert!(took <= Duration::from_mins(1) + 3 * PERIOD, "{took:?}");
    let about: Vec<Instant> = {
        let state = looping.cloud.state();
        let calls = state.lookups.iter().zip(&state.times);
        let about = calls.filter(|(names, _)| names.iter().any(|name| name == "n0005"));
        about.map(|(_, at)| *at).collect()
    };
    assert!(
        about[1] - about[0] >= Duration::from_secs(30) + PERIOD,
        "it is asked about again a period after its answer was judged: {about:?}"
    );
    let took = looping.until("the slow one", gone("n0003")).await;
    assert!(took <= Duration::from_mins(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn m10_a_provider_that_is_slow_is_waited_for() {
    for seconds in [9, 12, 30, 50] {
        let looping = Looping::start(300).await;
        looping.cloud.state().delay = Duration::from_secs(seconds);
        looping.down(1..280, api::InstanceState::Running);
        looping.down([0], api::InstanceState::Absent);
        let what = format!("deleted at {seconds} s a call");
        let took = looping.until(&what, |this| this.left() == 299).await;
        assert!(took <= Duration::from_mins(5), "{seconds} s: {took:?}");
        // The ccm still sends large batches.
        let lookups = looping.cloud.state().lookups.clone();
        let before = lookups.len();
        tokio::time::sleep(Duration::from_mins(10)).await;
        let lookups = looping.cloud.state().lookups.split_off(before);
        assert!(
            lookups.iter().all(|names| names.len() > 50),
            "{seconds} s: {:?}",
            lookups.iter().map(Vec::len).collect::<Vec<_>>()
        );
    }
}

/// The provider raises the deadline of its lookups.
#[tokio::test(start_paused = true)]
async fn m10_a_lookup_may_take_as_long_as_its_deadline() {
    for minutes in [4, 14] {
        let takes = Duration::from_mins(minutes);
        let (looping, _) = Looping::start_with(20, PROBE_PERIOD, |cloud| {
            let deadline = takes + DEADLINE;
            cloud.delay = takes;
            cloud.deadlines.lookup = Some(deadline.try_into().unwrap());
        })
        .await;
        looping.down([3], api::InstanceState::Absent);
        // Three lookups: the Node, its witness, then both together.
        let took = looping.until("deleted", |this| this.left() == 19).await;
        assert!(took <= 3 * takes + 3 * PERIOD, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn m10_one_call_at_a_time_is_enough() {
    let (looping, cloud) = Looping::start_offering(40, |offered| {
        offered.max_in_flight = Some(1);
        offered.max_batch = Some(10);
    })
    .await;
    cloud.state().hang.insert("n0005".to_owned());
    looping.down(5..25, api::InstanceState::Running);
    looping.down([3], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 39).await;
    assert!(took <= Duration::from_mins(2), "{took:?}");
    tokio::time::sleep(Duration::from_mins(11)).await;
    looping.down([4], api::InstanceState::Absent);
    let took = looping.until("next", |this| this.left() == 38).await;
    assert!(took <= 6 * PERIOD, "{took:?}");
}

/// The node controller initialises Nodes within the same `max_in_flight`.
#[tokio::test(start_paused = true)]
async fn m10_slow_calls_of_a_pass_leave_a_place_to_a_node_that_is_initialised() {
    for places in [2, 8] {
        let (looping, cloud) = Looping::start_offering(40, |offered| {
            offered.max_in_flight = Some(places);
            offered.max_batch = Some(1);
        })
        .await;
        let slow = (0..20).map(|i| (format!("n{i:04}"), Duration::from_secs(50)));
        cloud.state().slow.extend(slow);
        looping.down(0..20, api::InstanceState::Running);
        looping.until("asked", |this| this.lookups() > 0).await;
        // Calls of the pass wait for a place.
        tokio::time::sleep(PERIOD).await;
        assert_eq!(looping.lookups() + 1, usize::try_from(places).unwrap());
        let session = looping.provider.session().await;
        let new = node(100, "Unknown");
        let (nodes, facets) = ([&new], [api::InstanceFacet::Metadata]);
        let lookup = session.lookup_instances(&nodes, &facets, Duration::ZERO);
        let found = tokio::time::timeout(SOON, lookup).await;
        let found = found.expect("a place is free").unwrap();
        assert!(found[0].is_ok(), "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn l6_where_no_node_is_ready_a_slow_answer_vouches_too() {
    let (looping, cloud) = Looping::start_offering(5, |offered| {
        offered.max_in_flight = Some(1);
        offered.max_batch = Some(1);
    })
    .await;
    cloud.state().delay = Duration::from_secs(20);
    looping.down(1..5, api::InstanceState::Running);
    looping.down([0], api::InstanceState::Absent);
    // The ccm asks about n0000 first. When that answer comes, no other Node has an answer yet.
    let took = looping.until("deleted", |this| this.left() == 4).await;
    assert!(took <= Duration::from_mins(20), "{took:?}");
    assert!(looping.api.node("n0000").is_none());
}

/// `down` Nodes are not Ready, and one of them has no instance. A call takes `per_node` longer for
/// each of its Nodes.
async fn goes_in_time(down: usize, per_node: Duration, batch: u32) {
    let offer = |offered: &mut api::InstanceCapability| {
        offered.max_batch = Some(batch);
        offered.max_in_flight = Some(8);
    };
    let (looping, cloud) = Looping::start_offering(120, offer).await;
    cloud.state().per_node = per_node;
    looping.down(0..down, api::InstanceState::Running);
    looping.down([7], api::InstanceState::Absent);
    let what = format!("deleted of {down} at {per_node:?} each in batches of {batch}");
    let took = looping.until(&what, |this| this.left() == 119).await;
    assert!(took <= Duration::from_mins(5), "{took:?}");
    assert!(looping.api.node("n0007").is_none());
}

#[tokio::test(start_paused = true)]
async fn m10_a_provider_whose_latency_grows_with_the_batch_is_waited_for() {
    goes_in_time(97, Duration::from_millis(200), 100).await;
    goes_in_time(96, Duration::from_millis(400), 100).await;
}

/// A witness whose lookup hangs is drawn with others, which vouch.
#[tokio::test(start_paused = true)]
async fn m10_a_witness_that_hangs_makes_no_later_pass_void() {
    let (looping, cloud) = Looping::start_offering(20, |offered| {
        offered.max_batch = Some(1);
        offered.max_in_flight = Some(8);
    })
    .await;
    cloud.state().hang.insert("n0019".to_owned());
    looping.down(0..3, api::InstanceState::Absent);
    looping.until("asked", |this| this.lookups() > 3).await;
    for number in 3..12 {
        looping.down([number], api::InstanceState::Absent);
        tokio::time::sleep(2 * PERIOD).await;
    }
    tokio::time::sleep(2 * DEADLINE).await;
    assert_eq!(looping.metrics.voids("mock"), 0);
}

/// The witnesses answer in an earlier call than most of the Nodes that they vouch for.
#[tokio::test(start_paused = true)]
async fn m10_many_absent_nodes_in_several_calls_have_their_witnesses() {
    for (batch, places) in [(1, 8), (1, 1), (4, 3)] {
        let offer = |offered: &mut api::InstanceCapability| {
            offered.max_batch = Some(batch);
            offered.max_in_flight = Some(places);
        };
        let (looping, cloud) = Looping::start_offering(60, offer).await;
        cloud.state().delay = Duration::from_millis(200);
        looping.down(0..10, api::InstanceState::Absent);
        // The brake holds them for a quarter of an hour.
        let took = looping.until("deleted", |this| this.left() < 60).await;
        assert!(
            took <= Duration::from_mins(18),
            "{batch} {places}: {took:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn m10_a_provider_without_batches_is_waited_for() {
    goes_in_time(96, Duration::from_millis(400), 1).await;
    goes_in_time(96, Duration::from_secs(2), 1).await;
    goes_in_time(96, Duration::from_millis(400), 48).await;
}
