//! The client-side throttle, on tokio's clock.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Limits;
use crate::core::lock;

/// A token bucket, kept as the time at which it will be full again.
pub(super) struct Bucket {
    /// Time for one token.
    each: Duration,
    /// How far ahead of time `full` may be without waiting.
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

    /// Takes a token; tokens are given in the order in which they were asked for.
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
