//! The client-side rate limit, on tokio's clock.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Limits;
use crate::core::lock;

/// A token bucket, stored as the time at which it will be full again.
pub(super) struct Bucket {
    /// The time in which one token is added.
    each: Duration,
    /// How far in the future `full` may be before callers wait.
    ahead: Duration,
    full: Mutex<Instant>,
}

impl Bucket {
    pub(super) fn new(limits: Limits) -> Self {
        let each = Duration::from_secs_f32(1.0 / limits.qps.clamp(0.001, 1e6));
        Self {
            each,
            ahead: each.saturating_mul(limits.burst.max(1) - 1),
            full: Mutex::new(Instant::now()),
        }
    }

    /// Takes a token. Callers get tokens in the order of their calls.
    pub(super) async fn take(&self) {
        let now = Instant::now();
        let turn = {
            let mut full = lock(&self.full);
            let from = (*full).max(now);
            *full = from + self.each;
            from.checked_sub(self.ahead).unwrap_or(now)
        };
        if turn > now {
            sleep_until(turn).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn m11_burst_then_rate() {
        let bucket = Bucket::new(Limits {
            qps: 10.0,
            burst: 5,
        });
        let start = Instant::now();
        for _ in 0..5 {
            bucket.take().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..20 {
            bucket.take().await;
        }
        let waited = start.elapsed().as_millis();
        assert!((1990..2030).contains(&waited), "{waited}");
    }
}
