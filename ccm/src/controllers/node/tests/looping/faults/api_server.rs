//! The API server refuses, hangs, loses answers and cuts the watch.

use super::*;
use crate::controllers::node::testing::Fault;

/// The Retry-After of the API server's 429, in seconds: longer than the first backoff.
const RETRY_AFTER: f64 = 2.0;

/// Observations of an initialisation with a failed write. `took` is the time from the Node's
/// creation to its initialisation.
struct Seen {
    /// 1 is the write of the addresses, 2 the write of provider ID, labels and taint.
    number: usize,
    took: Duration,
    /// The seconds between the writes.
    gaps: Vec<f64>,
    reads: usize,
    events: Vec<String>,
}

/// Initialises a Node in two runs. Its first write gets the fault `times` times in the first run,
/// its second write in the second run.
async fn in_each_write(fault: Fault, times: usize, check: fn(&Seen, &str)) {
    for number in 1..=2 {
        let looping = Looping::start(0).await;
        looping.api.faults.writes(number, times, fault);
        let mut node = fresh(NODE);
        node.metadata.uid = Some("uid".to_owned());
        looping.api.put(&node);
        let took = looping
            .until("initialised", |this| this.uninitialized() == 0)
            .await;
        let what = format!("write {number}, {fault:?}, {times} times");
        assert!(looping.api.faults.happened(), "{what}");
        tokio::time::sleep(Duration::from_mins(1)).await;
        let wanted = [format!("PATCH {NODE}/status"), format!("PATCH {NODE}")];
        assert_eq!(looping.api.writes(), wanted, "writes nothing twice: {what}");
        let events = looping.events();
        let synced = events.iter().filter(|event| event.contains("Synced"));
        // After a lost answer to the second write there is nothing to report: the watch shows the
        // Node without the taint.
        let lost = fault == Fault::Lost && number == 2;
        assert_eq!(synced.count(), usize::from(!lost), "{events:?}");
        let gaps = looping.api.faults.gaps();
        let seen = Seen {
            number,
            took,
            gaps: gaps.iter().map(Duration::as_secs_f64).collect(),
            reads: looping.api.reads(),
            events,
        };
        check(&seen, &what);
        looping.stop().await;
    }
}

impl Seen {
    fn tells(&self) -> bool {
        let reported = |event: &String| event.contains("Warning") && event.contains("on purpose");
        self.events.iter().any(reported)
    }
}

/// Checks the backoff: from 1 s, with jitter of up to a fifth, and the time of lookups and batches.
fn backoff(seen: &Seen, what: &str) {
    assert!(
        seen.gaps.iter().any(|gap| (1.0..1.6).contains(gap)),
        "tries again with backoff: {what}: {:?}",
        seen.gaps
    );
}

fn tells_nothing(seen: &Seen, what: &str) {
    assert!(!seen.tells(), "it is not told: {what}: {:?}", seen.events);
}

/// Fault: the API server answers 409 to a write of a Node (addresses; provider ID, labels and
/// taint) | reads the Node again; writes nothing twice
#[tokio::test(start_paused = true)]
async fn fault_node_api_server_answers_409() {
    fn read_again(seen: &Seen, what: &str) {
        assert!(seen.reads > 0, "reads the Node again: {what}");
        tells_nothing(seen, what);
    }
    in_each_write(Fault::Refused(409), 1, read_again).await;
    in_each_write(Fault::Refused(409), 7, read_again).await;
}

/// Fault: the API server answers 422 to a write of a Node | a Warning event says why; tries again
/// with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_api_server_answers_422() {
    fn tells(seen: &Seen, what: &str) {
        assert!(
            seen.tells(),
            "a Warning event says why: {what}: {:?}",
            seen.events
        );
        backoff(seen, what);
    }
    in_each_write(Fault::Refused(422), 1, tells).await;
    in_each_write(Fault::Refused(422), 3, tells).await;
}

/// Fault: the API server answers 429 to a write of a Node | sends the write five times in all, each
/// repeat after the Retry-After; tries again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_api_server_answers_429() {
    fn put_off(seen: &Seen, what: &str) {
        let slow = |gap: &&f64| **gap >= RETRY_AFTER;
        let before = seen.gaps.iter().take_while(|gap| **gap < 1.0).count();
        let sent = seen.gaps[before..].iter().take_while(slow).count();
        assert_eq!(
            sent, 4,
            "sends the write five times in all, each repeat after the Retry-After: {what}: {:?}",
            seen.gaps
        );
        backoff(seen, what);
    }
    in_each_write(Fault::Refused(429), 1, tells_nothing).await;
    in_each_write(Fault::Refused(429), 7, put_off).await;
}

/// Fault: the API server answers 500 to a write of a Node | tries again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_api_server_answers_500() {
    in_each_write(Fault::Refused(500), 1, backoff).await;
    in_each_write(Fault::Refused(500), 3, backoff).await;
}

fn given_up(seen: &Seen, what: &str) {
    assert!(
        (10.0..13.0).contains(&seen.took.as_secs_f64()),
        "gives up after 10 s: {what}: {:?}",
        seen.took
    );
}

/// Fault: the API server never answers a write of a Node, and does not do it | gives up after 10 s;
/// tries again with backoff
#[tokio::test(start_paused = true)]
async fn fault_node_api_server_hangs() {
    fn again(seen: &Seen, what: &str) {
        given_up(seen, what);
        assert!(
            seen.gaps.iter().any(|gap| (11.0..11.6).contains(gap)),
            "tries again with backoff: {what}: {:?}",
            seen.gaps
        );
    }
    in_each_write(Fault::Hangs, 1, again).await;
}

/// Fault: the API server does a write of a Node, and its answer is lost | gives up after 10 s;
/// writes nothing twice
#[tokio::test(start_paused = true)]
async fn fault_node_api_server_loses_an_answer() {
    fn first(seen: &Seen, what: &str) {
        // Nothing follows the second write.
        if seen.number == 1 {
            given_up(seen, what);
        }
        tells_nothing(seen, what);
    }
    in_each_write(Fault::Lost, 1, first).await;
}

/// Fault: the API server cuts the watch of Nodes, or answers 410 Gone to it | lists again and
/// initialises the Nodes that joined meanwhile, also under the name of a former Node; writes
/// nothing to the other Nodes
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
    assert!(
        took <= AT_ONCE,
        "lists again and initialises the Nodes that joined meanwhile, also under the name of a former Node: {took:?}"
    );
    assert_eq!(looping.api.count(), 3);
    let writes = looping.api.writes().split_off(6);
    assert!(
        writes.len() == 4 && !writes.iter().any(|write| write.contains("n0002")),
        "writes nothing to the other Nodes: {writes:?}"
    );
    looping.stop().await;
}
