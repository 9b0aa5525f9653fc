//! One request: admission, rate limit, sending, retries.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header, request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep, timeout};

use super::accounts::Account;
use super::bucket::Bucket;
use super::metrics::{Attempt, Metrics};
use super::retry::{Outcome, again};
use crate::core::{Fence, lock};
use crate::planted::planted;

/// The limit for a list, which may be large.
const LIST: Duration = Duration::from_mins(1);
/// The limit until the headers of a watch. Its body has no limit here.
const WATCH_HEADERS: Duration = Duration::from_secs(30);
const OTHER: Duration = Duration::from_secs(10);

/// Which requests pass.
#[derive(Clone)]
pub(super) enum Role {
    /// GETs only.
    ReadOnly,
    /// GETs always. All other requests only while the fence is open.
    Fenced(Fence),
    /// Everything.
    Open,
    /// Everything, without retries: the caller has its own timing.
    Once,
}

/// The settings of one client's requests.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) base: Client,
    pub(super) host: Arc<str>,
    pub(super) role: Role,
    pub(super) metrics: Metrics,
    pub(super) bucket: Option<Arc<Bucket>>,
    pub(super) rng: Arc<Mutex<StdRng>>,
    /// The identity of the requests, unless it is this process's own.
    pub(super) account: Option<Arc<Account>>,
}

/// A write through the client for watches.
#[derive(Debug, thiserror::Error)]
#[error("this client only reads; {0} is refused")]
struct ReadOnly(Method);

#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer {method} {path} within {}s", .within.as_secs())]
struct TimedOut {
    method: Method,
    path: String,
    within: Duration,
}

/// No connection, or a broken one. The text includes the cause, which the client's own error does
/// not print.
#[derive(Debug, thiserror::Error)]
#[error("the API server {host} cannot be reached: {cause}")]
struct Unreachable {
    host: Arc<str>,
    cause: String,
}

impl Unreachable {
    fn new(host: &Arc<str>, error: &(dyn std::error::Error + 'static)) -> Self {
        let chain = std::iter::successors(Some(error), |error| error.source());
        let mut causes: Vec<String> = chain.map(ToString::to_string).collect();
        causes.dedup();
        Self {
            host: Arc::clone(host),
            cause: causes.join(": "),
        }
    }
}

fn refused(error: impl std::error::Error + Send + Sync + 'static) -> kube::Error {
    kube::Error::Service(Box::new(error))
}

impl Gate {
    /// A client that uses these settings.
    pub(super) fn client(self, namespace: &str) -> Client {
        let service = tower::service_fn(move |request| self.clone().carry(request));
        Client::new(service, namespace)
    }

    pub(super) async fn carry(self, request: Request<Body>) -> kube::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let reads = parts.method == Method::GET;
        match &self.role {
            Role::Fenced(fence) if !reads && !planted!(UnfencedWrites) => {
                let fence = fence.clone();
                // Drops the request, in flight or waiting, when the fence closes.
                tokio::select! {
                    biased;
                    () = fence.wait_closed() => Err(refused(crate::core::Fenced)),
                    answer = self.attempts(parts, body) => answer,
                }
            }
            Role::ReadOnly if !reads => Err(refused(ReadOnly(parts.method))),
            _ => self.attempts(parts, body).await,
        }
    }

    async fn attempts(
        &self,
        mut parts: request::Parts,
        body: Body,
    ) -> kube::Result<Response<Body>> {
        let body = body.collect_bytes().await?;
        let mut attempt = 1;
        let mut refused_once = false;
        loop {
            self.admit(&mut parts).await?;
            let result = self.attempt(&parts, &body).await;
            let status = result.as_ref().ok().map(Response::status);
            let outcome = match &result {
                Ok(response) => Outcome::Answer(response.status(), response.headers()),
                Err(kube::Error::Service(_) | kube::Error::HyperError(_)) => Outcome::Broken,
                Err(_) => return result,
            };
            // The API server did nothing, so the request may be repeated with a newer token.
            if let (Some(account), Some(bearer), Some(StatusCode::UNAUTHORIZED), false) = (
                &self.account,
                parts.headers.get(header::AUTHORIZATION),
                status,
                refused_once,
            ) {
                account.refused(bearer);
                refused_once = true;
                if parts.method != Method::DELETE {
                    continue;
                }
            }
            if matches!(self.role, Role::Once) {
                return result;
            }
            let jitter = lock(&self.rng).random();
            let Some(wait) = again(&parts.method, attempt, &outcome, jitter) else {
                return result;
            };
            tracing::debug!(
                method = %parts.method, path = parts.uri.path(), attempt, ?wait, status = ?status,
                "sending the request to the API server again"
            );
            drop(result);
            self.metrics.again(status, &parts.method, &self.host);
            sleep(wait).await;
            attempt += 1;
        }
    }

    /// Adds the account's token, if there is an account, and waits until the request may be sent.
    async fn admit(&self, parts: &mut request::Parts) -> kube::Result<()> {
        if let Some(account) = &self.account {
            let bearer = account.bearer().await?;
            parts.headers.insert(header::AUTHORIZATION, bearer);
        }
        if let Some(bucket) = &self.bucket {
            let asked = Instant::now();
            bucket.take().await;
            self.metrics
                .throttled(&parts.method, &self.host, asked.elapsed());
        }
        if let (Role::Fenced(fence), true) = (&self.role, parts.method != Method::GET)
            && !planted!(UnfencedWrites)
        {
            fence.check().map_err(refused)?;
        }
        Ok(())
    }

    /// Sends a request once, and counts it.
    async fn attempt(&self, parts: &request::Parts, body: &Bytes) -> kube::Result<Response<Body>> {
        let start = Instant::now();
        let result = send(&self.base, parts.clone(), body.clone()).await;
        let result = result.map_err(|error| match error {
            kube::Error::Service(error) if !error.is::<TimedOut>() => {
                refused(Unreachable::new(&self.host, &*error))
            }
            kube::Error::HyperError(error) => refused(Unreachable::new(&self.host, &error)),
            error => error,
        });
        let answer = result.as_ref().ok();
        let attempt_over = Attempt {
            status: answer.map(Response::status),
            took: start.elapsed(),
            sent: body.len(),
            received: answer.and_then(|answer| http_body::Body::size_hint(answer.body()).exact()),
        };
        self.metrics.done(attempt_over, &parts.method, &self.host);
        result
    }
}

/// One attempt. It reads the whole answer, except for a watch, which it streams.
async fn send(base: &Client, parts: request::Parts, body: Bytes) -> kube::Result<Response<Body>> {
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let watch = parts.uri.query().is_some_and(watches);
    let within = match parts.extensions.get::<&'static str>() {
        _ if watch => WATCH_HEADERS,
        Some(&"list") => LIST,
        _ => OTHER,
    };
    let answer = async {
        let request = Request::from_parts(parts, Body::from(body));
        let response = base.send(request).await?;
        if watch && response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Response::from_parts(head, Body::from(body)))
    };
    timeout(within, answer).await.unwrap_or_else(|_| {
        Err(refused(TimedOut {
            method,
            path,
            within,
        }))
    })
}

fn watches(query: &str) -> bool {
    query
        .split('&')
        .any(|pair| pair == "watch=true" || pair == "watch=1")
}
