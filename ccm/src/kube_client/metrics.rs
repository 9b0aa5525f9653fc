//! `rest_client_*`, as client-go names them.

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

/// Counts of attempts and their latency; of a watch, until its headers are there.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    requests: Family<Request, Counter>,
    duration: Family<Latency, Histogram, fn() -> Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        let buckets = || {
            Histogram::new([
                0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
            ])
        };
        Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(buckets),
        }
    }
}

impl Metrics {
    /// Registers the metrics.
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
        metrics
    }

    /// One attempt is over; without a status it had no answer.
    pub(super) fn done(
        &self,
        status: Option<StatusCode>,
        method: &Method,
        host: &Arc<str>,
        took: Duration,
    ) {
        let (method, host) = (method.to_string(), Arc::clone(host));
        let code = status.map_or_else(|| "<error>".to_owned(), |status| status.as_str().to_owned());
        let latency = Latency {
            verb: method.clone(),
            host: Arc::clone(&host),
        };
        self.duration
            .get_or_create(&latency)
            .observe(took.as_secs_f64());
        self.requests
            .get_or_create(&Request { code, method, host })
            .inc();
    }
}
