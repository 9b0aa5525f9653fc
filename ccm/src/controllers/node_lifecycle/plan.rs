//! One pass over the Nodes that are not Ready: what to ask, and what the answers lead to. Pure.
//!
//! A Node that is old enough is due for deletion after ABSENT in two *valid* passes in a row. The
//! ccm discards a void pass. A pass is void in three cases: a Ready Node gets ABSENT, an answer is
//! about another Node's instance, or, while Nodes may be deleted, the provider recognises no
//! witness for an ABSENT.
//!
//! Witnesses are Ready Nodes. Each pass takes the next ones by name. The ccm asks about them only
//! if a Node gets ABSENT, or got it last time. It asks about as many witnesses as there are such
//! Nodes, at most three. If the provider recognises none of them, the ccm asks about the rest of
//! the three. A witness's answer must not be older than the ABSENT that it vouches for, so a later
//! ABSENT gets other witnesses. If no Node is Ready, the Nodes that are not Ready vouch for each
//! other. If the provider recognises none of these Nodes, a pass with an ABSENT is void.
//!
//! So if a provider reads the wrong account and recognises no Node, the ccm deletes no Node. If all
//! instances of a cluster are gone, its Nodes stay until the provider recognises a Node.
//!
//! The ccm asks less often about a Node whose answer and Ready condition stay the same. It waits
//! for a tenth of the time since the last change, at least one period and at most `MOST_PERIODS`
//! periods, and one period after a failed lookup. A Node may wait longer, for example after a slow
//! answer, or if the brake holds it back.

mod answers;
mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::InstanceState::{Absent, Stopped, Unspecified};
use cloud_provider_api::v1alpha1 as api;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::brake::{Brake, Due, Verdict};
use super::evidence::Answer;
use crate::planted::planted;
#[cfg(test)]
pub(crate) use answers::MOST_PERIODS;
use answers::{Absence, Known, failed, is_recognised, void, vouches_as_ready};
pub(super) use answers::{is_claim, is_none_ready, is_too_old, vouched_until};
use nodes::{
    condition, has_shutdown_taint, ids_of_several, is_going, is_older, is_suspect, is_witness,
};
pub(super) use nodes::{
    last_look, name, provider_id, uid, with_shutdown_taint, without_shutdown_taint,
};

/// The most witnesses that the ccm asks about before one vouches. Later claims may get as many.
pub(super) const WITNESSES: usize = 3;
/// The results of the passes so far. Holds only Nodes that exist, by UID.
#[derive(Debug)]
pub(super) struct Ledger {
    min_age: Duration,
    period: Duration,
    /// A longer time between two ABSENT answers counts only as this time, or as the deadline of a
    /// lookup if that is longer: the instance may have existed in between.
    longest_step: Duration,
    absences: BTreeMap<String, Absence>,
    /// The last answer of a valid pass in this session about each Node that is not Ready.
    known: BTreeMap<String, Known>,
    /// The last witness. The next ones follow it in the order of names.
    last_witness: String,
}

/// The questions of a pass.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// No Node is suspect: all are Ready, or being deleted.
    pub(super) idle: bool,
    /// Nodes that are not Ready and have no ABSENT that counts.
    pub(super) suspects: Vec<Arc<Node>>,
    /// Nodes whose last answer was an ABSENT that counts. The ccm asks about witnesses together
    /// with them.
    pub(super) absent: Vec<Arc<Node>>,
}

/// The input of a pass.
pub(super) struct Findings<'a> {
    /// The answers that have arrived.
    pub(super) answers: &'a [Answer],
    /// All Nodes of this provider, as they are after the answers.
    pub(super) nodes: &'a [Arc<Node>],
    /// Nodes may be deleted: since the pass began, the provider has been READY and its cloud scope
    /// the accepted one.
    pub(super) may_delete: bool,
    /// The provider can report STOPPED.
    pub(super) power_state: bool,
    /// The deadline of a lookup.
    pub(super) deadline: Duration,
    /// When the pass began.
    pub(super) start: Instant,
    pub(super) now: Instant,
    /// The time now, as Kubernetes stores it.
    pub(super) wall: Timestamp,
}

/// The result of a pass.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// The Nodes to delete if they are still the same when read again. They count as deleted until
    /// `Ledger::postpone`, `Ledger::spare`, `Ledger::listed`, or `Ledger::interrupt` with
    /// `certain`.
    pub(super) delete: Vec<Arc<Node>>,
    /// The Node in `delete` is one of two. If the provider offers a list, the deletion needs a
    /// complete one.
    pub(super) one_of_two: bool,
    /// The Nodes to taint as shut down.
    pub(super) taint: Vec<Arc<Node>>,
    /// Due Nodes that the brake holds back.
    pub(super) held: Vec<Arc<Node>>,
    /// Due Nodes that stay because another Node has the same provider ID. An answer may mean either
    /// Node.
    pub(super) shared: Vec<Arc<Node>>,
    /// Some due Nodes got no answer in this pass.
    pub(super) waiting: bool,
    /// Why the pass is void, for people.
    pub(super) void: Option<String>,
    /// Why the pass learned nothing: all answers are failures, and not only missed deadlines.
    /// Unlike a void pass, it does not change the counts of Nodes that got no answer at all.
    pub(super) failed: Option<String>,
}

impl Ledger {
    /// An empty ledger. A Node that is not older than `min_age` is never due.
    pub(super) fn new(min_age: Duration, period: Duration, longest_step: Duration) -> Self {
        Self {
            min_age,
            period,
            longest_step,
            absences: BTreeMap::new(),
            known: BTreeMap::new(),
            last_witness: String::new(),
        }
    }

    /// Begins a new session: no earlier answer counts. The brake keeps its deletions.
    pub(super) fn start_over(&mut self) {
        self.absences.clear();
        self.known.clear();
    }

    /// Makes this Node due, because the provider hinted at it.
    pub(super) fn hinted(&mut self, node: &Node, now: Instant) {
        if let Some(known) = self.known.get_mut(uid(node)) {
            known.due = now;
            known.hinted = Some(now);
        }
    }

    /// The questions of a pass. `nodes` are all Nodes of this provider, sorted by name. `busy`: a
    /// call about the Node is under way, or its ABSENT waits for a witness. Without suspects there
    /// are no questions, and the brake is released unless an absence is left.
    pub(super) fn questions(
        &mut self,
        brake: &mut Brake,
        nodes: &[Arc<Node>],
        busy: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Questions {
        let suspects: Vec<&Arc<Node>> = nodes
            .iter()
            .filter(|node| {
                let known = self.absences.get(uid(node));
                is_suspect(node) && known.is_none_or(|absence| !absence.sent)
            })
            .collect();
        let uids: BTreeSet<&str> = suspects.iter().map(|node| uid(node)).collect();
        self.keep_only(nodes, &uids);
        if suspects.is_empty() {
            if self.absences.is_empty() {
                brake.release();
            }
            return Questions {
                idle: true,
                ..Questions::default()
            };
        }
        let (absent, others) = suspects
            .into_iter()
            .filter(|node| !busy(uid(node)) && self.is_due(node, now))
            .cloned()
            .partition(|node| {
                let absence = self.absences.get(uid(node));
                absence.is_some_and(|absence| absence.in_row > 0)
            });
        Questions {
            idle: false,
            suspects: others,
            absent,
        }
    }

    /// The question about the Node that has waited longest. So the Nodes take turns.
    pub(super) fn one_for_all(&self, questions: &Questions) -> Questions {
        let due = |node: &&Arc<Node>| self.known.get(uid(node)).map(|known| known.due);
        let all = questions.suspects.iter().chain(&questions.absent);
        Questions {
            suspects: all.min_by_key(due).cloned().into_iter().collect(),
            ..Questions::default()
        }
    }

    fn is_due(&self, node: &Node, now: Instant) -> bool {
        self.known
            .get(uid(node))
            .is_none_or(|known| now >= known.due || known.condition != condition(node))
    }

    /// The next witnesses, at most `count`: Ready Nodes. If no Node is Ready: Nodes that the
    /// provider recognised before.
    pub(super) fn witnesses(
        &mut self,
        nodes: &[Arc<Node>],
        count: usize,
        busy: impl Fn(&str) -> bool,
    ) -> Vec<Arc<Node>> {
        let none_ready = is_none_ready(nodes);
        let known = &self.known;
        let fit = |node: &&Arc<Node>| {
            let fit = if none_ready {
                let known = known.get(uid(node));
                is_suspect(node) && known.is_some_and(|known| is_recognised(known.state))
            } else {
                is_witness(node)
            };
            fit && !busy(uid(node))
        };
        let last = self.last_witness.as_str();
        let after = nodes.iter().filter(|node| name(node) > last);
        let before = nodes.iter().take_while(|node| name(node) <= last);
        let witnesses = after.chain(before).filter(fit).take(count);
        let witnesses: Vec<Arc<Node>> = witnesses.cloned().collect();
        if let Some(last) = witnesses.last() {
            name(last).clone_into(&mut self.last_witness);
        }
        witnesses
    }

    /// Takes the answers, and decides what follows from them.
    pub(super) fn pass(&mut self, brake: &mut Brake, found: &Findings<'_>) -> Pass {
        let now_there: BTreeMap<&str, &Arc<Node>> =
            found.nodes.iter().map(|node| (uid(node), node)).collect();
        let suspects: Vec<&Arc<Node>> =
            found.nodes.iter().filter(|node| is_suspect(node)).collect();
        let suspect_uids: BTreeSet<&str> = suspects.iter().map(|node| uid(node)).collect();
        self.keep_only(found.nodes, &suspect_uids);
        // Keeps the answers about Nodes that are still suspect, and whose Ready condition and
        // provider ID have not changed since the question.
        let relevant: Vec<&Answer> = found
            .answers
            .iter()
            .filter(|answer| {
                let asked = &answer.node;
                now_there.get(uid(asked)).is_some_and(|node| {
                    is_suspect(node)
                        && provider_id(asked) == provider_id(node)
                        && condition(asked) == condition(node)
                })
            })
            .collect();

        let mut pass = Pass {
            void: void(found, &relevant, &now_there).filter(|_| !planted!(VoidPassesCount)),
            failed: failed(found.answers),
            ..Pass::default()
        };
        if pass.void.is_some() {
            self.break_rows();
            return pass;
        }
        let witnessed = found.answers.iter().any(vouches_as_ready);
        let mut reported = BTreeSet::new();
        for answer in relevant {
            match answer.state() {
                Absent => {
                    reported.insert(uid(&answer.node));
                }
                Unspecified => {}
                _ => brake.recognised(uid(&answer.node)),
            }
            self.note(answer, witnessed, found);
        }
        if found.power_state {
            let stopped = suspects.iter().filter(|node| self.is_stopped(node));
            pass.taint = stopped.map(|node| Arc::clone(node)).collect();
        }
        if !found.may_delete {
            self.break_rows();
            return pass;
        }
        if brake.holds() && self.may_release(brake, &suspects, found) {
            brake.release();
        }
        if !self.absences.is_empty() {
            self.judge(brake, &suspects, &reported, found, &mut pass);
        }
        pass
    }

    /// Whether no absence is left. A Node that shares its provider ID does not count: the ccm never
    /// deletes it, so its absence may last for ever.
    fn may_release(&self, brake: &Brake, suspects: &[&Arc<Node>], found: &Findings<'_>) -> bool {
        let ids = ids_of_several(found.nodes);
        let shares = |node: &Node| ids.contains(provider_id(node));
        let there = found.nodes.iter();
        let shared = there.filter(|node| shares(node) && self.absences.contains_key(uid(node)));
        if shared.count() < self.absences.len() {
            return false;
        }
        // The ledger may be new. Only answers about all suspects show that no absence is left. But
        // a lookup may fail for ever. So a Node whose lookups have failed for as long as
        // `brake.hold()` counts as answered, unless the brake has held that Node, perhaps in an
        // earlier session.
        let known = |node: &Node| self.known.get(uid(node));
        suspects.iter().all(|node| {
            known(node).is_some_and(|known| match known.state {
                Absent => known.listed || shares(node),
                Unspecified => {
                    !brake.has_held(uid(node))
                        && found.now.saturating_duration_since(known.since) >= brake.hold()
                }
                _ => true,
            })
        })
    }

    /// Whether the last answer shows the Node shut down in its present condition, and the Node has
    /// no shutdown taint yet.
    fn is_stopped(&self, node: &Node) -> bool {
        let known = self.known.get(uid(node));
        let stopped =
            known.is_some_and(|it| it.state == Stopped && it.condition == condition(node));
        stopped && !has_shutdown_taint(node)
    }

    /// Decides which of the due Nodes the ccm deletes now.
    fn judge(
        &mut self,
        brake: &mut Brake,
        suspects: &[&Arc<Node>],
        reported: &BTreeSet<&str>,
        found: &Findings<'_>,
        pass: &mut Pass,
    ) {
        let due = self.due(suspects, found, pass);
        // Only a Node with an ABSENT in this pass may be deleted. The others count for the brake.
        let (due, waiting): (Vec<_>, Vec<_>) = due
            .into_iter()
            .partition(|node| reported.contains(uid(node)));
        pass.waiting = !waiting.is_empty();
        let verdict = self.brake(brake, &due, &waiting, found);
        pass.one_of_two = verdict.one_of_two;
        let allowed: BTreeSet<usize> = verdict.allowed.into_iter().collect();
        // The ccm asks less often about a held Node. This delay still allows at least about fifteen
        // questions in a hold, and each step of the absence can count in full.
        let step = self.longest_step.saturating_sub(self.period);
        let next = found.start + step.min(brake.hold() / 15);
        for (place, node) in due.into_iter().enumerate() {
            if allowed.contains(&place) {
                brake.count(uid(node), found.now);
                if let Some(absence) = self.absences.get_mut(uid(node)) {
                    absence.sent = true;
                }
                pass.delete.push(Arc::clone(node));
            } else {
                // A Node that a hint made due stays due at once.
                if let Some(known) = self.known.get_mut(uid(node))
                    && known.due > found.now
                {
                    known.due = known.due.max(next);
                }
                pass.held.push(Arc::clone(node));
            }
        }
        if brake.holds() {
            pass.held.extend(waiting.into_iter().cloned());
        }
    }

    /// The Nodes that are old enough and have enough ABSENT answers. Those that share their
    /// provider ID go to `pass.shared`.
    fn due<'a>(
        &self,
        suspects: &[&'a Arc<Node>],
        found: &Findings<'_>,
        pass: &mut Pass,
    ) -> Vec<&'a Arc<Node>> {
        let is_due = |node: &Node| {
            let absence = self.absences.get(uid(node));
            absence.is_some_and(|absence| absence.is_due() && !absence.sent)
        };
        let due = suspects.iter().copied();
        let mut due: Vec<&Arc<Node>> = due
            .filter(|node| is_older(node, self.min_age, found.wall) && is_due(node))
            .collect();
        if !due.is_empty() {
            let ids = ids_of_several(found.nodes);
            let shares = |node: &&Arc<Node>| ids.contains(provider_id(node));
            pass.shared = due.iter().copied().filter(shares).cloned().collect();
            due.retain(|node| !shares(node));
        }
        due
    }

    /// Asks the brake about the due Nodes. `waiting` have no ABSENT in this pass.
    fn brake(
        &self,
        brake: &mut Brake,
        due: &[&Arc<Node>],
        waiting: &[&Arc<Node>],
        found: &Findings<'_>,
    ) -> Verdict {
        let absences = || due.iter().filter_map(|node| self.absences.get(uid(node)));
        let held: Vec<Duration> = absences().map(|absence| absence.held).collect();
        let uids: Vec<&str> = due.iter().chain(waiting).map(|node| uid(node)).collect();
        // A deletion counts once, though the watch may still show its Node.
        let gone = brake.gone(&uids);
        let there = found.nodes.iter();
        let there = there.filter(|node| !is_going(node) && !gone.contains(uid(node)));
        let due = Due {
            held: &held,
            waiting: waiting.len(),
            uids: &uids,
            witnessed: absences().all(|absence| absence.witnessed),
            nodes: there.count(),
        };
        brake.judge(&due, found.now)
    }

    /// A Node of `Pass::delete` was certainly not deleted, and its absence is over.
    pub(super) fn spare(&mut self, brake: &mut Brake, node: &Node) {
        self.absences.remove(uid(node));
        brake.uncount(uid(node));
    }

    /// The provider's list has the instance of a Node of `Pass::delete`.
    pub(super) fn listed(&mut self, brake: &mut Brake, node: &Node) {
        self.spare(brake, node);
        brake.recognised(uid(node));
        if let Some(known) = self.known.get_mut(uid(node)) {
            known.listed = true;
        }
    }

    /// A Node of `Pass::delete` waits for the provider's list. Its ABSENT answers still count.
    pub(super) fn postpone(&mut self, brake: &mut Brake, node: &Node) {
        self.unsend(node);
        brake.uncount(uid(node));
    }

    /// A Node of `Pass::delete` was not deleted, or may have been: it needs two new answers. How
    /// long it has been absent stays. `certain`: nothing was deleted.
    pub(super) fn interrupt(&mut self, brake: &mut Brake, node: &Node, certain: bool) {
        if let Some(absence) = self.unsend(node) {
            absence.break_row();
        }
        if certain {
            brake.uncount(uid(node));
        }
    }

    fn unsend(&mut self, node: &Node) -> Option<&mut Absence> {
        let absence = self.absences.get_mut(uid(node))?;
        absence.sent = false;
        Some(absence)
    }

    /// Makes the Node due with the next pass: the list that it waits for may come soon.
    pub(super) fn hurry(&mut self, node: &Node, now: Instant) {
        if let Some(known) = self.known.get_mut(uid(node)) {
            known.due = now;
        }
    }

    fn note(&mut self, answer: &Answer, witnessed: bool, found: &Findings<'_>) {
        let (uid, now) = (uid(&answer.node), found.now);
        let known = self.known.entry(uid.to_owned());
        let known = known.or_insert_with(|| Known::of(answer, now));
        let other_condition = known.answered(answer, now);
        let mut again = false;
        match known.state {
            Absent => {
                let absence = self.absences.entry(uid.to_owned()).or_default();
                // The Ready condition has changed, so the Node may have been Ready in between.
                if other_condition {
                    absence.break_row();
                }
                absence.answered(witnessed, self.longest_step, found);
                again = !absence.is_enough();
            }
            // A failed lookup or an unknown state breaks the row. The absence keeps its time.
            Unspecified => {
                if let Some(absence) = self.absences.get_mut(uid) {
                    absence.break_row();
                }
            }
            _ => {
                self.absences.remove(uid);
            }
        }
        known.plan(answer, again, self.period, found);
    }

    /// How many Nodes are reported gone, without those that the ccm is deleting.
    pub(super) fn absent(&self) -> usize {
        let absences = self.absences.values();
        absences.filter(|absence| !absence.sent).count()
    }

    /// The next ABSENT of each Node begins a new row.
    pub(super) fn break_rows(&mut self) {
        for absence in self.absences.values_mut() {
            absence.break_row();
        }
    }

    fn keep_only(&mut self, nodes: &[Arc<Node>], suspects: &BTreeSet<&str>) {
        self.known.retain(|uid, _| suspects.contains(uid.as_str()));
        if self.absences.is_empty() {
            return;
        }
        let there = nodes.iter().filter(|node| !is_going(node));
        let there: BTreeSet<&str> = there.map(|node| uid(node)).collect();
        self.absences.retain(|uid, absence| {
            suspects.contains(uid.as_str()) || absence.sent && there.contains(uid.as_str())
        });
    }
}

impl Answer {
    /// The instance's state; `Unspecified` if the lookup failed or the state is unknown.
    pub(super) fn state(&self) -> api::InstanceState {
        let instance = self.found.as_ref();
        instance.map_or(Unspecified, api::Instance::state)
    }
}

#[cfg(test)]
mod tests;
