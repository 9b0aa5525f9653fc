//! The load balancer of one Service. The checks keep and send its handle, and repeat a call after
//! `pending` and BUSY.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use pb::delete_load_balancer_response::Outcome as Deleted;
use pb::ensure_load_balancer_response::Outcome as Ensured;
use pb::update_load_balancer_response::Outcome as Updated;
use tokio::time::Instant;

use crate::call::{Answer, Exchange, Rpc};
use crate::check::Verdict;
use crate::session::Session;

use super::answer::{Outcome, Said, found, sane};

/// How long a load balancer may take to become ready, to be updated, or to be deleted.
const PATIENCE: Duration = Duration::from_mins(2);
/// A longer `retry_after` counts as this, because a check has a time limit.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
/// The wait if `pending` has no `retry_after`.
const PENDING: Duration = Duration::from_secs(5);
const BUSY: Duration = Duration::from_millis(200);

/// A Service, its handle, and its session.
#[derive(Clone)]
pub(super) struct Balancer {
    pub(super) session: Session,
    pub(super) service: pb::ServiceView,
    pub(super) handle: Option<String>,
    /// The number of `pending` answers.
    pub(super) pendings: usize,
    /// The number of `pending` answers before the first handle.
    pub(super) without_handle: usize,
    /// The most events of one answer.
    pub(super) most_events: usize,
    /// Whether an Ensure got an answer other than `failed`.
    begun: bool,
}

impl Balancer {
    pub(super) fn new(session: &Session, service: pb::ServiceView) -> Self {
        Self {
            session: session.clone(),
            service,
            handle: None,
            pendings: 0,
            without_handle: 0,
            most_events: 0,
            begun: false,
        }
    }

    /// The same Service and handle on another connection.
    pub(super) fn through(&self, session: &Session) -> Self {
        Self {
            session: session.clone(),
            ..self.clone()
        }
    }

    /// A copy without the handle, as if a user had removed the annotation.
    pub(super) fn forgetful(&self) -> Self {
        Self {
            handle: None,
            ..self.clone()
        }
    }

    /// A copy with this handle, as if a user had edited the annotation.
    pub(super) fn with_handle(&self, handle: impl Into<String>) -> Self {
        Self {
            handle: Some(handle.into()),
            ..self.clone()
        }
    }

    /// A copy with a changed Service.
    pub(super) fn changed(&self, change: impl FnOnce(&mut pb::ServiceView)) -> Self {
        let mut other = self.clone();
        change(&mut other.service);
        other.service.generation = other.service.generation.map(|generation| generation + 1);
        other
    }

    pub(super) fn get_request(&self, set: Option<pb::TargetSet>) -> pb::GetLoadBalancerRequest {
        pb::GetLoadBalancerRequest {
            cluster: None,
            service: Some(self.service.clone()),
            handle: self.handle.clone(),
            targets: set,
        }
    }

    pub(super) fn ensure_request(
        &self,
        set: Option<pb::TargetSet>,
        adopt_unmarked: bool,
    ) -> pb::EnsureLoadBalancerRequest {
        pb::EnsureLoadBalancerRequest {
            cluster: None,
            service: Some(self.service.clone()),
            handle: self.handle.clone(),
            targets: set,
            adopt_unmarked,
        }
    }

    pub(super) fn update_request(&self, set: pb::TargetSet) -> pb::UpdateLoadBalancerRequest {
        pb::UpdateLoadBalancerRequest {
            cluster: None,
            service: Some(self.service.clone()),
            handle: self.handle.clone(),
            targets: Some(set),
        }
    }

    pub(super) fn delete_request(&self) -> pb::DeleteLoadBalancerRequest {
        pb::DeleteLoadBalancerRequest {
            cluster: None,
            service: Some(self.service.clone()),
            handle: self.handle.clone(),
            adopt_unmarked: false,
        }
    }

    /// Sends one request, keeps the handle of its answer, and checks the rules for every answer.
    async fn asked<R>(
        &mut self,
        request: R,
        set: Option<&pb::TargetSet>,
    ) -> Verdict<Exchange<R::Response>>
    where
        R: Rpc,
        R::Response: Said,
    {
        let asked = self.session.call(request).await;
        self.heard(&asked, set)?;
        Ok(asked)
    }

    fn heard<T: Said + Debug>(
        &mut self,
        asked: &Exchange<T>,
        set: Option<&pb::TargetSet>,
    ) -> Verdict {
        let names = set.map(names_of).unwrap_or_default();
        sane(asked, &names)?;
        let answer = asked.answer()?;
        if let Some(handle) = answer.handle() {
            self.handle = Some(handle.clone());
        }
        self.most_events = self.most_events.max(answer.events().len());
        if matches!(answer.outcome(), Outcome::Pending(_)) {
            self.pendings += 1;
            self.without_handle += usize::from(self.handle.is_none());
        }
        Ok(())
    }

    /// One GetLoadBalancer.
    pub(super) async fn get(
        &mut self,
        set: Option<pb::TargetSet>,
    ) -> Verdict<Exchange<pb::GetLoadBalancerResponse>> {
        let request = self.get_request(set.clone());
        self.asked(request, set.as_ref()).await
    }

    /// One GetLoadBalancer that must not be a failure.
    pub(super) async fn found(&mut self, set: Option<pb::TargetSet>) -> Verdict<pb::LoadBalancer> {
        let asked = self.get(set).await?;
        found(&asked).cloned()
    }

    /// Checks that the load balancer exists and is this owner's.
    pub(super) async fn present(
        &mut self,
        set: Option<pb::TargetSet>,
    ) -> Verdict<pb::LoadBalancer> {
        let asked = self.get(set).await?;
        let found = found(&asked)?;
        asked.must(
            found.presence() == pb::LoadBalancerPresence::Present
                && found.ownership() == pb::Ownership::Ours,
            "LB-5",
            "PRESENT and OURS: Ensure has answered `ready` for this owner and this Service",
        )?;
        Ok(found.clone())
    }

    /// Checks that nothing of this Service exists.
    pub(super) async fn absent(&mut self, rule: &str, why: &str) -> Verdict {
        let asked = self.get(None).await?;
        asked.must(
            found(&asked)?.presence() == pb::LoadBalancerPresence::Absent,
            rule,
            format_args!("ABSENT: {why}"),
        )
    }

    /// One EnsureLoadBalancer.
    pub(super) async fn ensure(
        &mut self,
        set: Option<pb::TargetSet>,
        adopt_unmarked: bool,
    ) -> Verdict<Exchange<pb::EnsureLoadBalancerResponse>> {
        let request = self.ensure_request(set.clone(), adopt_unmarked);
        let asked = self.asked(request, set.as_ref()).await?;
        self.begun |= asked.answer()?.failed().is_none();
        Ok(asked)
    }

    /// One UpdateLoadBalancer.
    pub(super) async fn update(
        &mut self,
        set: pb::TargetSet,
    ) -> Verdict<Exchange<pb::UpdateLoadBalancerResponse>> {
        let request = self.update_request(set.clone());
        self.asked(request, Some(&set)).await
    }

    /// One DeleteLoadBalancer.
    pub(super) async fn delete(&mut self) -> Verdict<Exchange<pb::DeleteLoadBalancerResponse>> {
        let request = self.delete_request();
        self.asked(request, None).await
    }

    /// One DeleteLoadBalancer with the permission to remove an unmarked load balancer.
    pub(super) async fn delete_granted(
        &mut self,
    ) -> Verdict<Exchange<pb::DeleteLoadBalancerResponse>> {
        let mut request = self.delete_request();
        request.adopt_unmarked = true;
        self.asked(request, None).await
    }

    /// Repeats Ensure until it answers `ready`.
    pub(super) async fn ensured(
        &mut self,
        set: Option<pb::TargetSet>,
    ) -> Verdict<pb::LoadBalancerStatus> {
        Ok(self.followed(set, false).await?.0)
    }

    /// Repeats Ensure with the permission to adopt, until it answers `ready`.
    pub(super) async fn adopted(&mut self, set: Option<pb::TargetSet>) -> Verdict {
        self.followed(set, true).await.map(|_| ())
    }

    /// Repeats Ensure until it answers `ready`. Returns the last answer's errors of single targets.
    pub(super) async fn ensured_with_errors(
        &mut self,
        set: Option<pb::TargetSet>,
    ) -> Verdict<Vec<pb::TargetError>> {
        Ok(self.followed(set, false).await?.1)
    }

    async fn followed(
        &mut self,
        set: Option<pb::TargetSet>,
        adopt_unmarked: bool,
    ) -> Verdict<(pb::LoadBalancerStatus, Vec<pb::TargetError>)> {
        let until = Instant::now() + PATIENCE;
        loop {
            let asked = self.ensure(set.clone(), adopt_unmarked).await?;
            let answer = asked.answer()?;
            if let Some(Ensured::Ready(ready)) = &answer.outcome {
                let status = ready.status.clone().unwrap_or_default();
                asked.must(
                    !status.ingress.is_empty(),
                    "LB-19",
                    "a status with at least one address or host name",
                )?;
                return Ok((status, answer.target_errors.clone()));
            }
            let expected = "`ready` (before it only `pending` or BUSY)";
            // This failure is not the check's subject, and most likely the same in all checks.
            if !self.begun
                && let Some(failure) = answer.failed()
                && failure.code() != FailureCode::Busy
            {
                return Err(asked.refused(failure, "LB-24", expected));
            }
            wait(&asked, until, "CORE-6", expected).await?;
        }
    }

    /// Repeats Ensure until it answers CONFLICT.
    pub(super) async fn conflicted(&mut self, set: Option<pb::TargetSet>, rule: &str) -> Verdict {
        self.contest(
            set,
            rule,
            "CONFLICT (before it only `pending` or BUSY)",
            false,
        )
        .await
        .map(|_| ())
    }

    /// Repeats Ensure until it answers `ready` or CONFLICT. Returns whether it answered `ready`.
    pub(super) async fn contended(&mut self, set: Option<pb::TargetSet>) -> Verdict<bool> {
        let expected = "`ready` or CONFLICT (before it only `pending` or BUSY)";
        self.contest(set, "LB-21", expected, true).await
    }

    async fn contest(
        &mut self,
        set: Option<pb::TargetSet>,
        rule: &str,
        expected: &str,
        may_win: bool,
    ) -> Verdict<bool> {
        let until = Instant::now() + PATIENCE;
        loop {
            let asked = self.ensure(set.clone(), false).await?;
            let answer = asked.answer()?;
            let failed = answer.failed();
            if failed.is_some_and(|failure| failure.code() == FailureCode::Conflict) {
                return Ok(false);
            }
            if may_win && matches!(answer.outcome, Some(Ensured::Ready(_))) {
                return Ok(true);
            }
            wait(&asked, until, rule, expected).await?;
        }
    }

    /// Repeats Update until it answers `done`.
    pub(super) async fn updated(&mut self, set: pb::TargetSet) -> Verdict {
        let until = Instant::now() + PATIENCE;
        loop {
            let asked = self.update(set.clone()).await?;
            if let Some(Updated::Done(_)) = asked.answer()?.outcome {
                return Ok(());
            }
            wait(
                &asked,
                until,
                "CORE-6",
                "`done` (before it only `pending` or BUSY)",
            )
            .await?;
        }
    }

    /// Repeats Delete until it answers `done`.
    pub(super) async fn deleted(&mut self) -> Verdict {
        self.gone(false).await
    }

    /// Repeats Delete with the permission to remove an unmarked load balancer, until it answers
    /// `done`.
    pub(super) async fn deleted_granted(&mut self) -> Verdict {
        self.gone(true).await
    }

    async fn gone(&mut self, granted: bool) -> Verdict {
        let until = Instant::now() + PATIENCE;
        loop {
            let asked = if granted {
                self.delete_granted().await?
            } else {
                self.delete().await?
            };
            if let Some(Deleted::Done(_)) = asked.answer()?.outcome {
                return Ok(());
            }
            wait(
                &asked,
                until,
                "LB-12",
                "`done` (before it only `pending` or BUSY)",
            )
            .await?;
        }
    }
}

/// Waits as `pending` or BUSY asks. Fails after any other answer, or if the wait ends too late.
async fn wait<T: Said + Debug>(
    asked: &Exchange<T>,
    until: Instant,
    rule: &str,
    expected: &str,
) -> Verdict {
    let answer = asked.answer()?;
    let delay = |after: Option<prost_types::Duration>, otherwise| {
        let after = after.and_then(|after| Duration::try_from(after).ok());
        after
            .unwrap_or(otherwise)
            .clamp(SHORTEST_WAIT, LONGEST_WAIT)
    };
    let delay = match (answer.outcome(), answer.failed()) {
        (Outcome::Pending(pending), _) => delay(pending.retry_after, PENDING),
        (_, Some(failure)) if failure.code() == FailureCode::Busy => {
            delay(failure.retry_after, BUSY)
        }
        _ => return Err(asked.broke(rule, expected)),
    };
    asked.must(
        Instant::now() + delay < until,
        rule,
        format_args!("{expected}, within {PATIENCE:?}"),
    )?;
    tokio::time::sleep(delay).await;
    Ok(())
}

fn names_of(set: &pb::TargetSet) -> BTreeSet<String> {
    match &set.set {
        Some(pb::target_set::Set::Inline(list)) => {
            list.nodes.iter().map(|node| node.name.clone()).collect()
        }
        _ => BTreeSet::new(),
    }
}
