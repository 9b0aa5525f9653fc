//! These tests share one API server. Each has a namespace with a Lease of its own.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use testenv::{ControlPlane, eventually};
use tokio::time::{Instant, sleep_until};

use crate::arena::{Arena, SOON};
use crate::clock;
use crate::contender::Kind::{self, Go, Ours};
use crate::history::last_wrong_write;

/// How long it takes until the next process leads if a leader stops without a release. The Lease's
/// 15 s begin at the last observed renewal, up to two seconds before the stop (the lower bound). A
/// standby checks every 2 to 4.4 s: the upper bound of 24 s, with a margin for a busy machine.
const EXPIRED: std::ops::Range<Duration> = Duration::from_millis(12_500)..Duration::from_secs(32);

/// [`EXPIRED`] with a delay of half a second for each request, head and body. Three requests take
/// 1.5 s longer each: the check just before the Lease expires, the check that finds it expired, and
/// the request that acquires it. client-go counts its 2 to 4.4 s from the answer to the first of
/// them.
const EXPIRED_SLOWLY: std::ops::Range<Duration> =
    Duration::from_millis(12_500)..Duration::from_secs(40);

/// A leader that has just renewed its Lease renews it again only after 2 s. A ccm that sees the
/// deletion of its Lease makes it again much sooner than this, unless the machine stalls.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The first leads and renews, and the second is a standby.
async fn pair(name: &str, kinds: [Kind; 2]) -> Arena {
    let plane = ControlPlane::shared().await;
    let mut arena = Arena::new(plane, name).await;
    arena.start(plane, kinds[0]).await;
    arena.led_by(0).await;
    arena.start(plane, kinds[1]).await;
    arena.renewals(0, 3).await;
    arena
}

async fn killed(name: &str, kinds: [Kind; 2]) {
    let mut arena = pair(name, kinds).await;
    let killed = Instant::now();
    arena.contenders[0].process.kill();
    let took = arena.led_by(1).await - killed;
    arena.measured("from kill -9 to the next leader", took);
    assert!(EXPIRED.contains(&took), "{took:?}");
    arena.verdict(&[0, 1]);
}

#[tokio::test]
async fn b_m3_killed_ours_is_followed_by_go() {
    killed("killed-ours", [Ours, Go]).await;
}

#[tokio::test]
async fn b_m3_killed_go_is_followed_by_ours() {
    killed("killed-go", [Go, Ours]).await;
}

#[tokio::test]
async fn m3_asked_to_end_ours_releases_and_go_follows_within_its_retry_period() {
    let mut arena = pair("asked-ours", [Ours, Go]).await;
    let asked = Instant::now();
    arena.contenders[0].process.terminate();
    let (_, code) = arena.ends(0).await;
    assert_eq!(code, Some(0));
    let took = arena.led_by(1).await - asked;
    arena.measured("from SIGTERM to the next leader", took);
    assert!(took < EXPIRED.start, "{took:?}");
    // Go leads one retry period later at most: it takes the Lease the first time that it finds it
    // released.
    let reads = arena.contenders[1].link.told();
    let released = reads.iter().filter(|read| read.holder.is_empty()).count();
    assert_eq!(released, 1, "{reads:?}");
    arena.verdict(&[0, 1]);
}

#[tokio::test]
async fn b_m3_asked_to_end_go_releases_nothing_and_ours_waits() {
    let mut arena = pair("asked-go", [Go, Ours]).await;
    let asked = Instant::now();
    arena.contenders[0].process.terminate();
    arena.ends(0).await;
    let took = arena.led_by(1).await - asked;
    arena.measured("from SIGTERM to the next leader", took);
    assert!(EXPIRED.contains(&took), "{took:?}");
    arena.verdict(&[0, 1]);
}

/// SIGSTOP for 20 s, or longer if the other process does not lead yet; then SIGCONT.
async fn suspended(name: &str, kinds: [Kind; 2]) {
    let mut arena = pair(name, kinds).await;
    let suspended = Instant::now();
    arena.contenders[0].process.suspend();
    let took = arena.led_by(1).await - suspended;
    arena.measured("from SIGSTOP to the next leader", took);
    assert!(EXPIRED.contains(&took), "{took:?}");
    sleep_until(suspended + Duration::from_secs(20)).await;
    let woken = Instant::now();
    arena.contenders[0].woken = Some(woken);
    arena.contenders[0].process.resume();
    let (ended, code) = arena.ends(0).await;
    arena.measured("from SIGCONT to its end", ended - woken);
    assert_eq!(code, Some(1));
    arena.renewals(1, 2).await;
    if let Some(last) = last_wrong_write(&arena.history.seen(), &arena.contenders[0]) {
        arena.measured(
            "from SIGCONT to its last write beside the other leader",
            last - woken,
        );
    }
    arena.verdict(&[0, 1]);
}

#[tokio::test]
async fn m12_suspended_for_20_s_ours_writes_nothing_more_and_ends() {
    suspended("suspended-ours", [Ours, Go]).await;
}

#[tokio::test]
async fn b_m3_suspended_for_20_s_go_is_followed_by_ours() {
    suspended("suspended-go", [Go, Ours]).await;
}

/// For at least 20 s nothing passes between the leader and the API server. Then the leader's
/// requests arrive.
async fn cut_off(name: &str, kinds: [Kind; 2]) {
    let mut arena = pair(name, kinds).await;
    let cut = Instant::now();
    arena.contenders[0].link.cut();
    let (ended, code) = arena.ends(0).await;
    assert_eq!(code, Some(1));
    arena.measured("from the cut to its end", ended - cut);
    let took = arena.led_by(1).await - cut;
    arena.measured("from the cut to the next leader", took);
    assert!(EXPIRED.contains(&took), "{took:?}");
    // Upstream has no fence: it ends 3 s before the next leads, or later if it stalls.
    if kinds[0] == Ours {
        assert!(ended - cut < took, "it ended after the next one led");
    }
    sleep_until(cut + Duration::from_secs(20)).await;
    arena.contenders[0].link.mend();
    arena.renewals(1, 3).await;
    arena.verdict(&[0, 1]);
}

#[tokio::test]
async fn m12_cut_off_ours_ends_before_go_leads() {
    cut_off("cut-ours", [Ours, Go]).await;
}

#[tokio::test]
async fn b_m3_cut_off_go_is_followed_by_ours() {
    cut_off("cut-go", [Go, Ours]).await;
}

/// Each request of both contenders, and the head and the body of each answer, take half a second.
async fn slow(name: &str, kinds: [Kind; 2]) {
    let plane = ControlPlane::shared().await;
    let mut arena = Arena::new(plane, name).await;
    for kind in kinds {
        let index = arena.start(plane, kind).await;
        let link = &arena.contenders[index].link;
        link.slow(Duration::from_millis(500));
        arena.led_by(0).await;
    }
    // Longer than the Lease lasts.
    arena.renewals(0, 8).await;
    let killed = Instant::now();
    arena.contenders[0].process.kill();
    let took = arena.led_by(1).await - killed;
    arena.measured("from kill -9 to the next leader", took);
    assert!(EXPIRED_SLOWLY.contains(&took), "{took:?}");
    arena.renewals(1, 3).await;
    arena.verdict(&[0, 1]);
}

#[tokio::test]
async fn b_m3_over_a_slow_link_ours_leads_on_and_is_followed_by_go() {
    slow("slow-ours", [Ours, Go]).await;
}

#[tokio::test]
async fn b_m3_over_a_slow_link_go_leads_on_and_is_followed_by_ours() {
    slow("slow-go", [Go, Ours]).await;
}

/// A leader with a wrong clock leads for longer than the Lease's duration. After its kill the next
/// process leads neither sooner nor later than after the kill of any other leader.
async fn wrong_clock(name: &str, kinds: [Kind; 2], seconds: i64) {
    let plane = ControlPlane::shared().await;
    let mut arena = Arena::new(plane, name).await;
    match kinds[0] {
        Ours => {
            let clock = clock::ahead_by(seconds, plane.directory(), name);
            arena.start_at(plane, Ours, Some(clock)).await;
        }
        // A Go program reads the clock without libc. So the link shifts the times in its Lease.
        Go => {
            arena.start(plane, Go).await;
            let ahead = SignedDuration::from_secs(seconds);
            arena.contenders[0].link.clock_ahead(ahead);
        }
    }
    arena.led_by(0).await;
    arena.start(plane, kinds[1]).await;
    arena.renewals(0, 9).await;
    let renewed = arena.lease().await.spec.unwrap().renew_time.unwrap().0;
    let off = renewed.duration_since(Timestamp::now()).as_secs();
    assert!((off - seconds).abs() <= 10, "{off} s off");
    let killed = Instant::now();
    arena.contenders[0].process.kill();
    let took = arena.led_by(1).await - killed;
    arena.measured("from kill -9 to the next leader", took);
    assert!(EXPIRED.contains(&took), "{took:?}");
    arena.verdict(&[0, 1]);
}

#[tokio::test]
async fn b_m3_a_clock_20_s_ahead_is_none_of_gos_business() {
    wrong_clock("ahead-ours", [Ours, Go], 20).await;
}

#[tokio::test]
async fn b_m3_a_clock_20_s_behind_is_none_of_gos_business() {
    wrong_clock("behind-ours", [Ours, Go], -20).await;
}

#[tokio::test]
async fn b_m3_a_clock_of_go_20_s_ahead_is_none_of_our_business() {
    wrong_clock("ahead-go", [Go, Ours], 20).await;
}

#[tokio::test]
async fn b_m3_a_clock_of_go_20_s_behind_is_none_of_our_business() {
    wrong_clock("behind-go", [Go, Ours], -20).await;
}

/// Somebody deletes the Lease while it is held, up to five times.
async fn deleted(name: &str, kinds: [Kind; 2]) {
    let mut arena = pair(name, kinds).await;
    let mut all = Vec::new();
    arena.renewals(0, 1).await;
    for _ in 0..5 {
        let deleted = Instant::now();
        arena.delete_lease().await;
        let again = eventually("the Lease is there again", SOON, async || {
            let mut seen = arena.history.seen().into_iter();
            // Gone, and there again.
            seen.find(|seen| seen.at > deleted && seen.holder.is_none())?;
            seen.find(|seen| seen.holder.is_some()).map(|seen| seen.at)
        });
        let again = again.await - deleted;
        arena.measured("from the deletion until it was made again", again);
        all.push(again);
        if arena.history.holders().len() > 1 {
            break;
        }
        arena.renewals(0, 2).await;
    }
    if kinds[0] == Ours {
        // The ccm watches its Lease, and does not wait for the next renewal, which is due 2 s after
        // the last one. A stalled machine makes some of the five longer.
        let shortest = all.iter().min();
        assert!(shortest < Some(&AT_ONCE), "{all:?}");
    }
    // client-go acquires a missing Lease, whoever had it. If it checks between the deletion and the
    // leader's reaction, it leads, and the other ends. Only one of them may continue.
    if arena.history.holders().len() > 1 {
        assert_eq!(kinds[1], Go, "ours took a Lease that was held");
        assert_eq!(arena.ends(0).await.1, Some(1));
        arena.led_by(1).await;
        arena.verdict(&[0, 1]);
    } else {
        arena.verdict(&[0]);
    }
}

#[tokio::test]
async fn b_m3_deleted_while_ours_holds_it_the_lease_is_made_again_at_once() {
    deleted("deleted-ours", [Ours, Go]).await;
}

#[tokio::test]
async fn b_m3_deleted_while_go_holds_it_the_lease_is_not_taken_by_ours() {
    deleted("deleted-go", [Go, Ours]).await;
}

#[tokio::test]
async fn b_m3_ten_hand_overs_in_a_row_between_ours_and_go() {
    let plane = ControlPlane::shared().await;
    let mut arena = Arena::new(plane, "ten").await;
    arena.start(plane, Ours).await;
    arena.led_by(0).await;
    for index in 1..=10 {
        let next = if index % 2 == 0 { Ours } else { Go };
        arena.start(plane, next).await;
        let asked = Instant::now();
        arena.contenders[index - 1].process.terminate();
        let took = arena.led_by(index).await - asked;
        arena.measured(&format!("from SIGTERM to {next:?}"), took);
        arena.ends(index - 1).await;
        arena.renewals(index, 1).await;
    }
    arena.verdict(&(0..=10).collect::<Vec<_>>());
}

/// Ten hand-overs in a row among processes of ours: how long they took, the shortest first.
async fn ten_among_ours(name: &str) -> Vec<Duration> {
    let plane = ControlPlane::shared().await;
    let mut arena = Arena::new(plane, name).await;
    arena.start(plane, Ours).await;
    arena.led_by(0).await;
    let mut all = Vec::new();
    for index in 1..=10 {
        arena.start(plane, Ours).await;
        arena.renewals(index - 1, 1).await;
        let asked = Instant::now();
        arena.contenders[index - 1].process.terminate();
        let took = arena.led_by(index).await - asked;
        all.push(took);
        assert_eq!(arena.ends(index - 1).await.1, Some(0));
    }
    all.sort_unstable();
    arena.measured(
        "from SIGTERM to the next leader, the shortest of ten",
        all[0],
    );
    arena.measured(
        "from SIGTERM to the next leader, the longest of ten",
        all[9],
    );
    assert!(all[9] < EXPIRED.start, "{all:?}");
    arena.verdict(&(0..=10).collect::<Vec<_>>());
    all
}

/// On a machine that starts thirty other processes at the same time, two of the ten may take
/// longer. If the machine stalls, more of them do, so up to six rounds are played. A standby that
/// waits for its retry period (2 s and more) hardly ever gets eight.
#[tokio::test]
async fn m3_of_ten_hand_overs_in_a_row_among_ours_eight_take_less_than_a_second() {
    let mut rounds = Vec::new();
    for round in 1..=6 {
        let all = ten_among_ours(&format!("ten-ours-{round}")).await;
        if all[7] < Duration::from_secs(1) {
            return;
        }
        rounds.push(all);
    }
    panic!("{rounds:?}");
}
