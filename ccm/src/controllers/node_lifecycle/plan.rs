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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::InstanceState::{Absent, Present, Running, Stopped, Unspecified};
use cloud_provider_api::v1alpha1 as api;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::ask::Answer;
use super::brake::{Brake, Due};
use crate::core::{is_ready, ready_condition};
use crate::planted::planted;
use crate::provider::CallErrorCode;

/// The taint of a Node whose machine is shut down (B-L3).
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const NO_SCHEDULE: &str = "NoSchedule";
/// At most so many Ready Nodes are asked about in a pass.
pub(super) const WITNESSES: usize = 3;
/// So many ABSENT answers in a row make a Node due.
const ENOUGH: u32 = 2;
/// An answer that comes so long after the one before it does not belong to it.
const LONGEST_PENDING: Duration = Duration::from_mins(10);
/// ABSENT that was asked for so long ago counts for nothing: calls about a batch, a part of it, and a witness may each take a minute.
const OLDEST_ANSWER: Duration = Duration::from_mins(3);
/// A Node waits at most so many periods until it is asked about again.
pub(crate) const MOST_PERIODS: u32 = 6;
/// A Node waits for this part of the time for which nothing has changed about it.
const PART: u32 = 10;

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

/// The instance of one Node is said to be gone.
#[derive(Debug, Default)]
struct Absence {
    /// ABSENT answers in valid passes in a row.
    in_row: u32,
    /// A Ready Node vouched for each of them.
    witnessed: bool,
    /// The time between valid passes that both said ABSENT, added up.
    held: Duration,
    /// When the last answer said so; `None` after anything else.
    last: Option<Instant>,
    /// Its deletion is on its way.
    sent: bool,
}

/// What was last answered about a Node that is not Ready.
#[derive(Debug)]
struct Known {
    /// `Unspecified`: it is not known.
    state: api::InstanceState,
    /// The Node's Ready condition, as it was when it was asked about.
    condition: Option<Condition>,
    /// State and condition are the same since then.
    since: Instant,
    /// When it is to be asked about again.
    due: Instant,
    /// When the provider last hinted at it.
    hinted: Option<Instant>,
}

/// The status of a Node's Ready condition, and since when it is so.
type Condition = (String, Option<Time>);

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
        let mut told = BTreeSet::new();
        for answer in relevant {
            if answer.state() == Absent {
                told.insert(uid(&answer.node));
            }
            self.note(answer, witnessed, found);
        }
        let state = |node: &Node| self.known.get(uid(node)).map(|known| known.state);
        pass.taint = suspects
            .iter()
            .filter(|node| {
                let stopped = state(node) == Some(Stopped) && found.power_state;
                stopped && !self.is_changed(node) && !has_shutdown_taint(node)
            })
            .map(|node| Arc::clone(node))
            .collect();
        if !found.may_delete {
            self.break_rows();
            return pass;
        }
        if self.absences.is_empty() {
            // An empty ledger may be a new one: only answers tell that no absence is left.
            if suspects
                .iter()
                .all(|node| state(node).is_some_and(|state| state != Unspecified))
            {
                brake.release();
            }
            return pass;
        }
        self.judge(brake, &suspects, &told, found, &mut pass);
        pass
    }

    fn is_changed(&self, node: &Node) -> bool {
        let known = self.known.get(uid(node));
        known.is_some_and(|known| known.condition != condition(node))
    }

    fn judge(
        &mut self,
        brake: &mut Brake,
        suspects: &[&Arc<Node>],
        told: &BTreeSet<&str>,
        found: &Findings<'_>,
        pass: &mut Pass,
    ) {
        let mut due: Vec<&Arc<Node>> = suspects
            .iter()
            .filter(|node| is_older(node, self.min_age, found.wall))
            .filter(|node| {
                let absence = self.absences.get(uid(node));
                absence.is_some_and(|absence| {
                    let enough = if planted!(OneAbsentIsEnough) {
                        1
                    } else {
                        ENOUGH
                    };
                    absence.in_row >= enough && !absence.sent
                })
            })
            .copied()
            .collect();
        if !due.is_empty() {
            let shared = ids_of_several(found.nodes);
            due.retain(|node| {
                let alone = !shared.contains(provider_id(node));
                if !alone {
                    pass.shared.push(Arc::clone(node));
                }
                alone
            });
        }
        // Only what this pass was told makes a Node go; the others count for the brake.
        let (due, waiting): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|node| told.contains(uid(node)));
        pass.waiting = !waiting.is_empty();
        let absence = |node: &Node| self.absences.get(uid(node));
        let held: Vec<Duration> = due
            .iter()
            .filter_map(|node| Some(absence(node)?.held))
            .collect();
        let witnessed = due
            .iter()
            .all(|node| absence(node).is_some_and(|absence| absence.witnessed));
        let sent = self
            .absences
            .values()
            .filter(|absence| absence.sent)
            .count();
        let there = found.nodes.iter().filter(|node| !is_going(node)).count();
        let uids: Vec<&str> = due.iter().chain(&waiting).map(|node| uid(node)).collect();
        let verdict = brake.judge(
            &Due {
                held: &held,
                waiting: waiting.len(),
                uids: &uids,
                witnessed,
                nodes: there.saturating_sub(sent),
            },
            found.now,
        );
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
        let (state, condition) = (answer.state(), condition(&answer.node));
        let known = self.known.entry(uid.to_owned()).or_insert_with(|| Known {
            state,
            condition: condition.clone(),
            since: now,
            due: now,
            hinted: None,
        });
        let other_condition = known.condition != condition;
        if known.state != state || other_condition {
            known.since = now;
        }
        known.state = state;
        known.condition = condition;
        let mut again = false;
        match state {
            Absent => {
                let absence = self.absences.entry(uid.to_owned()).or_default();
                let too_late = absence
                    .last
                    .is_some_and(|last| now.saturating_duration_since(last) > LONGEST_PENDING);
                // Between two conditions it may have been Ready.
                if too_late || other_condition {
                    absence.break_row();
                }
                if let Some(last) = absence.last {
                    absence.held += now.saturating_duration_since(last).min(self.longest_step);
                }
                // Two answers of one pass are one.
                if absence.last != Some(now) {
                    absence.witnessed = witnessed && (absence.witnessed || absence.in_row == 0);
                    absence.in_row = absence.in_row.saturating_add(1);
                }
                absence.last = Some(now);
                again = absence.in_row < ENOUGH;
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
        let took = answer.at.saturating_duration_since(answer.began);
        let longest = self.period * MOST_PERIODS;
        let least = found.start + self.period;
        let lasted = now.saturating_duration_since(known.since) / PART;
        let pause = lasted.clamp(self.period, longest);
        // Of a Node that nobody answers for, the next answer may be another one.
        let steady = !again && state != Unspecified;
        let due = if steady { found.start + pause } else { least };
        // A provider that takes its time has as much time for others.
        let rested = answer.at + took.min(longest);
        known.due = if again { due } else { due.max(rested) };
        // Whether the answer was of before the hint or after it nobody knows.
        if known.hinted.take().is_some_and(|at| at > answer.began) {
            known.due = now;
        }
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

impl Absence {
    fn break_row(&mut self) {
        self.in_row = 0;
        self.last = None;
    }
}

impl Answer {
    /// What it says; `Unspecified` where nothing is known.
    pub(super) fn state(&self) -> api::InstanceState {
        let instance = self.found.as_ref();
        instance.map_or(Unspecified, api::Instance::state)
    }
}

/// Whether this is an ABSENT that somebody must vouch for.
pub(super) fn is_claim(answer: &Answer) -> bool {
    answer.state() == Absent && !is_ready(&answer.node)
}

/// Whether it was asked for too long ago.
pub(super) fn is_too_old(claim: &Answer, now: Instant) -> bool {
    now.saturating_duration_since(claim.began) > OLDEST_ANSWER
}

/// Whether one of these answers vouches for an ABSENT: it came no earlier, and is about a Node that was Ready, or where none is about any.
pub(super) fn is_vouched(claim: &Answer, answers: &[Answer], nodes: &[Arc<Node>]) -> bool {
    let none_ready = is_none_ready(nodes);
    answers.iter().any(|answer| {
        let vouches = if none_ready {
            is_recognised(answer.state())
        } else {
            vouches_as_ready(answer)
        };
        vouches && answer.at >= claim.at
    })
}

/// Whether the Nodes that are asked about are their own witnesses.
pub(super) fn is_none_ready(nodes: &[Arc<Node>]) -> bool {
    !nodes.iter().any(|node| is_witness(node))
}

fn vouches_as_ready(answer: &Answer) -> bool {
    is_ready(&answer.node) && is_recognised(answer.state())
}

fn is_recognised(state: api::InstanceState) -> bool {
    matches!(state, Present | Running | Stopped)
}

fn is_suspect(node: &Node) -> bool {
    !is_ready(node) && !is_going(node)
}

fn is_witness(node: &Node) -> bool {
    is_ready(node) && !is_going(node)
}

fn condition(node: &Node) -> Option<Condition> {
    let ready = ready_condition(node)?;
    Some((ready.status.clone(), ready.last_transition_time.clone()))
}

/// Why the pass counts for nothing.
fn void(
    found: &Findings<'_>,
    relevant: &[&Answer],
    now_there: &BTreeMap<&str, &Arc<Node>>,
) -> Option<String> {
    let liar = found
        .answers
        .iter()
        .filter(|answer| answer.state() == Absent)
        .filter_map(|answer| now_there.get(uid(&answer.node)))
        .find(|node| is_ready(node));
    if let Some(node) = liar {
        let name = name(node);
        return Some(format!(
            "the provider reports that the instance of the Ready Node {name} is gone"
        ));
    }
    if let Some((name, id)) = mixed_up(found) {
        return Some(format!(
            "the provider's result for Node {name} names {id}, which is another Node's instance"
        ));
    }
    let mut claims = relevant.iter().filter(|answer| is_claim(answer));
    if !found.may_delete || claims.all(|claim| is_vouched(claim, found.answers, found.nodes)) {
        None
    } else if is_none_ready(found.nodes) {
        Some("no Node is Ready, and the provider recognises none of them".to_owned())
    } else {
        Some("the provider recognises none of the Ready Nodes in the lookups".to_owned())
    }
}

/// Why nothing was told, where all answers are failures. One that misses its deadline may be a Node whose lookup hangs.
fn failed(answers: &[Answer]) -> Option<String> {
    if answers.iter().any(|answer| answer.found.is_ok()) {
        return None;
    }
    let mut failures = answers.iter().filter_map(|it| it.found.as_ref().err());
    let trouble = failures.find(|trouble| trouble.code != CallErrorCode::Deadline)?;
    Some(format!("no lookup succeeded: {trouble}"))
}

/// The provider IDs that several Nodes have.
fn ids_of_several(nodes: &[Arc<Node>]) -> BTreeSet<&str> {
    let mut once = BTreeSet::new();
    let ids = nodes.iter().map(|node| provider_id(node));
    ids.filter(|id| !once.insert(*id)).collect()
}

/// An answer that is about another Node's instance: then what the others are about is not known either. An ID that no other Node has may be another spelling.
fn mixed_up<'a>(found: &'a Findings<'_>) -> Option<(&'a str, &'a str)> {
    let others = found.answers.iter().filter_map(|answer| {
        let instance = answer.found.as_ref().ok()?;
        let id = instance.provider_id.as_deref()?;
        (id != provider_id(&answer.node)).then_some((&answer.node, id))
    });
    let others: Vec<_> = others.collect();
    if others.is_empty() {
        return None;
    }
    let known: BTreeSet<&str> = found.nodes.iter().map(|node| provider_id(node)).collect();
    let mut others = others.into_iter();
    let (node, id) = others.find(|(_, id)| known.contains(id))?;
    Some((name(node), id))
}

/// Whether a Node that was to be deleted may go, by what the API server says just before. `Err` says why not.
pub(super) fn last_look(
    decided: &Node,
    fresh: &Node,
    min_age: Duration,
    wall: Timestamp,
) -> Result<(), &'static str> {
    if planted!(NameIsTheNode) {
        Ok(())
    } else if uid(decided) != uid(fresh) || uid(fresh).is_empty() {
        Err("another Node has its name now")
    } else if is_ready(fresh) {
        Err("it is Ready again")
    } else if provider_id(decided) != provider_id(fresh) {
        Err("it has another provider ID now")
    } else if is_going(fresh) {
        Err("it is being deleted already")
    } else if is_older(fresh, min_age, wall) {
        Ok(())
    } else {
        Err("it is too young")
    }
}

/// The taints with the shutdown taint; `None` where it is there.
pub(super) fn with_shutdown_taint(node: &Node) -> Option<Vec<Taint>> {
    (!has_shutdown_taint(node)).then(|| {
        let shutdown = Taint {
            key: SHUTDOWN.to_owned(),
            effect: NO_SCHEDULE.to_owned(),
            ..Taint::default()
        };
        taints(node).iter().cloned().chain([shutdown]).collect()
    })
}

/// The taints without the shutdown taint, where the Node is Ready and has it (B-L3).
pub(super) fn without_shutdown_taint(node: &Node) -> Option<Vec<Taint>> {
    (is_ready(node) && has_shutdown_taint(node)).then(|| {
        let others = taints(node).iter().filter(|taint| !is_shutdown(taint));
        others.cloned().collect()
    })
}

/// `spec.providerID`; empty where there is none.
pub(super) fn provider_id(node: &Node) -> &str {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.provider_id.as_deref())
        .unwrap_or_default()
}

/// `metadata.uid`; empty where there is none.
pub(super) fn uid(node: &Node) -> &str {
    node.metadata.uid.as_deref().unwrap_or_default()
}

/// `metadata.name`.
pub(super) fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn has_shutdown_taint(node: &Node) -> bool {
    taints(node).iter().any(is_shutdown)
}

fn is_shutdown(taint: &Taint) -> bool {
    taint.key == SHUTDOWN && taint.effect == NO_SCHEDULE
}

fn taints(node: &Node) -> &[Taint] {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default()
}

fn is_going(node: &Node) -> bool {
    node.metadata.deletion_timestamp.is_some()
}

/// Older than that; one whose age is not known is not.
fn is_older(node: &Node, age: Duration, wall: Timestamp) -> bool {
    node.metadata
        .creation_timestamp
        .as_ref()
        .is_some_and(|created| {
            let lived = wall.duration_since(created.0);
            Duration::try_from(lived).is_ok_and(|lived| lived > age)
        })
}

#[cfg(test)]
mod tests;
