//! The port that serves the admission webhook, at a path with the webhook's name. Everything that a
//! caller can send has a limit.
//!
//! With `--webhook-client-ca-file` callers are authenticated. An API server shows webhooks a
//! certificate only if its AdmissionConfiguration says so, so this is optional. Without it, a
//! stranger that reaches the port can learn the labels of a disk that it names. A review writes
//! nothing.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::future::BoxFuture;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::auth::Admitted;
use super::authorities::Authorities;
use super::connections::{self, Limits, Listener};
use super::slots::Slot;
use super::{EVERY_ANSWER, plain};
use crate::core::registered;

/// The limit for a review in bytes. A volume's annotations may have 256 KiB.
const BODY_BYTES: usize = 512 * 1024;
/// The limit for all large bodies in memory in bytes, also for those that arrive or wait for their
/// turn.
const BYTES_HELD: usize = 32 * BODY_BYTES;
/// A body that cannot be larger is not large: it needs no permit to arrive. So strangers that state
/// much and send nothing keep no ordinary review waiting. API servers may ask about a hundred
/// volumes at once: a CSI provisioner makes as many. The port has at most 256 connections, so all
/// of these take no more than the large ones.
const SMALL_BODY: usize = BYTES_HELD / 256;
/// The limit for all reviews in progress in bytes: two of the largest, or many of ordinary size.
/// A decoded review takes some ten times its bytes.
const BYTES_AT_ONCE: usize = 2 * BODY_BYTES;
/// The time for receiving a body. A caller may be a stranger, and each holds a connection.
const BODY_TIME: Duration = Duration::from_secs(5);
/// The API server's default timeout of a webhook. It sends the timeout in the query.
const USUAL_PATIENCE: Duration = Duration::from_secs(10);
/// The longest timeout that the API server allows.
const LONGEST_PATIENCE: Duration = Duration::from_secs(30);

/// Answers one review within a time. Returns the answer as JSON, or the error in the request.
pub(crate) type Review =
    Arc<dyn Fn(Bytes, Duration) -> BoxFuture<'static, Result<Vec<u8>, String>> + Send + Sync>;

/// A webhook, which is served at `/NAME`.
pub(crate) struct WebhookSite {
    pub(crate) name: &'static str,
    pub(crate) review: Review,
    pub(crate) metrics: WebhookMetrics,
}

/// `cloud_provider_webhook_*`.
#[derive(Clone)]
pub(crate) struct WebhookMetrics {
    requests: Family<Labels, Counter>,
    durations: Family<Labels, Histogram>,
}

type Labels = [(&'static str, Cow<'static, str>); 2];

impl WebhookMetrics {
    /// Registers the families (B-M7).
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            requests: registered(
                registry,
                "cloud_provider_webhook_request",
                "Number of HTTP requests partitioned by status code",
                Family::default(),
            ),
            durations: registered(
                registry,
                "cloud_provider_webhook_request_duration_seconds",
                "Request latency in seconds, broken down by status code",
                Family::new_with_constructor(|| {
                    Histogram::new([0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0])
                }),
            ),
        }
    }

    /// Counts a request, for tests that list the metrics.
    #[cfg(test)]
    pub(crate) fn touch(&self) {
        self.answered("pvlabel", StatusCode::OK, Duration::ZERO);
    }

    fn answered(&self, webhook: &'static str, code: StatusCode, took: Duration) {
        let code = code.as_str().to_owned().into();
        let labels = [("code", code), ("webhook", webhook.into())];
        self.durations
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
        self.requests.get_or_create(&labels).inc();
    }
}

/// Serves until `shutdown`, then lets requests in progress finish, for at most 5 s. A run gives them
/// only 500 ms.
pub(crate) async fn serve_webhooks(
    listener: Listener,
    site: WebhookSite,
    shutdown: CancellationToken,
) {
    let callers = listener.authorities();
    let router = router(site, &callers);
    tokio::select! {
        () = connections::serve(listener, &router, shutdown, Limits::default()) => {}
        never = callers.keep_files() => match never {},
    }
}

fn router(site: WebhookSite, callers: &Authorities) -> Router {
    let path = format!("/{}", site.name);
    let webhook = Webhook {
        name: site.name,
        review: site.review,
        held: Arc::new(Semaphore::new(BYTES_HELD)),
        bytes: Arc::new(Semaphore::new(BYTES_AT_ONCE)),
        callers: callers.clone(),
        metrics: site.metrics,
    };
    let router = Router::new().route(&path, post(answer).with_state(webhook));
    router.fallback(|| async { plain(StatusCode::NOT_FOUND, "there is no webhook here\n") })
}

#[derive(Clone)]
struct Webhook {
    name: &'static str,
    review: Review,
    /// One permit for each byte that the large bodies in memory may have.
    held: Arc<Semaphore>,
    /// One permit for each byte of the bodies under review.
    bytes: Arc<Semaphore>,
    callers: Authorities,
    metrics: WebhookMetrics,
}

async fn answer(State(webhook): State<Webhook>, request: Request) -> Response {
    let started = Instant::now();
    // The review gets three quarters of the time, less the time until it begins. The last
    // quarter is for writing the answer.
    let patience = patience(request.uri().query());
    let answer = timeout(patience, review(&webhook, request, patience.mul_f64(0.75)));
    let answer = answer.await.unwrap_or_else(|_| {
        plain(
            StatusCode::REQUEST_TIMEOUT,
            "the request did not come in time\n",
        )
    });
    webhook
        .metrics
        .answered(webhook.name, answer.status(), started.elapsed());
    (EVERY_ANSWER, answer).into_response()
}

async fn review(webhook: &Webhook, request: Request, patience: Duration) -> Response {
    let started = Instant::now();
    let (head, body) = request.into_parts();
    match webhook.callers.admit_client(&head).await {
        Ok(Admitted::Anybody) => {}
        // While it serves a request, this connection is not closed for a new one.
        Ok(Admitted::Authenticated) => {
            if let Some(slot) = head.extensions.get::<Slot>() {
                slot.known();
            }
        }
        Err(why) => return plain(StatusCode::UNAUTHORIZED, why),
    }
    let media = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let is_json = media
        .and_then(|media| media.split(';').next())
        .is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        let media = media
            .unwrap_or_default()
            .chars()
            .take(80)
            .collect::<String>();
        let why = format!("Content-Type: {media:?} should be \"application/json\"\n");
        return plain(StatusCode::BAD_REQUEST, why);
    }
    // The semaphores are never closed.
    let _room = match most_bytes(&body) {
        0..=SMALL_BODY => None,
        most => {
            let permits = u32::try_from(most).unwrap_or(u32::MAX);
            Some(webhook.held.acquire_many(permits).await)
        }
    };
    let body = match timeout(BODY_TIME, read(body)).await {
        Ok(Ok(body)) => body,
        Ok(Err(refused)) => return refused,
        Err(_) => {
            return plain(
                StatusCode::REQUEST_TIMEOUT,
                "the body did not come in time\n",
            );
        }
    };
    let permits = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let _turn = webhook.bytes.acquire_many(permits).await;
    let left = patience.saturating_sub(started.elapsed());
    match (webhook.review)(body, left).await {
        Ok(answer) => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
        Err(why) => {
            tracing::debug!(webhook = webhook.name, why, "a review was refused");
            plain(StatusCode::BAD_REQUEST, format!("{why}\n"))
        }
    }
}

/// How many bytes of the body [`read`] may take: by its Content-Length, if there is one.
fn most_bytes(body: &Body) -> usize {
    let stated = body.size_hint().upper();
    let stated = stated.and_then(|bytes| usize::try_from(bytes).ok());
    stated.map_or(BODY_BYTES, |bytes| bytes.min(BODY_BYTES))
}

async fn read(body: Body) -> Result<Bytes, Response> {
    use http_body_util::LengthLimitError;
    to_bytes(body, BODY_BYTES).await.map_err(|error| {
        let too_large = std::error::Error::source(&error)
            .is_some_and(<dyn std::error::Error>::is::<LengthLimitError>);
        if too_large {
            let why = format!("the body is larger than {BODY_BYTES} bytes\n");
            plain(StatusCode::PAYLOAD_TOO_LARGE, why)
        } else {
            plain(
                StatusCode::BAD_REQUEST,
                format!("the body did not come whole: {error}\n"),
            )
        }
    })
}

/// The API server's timeout (`?timeout=10s`).
fn patience(query: Option<&str>) -> Duration {
    let stated = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .find_map(|pair| pair.strip_prefix("timeout="))
        .and_then(|value| value.parse::<jiff::SignedDuration>().ok())
        .and_then(|value| Duration::try_from(value).ok());
    stated
        .unwrap_or(USUAL_PATIENCE)
        .clamp(Duration::from_secs(1), LONGEST_PATIENCE)
}

#[cfg(test)]
mod tests;
