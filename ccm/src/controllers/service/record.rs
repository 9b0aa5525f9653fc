//! This process's knowledge of a Service: its load balancer and its progress. Pure.
//!
//! A record is lost with the process, and the provider's answers rebuild it. [`super::settle`] has
//! the table of what calls change in it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;

use super::answer::Theirs;
use super::fingerprint::{Fingerprint, service_inputs};
use super::handle::Stored;
use super::plan::{asks, has_finalizer, uid};

/// The load balancer that may exist for a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cloud {
    /// This process knows of no load balancer. An earlier process may have created one. The
    /// Service's finalizer and annotation can show that.
    Unknown,
    /// A load balancer may exist. Another provider that now serves the same socket may not know it.
    MayStand {
        /// The name of the provider that created it, found it, or was asked to create or delete it.
        by: String,
    },
    /// According to Delete, no load balancer of this provider is left.
    Deleted,
    /// Delete answered that the provider keeps it on purpose.
    Kept,
}

impl Cloud {
    /// The provider whose load balancer may exist.
    pub(super) fn by(&self) -> Option<&str> {
        match self {
            Self::MayStand { by } => Some(by),
            Self::Unknown | Self::Deleted | Self::Kept => None,
        }
    }
}

/// The progress of reconciling a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing is confirmed. For a wanted Service, Ensure is next, unless a check is due.
    Unconfirmed {
        /// A load balancer that Get found and that is not this Service's. The answer of the next
        /// Ensure is compared with it.
        theirs: Option<Theirs>,
    },
    /// The provider answered `pending` to Ensure, Update or Delete.
    Pending {
        /// After an Update: the inputs, which stay confirmed.
        inputs: Option<Fingerprint>,
    },
    /// The provider answered INVALID, or an Update failed (B-S10). For a wanted Service, Ensure is
    /// next, unless a check is due. Changed targets make the Service due before its retry, unless
    /// the provider ignores Nodes.
    Rejected,
    /// The load balancer is in sync.
    Confirmed {
        inputs: Fingerprint,
        /// `None`: not all targets are confirmed. Then Update is next, unless a check is due, the
        /// inputs have changed or the provider ignores Nodes.
        targets: Option<Fingerprint>,
    },
    /// Another component serves the Service with these inputs (B-S8).
    Elsewhere { inputs: Fingerprint },
}

impl Progress {
    pub(super) const UNCONFIRMED: Self = Self::Unconfirmed { theirs: None };

    /// The inputs that the provider confirmed for its own load balancer.
    pub(super) fn confirmed(&self) -> Option<Fingerprint> {
        match self {
            Self::Confirmed { inputs, .. } => Some(*inputs),
            Self::Pending { inputs } => *inputs,
            Self::Unconfirmed { .. } | Self::Rejected | Self::Elsewhere { .. } => None,
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        matches!(self, Self::Pending { .. })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The Service as last read or written. It may be newer than the store, and it is all that is
    /// left of a deleted Service.
    pub(super) latest: Arc<Service>,
    /// The input of the last decision, including our own writes.
    pub(super) seen: Seen,
    pub(super) cloud: Cloud,
    /// A handle that is not stored on the Service yet: (the provider that gave it, the handle).
    pub(super) unsaved_handle: Option<(String, String)>,
    pub(super) progress: Progress,
    /// The next call for a wanted Service is Get, or Ensure without the capability `in_sync`.
    /// Confirmed progress stays, so that changed targets still wake a Service that waits for its
    /// check.
    pub(super) check: bool,
    /// The targets of the last attempt. The same targets wait for their retry.
    pub(super) tried: Option<Fingerprint>,
    /// Failures in a row. The first Delete after other calls begins a new row.
    pub(super) failures: u32,
    /// The last call was a Delete, and it is not done.
    pub(super) deletes: bool,
    /// The inputs whose unsupported fields were reported.
    pub(super) unsupported_told: Option<Fingerprint>,
    /// Whether it was reported that the provider does not accept all targets.
    pub(super) cut_told: bool,
}

impl Record {
    /// A record of a Service without further knowledge.
    pub(super) fn new(service: &Arc<Service>) -> Self {
        Self {
            latest: Arc::clone(service),
            seen: Seen::of(service),
            cloud: Cloud::Unknown,
            unsaved_handle: None,
            progress: Progress::UNCONFIRMED,
            check: true,
            tried: None,
            failures: 0,
            deletes: false,
            unsupported_told: None,
            cut_told: false,
        }
    }

    /// The record after a job that was dropped: nothing is confirmed.
    pub(super) fn doubted(self) -> Self {
        Self {
            cloud: self.cloud,
            unsaved_handle: self.unsaved_handle,
            ..Self::new(&self.latest)
        }
    }

    /// The record for a later loop. `shown` is the Service in the store.
    pub(super) fn inherited(self, shown: Option<&Service>) -> Self {
        // Another replica may have stored a newer handle meanwhile.
        let stored = shown
            .is_some_and(|shown| uid(shown) == self.uid() && Stored::of(shown) != Stored::Nothing);
        let mut record = self.doubted();
        record.unsaved_handle = record.unsaved_handle.filter(|_| !stored);
        record
    }

    pub(super) fn uid(&self) -> &str {
        uid(&self.latest)
    }
}

/// The parts of a Service whose change needs a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// With the class.
    inputs: Fingerprint,
    asks: bool,
    deleting: bool,
    finalizer: bool,
    stored: Stored,
}

impl Seen {
    pub(super) fn of(service: &Service) -> Self {
        Self {
            inputs: service_inputs(service),
            asks: asks(service),
            deleting: service.metadata.deletion_timestamp.is_some(),
            finalizer: has_finalizer(service),
            stored: match Stored::of(service) {
                // The next call uses the handle, but a changed handle is no reason for a call.
                Stored::By(mut mark) => {
                    mark.handle = mark.handle.map(|_| String::new());
                    Stored::By(mark)
                }
                // An unreadable annotation is no reason for a call.
                Stored::Nothing | Stored::Garbage => Stored::Nothing,
            },
        }
    }
}

/// The resourceVersion as a number; 0 if it is not one.
pub(super) fn version(service: &Service) -> u64 {
    service
        .metadata
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}
