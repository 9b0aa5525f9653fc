//! One pass over the Nodes that are not Ready: what is asked, and what follows from the answers. Pure.
//!
//! A Node is due for deletion when the provider called its instance ABSENT in two *valid* passes in a row. A pass is void, and counts for
//! nothing, when a Ready Node is called ABSENT, an answer is about another Node's instance, or no witness is recognised. Witnesses are up to three Ready Nodes, others in
//! each pass. Where no Node is Ready, the Nodes that are asked about are their own witnesses: if the provider recognises none of them
//! the pass is void. So a provider that looks into the wrong account, or an empty answer, deletes nothing, whatever the
//! number of Nodes; and the Nodes of a cluster whose instances are all gone stay until one Node is Ready again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use tokio::time::Instant;

use super::brake::Brake;
use crate::cluster::is_ready;
use crate::provider::Trouble;

/// The taint of a Node whose machine is shut down (B-L3).
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const NO_SCHEDULE: &str = "NoSchedule";
/// At most so many Ready Nodes are asked about in a pass.
pub(crate) const WITNESSES: usize = 3;
/// So many ABSENT answers in a row make a Node due.
const ENOUGH: u32 = 2;
/// An answer that is so long in coming does not belong to the one before it.
const LONGEST_PENDING: Duration = Duration::from_mins(10);

/// What the passes so far have shown. Holds only Nodes that exist, by UID.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Outlives the ledger.
    brake: Arc<Mutex<Brake>>,
    min_age: Duration,
    /// Two passes that are further apart count as so far apart only: nobody knows what was between.
    longest_step: Duration,
    absences: BTreeMap<String, Absence>,
    /// The last witness: the next ones come after it in the order of names.
    last_witness: String,
}

/// The instance of one Node is said to be gone.
#[derive(Debug, Default)]
struct Absence {
    /// ABSENT answers in valid passes in a row.
    in_row: u32,
    /// The time between valid passes that both said ABSENT, added up.
    held: Duration,
    /// When the last answer said so; `None` after anything else.
    last: Option<Instant>,
    /// Its deletion is on its way.
    sent: bool,
}

/// What a pass asks.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// The Nodes that are not Ready.
    pub(super) suspects: Vec<Arc<Node>>,
    /// Ready Nodes.
    pub(super) witnesses: Vec<Arc<Node>>,
}

/// What a pass has found.
pub(super) struct Findings<'a> {
    /// What was asked.
    pub(super) questions: &'a Questions,
    /// Its answers by UID. What is missing is not known.
    pub(super) answers: &'a BTreeMap<String, Result<api::Instance, Trouble>>,
    /// UIDs of Nodes whose answer is still to come.
    pub(super) pending: &'a BTreeSet<String>,
    /// All Nodes with this provider's ID, as they are after the answers.
    pub(super) nodes: &'a [Arc<Node>],
    /// The provider is READY and its scope the accepted one.
    pub(super) may_delete: bool,
    /// It can tell STOPPED.
    pub(super) power_state: bool,
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
    /// To taint as shut down.
    pub(super) taint: Vec<Arc<Node>>,
    /// Due, and held back by the brake.
    pub(super) held: Vec<Arc<Node>>,
    /// Due, and kept because another Node has the same provider ID: which of them is meant nobody knows.
    pub(super) shared: Vec<Arc<Node>>,
    /// The brake began to hold in this pass.
    pub(super) engaged: bool,
    /// Why the pass counts for nothing, for people.
    pub(super) void: Option<String>,
}

impl Ledger {
    /// An empty ledger; a Node that is younger than `min_age` is never due; `longest_step` is the longest time that two passes in a row may be apart.
    pub(super) fn new(brake: Arc<Mutex<Brake>>, min_age: Duration, longest_step: Duration) -> Self {
        Self {
            brake,
            min_age,
            longest_step,
            absences: BTreeMap::new(),
            last_witness: String::new(),
        }
    }

    /// Another session: no answer of an earlier one counts. What was deleted still does.
    pub(super) fn start_over(&mut self) {
        self.absences.clear();
    }

    /// Whether the brake holds.
    pub(super) fn brake_holds(&self) -> bool {
        self.brake().holds()
    }

    fn brake(&self) -> MutexGuard<'_, Brake> {
        self.brake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to ask; `nodes` are all with this provider's ID, in the order of their names. Without suspects nothing is asked, and what
    /// was held against anybody is forgotten.
    pub(super) fn questions(&mut self, nodes: &[Arc<Node>]) -> Questions {
        let suspects: Vec<Arc<Node>> = nodes
            .iter()
            .filter(|node| {
                let known = self.absences.get(uid(node));
                !is_ready(node) && !is_going(node) && known.is_none_or(|absence| !absence.sent)
            })
            .cloned()
            .collect();
        if suspects.is_empty() {
            self.keep_only(nodes, &BTreeSet::new());
            if self.absences.is_empty() {
                self.brake().release();
            }
            return Questions::default();
        }
        let ready = || {
            nodes
                .iter()
                .filter(|node| is_ready(node) && !is_going(node))
        };
        let after = ready().filter(|node| name(node) > self.last_witness.as_str());
        let mut witnesses: Vec<Arc<Node>> = after.take(WITNESSES).cloned().collect();
        let missing = WITNESSES - witnesses.len();
        let before = ready().take_while(|node| name(node) <= self.last_witness.as_str());
        witnesses.extend(before.take(missing).cloned());
        if let Some(last) = witnesses.last() {
            name(last).clone_into(&mut self.last_witness);
        }
        Questions {
            suspects,
            witnesses,
        }
    }

    /// What follows from the answers.
    pub(super) fn pass(&mut self, found: &Findings<'_>) -> Pass {
        let now_there: BTreeMap<&str, &Arc<Node>> =
            found.nodes.iter().map(|node| (uid(node), node)).collect();
        // A Node that became Ready meanwhile, or got another ID, is no suspect any more.
        let suspects: Vec<&Arc<Node>> = found
            .questions
            .suspects
            .iter()
            .filter_map(|asked| {
                let node = *now_there.get(uid(asked))?;
                let same = provider_id(asked) == provider_id(node);
                (same && !is_ready(node) && !is_going(node)).then_some(node)
            })
            .collect();
        let suspect_uids: BTreeSet<&str> = suspects.iter().map(|node| uid(node)).collect();
        self.keep_only(found.nodes, &suspect_uids);

        let mut pass = Pass {
            void: void(found, &now_there),
            ..Pass::default()
        };
        if pass.void.is_some() {
            self.break_rows();
            return pass;
        }
        let mut all_known = true;
        for node in &suspects {
            if found.pending.contains(uid(node)) {
                self.wait(uid(node), found.now);
                all_known = false;
                continue;
            }
            let state = found
                .answers
                .get(uid(node))
                .and_then(|answer| answer.as_ref().ok())
                .map(api::Instance::state);
            self.note(uid(node), state, found.now);
            all_known &= !matches!(state, None | Some(api::InstanceState::Unspecified));
            let stopped = state == Some(api::InstanceState::Stopped);
            if stopped && found.power_state && !has_shutdown_taint(node) {
                pass.taint.push(Arc::clone(node));
            }
        }
        if !found.may_delete {
            self.break_rows();
            return pass;
        }
        if self.absences.is_empty() {
            // An empty ledger may be a new one: only answers tell that no absence is left.
            if all_known {
                self.brake().release();
            }
            return pass;
        }
        self.judge(&suspects, found, &mut pass);
        pass
    }

    fn judge(&mut self, suspects: &[&Arc<Node>], found: &Findings<'_>, pass: &mut Pass) {
        let mut due: Vec<(&Arc<Node>, Duration)> = suspects
            .iter()
            .filter(|node| is_older(node, self.min_age, found.wall))
            .filter_map(|node| {
                // Only what this pass was told makes a Node due.
                let absence = self.absences.get(uid(node))?;
                let told = !found.pending.contains(uid(node));
                (told && absence.in_row >= ENOUGH && !absence.sent).then_some((*node, absence.held))
            })
            .collect();
        if !due.is_empty() {
            let shared = ids_of_several(found.nodes);
            due.retain(|(node, _)| {
                let alone = !shared.contains(provider_id(node));
                if !alone {
                    pass.shared.push(Arc::clone(node));
                }
                alone
            });
        }
        let held: Vec<Duration> = due.iter().map(|(_, held)| *held).collect();
        let sent = self
            .absences
            .values()
            .filter(|absence| absence.sent)
            .count();
        let there = found.nodes.iter().filter(|node| !is_going(node)).count();
        let verdict = self
            .brake()
            .judge(&held, there.saturating_sub(sent), found.now);
        pass.engaged = verdict.engaged;
        let allowed: BTreeSet<usize> = verdict.allowed.into_iter().collect();
        for (place, (node, _)) in due.into_iter().enumerate() {
            if allowed.contains(&place) {
                self.brake().count(found.now);
                if let Some(absence) = self.absences.get_mut(uid(node)) {
                    absence.sent = true;
                }
                pass.delete.push(Arc::clone(node));
            } else {
                pass.held.push(Arc::clone(node));
            }
        }
    }

    /// A Node of `Pass::delete` was not deleted: it needs two new answers. `counted_at`: the `now` of that pass, where it is
    /// certain that nothing was deleted.
    pub(super) fn spare(&mut self, node: &Node, counted_at: Option<Instant>) {
        self.absences.remove(uid(node));
        if let Some(at) = counted_at {
            self.brake().uncount(at);
        }
    }

    /// A Node of `Pass::delete` has to wait for something else than answers about it: what they said stands. `counted_at`: as of `spare`.
    pub(super) fn postpone(&mut self, node: &Node, counted_at: Instant) {
        if let Some(absence) = self.absences.get_mut(uid(node)) {
            absence.sent = false;
        }
        self.brake().uncount(counted_at);
    }

    fn note(&mut self, uid: &str, state: Option<api::InstanceState>, now: Instant) {
        use api::InstanceState::{Absent, Unspecified};
        match state {
            Some(Absent) => {
                let absence = self.absences.entry(uid.to_owned()).or_default();
                if let Some(last) = absence.last {
                    absence.held += now.saturating_duration_since(last).min(self.longest_step);
                }
                absence.last = Some(now);
                absence.in_row = absence.in_row.saturating_add(1);
            }
            // Not known: the row is broken, the time so far stands.
            None | Some(Unspecified) => {
                if let Some(absence) = self.absences.get_mut(uid) {
                    absence.in_row = 0;
                    absence.last = None;
                }
            }
            Some(_) => {
                self.absences.remove(uid);
            }
        }
    }

    /// The answer is still to come: the row stands, for a while.
    fn wait(&mut self, uid: &str, now: Instant) {
        if let Some(absence) = self.absences.get_mut(uid)
            && absence
                .last
                .is_none_or(|last| now.saturating_duration_since(last) > LONGEST_PENDING)
        {
            absence.in_row = 0;
            absence.last = None;
        }
    }

    fn break_rows(&mut self) {
        for absence in self.absences.values_mut() {
            absence.in_row = 0;
            absence.last = None;
        }
    }

    fn keep_only(&mut self, nodes: &[Arc<Node>], suspects: &BTreeSet<&str>) {
        if self.absences.is_empty() {
            return;
        }
        let there: BTreeSet<&str> = nodes.iter().map(|node| uid(node)).collect();
        self.absences.retain(|uid, absence| {
            suspects.contains(uid.as_str()) || absence.sent && there.contains(uid.as_str())
        });
    }
}

/// Why the pass counts for nothing.
fn void(found: &Findings<'_>, now_there: &BTreeMap<&str, &Arc<Node>>) -> Option<String> {
    use api::InstanceState::{Absent, Present, Running, Stopped};
    let state = |uid: &str| Some(found.answers.get(uid)?.as_ref().ok()?.state());
    let liar = found
        .answers
        .keys()
        .filter(|uid| state(uid) == Some(Absent))
        .find_map(|uid| now_there.get(uid.as_str()).filter(|node| is_ready(node)));
    if let Some(node) = liar {
        let name = name(node);
        return Some(format!(
            "the provider says that the instance of Node {name} is gone, which is Ready"
        ));
    }
    if let Some((name, id)) = mixed_up(found) {
        return Some(format!(
            "the provider's answer about Node {name} is about {id}, which is another Node's instance"
        ));
    }
    let witnesses = if found.questions.witnesses.is_empty() {
        &found.questions.suspects
    } else {
        &found.questions.witnesses
    };
    let recognised =
        |node: &Arc<Node>| matches!(state(uid(node)), Some(Present | Running | Stopped));
    if witnesses.iter().any(recognised) {
        None
    } else if found.questions.witnesses.is_empty() {
        Some("no Node is Ready, and the provider recognises none of them".to_owned())
    } else {
        Some("the provider recognises none of the Ready Nodes that it was asked about".to_owned())
    }
}

/// The provider IDs that several Nodes have.
fn ids_of_several(nodes: &[Arc<Node>]) -> BTreeSet<&str> {
    let mut once = BTreeSet::new();
    let ids = nodes.iter().map(|node| provider_id(node));
    ids.filter(|id| !once.insert(*id)).collect()
}

/// An answer that is about another Node's instance: then what the others are about is not known either. An ID that no other Node has may be another spelling.
fn mixed_up<'a>(found: &'a Findings<'_>) -> Option<(&'a str, &'a str)> {
    let asked = found
        .questions
        .witnesses
        .iter()
        .chain(&found.questions.suspects);
    let others = asked.filter_map(|node| {
        let instance = found.answers.get(uid(node))?.as_ref().ok()?;
        let id = instance.provider_id.as_deref()?;
        (id != provider_id(node)).then_some((node, id))
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
    if uid(decided) != uid(fresh) || uid(fresh).is_empty() {
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
