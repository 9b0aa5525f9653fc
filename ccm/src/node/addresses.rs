//! Which addresses a Node shows. Pure.

use std::net::IpAddr;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{Node, NodeAddress};

/// What the kubelet's `--node-ip` was: one IP, or two of different families with a comma.
const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
const HOSTNAME: &str = "Hostname";

/// Why the provider's addresses cannot be the Node's; for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddressError {
    /// The annotation does not hold one IP or two of different families.
    #[error("annotation {PROVIDED_NODE_IP} is {0:?}, not one IP or one of each family")]
    BadAnnotation(String),
    /// B-N5: the machine does not have the address that its kubelet claims.
    #[error(
        "the provider knows no address {0} of this instance, which the kubelet was given as its node IP"
    )]
    NotAmongThem(IpAddr),
    /// An address without a known type: the answer breaks the contract.
    #[error("the provider gave the address {0:?} without a known type")]
    UnknownType(String),
}

/// The addresses that the Node should show, in order and each once (B-N5, B-N6). Empty where the provider gave none and
/// the kubelet claims none: nothing is to be changed then.
pub(super) fn wanted(
    node: &Node,
    given: &[api::NodeAddress],
) -> Result<Vec<NodeAddress>, AddressError> {
    let mut addresses = given
        .iter()
        .map(native)
        .collect::<Result<Vec<_>, AddressError>>()?;
    let has_hostname = addresses.iter().any(|address| address.type_ == HOSTNAME);
    if !addresses.is_empty() && !has_hostname {
        addresses.extend(
            current(node)
                .iter()
                .filter(|held| held.type_ == HOSTNAME)
                .cloned(),
        );
    }
    if let Some(annotation) = provided_node_ip(node) {
        addresses = prefer(&parse(annotation)?, addresses)?;
    }
    let mut once: Vec<NodeAddress> = Vec::with_capacity(addresses.len());
    for address in addresses {
        if !once.contains(&address) {
            once.push(address);
        }
    }
    Ok(once)
}

/// `addresses`, where the Node does not show just these in this order (B-N11); an empty list changes nothing (B-N6).
pub(super) fn change(node: &Node, addresses: Vec<NodeAddress>) -> Option<Vec<NodeAddress>> {
    (!addresses.is_empty() && current(node) != addresses).then_some(addresses)
}

/// The annotation with the kubelet's node IP.
pub(super) fn provided_node_ip(node: &Node) -> Option<&str> {
    node.metadata
        .annotations
        .as_ref()?
        .get(PROVIDED_NODE_IP)
        .map(String::as_str)
}

fn current(node: &Node) -> &[NodeAddress] {
    let status = node.status.as_ref();
    status
        .and_then(|status| status.addresses.as_deref())
        .unwrap_or_default()
}

fn native(address: &api::NodeAddress) -> Result<NodeAddress, AddressError> {
    let type_ = match address.r#type() {
        api::NodeAddressType::Hostname => HOSTNAME,
        api::NodeAddressType::InternalIp => "InternalIP",
        api::NodeAddressType::ExternalIp => "ExternalIP",
        api::NodeAddressType::InternalDns => "InternalDNS",
        api::NodeAddressType::ExternalDns => "ExternalDNS",
        api::NodeAddressType::Unspecified => {
            return Err(AddressError::UnknownType(address.address.clone()));
        }
    };
    Ok(NodeAddress {
        type_: type_.to_owned(),
        address: address.address.clone(),
    })
}

fn parse(annotation: &str) -> Result<Vec<IpAddr>, AddressError> {
    let bad = || AddressError::BadAnnotation(annotation.chars().take(100).collect());
    let ips = annotation
        .split(',')
        .map(|ip| ip.trim().parse::<IpAddr>().map(|ip| ip.to_canonical()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| bad())?;
    match ips.as_slice() {
        [_] => Ok(ips),
        [one, other] if one.is_ipv4() != other.is_ipv4() => Ok(ips),
        _ => Err(bad()),
    }
}

/// The provided IPs first; of the types that they have only they stay, other types stay as they are.
fn prefer(ips: &[IpAddr], addresses: Vec<NodeAddress>) -> Result<Vec<NodeAddress>, AddressError> {
    let mut preferred: Vec<NodeAddress> = Vec::new();
    for ip in ips {
        let before = preferred.len();
        let same = |address: &&NodeAddress| {
            let parsed = address.address.parse::<IpAddr>();
            parsed.is_ok_and(|parsed| parsed.to_canonical() == *ip)
        };
        preferred.extend(addresses.iter().filter(same).cloned());
        if preferred.len() == before {
            return Err(AddressError::NotAmongThem(*ip));
        }
    }
    let types: Vec<String> = preferred
        .iter()
        .map(|address| address.type_.clone())
        .collect();
    preferred.extend(
        addresses
            .into_iter()
            .filter(|address| !types.contains(&address.type_)),
    );
    Ok(preferred)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERNAL: i32 = api::NodeAddressType::InternalIp as i32;
    const EXTERNAL: i32 = api::NodeAddressType::ExternalIp as i32;
    const DNS: i32 = api::NodeAddressType::InternalDns as i32;
    const HOST: i32 = api::NodeAddressType::Hostname as i32;

    fn given(pairs: &[(i32, &str)]) -> Vec<api::NodeAddress> {
        pairs
            .iter()
            .map(|(kind, address)| api::NodeAddress {
                r#type: *kind,
                address: (*address).to_owned(),
            })
            .collect()
    }

    fn node(shown: &[(&str, &str)], provided: Option<&str>) -> Node {
        let mut node = Node::default();
        node.status.get_or_insert_default().addresses = Some(
            shown
                .iter()
                .map(|(kind, address)| NodeAddress {
                    type_: (*kind).to_owned(),
                    address: (*address).to_owned(),
                })
                .collect(),
        );
        node.metadata.annotations =
            provided.map(|ip| [(PROVIDED_NODE_IP.to_owned(), ip.to_owned())].into());
        node
    }

    fn shown(addresses: &[NodeAddress]) -> Vec<String> {
        let show = |address: &NodeAddress| format!("{} {}", address.type_, address.address);
        addresses.iter().map(show).collect()
    }

    #[test]
    fn b_n5_provided_node_ips() {
        let all = given(&[
            (DNS, "n.internal"),
            (EXTERNAL, "198.51.100.1"),
            (INTERNAL, "10.0.0.1"),
            (INTERNAL, "10.0.0.2"),
            (INTERNAL, "fd00::1"),
            (INTERNAL, "fd00::2"),
            (HOST, "n"),
        ]);
        let rest = [
            "InternalDNS n.internal",
            "ExternalIP 198.51.100.1",
            "Hostname n",
        ];
        for (provided, first) in [
            ("10.0.0.2", vec!["InternalIP 10.0.0.2"]),
            ("fd00:0::2", vec!["InternalIP fd00::2"]),
            (
                "10.0.0.2,fd00::1",
                vec!["InternalIP 10.0.0.2", "InternalIP fd00::1"],
            ),
            (
                "fd00::2, 10.0.0.1",
                vec!["InternalIP fd00::2", "InternalIP 10.0.0.1"],
            ),
        ] {
            let addresses = wanted(&node(&[], Some(provided)), &all).unwrap();
            assert_eq!(
                shown(&addresses),
                [first.as_slice(), &rest].concat(),
                "{provided}"
            );
        }
        // The IP is of a type of its own, and of two types.
        let addresses = wanted(&node(&[], Some("198.51.100.1")), &all).unwrap();
        assert_eq!(addresses.len(), 7);
        assert_eq!(shown(&addresses)[0], "ExternalIP 198.51.100.1");
        let both = given(&[
            (INTERNAL, "10.0.0.9"),
            (EXTERNAL, "10.0.0.1"),
            (INTERNAL, "10.0.0.1"),
        ]);
        let addresses = wanted(&node(&[], Some("10.0.0.1")), &both).unwrap();
        assert_eq!(
            shown(&addresses),
            ["ExternalIP 10.0.0.1", "InternalIP 10.0.0.1"]
        );
    }

    #[test]
    fn b_n5_a_provided_ip_that_the_provider_does_not_know() {
        let all = given(&[(INTERNAL, "10.0.0.1")]);
        for provided in ["10.0.0.7", "10.0.0.1,fd00::1"] {
            let outcome = wanted(&node(&[], Some(provided)), &all);
            assert!(
                matches!(outcome, Err(AddressError::NotAmongThem(_))),
                "{provided}"
            );
        }
        assert!(wanted(&node(&[], Some("10.0.0.1")), &[]).is_err());
        for provided in [
            "",
            "nonsense",
            "10.0.0.1,10.0.0.1",
            "10.0.0.1,fd00::1,fd00::2",
            "10.0.0.1,",
        ] {
            let outcome = wanted(&node(&[], Some(provided)), &all);
            assert!(
                matches!(outcome, Err(AddressError::BadAnnotation(_))),
                "{provided}"
            );
        }
    }

    #[test]
    fn b_n6_hostname_is_kept_and_nothing_changes_nothing() {
        let held = node(&[("Hostname", "kubelet"), ("InternalIP", "10.0.0.1")], None);
        let addresses = wanted(&held, &given(&[(INTERNAL, "10.0.0.2")])).unwrap();
        assert_eq!(
            shown(&addresses),
            ["InternalIP 10.0.0.2", "Hostname kubelet"]
        );
        let addresses = wanted(&held, &given(&[(INTERNAL, "10.0.0.2"), (HOST, "cloud")])).unwrap();
        assert_eq!(shown(&addresses), ["InternalIP 10.0.0.2", "Hostname cloud"]);
        let addresses = wanted(&held, &[]).unwrap();
        assert_eq!(change(&held, addresses), None);
    }

    #[test]
    fn n11_addresses_compare_as_a_set_in_order() {
        let held = node(
            &[
                ("InternalIP", "10.0.0.1"),
                ("InternalIP", "fd00::1"),
                ("Hostname", "n"),
            ],
            None,
        );
        let same = given(&[
            (INTERNAL, "10.0.0.1"),
            (INTERNAL, "10.0.0.1"),
            (INTERNAL, "fd00::1"),
        ]);
        assert_eq!(change(&held, wanted(&held, &same).unwrap()), None);
        let turned = given(&[(INTERNAL, "fd00::1"), (INTERNAL, "10.0.0.1")]);
        assert!(change(&held, wanted(&held, &turned).unwrap()).is_some());
        let fewer = given(&[(INTERNAL, "10.0.0.1")]);
        assert!(change(&held, wanted(&held, &fewer).unwrap()).is_some());
    }

    #[test]
    fn an_address_without_a_type_is_a_fault() {
        for kind in [0, 99] {
            let outcome = wanted(&node(&[], None), &given(&[(kind, "10.0.0.1")]));
            assert_eq!(
                outcome,
                Err(AddressError::UnknownType("10.0.0.1".to_owned()))
            );
        }
    }
}
