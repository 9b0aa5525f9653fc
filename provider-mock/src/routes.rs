//! The routes of the cloud's network: state without locks or I/O.

use std::collections::BTreeMap;

use ipnet::IpNet;
use provider_sdk::{Failure, Ownership};
use serde::{Deserialize, Serialize};

use crate::instances::{Address, Instances};

/// A route of the cloud's network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The cloud's name of the route.
    pub name: String,
    /// The destination of the packets: a CIDR.
    pub destination_cidr: String,
    /// The target, by the Node's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The target, by provider ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The target by IP address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<String>,
    /// A target that is neither a Node, nor an instance, nor an address: a gateway's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The target's addresses, if routes depend on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_addresses: Vec<Address>,
    /// The owner ID in its mark. Absent if it was made by hand or by another program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
}

impl Route {
    /// A route with this name and destination, without mark and target.
    pub fn new(name: impl Into<String>, destination_cidr: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            destination_cidr: destination_cidr.into(),
            ..Self::default()
        }
    }

    fn same_target(&self, other: &Self) -> bool {
        match (&self.provider_id, &other.provider_id) {
            (Some(one), Some(two)) => one == two,
            _ => self.node_name == other.node_name && self.next_hop == other.next_hop,
        }
    }

    /// Whether its target no longer exists.
    pub(crate) fn is_blackhole(&self, instances: &Instances) -> bool {
        match (&self.provider_id, &self.node_name) {
            (Some(id), _) => instances.by_provider_id(id).is_none(),
            (None, Some(name)) => instances.by_name(name).is_none(),
            (None, None) => self.next_hop.is_none() && self.gateway.is_none(),
        }
    }

    /// The ownership from a cluster's view. `owns` says whether an owner ID is the cluster's.
    pub(crate) fn ownership(&self, owns: impl Fn(&str) -> bool) -> Ownership {
        match &self.owner_id {
            None => Ownership::Unmarked,
            Some(owner) if owns(owner) => Ownership::Ours,
            Some(_) => Ownership::Foreign,
        }
    }
}

/// All routes, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Routes {
    pub(crate) by_name: BTreeMap<String, Route>,
}

/// The result of planning a create or delete.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RouteWrite {
    /// Nothing differs.
    Nothing,
    /// Store this route under its name.
    Put(Route),
    /// Remove the route with this name.
    Remove(String),
}

impl Routes {
    /// Plans the creation of `wanted`, which is marked for the current owner.
    pub(crate) fn plan_create(
        &self,
        wanted: Route,
        instances: &Instances,
        owns: impl Fn(&str) -> bool,
    ) -> Result<RouteWrite, Failure> {
        if !is_cidr(&wanted.destination_cidr) {
            return Err(Failure::invalid(format!(
                "destination_cidr {:?} is not a CIDR; send one such as 10.0.1.0/24",
                wanted.destination_cidr
            )));
        }
        if wanted.is_blackhole(instances) {
            let target = wanted.provider_id.or(wanted.node_name).unwrap_or_default();
            return Err(Failure::precondition(format!(
                "the target {target:?} of the route to {} is no instance of this cloud; add it first",
                wanted.destination_cidr
            ))
            .with_reason("InstanceMissing"));
        }
        let existing = self
            .by_name
            .values()
            .find(|route| same_network(&route.destination_cidr, &wanted.destination_cidr))
            .or_else(|| self.by_name.get(&wanted.name));
        let Some(existing) = existing else {
            return Ok(RouteWrite::Put(wanted));
        };
        let same_destination = same_network(&existing.destination_cidr, &wanted.destination_cidr);
        let leads_there = same_destination && existing.same_target(&wanted);
        let same_addresses = existing.node_addresses == wanted.node_addresses;
        match existing.ownership(&owns) {
            Ownership::Ours => {}
            // The route leads to the right target. It is not adopted (ROUTE-9).
            Ownership::Unmarked
                if leads_there
                    && (same_addresses || existing.node_addresses.is_empty())
                    && !existing.is_blackhole(instances) =>
            {
                return Ok(RouteWrite::Nothing);
            }
            Ownership::Foreign | Ownership::Unmarked => {
                return Err(Failure::conflict(format!(
                    "the route {:?} to {} was not made for this cluster; remove it or choose another CIDR",
                    existing.name, existing.destination_cidr
                )));
            }
        }
        if leads_there && same_addresses {
            return Ok(RouteWrite::Nothing);
        }
        if same_destination && !existing.same_target(&wanted) && !existing.is_blackhole(instances) {
            return Err(Failure::conflict(format!(
                "the route {:?} leads {} to another instance; delete it first",
                existing.name, existing.destination_cidr
            ))
            .with_reason("DestinationTaken"));
        }
        Ok(RouteWrite::Put(Route {
            name: existing.name.clone(),
            ..wanted
        }))
    }

    /// Plans the deletion of a route that ListRoutes showed.
    pub(crate) fn plan_delete(
        &self,
        name: &str,
        destination_cidr: &str,
        owns: impl Fn(&str) -> bool,
    ) -> Result<RouteWrite, Failure> {
        if name.is_empty() {
            return Err(Failure::invalid(format!(
                "the route to {destination_cidr} has no name; send it as ListRoutes gave it"
            )));
        }
        match self.by_name.get(name) {
            Some(route) if same_network(&route.destination_cidr, destination_cidr) => {
                if route.ownership(owns) == Ownership::Foreign {
                    return Err(Failure::conflict(format!(
                        "the route {:?} to {destination_cidr} is marked for another owner",
                        route.name
                    )));
                }
                Ok(RouteWrite::Remove(route.name.clone()))
            }
            _ => Ok(RouteWrite::Nothing),
        }
    }
}

/// Whether two destinations are the same network (ROUTE-8). A text that is no CIDR is compared as
/// text.
fn same_network(one: &str, other: &str) -> bool {
    match (one.parse::<IpNet>(), other.parse::<IpNet>()) {
        (Ok(one), Ok(other)) => one.trunc() == other.trunc(),
        _ => one == other,
    }
}

/// Whether the text is a CIDR: an address, a slash, a prefix length.
pub(crate) fn is_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, prefix)| {
        let bits = match address.parse() {
            Ok(std::net::IpAddr::V4(_)) => 32,
            Ok(std::net::IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        prefix.parse::<u8>().is_ok_and(|prefix| prefix <= bits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Instance;
    use provider_sdk::FailureCode;

    fn instances() -> Instances {
        let mut instances = Instances::default();
        for name in ["a", "b"] {
            let mut instance = Instance::new(name);
            instance.complete("mock://");
            instances.add(instance).unwrap();
        }
        instances
    }

    fn route(name: &str, cidr: &str, node: &str, owner: Option<&str>) -> Route {
        Route {
            node_name: Some(node.into()),
            owner_id: owner.map(Into::into),
            ..Route::new(name, cidr)
        }
    }

    fn owns(owner: &str) -> bool {
        owner == "us" || owner == "us-before"
    }

    fn table(existing: &[Route]) -> Routes {
        Routes {
            by_name: existing
                .iter()
                .map(|route| (route.name.clone(), route.clone()))
                .collect(),
        }
    }

    #[test]
    fn creating_writes_only_what_is_not_as_asked() {
        let wanted = route("r", "10.0.1.0/24", "a", Some("us"));
        let create = |existing: &[Route], wanted: &Route| {
            table(existing)
                .plan_create(wanted.clone(), &instances(), owns)
                .map_err(|failure| failure.code())
        };
        assert_eq!(create(&[], &wanted), Ok(RouteWrite::Put(wanted.clone())));
        assert_eq!(
            create(std::slice::from_ref(&wanted), &wanted),
            Ok(RouteWrite::Nothing)
        );
        // Marked with a former owner ID: nothing differs, so nothing is written.
        assert_eq!(
            create(
                &[route("old", "10.0.1.0/24", "a", Some("us-before"))],
                &wanted
            ),
            Ok(RouteWrite::Nothing)
        );
        // Unmarked: it leads to the right target and stays as it is.
        assert_eq!(
            create(&[route("x", "10.0.1.0/24", "a", None)], &wanted),
            Ok(RouteWrite::Nothing)
        );
        // A blackhole is replaced under its name, with a new mark.
        let gone = route("old", "10.0.1.0/24", "gone", Some("us-before"));
        assert_eq!(
            create(&[gone], &wanted),
            Ok(RouteWrite::Put(route(
                "old",
                "10.0.1.0/24",
                "a",
                Some("us")
            )))
        );
        for (existing, code) in [
            (
                route("x", "10.0.1.0/24", "a", Some("them")),
                FailureCode::Conflict,
            ),
            (route("x", "10.0.1.0/24", "b", None), FailureCode::Conflict),
            (
                route("x", "10.0.1.0/24", "b", Some("us")),
                FailureCode::Conflict,
            ),
        ] {
            assert_eq!(create(&[existing], &wanted), Err(code));
        }
        assert_eq!(
            create(&[], &route("r", "10.0.1.0", "a", None)),
            Err(FailureCode::Invalid)
        );
        assert_eq!(
            create(&[], &route("r", "10.0.1.0/24", "gone", None)),
            Err(FailureCode::Precondition)
        );
    }

    #[test]
    fn deleting_touches_no_foreign_route() {
        let routes = table(&[
            route("ours", "10.0.1.0/24", "a", Some("us")),
            route("theirs", "10.0.2.0/24", "a", Some("them")),
        ]);
        let delete = |name: &str, cidr: &str| {
            routes
                .plan_delete(name, cidr, owns)
                .map_err(|failure| failure.code())
        };
        assert_eq!(
            delete("ours", "10.0.1.0/24"),
            Ok(RouteWrite::Remove("ours".into()))
        );
        assert_eq!(delete("", "10.0.1.0/24"), Err(FailureCode::Invalid));
        assert_eq!(delete("ours", "10.0.9.0/24"), Ok(RouteWrite::Nothing));
        assert_eq!(delete("gone", "10.0.1.0/24"), Ok(RouteWrite::Nothing));
        assert_eq!(delete("theirs", "10.0.2.0/24"), Err(FailureCode::Conflict));
    }

    #[test]
    fn a_destination_is_a_network_and_not_a_text() {
        let routes = table(&[route("r", "fd00:0:0::/64", "a", Some("us"))]);
        let wanted = route("other", "fd00::/64", "a", Some("us"));
        let created = routes.plan_create(wanted, &instances(), owns);
        assert_eq!(
            created.map_err(|failure| failure.code()),
            Ok(RouteWrite::Nothing)
        );
        let removed = routes.plan_delete("r", "fd00::/64", owns);
        assert_eq!(
            removed.map_err(|failure| failure.code()),
            Ok(RouteWrite::Remove("r".into()))
        );
    }
}
