//! Hints that something changed in the cloud (`ProviderService.WatchChanges`).

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::{Call, Failure};

/// Hints that something changed in the cloud. A lost hint costs latency, never correctness
/// (PROV-5).
#[async_trait]
pub trait Changes: Send + Sync {
    /// Sends hints until the call ends. `resume_token` is the token of the last message that the
    /// controller received; empty if it has none. Answer an unknown token with [`Change::Resync`].
    /// Otherwise begin with [`Hints::bookmark`] (PROV-21).
    ///
    /// The call has no deadline. The SDK drops the future when the controller cancels or
    /// disconnects, or the server shuts down. The method may also return. `Ok` ends the stream, and
    /// a [`Failure`] is the last message before its end. In both cases the controller calls again
    /// with backoff.
    async fn watch(&self, call: &Call, resume_token: &str, hints: &Hints) -> Result<(), Failure>;
}

/// The object that may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Any object, because hints were lost.
    Resync,
    /// An instance was created, changed or deleted. At least one of the two fields is not empty.
    Instance {
        /// Its provider ID. Empty if only the name is known.
        provider_id: String,
        /// The name of its Node. Empty if only the provider ID is known.
        node_name: String,
    },
    /// Somebody other than the controller changed or deleted a load balancer.
    LoadBalancer {
        /// The namespace of its Service.
        namespace: String,
        /// The name of its Service.
        name: String,
    },
    /// Routes were changed.
    Routes,
}

/// Sends hints to the controller.
#[derive(Debug, Clone)]
pub struct Hints {
    /// `None` is a bookmark.
    pub(crate) sender: mpsc::Sender<(Option<Change>, String)>,
}

impl Hints {
    /// Sends one hint, with the token from which to continue after a reconnect. A token has at most
    /// 1,024 bytes. If a token is longer, the SDK logs an error and sends an empty token. Waits
    /// while 128 hints are unread. Fails with UNAVAILABLE when the stream has ended.
    pub async fn send(
        &self,
        change: Change,
        resume_token: impl Into<String>,
    ) -> Result<(), Failure> {
        self.say(Some(change), resume_token.into()).await
    }

    /// Announces the position from which the stream reports changes, without a change. A stream
    /// should begin with a bookmark (PROV-21). The limits are those of [`Hints::send`].
    pub async fn bookmark(&self, resume_token: impl Into<String>) -> Result<(), Failure> {
        self.say(None, resume_token.into()).await
    }

    async fn say(&self, change: Option<Change>, resume_token: String) -> Result<(), Failure> {
        self.sender.send((change, resume_token)).await.map_err(|_| {
            Failure::unavailable("no stream of hints is open any more").with_reason("CallEnded")
        })
    }
}
