//! Times, as Kubernetes and the log have them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Wall time, only for what Kubernetes stores.
pub(crate) type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// When this instant is, or was, by the wall clock; for people, in whole seconds.
pub(crate) fn wall_time(at: Instant, now: Instant, wall: Timestamp) -> Timestamp {
    let shown = if at < now {
        wall.checked_sub(now - at)
    } else {
        // Rounded up: who looks then finds it done.
        wall.checked_add(at - now + Duration::from_millis(999))
    };
    let shown = shown.unwrap_or(wall);
    Timestamp::from_second(shown.as_second()).unwrap_or(shown)
}

/// A time as log fields ending in `_ms` have it.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
