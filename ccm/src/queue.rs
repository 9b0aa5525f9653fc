//! A work queue: keys in order, due times, per-key backoff, batches, pause and resume.
//!
//! [`state`] is the queue without a clock; this file adds waiting, the clock and the metrics.

mod metrics;
mod refused;
mod state;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::core::lock;

pub(crate) use metrics::Metrics;
use metrics::{Load, Observed, Recorder};
pub(crate) use refused::PROBE;
use refused::Refused;
use state::State;

/// The delays of a key that fails again and again: `base * 2^failures`, at most `max`. Jitter adds up to a fifth, so that
/// keys that failed together do not come back together, and never subtracts: a cloud sees no more calls than from upstream's controllers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// The first delay.
    pub(crate) base: Duration,
    /// The longest delay.
    pub(crate) max: Duration,
}

impl Backoff {
    /// The delay after this many failures. `jitter` is from 0 to 1.
    pub(crate) fn delay(self, failures: u32, jitter: f64) -> Duration {
        let whole = 2_u32
            .checked_pow(failures)
            .and_then(|factor| self.base.checked_mul(factor))
            .map_or(self.max, |delay| delay.min(self.max));
        whole.mul_f64(1.0 + jitter / 5.0).min(self.max)
    }
}

/// What becomes of a key whose work is over. Where the key was added meanwhile, it is due at the earlier of the two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is done: failures are forgotten.
    Forget,
    /// Nothing is done and nothing to be tried, until the key is added or hastened: failures are forgotten.
    Idle,
    /// Again at this time; failures are left as they are.
    At(Instant),
    /// The cloud refuses the provider's credentials: again at `at`, failures left as they are. One of all keys that wait so is due at `probe`; where the cloud takes
    /// the credentials for one of them ([`Queue::accepted`]), all are due at once.
    Refused {
        /// When one of them is tried for all.
        probe: Instant,
        /// When this one is tried in any case.
        at: Instant,
    },
    /// It failed: again after the key's backoff (with jitter).
    Retry,
    /// It failed because of the transport: as `Retry`, but `reset_transport_backoffs` makes it due at once (▲M9).
    RetryTransport,
}

/// The queue. Clones share one state. A key that is added while it is worked on is due again after `done`.
/// Never two workers on one key.
///
/// An operation on a key costs O(log n), `next_batch` O(max · log n), one on all keys O(n).
pub(crate) struct Queue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    state: Mutex<State<K>>,
    changed: Notify,
    recorder: Recorder,
}

impl<K: Clone + Ord> Shared<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        // The state is consistent after each of its calls, whatever happened to another holder of the lock.
        lock(&self.state)
    }
}

impl<K: Clone + Ord + Send + 'static> Queue<K> {
    /// A queue of this name (the label of its `workqueue_*` metrics) whose jitter comes from `seed`.
    pub(crate) fn new(name: &'static str, backoff: Backoff, seed: u64, metrics: &Metrics) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(backoff, seed)),
            changed: Notify::new(),
            recorder: metrics.recorder(name),
        });
        let observed: Arc<dyn Observed> = Arc::clone(&shared) as Arc<dyn Observed>;
        metrics.observe(name, &observed);
        Self { shared }
    }

    /// Due now.
    pub(crate) fn add(&self, key: K) {
        self.add_at(key, Instant::now());
    }

    /// Due at `at`, or earlier if it already is.
    pub(crate) fn add_at(&self, key: K, at: Instant) {
        if self.shared.lock().add_at(key, at) {
            self.shared.recorder.added();
        }
        self.shared.changed.notify_waiters();
    }

    /// As `add_at`, but a key that is worked on is due again only where that does not end in `Forget`: its next try is brought forward.
    pub(crate) fn hasten(&self, key: K, at: Instant) {
        if self.shared.lock().hasten(key, at) {
            self.shared.recorder.added();
        }
        self.shared.changed.notify_waiters();
    }

    /// At most `max` keys (at least one) that are due, oldest due first; waits for the first, then for more until the
    /// first has been due for `linger` (not at all when `max` are due). While paused: waits.
    ///
    /// Keys are taken only in the moment of the return, so a dropped future loses none. Several tasks may wait at once.
    pub(crate) async fn next_batch(&self, max: usize, linger: Duration) -> Vec<K> {
        let max = max.max(1);
        loop {
            // Made before the look at the state: a change between the look and the wait is not missed.
            let changed = self.shared.changed.notified();
            let now = Instant::now();
            let wake = {
                let mut state = self.shared.lock();
                match state.next_wake(max, linger) {
                    Some(wake) if wake <= now => {
                        let taken = state.take_due(max, now);
                        drop(state);
                        let waits = taken.iter().map(|(_, due)| now - *due);
                        self.shared.recorder.taken(waits);
                        return taken.into_iter().map(|(key, _)| key).collect();
                    }
                    wake => wake,
                }
            };
            match wake {
                Some(wake) => {
                    // Either way the state is looked at again.
                    let _elapsed = tokio::time::timeout_at(wake, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// The work on this key is over. Ignored for a key that was not handed out.
    pub(crate) fn done(&self, key: &K, outcome: Outcome) {
        let now = Instant::now();
        let started = self.shared.lock().done(key, outcome, now);
        if let Some(started) = started {
            self.shared.recorder.worked(now - started, outcome);
        }
        self.shared.changed.notify_waiters();
    }

    /// The cloud took the provider's credentials for this key, which was handed out: if it was refused before, all that were are due now.
    pub(crate) fn accepted(&self, key: &K) {
        let released = self.shared.lock().accepted(key, Instant::now());
        if released {
            self.shared.changed.notify_waiters();
        }
    }

    /// How often this key failed in a row.
    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.shared.lock().failures(key)
    }

    /// When this key is worked on next; `None`: it does not wait. Says nothing of a pause.
    pub(crate) fn due(&self, key: &K) -> Option<Instant> {
        self.shared.lock().due(key)
    }

    /// The keys that are due or worked on.
    pub(crate) fn busy(&self) -> Vec<K> {
        self.shared.lock().busy(Instant::now())
    }

    /// Whether the key waits or is worked on.
    pub(crate) fn holds(&self, key: &K) -> bool {
        self.shared.lock().holds(key)
    }

    /// Drops the key and its failures (its object is gone). Where it is worked on just now, the outcome of that is ignored.
    pub(crate) fn remove(&self, key: &K) {
        self.shared.lock().remove(key, Instant::now());
        self.shared.changed.notify_waiters();
    }

    /// No batch is handed out until `resume`.
    pub(crate) fn pause(&self) {
        self.shared.lock().set_paused(true);
    }

    /// Batches are handed out again.
    pub(crate) fn resume(&self) {
        self.shared.lock().set_paused(false);
        self.shared.changed.notify_waiters();
    }

    /// Keys that failed by transport are due now, their failures forgotten (▲M9). Of those that wait for other credentials one is: a provider that comes back may have them.
    pub(crate) fn reset_transport_backoffs(&self) {
        self.shared.lock().reset_transport_backoffs(Instant::now());
        self.shared.changed.notify_waiters();
    }

    /// How many keys wait, due or not; keys that are worked on do not count.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shared.lock().waiting()
    }

    /// How many keys are worked on.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.shared.lock().in_flight()
    }
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Clone + Ord + Send + 'static> Observed for Shared<K> {
    fn load(&self, now: Instant) -> Load {
        self.lock().load(now)
    }
}

#[cfg(test)]
mod tests;
