//! A Node's way to being initialised with one thing going wrong on it. Whatever it is: the Node is initialised in the end, by two writes, and the others do
//! not wait for it.

use cloud_provider_api::v1alpha1::FailureCode;

use super::*;
use crate::controllers::node::testing::{Fault, Instead};

/// The one that is in trouble, of four.
const NODE: &str = "n0001";
/// Who is not in trouble is initialised in this time.
const AT_ONCE: Duration = Duration::from_secs(2);

/// What follows from a lookup that goes wrong.
#[derive(Clone, Copy)]
struct Row {
    /// The next lookup comes after so many milliseconds,
    least: u64,
    /// and before so many.
    most: u64,
    /// An event tells the provider's words.
    told: bool,
}

/// The backoff from 1 s, to which jitter adds up to a fifth, and 100 ms in which a batch fills.
const BACKOFF: Row = Row {
    least: 1000,
    most: 1450,
    told: true,
};

impl Looping {
    /// Four Nodes join; `trouble` is there before. Returns when all are initialised.
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
        assert!(took <= within, "{took:?}");
    }

    /// All are initialised, by as many writes as it takes, and nothing is left to do.
    async fn all(self) {
        let start = Instant::now();
        while self.uninitialized() > 0 {
            assert!(start.elapsed() < Duration::from_hours(1), "never");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
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
        assert_eq!(writes, wanted);
        self.stop().await;
    }

    /// From the first lookup that asked about the Node until the second.
    fn waited(&self) -> Duration {
        let state = self.cloud.state();
        let mut of_node = state
            .lookups
            .iter()
            .zip(&state.times)
            .filter(|(names, _)| names.iter().any(|name| name == NODE));
        let (first, second) = (of_node.next().unwrap(), of_node.next().unwrap());
        *second.1 - *first.1
    }

    fn told(&self, what: &str) -> bool {
        let events = self.context.writes.events.recorded();
        events
            .iter()
            .any(|event| event.contains(NODE) && event.contains(what))
    }
}

/// The Node's own failure, once.
async fn instead(instead: Instead, row: Row) {
    let looping = Looping::join(|this| {
        let mut state = this.cloud.state();
        state.instead.insert(NODE.to_owned(), [instead].into());
    })
    .await;
    looping.others(AT_ONCE).await;
    looping
        .until_asked_twice(Duration::from_millis(row.most) + AT_ONCE)
        .await;
    // The first answer took 50 ms.
    let waited = looping.waited().as_millis();
    let expected = u128::from(row.least)..=u128::from(row.most);
    assert!(expected.contains(&waited), "{instead:?}: {waited} ms");
    assert_eq!(
        looping.told("on purpose"),
        row.told,
        "{instead:?}: {:?}",
        looping.context.writes.events.recorded()
    );
    looping.all().await;
}

impl Looping {
    async fn until_asked_twice(&self, within: Duration) {
        let asked = |this: &Self| {
            let state = this.cloud.state();
            let lookups = state.lookups.iter();
            lookups
                .filter(|names| names.iter().any(|name| name == NODE))
                .count()
        };
        let start = Instant::now();
        while asked(self) < 2 {
            assert!(start.elapsed() < within, "not asked again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn fails(code: FailureCode, row: Row) {
    instead(Instead::Failed(code.into()), row).await;
}

/// Fault: the provider answers INVALID for a Node | a Warning event tells its words; asked again after 30 min
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_invalid() {
    let row = Row {
        least: 1_800_000,
        most: 1_800_500,
        told: true,
    };
    fails(FailureCode::Invalid, row).await;
}

/// Fault: the provider answers PRECONDITION for a Node | a Warning event tells its words; asked again with backoff, 1 s to 2 min
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_precondition() {
    fails(FailureCode::Precondition, BACKOFF).await;
}

/// Fault: the provider answers NOT_FOUND for a Node | read as INTERNAL, as LookupInstances does not list it, and never as "gone": a Warning event tells its words; asked again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_not_found() {
    fails(FailureCode::NotFound, BACKOFF).await;
}

/// Fault: the provider answers CONFLICT for a Node | a Warning event tells its words; asked again after 5 min
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_conflict() {
    let row = Row {
        least: 300_000,
        most: 300_500,
        told: true,
    };
    fails(FailureCode::Conflict, row).await;
}

/// Fault: the provider answers BUSY for a Node | asked again after 1 s to 1.5 s, five times, then with backoff and an event
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_busy() {
    let row = Row {
        least: 1000,
        most: 1750,
        told: false,
    };
    fails(FailureCode::Busy, row).await;
}

/// Fault: the provider answers THROTTLED for a Node | a Warning event tells its words; all lookups wait for its `retry_after` (5 s without one)
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_throttled() {
    let row = Row {
        least: 5000,
        most: 5500,
        told: true,
    };
    fails(FailureCode::Throttled, row).await;
}

/// Fault: the provider answers CREDENTIALS for a Node | told on one Node for all, at most every 10 min; one is asked about again every 20 s, and the others as soon as that is answered, else after 5 min
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_credentials() {
    let row = Row {
        least: 20_000,
        most: 20_500,
        told: true,
    };
    fails(FailureCode::Credentials, row).await;
}

/// Fault: the provider answers UNAVAILABLE for a Node | a Warning event tells its words; asked again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_unavailable() {
    fails(FailureCode::Unavailable, BACKOFF).await;
}

/// Fault: the provider answers NOT_INITIALIZED for a Node | it is initialised again, then asked again
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_not_initialized() {
    let row = Row {
        least: 0,
        most: 1250,
        told: false,
    };
    fails(FailureCode::NotInitialized, row).await;
}

/// Fault: the provider answers INTERNAL, or a code that nobody knows, for a Node | a Warning event tells its words; asked again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_internal() {
    fails(FailureCode::Internal, BACKOFF).await;
    instead(Instead::Failed(4711), BACKOFF).await;
}

/// Fault: the provider's answer for a Node has no outcome | a fault of the provider: nothing is concluded, an event says so; asked again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_nothing() {
    let row = Row {
        told: false,
        ..BACKOFF
    };
    instead(Instead::Nothing, row).await;
}

/// Fault: the provider answers a whole call with any code of the table | of none of its Nodes anything is known; all are asked about again as the code says
#[tokio::test(start_paused = true)]
async fn fault_node_provider_fails_a_whole_call() {
    for code in 1..=10 {
        let code = FailureCode::try_from(code).unwrap();
        let looping = Looping::join(|this| this.cloud.state().failures = [code].into()).await;
        looping.all().await;
    }
}

/// Fault: the provider answers a gRPC status other than OK because of one Node | never read as an answer; the call is halved, so that the others go on; the Node itself with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_a_grpc_status() {
    let looping = Looping::join(|this| {
        this.cloud.state().poison.insert(NODE.to_owned());
    })
    .await;
    looping.others(AT_ONCE).await;
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert!(looping.told("a handler died"));
    looping.cloud.state().poison.clear();
    looping.all().await;
}

/// Fault: the provider hangs when it is asked about one Node | the call is given up after its deadline (60 s) and cut into tenths, so that the others go on after two deadlines at most; the Node itself is asked about alone, with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_provider_hangs() {
    let looping = Looping::join(|this| {
        this.cloud.state().hang.insert(NODE.to_owned());
    })
    .await;
    // Four, two, one.
    looping.others(Duration::from_secs(125)).await;
    tokio::time::sleep(Duration::from_mins(3)).await;
    // Those that come later do not wait for it.
    looping.api.put(&fresh("n0009"));
    looping.others(AT_ONCE).await;
    // One event of that reason: while it is asked again it says so.
    assert!(looping.told("has not answered LookupInstances yet"));
    let told = |this: &Looping| this.told("was not answered within 60 s");
    looping.until("its deadline is told", told).await;
    looping.cloud.state().hang.clear();
    looping.api.delete("n0009");
    looping.until("all", |this| this.uninitialized() == 0).await;
    looping.stop().await;
}

/// Fault: the provider answers for a Node after the deadline of the call | the answer is not heard; asked again, alone, with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_provider_answers_late() {
    let looping = Looping::join(|this| {
        let late = (NODE.to_owned(), Duration::from_secs(75));
        this.cloud.state().slow.insert(late.0, late.1);
    })
    .await;
    looping.others(Duration::from_secs(125)).await;
    assert_eq!(looping.uninitialized(), 1);
    looping.cloud.state().slow.clear();
    looping.all().await;
}

/// Fault: the provider dies before it answers a lookup | asked again as soon as it is back and initialised; backoffs are reset
#[tokio::test(start_paused = true)]
async fn fault_node_provider_dies_before_it_answers() {
    let looping = Looping::join(|this| this.cloud.state().delay = Duration::from_secs(3)).await;
    looping
        .until("asked", |this| !this.cloud.state().lookups.is_empty())
        .await;
    looping.process.kill();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(looping.api.writes().is_empty());
    looping.cloud.state().delay = Duration::from_millis(50);
    looping.process.start(looping.cloud.service());
    looping
        .provider
        .until("back", |status| status.working().is_some())
        .await;
    let took = looping.until("all", |this| this.uninitialized() == 0).await;
    assert!(took <= AT_ONCE, "{took:?}");
    looping.all().await;
}

/// Fault: the provider dies right after it answered a lookup | what it answered is written; it is not asked again about these Nodes
#[tokio::test(start_paused = true)]
async fn fault_node_provider_dies_after_it_answered() {
    let looping = Looping::start(0).await;
    let process = looping.process.clone();
    looping.api.before_next_write(move |_| process.kill());
    for i in 0..4 {
        looping.api.put(&fresh(&format!("n{i:04}")));
    }
    looping.all().await;
}

/// Fault: the provider fails for an hour | asked ever less often, with at most 2 min between two tries, until it works; an event tells why within 60 s
#[tokio::test(start_paused = true)]
async fn fault_node_provider_fails_for_an_hour() {
    let unavailable = Instead::Failed(FailureCode::Unavailable.into());
    let looping = Looping::join(|this| {
        let many = std::iter::repeat_n(unavailable, 10_000);
        let mut state = this.cloud.state();
        state.instead.insert(NODE.to_owned(), many.collect());
    })
    .await;
    looping.others(AT_ONCE).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(looping.told("on purpose"));
    tokio::time::sleep(Duration::from_hours(1)).await;
    let tries = looping.cloud.state().lookups.len();
    assert!((30..60).contains(&tries), "{tries}");
    looping.cloud.state().instead.clear();
    let start = Instant::now();
    looping
        .until("it too", |this| this.uninitialized() == 0)
        .await;
    assert!(start.elapsed() <= Duration::from_secs(121));
    looping.all().await;
}

/// Each write of a Node's initialisation in turn goes wrong, so often.
async fn in_each_write(fault: Fault, times: usize) {
    for number in 1..=2 {
        let looping = Looping::start(0).await;
        looping.api.faults.writes(number, times, fault);
        let mut node = fresh(NODE);
        node.metadata.uid = Some("uid".to_owned());
        looping.api.put(&node);
        looping
            .until("initialised", |this| this.uninitialized() == 0)
            .await;
        assert!(looping.api.faults.happened(), "write {number}, {fault:?}");
        tokio::time::sleep(Duration::from_mins(1)).await;
        let wanted = [format!("PATCH {NODE}/status"), format!("PATCH {NODE}")];
        assert_eq!(looping.api.writes(), wanted, "write {number}, {fault:?}");
        let events = looping.context.writes.events.recorded();
        let synced = events.iter().filter(|event| event.contains("Synced"));
        // An answer that was lost leaves nothing to tell: the Node is done when it is read again.
        let lost = fault == Fault::Lost && number == 2;
        assert_eq!(synced.count(), usize::from(!lost), "{events:?}");
        let refused = events.iter().any(|event| event.contains("on purpose"));
        assert_eq!(refused, fault == Fault::Refused(422), "{events:?}");
        looping.stop().await;
    }
}

/// Fault: the API server answers 409 to a write of a Node (addresses; provider ID, labels and taint) | the Node is read again and planned anew
#[tokio::test(start_paused = true)]
async fn fault_node_api_server_answers_409() {
    in_each_write(Fault::Refused(409), 1).await;
    in_each_write(Fault::Refused(409), 7).await;
}

/// Fault: the API server answers 422 to a write of a Node | a Warning event says why; tried again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_api_server_answers_422() {
    in_each_write(Fault::Refused(422), 1).await;
    in_each_write(Fault::Refused(422), 3).await;
}

/// Fault: the API server answers 429 to a write of a Node | sent five times in all, each time after its Retry-After, then tried again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_api_server_answers_429() {
    in_each_write(Fault::Refused(429), 1).await;
    in_each_write(Fault::Refused(429), 7).await;
}

/// Fault: the API server answers 500 to a write of a Node | tried again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_api_server_answers_500() {
    in_each_write(Fault::Refused(500), 1).await;
    in_each_write(Fault::Refused(500), 3).await;
}

/// Fault: the API server never answers a write of a Node, and did not do it | given up after 10 s; tried again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_api_server_hangs() {
    in_each_write(Fault::Hangs, 1).await;
}

/// Fault: the API server does a write of a Node, and its answer is lost | given up after 10 s; what the watch shows since is taken as it is, nothing is written twice
#[tokio::test(start_paused = true)]
async fn fault_node_api_server_loses_an_answer() {
    in_each_write(Fault::Lost, 1).await;
}

/// Fault: the API server cuts the watch of Nodes, or answers 410 Gone to it | listed again, and compared with what was known: who joined meanwhile is initialised, also under a name that another Node had
#[tokio::test(start_paused = true)]
async fn fault_node_api_server_cuts_the_watch() {
    let looping = Looping::start(3).await;
    looping
        .until("initialised", |this| this.uninitialized() == 0)
        .await;
    looping.api.faults.cut_watch(true);
    looping.api.delete("n0000");
    looping.api.delete("n0001");
    looping.api.put(&fresh("n0001"));
    looping.api.put(&fresh("n0007"));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(looping.uninitialized(), 2);
    looping.api.relist();
    let took = looping.until("all", |this| this.uninitialized() == 0).await;
    assert!(took <= AT_ONCE, "{took:?}");
    assert_eq!(looping.api.count(), 3);
    assert_eq!(looping.api.writes().len(), 6 + 4);
    looping.stop().await;
}
