//! Faults at the end of a Node's life: the cloud deletes the instance, and a call or a write fails.
//! Unless a test says otherwise, the ccm then deletes the Node and no other. In some tests of
//! `api_server` the machine is shut down and starts again before that, and the ccm sets and removes
//! the taint.

use cloud_provider_api::v1alpha1::FailureCode;

use super::*;
use crate::controllers::node::testing::{Instead, ListingEnd};

mod api_server;

const NODE: &str = "n0003";

impl Looping {
    fn tainted(&self) -> bool {
        let spec = self.api.node(NODE).and_then(|node| node.spec);
        spec.and_then(|spec| spec.taints)
            .is_some_and(|taints| !taints.is_empty())
    }

    fn comes_back(&self) {
        self.cloud.state().states.remove(NODE);
        self.api
            .edit(NODE, |old| old.status = node(3, "True").status);
    }

    fn others(&self) -> usize {
        self.left() - usize::from(self.api.node(NODE).is_some())
    }

    /// Removes the instance, and waits until the ccm has deleted the Node, and no other Node.
    async fn goes(&self, within: Duration) {
        self.down([3], api::InstanceState::Absent);
        let took = self
            .until("deleted", |this| this.api.node(NODE).is_none())
            .await;
        assert!(
            took <= within,
            "then the Node's own instance decides: {took:?}"
        );
        assert_eq!(self.others(), 19, "deletes no other Node");
    }
}

/// The provider answers ABSENT about the Node once, then `instead` as often as `times` says, and
/// then ABSENT again.
async fn instead(instead: Instead, times: usize) -> Looping {
    let looping = Looping::start(20).await;
    looping.down([3], api::InstanceState::Absent);
    // One ABSENT, and then a failure in place of the second.
    let asked = |this: &Looping| {
        let state = this.cloud.state();
        let lookups = state.lookups.iter().zip(&state.times);
        let about = lookups.filter(|(names, _)| names.iter().any(|name| name == NODE));
        about.map(|(_, at)| *at).collect::<Vec<_>>()
    };
    looping.until("asked", |this| asked(this).len() == 1).await;
    tokio::time::sleep(SOON).await;
    let many = std::iter::repeat_n(instead, times);
    let trouble = (NODE.to_owned(), many.collect());
    looping.cloud.state().instead.extend([trouble]);
    let over = |this: &Looping| this.cloud.state().instead[NODE].is_empty();
    looping.until("over", over).await;
    assert_eq!(
        looping.left(),
        20,
        "knows nothing of the Node, so does not delete it: {instead:?}"
    );
    looping.until("deleted", |this| this.left() == 19).await;
    let asked = asked(&looping);
    // One ABSENT before the failure and one after it are not two in a row.
    assert!(
        asked.len() >= 1 + times + 2,
        "starts its count of ABSENT answers again: {instead:?}: {asked:?}"
    );
    assert!(looping.api.node(NODE).is_none());
    looping
}

/// Calls `instead` with one failure of this code, and with four.
async fn fails(code: FailureCode) {
    for times in [1, 4] {
        let looping = instead(Instead::Failed(code.into()), times).await;
        looping.asks_in_each_pass(&format!("{code:?}, {times} times"));
    }
}

impl Looping {
    fn asks_in_each_pass(&self, what: &str) {
        let times = self.cloud.state().times.clone();
        let pass = PERIOD + SOON;
        assert!(
            times.windows(2).all(|pair| pair[1] - pair[0] <= pass),
            "asks again with the next pass: {what}: {times:?}"
        );
    }
}

/// Fault: the provider answers INVALID for a Node that is not Ready | knows nothing of the Node, so
/// does not delete it; starts its count of ABSENT answers again; asks again with the next pass
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_invalid() {
    fails(FailureCode::Invalid).await;
}

/// Fault: the provider answers PRECONDITION for a Node that is not Ready | knows nothing of the
/// Node, so does not delete it; starts its count of ABSENT answers again; asks again with the next
/// pass
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_precondition() {
    fails(FailureCode::Precondition).await;
}

/// Fault: the provider answers NOT_FOUND for a Node that is not Ready | knows nothing of the Node,
/// so does not delete it; starts its count of ABSENT answers again; asks again with the next pass
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_not_found() {
    fails(FailureCode::NotFound).await;
}

/// Fault: the provider answers CONFLICT for a Node that is not Ready | knows nothing of the Node,
/// so does not delete it; starts its count of ABSENT answers again; asks again with the next pass
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_conflict() {
    fails(FailureCode::Conflict).await;
}

/// Fault: the provider answers BUSY for a Node that is not Ready | knows nothing of the Node, so
/// does not delete it; starts its count of ABSENT answers again; asks again with the next pass
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_busy() {
    fails(FailureCode::Busy).await;
}

/// Fault: the provider answers THROTTLED for a Node that is not Ready | knows nothing of the Node,
/// so does not delete it; starts its count of ABSENT answers again; sends no lookup for 5 s if the
/// answer has no `retry_after`, also after a hint
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_throttled() {
    for times in [1, 4] {
        instead(Instead::Failed(FailureCode::Throttled.into()), times).await;
    }
    let looping = Looping::start(20).await;
    let throttled = Instead::Failed(FailureCode::Throttled.into());
    let answers = (NODE.to_owned(), [throttled].into());
    looping.cloud.state().instead.extend([answers]);
    looping.down([3], api::InstanceState::Absent);
    looping.until("asked", |this| this.lookups() == 1).await;
    tokio::time::sleep(SOON).await;
    let hint = Hint::Instance {
        provider_id: "mock://n0003".to_owned(),
        node_name: String::new(),
    };
    looping.context.hints.send(hint).unwrap();
    looping.until("again", |this| this.lookups() > 1).await;
    let times = looping.cloud.state().times.clone();
    assert!(
        times[1] - times[0] >= Duration::from_secs(5),
        "sends no lookup for 5 s if the answer has no `retry_after`, also after a hint: {times:?}"
    );
}

/// Fault: the provider answers CREDENTIALS for a Node that is not Ready | knows nothing of the
/// Node, so does not delete it; starts its count of ABSENT answers again; if no Node gets an
/// answer, asks about one every 20 s; asks about the others as soon as the provider answers for
/// that one
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_credentials() {
    for times in [1, 4] {
        instead(Instead::Failed(FailureCode::Credentials.into()), times).await;
    }
    let looping = Looping::start(20).await;
    let many = std::iter::repeat_n(FailureCode::Credentials, 1000);
    looping.cloud.state().failures.extend(many);
    looping.down([4], api::InstanceState::Present);
    looping.down([3], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(10)).await;
    let lookups = looping.cloud.state().lookups.clone();
    let (first, probes) = lookups.split_first().unwrap();
    assert!(first.len() > 1, "{first:?}");
    let alone = probes.iter().all(|names| names.len() == 1);
    assert!(
        alone && (28..=31).contains(&probes.len()),
        "if no Node gets an answer, asks about one every 20 s: {probes:?}"
    );
    assert_eq!(looping.left(), 20);
    looping.cloud.state().failures.clear();
    let before = looping.lookups();
    let took = looping.until("deleted", |this| this.left() == 19).await;
    assert!(took <= Duration::from_secs(30), "{took:?}");
    let (names, times) = {
        let state = looping.cloud.state();
        (
            state.lookups[before..].to_vec(),
            state.times[before..].to_vec(),
        )
    };
    let other = [NODE, "n0004"].map(str::to_owned);
    let other = other.into_iter().find(|name| *name != names[0][0]).unwrap();
    let at = names
        .iter()
        .position(|names| names.contains(&other))
        .unwrap();
    assert!(
        times[at] - times[0] <= 2 * SOON,
        "asks about the others as soon as the provider answers for that one: {names:?}, {times:?}"
    );
}

/// Fault: the provider answers UNAVAILABLE for a Node that is not Ready | knows nothing of the
/// Node, so does not delete it; starts its count of ABSENT answers again; asks again with the next
/// pass
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_unavailable() {
    fails(FailureCode::Unavailable).await;
}

/// Fault: the provider answers NOT_INITIALIZED for a Node that is not Ready | initialises the
/// provider again; knows nothing of the Node, so does not delete it; starts its count of ABSENT
/// answers again
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_not_initialized() {
    for times in [1, 4] {
        let again = Instead::Failed(FailureCode::NotInitialized.into());
        let looping = instead(again, times).await;
        let count = looping.cloud.state().initialized;
        assert_eq!(count, 1 + times, "initialises the provider again");
    }
}

/// Fault: the provider answers INTERNAL, or an unknown code, for a Node that is not Ready | knows
/// nothing of the Node, so does not delete it; starts its count of ABSENT answers again; asks again
/// with the next pass
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_internal() {
    fails(FailureCode::Internal).await;
    let looping = instead(Instead::Failed(4711), 1).await;
    looping.asks_in_each_pass("4711");
}

/// Fault: the provider's answer for a Node that is not Ready has no outcome | knows nothing of the
/// Node, so does not delete it; starts its count of ABSENT answers again; asks again with the next
/// pass
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_nothing() {
    let looping = instead(Instead::Nothing, 1).await;
    looping.asks_in_each_pass("no outcome");
}

/// Fault: the provider answers a whole call with any code of the table | deletes nothing; then the
/// Node's own instance decides; deletes no other Node
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_fails_a_whole_call() {
    for code in 1..=10 {
        let code = FailureCode::try_from(code).unwrap();
        let looping = Looping::start(20).await;
        looping.down([3], api::InstanceState::Absent);
        looping.until("asked", |this| this.lookups() > 0).await;
        tokio::time::sleep(SOON).await;
        looping.cloud.state().failures = std::iter::repeat_n(code, 3).collect();
        looping
            .until("failed", |this| this.cloud.state().failures.is_empty())
            .await;
        assert_eq!(looping.left(), 20, "deletes nothing: {code:?}");
        looping.goes(Duration::from_mins(3)).await;
    }
}

/// Fault: the provider answers a gRPC status other than OK because of one Node | halves the call;
/// so decides about the others as usual; never reads the status as an answer, so the Node itself
/// stays; deletes no other Node
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_a_grpc_status() {
    let looping = Looping::start(20).await;
    looping.cloud.state().poison.insert("n0005".to_owned());
    looping.down([5], api::InstanceState::Absent);
    looping.down([3], api::InstanceState::Absent);
    let took = looping
        .until("deleted", |this| this.api.node(NODE).is_none())
        .await;
    assert!(
        took <= 3 * PERIOD,
        "so decides about the others as usual: {took:?}"
    );
    let sizes: Vec<usize> = looping.cloud.state().lookups.iter().map(Vec::len).collect();
    assert_eq!(sizes[..3], [2, 1, 1], "halves the call: {sizes:?}");
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert!(
        looping.api.node("n0005").is_some(),
        "never reads the status as an answer, so the Node itself stays"
    );
    assert_eq!(looping.left(), 19, "deletes no other Node");
    looping.cloud.state().poison.clear();
    let took = looping.until("it too", |this| this.left() == 18).await;
    assert!(took <= 3 * PERIOD, "{took:?}");
}

/// Fault: the provider hangs when it is asked about one Node | the Nodes of the same call wait for
/// its deadline, once; from then on asks about that Node alone; no other Node waits for it; the
/// Node itself stays
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_hangs() {
    let looping = Looping::start(20).await;
    looping.cloud.state().hang.insert("n0005".to_owned());
    looping.down([5], api::InstanceState::Absent);
    looping.down([3], api::InstanceState::Absent);
    let gone = |this: &Looping| this.api.node(NODE).is_none();
    let took = looping.until("deleted", gone).await;
    assert!(
        took <= DEADLINE + 2 * PERIOD + SOON,
        "the Nodes of the same call wait for its deadline, once: {took:?}"
    );
    let calls = looping.lookups();
    looping.down([7], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 18).await;
    assert!(took <= 3 * PERIOD, "no other Node waits for it: {took:?}");
    tokio::time::sleep(Duration::from_mins(11)).await;
    let later = looping.cloud.state().lookups.split_off(calls);
    let mut of_it = later
        .iter()
        .filter(|names| names.iter().any(|name| name == "n0005"));
    assert!(
        of_it.all(|names| names.len() == 1),
        "from then on asks about that Node alone: {later:?}"
    );
    assert!(looping.api.node("n0005").is_some(), "the Node itself stays");
    looping.cloud.state().hang.clear();
    let took = looping.until("it too", |this| this.left() == 17).await;
    assert!(took <= 2 * DEADLINE, "{took:?}");
}

/// Fault: the provider answers for one Node after the deadline of the call | does not use the late
/// answer, so the Node stays; another Node of the call waits for the deadline, once
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_late() {
    let looping = Looping::start(20).await;
    let late = ("n0005".to_owned(), Duration::from_secs(75));
    looping.cloud.state().slow.insert(late.0, late.1);
    looping.down([5], api::InstanceState::Absent);
    looping.down([3], api::InstanceState::Absent);
    let gone = |this: &Looping| this.api.node(NODE).is_none();
    let took = looping.until("deleted", gone).await;
    assert!(
        took <= DEADLINE + 2 * PERIOD + SOON,
        "another Node of the call waits for the deadline, once: {took:?}"
    );
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert!(
        looping.api.node("n0005").is_some(),
        "does not use the late answer, so the Node stays"
    );
}

/// Fault: the provider dies during a lookup, before or after it answered ABSENT | deletes nothing
/// after one answer of each process; deletes after two of one process
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_dies() {
    for after in [Duration::from_millis(20), Duration::from_millis(60)] {
        let looping = Looping::start(20).await;
        looping.down([3], api::InstanceState::Absent);
        for round in 1..4 {
            let asked = looping.lookups();
            looping.until("asked", |this| this.lookups() > asked).await;
            tokio::time::sleep(after).await;
            looping.process.kill();
            tokio::time::sleep(Duration::from_secs(7)).await;
            assert_eq!(
                looping.left(),
                20,
                "deletes nothing after one answer of each process: {round}"
            );
            looping.process.start(looping.cloud.service());
        }
        looping
            .until("deletes after two of one process", |this| this.left() == 19)
            .await;
    }
}

/// Fault: the provider's listing fails or breaks off, and the Node is not one of two | then the
/// Node's own instance decides; deletes no other Node
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_lists_nothing() {
    for listing in [
        ListingEnd::Cut,
        ListingEnd::Failed(FailureCode::Internal),
        ListingEnd::Failed(FailureCode::Unavailable),
    ] {
        let looping = Looping::start(20).await;
        looping.cloud.state().listing = listing;
        looping.goes(3 * PERIOD).await;
        assert!(looping.cloud.state().listings > 0, "{listing:?}");
    }
}

/// Fault: a call of ListInstances that could veto a deletion is never answered | a machine that is
/// shut down meanwhile still gets its taint; the Nodes to delete wait for the list until its
/// deadline (5 min), and then the lookups alone decide; makes one such call at a time
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_the_listing_hangs() {
    let looping = Looping::start(20).await;
    looping.cloud.state().listing = ListingEnd::Hangs;
    looping.down([3], api::InstanceState::Absent);
    let listed = |this: &Looping| this.cloud.state().listings == 1;
    looping.until("listed", listed).await;
    let asked = Instant::now();
    for number in 10..15 {
        looping.down([number], api::InstanceState::Stopped);
        let name = format!("n{number:04}");
        let tainted = |this: &Looping| {
            let spec = this.api.node(&name).and_then(|node| node.spec);
            spec.is_some_and(|spec| spec.taints.is_some_and(|taints| !taints.is_empty()))
        };
        let took = looping.until("tainted", tainted).await;
        assert!(
            took <= 4 * PERIOD,
            "a machine that is shut down meanwhile still gets its taint: {took:?}"
        );
    }
    assert_eq!(looping.left(), 20);
    looping.until("deleted", |this| this.left() == 19).await;
    let waited = asked.elapsed();
    assert!(
        waited > Duration::from_secs(290) && waited < Duration::from_secs(320),
        "the Nodes to delete wait for the list until its deadline (5 min), and then the lookups alone decide: {waited:?}"
    );
    let listings = looping.cloud.state().listings;
    assert_eq!(listings, 1, "makes one such call at a time");
}

/// Fault: ListInstances is never answered by a provider that takes one call at a time | gives it up
/// after 10 s; deletes no other Node
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_the_listing_hangs_in_the_only_place() {
    let one = |offered: &mut api::InstanceCapability| offered.max_in_flight = Some(1);
    let (looping, _) = Looping::start_offering(20, one).await;
    looping.cloud.state().listing = ListingEnd::Hangs;
    looping.down([3], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 19).await;
    let given_up = Duration::from_secs(10);
    assert!(
        took >= given_up && took <= given_up + 3 * PERIOD,
        "gives it up after 10 s: {took:?}"
    );
    assert!(looping.api.node(NODE).is_none(), "deletes no other Node");
}

/// Fault: ListInstances is answered after a minute, and has the instance | the Nodes to delete wait
/// for it; the list vetoes the deletion
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_the_listing_is_late() {
    let looping = Looping::start(20).await;
    let late = Duration::from_mins(1);
    looping.cloud.state().listing_takes = late;
    looping.cloud.state().listed.push("mock://n0003".to_owned());
    looping.down([3, 4], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() < 20).await;
    assert!(
        took > late && took < late + 4 * PERIOD,
        "the Nodes to delete wait for it: {took:?}"
    );
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(
        looping.api.node(NODE).is_some(),
        "the list vetoes the deletion"
    );
    assert_eq!(looping.left(), 19);
}
