//! What a batch has in its hands, and gives back however it ends.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::super::Worker;
use crate::queue::{Outcome, Queue};

/// The keys that a batch took from the queue. Those that it did not settle, because it ended early, come again: else nobody would ever work on them.
pub(in crate::controllers::node) struct HandedOut<'a> {
    queue: &'a Queue<String>,
    left: Mutex<BTreeSet<String>>,
}

impl<'a> HandedOut<'a> {
    pub(in crate::controllers::node) fn new(queue: &'a Queue<String>, names: Vec<String>) -> Self {
        let left = Mutex::new(names.into_iter().collect());
        Self { queue, left }
    }

    /// The work on this key is over. One that the batch did not take is somebody else's.
    pub(in crate::controllers::node) fn done(&self, name: &str, outcome: Outcome) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let name = left.take(name);
        drop(left);
        if let Some(name) = name {
            self.queue.done(&name, outcome);
        }
    }
}

impl Drop for HandedOut<'_> {
    fn drop(&mut self) {
        let left = self.left.get_mut().unwrap_or_else(PoisonError::into_inner);
        for name in std::mem::take(left) {
            self.queue.done(&name, Outcome::Retry);
        }
    }
}

/// Nodes whose writes are not over.
pub(super) struct Writing<'a> {
    worker: &'a Worker,
    left: std::sync::atomic::AtomicUsize,
}

impl<'a> Writing<'a> {
    pub(super) fn of(worker: &'a Worker, count: usize) -> Self {
        worker.load.send_modify(|load| load.writing += count);
        let left = count.into();
        Self { worker, left }
    }

    pub(super) fn one_less(&self) {
        self.left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        self.give_back(1);
    }

    fn give_back(&self, count: usize) {
        let load = &self.worker.load;
        load.send_modify(|load| load.writing = load.writing.saturating_sub(count));
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.give_back(self.left.load(std::sync::atomic::Ordering::Relaxed));
    }
}
