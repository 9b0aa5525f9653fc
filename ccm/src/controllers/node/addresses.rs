//! The addresses in a Node's status. Pure.

use std::net::IpAddr;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use kube::ResourceExt;

use crate::planted::planted;

/// The annotation with the kubelet's `--node-ip`: one IP, or two of different families separated by
/// a comma.
const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
const HOSTNAME: &str = "Hostname";

/// The addresses for the Node's status, in order and without duplicates (B-N5, B-N6). Empty if the
/// provider gave none and the kubelet claims none. Then the Node's addresses stay as they are.
/// `Err`: why the provider's addresses cannot be used, as text for people.
pub(super) fn wanted(node: &Node, given: &[api::NodeAddress]) -> Result<Vec<NodeAddress>, String> {
    let mut addresses = given.iter().map(native).collect::<Result<Vec<_>, _>>()?;
    let provided = provided_node_ip(node).map(parse).transpose()?;
    // The kubelet's hostname, which may look like an IP, is not an address that the cloud reported.
    for ip in provided.iter().flatten() {
        if !addresses.iter().any(|address| is(address, *ip)) {
            return Err(format!(
                "the provider reports no address {ip} for this instance, but the kubelet's node IP is that address"
            ));
        }
    }
    let has_hostname = addresses.iter().any(|address| address.type_ == HOSTNAME);
    if !addresses.is_empty() && !has_hostname {
        addresses.extend(
            current(node)
                .iter()
                .filter(|held| held.type_ == HOSTNAME)
                .cloned(),
        );
    }
    if let Some(ips) = provided {
        addresses = prefer(&ips, addresses);
    }
    let mut once: Vec<NodeAddress> = Vec::with_capacity(addresses.len());
    for address in addresses {
        if !once.contains(&address) {
            once.push(address);
        }
    }
    Ok(once)
}

/// Returns `addresses` if they differ from the Node's in content or order (B-N11). An empty list
/// changes nothing (B-N6).
pub(super) fn change(node: &Node, addresses: Vec<NodeAddress>) -> Option<Vec<NodeAddress>> {
    let same = if planted!(AddressesAreCounted) {
        current(node).len() == addresses.len()
    } else {
        current(node) == addresses
    };
    (!addresses.is_empty() && !same).then_some(addresses)
}

pub(super) fn provided_node_ip(node: &Node) -> Option<&str> {
    let annotation = node.annotations().get(PROVIDED_NODE_IP);
    annotation.map(String::as_str)
}

pub(super) fn current(node: &Node) -> &[NodeAddress] {
    let status = node.status.as_ref();
    status
        .and_then(|status| status.addresses.as_deref())
        .unwrap_or_default()
}

fn native(address: &api::NodeAddress) -> Result<NodeAddress, String> {
    let type_ = match address.r#type() {
        api::NodeAddressType::Hostname => HOSTNAME,
        api::NodeAddressType::InternalIp => "InternalIP",
        api::NodeAddressType::ExternalIp => "ExternalIP",
        api::NodeAddressType::InternalDns => "InternalDNS",
        api::NodeAddressType::ExternalDns => "ExternalDNS",
        api::NodeAddressType::Unspecified => {
            // This violates the contract.
            return Err(format!(
                "the provider reports the address {:?} without a known type",
                address.address
            ));
        }
    };
    Ok(NodeAddress {
        type_: type_.to_owned(),
        address: address.address.clone(),
    })
}

fn parse(annotation: &str) -> Result<Vec<IpAddr>, String> {
    let bad = || {
        let short: String = annotation.chars().take(100).collect();
        format!("annotation {PROVIDED_NODE_IP} is {short:?}, not one IP or one of each family")
    };
    let ips = annotation
        .split(',')
        .map(|ip| ip.parse::<IpAddr>().map(|ip| ip.to_canonical()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| bad())?;
    match ips.as_slice() {
        [_] => Ok(ips),
        [one, other] if one.is_ipv4() != other.is_ipv4() => Ok(ips),
        _ => Err(bad()),
    }
}

fn is(address: &NodeAddress, ip: IpAddr) -> bool {
    let parsed = address.address.parse::<IpAddr>();
    parsed.is_ok_and(|parsed| parsed.to_canonical() == ip)
}

/// Puts the addresses with the provided IPs first, and drops all other addresses of their types.
/// Addresses of other types stay as they are.
fn prefer(ips: &[IpAddr], addresses: Vec<NodeAddress>) -> Vec<NodeAddress> {
    let mut preferred: Vec<NodeAddress> = Vec::new();
    for ip in ips {
        preferred.extend(addresses.iter().filter(|it| is(it, *ip)).cloned());
    }
    let types: Vec<String> = preferred
        .iter()
        .map(|address| address.type_.clone())
        .collect();
    let others = addresses
        .into_iter()
        .filter(|address| !types.contains(&address.type_));
    preferred.extend(others);
    preferred
}

#[cfg(test)]
mod tests;
