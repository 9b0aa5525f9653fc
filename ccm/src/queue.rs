//! A work queue: keys in order, due times, per-key backoff, batches, pause and resume.

use std::time::Duration;

use tokio::time::Instant;

/// The delays of a key that fails again and again: `base * 2^failures`, at most `max`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// The first delay.
    pub(crate) base: Duration,
    /// The longest delay.
    pub(crate) max: Duration,
}

/// What becomes of a key whose work is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is done: failures are forgotten.
    Forget,
    /// Again at this time; failures are left as they are.
    At(Instant),
    /// It failed: again after the key's backoff (with jitter).
    Retry,
    /// It failed because of the transport: as `Retry`, but `reset_transport_backoffs` makes it due at once (▲M9).
    RetryTransport,
}

/// The queue. Clones share one state. A key that is added while it is worked on is due again after `done`.
/// Never two workers on one key.
pub(crate) struct Queue<K> {
    _keys: std::marker::PhantomData<K>,
}

impl<K: Clone + Ord + Send + 'static> Queue<K> {
    /// A queue of this name (the label of its `workqueue_*` metrics) whose jitter comes from `seed`.
    pub(crate) fn new(
        _name: &'static str,
        _backoff: Backoff,
        _seed: u64,
        _metrics: &Metrics,
    ) -> Self {
        todo!()
    }
    /// Due now.
    pub(crate) fn add(&self, _key: K) {
        todo!()
    }
    /// Due at `at`, or earlier if it already is.
    pub(crate) fn add_at(&self, _key: K, _at: Instant) {
        todo!()
    }
    /// At most `max` keys that are due, oldest due first; waits for the first, then at most `linger` for more (none when `max` are due). While paused: waits.
    pub(crate) async fn next_batch(&self, _max: usize, _linger: Duration) -> Vec<K> {
        todo!()
    }
    /// The work on this key is over.
    pub(crate) fn done(&self, _key: &K, _outcome: Outcome) {
        todo!()
    }
    /// How often this key failed in a row.
    pub(crate) fn failures(&self, _key: &K) -> u32 {
        todo!()
    }
    /// Drops the key and its failures (its object is gone).
    pub(crate) fn remove(&self, _key: &K) {
        todo!()
    }
    /// No batch is handed out until `resume`.
    pub(crate) fn pause(&self) {
        todo!()
    }
    /// Batches are handed out again.
    pub(crate) fn resume(&self) {
        todo!()
    }
    /// Keys that failed by transport are due now, their failures forgotten (▲M9).
    pub(crate) fn reset_transport_backoffs(&self) {
        todo!()
    }
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        todo!()
    }
}

/// `workqueue_*`, as client-go names them.
#[derive(Clone)]
pub(crate) struct Metrics {}

impl Metrics {
    /// Registers the families.
    pub(crate) fn register(_registry: &mut prometheus_client::registry::Registry) -> Self {
        todo!()
    }
}
