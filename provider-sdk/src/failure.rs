//! What went wrong, as a provider means it.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// The longest message or reason in bytes (CORE-11); longer ones are cut at a character boundary.
pub const MAX_TEXT_BYTES: usize = 1024;

/// The kinds of failure; each decides what the controller does next. Rows of the contract's table (`types.proto`, CORE-15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureCode {
    /// The object itself is wrong or unsupported: Warning event; again when the object changes, else every 30 min.
    Invalid,
    /// Something around the object is missing (subnet, tag, setting, quota): event; backoff 5 s..300 s.
    Precondition,
    /// `LoadBalancers::update`: it is gone. `Volumes::labels`: no such disk. Anywhere else it is read as `Internal`.
    NotFound,
    /// It, or a part of it, belongs to somebody else: event; slow retry; never adopted.
    Conflict,
    /// Another operation holds the same object: 1 s with jitter, 5 times, then backoff.
    Busy,
    /// The cloud says slow down: this whole service is slowed by `retry_after`.
    Throttled,
    /// The cloud refuses the credentials: the provider counts as degraded; one event, slow retry.
    Credentials,
    /// The cloud's API is down: event; backoff.
    Unavailable,
    /// The provider was restarted: the controller initialises it and repeats the call. The SDK answers it by itself.
    NotInitialized,
    /// A fault of the provider: backoff.
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

    /// The reason that stands in events where the vendor gives none.
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

/// A failure as the controller will read it. It says nothing about the existence of anything: only
/// [`Instance::absent`](crate::Instance::absent) says that an instance is gone.
///
/// There is one constructor per row of the contract's table and, on purpose, no `From` of other errors: which row an
/// error of a cloud's API belongs to is the vendor's decision, made where the error is known.
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
            /// `message` is one sentence for the operator who reads an event at night: what was wrong with which value, and
            /// what would be right. At most 1,024 bytes (cut beyond), no secrets.
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
        /// The load balancer to update is gone, or the volume's disk does not exist. **Never** that an instance is gone.
        not_found => NotFound;
        /// The object, or a part of it, belongs to somebody else.
        conflict => Conflict;
        /// Another operation holds the same object.
        busy => Busy;
        /// The cloud says slow down; say for how long with [`Failure::retry_after`].
        throttled => Throttled;
        /// The cloud refuses the provider's credentials.
        credentials => Credentials;
        /// The cloud's API is down or unreachable.
        unavailable => Unavailable;
        /// `Initialize` has not succeeded in this process. The SDK answers this by itself; vendors hardly need it.
        not_initialized => NotInitialized;
        /// A fault of the provider; also what to use in doubt.
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

    /// Sets the reason: CamelCase, one word, for example `SubnetMissing`; it becomes the reason of an event. At most 1,024 bytes
    /// (cut beyond). Each code has one of its own unless this is called.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        truncate(&mut reason, MAX_TEXT_BYTES);
        self.reason = Cow::Owned(reason);
        self
    }

    /// Asks the controller to wait that long before it repeats the call; it clamps to 1 s..10 min.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// What kind of failure this is.
    pub fn code(&self) -> FailureCode {
        self.code
    }

    /// The reason, CamelCase.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The sentence for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The delay that was asked for with [`Failure::retry_after`].
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
