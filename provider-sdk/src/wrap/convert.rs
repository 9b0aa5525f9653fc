//! Conversions of messages that several services share.

use std::time::{Duration, SystemTime};

use cloud_provider_api::v1alpha1 as pb;

use super::limits::{NAME_BYTES, at_most, fits, is_ip};
use crate::failure::{MAX_TEXT_BYTES, truncate};
use crate::{
    AddressKind, Failure, FailureCode, Node, NodeAddress, NodeInfo, Ownership, Pending, Taint,
};

pub(super) fn text(mut text: String) -> String {
    truncate(&mut text, MAX_TEXT_BYTES);
    text
}

pub(super) fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration::try_from(duration).unwrap_or(prost_types::Duration {
        seconds: i64::MAX,
        nanos: 0,
    })
}

pub(super) fn time(time: prost_types::Timestamp) -> Option<SystemTime> {
    SystemTime::try_from(time).ok()
}

pub(super) fn failure(failure: &Failure) -> pb::Failure {
    let code = match failure.code() {
        FailureCode::Invalid => pb::FailureCode::Invalid,
        FailureCode::Precondition => pb::FailureCode::Precondition,
        FailureCode::NotFound => pb::FailureCode::NotFound,
        FailureCode::Conflict => pb::FailureCode::Conflict,
        FailureCode::Busy => pb::FailureCode::Busy,
        FailureCode::Throttled => pb::FailureCode::Throttled,
        FailureCode::Credentials => pb::FailureCode::Credentials,
        FailureCode::Unavailable => pb::FailureCode::Unavailable,
        FailureCode::NotInitialized => pb::FailureCode::NotInitialized,
        FailureCode::Internal => pb::FailureCode::Internal,
    };
    pb::Failure {
        code: code.into(),
        reason: failure.reason().to_owned(),
        message: failure.message().to_owned(),
        retry_after: failure.retry_delay().map(duration),
    }
}

pub(super) fn pending(pending: Pending) -> pb::Pending {
    pb::Pending {
        retry_after: pending.retry_after.map(duration),
        message: text(pending.message),
    }
}

pub(super) fn ownership(ownership: Ownership) -> pb::Ownership {
    match ownership {
        Ownership::Ours => pb::Ownership::Ours,
        Ownership::Foreign => pb::Ownership::Foreign,
        Ownership::Unmarked => pb::Ownership::Unmarked,
    }
}

pub(super) fn ownership_from(value: i32) -> Option<Ownership> {
    match pb::Ownership::try_from(value).ok()? {
        pb::Ownership::Unspecified => None,
        pb::Ownership::Ours => Some(Ownership::Ours),
        pb::Ownership::Foreign => Some(Ownership::Foreign),
        pb::Ownership::Unmarked => Some(Ownership::Unmarked),
    }
}

/// Addresses of a request, without those of unknown kinds.
pub(super) fn addresses_from(addresses: Vec<pb::NodeAddress>) -> Vec<NodeAddress> {
    let known = |address: pb::NodeAddress| {
        let kind = match pb::NodeAddressType::try_from(address.r#type).ok()? {
            pb::NodeAddressType::Unspecified => return None,
            pb::NodeAddressType::Hostname => AddressKind::Hostname,
            pb::NodeAddressType::InternalIp => AddressKind::InternalIp,
            pb::NodeAddressType::ExternalIp => AddressKind::ExternalIp,
            pb::NodeAddressType::InternalDns => AddressKind::InternalDns,
            pb::NodeAddressType::ExternalDns => AddressKind::ExternalDns,
        };
        Some(NodeAddress {
            kind,
            address: address.address,
        })
    };
    addresses.into_iter().filter_map(known).collect()
}

/// Addresses of an answer. `Err`: the error in one of them.
pub(super) fn addresses(addresses: Vec<NodeAddress>) -> Result<Vec<pb::NodeAddress>, String> {
    let checked = |address: NodeAddress| {
        let kind = match address.kind {
            AddressKind::Hostname => pb::NodeAddressType::Hostname,
            AddressKind::InternalIp => pb::NodeAddressType::InternalIp,
            AddressKind::ExternalIp => pb::NodeAddressType::ExternalIp,
            AddressKind::InternalDns => pb::NodeAddressType::InternalDns,
            AddressKind::ExternalDns => pb::NodeAddressType::ExternalDns,
        };
        match address.kind {
            AddressKind::InternalIp | AddressKind::ExternalIp => {
                is_ip("an address", &address.address)?;
            }
            AddressKind::Hostname | AddressKind::InternalDns | AddressKind::ExternalDns => {
                fits("an address", &address.address, NAME_BYTES)?;
            }
        }
        Ok(pb::NodeAddress {
            r#type: kind.into(),
            address: address.address,
        })
    };
    addresses.into_iter().map(checked).collect()
}

pub(super) fn optional_at_most(
    what: &str,
    value: Option<&String>,
    max: usize,
) -> Result<(), String> {
    value.map_or(Ok(()), |value| at_most(what, value, max))
}

/// The Nodes of a request. A duplicate or empty name is a fault of the controller.
pub(super) fn nodes_from(nodes: Vec<pb::NodeView>) -> Result<Vec<Node>, Failure> {
    let nodes: Vec<Node> = nodes.into_iter().map(node_from).collect();
    let mut names = std::collections::BTreeSet::new();
    for node in &nodes {
        if node.name.is_empty() || !names.insert(&node.name) {
            return Err(Failure::invalid(format!(
                "the request names the Node {:?} twice, or not at all",
                node.name
            )));
        }
    }
    Ok(nodes)
}

fn node_from(node: pb::NodeView) -> Node {
    Node {
        name: node.name,
        uid: node.uid,
        provider_id: node.provider_id,
        addresses: addresses_from(node.addresses),
        labels: node.labels,
        annotations: node.annotations,
        pod_cidrs: node.pod_cidrs,
        taints: node
            .taints
            .into_iter()
            .map(|taint| Taint {
                key: taint.key,
                value: taint.value,
                effect: taint.effect,
            })
            .collect(),
        info: node.node_info.map(|info| NodeInfo {
            machine_id: info.machine_id,
            system_uuid: info.system_uuid,
            boot_id: info.boot_id,
            architecture: info.architecture,
            operating_system: info.operating_system,
            kubelet_version: info.kubelet_version,
        }),
        ready: node.ready,
        created: node.creation_time.and_then(time),
    }
}
