//! Waits for a condition with a deadline, so that tests do not sleep.

use std::{fmt::Display, panic::Location, time::Duration};

use tokio::time::{Instant, sleep, timeout_at};

const INTERVAL: Duration = Duration::from_millis(25);

/// The result of checking a condition: the value, or the reason why there is none yet.
pub trait Outcome {
    /// The value to wait for.
    type Value;

    /// The value, or the reason in words.
    fn value_or_reason(self) -> Result<Self::Value, String>;
}

impl<T, E: Display> Outcome for Result<T, E> {
    type Value = T;

    fn value_or_reason(self) -> Result<T, String> {
        self.map_err(|reason| reason.to_string())
    }
}

impl<T> Outcome for Option<T> {
    type Value = T;

    fn value_or_reason(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing yet".to_owned())
    }
}

/// Runs `look` until it gives a value, and returns that.
///
/// ```no_run
/// # async fn example(nodes: kube::Api<k8s_openapi::api::core::v1::Node>) {
/// # use std::time::Duration;
/// let id = testenv::eventually("node-1 has a provider ID", Duration::from_secs(10), async || {
///     let node = nodes.get("node-1").await.map_err(|error| error.to_string())?;
///     let spec = node.spec.unwrap_or_default();
///     spec.provider_id.clone().ok_or(format!("spec is {spec:?}"))
/// })
/// .await;
/// # }
/// ```
///
/// # Panics
///
/// If `look` gives no value within `deadline`. The text has `what`, the caller's place and the last
/// reason. The deadline also ends a `look` that hangs.
#[track_caller]
pub fn eventually<O: Outcome>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> O,
) -> impl Future<Output = O::Value> {
    let caller = Location::caller();
    async move {
        let end = Instant::now() + deadline;
        let mut reason = "no check has run".to_owned();
        loop {
            match timeout_at(end, look()).await.map(Outcome::value_or_reason) {
                Ok(Ok(value)) => return value,
                Ok(Err(why)) => reason = why,
                Err(_) => reason = format!("the last check took too long; before that: {reason}"),
            }
            assert!(
                Instant::now() + INTERVAL < end,
                "not within {deadline:?}: {what} (at {caller})\nlast reason: {reason}"
            );
            sleep(INTERVAL).await;
        }
    }
}
