//! While this process leads: the provider's hints (WatchChanges).

use cloud_provider_api::v1alpha1 as api;
use cloud_provider_api::v1alpha1::watch_changes_response::Change;
use tokio::time::{Instant, sleep};

use super::super::connect::Link;
use super::super::failures::{self, Place};
use super::super::limits::{NAME_LIMIT, TEXT_LIMIT};
use super::super::{CallError, Hint, Session};
use super::lead::{LASTED, backoff};
use super::{Keeper, client};
use crate::core::{lock, millis};

/// A warning is logged if this many streams in a row ended early and the last one failed.
const HINTS_MISSED: u32 = 3;

impl Keeper {
    /// Passes on the provider's hints. Never returns. The end of a stream is no fault.
    pub(super) async fn watch_changes(&self, link: &Link, session: &Session) {
        if !session.offers(|offered| offered.changes.is_some()) {
            return std::future::pending().await;
        }
        let mut failures = 0_u32;
        loop {
            let started = Instant::now();
            let call_id = self.ids.next();
            let link = link.for_call(&call_id);
            let received = self.stream_of_changes(&link, &session.cluster).await;
            failures = if started.elapsed() >= LASTED {
                0
            } else {
                failures.saturating_add(1)
            };
            let pause = backoff(failures);
            if let Err(trouble) = &received {
                session.failed(trouble);
                // Without hints the controllers see changes later. The warning comes at most once
                // in a series of failures.
                if failures == HINTS_MISSED {
                    tracing::warn!(provider = %self.name, %call_id, error = %trouble, failures, retry_in_ms = millis(pause), "WatchChanges fails: the ccm sees changes in the cloud at its next periodic check, not at once");
                } else {
                    tracing::debug!(provider = %self.name, %call_id, error = %trouble, failures, retry_in_ms = millis(pause), "WatchChanges ended");
                }
            }
            sleep(pause).await;
        }
    }

    /// Passes on the hints of one stream. If changes were missed before it, a resync follows as
    /// soon as the stream sends a message that is no failure.
    async fn stream_of_changes(
        &self,
        link: &Link,
        cluster: &api::ClusterRef,
    ) -> Result<(), CallError> {
        let (resume_token, mut missed) = self.begin_stream();
        let request = api::WatchChangesRequest {
            cluster: Some(cluster.clone()),
            resume_token,
        };
        let mut told = false;
        let mut stream = client(link).watch_changes(request).await?.into_inner();
        while let Some(change) = stream.message().await? {
            if let Some(Change::Failed(failure)) = change.change {
                // The stream failed, so a resync that is due waits for the next stream.
                return Err(failures::trouble("WatchChanges", Place::Whole, failure));
            }
            if std::mem::take(&mut missed) {
                let _ = self.with.hints.send(Hint::Resync);
            }
            if change.resume_token.len() <= TEXT_LIMIT {
                *lock(&self.next) = Some(change.resume_token).filter(|token| !token.is_empty());
            } else if !std::mem::replace(&mut told, true) {
                tracing::warn!(provider = %self.name, limit = TEXT_LIMIT, "ignoring a resume_token that is too long");
            }
            let change = change.change.filter(|change| {
                let fits = fits(change);
                if !fits {
                    tracing::debug!(provider = %self.name, "ignoring a hint whose name or ID is too long (CORE-11)");
                }
                fits
            });
            if let Some(hint) = change.and_then(hint) {
                // There may be no receiver.
                let _ = self.with.hints.send(hint);
            }
        }
        Ok(())
    }

    /// The token of the next stream, and whether changes were missed before it.
    fn begin_stream(&self) -> (String, bool) {
        let mut next = lock(&self.next);
        let missed = next.is_none();
        let token = next.clone().unwrap_or_default();
        // A stream that begins without a token and ends before its first one leaves none.
        next.take_if(|token| token.is_empty());
        (token, missed)
    }
}

/// Whether each name and ID of the hint keeps to its limit (CORE-11).
fn fits(change: &Change) -> bool {
    match change {
        Change::Instance(it) => {
            it.provider_id.len() <= TEXT_LIMIT && it.node_name.len() <= NAME_LIMIT
        }
        Change::LoadBalancer(it) => it.namespace.len() <= NAME_LIMIT && it.name.len() <= NAME_LIMIT,
        Change::Resync(_) | Change::Routes(_) | Change::Failed(_) => true,
    }
}

fn hint(change: Change) -> Option<Hint> {
    Some(match change {
        Change::Resync(_) => Hint::Resync,
        Change::Instance(instance) => Hint::Instance {
            provider_id: instance.provider_id,
            node_name: instance.node_name,
        },
        Change::LoadBalancer(balancer) => Hint::LoadBalancer {
            namespace: balancer.namespace,
            name: balancer.name,
        },
        Change::Routes(_) => Hint::Routes,
        Change::Failed(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l7_a_hint_at_what_has_no_such_name_is_left_out() {
        let instance = |id: usize, name: usize| {
            Change::Instance(api::InstanceChange {
                provider_id: "i".repeat(id),
                node_name: "n".repeat(name),
            })
        };
        assert!(fits(&instance(TEXT_LIMIT, NAME_LIMIT)));
        assert!(!fits(&instance(TEXT_LIMIT + 1, 0)));
        assert!(!fits(&instance(0, NAME_LIMIT + 1)));
    }
}
