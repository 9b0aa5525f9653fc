//! Calls that fail or hang as a whole, or whose provider dies.

use super::*;

/// Fault: the provider answers a whole call with any code of the table | writes to none of the
/// call's Nodes; initialises all Nodes in the end; writes nothing twice
#[tokio::test(start_paused = true)]
async fn fault_node_provider_fails_a_whole_call() {
    for code in 1..=10 {
        let code = FailureCode::try_from(code).unwrap();
        let looping = Looping::join(|this| this.cloud.state().failures = [code].into()).await;
        looping
            .until_at_most("asked again", HOUR, |this| this.sizes().len() > 1)
            .await;
        assert!(
            looping.api.writes().is_empty(),
            "writes to none of the call's Nodes: {code:?}"
        );
        looping.all().await;
    }
}

/// Fault: the provider answers a gRPC status other than OK because of one Node | never reads the
/// status as an answer; halves the call; the other Nodes go on; asks about the Node itself alone,
/// with backoff; a Warning event says so
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_a_grpc_status() {
    let looping = Looping::join(|this| {
        this.cloud.state().poison.insert(NODE.to_owned());
    })
    .await;
    looping.others(AT_ONCE).await;
    tokio::time::sleep(Duration::from_mins(3)).await;
    let asked = looping.asked();
    let sizes: Vec<usize> = asked.iter().map(|(_, size)| *size).collect();
    assert_eq!(sizes[..3], [4, 2, 1], "halves the call");
    let gaps = looping.gaps().split_off(2);
    assert!(
        sizes[3..].iter().all(|size| *size == 1) && gaps.is_sorted() && gaps.len() >= 5,
        "asks about the Node itself alone, with backoff: {sizes:?} {gaps:?}"
    );
    assert!(
        looping.reported(&["Warning", "a handler died"]),
        "a Warning event says so"
    );
    assert!(
        looping.is_untouched(),
        "never reads the status as an answer"
    );
    looping.cloud.state().poison.clear();
    looping.all().await;
}

/// Fault: the provider hangs when it is asked about one Node | gives the call up after its deadline
/// (60 s) and cuts it into tenths; the other Nodes go on; asks about the Node itself alone; Nodes
/// that join later do not wait for it; an event says that the Node waits; an event names the
/// deadline
#[tokio::test(start_paused = true)]
async fn fault_node_provider_hangs() {
    let looping = Looping::join(|this| {
        this.cloud.state().hang.insert(NODE.to_owned());
    })
    .await;
    looping.others(DEADLINE + AT_ONCE).await;
    assert!(
        looping.sizes()[..5] == [4, 1, 1, 1, 1] && (60.0..60.5).contains(&looping.gaps()[0]),
        "gives the call up after its deadline (60 s) and cuts it into tenths: {:?} {:?}",
        looping.sizes(),
        looping.gaps()
    );
    tokio::time::sleep(Duration::from_mins(3)).await;
    let asked = looping.asked();
    assert!(
        asked.len() > 2 && asked[1..].iter().all(|(_, size)| *size == 1),
        "asks about the Node itself alone: {asked:?}"
    );
    looping.api.put(&fresh("n0009"));
    let waiting = |this: &Looping| this.uninitialized();
    let took = looping
        .until("the new one", |this| waiting(this) == 1)
        .await;
    assert!(
        took <= AT_ONCE,
        "Nodes that join later do not wait for it: {took:?}"
    );
    // The Node has one event with this reason. A later attempt updates its text.
    assert!(
        looping.reported(&["Warning", "has not answered LookupInstances yet"]),
        "an event says that the Node waits"
    );
    let reported = |this: &Looping| this.reported(&["Warning", "was not answered within 60 s"]);
    looping.until("an event names the deadline", reported).await;
    looping.cloud.state().hang.clear();
    looping.api.delete("n0009");
    looping.until("all", |this| this.uninitialized() == 0).await;
    looping.stop().await;
}

/// Fault: the provider answers for a Node after the deadline of the call | does not use the late
/// answer; asks about that Node again, alone; the other Nodes go on
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_late() {
    let looping = Looping::join(|this| {
        let late = (NODE.to_owned(), Duration::from_secs(75));
        this.cloud.state().slow.insert(late.0, late.1);
    })
    .await;
    looping.others(DEADLINE + AT_ONCE).await;
    looping.until_asked(3).await;
    assert!(looping.is_untouched(), "does not use the late answer");
    let asked = looping.asked();
    assert!(
        asked[1..].iter().all(|(_, size)| *size == 1),
        "asks about that Node again, alone: {asked:?}"
    );
    looping.cloud.state().slow.clear();
    looping.all().await;
}

/// Fault: the provider dies before it answers a lookup | writes nothing; asks again as soon as the
/// provider is back and initialised; writes nothing twice
#[tokio::test(start_paused = true)]
async fn fault_node_provider_dies_before_it_answers() {
    let looping = Looping::join(|this| this.cloud.state().delay = Duration::from_secs(3)).await;
    looping
        .until("asked", |this| !this.cloud.state().lookups.is_empty())
        .await;
    looping.process.kill();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(looping.api.writes().is_empty(), "writes nothing");
    looping.cloud.state().delay = Duration::from_millis(50);
    looping.process.start(looping.cloud.service());
    looping
        .provider
        .until("back", |status| status.working().is_some())
        .await;
    let took = looping.until("all", |this| this.uninitialized() == 0).await;
    assert!(
        took <= AT_ONCE,
        "asks again as soon as the provider is back and initialised: {took:?}"
    );
    looping.all().await;
}

/// Fault: the provider dies right after it answered a lookup | initialises all Nodes in the end;
/// writes nothing twice; does not ask about these Nodes again
#[tokio::test(start_paused = true)]
async fn fault_node_provider_dies_after_it_answered() {
    let looping = Looping::start(0).await;
    let process = looping.process.clone();
    let cloud = looping.cloud.clone();
    looping.api.before_next_write(move |_| process.kill());
    for i in 0..4 {
        looping.api.put(&fresh(&format!("n{i:04}")));
    }
    looping.all().await;
    let lookups = cloud.state().lookups.clone();
    assert_eq!(
        lookups.len(),
        1,
        "does not ask about these Nodes again: {lookups:?}"
    );
}

/// Fault: the provider fails for an hour | an event says why within 60 s; asks less and less often;
/// waits at most 2 min between two tries
#[tokio::test(start_paused = true)]
async fn fault_node_provider_fails_for_an_hour() {
    let looping = failing(FailureCode::Unavailable, 10_000).await;
    looping.others(AT_ONCE).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(
        looping.reported(&["Warning", "on purpose"]),
        "an event says why within 60 s"
    );
    tokio::time::sleep(Duration::from_hours(1)).await;
    let gaps = looping.gaps();
    let doubled = gaps.windows(2).take(5).all(|pair| pair[1] > pair[0] * 1.5);
    assert!(
        doubled && gaps.len() < 60,
        "asks less and less often: {gaps:?}"
    );
    assert!(
        gaps.iter().all(|gap| *gap < 121.0) && gaps.len() >= 30,
        "waits at most 2 min between two tries: {gaps:?}"
    );
    looping.cloud.state().instead.clear();
    looping.all().await;
}
