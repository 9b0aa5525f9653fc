//! What a process remembers of an answer, and when it looks at the Service again. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::answer::Verdict;
use super::fingerprint::Fingerprint;
use super::notes::{self, Note, Op};
use super::plan::Applied;
use super::targets::TargetSet;
use crate::planted::planted;
use crate::provider::{Retry, Trouble, TroubleCode};
use crate::queue::Outcome;

/// Where only a change of the Service can help.
pub(super) const SLOW: Duration = Duration::from_mins(30);
/// THROTTLED without a delay.
const THROTTLE: Duration = Duration::from_secs(5);
/// From so many failed Deletes in a row on the Service says so, whatever the failure (▲S18).
const DELETES_TOLD: u32 = 3;

/// What a call was made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made<'a> {
    pub(super) op: Op,
    /// The name of the provider that was called.
    pub(super) me: &'a str,
    /// The Service is gone from the API server (B-S9).
    pub(super) departed: bool,
    /// The inputs as they were sent, with the provider's own annotations.
    pub(super) inputs: Fingerprint,
    /// The targets that were sent.
    pub(super) targets: Option<&'a TargetSet>,
    /// 0.0..1.0.
    pub(super) jitter: f64,
}

/// What follows.
#[derive(Debug, PartialEq)]
pub(super) struct Next {
    /// When to look again; `None`: at once.
    pub(super) outcome: Option<Outcome>,
    /// All calls of this provider's load balancers wait so long.
    pub(super) throttle: Option<Duration>,
    /// What a user is told who asks why it is not done.
    pub(super) told: Option<Told>,
}

/// Why it is not done.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    pub(super) note: Note,
    /// As the contract names it, or what became of the call.
    pub(super) code: Option<&'static str>,
    /// Told at once; else when it was told before, or has waited for half a minute.
    pub(super) at_once: bool,
    /// Another try comes as soon as the Service changes.
    pub(super) when_changed: bool,
}

impl Next {
    fn at_once() -> Self {
        Self {
            outcome: None,
            throttle: None,
            told: None,
        }
    }

    fn with(outcome: Outcome) -> Self {
        Self {
            outcome: Some(outcome),
            ..Self::at_once()
        }
    }
}

/// Takes note that a call is about to be made: until its answer nothing is confirmed any more, whatever the user puts back meanwhile.
pub(super) fn begin(applied: &mut Applied, op: Op, me: &str) {
    match op {
        Op::Get => {}
        Op::Ensure => {
            applied.touched = true;
            applied.by = Some(me.to_owned());
            applied.gone = false;
            applied.retained = false;
            applied.inputs = None;
            applied.targets = None;
        }
        Op::Update => applied.targets = None,
        Op::Delete => {
            applied.touched = true;
            applied.by = Some(me.to_owned());
            applied.inputs = None;
            applied.targets = None;
        }
    }
}

/// Takes note of an answer whose writes are done.
pub(super) fn conclude(
    applied: &mut Applied,
    verdict: &Verdict,
    made: &Made<'_>,
    now: Instant,
) -> Next {
    applied.pending = false;
    applied.wrong = false;
    applied.look = false;
    // What was said of another one's holds for the call that follows, and for that alone: later it may be gone, and its address another's.
    applied.theirs = None;
    let mending = std::mem::take(&mut applied.mend);
    let targets = made.targets.map(|targets| targets.fingerprint);
    match verdict {
        Verdict::InSync(_) => {
            applied.failures = 0;
            applied.touched = true;
            applied.by = Some(made.me.to_owned());
            applied.inputs = Some(made.inputs);
            applied.targets = targets;
            // The plan has the last word: what changed meanwhile is seen at once.
            Next::with(Outcome::Forget)
        }
        Verdict::OutOfSync { exists, theirs } => {
            applied.theirs.clone_from(theirs);
            if *exists {
                applied.touched = true;
                applied.by = Some(made.me.to_owned());
            }
            applied.inputs = None;
            applied.elsewhere = false;
            Next::at_once()
        }
        Verdict::Ready(_, troubled) | Verdict::Updated(troubled) => {
            applied.inputs = Some(made.inputs);
            applied.elsewhere = false;
            if troubled.is_empty() {
                applied.failures = 0;
                applied.targets = targets;
                return Next::with(Outcome::Forget);
            }
            applied.failures = applied.failures.saturating_add(1);
            applied.targets = None;
            let mut next = Next::with(
                troubled
                    .retry_after
                    .map_or(Outcome::Retry, |after| Outcome::At(now + after)),
            );
            next.told = Some(Told {
                note: notes::targets_failed(&troubled.nodes, &troubled.message),
                code: None,
                at_once: true,
                when_changed: false,
            });
            next
        }
        Verdict::Missing => {
            applied.inputs = None;
            applied.targets = None;
            Next::at_once()
        }
        Verdict::Elsewhere => {
            applied.failures = 0;
            applied.targets = targets;
            if made.op == Op::Ensure {
                applied.inputs = Some(made.inputs);
                applied.elsewhere = true;
            }
            Next::with(Outcome::Forget)
        }
        Verdict::Gone { retained } => {
            applied.failures = 0;
            applied.gone = true;
            applied.retained = *retained;
            applied.touched = false;
            applied.inputs = None;
            applied.targets = None;
            applied.elsewhere = false;
            if !retained {
                applied.unsaved_handle = None;
            }
            Next::at_once()
        }
        Verdict::Orphaned => {
            applied.failures = applied.failures.saturating_add(1);
            Next::with(Outcome::At(now + SLOW))
        }
        Verdict::Pending(after, what) => {
            applied.pending = true;
            let mut next = Next::with(Outcome::At(now + *after));
            next.told = Some(Told {
                note: notes::pending(made.op, what),
                code: Some("PENDING"),
                at_once: true,
                when_changed: false,
            });
            next
        }
        Verdict::Failed(trouble) => {
            // As upstream does: what an Update could not do an Ensure may (B-S10).
            if made.op == Op::Update && planted!(FailedUpdateIsForgotten) {
                applied.targets = targets;
                return Next::with(Outcome::Forget);
            }
            applied.mend = made.op == Op::Update || mending && made.op == Op::Ensure;
            failed(applied, trouble, made, now)
        }
    }
}

fn failed(applied: &mut Applied, trouble: &Trouble, made: &Made<'_>, now: Instant) -> Next {
    let reaction = trouble.reaction_jittered(applied.failures, made.jitter);
    // BUSY and lost connections are no failures of the Service, but they are counted: that is what ends their quick retries.
    applied.failures = applied.failures.saturating_add(1);
    if made.op == Op::Get {
        applied.look = true;
    }
    applied.wrong = matches!(reaction.retry, Retry::WhenChangedElse(_));
    let mut next = Next::with(reaction.retry.outcome(now));
    if trouble.code == TroubleCode::Throttled && !planted!(ThrottleIsIgnored) {
        next.throttle = Some(trouble.retry_after.unwrap_or(THROTTLE));
    }
    let stuck = made.op == Op::Delete && applied.failures >= DELETES_TOLD;
    // Who leads no more tells nothing.
    next.told = (trouble.code != TroubleCode::Fenced).then(|| Told {
        note: notes::failed(made.op, made.departed, made.targets, &notes::why(trouble)),
        code: Some(trouble.code.name()),
        at_once: reaction.event || stuck,
        when_changed: applied.wrong,
    });
    next
}

#[cfg(test)]
mod tests;
