//! Every patch and delete of Nodes and Services. Each carries the UID of the object it was decided for.

mod events;
mod nodes;
mod services;

use kube::Client;

pub(crate) use events::{EventSink, EventType};
pub(crate) use nodes::{NodePatch, NodeStatusPatch};
pub(crate) use services::{ServicePatch, ServiceStatusPatch};

/// Writes through the fenced client. Clones are cheap.
#[derive(Clone)]
pub(crate) struct Writes {
    pub(crate) client: Client,
    pub(crate) events: EventSink,
}

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The object is gone, or another one has its name now (B-S11: for a patch that is success).
    #[error("the object is gone")]
    Gone,
    /// Somebody wrote in between: read again and decide anew.
    #[error("the object was changed in between")]
    Conflict,
    /// This process is not the leader any more.
    #[error(transparent)]
    Fenced(#[from] crate::lease::Fenced),
    /// The API server refuses the content (400, 422) or us (403): repeating it as it is helps only after something else changed.
    #[error("refused by the API server: {0}")]
    Refused(String),
    /// Anything else: 429 or 5xx after the layer's retries, transport. Repeat with backoff.
    #[error("the API server did not do it: {0}")]
    Unavailable(String),
}
