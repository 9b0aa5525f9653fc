//! The tower layer under every Kubernetes client: fence, timeouts, 429 and Retry-After, metrics.
//!
//! kube speaks HTTP/1.1 with a connection pool that grows with the requests in flight, so a slow
//! request delays no other. The callers limit how many are in flight. kube's own retries are off
//! ([`connect`]): they would repeat a DELETE, and a write that was answered with 504.

mod accounts;
mod bucket;
mod connect;
mod gate;
mod metrics;
mod refusal;
mod retry;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

use kube::Client;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::core::{Fence, Fenced};
use accounts::Account;
use bucket::Bucket;
use gate::{Gate, Role};

pub(crate) use connect::{connect, connect_anonymously, connect_to};
pub(crate) use metrics::Metrics;
pub(crate) use refusal::{refusal, refusal_of_watch};

/// The clients of this process. Each goes through the layer of this module.
#[derive(Clone)]
pub(crate) struct KubeClients {
    /// Lists, watches and other reads. It refuses everything but GETs.
    pub(crate) watch: Client,
    /// Reads and writes. Everything but a GET needs an open fence.
    pub(crate) write: Client,
    /// For the Lease. It is not fenced, because the Lease sets the fence.
    pub(crate) lease: Client,
    /// TokenReviews, SubjectAccessReviews and the lookup of client CAs, for the HTTPS port. It is
    /// not fenced.
    pub(crate) review: Client,
    /// For building further clients.
    gate: Gate,
    namespace: String,
}

impl KubeClients {
    /// A second client like `write`, behind another fence: for controllers that run under another
    /// Lease.
    pub(crate) fn fenced_by(&self, fence: Fence) -> Client {
        let gate = Gate {
            role: Role::Fenced(fence),
            ..self.gate.clone()
        };
        gate.client(&self.namespace)
    }

    /// A client as [`fenced_by`](Self::fenced_by) that acts as this service account of kube-system.
    /// It sends its requests through `anonymous`, a client without credentials. This process's own
    /// identity creates the account and requests its tokens.
    pub(crate) fn fenced_as(
        &self,
        account: &'static str,
        anonymous: &Base,
        fence: Fence,
    ) -> Client {
        let own = self.fenced_by(fence.clone());
        let gate = Gate {
            base: anonymous.client.clone(),
            role: Role::Fenced(fence),
            account: Some(Arc::new(Account::new(account, own))),
            ..self.gate.clone()
        };
        gate.client(&self.namespace)
    }
}

/// A client without the layer, and the API server's host for the metrics.
#[derive(Clone)]
pub(crate) struct Base {
    /// Directly to the API server.
    pub(crate) client: Client,
    /// `host:port` of the API server.
    pub(crate) host: String,
}

impl From<Client> for Base {
    fn from(client: Client) -> Self {
        Self {
            client,
            host: String::new(),
        }
    }
}

/// The client-side rate limit (`--kube-api-qps`, `--kube-api-burst`). There is none by default
/// (▲M11).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// Requests in a second.
    pub(crate) qps: f32,
    /// Requests at once before the rate applies.
    pub(crate) burst: u32,
}

impl Limits {
    /// The limits of the configuration. The default burst is twice the rate.
    pub(crate) fn of(config: &crate::args::Config) -> Option<Self> {
        let qps = config.kube_api_qps.filter(|qps| *qps > 0.0)?;
        let burst = config.kube_api_burst.unwrap_or((qps * 2.0).ceil() as u32);
        Some(Self { qps, burst })
    }
}

/// Puts the layer over `base`. `watch` and `write` share one rate limit. The Lease and the reviews
/// never wait for it.
pub(crate) fn clients(
    base: impl Into<Base>,
    fence: Fence,
    metrics: &Metrics,
    limits: Option<Limits>,
    seed: u64,
) -> KubeClients {
    let base = base.into();
    let bucket = limits.map(|limits| Arc::new(Bucket::new(limits)));
    let rng = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
    let namespace = base.client.default_namespace().to_owned();
    let gate = Gate {
        base: base.client,
        host: base.host.as_str().into(),
        role: Role::Fenced(fence),
        metrics: metrics.clone(),
        bucket,
        rng,
        account: None,
    };
    let of = |role, bucket: Option<&Arc<Bucket>>| {
        let gate = Gate {
            role,
            bucket: bucket.cloned(),
            ..gate.clone()
        };
        gate.client(&namespace)
    };
    KubeClients {
        watch: of(Role::ReadOnly, gate.bucket.as_ref()),
        write: gate.clone().client(&namespace),
        lease: of(Role::Once, None),
        review: of(Role::Open, None),
        gate,
        namespace,
    }
}

/// The client for reviews with a kubeconfig of its own (`--authentication-kubeconfig`,
/// `--authorization-kubeconfig`).
pub(crate) fn review_client(base: impl Into<Base>, metrics: &Metrics, seed: u64) -> Client {
    clients(base, Fence::closed(), metrics, None, seed).review
}

/// Whether the layer refused or dropped the request because the fence was closed.
pub(crate) fn fenced(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(source) if source.is::<Fenced>())
}
