//! Elections against an API server in memory, under paused time. Those in `real` use a real one.

mod fence;
mod real;
mod sim;

use std::sync::Mutex as StdMutex;

use jiff::Timestamp;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use sim::{CUT_OFF, Faults, Sim, UNANSWERED, Wire};

const NEAR: Faults = Faults {
    delay: Duration::from_millis(5),
    least: Duration::ZERO,
    slow: 0.0,
    refuse: 0.0,
    cut: 0.0,
    lose: 0.0,
    twice: 0.0,
};

struct Candidate {
    elector: Elector,
    fence: Fence,
    wire: Wire,
    stop: CancellationToken,
    may: watch::Sender<bool>,
}

fn candidate(sim: &Sim, name: &str, faults: Faults, seed: u64) -> Candidate {
    candidate_for(sim, name, faults, seed, 15)
}

fn candidate_for(sim: &Sim, name: &str, faults: Faults, seed: u64, duration: u64) -> Candidate {
    let fence = Fence::closed();
    let wire = sim.wire(faults, seed);
    let config = LeaderElectionConfig {
        enabled: true,
        lease_duration: Duration::from_secs(duration),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
        resource_name: "cloud-controller-manager".to_owned(),
        resource_namespace: "kube-system".to_owned(),
    };
    // The wall clocks are wrong by up to 15,000 s: nothing may depend on them.
    let wrong = i64::try_from(seed % 7).unwrap() * 5000 - 15_000;
    let base = Instant::now();
    let wall: WallClock = Arc::new(move || {
        let passed = i64::try_from(base.elapsed().as_micros()).unwrap();
        Timestamp::from_microsecond(1_700_000_000_000_000 + wrong * 1_000_000 + passed).unwrap()
    });
    let elector = Elector::new(
        wire.client.clone(),
        config,
        name.to_owned(),
        fence.clone(),
        wall,
        seed,
        Metrics::default(),
    );
    Candidate {
        elector,
        fence,
        wire,
        stop: CancellationToken::new(),
        may: watch::Sender::new(true),
    }
}

impl Candidate {
    async fn lead(&self) -> Option<Term> {
        self.elector.acquire(self.may.subscribe(), &self.stop).await
    }

    async fn lead_within(&self, seconds: f64) -> Term {
        let limit = Duration::from_secs_f64(seconds);
        let term = timeout(limit, self.lead()).await;
        term.expect("should lead by now").unwrap()
    }

    fn gauge(&self) -> i64 {
        let labels = [("name", "cloud-controller-manager".to_owned())];
        let status = &self.elector.shared.metrics.status;
        status.get_or_create(&labels).get()
    }
}

/// Holds the Lease in the background. Returns the term when it is lost or `stop` is cancelled.
fn keep(mut term: Term, stop: CancellationToken) -> tokio::task::JoinHandle<(Term, Option<Lost>)> {
    tokio::spawn(async move {
        let lost = tokio::select! {
            lost = term.hold() => Some(lost),
            () = stop.cancelled() => None,
        };
        (term, lost)
    })
}

#[tokio::test(start_paused = true)]
async fn b_m3_a_standby_says_who_leads_and_when_it_may_itself() {
    let sim = Sim::new();
    let (a, b) = (candidate(&sim, "a", NEAR, 1), candidate(&sim, "b", NEAR, 2));
    assert_eq!(b.elector.stands_behind(), None, "it has read nothing yet");
    let term = a.lead_within(1.0).await;
    let kept = CancellationToken::new();
    let holds = keep(term, kept.clone());
    let said = async {
        // Long enough for several renewals by `a` and reads by `b`.
        sleep(Duration::from_mins(1)).await;
        let said = b.elector.stands_behind();
        (said, (b.elector.shared.wall)())
    };
    let (said, now) = tokio::select! {
        _ = b.lead() => panic!("two lead"),
        said = said => said,
    };
    let said = said.unwrap();
    let at = said.split_once("may take the Lease from ").unwrap().1;
    let at: Timestamp = at.parse().unwrap();
    assert!(said.starts_with("a leads; if it does not renew"), "{said}");
    // 15 s after `b` last saw a renewal, by the wall clock of `b`. `a` renews every 2 s.
    let ahead = at.duration_since(now).as_secs();
    assert!((11..=16).contains(&ahead), "{said}, and it is {now}");
    assert_eq!(a.elector.stands_behind(), None, "it leads");
    kept.cancel();
    let (term, _) = holds.await.unwrap();
    term.release().await;
    let _term = b.lead_within(1.0).await;
    assert_eq!(b.elector.stands_behind(), None);
}

#[tokio::test(start_paused = true)]
async fn n13_a_standby_says_why_it_cannot_take_the_lease_until_it_can() {
    let sim = Sim::new();
    let refusing = Faults {
        refuse: 2.0,
        ..NEAR
    };
    let a = candidate(&sim, "a", refusing, 1);
    assert_eq!(a.elector.complaint(), None);
    let led = timeout(Duration::from_secs(10), a.lead()).await;
    assert!(led.is_err());
    let said = a.elector.complaint().unwrap();
    assert!(
        said.starts_with("cannot read or take the Lease: "),
        "{said}"
    );
    // It does not try while it may not lead.
    let stops = async {
        sleep(Duration::from_secs(10)).await;
        let said = a.elector.complaint();
        a.may.send_replace(false);
        sleep(Duration::from_secs(10)).await;
        (said.is_some(), a.elector.complaint())
    };
    let stopped = tokio::select! {
        _ = a.lead() => panic!("it cannot lead"),
        stopped = stops => stopped,
    };
    assert_eq!(stopped, (true, None));
    a.may.send_replace(true);
    a.wire.set(NEAR);
    let _term = a.lead_within(10.0).await;
    assert_eq!(a.elector.complaint(), None);
}

#[tokio::test(start_paused = true)]
async fn b_m3_created_when_absent_and_renewed() {
    let sim = Sim::new();
    let a = candidate(&sim, "a", NEAR, 1);
    assert_eq!(a.gauge(), 0);
    let mut term = a.lead_within(1.0).await;
    assert_eq!((sim.holder().as_str(), a.gauge()), ("a", 1));
    let held = timeout(Duration::from_mins(1), term.hold()).await;
    assert!(held.is_err() && a.fence.check().is_ok() && a.elector.health().is_ok());
    let spec = &sim.lease().unwrap()["spec"];
    assert_eq!(spec["leaseTransitions"], 0);
    assert_ne!(spec["renewTime"], spec["acquireTime"]);
    // Every 2 s one request, a PUT.
    let (watches, others) = sim.requests();
    assert!(watches <= 1 && (30..34).contains(&others), "{others}");
}

#[tokio::test(start_paused = true)]
async fn m3_released_and_taken_over_within_a_second() {
    for seed in 0..20 {
        let sim = Sim::new();
        let (a, b) = (
            candidate(&sim, "a", NEAR, seed),
            candidate(&sim, "b", NEAR, seed + 100),
        );
        let term = a.lead_within(1.0).await;
        let stop = CancellationToken::new();
        let held = keep(term, stop.clone());
        let standby = timeout(Duration::from_secs_f64(7.3), b.lead()).await;
        assert!(standby.is_err());
        let since = {
            let mut standing = Box::pin(b.lead());
            let standing_for = timeout(Duration::from_secs_f64(1.1), &mut standing).await;
            assert!(standing_for.is_err());
            stop.cancel();
            let (term, _) = held.await.unwrap();
            let start = Instant::now();
            term.release().await;
            assert!(a.fence.check().is_err());
            let term = timeout(Duration::from_secs(1), standing)
                .await
                .expect("failover")
                .unwrap();
            assert_eq!(sim.holder(), "b");
            drop(term);
            start.elapsed()
        };
        assert!(since < Duration::from_millis(200), "{since:?}");
        let spec = &sim.lease().unwrap()["spec"];
        assert_eq!(spec["leaseTransitions"], 1);
        let (watches, _) = sim.requests();
        assert!(watches <= 3, "{watches}");
    }
}

#[tokio::test(start_paused = true)]
async fn b_m3_a_dead_holder_is_followed_after_its_duration() {
    let sim = Sim::new();
    // A Go CCM holds the Lease, with a renewTime from long ago or far in the future.
    for (renewed, duration) in [
        ("1999-01-01T00:00:00.000000Z", 15),
        ("2099-01-01T00:00:00.000000Z", 7),
    ] {
        sim.edit(|lease| {
            lease["spec"] = json!({
                "holderIdentity": "go_1", "leaseDurationSeconds": duration, "leaseTransitions": 4,
                "acquireTime": renewed, "renewTime": renewed,
            });
        });
        let a = candidate(&sim, "a", NEAR, 3);
        let start = Instant::now();
        let term = a.lead_within(20.0).await;
        let waited = start.elapsed();
        let duration = Duration::from_secs(duration);
        assert!(
            waited >= duration && waited < duration + Duration::from_secs(1),
            "{waited:?}"
        );
        assert_eq!(sim.lease().unwrap()["spec"]["leaseTransitions"], 5);
        drop(term);
    }
}

#[tokio::test(start_paused = true)]
async fn b_m3_errors_shorter_than_the_deadline_lose_nothing() {
    let sim = Sim::new();
    let a = candidate(&sim, "a", NEAR, 5);
    let mut term = a.lead_within(1.0).await;
    for faults in [
        CUT_OFF,
        UNANSWERED,
        Faults {
            refuse: 1.0,
            ..NEAR
        },
        Faults { cut: 1.0, ..NEAR },
        // Writes succeed and the answers get lost: the next write conflicts with our own.
        Faults { lose: 1.0, ..NEAR },
    ] {
        a.wire.set(faults);
        let held = timeout(Duration::from_millis(5500), term.hold()).await;
        assert!(held.is_err(), "{faults:?} {held:?}");
        a.wire.set(NEAR);
        let held = timeout(Duration::from_secs(8), term.hold()).await;
        assert!(
            held.is_err() && a.fence.check().is_ok(),
            "{faults:?} {held:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b_m3_taken_by_another_is_lost_at_once() {
    let sim = Sim::new();
    let a = candidate(&sim, "a", NEAR, 5);
    let mut term = a.lead_within(1.0).await;
    let held = timeout(Duration::from_millis(500), term.hold()).await;
    assert!(held.is_err());
    sim.edit(|lease| lease["spec"]["holderIdentity"] = "go_2".into());
    let soon = Duration::from_millis(100);
    let lost = timeout(soon, term.hold()).await.unwrap();
    assert_eq!(
        lost,
        Lost::Taken {
            holder: "go_2".to_owned()
        }
    );
    assert!(a.fence.check().is_err());
    assert_eq!(term.hold().await, lost);
}

#[tokio::test(start_paused = true)]
async fn b_m3_deleted_while_held_is_made_again() {
    let sim = Sim::new();
    let (a, b) = (candidate(&sim, "a", NEAR, 5), candidate(&sim, "b", NEAR, 6));
    let mut term = a.lead_within(1.0).await;
    let standby = tokio::spawn(async move { b.lead().await.map(drop) });
    a.elector
        .set_annotation("grpc-ccm.io/cloud-scope-mock", "account-1");
    let held = timeout(Duration::from_secs(5), term.hold()).await;
    assert!(held.is_err());
    let remembered = a.elector.annotations().borrow().clone();
    assert_eq!(remembered.len(), 1);
    sim.delete();
    // The leader creates the Lease again, and the standby does not take it.
    let held = timeout(Duration::from_secs(30), term.hold()).await;
    assert!(held.is_err() && a.fence.check().is_ok());
    assert_eq!(sim.holder(), "a");
    // ▲S20: deleting the Lease does not accept another cloud scope.
    assert_eq!(*a.elector.annotations().borrow(), remembered);
    assert!(!standby.is_finished());
    standby.abort();
}

#[tokio::test(start_paused = true)]
async fn b_m3_a_standby_goes_on_naming_the_holder_of_a_deleted_lease() {
    let sim = Sim::new();
    let (a, b) = (candidate(&sim, "a", NEAR, 5), candidate(&sim, "b", NEAR, 6));
    let term = a.lead_within(1.0).await;
    let reader = b.elector.clone();
    let standby = tokio::spawn(async move { b.lead().await.map(drop) });
    sleep(Duration::from_secs(1)).await;
    // The holder ends without a release, and somebody deletes its Lease.
    drop(term);
    sim.delete();
    for _ in 0..8 {
        sleep(Duration::from_secs(1)).await;
        let named = reader.stands_behind().unwrap_or_default();
        assert!(named.starts_with("a leads; "), "{named:?}");
    }
    standby.abort();
}

#[tokio::test(start_paused = true)]
async fn b_m3_deleted_while_held_is_made_again_before_another_looks() {
    let sim = Sim::new();
    let a = candidate(&sim, "a", NEAR, 5);
    let mut term = a.lead_within(1.0).await;
    let soon = Duration::from_millis(100);
    for _ in 0..3 {
        assert!(timeout(soon * 5, term.hold()).await.is_err());
        // client-go takes a missing Lease. It reads the Lease every 2 to 4.4 seconds.
        let (_, before) = sim.requests();
        sim.delete();
        assert!(timeout(soon, term.hold()).await.is_err());
        assert_eq!(sim.holder(), "a");
        assert_eq!(sim.requests().1 - before, 2, "one read, one write");
    }
    // If client-go takes the Lease in between, it leads. Our term ends after one read. Our writes
    // before the answer to that read count as in flight.
    let (_, before) = sim.requests();
    sim.delete();
    sim.edit(|lease| lease["spec"]["holderIdentity"] = "go_2".into());
    let lost = timeout(soon, term.hold()).await.unwrap();
    let holder = "go_2".to_owned();
    assert_eq!(lost, Lost::Taken { holder });
    assert!(a.fence.check().is_err());
    assert_eq!(sim.requests().1 - before, 1);
}

#[tokio::test(start_paused = true)]
async fn s20_foreign_fields_and_edits_stay() {
    let key = "grpc-ccm.io/cloud-scope-mock";
    let sim = Sim::new();
    let a = candidate(&sim, "a", NEAR, 5);
    let mut term = a.lead_within(1.0).await;
    let seen = a.elector.annotations();
    a.elector.set_annotation(key, "account-1");
    sim.edit(|lease| {
        lease["metadata"]["labels"] = json!({"team": "infra"});
        lease["metadata"]["annotations"] = json!({"note": "hello"});
    });
    assert!(timeout(Duration::from_secs(3), term.hold()).await.is_err());
    assert_eq!(
        seen.borrow().get(key).map(String::as_str),
        Some("account-1")
    );
    // The operator accepts another scope. Later renewals keep it, and we see it.
    sim.edit(|lease| lease["metadata"]["annotations"][key] = "account-2".into());
    assert!(timeout(Duration::from_secs(9), term.hold()).await.is_err());
    assert_eq!(
        seen.borrow().get(key).map(String::as_str),
        Some("account-2")
    );
    // An edit between our decision and our write wins.
    a.elector.set_annotation(key, "account-3");
    sim.edit(|lease| lease["metadata"]["annotations"][key] = "account-4".into());
    assert!(timeout(Duration::from_secs(9), term.hold()).await.is_err());
    let metadata = &sim.lease().unwrap()["metadata"];
    assert_eq!(
        metadata["annotations"],
        json!({"note": "hello", key: "account-4"})
    );
    assert_eq!(metadata["labels"], json!({"team": "infra"}));
    term.release().await;
    assert_eq!(
        sim.lease().unwrap()["metadata"]["annotations"][key],
        "account-4"
    );
    assert_eq!(sim.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn b_m3_a_conflict_at_a_slow_api_server_loses_nothing() {
    for millis in [600, 900] {
        let sim = Sim::new();
        let slow = Faults {
            least: Duration::from_millis(millis),
            ..NEAR
        };
        let a = candidate(&sim, "a", slow, 5);
        let mut term = a.lead_within(30.0).await;
        for minute in 1..=3 {
            // After an edit with kubectl the leader's last read is out of date.
            sim.edit(|lease| {
                lease["metadata"]["annotations"] = json!({"note": minute.to_string()});
            });
            let lost = timeout(Duration::from_mins(1), term.hold()).await;
            assert!(lost.is_err(), "{millis} ms each way: {lost:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s20_what_is_to_be_remembered_is_written_at_once_and_not_with_the_next_renewal() {
    let sim = Sim::new();
    let a = candidate(&sim, "a", NEAR, 1);
    let term = a.lead_within(1.0).await;
    let held = keep(term, a.stop.clone());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut seen = a.elector.annotations();
    let start = Instant::now();
    a.elector.set_annotation("k", "scope");
    let written = seen.wait_for(|now| now.get("k").is_some_and(|value| value == "scope"));
    timeout(Duration::from_secs(5), written)
        .await
        .unwrap()
        .unwrap();
    assert!(
        start.elapsed() < Duration::from_millis(100),
        "{:?}",
        start.elapsed()
    );
    // The API server does not answer for a while. The leader writes the annotation afterwards.
    a.wire.set(UNANSWERED);
    a.elector.set_annotation("k", "another");
    tokio::time::sleep(Duration::from_secs(4)).await;
    a.wire.set(NEAR);
    let written = seen.wait_for(|now| now.get("k").is_some_and(|value| value == "another"));
    timeout(Duration::from_secs(5), written)
        .await
        .unwrap()
        .unwrap();
    a.stop.cancel();
    let (_, lost) = held.await.unwrap();
    assert_eq!(lost, None);
}

#[tokio::test(start_paused = true)]
async fn b_m3_stands_only_while_allowed() {
    let sim = Sim::new();
    let a = candidate(&sim, "a", NEAR, 5);
    a.may.send_replace(false);
    assert!(timeout(Duration::from_secs(30), a.lead()).await.is_err());
    assert_eq!(sim.requests(), (0, 0));
    a.may.send_replace(true);
    let term = a.lead_within(1.0).await;
    term.release().await;
    // After `stop` the candidate keeps no Lease, even if its request was already on its way.
    a.wire.set(Faults {
        delay: Duration::from_secs(1),
        ..NEAR
    });
    let stop = a.stop.clone();
    let stopper = tokio::spawn(async move {
        sleep(Duration::from_millis(700)).await;
        stop.cancel();
    });
    assert!(a.lead().await.is_none());
    stopper.await.unwrap();
    assert_eq!(sim.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn b_m3_a_release_that_hangs_is_given_up() {
    let sim = Sim::new();
    let a = candidate(&sim, "a", NEAR, 5);
    let term = a.lead_within(1.0).await;
    a.wire.set(CUT_OFF);
    let start = Instant::now();
    term.release().await;
    assert!(start.elapsed() <= Duration::from_millis(5001));
}

#[test]
fn b_m3_identity_is_host_and_uuid() {
    let id = identity("node-1", uuid::Uuid::nil());
    assert_eq!(id, "node-1_00000000-0000-0000-0000-000000000000");
}
