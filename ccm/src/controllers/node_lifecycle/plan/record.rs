//! The record of one Node that is not Ready. Pure.

use std::time::Duration;

use api::InstanceState::Unspecified;
use cloud_provider_api::v1alpha1 as api;
use tokio::time::Instant;

use super::super::ask::Answer;
use super::Findings;
use super::nodes::{Condition, condition};
use crate::planted::planted;

/// A Node is due after this many ABSENT answers in a row.
const ENOUGH: u32 = 2;
/// An answer that comes later than this after the one before starts a new row.
pub(super) const LONGEST_PENDING: Duration = Duration::from_mins(10);
/// The longest time until the ccm asks about a Node again, in periods.
pub(crate) const MOST_PERIODS: u32 = 6;
/// The ccm asks about a Node again after the time since the last change, divided by this.
const PART: u32 = 10;

/// The provider reports that the instance of one Node is gone.
#[derive(Debug, Default)]
pub(super) struct Absence {
    /// ABSENT answers in valid passes in a row.
    pub(super) in_row: u32,
    /// Whether a Ready Node vouched for each of them.
    pub(super) witnessed: bool,
    /// The sum of the times between consecutive ABSENT answers in valid passes.
    pub(super) held: Duration,
    /// When the last ABSENT came; `None` if another answer or a void pass followed.
    pub(super) last: Option<Instant>,
    /// The ccm is deleting the Node.
    pub(super) sent: bool,
}

/// The last answer about a Node that is not Ready.
#[derive(Debug)]
pub(super) struct Known {
    /// `Unspecified`: the lookup failed.
    pub(super) state: api::InstanceState,
    /// The Node's Ready condition when the ccm asked.
    pub(super) condition: Option<Condition>,
    /// State and condition have not changed since this time.
    pub(super) since: Instant,
    /// When the ccm asks about the Node again.
    pub(super) due: Instant,
    /// When the provider last hinted at the Node.
    pub(super) hinted: Option<Instant>,
}

impl Absence {
    /// Takes an ABSENT of a valid pass. Of the time since the last one, at most `longest_step`
    /// counts.
    pub(super) fn answered(&mut self, witnessed: bool, longest_step: Duration, now: Instant) {
        let since = |last: Instant| now.saturating_duration_since(last);
        if self.last.is_some_and(|last| since(last) > LONGEST_PENDING) {
            self.break_row();
        }
        if let Some(last) = self.last {
            self.held += since(last).min(longest_step);
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

    /// Whether it needs no further answer.
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
        }
    }

    /// Takes an answer. Returns whether the Node's Ready condition has changed since the last one.
    pub(super) fn answered(&mut self, answer: &Answer, now: Instant) -> bool {
        let (state, condition) = (answer.state(), condition(&answer.node));
        let other_condition = self.condition != condition;
        if self.state != state || other_condition {
            self.since = now;
        }
        self.state = state;
        self.condition = condition;
        other_condition
    }

    /// Sets when the ccm asks again. `again`: a second ABSENT may be missing, so as soon as
    /// possible.
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
        // After a slow answer the provider has as much time for other Nodes.
        let rested = answer.at + took.min(longest);
        self.due = if again { due } else { due.max(rested) };
        // The provider may have answered before the change that it hinted at, so the Node is due
        // again.
        if self.hinted.take().is_some_and(|at| at > answer.began) {
            self.due = found.now;
        }
    }
}
