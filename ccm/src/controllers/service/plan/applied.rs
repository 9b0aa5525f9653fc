//! What this process last had confirmed of a Service. It is lost with the process and made anew from the provider's answers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;

use super::{asks, class, has_finalizer, uid};
use crate::controllers::service::answer::Theirs;
use crate::controllers::service::fingerprint::{Fingerprint, service_inputs};
use crate::controllers::service::handle::Stored;

/// What this process knows of one Service.
#[derive(Clone, Debug)]
pub(in crate::controllers::service) struct Applied {
    /// The Service's UID.
    pub(in crate::controllers::service) uid: String,
    /// The Service as we last read or wrote it: newer than the watch for a moment, and all that is left of it when it is gone.
    pub(in crate::controllers::service) latest: Arc<Service>,
    /// What the last decision was made on, our own writes included.
    pub(in crate::controllers::service) seen: Seen,
    /// Something may stand in the cloud.
    pub(in crate::controllers::service) touched: bool,
    /// The name of the provider that put it there. Another one that serves on the same socket now knows nothing of it.
    pub(in crate::controllers::service) by: Option<String>,
    /// Delete was done, or kept it on purpose.
    pub(in crate::controllers::service) gone: bool,
    /// It was kept on purpose.
    pub(in crate::controllers::service) retained: bool,
    /// A handle that is not stored on the Service yet, after the name of the provider that gave it.
    pub(in crate::controllers::service) unsaved_handle: Option<(String, String)>,
    /// The inputs that the provider confirmed.
    pub(in crate::controllers::service) inputs: Option<Fingerprint>,
    /// The targets that the provider confirmed.
    pub(in crate::controllers::service) targets: Option<Fingerprint>,
    /// Somebody else takes care of it, as long as the inputs stay.
    pub(in crate::controllers::service) elsewhere: bool,
    /// Ask the provider how it is before anything else.
    pub(in crate::controllers::service) look: bool,
    /// The targets that were tried last, whatever came of it: the same ones wait for their retry.
    pub(in crate::controllers::service) tried: Option<Fingerprint>,
    /// Giving it other targets failed, and no Ensure has succeeded since: that comes next.
    pub(in crate::controllers::service) mend: bool,
    /// Only other inputs or other targets can help.
    pub(in crate::controllers::service) wrong: bool,
    /// The provider said `pending` last.
    pub(in crate::controllers::service) pending: bool,
    /// Failures in a row.
    pub(in crate::controllers::service) failures: u32,
    /// The inputs whose unsupported fields were told.
    pub(in crate::controllers::service) told: Option<Fingerprint>,
    /// It was told that the provider does not take all targets.
    pub(in crate::controllers::service) cut_told: bool,
    /// What Get said stands there and is not this Service's, until the call that follows is answered.
    pub(in crate::controllers::service) theirs: Option<Theirs>,
}

impl Applied {
    /// What is left of it for a loop that begins later: what may stand in the cloud, and nothing that was confirmed. `shown`: the Service as the watch shows it now.
    pub(in crate::controllers::service) fn anew(self, shown: Option<&Service>) -> Self {
        // Another replica may have stored a handle meanwhile: that one is newer.
        let stored = shown
            .is_some_and(|shown| uid(shown) == self.uid && Stored::of(shown) != Stored::Nothing);
        Self {
            touched: true,
            by: self.by,
            unsaved_handle: self.unsaved_handle.filter(|_| !stored),
            ..Self::new(&self.latest)
        }
    }

    /// Nothing is known but the Service itself.
    pub(in crate::controllers::service) fn new(service: &Arc<Service>) -> Self {
        Self {
            uid: uid(service).to_owned(),
            latest: Arc::clone(service),
            seen: Seen::of(service),
            touched: false,
            by: None,
            gone: false,
            retained: false,
            unsaved_handle: None,
            inputs: None,
            targets: None,
            elsewhere: false,
            look: true,
            tried: None,
            mend: false,
            wrong: false,
            pending: false,
            failures: 0,
            told: None,
            cut_told: false,
            theirs: None,
        }
    }
}

/// What the plan looks at of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controllers::service) struct Seen {
    inputs: Fingerprint,
    asks: bool,
    deleting: bool,
    finalizer: bool,
    class: String,
    stored: Stored,
}

impl Seen {
    pub(in crate::controllers::service) fn of(service: &Service) -> Self {
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
pub(in crate::controllers::service) fn version(service: &Service) -> u64 {
    service
        .metadata
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}
