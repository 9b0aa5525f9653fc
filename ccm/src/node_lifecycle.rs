//! The node lifecycle controller (B-L1 to ▲L7): deletes Nodes whose instance is gone, taints those that are shut down.
//!
//! ```text
//! every --node-monitor-period, a hint, or a provider that is back: Ledger::questions -> lookup -> Ledger::pass -> taints; last look -> delete
//! every --node-monitor-period, whether there is a provider or not: a Node that is Ready again loses its taint
//! ```

mod act;
mod ask;
mod brake;
mod listing;
mod metrics;
mod plan;
mod ready;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::args::BrakeConfig;
use crate::provider::{Capability, ProviderStatus, Session, Trouble, TroubleCode};
use crate::providers::{NodeOwner, Ownership};
use crate::queue::PROBE;
use crate::run::{Hint, LoopContext};
use crate::stuck::TOLD_AGAIN;

use ask::{Answers, Asker};
use brake::Brake;
use listing::Listing;
pub(crate) use metrics::Metrics;
#[cfg(test)]
pub(crate) use plan::WITNESSES;
use plan::{Findings, Ledger, Pass, Questions};

/// Hints that come together make one pass (▲L7).
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Passes begin at least so far apart, whatever is hinted: two ABSENT answers must be two answers.
const LEAST_GAP: Duration = Duration::from_secs(1);

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

/// The loop of one provider. Returns after `context.stop`, when what is in flight is over.
pub(crate) async fn run(mut context: LoopContext, metrics: Metrics) {
    context.writes = context
        .writes
        .with_component("cloud-node-lifecycle-controller");
    tokio::join!(passes(context.clone(), metrics), ready::watch(&context));
}

/// Pass after pass.
async fn passes(context: LoopContext, metrics: Metrics) {
    let mut hints = context.hints.subscribe();
    let mut status = context.status.clone();
    let period = context.config.node_lifecycle.monitor_period;
    let mut lifecycle = Lifecycle::new(context, metrics);
    loop {
        let start = Instant::now();
        lifecycle.pass().await;
        // A pass that takes longer than the period is followed by the next one: they never overlap.
        let next = (start + period).max(lifecycle.not_before);
        let stop = &lifecycle.context.stop;
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = tokio::time::sleep_until(next) => {}
            () = lifecycle.usable_again(&mut status) => {
                if stop.run_until_cancelled(tokio::time::sleep_until(lifecycle.not_before)).await.is_none() {
                    break;
                }
            }
            () = hinted(&mut hints) => {
                let earliest = (start + LEAST_GAP).max(Instant::now() + DEBOUNCE).max(lifecycle.not_before);
                if stop.run_until_cancelled(tokio::time::sleep_until(earliest)).await.is_none() {
                    break;
                }
                while !matches!(
                    hints.try_recv(),
                    Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed)
                ) {}
            }
        }
    }
    // Whoever leads next says it.
    lifecycle.metrics.held(&lifecycle.context.provider, 0);
}

/// Returns with the next hint that concerns instances.
async fn hinted(hints: &mut broadcast::Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(Hint::Resync | Hint::Instance { .. })
            | Err(broadcast::error::RecvError::Lagged(_)) => return,
            Ok(Hint::LoadBalancer { .. } | Hint::Routes) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// What lasts from pass to pass.
struct Lifecycle {
    context: LoopContext,
    metrics: Metrics,
    ledger: Ledger,
    /// The session that the ledger's answers are of.
    session: Weak<Session>,
    asker: Asker,
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
    fn new(context: LoopContext, metrics: Metrics) -> Self {
        let config = &context.config.node_lifecycle;
        let brake = context
            .node_lifecycle_memory
            .brake(&context.provider, config.brake);
        let longest_step = Duration::from_mins(1).max(config.monitor_period * 2);
        Self {
            ledger: Ledger::new(brake, config.brake.min_age, longest_step),
            session: Weak::new(),
            asker: Asker::new(config.monitor_period, longest_step),
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

    /// Returns as soon as there is a session that the last pass did not have: the period may be long, and a leader's first pass comes before its
    /// provider is initialised (▲M9).
    async fn usable_again(&self, status: &mut watch::Receiver<ProviderStatus>) {
        let news = status.wait_for(|status| {
            status.usable(Capability::Instances).is_some_and(|session| {
                self.paused || !Arc::downgrade(&session).ptr_eq(&self.session)
            })
        });
        if news.await.is_err() {
            // Nobody will ever say that there is one.
            std::future::pending::<()>().await;
        }
    }

    async fn pass(&mut self) {
        let session = self.context.status.borrow().usable(Capability::Instances);
        self.paused = session.is_none();
        let Some(session) = session else {
            self.asker.give_up();
            return;
        };
        let current = Arc::downgrade(&session);
        if !current.ptr_eq(&self.session) {
            self.session = current;
            self.ledger.start_over();
            self.asker.give_up();
            self.listing.give_up();
        }
        let may_delete = self.may_delete(&session);
        // What a provider that is not READY was asked counts for nothing when it is.
        if may_delete && !std::mem::replace(&mut self.could_delete, may_delete) {
            self.asker.give_up();
        }
        self.could_delete = may_delete;
        let nodes = self.owned(&session);
        let questions = self.ledger.questions(&nodes);
        if questions.suspects.is_empty() {
            self.asker.give_up();
            self.show(&Pass::default());
            return;
        }
        self.asker.keep(&nodes);
        drop(nodes);
        let stop = self.context.stop.clone();
        if self.refused {
            let refused = stop.run_until_cancelled(still_refused(&session, &questions));
            if refused.await.unwrap_or(true) {
                self.not_before = self.not_before.max(Instant::now() + PROBE);
                return;
            }
        }
        let Some(answers) = stop
            .run_until_cancelled(self.asker.ask(&session, &questions))
            .await
        else {
            return;
        };
        self.note_troubles(&questions, &answers);
        // A pass belongs to one session.
        if !self.is_current(&session) {
            return;
        }
        let nodes = self.owned(&session);
        let offered = session
            .info
            .capabilities
            .as_ref()
            .and_then(|offered| offered.instances);
        let now = Instant::now();
        let pass = self.ledger.pass(&Findings {
            questions: &questions,
            answers: &answers.by_uid,
            pending: &answers.pending,
            nodes: &nodes,
            may_delete: may_delete && self.may_delete(&session),
            power_state: offered.is_some_and(|instances| instances.power_state),
            now,
            wall: (self.context.wall)(),
        });
        drop(nodes);
        // What it is asked while it knows nothing counts for nothing later; who only says nothing may be slow.
        if pass.void.is_some() && !answers.by_uid.is_empty() {
            self.asker.give_up();
        }
        self.show(&pass);
        self.put_taints_on(&pass.taint).await;
        if pass.delete.is_empty() {
            self.listing.not_needed();
        } else {
            let listing = offered.is_some_and(|instances| instances.listing);
            self.delete(&session, pass.delete, listing, now).await;
        }
    }

    fn owned(&self, session: &Session) -> Vec<Arc<Node>> {
        owned(&self.context, &session.ownership)
    }

    fn note_troubles(&mut self, questions: &Questions, answers: &Answers) {
        let troubles = || answers.by_uid.values().filter_map(|it| it.as_ref().err());
        self.refused = troubles().count() == answers.by_uid.len() && troubles().any(is_refusal);
        // Who refuses to speak with us is not asked every few seconds, and then about one Node for all.
        if self.refused {
            self.not_before = self.not_before.max(Instant::now() + PROBE);
        }
        for node in questions.witnesses.iter().chain(&questions.suspects) {
            if let Some(Err(trouble)) = answers.by_uid.get(plan::uid(node)) {
                self.note_trouble(node, trouble);
            }
        }
    }

    fn note_trouble(&mut self, node: &Node, trouble: &Trouble) {
        let (node, provider) = (plan::name(node), &self.context.provider);
        tracing::debug!(node, %provider, error = %trouble, "nothing is known of this Node's instance");
        if trouble.code == TroubleCode::Throttled {
            let after = trouble.retry_after.unwrap_or(Duration::from_secs(1));
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
        if let Some(reason) = &pass.void {
            self.metrics.void(provider);
            if self.void.is_none() {
                tracing::warn!(%provider, reason, "the provider's answers about Nodes count for nothing");
            }
        } else if self.void.is_some() {
            tracing::info!(%provider, "the provider's answers about Nodes count again");
        }
        if pass.void.is_none() {
            self.metrics.held(provider, pass.held.len());
        }
        self.void.clone_from(&pass.void);
        if pass.void.is_none() {
            self.tell_of_shared(&pass.shared);
        }
        if !self.ledger.brake_holds() {
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
fn is_refusal(trouble: &Trouble) -> bool {
    trouble.code == TroubleCode::Credentials
}

/// Asks about one Node for all whether the cloud still refuses the provider's credentials. What it says of the Node counts for nothing.
async fn still_refused(session: &Session, questions: &Questions) -> bool {
    let Some(node) = questions.suspects.first() else {
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
