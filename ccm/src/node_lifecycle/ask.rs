//! Asking about the Nodes of a pass, so that one whose lookup hangs does not keep the others waiting (▲M10).
//!
//! All batches are asked about at once, and the pass waits for as long as answers come. When none has come for a while (`patience`) it goes on
//! with what it has: of the others nothing is known, and what was asked together and not answered is asked about in smaller batches next time, down to
//! single Nodes. The call about a single Node outlasts its pass: it has its whole deadline, and the pass that finds it answered takes the answer.
//! Where nothing is answered in time, not even about single Nodes, it is the provider that is slow: then the patience grows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::core::v1::Node;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use super::plan::{self, Questions};
use crate::node::lookup::{self, Called, Loners, Lookup};
use crate::provider::{Session, Trouble};

/// A pass waits at least so long for an answer.
const LEAST_PATIENCE: Duration = Duration::from_secs(10);
/// A call that takes so many times as long as others do is waited for no longer.
const TIMES_AS_LONG: u32 = 3;

/// What a pass was told.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// By UID. Of a Node that is missing nothing is known.
    pub(super) by_uid: BTreeMap<String, Result<api::Instance, Trouble>>,
    /// UIDs of the Nodes whose call is still under way, or has not had its turn yet.
    pub(super) pending: BTreeSet<String>,
}

/// What lasts from pass to pass.
pub(super) struct Asker {
    period: Duration,
    /// How long a pass waits for the next answer.
    patience: Duration,
    most_patience: Duration,
    loners: Loners,
    /// Calls that outlast their pass. In a mutex that is never contended: a future is `Send` and not `Sync`.
    open: Mutex<Vec<Alone>>,
    /// UIDs of loners whose call was not answered in one pass: they have time.
    tried: BTreeSet<String>,
    /// The last Node that was asked about alone: others come first, in the order of names.
    last_alone: String,
    /// When a call was last answered in time.
    last_answer: Option<Instant>,
}

/// The call about a single Node.
struct Alone {
    node: Arc<Node>,
    began: Instant,
    call: BoxFuture<'static, Called<api::Instance>>,
}

impl Future for Alone {
    type Output = (Instant, Called<api::Instance>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let began = self.began;
        self.call
            .as_mut()
            .poll(context)
            .map(|called| (began, called))
    }
}

impl Asker {
    /// `longest`: no pass waits longer for the next answer.
    pub(super) fn new(period: Duration, longest: Duration) -> Self {
        Self {
            period,
            patience: LEAST_PATIENCE.max(period * 2),
            most_patience: longest,
            loners: Loners::default(),
            open: Mutex::default(),
            tried: BTreeSet::new(),
            last_alone: String::new(),
            last_answer: None,
        }
    }

    /// No answer that is still under way counts.
    pub(super) fn give_up(&mut self) {
        self.open().clear();
    }

    /// Forgets the Nodes that are not there any more.
    pub(super) fn keep(&mut self, nodes: &[Arc<Node>]) {
        self.loners.keep(nodes);
        if !self.tried.is_empty() {
            let there: BTreeSet<&str> = nodes.iter().map(|node| plan::uid(node)).collect();
            self.tried.retain(|uid| there.contains(uid.as_str()));
        }
    }

    /// Asks about all Nodes of a pass, in batches, at once (▲L5).
    pub(super) async fn ask(&mut self, session: &Arc<Session>, questions: &Questions) -> Answers {
        let start = Instant::now();
        let width = session.max_lookups();
        let asked = questions.witnesses.iter().chain(&questions.suspects);
        let (alone, others) = asked
            .cloned()
            .partition::<Vec<_>, _>(|node| self.loners.is_alone(node));
        let (mut running, mut line) = self.alone(alone, questions);
        let mut answers = Answers::default();

        let calls = &Mutex::new(Calls::default());
        let permits = &Semaphore::new(width);
        let batches = self.loners.batches(others, session.max_batch());
        let mut found = pin!(lookup::answers(batches, |nodes| async move {
            // Never closed.
            let _permit = permits.acquire().await;
            let began = Instant::now();
            let ticket = lock(calls).sent(&nodes);
            let outcome = look_up(session, &nodes).await;
            lock(calls).answered(ticket, outcome.is_ok().then(|| began.elapsed()));
            (nodes, outcome) as Called<api::Instance>
        }));
        // A call that hangs must not take the place of all others.
        let most_alone = (width / 2).max(1);
        let mut over = false;
        // Calls of this pass about single Nodes.
        let mut young = 0_usize;
        let mut last = start;
        loop {
            while (over || width > 1)
                && running.len() < most_alone
                && let Some(node) = line.pop_front()
            {
                plan::name(&node).clone_into(&mut self.last_alone);
                running.push(Alone::call(session, node));
                young += 1;
            }
            let until = if !over {
                last + self.patience
            } else if young > 0 {
                start + self.period
            } else {
                break;
            };
            tokio::select! {
                biased;
                batch = found.next(), if !over => match batch {
                    Some(batch) => {
                        last = Instant::now();
                        self.loners.learn(&batch);
                        answers.take(batch);
                    }
                    None => over = true,
                },
                Some((began, called)) = running.next(), if !running.is_empty() => {
                    if began >= start {
                        young -= 1;
                    }
                    self.answered_alone(began, called, &mut answers);
                }
                () = sleep_until(until) => break,
            }
        }
        // What was answered since the last pass, also where nothing else is waited for.
        while let Some(Some((began, called))) = running.next().now_or_never() {
            self.answered_alone(began, called, &mut answers);
        }
        self.learn(&lock(calls));

        let unanswered = running.iter().map(|alone| &alone.node).chain(&line);
        answers.pending = unanswered.map(|node| plan::uid(node).to_owned()).collect();
        for alone in running {
            self.tried.insert(plan::uid(&alone.node).to_owned());
            // Where the provider takes one call at a time, nobody else could ask anything.
            if width > 1
                && questions
                    .suspects
                    .iter()
                    .any(|node| same(node, &alone.node))
            {
                self.open().push(alone);
            }
        }
        answers
    }

    /// What goes on from earlier passes, and who waits for a turn: first those that never had one, then in turn.
    fn alone(
        &mut self,
        alone: Vec<Arc<Node>>,
        questions: &Questions,
    ) -> (FuturesUnordered<Alone>, VecDeque<Arc<Node>>) {
        let mut open = std::mem::take(self.open());
        let has_turn = |open: &[Alone], node: &Node| open.iter().any(|it| same(&it.node, node));
        // About a Node that is Ready meanwhile, or has another ID, nobody wants to know.
        open.retain(|it| {
            let mut suspects = questions.suspects.iter();
            suspects.any(|node| same(node, &it.node))
        });
        let fresh = |node: &Arc<Node>| !self.tried.contains(plan::uid(node));
        if alone
            .iter()
            .any(|node| fresh(node) && !has_turn(&open, node))
        {
            // A call makes room that others were answered before, though they were asked later.
            open.retain(|it| self.last_answer.is_none_or(|at| at < it.began));
        }
        let mut line: Vec<Arc<Node>> = alone
            .into_iter()
            .filter(|node| !has_turn(&open, node))
            .collect();
        line.sort_by_cached_key(|node| {
            let name = plan::name(node).to_owned();
            (!fresh(node), name <= self.last_alone, name)
        });
        (open.into_iter().collect(), line.into())
    }

    fn open(&mut self) -> &mut Vec<Alone> {
        self.open.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered_alone(
        &mut self,
        began: Instant,
        (nodes, outcome): Called<api::Instance>,
        answers: &mut Answers,
    ) {
        let took = began.elapsed();
        let answered = outcome.is_ok();
        let found = lookup::of_call(nodes, outcome);
        if took <= self.patience {
            self.loners.learn(&found);
            if answered {
                self.last_answer = Some(Instant::now());
                for lookup in &found {
                    self.tried.remove(plan::uid(&lookup.node));
                }
            }
        } else if answered && self.last_answer.is_none_or(|at| at < began) {
            // Meanwhile nobody else was answered either: it is not this Node.
            self.loners.forget();
            self.tried.clear();
            self.patience = self.within(took);
        }
        // Else it is slow, and goes on to be asked about alone.
        answers.take(found);
    }

    /// Learns from the calls of a pass about several Nodes each.
    fn learn(&mut self, calls: &Calls) {
        if let Some(usual) = calls.usual() {
            self.last_answer = Some(Instant::now());
            self.patience = self.within(usual);
        }
        for nodes in calls.open.values() {
            self.loners.late(nodes);
        }
    }

    fn within(&self, usual: Duration) -> Duration {
        let least = LEAST_PATIENCE.max(self.period * 2);
        (usual * TIMES_AS_LONG).min(self.most_patience).max(least)
    }
}

impl Alone {
    fn call(session: &Arc<Session>, node: Arc<Node>) -> Self {
        let (session, nodes) = (Arc::clone(session), vec![Arc::clone(&node)]);
        let call = Box::pin(async move {
            let outcome = look_up(&session, &nodes).await;
            (nodes, outcome)
        });
        let began = Instant::now();
        Self { node, began, call }
    }
}

impl Answers {
    fn take(&mut self, found: Vec<Lookup<api::Instance>>) {
        for Lookup { node, answer, .. } in found {
            self.by_uid.insert(plan::uid(&node).to_owned(), answer);
        }
    }
}

/// The calls of a pass about several Nodes each.
#[derive(Debug, Default)]
struct Calls {
    count: usize,
    /// Sent, and not answered.
    open: BTreeMap<usize, Vec<Arc<Node>>>,
    took: Vec<Duration>,
}

impl Calls {
    fn sent(&mut self, nodes: &[Arc<Node>]) -> usize {
        self.count += 1;
        self.open.insert(self.count, nodes.to_vec());
        self.count
    }

    fn answered(&mut self, ticket: usize, took: Option<Duration>) {
        self.open.remove(&ticket);
        self.took.extend(took);
    }

    /// How long a call usually takes: half of them took less.
    fn usual(&self) -> Option<Duration> {
        let mut took = self.took.clone();
        took.sort_unstable();
        took.get(took.len() / 2).copied()
    }
}

async fn look_up(
    session: &Session,
    nodes: &[Arc<Node>],
) -> Result<Vec<Result<api::Instance, Trouble>>, Trouble> {
    let power = session.offers(|offered| {
        let instances = offered.instances.as_ref();
        instances.is_some_and(|instances| instances.power_state)
    });
    let facets: &[api::InstanceFacet] = if power {
        &[api::InstanceFacet::Existence, api::InstanceFacet::Power]
    } else {
        &[api::InstanceFacet::Existence]
    };
    let asked: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
    session
        .lookup_instances(&asked, facets, Duration::ZERO)
        .await
}

/// Whether an answer about the one is an answer about the other.
fn same(one: &Node, other: &Node) -> bool {
    plan::uid(one) == plan::uid(other) && plan::provider_id(one) == plan::provider_id(other)
}

fn lock(calls: &Mutex<Calls>) -> MutexGuard<'_, Calls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}
