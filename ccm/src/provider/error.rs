//! How to react to a call that did not succeed. Pure.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use tokio::time::Instant;

use super::call_log::CallId;
use super::limits;
use super::weigh::{Refused, Wrong};
use crate::planted::planted;
use crate::queue::{PROBE, Requeue};

/// Why a call, or an item of one, did not succeed. Only `NotFound` says that an object does not
/// exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code:?}: {message}")]
pub(crate) struct CallError {
    /// The kind of failure.
    pub(crate) code: CallErrorCode,
    /// The provider's CamelCase reason, `ContractFault`, or empty. At most 1 KiB.
    pub(crate) reason: String,
    /// A text for the operator. At most 1 KiB.
    pub(crate) message: String,
    /// Already clamped to 1 s..10 min.
    pub(crate) retry_after: Option<Duration>,
    /// The RPC that failed or was not sent. `None`: the failure names none, such as a fault that
    /// the ccm found in an answer only after the call.
    pub(crate) rpc: Option<&'static str>,
    /// The ID of the call. `None`: it was not sent, or as for `rpc`.
    pub(crate) call_id: Option<CallId>,
}

/// The rows of the contract's table of failures, and the failures that no answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallErrorCode {
    /// The object is wrong.
    Invalid,
    /// Something around the object is missing, such as a subnet or quota.
    Precondition,
    /// The load balancer is gone (UpdateLoadBalancer), or the disk does not exist.
    NotFound,
    /// The object in the cloud belongs to somebody else.
    Conflict,
    /// Another operation holds the object, or the provider has too much to do.
    Busy,
    /// The cloud asks to slow down.
    Throttled,
    /// The cloud refuses the provider's credentials.
    Credentials,
    /// The cloud's API is down.
    Unavailable,
    /// The provider was not initialised, for example after a restart.
    NotInitialized,
    /// A fault of the provider.
    Internal,
    /// A gRPC status other than OK and DEADLINE_EXCEEDED, or no memory for the answer: nothing is
    /// known.
    Unknown,
    /// The deadline passed, perhaps before the call was sent: nothing is known.
    Deadline,
    /// The connection is gone, or the session makes no further calls: nothing is known.
    Disconnected,
    /// The answer breaks the contract, or the ccm cannot send the request: it is too large.
    Fault,
    /// This process does not lead any more: the call was not made.
    Fenced,
}

impl CallErrorCode {
    /// Whether the failure usually concerns the whole cloud, and other calls fail with it too.
    pub(crate) fn concerns_all(self) -> bool {
        matches!(
            self,
            Self::Credentials | Self::Unavailable | Self::Throttled
        )
    }

    /// The value of a metric's label.
    pub(crate) fn label(self) -> &'static str {
        self.words().0
    }

    /// For people: the contract's name of the code, or what happened to the call.
    pub(crate) fn name(self) -> &'static str {
        self.words().1
    }

    /// The label and the name.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Invalid => ("invalid", "INVALID"),
            Self::Precondition => ("precondition", "PRECONDITION"),
            Self::NotFound => ("not_found", "NOT_FOUND"),
            Self::Conflict => ("conflict", "CONFLICT"),
            Self::Busy => ("busy", "BUSY"),
            Self::Throttled => ("throttled", "THROTTLED"),
            Self::Credentials => ("credentials", "CREDENTIALS"),
            Self::Unavailable => ("unavailable", "UNAVAILABLE"),
            Self::NotInitialized => ("not_initialized", "NOT_INITIALIZED"),
            Self::Internal => ("internal", "INTERNAL"),
            Self::Unknown => ("unknown", "no answer"),
            Self::Deadline => ("deadline", "no answer in time"),
            Self::Disconnected => ("disconnected", "connection lost"),
            Self::Fault => ("fault", "an answer that breaks the contract"),
            Self::Fenced => ("fenced", "not sent"),
        }
    }
}

/// How a controller reacts to a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reaction {
    /// When to try again.
    pub(crate) retry: Retry,
    /// Whether the controller records an event on the object. Most failures that the cloud or the
    /// provider answers get one, from the first time on. Repeats update that event. Failures that
    /// usually pass within seconds get none at first. Refused credentials get none, because they
    /// usually concern all objects: `controller/failures.rs` decides about their events.
    pub(crate) event: bool,
}

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// When the object changes, or after this at the latest.
    WhenChangedElse(Duration),
    /// After this, without backoff.
    After(Duration),
    /// The cloud refuses the provider's credentials. One object is tried for all that wait for this
    /// reason. When it succeeds, the rest follow at once.
    Refused {
        /// One of them is tried after this.
        probe: Duration,
        /// Each is tried after this in any case: it may lack a right of its own.
        each: Duration,
    },
    /// With the key's backoff.
    Backoff,
    /// With the key's backoff, which a reconnect resets.
    TransportBackoff,
}

/// Without `retry_after`, an invalid object is tried again after this, although it did not change.
const INVALID_AGAIN: Duration = Duration::from_mins(30);
/// Without `retry_after`, CONFLICT is tried again after this, and CREDENTIALS after this at the
/// latest.
const SLOW: Duration = Duration::from_mins(5);
/// How many times in a row the ccm retries an object quickly after BUSY.
const BUSY_TRIES: u32 = 5;
/// How long calls are held back after a THROTTLED without `retry_after`.
const SLOWED: Duration = Duration::from_secs(5);
/// After this many counted failures in a row, a lost connection or NOT_INITIALIZED gets an event on
/// the object. The status page shows the state of the connection from the first failure on.
const DISCONNECTS_TOLD: u32 = 5;

impl Retry {
    /// What the queue does with a key after this failure.
    pub(crate) fn outcome(self, now: Instant) -> Requeue {
        match self {
            Self::WhenChangedElse(after) | Self::After(after) => Requeue::At(now + after),
            Self::Refused { probe, each } => Requeue::Refused {
                probe: now + probe,
                at: now + each,
            },
            Self::Backoff => Requeue::Retry,
            Self::TransportBackoff => Requeue::RetryTransport,
        }
    }
}

impl CallError {
    /// For an event: the provider's message, then its reason. The code's label if both are empty.
    pub(crate) fn why(&self) -> String {
        match (self.message.is_empty(), self.reason.is_empty()) {
            (false, false) => format!("{} ({})", self.message, self.reason),
            (false, true) => self.message.clone(),
            (true, false) => self.reason.clone(),
            (true, true) => self.code.label().to_owned(),
        }
    }

    /// A failure without a reason.
    pub(crate) fn new(code: CallErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: String::new(),
            message: limits::cut(&message.into()),
            retry_after: None,
            rpc: None,
            call_id: None,
        }
    }

    /// The failure of the call of this RPC with this ID.
    pub(super) fn of_call(mut self, rpc: &'static str, call_id: &CallId) -> Self {
        self.call_id = Some(Arc::clone(call_id));
        self.of_rpc(rpc)
    }

    /// The failure of a call of this RPC that was not sent.
    pub(super) fn of_rpc(mut self, rpc: &'static str) -> Self {
        self.rpc = Some(rpc);
        self
    }

    /// For the log.
    pub(crate) fn call_id(&self) -> Option<&str> {
        self.call_id.as_deref()
    }

    /// A failure with the code [`CallErrorCode::Fault`] and without a reason.
    pub(crate) fn fault(message: impl Into<String>) -> Self {
        Self::new(CallErrorCode::Fault, message)
    }

    /// How long this THROTTLED holds back calls. `None` for other failures.
    pub(crate) fn slows(&self) -> Option<Duration> {
        let throttled = self.code == CallErrorCode::Throttled && !planted!(ThrottleIsIgnored);
        throttled.then(|| self.after_or(SLOWED))
    }

    /// The provider's `retry_after`, else `otherwise`.
    fn after_or(&self, otherwise: Duration) -> Duration {
        self.retry_after.unwrap_or(otherwise)
    }

    /// The reaction for an object that already failed `failures` times in a row (0: this is the
    /// first time).
    pub(crate) fn reaction(&self, failures: u32) -> Reaction {
        self.reaction_jittered(failures, 0.0)
    }

    /// As `reaction`. `jitter` (0.0..1.0) spreads the default delay after BUSY over 1.0 s to 1.5 s.
    pub(crate) fn reaction_jittered(&self, failures: u32, jitter: f64) -> Reaction {
        if self.code == CallErrorCode::Busy && failures < BUSY_TRIES {
            let spread = Duration::from_millis(500).mul_f64(jitter.clamp(0.0, 1.0));
            let delay = self.after_or(Duration::from_secs(1) + spread);
            return Reaction {
                retry: Retry::After(delay),
                event: false,
            };
        }
        let or = |otherwise: Retry| self.retry_after.map_or(otherwise, Retry::After);
        let (retry, event) = match self.code {
            CallErrorCode::Invalid => (Retry::WhenChangedElse(self.after_or(INVALID_AGAIN)), true),
            CallErrorCode::Conflict => (or(Retry::After(SLOW)), true),
            CallErrorCode::Busy
            | CallErrorCode::Precondition
            | CallErrorCode::NotFound
            | CallErrorCode::Throttled
            | CallErrorCode::Unavailable
            | CallErrorCode::Internal
            | CallErrorCode::Fault => (or(Retry::Backoff), true),
            CallErrorCode::Credentials => (
                Retry::Refused {
                    probe: self.after_or(PROBE),
                    each: self.after_or(SLOW),
                },
                false,
            ),
            // A deadline is a minute or more, so the first one already gets an event.
            CallErrorCode::Deadline => (Retry::TransportBackoff, true),
            CallErrorCode::Unknown => (Retry::TransportBackoff, failures > 0),
            CallErrorCode::Disconnected => (Retry::TransportBackoff, failures >= DISCONNECTS_TOLD),
            CallErrorCode::NotInitialized => {
                (or(Retry::TransportBackoff), failures >= DISCONNECTS_TOLD)
            }
            CallErrorCode::Fenced => (Retry::Backoff, false),
        };
        Reaction { retry, event }
    }
}

impl From<api::Failure> for CallError {
    fn from(failure: api::Failure) -> Self {
        let code = match failure.code() {
            api::FailureCode::Invalid => CallErrorCode::Invalid,
            api::FailureCode::Precondition => CallErrorCode::Precondition,
            api::FailureCode::NotFound => CallErrorCode::NotFound,
            api::FailureCode::Conflict => CallErrorCode::Conflict,
            api::FailureCode::Busy => CallErrorCode::Busy,
            api::FailureCode::Throttled => CallErrorCode::Throttled,
            api::FailureCode::Credentials => CallErrorCode::Credentials,
            api::FailureCode::Unavailable => CallErrorCode::Unavailable,
            api::FailureCode::NotInitialized => CallErrorCode::NotInitialized,
            // `code()` reads an unknown value as UNSPECIFIED.
            api::FailureCode::Unspecified | api::FailureCode::Internal => CallErrorCode::Internal,
        };
        Self {
            reason: limits::cut(&failure.reason),
            retry_after: failure.retry_after.as_ref().and_then(limits::retry_after),
            ..Self::new(code, failure.message)
        }
    }
}

impl From<tonic::Status> for CallError {
    /// A status is never an answer: whatever its code, nothing is known. If the ccm refuses to read
    /// an answer, the answer breaks the contract. One exception: the answer is small enough alone,
    /// but not together with the other answers that are being read.
    fn from(status: tonic::Status) -> Self {
        if let Some(refused) = caused_by::<Refused>(&status) {
            let code = match refused.wrong {
                Wrong::Together => CallErrorCode::Unknown,
                Wrong::Bytes(_) | Wrong::Decoded | Wrong::Malformed => CallErrorCode::Fault,
            };
            return Self::new(code, refused.to_string());
        }
        let code = if lost_connection(&status) {
            CallErrorCode::Disconnected
        } else if status.code() == tonic::Code::DeadlineExceeded {
            CallErrorCode::Deadline
        } else {
            CallErrorCode::Unknown
        };
        Self::new(
            code,
            format!("gRPC status {:?}: {}", status.code(), status.message()),
        )
    }
}

impl From<crate::core::Fenced> for CallError {
    fn from(fenced: crate::core::Fenced) -> Self {
        Self::new(CallErrorCode::Fenced, fenced.to_string())
    }
}

/// Whether tonic made this status from a connection error. The provider did not send such a status.
fn lost_connection(status: &tonic::Status) -> bool {
    caused_by::<std::io::Error>(status).is_some()
        || caused_by::<hyper::Error>(status).is_some_and(|error| {
            error.is_closed() || error.is_canceled() || error.is_incomplete_message()
        })
}

/// The error of this type that the status was made from.
fn caused_by<E: Error + 'static>(status: &tonic::Status) -> Option<&E> {
    causes(status).find_map(|error| error.downcast_ref())
}

/// The causes of an error: its own first, the root last.
pub(super) fn causes(error: &dyn Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;
    use CallErrorCode as C;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn refused(probe: u64, each: u64) -> Retry {
        Retry::Refused {
            probe: secs(probe),
            each: secs(each),
        }
    }

    #[test]
    fn every_row_of_the_table() {
        let rows = [
            (C::Invalid, 0, Retry::WhenChangedElse(secs(1800)), true),
            (C::Precondition, 3, Retry::Backoff, true),
            (C::NotFound, 0, Retry::Backoff, true),
            (C::Conflict, 0, Retry::After(secs(300)), true),
            (C::Busy, 0, Retry::After(secs(1)), false),
            (C::Busy, 4, Retry::After(secs(1)), false),
            (C::Busy, 5, Retry::Backoff, true),
            (C::Throttled, 0, Retry::Backoff, true),
            (C::Credentials, 9, refused(20, 300), false),
            (C::Unavailable, 0, Retry::Backoff, true),
            (C::Unavailable, 9, Retry::Backoff, true),
            (C::NotInitialized, 0, Retry::TransportBackoff, false),
            (C::Internal, 0, Retry::Backoff, true),
            (C::Unknown, 0, Retry::TransportBackoff, false),
            (C::Unknown, 1, Retry::TransportBackoff, true),
            (C::Deadline, 0, Retry::TransportBackoff, true),
            (C::Disconnected, 0, Retry::TransportBackoff, false),
            (C::Disconnected, 5, Retry::TransportBackoff, true),
            (C::Fault, 0, Retry::Backoff, true),
            (C::Fenced, 0, Retry::Backoff, false),
        ];
        for (code, failures, retry, event) in rows {
            let reaction = CallError::new(code, "m").reaction(failures);
            assert_eq!(reaction, Reaction { retry, event }, "{code:?} {failures}");
        }
    }

    #[test]
    fn the_providers_retry_after_is_honoured_for_every_code_of_a_body() {
        let after = Some(secs(7));
        for code in [
            C::Precondition,
            C::NotFound,
            C::Conflict,
            C::Busy,
            C::Throttled,
            C::Unavailable,
            C::NotInitialized,
            C::Internal,
        ] {
            let mut trouble = CallError::new(code, "m");
            trouble.retry_after = after;
            for failures in [0, 9] {
                assert_eq!(trouble.reaction(failures).retry, Retry::After(secs(7)));
            }
        }
        let mut credentials = CallError::new(C::Credentials, "m");
        credentials.retry_after = after;
        assert_eq!(credentials.reaction(0).retry, refused(7, 7));
        let mut invalid = CallError::new(C::Invalid, "m");
        invalid.retry_after = after;
        assert_eq!(invalid.reaction(0).retry, Retry::WhenChangedElse(secs(7)));
    }

    #[test]
    fn no_retry_after_of_a_body_is_so_short_that_it_makes_a_hot_loop() {
        for code in 0..=10 {
            let failure = api::Failure {
                code,
                retry_after: Some(prost_types::Duration {
                    seconds: 0,
                    nanos: 1_000_000,
                }),
                ..api::Failure::default()
            };
            let trouble = CallError::from(failure);
            for failures in [0, 9] {
                let retry = trouble.reaction(failures).retry;
                let wait = match retry {
                    Retry::After(wait) | Retry::WhenChangedElse(wait) => wait,
                    Retry::Refused { probe, each } => probe.min(each),
                    Retry::Backoff | Retry::TransportBackoff => panic!("{code}: {retry:?}"),
                };
                assert_eq!(wait, secs(1), "{code}");
            }
        }
    }

    #[test]
    fn busy_is_spread() {
        let busy = CallError::new(C::Busy, "m");
        let retry = |jitter| busy.reaction_jittered(0, jitter).retry;
        assert_eq!(retry(1.0), Retry::After(Duration::from_millis(1500)));
        assert_eq!(retry(7.0), Retry::After(Duration::from_millis(1500)));
        assert_eq!(retry(f64::NAN.max(0.0)), Retry::After(secs(1)));
    }

    #[test]
    fn failures_of_the_body_keep_their_code_and_unknown_ones_are_internal() {
        for (given, code) in [
            (0, C::Internal),
            (1, C::Invalid),
            (2, C::Precondition),
            (3, C::NotFound),
            (4, C::Conflict),
            (5, C::Busy),
            (6, C::Throttled),
            (7, C::Credentials),
            (8, C::Unavailable),
            (9, C::NotInitialized),
            (10, C::Internal),
            (4711, C::Internal),
            (-1, C::Internal),
        ] {
            let failure = api::Failure {
                code: given,
                ..Default::default()
            };
            assert_eq!(CallError::from(failure).code, code, "{given}");
        }
    }

    #[test]
    fn strings_of_a_failure_are_cut() {
        let failure = api::Failure {
            code: 1,
            reason: "R".repeat(5000),
            message: "ü".repeat(5000),
            retry_after: None,
        };
        let trouble = CallError::from(failure);
        assert!(trouble.reason.len() <= 1024);
        assert!(trouble.message.len() <= 1024);
        assert!(trouble.message.ends_with('…'));
    }

    #[test]
    fn no_status_is_ever_an_answer() {
        for code in 1..=16 {
            let trouble = CallError::from(tonic::Status::new(tonic::Code::from(code), "boom"));
            let expected = if code == 4 { C::Deadline } else { C::Unknown };
            assert_eq!(trouble.code, expected, "{code}");
            assert!(trouble.message.contains("boom"));
        }
        let broken = tonic::Status::from_error(Box::new(std::io::Error::from(
            std::io::ErrorKind::BrokenPipe,
        )));
        assert_eq!(CallError::from(broken).code, C::Disconnected);
    }
}
