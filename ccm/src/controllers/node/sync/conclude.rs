//! What an attempt came to: when the Node is tried again, and who is told.

use std::sync::PoisonError;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::super::plan::{NodePlan, Then};
use super::super::{Worker, name};
use super::RPC;
use crate::core::millis;
use crate::planted::planted;
use crate::provider::{Retry, Trouble, TroubleCode};
use crate::queue::Outcome;
use crate::report::Answered;
use crate::writes::{EventType, WriteError, reason};

/// That the cloud refuses the provider's credentials is told no more often.
const CREDENTIALS_AGAIN: Duration = Duration::from_mins(10);

/// What an attempt brought that did not succeed.
pub(super) struct Report {
    answered: Answered,
    /// It does not pass by itself: the user is told at once.
    at_once: bool,
    /// Another try comes as soon as the Node changes.
    when_changed: bool,
    /// It is no failure.
    quiet: bool,
}

impl Worker {
    /// The writes are done. `took`: how long the lookup did.
    pub(super) fn conclude(
        &self,
        node: &Node,
        plan: NodePlan,
        took: Option<Duration>,
    ) -> (Outcome, Option<Report>) {
        let (key, provider) = (name(node).to_owned(), &self.context.provider);
        if !matches!(plan.then, Then::Trouble(_)) {
            self.queue.accepted(&key);
        }
        let mut lasting = false;
        for event in plan.events {
            // That is told with the attempt and the next one.
            if event.reason == reason::NODE_NOT_INITIALIZED {
                lasting = true;
            } else {
                self.event(node, event.kind, event.reason, event.message);
            }
        }
        let report = |words: String, code| Report {
            answered: Answered {
                kind: EventType::Warning,
                reason: reason::NODE_NOT_INITIALIZED,
                words,
                code,
                rpc: Some(RPC),
            },
            at_once: lasting,
            when_changed: false,
            quiet: false,
        };
        match plan.then {
            Then::Initialized => {
                if let Some(first) = plan.reserved.first() {
                    let labels = plan.reserved.len();
                    self.metrics.reserved_labels(provider, labels);
                    tracing::warn!(node = key, %provider, labels, first, "labels in reserved namespaces were left out: they are not the provider's to give");
                }
                let created = node.metadata.creation_timestamp.as_ref();
                if let Some(created) = created {
                    let age = (self.context.wall)().duration_since(created.0);
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
                (Outcome::Forget, None)
            }
            Then::Done => {
                self.waiting().gone(&key);
                (Outcome::Forget, None)
            }
            Then::LeftAlone => {
                self.waiting().gone(&key);
                (Outcome::Idle, None)
            }
            Then::After(delay, why) => {
                let report = Report {
                    quiet: true,
                    ..report(why, Some("PENDING"))
                };
                (Outcome::At(Instant::now() + delay), Some(report))
            }
            Then::Retry(why) => (Outcome::Retry, Some(report(why, None))),
            Then::Trouble(trouble) => {
                // `Outcome::At` leaves the failures of the queue as they are.
                let is_busy = trouble.code == TroubleCode::Busy;
                let busy = self.waiting().busy(&key, is_busy);
                let failures = if is_busy {
                    busy
                } else {
                    self.queue.failures(&key)
                };
                let reaction = trouble.reaction_jittered(failures, self.jitter(&key, failures));
                let refused = trouble.code == TroubleCode::Credentials;
                let report = Report {
                    at_once: reaction.event || refused && self.tells_credentials(),
                    when_changed: matches!(reaction.retry, Retry::WhenChangedElse(_)),
                    ..report(describe(&trouble), Some(trouble.code.name()))
                };
                (reaction.retry.outcome(Instant::now()), Some(report))
            }
        }
    }

    /// Whether it is to be told now that the cloud refuses the provider's credentials: on one Node for all of them.
    fn tells_credentials(&self) -> bool {
        let told = &mut *self
            .credentials_told
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let due = told.is_none_or(|at| at.elapsed() >= CREDENTIALS_AGAIN);
        if due {
            *told = Some(Instant::now());
        }
        due
    }

    /// 0.0 to 1.0: Nodes that were BUSY together do not come back together.
    fn jitter(&self, key: &str, failures: u32) -> f64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (self.context.seed, key, failures).hash(&mut hasher);
        f64::from((hasher.finish() >> 32) as u32) / f64::from(u32::MAX)
    }

    /// A write did not happen.
    pub(super) fn excuse(error: &WriteError) -> (Outcome, Option<Report>) {
        let (reason, at_once) = match error {
            // Another Node of this name has its own change, and so is asked about anew.
            WriteError::Gone => return (Outcome::Forget, None),
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
            },
            at_once,
            when_changed: false,
            quiet: false,
        };
        if planted!(NodeRetryIsLost) && matches!(error, WriteError::Unavailable(_)) {
            return (Outcome::Forget, Some(report));
        }
        (Outcome::Retry, Some(report))
    }

    /// Says what an attempt brought, in the log and, where it is time, to the user (▲N13).
    pub(super) fn report(&self, node: &Node, report: &Report, logged: bool) {
        let key = name(node).to_owned();
        let answered = &report.answered;
        let now = Instant::now();
        let (tell, attempt) = {
            let mut waiting = self.waiting();
            let tell = waiting.answered(&key, answered, report.at_once, now);
            (tell, waiting.attempts(&key))
        };
        let told = self.told(node, answered, attempt, report.when_changed);
        let (provider, error) = (&self.context.provider, answered.words.as_str());
        let retry_in_ms = self
            .queue
            .due(&key)
            .map(|at| at.saturating_duration_since(now))
            .map(millis);
        let (code, rpc) = (answered.code, answered.rpc);
        // One warning for the first failure; a call that failed as a whole was logged already.
        if logged || report.quiet || attempt > 1 {
            tracing::debug!(node = key, %provider, rpc, code, error, attempt, retry_in_ms, "Node not synced");
        } else {
            tracing::warn!(node = key, %provider, rpc, code, error, attempt, retry_in_ms, "Node not synced");
        }
        if tell {
            self.event(node, answered.kind, answered.reason, told);
        }
    }
}

fn describe(trouble: &Trouble) -> String {
    if trouble.reason.is_empty() {
        trouble.message.clone()
    } else {
        format!("{}: {}", trouble.reason, trouble.message)
    }
}
