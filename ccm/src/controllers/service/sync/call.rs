//! One call of the provider: events before it, the writes of its answer, and the record.

use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Run, Stop};
use crate::controllers::service::answer::{self, Answer, Call, Verdict};
use crate::controllers::service::notes::{self, Op};
use crate::controllers::service::plan::{asks, class, handle_to_send, status_patch};
use crate::controllers::service::record::{Record, Seen};
use crate::controllers::service::settle::{begin, settle, with_annotations};
use crate::controllers::service::support::conditions;
use crate::controllers::service::targets::TargetSet;
use crate::core::{Key, millis};
use crate::provider::{CallError, CallId, service_view};
use crate::queue::Requeue;
use crate::writes::{ServicePatch, ServiceStatusPatch, WriteError, reason};

/// If a write of an answer fails without a conflict and the answer's delay is shorter than this,
/// the retry of the failed write replaces the delay.
const AFTER_REFUSAL: Duration = Duration::from_secs(5);

/// The least delay after an unfinished call that made the ccm write, if the Service was pending or
/// had failures before the call too. A shorter delay of the answer is raised to this. The queue's
/// backoff needs no such limit, because it grows.
const REWRITTEN: Duration = Duration::from_secs(30);

/// After conflicts, the ccm repeats a write of an answer at most this many times, each time with
/// the resourceVersion of a fresh read.
const CONFLICTS: u8 = 3;

impl Run<'_> {
    /// Calls the provider, writes what its answer asks for, and updates the record.
    pub(super) async fn call(&mut self, op: Op) -> Result<(), Stop> {
        self.may_go_on()?;
        if op != Op::Delete {
            self.write_conditions().await?;
            self.may_go_on()?;
        }
        let unfinished = self
            .record
            .as_ref()
            .is_some_and(|record| record.progress.is_pending() || record.failures > 0);
        let base = Arc::clone(&self.base);
        let offer = Arc::clone(&self.job.offer);
        let targets = self.job.targets.clone();
        let config = &self.context().config.service;
        let handle = handle_to_send(&base, self.record.as_ref(), &offer.name);
        let service_ranges = self.context().cluster.service_ranges().unwrap_or_default();
        let call = Call {
            op,
            me: &offer.name,
            departed: self.is_departed(),
            service: &base,
            handle: handle.as_deref(),
            targets: targets.as_deref(),
            adopt_unmarked: config.adopt_unmarked,
            prefixes: &config.annotation_prefixes,
            service_ranges: &service_ranges,
        };
        let (record, notes) = begin(self.take_record(), &call, &offer.load_balancers);
        let started = Instant::now();
        self.calls(Some((op, started)), &record);
        self.record = Some(record);
        for note in notes {
            self.tell(note);
        }
        let answer = self.ask(&call).await;
        let (answer, call_id) = answer.unwrap_or_else(|trouble| {
            let call_id = trouble.call_id.clone();
            (Answer::failed(trouble), call_id)
        });
        self.call_id = call_id;
        let took = started.elapsed();
        if op == Op::Update {
            let failed = matches!(answer.verdict, Verdict::Failed(_));
            self.worker.metrics.updated(took, failed);
        }
        let missing = matches!(answer.verdict, Verdict::OutOfSync { exists: false, .. });
        let next = self.answered(&call, answer, unfinished, took).await?;
        self.missing |= missing;
        next.map_or(Ok(()), |outcome| Err(Stop::With(outcome)))
    }

    /// Writes what an answer asks for, and updates the record. Returns when the Service is
    /// reconciled again. `None`: at once. `unfinished`: before the call, the Service was pending or
    /// had failures.
    async fn answered(
        &mut self,
        call: &Call<'_>,
        answer: Answer,
        unfinished: bool,
        took: Duration,
    ) -> Result<Option<Requeue>, Stop> {
        let Answer {
            new_handle,
            metadata,
            notes,
            verdict,
        } = answer;
        if new_handle.is_some() {
            let me = call.me.to_owned();
            self.record().unsaved_handle = new_handle.map(|handle| (me, handle));
        }
        let record = self.record().clone();
        self.calls(None, &record);
        for note in notes {
            self.tell(note);
        }
        let stored = self.store(metadata.as_ref()).await;
        // Only a patch that was applied counts. Otherwise its missing annotations would look like a
        // user's change, and another call would follow at once.
        let written = metadata.filter(|_| matches!(stored, Ok(true)));
        let written = written.map(|patch| with_annotations(call.service, &patch, &self.base));
        // After these answers nothing retries a failed write, unless the job fails too.
        let as_asked = matches!(
            verdict,
            Verdict::Ready(..) | Verdict::Updated(_) | Verdict::InSync(_) | Verdict::Elsewhere
        );
        self.accepted |= as_asked;
        let unwritten = match stored {
            // The result is not confirmed, so another call follows.
            Err(stop) if as_asked => return Err(stop),
            Err(stop) => Some(stop),
            Ok(_) => None,
        };
        if let Some(expected) = &written {
            // Otherwise, if the status cannot be written, this patch would look like a user's
            // change.
            self.record().seen = Seen::of(expected);
        }
        let mut rewritten = false;
        if let Verdict::Ready(status, _) | Verdict::InSync(Some(status)) = &verdict {
            rewritten = self.write_status(call, status).await?;
        }
        let next = self.settle(call, &verdict, written.as_ref(), took);
        let rewritten = unfinished && (rewritten || written.is_some());
        let now = Instant::now();
        let least = now + REWRITTEN;
        Ok(match (next, unwritten) {
            (Some(Requeue::At(at)), None) if rewritten => Some(Requeue::At(at.max(least))),
            (Some(Requeue::Refused { probe, at }), None) if rewritten => Some(Requeue::Refused {
                probe: probe.max(least),
                at: at.max(least),
            }),
            // The answer's short delay would repeat the failed write too often.
            (Some(Requeue::At(at)), Some(Stop::With(outcome))) if at < now + AFTER_REFUSAL => {
                Some(outcome)
            }
            (next, _) => next,
        })
    }

    /// Whether the session is the current one and usable.
    fn may_call(&self) -> bool {
        let session = self.worker.driver.session();
        session.is_some_and(|session| Arc::ptr_eq(&session, self.session))
    }

    /// Publishes the call in flight (`None`: there is none) and the record.
    fn calls(&self, call: Option<(Op, Instant)>, record: &Record) {
        self.worker.state().ledger.calls(self.task, call, record);
    }

    fn take_record(&mut self) -> Record {
        let record = self.record.take();
        record.unwrap_or_else(|| Record::new(&self.base))
    }

    async fn ask(&self, call: &Call<'_>) -> Result<(Answer, Option<CallId>), CallError> {
        let service = Some(service_view(call.service));
        let handle = call.handle.map(str::to_owned);
        let targets = call.targets.map(TargetSet::to_request);
        let fence = &self.context().fence;
        let adopt_unmarked = call.adopt_unmarked;
        // A user can edit the handle. With the permission to adopt, an edited handle could name
        // somebody else's unmarked load balancer.
        let beside_the_grant = handle.clone().filter(|_| !adopt_unmarked);
        let (answer, call_id) = match call.op {
            Op::Get => {
                let request = api::GetLoadBalancerRequest {
                    cluster: None,
                    service,
                    handle,
                    targets,
                };
                let (response, id) = self.session.get_load_balancer(request).await?;
                (answer::after_get(call, response), id)
            }
            Op::Ensure => {
                let request = api::EnsureLoadBalancerRequest {
                    cluster: None,
                    service,
                    handle: beside_the_grant,
                    targets,
                    adopt_unmarked,
                };
                let (response, id) = self.session.ensure_load_balancer(fence, request).await?;
                (answer::after_ensure(call, response), id)
            }
            Op::Update => {
                let request = api::UpdateLoadBalancerRequest {
                    cluster: None,
                    service,
                    handle,
                    targets,
                };
                let (response, id) = self.session.update_load_balancer(fence, request).await?;
                (answer::after_update(call, response), id)
            }
            Op::Delete => {
                let request = api::DeleteLoadBalancerRequest {
                    cluster: None,
                    service,
                    handle: beside_the_grant,
                    adopt_unmarked,
                };
                let (response, id) = self.session.delete_load_balancer(fence, request).await?;
                (answer::after_delete(call, response), id)
            }
        };
        Ok((answer, Some(call_id)))
    }

    /// Writes the handle and the provider's annotations. False: nothing was written, perhaps
    /// because the Service is gone.
    async fn store(&mut self, metadata: Option<&ServicePatch>) -> Result<bool, Stop> {
        let Some(patch) = metadata.filter(|_| !self.is_departed()) else {
            return Ok(false);
        };
        let mut retries = CONFLICTS;
        loop {
            let now = self.context().writes.patch_service(&self.base, patch).await;
            if matches!(now, Err(WriteError::Conflict)) && self.moved_on(&mut retries).await {
                continue;
            }
            let what = "failed to store the load balancer's handle and annotations";
            let written = self.written(now, what).await?;
            if written {
                self.record().unsaved_handle = None;
            }
            return Ok(written);
        }
    }

    /// Whether a job may begin a call, or a write that is not the result of a call.
    pub(super) fn may_go_on(&self) -> Result<(), Stop> {
        if self.context().stop.is_cancelled() || !self.may_call() {
            // The loop stops, or the session is not usable. Nothing failed, so the Service stays
            // due.
            return Err(Stop::With(Requeue::At(Instant::now())));
        }
        Ok(())
    }

    /// Reads the Service again after a conflict with another writer. Returns whether the write is
    /// repeated.
    async fn moved_on(&mut self, retries: &mut u8) -> bool {
        if *retries == 0 {
            return false;
        }
        *retries -= 1;
        matches!(self.read_again().await, Ok(true))
    }

    /// Writes the condition about unsupported protocols (▲S15). The job goes on if the API server
    /// refuses the write or is unavailable.
    async fn write_conditions(&mut self) -> Result<(), Stop> {
        let now = (self.context().wall)();
        let Some(conditions) = conditions(&self.base, &self.job.offer.load_balancers, now) else {
            return Ok(());
        };
        let patch = ServiceStatusPatch {
            conditions: Some(conditions),
            ..ServiceStatusPatch::default()
        };
        let writes = &self.context().writes;
        let now = writes.patch_service_status(&self.base, &patch).await;
        if let Err(error @ (WriteError::Refused(_) | WriteError::Unavailable(_))) = &now {
            warn!(service = %Key::of(&*self.base), %error, "cannot write the Service's conditions");
            return Ok(());
        }
        self.written(now, "failed to update the conditions").await?;
        Ok(())
    }

    /// Writes the status if it differs. Returns whether the API server stored it.
    async fn write_status(
        &mut self,
        call: &Call<'_>,
        status: &LoadBalancerStatus,
    ) -> Result<bool, Stop> {
        let mut retries = CONFLICTS;
        loop {
            // The controller of another class may have written its own status already.
            if !asks(&self.base) || class(&self.base) != class(call.service) {
                return Err(Stop::Again);
            }
            let Some(patch) = status_patch(&self.base, status) else {
                return Ok(false);
            };
            let writes = &self.context().writes;
            let now = writes.patch_service_status(&self.base, &patch).await;
            if matches!(now, Err(WriteError::Conflict)) && self.moved_on(&mut retries).await {
                continue;
            }
            let what = "failed to update load balancer status";
            return self.written(now, what).await;
        }
    }

    /// Updates the record after an answer, and records events. Returns when the Service is
    /// reconciled again. `None`: at once.
    fn settle(
        &mut self,
        call: &Call<'_>,
        verdict: &Verdict,
        written: Option<&Service>,
        took: Duration,
    ) -> Option<Requeue> {
        let mut record = self.take_record();
        record.latest = Arc::clone(&self.base);
        let reaction = |trouble: &CallError| self.batch.reaction(self.task, trouble);
        let (record, effects) = settle(record, call, verdict, written, reaction, Instant::now());
        self.record = Some(record);
        self.accepted = effects.accepted.unwrap_or(self.accepted);
        if let Some(mut report) = effects.reported {
            report.answered.rpc = Some(call.op.rpc());
            report.answered.call_id.clone_from(&self.call_id);
            report.took = Some(took);
            self.reports.push(report);
        }
        for note in effects.notes {
            if note.reason == reason::LOAD_BALANCER_TAKEN_OVER {
                warn!(service = %Key::of(&*self.base), provider = %self.context().provider, why = note.message, "the provider seems to have taken over a load balancer");
            }
            self.tell(note);
        }
        self.log(call, verdict, effects.refused, took);
        effects.requeue
    }

    fn log(&self, call: &Call<'_>, verdict: &Verdict, refused: bool, took: Duration) {
        let (rpc, attempt, took_ms) = (call.op.rpc(), self.job.attempt, millis(took));
        let service = Key::of(&*self.base);
        let provider = &self.context().provider;
        let (what, targets) = match verdict {
            Verdict::Ready(..) => ("ensured load balancer", None),
            Verdict::Updated(_) => {
                let targets = call.targets.map_or(0, |targets| targets.nodes.len());
                ("updated load balancer", Some(targets))
            }
            Verdict::Gone { retained: true } => ("the provider keeps the load balancer", None),
            Verdict::Failed(trouble) if refused => {
                self.tell(notes::credentials(provider, &trouble.why()));
                warn!(%provider, call_id = self.call_id.as_deref(), error = %trouble, "the cloud refuses the provider's credentials: all its load balancers wait");
                return;
            }
            _ => return,
        };
        info!(%service, %provider, rpc, took_ms, attempt, targets, "{what}");
    }
}
