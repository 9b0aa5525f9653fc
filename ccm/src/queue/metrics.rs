//! The `workqueue_*` metrics, named as in client-go, with the label `name`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::Requeue;
use crate::core::{lock, registered};

type Labels = [(&'static str, &'static str); 1];
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// The `workqueue_*` families.
#[derive(Clone)]
pub(crate) struct Metrics {
    adds: Family<Labels, Counter>,
    retries: Family<Labels, Counter>,
    queue_duration: Histograms,
    work_duration: Histograms,
    queues: Queues,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            adds: registered(
                registry,
                "workqueue_adds",
                "Keys added to the work queue, without those that waited there already",
                Family::default(),
            ),
            retries: registered(
                registry,
                "workqueue_retries",
                "Keys whose work ended with a request for another try",
                Family::default(),
            ),
            queue_duration: registered(
                registry,
                "workqueue_queue_duration_seconds",
                "How long keys were due before they were worked on",
                Family::new_with_constructor(seconds),
            ),
            work_duration: registered(
                registry,
                "workqueue_work_duration_seconds",
                "How long work on a key took",
                Family::new_with_constructor(seconds),
            ),
            queues: Queues::default(),
        };
        registry.register_collector(Box::new(metrics.queues.clone()));
        metrics
    }

    /// The counters and histograms of one queue.
    pub(super) fn recorder(&self, name: &'static str) -> Recorder {
        let labels = [("name", name)];
        Recorder {
            adds: self.adds.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
            queue_duration: self.queue_duration.get_or_create_owned(&labels),
            work_duration: self.work_duration.get_or_create_owned(&labels),
        }
    }

    /// Reads this queue's load at each scrape, for as long as the queue exists.
    pub(super) fn observe(&self, name: &'static str, queue: &Arc<dyn Observed>) {
        let mut queues = lock(&self.queues.0);
        queues.retain(|(_, queue)| queue.strong_count() > 0);
        queues.push((name, Arc::downgrade(queue)));
    }
}

/// Buckets from 10 ns to 10 s.
fn seconds() -> Histogram {
    // Multiplied as the Go Prometheus client does it: powers would give slightly different bounds.
    Histogram::new(std::iter::successors(Some(1e-8), |bound| Some(bound * 10.0)).take(10))
}

pub(super) struct Recorder {
    adds: Counter,
    retries: Counter,
    queue_duration: Histogram,
    work_duration: Histogram,
}

impl Recorder {
    pub(super) fn added(&self) {
        self.adds.inc();
    }

    pub(super) fn taken(&self, waits: impl Iterator<Item = Duration>) {
        for wait in waits {
            self.queue_duration.observe(wait.as_secs_f64());
        }
    }

    pub(super) fn worked(&self, time: Duration, outcome: Requeue) {
        self.work_duration.observe(time.as_secs_f64());
        if !matches!(outcome, Requeue::Forget | Requeue::Idle) {
            self.retries.inc();
        }
    }
}

/// The load of a queue at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Keys that are due.
    pub(super) depth: usize,
    /// How long the keys in work have been in work, added up.
    pub(super) unfinished: Duration,
    /// The longest time that a key has been in work.
    pub(super) longest: Duration,
}

pub(super) trait Observed: Send + Sync {
    fn load(&self, now: Instant) -> Load;
}

/// Depth and times change without a call to the queue, so they are read at the scrape. Each
/// provider has queues of its own, and a series must not appear twice. So queues with the same name
/// share one load: depth and unfinished work are added up, and `longest` is the maximum.
#[derive(Clone, Default)]
struct Queues(Arc<Mutex<Vec<Named>>>);

type Named = (&'static str, Weak<dyn Observed>);

/// A family's name, its help, and how its value is read.
type Shown = (&'static str, &'static str, fn(&Load) -> f64);

impl Queues {
    fn loads(&self) -> BTreeMap<&'static str, Load> {
        let now = Instant::now();
        let mut loads = BTreeMap::<_, Load>::new();
        let queues = lock(&self.0);
        for (name, queue) in queues.iter() {
            let Some(queue) = queue.upgrade() else {
                continue;
            };
            let one = queue.load(now);
            let sum = loads.entry(*name).or_default();
            sum.depth += one.depth;
            sum.unfinished += one.unfinished;
            sum.longest = sum.longest.max(one.longest);
        }
        loads
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues").finish_non_exhaustive()
    }
}

impl Collector for Queues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let loads = self.loads();
        let families: [Shown; 3] = [
            ("workqueue_depth", "Keys that are due", |load| {
                load.depth as f64
            }),
            (
                "workqueue_unfinished_work_seconds",
                "How long the work in progress has taken, over all keys",
                |load| load.unfinished.as_secs_f64(),
            ),
            (
                "workqueue_longest_running_processor_seconds",
                "How long the longest work in progress has taken",
                |load| load.longest.as_secs_f64(),
            ),
        ];
        for (family, help, value) in families {
            let mut metric = encoder.encode_descriptor(family, help, None, MetricType::Gauge)?;
            for (name, load) in &loads {
                let labels = [("name", *name)];
                ConstGauge::new(value(load)).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
