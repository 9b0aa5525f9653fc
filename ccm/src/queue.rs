//! A work queue: due times, backoff for each key, batches.
//!
//! [`state`] is the queue without a clock. This file adds waiting, the clock and the metrics.

mod metrics;
mod refused;
mod state;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::core::{Backoff, lock};

pub(crate) use metrics::Metrics;
use metrics::{Load, Observed, Recorder};
pub(crate) use refused::PROBE;
use refused::Refused;
use state::State;

/// When a key is due again after work on it. If somebody added the key meanwhile, the earlier time
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requeue {
    /// Never; the key's failures are reset.
    Forget,
    /// Not until somebody adds or hastens the key; its failures are reset. Unlike with `Forget`, a
    /// `hasten` during the work counts.
    Idle,
    /// At this time; the count of failures stays.
    At(Instant),
    /// The cloud refuses the provider's credentials: at `at`; the count of failures stays. If no
    /// other key is the probe, the next key that waits for this reason is due at `probe`. When the
    /// cloud accepts the credentials for one such key ([`Queue::accepted`]), all are due at once.
    Refused {
        /// When one key is tried as a probe for all.
        probe: Instant,
        /// When this key is tried in any case.
        at: Instant,
    },
    /// It failed: after the key's backoff, with jitter.
    Retry,
    /// It failed because of the transport: as `Retry`, but `reset_transport_backoffs` makes it due
    /// at once (▲M9).
    RetryTransport,
}

/// The queue. A key is never handed to two workers at once: a key that is added during work on it
/// is due again after `done`.
///
/// An operation on one key costs O(log n), and `next_batch` O(max · log n) at each wake-up. `busy`
/// costs O(n). `reset_transport_backoffs`, and `accepted` if it releases keys, cost O(n · log n).
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
        // Each method of `State` leaves it consistent, so a panic of another lock holder does no
        // harm.
        lock(&self.state)
    }
}

impl<K: Clone + Ord + Send + 'static> Queue<K> {
    /// A queue with this `name` label on its `workqueue_*` metrics. Its jitter comes from `seed`.
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

    /// Makes the key due now.
    pub(crate) fn add(&self, key: K) {
        self.add_at(key, Instant::now());
    }

    /// Makes the key due at `at`, unless it is due earlier.
    pub(crate) fn add_at(&self, key: K, at: Instant) {
        if self.shared.lock().add_at(key, at) {
            self.shared.recorder.added();
        }
        self.shared.changed.notify_waiters();
    }

    /// As `add_at`, except for a key in work. Such a key is due at `at` at the latest, unless the
    /// work ends in `Forget`.
    pub(crate) fn hasten(&self, key: K, at: Instant) {
        if self.shared.lock().hasten(key, at) {
            self.shared.recorder.added();
        }
        self.shared.changed.notify_waiters();
    }

    /// Takes at most `max` (at least one) due keys, the longest due first. It waits for the first
    /// key, then for more until the first has been due for `linger`. It does not linger when `max`
    /// keys are due.
    ///
    /// It takes keys only when it returns, so dropping the future loses none. Several tasks may
    /// wait at once.
    pub(crate) async fn next_batch(&self, max: usize, linger: Duration) -> Vec<K> {
        let max = max.max(1);
        loop {
            // Registered before the state is read, so no change between reading and waiting is
            // missed.
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
                    // After the timeout and after a change alike, the loop reads the state again.
                    let _elapsed = tokio::time::timeout_at(wake, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// Ends the work on this key. It ignores a key that was not handed out.
    pub(crate) fn done(&self, key: &K, outcome: Requeue) {
        let now = Instant::now();
        let started = self.shared.lock().done(key, outcome, now);
        if let Some(started) = started {
            self.shared.recorder.worked(now - started, outcome);
        }
        self.shared.changed.notify_waiters();
    }

    /// The cloud accepted the provider's credentials for this key, which is in work. If the cloud
    /// had refused them for this key, all keys that wait for other credentials are due now.
    pub(crate) fn accepted(&self, key: &K) {
        let released = self.shared.lock().accepted(key, Instant::now());
        if released {
            self.shared.changed.notify_waiters();
        }
    }

    /// How often in a row work on this key ended in `Retry` or `RetryTransport`. `At` and `Refused`
    /// do not reset the count.
    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.shared.lock().failures(key)
    }

    /// When this key is due. `None`: the key is not waiting, and nobody added it during the work.
    pub(crate) fn due(&self, key: &K) -> Option<Instant> {
        self.shared.lock().due(key)
    }

    /// When the work on this key began. `None`: nobody works on it.
    pub(crate) fn working_since(&self, key: &K) -> Option<Instant> {
        self.shared.lock().working_since(key)
    }

    /// The keys that are due or in work.
    pub(crate) fn busy(&self) -> Vec<K> {
        self.shared.lock().busy(Instant::now())
    }

    /// Whether the key is waiting or in work.
    pub(crate) fn holds(&self, key: &K) -> bool {
        self.shared.lock().holds(key)
    }

    /// Drops the key and its failures, because its object is gone. If the key is in work, the
    /// outcome of that work is ignored.
    pub(crate) fn remove(&self, key: &K) {
        self.shared.lock().remove(key, Instant::now());
        self.shared.changed.notify_waiters();
    }

    /// Makes the keys due now that failed last because of the transport, and resets their failures
    /// (▲M9). It also makes one key due that waits for other credentials, because the provider may
    /// have returned with new ones.
    pub(crate) fn reset_transport_backoffs(&self) {
        self.shared.lock().reset_transport_backoffs(Instant::now());
        self.shared.changed.notify_waiters();
    }

    /// How many keys are waiting, due or not. Keys in work do not count.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shared.lock().waiting()
    }

    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.shared.lock().in_flight()
    }
}

impl<K: Clone + Ord + Send + 'static> Observed for Shared<K> {
    fn load(&self, now: Instant) -> Load {
        self.lock().load(now)
    }
}

#[cfg(test)]
mod tests;
