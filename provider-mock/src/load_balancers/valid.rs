//! Refusals of Services with invalid fields.

use std::collections::BTreeSet;

use provider_sdk::{Failure, Service};

use crate::fixture::LoadBalancerCapability;
use crate::routes::is_cidr;

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// INVALID if a field has a value that no load balancer can have, or if the Service's class is not
/// served.
pub(crate) fn check(service: &Service, offered: &LoadBalancerCapability) -> Result<(), Failure> {
    let wrong = wrong(service)
        .or_else(|| super::shared::wrong(service))
        .or_else(|| unserved(service, offered));
    wrong.map_or(Ok(()), |wrong| Err(Failure::invalid(wrong)))
}

fn unserved(service: &Service, offered: &LoadBalancerCapability) -> Option<String> {
    match &service.load_balancer_class {
        Some(class) if !offered.serves(Some(class)) => Some(format!(
            "spec.loadBalancerClass {class:?} is not one of the served classes: {:?}",
            offered.classes
        )),
        None if !offered.serves(None) => Some(format!(
            "spec.loadBalancerClass is absent; write one of {:?}",
            offered.classes
        )),
        _ => None,
    }
}

/// An error names the field, and mostly also its value and the valid values.
fn wrong(service: &Service) -> Option<String> {
    if service.ports.is_empty() {
        return Some("spec.ports is empty; a load balancer listens on at least one port".into());
    }
    let mut listeners = BTreeSet::new();
    for port in &service.ports {
        let (protocol, number) = (&port.protocol, port.port);
        if !PROTOCOLS.contains(&protocol.as_str()) {
            return Some(format!(
                "spec.ports[].protocol {protocol:?} is none of {}",
                PROTOCOLS.join(", ")
            ));
        }
        let node_port = port.node_port.unwrap_or(1);
        for (field, value) in [("port", number), ("nodePort", node_port)] {
            if !(1..=65_535).contains(&value) {
                return Some(format!(
                    "spec.ports[].{field} {value} is not within 1 to 65535"
                ));
            }
        }
        if !listeners.insert((protocol, number)) {
            return Some(format!(
                "spec.ports has {protocol} {number} twice; a load balancer listens once on it"
            ));
        }
    }
    if let Some(range) = service.source_ranges.iter().find(|range| !is_cidr(range)) {
        return Some(format!(
            "spec.loadBalancerSourceRanges {range:?} is not a CIDR; write one such as 192.0.2.0/24"
        ));
    }
    let words = [
        (
            "sessionAffinity",
            &service.session_affinity,
            ["None", "ClientIP"],
        ),
        (
            "externalTrafficPolicy",
            &service.external_traffic_policy,
            ["Cluster", "Local"],
        ),
    ];
    for (field, value, known) in words {
        if !value.is_empty() && !known.contains(&value.as_str()) {
            return Some(format!("spec.{field} {value:?} is none of {known:?}"));
        }
    }
    let family = |family: &&String| !["IPv4", "IPv6"].contains(&family.as_str());
    service
        .ip_families
        .iter()
        .find(family)
        .map(|family| format!("spec.ipFamilies {family:?} is none of IPv4, IPv6"))
}

#[cfg(test)]
mod tests {
    use provider_sdk::{FailureCode, ServicePort};

    use super::*;

    type Change<'a> = &'a dyn Fn(&mut Service);

    fn port(protocol: &str, port: i32) -> ServicePort {
        let mut of = ServicePort::default();
        of.protocol = protocol.into();
        of.port = port;
        of
    }

    #[test]
    fn a_service_that_cannot_be_served_is_invalid_and_the_field_is_named() {
        let changed = |change: Change<'_>| {
            let mut service = Service::new("default", "web", "uid");
            service.ports = vec![port("TCP", 80), port("UDP", 80)];
            change(&mut service);
            check(&service, &LoadBalancerCapability::default()).map_err(|failure| {
                assert_eq!(failure.code(), FailureCode::Invalid);
                failure.message().to_owned()
            })
        };
        assert_eq!(changed(&|_| {}), Ok(()));
        let wrong: [(Change<'_>, &str); 10] = [
            (&|service| service.ports.clear(), "spec.ports is empty"),
            (&|service| service.ports[0].protocol = "ICMP".into(), "ICMP"),
            (&|service| service.ports[0].port = 0, "port 0"),
            (
                &|service| service.ports[0].node_port = Some(70_000),
                "nodePort 70000",
            ),
            (&|service| service.ports[1] = port("TCP", 80), "twice"),
            (
                &|service| service.source_ranges = vec!["10.0.0.0".into()],
                "10.0.0.0",
            ),
            (
                &|service| service.session_affinity = "Cookie".into(),
                "Cookie",
            ),
            (
                &|service| service.external_traffic_policy = "Near".into(),
                "Near",
            ),
            (&|service| service.ip_families = vec!["IPv5".into()], "IPv5"),
            (
                &|service| service.load_balancer_class = Some("other".into()),
                "other",
            ),
        ];
        for (change, named) in wrong {
            let said = changed(change).unwrap_err();
            assert!(said.contains(named), "{said} names no {named}");
        }
    }
}
