//! Keys that left the queue together.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};

use tokio::time::Instant;

use super::driver::Driver;
use super::failures::Failed;
use super::load::UnderWay;
use crate::core::lock;
use crate::provider::CallError;
use crate::queue::Requeue;

/// Keys that left the queue together. The reconciler settles each key as soon as its work is over.
/// A batch that is dropped returns its unsettled keys to the queue with backoff. So a task that
/// panics or is stopped loses no key.
pub(crate) struct Batch<'a, K: Clone + Ord + Hash + Send + 'static> {
    driver: &'a Driver<K>,
    left: Mutex<BTreeSet<K>>,
    call: Mutex<Option<UnderWay>>,
}

impl<'a, K: Clone + Ord + Hash + Send + 'static> Batch<'a, K> {
    /// `call` counts this batch among the batches that call the provider.
    pub(super) fn new(driver: &'a Driver<K>, keys: Vec<K>, call: UnderWay) -> Self {
        Self {
            driver,
            left: Mutex::new(keys.into_iter().collect()),
            call: Mutex::new(Some(call)),
        }
    }

    /// The keys that are not settled.
    pub(crate) fn keys(&self) -> Vec<K> {
        self.left().iter().cloned().collect()
    }

    /// The next batch may begin its calls: this batch makes no more, or only calls for which the
    /// next one must not wait.
    pub(crate) fn called(&self) {
        let call = lock(&self.call).take();
        drop(call);
    }

    /// The provider answered for this key, so the cloud accepts the provider's credentials for it.
    pub(crate) fn answered(&self, key: &K) {
        self.driver.failures().answered();
        self.driver.queue.accepted(key);
    }

    /// Returns how to react to a failed call for this key. It counts only BUSY. The queue counts
    /// failures with backoff when the key is settled, which is left to the caller.
    pub(crate) fn reaction(&self, key: &K, trouble: &CallError) -> Failed {
        let (driver, now) = (self.driver, Instant::now());
        let queued = self.left().contains(key);
        let count = driver.queue.failures(key);
        if let Some(wait) = trouble.slows() {
            driver.slow_down(now + wait);
        }
        driver.failures().failed(key, trouble, count, queued, now)
    }

    /// Settles a key whose call failed. Returns when the key is tried again, and what is reported.
    pub(crate) fn failed(&self, key: &K, trouble: &CallError) -> Failed {
        let failed = self.reaction(key, trouble);
        self.settle(key, failed.retry.outcome(Instant::now()));
        failed
    }

    /// Ends the work on this key. It ignores a key of another batch and a settled key.
    pub(crate) fn settle(&self, key: &K, outcome: Requeue) {
        if self.left().remove(key) {
            self.give_back(key, outcome);
        }
    }

    fn give_back(&self, key: &K, outcome: Requeue) {
        let queue = &self.driver.queue;
        queue.done(key, outcome);
        if matches!(outcome, Requeue::Forget | Requeue::Idle) || !queue.holds(key) {
            self.driver.failures().forget(key);
        }
    }

    fn left(&self) -> MutexGuard<'_, BTreeSet<K>> {
        lock(&self.left)
    }
}

impl<K: Clone + Ord + Hash + Send + 'static> Drop for Batch<'_, K> {
    fn drop(&mut self) {
        for key in self.keys() {
            self.give_back(&key, Requeue::Retry);
        }
    }
}
