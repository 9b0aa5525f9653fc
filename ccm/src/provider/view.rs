//! Kubernetes objects as the provider sees them, and its answers as Kubernetes objects. Pure.

mod ingress;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::NodeFieldGroup as Group;
use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::{Node, NodeSystemInfo, Service, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::CallError;
use super::limits::{self, NAME_LIMIT, TEXT_LIMIT};
use crate::core::{LAST_APPLIED, is_dns_name, is_ready};

pub(crate) use ingress::load_balancer_status;
pub(crate) use volumes::{is_asked_about, volume_view};

/// The annotation that `spec.loadBalancerSourceRanges` replaced.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// The Node with the parts that the provider asked for.
pub(crate) fn node_view(node: &Node, projection: &api::NodeProjection) -> api::NodeView {
    let spec = node.spec.as_ref();
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_deref());
    let addresses = addresses.unwrap_or_default();
    let mut view = api::NodeView {
        name: node.metadata.name.clone().unwrap_or_default(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        // A longer ID is no provider's, and is not sent (CORE-11). Such a Node is a target only
        // where Nodes of other clouds are targets too.
        provider_id: spec
            .and_then(|spec| spec.provider_id.clone())
            .filter(|id| (1..=TEXT_LIMIT).contains(&id.len())),
        addresses: addresses.iter().filter_map(node_address).collect(),
        labels: if projection.all_labels {
            node.labels().clone()
        } else {
            pick(node.labels(), &projection.label_keys)
        },
        annotations: pick(node.annotations(), &projection.annotation_keys),
        ..Default::default()
    };
    for group in projection.field_groups() {
        match group {
            Group::Unspecified => {}
            Group::PodCidrs => {
                let cidrs = spec.and_then(|spec| spec.pod_cidrs.clone());
                view.pod_cidrs = cidrs.unwrap_or_default();
            }
            Group::Taints => {
                let taints = spec.and_then(|spec| spec.taints.as_deref());
                view.taints = taints.unwrap_or_default().iter().map(taint_view).collect();
            }
            Group::NodeInfo => {
                let info = status.and_then(|status| status.node_info.as_ref());
                view.node_info = info.map(node_info_view);
            }
            Group::Readiness => view.ready = Some(is_ready(node)),
            Group::CreationTime => {
                view.creation_time = node.metadata.creation_timestamp.as_ref().map(timestamp);
            }
        }
    }
    view
}

fn pick(all: &BTreeMap<String, String>, keys: &[String]) -> BTreeMap<String, String> {
    keys.iter()
        .filter(|key| *key != LAST_APPLIED)
        .filter_map(|key| all.get_key_value(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn taint_view(taint: &Taint) -> api::Taint {
    api::Taint {
        key: taint.key.clone(),
        value: taint.value.clone().filter(|value| !value.is_empty()),
        effect: taint.effect.clone(),
    }
}

fn node_info_view(info: &NodeSystemInfo) -> api::NodeInfo {
    api::NodeInfo {
        machine_id: info.machine_id.clone(),
        system_uuid: info.system_uuid.clone(),
        boot_id: info.boot_id.clone(),
        architecture: info.architecture.clone(),
        operating_system: info.operating_system.clone(),
        kubelet_version: info.kubelet_version.clone(),
    }
}

/// The clients that may reach the load balancer: the field's ranges, or those of the old annotation
/// if the field is empty. The API server validates the annotation like the field.
pub(crate) fn source_ranges(service: &Service) -> Vec<String> {
    let field = service
        .spec
        .as_ref()
        .and_then(|spec| spec.load_balancer_source_ranges.as_ref());
    if let Some(ranges) = field.filter(|ranges| !ranges.is_empty()) {
        return ranges.clone();
    }
    let text = service.annotations().get(SOURCE_RANGES);
    let text = text.map_or("", |text| text.trim());
    if text.is_empty() {
        return Vec::new();
    }
    // A text that is no range is sent like the rest. Without it the load balancer could be open to
    // everybody.
    text.split(',')
        .map(|range| range.trim().to_owned())
        .collect()
}

/// The Service as the provider sees it.
pub(crate) fn service_view(service: &Service) -> api::ServiceView {
    let metadata = &service.metadata;
    let spec = service.spec.clone().unwrap_or_default();
    let affinity = spec.session_affinity_config.and_then(|it| it.client_ip);
    api::ServiceView {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        labels: service.labels().clone(),
        annotations: service
            .annotations()
            .iter()
            .filter(|(key, _)| *key != LAST_APPLIED)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        finalizers: service.finalizers().to_vec(),
        generation: metadata.generation,
        creation_time: metadata.creation_timestamp.as_ref().map(timestamp),
        deletion_time: metadata.deletion_timestamp.as_ref().map(timestamp),
        status: service
            .status
            .as_ref()
            .and_then(|status| status.load_balancer.as_ref())
            .map(status_view),
        r#type: spec.type_.unwrap_or_default(),
        load_balancer_class: spec.load_balancer_class,
        ports: spec.ports.iter().flatten().map(port_view).collect(),
        cluster_ips: spec.cluster_ips.unwrap_or_default(),
        external_ips: spec.external_ips.unwrap_or_default(),
        load_balancer_ip: filled(spec.load_balancer_ip.as_ref()),
        load_balancer_source_ranges: source_ranges(service),
        session_affinity: spec.session_affinity.unwrap_or_default(),
        session_affinity_timeout: affinity.and_then(|affinity| affinity.timeout_seconds).map(
            |seconds| prost_types::Duration {
                seconds: i64::from(seconds),
                nanos: 0,
            },
        ),
        external_traffic_policy: spec.external_traffic_policy.unwrap_or_default(),
        internal_traffic_policy: spec.internal_traffic_policy,
        // Zero means no port, as in Kubernetes' own types.
        health_check_node_port: spec.health_check_node_port.filter(|port| *port != 0),
        ip_families: spec.ip_families.unwrap_or_default(),
        ip_family_policy: spec.ip_family_policy,
        allocate_load_balancer_node_ports: spec.allocate_load_balancer_node_ports,
        publish_not_ready_addresses: spec.publish_not_ready_addresses.unwrap_or_default(),
    }
}

fn filled(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

fn port_view(port: &core::ServicePort) -> api::ServicePort {
    api::ServicePort {
        name: port.name.clone().unwrap_or_default(),
        protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
        app_protocol: port.app_protocol.clone(),
        port: port.port,
        target_port: match &port.target_port {
            // Kubernetes writes an absent port as 0.
            None | Some(IntOrString::Int(0)) => String::new(),
            Some(IntOrString::Int(number)) => number.to_string(),
            Some(IntOrString::String(name)) => name.clone(),
        },
        node_port: port.node_port.filter(|port| *port != 0),
    }
}

fn status_view(status: &core::LoadBalancerStatus) -> api::LoadBalancerStatus {
    let ingress = status.ingress.iter().flatten();
    api::LoadBalancerStatus {
        ingress: ingress
            .map(|point| api::LoadBalancerIngress {
                ip: filled(point.ip.as_ref()),
                hostname: filled(point.hostname.as_ref()),
                ip_mode: match point.ip_mode.as_deref() {
                    Some("VIP") => Some(api::IpMode::Vip.into()),
                    Some("Proxy") => Some(api::IpMode::Proxy.into()),
                    _ => None,
                },
                ports: point
                    .ports
                    .iter()
                    .flatten()
                    .map(|port| api::PortStatus {
                        port: port.port,
                        protocol: port.protocol.clone(),
                        error: port.error.clone(),
                    })
                    .collect(),
            })
            .collect(),
    }
}

fn timestamp(time: &Time) -> prost_types::Timestamp {
    let mut stamp = prost_types::Timestamp {
        seconds: time.0.as_second(),
        nanos: time.0.subsec_nanosecond(),
    };
    // Before 1970 both parts of jiff's time are negative. In protobuf the nanos are never negative.
    stamp.normalize();
    stamp
}

/// The types of a Node's address, and their names in Kubernetes.
const ADDRESS_TYPES: [(api::NodeAddressType, &str); 5] = [
    (api::NodeAddressType::Hostname, "Hostname"),
    (api::NodeAddressType::InternalIp, "InternalIP"),
    (api::NodeAddressType::ExternalIp, "ExternalIP"),
    (api::NodeAddressType::InternalDns, "InternalDNS"),
    (api::NodeAddressType::ExternalDns, "ExternalDNS"),
];

/// One address of a Node. `None` if the contract has no such type, or the text is too long.
pub(crate) fn node_address(address: &core::NodeAddress) -> Option<api::NodeAddress> {
    let mut types = ADDRESS_TYPES.into_iter();
    let (kind, _) = types.find(|(_, name)| *name == address.type_)?;
    // Another component may have written the address. A longer text is no address, and is not sent
    // (CORE-11).
    let fits = address.address.len() <= NAME_LIMIT;
    fits.then(|| api::NodeAddress {
        r#type: kind.into(),
        address: address.address.clone(),
    })
}

/// An instance's addresses as a Node shows them, in their order and without repetitions.
pub(crate) fn node_addresses(
    addresses: &[api::NodeAddress],
) -> Result<Vec<core::NodeAddress>, CallError> {
    let mut seen = BTreeSet::new();
    let mut shown = Vec::with_capacity(addresses.len());
    for address in addresses {
        let mut types = ADDRESS_TYPES.into_iter();
        let Some((_, kind)) = types.find(|(kind, _)| *kind == address.r#type()) else {
            return Err(CallError::fault(format!(
                "address {:?} has no known type ({})",
                limits::shown(&address.address),
                address.r#type
            )));
        };
        let text = address.address.as_str();
        if text.is_empty() || text.len() > NAME_LIMIT {
            return Err(CallError::fault(format!(
                "an address of type {kind} has {} bytes; 1 to {NAME_LIMIT} are allowed",
                text.len()
            )));
        }
        let is_ip = matches!(kind, "InternalIP" | "ExternalIP");
        let fits = if is_ip {
            text.parse::<IpAddr>().is_ok()
        } else {
            is_dns_name(&text.to_ascii_lowercase())
        };
        if !fits {
            let expected = if is_ip { "IP address" } else { "DNS name" };
            return Err(CallError::fault(format!(
                "address {:?} of type {kind} is no {expected}",
                limits::shown(text)
            )));
        }
        if seen.insert((kind, text)) {
            shown.push(core::NodeAddress {
                address: text.to_owned(),
                type_: kind.to_owned(),
            });
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests;
