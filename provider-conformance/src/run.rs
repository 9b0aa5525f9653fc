//! The tools of a check.

mod needs;
mod objects;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::check::{Skipped, Stop, Verdict};
use super::config::Config;
use super::hooks::{Hook, Hooks};
use super::ledger::Ledger;
use super::session::Session;
use super::target::Target;

pub(crate) use needs::{codes_of_unknown, may_know};
pub(crate) use objects::{batch_size, beyond_batch, holds_two, targets};

/// The state that all checks of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) target: Target,
    pub(crate) config: Config,
    pub(crate) hooks: Hooks,
    pub(crate) ledger: Arc<Ledger>,
    /// GetProviderInfo's answer at the start.
    pub(crate) info: pb::GetProviderInfoResponse,
    /// The cloud keeps no marks with routes, and the run knows the routes from before it. Then the
    /// clean-up knows its own routes by their destinations.
    pub(crate) clears_unmarked: bool,
    /// How long each check for growing memory or open files runs (`--soak`).
    pub(crate) soak: Duration,
    pub(crate) numbers: AtomicU64,
}

/// One check's run. No other check has its owner ID.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: u64,
    /// The result of [`Run::few_nodes`], for later calls while the cloud may fail.
    pub(crate) few: OnceLock<Vec<pb::NodeView>>,
    /// The parts that the check could not observe.
    unseen: Mutex<Vec<Skipped>>,
}

impl Run {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
        Self {
            shared,
            number,
            few: OnceLock::new(),
            unseen: Mutex::default(),
        }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.shared.target
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    pub(crate) fn info(&self) -> &pb::GetProviderInfoResponse {
        &self.shared.info
    }

    pub(crate) fn capabilities(&self) -> pb::Capabilities {
        self.shared.info.capabilities.clone().unwrap_or_default()
    }

    pub(crate) fn soak(&self) -> Duration {
        self.shared.soak
    }

    /// Runs a hook. Skips the check if the hook is not configured.
    pub(crate) async fn hook(&self, hook: Hook, variables: &[(&str, &str)]) -> Verdict<String> {
        let printed = self.shared.hooks.run(hook, variables).await?;
        // If the hook removed an object, the clean-up need not remove it.
        self.shared.ledger.removed_by(hook, variables);
        Ok(printed)
    }

    /// Whether the hook is configured, for checks that test more with it.
    pub(crate) fn has_hook(&self, hook: Hook) -> bool {
        self.shared.hooks.has(hook)
    }

    /// How many writes ever reached the cloud.
    pub(crate) async fn cloud_writes(&self) -> Verdict<u64> {
        let printed = self.hook(Hook::CloudWrites, &[]).await?;
        printed.parse().map_err(|_| {
            Stop::failed(
                "(hook)",
                "the hook cloud-writes",
                "it prints a number",
                printed,
            )
        })
    }

    /// Makes each cloud operation take this long, until the check ends or calls this with zero.
    pub(crate) async fn cloud_slow(&self, each: Duration) -> Verdict {
        let ms = each.as_millis().to_string();
        self.hook(Hook::CloudSlow, &[("MS", &ms)]).await.map(|_| ())
    }

    /// Makes each cloud operation fail with this code, until the check ends or calls this with
    /// `NONE`.
    pub(crate) async fn cloud_fail(&self, code: &str) -> Verdict {
        self.hook(Hook::CloudFail, &[("CODE", code)])
            .await
            .map(|_| ())
    }

    /// This check's cluster.
    pub(crate) fn cluster(&self) -> pb::ClusterRef {
        self.other_cluster("a")
    }

    /// Another cluster of this check. The same word gives the same cluster.
    pub(crate) fn other_cluster(&self, word: &str) -> pb::ClusterRef {
        let run_id = self.shared.ledger.run_id();
        pb::ClusterRef {
            name: run_id.to_owned(),
            owner_id: format!("{run_id}-{}-{word}", self.number),
        }
    }

    /// A new connection without Initialize. Its requests carry this check's cluster unless they
    /// have one.
    pub(crate) async fn connect(&self) -> Verdict<Session> {
        self.connect_for(self.cluster()).await
    }

    pub(crate) async fn connect_for(&self, cluster: pb::ClusterRef) -> Verdict<Session> {
        let target = self.target();
        Session::dial(target.path(), cluster, Arc::clone(&self.shared.ledger))
            .await
            .map_err(|error| {
                Stop::failed(
                    "CORE-1",
                    format_args!("a new connection to {}", target.endpoint()),
                    "it is accepted",
                    error,
                )
            })
    }

    /// A new connection after Initialize for this check's cluster.
    pub(crate) async fn session(&self) -> Verdict<Session> {
        self.session_for(self.cluster(), &[]).await
    }

    /// A new connection after Initialize for this cluster, with these previous owner IDs.
    pub(crate) async fn session_for(
        &self,
        cluster: pb::ClusterRef,
        previous: &[&str],
    ) -> Verdict<Session> {
        let session = self.connect_for(cluster).await?;
        let request = pb::InitializeRequest {
            cluster: None,
            previous_owner_ids: previous.iter().map(ToString::to_string).collect(),
            cluster_cidrs: vec![self.config().route_cidr.to_string()],
            kubernetes_version: "v1.36.3".into(),
            read_only: false,
        };
        session.call(request).await.success("PROV-2")?;
        Ok(session)
    }

    /// A connection without gRPC.
    pub(crate) async fn raw_connection(&self) -> Verdict<UnixStream> {
        let target = self.target();
        UnixStream::connect(target.path()).await.map_err(|error| {
            Stop::failed(
                "CORE-1",
                format_args!("a new connection to {}", target.endpoint()),
                "it is accepted",
                error,
            )
        })
    }

    /// Repeats until there is a result, for at most `patience`.
    pub(crate) async fn eventually<T, F, L>(&self, patience: Duration, mut look: F) -> Option<T>
    where
        F: FnMut() -> L,
        L: Future<Output = Option<T>>,
    {
        let until = Instant::now() + patience;
        loop {
            if let Some(seen) = look().await {
                return Some(seen);
            }
            if Instant::now() > until {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }
}
