//! The inputs of routes: the Nodes, and the provider's list. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use cloud_provider_api::v1alpha1 as api;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use crate::ownership::{NodeOwner, Ownership};
use crate::planted::planted;
use crate::provider::node_address;

/// The fields of a Node that matter for routes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeFacts {
    pub(super) name: String,
    pub(super) uid: String,
    /// Empty if it has none yet.
    pub(super) provider_id: String,
    pub(super) owner: Owner,
    /// Without duplicates, each with the Node's own text.
    pub(super) pod_cidrs: Vec<(IpNet, String)>,
    pub(super) addresses: Vec<api::NodeAddress>,
    /// Whether it is being deleted.
    pub(super) leaving: bool,
    pub(super) created: Option<Timestamp>,
}

/// The owner of a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// This provider.
    Ours,
    /// Unknown: the Node has no provider ID yet, and may become this provider's.
    Unclaimed,
    /// Another provider, or no configured one. The controller leaves routes to the Node's Pods
    /// alone, unless a Node of this provider has the same Pod CIDR.
    Others,
}

impl NodeFacts {
    pub(super) fn of(node: &Node, ownership: &Ownership, provider: &str) -> Self {
        let meta = &node.metadata;
        let spec = node.spec.as_ref();
        let mut pod_cidrs: Vec<(IpNet, String)> = Vec::new();
        let given = spec.and_then(|spec| spec.pod_cidrs.as_deref());
        for text in given.unwrap_or_default() {
            // The API server accepts only valid CIDRs.
            let Ok(cidr) = text.parse::<IpNet>() else {
                continue;
            };
            if pod_cidrs.iter().all(|(known, _)| *known != cidr.trunc()) {
                pod_cidrs.push((cidr.trunc(), text.clone()));
            }
        }
        let addresses = node.status.as_ref().and_then(|it| it.addresses.as_deref());
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            provider_id: spec
                .and_then(|spec| spec.provider_id.clone())
                .unwrap_or_default(),
            owner: match ownership.node_owner(node) {
                NodeOwner::Provider(name) if name == provider => Owner::Ours,
                NodeOwner::AskAll => Owner::Unclaimed,
                NodeOwner::Provider(_) | NodeOwner::Nobody => Owner::Others,
            },
            pod_cidrs,
            addresses: addresses
                .unwrap_or_default()
                .iter()
                .filter_map(node_address)
                .collect(),
            leaving: meta.deletion_timestamp.is_some(),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
        }
    }

    /// Whether this controller creates routes to it.
    pub(super) fn is_routed(&self) -> bool {
        self.owner == Owner::Ours && !self.leaving && !self.pod_cidrs.is_empty()
    }
}

/// Whether a change of a Node can change the wanted routes. A Node of ours with a Pod CIDR joins or
/// is gone, or has another UID, owner, provider ID, Pod CIDR or address. Or any Node gives up a Pod
/// CIDR: the controller leaves a route to the Pods of a foreign Node alone, even if it created the
/// route for an earlier Node. It removes that route after the foreign Node has gone.
pub(super) fn matters(old: Option<&NodeFacts>, new: Option<&NodeFacts>) -> bool {
    let seen = |facts: Option<&NodeFacts>| {
        facts
            .filter(|facts| facts.owner == Owner::Ours && !facts.pod_cidrs.is_empty())
            .map(|facts| NodeFacts {
                leaving: false,
                created: None,
                ..facts.clone()
            })
    };
    let kept = |facts: Option<&NodeFacts>, cidr: &IpNet| {
        let cidrs = facts.map(|facts| facts.pod_cidrs.as_slice());
        let mut cidrs = cidrs.unwrap_or_default().iter();
        cidrs.any(|(one, _)| one == cidr)
    };
    let gives_up = |old: &NodeFacts| old.pod_cidrs.iter().any(|(cidr, _)| !kept(new, cidr));
    seen(old) != seen(new) || old.is_some_and(gives_up)
}

/// Where a route leads, compared with its Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To this Node.
    Right,
    /// Elsewhere.
    Wrong,
    /// The route has only an address. The Node has other addresses, and the address does not
    /// identify another Node.
    Unknown,
    /// The route does not show whether it leads to the Node.
    Undecided,
}

/// The Nodes by the values that a route can name.
pub(super) struct Index<'a> {
    names: BTreeMap<&'a str, &'a NodeFacts>,
    ids: BTreeMap<&'a str, &'a NodeFacts>,
    /// `None`: several Nodes have the address.
    addresses: BTreeMap<IpAddr, Option<&'a NodeFacts>>,
}

impl<'a> Index<'a> {
    pub(super) fn new(nodes: &'a [NodeFacts]) -> Self {
        let mut index = Self {
            names: BTreeMap::new(),
            ids: BTreeMap::new(),
            addresses: BTreeMap::new(),
        };
        for node in nodes {
            index.names.insert(&node.name, node);
            if !node.provider_id.is_empty() {
                index.ids.insert(&node.provider_id, node);
            }
            for address in &node.addresses {
                if let Ok(ip) = address.address.parse() {
                    let known = index.addresses.entry(ip).or_insert(Some(node));
                    if known.is_some_and(|known| known.name != node.name) {
                        *known = None;
                    }
                }
            }
        }
        index
    }

    fn at(&self, next_hop: &str) -> Option<&'a NodeFacts> {
        *self.addresses.get(&next_hop.parse().ok()?)?
    }

    /// The Node that the route leads to, if that can be determined.
    pub(super) fn resolve(&self, route: &api::Route) -> Option<&'a NodeFacts> {
        if let Some(node) = given(route.provider_id.as_ref()).and_then(|id| self.ids.get(id)) {
            return Some(node);
        }
        if let Some(node) = given(route.node_name.as_ref()).and_then(|name| self.names.get(name)) {
            // A former instance with this name is not this Node.
            let other = given(route.provider_id.as_ref()).is_some() && !node.provider_id.is_empty();
            return (!other).then_some(node);
        }
        given(route.next_hop.as_ref()).and_then(|hop| self.at(hop))
    }

    /// Whether the route leads to this Node.
    pub(super) fn leads_to(&self, route: &api::Route, node: &NodeFacts) -> Target {
        let is = |right: bool| if right { Target::Right } else { Target::Wrong };
        match (
            given(route.provider_id.as_ref()),
            given(route.node_name.as_ref()),
        ) {
            (Some(id), _) if !node.provider_id.is_empty() => is(id == node.provider_id),
            (_, Some(name)) => is(name == node.name),
            (Some(_), None) => Target::Undecided,
            (None, None) => {
                let hop = given(route.next_hop.as_ref());
                match hop.and_then(|hop| self.at(hop)) {
                    Some(found) => is(found.name == node.name),
                    None if hop.is_some_and(|hop| is_strange(hop, node))
                        && !planted!(StrayHopIsRight) =>
                    {
                        Target::Unknown
                    }
                    None => Target::Undecided,
                }
            }
        }
    }
}

/// Whether `hop` is an IP address that is not one of the Node's. False if the Node has no
/// addresses.
fn is_strange(hop: &str, node: &NodeFacts) -> bool {
    let Ok(hop) = hop.parse::<IpAddr>() else {
        return false;
    };
    let is = |address: &api::NodeAddress| address.address.parse() == Ok(hop);
    !node.addresses.is_empty() && !node.addresses.iter().any(is)
}

fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// Whether the route has neither a provider ID nor the name of a Node.
pub(super) fn names_no_node(route: &api::Route) -> bool {
    given(route.provider_id.as_ref()).is_none() && given(route.node_name.as_ref()).is_none()
}

/// The destination and the owner of a route. `Err`: the destination, if it has a valid one, and how
/// the route violates the contract. The controller leaves such a route alone.
pub(super) fn read(
    route: &api::Route,
) -> Result<(IpNet, api::Ownership), (Option<IpNet>, &'static str)> {
    let destination = route.destination_cidr.parse::<IpNet>();
    let destination = destination.map(|cidr| cidr.trunc()).ok();
    let wrong = |what| Err((destination, what));
    let Some(cidr) = destination else {
        return wrong("its destination is no CIDR");
    };
    // A request to delete the route would carry these (CORE-11).
    if route.name.len() > 253 || route.node_name().len() > 253 {
        return wrong("its name or its Node's name is longer than 253 bytes");
    }
    if route.provider_id().len() > 1024 {
        return wrong("its provider ID is longer than 1,024 bytes");
    }
    let target = !names_no_node(route) || given(route.next_hop.as_ref()).is_some();
    let ours = route.ownership() == api::Ownership::Ours;
    // Only a route that is not ours may lead to a gateway or a peering, and then has no target
    // (ROUTE-5, ROUTE-11).
    if ours && !target && !route.blackhole {
        return wrong("it is ours, no blackhole, and has no target");
    }
    match api::Ownership::try_from(route.ownership) {
        Ok(api::Ownership::Unspecified) | Err(_) => wrong("its ownership is not known"),
        Ok(ownership) => Ok((cidr, ownership)),
    }
}

/// Whether the route was created for other addresses than its Node has now. For an UNMARKED route
/// without recorded addresses this is not known, and the answer is no (ROUTE-9).
pub(super) fn follows_other_addresses(route: &api::Route, now: &[api::NodeAddress]) -> bool {
    let recorded = &route.node_addresses;
    let unknown = route.ownership() == api::Ownership::Unmarked && recorded.is_empty();
    !unknown && !same_addresses(recorded, now)
}

/// Whether these are the same addresses in any order.
fn same_addresses(one: &[api::NodeAddress], two: &[api::NodeAddress]) -> bool {
    let within = |these: &[api::NodeAddress], those: &[api::NodeAddress]| {
        these.iter().all(|address| those.contains(address))
    };
    within(one, two) && within(two, one)
}
