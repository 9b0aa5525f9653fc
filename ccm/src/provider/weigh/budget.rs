//! The memory that all answers from one provider may take together while they are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most memory of all answers together, without the `EACH` bytes of each answer. The largest
/// answer that is allowed fits when it is alone.
pub(super) const TOGETHER: u64 = 128 * 1024 * 1024;
/// The memory that each answer may take in any case, so that large answers do not make a small one
/// fail.
const EACH: u64 = 128 * 1024;
/// An answer takes the budget in pieces of this size, because it can have millions of items.
const PIECE: u64 = EACH;

/// The budget of one provider. Its connections share it, since a draining connection lives on
/// beside the next one.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Budget(Arc<AtomicU64>);

impl Budget {
    /// An empty share, for an answer that begins.
    pub(super) fn share(&self) -> Share {
        Share {
            taken: Arc::clone(&self.0),
            held: 0,
        }
    }

    #[cfg(test)]
    pub(in super::super) fn taken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The share of one answer in the budget. Dropping it returns the memory.
///
/// No answer waits for a share: it fails if it gets none. So two answers cannot wait for each
/// other.
pub(super) struct Share {
    taken: Arc<AtomicU64>,
    held: u64,
}

impl Share {
    /// Grows the share for an answer that takes `all` bytes in total. False if the other answers
    /// leave too little.
    pub(super) fn grow_to(&mut self, all: u64) -> bool {
        let wanted = all.saturating_sub(EACH);
        if wanted <= self.held {
            return true;
        }
        let more = wanted.next_multiple_of(PIECE) - self.held;
        let fits = |taken: u64| Some(taken + more).filter(|sum| *sum <= TOGETHER);
        let fitted = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok();
        if fitted {
            self.held += more;
        }
        fitted
    }

    /// Returns the memory.
    pub(super) fn release(&mut self) {
        self.taken.fetch_sub(self.held, Ordering::Relaxed);
        self.held = 0;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.release();
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
