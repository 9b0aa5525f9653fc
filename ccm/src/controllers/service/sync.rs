//! Reconciles one Service step by step, until nothing is left to do or the Service must wait.
//! `plan` makes the decisions.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;
use tracing::{info, warn};

mod call;

use super::handle::Stored;
use super::ledger::Task;
use super::notes::{self, Note, Op};
use super::plan::{Facts, Step, asks, next_step, uid, unsaved};
use super::record::{Cloud, Record, Seen};
use super::settle::{Report, SLOW};
use super::targets::{NodeSelector, TargetSet};
use super::{Offer, Worker};
use crate::controller::{Batch, LoopContext};
use crate::core::Key;
use crate::planted::planted;
use crate::provider::{CallId, Session};
use crate::queue::Requeue;
use crate::writes::{ServicePatch, ServiceStatusPatch, WriteError};

/// More steps than any sequence of the plan has.
const MOST_STEPS: usize = 12;

/// The inputs of a job. They do not change while it runs.
pub(super) struct Job {
    pub(super) offer: Arc<Offer>,
    pub(super) selector: Result<NodeSelector, String>,
    /// `None` if the Service needs no targets, or its selector is invalid.
    pub(super) targets: Option<Arc<TargetSet>>,
    /// The number of this attempt: one more than the attempts since the Service began to wait.
    pub(super) attempt: u32,
}

/// Why a step ends early.
enum Stop {
    /// The Service is settled with this outcome.
    With(Requeue),
    /// The Service changed, or may have changed, and this job has its new version. The steps go on.
    Again,
}

/// A running job.
pub(super) struct Run<'a> {
    pub(super) worker: &'a Worker,
    pub(super) session: &'a Arc<Session>,
    pub(super) batch: &'a Batch<'a, Task>,
    pub(super) task: &'a Task,
    pub(super) job: Job,
    /// The newest version of the Service that this job knows.
    pub(super) base: Arc<Service>,
    pub(super) record: Option<Record>,
    /// Whether the cloud accepted the provider's credentials.
    pub(super) accepted: bool,
    /// This job got `base` from the API server, not from the watch, which may be late.
    pub(super) is_current: bool,
    /// Get found no load balancer of ours.
    pub(super) missing: bool,
    /// The ID of the last call.
    pub(super) call_id: Option<CallId>,
    /// Why the Service is not done, all from one attempt.
    pub(super) reports: Vec<Report>,
}

impl<'a> Run<'a> {
    /// Runs steps until nothing is left to do or the Service must wait.
    pub(super) async fn finish(&mut self) -> Requeue {
        let outcome = self.steps().await;
        if let (Some(record), Some(targets)) = (&mut self.record, &self.job.targets) {
            record.tried = Some(targets.fingerprint);
        }
        if self.is_departed() {
            // A deleted Service without a load balancer needs no record.
            self.record.take_if(|record| record.cloud.by().is_none());
        }
        outcome
    }

    fn context(&self) -> &'a LoopContext {
        &self.worker.driver.context
    }

    /// Whether the Service is gone from the API server and only its load balancer is left (▲S9).
    fn is_departed(&self) -> bool {
        matches!(self.task, Task::Departed(..))
    }

    async fn steps(&mut self) -> Requeue {
        for _ in 0..MOST_STEPS {
            if let Some(record) = &mut self.record {
                record.seen = Seen::of(&self.base);
                record.latest = Arc::clone(&self.base);
                // The answer to the write that stored it may have been lost.
                record.unsaved_handle.take_if(|(by, handle)| {
                    Stored::of(&self.base).handle_of(by) == Some(handle.as_str())
                });
            }
            let taken = match self.next_step() {
                Ok(step) => self.take(step).await,
                Err(stop) => Err(stop),
            };
            match taken {
                Ok(()) | Err(Stop::Again) => {}
                Err(Stop::With(outcome)) => return outcome,
            }
        }
        let why = format!(
            "the Service still needs a write after {MOST_STEPS} steps: another component seems to undo the ccm's writes to it"
        );
        self.report(notes::sync_failed(&why), false);
        Requeue::Retry
    }

    fn next_step(&mut self) -> Result<Step, Stop> {
        let offer = Arc::clone(&self.job.offer);
        let owner = offer.owns(&self.base, &self.context().provider);
        let departed = self.is_departed();
        if asks(&self.base) && owner && !departed {
            let same = NodeSelector::of(&self.base) == self.job.selector;
            // The job began without targets, because the Service needed none then.
            let needless = self.job.selector.is_ok() && self.job.targets.is_none();
            if !same || needless {
                // The next job must see this version, also if the watch is late.
                self.record();
                return Err(Stop::With(Requeue::At(Instant::now())));
            }
            if let Err(why) = &self.job.selector {
                return Err(self.invalid(notes::sync_failed(why)));
            }
        }
        let facts = Facts {
            me: &offer.name,
            owner,
            departed,
            capability: &offer.load_balancers,
        };
        let (record, targets) = (self.record.as_ref(), self.job.targets.as_deref());
        Ok(next_step(&self.base, record, targets, &facts))
    }

    async fn take(&mut self, step: Step) -> Result<(), Stop> {
        match step {
            Step::Ignore => Err(self.over()),
            Step::Blocked { by, class } => {
                let me = &self.job.offer.name;
                let note = if self.is_departed() {
                    notes::left_behind(&by, me)
                } else {
                    notes::blocked(&by, class.as_deref(), me)
                };
                Err(self.invalid(note))
            }
            Step::AddFinalizer(patch) => self.add_finalizer(&patch).await,
            Step::StoreHandle(patch) => {
                let what = "failed to store the load balancer's handle";
                if unsaved(&self.base, self.record.as_ref()).is_none() {
                    // Only the class is new, which is no call's result.
                    self.may_go_on()?;
                }
                // Somebody may have removed the annotation with the handle. So the provider is
                // asked again.
                let record = self.record.as_ref();
                let handle = record.and_then(|record| record.unsaved_handle.as_ref());
                let lost = handle.is_none() && Stored::of(&self.base) == Stored::Nothing;
                // This comes before the patch, because the answer to the patch can be lost.
                self.record().check |= lost;
                self.patch(&patch, what).await?;
                self.record().unsaved_handle = None;
                Ok(())
            }
            Step::Get => self.call(Op::Get).await,
            Step::Ensure if self.may_be_released() => Err(self.decide_again().await),
            Step::Ensure => self.call(Op::Ensure).await,
            Step::Update => self.call(Op::Update).await,
            Step::Delete if self.is_departed() && !self.is_current => self.confirm_gone().await,
            Step::Delete => self.call(Op::Delete).await,
            Step::Release { status, metadata } => {
                self.release(status, metadata).await?;
                Err(self.over())
            }
        }
    }

    /// Whether the former leader may have released this Service: a check of it is due, or Get found
    /// no load balancer of ours. The watch may show a release late, so the Service is read before
    /// Ensure, unless this job has its current version.
    fn may_be_released(&self) -> bool {
        let unchecked = self.record.as_ref().is_none_or(|record| record.check);
        let known = self.is_current || planted!(LateWatchIsTrusted);
        (unchecked || self.missing) && !known
    }

    /// Nothing is left to do.
    fn over(&mut self) -> Stop {
        let cloud = self.record.as_ref().map(|record| &record.cloud);
        if cloud == Some(&Cloud::Deleted) {
            self.tell(notes::deleted());
            info!(service = %Key::of(&*self.base), provider = %self.context().provider, rpc = Op::Delete.rpc(), attempt = self.job.attempt, "deleted load balancer");
        }
        // The deletion proves nothing about a later load balancer, which another ccm may create.
        if !self.is_departed()
            && let Some(record) = self.record.as_mut()
            && matches!(record.cloud, Cloud::Deleted | Cloud::Kept)
        {
            record.cloud = Cloud::Unknown;
        }
        Stop::With(Requeue::Forget)
    }

    fn record(&mut self) -> &mut Record {
        self.record.get_or_insert_with(|| Record::new(&self.base))
    }

    fn tell(&self, note: Note) {
        self.worker.event(&self.base, note);
    }

    /// Reports that something must change, most often the Service. Without a change, the Service is
    /// due again after [`SLOW`].
    fn invalid(&mut self, note: Note) -> Stop {
        self.report(note, true);
        self.record();
        Stop::With(Requeue::At(Instant::now() + SLOW))
    }

    async fn add_finalizer(&mut self, patch: &ServicePatch) -> Result<(), Stop> {
        self.may_go_on()?;
        // A Service without record, finalizer and annotation counts as one without a load balancer
        // of ours, so Get is not needed.
        let fresh = self.record.is_none() && Stored::of(&self.base) == Stored::Nothing;
        self.patch(patch, "failed to add load balancer cleanup finalizer")
            .await?;
        if fresh {
            self.record().check = false;
        }
        Ok(())
    }

    async fn release(
        &mut self,
        status: Option<ServiceStatusPatch>,
        metadata: Option<ServicePatch>,
    ) -> Result<(), Stop> {
        let writes = &self.context().writes;
        if let Some(status) = status {
            let now = writes.patch_service_status(&self.base, &status).await;
            let what = "failed to update load balancer status";
            if !self.written(now, what).await? {
                return Ok(());
            }
        }
        if let Some(patch) = metadata {
            let now = writes.patch_service(&self.base, &patch).await;
            let what = "failed to remove load balancer cleanup finalizer";
            if !self.written(now, what).await? {
                return Ok(());
            }
        }
        self.record().seen = Seen::of(&self.base);
        Ok(())
    }

    /// Patches the metadata before a call.
    async fn patch(&mut self, patch: &ServicePatch, what: &str) -> Result<(), Stop> {
        let now = self.context().writes.patch_service(&self.base, patch).await;
        if !self.written(now, what).await? {
            // The watch delivers the deletion (B-S11).
            return Err(Stop::With(Requeue::Forget));
        }
        Ok(())
    }

    /// Keeps the Service that a write returned. False: the Service is gone.
    async fn written(
        &mut self,
        now: Result<Service, WriteError>,
        what: &str,
    ) -> Result<bool, Stop> {
        match now {
            Ok(now) => {
                self.base = Arc::new(now);
                self.is_current = true;
                self.record().latest = Arc::clone(&self.base);
                Ok(true)
            }
            Err(WriteError::Gone) => Ok(false),
            Err(WriteError::Conflict) => Err(self.decide_again().await),
            Err(error) => {
                if !matches!(error, WriteError::Fenced(_)) {
                    self.failed(what, &error);
                }
                Err(Stop::With(Requeue::Retry))
            }
        }
    }

    /// Reads the Service from the API server. False if it is gone or another object has its name.
    async fn read_again(&mut self) -> Result<bool, WriteError> {
        let Key { namespace, name } = Key::of(&*self.base);
        let now = self.context().writes.read_service(&namespace, &name);
        let now = now.await?.filter(|now| uid(now) == uid(&self.base));
        self.is_current = now.is_some();
        if let Some(now) = now {
            self.base = Arc::new(now);
        }
        Ok(self.is_current)
    }

    /// Reads the Service again, so that the next step uses the current version.
    async fn decide_again(&mut self) -> Stop {
        match self.read_again().await {
            Ok(true) => Stop::Again,
            Ok(false) => Stop::With(Requeue::Forget),
            Err(error) => self.unread(&error),
        }
    }

    /// Reads the Service of a load balancer to delete: the watch may have lost a Service that the
    /// API server still has.
    async fn confirm_gone(&mut self) -> Result<(), Stop> {
        self.may_go_on()?;
        match self.read_again().await {
            Ok(false) => {
                self.is_current = true;
                Ok(())
            }
            Ok(true) => {
                let key = Key::of(&*self.base);
                let shown = self.context().cluster.services.get(&key);
                if shown.is_some_and(|shown| uid(&shown) == uid(&self.base)) {
                    // The Service has a job of its own.
                    self.record = None;
                    return Err(Stop::With(Requeue::Forget));
                }
                warn!(service = %key, "the API server has a Service that its watch does not show: keeping the load balancer");
                Err(Stop::With(Requeue::At(Instant::now() + SLOW)))
            }
            Err(error) => Err(self.unread(&error)),
        }
    }

    fn unread(&mut self, error: &WriteError) -> Stop {
        warn!(service = %Key::of(&*self.base), %error, "cannot read the Service");
        self.record().check |= self.missing;
        self.failed("failed to read the Service", error);
        Stop::With(Requeue::Retry)
    }

    /// Reports a failure of the API server.
    fn failed(&mut self, what: &str, error: &WriteError) {
        self.report(notes::sync_failed(&format!("{what}: {error}")), false);
    }

    /// Reports at once a problem that is not about a call to the provider.
    fn report(&mut self, note: Note, when_changed: bool) {
        self.reports.push(Report {
            when_changed,
            ..Report::new(note)
        });
    }
}
