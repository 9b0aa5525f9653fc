//! While we lead: Initialize, the scope, the hints.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use cloud_provider_api::v1alpha1::watch_changes_response::Change;
use tokio::time::{Instant, sleep, timeout};

use super::super::calls::{Lanes, timed};
use super::super::claims::{Counted, judge};
use super::super::connect::Link;
use super::super::failures::{self, Place};
use super::super::handshake::{Deadlines, check_initialized};
use super::super::limits::{self, NAME_LIMIT, TEXT_LIMIT};
use super::super::session::Parts;
use super::super::status::{Verdict, scope_verdict};
use super::super::{CallError, Hint, ProviderStatus, Retry, Session};
use super::{Keeper, changed, client};
use crate::core::millis;
use crate::ownership::Ownership;
use crate::planted::planted;

const INITIALIZE_DEADLINE: Duration = Duration::from_mins(1);
/// The longest pause between two attempts to initialise.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A scope is written to the Lease at once: if it is not there after this, it is said.
const REMEMBERED: Duration = Duration::from_secs(3);
/// A session or a stream that lasted so long was a good one: its end is no failure.
const LASTED: Duration = Duration::from_secs(30);
/// So many streams of hints in a row that fail are told.
const HINTS_MISSED: u32 = 3;

/// Ends the session for everybody who holds it, also where the future that holds this is dropped.
struct Published<'a> {
    keeper: &'a Keeper,
    session: Arc<Session>,
}

impl Drop for Published<'_> {
    fn drop(&mut self) {
        // What is in flight goes on to its end where only a new Initialize was asked for, and where the provider drains it.
        let drains = self.session.link.is_closing() && !planted!(DrainIsCut);
        if !self.session.uninitialized.is_cancelled() && !drains {
            self.session.over.cancel();
        }
        self.keeper.with.metrics.scope(&self.keeper.name, None);
        self.keeper.with.status.send_modify(|status| {
            status.session = None;
            status.scope_accepted = false;
        });
    }
}

impl Keeper {
    /// Whenever we lead: initialises and publishes a session. Returns why the connection is to be given up.
    pub(super) async fn lead(
        &self,
        link: &Link,
        info: &Arc<api::GetProviderInfoResponse>,
    ) -> String {
        let mut leading = self.with.leading.clone();
        let lanes = Arc::new(Lanes::of(&info.capabilities.clone().unwrap_or_default()));
        let mut failures = 0_u32;
        loop {
            let request = leading.borrow_and_update().clone();
            let Some(request) = request else {
                failures = 0;
                self.tell("");
                changed(&mut leading).await;
                continue;
            };
            let initialized = tokio::select! {
                biased;
                () = changed(&mut leading) => continue,
                result = self.initialize(link, &request) => result,
            };
            let initialized = match initialized {
                Ok(initialized) => initialized,
                Err(trouble) => {
                    failures = failures.saturating_add(1);
                    self.tell(&format!("Initialize failed: {trouble}"));
                    let pause = pause(&trouble, failures);
                    tracing::warn!(provider = %self.name, error = %trouble, attempt = failures, retry_in_ms = millis(pause), "Initialize failed; controllers make no calls until it succeeds");
                    tokio::select! {
                        biased;
                        () = changed(&mut leading) => {}
                        () = sleep(pause) => {}
                    }
                    continue;
                }
            };
            let counted = self.counted(info, &initialized.cloud_scope);
            let ownership = match Ownership::of(&[(&self.name, &counted.info)], None) {
                Ok(ownership) => Arc::new(ownership),
                Err(clash) => return clash.to_string(),
            };
            // Who leads next must find it, also if we die with our first call.
            tokio::select! {
                biased;
                () = changed(&mut leading) => continue,
                () = self.remember(&initialized.cloud_scope) => {}
            }
            let session = Arc::new(Session::new(Parts {
                info: counted.info.clone(),
                ownership,
                name: Arc::clone(&self.name),
                cluster: request.cluster.clone().unwrap_or_default(),
                link: link.clone(),
                lanes: if planted!(LanesOfEachSession) {
                    Arc::new(Lanes::of(&info.capabilities.clone().unwrap_or_default()))
                } else {
                    Arc::clone(&lanes)
                },
                deadlines: Deadlines::raised(
                    initialized.deadline_hints.as_ref(),
                    self.with.max_call_deadline,
                ),
                metrics: self.with.metrics.clone(),
            }));
            let started = Instant::now();
            self.publish(&session, &initialized.cloud_scope, &counted);
            let published = Published {
                keeper: self,
                session: Arc::clone(&session),
            };
            tokio::select! {
                biased;
                () = changed(&mut leading) => {}
                () = session.uninitialized.cancelled() => {
                    tracing::warn!(provider = %self.name, "the provider reports NOT_INITIALIZED: initialising it again");
                }
                () = self.watch_scope(&initialized.cloud_scope) => {}
                () = self.watch_claims(info, &initialized.cloud_scope, &counted) => {
                    // A session with other claims takes its place: what is in flight goes on.
                    session.uninitialized.cancel();
                    drop(published);
                    continue;
                }
                () = self.watch_changes(link, &session) => {}
            }
            let was_uninitialized = session.uninitialized.is_cancelled();
            drop(published);
            // A provider that forgets each Initialize at once is not asked in a circle.
            if was_uninitialized && started.elapsed() < LASTED {
                failures = failures.saturating_add(1);
                if failures > 1 {
                    sleep(backoff(failures)).await;
                }
            } else {
                failures = 0;
            }
        }
    }

    async fn initialize(
        &self,
        link: &Link,
        request: &api::InitializeRequest,
    ) -> Result<api::Initialized, CallError> {
        use api::initialize_response::Outcome;
        let mut client = client(link);
        let call = client.initialize(timed(request.clone(), INITIALIZE_DEADLINE));
        let answer = self
            .own_call(
                "Initialize",
                INITIALIZE_DEADLINE,
                link,
                call,
                |answer| match &answer.outcome {
                    Some(Outcome::Initialized(initialized)) => {
                        check_initialized(initialized).is_ok()
                    }
                    Some(Outcome::Failed(_)) => true,
                    None => false,
                },
            )
            .await?;
        match answer.outcome {
            None => Err(CallError::fault("the answer of Initialize has no outcome")),
            Some(Outcome::Failed(failure)) => {
                self.answered();
                Err(failures::trouble("Initialize", Place::Whole, failure))
            }
            Some(Outcome::Initialized(initialized)) => {
                self.answered();
                check_initialized(&initialized).map_err(CallError::fault)?;
                Ok(initialized)
            }
        }
    }

    fn answered(&self) {
        self.with.status.send_if_modified(|status| {
            status.last_answer = Some(Instant::now());
            false
        });
    }

    /// Says why there is no session.
    fn tell(&self, why: &str) {
        self.with.status.send_if_modified(|status| {
            let news = status.message != why;
            why.clone_into(&mut status.message);
            news
        });
    }

    fn publish(&self, session: &Arc<Session>, scope: &str, counted: &Counted) {
        let last = self.scope_seen();
        let (accepted, message) = self.judge(last.as_deref(), scope);
        tracing::info!(provider = %self.name, cloud_scope = scope, "initialised the provider");
        self.with.metrics.scope(&self.name, Some(accepted));
        let held = counted.complaint(self.with.accept_claims.as_deref());
        if !held.is_empty() {
            tracing::warn!(provider = %self.name, "{held}");
        }
        self.with.status.send_modify(|status| {
            status.held = held;
            status.session = Some(Arc::clone(session));
            status.scope_accepted = accepted;
            status.cloud_scope = Some(scope.to_owned());
            status.message = message;
        });
    }

    /// Returns when the Lease remembers this scope, or the one that is accepted in its place: before that nothing is called. It can take as long as the Lease
    /// cannot be written; then it is lost, and with it our lead.
    async fn remember(&self, scope: &str) {
        let operator = self.with.endpoint.accepted_cloud_scope.as_deref();
        let mut seen = self.with.annotations.clone();
        loop {
            seen.mark_unchanged();
            let last = self.scope_seen();
            if scope_verdict(last.as_deref(), scope, operator) != Verdict::AcceptedAndNew {
                return;
            }
            (self.with.record_scope)(scope.to_owned());
            self.tell(&format!(
                "controllers make no calls until the Lease stores the cloud scope {scope:?}"
            ));
            if timeout(REMEMBERED, changed(&mut seen)).await.is_err() {
                tracing::warn!(provider = %self.name, cloud_scope = scope, "cannot write the Lease yet: controllers make no calls until it stores the cloud scope");
            }
        }
    }

    fn scope_seen(&self) -> Option<String> {
        self.seen(&self.with.scope_key, &self.scope, &*self.with.record_scope)
    }

    /// What the Lease remembers. What it remembered once and does not any more (it was deleted, or the annotation was) is remembered
    /// anew: only an operator who names something else accepts that.
    fn seen(
        &self,
        key: &str,
        remembered: &Mutex<Option<String>>,
        record: &dyn Fn(String),
    ) -> Option<String> {
        let now = self.with.annotations.borrow().get(key).cloned();
        let mut remembered = remembered.lock().unwrap_or_else(PoisonError::into_inner);
        match (&now, &*remembered) {
            (Some(text), _) => *remembered = Some(text.clone()),
            (None, Some(text)) => record(text.clone()),
            (None, None) => {}
        }
        remembered.clone()
    }

    /// What of the provider's claims counts (▲S21). The first ones in a scope are remembered, but for a scope that is not accepted: nothing is made or deleted there.
    fn counted(&self, info: &api::GetProviderInfoResponse, scope: &str) -> Counted {
        let operator = self.with.endpoint.accepted_cloud_scope.as_deref();
        let verdict = scope_verdict(self.scope_seen().as_deref(), scope, operator);
        let known = self.claims_seen();
        let counted = judge(info, &self.with.endpoint, known.as_deref(), scope);
        if let (Some(text), false) = (
            &counted.to_record,
            matches!(verdict, Verdict::Refused { .. }),
        ) {
            self.record_claims(text.clone());
        }
        counted
    }

    /// Also before the Lease shows them: until then no other ones pass for the first.
    fn record_claims(&self, text: String) {
        let mut remembered = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        *remembered = Some(text.clone());
        (self.with.record_claims)(text);
    }

    fn claims_seen(&self) -> Option<String> {
        let (key, record) = (&self.with.claims_key, &*self.with.record_claims);
        self.seen(key, &self.claims, record)
    }

    /// Returns when other claims count than those that the session was made with.
    async fn watch_claims(
        &self,
        info: &api::GetProviderInfoResponse,
        scope: &str,
        counted: &Counted,
    ) {
        let mut annotations = self.with.annotations.clone();
        // Also what changed before this.
        annotations.mark_changed();
        loop {
            changed(&mut annotations).await;
            annotations.mark_unchanged();
            if self.counted(info, scope).info != counted.info {
                return;
            }
        }
    }

    /// Whether the scope is the accepted one, and what is to be said about it.
    fn judge(&self, last_seen: Option<&str>, scope: &str) -> (bool, String) {
        let operator = self.with.endpoint.accepted_cloud_scope.as_deref();
        match scope_verdict(last_seen, scope, operator) {
            Verdict::Accepted => (true, String::new()),
            Verdict::AcceptedAndNew => {
                (self.with.record_scope)(scope.to_owned());
                (true, String::new())
            }
            Verdict::Refused { accepted } => {
                let command = &self.with.accept_command;
                let message = limits::cut(&format!(
                    "the provider's credentials reach another cloud scope: {scope:?} instead of {accepted:?}; the ccm creates and deletes nothing. To accept it: {command}='{scope}', or start the ccm with --accept-cloud-scope='{scope}'. Otherwise give the provider its former credentials"
                ));
                tracing::error!(provider = %self.name, cloud_scope = scope, accepted, "{message}");
                (false, message)
            }
        }
    }

    /// Decides about the scope again whenever the Lease remembers another. Never returns.
    async fn watch_scope(&self, scope: &str) {
        let mut seen = self.with.annotations.clone();
        // Also what changed between `publish` and here.
        seen.mark_changed();
        loop {
            changed(&mut seen).await;
            seen.mark_unchanged();
            let last = self.scope_seen();
            let operator = self.with.endpoint.accepted_cloud_scope.as_deref();
            let verdict = scope_verdict(last.as_deref(), scope, operator);
            let accepts = !matches!(verdict, Verdict::Refused { .. });
            let before = self.with.status.borrow().scope_accepted;
            if accepts == before {
                continue;
            }
            let (accepted, message) = self.judge(last.as_deref(), scope);
            if accepted {
                tracing::info!(provider = %self.name, cloud_scope = scope, "accepted the cloud scope");
            }
            self.with.metrics.scope(&self.name, Some(accepted));
            self.with.status.send_modify(|status: &mut ProviderStatus| {
                status.scope_accepted = accepted;
                status.message = message;
            });
        }
    }

    /// Passes the provider's hints on. Never returns; the end of a stream is no fault.
    async fn watch_changes(&self, link: &Link, session: &Session) {
        if !session.offers(|offered| offered.changes.is_some()) {
            return std::future::pending().await;
        }
        let mut failures = 0_u32;
        loop {
            let started = Instant::now();
            let received = self.stream_of_changes(link, &session.cluster).await;
            failures = if started.elapsed() >= LASTED {
                0
            } else {
                failures.saturating_add(1)
            };
            let pause = backoff(failures);
            if let Err(trouble) = &received {
                // Without hints all goes on, only later: once for each row of failures.
                if failures == HINTS_MISSED {
                    tracing::warn!(provider = %self.name, error = %trouble, failures, retry_in_ms = millis(pause), "WatchChanges fails: the ccm sees changes in the cloud at its next periodic check, not at once");
                } else {
                    tracing::debug!(provider = %self.name, error = %trouble, failures, retry_in_ms = millis(pause), "WatchChanges ended");
                }
            }
            sleep(pause).await;
        }
    }

    async fn stream_of_changes(
        &self,
        link: &Link,
        cluster: &api::ClusterRef,
    ) -> Result<(), CallError> {
        let resume_token = self.token().clone();
        let request = api::WatchChangesRequest {
            cluster: Some(cluster.clone()),
            resume_token,
        };
        let mut stream = client(link).watch_changes(request).await?.into_inner();
        while let Some(change) = stream.message().await? {
            if let Some(Change::Failed(failure)) = change.change {
                return Err(failures::trouble("WatchChanges", Place::Whole, failure));
            }
            if change.resume_token.len() <= TEXT_LIMIT {
                *self.token() = change.resume_token;
            } else {
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
                // Nobody may be listening.
                let _ = self.with.hints.send(hint);
            }
        }
        Ok(())
    }

    fn token(&self) -> std::sync::MutexGuard<'_, String> {
        self.resume_token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether what it names can be something's name or ID (CORE-11).
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

/// When Initialize is tried again.
fn pause(trouble: &CallError, failures: u32) -> Duration {
    match trouble.reaction(failures).retry {
        Retry::After(pause)
        | Retry::WhenChangedElse(pause)
        | Retry::Refused { probe: pause, .. } => pause.min(LONGEST_PAUSE),
        Retry::Backoff | Retry::TransportBackoff => backoff(failures),
    }
}

/// 0.5 s, doubled with each failure, at most 30 s.
fn backoff(failures: u32) -> Duration {
    Duration::from_millis(500)
        .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)))
        .min(LONGEST_PAUSE)
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
