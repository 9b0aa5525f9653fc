//! Which answers count: whether the ccm can trust the answers of a pass, and the record of one Node
//! that is not Ready. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::InstanceState::{Absent, Present, Running, Stopped, Unspecified};
use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::super::evidence::Answer;
use super::Findings;
use super::nodes::{Condition, condition, is_witness, name, provider_id, uid};
use crate::core::is_ready;
use crate::planted::planted;
use crate::provider::CallErrorCode;

/// An ABSENT to an older question does not count. In deadlines of a lookup: the calls about a
/// batch, a part of it, and a witness may each take one.
pub(super) const OLDEST_ANSWER: u32 = 3;

/// Whether this is an ABSENT that needs a witness.
pub(in super::super) fn is_claim(answer: &Answer) -> bool {
    answer.state() == Absent && !is_ready(&answer.node)
}

/// Whether the ccm asked the question too long ago. `deadline`: that of a lookup.
pub(in super::super) fn is_too_old(claim: &Answer, deadline: Duration, now: Instant) -> bool {
    now.saturating_duration_since(claim.began) > deadline * OLDEST_ANSWER
}

/// The time of the last answer that vouches for the provider: it recognises a Ready Node there. If
/// no Node is Ready, any recognised Node is enough. ABSENT answers until then have a witness.
pub(in super::super) fn vouched_until(answers: &[Answer], none_ready: bool) -> Option<Instant> {
    let vouching = answers
        .iter()
        .filter(|answer| is_recognised(answer.state()) && (none_ready || is_ready(&answer.node)));
    vouching.map(|answer| answer.at).max()
}

/// Whether no Node is Ready. Then the Nodes that are not Ready vouch for each other.
pub(in super::super) fn is_none_ready(nodes: &[Arc<Node>]) -> bool {
    !nodes.iter().any(|node| is_witness(node))
}

pub(super) fn vouches_as_ready(answer: &Answer) -> bool {
    is_ready(&answer.node) && is_recognised(answer.state())
}

pub(super) fn is_recognised(state: api::InstanceState) -> bool {
    matches!(state, Present | Running | Stopped)
}

/// Why the pass is void; `None` if it is valid.
pub(super) fn void(
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
    let none_ready = is_none_ready(found.nodes);
    let vouched = vouched_until(found.answers, none_ready);
    let mut claims = relevant.iter().filter(|answer| is_claim(answer));
    if !found.may_delete || claims.all(|claim| Some(claim.at) <= vouched) {
        None
    } else if none_ready {
        Some("no Node is Ready, and the provider recognises none of them".to_owned())
    } else {
        Some("the provider recognises none of the Ready Nodes in the lookups".to_owned())
    }
}

/// Why the pass learned nothing, if all answers are failures. Missed deadlines alone do not count:
/// one Node's lookup may hang.
pub(super) fn failed(answers: &[Answer]) -> Option<String> {
    if answers.iter().any(|answer| answer.found.is_ok()) {
        return None;
    }
    let mut failures = answers.iter().filter_map(|it| it.found.as_ref().err());
    let trouble = failures.find(|trouble| trouble.code != CallErrorCode::Deadline)?;
    Some(format!("no lookup succeeded: {trouble}"))
}

/// An answer about another Node's instance: the other answers may be mixed up too. An ID that no
/// Node has may be another spelling of the Node's own ID.
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

/// A Node is due after this many ABSENT answers in a row.
const ENOUGH: u32 = 2;
/// If an ABSENT comes later than this and the longest step after the previous one, it starts a new
/// row. In deadlines of a lookup.
pub(super) const LONGEST_PENDING: u32 = 10;
/// The longest pause before the ccm asks about a Node again, in periods. A slow answer, the brake,
/// refused credentials or THROTTLED can make it longer.
pub(crate) const MOST_PERIODS: u32 = 6;
/// The ccm asks about a Node again after the time since the last change, divided by this.
const PART: u32 = 10;

/// The provider reports that the instance of one Node is gone.
#[derive(Debug, Default)]
pub(super) struct Absence {
    /// ABSENT answers in valid passes in a row.
    pub(super) in_row: u32,
    /// Whether a Ready Node vouched for each of these answers.
    pub(super) witnessed: bool,
    /// The sum of the times between consecutive ABSENT answers in valid passes, each limited to the
    /// longest step or the deadline of a lookup.
    pub(super) held: Duration,
    /// When the last ABSENT came. `None`: the row was broken since.
    pub(super) last: Option<Instant>,
    /// The ccm is deleting the Node.
    pub(super) sent: bool,
}

/// The last answer of a valid pass about a Node that is not Ready.
#[derive(Debug)]
pub(super) struct Known {
    /// `Unspecified`: the lookup failed, or the state is unknown.
    pub(super) state: api::InstanceState,
    /// The Node's Ready condition when the ccm asked.
    pub(super) condition: Option<Condition>,
    /// State and condition have not changed since this time.
    pub(super) since: Instant,
    /// When the ccm asks about the Node again.
    pub(super) due: Instant,
    /// When the provider last hinted at the Node, if no answer has come since.
    pub(super) hinted: Option<Instant>,
    /// The provider's list had the instance, and no answer has come since.
    pub(super) listed: bool,
}

impl Absence {
    /// Takes an ABSENT of a valid pass. Of the time since the last ABSENT, at most `longest_step`
    /// or the deadline of a lookup counts, whichever is longer.
    pub(super) fn answered(
        &mut self,
        witnessed: bool,
        longest_step: Duration,
        found: &Findings<'_>,
    ) {
        let now = found.now;
        let since = |last: Instant| now.saturating_duration_since(last);
        let longest = found.deadline * LONGEST_PENDING + longest_step;
        if self.last.is_some_and(|last| since(last) > longest) {
            self.break_row();
        }
        if let Some(last) = self.last {
            self.held += since(last).min(longest_step.max(found.deadline));
        }
        // Two answers in one pass count as one.
        if self.last != Some(now) {
            self.witnessed = witnessed && (self.witnessed || self.in_row == 0);
            self.in_row = self.in_row.saturating_add(1);
        }
        self.last = Some(now);
    }

    /// The next ABSENT begins a new row.
    pub(super) fn break_row(&mut self) {
        self.in_row = 0;
        self.last = None;
    }

    /// Whether no further ABSENT is needed.
    pub(super) fn is_enough(&self) -> bool {
        self.in_row >= ENOUGH
    }

    /// Whether the Node is due for deletion.
    pub(super) fn is_due(&self) -> bool {
        self.is_enough() || planted!(OneAbsentIsEnough) && self.in_row > 0
    }
}

impl Known {
    /// The record after the first answer.
    pub(super) fn of(answer: &Answer, now: Instant) -> Self {
        Self {
            state: answer.state(),
            condition: condition(&answer.node),
            since: now,
            due: now,
            hinted: None,
            listed: false,
        }
    }

    /// Takes an answer. Returns whether the Node's Ready condition has changed since the last
    /// answer.
    pub(super) fn answered(&mut self, answer: &Answer, now: Instant) -> bool {
        let (state, condition) = (answer.state(), condition(&answer.node));
        let other_condition = self.condition != condition;
        if self.state != state || other_condition {
            self.since = now;
        }
        self.state = state;
        self.condition = condition;
        self.listed = false;
        other_condition
    }

    /// Sets when the ccm asks again. `again`: only a second ABSENT is missing, so the ccm asks
    /// after one period, even after a slow answer.
    pub(super) fn plan(
        &mut self,
        answer: &Answer,
        again: bool,
        period: Duration,
        found: &Findings<'_>,
    ) {
        let took = answer.at.saturating_duration_since(answer.began);
        let longest = period * MOST_PERIODS;
        let least = found.start + period;
        let lasted = found.now.saturating_duration_since(self.since) / PART;
        let pause = lasted.clamp(period, longest);
        // After a failed lookup the ccm asks again each period.
        let steady = !again && self.state != Unspecified;
        let due = if steady { found.start + pause } else { least };
        // After a slow answer, the ccm leaves the provider as much time for other Nodes as the
        // answer took, up to `longest`.
        let rested = answer.at + took.min(longest);
        self.due = if again { due } else { due.max(rested) };
        // The provider may have answered before the change that it hinted at, so the Node is due
        // again.
        if self.hinted.take().is_some_and(|at| at > answer.began) {
            self.due = found.now;
        }
    }
}
