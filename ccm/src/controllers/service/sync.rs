//! One Service, step by step until nothing is left to do or something has to be waited for. The decisions are `plan`'s.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;
use tracing::{info, warn};

mod call;

use super::handle::Stored;
use super::ledger::Task;
use super::notes::{self, Note, Op};
use super::plan::{Facts, Step, asks, next_step, uid};
use super::record::{Cloud, Record, Seen};
use super::settle::{SLOW, Told};
use super::targets::{NodeSelector, TargetSet};
use super::{Offer, Worker};
use crate::controller::{Batch, LoopContext};
use crate::core::Key;
use crate::provider::Session;
use crate::queue::Outcome;
use crate::writes::{ServicePatch, ServiceStatusPatch, WriteError};

/// More steps than any way through the plan has.
const MOST_STEPS: usize = 12;

/// One Service to work on.
pub(super) struct Job {
    pub(super) service: Arc<Service>,
    pub(super) record: Option<Record>,
    pub(super) offer: Arc<Offer>,
    pub(super) selector: Result<NodeSelector, String>,
    /// `None` where none are needed.
    pub(super) targets: Option<Arc<TargetSet>>,
    /// How often it was tried in vain before, and this time.
    pub(super) attempt: u32,
}

/// Why it is not done yet.
pub(super) struct Report {
    pub(super) told: Told,
    /// `None`: it is the API server.
    pub(super) rpc: Option<&'static str>,
    pub(super) took: Option<Duration>,
}

/// What came of it.
pub(super) struct Finished {
    pub(super) record: Option<Record>,
    pub(super) outcome: Outcome,
    /// The cloud took the provider's credentials.
    pub(super) accepted: bool,
    /// Why it is not done, if it is not: of one attempt.
    pub(super) reports: Vec<Report>,
    /// The Service as it was seen last.
    pub(super) service: Arc<Service>,
}

/// Why the steps end early.
enum Stop {
    /// With this.
    With(Outcome),
    /// The Service changed under us: it was read again.
    Again,
}

/// A job that runs.
pub(super) struct Run<'a> {
    worker: &'a Worker,
    session: &'a Arc<Session>,
    batch: &'a Batch<'a, Task>,
    task: &'a Task,
    offer: Arc<Offer>,
    targets: Option<Arc<TargetSet>>,
    selector: Result<NodeSelector, String>,
    /// The Service as it is now, as far as we know.
    base: Arc<Service>,
    record: Option<Record>,
    accepted: bool,
    attempt: u32,
    reports: Vec<Report>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        worker: &'a Worker,
        session: &'a Arc<Session>,
        batch: &'a Batch<'a, Task>,
        task: &'a Task,
        job: Job,
    ) -> Self {
        Self {
            worker,
            session,
            batch,
            task,
            offer: job.offer,
            targets: job.targets,
            selector: job.selector,
            base: job.service,
            record: job.record,
            accepted: false,
            attempt: job.attempt,
            reports: Vec::new(),
        }
    }

    /// Works until nothing is left to do or something has to be waited for.
    pub(super) async fn finish(mut self) -> Finished {
        let outcome = self.steps().await;
        let is_departed = self.is_departed();
        if let (Some(record), Some(targets)) = (&mut self.record, &self.targets) {
            record.tried = Some(targets.fingerprint);
        }
        Finished {
            outcome,
            accepted: self.accepted,
            reports: self.reports,
            service: self.base,
            // Nothing is left to remember of what is gone for good.
            record: self
                .record
                .filter(|record| !is_departed || record.cloud.by().is_some()),
        }
    }

    fn context(&self) -> &'a LoopContext {
        &self.worker.driver.context
    }

    /// It is gone from the API server: only its load balancer is left (B-S9).
    fn is_departed(&self) -> bool {
        matches!(self.task, Task::Departed(..))
    }

    async fn steps(&mut self) -> Outcome {
        for _ in 0..MOST_STEPS {
            if let Some(record) = &mut self.record {
                record.seen = Seen::of(&self.base);
                record.latest = Arc::clone(&self.base);
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
        // Somebody writes to the Service faster than we can follow.
        Outcome::Retry
    }

    fn next_step(&mut self) -> Result<Step, Stop> {
        let offer = Arc::clone(&self.offer);
        let owner = offer.ownership.service_owner(&self.base);
        let owner = owner == Some(self.context().provider.as_ref());
        let departed = self.is_departed();
        if asks(&self.base) && owner && !departed {
            let same = NodeSelector::of(&self.base) == self.selector;
            // It needed no targets when the job began: they are none that it could have.
            let needless = self.selector.is_ok() && self.targets.is_none();
            if !same || needless {
                return Err(Stop::With(Outcome::At(Instant::now())));
            }
            if let Err(why) = &self.selector {
                return Err(self.invalid(notes::invalid(why)));
            }
        }
        let facts = Facts {
            me: &offer.name,
            owner,
            departed,
            capability: &offer.load_balancers,
        };
        let (record, targets) = (self.record.as_ref(), self.targets.as_deref());
        Ok(next_step(&self.base, record, targets, &facts))
    }

    async fn take(&mut self, step: Step) -> Result<(), Stop> {
        match step {
            Step::Ignore => Err(self.over()),
            Step::Blocked { by, class } => {
                let note = notes::blocked(&by, class.as_deref(), &self.offer.name);
                Err(self.invalid(note))
            }
            Step::AddFinalizer(patch) => self.add_finalizer(&patch).await,
            Step::StoreHandle(patch) => {
                let what = "failed to store the load balancer's handle";
                // Whoever took the record off took the handle too: the provider knows it.
                let lost =
                    Stored::of(&self.base) == Stored::Nothing && !self.holds_unsaved_handle();
                // Also where the answer of the patch is lost.
                self.record().check |= lost;
                self.patch(&patch, what).await?;
                self.record().unsaved_handle = None;
                Ok(())
            }
            Step::Get => self.call(Op::Get).await,
            Step::Ensure => self.call(Op::Ensure).await,
            Step::Update => self.call(Op::Update).await,
            Step::Delete => self.call(Op::Delete).await,
            Step::Release { status, metadata } => {
                self.release(status, metadata).await?;
                Err(self.over())
            }
        }
    }

    /// Nothing is left to do.
    fn over(&mut self) -> Stop {
        let cloud = self.record.as_ref().map(|record| &record.cloud);
        if cloud == Some(&Cloud::Deleted) {
            self.tell(notes::deleted());
            info!(service = %Key::of(&*self.base), provider = %self.context().provider, rpc = Op::Delete.rpc(), attempt = self.attempt, "deleted load balancer");
        }
        // That its load balancer is gone says nothing of the next one, which another ccm may make for it.
        if !self.is_departed()
            && let Some(record) = self.record.as_mut()
            && matches!(record.cloud, Cloud::Deleted | Cloud::Kept)
        {
            record.cloud = Cloud::Unknown;
        }
        Stop::With(Outcome::Forget)
    }

    fn holds_unsaved_handle(&self) -> bool {
        let record = self.record.as_ref();
        record.is_some_and(|record| record.unsaved_handle.is_some())
    }

    fn record(&mut self) -> &mut Record {
        self.record.get_or_insert_with(|| Record::new(&self.base))
    }

    fn tell(&self, note: Note) {
        self.worker.event(&self.base, note);
    }

    /// Only a change of the Service can help.
    fn invalid(&mut self, note: Note) -> Stop {
        self.reports.push(Report {
            told: Told {
                note,
                code: None,
                at_once: true,
                when_changed: true,
            },
            rpc: None,
            took: None,
        });
        self.record();
        Stop::With(Outcome::At(Instant::now() + SLOW))
    }

    async fn add_finalizer(&mut self, patch: &ServicePatch) -> Result<(), Stop> {
        // What had neither finalizer nor handle has no load balancer of ours: nothing to look for.
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
        if let Some(status) = status {
            match self
                .context()
                .writes
                .patch_service_status(&self.base, &status)
                .await
            {
                Ok(now) => self.base = Arc::new(now),
                Err(WriteError::Gone) => return Ok(()),
                Err(error) => {
                    return Err(self
                        .write_failed(error, "failed to update load balancer status")
                        .await);
                }
            }
        }
        if let Some(patch) = metadata {
            match self
                .context()
                .writes
                .patch_service(&self.base, &patch)
                .await
            {
                Ok(now) => self.base = Arc::new(now),
                Err(WriteError::Gone) => return Ok(()),
                Err(error) => {
                    return Err(self
                        .write_failed(error, "failed to remove load balancer cleanup finalizer")
                        .await);
                }
            }
        }
        let base = Arc::clone(&self.base);
        let record = self.record();
        record.seen = Seen::of(&base);
        record.latest = base;
        Ok(())
    }

    /// Patches the metadata before a call.
    async fn patch(&mut self, patch: &ServicePatch, what: &str) -> Result<(), Stop> {
        match self.context().writes.patch_service(&self.base, patch).await {
            Ok(now) => {
                self.base = Arc::new(now);
                let base = Arc::clone(&self.base);
                self.record().latest = base;
                Ok(())
            }
            // Gone: the watch tells the rest (B-S11).
            Err(WriteError::Gone) => Err(Stop::With(Outcome::Forget)),
            Err(error) => Err(self.write_failed(error, what).await),
        }
    }

    /// Reads the Service from the API server; false where it is gone or another one has its name.
    async fn read_again(&mut self) -> Result<bool, WriteError> {
        let Key { namespace, name } = Key::of(&*self.base);
        let now = self.context().writes.read_service(&namespace, &name);
        let now = now.await?;
        let same = now.filter(|now| uid(now) == uid(&self.base));
        let found = same.is_some();
        self.base = same.map_or_else(|| Arc::clone(&self.base), Arc::new);
        Ok(found)
    }

    /// What follows from a write that did not happen; `Gone` was handled before.
    async fn write_failed(&mut self, error: WriteError, what: &str) -> Stop {
        match error {
            WriteError::Gone => return Stop::With(Outcome::Forget),
            WriteError::Fenced(_) => return Stop::With(Outcome::Retry),
            WriteError::Conflict => match self.read_again().await {
                Ok(true) => return Stop::Again,
                Ok(false) => return Stop::With(Outcome::Forget),
                Err(error) => {
                    warn!(service = %Key::of(&*self.base), %error, "cannot read the Service again");
                }
            },
            WriteError::Refused(_) | WriteError::Unavailable(_) => {
                self.reports.push(Report {
                    told: Told {
                        note: notes::sync_failed(&format!("{what}: {error}")),
                        code: None,
                        at_once: true,
                        when_changed: false,
                    },
                    rpc: None,
                    took: None,
                });
            }
        }
        Stop::With(Outcome::Retry)
    }
}
