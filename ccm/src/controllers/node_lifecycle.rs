//! The node lifecycle controller (B-L1 to ▲L7): deletes Nodes whose instance is gone, and taints
//! Nodes whose machine is shut down.
//!
//! ```text
//! every --node-monitor-period, a hint, a late answer, or a provider that is back:
//!     Ledger::questions -> lookup -> where it says ABSENT, lookup of witnesses -> Ledger::pass -> taints; read again -> delete
//! every --node-monitor-period, also while the provider is away: a Node that is Ready again loses its taint
//! ```

mod act;
mod brake;
mod evidence;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod hinted;
mod listing;
mod metrics;
mod plan;
mod reported;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::sync::{self, Notify};
use tokio::time::Instant;

use crate::args::BrakeConfig;
use crate::controller::{self, Batch, Driver, LoopContext, Reconciler, Spec, Width, hints};
use crate::core::{Backoff, changed, lock};
use crate::ownership::{NodeOwner, Ownership};
use crate::provider::{Capability, Hint, ProviderStatus, Retry, Session};
use crate::queue::Requeue;

#[cfg(test)]
pub(crate) use plan::MOST_PERIODS;

use brake::Brake;
use evidence::{Answer, Evidence};
use hinted::Hinted;
use listing::Listing;
pub(crate) use metrics::Metrics;
use plan::{Findings, Ledger, Pass};
use reported::Reported;

/// One pass serves all hints that come within this time (▲L7).
const DEBOUNCE: Duration = Duration::from_millis(100);
/// The shortest time between the starts of two passes of a session, also after hints: two ABSENT
/// answers must be independent.
const LEAST_GAP: Duration = Duration::from_secs(1);
/// The longest wait for the answers to one round of questions. If the period is shorter, the wait
/// is one period. A later answer triggers another pass.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Outlives a loop: recent deletions still count in the next term of this process.
#[derive(Default)]
pub(crate) struct Memory {
    /// By provider.
    brakes: Mutex<BTreeMap<String, Arc<Mutex<Brake>>>>,
}

impl Memory {
    /// This provider's brake. All terms of this process share it, with its deletions and its hold.
    fn brake(&self, provider: &str, config: BrakeConfig) -> Arc<Mutex<Brake>> {
        let mut brakes = lock(&self.brakes);
        let brake = brakes.entry(provider.to_owned());
        let brake = brake.or_insert_with(|| Arc::new(Mutex::new(Brake::new(config))));
        lock(brake).begin_term(Instant::now());
        Arc::clone(brake)
    }
}

/// The loop of one provider. Returns after `context.stop`, when no work is in flight any more.
pub(crate) async fn run(context: LoopContext, memory: Arc<Memory>, metrics: Metrics) {
    let lifecycle = Arc::new(Lifecycle::new(context, &memory, metrics));
    tokio::join!(
        controller::run(&lifecycle),
        act::watch_ready(lifecycle.context()),
    );
    // The next leader reports its own number.
    lifecycle.metrics.held(&lifecycle.context().provider, 0);
}

struct Lifecycle {
    /// Its only key, `()`, makes a pass due.
    driver: Driver<()>,
    metrics: Metrics,
    /// Outlives the ledger.
    brake: Arc<Mutex<Brake>>,
    hinted: Mutex<Hinted>,
    /// Notified when answers have come.
    arrived: Arc<Notify>,
    /// Locked for as long as a pass runs.
    passes: sync::Mutex<Passes>,
    /// The provider was unusable at some moment since the pass began.
    interrupted: AtomicBool,
    /// Deletions were forbidden at some moment since a pass last began with deletions allowed.
    degraded: AtomicBool,
}

/// The state that lasts from pass to pass.
struct Passes {
    /// The session that all kept answers are from. None if the last pass did not end.
    session: Weak<Session>,
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
    /// Begins a pass. `Err`: too early; the value is the earliest time for the next pass. The first
    /// pass of a session begins at once and drops all earlier answers.
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
            self.give_up();
        }
        self.earliest = start + LEAST_GAP;
        if start >= self.tick {
            self.tick = start + period;
        }
        Ok(start)
    }

    /// No earlier ABSENT counts, and no call under way. How long a Node has been absent stays, so
    /// that the brake does not hold it for longer.
    fn interrupted(&mut self) {
        self.ledger.break_rows();
        self.give_up();
    }

    /// Drops all calls under way, and the answers that no pass has judged.
    fn give_up(&mut self) {
        self.evidence.give_up();
        self.listing.give_up();
    }
}

impl Reconciler for Lifecycle {
    type Key = ();

    fn driver(&self) -> &Driver<()> {
        &self.driver
    }

    async fn sources(&self) {
        let about = |hint: &Hint| {
            let mut hinted = lock(&self.hinted);
            hinted.add(hint).then_some(()).into_iter().collect()
        };
        tokio::join!(
            hints(&self.driver, DEBOUNCE, LEAST_GAP, about),
            self.follow_answers(),
            self.follow_status(),
        );
    }

    /// Makes a pass due as soon as the provider is usable with a new session (▲M9). Without this,
    /// the pass could wait for a whole period.
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
                // The cloud may accept the credentials again, so the other Nodes are due.
                let soon = refused && !passes.evidence.is_refused();
                // If the pass took longer than the period, the next one follows at once.
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
            backoff: Backoff::new(period, period),
            needs: Capability::Instances,
        };
        Self {
            brake: memory.brake(&context.provider, config.brake),
            driver: Driver::new(context, spec),
            metrics,
            hinted: Mutex::default(),
            arrived,
            passes: sync::Mutex::new(passes),
            interrupted: AtomicBool::new(false),
            degraded: AtomicBool::new(false),
        }
    }

    fn context(&self) -> &LoopContext {
        &self.driver.context
    }

    fn period(&self) -> Duration {
        self.context().config.node_lifecycle.monitor_period
    }

    /// Triggers a pass for answers that come after their pass, so that they need not wait for the
    /// period.
    async fn follow_answers(&self) {
        loop {
            self.arrived.notified().await;
            let passes = self.passes.lock().await;
            if passes.evidence.has_news() {
                self.driver.queue.add_at((), passes.earliest);
            }
        }
    }

    /// Begins all counts of ABSENT again when the provider stops being usable. The pass that runs
    /// then judges no more answers, and deletes nothing more. If the provider only becomes
    /// DEGRADED, that pass goes on, but deletes nothing more.
    async fn follow_status(&self) {
        let mut status = self.context().status.clone();
        loop {
            let session = {
                let status = status.borrow_and_update();
                if !status.may_delete() {
                    self.degraded.store(true, Ordering::Relaxed);
                }
                status.usable(Capability::Instances)
            };
            if session.is_none() {
                self.interrupted.store(true, Ordering::Relaxed);
                let mut passes = self.passes.lock().await;
                passes.interrupted();
                self.interrupted.store(false, Ordering::Relaxed);
            }
            drop(session);
            changed(&mut status).await;
        }
    }

    /// `Some`: the cloud refuses the provider's credentials; the value says when the next pass is
    /// due.
    async fn pass(
        &self,
        passes: &mut Passes,
        session: &Arc<Session>,
        start: Instant,
        batch: &Batch<'_, ()>,
    ) -> Option<Requeue> {
        let degraded = self.degraded.swap(false, Ordering::Relaxed);
        if degraded {
            passes.ledger.break_rows();
        }
        let may_delete = self.may_delete(session);
        if !may_delete {
            self.degraded.store(true, Ordering::Relaxed);
        } else if degraded {
            // Answers to calls from before deletions were allowed must not count afterwards.
            passes.give_up();
        }
        let asking = self.ask(passes, session, may_delete, start);
        let answers = self.context().stop.run_until_cancelled(asking).await?;
        let Some(answers) = answers else {
            passes.give_up();
            let absent = passes.ledger.absent();
            passes.reported.pass(self, &Pass::default(), absent);
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

    /// Asks the due questions, and returns the answers that count. `None`: no Node is suspect.
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
            let mut hinted = lock(&self.hinted);
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

    /// Logs the failures. `Some`: every lookup failed, at least one because the cloud refused the
    /// provider's credentials.
    fn note_failures(&self, answers: &[Answer], batch: &Batch<'_, ()>) -> Option<Requeue> {
        let (mut refused, mut failures) = (None, 0);
        for answer in answers {
            let Err(trouble) = &answer.found else {
                continue;
            };
            let (node, provider) = (plan::name(&answer.node), &self.context().provider);
            tracing::debug!(node, %provider, call_id = trouble.call_id(), error = %trouble, "no lookup result for this Node's instance");
            failures += 1;
            let retry = batch.reaction(&(), trouble).retry;
            if matches!(retry, Retry::Refused { .. }) {
                refused = Some(retry.outcome(Instant::now()));
            }
        }
        refused.filter(|_| failures == answers.len())
    }

    /// Judges the answers: taints and deletes Nodes.
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
            deadline: session.deadlines.lookup,
            start,
            now,
            wall: (self.context().wall)(),
        };
        let pass = passes.ledger.pass(&mut lock(&self.brake), &findings);
        drop(nodes);
        // The calls that are still under way may have gone to a provider that was not trustworthy,
        // so their answers must not count.
        if pass.void.is_some() {
            passes.give_up();
        }
        let absent = passes.ledger.absent();
        passes.reported.pass(self, &pass, absent);
        let (context, with_taint) = (self.context(), plan::with_shutdown_taint);
        act::change_taints(context, &pass.taint, with_taint, "set").await;
        if !pass.delete.is_empty() {
            let listing = offered.is_some_and(|instances| instances.listing);
            self.delete(passes, session, pass, listing, now).await;
        } else if !pass.waiting {
            passes.listing.not_needed();
        }
    }

    /// Whether the pass may go on: the provider has been usable with this session since it began.
    fn is_current(&self, session: &Arc<Session>) -> bool {
        let status = self.context().status.borrow();
        let current = status.working();
        !self.interrupted.load(Ordering::Relaxed)
            && current.is_some_and(|current| Arc::ptr_eq(current, session))
    }

    /// Whether this session's answers may delete Nodes now.
    fn may_delete(&self, session: &Arc<Session>) -> bool {
        !self.context().stop.is_cancelled()
            && self.is_current(session)
            && !self.degraded.load(Ordering::Relaxed)
            && self.context().status.borrow().may_delete()
    }
}

/// The Nodes with an ID of this provider, sorted by name (▲L4).
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
