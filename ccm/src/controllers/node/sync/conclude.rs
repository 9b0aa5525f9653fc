//! The end of an attempt: when the Node is tried again, and what is reported.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::super::plan::{NodePlan, Then};
use super::super::{Worker, name};
use super::RPC;
use crate::controller::Batch;
use crate::core::millis;
use crate::planted::planted;
use crate::provider::{CallError, Retry};
use crate::queue::Requeue;
use crate::report::Answered;
use crate::writes::{EventType, WriteError, reason};

/// An attempt that did not succeed.
pub(super) struct Report {
    answered: Answered,
    /// It does not pass by itself: the event is recorded at once.
    at_once: bool,
    /// A change of the Node leads to another attempt at once.
    when_changed: bool,
    /// The log does not warn.
    quiet: bool,
}

impl Report {
    fn not_initialized(words: String, code: Option<&'static str>, at_once: bool) -> Self {
        Self {
            answered: Answered {
                kind: EventType::Warning,
                reason: reason::NODE_NOT_INITIALIZED,
                words,
                code,
                rpc: Some(RPC),
                call_id: None,
            },
            at_once,
            when_changed: false,
            quiet: false,
        }
    }
}

impl Worker {
    /// Settles the Node's key after the writes. `took` is the duration of the lookup.
    pub(super) fn conclude(
        &self,
        node: &Node,
        plan: NodePlan,
        took: Option<Duration>,
        batch: &Batch<'_, String>,
    ) -> Option<Report> {
        let key = name(node).to_owned();
        if !matches!(plan.then, Then::CallError(_)) {
            batch.answered(&key);
        }
        let mut lasting = false;
        for event in plan.events {
            // The report of the attempt includes this event.
            if event.reason == reason::NODE_NOT_INITIALIZED {
                lasting = true;
            } else {
                self.event(node, event.kind, event.reason, event.message);
            }
        }
        let report = |words, code| Report::not_initialized(words, code, lasting);
        let (outcome, report) = match plan.then {
            Then::Initialized => {
                self.initialized(node, &plan.reserved, took);
                (Requeue::Forget, None)
            }
            Then::Done => {
                self.waiting().gone(&key);
                (Requeue::Forget, None)
            }
            Then::LeftAlone => {
                self.waiting().gone(&key);
                (Requeue::Idle, None)
            }
            Then::After(delay, why) => {
                let report = Report {
                    quiet: true,
                    ..report(why, Some("PENDING"))
                };
                (Requeue::At(Instant::now() + delay), Some(report))
            }
            Then::Retry(why) => (Requeue::Retry, Some(report(why, None))),
            Then::CallError(trouble) => {
                let failed = batch.failed(&key, &trouble);
                let mut report = report(describe(&trouble), Some(trouble.code.name()));
                report.answered.call_id.clone_from(&trouble.call_id);
                return Some(Report {
                    at_once: failed.event,
                    when_changed: matches!(failed.retry, Retry::WhenChangedElse(_)),
                    quiet: !failed.warn,
                    ..report
                });
            }
        };
        batch.settle(&key, outcome);
        report
    }

    /// The writes have initialised it.
    fn initialized(&self, node: &Node, reserved: &[String], took: Option<Duration>) {
        let (key, provider) = (name(node).to_owned(), &self.driver.context.provider);
        if let Some(first) = reserved.first() {
            let labels = reserved.len();
            self.metrics.reserved_labels(provider, labels);
            tracing::warn!(node = key, %provider, labels, first, "left out labels in reserved namespaces: the provider may not set them");
        }
        if let Some(created) = &node.metadata.creation_timestamp {
            let age = (self.driver.context.wall)().duration_since(created.0);
            self.metrics
                .initialized(Duration::try_from(age).unwrap_or_default());
        }
        let attempt = {
            let mut waiting = self.waiting();
            let before = waiting.attempts(&key);
            waiting.gone(&key);
            before + 1
        };
        let took_ms = took.map(millis);
        tracing::info!(node = key, %provider, rpc = RPC, took_ms, attempt, "Node initialised");
    }

    /// How to react to a write that did not happen.
    pub(super) fn excuse(error: &WriteError) -> (Requeue, Option<Report>) {
        let (reason, at_once) = match error {
            // Another Node of this name has a change of its own, which makes it due.
            WriteError::Gone => return (Requeue::Forget, None),
            WriteError::Conflict | WriteError::Fenced(_) | WriteError::Unavailable(_) => {
                (reason::NODE_NOT_INITIALIZED, false)
            }
            WriteError::Refused(_) => (reason::NODE_WRITE_REFUSED, true),
        };
        let report = Report {
            answered: Answered {
                kind: EventType::Warning,
                reason,
                words: error.to_string(),
                code: None,
                rpc: None,
                call_id: None,
            },
            at_once,
            when_changed: false,
            quiet: false,
        };
        if planted!(NodeRetryIsLost) && matches!(error, WriteError::Unavailable(_)) {
            return (Requeue::Forget, Some(report));
        }
        (Requeue::Retry, Some(report))
    }

    /// Logs a failed attempt and, if it is time, records an event (▲N13).
    pub(super) fn report(&self, node: &Node, report: &Report, logged: bool) {
        let key = name(node).to_owned();
        let answered = &report.answered;
        let now = Instant::now();
        let (tell, attempt) = {
            let mut waiting = self.waiting();
            let tell = waiting.answered(&key, answered, report.at_once, now);
            (tell, waiting.attempts(&key))
        };
        let reported = self.reported(node, answered, attempt, report.when_changed);
        let (provider, error) = (&self.driver.context.provider, answered.words.as_str());
        let retry_in_ms = self
            .driver
            .queue
            .due(&key)
            .map(|at| at.saturating_duration_since(now))
            .map(millis);
        let (code, rpc) = (answered.code, answered.rpc);
        let call_id = answered.call_id.as_deref();
        // One warning for the first failure. A call that failed as a whole is in the log already.
        if logged || report.quiet || attempt > 1 {
            tracing::debug!(node = key, %provider, rpc, call_id, code, error, attempt, retry_in_ms, "Node not synced");
        } else {
            tracing::warn!(node = key, %provider, rpc, call_id, code, error, attempt, retry_in_ms, "Node not synced");
        }
        if tell {
            self.event(node, answered.kind, answered.reason, reported);
        }
    }
}

fn describe(trouble: &CallError) -> String {
    if trouble.reason.is_empty() {
        trouble.message.clone()
    } else {
        format!("{}: {}", trouble.reason, trouble.message)
    }
}
