//! `ccm_provider_*`: per-RPC counts and latency by provider and outcome (▲M7), whether its cloud scope is the accepted one (▲S20), and how many
//! Nodes are of another cloud (▲L4).

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    provider: String,
    rpc: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    provider: String,
    rpc: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Whose {
    provider: String,
}

/// Counts and latency of calls to providers, and how they are.
#[derive(Clone)]
pub(crate) struct Metrics {
    calls: Family<Call, Counter>,
    durations: Family<Kind, Histogram, fn() -> Histogram>,
    scope_accepted: Family<Whose, Gauge>,
    unclaimed: Family<Whose, Gauge>,
}

fn histogram() -> Histogram {
    Histogram::new([
        0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
    ])
}

impl Metrics {
    /// `ccm_provider_rpc_total{provider,rpc,outcome}`, `ccm_provider_rpc_duration_seconds{provider,rpc}`, `ccm_provider_cloud_scope_accepted{provider}` and
    /// `ccm_provider_unclaimed_nodes{provider}`.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            calls: Family::default(),
            durations: Family::new_with_constructor(histogram),
            scope_accepted: Family::default(),
            unclaimed: Family::default(),
        };
        registry.register(
            "ccm_provider_rpc",
            "Calls to a provider by outcome: ok, or what went wrong",
            metrics.calls.clone(),
        );
        registry.register_with_unit(
            "ccm_provider_rpc_duration",
            "How long calls to a provider took",
            Unit::Seconds,
            metrics.durations.clone(),
        );
        registry.register(
            "ccm_provider_cloud_scope_accepted",
            "1 if the cloud scope of an initialised provider is the accepted one, else 0: the ccm then creates, changes and deletes nothing",
            metrics.scope_accepted.clone(),
        );
        registry.register(
            "ccm_provider_unclaimed_nodes",
            "Nodes that belong to another cloud by their provider ID or label: the ccm leaves them alone",
            metrics.unclaimed.clone(),
        );
        metrics
    }

    /// A call, for tests of what is shown.
    #[cfg(test)]
    pub(crate) fn touch(&self) {
        self.observe("mock", "LookupInstances", "ok", Duration::ZERO);
        self.scope("mock", Some(true));
        self.unclaimed("mock", Some(1));
    }

    /// What was decided about the provider's cloud scope; `None`: it is not initialised.
    pub(super) fn scope(&self, provider: &str, accepted: Option<bool>) {
        let whose = Whose {
            provider: provider.to_owned(),
        };
        match accepted {
            Some(accepted) => {
                let gauge = self.scope_accepted.get_or_create(&whose);
                gauge.set(i64::from(accepted));
            }
            None => {
                self.scope_accepted.remove(&whose);
            }
        }
    }

    /// How many Nodes are of another cloud than the provider's; `None`: it is not initialised, or knows no instances.
    pub(crate) fn unclaimed(&self, provider: &str, nodes: Option<usize>) {
        let whose = Whose {
            provider: provider.to_owned(),
        };
        match nodes {
            Some(nodes) => {
                let gauge = self.unclaimed.get_or_create(&whose);
                gauge.set(i64::try_from(nodes).unwrap_or(i64::MAX));
            }
            None => {
                self.unclaimed.remove(&whose);
            }
        }
    }

    pub(super) fn observe(
        &self,
        provider: &str,
        rpc: &'static str,
        outcome: &'static str,
        took: Duration,
    ) {
        let provider = provider.to_owned();
        self.durations
            .get_or_create(&Kind {
                provider: provider.clone(),
                rpc,
            })
            .observe(took.as_secs_f64());
        self.calls
            .get_or_create(&Call {
                provider,
                rpc,
                outcome,
            })
            .inc();
    }
}
