//! One pass over the Nodes that are not Ready: what is asked, and what follows from the answers. Pure.
//!
//! A Node is due for deletion when the provider called its instance ABSENT in two *valid* passes in a row. A pass is void, and counts for
//! nothing, when a Ready Node is called ABSENT, an answer is about another Node's instance, or no witness is recognised. Witnesses are Ready Nodes, others in
//! each pass. They are asked only where a Node is called ABSENT: as many of them as such Nodes, at most three, and the rest of the three where none of those
//! is recognised. Their answer must not be older than the one that they vouch for. Where no Node is Ready, the Nodes that are asked about are their own witnesses: if the
//! provider recognises none of them the pass is void. So a provider that looks into the wrong account, or an empty answer, deletes nothing, whatever the
//! number of Nodes; and the Nodes of a cluster whose instances are all gone stay until one Node is Ready again.
//!
//! A Node about which nothing changes is asked about less and less often: it waits for a tenth of the time that it has been so.

mod nodes;
mod record;
mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::InstanceState::{Absent, Stopped, Unspecified};
use cloud_provider_api::v1alpha1 as api;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::ask::Answer;
use super::brake::{Brake, Due, Verdict};
use crate::planted::planted;
use nodes::{
    condition, has_shutdown_taint, ids_of_several, is_going, is_older, is_suspect, is_witness,
};
pub(super) use nodes::{
    last_look, name, provider_id, uid, with_shutdown_taint, without_shutdown_taint,
};
#[cfg(test)]
pub(crate) use record::MOST_PERIODS;
use record::{Absence, Known};
use trust::{failed, is_recognised, void, vouches_as_ready};
pub(super) use trust::{is_claim, is_none_ready, is_too_old, is_vouched};

/// At most so many Ready Nodes are asked about in a pass.
pub(super) const WITNESSES: usize = 3;
/// What the passes so far have shown. Holds only Nodes that exist, by UID.
#[derive(Debug)]
pub(super) struct Ledger {
    min_age: Duration,
    period: Duration,
    /// Two passes that are further apart count as so far apart only: nobody knows what was between.
    longest_step: Duration,
    absences: BTreeMap<String, Absence>,
    /// The Nodes that are not Ready and were asked about in this session.
    known: BTreeMap<String, Known>,
    /// The last witness: the next ones come after it in the order of names.
    last_witness: String,
}

/// What a pass asks.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// No Node is suspect: all are Ready, or on their way out.
    pub(super) idle: bool,
    /// Nodes that are not Ready.
    pub(super) suspects: Vec<Arc<Node>>,
    /// Those of which the last answer was ABSENT: witnesses are asked together with them.
    pub(super) absent: Vec<Arc<Node>>,
}

/// What a pass has found.
pub(super) struct Findings<'a> {
    /// What has arrived. Of other Nodes nothing new is known.
    pub(super) answers: &'a [Answer],
    /// All Nodes with this provider's ID, as they are after the answers.
    pub(super) nodes: &'a [Arc<Node>],
    /// The provider is READY and its scope the accepted one.
    pub(super) may_delete: bool,
    /// It can tell STOPPED.
    pub(super) power_state: bool,
    /// When the pass began.
    pub(super) start: Instant,
    /// Now.
    pub(super) now: Instant,
    /// Now, as Kubernetes stores it.
    pub(super) wall: Timestamp,
}

/// What follows.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// To delete, after a last look; counted as deleted until `Ledger::spare` says otherwise.
    pub(super) delete: Vec<Arc<Node>>,
    /// The one of `delete` is one of two Nodes: where the provider offers a list, it goes only by a complete one.
    pub(super) one_of_two: bool,
    /// To taint as shut down.
    pub(super) taint: Vec<Arc<Node>>,
    /// Due, and held back by the brake.
    pub(super) held: Vec<Arc<Node>>,
    /// Due, and kept because another Node has the same provider ID: which of them is meant nobody knows.
    pub(super) shared: Vec<Arc<Node>>,
    /// Nodes are due that this pass was told nothing about.
    pub(super) waiting: bool,
    /// The brake began to hold in this pass.
    pub(super) engaged: bool,
    /// Why the pass counts for nothing, for people.
    pub(super) void: Option<String>,
    /// Why it was told nothing: all that arrived are failures. The rows of other Nodes stand.
    pub(super) failed: Option<String>,
}

impl Ledger {
    /// An empty ledger; a Node that is younger than `min_age` is never due; `longest_step` is the longest time that two passes in a row may be apart.
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

    /// Another session: no answer of an earlier one counts. What was deleted still does.
    pub(super) fn start_over(&mut self) {
        self.absences.clear();
        self.known.clear();
    }

    /// The provider hinted at this Node.
    pub(super) fn hinted(&mut self, node: &Node, now: Instant) {
        if let Some(known) = self.known.get_mut(uid(node)) {
            known.due = now;
            known.hinted = Some(now);
        }
    }

    /// What to ask; `nodes` are all with this provider's ID, in the order of their names; `busy` are those that are being asked about. Without suspects
    /// nothing is asked, and what was held against anybody is forgotten.
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

    /// One of these questions for all: about the Node that waits for longest. So they take turns.
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

    /// The next witnesses, at most so many: Ready Nodes. Where there is none: Nodes that the provider recognised before.
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

    /// What follows from the answers.
    pub(super) fn pass(&mut self, brake: &mut Brake, found: &Findings<'_>) -> Pass {
        let now_there: BTreeMap<&str, &Arc<Node>> =
            found.nodes.iter().map(|node| (uid(node), node)).collect();
        let suspects: Vec<&Arc<Node>> =
            found.nodes.iter().filter(|node| is_suspect(node)).collect();
        let suspect_uids: BTreeSet<&str> = suspects.iter().map(|node| uid(node)).collect();
        self.keep_only(found.nodes, &suspect_uids);
        // What was asked of a Node that was Ready meanwhile, or has another ID now, is no answer about it as it is.
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
            if answer.state() == Absent {
                reported.insert(uid(&answer.node));
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
        if self.absences.is_empty() {
            // An empty ledger may be a new one: only answers tell that no absence is left.
            let known = |node: &&Arc<Node>| self.known.get(uid(node));
            let reported = |node| known(node).is_some_and(|known| known.state != Unspecified);
            if suspects.iter().all(reported) {
                brake.release();
            }
            return pass;
        }
        self.judge(brake, &suspects, &reported, found, &mut pass);
        pass
    }

    /// Whether the Node is shut down, as it is now, and has no taint yet.
    fn is_stopped(&self, node: &Node) -> bool {
        let known = self.known.get(uid(node));
        let stopped =
            known.is_some_and(|it| it.state == Stopped && it.condition == condition(node));
        stopped && !has_shutdown_taint(node)
    }

    /// Which of the Nodes that are due go now.
    fn judge(
        &mut self,
        brake: &mut Brake,
        suspects: &[&Arc<Node>],
        reported: &BTreeSet<&str>,
        found: &Findings<'_>,
        pass: &mut Pass,
    ) {
        let due = self.due(suspects, found, pass);
        // Only what this pass was told makes a Node go; the others count for the brake.
        let (due, waiting): (Vec<_>, Vec<_>) = due
            .into_iter()
            .partition(|node| reported.contains(uid(node)));
        pass.waiting = !waiting.is_empty();
        let verdict = self.brake(brake, &due, &waiting, found);
        pass.engaged = verdict.engaged;
        pass.one_of_two = verdict.one_of_two;
        let allowed: BTreeSet<usize> = verdict.allowed.into_iter().collect();
        // Answers that are no farther apart than the longest step count as one absence without a gap. A hold is some fifteen of them.
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
                // After a hint it is due at once.
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

    /// The Nodes that enough answers call gone; those that share their provider ID are kept.
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

    /// What the brake says of those that are due, and of those that wait for another answer.
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
        let sent = self.absences.values().filter(|absence| absence.sent);
        let there = found.nodes.iter().filter(|node| !is_going(node));
        let due = Due {
            held: &held,
            waiting: waiting.len(),
            uids: &uids,
            witnessed: absences().all(|absence| absence.witnessed),
            nodes: there.count().saturating_sub(sent.count()),
        };
        brake.judge(&due, found.now)
    }

    /// A Node of `Pass::delete` was not deleted, or nobody knows: it needs two new answers. `certain`: that nothing was deleted.
    pub(super) fn spare(&mut self, brake: &mut Brake, node: &Node, certain: bool) {
        self.absences.remove(uid(node));
        if certain {
            brake.uncount(uid(node));
        }
    }

    /// A Node of `Pass::delete` has to wait for something else than answers about it: what they said stands.
    pub(super) fn postpone(&mut self, brake: &mut Brake, node: &Node) {
        if let Some(absence) = self.absences.get_mut(uid(node)) {
            absence.sent = false;
        }
        brake.uncount(uid(node));
    }

    /// Where a Node waits for something that comes soon: it is asked about in the next pass.
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
                // Between two conditions it may have been Ready.
                if other_condition {
                    absence.break_row();
                }
                absence.answered(witnessed, self.longest_step, now);
                again = !absence.is_enough();
            }
            // Not known: the row is broken, the time so far stands.
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

    fn break_rows(&mut self) {
        for absence in self.absences.values_mut() {
            absence.break_row();
        }
    }

    fn keep_only(&mut self, nodes: &[Arc<Node>], suspects: &BTreeSet<&str>) {
        self.known.retain(|uid, _| suspects.contains(uid.as_str()));
        if self.absences.is_empty() {
            return;
        }
        let there: BTreeSet<&str> = nodes.iter().map(|node| uid(node)).collect();
        self.absences.retain(|uid, absence| {
            suspects.contains(uid.as_str()) || absence.sent && there.contains(uid.as_str())
        });
    }
}

impl Answer {
    /// What it says; `Unspecified` where nothing is known.
    pub(super) fn state(&self) -> api::InstanceState {
        let instance = self.found.as_ref();
        instance.map_or(Unspecified, api::Instance::state)
    }
}

#[cfg(test)]
mod tests;
