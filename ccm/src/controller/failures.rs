//! The effect of a failed call on its key and on all keys. Pure.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::Instant;

use crate::provider::{CallError, CallErrorCode, Retry};

/// The least time between two immediate events about refused credentials. All objects of a loop
/// share it.
const CREDENTIALS_AGAIN: Duration = Duration::from_mins(10);

/// How to react to a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// When the key is tried again.
    pub(crate) retry: Retry,
    /// Whether the object gets an event now.
    pub(crate) event: bool,
    /// Whether the log warns: if no failure of the key was counted before, but never for FENCED. A
    /// failure that concerns all keys leads to one warning until a call succeeds.
    pub(crate) warn: bool,
}

/// What the loop remembers about failures in addition to [`Queue`](crate::queue::Queue).
#[derive(Debug)]
pub(super) struct Failures<K> {
    seed: u64,
    /// How often in a row a key was BUSY. The queue does not count the quick retries after BUSY,
    /// because such a key returns at its own time.
    busy: BTreeMap<K, u32>,
    credentials_reported: Option<Instant>,
    /// The log already has a failure that concerns all keys.
    common_logged: bool,
}

impl<K: Clone + Ord + Hash> Failures<K> {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            busy: BTreeMap::new(),
            credentials_reported: None,
            common_logged: false,
        }
    }

    /// A call for this key failed. `failures` is the queue's count. If `queued`, the key came from
    /// the queue, and BUSY is counted.
    pub(super) fn failed(
        &mut self,
        key: &K,
        trouble: &CallError,
        failures: u32,
        queued: bool,
        now: Instant,
    ) -> Failed {
        let failures = match trouble.code {
            CallErrorCode::Busy if queued => {
                let row = self.busy.entry(key.clone()).or_default();
                let before = *row;
                *row = before.saturating_add(1);
                before
            }
            CallErrorCode::Busy => 0,
            _ => {
                self.forget(key);
                failures
            }
        };
        let reaction = trouble.reaction_jittered(failures, self.jitter(key, failures));
        let refused = trouble.code == CallErrorCode::Credentials;
        let first = match trouble.code {
            code if code.concerns_all() => !std::mem::replace(&mut self.common_logged, true),
            CallErrorCode::Fenced => false,
            _ => failures == 0,
        };
        Failed {
            retry: reaction.retry,
            event: reaction.event || refused && self.reports_credentials(now),
            warn: first,
        }
    }

    /// The provider answered for some key.
    pub(super) fn answered(&mut self) {
        self.common_logged = false;
    }

    /// Ends the key's row of BUSY: another failure came, or the key is done or gone.
    pub(super) fn forget(&mut self, key: &K) {
        self.busy.remove(key);
    }

    fn reports_credentials(&mut self, now: Instant) -> bool {
        let last = self.credentials_reported;
        let due = last.is_none_or(|at| now.saturating_duration_since(at) >= CREDENTIALS_AGAIN);
        if due {
            self.credentials_reported = Some(now);
        }
        due
    }

    /// From 0.0 to 1.0, by key, so that keys that were BUSY together do not return together.
    fn jitter(&self, key: &K, failures: u32) -> f64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, key, failures).hash(&mut hasher);
        f64::from((hasher.finish() >> 32) as u32) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(code: CallErrorCode) -> CallError {
        CallError::new(code, "m")
    }

    fn at(seconds: u64) -> Instant {
        // Tests compare differences only, so one start serves all.
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_key_is_busy_five_times_quickly_and_another_failure_or_its_end_begins_a_new_row() {
        let busy = trouble(CallErrorCode::Busy);
        let mut failures = Failures::new(1);
        let quick = |failures: &mut Failures<&'static str>, queued| {
            let failed = failures.failed(&"k", &busy, 0, queued, at(0));
            matches!(failed.retry, Retry::After(_))
        };
        let row: Vec<bool> = (0..6).map(|_| quick(&mut failures, true)).collect();
        assert_eq!(row, [true, true, true, true, true, false]);
        failures.failed(&"k", &trouble(CallErrorCode::Internal), 1, true, at(0));
        assert!(quick(&mut failures, true));
        // A key that did not come from the queue leaves no count behind.
        failures.forget(&"k");
        assert!((0..9).all(|_| quick(&mut failures, false)));
        assert!(failures.busy.is_empty());
    }

    #[test]
    fn keys_that_were_busy_together_come_back_apart() {
        let mut failures = Failures::new(1);
        let busy = trouble(CallErrorCode::Busy);
        let mut waits = std::collections::BTreeSet::new();
        for key in 0..100 {
            let Retry::After(wait) = failures.failed(&key, &busy, 0, true, at(0)).retry else {
                panic!("no time");
            };
            assert!((1_000..=1_500).contains(&wait.as_millis()), "{wait:?}");
            waits.insert(wait);
        }
        assert!(waits.len() > 90, "{waits:?}");
    }

    #[test]
    fn refused_credentials_are_an_event_on_one_object_in_ten_minutes() {
        let mut failures = Failures::new(1);
        let refused = trouble(CallErrorCode::Credentials);
        let events: Vec<u64> = (0..25)
            .filter(|minute| {
                let now = at(minute * 60);
                (0..10).any(|key| failures.failed(&key, &refused, 0, true, now).event)
            })
            .collect();
        assert_eq!(events, [0, 10, 20]);
    }

    #[test]
    fn what_concerns_all_keys_is_logged_once_until_a_call_succeeds() {
        let mut failures = Failures::new(1);
        let down = trouble(CallErrorCode::Unavailable);
        let warns = |failures: &mut Failures<u32>| {
            (0..10)
                .filter(|key| failures.failed(key, &down, 0, true, at(0)).warn)
                .count()
        };
        assert_eq!((warns(&mut failures), warns(&mut failures)), (1, 0));
        failures.answered();
        assert_eq!(warns(&mut failures), 1);
        // A failure of one key is logged for each key.
        let own = trouble(CallErrorCode::Invalid);
        let warns = (0..10).filter(|key| failures.failed(key, &own, 0, true, at(0)).warn);
        assert_eq!(warns.count(), 10);
        assert!(!failures.failed(&1, &own, 1, true, at(0)).warn);
        assert!(
            !failures
                .failed(&1, &trouble(CallErrorCode::Fenced), 0, true, at(0))
                .warn
        );
    }
}
