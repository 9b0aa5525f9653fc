//! Asks about Nodes. A Node whose lookup hangs does not keep the others waiting (▲M10).
//!
//! Each batch is a call with a deadline of its own, and may outlast its pass. A pass takes the
//! answers that have arrived. It asks about a Node only while no other call about that Node is
//! under way. If a call about several Nodes misses its deadline, the next calls about them hold a
//! tenth as many Nodes. That repeats until an answer comes.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use futures::stream::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::plan;
use crate::core::lock;
use crate::planted::planted;
use crate::provider::lookup::{self, Called, IsolatedKeys};
use crate::provider::{CallError, CallErrorCode, Session};

/// The deadline of a call about one isolated Node, if this controller makes one call at a time.
const ONLY_PLACE: Duration = Duration::from_secs(10);
/// The most calls whose answers wait for a pass to take them.
const BACKLOG: usize = 64;

/// Asked about a suspect: it may be shut down.
pub(super) const POWER: &[api::InstanceFacet] =
    &[api::InstanceFacet::Existence, api::InstanceFacet::Power];
/// Asked where only ABSENT matters.
pub(super) const EXISTENCE: &[api::InstanceFacet] = &[api::InstanceFacet::Existence];

/// The provider's answer about one Node.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// The Node, as it was when the ccm asked.
    pub(super) node: Arc<Node>,
    /// When the ccm sent the call.
    pub(super) began: Instant,
    /// When the answer came.
    pub(super) at: Instant,
    pub(super) found: Result<api::Instance, CallError>,
}

/// The state that lasts from pass to pass.
pub(super) struct Asker {
    isolated: Arc<IsolatedKeys>,
    calls: JoinSet<()>,
    /// The Nodes with a call under way, by UID, and the round of the call.
    under_way: BTreeMap<String, u64>,
    round: u64,
    /// Places of the current session.
    places: Option<Arc<Places>>,
    sender: mpsc::Sender<Vec<Answer>>,
    answers: mpsc::Receiver<Vec<Answer>>,
    /// Notified of each call's answers.
    arrived: Arc<Notify>,
}

/// Limits the calls under way. The session's limiter would let them wait while their deadlines run.
struct Places {
    width: usize,
    all: Semaphore,
    /// Limits the calls about isolated Nodes: if they hang, other Nodes still find places.
    alone: Semaphore,
}

impl Asker {
    pub(super) fn new(arrived: Arc<Notify>) -> Self {
        let (sender, answers) = mpsc::channel(BACKLOG);
        Self {
            isolated: Arc::default(),
            calls: JoinSet::new(),
            under_way: BTreeMap::new(),
            round: 0,
            places: None,
            sender,
            answers,
            arrived,
        }
    }

    /// Drops all calls under way, and the answers that have arrived.
    pub(super) fn give_up(&mut self) {
        let isolated = Arc::clone(&self.isolated);
        *self = Self {
            isolated,
            ..Self::new(Arc::clone(&self.arrived))
        };
    }

    /// Forgets Nodes that no longer exist.
    pub(super) fn keep(&self, nodes: &[Arc<Node>]) {
        self.isolated.keep(nodes);
    }

    /// Whether a call about this Node is under way.
    pub(super) fn is_asked(&self, uid: &str) -> bool {
        self.under_way.contains_key(uid)
    }

    /// Whether a call about any Node is under way.
    pub(super) fn is_asking(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Sends all questions at once, in batches (▲L5).
    pub(super) fn ask(
        &mut self,
        session: &Arc<Session>,
        nodes: Vec<Arc<Node>>,
        facets: &'static [api::InstanceFacet],
    ) {
        let places = self.places.get_or_insert_with(|| {
            // One place stays free for lookups that initialise Nodes.
            let width = session.max_lookups().saturating_sub(1).max(1);
            Arc::new(Places {
                width,
                all: Semaphore::new(width),
                alone: Semaphore::new(width.div_ceil(2)),
            })
        });
        let uids = nodes.iter().map(|node| plan::uid(node).to_owned());
        self.under_way.extend(uids.map(|uid| (uid, self.round)));
        for batch in self.isolated.batches(nodes, session.max_batch()) {
            let (session, places) = (Arc::clone(session), Arc::clone(places));
            let (isolated, sender) = (Arc::clone(&self.isolated), self.sender.clone());
            let arrived = Arc::clone(&self.arrived);
            self.calls.spawn(async move {
                let sent = &Mutex::new(BTreeMap::new());
                let mut answers = pin!(lookup::answers(vec![batch], |nodes| call(
                    &session, &places, &isolated, sent, nodes, facets
                )));
                while let Some(found) = answers.next().await {
                    let at = Instant::now();
                    isolated.learn(&found);
                    let answers = found.into_iter().map(|lookup| Answer {
                        began: lock(sent).remove(plan::uid(&lookup.node)).unwrap_or(at),
                        node: lookup.node,
                        at,
                        found: lookup.answer,
                    });
                    // The asker has given these calls up.
                    if sender.send(answers.collect()).await.is_err() {
                        return;
                    }
                    arrived.notify_one();
                }
            });
        }
    }

    /// Whether answers have come that [`Self::gather`] has not returned.
    pub(super) fn has_news(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Waits until all questions since the last `gather` have an answer, at most until `until`.
    /// Returns all answers that have arrived.
    pub(super) async fn gather(&mut self, until: Instant) -> Vec<Answer> {
        let mut gathered = self.reap();
        let round = self.round;
        while self.under_way.values().any(|of| *of == round)
            && let Ok(Some(answers)) = timeout_at(until, self.answers.recv()).await
        {
            gathered.extend(self.take(answers));
            gathered.extend(self.reap());
        }
        if planted!(SlowAnswersAreGivenUp) {
            self.calls.abort_all();
            self.under_way.clear();
        }
        self.round += 1;
        gathered
    }

    fn take(&mut self, answers: Vec<Answer>) -> Vec<Answer> {
        for answer in &answers {
            self.under_way.remove(plan::uid(&answer.node));
        }
        answers
    }

    fn reap(&mut self) -> Vec<Answer> {
        while self.calls.try_join_next().is_some() {}
        let over = self.calls.is_empty();
        let mut reaped = Vec::new();
        while let Ok(answers) = self.answers.try_recv() {
            reaped.extend(self.take(answers));
        }
        if over {
            // A task that panicked leaves its Nodes here.
            self.under_way.clear();
        }
        reaped
    }
}

async fn call(
    session: &Session,
    places: &Places,
    isolated: &IsolatedKeys,
    sent: &Mutex<BTreeMap<String, Instant>>,
    nodes: Vec<Arc<Node>>,
    facets: &[api::InstanceFacet],
) -> Called<api::Instance> {
    let alone = nodes.len() == 1 && nodes.iter().any(|node| isolated.is_alone(node));
    // Nobody closes these semaphores.
    let _alone = if alone {
        places.alone.acquire().await.ok()
    } else {
        None
    };
    let _place = places.all.acquire().await;
    let now = Instant::now();
    let uids = nodes.iter().map(|node| plan::uid(node).to_owned());
    lock(sent).extend(uids.map(|uid| (uid, now)));
    let asked: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
    let lookup = session.lookup_instances(&asked, facets, Duration::ZERO);
    let outcome = if alone && places.width == 1 {
        let outcome = timeout(ONLY_PLACE, lookup).await;
        outcome.unwrap_or_else(|_| Err(no_answer()))
    } else {
        lookup.await
    };
    if let Err(trouble) = &outcome
        && trouble.code == CallErrorCode::Deadline
    {
        isolated.late(&nodes);
    }
    (nodes, outcome)
}

fn no_answer() -> CallError {
    CallError {
        code: CallErrorCode::Deadline,
        reason: String::new(),
        message: format!(
            "no answer within {} s, and the provider takes no other call meanwhile",
            ONLY_PLACE.as_secs()
        ),
        retry_after: None,
        call_id: None,
    }
}
