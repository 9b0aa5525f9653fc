//! What is reported of a session's calls: metrics, log lines, and whether the cloud refuses the provider's credentials.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::{CallError, CallErrorCode, Metrics};
use crate::core::{lock, millis};

/// A refusal that nobody met again for so long is not shown any more: what it was about may be gone.
const REFUSED_SHOWN: Duration = Duration::from_mins(15);

/// Reports the calls of one session.
pub(super) struct CallLog {
    /// The name that the operator gave the provider.
    provider: Arc<str>,
    metrics: Metrics,
    /// RPCs whose last answer was that the cloud refuses the provider's credentials: when, and its words.
    refused: Mutex<BTreeMap<&'static str, (Instant, String)>>,
}

impl CallLog {
    pub(super) fn new(provider: Arc<str>, metrics: Metrics) -> Self {
        Self {
            provider,
            metrics,
            refused: Mutex::default(),
        }
    }

    pub(super) fn provider(&self) -> &str {
        &self.provider
    }

    /// A call is over. `reported`: what went wrong, as the answer says or in its place.
    pub(super) fn record(&self, rpc: &'static str, reported: Option<&CallError>, took: Duration) {
        self.note_credentials(rpc, reported);
        let outcome = reported.map_or("ok", |trouble| trouble.code.label());
        self.metrics.observe(&self.provider, rpc, outcome, took);
        tracing::debug!(
            provider = %self.provider,
            rpc,
            took_ms = millis(took),
            outcome,
            error = reported.map(|trouble| trouble.message.as_str()),
            "called the provider"
        );
    }

    /// Remembers whether the cloud refuses the provider's credentials, and says so once.
    fn note_credentials(&self, rpc: &'static str, reported: Option<&CallError>) {
        let mut refused = lock(&self.refused);
        match reported {
            Some(trouble) if trouble.code == CallErrorCode::Credentials => {
                if refused
                    .insert(rpc, (Instant::now(), trouble.message.clone()))
                    .is_none()
                {
                    tracing::warn!(provider = %self.provider, rpc, error = %trouble, "the cloud refuses the provider's credentials");
                }
            }
            None => {
                if refused.remove(rpc).is_some() {
                    tracing::info!(provider = %self.provider, rpc, "the cloud accepts the provider's credentials again");
                }
            }
            // Says nothing about them.
            Some(_) => {}
        }
    }

    /// For people: that the cloud refuses the provider's credentials, and where.
    pub(super) fn refused_credentials(&self) -> Option<String> {
        let refused = lock(&self.refused);
        let lately = refused
            .iter()
            .filter(|(_, (at, _))| at.elapsed() < REFUSED_SHOWN);
        let (rpc, (_, message)) = lately.max_by_key(|(_, (at, _))| *at)?;
        Some(format!(
            "the cloud refuses its credentials ({rpc}): {message}"
        ))
    }
}
