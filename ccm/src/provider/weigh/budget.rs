//! The memory that all answers from one provider may take together while they are read.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most memory of all answers together, without the `EACH` bytes of each answer. The largest
/// answer that is allowed fits when it is alone.
pub(super) const TOGETHER: u64 = 128 * 1024 * 1024;
/// The memory that each answer may take in any case, so that large answers do not make a small one
/// fail.
const EACH: u64 = 128 * 1024;

/// The budget of one provider: a permit for each byte. Its connections share it, since a draining
/// connection lives on beside the next one.
#[derive(Clone, Debug)]
pub(in super::super) struct Budget(Arc<Semaphore>);

impl Default for Budget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(TOGETHER as usize)))
    }
}

impl Budget {
    /// An empty share, for an answer that begins.
    pub(super) fn share(&self) -> Share {
        Share {
            budget: Arc::clone(&self.0),
            held: None,
        }
    }

    #[cfg(test)]
    pub(in super::super) fn taken(&self) -> u64 {
        TOGETHER - self.0.available_permits() as u64
    }
}

/// The share of one answer in the budget. Dropping it returns the memory.
///
/// No answer waits for a share: it fails if it gets none. So two answers cannot wait for each
/// other.
pub(super) struct Share {
    budget: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl Share {
    /// Grows the share for an answer that takes `all` bytes in total. False if the other answers
    /// leave too little.
    pub(super) fn grow_to(&mut self, all: u64) -> bool {
        let held = self.held.as_ref();
        let held = held.map_or(0, OwnedSemaphorePermit::num_permits);
        let more = all.saturating_sub(EACH).saturating_sub(held as u64);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let Ok(more) = Arc::clone(&self.budget).try_acquire_many_owned(more) else {
            return false;
        };
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        true
    }

    /// Returns the memory.
    pub(super) fn release(&mut self) {
        self.held = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_answers_need_no_budget_and_a_dropped_one_gives_its_share_back() {
        let budget = Budget::default();
        let mut large = budget.share();
        assert!(large.grow_to(TOGETHER + EACH));
        let (mut small, mut other) = (budget.share(), budget.share());
        assert!(small.grow_to(EACH), "a small one is read in any case");
        assert!(!other.grow_to(2 * EACH), "nothing is left for a large one");
        assert!(large.grow_to(TOGETHER), "what it has it keeps");
        drop(large);
        assert_eq!(budget.taken(), 0);
        assert!(other.grow_to(2 * EACH));
        other.release();
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn a_refused_share_takes_nothing() {
        let budget = Budget::default();
        let mut share = budget.share();
        assert!(share.grow_to(TOGETHER / 2));
        let taken = budget.taken();
        let mut other = budget.share();
        assert!(!other.grow_to(TOGETHER));
        assert_eq!(budget.taken(), taken);
    }
}
