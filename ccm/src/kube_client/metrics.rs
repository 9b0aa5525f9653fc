//! The `rest_client_*` metrics, named as in client-go.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    code: String,
    method: String,
    host: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Latency {
    verb: String,
    host: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Retry {
    code: String,
    verb: String,
    host: Arc<str>,
}

type Histograms = Family<Latency, Histogram, fn() -> Histogram>;

/// Counts, latencies and sizes of attempts. The latency of a watch ends with its headers.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    requests: Family<Request, Counter>,
    retries: Family<Retry, Counter>,
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
    /// The size of the answer's body in bytes; `None`: it is streamed.
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

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            retries: Family::default(),
            duration: Family::new_with_constructor(seconds),
            throttled: Family::new_with_constructor(seconds),
            request_size: Family::new_with_constructor(bytes),
            response_size: Family::new_with_constructor(bytes),
        }
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "rest_client_requests",
            "Requests to the API server by status code, method and host",
            metrics.requests.clone(),
        );
        registry.register(
            "rest_client_request_duration_seconds",
            "Latency of requests to the API server by verb and host",
            metrics.duration.clone(),
        );
        registry.register(
            "rest_client_request_retries",
            "Requests that were sent to the API server again, by status code, verb and host",
            metrics.retries.clone(),
        );
        for (name, help, family) in [
            (
                "rest_client_rate_limiter_duration_seconds",
                "Time that requests waited for the throttle of this process, by verb and host",
                &metrics.throttled,
            ),
            (
                "rest_client_request_size_bytes",
                "Size of requests to the API server by verb and host",
                &metrics.request_size,
            ),
            (
                "rest_client_response_size_bytes",
                "Size of the API server's answers by verb and host",
                &metrics.response_size,
            ),
        ] {
            registry.register(name, help, family.clone());
        }
        metrics
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
        let retry = Retry {
            code: code(status),
            verb: method.to_string(),
            host: Arc::clone(host),
        };
        self.retries.get_or_create(&retry).inc();
    }

    pub(super) fn done(&self, attempt: Attempt, method: &Method, host: &Arc<str>) {
        let latency = latency(method, host);
        let (method, host) = (method.to_string(), Arc::clone(host));
        let code = code(attempt.status);
        let observe = |family: &Histograms, value: f64| {
            family.get_or_create(&latency).observe(value);
        };
        observe(&self.duration, attempt.took.as_secs_f64());
        observe(&self.request_size, attempt.sent as f64);
        if let Some(received) = attempt.received {
            observe(&self.response_size, received as f64);
        }
        self.requests
            .get_or_create(&Request { code, method, host })
            .inc();
    }
}

fn latency(method: &Method, host: &Arc<str>) -> Latency {
    Latency {
        verb: method.to_string(),
        host: Arc::clone(host),
    }
}

fn code(status: Option<StatusCode>) -> String {
    status.map_or_else(|| "<error>".to_owned(), |status| status.as_str().to_owned())
}
