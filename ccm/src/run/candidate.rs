//! Makes this process a candidate, then the leader, then a candidate again, until the end.

use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::identity::Identity;
use super::lead::{End, LeaseLoops, Memories, Migration};
use super::{LoopMetrics, RunError, clouds, identity, scope};
use crate::controller::LoopContext;
use crate::core::changed;
use crate::lease::Elector;
use crate::provider;
use crate::writes::{EventType, reason};

/// Before the release of the Lease: the most time for queued events. A hand-over should take less
/// than a second.
const EVENT_FLUSH: Duration = Duration::from_millis(300);

/// Acquires the Lease, and runs the controllers while this process leads.
pub(super) struct Candidate<'a> {
    pub(super) main: LeaseLoops,
    pub(super) elector: Option<&'a Elector>,
    pub(super) migration: Option<&'a Migration>,
    pub(super) memories: Memories,
    pub(super) identity: &'a Identity,
    pub(super) metrics: &'a LoopMetrics,
    pub(super) shutdown: &'a CancellationToken,
    pub(super) provider_metrics: &'a provider::Metrics,
    /// The Initialize request, while this process leads.
    pub(super) leading: &'a watch::Sender<Option<Arc<api::InitializeRequest>>>,
}

impl Candidate<'_> {
    /// Works until the process ends, or until it loses the Lease.
    pub(super) async fn work(&self) -> Result<(), RunError> {
        let context = &self.main.context;
        // A replica that cannot work yet does not take the Lease from one that can.
        let (client, config) = (&context.watch_client, &context.config);
        let ready = async {
            let request = identity::initialize_request(client, config, self.identity).await;
            context.cluster.synced().await;
            Arc::new(request)
        };
        let Some(request) = self.shutdown.run_until_cancelled(ready).await else {
            return Ok(());
        };
        let standing = watch::Sender::new(false);
        let on_the_lease = |kind, reason: &'static str, text| {
            if let Some(elector) = self.elector {
                let events = &context.writes.events;
                events.record(&elector.reference(), kind, reason, text);
            }
        };
        let tell_scope = scope::tell(context.status.clone(), &context.provider, on_the_lease);
        let tell_clouds = clouds::tell(
            context.status.clone(),
            &context.provider,
            context.cluster.watched_nodes(),
            self.provider_metrics,
            on_the_lease,
        );
        tokio::select! {
            biased;
            result = self.terms(&standing, &request) => result,
            () = self.follow_provider(&standing) => Err(RunError::Broken("a part of the process")),
            () = tell_scope => Err(RunError::Broken("a part of the process")),
            () = tell_clouds => Err(RunError::Broken("a part of the process")),
        }
    }

    /// Makes this replica a candidate while its provider answers. Never returns.
    async fn follow_provider(&self, standing: &watch::Sender<bool>) {
        let mut status = self.main.context.status.clone();
        loop {
            let reachable = status.borrow_and_update().reachable();
            standing
                .send_if_modified(|standing| std::mem::replace(standing, reachable) != reachable);
            changed(&mut status).await;
        }
    }

    /// Leads in one term after the other.
    async fn terms(
        &self,
        standing: &watch::Sender<bool>,
        request: &Arc<api::InitializeRequest>,
    ) -> Result<(), RunError> {
        let context = &self.main.context;
        loop {
            let mut term = match self.elector {
                None => None,
                Some(elector) => {
                    let standing = standing.subscribe();
                    match elector.acquire(standing, self.shutdown).await {
                        None => return Ok(()),
                        Some(term) => {
                            announce(context, elector, "became leader");
                            Some(term)
                        }
                    }
                }
            };
            self.leading.send_replace(Some(Arc::clone(request)));
            let end = self.lead(term.as_mut()).await;
            self.leading.send_replace(None);
            if let End::Lost(lost) = end {
                return Err(RunError::LeaseLost(lost.to_string()));
            }
            if let (Some(term), Some(elector)) = (term, self.elector) {
                announce(context, elector, "stopped leading");
                context.writes.events.flush(EVENT_FLUSH).await;
                term.release().await;
            }
            match end {
                End::Stopped => return Ok(()),
                End::MigrationLost(lost) => return Err(RunError::LeaseLost(lost.to_string())),
                End::Broken(controller) => return Err(RunError::Broken(controller.name())),
                End::ProviderGone | End::Lost(_) => {}
            }
        }
    }
}

/// Records the event on the Lease that client-go's leader election records.
pub(super) fn announce(context: &LoopContext, elector: &Elector, what: &str) {
    context.writes.events.record(
        &elector.reference(),
        EventType::Normal,
        reason::LEADER_ELECTION,
        format!("{} {what}", elector.identity()),
    );
}
