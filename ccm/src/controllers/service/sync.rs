//! One Service, step by step until nothing is left to do or something has to be waited for. The decisions are `plan`'s.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Service;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

mod call;

use super::handle::Stored;
use super::notes::{self, Note, Op};
use super::plan::{Facts, Step, asks, next_step, uid};
use super::record::{Cloud, Record, Seen};
use super::settle::{SLOW, Told};
use super::targets::{NodeSelector, TargetSet};
use super::{Memory, Metrics};
use crate::args::Config;
use crate::cluster::Cluster;
use crate::core::{Fence, WallClock};
use crate::provider::{ProviderStatus, Session};
use crate::queue::Outcome;
use crate::writes::{EventSink, ServicePatch, WriteError, Writes, service_reference};

/// More steps than any way through the plan has.
const MOST_STEPS: usize = 12;

/// What all jobs of a loop share.
pub(super) struct Tools {
    /// The provider's name, as configured.
    pub(super) provider: Arc<str>,
    pub(super) config: Arc<Config>,
    pub(super) cluster: Cluster,
    pub(super) writes: Writes,
    pub(super) fence: Fence,
    pub(super) status: watch::Receiver<ProviderStatus>,
    pub(super) stop: CancellationToken,
    pub(super) metrics: Metrics,
    pub(super) memory: Arc<Memory>,
    pub(super) wall: WallClock,
}

/// One Service to work on.
pub(super) struct Job {
    pub(super) service: Arc<Service>,
    pub(super) record: Option<Record>,
    /// It is gone from the API server: only its load balancer is left (B-S9).
    pub(super) departed: bool,
    pub(super) session: Arc<Session>,
    pub(super) selector: Result<NodeSelector, String>,
    /// `None` where none are needed.
    pub(super) targets: Option<Arc<TargetSet>>,
    pub(super) jitter: f64,
    /// How often it was tried in vain before, and this time.
    pub(super) attempt: u32,
    pub(super) under_way: Arc<UnderWay>,
}

/// A job as the loop sees it from outside.
pub(super) struct UnderWay(Mutex<Known>);

struct Known {
    call: Option<(Op, Instant)>,
    record: Option<Record>,
}

impl UnderWay {
    /// `record`: what is known before it begins.
    pub(super) fn new(record: Option<Record>) -> Self {
        let call = None;
        Self(Mutex::new(Known { call, record }))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This call is sent now, or none is under way any more; this is known by now.
    fn now(&self, call: Option<(Op, Instant)>, record: Option<&Record>) {
        let record = record.cloned();
        *self.known() = Known { call, record };
    }

    /// The call that was sent and is not answered, and since when.
    pub(super) fn call(&self) -> Option<(Op, Instant)> {
        self.known().call
    }

    /// The UID of the Service that is worked on; `None` while nothing is known of it.
    pub(super) fn uid(&self) -> Option<String> {
        let known = self.known();
        known.record.as_ref().map(|record| record.uid().to_owned())
    }

    /// What is left of work that broke off. What its calls did is not known, so it is checked as after a restart, and whose load balancer it may have made is not
    /// forgotten with the Service.
    pub(super) fn broken_off(&self) -> Option<Record> {
        self.known().record.take().map(Record::doubted)
    }
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
    pub(super) throttle: Option<Duration>,
    /// The cloud took the provider's credentials.
    pub(super) accepted: bool,
    /// Why it is not done, if it is not: of one attempt.
    pub(super) reports: Vec<Report>,
    /// The Service as it was seen last; `None`: the work broke off.
    pub(super) service: Option<Arc<Service>>,
}

/// Works on one Service.
pub(super) async fn sync(job: Job, tools: Arc<Tools>) -> Finished {
    let capability = job
        .session
        .info
        .capabilities
        .as_ref()
        .and_then(|all| all.load_balancers.clone())
        .unwrap_or_default();
    let mut run = Run {
        tools: &tools,
        session: &job.session,
        me: &job.session.info.provider_name,
        capability: &capability,
        targets: job.targets.as_deref(),
        departed: job.departed,
        jitter: job.jitter,
        base: job.service,
        record: job.record,
        throttle: None,
        accepted: false,
        attempt: job.attempt,
        under_way: &job.under_way,
        reports: Vec::new(),
    };
    let outcome = run.steps(&job.selector).await;
    if let (Some(record), Some(targets)) = (&mut run.record, run.targets) {
        record.tried = Some(targets.fingerprint);
    }
    Finished {
        outcome,
        throttle: run.throttle,
        accepted: run.accepted,
        reports: run.reports,
        service: Some(run.base),
        // Nothing is left to remember of what is gone for good.
        record: run
            .record
            .filter(|record| !job.departed || record.cloud.by().is_some()),
    }
}

/// Why the steps end early.
enum Stop {
    /// With this.
    With(Outcome),
    /// The Service changed under us: it was read again.
    Again,
}

struct Run<'a> {
    tools: &'a Tools,
    session: &'a Session,
    me: &'a str,
    capability: &'a api::LoadBalancerCapability,
    targets: Option<&'a TargetSet>,
    departed: bool,
    jitter: f64,
    /// The Service as it is now, as far as we know.
    base: Arc<Service>,
    record: Option<Record>,
    throttle: Option<Duration>,
    accepted: bool,
    attempt: u32,
    under_way: &'a UnderWay,
    reports: Vec<Report>,
}

impl Run<'_> {
    async fn steps(&mut self, selector: &Result<NodeSelector, String>) -> Outcome {
        let mut deleted = false;
        for _ in 0..MOST_STEPS {
            if let Some(record) = &mut self.record {
                record.seen = Seen::of(&self.base);
                record.latest = Arc::clone(&self.base);
            }
            let owner = self.session.ownership.service_owner(&self.base)
                == Some(self.tools.provider.as_ref());
            if asks(&self.base) && owner && !self.departed {
                if NodeSelector::of(&self.base) != *selector {
                    return Outcome::At(Instant::now());
                }
                if let Err(why) = selector {
                    self.report_invalid(notes::invalid(why));
                    self.record();
                    return Outcome::At(Instant::now() + SLOW);
                }
            }
            let facts = Facts {
                me: self.me,
                owner,
                departed: self.departed,
                capability: self.capability,
            };
            let step = next_step(&self.base, self.record.as_ref(), self.targets, &facts);
            let result = match step {
                Step::Ignore => {
                    if deleted {
                        self.tell_deleted();
                    }
                    self.let_go();
                    return Outcome::Forget;
                }
                Step::Blocked { by, class } => {
                    let class = class.as_deref();
                    self.report_invalid(notes::blocked(&by, class, self.me));
                    self.record();
                    return Outcome::At(Instant::now() + SLOW);
                }
                Step::AddFinalizer(patch) => self.add_finalizer(&patch).await,
                Step::StoreHandle(patch) => {
                    let what = "failed to store the load balancer's handle";
                    // Whoever took the record off took the handle too: the provider knows it.
                    let lost =
                        Stored::of(&self.base) == Stored::Nothing && !self.holds_unsaved_handle();
                    // Also where the answer of the patch is lost.
                    self.record().check |= lost;
                    self.patch(&patch, what).await.map(|()| {
                        self.record().unsaved_handle = None;
                    })
                }
                Step::Get => self.call(Op::Get).await,
                Step::Ensure => self.call(Op::Ensure).await,
                Step::Update => self.call(Op::Update).await,
                Step::Delete => self.call(Op::Delete).await.map(|()| {
                    deleted = self.record().cloud == Cloud::Deleted;
                }),
                Step::Release { status, metadata } => match self.release(status, metadata).await {
                    Ok(()) => {
                        if self.record().cloud != Cloud::Kept {
                            self.tell_deleted();
                        }
                        self.let_go();
                        return Outcome::Forget;
                    }
                    stop => stop,
                },
            };
            match result {
                Ok(()) | Err(Stop::Again) => {}
                Err(Stop::With(outcome)) => return outcome,
            }
        }
        // Somebody writes to the Service faster than we can follow.
        Outcome::Retry
    }

    fn holds_unsaved_handle(&self) -> bool {
        let record = self.record.as_ref();
        record.is_some_and(|record| record.unsaved_handle.is_some())
    }

    fn record(&mut self) -> &mut Record {
        self.record.get_or_insert_with(|| Record::new(&self.base))
    }

    fn tell(&self, note: Note) {
        let events: &EventSink = &self.tools.writes.events;
        events.record(
            &service_reference(&self.base),
            note.kind,
            &note.reason,
            note.message,
        );
    }

    /// Only a change of the Service can help.
    fn report_invalid(&mut self, note: Note) {
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
    }

    /// That its load balancer is gone says nothing of the next one, which another ccm may make for it.
    fn let_go(&mut self) {
        if let Some(record) = self.record.as_mut().filter(|_| !self.departed)
            && matches!(record.cloud, Cloud::Deleted | Cloud::Kept)
        {
            record.cloud = Cloud::Unknown;
        }
    }

    fn tell_deleted(&self) {
        self.tell(notes::deleted());
        info!(service = %display_name(&self.base), provider = %self.tools.provider, rpc = Op::Delete.rpc(), attempt = self.attempt, "deleted load balancer");
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
        status: Option<crate::writes::ServiceStatusPatch>,
        metadata: Option<ServicePatch>,
    ) -> Result<(), Stop> {
        if let Some(status) = status {
            match self
                .tools
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
            match self.tools.writes.patch_service(&self.base, &patch).await {
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
        match self.tools.writes.patch_service(&self.base, patch).await {
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
        let metadata = &self.base.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let now = self.tools.writes.read_service(namespace, name).await?;
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
                    warn!(service = %display_name(&self.base), %error, "cannot read the Service again");
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

fn display_name(service: &Service) -> String {
    format!(
        "{}/{}",
        service.metadata.namespace.as_deref().unwrap_or_default(),
        service.metadata.name.as_deref().unwrap_or_default()
    )
}
