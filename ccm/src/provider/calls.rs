//! The common part of a session's calls: a call limiter per service, the fence, a deadline, the
//! metrics.

mod balancers;
mod instances;
mod listing;
mod routes;
mod volumes;

pub(crate) use balancers::BalancerAnswer;
#[cfg(any(test, fuzzing))]
pub(crate) use balancers::Parts;

use std::future::Future;
use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use prost::Message;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tonic::Request;

use super::call_log::CallId;
use super::connect::Link;
use super::failures::{self, Place};
use super::limits::{self, Matched, Named};
use super::{CallError, CallErrorCode, Session};
use crate::core::{Fence, lock};
use crate::planted::planted;

/// Limits the calls of one service: how many run at once, and when the next may start after a
/// THROTTLED.
pub(crate) struct CallLimiter {
    /// How many calls may run at once.
    pub(crate) width: usize,
    permits: Semaphore,
    not_before: Mutex<Option<Instant>>,
}

/// The longest wait of a call in its call limiter for one THROTTLED. A call that would have to wait
/// longer fails at once, and its caller tries again later.
const LONGEST_SLOWING: Duration = Duration::from_secs(30);

impl CallLimiter {
    /// A call limiter for the `max_in_flight` of a capability.
    pub(super) fn new(max_in_flight: Option<u32>) -> Self {
        let width = match max_in_flight {
            None | Some(0) => 8,
            Some(width) => width.min(32) as usize,
        };
        Self {
            width,
            permits: Semaphore::new(width),
            not_before: Mutex::new(None),
        }
    }

    /// Waits for a free permit, then until the service may be called. Neither wait goes beyond
    /// `cap`.
    async fn enter(&self, cap: Instant) -> Result<SemaphorePermit<'_>, CallError> {
        let Ok(permit) = timeout_at(cap, self.permits.acquire()).await else {
            return Err(CallError::new(
                CallErrorCode::Deadline,
                "not sent: max_in_flight calls of this service are under way",
            ));
        };
        // The semaphore is never closed.
        let permit = permit.map_err(|_| gone())?;
        while let Some(time) = self.closed_until() {
            let wait = time.saturating_duration_since(Instant::now());
            if wait > LONGEST_SLOWING || time > cap {
                return Err(CallError {
                    retry_after: Some(wait.max(Duration::from_secs(1))),
                    ..CallError::new(
                        CallErrorCode::Throttled,
                        "not sent: the cloud asked to slow this service down",
                    )
                });
            }
            sleep_until(time).await;
        }
        Ok(permit)
    }

    /// When the service may be called again. `None`: now.
    fn closed_until(&self) -> Option<Instant> {
        let not_before = lock(&self.not_before);
        not_before.filter(|time| *time > Instant::now())
    }

    /// After a THROTTLED, holds back the service's calls for its `retry_after`, or for the default.
    fn slow(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut not_before = lock(&self.not_before);
        *not_before = Some(not_before.map_or(until, |before| before.max(until)));
    }
}

/// The call limiters of a connection. All sessions on the connection share them: `max_in_flight` is
/// a limit of the provider's process.
pub(crate) struct CallLimiters {
    pub(crate) instances: CallLimiter,
    pub(super) zones: CallLimiter,
    pub(crate) load_balancers: CallLimiter,
    pub(crate) routes: CallLimiter,
    pub(crate) volumes: CallLimiter,
}

impl CallLimiters {
    /// The call limiters that the provider's capabilities ask for.
    pub(super) fn of(offered: &api::Capabilities) -> Self {
        let instances = offered.instances.as_ref().and_then(|c| c.max_in_flight);
        let balancers = offered.load_balancers.as_ref();
        let routes = offered.routes.as_ref().and_then(|c| c.max_in_flight);
        let volumes = offered.volumes.as_ref().and_then(|c| c.max_in_flight);
        Self {
            instances: CallLimiter::new(instances),
            zones: CallLimiter::new(instances),
            load_balancers: CallLimiter::new(balancers.and_then(|c| c.max_in_flight)),
            routes: CallLimiter::new(routes),
            volumes: CallLimiter::new(volumes),
        }
    }
}

/// One kind of call.
#[derive(Clone, Copy)]
struct Rpc<'a> {
    name: &'static str,
    limiter: &'a CallLimiter,
    deadline: Duration,
}

impl<'a> Rpc<'a> {
    fn new(name: &'static str, limiter: &'a CallLimiter, deadline: Duration) -> Self {
        Self {
            name,
            limiter,
            deadline,
        }
    }
}

/// An answer, and the failure that it reports, if any. The answer is used all the same.
struct Answered<T> {
    answer: T,
    reported: Option<CallError>,
}

impl<T> Answered<T> {
    fn well(answer: T) -> Self {
        Self {
            answer,
            reported: None,
        }
    }
}

/// The answer for each item of a batch. `Err`: nothing is known of any item.
type Answers<T> = Result<Vec<Result<T, CallError>>, CallError>;

/// The kind of a batch's items.
struct Items {
    /// The kind of item in the faults' texts.
    what: &'static str,
    /// The beginning of a fault's text about a result that is for no item of the request.
    stray: &'static str,
}

/// The codes of an item's failure that concern other calls too.
const OF_ALL: [CallErrorCode; 3] = [
    CallErrorCode::Throttled,
    CallErrorCode::Credentials,
    CallErrorCode::NotInitialized,
];

fn gone() -> CallError {
    CallError::new(
        CallErrorCode::Disconnected,
        "the session with the provider is over",
    )
}

impl Session {
    /// Makes one call. It fails if the request is too large. A call with a `fence` is mutating, and
    /// is sent only while this process leads.
    async fn call<M: Message, T, F>(
        &self,
        rpc: Rpc<'_>,
        fence: Option<&Fence>,
        message: M,
        send: impl FnOnce(Link, Request<M>) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<Answered<T>, CallError>>,
    {
        let (answer, _) = self.call_with_id(rpc, fence, message, send).await?;
        Ok(answer)
    }

    /// As `call`, for an answer with a result for each item.
    async fn call_each<M: Message, T, F>(
        &self,
        rpc: Rpc<'_>,
        fence: Option<&Fence>,
        message: M,
        send: impl FnOnce(Link, Request<M>) -> F,
    ) -> Answers<T>
    where
        F: Future<Output = Result<Answered<Vec<Result<T, CallError>>>, CallError>>,
    {
        let (results, call_id) = self.call_with_id(rpc, fence, message, send).await?;
        let results = results.into_iter();
        Ok(results
            .map(|result| result.map_err(|trouble| trouble.of_call(rpc.name, &call_id)))
            .collect())
    }

    /// As `call`, also with the call's ID.
    async fn call_with_id<M: Message, T, F>(
        &self,
        rpc: Rpc<'_>,
        fence: Option<&Fence>,
        message: M,
        send: impl FnOnce(Link, Request<M>) -> F,
    ) -> Result<(T, CallId), CallError>
    where
        F: Future<Output = Result<Answered<T>, CallError>>,
    {
        limits::check_request(&message, self.max_request_bytes)?;
        if self.is_over() {
            return Err(gone().of_rpc(rpc.name));
        }
        // A listing may hold the only permit until the listing's own deadline. The calls behind it
        // must not fail because of that.
        let a_list = (rpc.limiter.width == 1).then_some(self.deadlines.list);
        let cap = Instant::now() + rpc.deadline + a_list.unwrap_or_default();
        let _permit = tokio::select! {
            biased;
            () = self.closing() => return Err(gone().of_rpc(rpc.name)),
            entered = rpc.limiter.enter(cap) => entered.map_err(|trouble| trouble.of_rpc(rpc.name))?,
        };
        let changing = fence.map(Fence::changing);
        // The call is counted before the fence is checked. Otherwise a release of the Lease between
        // the check and the count would not see the call.
        if let Some(fence) = fence.filter(|_| !planted!(UnfencedCalls))
            && let Err(fenced) = fence.check()
        {
            if let Some(unsent) = changing {
                unsent.answered();
            }
            return Err(fenced.into());
        }
        // While the provider shuts down, the connection waits for this call.
        let _in_flight = self.link.in_flight();
        let start = Instant::now();
        let call_id = self.log.next_id();
        let result = self.answer_of(rpc, &call_id, message, send).await;
        let reported = match &result {
            Ok(answered) => answered.reported.as_ref(),
            Err(trouble) => Some(trouble),
        };
        let unanswered = result.as_ref().is_err_and(|trouble| {
            matches!(
                trouble.code,
                CallErrorCode::Deadline | CallErrorCode::Disconnected
            )
        });
        if let Some(changing) = changing.filter(|_| !unanswered) {
            changing.answered();
        }
        if let Some(wait) = reported.and_then(CallError::slows) {
            rpc.limiter.slow(wait);
        }
        if let Some(trouble) = reported {
            self.failed(trouble);
        }
        self.log
            .record(rpc.name, &call_id, reported, start.elapsed());
        match result {
            Ok(answered) => Ok((answered.answer, call_id)),
            Err(trouble) => Err(trouble.of_call(rpc.name, &call_id)),
        }
    }

    /// Sends one call, and waits for its answer, its deadline or the end of the session.
    async fn answer_of<M, T, F>(
        &self,
        rpc: Rpc<'_>,
        call_id: &CallId,
        message: M,
        send: impl FnOnce(Link, Request<M>) -> F,
    ) -> Result<Answered<T>, CallError>
    where
        F: Future<Output = Result<Answered<T>, CallError>>,
    {
        let (link, request) = (self.link.for_call(call_id), timed(message, rpc.deadline));
        let ended = async {
            self.ended().await;
            gone()
        };
        // `within` would hold the call itself twice, and it is large.
        let call = pin!(send(link, request));
        let result = within(rpc.name, rpc.deadline, ended, call).await;
        result.map_err(|trouble| match trouble.code {
            CallErrorCode::Unknown if self.is_over() => CallError {
                code: CallErrorCode::Disconnected,
                ..trouble
            },
            _ => trouble,
        })
    }

    /// Cuts these batches so that each fits into one request. `bytes` is the size of an item. An
    /// item that fits into no request is alone, and its call fails without being sent.
    fn fitting<I>(&self, batches: Vec<Vec<I>>, bytes: impl Fn(&I) -> usize) -> Vec<Vec<I>> {
        // The most bytes of all other fields but the cluster.
        const OTHER_FIELDS: usize = 64;
        let others = self.cluster.encoded_len() + OTHER_FIELDS;
        let room = self.max_request_bytes.saturating_sub(others);
        limits::cut_batches(batches, room, bytes)
    }

    /// The result for each item of the request, unless the call failed as a whole.
    fn matched<T>(
        &self,
        rpc: Rpc<'_>,
        kind: &Items,
        asked: &[(String, String)],
        failed: Option<api::Failure>,
        items: impl Iterator<Item = Named<T>>,
    ) -> Result<Answered<Vec<Result<T, CallError>>>, CallError> {
        if let Some(failure) = failed {
            return Err(failures::trouble(rpc.name, Place::Whole, failure));
        }
        let Matched { results, strays } = limits::match_results(kind.what, asked, items);
        if !strays.is_empty() {
            tracing::warn!(
                provider = %self.log.provider(),
                rpc = rpc.name,
                names = ?strays,
                "ignoring results for Nodes or routes that were not in the request"
            );
        }
        let failed = results.iter().filter_map(|result| result.as_ref().err());
        for wait in failed.filter_map(CallError::slows) {
            rpc.limiter.slow(wait);
        }
        Ok(Answered {
            reported: reported(kind, &results, &strays),
            answer: results,
        })
    }
}

/// The failure that an answer reports. It is an item's failure that concerns other calls too, such
/// as THROTTLED. Without one, it is a fault for a result without an item in the request. Even then
/// each item keeps its own result.
fn reported<T>(
    kind: &Items,
    results: &[Result<T, CallError>],
    strays: &[String],
) -> Option<CallError> {
    let of_all = results
        .iter()
        .filter_map(|result| result.as_ref().err())
        .filter(|trouble| OF_ALL.contains(&trouble.code))
        .max_by_key(|trouble| (trouble.code, trouble.retry_after));
    let stray = || {
        Some(CallError::fault(format!(
            "{} {:?}",
            kind.stray,
            strays.first()?
        )))
    };
    of_all.cloned().or_else(stray)
}

/// Waits for the answer of a call, its deadline or the end of its connection.
pub(super) async fn within<T>(
    rpc: &str,
    deadline: Duration,
    ended: impl Future<Output = CallError>,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    tokio::select! {
        // An answer that arrives together with the end of the connection counts.
        biased;
        result = timeout(deadline, call) => result.unwrap_or_else(|_| {
            let seconds = deadline.as_secs();
            let late = format!("{rpc} was not answered within {seconds} s");
            Err(CallError::new(CallErrorCode::Deadline, late))
        }),
        trouble = ended => Err(trouble),
    }
}

/// The provider's deadline is longer than the ccm's own by this (CORE-9), so the ccm ends a call
/// first.
///
/// If both sides end the stream at the same time, some stacks still send frames after they have
/// ended it. These could arrive before the ccm has sent its own reset. HTTP/2 would then close the
/// connection, with all other calls on it. After a reset that was sent, HTTP/2 ignores such frames.
const GRACE: Duration = Duration::from_secs(1);

/// The request, with the deadline that the provider gets.
pub(super) fn timed<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline.saturating_add(GRACE));
    request
}
