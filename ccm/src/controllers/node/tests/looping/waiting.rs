//! What the event of a Node says while the Node waits (▲N13), and how long lookups that hang delay
//! other Nodes (▲M10).

use super::*;
use crate::controllers::node::testing::Fault;

#[tokio::test(start_paused = true)]
async fn n13_a_node_whose_zone_is_looked_up_is_told_of_lookup_zones() {
    let cloud = Cloud::new();
    let zones = Zones {
        hang: ["n0000".to_owned()].into(),
        ..Zones::default()
    };
    cloud.state().zones = Some(zones);
    let looping = Looping::start_on(cloud, 1, |_| {}).await;
    for what in [
        "has not answered LookupZones yet",
        "no answer in time from LookupZones of provider",
    ] {
        looping.until(what, |this| this.tells(&[what])).await;
    }
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn n13_a_node_that_comes_back_after_unmanaged_is_told_what_it_waits_for() {
    let looping = Looping::start(0).await;
    let state = |state| {
        let states = &mut looping.cloud.state().states;
        states.insert("n0000".to_owned(), state);
    };
    state(api::InstanceState::Unmanaged);
    looping.api.put(&fresh("n0000"));
    looping.until("asked", |this| this.sizes().len() == 1).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    state(api::InstanceState::Absent);
    looping.context.hints.send(Hint::Resync).unwrap();
    let hint = Hint::Instance {
        provider_id: String::new(),
        node_name: "n0000".to_owned(),
    };
    looping.context.hints.send(hint).unwrap();
    let told = |this: &Looping| this.tells(&["NodeNotInitialized", "n0000"]);
    looping
        .until_at_most("told", Duration::from_mins(2), told)
        .await;
    looping.stop().await;
}

/// The Nodes that are known to hang take one of the four places.
#[tokio::test(start_paused = true)]
async fn m10_nodes_whose_lookups_hang_leave_places_to_a_new_node() {
    let cloud = Cloud::new();
    cloud.state().offered.max_in_flight = Some(4);
    let hang: Vec<String> = (0..40).map(|i| format!("n{i:04}")).collect();
    cloud.state().hang.extend(hang.iter().cloned());
    let looping = Looping::start_on(cloud, 0, |_| {}).await;
    looping.api.put(&fresh("old"));
    looping.until("old", |this| this.uninitialized() == 0).await;
    for name in &hang {
        looping.api.put(&fresh(name));
    }
    // Each of them is known to hang now.
    tokio::time::sleep(Duration::from_mins(30)).await;
    for i in 0..4 {
        // At different moments of the calls that hang.
        tokio::time::sleep(Duration::from_secs(17)).await;
        looping.api.put(&fresh(&format!("new{i}")));
        let ready = |this: &Looping| this.uninitialized() == 40;
        looping
            .until_at_most("initialised", Duration::from_secs(10), ready)
            .await;
    }
    // Refreshes do not queue behind them either.
    let asked = |this: &Looping| {
        let lookups = this.cloud.state().lookups.clone();
        let about = lookups.iter().flatten().filter(|name| *name == "old");
        about.count()
    };
    let before = asked(&looping);
    let again = |this: &Looping| asked(this) > before;
    looping
        .until_at_most("refreshed", Duration::from_mins(6), again)
        .await;
    looping.stop().await;
}

/// Four lookups at once, and forty initialised Nodes that are known to hang.
async fn with_refreshes_that_hang() -> Looping {
    let cloud = Cloud::new();
    cloud.state().offered.max_in_flight = Some(4);
    let looping = Looping::start_on(cloud, 40, |_| {}).await;
    looping.until("all", |this| this.uninitialized() == 0).await;
    let hang = (0..40).map(|i| format!("n{i:04}"));
    looping.cloud.state().hang.extend(hang);
    tokio::time::sleep(Duration::from_mins(30)).await;
    looping
}

#[tokio::test(start_paused = true)]
async fn m10_new_nodes_of_a_late_call_do_not_wait_for_refreshes_that_hang() {
    let looping = with_refreshes_that_hang().await;
    looping.cloud.state().hang.insert("new0".to_owned());
    for i in 0..5 {
        looping.api.put(&fresh(&format!("new{i}")));
    }
    let took = looping
        .until("the others", |this| this.uninitialized() == 1)
        .await;
    assert!(took <= Duration::from_secs(62), "one deadline: {took:?}");
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn isolated_nodes_are_refreshed_in_turns_and_as_they_are_then() {
    let looping = with_refreshes_that_hang().await;
    looping.api.delete("n0039");
    let before = looping.sizes().len();
    tokio::time::sleep(Duration::from_mins(90)).await;
    let lookups = looping.cloud.state().lookups.split_off(before);
    let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
    for name in lookups.iter().flatten() {
        *asked.entry(name).or_default() += 1;
    }
    assert!(!asked.contains_key("n0039"), "it is gone");
    assert!(
        asked.len() == 39 && asked.values().all(|times| (1..=4).contains(times)),
        "each has its turn: {asked:?}"
    );
    // The cloud answers again.
    looping.cloud.state().hang.clear();
    tokio::time::sleep(Duration::from_mins(12)).await;
    let last = looping.cloud.state().lookups.pop();
    assert_eq!(last.map(|names| names.len()), Some(39), "none is isolated");
    looping.stop().await;
}

/// Each batch of five has one Node that hangs.
#[tokio::test(start_paused = true)]
async fn m10_batches_that_are_late_leave_the_queue_to_a_new_node() {
    let cloud = Cloud::new();
    cloud.state().offered.max_in_flight = Some(4);
    cloud.state().offered.max_batch = Some(5);
    let hang = (0..20).step_by(5).map(|i| format!("n{i:04}"));
    cloud.state().hang.extend(hang);
    let looping = Looping::start_on(cloud, 20, |_| {}).await;
    looping.until("asked", |this| this.sizes() == [5; 4]).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    looping.api.put(&fresh("new"));
    let initialised = |this: &Looping| {
        let node = this.api.node("new");
        node.is_some_and(|node| !plan::is_uninitialized(&node))
    };
    let took = looping.until("initialised", initialised).await;
    assert!(took <= Duration::from_secs(32), "one deadline: {took:?}");
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn n13_a_node_that_waits_because_the_cloud_asked_to_slow_down_is_told_so() {
    let looping = Looping::start(0).await;
    looping.cloud.state().failures = [api::FailureCode::Throttled].into();
    looping.cloud.state().retry_after = Some(Duration::from_mins(2));
    looping.api.put(&fresh("n0000"));
    looping
        .until("throttled", |this| this.sizes().len() == 1)
        .await;
    looping.api.put(&fresh("n0001"));
    let told = |this: &Looping| this.tells(&["n0001", "to slow down: all its new"]);
    looping
        .until_at_most("told", Duration::from_mins(1), told)
        .await;
    looping.until("all", |this| this.uninitialized() == 0).await;
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn n13_a_node_whose_write_waits_for_the_api_server_is_told_so() {
    let looping = Looping::start(0).await;
    looping.api.faults.writes(1, 250, Fault::Hangs);
    for i in 0..250 {
        looping.api.put(&fresh(&format!("n{i:04}")));
    }
    let told =
        |this: &Looping| this.tells(&["the API server has not answered the writes of this Node"]);
    looping
        .until_at_most("told", Duration::from_mins(1), told)
        .await;
    looping.until("all", |this| this.uninitialized() == 0).await;
    looping.stop().await;
}
