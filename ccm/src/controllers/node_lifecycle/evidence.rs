//! Asks about Nodes, and collects the answers that a pass judges. An ABSENT answer counts for a
//! deletion only with a witness (▲L6).
//!
//! An ABSENT answer about a Node that is not Ready is a claim until a witness vouches for the
//! provider. A claim may wait for its witnesses over several passes.
//!
//! A lookup that hangs delays the Nodes of its call until the call's deadline. It delays a pass
//! only by the wait for answers (▲M10). Each batch is a call with a deadline of its own, and may
//! outlast its pass. A pass takes the answers that have arrived. It asks about a Node only while no
//! other call about that Node is under way. If a call about several Nodes misses its deadline, the
//! next calls about them hold a tenth as many Nodes. That repeats until an answer comes.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use futures::stream::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::plan::{self, Ledger, Questions, WITNESSES};
use crate::core::lock;
use crate::planted::planted;
use crate::provider::lookup::{self, Called, IsolatedKeys};
use crate::provider::{CallError, CallErrorCode, Session};

/// The deadline of a call about one isolated Node, if this controller makes one call at a time.
const ONLY_PLACE: Duration = Duration::from_secs(10);
/// The most calls whose answers the channel holds until a pass takes them.
const BACKLOG: usize = 64;

/// The facets for a suspect: its machine may be shut down.
const POWER: &[api::InstanceFacet] = &[api::InstanceFacet::Existence, api::InstanceFacet::Power];
/// The facets if only ABSENT matters.
const EXISTENCE: &[api::InstanceFacet] = &[api::InstanceFacet::Existence];

/// The provider's answer about one Node.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// The Node, as it was when the ccm asked.
    pub(super) node: Arc<Node>,
    /// When the ccm began the call.
    pub(super) began: Instant,
    /// When the answer came.
    pub(super) at: Instant,
    pub(super) found: Result<api::Instance, CallError>,
}

/// The state of one session that lasts from pass to pass.
pub(super) struct Evidence {
    asker: Asker,
    /// ABSENT answers without a witness so far.
    claims: Vec<Answer>,
    /// How many witnesses the ccm has asked about for the open claims. It counts those that it
    /// asked about in advance, together with Nodes whose answers may become claims.
    asked: usize,
    /// UIDs of the witnesses about which no answer has come yet.
    witnesses: BTreeSet<String>,
    /// Set while the cloud refuses the provider's credentials. From this time on, the ccm asks
    /// about one Node at a time as a probe.
    refused: Option<Instant>,
    /// The longest wait for the answers to one round of questions.
    wait: Duration,
}

impl Evidence {
    /// `arrived` is notified when the answers of a call arrive.
    pub(super) fn new(wait: Duration, arrived: &Arc<Notify>) -> Self {
        Self {
            asker: Asker::new(Arc::clone(arrived)),
            claims: Vec::new(),
            asked: 0,
            witnesses: BTreeSet::new(),
            refused: None,
            wait,
        }
    }

    /// Drops all earlier answers and all calls under way.
    pub(super) fn give_up(&mut self) {
        self.asker.give_up();
        self.claims.clear();
        self.asked = 0;
        self.witnesses.clear();
        self.refused = None;
    }

    /// The cloud refuses the credentials, whatever the question: the ccm asks about no Node before
    /// `until`.
    pub(super) fn refused(&mut self, until: Instant) {
        self.refused = Some(until);
    }

    /// Whether the cloud refused the credentials, and no lookup has succeeded since.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Whether answers have come that no pass has judged.
    pub(super) fn has_news(&self) -> bool {
        self.asker.has_news()
    }

    /// Whether a call about this Node is under way, or its ABSENT waits for a witness.
    pub(super) fn is_busy(&self, uid: &str) -> bool {
        self.asker.is_asked(uid) || self.is_claimed(uid)
    }

    fn is_claimed(&self, uid: &str) -> bool {
        let mut claims = self.claims.iter();
        claims.any(|claim| plan::uid(&claim.node) == uid)
    }

    /// Asks these questions, and returns the answers that count now. `nodes` are all Nodes of this
    /// provider.
    pub(super) async fn collect(
        &mut self,
        session: &Arc<Session>,
        ledger: &mut Ledger,
        nodes: &[Arc<Node>],
        questions: Questions,
        may_delete: bool,
    ) -> Vec<Answer> {
        self.asker.keep(nodes);
        let questions = self.affordable(ledger, questions);
        let witnessed = self.ask(session, ledger, nodes, questions);
        let mut answers = Vec::new();
        self.gather(&mut answers).await;
        if !may_delete {
            answers.append(&mut self.claims);
            return answers;
        }
        let none_ready = plan::is_none_ready(nodes);
        let mut rounds = 0;
        let vouched = loop {
            let now = Instant::now();
            let deadline = session.deadlines.lookup;
            self.claims
                .retain(|claim| !plan::is_too_old(claim, deadline, now));
            let vouched = plan::vouched_until(&answers, none_ready);
            if vouched.is_some() && !planted!(WitnessesVouchOnce) {
                // Claims that came later, also in the next pass, may have other witnesses.
                self.asked = self.witnesses.len();
            }
            let witnessed = witnessed || rounds > 0;
            let open = self.claims.iter().filter(|claim| Some(claim.at) > vouched);
            let open = open.count();
            if open == 0 || !self.needs_witnesses(witnessed, vouched, rounds) {
                break vouched;
            }
            let count = if self.asked == 0 {
                open.min(WITNESSES)
            } else {
                WITNESSES.saturating_sub(self.asked)
            };
            let next = self.next_witnesses(ledger, nodes, count, &[]);
            if next.is_empty() {
                // If no Node is Ready, any other Node whose answer is still to come may vouch.
                let awaited = none_ready && self.asker.is_asking();
                if vouched.is_none() && self.witnesses.is_empty() && !awaited {
                    // The claims stay without a witness, so the pass is void.
                    answers.append(&mut self.claims);
                }
                break vouched;
            }
            self.asker.ask(session, next, EXISTENCE);
            self.gather(&mut answers).await;
            rounds += 1;
        };
        let (counted, open) = std::mem::take(&mut self.claims)
            .into_iter()
            .partition(|claim| Some(claim.at) <= vouched);
        self.claims = open;
        answers.extend::<Vec<_>>(counted);
        if self.claims.is_empty() && self.witnesses.is_empty() {
            self.asked = 0;
        }
        answers
    }

    /// The questions that may be sent now. While the cloud refuses the credentials, that is at most
    /// one question, as a probe. When a lookup succeeds, all questions may be sent again.
    fn affordable(&self, ledger: &Ledger, questions: Questions) -> Questions {
        match self.refused {
            None => questions,
            Some(until) if until <= Instant::now() && !self.asker.is_asking() => {
                ledger.one_for_all(&questions)
            }
            Some(_) => Questions::default(),
        }
    }

    /// Sends the questions. Returns whether it has looked for witnesses: it does so if
    /// there are Nodes in `questions.absent`.
    fn ask(
        &mut self,
        session: &Arc<Session>,
        ledger: &mut Ledger,
        nodes: &[Arc<Node>],
        questions: Questions,
    ) -> bool {
        self.asker.ask(session, questions.suspects, POWER);
        let absent = questions.absent;
        if absent.is_empty() {
            return false;
        }
        let count = absent.len().min(WITNESSES);
        let mut together = self.next_witnesses(ledger, nodes, count, &absent);
        together.extend(absent);
        self.asker.ask(session, together, EXISTENCE);
        true
    }

    /// Whether this pass asks about further witnesses, for claims that came after `vouched`, the
    /// last answer of a witness. `witnessed`: this pass has looked for witnesses already.
    fn needs_witnesses(&self, witnessed: bool, vouched: Option<Instant>, rounds: usize) -> bool {
        if self.is_refused() {
            return false;
        }
        // The provider recognised a witness, but these claims came later.
        if vouched.is_some() && rounds >= WITNESSES {
            return false;
        }
        // Answers about witnesses are still to come, and this pass has waited for them or may ask
        // about no more witnesses. The next pass may ask about others, up to `WITNESSES` in all.
        self.witnesses.is_empty() || !witnessed && self.asked < WITNESSES
    }

    /// Picks witnesses to ask now, and takes note of them.
    fn next_witnesses(
        &mut self,
        ledger: &mut Ledger,
        nodes: &[Arc<Node>],
        count: usize,
        absent: &[Arc<Node>],
    ) -> Vec<Arc<Node>> {
        let absent: BTreeSet<&str> = absent.iter().map(|node| plan::uid(node)).collect();
        let busy = |uid: &str| self.is_busy(uid) || absent.contains(uid);
        let next = ledger.witnesses(nodes, count, busy);
        self.asked += next.len();
        let uids = next.iter().map(|node| plan::uid(node).to_owned());
        self.witnesses.extend(uids);
        next
    }

    /// Takes the answers that arrive within the wait. An ABSENT about a Node that is not Ready
    /// becomes a claim.
    async fn gather(&mut self, answers: &mut Vec<Answer>) {
        for answer in self.asker.gather(Instant::now() + self.wait).await {
            self.witnesses.remove(plan::uid(&answer.node));
            if answer.found.is_ok() {
                self.refused = None;
            }
            if plan::is_claim(&answer) {
                self.claims.push(answer);
            } else {
                answers.push(answer);
            }
        }
        let asker = &self.asker;
        self.witnesses.retain(|uid| asker.is_asked(uid));
    }
}

/// The calls of a session, and the answers that no pass has taken yet.
struct Asker {
    isolated: Arc<IsolatedKeys>,
    calls: JoinSet<()>,
    /// The Nodes with a call under way, by UID, and the round of the call.
    under_way: BTreeMap<String, u64>,
    round: u64,
    /// The places for the calls of the current session.
    places: Option<Arc<Places>>,
    sender: mpsc::Sender<Vec<Answer>>,
    answers: mpsc::Receiver<Vec<Answer>>,
    /// Notified of each call's answers.
    arrived: Arc<Notify>,
}

/// Limits the calls under way. A call that waits in the session's limiter for too long fails.
struct Places {
    width: usize,
    all: Semaphore,
    /// Limits the calls about isolated Nodes. If these hang, other Nodes still find places, unless
    /// `width` is 1.
    alone: Semaphore,
}

impl Asker {
    fn new(arrived: Arc<Notify>) -> Self {
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
    fn give_up(&mut self) {
        let isolated = Arc::clone(&self.isolated);
        *self = Self {
            isolated,
            ..Self::new(Arc::clone(&self.arrived))
        };
    }

    /// Forgets Nodes that no longer exist.
    fn keep(&self, nodes: &[Arc<Node>]) {
        self.isolated.keep(lookup::has_uid(nodes));
    }

    /// Whether a call about this Node is under way.
    fn is_asked(&self, uid: &str) -> bool {
        self.under_way.contains_key(uid)
    }

    /// Whether a call about any Node is under way.
    fn is_asking(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Starts the calls for all questions, in batches (▲L5). [`Places`] limits how many run.
    fn ask(
        &mut self,
        session: &Arc<Session>,
        nodes: Vec<Arc<Node>>,
        facets: &'static [api::InstanceFacet],
    ) {
        let places = self.places.get_or_insert_with(|| {
            // If there are several places, one stays free for lookups that initialise Nodes.
            let width = session.limiters.instances.width.saturating_sub(1).max(1);
            Arc::new(Places {
                width,
                all: Semaphore::new(width),
                alone: Semaphore::new(width.div_ceil(2)),
            })
        });
        let uids = nodes.iter().map(|node| plan::uid(node).to_owned());
        self.under_way.extend(uids.map(|uid| (uid, self.round)));
        for batch in session.batches(&self.isolated, nodes) {
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
                        began: lock(sent).remove(plan::uid(&lookup.item)).unwrap_or(at),
                        node: lookup.item,
                        at,
                        found: lookup.answer,
                    });
                    // If this fails, the asker has given these calls up.
                    if sender.send(answers.collect()).await.is_err() {
                        return;
                    }
                    arrived.notify_one();
                }
            });
        }
    }

    /// Whether answers have come that [`Self::gather`] has not returned.
    fn has_news(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Waits until all questions since the last `gather` have an answer, but not longer than
    /// `until`. Returns all answers that have arrived.
    async fn gather(&mut self, until: Instant) -> Vec<Answer> {
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
            // A task that panicked leaves its Nodes in `under_way`.
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
    let alone = isolated.are_alone(&nodes);
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
    isolated.late(&nodes, &outcome);
    (nodes, outcome)
}

fn no_answer() -> CallError {
    let waited = ONLY_PLACE.as_secs();
    let message =
        format!("no answer within {waited} s, and the pass can start no other lookup meanwhile");
    CallError::new(CallErrorCode::Deadline, message)
}
