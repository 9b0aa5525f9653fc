//! One kind of review, which the API server answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Client;
use kube::client::Body;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

/// The limit for one review, with the wait for its turn.
pub(super) const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// The most reviews of a kind at once. Strangers at the port must not overload the API server.
const REVIEWS_AT_ONCE: usize = 16;
/// The limit for an answer, in bytes. Most answers have a few hundred. Even the answer for a user
/// with thousands of groups stays below the limit.
const ANSWER_BYTES: usize = 1 << 20;

/// The API server gave no usable answer. The caller gets this text. The log has the cause.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot ask the API server ({review}), so the request is refused; the log of this process has the reason"
)]
pub(super) struct NotReviewed {
    review: &'static str,
}

/// One kind of review.
pub(super) struct Reviews {
    kind: &'static str,
    path: &'static str,
    client: Client,
    turns: Semaphore,
    failing: AtomicBool,
}

impl Reviews {
    pub(super) fn new(kind: &'static str, path: &'static str, client: Client) -> Self {
        Self {
            kind,
            path,
            client,
            turns: Semaphore::new(REVIEWS_AT_ONCE),
            failing: AtomicBool::new(false),
        }
    }

    pub(super) fn body(&self, review: &impl Serialize) -> Result<Vec<u8>, NotReviewed> {
        serde_json::to_vec(review).map_err(|_| self.failed(&Fault::Unwritable))
    }

    /// Creates the review and returns what `read` takes from the answer. `None` from `read`: the
    /// answer decides nothing.
    pub(super) async fn ask<T: Serialize + DeserializeOwned, A>(
        &self,
        review: &T,
        read: impl FnOnce(T) -> Option<A>,
    ) -> Result<A, NotReviewed> {
        let body = self.body(review)?;
        let answer = tokio::time::timeout(REVIEW_TIMEOUT, self.create(body)).await;
        match answer
            .unwrap_or(Err(Fault::Timeout))
            .and_then(|answer| read(answer).ok_or(Fault::Unreadable))
        {
            Ok(answer) => {
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(review = self.kind, "the API server answers reviews again");
                }
                Ok(answer)
            }
            Err(fault) => Err(self.failed(&fault)),
        }
    }

    /// Does not use `kube::Api`, which logs the text of an unreadable answer. A TokenReview
    /// contains the token.
    async fn create<T: DeserializeOwned>(&self, body: Vec<u8>) -> Result<T, Fault> {
        let _turn = self.turns.acquire().await.map_err(|_| Fault::Timeout)?;
        let request = Request::post(self.path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Body::from(body))
            .map_err(|_| Fault::Unwritable)?;
        let response = self
            .client
            .send(request)
            .await
            .map_err(|error| Fault::Transport(error.into()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES)
            .collect()
            .await
            .map_err(Fault::Transport)?
            .to_bytes();
        if status.is_success() {
            serde_json::from_slice(&body).map_err(|_| Fault::Unreadable)
        } else {
            let reason = serde_json::from_slice::<Status>(&body)
                .ok()
                .and_then(|status| status.reason)
                .unwrap_or_default();
            Err(Fault::Refused { status, reason })
        }
    }

    /// Warns once until a review succeeds again.
    fn failed(&self, fault: &Fault) -> NotReviewed {
        let review = self.kind;
        let error: &dyn std::error::Error = fault;
        if self.failing.swap(true, Ordering::Relaxed) {
            tracing::debug!(review, error, "cannot review a request");
        } else {
            tracing::warn!(
                review,
                error,
                "refusing requests to the HTTPS port: cannot review them"
            );
        }
        NotReviewed { review }
    }
}

/// Why there is no answer. No text contains what was sent.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("no answer within {REVIEW_TIMEOUT:?}")]
    Timeout,
    #[error("the API server cannot be reached")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "the API server says {status} {reason}; this process needs the right to create reviews (ClusterRole system:auth-delegator)"
    )]
    Refused { status: StatusCode, reason: String },
    #[error("the API server's answer is no review")]
    Unreadable,
    #[error("the review cannot be written as JSON")]
    Unwritable,
}
