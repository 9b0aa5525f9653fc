//! What this process knows of one Service: what may stand in the cloud for it, and how far reconciling has come. Pure.
//!
//! A record is lost with the process, and the provider's answers make it again. [`super::settle`] has the table of what changes it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;

use super::answer::Theirs;
use super::fingerprint::{Fingerprint, service_inputs};
use super::handle::Stored;
use super::plan::{asks, class, has_finalizer, uid};

/// What may stand in the cloud for a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cloud {
    /// This process made nothing and found nothing. An earlier one may have: only the Service itself tells.
    Unknown,
    /// A load balancer may stand there. Another provider that serves on the same socket now knows nothing of it.
    MayStand {
        /// The name of the provider that made it, found it, or was asked to make or delete it.
        by: String,
    },
    /// Delete answered that nothing is left.
    Deleted,
    /// Delete answered that the provider keeps it on purpose.
    Kept,
}

impl Cloud {
    /// The provider whose load balancer may stand there.
    pub(super) fn by(&self) -> Option<&str> {
        match self {
            Self::MayStand { by } => Some(by),
            Self::Unknown | Self::Deleted | Self::Kept => None,
        }
    }
}

/// How far reconciling a Service has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The provider confirmed nothing: Ensure is next.
    Unconfirmed {
        /// What Get found there, which is not this Service's. It holds for the Ensure that follows.
        theirs: Option<Theirs>,
    },
    /// The provider has an Update or an Ensure in progress, and said when to ask again.
    Pending {
        /// Of an Update: the inputs that are confirmed all the same.
        inputs: Option<Fingerprint>,
    },
    /// The Service or its targets were rejected: INVALID, or a failed Update (B-S10). Ensure is next, at once where the targets are others.
    Rejected,
    /// The load balancer is as asked.
    Confirmed {
        inputs: Fingerprint,
        /// `None`: not all targets are attached, so Update is next.
        targets: Option<Fingerprint>,
    },
    /// Another component serves the Service, as long as it has these inputs (B-S8).
    Elsewhere { inputs: Fingerprint },
}

impl Progress {
    pub(super) const UNCONFIRMED: Self = Self::Unconfirmed { theirs: None };

    /// The inputs that the provider confirmed of a load balancer of its own.
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

/// What this process knows of one Service.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The Service as last read or written: newer than the watch for a moment, and all that is left of it when it is gone.
    pub(super) latest: Arc<Service>,
    /// What the last decision was made on, our own writes included.
    pub(super) seen: Seen,
    pub(super) cloud: Cloud,
    /// A handle that is not stored on the Service yet, after the name of the provider that gave it. Any answer can give one, whatever it says of the cloud.
    pub(super) unsaved_handle: Option<(String, String)>,
    pub(super) progress: Progress,
    /// Get is the next call. Confirmed progress stays: changed targets still wake a Service whose check waits.
    pub(super) check: bool,
    /// The targets that were tried last, whatever came of it: the same ones wait for their retry.
    pub(super) tried: Option<Fingerprint>,
    /// Failures in a row.
    pub(super) failures: u32,
    /// The inputs whose unsupported fields were reported.
    pub(super) unsupported_told: Option<Fingerprint>,
    /// It was reported that the provider does not take all targets.
    pub(super) cut_told: bool,
}

impl Record {
    /// Nothing is known but the Service itself.
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
            unsupported_told: None,
            cut_told: false,
        }
    }

    /// The record after a job that did not end: nothing is confirmed.
    pub(super) fn doubted(self) -> Self {
        Self {
            cloud: self.cloud,
            unsaved_handle: self.unsaved_handle,
            ..Self::new(&self.latest)
        }
    }

    /// The record for a loop that begins later. `shown`: the Service as the watch shows it now.
    pub(super) fn inherited(self, shown: Option<&Service>) -> Self {
        // Another replica may have stored a handle meanwhile: that one is newer.
        let stored = shown
            .is_some_and(|shown| uid(shown) == self.uid() && Stored::of(shown) != Stored::Nothing);
        let mut record = self.doubted();
        record.unsaved_handle = record.unsaved_handle.filter(|_| !stored);
        record
    }

    /// The Service's UID.
    pub(super) fn uid(&self) -> &str {
        uid(&self.latest)
    }
}

/// What the plan looks at of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    inputs: Fingerprint,
    asks: bool,
    deleting: bool,
    finalizer: bool,
    class: String,
    stored: Stored,
}

impl Seen {
    pub(super) fn of(service: &Service) -> Self {
        Self {
            inputs: service_inputs(service),
            asks: asks(service),
            deleting: service.metadata.deletion_timestamp.is_some(),
            finalizer: has_finalizer(service),
            class: class(service).to_owned(),
            stored: match Stored::of(service) {
                // Which handle it is matters to the next call, and is no reason for one.
                Stored::By {
                    provider,
                    class,
                    handle: Some(_),
                } => Stored::By {
                    provider,
                    class,
                    handle: Some(String::new()),
                },
                // Nothing to be done about it.
                Stored::Garbage => Stored::Nothing,
                stored => stored,
            },
        }
    }
}

/// How new a view of a Service is; 0 where the API server does not count.
pub(super) fn version(service: &Service) -> u64 {
    service
        .metadata
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}
