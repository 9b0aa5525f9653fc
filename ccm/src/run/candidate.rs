//! Makes this process a candidate, then the leader, then a candidate again, until the end.

use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::identity::Identity;
use super::lead::{End, LeaseLoops, Memories, Migration};
use super::{LoopMetrics, RunError, clouds, identity, scope};
use crate::controller::LoopContext;
use crate::core::changed;
use crate::lease::Elector;
use crate::provider::{self, ProviderStatus};
use crate::writes::{EventType, reason};

/// Before the release of the Lease: the most time for queued events. A hand-over should take less
/// than a second.
const EVENT_FLUSH: Duration = Duration::from_millis(300);

/// How often a replica whose connected provider is silent checks whether it has answered.
const ANSWERS_AGAIN: Duration = Duration::from_secs(1);

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
        let context = &self.main.context;
        follow(
            context.status.clone(),
            context.config.provider_timeout,
            standing,
        )
        .await;
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

/// Sets `standing` while the provider is connected and has answered within `timeout`. Otherwise a
/// leader that stepped down because its provider hangs would take the Lease again at once.
async fn follow(
    mut status: watch::Receiver<ProviderStatus>,
    timeout: Duration,
    standing: &watch::Sender<bool>,
) {
    loop {
        let until = status.borrow_and_update().stands_until(timeout);
        let stands = until.is_some_and(|until| Instant::now() < until);
        standing.send_if_modified(|standing| std::mem::replace(standing, stands) != stands);
        // An answer alone wakes no receiver of the status.
        let again = async {
            match until {
                Some(until) if stands => sleep_until(until).await,
                Some(_) => sleep(ANSWERS_AGAIN).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = changed(&mut status) => {}
            () = again => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn m9_a_replica_whose_provider_hangs_stands_again_only_after_an_answer() {
        let timeout = Duration::from_secs(10);
        let connected = ProviderStatus {
            info: Some(Arc::default()),
            last_answer: Some(Instant::now()),
            ..ProviderStatus::default()
        };
        let (status, watching) = watch::channel(connected);
        let standing = watch::Sender::new(false);
        let stands = async |after: Duration| {
            sleep(after).await;
            *standing.borrow()
        };
        let soon = Duration::from_millis(1);
        let checks = async {
            assert!(stands(Duration::from_millis(9_999)).await);
            assert!(!stands(soon * 2).await, "silent for the whole timeout");
            assert!(!stands(timeout).await);
            status.send_if_modified(|status| {
                status.last_answer = Some(Instant::now());
                false
            });
            assert!(stands(ANSWERS_AGAIN + soon).await, "it answers again");
            status.send_modify(|status| status.info = None);
            assert!(!stands(soon).await, "it is gone");
        };
        tokio::select! {
            () = follow(watching, timeout, &standing) => unreachable!("it never ends"),
            () = checks => {}
        }
    }
}
