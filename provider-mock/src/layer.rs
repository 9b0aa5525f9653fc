//! The tower layer around the SDK's services. It logs calls and applies faults, below the SDK's
//! native types.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::{StdError, http};
use tower::{Layer, Service};

use crate::calls::CallEntry;
use crate::cloud::Cloud;
use crate::faults::{Fault, FaultKind, When, rewrite, status_name};
use crate::lies::{Twist, answers, calls};
use crate::messages::{self, Subjects};

type Request = http::Request<Body>;
type Response = http::Response<Body>;

/// The ways in which a fault ends the provider or its connections.
pub(crate) trait Death: Send + Sync + 'static {
    /// Kills the provider: ends the process, or the listener and all connections.
    fn crash(&self);
    /// Cuts all connections; the provider lives.
    fn disconnect(&self);
}

/// Wraps the services of a provider.
#[derive(Clone)]
pub(crate) struct FaultLayer {
    pub(crate) cloud: Cloud,
    pub(crate) death: Arc<dyn Death>,
    /// Ends open streams, with status OK.
    pub(crate) streams: CancellationToken,
}

impl<S> Layer<S> for FaultLayer {
    type Service = FaultService<S>;

    fn layer(&self, inner: S) -> FaultService<S> {
        FaultService {
            layer: self.clone(),
            inner,
        }
    }
}

/// Services with faults.
#[derive(Clone)]
pub(crate) struct FaultService<S> {
    layer: FaultLayer,
    inner: S,
}

impl<S> Service<Request> for FaultService<S>
where
    S: Service<Request, Response = Response> + Clone + Send + Sync + 'static,
    S::Error: Into<StdError>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = StdError;
    type Future = BoxFuture<'static, Result<Response, StdError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // Uses the service that was polled ready, and keeps its clone for the next call.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        let layer = self.layer.clone();
        match messages::rpc_of(request.uri().path()) {
            Some(rpc) => Box::pin(layer.answer(rpc, request, inner)),
            None => Box::pin(layer.pass(request, inner)),
        }
    }
}

/// Records a call when it ends in any way.
struct Record {
    cloud: Cloud,
    entry: CallEntry,
    began: Instant,
}

impl Record {
    fn outcome(&mut self, outcome: impl Into<String>) {
        self.entry.outcome = outcome.into();
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let mut entry = self.entry.clone();
        // Under load, the provider's own timer may fire before the caller's reset arrives.
        let ended = ["cancelled", "status:DEADLINE_EXCEEDED"];
        if ended.contains(&entry.outcome.as_str()) && self.cloud.twisted(Twist::CancelledIsTrouble)
        {
            self.cloud.count_lie();
            self.cloud.mischief().lasting_trouble = Some(format!("{} failed", entry.rpc));
        }
        entry.duration_ms = self.began.elapsed().as_millis() as u64;
        self.cloud.end_call(entry);
    }
}

impl FaultLayer {
    /// Passes calls of other services on the socket: health, reflection, control.
    async fn pass<S>(self, request: Request, mut inner: S) -> Result<Response, StdError>
    where
        S: Service<Request, Response = Response>,
        S::Error: Into<StdError>,
    {
        let is_stream = request.uri().path().ends_with("/Watch");
        let response = inner.call(request).await.map_err(Into::into)?;
        Ok(if is_stream {
            self.until_the_end(response, None)
        } else {
            response
        })
    }

    /// A stream that ends with status OK when the provider shuts down.
    fn until_the_end(&self, response: Response, record: Option<Record>) -> Response {
        let (parts, body) = response.into_parts();
        let end = self.streams.clone();
        let outlives = self.cloud.twisted(Twist::WatchOutlives);
        let frames = futures::stream::unfold(Some((body, record)), move |state| {
            let end = end.clone();
            async move {
                let (mut body, mut record) = state?;
                let (frame, goes_on) = tokio::select! {
                    biased;
                    frame = body.frame() => match frame {
                        Some(Ok(frame)) if outlives && frame.is_trailers() => std::future::pending().await,
                        None if outlives => std::future::pending().await,
                        frame => (frame, true),
                    },
                    () = end.cancelled(), if !outlives => (Some(Ok(http_body::Frame::trailers(ok_trailers()))), false),
                };
                if let Some(record) = record.as_mut().filter(|_| !goes_on || frame.is_none()) {
                    record.outcome("ok");
                }
                Some((frame?, goes_on.then_some((body, record))))
            }
        });
        Response::from_parts(parts, Body::new(http_body_util::StreamBody::new(frames)))
    }

    async fn answer<S>(
        self,
        rpc: &'static str,
        request: Request,
        mut inner: S,
    ) -> Result<Response, StdError>
    where
        S: Service<Request, Response = Response> + Clone,
        S::Error: Into<StdError>,
    {
        let began = Instant::now();
        let at_ms = self.cloud.now_ms();
        let (parts, body) = request.into_parts();
        // If the request does not arrive completely, no caller waits for an answer.
        let bytes = body.collect().await?.to_bytes();
        let request_message = frames(&bytes).and_then(|messages| messages.first().cloned());
        let subjects = request_message
            .as_ref()
            .map(|message| Subjects::of(rpc, message));
        let (request_message, subjects) = (
            request_message.unwrap_or_default(),
            subjects.unwrap_or_default(),
        );
        let faults = self.cloud.mischief().faults.strike(rpc, &subjects.matched);
        let latency = self.cloud.begin_call(rpc);
        let mut record = Record {
            cloud: self.cloud.clone(),
            entry: CallEntry {
                number: 0,
                at_ms,
                rpc: rpc.to_owned(),
                count: subjects.count,
                names: subjects.shown,
                outcome: "cancelled".into(),
                duration_ms: 0,
            },
            began,
        };
        let delay: std::time::Duration = faults
            .iter()
            .filter(|fault| fault.kind == FaultKind::Delay)
            .filter_map(|fault| fault.delay)
            .map(|delay| delay.0)
            .sum();
        let delay = delay + latency.0;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if let Some(answer) = self
            .before(rpc, &faults, &request_message, &mut record)
            .await
        {
            return Ok(answer);
        }

        // An item with a scripted failure does not reach the cloud.
        let failed_items: Vec<&String> = faults
            .iter()
            .filter(|fault| fault.kind == FaultKind::Failure)
            .filter_map(|fault| fault.subject.as_ref())
            .collect();
        let (bytes, left_out) = messages::without_items(rpc, &bytes, &failed_items);
        let bytes = calls::read_only_ignored(&self.cloud, rpc, &request_message).unwrap_or(bytes);
        let request = Request::from_parts(parts, Body::new(http_body_util::Full::new(bytes)));
        if rpc != "Initialize"
            && let Some(own) = calls::own_initialize(&self.cloud, &request_message)
        {
            let answer = inner.call(own).await.map_err(Into::into)?;
            answer.into_body().collect().await?;
            self.cloud.count_lie();
        }
        let response = inner.call(request).await.map_err(Into::into)?;
        if rpc == "WatchChanges" {
            return Ok(self.until_the_end(response, Some(record)));
        }
        self.changed(rpc, &request_message, &left_out, &faults, response, record)
            .await
    }

    /// The cloud's answer, after the faults and lies have changed it.
    async fn changed(
        &self,
        rpc: &'static str,
        request_message: &Bytes,
        left_out: &messages::LeftOut,
        faults: &[Fault],
        response: Response,
        mut record: Record,
    ) -> Result<Response, StdError> {
        let (parts, body) = response.into_parts();
        let collected = body.collect().await?;
        let trailers = collected.trailers().cloned();
        let body = collected.to_bytes();
        if let Some(fault) = faults
            .iter()
            .find(|fault| fault.kind.row().when == When::After)
        {
            return Ok(self.instead(rpc, fault, &mut record).await);
        }
        let status = trailers.as_ref().unwrap_or(&parts.headers);
        let code =
            tonic::Status::from_header_map(status).map_or(tonic::Code::Ok, |status| status.code());
        let messages = frames(&body).unwrap_or_default();
        let scripted = faults.iter().filter(|fault| {
            fault.kind.row().when == When::Answer || fault.kind == FaultKind::Failure
        });
        let mut scripted = scripted.peekable();
        let changes = scripted.peek().is_some() || !left_out.is_empty();
        if code != tonic::Code::Ok || (!changes && self.cloud.twists().none()) {
            record.outcome(if code == tonic::Code::Ok {
                messages::outcome(rpc, &messages)
            } else {
                format!("status:{}", status_name(code))
            });
            return Ok(unchanged(parts, body, trailers));
        }
        let honest: Vec<Vec<u8>> = messages.into_iter().map(Vec::from).collect();
        let messages = messages::with_items(rpc, honest.clone(), left_out);
        let messages = match answers::twist(&self.cloud, rpc, request_message, messages) {
            Ok(messages) => scripted.fold(messages, |messages, fault| {
                let subject = fault.subject.as_deref();
                let keys = subject.map(|name| messages::keys_of_items(rpc, request_message, name));
                rewrite::rewrite(rpc, fault, keys.as_deref(), messages)
            }),
            Err(status) => {
                record.outcome(format!("status:{}", status_name(status.code())));
                self.cloud.count_lie();
                return Ok(status.into_http());
            }
        };
        if messages != honest {
            self.cloud.count_lie();
        }
        record.outcome(rewritten_outcome(rpc, faults, &messages));
        let response = respond(&messages);
        let drips = rpc == "Probe" && self.cloud.twisted(Twist::SlowDrip);
        Ok(if drips {
            calls::drip(response)
        } else {
            response
        })
    }

    /// The answer if a fault, a twist or a forgotten Initialize keeps the request from the cloud.
    async fn before(
        &self,
        rpc: &'static str,
        faults: &[Fault],
        request_message: &Bytes,
        record: &mut Record,
    ) -> Option<Response> {
        for fault in faults
            .iter()
            .filter(|fault| fault.kind.row().when == When::Before)
        {
            // The failure of a single item goes into the answer.
            let of_item = fault.kind == FaultKind::Failure
                && messages::is_batch(rpc)
                && fault.subject.is_some();
            if fault.kind == FaultKind::Delay || of_item {
                continue;
            }
            return Some(self.instead(rpc, fault, record).await);
        }
        if self.streams.is_cancelled() && self.cloud.twisted(Twist::DrainFails) {
            self.cloud.count_lie();
            record.outcome("status:ABORTED");
            return Some(tonic::Status::aborted("the provider shuts down").into_http());
        }
        if let Err(status) = calls::before(&self.cloud, rpc).await {
            self.cloud.count_lie();
            record.outcome(format!("status:{}", status_name(status.code())));
            return Some(status.into_http());
        }
        if rpc == "Initialize" {
            self.cloud.mischief().forgot_initialize = false;
            calls::initialized(&self.cloud, request_message);
        } else if messages::needs_initialize(rpc) && self.cloud.mischief().forgot_initialize {
            record.outcome("failed:NOT_INITIALIZED");
            let failure = provider_sdk::FailureCode::NotInitialized;
            let fault = Fault::failure(rpc, failure);
            return Some(respond(&rewrite::failed(rpc, rewrite::failure_of(&fault))));
        }
        None
    }

    /// The response that replaces the answer.
    async fn instead(&self, rpc: &str, fault: &Fault, record: &mut Record) -> Response {
        self.cloud.count_lie();
        match fault.kind {
            FaultKind::Failure => {
                let failure = rewrite::failure_of(fault);
                record.outcome(format!("failed:{}", fault.failure_spec().code));
                respond(&rewrite::failed(rpc, failure))
            }
            FaultKind::Status | FaultKind::StatusAfter => {
                let status = fault.grpc_status();
                record.outcome(format!("status:{}", status_name(status.code())));
                status.into_http()
            }
            FaultKind::Crash | FaultKind::CrashAfter => {
                record.outcome("cut");
                self.death.crash();
                std::future::pending().await
            }
            FaultKind::Disconnect | FaultKind::DisconnectAfter => {
                record.outcome("cut");
                self.death.disconnect();
                std::future::pending().await
            }
            _ => std::future::pending().await,
        }
    }
}

/// The outcome that the record gets for a changed answer.
fn rewritten_outcome(rpc: &str, faults: &[Fault], messages: &[Vec<u8>]) -> String {
    if faults
        .iter()
        .any(|fault| fault.kind == FaultKind::EmptyItems)
    {
        // Decoding it can take gigabytes of memory.
        return "empty items".into();
    }
    let messages: Vec<Bytes> = messages
        .iter()
        .map(|message| Bytes::copy_from_slice(message))
        .collect();
    messages::outcome(rpc, &messages)
}

fn ok_trailers() -> http::HeaderMap {
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    trailers
}

/// The answer as it came.
fn unchanged(
    parts: http::response::Parts,
    body: Bytes,
    trailers: Option<http::HeaderMap>,
) -> Response {
    let mut whole = http_body_util::Full::new(body).boxed_unsync();
    if let Some(trailers) = trailers {
        whole = whole
            .with_trailers(std::future::ready(Some(Ok(trailers))))
            .boxed_unsync();
    }
    Response::from_parts(parts, Body::new(whole))
}

/// An answer of these messages with status OK.
fn respond(messages: &[Vec<u8>]) -> Response {
    let mut bytes = Vec::with_capacity(messages.iter().map(|message| message.len() + 5).sum());
    for message in messages {
        bytes.push(0);
        bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
        bytes.extend_from_slice(message);
    }
    let body = http_body_util::Full::new(Bytes::from(bytes))
        .with_trailers(std::future::ready(Some(Ok(ok_trailers()))));
    let mut response = Response::new(Body::new(body));
    let grpc = http::HeaderValue::from_static("application/grpc");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, grpc);
    response
}

/// The `retry_after` of a THROTTLED answer with this body.
pub fn throttled(rpc: &str, body: &Bytes) -> Option<std::time::Duration> {
    messages::throttled(rpc, &frames(body)?)
}

/// The messages of a gRPC body. `None`: it is compressed or broken.
fn frames(body: &Bytes) -> Option<Vec<Bytes>> {
    let mut messages = Vec::new();
    let mut rest = body.clone();
    while !rest.is_empty() {
        let head = rest.get(..5)?;
        if head[0] != 0 {
            return None;
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if rest.len() < 5 + length {
            return None;
        }
        messages.push(rest.slice(5..5 + length));
        rest = rest.slice(5 + length..);
    }
    Some(messages)
}
