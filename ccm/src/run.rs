//! Wiring: start, lead, stop. The ccm spawns its async tasks into JoinSets.

mod candidate;
mod clouds;
mod health;
mod identity;
mod lead;
mod leases;
mod metrics;
#[cfg(test)]
pub(crate) mod operator_guide;
mod process;
mod scope;
#[cfg(feature = "simulation")]
pub mod simulated;
mod status;
mod system;
#[cfg(test)]
mod upstream_metrics;
mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::Config;
use crate::core::WallClock;
use crate::provider::Connector;
use crate::{kube_client, serve};

pub(crate) use metrics::LoopMetrics;
use process::Process;
pub use system::{from_config, probe};

/// At the end: the most time for answers of the HTTPS ports and, without a Lease, for events.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A run's environment. A simulation passes its own.
pub(crate) struct Deps {
    /// The API server; the ccm puts its own layer over it.
    pub(crate) kube: kube_client::Base,
    /// The same API server without credentials, if each controller brings its own.
    pub(crate) anonymous: Option<kube_client::Base>,
    /// Dials the provider.
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) wall: WallClock,
    /// The seed of all randomness.
    pub(crate) seed: u64,
    /// This process's name in the Lease. No other process has it.
    pub(crate) identity: String,
    /// The bound HTTPS port; `None`: no port.
    pub(crate) listener: Option<serve::Listener>,
    /// The bound port of the admission webhooks; `None`: no port.
    pub(crate) webhook_listener: Option<serve::Listener>,
    /// Authenticates the callers of the HTTPS port, if that is not the API server of `kube`.
    pub(crate) authentication: Option<kube_client::Base>,
    /// Authorizes these callers, if that is not the API server of `kube`.
    pub(crate) authorization: Option<kube_client::Base>,
    /// Cancelled when the process should end.
    pub(crate) shutdown: CancellationToken,
}

/// Why a run ends with a failure.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Another process may lead now (B-M3).
    #[error("the Lease was lost, another process may lead: {0}")]
    LeaseLost(String),
    /// A bug.
    #[error("{0} ended by itself: this is a bug, and restarting is the best that can be done")]
    Broken(&'static str),
    /// The configuration has no provider.
    #[error("no provider is configured: see --provider")]
    NoProvider,
    /// A second signal came while the process was ending.
    #[error("asked to end a second time: what was in flight was given up")]
    Impatient,
    /// The process cannot receive signals.
    #[error("signals cannot be received: {0}")]
    Signals(std::io::Error),
    /// The ccm cannot use a kubeconfig, the in-cluster configuration, a port, its certificate or
    /// its client authorities.
    #[error(transparent)]
    Start(#[from] anyhow::Error),
}

impl Deps {
    /// The seed for the part of the process with the number `salt`.
    fn seed(&self, salt: u64) -> u64 {
        self.seed
            .wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Runs until `shutdown`, until a Lease is lost, or until a task of the process or a controller
/// ends by itself.
pub(crate) async fn run(mut deps: Deps, config: Config) -> Result<(), RunError> {
    let mut tasks = Tasks::default();
    let mut process = Process::start(&deps, config, &mut tasks)?;
    process.serve(&mut deps, &mut tasks);
    let result = tokio::select! {
        biased;
        result = process.work(&deps) => result,
        broken = tasks.break_off() => Err(broken),
    };
    tasks.end().await;
    result
}

/// The tasks of a run. They end with it.
#[derive(Default)]
struct Tasks {
    /// These tasks never end by themselves.
    background: JoinSet<()>,
    /// Keeps the client CAs of the HTTPS port. It ends, with the reason, only if the API server
    /// refuses the ConfigMap with them before the first successful read.
    authorities: JoinSet<String>,
    /// These tasks end after `stop` and `stop_serving`.
    closing: JoinSet<()>,
    stop: CancellationToken,
    stop_serving: CancellationToken,
}

impl Tasks {
    /// Returns when one of the tasks has ended, so that the process does not go on with a stale
    /// cache or without its provider.
    async fn break_off(&mut self) -> RunError {
        tokio::select! {
            biased;
            Some(ended) = self.authorities.join_next() => match ended {
                Ok(wrong) => RunError::Start(anyhow!(wrong)),
                Err(_) => broken(&ended.map(|_| ())),
            },
            Some(ended) = self.background.join_next() => broken(&ended),
            Some(ended) = self.closing.join_next() => broken(&ended),
            else => std::future::pending().await,
        }
    }

    async fn end(mut self) {
        self.stop.cancel();
        self.stop_serving.cancel();
        let ends = async { while self.closing.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_WORDS, ends).await;
        self.closing.shutdown().await;
        self.authorities.shutdown().await;
        self.background.shutdown().await;
    }
}

/// Logs that a part of the process ended, which is a bug.
fn broken(ended: &Result<(), tokio::task::JoinError>) -> RunError {
    tracing::error!(
        ?ended,
        "a part of the process ended by itself: this is a bug"
    );
    RunError::Broken("a part of the process")
}
