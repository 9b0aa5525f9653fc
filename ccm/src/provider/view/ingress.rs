//! The addresses of a load balancer, as a provider states them.

use std::net::{IpAddr, Ipv4Addr};

use cloud_provider_api::v1alpha1 as api;
use ipnet::IpNet;
use k8s_openapi::api::core::v1 as core;

use super::filled;
use crate::core::is_dns_name;
use crate::provider::CallError;
use crate::provider::limits;

/// The addresses of a load balancer, as `status.loadBalancer` of a Service. `Err` if the
/// provider's status breaks the contract, if the API server would refuse a value, or if no load
/// balancer can have the address, such as one in `service_ranges`.
///
/// For an ingress with an IP, the API server sets an absent `ip_mode` to `VIP`. This function does
/// the same, so that its result equals the stored status.
pub(crate) fn load_balancer_status(
    status: &api::LoadBalancerStatus,
    service_ranges: &[IpNet],
) -> Result<core::LoadBalancerStatus, CallError> {
    limits::check_item("the status of the load balancer", status)?;
    let ingress: Vec<_> = status
        .ingress
        .iter()
        .map(|point| ingress(point, service_ranges))
        .collect::<Result<_, _>>()?;
    Ok(core::LoadBalancerStatus {
        ingress: (!ingress.is_empty()).then_some(ingress),
    })
}

fn ingress(
    point: &api::LoadBalancerIngress,
    service_ranges: &[IpNet],
) -> Result<core::LoadBalancerIngress, CallError> {
    let ip = filled(point.ip.as_ref());
    let hostname = filled(point.hostname.as_ref());
    if ip.is_none() && hostname.is_none() {
        return Err(CallError::fault(
            "an ingress of the load balancer has neither ip nor hostname",
        ));
    }
    if let Some(ip) = &ip {
        let wrong = match ip.parse::<IpAddr>() {
            Err(_) => Some("no IP address".to_owned()),
            Ok(address) => nobodys(address)
                .map(str::to_owned)
                .or_else(|| of_services(address, service_ranges)),
        };
        if let Some(wrong) = wrong {
            return Err(CallError::fault(format!(
                "ingress ip {:?} of the load balancer is {wrong}",
                limits::shown(ip)
            )));
        }
    }
    if let Some(hostname) = &hostname
        && (!is_dns_name(hostname) || hostname.parse::<IpAddr>().is_ok())
    {
        return Err(CallError::fault(format!(
            "ingress hostname {:?} of the load balancer is no DNS name (lower-case letters, digits, '-' and '.')",
            limits::shown(hostname)
        )));
    }
    let mode = match point.ip_mode {
        None => "VIP",
        Some(mode) => match api::IpMode::try_from(mode) {
            Ok(api::IpMode::Vip) => "VIP",
            Ok(api::IpMode::Proxy) => "Proxy",
            Ok(api::IpMode::Unspecified) | Err(_) => {
                return Err(CallError::fault(format!(
                    "ingress ip_mode {mode} of the load balancer is not known"
                )));
            }
        },
    };
    let ports: Vec<_> = point.ports.iter().map(port).collect::<Result<_, _>>()?;
    Ok(core::LoadBalancerIngress {
        ip_mode: ip.is_some().then(|| mode.to_owned()),
        ip,
        hostname,
        ports: (!ports.is_empty()).then_some(ports),
    })
}

/// Why an address cannot be a load balancer's. On each Node, kube-proxy sends traffic for an
/// ingress address to the Service, unless its `ipMode` is `Proxy`. With one of these addresses a
/// provider would take over traffic within a Node, or to its neighbours.
fn nobodys(address: IpAddr) -> Option<&'static str> {
    let address = address.to_canonical();
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    if address.is_loopback() {
        Some("a loopback address")
    } else if address.is_unspecified() {
        Some("the unspecified address")
    } else if address.is_multicast() {
        Some("a multicast address")
    } else if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        Some("the broadcast address")
    } else if link_local {
        Some("a link-local address")
    } else {
        None
    }
}

/// Why an address in a Service range cannot be a load balancer's. Another Service has this address
/// or may get it, and kube-proxy would send that Service's traffic to this Service.
fn of_services(address: IpAddr, ranges: &[IpNet]) -> Option<String> {
    let address = address.to_canonical();
    let range = ranges.iter().find(|range| range.contains(&address))?;
    Some(format!(
        "in the range of the cluster's Services, {range}: expected one outside of it"
    ))
}

fn port(port: &api::PortStatus) -> Result<core::PortStatus, CallError> {
    if !(1..=65535).contains(&port.port) {
        return Err(CallError::fault(format!(
            "port {} in the status of the load balancer is outside 1..65535",
            port.port
        )));
    }
    if !matches!(port.protocol.as_str(), "TCP" | "UDP" | "SCTP") {
        return Err(CallError::fault(format!(
            "protocol {:?} of port {} in the status of the load balancer is none of TCP, UDP, SCTP",
            limits::shown(&port.protocol),
            port.port
        )));
    }
    let error = filled(port.error.as_ref());
    if let Some(error) = &error
        && !limits::is_condition_reason(error)
    {
        return Err(CallError::fault(format!(
            "error {:?} of port {} in the status of the load balancer is neither CamelCase nor domain/CamelCase",
            limits::shown(error),
            port.port
        )));
    }
    Ok(core::PortStatus {
        error,
        port: port.port,
        protocol: port.protocol.clone(),
    })
}
