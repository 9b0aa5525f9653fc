//! Reports a session's calls: metrics, log lines, and whether the cloud refuses the provider's
//! credentials.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::Instant;

use super::{CallError, CallErrorCode, Metrics};
use crate::core::{lock, millis};

/// A refusal of the credentials is shown for this long after an RPC last got it. Later, its cause
/// may be gone.
const REFUSED_SHOWN: Duration = Duration::from_mins(15);

/// The ID of a call, which the provider gets as `ccm-call-id`. So an operator can find the call in
/// the logs of both processes.
pub(crate) type CallId = Arc<str>;

/// Numbers the calls of this process to one provider. Clones count together.
#[derive(Clone)]
pub(super) struct CallIds {
    /// Drawn at random for each process.
    process: u32,
    last: Arc<AtomicU64>,
}

impl CallIds {
    /// `seed` should differ from that of other processes.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            process: StdRng::seed_from_u64(seed).random(),
            last: Arc::default(),
        }
    }

    pub(super) fn next(&self) -> CallId {
        let number = self.last.fetch_add(1, Relaxed) + 1;
        format!("{:08x}-{number}", self.process).into()
    }
}

/// Reports the calls of one session.
pub(super) struct CallLog {
    /// The name that the operator gave the provider.
    provider: Arc<str>,
    ids: CallIds,
    metrics: Metrics,
    /// By RPC, the time and the message of its last refusal of credentials. A success of the RPC
    /// removes the entry.
    refused: Mutex<BTreeMap<&'static str, (Instant, String)>>,
}

impl CallLog {
    pub(super) fn new(provider: Arc<str>, ids: CallIds, metrics: Metrics) -> Self {
        Self {
            provider,
            ids,
            metrics,
            refused: Mutex::default(),
        }
    }

    /// The ID of the next call.
    pub(super) fn next_id(&self) -> CallId {
        self.ids.next()
    }

    pub(super) fn provider(&self) -> &str {
        &self.provider
    }

    /// Records a finished call. `reported` is the failure in the answer, or the one that came
    /// instead of an answer.
    pub(super) fn record(
        &self,
        rpc: &'static str,
        call_id: &str,
        reported: Option<&CallError>,
        took: Duration,
    ) {
        self.note_credentials(rpc, call_id, reported);
        show(&self.metrics, &self.provider, rpc, call_id, reported, took);
    }

    /// Remembers for each RPC whether it got a refusal of the credentials, and logs each change
    /// once.
    fn note_credentials(&self, rpc: &'static str, call_id: &str, reported: Option<&CallError>) {
        // The lock is not held over a log line, which may block.
        match reported {
            Some(trouble) if trouble.code == CallErrorCode::Credentials => {
                let refusal = (Instant::now(), trouble.message.clone());
                let before = lock(&self.refused).insert(rpc, refusal);
                if before.is_none() {
                    tracing::warn!(provider = %self.provider, rpc, call_id, error = %trouble, "the cloud refuses the provider's credentials");
                }
            }
            None => {
                let before = lock(&self.refused).remove(rpc);
                if before.is_some() {
                    tracing::info!(provider = %self.provider, rpc, "the cloud accepts the provider's credentials again");
                }
            }
            // This failure says nothing about the credentials.
            Some(_) => {}
        }
    }

    /// For people: the latest refusal of the provider's credentials, with its RPC.
    pub(super) fn refused_credentials(&self) -> Option<String> {
        let refused = lock(&self.refused);
        let lately = refused
            .iter()
            .filter(|(_, (at, _))| at.elapsed() < REFUSED_SHOWN);
        let (rpc, (_, message)) = lately.max_by_key(|(_, (at, _))| *at)?;
        Some(format!(
            "the cloud refuses the provider's credentials ({rpc}): {message}"
        ))
    }
}

/// Shows a finished call in the metrics and in the log. `reported` as for [`CallLog::record`].
pub(super) fn show(
    metrics: &Metrics,
    provider: &str,
    rpc: &'static str,
    call_id: &str,
    reported: Option<&CallError>,
    took: Duration,
) {
    let outcome = reported.map_or("ok", |trouble| trouble.code.label());
    metrics.observe(provider, rpc, outcome, took);
    tracing::debug!(
        %provider,
        rpc,
        call_id,
        took_ms = millis(took),
        outcome,
        error = reported.map(|trouble| trouble.message.as_str()),
        "called the provider"
    );
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::core::at_each_line;

    #[test]
    fn the_lock_of_the_refusals_is_free_while_a_refusal_or_its_end_is_logged() {
        let metrics = Metrics::register(&mut Registry::default());
        let log = Arc::new(CallLog::new("mock".into(), CallIds::new(1), metrics));
        let logged = Arc::clone(&log);
        let (was_free, _logging) = at_each_line("info", move || logged.refused.try_lock().is_ok());
        let refusal = CallError::new(CallErrorCode::Credentials, "no");
        log.record("Probe", "1", Some(&refusal), Duration::ZERO);
        log.record("Probe", "2", None, Duration::ZERO);
        assert_eq!(*lock(&was_free), [true, true]);
    }
}
