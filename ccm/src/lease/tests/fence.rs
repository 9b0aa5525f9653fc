//! The fence under faults of the Lease and of the network.

use super::*;
use crate::core::Fenced;

#[tokio::test(start_paused = true)]
async fn m12_the_fence_closes_at_the_deadline_while_renewals_hang() {
    let sim = Sim::new();
    let a = candidate(&sim, "a", NEAR, 5);
    let mut term = a.lead_within(1.0).await;
    let b = candidate(&sim, "b", NEAR, 6);
    let held = timeout(Duration::from_secs(9), term.hold()).await;
    assert!(held.is_err());
    a.wire.set(CUT_OFF);
    let cut = Instant::now();
    let renewed = a.elector.shared.renewed.borrow().unwrap();
    let stop = CancellationToken::new();
    let standing = tokio::spawn(async move {
        let term = b.lead().await;
        (Instant::now(), term)
    });
    let held = keep(term, stop);
    a.fence.wait_closed().await;
    // The fence closes at the start of the last good renewal plus 10 s, to the millisecond of
    // tokio's timer.
    let over = Instant::now() - (renewed + Duration::from_secs(10));
    assert!(over <= Duration::from_millis(1), "{over:?}");
    let (term, lost) = held.await.unwrap();
    assert!(matches!(lost, Some(Lost::Deadline { .. })), "{lost:?}");
    assert!(cut.elapsed() <= Duration::from_millis(10_001));
    assert_eq!(a.gauge(), 0);
    // A lost Lease is not released: that would be a write after the deadline.
    let before = sim.lease();
    a.wire.set(NEAR);
    term.release().await;
    assert_eq!(sim.lease(), before);
    let (taken, _term) = standing.await.unwrap();
    assert!(taken > renewed + Duration::from_secs(15));
}

/// The purpose of the module `lease`: whatever the network does, at most one fence is open. The
/// network's faults are random here, and the test checks the fences every 20 ms.
#[tokio::test(start_paused = true)]
async fn m12_never_two_open_fences() {
    let mut terms = 0;
    for seed in 0..25 {
        terms += never_two(seed).await;
    }
    // The test shows nothing if nobody leads.
    assert!(terms > 125, "{terms}");
}

async fn never_two(seed: u64) -> usize {
    let mut rng = StdRng::seed_from_u64(seed);
    let sim = Sim::new();
    let led = Arc::new(StdMutex::new(0));
    let mut tasks = JoinSet::new();
    let mut fences = Vec::new();
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        let faults = Faults {
            // With every second seed the delays are short: slow requests alone would keep two
            // leaders apart.
            delay: Duration::from_millis(
                rng.random_range(1..if seed.is_multiple_of(2) { 20 } else { 1500 }),
            ),
            least: Duration::ZERO,
            slow: rng.random_range(0.0..0.2),
            refuse: rng.random_range(0.0..0.2),
            cut: rng.random_range(0.0..0.2),
            lose: rng.random_range(0.0..0.2),
            twice: rng.random_range(0.0..0.5),
        };
        // The Lease lasts hardly longer than the renew deadline of 10 s: a wider gap would hide
        // faults.
        let candidate = candidate_for(&sim, name, faults, seed * 10 + index as u64, 11);
        fences.push(candidate.fence.clone());
        let mut rng = StdRng::seed_from_u64(seed * 100 + index as u64);
        let led = Arc::clone(&led);
        tasks.spawn(async move {
            loop {
                let Some(mut term) = candidate.lead().await else {
                    return;
                };
                *led.lock().unwrap() += 1;
                let time = Duration::from_secs_f64(rng.random_range(0.0..40.0));
                let lost = timeout(time, term.hold()).await;
                match (lost, rng.random_range(0..4)) {
                    (Ok(_), _) => {}
                    // The process dies.
                    (Err(_), 0) => drop(term),
                    // The process is cut off for long.
                    (Err(_), 1) => {
                        candidate
                            .wire
                            .set(if rng.random() { CUT_OFF } else { UNANSWERED });
                        term.hold().await;
                        drop(term);
                        candidate.wire.set(faults);
                    }
                    (Err(_), _) => term.release().await,
                }
                sleep(Duration::from_secs_f64(rng.random_range(0.0..5.0))).await;
            }
        });
    }
    let end = Instant::now() + Duration::from_mins(5);
    while Instant::now() < end {
        let open = fences.iter().filter(|fence| fence.check().is_ok()).count();
        assert!(open <= 1, "seed {seed}: {open} fences are open");
        sleep(Duration::from_millis(20)).await;
    }
    tasks.shutdown().await;
    *led.lock().unwrap()
}

#[tokio::test(start_paused = true)]
async fn m12_wait_closed() {
    let fence = Fence::closed();
    fence.wait_closed().await;
    fence.extend(Instant::now() + Duration::from_secs(10));
    let early = timeout(Duration::from_secs(9), fence.wait_closed()).await;
    assert!(early.is_err());
    fence.extend(Instant::now() + Duration::from_secs(10));
    let start = Instant::now();
    fence.wait_closed().await;
    assert!(start.elapsed() >= Duration::from_secs(10));
    let open = Fence::open();
    let (waiting, closing) = (open.clone(), open.clone());
    tokio::join!(waiting.wait_closed(), async move { closing.close() });
    assert_eq!(open.check(), Err(Fenced));
}
