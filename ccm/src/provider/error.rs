//! What to do about a call that did not succeed. Pure.

use std::error::Error as _;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use tokio::time::Instant;

use super::limits;
use super::weigh::Refused;
use crate::planted::planted;
use crate::queue::{PROBE, Requeue};

/// Why a call, or an item of one, did not succeed. Says nothing about the existence of anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code:?}: {message}")]
pub(crate) struct CallError {
    /// What kind of trouble.
    pub(crate) code: CallErrorCode,
    /// The provider's CamelCase reason, or empty. At most 1 KiB.
    pub(crate) reason: String,
    /// For the operator. At most 1 KiB.
    pub(crate) message: String,
    /// Already clamped to 1 s..10 min.
    pub(crate) retry_after: Option<Duration>,
}

/// The rows of the contract's table of failures, and what never comes in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallErrorCode {
    /// The object is wrong.
    Invalid,
    /// Something around it is missing.
    Precondition,
    /// It is gone (UpdateLoadBalancer), or no such disk.
    NotFound,
    /// It belongs to somebody else.
    Conflict,
    /// Another operation holds it.
    Busy,
    /// The cloud says slow down.
    Throttled,
    /// The cloud refuses us.
    Credentials,
    /// The cloud's API is down.
    Unavailable,
    /// The provider restarted under us.
    NotInitialized,
    /// A fault of the provider.
    Internal,
    /// A gRPC status other than OK: nothing is known.
    Unknown,
    /// The deadline passed: nothing is known.
    Deadline,
    /// The connection is gone: nothing is known.
    Disconnected,
    /// The answer breaks the contract.
    Fault,
    /// We are not the leader any more: the call was not made.
    Fenced,
}

impl CallErrorCode {
    /// As the value of a metric's label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Precondition => "precondition",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Busy => "busy",
            Self::Throttled => "throttled",
            Self::Credentials => "credentials",
            Self::Unavailable => "unavailable",
            Self::NotInitialized => "not_initialized",
            Self::Internal => "internal",
            Self::Unknown => "unknown",
            Self::Deadline => "deadline",
            Self::Disconnected => "disconnected",
            Self::Fault => "fault",
            Self::Fenced => "fenced",
        }
    }
}

impl CallErrorCode {
    /// For people: as the contract names it, or what became of the call.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Invalid => "INVALID",
            Self::Precondition => "PRECONDITION",
            Self::NotFound => "NOT_FOUND",
            Self::Conflict => "CONFLICT",
            Self::Busy => "BUSY",
            Self::Throttled => "THROTTLED",
            Self::Credentials => "CREDENTIALS",
            Self::Unavailable => "UNAVAILABLE",
            Self::NotInitialized => "NOT_INITIALIZED",
            Self::Internal => "INTERNAL",
            Self::Unknown => "no answer",
            Self::Deadline => "no answer in time",
            Self::Disconnected => "connection lost",
            Self::Fault => "an answer that breaks the contract",
            Self::Fenced => "not sent",
        }
    }
}

/// What the controller does about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reaction {
    /// When to try again.
    pub(crate) retry: Retry,
    /// Whether an event is recorded on the object: of whatever the cloud or the provider answered, from the first time on (repeats change that Event, ever less often). Not of what passes
    /// within seconds, nor of refused credentials, which concern all objects alike.
    pub(crate) event: bool,
}

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// When the object changes, else after this.
    WhenChangedElse(Duration),
    /// After exactly this.
    After(Duration),
    /// The cloud refuses the provider's credentials, whatever is asked: one object of all that wait so is tried for all, and when it is taken the rest at once.
    Refused {
        /// So soon is one of them tried.
        probe: Duration,
        /// Each is tried again after this in any case: it may lack a right of its own.
        each: Duration,
    },
    /// With the key's backoff.
    Backoff,
    /// With the key's backoff, which a reconnect resets.
    TransportBackoff,
}

/// An object that is wrong is asked about again after this, unchanged as it is.
const INVALID_AGAIN: Duration = Duration::from_mins(30);
/// What only a person can mend is asked about again after this.
const SLOW: Duration = Duration::from_mins(5);
/// How often BUSY is repeated quickly.
const BUSY_TRIES: u32 = 5;
/// How long calls are slowed where THROTTLED comes without `retry_after`.
const SLOWED: Duration = Duration::from_secs(5);
/// So many lost connections in a row are told on the object; fewer are the status page's matter.
const DISCONNECTS_TOLD: u32 = 5;

impl Retry {
    /// What becomes of a key of a queue that failed so.
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
    /// For the user who reads an event: what the provider says, its reason behind it.
    pub(crate) fn why(&self) -> String {
        match (self.message.is_empty(), self.reason.is_empty()) {
            (false, false) => format!("{} ({})", self.message, self.reason),
            (false, true) => self.message.clone(),
            (true, false) => self.reason.clone(),
            (true, true) => self.code.label().to_owned(),
        }
    }

    /// CallError without a reason.
    pub(crate) fn new(code: CallErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: String::new(),
            message: limits::cut(&message.into()),
            retry_after: None,
        }
    }

    /// An answer that breaks the contract.
    pub(crate) fn fault(message: impl Into<String>) -> Self {
        Self::new(CallErrorCode::Fault, message)
    }

    /// The cloud said slow down: for so long.
    pub(crate) fn slows(&self) -> Option<Duration> {
        let throttled = self.code == CallErrorCode::Throttled && !planted!(ThrottleIsIgnored);
        throttled.then(|| self.after_or(SLOWED))
    }

    /// The object was BUSY `times` times in a row before: it is tried again after this, while that is to be quick. `jitter` (0.0..1.0) spreads 1.0 s over
    /// 1.0 s to 1.5 s.
    pub(crate) fn busy_again(&self, times: u32, jitter: f64) -> Option<Duration> {
        let quick = self.code == CallErrorCode::Busy && times < BUSY_TRIES;
        let spread = Duration::from_millis(500).mul_f64(jitter.clamp(0.0, 1.0));
        quick.then(|| self.after_or(Duration::from_secs(1) + spread))
    }

    /// The provider's `retry_after`, else this.
    fn after_or(&self, otherwise: Duration) -> Duration {
        self.retry_after.unwrap_or(otherwise)
    }

    /// What to do about it, for an object that already failed `failures` times in a row (0: this is the first time).
    pub(crate) fn reaction(&self, failures: u32) -> Reaction {
        self.reaction_jittered(failures, 0.0)
    }

    /// As `reaction`; `jitter` is that of [`Self::busy_again`].
    pub(crate) fn reaction_jittered(&self, failures: u32, jitter: f64) -> Reaction {
        if let Some(after) = self.busy_again(failures, jitter) {
            return Reaction {
                retry: Retry::After(after),
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
            // A deadline is a minute or more: whoever waits has waited long enough to be told.
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
            // `code()` reads a value that is not known as UNSPECIFIED.
            api::FailureCode::Unspecified | api::FailureCode::Internal => CallErrorCode::Internal,
        };
        Self {
            code,
            reason: limits::cut(&failure.reason),
            message: limits::cut(&failure.message),
            retry_after: failure.retry_after.as_ref().and_then(limits::retry_after),
        }
    }
}

impl From<tonic::Status> for CallError {
    /// A status is never an answer: whatever its code, nothing is known. An answer that we refuse to read breaks the contract, unless the others leave no room for it.
    fn from(status: tonic::Status) -> Self {
        match caused_by::<Refused>(&status) {
            Some(refused @ Refused::Together { .. }) => {
                return Self::new(CallErrorCode::Unknown, refused.to_string());
            }
            Some(refused) => return Self::fault(refused.to_string()),
            None => {}
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

/// A status that tonic made of an error of the connection, not one that the provider sent.
fn lost_connection(status: &tonic::Status) -> bool {
    caused_by::<std::io::Error>(status).is_some()
        || caused_by::<hyper::Error>(status).is_some_and(|error| {
            error.is_closed() || error.is_canceled() || error.is_incomplete_message()
        })
}

/// The error of this kind that the status was made of.
fn caused_by<E: std::error::Error + 'static>(status: &tonic::Status) -> Option<&E> {
    let mut source = status.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        source = error.source();
    }
    None
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
