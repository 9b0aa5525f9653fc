//! The HTTPS ports: one for health, metrics, configz, the version and the status page (B-M4),
//! another for admission webhooks. A request to the first one passes:
//!
//! ```text
//! connections (TLS, limits)  ->  admit (method, always-allowed path, reviewer)  ->  one of the endpoints
//! ```

mod auth;
mod authorities;
mod cache;
mod connections;
mod exposition;
mod health;
mod process;
mod reviews;
mod slots;
#[cfg(test)]
mod tests;
mod tls;
mod user;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::args::{Config, version};

pub(crate) use auth::Reviewer;
#[cfg(any(test, fuzzing))]
pub(crate) use authorities::fuzz;
pub(crate) use connections::Listener;
#[cfg(test)]
pub(crate) use exposition::encode as exposition;
pub(crate) use health::{Health, Probe};
pub(crate) use process::register as register_process;
#[cfg(test)]
pub(crate) use webhook::Review;
pub(crate) use webhook::{WebhookMetrics, WebhookSite, serve_webhooks};

use auth::{Admitted, Refusal};
use connections::Limits;
use slots::Slot;

/// Headers of an answer: do not cache it, and do not guess another content type.
const EVERY_ANSWER: [(HeaderName, &str); 2] = [
    (header::CACHE_CONTROL, "no-cache, private"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// The content of the HTTPS port, and the reviewer that decides who may see it.
#[derive(Clone)]
pub(crate) struct Site {
    /// `/healthz`, `/livez`, `/readyz`.
    pub(crate) health: Health,
    /// `/metrics`.
    pub(crate) registry: Arc<Registry>,
    /// `/statusz`: text for people, made for each request.
    pub(crate) status: Arc<dyn Fn() -> String + Send + Sync>,
    /// `/configz`: the configuration in effect.
    pub(crate) config: Arc<Config>,
    pub(crate) reviewer: Reviewer,
}

/// Serves until `shutdown`, then lets requests in progress finish, for at most 5 s. A run gives them
/// only 500 ms.
pub(crate) async fn serve(listener: Listener, site: Site, shutdown: CancellationToken) {
    serve_within(listener, site, shutdown, Limits::default()).await;
}

async fn serve_within(listener: Listener, site: Site, shutdown: CancellationToken, limits: Limits) {
    let router = router(site, limits.request);
    connections::serve(listener, &router, shutdown, limits).await;
}

fn router(site: Site, request_timeout: Duration) -> Router {
    let gate = Gate {
        reviewer: site.reviewer.clone(),
        request_timeout,
    };
    health::routes()
        .route("/metrics", get(metrics))
        .route("/configz", get(configz))
        .route("/statusz", get(statusz))
        .route("/version", get(version_page))
        .fallback(|| async { plain(StatusCode::NOT_FOUND, "there is nothing here\n") })
        .layer(middleware::from_fn_with_state(gate, admit))
        .with_state(Arc::new(site))
}

#[derive(Clone)]
struct Gate {
    reviewer: Reviewer,
    request_timeout: Duration,
}

/// Every request passes here, even for a path that does not exist. A caller without the right does
/// not learn which paths exist.
async fn admit(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(gate.request_timeout, async {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return (
                [(header::ALLOW, "GET, HEAD")],
                plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n"),
            )
                .into_response();
        }
        let (head, body) = request.into_parts();
        match gate.reviewer.review(&head).await {
            Ok(admitted) => {
                if admitted == Admitted::Authenticated
                    && let Some(slot) = head.extensions.get::<Slot>()
                {
                    slot.known();
                }
                next.run(Request::from_parts(head, body)).await
            }
            Err(refusal) => refused(&refusal),
        }
    });
    let answer = answer
        .await
        .unwrap_or_else(|_| plain(StatusCode::GATEWAY_TIMEOUT, "the request took too long\n"));
    (EVERY_ANSWER, answer).into_response()
}

fn refused(refusal: &Refusal) -> Response {
    let text = format!("{refusal}\n");
    match refusal {
        Refusal::Unauthenticated => (
            [(header::WWW_AUTHENTICATE, "Bearer")],
            plain(StatusCode::UNAUTHORIZED, text),
        )
            .into_response(),
        Refusal::Forbidden { .. } => plain(StatusCode::FORBIDDEN, text),
        Refusal::NotReviewed(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, text),
    }
}

async fn metrics(State(site): State<Arc<Site>>) -> Response {
    match exposition::encode(&site.registry) {
        Ok(text) => ([(header::CONTENT_TYPE, exposition::MEDIA_TYPE)], text).into_response(),
        Err(_) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the metrics cannot be written as text\n",
        ),
    }
}

async fn statusz(State(site): State<Arc<Site>>) -> Response {
    plain(StatusCode::OK, (site.status)())
}

async fn configz(State(site): State<Arc<Site>>) -> Response {
    json(serde_json::to_string_pretty(site.config.as_ref()))
}

/// The format of Kubernetes' own components, with the fields that are known here.
async fn version_page() -> Response {
    let version = serde_json::json!({
        "major": env!("CARGO_PKG_VERSION_MAJOR"),
        "minor": env!("CARGO_PKG_VERSION_MINOR"),
        "gitVersion": version::GIT_VERSION,
        "gitCommit": version::commit(),
        "platform": version::platform(),
    });
    json(serde_json::to_string_pretty(&version))
}

fn json(text: Result<String, serde_json::Error>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("this cannot be written as JSON: {error}\n"),
        ),
    }
}

fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    (status, text.into()).into_response()
}
