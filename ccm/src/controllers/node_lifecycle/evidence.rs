//! Collects the answers that a pass judges, and the ABSENT ones only with a witness (▲L6).
//!
//! An ABSENT answer is a claim until a witness vouches for the provider. A claim may wait for its
//! witnesses over several passes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::ask::{Answer, Asker, EXISTENCE, POWER};
use super::plan::{self, Ledger, Questions, WITNESSES};
use crate::provider::Session;

/// The state of one session that lasts from pass to pass.
pub(super) struct Evidence {
    asker: Asker,
    /// ABSENT answers without a witness so far.
    claims: Vec<Answer>,
    /// How many witnesses were asked because of the claims.
    asked: usize,
    /// UIDs of the witnesses that have not answered yet.
    witnesses: BTreeSet<String>,
    /// Set while the cloud refuses the provider's credentials for every Node. From this time on,
    /// one Node at a time stands for all.
    refused: Option<Instant>,
    /// The longest wait for the answers to one round of questions.
    wait: Duration,
}

impl Evidence {
    /// `arrived` is notified of each answer.
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
        let mut witnessed = self.ask(session, ledger, nodes, questions);
        let mut answers = Vec::new();
        self.gather(&mut answers).await;
        if !may_delete {
            answers.append(&mut self.claims);
            return answers;
        }
        let now = Instant::now();
        self.claims.retain(|claim| !plan::is_too_old(claim, now));
        while let Some(next) = self.further_witnesses(ledger, nodes, witnessed, &mut answers) {
            witnessed = true;
            self.asker.ask(session, next, EXISTENCE);
            self.gather(&mut answers).await;
        }
        let (vouched, open) = std::mem::take(&mut self.claims)
            .into_iter()
            .partition(|claim| plan::is_vouched(claim, &answers, nodes));
        self.claims = open;
        answers.extend::<Vec<_>>(vouched);
        if self.claims.is_empty() && self.witnesses.is_empty() {
            self.asked = 0;
        }
        answers
    }

    /// The questions that may be sent now. While the cloud refuses the credentials, that is one
    /// Node for all. Its answer frees the others.
    fn affordable(&self, ledger: &Ledger, questions: Questions) -> Questions {
        match self.refused {
            None => questions,
            Some(until) if until <= Instant::now() && !self.asker.is_asking() => {
                ledger.one_for_all(&questions)
            }
            Some(_) => Questions::default(),
        }
    }

    /// Sends the questions. Returns whether they include witnesses.
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

    /// The next witnesses for claims without one. `None`: no more in this pass. `witnessed`: this
    /// pass has asked some already.
    fn further_witnesses(
        &mut self,
        ledger: &mut Ledger,
        nodes: &[Arc<Node>],
        witnessed: bool,
        answers: &mut Vec<Answer>,
    ) -> Option<Vec<Arc<Node>>> {
        let claims = self.claims.iter();
        let open = claims.filter(|claim| !plan::is_vouched(claim, answers, nodes));
        let open = open.count();
        // The witnesses of this pass had their time to answer. The next pass asks others too.
        let awaited = !self.witnesses.is_empty() && (witnessed || self.asked >= WITNESSES);
        if open == 0 || self.is_refused() || awaited {
            return None;
        }
        let count = if self.asked == 0 {
            open.min(WITNESSES)
        } else {
            WITNESSES.saturating_sub(self.asked)
        };
        let next = self.next_witnesses(ledger, nodes, count, &[]);
        if !next.is_empty() {
            return Some(next);
        }
        // If no Node is Ready, any other Node whose answer is still to come may vouch for the
        // claims.
        let awaited = plan::is_none_ready(nodes) && self.asker.is_asking();
        if self.witnesses.is_empty() && !awaited {
            // The claims stay without a witness, so the pass is void.
            answers.append(&mut self.claims);
        }
        None
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

    /// Takes the answers that arrive within the wait. ABSENT answers become claims.
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
