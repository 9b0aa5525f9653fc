//! The policies of the loop, shown on a made-up controller with a provider and an API server in
//! memory.

mod tiny;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{Width, run};
use crate::controllers::node::testing::{Cloud, FakeApi, Fault, Instead};
use crate::provider::testing::{InMemory, Running, SCOPE_KEY, maintained};
use crate::provider::{CallError, CallErrorCode, Hint, ProviderStatus, Retry};
use crate::queue::Requeue;
use tiny::{Tiny, is_labelled};

/// One Node in a batch, two batches at once.
const WIDTH: Width = Width {
    batch: 1,
    linger: Duration::ZERO,
    calls: 2,
    writes: 2,
};

struct Bench {
    api: FakeApi,
    cloud: Cloud,
    process: InMemory,
    provider: Running,
    tiny: Arc<Tiny>,
    tasks: JoinSet<()>,
}

impl Bench {
    /// The loop runs, and its provider waits for a leader.
    fn standby(width: Width) -> Self {
        let (api, cloud) = (FakeApi::default(), Cloud::new());
        let process = InMemory::running(cloud.service());
        let provider = maintained(process.clone());
        let tiny = Arc::new(Tiny::new(api.context(provider.status.clone()), width));
        let mut tasks = JoinSet::new();
        let running = Arc::clone(&tiny);
        tasks.spawn(async move { run(&running).await });
        Self {
            api,
            cloud,
            process,
            provider,
            tiny,
            tasks,
        }
    }

    async fn new(width: Width) -> Self {
        let bench = Self::standby(width);
        bench.lead().await;
        bench
    }

    async fn lead(&self) {
        self.provider.lead();
        self.provider.session().await;
    }

    fn put(&self, names: &[&str]) {
        for name in names {
            let mut node = Node::default();
            node.metadata.name = Some((*name).to_owned());
            self.api.put(&node);
        }
    }

    /// How many Nodes are labelled.
    fn done(&self) -> usize {
        let nodes = self.api.nodes();
        nodes.iter().filter(|node| is_labelled(node)).count()
    }

    fn calls(&self) -> usize {
        self.cloud.state().lookups.len()
    }

    /// Waits (in tokio's time) until the condition holds. Returns how long that took.
    async fn until(&self, what: &str, so: impl Fn(&Self) -> bool) -> Duration {
        let start = Instant::now();
        while !so(self) {
            assert!(
                start.elapsed() < Duration::from_mins(10),
                "never came: {what}"
            );
            sleep(Duration::from_millis(10)).await;
        }
        start.elapsed()
    }

    /// Returns how long the drain took.
    async fn stop(mut self) -> Duration {
        let start = Instant::now();
        self.tiny.driver.context.stop.cancel();
        let ended = timeout(Duration::from_mins(2), self.tasks.join_next()).await;
        ended.expect("the loop returns").unwrap().unwrap();
        start.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_is_a_key_a_width_sources_and_what_it_does() {
    let bench = Bench::new(Width { batch: 10, ..WIDTH }).await;
    bench.put(&["a", "b", "c"]);
    bench.until("all", |this| this.done() == 3).await;
    assert_eq!(bench.cloud.state().lookups, [["a", "b", "c"]], "one batch");
    bench.api.delete("a");
    bench.put(&["d"]);
    bench.until("the new one", |this| this.done() == 3).await;
    assert_eq!((bench.calls(), bench.api.writes().len()), (2, 4));
    assert_eq!(bench.tiny.driver.queue.len(), 0);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn m9_keys_wait_while_the_provider_is_away_and_are_due_at_once_when_it_is_back() {
    let bench = Bench::new(WIDTH).await;
    bench.process.kill();
    let away = bench.provider.until("away", |it| it.working().is_none());
    away.await;
    bench.put(&["a"]);
    sleep(Duration::from_mins(1)).await;
    assert_eq!((bench.calls(), bench.tiny.driver.queue.len()), (0, 1));
    bench.process.start(bench.cloud.service());
    bench.provider.session().await;
    let took = bench.until("it", |this| this.done() == 1).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn m9_a_new_session_ends_the_backoffs_of_lost_connections() {
    let bench = Bench::new(WIDTH).await;
    bench.cloud.state().hang.insert("a".to_owned());
    bench.put(&["a"]);
    bench.until("asked", |this| this.calls() == 1).await;
    bench.process.kill();
    bench.process.start(bench.cloud.service());
    bench.until("asked again", |this| this.calls() == 2).await;
    bench.process.kill();
    let queue = &bench.tiny.driver.queue;
    bench.until("failed", |_| queue.in_flight() == 0).await;
    let failures = queue.failures(&"a".to_owned());
    assert_eq!(failures, 1, "the one before is forgotten");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s20_keys_wait_while_the_cloud_scope_is_not_the_accepted_one() {
    let bench = Bench::standby(WIDTH);
    let scope = |scope: &str| BTreeMap::from([(SCOPE_KEY.to_owned(), scope.to_owned())]);
    bench.provider.annotations.send_replace(scope("another"));
    bench.lead().await;
    bench.put(&["a"]);
    sleep(Duration::from_mins(5)).await;
    assert_eq!((bench.calls(), bench.tiny.driver.queue.len()), (0, 1));
    bench.provider.annotations.send_replace(scope("account 1"));
    bench.until("it", |this| this.done() == 1).await;
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_more_batches_call_at_once_than_the_width_allows() {
    let bench = Bench::new(WIDTH).await;
    bench.cloud.state().delay = Duration::from_secs(10);
    bench.put(&["a", "b", "c", "d", "e"]);
    bench.until("two calls", |this| this.calls() == 2).await;
    sleep(Duration::from_secs(9)).await;
    assert_eq!((bench.calls(), bench.done()), (2, 0));
    bench.until("all", |this| this.done() == 5).await;
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn m10_a_slow_write_takes_no_place_of_a_call_until_too_many_are_slow() {
    let bench = Bench::new(Width { calls: 1, ..WIDTH }).await;
    bench.api.faults.writes(1, 1, Fault::Hangs);
    bench.put(&["a", "b", "c"]);
    bench.until("the others", |this| this.done() == 2).await;

    bench.api.faults.writes(1, 1, Fault::Hangs);
    bench.put(&["d", "e"]);
    bench.until("asked", |this| this.calls() == 4).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        (bench.calls(), bench.done()),
        (4, 2),
        "two writes hang: nobody else is asked about"
    );
}

#[tokio::test(start_paused = true)]
async fn after_throttled_keys_stay_in_the_queue_until_the_cloud_may_be_asked() {
    let bench = Bench::new(WIDTH).await;
    let throttled = api::FailureCode::Throttled;
    bench.cloud.state().failures.push_back(throttled);
    bench.put(&["a"]);
    let queue = &bench.tiny.driver.queue;
    let failed = |this: &Bench| this.calls() == 1 && queue.in_flight() == 0;
    bench.until("failed", failed).await;
    let start = Instant::now();
    bench.put(&["b"]);
    sleep(Duration::from_secs(4)).await;
    assert_eq!((queue.len(), queue.in_flight()), (2, 0), "both are due");
    bench.until("all", |this| this.done() == 2).await;
    let took = start.elapsed();
    assert!(
        (Duration::from_millis(4_900)..Duration::from_secs(6)).contains(&took),
        "THROTTLED without a time slows for 5 s: {took:?}"
    );
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l7_a_hint_brings_the_next_try_forward() {
    let bench = Bench::new(WIDTH).await;
    let invalid = Instead::Failed(api::FailureCode::Invalid.into());
    let once = VecDeque::from([invalid]);
    bench.cloud.state().instead.insert("a".to_owned(), once);
    bench.put(&["a"]);
    sleep(Duration::from_mins(1)).await;
    assert_eq!((bench.calls(), bench.done()), (1, 0), "due in half an hour");
    let events = bench.tiny.driver.context.writes.events.recorded();
    assert!(
        events.len() == 1 && events[0].contains("SizeUnknown"),
        "{events:?}"
    );
    let hint = Hint::Instance {
        provider_id: String::new(),
        node_name: "a".to_owned(),
    };
    bench.tiny.driver.context.hints.send(hint).unwrap();
    let took = bench.until("it", |this| this.done() == 1).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn b_m3_the_stop_drops_calls_finishes_a_write_and_begins_none() {
    let bench = Bench::new(WIDTH).await;
    bench.cloud.state().hang.insert("a".to_owned());
    bench.put(&["a"]);
    bench.until("asked", |this| this.calls() == 1).await;
    let took = bench.stop().await;
    assert!(took < Duration::from_millis(100), "{took:?}");

    let bench = Bench::new(Width { batch: 10, ..WIDTH }).await;
    let stop = bench.tiny.driver.context.stop.clone();
    bench.api.before_next_write(move |_| stop.cancel());
    bench.put(&["a", "b", "c"]);
    bench.until("one", |this| this.done() == 1).await;
    let api = bench.api.clone();
    bench.stop().await;
    assert_eq!(api.writes(), ["PATCH a"]);
}

#[tokio::test(start_paused = true)]
async fn m10_a_key_is_settled_once_and_one_that_is_not_returns_with_backoff() {
    let (_status, status) = watch::channel(ProviderStatus::default());
    let tiny = Tiny::new(FakeApi::default().context(status), WIDTH);
    let driver = &tiny.driver;
    let both = ["a", "b"].map(str::to_owned);
    for key in &both {
        driver.queue.add(key.clone());
    }
    let taken = driver.queue.next_batch(2, Duration::ZERO).await;
    let batch = driver.batch(taken);
    batch.settle(&both[0], Requeue::Forget);
    batch.settle(&both[0], Requeue::Retry);
    assert_eq!(
        (batch.keys(), driver.queue.len()),
        (vec!["b".to_owned()], 0)
    );
    // A batch is dropped like this when its task panics.
    drop(batch);
    assert_eq!((driver.queue.len(), driver.queue.in_flight()), (1, 0));
    assert_eq!(driver.queue.failures(&both[1]), 1);
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_that_is_settled_otherwise_stays_in_its_row_until_it_is_done() {
    let (_status, status) = watch::channel(ProviderStatus::default());
    let tiny = Tiny::new(FakeApi::default().context(status), WIDTH);
    let driver = &tiny.driver;
    let key = "a".to_owned();
    let busy = CallError::new(CallErrorCode::Busy, "m");
    driver.queue.add(key.clone());
    for (is_quick, outcome) in [
        (true, Requeue::Retry),
        (true, Requeue::Retry),
        (true, Requeue::Retry),
        (true, Requeue::Retry),
        (true, Requeue::Retry),
        (false, Requeue::Forget),
        (true, Requeue::Forget),
    ] {
        let batch = driver.batch(driver.queue.next_batch(1, Duration::ZERO).await);
        let retry = batch.reaction(&key, &busy).retry;
        assert_eq!(matches!(retry, Retry::After(_)), is_quick, "{outcome:?}");
        assert_eq!(batch.keys(), [key.as_str()], "it is not settled");
        batch.settle(&key, outcome);
        driver.queue.add(key.clone());
    }
}
