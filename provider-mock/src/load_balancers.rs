//! The load balancers of the cloud: state without locks or I/O, and the decisions about it.

mod marks;
mod shared;
mod valid;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use provider_sdk::{Failure, Ownership, Service};
use serde::{Deserialize, Serialize};

use crate::fixture::{AddressMode, Addressing};

pub(crate) use marks::{Asker, Honest, Marks};
pub(crate) use shared::listener;
pub(crate) use valid::check;

/// A load balancer of the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadBalancer {
    /// The cloud's own ID, `lb-<n>`. The cloud sets it if it is empty.
    #[serde(default)]
    pub handle: String,
    /// The native name. The mock uses the name of Go's cloud providers: `a` and the Service's UID
    /// without dashes, at most 32 characters.
    pub name: String,
    /// The mark of its owner. Absent if it was made by hand or by another program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Mark>,
    /// Its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Its DNS name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Its settings.
    #[serde(default)]
    pub config: LoadBalancerConfig,
    /// The names of its targets, in order.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Ready from this time on, in milliseconds of the cloud's time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ready_at_ms: u64,
    /// The end of its deletion, in milliseconds of the cloud's time. Set when its deletion begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_at_ms: Option<u64>,
    /// Whether only parts of it are left, which a delete would remove.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remnant: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The owner of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// The cluster's owner ID.
    pub owner_id: String,
    /// The Service's namespace.
    #[serde(default)]
    pub namespace: String,
    /// The Service's name.
    #[serde(default)]
    pub name: String,
    /// The Service's UID.
    pub uid: String,
}

/// The settings of a load balancer, from its Service at the last write.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoadBalancerConfig {
    /// The ports, each as `name:protocol:port:nodePort:appProtocol`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// CIDRs that may reach it; empty means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_ranges: Vec<String>,
    /// `None` or `ClientIP`, with the seconds: `ClientIP:10800`.
    pub session_affinity: String,
    /// `Cluster` or `Local`, with the health check's port: `Local:30123`.
    pub external_traffic_policy: String,
    /// The class, where the Service has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The Service's annotations that begin with `mock.grpc-ccm.io/`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl LoadBalancerConfig {
    /// The settings that this Service asks for.
    pub(crate) fn of(service: &Service) -> Self {
        let optional = |value: Option<String>| value.unwrap_or_default();
        Self {
            ports: service
                .ports
                .iter()
                .map(|port| {
                    format!(
                        "{}:{}:{}:{}:{}",
                        port.name,
                        port.protocol,
                        port.port,
                        optional(port.node_port.map(|port| port.to_string())),
                        port.app_protocol.as_deref().unwrap_or_default()
                    )
                })
                .collect(),
            source_ranges: service.source_ranges.clone(),
            session_affinity: match service.session_affinity_timeout {
                Some(timeout) if service.session_affinity == "ClientIP" => {
                    format!("ClientIP:{}", timeout.as_secs())
                }
                _ => service.session_affinity.clone(),
            },
            external_traffic_policy: match service.health_check_node_port {
                Some(port) if service.external_traffic_policy == "Local" => format!("Local:{port}"),
                _ => service.external_traffic_policy.clone(),
            },
            class: service.load_balancer_class.clone(),
            annotations: service
                .annotations
                .iter()
                .filter(|(key, _)| key.starts_with(super::ANNOTATION_PREFIX))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        }
    }
}

/// The native name of a Service's load balancer, the same as Go's `DefaultLoadBalancerName`. So a
/// provider finds the load balancers of its Go predecessor.
pub fn native_name(uid: &str) -> String {
    let mut name = format!("a{}", uid.replace('-', ""));
    name.truncate(name.floor_char_boundary(32));
    name
}

/// All load balancers, by handle.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadBalancers {
    pub(crate) by_handle: BTreeMap<String, LoadBalancer>,
    /// The number of the last handle that the cloud gave. Before a reset it gives no number twice.
    pub(crate) last_number: u64,
}

/// The result of planning an ensure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EnsurePlan {
    /// Nothing differs.
    AsAsked(LoadBalancer),
    /// Write this load balancer; create it if its handle is empty.
    Write(LoadBalancer),
    /// Its deletion has to end first.
    Deleting(LoadBalancer),
}

impl LoadBalancers {
    /// Removes load balancers whose deletion has ended.
    pub(crate) fn settle(&mut self, now_ms: u64) {
        self.by_handle
            .retain(|_, lb| lb.gone_at_ms.is_none_or(|gone| gone > now_ms));
    }

    /// Stores a load balancer, and gives it a handle if it has none. Returns the handle.
    pub(crate) fn put(&mut self, mut load_balancer: LoadBalancer) -> String {
        if load_balancer.handle.is_empty() {
            loop {
                self.last_number += 1;
                load_balancer.handle = format!("lb-{}", self.last_number);
                if !self.by_handle.contains_key(&load_balancer.handle) {
                    break;
                }
            }
        }
        let handle = load_balancer.handle.clone();
        self.by_handle.insert(handle.clone(), load_balancer);
        handle
    }

    /// The load balancer that the provider finds for the Service: one of any owner by the handle or
    /// the native name, the Service's own by the mark, or an unmarked one by an address or host
    /// name in the Service's status.
    pub(crate) fn find(&self, asker: &Asker<'_>) -> Option<&LoadBalancer> {
        let by_handle = self.named(asker);
        let by_mark = || {
            let mut all = self.by_handle.values();
            all.find(|lb| asker.finds(lb))
        };
        if by_handle.is_none() && !asker.marks.are_found() {
            return None;
        }
        by_handle.or_else(by_mark).or_else(|| self.like(asker))
    }

    /// The Service's own load balancer, by the handle or the mark. CONFLICT if the handle names a
    /// load balancer that is not its own.
    pub(crate) fn find_own(&self, asker: &Asker<'_>) -> Result<Option<&LoadBalancer>, Failure> {
        match self.named(asker) {
            Some(lb) if asker.ownership(lb) == Ownership::Ours => Ok(Some(lb)),
            Some(lb) => Err(not_ours(lb, asker)),
            None => Ok(self.by_handle.values().find(|lb| asker.finds(lb))),
        }
    }

    /// The load balancer that a Delete removes: the Service's own, else an unmarked one with its
    /// native name (first this one if the handle names it). The latter is CONFLICT without
    /// `adopt_unmarked`. If the handle names any other load balancer, that is CONFLICT too (LB-26).
    pub(crate) fn find_to_delete(
        &self,
        asker: &Asker<'_>,
        adopt_unmarked: bool,
    ) -> Result<Option<&LoadBalancer>, Failure> {
        let named = self.named(asker);
        if let Some(lb) = named.filter(|lb| adopt_unmarked && is_unmarked_one(lb, asker)) {
            return Ok(Some(lb));
        }
        if let Some(own) = self.find_own(asker)? {
            return Ok(Some(own));
        }
        self.find_unmarked(asker, adopt_unmarked)
    }

    /// An unmarked load balancer with the Service's native name; CONFLICT without `adopt_unmarked`.
    /// While such a load balancer exists, a Delete is not done (LB-26).
    pub(crate) fn find_unmarked(
        &self,
        asker: &Asker<'_>,
        adopt_unmarked: bool,
    ) -> Result<Option<&LoadBalancer>, Failure> {
        let mut all = self.by_handle.values();
        match all.find(|lb| is_unmarked_one(lb, asker)) {
            Some(lb) if adopt_unmarked => Ok(Some(lb)),
            Some(lb) => Err(not_ours(lb, asker)),
            None => Ok(None),
        }
    }

    /// An unmarked load balancer with the Service's native name, else an unmarked one with an
    /// address or host name of the Service's status (LB-24), else another owner's with the native
    /// name. The caller has found no load balancer that is marked for the Service.
    fn like(&self, asker: &Asker<'_>) -> Option<&LoadBalancer> {
        let name = native_name(&asker.service.uid);
        let same_status = |lb: &LoadBalancer| {
            asker.service.status.ingress.iter().any(|ingress| {
                let ip = ingress.ip.as_ref().and_then(|ip| ip.parse().ok());
                ip.is_some_and(|ip| lb.addresses.contains(&ip))
                    || (ingress.hostname.is_some() && ingress.hostname == lb.hostname)
            })
        };
        let step = |lb: &LoadBalancer| match (lb.owner.is_none(), lb.name == name) {
            (true, true) => Some(0),
            (true, false) if same_status(lb) => Some(1),
            (false, true) => Some(2),
            _ => None,
        };
        let all = self.by_handle.values();
        let alike = all.filter_map(|lb| Some((step(lb)?, lb)));
        alike.min_by_key(|(step, _)| *step).map(|(_, lb)| lb)
    }

    /// Plans an ensure. `targets` lacks those that cannot be attached.
    pub(crate) fn plan_ensure(
        &self,
        asker: &Asker<'_>,
        targets: Option<Vec<String>>,
        adopt_unmarked: bool,
        addressing: &Addressing,
    ) -> Result<EnsurePlan, Failure> {
        let found = self.find(asker);
        if let Some(lb) = found {
            match asker.ownership(lb) {
                Ownership::Ours => {}
                Ownership::Unmarked if adopt_unmarked => {}
                Ownership::Unmarked | Ownership::Foreign => return Err(not_ours(lb, asker)),
            }
            if lb.gone_at_ms.is_some() {
                return Ok(EnsurePlan::Deleting(lb.clone()));
            }
        }
        let mut wanted = found.cloned().unwrap_or_else(|| LoadBalancer {
            name: native_name(&asker.service.uid),
            ..LoadBalancer::default()
        });
        let before = std::mem::replace(&mut wanted.config, LoadBalancerConfig::of(asker.service));
        let was_shared = before.shared().map(str::to_owned);
        if let Some(targets) = targets {
            wanted.targets = targets;
        }
        wanted.remnant = false;
        let peers = self.peers(asker, &wanted);
        wanted.addresses = self.addresses_for(asker.service, &wanted, &peers, addressing)?;
        shared::collision(&wanted, &peers)?;
        if was_shared.as_deref() != wanted.config.shared() {
            wanted.hostname = None;
        }
        if wanted.hostname.is_none() && addressing.mode != AddressMode::Ip {
            wanted.hostname = Some(shared::hostname(&wanted, addressing));
        }
        match found {
            Some(lb)
                if *lb == wanted
                    && lb
                        .owner
                        .as_ref()
                        .is_some_and(|mark| !asker.marks.is_former(asker, mark)) =>
            {
                Ok(EnsurePlan::AsAsked(wanted))
            }
            _ => {
                wanted.owner = asker.marks.mark(asker);
                Ok(EnsurePlan::Write(wanted))
            }
        }
    }

    /// One address of each family that the Service asks for: `spec.loadBalancerIP`, else an address
    /// that the load balancer may keep, else a new one.
    fn addresses_for(
        &self,
        service: &Service,
        lb: &LoadBalancer,
        peers: &[&LoadBalancer],
        addressing: &Addressing,
    ) -> Result<Vec<IpAddr>, Failure> {
        let taken: BTreeSet<IpAddr> = self
            .by_handle
            .values()
            .flat_map(|lb| lb.addresses.iter().copied())
            .collect();
        let has_pool = |ipv6: bool| addressing.pools.iter().any(|pool| pool.is_ipv6() == ipv6);
        let mut families: Vec<bool> = service
            .ip_families
            .iter()
            .map(|family| family == "IPv6")
            .collect();
        if families.is_empty() {
            families.push(!has_pool(false) && has_pool(true));
        }
        if service.ip_family_policy.as_deref() == Some("PreferDualStack") && families.len() > 1 {
            families.retain(|ipv6| has_pool(*ipv6));
        }
        let asked: Option<IpAddr> = service
            .load_balancer_ip
            .as_ref()
            .filter(|text| !text.is_empty())
            .map(|text| {
                text.parse().map_err(|_| {
                    Failure::invalid(format!(
                        "spec.loadBalancerIP {text:?} is not an IP address; write one such as 192.0.2.1"
                    ))
                })
            })
            .transpose()?;
        if let Some(asked) = asked {
            shared::moves(asked, peers)?;
        }
        let kept_addresses = self.kept(lb, peers);
        let mut addresses = Vec::new();
        for ipv6 in families {
            let family = if ipv6 { "IPv6" } else { "IPv4" };
            let kept = kept_addresses
                .iter()
                .find(|ip| ip.is_ipv6() == ipv6)
                .copied();
            let address = match asked.filter(|ip| ip.is_ipv6() == ipv6) {
                Some(asked) if kept == Some(asked) => Some(asked),
                Some(asked) => {
                    if !addressing.pools.iter().any(|pool| pool.contains(asked)) {
                        return Err(Failure::precondition(format!(
                            "spec.loadBalancerIP {asked} is in none of the cloud's address pools"
                        ))
                        .with_reason("AddressNotInPool"));
                    }
                    if taken.contains(&asked) {
                        return Err(Failure::conflict(format!(
                            "spec.loadBalancerIP {asked} is another load balancer's"
                        ))
                        .with_reason("AddressTaken"));
                    }
                    Some(asked)
                }
                None => kept.or_else(|| {
                    addressing
                        .pools
                        .iter()
                        .filter(|pool| pool.is_ipv6() == ipv6)
                        .find_map(|pool| pool.first_free(&taken))
                }),
            };
            addresses.push(address.ok_or_else(|| {
                Failure::precondition(format!(
                    "no {family} address is left for load balancers; add a pool to `addressing.pools` or delete a load balancer"
                ))
                .with_reason("AddressPoolExhausted")
            })?);
        }
        Ok(addresses)
    }
}

/// Whether it is unmarked, and has the Service's native name.
fn is_unmarked_one(lb: &LoadBalancer, asker: &Asker<'_>) -> bool {
    lb.owner.is_none() && lb.name == native_name(&asker.service.uid)
}

fn not_ours(lb: &LoadBalancer, asker: &Asker<'_>) -> Failure {
    let whose = match &lb.owner {
        None => "carries no mark: grant its adoption, or remove it".to_owned(),
        Some(mark) => format!(
            "is marked for Service {}/{} (uid {}) of owner {}",
            mark.namespace, mark.name, mark.uid, mark.owner_id
        ),
    };
    Failure::conflict(format!(
        "load balancer {} ({}) is not that of Service {}/{}: it {whose}",
        lb.told_handle(),
        lb.told_name(),
        asker.service.namespace,
        asker.service.name
    ))
}

#[cfg(test)]
mod tests;
