//! `ccm_provider_*`: calls by RPC and outcome with their latency (▲M7), and the provider's state
//! and attempts to connect. Also whether its cloud scope is the accepted one (▲S20), and how many
//! Nodes are of another cloud (▲L4).

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::status::{ProviderStatus, STATES};
use crate::core::{ProviderLabel, registered, set_gauge};

/// Names of labels with their values.
type Labels<const N: usize> = [(&'static str, String); N];

fn labels<const N: usize>(labels: [(&'static str, &str); N]) -> Labels<N> {
    labels.map(|(name, value)| (name, value.to_owned()))
}

type Histograms = Family<Labels<2>, Histogram, fn() -> Histogram>;

/// The metrics of providers and of the calls to them.
#[derive(Clone)]
pub(crate) struct Metrics {
    calls: Family<Labels<3>, Counter>,
    durations: Histograms,
    connects: Family<Labels<2>, Counter>,
    states: Family<Labels<2>, Gauge>,
    scope_accepted: Family<ProviderLabel, Gauge>,
    unclaimed: Family<ProviderLabel, Gauge>,
}

fn histogram() -> Histogram {
    Histogram::new([
        0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
    ])
}

impl Metrics {
    /// Registers the families.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            calls: registered(
                registry,
                "ccm_provider_rpc",
                "Calls to a provider, except WatchChanges, by outcome: ok, or what went wrong",
                Family::default(),
            ),
            durations: {
                let durations = Histograms::new_with_constructor(histogram);
                registry.register_with_unit(
                    "ccm_provider_rpc_duration",
                    "How long calls to a provider took",
                    Unit::Seconds,
                    durations.clone(),
                );
                durations
            },
            connects: registered(
                registry,
                "ccm_provider_connects",
                "Attempts to connect to a provider by outcome: ok, unreachable (dialling failed), failed (no usable answer), refused (this ccm cannot work with the provider)",
                Family::default(),
            ),
            states: registered(
                registry,
                "ccm_provider_state",
                "1 for the state that a provider is in, 0 for the others: disconnected, connected (no Probe has answered yet), starting, ready, degraded, broken",
                Family::default(),
            ),
            scope_accepted: registered(
                registry,
                "ccm_provider_cloud_scope_accepted",
                "1 if the cloud scope of an initialised provider is the accepted one, else 0: the ccm then creates, changes and deletes nothing",
                Family::default(),
            ),
            unclaimed: registered(
                registry,
                "ccm_provider_unclaimed_nodes",
                "Nodes that belong to another cloud by their provider ID or label: the ccm leaves them alone",
                Family::default(),
            ),
        }
    }

    /// Touches each family once, for tests of the output.
    #[cfg(test)]
    pub(crate) fn touch(&self) {
        self.observe("mock", "LookupInstances", "ok", Duration::ZERO);
        self.connected("mock", "ok");
        self.state("mock", &ProviderStatus::default());
        self.scope("mock", Some(true));
        self.unclaimed("mock", Some(1));
    }

    /// Counts a finished attempt to connect.
    pub(super) fn connected(&self, provider: &str, outcome: &'static str) {
        let labels = labels([("provider", provider), ("outcome", outcome)]);
        self.connects.get_or_create(&labels).inc();
    }

    /// Shows the provider's present state.
    pub(super) fn state(&self, provider: &str, status: &ProviderStatus) {
        let current = status.state();
        for state in STATES {
            let labels = labels([("provider", provider), ("state", state)]);
            let gauge = self.states.get_or_create(&labels);
            gauge.set(i64::from(state == current));
        }
    }

    /// Shows the decision about the provider's cloud scope. `None`: the provider is not
    /// initialised.
    pub(super) fn scope(&self, provider: &str, accepted: Option<bool>) {
        show(&self.scope_accepted, provider, accepted.map(usize::from));
    }

    /// Shows how many Nodes are of another cloud than the provider's. `None`: the provider is not
    /// initialised, or offers no instances.
    pub(crate) fn unclaimed(&self, provider: &str, nodes: Option<usize>) {
        show(&self.unclaimed, provider, nodes);
    }

    pub(super) fn observe(
        &self,
        provider: &str,
        rpc: &'static str,
        outcome: &'static str,
        took: Duration,
    ) {
        let (provider, rpc) = (("provider", provider), ("rpc", rpc));
        let took = took.as_secs_f64();
        let durations = labels([provider, rpc]);
        self.durations.get_or_create(&durations).observe(took);
        let calls = labels([provider, rpc, ("outcome", outcome)]);
        self.calls.get_or_create(&calls).inc();
    }
}

/// Sets the provider's gauge, or removes it.
fn show(family: &Family<ProviderLabel, Gauge>, provider: &str, count: Option<usize>) {
    match count {
        Some(count) => set_gauge(family, provider, count),
        None => {
            family.remove(&provider.into());
        }
    }
}
