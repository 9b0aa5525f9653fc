//! Conversions between the messages of LoadBalancerService and the native types.

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;

use crate::wrap::convert;
use crate::wrap::limits::{ID_BYTES, NAME_BYTES, at_most, fits, is_dns_name, is_ip};
use crate::{
    Failure, Ingress, IpMode, ListedLoadBalancer, LoadBalancer, LoadBalancerStatus, Node,
    PortStatus, Presence, Service, ServicePort,
};

pub(super) fn load_balancer_to(found: LoadBalancer) -> Result<pb::LoadBalancer, String> {
    let presence = match found.presence {
        Presence::Absent => pb::LoadBalancerPresence::Absent,
        Presence::Present => pb::LoadBalancerPresence::Present,
        Presence::Remnants => pb::LoadBalancerPresence::Remnants,
    };
    let ownership = match found.ownership {
        Some(ownership) => convert::ownership(ownership),
        None if found.presence == Presence::Absent => pb::Ownership::Unspecified,
        None => return Err("an existing load balancer has no ownership".into()),
    };
    Ok(pb::LoadBalancer {
        presence: presence.into(),
        ownership: ownership.into(),
        load_balancer_name: name_to(found.name),
        status: found.status.map(status_to).transpose()?,
        in_sync: found.in_sync,
    })
}

/// A name is for people, so a long one is cut (LB-33).
fn name_to(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(NAME_BYTES));
    name
}

pub(super) fn listed_to(item: ListedLoadBalancer) -> Result<pb::ListedLoadBalancer, String> {
    if let Some(handle) = &item.handle {
        fits("the handle", handle, ID_BYTES)?;
    }
    for owner in &item.owners {
        at_most("the namespace", &owner.namespace, NAME_BYTES)?;
        at_most("the Service's name", &owner.name, NAME_BYTES)?;
        at_most("the Service's UID", &owner.uid, NAME_BYTES)?;
    }
    Ok(pb::ListedLoadBalancer {
        load_balancer_name: name_to(item.name),
        handle: item.handle,
        owners: item
            .owners
            .into_iter()
            .map(|owner| pb::ServiceRef {
                namespace: owner.namespace,
                name: owner.name,
                uid: owner.uid,
            })
            .collect(),
    })
}

pub(super) fn status_to(status: LoadBalancerStatus) -> Result<pb::LoadBalancerStatus, String> {
    let ingress = |point: Ingress| {
        if point.ip.is_none() && point.hostname.is_none() {
            return Err("a point of the status has neither an address nor a host name".to_owned());
        }
        if let Some(ip) = &point.ip {
            is_ip("the status address", ip)?;
        }
        if let Some(hostname) = &point.hostname {
            is_host_name("the status host name", hostname)?;
        }
        Ok(pb::LoadBalancerIngress {
            ip: point.ip,
            hostname: point.hostname,
            ip_mode: point.ip_mode.map(|mode| {
                match mode {
                    IpMode::Vip => pb::IpMode::Vip,
                    IpMode::Proxy => pb::IpMode::Proxy,
                }
                .into()
            }),
            ports: point
                .ports
                .into_iter()
                .map(|port| pb::PortStatus {
                    port: port.port,
                    protocol: port.protocol,
                    error: port.error,
                })
                .collect(),
        })
    };
    let ingress: Result<Vec<_>, _> = status.ingress.into_iter().map(ingress).collect();
    Ok(pb::LoadBalancerStatus { ingress: ingress? })
}

/// Checks that the Kubernetes API takes `value` as the host name of a load balancer (LB-19).
fn is_host_name(what: &str, value: &str) -> Result<(), String> {
    is_dns_name(what, value)?;
    if value.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(format!("{what} {value:?} is not in lower case"));
    }
    if is_ip(what, value).is_ok() {
        return Err(format!("{what} {value:?} is an IP address"));
    }
    Ok(())
}

fn status_from(status: pb::LoadBalancerStatus) -> LoadBalancerStatus {
    LoadBalancerStatus {
        ingress: status
            .ingress
            .into_iter()
            .map(|point| Ingress {
                ip_mode: match point.ip_mode() {
                    pb::IpMode::Unspecified => None,
                    pb::IpMode::Vip => Some(IpMode::Vip),
                    pb::IpMode::Proxy => Some(IpMode::Proxy),
                },
                ip: point.ip,
                hostname: point.hostname,
                ports: point
                    .ports
                    .into_iter()
                    .map(|port| PortStatus {
                        port: port.port,
                        protocol: port.protocol,
                        error: port.error,
                    })
                    .collect(),
            })
            .collect(),
    }
}

pub(super) fn targets_from(targets: Option<pb::TargetSet>) -> Result<Option<Vec<Node>>, Failure> {
    match targets {
        None => Ok(None),
        Some(pb::TargetSet {
            set: Some(pb::target_set::Set::Inline(list)),
        }) => convert::nodes_from(list.nodes).map(Some),
        Some(pb::TargetSet {
            set: Some(pb::target_set::Set::Ref(_)),
        }) => Err(Failure::invalid(
            "the request gives its targets by reference, which this minor of the contract does not have",
        )),
        Some(pb::TargetSet { set: None }) => {
            Err(Failure::invalid("the request's target set is unset"))
        }
    }
}

pub(super) fn service_from(service: Option<pb::ServiceView>) -> Result<Service, Failure> {
    let service = service.ok_or_else(|| Failure::invalid("the request has no service"))?;
    for (what, value) in [("name", &service.name), ("UID", &service.uid)] {
        if value.is_empty() {
            return Err(Failure::invalid(format!(
                "the request's service {}/{} (UID {:?}) has no {what}",
                service.namespace, service.name, service.uid
            )));
        }
    }
    Ok(Service {
        namespace: service.namespace,
        name: service.name,
        uid: service.uid,
        labels: service.labels,
        annotations: service.annotations,
        finalizers: service.finalizers,
        generation: service.generation,
        created: service.creation_time.and_then(convert::time),
        deleted: service.deletion_time.and_then(convert::time),
        service_type: service.r#type,
        load_balancer_class: service.load_balancer_class,
        ports: service
            .ports
            .into_iter()
            .map(|port| ServicePort {
                name: port.name,
                protocol: port.protocol,
                app_protocol: port.app_protocol,
                port: port.port,
                target_port: port.target_port,
                node_port: port.node_port,
            })
            .collect(),
        cluster_ips: service.cluster_ips,
        external_ips: service.external_ips,
        load_balancer_ip: service.load_balancer_ip,
        source_ranges: service.load_balancer_source_ranges,
        session_affinity: service.session_affinity,
        session_affinity_timeout: service
            .session_affinity_timeout
            .and_then(|timeout| Duration::try_from(timeout).ok()),
        external_traffic_policy: service.external_traffic_policy,
        internal_traffic_policy: service.internal_traffic_policy,
        health_check_node_port: service.health_check_node_port,
        ip_families: service.ip_families,
        ip_family_policy: service.ip_family_policy,
        allocate_node_ports: service.allocate_load_balancer_node_ports,
        publish_not_ready_addresses: service.publish_not_ready_addresses,
        status: service.status.map(status_from).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LB-19: the controller refuses the whole answer because of such a name.
    #[test]
    fn a_host_name_that_kubernetes_refuses_is_a_fault() {
        let judged = |name: &str| status_to(LoadBalancerStatus::hostname(name)).map(drop);
        for good in ["a", "lb-1.example.com", "1.2.3.example"] {
            assert_eq!(judged(good), Ok(()), "{good}");
        }
        for (bad, wrong) in [
            ("", "is empty"),
            ("a_b.example", "is not a DNS name"),
            ("a.example.", "is not a DNS name"),
            ("*.example.com", "is not a DNS name"),
            ("LB-1.example.com", "is not in lower case"),
            ("192.0.2.1", "is an IP address"),
        ] {
            let said = judged(bad).unwrap_err();
            assert!(said.contains(wrong), "{bad}: {said}");
        }
    }
}
