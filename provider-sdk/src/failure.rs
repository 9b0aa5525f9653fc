//! Failures in the terms of the contract.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// The longest message or reason in bytes (CORE-11). The SDK cuts longer ones at a character
/// boundary.
pub const MAX_TEXT_BYTES: usize = 1024;

/// The kinds of failure. Each decides how the controller reacts (`FailureCode` in `types.proto`,
/// CORE-15). The reactions below are those to a call about one object. In such a call a
/// [`Failure::retry_after`] replaces the delay that is stated here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureCode {
    /// The object itself is wrong or unsupported. The controller records a Warning event, and
    /// retries when the object changes, or after 30 min.
    Invalid,
    /// Something around the object is missing (subnet, tag, setting, quota). The controller records
    /// an event, and retries with backoff (for a Service from 5 s to 300 s).
    Precondition,
    /// `LoadBalancers::update`: the load balancer does not exist. `Volumes::labels`: the disk does
    /// not exist. `Clusters::control_plane_address`: the cluster does not exist. In other calls the
    /// controller reads it as `Internal`.
    NotFound,
    /// The object, or a part of it, belongs to another owner, has no mark, or collides with another
    /// object. The controller records an event, and retries after 5 min.
    Conflict,
    /// Another operation holds the same object, or the provider has too much to do (CORE-22). The
    /// controller retries five times, each time after `retry_after` or after 1 s to 1.5 s, then
    /// with backoff.
    Busy,
    /// The cloud limits the request rate. The controller records an event, and starts no call of
    /// this service for `retry_after` (5 s if absent).
    Throttled,
    /// The cloud refuses the credentials. At first the controller records at most one event for all
    /// objects. It tries one object every 20 s and, except in the node lifecycle controller, each
    /// object after 5 min at the latest. A `retry_after` replaces both times.
    Credentials,
    /// The cloud's API is unavailable. The controller records an event, and retries with backoff.
    Unavailable,
    /// No `Initialize` has succeeded in this process, or the last one that succeeded was for
    /// another owner ID. The controller initialises the provider and tries again. The SDK answers
    /// this by itself.
    NotInitialized,
    /// A fault of the provider. The controller records an event, and retries with backoff.
    Internal,
}

impl FailureCode {
    /// The name in the contract, for example `THROTTLED`.
    pub const fn as_str(self) -> &'static str {
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
        }
    }

    /// The reason if the vendor gives none.
    const fn default_reason(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid",
            Self::Precondition => "PreconditionMissing",
            Self::NotFound => "NotFound",
            Self::Conflict => "Conflict",
            Self::Busy => "Busy",
            Self::Throttled => "Throttled",
            Self::Credentials => "CredentialsRefused",
            Self::Unavailable => "CloudUnavailable",
            Self::NotInitialized => "NotInitialized",
            Self::Internal => "InternalError",
        }
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failure of a call. It never means that an instance is gone: only
/// [`Instance::absent`](crate::Instance::absent) does.
///
/// There is one constructor for each [`FailureCode`], and intentionally no `From` of other errors.
/// The vendor's code knows the errors of its cloud's API best, so it must choose the code.
///
/// ```
/// use provider_sdk::Failure;
/// use std::time::Duration;
///
/// let failure = Failure::precondition("no subnet has the tag kubernetes.io/role/elb=1; tag at least one")
///     .with_reason("SubnetMissing")
///     .retry_after(Duration::from_secs(60));
/// assert_eq!(failure.to_string(), "PRECONDITION: no subnet has the tag kubernetes.io/role/elb=1; tag at least one");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    code: FailureCode,
    reason: Cow<'static, str>,
    message: String,
    retry_after: Option<Duration>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $code:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// `message` is one sentence for the operator who reads the event: which value was
            /// wrong, and what would be right. At most 1,024 bytes (cut beyond), no secrets.
            pub fn $name(message: impl Into<String>) -> Self {
                Self::new(FailureCode::$code, message)
            }
        )*
    };
}

impl Failure {
    constructors! {
        /// The object itself is wrong or unsupported.
        invalid => Invalid;
        /// Something around the object is missing: a subnet, a tag, a setting, quota.
        precondition => Precondition;
        /// The load balancer to update, the volume's disk or the named cluster does not exist. It
        /// **never** means that an instance is gone.
        not_found => NotFound;
        /// The object, or a part of it, belongs to another owner, has no mark, or collides with
        /// another object.
        conflict => Conflict;
        /// Another operation holds the same object.
        busy => Busy;
        /// The cloud limits the request rate. Give the delay with [`Failure::retry_after`].
        throttled => Throttled;
        /// The cloud refuses the provider's credentials.
        credentials => Credentials;
        /// The cloud's API is down or unreachable.
        unavailable => Unavailable;
        /// No `Initialize` has succeeded in this process, or the last one that succeeded was for
        /// another owner ID. The SDK answers this by itself; vendors hardly need it.
        not_initialized => NotInitialized;
        /// A fault of the provider. Use it when in doubt.
        internal => Internal;
    }

    /// A failure with a code chosen at run time, for example from a fixture.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        truncate(&mut message, MAX_TEXT_BYTES);
        Self {
            code,
            reason: Cow::Borrowed(code.default_reason()),
            message,
            retry_after: None,
        }
    }

    /// Sets the reason: one word in CamelCase, for example `SubnetMissing`. The `ccm` shows it in
    /// the text of an event, with the message. At most 1,024 bytes (cut beyond). Each code has a
    /// default reason.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        truncate(&mut reason, MAX_TEXT_BYTES);
        self.reason = Cow::Owned(reason);
        self
    }

    /// Asks the controller to wait this long before it repeats the call. The controller clamps it
    /// to 1 s..10 min.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// The kind of failure.
    pub fn code(&self) -> FailureCode {
        self.code
    }

    /// The reason, CamelCase.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The delay that [`Failure::retry_after`] set.
    pub fn retry_delay(&self) -> Option<Duration> {
        self.retry_after
    }
}

/// Cuts `text` to at most `max` bytes at a character boundary.
pub(crate) fn truncate(text: &mut String, max: usize) {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character_boundary() {
        let failure = Failure::invalid("ä".repeat(600)).with_reason("x".repeat(2000));
        assert_eq!(failure.message().len(), 1024);
        assert_eq!(failure.reason().len(), 1024);
        let failure = Failure::invalid(format!("a{}", "ä".repeat(600)));
        assert_eq!(failure.message().len(), 1023);
    }

    #[test]
    fn every_code_has_its_constructor() {
        let made = [
            Failure::invalid("m"),
            Failure::precondition("m"),
            Failure::not_found("m"),
            Failure::conflict("m"),
            Failure::busy("m"),
            Failure::throttled("m"),
            Failure::credentials("m"),
            Failure::unavailable("m"),
            Failure::not_initialized("m"),
            Failure::internal("m"),
        ];
        let names: Vec<_> = made.iter().map(|failure| failure.code().as_str()).collect();
        assert_eq!(
            names,
            [
                "INVALID",
                "PRECONDITION",
                "NOT_FOUND",
                "CONFLICT",
                "BUSY",
                "THROTTLED",
                "CREDENTIALS",
                "UNAVAILABLE",
                "NOT_INITIALIZED",
                "INTERNAL"
            ]
        );
    }
}
