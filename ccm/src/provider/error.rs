//! What to do about a call that did not succeed: pure.

use std::time::Duration;

/// Why a call, or an item of one, did not succeed. Says nothing about the existence of anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code:?}: {message}")]
pub(crate) struct Trouble {
    /// What kind of trouble.
    pub(crate) code: TroubleCode,
    /// The provider's CamelCase reason, or empty.
    pub(crate) reason: String,
    /// For the operator.
    pub(crate) message: String,
    /// Already clamped to 1 s..10 min.
    pub(crate) retry_after: Option<Duration>,
}

/// The rows of the contract's table of failures, and what never comes in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TroubleCode {
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

/// What the controller does about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reaction {
    /// When to try again.
    pub(crate) retry: Retry,
    /// Whether an event is recorded on the object.
    pub(crate) event: bool,
}

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// When the object changes, else after this.
    WhenChangedElse(Duration),
    /// After exactly this.
    After(Duration),
    /// With the key's backoff.
    Backoff,
    /// With the key's backoff, which a reconnect resets.
    TransportBackoff,
}

impl Trouble {
    /// What to do about it, for an object that already failed `failures` times in a row.
    pub(crate) fn reaction(&self, _failures: u32) -> Reaction {
        todo!()
    }
}
