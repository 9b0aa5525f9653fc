//! The calls and writes in progress in a loop, and how many a provider allows at once.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::core::lock;
use crate::provider::Session;

/// How much of a controller's work may be in progress at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Width {
    /// The most keys in one batch.
    pub(crate) batch: usize,
    /// How long a batch that is not full waits for more keys.
    pub(crate) linger: Duration,
    /// No batch leaves the queue while this many batches call the provider.
    pub(crate) calls: usize,
    /// No batch leaves the queue while this many keys are written to the API server or wait for
    /// that.
    pub(crate) writes: usize,
}

/// The concurrency: the provider's limit, or the operator's flag if it is lower. At least one.
pub(crate) fn lowered(most: usize, flag: Option<usize>) -> usize {
    most.min(flag.unwrap_or(usize::MAX)).max(1)
}

/// Counts the calls and the writes in progress. The counts are separate, so that slow writes delay
/// no call before there are [`Width::writes`] of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    calls: usize,
    writes: usize,
    /// After THROTTLED: no batch leaves the queue before this time.
    pub(super) not_before: Option<Instant>,
}

impl Load {
    /// Whether another batch may leave the queue.
    pub(super) fn has_room(&self, width: &Width) -> bool {
        self.calls < width.calls.max(1) && self.writes < width.writes.max(1)
    }
}

/// Counts one batch that calls the provider, or one key that is written, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    load: watch::Sender<Load>,
    part: fn(&mut Load) -> &mut usize,
}

impl UnderWay {
    pub(super) fn call(load: &watch::Sender<Load>) -> Self {
        Self::begin(load, |load| &mut load.calls)
    }

    pub(super) fn write(load: &watch::Sender<Load>) -> Self {
        Self::begin(load, |load| &mut load.writes)
    }

    fn begin(load: &watch::Sender<Load>, part: fn(&mut Load) -> &mut usize) -> Self {
        load.send_modify(|load| *part(load) += 1);
        let load = load.clone();
        Self { load, part }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.load.send_modify(|load| {
            let count = (self.part)(load);
            *count = count.saturating_sub(1);
        });
    }
}

/// Permits for the calls of one session. A new session gets new permits: calls of the previous
/// session hold none of them.
#[derive(Debug)]
pub(crate) struct Permits(Mutex<(Weak<Session>, usize, Arc<Semaphore>)>);

impl Default for Permits {
    fn default() -> Self {
        Self(Mutex::new((Weak::new(), 1, Arc::new(Semaphore::new(1)))))
    }
}

impl Permits {
    /// How many calls of this session may run at once, and the permits for them. `most` is called
    /// once for each session.
    pub(crate) fn of(
        &self,
        session: &Arc<Session>,
        most: impl FnOnce() -> usize,
    ) -> (usize, Arc<Semaphore>) {
        let mut permits = lock(&self.0);
        let current = Arc::downgrade(session);
        if !current.ptr_eq(&permits.0) {
            let most = most();
            *permits = (current, most, Arc::new(Semaphore::new(most)));
        }
        (permits.1, Arc::clone(&permits.2))
    }
}
