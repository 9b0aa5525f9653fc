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
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod listing;
mod metrics;
mod plan;
mod ready;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::args::BrakeConfig;
use crate::controller::LoopContext;
use crate::ownership::{NodeOwner, Ownership};
use crate::provider::{CallError, CallErrorCode, Capability, Hint, ProviderStatus, Session};
use crate::queue::PROBE;
use crate::report::TOLD_AGAIN;

#[cfg(test)]
pub(crate) use plan::MOST_PERIODS;

use ask::{Answer, Asker, EXISTENCE, POWER};
use brake::Brake;
use listing::Listing;
pub(crate) use metrics::Metrics;
use plan::{Findings, Ledger, Pass, WITNESSES};

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
pub(crate) async fn run(mut context: LoopContext, memory: Arc<Memory>, metrics: Metrics) {
    context.writes = context
        .writes
        .with_component("cloud-node-lifecycle-controller");
    let lifecycle = Lifecycle::new(context.clone(), &memory, metrics);
    tokio::join!(passes(lifecycle), ready::watch(&context));
}

/// Pass after pass.
async fn passes(mut lifecycle: Lifecycle) {
    let context = &lifecycle.context;
    let mut hints = context.hints.subscribe();
    let mut status = context.status.clone();
    let stop = context.stop.clone();
    let period = context.config.node_lifecycle.monitor_period;
    let mut tick = Instant::now();
    loop {
        let start = Instant::now();
        if start >= tick {
            tick = start + period;
        }
        lifecycle.pass().await;
        // A pass that takes longer than the period is followed by the next one: they never overlap.
        let soon = start + LEAST_GAP;
        let not_before = lifecycle.not_before;
        let usable_again = usable_again(&mut status, lifecycle.paused, lifecycle.session.clone());
        let earliest = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = tokio::time::sleep_until(tick.max(soon).max(not_before)) => continue,
            () = usable_again => not_before,
            // It only judges while nothing may be asked.
            () = lifecycle.asker.arrived() => soon,
            hint = hinted(&mut hints) => {
                lifecycle.hinted.add(hint);
                soon.max(Instant::now() + DEBOUNCE).max(not_before)
            }
        };
        let pause = tokio::time::sleep_until(earliest);
        if stop.run_until_cancelled(pause).await.is_none() {
            break;
        }
        while let Some(hint) = hinted(&mut hints).now_or_never() {
            lifecycle.hinted.add(hint);
        }
    }
    // Whoever leads next says it.
    lifecycle.metrics.held(&lifecycle.context.provider, 0);
}

/// The next hint that concerns instances; one that was missed may have been about any.
async fn hinted(hints: &mut broadcast::Receiver<Hint>) -> Hint {
    loop {
        match hints.recv().await {
            Ok(hint @ (Hint::Resync | Hint::Instance { .. })) => return hint,
            Err(broadcast::error::RecvError::Lagged(_)) => return Hint::Resync,
            Ok(Hint::LoadBalancer { .. } | Hint::Routes) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Returns as soon as there is a session that the last pass did not have: the period may be long, and a leader's first pass comes before its
/// provider is initialised (▲M9).
async fn usable_again(
    status: &mut watch::Receiver<ProviderStatus>,
    paused: bool,
    last: Weak<Session>,
) {
    let news = status.wait_for(|status| {
        status
            .usable(Capability::Instances)
            .is_some_and(|session| paused || !Arc::downgrade(&session).ptr_eq(&last))
    });
    if news.await.is_err() {
        // Nobody will ever say that there is one.
        std::future::pending::<()>().await;
    }
}

/// Instances that the provider hinted at since the last pass.
#[derive(Default)]
struct Hinted {
    /// Any of them.
    all: bool,
    /// Provider IDs, and names of Nodes.
    some: BTreeSet<String>,
}

impl Hinted {
    /// So many are kept. Hints come also while no pass takes them, as the provider is not READY.
    const MOST: usize = 10_000;

    fn add(&mut self, hint: Hint) {
        match hint {
            Hint::Instance {
                provider_id,
                node_name,
            } if !self.all
                && self.some.len() < Self::MOST
                && !(provider_id.is_empty() && node_name.is_empty()) =>
            {
                self.some.extend([provider_id, node_name]);
            }
            _ => {
                self.all = true;
                self.some.clear();
            }
        }
    }
}

/// What lasts from pass to pass.
struct Lifecycle {
    context: LoopContext,
    metrics: Metrics,
    ledger: Ledger,
    /// Outlives the ledger.
    brake: Arc<Mutex<Brake>>,
    /// The session that the ledger's answers are of.
    session: Weak<Session>,
    asker: Asker,
    /// ABSENT answers that nobody has vouched for yet.
    claims: Vec<Answer>,
    /// How many witnesses were asked because of them.
    asked: usize,
    /// UIDs of the witnesses that have not answered yet.
    witnesses: BTreeSet<String>,
    hinted: Hinted,
    listing: Listing,
    /// Nodes could be deleted on the last pass's answers.
    could_delete: bool,
    /// The last pass found no session to work with.
    paused: bool,
    /// The cloud said slow down (THROTTLED).
    not_before: Instant,
    /// The cloud refused the provider's credentials for every Node of the last pass.
    refused: bool,
    /// Why the last pass was void.
    void: Option<String>,
    /// When the brake was last told about.
    told: Option<Instant>,
    /// Nodes that were told that they share their provider ID, when last; by UID.
    told_shared: act::Told,
    /// Nodes that were told that the provider's own list has their instance, when last; by UID.
    told_listed: act::Told,
}

impl Lifecycle {
    fn new(context: LoopContext, memory: &Memory, metrics: Metrics) -> Self {
        let config = &context.config.node_lifecycle;
        let brake = memory.brake(&context.provider, config.brake);
        let longest_step = Duration::from_mins(1).max(config.monitor_period * 2);
        Self {
            ledger: Ledger::new(config.brake.min_age, config.monitor_period, longest_step),
            brake,
            session: Weak::new(),
            asker: Asker::new(),
            claims: Vec::new(),
            asked: 0,
            witnesses: BTreeSet::new(),
            hinted: Hinted::default(),
            listing: Listing::default(),
            could_delete: false,
            paused: false,
            not_before: Instant::now(),
            refused: false,
            void: None,
            told: None,
            told_shared: act::Told::default(),
            told_listed: act::Told::default(),
            metrics,
            context,
        }
    }

    /// No answer of before, and none that is under way, counts.
    fn give_up(&mut self) {
        self.asker.give_up();
        self.claims.clear();
        self.asked = 0;
        self.witnesses.clear();
    }

    async fn pass(&mut self) {
        let session = self.context.status.borrow().usable(Capability::Instances);
        self.paused = session.is_none();
        let Some(session) = session else {
            self.give_up();
            return;
        };
        let current = Arc::downgrade(&session);
        if !current.ptr_eq(&self.session) {
            self.session = current;
            self.ledger.start_over();
            self.give_up();
            self.listing.give_up();
        }
        let may_delete = self.may_delete(&session);
        // What a provider that is not READY was asked counts for nothing when it is.
        if may_delete && !std::mem::replace(&mut self.could_delete, may_delete) {
            self.give_up();
        }
        self.could_delete = may_delete;
        let start = Instant::now();
        let stop = self.context.stop.clone();
        let asking = self.ask(&session, may_delete, start);
        let Some(answers) = stop.run_until_cancelled(asking).await else {
            return;
        };
        let Some(answers) = answers else {
            self.give_up();
            self.show(&Pass::default());
            return;
        };
        // A pass belongs to one session.
        if !self.is_current(&session) {
            return;
        }
        self.note_troubles(&answers);
        let nodes = self.owned(&session);
        let offered = session
            .info
            .capabilities
            .as_ref()
            .and_then(|offered| offered.instances);
        let now = Instant::now();
        let findings = Findings {
            answers: &answers,
            nodes: &nodes,
            may_delete: may_delete && self.may_delete(&session),
            power_state: offered.is_some_and(|instances| instances.power_state),
            start,
            now,
            wall: (self.context.wall)(),
        };
        let pass = self.ledger.pass(&mut lock(&self.brake), &findings);
        drop(nodes);
        // What it is asked while it knows nothing counts for nothing later.
        if pass.void.is_some() {
            self.give_up();
        }
        self.show(&pass);
        self.put_taints_on(&pass.taint).await;
        if !pass.delete.is_empty() {
            let listing = offered.is_some_and(|instances| instances.listing);
            self.delete(&session, pass.delete, pass.one_of_two, listing, now)
                .await;
        } else if !pass.waiting {
            self.listing.not_needed();
        }
    }

    /// Asks what is to be asked now, and returns the answers that count. `None`: there is no Node to ask about.
    async fn ask(
        &mut self,
        session: &Arc<Session>,
        may_delete: bool,
        start: Instant,
    ) -> Option<Vec<Answer>> {
        let nodes = self.owned(session);
        let hinted = std::mem::take(&mut self.hinted);
        for node in &nodes {
            let hinted = hinted.all
                || hinted.some.contains(plan::provider_id(node))
                || hinted.some.contains(plan::name(node));
            if hinted {
                self.ledger.hinted(node, start);
            }
        }
        let (asker, claims) = (&self.asker, &self.claims);
        let is_claimed = |uid: &str| claims.iter().any(|claim| plan::uid(&claim.node) == uid);
        let busy = |uid: &str| asker.is_asked(uid) || is_claimed(uid);
        let questions = self
            .ledger
            .questions(&mut lock(&self.brake), &nodes, busy, start);
        if questions.idle {
            return None;
        }
        self.asker.keep(&nodes);
        // What the cloud is not asked now is due in the next pass.
        let mut may_ask = start >= self.not_before;
        if may_ask && self.refused {
            let all = || questions.suspects.iter().chain(&questions.absent);
            self.refused = still_refused(session, all().next()).await;
            may_ask = !self.refused;
            if self.refused {
                self.not_before = self.not_before.max(Instant::now() + PROBE);
            }
        }
        let wait = LONGEST_WAIT.min(self.context.config.node_lifecycle.monitor_period);
        let mut asked_now = false;
        if may_ask {
            self.asker.ask(session, questions.suspects, POWER);
            let mut together = Vec::new();
            if !questions.absent.is_empty() {
                asked_now = true;
                let count = questions.absent.len().min(WITNESSES);
                together = self.next_witnesses(&nodes, count, &questions.absent);
                together.extend(questions.absent);
            }
            self.asker.ask(session, together, EXISTENCE);
        }
        let mut answers = Vec::new();
        self.gather(start + wait, &mut answers).await;
        if !may_delete {
            answers.append(&mut self.claims);
            return Some(answers);
        }
        let now = Instant::now();
        self.claims.retain(|claim| !plan::is_too_old(claim, now));
        loop {
            let claims = self.claims.iter();
            let open = claims.filter(|claim| !plan::is_vouched(claim, &answers, &nodes));
            let open = open.count();
            // Those that were asked in this pass had their time; in the next one others are asked too.
            let awaited = !self.witnesses.is_empty() && (asked_now || self.asked >= WITNESSES);
            if open == 0 || !may_ask || awaited {
                break;
            }
            let count = if self.asked == 0 {
                open.min(WITNESSES)
            } else {
                WITNESSES.saturating_sub(self.asked)
            };
            let next = self.next_witnesses(&nodes, count, &[]);
            if next.is_empty() {
                // Where no Node is Ready, each Node that is asked about may still vouch for them.
                let awaited = plan::is_none_ready(&nodes) && self.asker.is_asking();
                if self.witnesses.is_empty() && !awaited {
                    // They stay without a witness: the pass is void.
                    answers.append(&mut self.claims);
                }
                break;
            }
            asked_now = true;
            self.asker.ask(session, next, EXISTENCE);
            self.gather(Instant::now() + wait, &mut answers).await;
        }
        let (vouched, open) = std::mem::take(&mut self.claims)
            .into_iter()
            .partition(|claim| plan::is_vouched(claim, &answers, &nodes));
        self.claims = open;
        answers.extend::<Vec<_>>(vouched);
        if self.claims.is_empty() && self.witnesses.is_empty() {
            self.asked = 0;
        }
        Some(answers)
    }

    /// Nodes that are asked about as witnesses now.
    fn next_witnesses(
        &mut self,
        nodes: &[Arc<Node>],
        count: usize,
        absent: &[Arc<Node>],
    ) -> Vec<Arc<Node>> {
        let (asker, claims) = (&self.asker, &self.claims);
        let claims = claims.iter().map(|claim| plan::uid(&claim.node));
        let absent: BTreeSet<&str> = absent
            .iter()
            .map(|node| plan::uid(node))
            .chain(claims)
            .collect();
        let busy = |uid: &str| asker.is_asked(uid) || absent.contains(uid);
        let next = self.ledger.witnesses(nodes, count, busy);
        self.asked += next.len();
        let uids = next.iter().map(|node| plan::uid(node).to_owned());
        self.witnesses.extend(uids);
        next
    }

    /// Takes what has arrived: ABSENT answers wait for a witness.
    async fn gather(&mut self, until: Instant, answers: &mut Vec<Answer>) {
        for answer in self.asker.gather(until).await {
            self.witnesses.remove(plan::uid(&answer.node));
            if plan::is_claim(&answer) {
                self.claims.push(answer);
            } else {
                answers.push(answer);
            }
        }
        let asker = &self.asker;
        self.witnesses.retain(|uid| asker.is_asked(uid));
    }

    fn owned(&self, session: &Session) -> Vec<Arc<Node>> {
        owned(&self.context, &session.ownership)
    }

    fn note_troubles(&mut self, answers: &[Answer]) {
        let troubles = || answers.iter().filter_map(|it| it.found.as_ref().err());
        // A cloud that refuses the credentials is asked less often, and then about one Node for all.
        if troubles().count() == answers.len() && troubles().any(is_refusal) {
            self.refused = true;
            self.not_before = self.not_before.max(Instant::now() + PROBE);
        }
        for answer in answers {
            if let Err(trouble) = &answer.found {
                self.note_trouble(&answer.node, trouble);
            }
        }
    }

    fn note_trouble(&mut self, node: &Node, trouble: &CallError) {
        let (node, provider) = (plan::name(node), &self.context.provider);
        tracing::debug!(node, %provider, error = %trouble, "no lookup result for this Node's instance");
        if let Some(after) = trouble.slows() {
            self.not_before = self.not_before.max(Instant::now() + after);
        }
    }

    fn is_current(&self, session: &Arc<Session>) -> bool {
        let status = self.context.status.borrow();
        status
            .working()
            .is_some_and(|current| Arc::ptr_eq(current, session))
    }

    /// Whether Nodes may be deleted on this session's answers, now.
    fn may_delete(&self, session: &Arc<Session>) -> bool {
        !self.context.stop.is_cancelled()
            && self.is_current(session)
            && self.context.status.borrow().may_delete_nodes()
    }

    /// Says what a pass found: once, not in each pass.
    fn show(&mut self, pass: &Pass) {
        let provider = &self.context.provider;
        let void = pass.void.as_ref().or(pass.failed.as_ref());
        if let Some(reason) = void {
            self.metrics.void(provider);
            if self.void.is_none() {
                tracing::warn!(%provider, reason, "discarding this pass: lookup results are not trustworthy");
            }
        } else if self.void.is_some() {
            tracing::info!(%provider, "lookup results are trustworthy again");
        }
        if pass.void.is_none() {
            self.metrics.held(provider, pass.held.len());
        }
        self.void = void.cloned();
        if pass.void.is_none() {
            self.tell_of_shared(&pass.shared);
        }
        if !lock(&self.brake).holds() {
            self.told = None;
        }
        let again = self.told.is_some_and(|told| told.elapsed() >= TOLD_AGAIN);
        if pass.engaged || again && !pass.held.is_empty() {
            self.told = Some(Instant::now());
            self.tell_of_brake(&pass.held);
        }
    }
}

/// The cloud refuses the provider's credentials.
fn is_refusal(trouble: &CallError) -> bool {
    trouble.code == CallErrorCode::Credentials
}

/// Asks about one Node for all whether the cloud still refuses the provider's credentials. What it says of the Node counts for nothing.
async fn still_refused(session: &Session, node: Option<&Arc<Node>>) -> bool {
    let Some(node) = node else {
        return false;
    };
    let (nodes, facets) = ([&**node], [api::InstanceFacet::Existence]);
    let asked = session.lookup_instances(&nodes, &facets, Duration::ZERO);
    match asked.await {
        Ok(answers) => {
            let mut troubles = answers.iter().filter_map(|answer| answer.as_ref().err());
            troubles.any(is_refusal)
        }
        Err(trouble) => is_refusal(&trouble),
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
