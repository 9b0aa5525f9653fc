//! Settings that a Service no longer asks for, and that stay in the cloud.

use std::time::Duration;

use provider_sdk::{Service, ServicePort};

use crate::load_balancers::LoadBalancerConfig;

/// Adds settings of the load balancer to those that the Service asks for.
pub(super) fn keep(service: &mut Service, before: LoadBalancerConfig) {
    let asked = LoadBalancerConfig::of(service);
    if service.source_ranges.is_empty() {
        service.source_ranges = before.source_ranges;
    }
    if service.session_affinity == "None"
        && let Some(("ClientIP", seconds)) = before.session_affinity.split_once(':')
    {
        service.session_affinity = "ClientIP".into();
        service.session_affinity_timeout = seconds.parse().ok().map(Duration::from_secs);
    }
    for (key, value) in before.annotations {
        service.annotations.entry(key).or_insert(value);
    }
    let more = before
        .ports
        .iter()
        .filter(|port| !asked.ports.contains(port));
    service.ports.extend(more.filter_map(|port| port_of(port)));
}

/// Parses an entry of [`LoadBalancerConfig::ports`].
fn port_of(text: &str) -> Option<ServicePort> {
    let mut parts = text.splitn(5, ':').map(str::to_owned);
    let mut port = ServicePort::default();
    port.name = parts.next()?;
    port.protocol = parts.next()?;
    port.port = parts.next()?.parse().ok()?;
    port.node_port = parts.next()?.parse().ok();
    port.app_protocol = parts.next().filter(|protocol| !protocol.is_empty());
    Some(port)
}
