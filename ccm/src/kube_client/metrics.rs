//! The `rest_client_*` metrics, named as in client-go.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::core::registered;

type Labels<const N: usize> = [(&'static str, Arc<str>); N];
type Histograms = Family<Labels<2>, Histogram, fn() -> Histogram>;

/// Counts, latencies and sizes of attempts. The latency of a watch ends with its headers.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    requests: Family<Labels<3>, Counter>,
    retries: Family<Labels<3>, Counter>,
    duration: Histograms,
    throttled: Histograms,
    request_size: Histograms,
    response_size: Histograms,
}

/// One finished attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// `None`: no answer.
    pub(super) status: Option<StatusCode>,
    pub(super) took: Duration,
    /// The size of the request's body in bytes.
    pub(super) sent: usize,
    /// The size of the answer's body in bytes; `None`: no answer, or it is streamed.
    pub(super) received: Option<u64>,
}

fn seconds() -> Histogram {
    Histogram::new([
        0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
    ])
}

fn bytes() -> Histogram {
    Histogram::new([
        64.0,
        256.0,
        512.0,
        1_024.0,
        4_096.0,
        16_384.0,
        65_536.0,
        262_144.0,
        1_048_576.0,
        4_194_304.0,
        16_777_216.0,
    ])
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            requests: registered(
                registry,
                "rest_client_requests",
                "Requests to the API server by status code, method and host",
                Family::default(),
            ),
            duration: registered(
                registry,
                "rest_client_request_duration_seconds",
                "Latency of requests to the API server by verb and host",
                Family::new_with_constructor(seconds),
            ),
            retries: registered(
                registry,
                "rest_client_request_retries",
                "Requests that were sent to the API server again, by status code, verb and host",
                Family::default(),
            ),
            throttled: registered(
                registry,
                "rest_client_rate_limiter_duration_seconds",
                "Time that requests waited for the throttle of this process, by verb and host",
                Family::new_with_constructor(seconds),
            ),
            request_size: registered(
                registry,
                "rest_client_request_size_bytes",
                "Size of requests to the API server by verb and host",
                Family::new_with_constructor(bytes),
            ),
            response_size: registered(
                registry,
                "rest_client_response_size_bytes",
                "Size of the API server's answers by verb and host",
                Family::new_with_constructor(bytes),
            ),
        }
    }

    /// Gives each metric a value, for tests that list the metrics.
    #[cfg(test)]
    pub(crate) fn touch(&self, host: &str) {
        let (host, status) = (host.into(), Some(StatusCode::TOO_MANY_REQUESTS));
        self.throttled(&Method::GET, &host, Duration::ZERO);
        self.again(status, &Method::GET, &host);
        let attempt = Attempt {
            status,
            took: Duration::ZERO,
            sent: 0,
            received: Some(0),
        };
        self.done(attempt, &Method::GET, &host);
    }

    /// A request waited for the rate limit.
    pub(super) fn throttled(&self, method: &Method, host: &Arc<str>, waited: Duration) {
        let throttled = self.throttled.get_or_create(&latency(method, host));
        throttled.observe(waited.as_secs_f64());
    }

    /// A request is repeated because of this status, or because it had no answer (`None`).
    pub(super) fn again(&self, status: Option<StatusCode>, method: &Method, host: &Arc<str>) {
        let [verb, host] = latency(method, host);
        let retry = [("code", code(status)), verb, host];
        self.retries.get_or_create(&retry).inc();
    }

    pub(super) fn done(&self, attempt: Attempt, method: &Method, host: &Arc<str>) {
        let latency = latency(method, host);
        let observe = |family: &Histograms, value: f64| {
            family.get_or_create(&latency).observe(value);
        };
        observe(&self.duration, attempt.took.as_secs_f64());
        observe(&self.request_size, attempt.sent as f64);
        if let Some(received) = attempt.received {
            observe(&self.response_size, received as f64);
        }
        let [(_, method), host] = latency;
        let request = [("code", code(attempt.status)), ("method", method), host];
        self.requests.get_or_create(&request).inc();
    }
}

fn latency(method: &Method, host: &Arc<str>) -> Labels<2> {
    [("verb", method.as_str().into()), ("host", Arc::clone(host))]
}

fn code(status: Option<StatusCode>) -> Arc<str> {
    let code = status.as_ref().map_or("<error>", StatusCode::as_str);
    code.into()
}
