use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tokio::time::{advance, timeout};

use super::*;

const BACKOFF: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_mins(5));
const NO_LINGER: Duration = Duration::ZERO;
const LINGER: Duration = Duration::from_millis(100);

fn queue() -> Queue<u32> {
    let mut registry = prometheus_client::registry::Registry::default();
    Queue::new("test", BACKOFF, 7, &Metrics::register(&mut registry))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The next batch; empty if no key is due now.
async fn now(queue: &Queue<u32>, max: usize) -> Vec<u32> {
    timeout(NO_LINGER, queue.next_batch(max, NO_LINGER))
        .await
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn oldest_due_first_and_no_more_than_max() {
    let queue = queue();
    let start = Instant::now();
    queue.add_at(1, start + secs(3));
    queue.add_at(2, start + secs(1));
    queue.add_at(3, start + secs(2));
    assert!(now(&queue, 2).await.is_empty());
    advance(secs(5)).await;
    assert_eq!(now(&queue, 2).await, [2, 3]);
    assert_eq!(now(&queue, 2).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn add_makes_due_earlier_but_never_later() {
    let queue = queue();
    let start = Instant::now();
    queue.add_at(1, start + secs(9));
    queue.add_at(1, start + secs(5));
    queue.add_at(1, start + secs(7));
    assert_eq!(queue.next_batch(9, NO_LINGER).await, [1]);
    assert_eq!(Instant::now(), start + secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_batch_leaves_when_full_or_after_the_linger() {
    let queue = queue();
    let start = Instant::now();
    queue.add(1);
    queue.add_at(2, start + LINGER / 2);
    queue.add_at(3, start + LINGER * 2);
    assert_eq!(queue.next_batch(9, LINGER).await, [1, 2]);
    assert_eq!(Instant::now(), start + LINGER);

    let start = Instant::now();
    queue.add(4);
    queue.add_at(5, start + LINGER / 4);
    assert_eq!(queue.next_batch(2, LINGER).await, [4, 5]);
    assert_eq!(Instant::now(), start + LINGER / 4, "full: no more waiting");

    queue.add(6);
    advance(LINGER).await;
    let start = Instant::now();
    assert_eq!(queue.next_batch(9, secs(0)).await, [6, 3]);
    assert_eq!(
        Instant::now(),
        start,
        "what was due long enough waits no more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_in_work_is_not_handed_out_again_before_done() {
    let queue = queue();
    queue.add(1);
    assert_eq!(now(&queue, 9).await, [1]);
    queue.add(1);
    queue.add(1);
    assert!(now(&queue, 9).await.is_empty());
    queue.done(&1, Requeue::Forget);
    assert_eq!(now(&queue, 9).await, [1]);
    queue.done(&1, Requeue::Forget);
    assert!(now(&queue, 9).await.is_empty());
    assert_eq!((queue.len(), queue.in_flight()), (0, 0));
    queue.done(&1, Requeue::Retry);
    assert_eq!(queue.len(), 0, "done twice counts once");
}

#[tokio::test(start_paused = true)]
async fn b_s9_backoff_doubles_from_5_to_300_seconds() {
    let queue = queue();
    queue.add(1);
    for (failures, whole) in (0..).zip([5, 10, 20, 40, 80, 160, 300, 300, 300]) {
        assert_eq!(queue.failures(&1), failures);
        assert_eq!(queue.next_batch(1, NO_LINGER).await, [1]);
        queue.done(&1, Requeue::Retry);
        let failed = Instant::now();
        let batch = queue.next_batch(1, NO_LINGER).await;
        let waited = failed.elapsed();
        assert!(
            waited >= secs(whole)
                && waited <= (secs(whole) * 6 / 5).min(secs(300)) + Duration::from_millis(1),
            "{whole}: {waited:?}"
        );
        // The keys are put back without another failure.
        for key in batch {
            queue.done(&key, Requeue::At(Instant::now()));
        }
    }
    let _ = queue.next_batch(1, NO_LINGER).await;
    queue.done(&1, Requeue::Forget);
    assert_eq!(queue.failures(&1), 0);
}

#[tokio::test(start_paused = true)]
async fn an_add_during_work_comes_before_the_backoff() {
    let queue = queue();
    queue.add(1);
    assert_eq!(now(&queue, 1).await, [1]);
    queue.add(1);
    queue.done(&1, Requeue::Retry);
    assert_eq!(now(&queue, 1).await, [1]);
    assert_eq!(queue.failures(&1), 1);
}

#[tokio::test(start_paused = true)]
async fn hastened_a_key_that_waits_is_due_earlier_and_one_that_is_not_held_is_added() {
    let queue = queue();
    let start = Instant::now();
    queue.add_at(1, start + secs(9));
    queue.hasten(1, start + secs(2));
    queue.hasten(2, start + secs(3));
    assert_eq!(queue.next_batch(1, NO_LINGER).await, [1]);
    assert_eq!(Instant::now(), start + secs(2));
    assert_eq!(queue.next_batch(1, NO_LINGER).await, [2]);
    assert_eq!(Instant::now(), start + secs(3));
}

#[tokio::test(start_paused = true)]
async fn hastened_during_work_the_next_try_comes_earlier_and_there_is_none_after_success() {
    let queue = queue();
    let later = Instant::now() + secs(60);
    for (key, (outcome, due)) in (0..).zip([
        (Requeue::Forget, None),
        (Requeue::Idle, Some(secs(2))),
        (Requeue::At(later), Some(secs(2))),
        (Requeue::At(Instant::now()), Some(secs(0))),
        (Requeue::Retry, Some(secs(2))),
        (Requeue::RetryTransport, Some(secs(2))),
    ]) {
        let start = Instant::now();
        queue.add(key);
        assert_eq!(now(&queue, 1).await, [key]);
        queue.hasten(key, start + secs(3));
        queue.hasten(key, start + secs(2));
        queue.hasten(key, start + secs(4));
        queue.done(&key, outcome);
        assert_eq!(queue.due(&key), due.map(|due| start + due), "{outcome:?}");
        queue.remove(&key);
    }
    // With `Idle`, a `hasten` during the work counts, unless the key is removed after it.
    queue.add(7);
    assert_eq!(now(&queue, 1).await, [7]);
    queue.hasten(7, Instant::now());
    queue.done(&7, Requeue::Idle);
    assert_eq!(now(&queue, 1).await, [7]);
    queue.hasten(7, Instant::now());
    queue.remove(&7);
    queue.done(&7, Requeue::Idle);
    assert!(!queue.holds(&7));
}

#[tokio::test(start_paused = true)]
async fn m9_transport_backoffs_are_reset_and_only_those() {
    let queue = queue();
    for key in 1..=3 {
        queue.add(key);
    }
    assert_eq!(now(&queue, 9).await, [1, 2, 3]);
    queue.done(&1, Requeue::Retry);
    queue.done(&2, Requeue::RetryTransport);
    queue.done(&3, Requeue::RetryTransport);
    queue.remove(&3);
    assert!(now(&queue, 9).await.is_empty());
    queue.reset_transport_backoffs();
    assert_eq!(now(&queue, 9).await, [2]);
    assert_eq!((queue.failures(&1), queue.failures(&2)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn removed_during_work_its_outcome_is_ignored_but_a_later_add_counts() {
    let queue = queue();
    for key in [1, 2] {
        queue.add(key);
    }
    assert_eq!(now(&queue, 9).await, [1, 2]);
    queue.add(1);
    queue.remove(&1);
    queue.remove(&2);
    queue.add(2);
    queue.done(&1, Requeue::Retry);
    queue.done(&2, Requeue::Retry);
    assert_eq!(now(&queue, 9).await, [2]);
    assert_eq!((queue.failures(&2), queue.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_loses_nothing() {
    let queue = queue();
    queue.add(1);
    let lingering = timeout(LINGER / 2, queue.next_batch(9, LINGER)).await;
    assert!(lingering.is_err());
    assert_eq!(queue.next_batch(9, LINGER).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn several_waiters_share_the_keys() {
    let queue = Arc::new(queue());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let queue = Arc::clone(&queue);
        tasks.spawn(async move { queue.next_batch(2, LINGER).await });
    }
    tokio::task::yield_now().await;
    for key in 0..8 {
        queue.add(key);
    }
    let mut all = Vec::new();
    while let Some(batch) = timeout(secs(1), tasks.join_next()).await.unwrap() {
        all.extend(batch.unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, (0..8).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn b_m7_metrics_have_upstreams_names_and_one_series_per_name() {
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = Metrics::register(&mut registry);
    let one = Queue::new("service", BACKOFF, 1, &metrics);
    let two = Queue::new("service", BACKOFF, 2, &metrics);
    for key in 0..3 {
        one.add(key);
        two.add(key);
    }
    two.add_at(9, Instant::now() + secs(60));
    assert_eq!(now(&one, 1).await, [0]);
    assert_eq!(now(&one, 1).await, [1]);
    advance(secs(2)).await;
    one.done(&1, Requeue::Retry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"workqueue_depth{name="service"} 4.0"#,
        r#"workqueue_adds_total{name="service"} 7"#,
        r#"workqueue_retries_total{name="service"} 1"#,
        r#"workqueue_unfinished_work_seconds{name="service"} 2.0"#,
        r#"workqueue_longest_running_processor_seconds{name="service"} 2.0"#,
        r#"workqueue_queue_duration_seconds_count{name="service"} 2"#,
        r#"workqueue_work_duration_seconds_sum{name="service"} 2.0"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u32),
    AddIn(u32, u64),
    Hasten(u32, u64),
    Take(usize),
    DropWaiter,
    Done(usize, u8),
    Reset,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..12_u32).prop_map(Step::Add),
        3 => (0..12_u32, 0..400_u64).prop_map(|(key, secs)| Step::AddIn(key, secs)),
        2 => (0..12_u32, 0..30_u64).prop_map(|(key, secs)| Step::Hasten(key, secs)),
        4 => (1..5_usize).prop_map(Step::Take),
        1 => Just(Step::DropWaiter),
        4 => (0..12_usize, 0..5_u8).prop_map(|(key, how)| Step::Done(key, how)),
        1 => Just(Step::Reset),
        2 => (0..400_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// The model is `wanted`: the time at which each waiting key is due at the latest. For a key in
    /// work, it has the due time of an `add` during the work.
    #[test]
    fn never_lost_never_twice_at_once_in_the_order_of_due_times(steps in prop::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let queue = queue();
            let mut wanted = BTreeMap::<u32, Instant>::new();
            let mut works = BTreeSet::<u32>::new();
            // A `hasten` during the work counts only if the work does not end in `Forget`.
            let mut hastened = BTreeMap::<u32, Instant>::new();
            // Keys whose due time only the queue knows, because of jitter. The model assumes the
            // longest backoff, so the queue may hand these keys out earlier.
            let mut vague = BTreeSet::<u32>::new();
            let want = |wanted: &mut BTreeMap<u32, Instant>, key, at: Instant| {
                let due = wanted.entry(key).or_insert(at);
                *due = at.min(*due);
            };
            for step in steps {
                let start = Instant::now();
                match step {
                    Step::Add(key) => {
                        queue.add(key);
                        want(&mut wanted, key, start);
                    }
                    Step::AddIn(key, delay) => {
                        queue.add_at(key, start + secs(delay));
                        want(&mut wanted, key, start + secs(delay));
                    }
                    Step::Hasten(key, delay) => {
                        let at = start + secs(delay);
                        queue.hasten(key, at);
                        let pending = if works.contains(&key) { &mut hastened } else { &mut wanted };
                        want(pending, key, at);
                    }
                    Step::Take(max) => {
                        let batch = now(&queue, max).await;
                        prop_assert!(batch.len() <= max);
                        let mut last = None;
                        for key in &batch {
                            prop_assert!(works.insert(*key), "{key} twice at once");
                            let due = wanted.remove(key);
                            prop_assert!(due.is_some(), "{key} was not asked for");
                            if !vague.remove(key) {
                                prop_assert!(last <= due, "not in order");
                                last = due;
                            }
                        }
                        if batch.len() < max {
                            let left = wanted.iter().find(|(key, due)| **due <= start && !works.contains(key));
                            prop_assert!(left.is_none(), "{left:?} was due");
                        }
                    }
                    Step::DropWaiter => {
                        let batch = timeout(LINGER / 2, queue.next_batch(100, secs(1000))).await;
                        for key in batch.unwrap_or_default() {
                            prop_assert!(works.insert(key) && wanted.remove(&key).is_some());
                            vague.remove(&key);
                        }
                    }
                    Step::Done(nth, how) => {
                        let Some(key) = works.iter().nth(nth).copied() else { continue };
                        works.remove(&key);
                        let outcome = match how {
                            0 => Requeue::Forget,
                            1 => Requeue::At(start + secs(20)),
                            2 => Requeue::Retry,
                            3 => Requeue::RetryTransport,
                            _ => Requeue::Idle,
                        };
                        queue.done(&key, outcome);
                        if let Some(at) = hastened.remove(&key) && outcome != Requeue::Forget {
                            want(&mut wanted, key, at);
                        }
                        match outcome {
                            Requeue::Forget | Requeue::Idle => {}
                            Requeue::At(at) => want(&mut wanted, key, at),
                            _ => {
                                vague.insert(key);
                                want(&mut wanted, key, start + BACKOFF.pause(u32::MAX));
                            }
                        }
                    }
                    Step::Reset => queue.reset_transport_backoffs(),
                    Step::Wait(delay) => advance(secs(delay)).await,
                }
                prop_assert_eq!(queue.in_flight(), works.len());
            }
            // Each key that is still wanted is handed out in the end, once.
            for key in works {
                queue.done(&key, Requeue::Forget);
            }
            advance(secs(1000)).await;
            let mut rest = now(&queue, 100).await;
            rest.sort_unstable();
            prop_assert_eq!(rest, wanted.into_keys().collect::<Vec<_>>());
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn m10_of_keys_that_wait_for_other_credentials_one_is_due_for_all() {
    let queue = queue();
    let refuse = |key: u32| {
        let now = Instant::now();
        queue.done(
            &key,
            Requeue::Refused {
                probe: now + secs(20),
                at: now + secs(300),
            },
        );
    };
    for key in 1..=3 {
        queue.add(key);
    }
    for key in now(&queue, 9).await {
        refuse(key);
    }
    let start = Instant::now();
    assert_eq!(queue.next_batch(9, NO_LINGER).await, [1]);
    assert_eq!(Instant::now(), start + secs(20));
    refuse(1);
    assert_eq!(queue.next_batch(9, NO_LINGER).await, [2]);
    assert_eq!(Instant::now(), start + secs(40));
    // After a failure that does not show whether the cloud accepts the credentials, the next key is
    // the probe.
    queue.done(&2, Requeue::Retry);
    advance(secs(6)).await;
    assert_eq!(now(&queue, 9).await, [2]);
    queue.done(&2, Requeue::Forget);
    assert_eq!(queue.next_batch(9, NO_LINGER).await, [3]);
    assert_eq!(Instant::now(), start + secs(60));
    refuse(3);
    // After the probe is removed, the next key is the probe.
    queue.remove(&1);
    assert_eq!(queue.next_batch(9, NO_LINGER).await, [3]);
    assert_eq!(Instant::now(), start + secs(80));
    refuse(3);
    // A provider that has returned is asked at once.
    queue.reset_transport_backoffs();
    assert_eq!(now(&queue, 9).await, [3]);
    refuse(3);
    for key in 4..=6 {
        queue.add(key);
    }
    for key in now(&queue, 9).await {
        refuse(key);
    }
    assert!(now(&queue, 9).await.is_empty());
    assert_eq!(queue.next_batch(9, NO_LINGER).await, [3]);
    queue.accepted(&3);
    queue.done(&3, Requeue::Forget);
    assert_eq!(now(&queue, 9).await, [4, 5, 6]);
    assert_eq!(Instant::now(), start + secs(100));
}

#[tokio::test(start_paused = true)]
async fn which_keys_are_busy_and_which_the_queue_holds() {
    let queue = queue();
    queue.add(1);
    queue.add(2);
    queue.add_at(3, Instant::now() + secs(9));
    assert_eq!(queue.busy(), [1, 2], "due");
    let began = Instant::now();
    assert_eq!(now(&queue, 1).await, [1]);
    advance(secs(1)).await;
    assert_eq!(queue.working_since(&1), Some(began));
    assert_eq!(queue.working_since(&2), None);
    assert_eq!(queue.busy(), [1, 2], "one is worked on");
    queue.done(&1, Requeue::Forget);
    assert_eq!(queue.busy(), [2]);
    assert!(!queue.holds(&1) && queue.holds(&2) && queue.holds(&3));
}
