//! The answers of a provider about load balancers.

use std::collections::BTreeMap;

use super::LoadBalancerStatus;
use crate::{Failure, Ownership, Pending};

/// An answer about a load balancer, with its notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    /// The outcome.
    pub outcome: T,
    /// Further information.
    pub notes: Box<Notes>,
}

/// Information beside an outcome or a failure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notes {
    /// The cloud's own ID of the load balancer: opaque, 1 to 1,024 bytes. Return it as soon as the
    /// cloud knows it, also with a pending or failed answer. While the Service exists, the
    /// controller stores it before its next call. It sends it with each later call unless the call
    /// has `adopt_unmarked`. `None` means unchanged (LB-3).
    pub handle: Option<String>,
    /// Events for the user of the Service. The SDK sends the first 32.
    pub events: Vec<Event>,
    /// Annotations to set on the Service. The controller applies only keys with a prefix that the
    /// operator allows.
    pub set_annotations: BTreeMap<String, String>,
    /// Keys of annotations to remove from the Service.
    pub remove_annotations: Vec<String>,
    /// Targets that the cloud could not attach, by the Node's name. The provider attaches the
    /// others. The controller calls again after `retry_after` of the failures, or with backoff, but
    /// not if the provider ignores Nodes.
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
    /// Sets the handle; see [`Notes::handle`].
    #[must_use]
    pub fn with_handle(mut self, handle: impl Into<String>) -> Self {
        self.notes.handle = Some(handle.into());
        self
    }

    /// Adds an event.
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

    /// Reports that this Node could not be attached.
    #[must_use]
    pub fn with_target_error(mut self, node_name: impl Into<String>, failure: Failure) -> Self {
        self.notes.target_errors.insert(node_name.into(), failure);
        self
    }
}

/// An event on the Service for its user. Reason and message have at most 1,024 bytes; cut beyond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Whether its type is Warning. Otherwise it is Normal.
    pub warning: bool,
    /// One word in CamelCase.
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

/// A load balancer in the cloud. Use one of its constructors.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadBalancer {
    /// Whether it exists.
    pub presence: Presence,
    /// Its owner. `None` only if it is absent.
    pub ownership: Option<Ownership>,
    /// Its name in the cloud, for people. At most 253 bytes; cut beyond.
    pub name: String,
    /// Its addresses.
    pub status: Option<LoadBalancerStatus>,
    /// Whether `ensure` with the same Service, targets and handle would write nothing and answer
    /// [`Ensured::Ready`] without a target error (LB-14). With
    /// [`LoadBalancerOptions::in_sync`](super::LoadBalancerOptions::in_sync), set this field for a
    /// load balancer that is present and ours. For others it is never `true` (LB-28).
    pub in_sync: Option<bool>,
}

/// Whether a load balancer exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Presence {
    /// Nothing exists.
    Absent,
    /// It exists.
    Present,
    /// Parts are left that delete would remove.
    Remnants,
}

impl LoadBalancer {
    /// Nothing exists.
    pub fn absent() -> Self {
        Self {
            presence: Presence::Absent,
            ownership: None,
            name: String::new(),
            status: None,
            in_sync: None,
        }
    }

    /// It exists.
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

    /// Sets whether it is in sync; see [`LoadBalancer::in_sync`].
    #[must_use]
    pub fn in_sync(mut self, in_sync: bool) -> Self {
        self.in_sync = Some(in_sync);
        self
    }
}

/// The result of ensure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ensured {
    /// It matches the request. The controller writes the status to the Service.
    Ready(LoadBalancerStatus),
    /// The cloud is still creating or changing it.
    Pending(Pending),
    /// Another component serves this Service (Go's `ImplementedElsewhere`).
    HandledElsewhere,
}

/// The result of update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Updated {
    /// The targets match the request.
    Done,
    /// The change of the targets is in progress.
    Pending(Pending),
    /// Another component serves this Service.
    HandledElsewhere,
}

/// The result of delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deleted {
    /// The provider searched the cloud, and nothing is left (LB-12).
    Done,
    /// The deletion is in progress.
    Pending(Pending),
    /// The provider keeps it on purpose. The controller records a Warning event and removes its
    /// finalizer from the Service.
    Retained {
        /// The reason, for people. At most 1,024 bytes; cut beyond.
        reason: String,
    },
    /// Another component serves this Service.
    HandledElsewhere,
}

/// A load balancer that is marked for this cluster. The SDK cuts a name beyond 253 bytes. A handle
/// has 1 to 1,024 bytes, and each field of an owner at most 253 bytes, or the listing fails.
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
    /// `metadata.uid`; empty if the mark holds only the UID's digits (LB-30).
    pub uid: String,
}
