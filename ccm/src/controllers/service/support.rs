//! The fields of a Service that its provider does not support (▲S15). Pure.

use cloud_provider_api::v1alpha1::{LoadBalancerCapability, ServiceFeature};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::provider::source_ranges;

/// The fields that a provider need not support, with their names for people.
const FIELDS: [(ServiceFeature, &str); 8] = {
    use ServiceFeature as Feature;
    [
        (Feature::SourceRanges, "spec.loadBalancerSourceRanges"),
        (Feature::SessionAffinity, "spec.sessionAffinity: ClientIP"),
        (
            Feature::ExternalTrafficPolicyLocal,
            "spec.externalTrafficPolicy: Local",
        ),
        (Feature::Udp, "spec.ports[].protocol: UDP"),
        (Feature::Sctp, "spec.ports[].protocol: SCTP"),
        (Feature::DualStack, "spec.ipFamilies: two families"),
        (Feature::LoadBalancerIp, "spec.loadBalancerIP"),
        (Feature::AppProtocol, "spec.ports[].appProtocol"),
    ]
};

/// The used fields that the provider does not support, with their names for people.
pub(super) fn unsupported(
    service: &Service,
    capability: &LoadBalancerCapability,
) -> Vec<&'static str> {
    let honoured = |feature| capability.features.contains(&i32::from(feature));
    let fields = FIELDS.into_iter();
    fields
        .filter(|(feature, _)| uses(service, *feature) && !honoured(*feature))
        .map(|(_, field)| field)
        .collect()
}

fn uses(service: &Service, feature: ServiceFeature) -> bool {
    let Some(spec) = &service.spec else {
        return false;
    };
    let mut ports = spec.ports.iter().flatten();
    let is = |value: &Option<String>, wanted| value.as_deref() == Some(wanted);
    match feature {
        ServiceFeature::Unspecified | ServiceFeature::IpMode => false,
        ServiceFeature::SourceRanges => !source_ranges(service).is_empty(),
        ServiceFeature::SessionAffinity => is(&spec.session_affinity, "ClientIP"),
        ServiceFeature::ExternalTrafficPolicyLocal => is(&spec.external_traffic_policy, "Local"),
        ServiceFeature::Udp => ports.any(|port| is(&port.protocol, "UDP")),
        ServiceFeature::Sctp => ports.any(|port| is(&port.protocol, "SCTP")),
        ServiceFeature::DualStack => spec.ip_families.iter().flatten().count() > 1,
        ServiceFeature::LoadBalancerIp => {
            let ip = spec.load_balancer_ip.as_deref();
            ip.is_some_and(|ip| !ip.is_empty())
        }
        ServiceFeature::AppProtocol => ports.any(|port| port.app_protocol.is_some()),
    }
}

/// The Kubernetes API's condition for ports that a load balancer cannot serve.
const PORTS_ERROR: &str = "LoadBalancerPortsError";
/// The ccm's reason for it. A condition with another reason is another component's.
const NOT_SUPPORTED: &str = "ProtocolNotSupported";

/// The Service's conditions, if they have to change. A port's protocol is the only unsupported
/// field with a condition in the API.
pub(super) fn conditions(
    service: &Service,
    capability: &LoadBalancerCapability,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    let fields: Vec<_> = unsupported(service, capability)
        .into_iter()
        .filter(|field| field.starts_with("spec.ports[].protocol"))
        .collect();
    if fields.is_empty() {
        return without_condition(service);
    }
    let held = held(service);
    let before = held.iter().find(|held| held.type_ == PORTS_ERROR);
    if before.is_some_and(|before| before.reason != NOT_SUPPORTED) {
        return None;
    }
    let message = format!("The provider does not honour {}", fields.join(", "));
    if before.is_some_and(|before| before.status == "True" && before.message == message) {
        return None;
    }
    let condition = Condition {
        type_: PORTS_ERROR.to_owned(),
        status: "True".to_owned(),
        reason: NOT_SUPPORTED.to_owned(),
        message,
        observed_generation: service.metadata.generation,
        last_transition_time: before
            .filter(|before| before.status == "True")
            .map_or(Time(now), |before| before.last_transition_time.clone()),
    };
    Some(others(held).chain([condition]).collect())
}

/// The Service's conditions without ours. `None`: ours is not set.
pub(super) fn without_condition(service: &Service) -> Option<Vec<Condition>> {
    let held = held(service);
    let ours = held.iter().any(is_ours);
    ours.then(|| others(held).collect())
}

fn held(service: &Service) -> &[Condition] {
    let status = service.status.as_ref();
    status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
}

fn is_ours(condition: &Condition) -> bool {
    condition.type_ == PORTS_ERROR && condition.reason == NOT_SUPPORTED
}

fn others(held: &[Condition]) -> impl Iterator<Item = Condition> + '_ {
    held.iter().filter(|held| !is_ours(held)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::service::fixtures::service;

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

    fn with_conditions(conditions: Option<Vec<Condition>>) -> Service {
        let mut service = service();
        service.status.get_or_insert_default().conditions = conditions;
        service
    }

    fn protocol(mut service: Service, name: &str) -> Service {
        let spec = service.spec.get_or_insert_default();
        spec.ports.get_or_insert_default()[0].protocol = Some(name.to_owned());
        service
    }

    #[test]
    fn s15_a_protocol_that_is_not_honoured_is_a_condition() {
        let nothing = LoadBalancerCapability::default();
        let all = LoadBalancerCapability {
            features: vec![ServiceFeature::Udp.into(), ServiceFeature::Sctp.into()],
            ..LoadBalancerCapability::default()
        };
        let other = Condition {
            type_: "example.com/Mine".to_owned(),
            ..condition("True")
        };
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert_eq!(
            conditions(&service(), &nothing, at(1)),
            None,
            "TCP is always served"
        );
        let udp = protocol(with_conditions(Some(vec![other.clone()])), "UDP");
        assert_eq!(conditions(&udp, &all, at(1)), None);

        let reported = conditions(&udp, &nothing, at(1)).unwrap();
        assert_eq!((reported.len(), &reported[0]), (2, &other));
        let shown = (reported[1].type_.as_str(), reported[1].status.as_str());
        assert_eq!(shown, ("LoadBalancerPortsError", "True"));
        assert_eq!(
            reported[1].message,
            "The provider does not honour spec.ports[].protocol: UDP"
        );
        let after = protocol(with_conditions(Some(reported.clone())), "UDP");
        assert_eq!(conditions(&after, &nothing, at(2)), None, "once");

        // Another unsupported protocol: the time of the transition stays.
        let sctp = protocol(after.clone(), "SCTP");
        let retold = conditions(&sctp, &nothing, at(3)).unwrap();
        assert_eq!(retold[1].last_transition_time, Time(at(1)));
        assert!(retold[1].message.contains("SCTP"));

        // The Service no longer uses the protocol, or the provider supports it now.
        for (service, capability) in [(protocol(after.clone(), "TCP"), &nothing), (after, &all)] {
            assert_eq!(
                conditions(&service, capability, at(4)),
                Some(vec![other.clone()])
            );
        }
    }

    #[test]
    fn s15_a_condition_of_somebody_else_stays() {
        let nothing = LoadBalancerCapability::default();
        let theirs = condition("LoadBalancerMixedProtocolNotSupported");
        let service = protocol(with_conditions(Some(vec![theirs])), "UDP");
        assert_eq!(conditions(&service, &nothing, Timestamp::UNIX_EPOCH), None);
        assert_eq!(without_condition(&service), None);
    }

    fn condition(reason: &str) -> Condition {
        Condition {
            type_: PORTS_ERROR.to_owned(),
            status: "True".to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        }
    }
}
