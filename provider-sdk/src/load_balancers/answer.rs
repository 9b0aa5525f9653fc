//! What a provider says of load balancers.

use std::collections::BTreeMap;

use super::LoadBalancerStatus;
use crate::{Failure, Ownership, Pending};

/// An answer about a load balancer, with what else is to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    /// The outcome.
    pub outcome: T,
    /// What else is to be said.
    pub notes: Box<Notes>,
}

/// What may stand beside every outcome, also beside a failure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notes {
    /// The cloud's own ID of what was made: opaque, 1 to 1,024 bytes. Return it as soon as the cloud knows it, also with a pending or failed answer; the controller stores it before
    /// its next call and sends it back ever after. `None` means: as it was (LB-3).
    pub handle: Option<String>,
    /// What the user of the Service should read.
    pub events: Vec<Event>,
    /// Annotations to set on the Service; only keys with a prefix that the operator granted are applied.
    pub set_annotations: BTreeMap<String, String>,
    /// Keys of annotations to remove from the Service.
    pub remove_annotations: Vec<String>,
    /// Targets that could not be attached, by the Node's name. They never fail the rest; the controller repeats the call with backoff.
    pub target_errors: BTreeMap<String, Failure>,
}

impl<T> From<T> for Answer<T> {
    fn from(outcome: T) -> Self {
        Self {
            outcome,
            notes: Box::default(),
        }
    }
}

impl<T> Answer<T> {
    /// Carries the handle; see [`Notes::handle`].
    #[must_use]
    pub fn with_handle(mut self, handle: impl Into<String>) -> Self {
        self.notes.handle = Some(handle.into());
        self
    }

    /// Carries an event.
    #[must_use]
    pub fn with_event(mut self, event: Event) -> Self {
        self.notes.events.push(event);
        self
    }

    /// Sets an annotation on the Service.
    #[must_use]
    pub fn with_annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.notes.set_annotations.insert(key.into(), value.into());
        self
    }

    /// Removes an annotation from the Service.
    #[must_use]
    pub fn without_annotation(mut self, key: impl Into<String>) -> Self {
        self.notes.remove_annotations.push(key.into());
        self
    }

    /// Says that this Node could not be attached.
    #[must_use]
    pub fn with_target_error(mut self, node_name: impl Into<String>, failure: Failure) -> Self {
        self.notes.target_errors.insert(node_name.into(), failure);
        self
    }
}

/// Something that the user of the Service should read; recorded as an event on the Service. Reason and message are at most 1,024 bytes; cut beyond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// A Warning, else Normal.
    pub warning: bool,
    /// CamelCase, one word.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

impl Event {
    /// An event of type Normal.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            warning: false,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// An event of type Warning.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            warning: true,
            reason: reason.into(),
            message: message.into(),
        }
    }
}

/// A load balancer as the cloud has it. Made by one of its constructors.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadBalancer {
    /// Whether there is one.
    pub presence: Presence,
    /// Whose it is; `None` only when absent.
    pub ownership: Option<Ownership>,
    /// Its name in the cloud, for people. At most 253 bytes.
    pub name: String,
    /// Where it can be reached.
    pub status: Option<LoadBalancerStatus>,
    /// Whether ensure with the same service, targets and handle would write nothing and answer ready (LB-14); with [`LoadBalancerOptions::in_sync`](super::LoadBalancerOptions::in_sync).
    pub in_sync: Option<bool>,
}

/// Whether there is a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Presence {
    /// There is nothing.
    Absent,
    /// There is one.
    Present,
    /// Parts are left that delete would remove.
    Remnants,
}

impl LoadBalancer {
    /// There is nothing.
    pub fn absent() -> Self {
        Self {
            presence: Presence::Absent,
            ownership: None,
            name: String::new(),
            status: None,
            in_sync: None,
        }
    }

    /// There is one.
    pub fn present(
        ownership: Ownership,
        name: impl Into<String>,
        status: LoadBalancerStatus,
    ) -> Self {
        Self {
            presence: Presence::Present,
            ownership: Some(ownership),
            name: name.into(),
            status: Some(status),
            in_sync: None,
        }
    }

    /// Parts are left that delete would remove.
    pub fn remnants(ownership: Ownership, name: impl Into<String>) -> Self {
        Self {
            presence: Presence::Remnants,
            ownership: Some(ownership),
            name: name.into(),
            status: None,
            in_sync: None,
        }
    }

    /// Says whether it is as asked; see [`LoadBalancer::in_sync`].
    #[must_use]
    pub fn in_sync(mut self, in_sync: bool) -> Self {
        self.in_sync = Some(in_sync);
        self
    }
}

/// What came of ensure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ensured {
    /// It is as asked; the status becomes the Service's.
    Ready(LoadBalancerStatus),
    /// It is being made.
    Pending(Pending),
    /// Another component takes care of this Service (Go's `ImplementedElsewhere`).
    HandledElsewhere,
}

/// What came of update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Updated {
    /// The targets are as asked.
    Done,
    /// It is being done.
    Pending(Pending),
    /// Another component takes care of this Service.
    HandledElsewhere,
}

/// What came of delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deleted {
    /// Nothing is left, and it was looked for (LB-12).
    Done,
    /// It is being done.
    Pending(Pending),
    /// It is kept on purpose: Warning event, and the Service may go.
    Retained {
        /// Why, for people. At most 1,024 bytes; cut beyond.
        reason: String,
    },
    /// Another component takes care of this Service.
    HandledElsewhere,
}

/// A load balancer that is marked for this cluster. Limits: name 253 bytes, handle 1,024 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedLoadBalancer {
    /// Its name in the cloud.
    pub name: String,
    /// See [`Notes::handle`].
    pub handle: Option<String>,
    /// The Services that it, or a part of it, is marked for.
    pub owners: Vec<ServiceRef>,
}

/// Names a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServiceRef {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
}
