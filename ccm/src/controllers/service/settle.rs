//! The changes that a call and its answer make in a Service's record, and what follows. Pure.
//!
//! [`begin`] applies the rows "is sent", before the call. If the answer is "in sync", "ready",
//! "done" (also "but for targets") or "elsewhere" and one of its writes fails, the record keeps the
//! values of the row "is sent".
//! [`settle`] applies the other rows, after the answer's writes. In them, "as before" is the value
//! that the row "is sent" left. Some failures and target errors bring their own delay instead of
//! "backoff". A test compares this table with the code.
//!
//! | call | answer | cloud | progress | check | failures | next |
//! |---|---|---|---|---|---|---|
//! | Get | is sent | as before | as before | as before | as before | |
//! | Get | in sync | may stand | confirmed | no | 0 | done |
//! | Get | not in sync | may stand | unconfirmed | no | as before | at once |
//! | Get | none of ours | as before | unconfirmed | no | as before | at once |
//! | Get | INVALID | as before | rejected | yes | one more | when it changes |
//! | Get | fails | as before | as before, not pending | yes | one more | backoff |
//! | Ensure | is sent | may stand | unconfirmed, or rejected as before | as before | as before | |
//! | Ensure | ready | as before | confirmed | no | 0 | done |
//! | Ensure | ready but for targets | as before | confirmed but for targets | no | one more | backoff |
//! | Ensure | pending | as before | pending | no | as before | after its delay |
//! | Ensure | elsewhere | as before | elsewhere | no | 0 | done |
//! | Ensure | INVALID | as before | rejected | no | one more | when it changes |
//! | Ensure | fails | as before | unconfirmed, or rejected as before | no | one more | backoff |
//! | Update | is sent | as before | confirmed but for targets | as before | as before | |
//! | Update | done | as before | confirmed | no | 0 | done |
//! | Update | done but for targets | as before | confirmed but for targets | no | one more | backoff |
//! | Update | pending | as before | pending, inputs confirmed | no | as before | after its delay |
//! | Update | elsewhere | as before | confirmed | no | 0 | done |
//! | Update | missing | as before | unconfirmed | no | as before | at once |
//! | Update | INVALID | as before | rejected | no | one more | when it changes |
//! | Update | fails | as before | rejected | no | one more | backoff |
//! | Delete | is sent | may stand | unconfirmed | as before | as before after a Delete, else 0 | |
//! | Delete | gone | deleted | unconfirmed | no | 0 | at once |
//! | Delete | retained | kept | unconfirmed | no | 0 | at once |
//! | Delete | orphaned | as before | unconfirmed | no | one more | slowly |
//! | Delete | pending | as before | pending | no | as before | after its delay |
//! | Delete | INVALID | as before | rejected | no | one more | when it changes |
//! | Delete | fails | as before | unconfirmed | no | one more | backoff |

use std::borrow::Cow;
use std::time::Duration;

use cloud_provider_api::v1alpha1::LoadBalancerCapability;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::answer::{Call, Theirs, Troubled, Verdict};
use super::fingerprint::{Fingerprint, service_inputs};
use super::handle::Stored;
use super::notes::{self, Note, Op, PENDING};
use super::record::{Cloud, Progress, Record, Seen};
use super::support::unsupported;
use super::targets::TargetSet;
use crate::controller::Failed;
use crate::planted::planted;
use crate::provider::{CallError, CallErrorCode, Retry};
use crate::queue::Requeue;
use crate::report::Answered;
use crate::writes::ServicePatch;

/// The delay if a retry without a change cannot help.
pub(super) const SLOW: Duration = Duration::from_mins(30);
/// From this many failed Deletes in a row on, each is reported at once (▲S18).
const DELETES_TOLD: u32 = 3;

/// The consequences of an answer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Effects {
    /// When the Service is reconciled again. `None`: at once.
    pub(super) requeue: Option<Requeue>,
    /// Whether the cloud accepted the provider's credentials. `None`: the answer does not show it.
    pub(super) accepted: Option<bool>,
    /// The cloud refuses the credentials, and this Service gets the event for all.
    pub(super) refused: bool,
    /// Why the Service is not done.
    pub(super) reported: Option<Report>,
    /// Events on the Service.
    pub(super) notes: Vec<Note>,
}

/// Why a Service is not done.
#[derive(Debug, PartialEq)]
pub(super) struct Report {
    pub(super) answered: Answered,
    /// Report it at once. Otherwise it is reported if the Service has waited for half a minute or
    /// was reported before.
    pub(super) at_once: bool,
    /// A change of the Service leads to another attempt at once.
    pub(super) when_changed: bool,
    /// The log has a warning about the same outage already.
    pub(super) logged: bool,
    /// How long the call took.
    pub(super) took: Option<Duration>,
}

impl Report {
    /// A report at once, without the data of a call.
    pub(super) fn new(note: Note) -> Self {
        let answered = Answered {
            kind: note.kind,
            reason: match note.reason {
                Cow::Borrowed(reason) => reason,
                // Only the provider's events have an owned reason, and those are not reports.
                Cow::Owned(_) => PENDING,
            },
            words: note.message,
            code: None,
            rpc: None,
            call_id: None,
        };
        Self {
            answered,
            at_once: true,
            when_changed: false,
            logged: false,
            took: None,
        }
    }
}

impl Effects {
    fn with(outcome: Requeue) -> Self {
        Self {
            requeue: Some(outcome),
            ..Self::default()
        }
    }
}

/// Changes the record before a call. After an Ensure or Delete is sent, nothing is confirmed until
/// its answer, even if the user reverts a change. Also returns the events before the call.
pub(super) fn begin(
    mut record: Record,
    call: &Call<'_>,
    capability: &LoadBalancerCapability,
) -> (Record, Vec<Note>) {
    let notes = before(&mut record, call, capability);
    if matches!(call.op, Op::Ensure | Op::Delete) {
        record.cloud = may_stand(call);
    }
    record.progress = match (call.op, record.progress) {
        (Op::Get, progress)
        | (Op::Ensure, progress @ (Progress::Unconfirmed { .. } | Progress::Rejected)) => progress,
        (Op::Update, progress) => progress
            .confirmed()
            .map_or(Progress::UNCONFIRMED, |inputs| Progress::Confirmed {
                inputs,
                targets: None,
            }),
        (Op::Ensure | Op::Delete, _) => Progress::UNCONFIRMED,
    };
    (record, notes)
}

fn may_stand(call: &Call<'_>) -> Cloud {
    Cloud::MayStand {
        by: call.me.to_owned(),
    }
}

/// The events before a call.
fn before(record: &mut Record, call: &Call<'_>, capability: &LoadBalancerCapability) -> Vec<Note> {
    let mut notes = Vec::new();
    let pending = record.progress.is_pending();
    let deletes = call.op == Op::Delete;
    let first_delete = deletes && !record.deletes;
    record.deletes = deletes;
    if first_delete {
        record.failures = 0;
    }
    let first = first_delete || record.failures == 0 && !pending;
    let targets = call.targets.filter(|_| !capability.ignores_nodes);
    if !deletes {
        let inputs = service_inputs(call.service);
        let fields = unsupported(call.service, capability);
        if record.unsupported_told.replace(inputs) != Some(inputs) && !fields.is_empty() {
            notes.push(notes::unsupported(&fields, call.me));
        }
    }
    if call.op != Op::Update && first && Stored::of(call.service) == Stored::Garbage {
        notes.push(notes::garbage());
    }
    if !deletes {
        let cut = targets.filter(|targets| targets.left_out > 0);
        let reported = std::mem::replace(&mut record.cut_told, cut.is_some());
        let cut = cut.filter(|_| !reported);
        notes.extend(cut.map(|targets| notes::targets_cut(targets, call.service)));
    }
    match call.op {
        Op::Ensure => {
            if !pending {
                notes.push(notes::ensuring());
            }
            if targets.is_some_and(TargetSet::is_empty) {
                notes.push(notes::no_nodes());
            }
        }
        Op::Delete if first_delete => notes.push(notes::deleting()),
        Op::Get | Op::Update | Op::Delete => {}
    }
    notes
}

/// Changes the record after an answer. `written` is the request's Service with the answer's patch
/// ([`with_annotations`]), if it was applied.
/// `reaction` is the driver's reaction to a failure.
pub(super) fn settle(
    mut record: Record,
    call: &Call<'_>,
    verdict: &Verdict,
    written: Option<&Service>,
    reaction: impl FnOnce(&CallError) -> Failed,
    now: Instant,
) -> (Record, Effects) {
    // A user's change during the call is not in it, so it leads to another step.
    let expected = written.unwrap_or(call.service);
    let inputs = service_inputs(expected);
    let targets = call.targets.map(|targets| targets.fingerprint);
    let confirmed = Progress::Confirmed { inputs, targets };
    record.seen = Seen::of(expected);
    record.check = false;
    let before = std::mem::replace(&mut record.progress, Progress::UNCONFIRMED);
    let mut effects = match verdict {
        Verdict::InSync(_) => {
            record.cloud = may_stand(call);
            // When the job ends, the Service is compared again, so no change during the call is
            // lost.
            done(&mut record, confirmed)
        }
        Verdict::OutOfSync { exists, theirs } => {
            let found = exists.then(|| may_stand(call));
            out_of_sync(&mut record, found, theirs.clone())
        }
        Verdict::Ready(_, troubled) | Verdict::Updated(troubled) if troubled.is_empty() => {
            done(&mut record, confirmed)
        }
        Verdict::Ready(_, troubled) | Verdict::Updated(troubled) => {
            not_attached(&mut record, inputs, troubled, now)
        }
        Verdict::Missing => Effects::default(),
        Verdict::Elsewhere if call.op == Op::Update => done(&mut record, confirmed),
        Verdict::Elsewhere => done(&mut record, Progress::Elsewhere { inputs }),
        Verdict::Gone { retained } => gone(&mut record, *retained),
        Verdict::Orphaned => {
            record.failures = record.failures.saturating_add(1);
            Effects::with(Requeue::At(now + SLOW))
        }
        Verdict::Pending(after, what) => {
            let inputs = before.confirmed();
            record.progress = Progress::Pending { inputs };
            pending(call.op, now + *after, what)
        }
        Verdict::Failed(_) if call.op == Op::Update && planted!(FailedUpdateIsForgotten) => {
            done(&mut record, confirmed)
        }
        Verdict::Failed(trouble) => {
            let reaction = reaction(trouble);
            failed(&mut record, &before, trouble, reaction, call, now)
        }
    };
    effects.notes = after(&before, call, verdict);
    let answered = !matches!(verdict, Verdict::Failed(_));
    effects.accepted = effects.accepted.or(answered.then_some(true));
    (record, effects)
}

fn done(record: &mut Record, progress: Progress) -> Effects {
    record.failures = 0;
    record.progress = progress;
    Effects::with(Requeue::Forget)
}

fn out_of_sync(record: &mut Record, found: Option<Cloud>, theirs: Option<Theirs>) -> Effects {
    if let Some(cloud) = found {
        record.cloud = cloud;
    }
    record.progress = Progress::Unconfirmed { theirs };
    Effects::default()
}

fn gone(record: &mut Record, retained: bool) -> Effects {
    record.failures = 0;
    record.deletes = false;
    record.cloud = if retained {
        Cloud::Kept
    } else {
        record.unsaved_handle = None;
        Cloud::Deleted
    };
    Effects::default()
}

/// In sync except for some targets (▲S14).
fn not_attached(
    record: &mut Record,
    inputs: Fingerprint,
    troubled: &Troubled,
    now: Instant,
) -> Effects {
    record.failures = record.failures.saturating_add(1);
    let targets = None;
    record.progress = Progress::Confirmed { inputs, targets };
    let again = troubled.retry_after;
    let note = notes::targets_failed(&troubled.nodes, &troubled.message);
    Effects {
        reported: Some(Report::new(note)),
        ..Effects::with(again.map_or(Requeue::Retry, |after| Requeue::At(now + after)))
    }
}

fn pending(op: Op, again: Instant, what: &str) -> Effects {
    let mut report = Report::new(notes::pending(op, what));
    report.answered.code = Some("PENDING");
    Effects {
        reported: Some(report),
        ..Effects::with(Requeue::At(again))
    }
}

fn failed(
    record: &mut Record,
    before: &Progress,
    trouble: &CallError,
    reaction: Failed,
    call: &Call<'_>,
    now: Instant,
) -> Effects {
    let when_changed = matches!(reaction.retry, Retry::WhenChangedElse(_));
    record.failures = record.failures.saturating_add(1);
    record.check = call.op == Op::Get;
    record.progress = match (call.op, before) {
        _ if when_changed => Progress::Rejected,
        // As upstream: Ensure may succeed where Update failed (B-S10).
        (Op::Update, _) | (Op::Ensure, Progress::Rejected) => Progress::Rejected,
        (Op::Ensure | Op::Delete, _) | (Op::Get, Progress::Unconfirmed { .. }) => {
            Progress::UNCONFIRMED
        }
        (Op::Get, Progress::Pending { inputs }) => match *inputs {
            Some(inputs) => Progress::Confirmed {
                inputs,
                targets: None,
            },
            None => Progress::UNCONFIRMED,
        },
        (Op::Get, before) => before.clone(),
    };
    let stuck = call.op == Op::Delete && record.failures >= DELETES_TOLD;
    let credentials = trouble.code == CallErrorCode::Credentials;
    let why = trouble.why();
    let mut report = Report {
        at_once: reaction.event && !credentials || stuck,
        when_changed,
        logged: trouble.code.concerns_all() && !reaction.warn,
        ..Report::new(notes::failed(call.op, call.departed, call.targets, &why))
    };
    report.answered.code = Some(trouble.code.name());
    Effects {
        accepted: credentials.then_some(false),
        refused: credentials && reaction.event,
        // A fenced call is not reported, because this process no longer leads.
        reported: (trouble.code != CallErrorCode::Fenced).then_some(report),
        ..Effects::with(reaction.retry.outcome(now))
    }
}

/// The events after a call that succeeded.
fn after(before: &Progress, call: &Call<'_>, verdict: &Verdict) -> Vec<Note> {
    match verdict {
        Verdict::Ready(status, _) => {
            let spec = call.service.spec.as_ref();
            let asked_for = spec.and_then(|spec| spec.load_balancer_ip.as_deref());
            let taken = match before {
                Progress::Unconfirmed {
                    theirs: Some(theirs),
                } => Some(theirs)
                    .filter(|theirs| theirs.taken_by(status, asked_for, call.adopt_unmarked)),
                _ => None,
            };
            let taken = taken.map(notes::taken_over);
            taken.into_iter().chain([notes::ensured()]).collect()
        }
        Verdict::Updated(_) if call.targets.is_none_or(TargetSet::is_empty) => {
            vec![notes::no_nodes()]
        }
        Verdict::Updated(_) => vec![notes::updated()],
        _ => Vec::new(),
    }
}

/// The Service of a request with the annotations of a patch, as they are in `stored`, the Service
/// that the API server returned: admission may have removed or changed them.
pub(super) fn with_annotations(
    service: &Service,
    patch: &ServicePatch,
    stored: &Service,
) -> Service {
    let mut service = service.clone();
    let annotations = service.metadata.annotations.get_or_insert_default();
    for key in patch.annotations.keys() {
        match stored.annotations().get(key) {
            Some(value) => annotations.insert(key.clone(), value.clone()),
            None => annotations.remove(key),
        };
    }
    service
}

#[cfg(test)]
mod tests;
