//! While this process leads: Initialize, the scope, the claims.

use std::sync::Arc;
use std::time::Duration;

use api::provider_service_client::ProviderServiceClient;
use cloud_provider_api::v1alpha1 as api;
use tokio::time::{Instant, sleep, timeout};

use super::super::call_log::CallLog;
use super::super::calls::{CallLimiters, timed};
use super::super::claims::{Counted, judge};
use super::super::connect::Link;
use super::super::failures::{self, Place};
use super::super::handshake::{Deadlines, check_initialized};
use super::super::status::{Verdict, scope_verdict};
use super::super::{CallError, Retry, Session};
use super::Keeper;
use crate::core::{Backoff, changed, millis};
use crate::ownership::{Clash, Ownership};
use crate::planted::planted;

const INITIALIZE_DEADLINE: Duration = Duration::from_mins(1);
/// The longest pause between two attempts to initialise.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), LONGEST_PAUSE);
/// The elector usually writes a scope to the Lease within a second. If the Lease does not have the
/// scope after this time, the ccm logs a warning.
const REMEMBERED: Duration = Duration::from_secs(3);
/// A session or stream that lasted this long was a good one: its end is no failure.
pub(super) const LASTED: Duration = Duration::from_secs(30);

/// A session that the controllers see. Dropping this ends the session for all its holders, also
/// when the whole future is dropped.
struct Published<'a> {
    keeper: &'a Keeper,
    session: Arc<Session>,
    scope: String,
    counted: Counted,
}

impl Published<'_> {
    /// Follows the stored scope, the stored claims and the provider's hints until another session
    /// must replace this one. Returns whether the reason is that other claims count.
    async fn lasts(&self, link: &Link, info: &api::GetProviderInfoResponse) -> bool {
        let keeper = self.keeper;
        tokio::select! {
            biased;
            () = self.session.uninitialized.cancelled() => {
                tracing::warn!(provider = %keeper.name, "the provider reports NOT_INITIALIZED: initialising it again");
                false
            }
            () = keeper.watch_memory(info, &self.scope, &self.counted) => {
                // Calls in flight go on.
                self.session.uninitialized.cancel();
                true
            }
            () = keeper.watch_changes(link, &self.session) => false,
        }
    }
}

impl Drop for Published<'_> {
    fn drop(&mut self) {
        // Calls in flight go on if only a new Initialize is needed, or if the provider drains the
        // connection.
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
    /// Initialises the provider and publishes a session when this process begins to lead, and again
    /// when another session must replace it. Returns why the connection is to be closed.
    pub(super) async fn lead(
        &self,
        link: &Link,
        info: &Arc<api::GetProviderInfoResponse>,
    ) -> String {
        let mut leading = self.with.leading.clone();
        let limiters = Arc::new(CallLimiters::of(
            &info.capabilities.clone().unwrap_or_default(),
        ));
        let mut failures = 0_u32;
        loop {
            let request = leading.borrow_and_update().clone();
            let Some(request) = request else {
                failures = 0;
                self.tell("");
                changed(&mut leading).await;
                continue;
            };
            let published = tokio::select! {
                biased;
                () = changed(&mut leading) => continue,
                published = self.begin(link, info, &request, &limiters, &mut failures) => published,
            };
            let published = match published {
                Ok(published) => published,
                Err(clash) => return clash.to_string(),
            };
            let started = Instant::now();
            let has_other_claims = tokio::select! {
                biased;
                () = changed(&mut leading) => false,
                other_claims = published.lasts(link, info) => other_claims,
            };
            let was_uninitialized = published.session.uninitialized.is_cancelled();
            drop(published);
            if has_other_claims {
                continue;
            }
            // The provider reported NOT_INITIALIZED soon after Initialize. This counts as a failed
            // Initialize. From the second failure in a row the ccm pauses before the next one.
            if was_uninitialized && started.elapsed() < LASTED {
                failures = failures.saturating_add(1);
                if failures > 1 {
                    self.tell("the provider reports NOT_INITIALIZED soon after each Initialize: the ccm waits up to 30 s before the next one");
                    sleep(backoff(failures)).await;
                }
            } else {
                failures = 0;
            }
        }
    }

    /// Initialises the provider, and publishes the session as soon as the scope is stored, or if
    /// another scope is the accepted one. `failures` counts the failed attempts in a row.
    async fn begin(
        &self,
        link: &Link,
        info: &api::GetProviderInfoResponse,
        request: &api::InitializeRequest,
        limiters: &Arc<CallLimiters>,
        failures: &mut u32,
    ) -> Result<Published<'_>, Clash> {
        let initialized = self.initialized(link, request, failures).await;
        let counted = self.counted(info, &initialized.cloud_scope);
        let ownership = Ownership::of(&[(&self.name, &counted.info)], None)?;
        // The next leader must find the scope, even if this process dies with its first call.
        self.remember(&initialized.cloud_scope).await;
        let limiters = if planted!(LanesOfEachSession) {
            Arc::new(CallLimiters::of(
                &info.capabilities.clone().unwrap_or_default(),
            ))
        } else {
            Arc::clone(limiters)
        };
        let hints = initialized.deadline_hints.as_ref();
        let session = Session::new(
            counted.info.clone(),
            Arc::new(ownership),
            request.cluster.clone().unwrap_or_default(),
            link.clone(),
            limiters,
            Deadlines::raised(hints, self.with.max_call_deadline),
            CallLog::new(
                Arc::clone(&self.name),
                self.ids.clone(),
                self.with.metrics.clone(),
            ),
        );
        let session = Arc::new(session);
        self.publish(&session, &initialized.cloud_scope, &counted);
        Ok(Published {
            keeper: self,
            session,
            scope: initialized.cloud_scope,
            counted,
        })
    }

    /// Calls Initialize until it succeeds.
    async fn initialized(
        &self,
        link: &Link,
        request: &api::InitializeRequest,
        failures: &mut u32,
    ) -> api::Initialized {
        loop {
            let trouble = match self.initialize(link, request).await {
                Ok(initialized) => return initialized,
                Err(trouble) => trouble,
            };
            *failures = failures.saturating_add(1);
            self.tell(&format!("Initialize failed: {trouble}"));
            let pause = pause(&trouble, *failures);
            tracing::warn!(provider = %self.name, call_id = trouble.call_id(), error = %trouble, attempt = *failures, retry_in_ms = millis(pause), "Initialize failed; controllers make no calls until it succeeds");
            sleep(pause).await;
        }
    }

    async fn initialize(
        &self,
        link: &Link,
        request: &api::InitializeRequest,
    ) -> Result<api::Initialized, CallError> {
        let send = |mut client: ProviderServiceClient<Link>| async move {
            let request = timed(request.clone(), INITIALIZE_DEADLINE);
            client.initialize(request).await
        };
        let read = |answer: api::InitializeResponse| {
            if answer.outcome.is_some() {
                self.answered();
            }
            initialized(answer)
        };
        self.own_call("Initialize", INITIALIZE_DEADLINE, link, send, read)
            .await
    }

    fn answered(&self) {
        self.with.status.send_if_modified(|status| {
            status.last_answer = Some(Instant::now());
            false
        });
    }

    /// Publishes why there is no session.
    fn tell(&self, why: &str) {
        self.with.status.send_if_modified(|status| {
            let news = status.message != why;
            why.clone_into(&mut status.message);
            news
        });
    }

    fn publish(&self, session: &Arc<Session>, scope: &str, counted: &Counted) {
        let (accepted, message) = self.judge(scope);
        tracing::info!(provider = %self.name, cloud_scope = scope, "initialised the provider");
        self.with.metrics.scope(&self.name, Some(accepted));
        let held = counted.complaint(self.with.memory.accept_claims().as_deref());
        if !held.is_empty() {
            tracing::warn!(provider = %self.name, "{held}");
        }
        self.with.status.send_modify(|status| {
            status.held = held;
            status.session = Some(Arc::clone(session));
            status.cloud_scope = Some(scope.to_owned());
            status.judged(accepted, message);
        });
    }

    /// Returns when the Lease remembers this scope, or when another one is the accepted one.
    /// Controllers make no calls before that. While the Lease cannot be written, this function does
    /// not return. Then this process loses the Lease and stops leading.
    async fn remember(&self, scope: &str) {
        let mut seen = self.with.memory.changes();
        loop {
            seen.mark_unchanged();
            if self.verdict(scope) != Verdict::AcceptedAndNew {
                return;
            }
            self.with.memory.store_scope(scope);
            self.tell(&format!(
                "controllers make no calls until the Lease stores the cloud scope {scope:?}"
            ));
            if timeout(REMEMBERED, changed(&mut seen)).await.is_err() {
                tracing::warn!(provider = %self.name, cloud_scope = scope, "cannot write the Lease yet: controllers make no calls until it stores the cloud scope");
            }
        }
    }

    /// The decision about this scope, by the stored scope and the operator's flag.
    fn verdict(&self, scope: &str) -> Verdict {
        let operator = self.with.endpoint.accepted_cloud_scope.as_deref();
        scope_verdict(self.with.memory.scope().as_deref(), scope, operator)
    }

    /// Which of the provider's claims count (▲S21). The first claims in a scope are stored, unless
    /// the scope is not accepted: there the ccm creates and deletes nothing.
    fn counted(&self, info: &api::GetProviderInfoResponse, scope: &str) -> Counted {
        let verdict = self.verdict(scope);
        let known = self.with.memory.claims();
        let counted = judge(info, &self.with.endpoint, known.as_deref(), scope);
        if let (Some(text), false) = (
            &counted.to_record,
            matches!(verdict, Verdict::Refused { .. }),
        ) {
            self.with.memory.store_claims(text);
        }
        counted
    }

    /// Whether the scope is the accepted one, and the message about it.
    fn judge(&self, scope: &str) -> (bool, String) {
        match self.verdict(scope) {
            Verdict::Accepted => (true, String::new()),
            Verdict::AcceptedAndNew => {
                self.with.memory.store_scope(scope);
                (true, String::new())
            }
            Verdict::Refused { accepted } => {
                // An event may cut the end of its message, and nobody must run a command that was
                // cut. So the command, which alone has the new scope, comes before the former one.
                let accept = match self.with.memory.accept_scope() {
                    Some(command) => format!(
                        "{command}='{scope}', or start the ccm with this scope in --accept-cloud-scope"
                    ),
                    None => format!("start the ccm with --accept-cloud-scope='{scope}'"),
                };
                let message = format!(
                    "the provider's credentials reach another cloud scope; the ccm creates and deletes nothing. To accept it: {accept}. Otherwise give the provider its former credentials, for {accepted:?}"
                );
                tracing::error!(provider = %self.name, cloud_scope = scope, accepted, "{message}");
                (false, message)
            }
        }
    }

    /// Decides about the scope and the claims again whenever the Lease's annotations change.
    /// Returns when other claims count than at the start of the session.
    async fn watch_memory(
        &self,
        info: &api::GetProviderInfoResponse,
        scope: &str,
        counted: &Counted,
    ) {
        let mut annotations = self.with.memory.changes();
        // Earlier changes count too.
        annotations.mark_changed();
        loop {
            changed(&mut annotations).await;
            annotations.mark_unchanged();
            let accepts = !matches!(self.verdict(scope), Verdict::Refused { .. });
            if accepts != self.with.status.borrow().scope_accepted {
                let (accepted, message) = self.judge(scope);
                if accepted {
                    tracing::info!(provider = %self.name, cloud_scope = scope, "accepted the cloud scope");
                }
                self.with.metrics.scope(&self.name, Some(accepted));
                self.with
                    .status
                    .send_modify(|status| status.judged(accepted, message));
            }
            if self.counted(info, scope).info != counted.info {
                return;
            }
        }
    }
}

/// The content of an answer to Initialize.
fn initialized(answer: api::InitializeResponse) -> Result<api::Initialized, CallError> {
    use api::initialize_response::Outcome;
    match answer.outcome {
        None => Err(CallError::fault("the answer of Initialize has no outcome")),
        Some(Outcome::Failed(failure)) => {
            Err(failures::trouble("Initialize", Place::Whole, failure))
        }
        Some(Outcome::Initialized(initialized)) => {
            let checked = check_initialized(&initialized);
            checked.map(|()| initialized).map_err(CallError::fault)
        }
    }
}

/// The pause before the next Initialize.
fn pause(trouble: &CallError, failures: u32) -> Duration {
    match trouble.reaction(failures).retry {
        Retry::After(pause)
        | Retry::WhenChangedElse(pause)
        | Retry::Refused { probe: pause, .. } => pause.min(LONGEST_PAUSE),
        Retry::Backoff | Retry::TransportBackoff => backoff(failures),
    }
}

/// The pause after this many failures in a row.
pub(super) fn backoff(failures: u32) -> Duration {
    BACKOFF.pause(failures.saturating_sub(1))
}
