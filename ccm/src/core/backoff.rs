//! The pause between attempts that fail.

use std::time::Duration;

/// A pause that doubles with each failure in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    base: Duration,
    max: Duration,
}

impl Backoff {
    /// The first pause, and the longest one.
    pub(crate) const fn new(base: Duration, max: Duration) -> Self {
        Self { base, max }
    }

    /// The pause when this many pauses came before: `base * 2^before`, at most `max`.
    pub(crate) fn pause(self, before: u32) -> Duration {
        self.base
            .saturating_mul(2_u32.saturating_pow(before))
            .min(self.max)
    }

    /// As [`Self::pause`], and up to a fifth more, but at most `max`. Below `max` this spreads the
    /// retries of keys that failed together. Jitter never shortens a pause. `jitter` is 0 to 1.
    pub(crate) fn jittered(self, before: u32, jitter: f64) -> Duration {
        self.pause(before).mul_f64(1.0 + jitter / 5.0).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_s9_a_pause_doubles_up_to_the_longest_and_jitter_only_adds() {
        let backoff = Backoff::new(Duration::from_secs(5), Duration::from_mins(5));
        for (before, seconds, most) in [
            (0, 5, 6),
            (1, 10, 12),
            (5, 160, 192),
            (6, 300, 300),
            (40, 300, 300),
            (u32::MAX, 300, 300),
        ] {
            let (pause, most) = (Duration::from_secs(seconds), Duration::from_secs(most));
            assert_eq!(backoff.pause(before), pause, "{before}");
            assert_eq!(backoff.jittered(before, 0.0), pause, "{before}");
            assert_eq!(backoff.jittered(before, 1.0), most, "{before}");
        }
    }
}
