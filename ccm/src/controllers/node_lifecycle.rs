//! The node lifecycle controller (B-L1 to ▲L7): deletes Nodes whose instance is gone, taints those that are shut down.
//!
//! ```text
//! every --node-monitor-period, a hint, a late answer, or a provider that is back:
//!     Ledger::questions -> lookup -> where it says ABSENT, lookup of witnesses -> Ledger::pass -> taints; last look -> delete
//! every --node-monitor-period, whether there is a provider or not: a Node that is Ready again loses its taint
//! ```

mod act;
mod ask;
mod brake;
mod evidence;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod hinted;
mod listing;
mod metrics;
mod plan;
mod ready;
mod reported;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::sync::{self, Notify};
use tokio::time::Instant;

use crate::args::BrakeConfig;
use crate::controller::{self, Batch, Driver, LoopContext, Reconciler, Sources, Spec, Width};
use crate::ownership::{NodeOwner, Ownership};
use crate::provider::{Capability, ProviderStatus, Retry, Session};
use crate::queue::{Backoff, Requeue};

#[cfg(test)]
pub(crate) use plan::MOST_PERIODS;

use ask::Answer;
use brake::Brake;
use evidence::Evidence;
use hinted::Hinted;
use listing::Listing;
pub(crate) use metrics::Metrics;
use plan::{Findings, Ledger, Pass};
use reported::Reported;

/// Hints that come together make one pass (▲L7).
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Passes begin at least so far apart, whatever is hinted: two ABSENT answers must be two answers.
const LEAST_GAP: Duration = Duration::from_secs(1);
/// A pass waits no longer than this for its answers, and no longer than a period: what comes later is judged then.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// What outlives a loop in one process: what was deleted lately still counts when we lead again.
#[derive(Default)]
pub(crate) struct Memory {
    /// By provider.
    brakes: Mutex<BTreeMap<String, Arc<Mutex<Brake>>>>,
}

impl Memory {
    /// The brake of this provider: the one of the loops before, deletions and hold included.
    fn brake(&self, provider: &str, config: BrakeConfig) -> Arc<Mutex<Brake>> {
        let mut brakes = self.brakes.lock().unwrap_or_else(PoisonError::into_inner);
        let brake = brakes.entry(provider.to_owned()).or_insert_with(|| {
            let brake = Brake::of_a_new_process(config, Instant::now());
            Arc::new(Mutex::new(brake))
        });
        Arc::clone(brake)
    }
}

fn lock(brake: &Mutex<Brake>) -> MutexGuard<'_, Brake> {
    brake.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The loop of one provider. Returns after `context.stop`, when what is in flight is over.
pub(crate) async fn run(context: LoopContext, memory: Arc<Memory>, metrics: Metrics) {
    let lifecycle = Arc::new(Lifecycle::new(context, &memory, metrics));
    tokio::join!(
        controller::run(&lifecycle),
        ready::watch(lifecycle.context()),
    );
    // Whoever leads next says it.
    lifecycle.metrics.held(&lifecycle.context().provider, 0);
}

/// The controller.
struct Lifecycle {
    /// Its one key is the pass.
    driver: Driver<()>,
    metrics: Metrics,
    /// Outlives the ledger.
    brake: Arc<Mutex<Brake>>,
    hinted: Mutex<Hinted>,
    /// Answers have come.
    arrived: Arc<Notify>,
    /// Locked for as long as a pass runs.
    passes: sync::Mutex<Passes>,
}

/// What lasts from pass to pass.
struct Passes {
    /// The session that all answers are of; none where the last pass did not end.
    session: Weak<Session>,
    /// Nodes could be deleted on the last pass's answers.
    could_delete: bool,
    /// When the next pass is due by the period.
    tick: Instant,
    /// When the next pass may begin.
    earliest: Instant,
    ledger: Ledger,
    evidence: Evidence,
    listing: Listing,
    reported: Reported,
}

impl Passes {
    /// A pass begins, unless it is too early: then `Err` says when it may. The first pass of a session begins anew, and at once.
    fn begin(&mut self, session: &Arc<Session>, period: Duration) -> Result<Instant, Instant> {
        let start = Instant::now();
        let last = std::mem::take(&mut self.session);
        if Arc::downgrade(session).ptr_eq(&last) {
            if start < self.earliest {
                self.session = last;
                return Err(self.earliest);
            }
        } else {
            self.ledger.start_over();
            self.evidence.give_up();
            self.listing.give_up();
        }
        self.earliest = start + LEAST_GAP;
        if start >= self.tick {
            self.tick = start + period;
        }
        Ok(start)
    }
}

impl Reconciler for Lifecycle {
    type Key = ();

    fn driver(&self) -> &Driver<()> {
        &self.driver
    }

    fn sources<'a>(&'a self, sources: &mut Sources<'a, ()>) {
        sources.hints_after(DEBOUNCE, LEAST_GAP, |hint| {
            let mut hinted = self.hinted.lock().unwrap_or_else(PoisonError::into_inner);
            hinted.add(hint).then_some(()).into_iter().collect()
        });
        sources.other(self.follow_answers());
        sources.other(self.follow_status());
    }

    /// The period may be long, and a leader's first pass comes before its provider is initialised (▲M9).
    fn renewed(&self, _: &Arc<Session>, _: &ProviderStatus) -> Vec<()> {
        vec![()]
    }

    /// Passes never overlap.
    fn width(&self, _: &Arc<Session>) -> Width {
        Width {
            batch: 1,
            linger: Duration::ZERO,
            calls: 1,
            writes: 1,
        }
    }

    async fn reconcile(&self, session: &Arc<Session>, batch: &Batch<'_, ()>) {
        let mut passes = self.passes.lock().await;
        let outcome = match passes.begin(session, self.period()) {
            Err(earliest) => Requeue::At(earliest),
            Ok(start) => {
                let refused = passes.evidence.is_refused();
                let later = self.pass(&mut passes, session, start, batch).await;
                passes.session = Arc::downgrade(session);
                // The cloud takes the provider's credentials again: the other Nodes are due.
                let soon = refused && !passes.evidence.is_refused();
                // A pass that takes longer than the period is followed by the next one.
                let next = if soon { passes.earliest } else { passes.tick };
                later.unwrap_or(Requeue::At(next))
            }
        };
        batch.settle(&(), outcome);
    }
}

impl Lifecycle {
    fn new(context: LoopContext, memory: &Memory, metrics: Metrics) -> Self {
        let (config, now) = (&context.config.node_lifecycle, Instant::now());
        let period = config.monitor_period;
        let longest_step = Duration::from_mins(1).max(period * 2);
        let arrived = Arc::default();
        let passes = Passes {
            session: Weak::new(),
            could_delete: false,
            tick: now,
            earliest: now,
            ledger: Ledger::new(config.brake.min_age, period, longest_step),
            evidence: Evidence::new(LONGEST_WAIT.min(period), &arrived),
            listing: Listing::default(),
            reported: Reported::default(),
        };
        let spec = Spec {
            name: "cloud-node-lifecycle-controller",
            queue: "NodeLifecycle",
            backoff: Backoff {
                base: period,
                max: period,
            },
            needs: Capability::Instances,
        };
        Self {
            brake: memory.brake(&context.provider, config.brake),
            driver: Driver::new(context, spec),
            metrics,
            hinted: Mutex::default(),
            arrived,
            passes: sync::Mutex::new(passes),
        }
    }

    fn context(&self) -> &LoopContext {
        &self.driver.context
    }

    fn period(&self) -> Duration {
        self.context().config.node_lifecycle.monitor_period
    }

    /// Answers that come after their pass are judged without waiting for the period.
    async fn follow_answers(&self) {
        loop {
            self.arrived.notified().await;
            let passes = self.passes.lock().await;
            if passes.evidence.has_news() {
                self.driver.queue.add_at((), passes.earliest);
            }
        }
    }

    /// What a provider was asked before it went away counts for nothing.
    async fn follow_status(&self) {
        let mut status = self.context().status.clone();
        loop {
            let session = status.borrow_and_update().usable(Capability::Instances);
            if session.is_none() {
                self.passes.lock().await.evidence.give_up();
            }
            drop(session);
            if status.changed().await.is_err() {
                return;
            }
        }
    }

    /// `Some`: the cloud refuses the provider's credentials, so it is asked again then.
    async fn pass(
        &self,
        passes: &mut Passes,
        session: &Arc<Session>,
        start: Instant,
        batch: &Batch<'_, ()>,
    ) -> Option<Requeue> {
        let may_delete = self.may_delete(session);
        let could_delete = std::mem::replace(&mut passes.could_delete, may_delete);
        // What a provider that is not READY was asked counts for nothing when it is.
        if may_delete && !could_delete {
            passes.evidence.give_up();
        }
        let asking = self.ask(passes, session, may_delete, start);
        let answers = self.context().stop.run_until_cancelled(asking).await?;
        let Some(answers) = answers else {
            passes.evidence.give_up();
            passes.reported.pass(self, &Pass::default());
            return None;
        };
        // A pass belongs to one session.
        if !self.is_current(session) {
            return None;
        }
        let refused = self.note_failures(&answers, batch);
        if let Some(Requeue::Refused { probe, .. }) = refused {
            passes.evidence.refused(probe);
        }
        self.judge(passes, session, &answers, may_delete, start)
            .await;
        refused
    }

    /// Asks what is to be asked now, and returns the answers that count. `None`: there is no Node to ask about.
    async fn ask(
        &self,
        passes: &mut Passes,
        session: &Arc<Session>,
        may_delete: bool,
        start: Instant,
    ) -> Option<Vec<Answer>> {
        let (ledger, evidence) = (&mut passes.ledger, &mut passes.evidence);
        let nodes = owned(self.context(), &session.ownership);
        let hinted = {
            let mut hinted = self.hinted.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *hinted)
        };
        for node in nodes.iter().filter(|node| hinted.concerns(node)) {
            ledger.hinted(node, start);
        }
        let busy = |uid: &str| evidence.is_busy(uid);
        let questions = ledger.questions(&mut lock(&self.brake), &nodes, busy, start);
        if questions.idle {
            return None;
        }
        let answers = evidence.collect(session, ledger, &nodes, questions, may_delete);
        Some(answers.await)
    }

    /// Takes note of what failed. `Some`: the cloud refused the provider's credentials for every Node.
    fn note_failures(&self, answers: &[Answer], batch: &Batch<'_, ()>) -> Option<Requeue> {
        let (mut refused, mut failures) = (None, 0);
        for answer in answers {
            let Err(trouble) = &answer.found else {
                continue;
            };
            let (node, provider) = (plan::name(&answer.node), &self.context().provider);
            tracing::debug!(node, %provider, error = %trouble, "no lookup result for this Node's instance");
            failures += 1;
            let retry = batch.reaction(&(), trouble).retry;
            if matches!(retry, Retry::Refused { .. }) {
                refused = Some(retry.outcome(Instant::now()));
            }
        }
        refused.filter(|_| failures == answers.len())
    }

    /// Does what follows from the answers.
    async fn judge(
        &self,
        passes: &mut Passes,
        session: &Arc<Session>,
        answers: &[Answer],
        may_delete: bool,
        start: Instant,
    ) {
        let nodes = owned(self.context(), &session.ownership);
        let offered = session.info.capabilities.as_ref();
        let offered = offered.and_then(|offered| offered.instances);
        let now = Instant::now();
        let findings = Findings {
            answers,
            nodes: &nodes,
            may_delete: may_delete && self.may_delete(session),
            power_state: offered.is_some_and(|instances| instances.power_state),
            start,
            now,
            wall: (self.context().wall)(),
        };
        let pass = passes.ledger.pass(&mut lock(&self.brake), &findings);
        drop(nodes);
        // What it is asked while it knows nothing counts for nothing later.
        if pass.void.is_some() {
            passes.evidence.give_up();
        }
        passes.reported.pass(self, &pass);
        self.put_taints_on(&pass.taint).await;
        if !pass.delete.is_empty() {
            let listing = offered.is_some_and(|instances| instances.listing);
            self.delete(passes, session, pass, listing, now).await;
        } else if !pass.waiting {
            passes.listing.not_needed();
        }
    }

    fn is_current(&self, session: &Arc<Session>) -> bool {
        let status = self.context().status.borrow();
        status
            .working()
            .is_some_and(|current| Arc::ptr_eq(current, session))
    }

    /// Whether Nodes may be deleted on this session's answers, now.
    fn may_delete(&self, session: &Arc<Session>) -> bool {
        !self.context().stop.is_cancelled()
            && self.is_current(session)
            && self.context().status.borrow().may_delete_nodes()
    }
}

/// The Nodes with this provider's ID, in the order of their names (B-L4).
fn owned(context: &LoopContext, ownership: &Ownership) -> Vec<Arc<Node>> {
    let ours = NodeOwner::Provider(&context.provider);
    let mut nodes = context.cluster.nodes.all();
    nodes.retain(|node| {
        !plan::provider_id(node).is_empty()
            && !plan::uid(node).is_empty()
            && ownership.node_owner(node) == ours
    });
    nodes
}

#[cfg(test)]
mod tests;
