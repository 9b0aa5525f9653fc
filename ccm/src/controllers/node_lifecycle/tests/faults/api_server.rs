//! The API server refuses, hangs, loses answers and cuts the watch. The ccm is killed right before
//! or right after a write.

use super::*;
use crate::controllers::node::testing::Fault;

/// The observations of a Node's life in which one write failed.
struct Seen {
    /// 1 is the taint, 2 its removal, 3 the deletion.
    number: usize,
    /// How often the write failed.
    times: usize,
    /// The seconds from each failed write to the next write.
    gaps: Vec<f64>,
    /// How often the ccm asked about the Node after its instance was gone.
    answers: usize,
    /// An event reports that the deletion failed.
    reported: bool,
}

/// Plays the Node's life in three runs. In the first run the first write about the Node fails
/// `times` times, in the second run the second write, and in the third run the third write.
async fn in_each_write(fault: Fault, times: usize, check: fn(&Seen, &str)) {
    for number in 1..=3 {
        let what = format!("write {number}, {fault:?}, {times} times");
        let looping = Looping::start(20).await;
        looping.api.faults.writes(number, times, fault);
        looping.down([3], api::InstanceState::Stopped);
        looping.until("tainted", Looping::tainted).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        looping.comes_back();
        looping.until("untainted", |this| !this.tainted()).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let before = looping.asked();
        looping.goes(Duration::from_mins(2)).await;
        let answers = looping.asked() - before;
        assert!(looping.api.faults.happened(), "{what}");
        tokio::time::sleep(Duration::from_mins(1)).await;
        let wanted = ["PATCH n0003", "PATCH n0003", "DELETE n0003"];
        assert_eq!(looping.api.writes(), wanted, "writes nothing twice: {what}");
        let events = looping.context.writes.events.recorded();
        let reported = events.iter().any(|it| {
            // These are upstream's words.
            it.contains("DeletingNodeFailed") && it.contains(": Failed deleting node n")
        });
        let gaps = looping.api.faults.gaps();
        let after = gaps.iter().map(Duration::as_secs_f64).skip(number - 1);
        let seen = Seen {
            number,
            times,
            gaps: after.take(times).collect(),
            answers,
            reported,
        };
        check(&seen, &what);
    }
}

impl Seen {
    fn is_deletion(&self) -> bool {
        self.number == 3
    }
}

impl Looping {
    fn asked(&self) -> usize {
        let state = self.cloud.state();
        let lookups = state.lookups.iter();
        let about = lookups.filter(|names| names.iter().any(|name| name == NODE));
        about.count()
    }
}

fn next_pass(seen: &Seen, what: &str) {
    let pass = (PERIOD + SOON).as_secs_f64();
    assert!(
        seen.is_deletion() || seen.gaps.iter().all(|gap| *gap <= pass),
        "retries a taint with the next pass: {what}: {:?}",
        seen.gaps
    );
}

/// Checks that the ccm asked at least twice for each try of a deletion.
fn new_answers(seen: &Seen, what: &str) {
    assert!(
        !seen.is_deletion() || seen.answers >= 2 * (1 + seen.times),
        "a deletion needs two new answers: {what}: {}",
        seen.answers
    );
}

fn failed(seen: &Seen, what: &str) {
    assert_eq!(
        seen.reported,
        seen.is_deletion(),
        "records an event for a deletion that fails (DeletingNodeFailed): {what}"
    );
}

/// Fault: the API server answers 409 to a write (shutdown taint, its removal, the deletion) |
/// retries a taint with the next pass; a deletion needs two new answers; records no event about
/// the failure, because somebody else wrote; writes nothing twice
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_answers_409() {
    fn conflict(seen: &Seen, what: &str) {
        next_pass(seen, what);
        new_answers(seen, what);
        assert!(
            !seen.reported,
            "records no event about the failure, because somebody else wrote: {what}"
        );
    }
    in_each_write(Fault::Refused(409), 1, conflict).await;
    in_each_write(Fault::Refused(409), 3, conflict).await;
}

fn fails_as_ever(seen: &Seen, what: &str) {
    next_pass(seen, what);
    new_answers(seen, what);
    failed(seen, what);
}

/// Fault: the API server answers 422 to a write | retries a taint with the next pass; a deletion
/// needs two new answers; records an event for a deletion that fails (DeletingNodeFailed); the
/// deletion does not count for the brake
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_answers_422() {
    in_each_write(Fault::Refused(422), 1, fails_as_ever).await;
    in_each_write(Fault::Refused(422), 3, fails_as_ever).await;
    let took = of_three(422).await;
    assert!(
        took < Duration::from_mins(1),
        "the deletion does not count for the brake: {took:?}"
    );
}

/// The brake allows one of three Nodes in ten minutes. The first try fails with `code`. Returns the
/// time from then until the deletion.
async fn of_three(code: u16) -> Duration {
    let looping = Looping::start(3).await;
    looping.api.faults.writes(1, 1, Fault::Refused(code));
    looping.down([2], api::InstanceState::Absent);
    looping
        .until("failed", |this| this.api.faults.happened())
        .await;
    looping.until("deleted", |this| this.left() < 3).await
}

/// Fault: the API server answers 429 to a write | sends a taint five times in all, each repeat
/// after the Retry-After; sends a deletion once, and then does as after 500; writes nothing twice
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_answers_429() {
    fn put_off(seen: &Seen, what: &str) {
        if seen.is_deletion() {
            assert!(
                seen.gaps[0] >= PERIOD.as_secs_f64(),
                "sends a deletion once, and then does as after 500: {what}: {:?}",
                seen.gaps
            );
            return fails_as_ever(seen, what);
        }
        let short = |gap: &f64| (2.0..2.5).contains(gap);
        assert!(
            seen.gaps.iter().take(4).all(short) && !seen.reported,
            "sends a taint five times in all, each repeat after the Retry-After: {what}: {:?}",
            seen.gaps
        );
    }
    in_each_write(Fault::Refused(429), 1, put_off).await;
    in_each_write(Fault::Refused(429), 7, put_off).await;
}

/// Fault: the API server answers 500 to a write | retries a taint with the next pass; a deletion
/// needs two new answers; records an event for a deletion that fails (DeletingNodeFailed); the
/// deletion counts for the brake once, however often the ccm sends it
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_answers_500() {
    in_each_write(Fault::Refused(500), 1, fails_as_ever).await;
    let took = of_three(500).await;
    assert!(
        took < Duration::from_mins(1),
        "the deletion counts for the brake once, however often the ccm sends it: {took:?}"
    );
}

fn given_up(seen: &Seen, what: &str) {
    // A deletion needs two new answers.
    assert!(
        (10.0..22.0).contains(&seen.gaps[0]),
        "gives up after 10 s: {what}: {:?}",
        seen.gaps
    );
    failed(seen, what);
}

/// Fault: the API server never answers a write, and does not do it | gives up after 10 s; a
/// deletion needs two new answers; records an event for a deletion that fails (DeletingNodeFailed);
/// writes nothing twice
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_hangs() {
    fn then_again(seen: &Seen, what: &str) {
        given_up(seen, what);
        new_answers(seen, what);
    }
    in_each_write(Fault::Hangs, 1, then_again).await;
}

/// Fault: the API server does a write, and its answer is lost | writes nothing twice; records an
/// event for a deletion that fails (DeletingNodeFailed)
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_loses_an_answer() {
    in_each_write(Fault::Lost, 1, failed).await;
}

/// Fault: the API server fails when the ccm reads the Node again just before its deletion (409,
/// 422, 429, 500, no answer) | does not delete it; a deletion needs two new answers; deletes no
/// other Node
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
        assert_eq!(looping.left(), 20, "does not delete it: {fault:?}");
        looping.goes(Duration::from_mins(2)).await;
        assert_eq!(looping.api.writes(), ["DELETE n0003"], "{fault:?}");
        let answers = looping.asked();
        // The ccm sends one read at most five times.
        assert!(
            answers >= 2 * (1 + 20 / 5),
            "a deletion needs two new answers: {fault:?}: {answers}"
        );
    }
}

/// Fault: the API server cuts the watch of Nodes, or answers 410 Gone to it | deletes no Node by
/// mistake: the last read sees a Node that is Ready again or was created again; decides by the
/// current state after the new list
#[tokio::test(start_paused = true)]
async fn fault_lifecycle_api_server_cuts_the_watch() {
    let looping = Looping::start(20).await;
    looping.down([3, 5], api::InstanceState::Absent);
    looping.api.faults.cut_watch(true);
    // One Node is Ready again, one was created again, and no watch event says so.
    looping
        .api
        .edit(NODE, |old| old.status = node(3, "True").status);
    looping.api.delete("n0005");
    looping.api.put(&node(5, "True"));
    // A third one goes down, without a watch event.
    looping.down([7], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(
        looping.left(),
        20,
        "deletes no Node by mistake: the last read sees a Node that is Ready again or was created again"
    );
    looping.cloud.state().states.remove(NODE);
    looping.cloud.state().states.remove("n0005");
    looping.api.relist();
    let took = looping.until("deleted", |this| this.left() == 19).await;
    assert!(
        took <= 3 * PERIOD && looping.api.node("n0007").is_none(),
        "decides by the current state after the new list: {took:?}"
    );
}

/// Fault: the ccm is killed right before or right after any write (shutdown taint, its removal, the
/// deletion) | the next process goes on where the killed one ended; a deletion that did not happen
/// needs two new answers; writes nothing twice
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
            let before = looping.asked();
            looping
                .survives(number == 3, |this| this.left() == 19)
                .await;
            let answers = looping.asked() - before;
            assert!(
                number < 3 || fault == Fault::Lost || answers >= 4,
                "a deletion that did not happen needs two new answers: {answers}"
            );
            assert!(looping.api.node(NODE).is_none());
            let wanted = ["PATCH n0003", "PATCH n0003", "DELETE n0003"];
            assert_eq!(
                looping.api.writes(),
                wanted,
                "writes nothing twice: {number}, {fault:?}"
            );
        }
    }
}

impl Looping {
    /// Waits until `wanted`. If `killed`, kills the process at the faulty write first and starts
    /// another.
    async fn survives(&mut self, killed: bool, wanted: impl Fn(&Self) -> bool) {
        if killed {
            self.until("the write", |this| this.api.faults.happened())
                .await;
            self.tasks.abort_all();
            while self.tasks.join_next().await.is_some() {}
            self.memory = std::sync::Arc::default();
            self.run();
        }
        let took = self.until("done", wanted).await;
        assert!(
            took <= 4 * PERIOD,
            "the next process goes on where the killed one ended: {took:?}"
        );
    }
}
