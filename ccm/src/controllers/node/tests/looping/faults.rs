//! Faults during the initialisation of Nodes.

use cloud_provider_api::v1alpha1::FailureCode;

use super::*;
use crate::controllers::node::testing::Instead;

mod api_server;
mod calls;

/// The Node with the fault, one of four.
const NODE: &str = "n0001";
/// Nodes without a fault are initialised in this time.
const AT_ONCE: Duration = Duration::from_secs(2);
/// The deadline of a lookup.
const DEADLINE: Duration = Duration::from_mins(1);
/// The longest wait for another lookup, or for the end of an initialisation.
const HOUR: Duration = Duration::from_hours(1);

/// A check after a Node's lookup failed once. Most messages of its assertions begin with a part of
/// the fault's row in `docs/faults.md`.
type Check = fn(&Looping, &str);

/// Whether the second lookup came `least` to `most` seconds after the first.
fn waits(looping: &Looping, least: f64, most: f64) -> bool {
    (least..=most).contains(&looping.waited().as_secs_f64())
}

fn tells(looping: &Looping, what: &str) {
    assert!(
        looping.reported(&["Warning", "on purpose"]),
        "a Warning event has the provider's message: {what}: {:?}",
        looping.events()
    );
}

fn tells_nothing(looping: &Looping, what: &str) {
    let events = looping.events();
    assert!(
        !looping.reported(&["Warning"]),
        "one failure is not told: {what}: {events:?}"
    );
}

/// Checks the backoff: from 1 s, with jitter of up to a fifth, and 100 ms in which a batch fills.
fn backoff(looping: &Looping, what: &str) {
    assert!(
        waits(looping, 1.0, 1.45),
        "asks again with backoff: {what}: {:?}",
        looping.waited()
    );
}

impl Looping {
    /// Four Nodes join after `trouble` has acted. Does not wait for their initialisation.
    async fn join(trouble: impl FnOnce(&Self)) -> Self {
        let this = Self::start(0).await;
        trouble(&this);
        for i in 0..4 {
            this.api.put(&fresh(&format!("n{i:04}")));
        }
        this
    }

    async fn others(&self, within: Duration) {
        let took = self
            .until("the others", |this| {
                let nodes = this.api.nodes();
                let waiting = nodes.iter().filter(|node| plan::is_uninitialized(node));
                waiting.count() <= 1
            })
            .await;
        assert!(took <= within, "the other Nodes go on: {took:?}");
    }

    /// Waits until all Nodes are initialised. Checks that each got exactly two writes.
    async fn all(self) {
        let done = |this: &Self| this.uninitialized() == 0;
        self.until_at_most("initialises all Nodes in the end", HOUR, done)
            .await;
        for node in self.api.nodes() {
            let addresses = node.status.and_then(|status| status.addresses);
            assert_eq!(addresses.unwrap_or_default().len(), 1);
            assert!(node.spec.unwrap().provider_id.is_some());
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        let mut writes = self.api.writes();
        writes.sort();
        let mut wanted: Vec<String> = Vec::new();
        for i in 0..4 {
            wanted.push(format!("PATCH n{i:04}"));
            wanted.push(format!("PATCH n{i:04}/status"));
        }
        assert_eq!(writes, wanted, "writes nothing twice");
        self.stop().await;
    }

    /// The time between the first and the second lookup of the Node.
    fn waited(&self) -> Duration {
        let asked = self.asked();
        asked[1].0 - asked[0].0
    }

    /// The events about the Node.
    fn events(&self) -> Vec<String> {
        let mut events = self.context.writes.events.recorded();
        events.retain(|event| event.contains(NODE));
        events
    }

    fn reported(&self, words: &[&str]) -> bool {
        self.tells(&[&[NODE], words].concat())
    }

    /// The time of each lookup of the Node, and the number of Nodes in its call.
    fn asked(&self) -> Vec<(Instant, usize)> {
        let state = self.cloud.state();
        let lookups = state.lookups.iter().zip(&state.times);
        let about = lookups.filter(|(names, _)| names.iter().any(|name| name == NODE));
        about.map(|(names, at)| (*at, names.len())).collect()
    }

    /// The seconds between the lookups of the Node.
    fn gaps(&self) -> Vec<f64> {
        let asked = self.asked();
        let gaps = asked.windows(2).map(|pair| pair[1].0 - pair[0].0);
        gaps.map(|gap| gap.as_secs_f64()).collect()
    }

    /// Waits until the Node was looked up this often, for at most an hour.
    async fn until_asked(&self, times: usize) {
        let asked = |this: &Self| this.asked().len() >= times;
        self.until_at_most("asked again", HOUR, asked).await;
    }

    /// Whether nothing was written to the Node.
    fn is_untouched(&self) -> bool {
        !self.api.writes().iter().any(|write| write.contains(NODE))
    }
}

/// Gives the first answer for the Node this fault. Runs the checks after the Node's second lookup.
async fn instead(instead: Instead, checks: &[Check]) {
    let looping = Looping::join(|this| {
        let mut state = this.cloud.state();
        state.instead.insert(NODE.to_owned(), [instead].into());
    })
    .await;
    looping.others(AT_ONCE).await;
    looping.until_asked(2).await;
    let what = format!("{instead:?}");
    assert!(looping.is_untouched(), "writes nothing: {what}");
    for check in checks {
        check(&looping, &what);
    }
    looping.all().await;
}

async fn fails(code: FailureCode, checks: &[Check]) {
    instead(Instead::Failed(code.into()), checks).await;
}

/// Four Nodes join. About one of them the provider fails `times` times with this code.
async fn failing(code: FailureCode, times: usize) -> Looping {
    Looping::join(|this| {
        let many = std::iter::repeat_n(Instead::Failed(code.into()), times);
        let mut state = this.cloud.state();
        state.instead.insert(NODE.to_owned(), many.collect());
    })
    .await
}

/// Fault: the provider answers INVALID for a Node | a Warning event has the provider's message;
/// asks again after 30 min
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_invalid() {
    fn half_an_hour(looping: &Looping, what: &str) {
        assert!(
            waits(looping, 1_800.0, 1_800.5),
            "asks again after 30 min: {what}: {:?}",
            looping.waited()
        );
    }
    fails(FailureCode::Invalid, &[tells, half_an_hour]).await;
}

/// Fault: the provider answers PRECONDITION for a Node | a Warning event has the provider's
/// message; asks again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_precondition() {
    fails(FailureCode::Precondition, &[tells, backoff]).await;
}

/// Fault: the provider answers NOT_FOUND for a Node, a code that LookupInstances does not list |
/// reads it as INTERNAL and never as "gone"; a Warning event has the provider's message; asks again
/// with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_not_found() {
    fn as_internal(looping: &Looping, what: &str) {
        assert!(
            looping.reported(&["Warning", "INTERNAL"]),
            "reads it as INTERNAL and never as \"gone\": {what}: {:?}",
            looping.events()
        );
    }
    fails(FailureCode::NotFound, &[as_internal, tells, backoff]).await;
}

/// Fault: the provider answers CONFLICT for a Node | a Warning event has the provider's message;
/// asks again after 5 min
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_conflict() {
    fn five_minutes(looping: &Looping, what: &str) {
        assert!(
            waits(looping, 300.0, 300.5),
            "asks again after 5 min: {what}: {:?}",
            looping.waited()
        );
    }
    fails(FailureCode::Conflict, &[tells, five_minutes]).await;
}

/// Fault: the provider answers BUSY for a Node | asks again after 1 s to 1.5 s; asks five times
/// like that, then with backoff; then an event has the provider's message
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_busy() {
    fn soon(looping: &Looping, what: &str) {
        assert!(
            waits(looping, 1.0, 1.75),
            "asks again after 1 s to 1.5 s: {what}: {:?}",
            looping.waited()
        );
    }
    fails(FailureCode::Busy, &[soon, tells_nothing]).await;
    let looping = failing(FailureCode::Busy, 9).await;
    looping.until_asked(6).await;
    tells_nothing(&looping, "five times BUSY");
    looping.until_asked(10).await;
    let gaps = looping.gaps();
    let (quick, slow) = gaps.split_at(5);
    assert!(
        quick.iter().all(|gap| (1.0..1.75).contains(gap)) && slow.is_sorted() && slow[2] > 3.9,
        "asks five times like that, then with backoff: {gaps:?}"
    );
    assert!(
        looping.reported(&["Warning", "on purpose"]),
        "then an event has the provider's message"
    );
    looping.all().await;
}

/// Fault: the provider answers THROTTLED for a Node | a Warning event has the provider's message;
/// asks again after 5 s if the answer has no `retry_after`; asks about no other Node before that
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_throttled() {
    fn five_seconds(looping: &Looping, what: &str) {
        assert!(
            waits(looping, 5.0, 5.5),
            "asks again after 5 s if the answer has no `retry_after`: {what}: {:?}",
            looping.waited()
        );
    }
    fails(FailureCode::Throttled, &[tells, five_seconds]).await;
    let looping = failing(FailureCode::Throttled, 1).await;
    looping.others(AT_ONCE).await;
    looping.api.put(&fresh("n0009"));
    looping.until("all", |this| this.uninitialized() == 0).await;
    let times = looping.cloud.state().times.clone();
    assert!(
        times[1] - times[0] >= Duration::from_secs(5),
        "asks about no other Node before that: {times:?}"
    );
    looping.stop().await;
}

/// Fault: the provider answers CREDENTIALS for a Node | a Warning event has the provider's message;
/// asks again after 20 s; if all Nodes wait, one of them gets the event; asks about one Node every
/// 20 s; asks about the others as soon as the provider answers for that one
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_credentials() {
    fn twenty_seconds(looping: &Looping, what: &str) {
        assert!(
            waits(looping, 20.0, 20.5),
            "asks again after 20 s: {what}: {:?}",
            looping.waited()
        );
    }
    fails(FailureCode::Credentials, &[tells, twenty_seconds]).await;
    let looping = Looping::join(|this| {
        let many = std::iter::repeat_n(FailureCode::Credentials, 1_000);
        this.cloud.state().failures.extend(many);
    })
    .await;
    // Nodes that are not tried are due after 5 min. A Node that waits for 30 s gets an event.
    tokio::time::sleep(Duration::from_secs(25)).await;
    let events = looping.context.writes.events.recorded();
    let reported = events.iter().filter(|event| event.contains("on purpose"));
    assert_eq!(
        reported.count(),
        1,
        "if all Nodes wait, one of them gets the event: {events:?}"
    );
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert!(
        looping.sizes()[1..] == [1; 10],
        "asks about one Node every 20 s: {:?}",
        looping.sizes()
    );
    looping.cloud.state().failures.clear();
    looping
        .until("the next", |this| this.uninitialized() < 4)
        .await;
    let took = looping.until("all", |this| this.uninitialized() == 0).await;
    assert!(
        took <= AT_ONCE,
        "asks about the others as soon as the provider answers for that one: {took:?}"
    );
    looping.all().await;
}

/// Fault: the provider answers UNAVAILABLE for a Node | a Warning event has the provider's message;
/// asks again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_unavailable() {
    fails(FailureCode::Unavailable, &[tells, backoff]).await;
}

/// Fault: the provider answers NOT_INITIALIZED for a Node | initialises the provider again; then
/// asks again
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_not_initialized() {
    fn initialised_again(looping: &Looping, what: &str) {
        let count = looping.cloud.state().initialized;
        assert_eq!(count, 2, "initialises the provider again: {what}");
    }
    fn then_asked(looping: &Looping, what: &str) {
        assert!(waits(looping, 0.0, 1.25), "then asks again: {what}");
    }
    let checks: [Check; 3] = [initialised_again, then_asked, tells_nothing];
    fails(FailureCode::NotInitialized, &checks).await;
}

/// Fault: the provider answers INTERNAL, or an unknown code, for a Node | a Warning event has the
/// provider's message; asks again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_internal() {
    fails(FailureCode::Internal, &[tells, backoff]).await;
    instead(Instead::Failed(4711), &[tells, backoff]).await;
}

/// Fault: the provider's answer for a Node has no outcome | writes nothing; a Warning event says
/// so; asks again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_nothing() {
    fn says_so(looping: &Looping, what: &str) {
        assert!(
            looping.reported(&["Warning", "no outcome"]),
            "a Warning event says so: {what}: {:?}",
            looping.events()
        );
    }
    instead(Instead::Nothing, &[says_so, backoff]).await;
}
