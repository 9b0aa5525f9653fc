//! What is known of one Node that is not Ready. Pure.

use std::time::Duration;

use api::InstanceState::Unspecified;
use cloud_provider_api::v1alpha1 as api;
use tokio::time::Instant;

use super::super::ask::Answer;
use super::Findings;
use super::nodes::{Condition, condition};
use crate::planted::planted;

/// So many ABSENT answers in a row make a Node due.
const ENOUGH: u32 = 2;
/// An answer that comes so long after the one before it does not belong to it.
pub(super) const LONGEST_PENDING: Duration = Duration::from_mins(10);
/// A Node waits at most so many periods until it is asked about again.
pub(crate) const MOST_PERIODS: u32 = 6;
/// A Node waits for this part of the time for which nothing has changed about it.
const PART: u32 = 10;

/// The instance of one Node is said to be gone.
#[derive(Debug, Default)]
pub(super) struct Absence {
    /// ABSENT answers in valid passes in a row.
    pub(super) in_row: u32,
    /// A Ready Node vouched for each of them.
    pub(super) witnessed: bool,
    /// The time between valid passes that both said ABSENT, added up.
    pub(super) held: Duration,
    /// When the last answer said so; `None` after anything else.
    pub(super) last: Option<Instant>,
    /// Its deletion is on its way.
    pub(super) sent: bool,
}

/// What was last answered about a Node that is not Ready.
#[derive(Debug)]
pub(super) struct Known {
    /// `Unspecified`: it is not known.
    pub(super) state: api::InstanceState,
    /// The Node's Ready condition, as it was when it was asked about.
    pub(super) condition: Option<Condition>,
    /// State and condition are the same since then.
    pub(super) since: Instant,
    /// When it is to be asked about again.
    pub(super) due: Instant,
    /// When the provider last hinted at it.
    pub(super) hinted: Option<Instant>,
}

impl Absence {
    /// A valid pass was told ABSENT. `longest_step`: more than that between two answers does not count.
    pub(super) fn answered(&mut self, witnessed: bool, longest_step: Duration, now: Instant) {
        let since = |last: Instant| now.saturating_duration_since(last);
        if self.last.is_some_and(|last| since(last) > LONGEST_PENDING) {
            self.break_row();
        }
        if let Some(last) = self.last {
            self.held += since(last).min(longest_step);
        }
        // Two answers of one pass are one.
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

    /// Whether its Node is to be deleted.
    pub(super) fn is_due(&self) -> bool {
        self.is_enough() || planted!(OneAbsentIsEnough) && self.in_row > 0
    }
}

impl Known {
    /// Nothing was known before.
    pub(super) fn of(answer: &Answer, now: Instant) -> Self {
        Self {
            state: answer.state(),
            condition: condition(&answer.node),
            since: now,
            due: now,
            hinted: None,
        }
    }

    /// Whether the Node's condition is another one than before.
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

    /// When it is to be asked about next. `again`: as soon as may be.
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
        // Of a Node that nobody answers for, the next answer may be another one.
        let steady = !again && self.state != Unspecified;
        let due = if steady { found.start + pause } else { least };
        // A provider that takes its time has as much time for others.
        let rested = answer.at + took.min(longest);
        self.due = if again { due } else { due.max(rested) };
        // Whether the answer was of before the hint or after it nobody knows.
        if self.hinted.take().is_some_and(|at| at > answer.began) {
            self.due = found.now;
        }
    }
}
