//! Which fields of a Service its provider does not honour (▲S15). Pure.

use cloud_provider_api::v1alpha1::{LoadBalancerCapability, ServiceFeature};
use k8s_openapi::api::core::v1::Service;

/// The fields that the Service uses and the provider does not honour, as people write them.
pub(super) fn unsupported(
    service: &Service,
    capability: &LoadBalancerCapability,
) -> Vec<&'static str> {
    let Some(spec) = service.spec.as_ref() else {
        return Vec::new();
    };
    let ports = spec.ports.as_deref().unwrap_or_default();
    let protocol = |name: &str| {
        ports
            .iter()
            .any(|port| port.protocol.as_deref() == Some(name))
    };
    let uses = [
        (
            ServiceFeature::SourceRanges,
            "spec.loadBalancerSourceRanges",
            spec.load_balancer_source_ranges
                .as_ref()
                .is_some_and(|ranges| !ranges.is_empty()),
        ),
        (
            ServiceFeature::SessionAffinity,
            "spec.sessionAffinity: ClientIP",
            spec.session_affinity.as_deref() == Some("ClientIP"),
        ),
        (
            ServiceFeature::ExternalTrafficPolicyLocal,
            "spec.externalTrafficPolicy: Local",
            spec.external_traffic_policy.as_deref() == Some("Local"),
        ),
        (
            ServiceFeature::Udp,
            "spec.ports[].protocol: UDP",
            protocol("UDP"),
        ),
        (
            ServiceFeature::Sctp,
            "spec.ports[].protocol: SCTP",
            protocol("SCTP"),
        ),
        (
            ServiceFeature::DualStack,
            "spec.ipFamilies: two families",
            spec.ip_families
                .as_ref()
                .is_some_and(|families| families.len() > 1),
        ),
        (
            ServiceFeature::LoadBalancerIp,
            "spec.loadBalancerIP",
            spec.load_balancer_ip
                .as_ref()
                .is_some_and(|ip| !ip.is_empty()),
        ),
        (
            ServiceFeature::AppProtocol,
            "spec.ports[].appProtocol",
            ports.iter().any(|port| port.app_protocol.is_some()),
        ),
    ];
    uses.into_iter()
        .filter(|(feature, _, used)| *used && !capability.features.contains(&i32::from(*feature)))
        .map(|(_, field, _)| field)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::fixtures::service;

    #[test]
    fn s15_each_field_that_is_not_honoured_is_named() {
        type Edit = fn(&mut k8s_openapi::api::core::v1::ServiceSpec);
        let cases: [(ServiceFeature, &str, Edit); 8] = [
            (
                ServiceFeature::SourceRanges,
                "spec.loadBalancerSourceRanges",
                |s| s.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".into()]),
            ),
            (
                ServiceFeature::SessionAffinity,
                "spec.sessionAffinity: ClientIP",
                |s| s.session_affinity = Some("ClientIP".into()),
            ),
            (
                ServiceFeature::ExternalTrafficPolicyLocal,
                "spec.externalTrafficPolicy: Local",
                |s| s.external_traffic_policy = Some("Local".into()),
            ),
            (ServiceFeature::Udp, "spec.ports[].protocol: UDP", |s| {
                s.ports.get_or_insert_default()[0].protocol = Some("UDP".into());
            }),
            (ServiceFeature::Sctp, "spec.ports[].protocol: SCTP", |s| {
                s.ports.get_or_insert_default()[0].protocol = Some("SCTP".into());
            }),
            (
                ServiceFeature::DualStack,
                "spec.ipFamilies: two families",
                |s| s.ip_families = Some(vec!["IPv4".into(), "IPv6".into()]),
            ),
            (ServiceFeature::LoadBalancerIp, "spec.loadBalancerIP", |s| {
                s.load_balancer_ip = Some("192.0.2.1".into());
            }),
            (
                ServiceFeature::AppProtocol,
                "spec.ports[].appProtocol",
                |s| s.ports.get_or_insert_default()[0].app_protocol = Some("https".into()),
            ),
        ];
        let nothing = LoadBalancerCapability::default();
        assert!(unsupported(&service(), &nothing).is_empty());
        for (feature, field, edit) in cases {
            let mut service = service();
            edit(service.spec.get_or_insert_default());
            assert_eq!(unsupported(&service, &nothing), [field]);
            let offered = LoadBalancerCapability {
                features: vec![feature.into()],
                ..LoadBalancerCapability::default()
            };
            assert!(unsupported(&service, &offered).is_empty(), "{field}");
        }
    }
}
