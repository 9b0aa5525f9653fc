//! Hints about Nodes that wait (▲L7).

use super::*;

#[tokio::test(start_paused = true)]
async fn l7_a_hint_ends_the_wait_of_a_new_node_and_a_storm_of_them_is_one_look_in_five_seconds() {
    let instance = |name: &str, id: &str| Hint::Instance {
        provider_id: id.to_owned(),
        node_name: name.to_owned(),
    };
    // Hints by name, by an ID that no Node has yet, and about any instance.
    for hint in [
        instance("n0000", ""),
        instance("", "mock://n0000"),
        Hint::Resync,
    ] {
        let looping = Looping::start(0).await;
        let absent = api::InstanceState::Absent;
        looping
            .cloud
            .state()
            .states
            .insert("n0000".to_owned(), absent);
        looping.api.put(&fresh("n0000"));
        // Waits until the backoff is long.
        tokio::time::sleep(Duration::from_mins(10)).await;
        let before = looping.sizes().len();
        for _ in 0..60 {
            looping.context.hints.send(hint.clone()).unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let looked = looping.sizes().len() - before;
        assert!((11..=15).contains(&looked), "{looked} lookups in a minute");
        looping.cloud.state().states.clear();
        looping.context.hints.send(hint).unwrap();
        let took = looping
            .until("initialised", |this| this.uninitialized() == 0)
            .await;
        assert!(took < Duration::from_secs(7), "{took:?}");
        // A hint makes no initialised Node due.
        let before = looping.sizes().len();
        looping.context.hints.send(Hint::Resync).unwrap();
        looping.context.hints.send(instance("n0000", "")).unwrap();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(looping.sizes().len(), before);
        looping.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn l7_a_hint_does_not_end_a_pause_that_the_cloud_asked_for() {
    let looping = Looping::start(0).await;
    let throttled = api::FailureCode::Throttled;
    looping.cloud.state().failures.push_back(throttled);
    looping.api.put(&fresh("n0000"));
    looping
        .until("a lookup", |this| this.sizes().len() == 1)
        .await;
    let start = Instant::now();
    tokio::time::sleep(Duration::from_millis(200)).await;
    looping.context.hints.send(Hint::Resync).unwrap();
    looping
        .until("initialised", |this| this.uninitialized() == 0)
        .await;
    assert!(start.elapsed() >= Duration::from_millis(950));
    looping.stop().await;
}
