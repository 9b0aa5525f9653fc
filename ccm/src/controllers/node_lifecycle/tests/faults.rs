//! The life of a Node that is shut down, comes back, and whose instance goes in the end, with one thing going wrong on it. Whatever it is: the taint comes and goes,
//! the Node is deleted when its instance is gone, and no other ever is.

use cloud_provider_api::v1alpha1::FailureCode;

use super::*;
use crate::controllers::node::testing::{Fault, Instead};

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

    /// Its instance goes: so does the Node, after two answers.
    async fn goes(&self, within: Duration) {
        self.down([3], api::InstanceState::Absent);
        let took = self
            .until("deleted", |this| this.api.node(NODE).is_none())
            .await;
        assert!(took <= within, "{took:?}");
        assert_eq!(self.others(), 19);
    }
}

/// The provider says so about the Node, for so many passes, while it is said to be gone by all other answers.
async fn instead(instead: Instead, times: usize) {
    let looping = Looping::start(20).await;
    looping.down([3], api::InstanceState::Absent);
    // One answer, and then trouble in place of the second.
    let asked = |this: &Looping| {
        let lookups = this.cloud.state().lookups.clone();
        let about = lookups
            .iter()
            .filter(|names| names.iter().any(|name| name == NODE));
        about.count()
    };
    looping.until("asked", |this| asked(this) == 1).await;
    tokio::time::sleep(SOON).await;
    let many = std::iter::repeat_n(instead, times);
    let trouble = (NODE.to_owned(), many.collect());
    looping.cloud.state().instead.extend([trouble]);
    let over = |this: &Looping| this.cloud.state().instead[NODE].is_empty();
    looping.until("over", over).await;
    assert_eq!(looping.left(), 20, "{instead:?}");
    looping.until("deleted", |this| this.left() == 19).await;
    assert!(
        asked(&looping) >= 1 + times + 2,
        "{instead:?}: one answer before the trouble, and one after, are not two in a row"
    );
    assert!(looping.api.node(NODE).is_none());
}

async fn fails(code: FailureCode) {
    for times in [1, 4] {
        instead(Instead::Failed(code.into()), times).await;
    }
}

/// Fault: the provider answers INVALID for a Node that is not Ready | nothing is known of it: not deleted, and what was counted begins anew; asked again with the next pass
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_invalid() {
    fails(FailureCode::Invalid).await;
}

/// Fault: the provider answers PRECONDITION for a Node that is not Ready | as INVALID
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_precondition() {
    fails(FailureCode::Precondition).await;
}

/// Fault: the provider answers NOT_FOUND for a Node that is not Ready | as INVALID: only ABSENT means gone
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_not_found() {
    fails(FailureCode::NotFound).await;
}

/// Fault: the provider answers CONFLICT for a Node that is not Ready | as INVALID
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_conflict() {
    fails(FailureCode::Conflict).await;
}

/// Fault: the provider answers BUSY for a Node that is not Ready | as INVALID
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_busy() {
    fails(FailureCode::Busy).await;
}

/// Fault: the provider answers THROTTLED for a Node that is not Ready | as INVALID, and all lookups wait for its `retry_after` (5 s without one)
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_throttled() {
    fails(FailureCode::Throttled).await;
}

/// Fault: the provider answers CREDENTIALS for a Node that is not Ready | as INVALID; where no Node is answered for, one is asked about every 20 s, and the others as soon as that is answered
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_credentials() {
    fails(FailureCode::Credentials).await;
    let looping = Looping::start(20).await;
    let many = std::iter::repeat_n(FailureCode::Credentials, 1000);
    looping.cloud.state().failures.extend(many);
    looping.down([4], api::InstanceState::Present);
    looping.down([3], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(10)).await;
    let lookups = looping.cloud.state().lookups.clone();
    let (first, probes) = lookups.split_first().unwrap();
    assert!(first.len() > 1, "{first:?}");
    assert!((28..=31).contains(&probes.len()), "{}", probes.len());
    assert!(probes.iter().all(|names| names.len() == 1), "{probes:?}");
    assert_eq!(looping.left(), 20);
    looping.cloud.state().failures.clear();
    let took = looping.until("deleted", |this| this.left() == 19).await;
    assert!(took <= Duration::from_secs(35), "{took:?}");
}

/// Fault: the provider answers UNAVAILABLE for a Node that is not Ready | as INVALID
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_unavailable() {
    fails(FailureCode::Unavailable).await;
}

/// Fault: the provider answers NOT_INITIALIZED for a Node that is not Ready | it is initialised again; no answer of before counts
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_not_initialized() {
    fails(FailureCode::NotInitialized).await;
}

/// Fault: the provider answers INTERNAL, or a code that nobody knows, for a Node that is not Ready | as INVALID
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_internal() {
    fails(FailureCode::Internal).await;
    instead(Instead::Failed(4711), 1).await;
}

/// Fault: the provider's answer for a Node that is not Ready has no outcome | as INVALID
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_nothing() {
    instead(Instead::Nothing, 1).await;
}

/// Fault: the provider answers a whole call with any code of the table | the pass is void: what was counted begins anew, and nothing is deleted
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
        assert_eq!(looping.left(), 20, "{code:?}");
        looping.goes(Duration::from_mins(3)).await;
    }
}

/// Fault: the provider answers a gRPC status other than OK because of one Node | never read as an answer: the call is halved, so that the others are judged in the same pass; the Node itself stays
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_a_grpc_status() {
    let looping = Looping::start(20).await;
    looping.cloud.state().poison.insert("n0005".to_owned());
    looping.down([5], api::InstanceState::Absent);
    looping.goes(3 * PERIOD).await;
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert!(looping.api.node("n0005").is_some());
    looping.cloud.state().poison.clear();
    let took = looping.until("it too", |this| this.left() == 18).await;
    assert!(took <= 3 * PERIOD, "{took:?}");
}

/// Fault: the provider hangs when it is asked about one Node | passes go on; the Nodes of the same call wait for its deadline, once; from then on the one is asked about alone, and keeps no other waiting
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_hangs() {
    let looping = Looping::start(20).await;
    looping.cloud.state().hang.insert("n0005".to_owned());
    looping.down([5], api::InstanceState::Absent);
    looping.goes(DEADLINE + 2 * PERIOD + SOON).await;
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert!(looping.api.node("n0005").is_some());
    looping.cloud.state().hang.clear();
    let took = looping.until("it too", |this| this.left() == 18).await;
    assert!(took <= 2 * DEADLINE, "{took:?}");
}

/// Fault: the provider answers for one Node after the deadline of the call | the answer is not heard: the Node stays, and no other waits for it
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_answers_late() {
    let looping = Looping::start(20).await;
    let late = ("n0005".to_owned(), Duration::from_secs(75));
    looping.cloud.state().slow.insert(late.0, late.1);
    looping.down([5], api::InstanceState::Absent);
    looping.goes(DEADLINE + 2 * PERIOD + SOON).await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert!(looping.api.node("n0005").is_some());
}

/// Fault: the provider dies while it is asked, before or after it said ABSENT | another process's answers begin the count anew: two of its own delete the Node
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
            assert_eq!(looping.left(), 20, "round {round}");
            looping.process.start(looping.cloud.service());
        }
        looping.until("deleted", |this| this.left() == 19).await;
    }
}

/// Fault: the provider's listing fails or is not complete | it vetoes nothing and testifies for nothing: the answers decide
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_provider_lists_nothing() {
    let looping = Looping::start(20).await;
    looping.cloud.state().listing_fails = true;
    looping.goes(3 * PERIOD).await;
}

/// Fault: ListInstances is never answered, where it could veto a deletion | the Nodes that are to go wait for it until its deadline (5 min), and then go on the answers alone; a machine that is shut down meanwhile gets its taint as ever
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_the_listing_hangs() {
    let looping = Looping::start(20).await;
    looping.cloud.state().listing_hangs = true;
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
        assert!(took <= 4 * PERIOD, "{took:?}");
    }
    assert_eq!(looping.left(), 20);
    looping.until("deleted", |this| this.left() == 19).await;
    let waited = asked.elapsed();
    assert!(
        waited > Duration::from_secs(290) && waited < Duration::from_secs(320),
        "{waited:?}"
    );
    assert_eq!(looping.cloud.state().listings, 1, "one at a time");
}

/// Fault: ListInstances is never answered by a provider that takes one call at a time | it is given up after 10 s, so that Nodes can be asked about again: the answers decide
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_the_listing_hangs_in_the_only_place() {
    let one = |offered: &mut api::InstanceCapability| offered.max_in_flight = Some(1);
    let (looping, _) = Looping::start_offering(20, one).await;
    looping.cloud.state().listing_hangs = true;
    looping.goes(Duration::from_secs(10) + 3 * PERIOD).await;
}

/// Fault: ListInstances is answered after a minute, and has the instance | the Nodes that are to go wait for it, and it vetoes
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_the_listing_is_late() {
    let looping = Looping::start(20).await;
    let late = Duration::from_mins(1);
    looping.cloud.state().listing_takes = late;
    looping.cloud.state().listed.push("mock://n0003".to_owned());
    looping.down([3, 4], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() < 20).await;
    assert!(took > late && took < late + 4 * PERIOD, "{took:?}");
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(looping.api.node(NODE).is_some(), "vetoed");
    assert_eq!(looping.left(), 19);
}

/// Each write of the Node's life in turn goes wrong, so often: the taint, its removal, the deletion.
async fn in_each_write(fault: Fault, times: usize) {
    for number in 1..=3 {
        let looping = Looping::start(20).await;
        looping.api.faults.writes(number, times, fault);
        looping.down([3], api::InstanceState::Stopped);
        looping.until("tainted", Looping::tainted).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        looping.comes_back();
        looping.until("untainted", |this| !this.tainted()).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        looping.goes(Duration::from_mins(2)).await;
        assert!(looping.api.faults.happened(), "write {number}, {fault:?}");
        tokio::time::sleep(Duration::from_mins(1)).await;
        let wanted = ["PATCH n0003", "PATCH n0003", "DELETE n0003"];
        assert_eq!(looping.api.writes(), wanted, "write {number}, {fault:?}");
        let events = looping.context.writes.events.recorded();
        let failed = events.iter().any(|it| {
            // Upstream's words.
            it.contains("DeletingNodeFailed") && it.contains(": Failed deleting node n")
        });
        // What is sent again, or is somebody else's doing, is no failure.
        let told = number == 3
            && !matches!(fault, Fault::Refused(409))
            && (fault != Fault::Refused(429) || times > 5);
        assert_eq!(failed, told, "write {number}, {fault:?}: {events:?}");
    }
}

/// Fault: the API server answers 409 to a write (shutdown taint, its removal, the deletion) | somebody else wrote: the Node is looked at again in the next pass, a deletion needs two new answers
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_answers_409() {
    in_each_write(Fault::Refused(409), 1).await;
    in_each_write(Fault::Refused(409), 3).await;
}

/// Fault: the API server answers 422 to a write | a taint is tried again with the next pass; a deletion is told (DeletingNodeFailed) and needs two new answers
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_answers_422() {
    in_each_write(Fault::Refused(422), 1).await;
    in_each_write(Fault::Refused(422), 3).await;
}

/// Fault: the API server answers 429 to a write | sent five times in all, each time after its Retry-After, then as 500
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_answers_429() {
    in_each_write(Fault::Refused(429), 1).await;
    in_each_write(Fault::Refused(429), 7).await;
}

/// Fault: the API server answers 500 to a write | a taint is tried again with the next pass; a deletion is told and counts for the brake, since nobody knows, and needs two new answers
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_answers_500() {
    in_each_write(Fault::Refused(500), 1).await;
    // Of three Nodes one may go in a window.
    for (code, counts) in [(422, false), (500, true)] {
        let looping = Looping::start(3).await;
        looping.api.faults.writes(1, 1, Fault::Refused(code));
        looping.down([2], api::InstanceState::Absent);
        looping
            .until("failed", |this| this.api.faults.happened())
            .await;
        let took = looping.until("deleted", |this| this.left() < 3).await;
        assert_eq!(took > Duration::from_mins(9), counts, "{code}: {took:?}");
    }
}

/// Fault: the API server never answers a write, and did not do it | given up after 10 s, then as 500
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_hangs() {
    in_each_write(Fault::Hangs, 1).await;
}

/// Fault: the API server does a write, and its answer is lost | given up after 10 s; what the watch shows since is taken as it is, nothing is written twice
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_loses_an_answer() {
    in_each_write(Fault::Lost, 1).await;
}

/// Fault: the API server fails when the Node is read again just before its deletion (409, 422, 429, 500, no answer) | it is not deleted; two new answers
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_fails_the_last_look() {
    let codes = [409, 422, 429, 500].map(Fault::Refused);
    for fault in codes.into_iter().chain([Fault::Hangs]) {
        let looping = Looping::start(20).await;
        looping.api.faults.reads(20, fault);
        looping.down([3], api::InstanceState::Absent);
        looping
            .until("failed", |this| this.api.faults.happened())
            .await;
        assert_eq!(looping.left(), 20, "{fault:?}");
        looping.goes(Duration::from_mins(2)).await;
        assert_eq!(looping.api.writes(), ["DELETE n0003"], "{fault:?}");
    }
}

/// Fault: the API server cuts the watch of Nodes, or answers 410 Gone to it | what is not seen cannot be deleted by mistake: the last look sees a Node that is Ready again or was made anew; listed again, all is judged as it is
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_cuts_the_watch() {
    let looping = Looping::start(20).await;
    looping.down([3, 5], api::InstanceState::Absent);
    looping.api.faults.cut_watch(true);
    // One is Ready again, one is another Node: nobody tells.
    looping
        .api
        .edit(NODE, |old| old.status = node(3, "True").status);
    looping.api.delete("n0005");
    looping.api.put(&node(5, "True"));
    // One goes down, and nobody tells.
    looping.down([7], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(looping.left(), 20);
    looping.cloud.state().states.remove(NODE);
    looping.cloud.state().states.remove("n0005");
    looping.api.relist();
    let took = looping.until("deleted", |this| this.left() == 19).await;
    assert!(took <= 3 * PERIOD, "{took:?}");
    assert!(looping.api.node("n0007").is_none());
}

/// Fault: the ccm is killed right before or right after any write (shutdown taint, its removal, the deletion) | the next process goes on where it ended; a deletion that did not happen needs two new answers
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_ccm_killed_between_writes() {
    for fault in [Fault::Hangs, Fault::Lost] {
        for number in 1..=3 {
            let mut looping = Looping::start(20).await;
            looping.api.faults.writes(number, 1, fault);
            looping.down([3], api::InstanceState::Stopped);
            looping.survives(number == 1, Looping::tainted).await;
            looping.comes_back();
            looping.survives(number == 2, |this| !this.tainted()).await;
            looping.down([3], api::InstanceState::Absent);
            looping
                .survives(number == 3, |this| this.left() == 19)
                .await;
            assert!(looping.api.node(NODE).is_none());
            let wanted = ["PATCH n0003", "PATCH n0003", "DELETE n0003"];
            assert_eq!(looping.api.writes(), wanted, "write {number}, {fault:?}");
        }
    }
}

impl Looping {
    /// Waits until it is so; where it is killed, a new process does it.
    async fn survives(&mut self, killed: bool, wanted: impl Fn(&Self) -> bool) {
        if killed {
            self.until("the write", |this| this.api.faults.happened())
                .await;
            self.tasks.abort_all();
            while self.tasks.join_next().await.is_some() {}
            self.memory = Arc::default();
            self.run();
        }
        let took = self.until("done", wanted).await;
        assert!(took <= 4 * PERIOD, "{took:?}");
    }
}
