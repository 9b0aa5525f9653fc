//! Conversions of times for Kubernetes objects and the log.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// The wall clock. Use it only to write timestamps of Kubernetes objects, to compare with them, for
/// the names of events, and for times in texts for people.
pub(crate) type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The wall-clock time of an `Instant`, in whole seconds, to show to people.
pub(crate) fn wall_time(at: Instant, now: Instant, wall: Timestamp) -> Timestamp {
    let shown = if at < now {
        wall.checked_sub(now - at)
    } else {
        // Rounded up, so that the event has happened by the time shown.
        wall.checked_add(at - now + Duration::from_millis(999))
    };
    let shown = shown.unwrap_or(wall);
    Timestamp::from_second(shown.as_second()).unwrap_or(shown)
}

/// Whole milliseconds, for log fields that end in `_ms`.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
