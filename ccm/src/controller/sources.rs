//! The sources that make keys due: changes of objects, and hints of the provider. A controller may
//! have others of its own.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::driver::Driver;
use crate::cluster::{Change, Store};
use crate::provider::Hint;

/// The effect of a change on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wake<K> {
    /// The key is due now.
    Due(K),
    /// The key's object is gone: nothing to do, and its failures are forgotten.
    Gone(K),
}

/// Makes keys due when objects of a store change. The current objects count as changes. It never
/// returns.
pub(crate) async fn changes<K: Clone + Ord + Hash + Send + 'static, T>(
    driver: &Driver<K>,
    store: &Store<T>,
    wakes: impl Fn(&Change<T>) -> Option<Wake<K>>,
) {
    let mut changes = store.subscribe();
    loop {
        for change in changes.next().await {
            match wakes(&change) {
                Some(Wake::Due(key)) => driver.queue.add(key),
                Some(Wake::Gone(key)) => driver.remove(&key),
                None => {}
            }
        }
    }
}

/// Makes keys due at hints of the provider. `about` lists the keys that a hint may be about. A key
/// becomes due only after `delay`, so several hints within `delay` make it due once, and at most
/// once in `gap`. A key in work is due again only if that work does not end in `Forget`. Missed
/// hints count as one `Resync`.
pub(crate) async fn hints<K: Clone + Ord + Hash + Send + 'static>(
    driver: &Driver<K>,
    delay: Duration,
    gap: Duration,
    about: impl Fn(&Hint) -> Vec<K>,
) {
    let mut hints = driver.context.hints.subscribe();
    let mut paced = Paced::new(delay, gap);
    loop {
        let hint = match hints.recv().await {
            Ok(hint) => hint,
            Err(RecvError::Lagged(_)) => Hint::Resync,
            Err(RecvError::Closed) => return,
        };
        let now = Instant::now();
        paced.forget_old(now);
        for key in about(&hint) {
            let at = paced.at(&key, now);
            driver.queue.hasten(key, at);
        }
    }
}

/// When a hint last made a key due, or will make it due.
#[derive(Debug)]
struct Paced<K> {
    delay: Duration,
    gap: Duration,
    due: BTreeMap<K, Instant>,
}

impl<K: Clone + Ord> Paced<K> {
    fn new(delay: Duration, gap: Duration) -> Self {
        let due = BTreeMap::new();
        Self { delay, gap, due }
    }

    /// When a hint that arrives now makes this key due.
    fn at(&mut self, key: &K, now: Instant) -> Instant {
        let soon = now + self.delay;
        let at = match self.due.get(key) {
            Some(planned) if *planned > now => *planned,
            Some(last) => (*last + self.gap).max(soon),
            None => soon,
        };
        self.due.insert(key.clone(), at);
        at
    }

    fn forget_old(&mut self, now: Instant) {
        self.due.retain(|_, at| *at + self.gap > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l7_hints_make_a_key_due_once_in_the_gap() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut paced = Paced::new(Duration::ZERO, Duration::from_secs(5));
        assert_eq!(paced.at(&"n", at(0)), at(0));
        // Many hints make the key due once.
        for now in [0, 1, 4] {
            assert_eq!(paced.at(&"n", at(now)), at(5));
        }
        assert_eq!(paced.at(&"other", at(4)), at(4));
        assert_eq!(paced.at(&"n", at(6)), at(10));
        assert_eq!(paced.at(&"n", at(60)), at(60));
        paced.forget_old(at(64));
        assert_eq!(paced.due.len(), 1);
        paced.forget_old(at(66));
        assert!(paced.due.is_empty());
    }

    #[test]
    fn l7_hints_that_come_together_make_a_key_due_once_a_moment_later() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut paced = Paced::new(Duration::from_millis(100), Duration::from_secs(1));
        for now in [0, 50, 99] {
            assert_eq!(paced.at(&"n", at(now)), at(100));
        }
        assert_eq!(paced.at(&"n", at(100)), at(1100), "it is due just now");
        assert_eq!(paced.at(&"n", at(1099)), at(1100));
        paced.forget_old(at(2050));
        assert_eq!(
            paced.at(&"n", at(2050)),
            at(2150),
            "the gap, then the delay"
        );
        assert_eq!(paced.at(&"n", at(9000)), at(9100));
    }
}
