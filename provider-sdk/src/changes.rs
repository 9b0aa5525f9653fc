//! Hints that something changed in the cloud (`ProviderService.WatchChanges`).

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::{Call, Failure};

/// Hints that something changed in the cloud. A hint is never more than a hint: losing one costs latency, never correctness (PROV-5).
#[async_trait]
pub trait Changes: Send + Sync {
    /// Sends hints until the call ends. `resume_token` is the last one that the controller received, empty for its first call; one that the provider does
    /// not know is answered by [`Change::Resync`].
    ///
    /// It has no deadline. It is dropped when the controller goes away or the server shuts down, and may return `Ok` by itself: the stream then ends, and the
    /// controller calls again. It begins with [`Hints::bookmark`] (PROV-21). A failure ends the stream with a gRPC status; the controller calls again with backoff.
    async fn watch(&self, call: &Call, resume_token: &str, hints: &Hints) -> Result<(), Failure>;
}

/// What may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Anything: hints were lost.
    Resync,
    /// An instance was made, changed or removed; at least one of the two is not empty.
    Instance {
        /// Its provider ID; empty where only the name is known.
        provider_id: String,
        /// The name of its Node; empty where only the provider ID is known.
        node_name: String,
    },
    /// A load balancer was changed or removed behind the controller's back.
    LoadBalancer {
        /// The namespace of its Service.
        namespace: String,
        /// The name of its Service.
        name: String,
    },
    /// Routes were changed.
    Routes,
}

/// Where hints go.
#[derive(Debug, Clone)]
pub struct Hints {
    /// `None` is a bookmark.
    pub(crate) sender: mpsc::Sender<(Option<Change>, String)>,
}

impl Hints {
    /// Sends one hint, with the token to go on from after a reconnect (at most 1,024 bytes; a longer one is replaced by an empty one and logged). Waits while 128 hints
    /// are unread. Fails with UNAVAILABLE when nobody listens any more.
    pub async fn send(
        &self,
        change: Change,
        resume_token: impl Into<String>,
    ) -> Result<(), Failure> {
        self.say(Some(change), resume_token.into()).await
    }

    /// Says from where on changes are told, and that none has come yet: what a stream begins with
    /// (PROV-21). The rest is as for [`Hints::send`].
    pub async fn bookmark(&self, resume_token: impl Into<String>) -> Result<(), Failure> {
        self.say(None, resume_token.into()).await
    }

    async fn say(&self, change: Option<Change>, resume_token: String) -> Result<(), Failure> {
        self.sender.send((change, resume_token)).await.map_err(|_| {
            Failure::unavailable("nobody listens to hints any more").with_reason("CallEnded")
        })
    }
}
