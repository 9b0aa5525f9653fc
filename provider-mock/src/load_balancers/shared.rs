//! A load balancer that several Services share. Each Service has a part: an entry of the state file
//! with the common address, the Service's annotation and a mark of its own. So a provider that does
//! not support sharing can serve each part as a load balancer of its own. This provider reports the
//! whole: one handle, one name, one entry in a listing.

use std::collections::BTreeSet;
use std::net::IpAddr;

use provider_sdk::{Failure, Service};

use super::{Asker, LoadBalancer, LoadBalancerConfig, LoadBalancers};
use crate::fixture::Addressing;

/// The annotation whose value names the load balancer that a Service shares with others of its
/// cluster.
pub(crate) const SHARED: &str = "mock.grpc-ccm.io/shared-load-balancer";

/// The prefix of the handle and the name of a shared load balancer. The other handles that the
/// cloud gives begin with `lb-`, and the native names with `a`.
const WHOLE: &str = "shared-";
const NAME_BYTES: usize = 63;

impl LoadBalancerConfig {
    /// The name of the load balancer that it is a part of.
    pub(crate) fn shared(&self) -> Option<&str> {
        self.annotations.get(SHARED).map(String::as_str)
    }

    /// The protocols and ports that it listens on.
    pub(crate) fn listeners(&self) -> BTreeSet<(&str, &str)> {
        self.ports
            .iter()
            .filter_map(|port| listener(port))
            .collect()
    }
}

impl LoadBalancer {
    /// The handle that the provider reports: for a part, that of the whole.
    pub(crate) fn told_handle(&self) -> String {
        self.whole().unwrap_or_else(|| self.handle.clone())
    }

    /// The name that the provider reports: for a part, that of the whole.
    pub(crate) fn told_name(&self) -> String {
        self.whole().unwrap_or_else(|| self.name.clone())
    }

    fn whole(&self) -> Option<String> {
        self.config.shared().map(|name| format!("{WHOLE}{name}"))
    }

    /// Sorts older parts first. A part that does not exist yet is the youngest.
    fn age(&self) -> (bool, usize, &str) {
        (self.handle.is_empty(), self.handle.len(), &self.handle)
    }
}

/// The error in the name of the load balancer that a Service wants to share.
pub(super) fn wrong(service: &Service) -> Option<String> {
    let name = service.annotations.get(SHARED)?;
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = (1..=NAME_BYTES).contains(&name.len())
        && name.bytes().all(letter)
        && !name.starts_with('-')
        && !name.ends_with('-');
    (!is_label).then(|| {
        format!(
            "metadata.annotations[{SHARED}] {name:?} names no load balancer; write 1 to {NAME_BYTES} lower-case letters, digits and dashes, with no dash at the beginning or end, such as front-1"
        )
    })
}

impl LoadBalancers {
    /// The load balancer that the asker's handle names. If the handle is that of a shared load
    /// balancer, the result is the asker's own load balancer, which may have left the whole since.
    /// If the asker has none, the result is the part of another Service of the cluster, if any. But
    /// it is `None` if the asker's annotation asks for this shared load balancer.
    pub(super) fn named(&self, asker: &Asker<'_>) -> Option<&LoadBalancer> {
        let handle = asker.handle?;
        if let Some(one) = self.by_handle.get(handle) {
            return Some(one);
        }
        let name = handle.strip_prefix(WHOLE)?;
        let all = || self.by_handle.values();
        let of_cluster = |one: &&LoadBalancer| {
            let mark = one.owner.as_ref();
            one.config.shared() == Some(name) && mark.is_some_and(|it| asker.of_cluster(it))
        };
        let own = |one: &&LoadBalancer| one.owner.as_ref().is_some_and(|it| asker.owns(it));
        let wants = asker.service.annotations.get(SHARED).map(String::as_str) == Some(name);
        let theirs = || all().find(|one| !wants && of_cluster(one));
        let part = all().filter(of_cluster).find(own);
        part.or_else(|| all().find(own)).or_else(theirs)
    }

    /// The parts of other Services in the same whole, the oldest first.
    pub(crate) fn peers(&self, asker: &Asker<'_>, part: &LoadBalancer) -> Vec<&LoadBalancer> {
        let Some(name) = part.config.shared() else {
            return Vec::new();
        };
        let peer = |one: &&LoadBalancer| {
            one.config.shared() == Some(name)
                && one.handle != part.handle
                && one.owner.as_ref().is_some_and(|it| asker.of_cluster(it))
        };
        let mut peers: Vec<_> = self.by_handle.values().filter(peer).collect();
        peers.sort_by(|one, other| one.age().cmp(&other.age()));
        peers
    }

    /// The addresses that a load balancer may keep, in the order of priority. For a part, these are
    /// the addresses of all parts of its whole, the oldest part's first. Addresses of other shared
    /// load balancers are never among them.
    pub(super) fn kept(&self, lb: &LoadBalancer, peers: &[&LoadBalancer]) -> Vec<IpAddr> {
        let is_peer = |one: &LoadBalancer| peers.iter().any(|peer| peer.handle == one.handle);
        let others: BTreeSet<_> = self
            .by_handle
            .values()
            .filter(|one| one.config.shared().is_some())
            .filter(|one| one.handle != lb.handle && !is_peer(one))
            .flat_map(|one| &one.addresses)
            .collect();
        let mut parts: Vec<_> = peers.iter().copied().chain([lb]).collect();
        parts.sort_by(|one, other| one.age().cmp(&other.age()));
        let all = parts.iter().flat_map(|part| &part.addresses).copied();
        all.filter(|address| !others.contains(address)).collect()
    }
}

/// CONFLICT if another part at the same address has the same listener. BUSY while that part is
/// being deleted.
pub(super) fn collision(lb: &LoadBalancer, peers: &[&LoadBalancer]) -> Result<(), Failure> {
    let listeners = lb.config.listeners();
    let at_same_address = |peer: &&&LoadBalancer| {
        let mut addresses = peer.addresses.iter();
        addresses.any(|address| lb.addresses.contains(address))
    };
    for peer in peers.iter().filter(at_same_address) {
        let theirs = peer.config.listeners();
        let Some((protocol, port)) = listeners.intersection(&theirs).next() else {
            continue;
        };
        let whose = peer.owner.clone().unwrap_or_default();
        let taken = format!(
            "{protocol} {port} of load balancer {} belongs to Service {}/{}",
            peer.told_name(),
            whose.namespace,
            whose.name
        );
        return Err(if peer.gone_at_ms.is_some() {
            Failure::busy(format!("{taken}, which is being deleted"))
        } else {
            Failure::conflict(format!("{taken}; take another port")).with_reason("PortTaken")
        });
    }
    Ok(())
}

/// CONFLICT if the requested address differs from that of the other parts.
pub(super) fn moves(asked: IpAddr, peers: &[&LoadBalancer]) -> Result<(), Failure> {
    let mut theirs = peers.iter().flat_map(|peer| &peer.addresses);
    let Some(theirs) = theirs.find(|one| one.is_ipv6() == asked.is_ipv6()) else {
        return Ok(());
    };
    if *theirs == asked {
        return Ok(());
    }
    Err(Failure::conflict(format!(
        "spec.loadBalancerIP {asked} is not the address of the shared load balancer, {theirs}"
    ))
    .with_reason("AddressShared"))
}

/// The host name for a load balancer without one.
pub(super) fn hostname(lb: &LoadBalancer, addressing: &Addressing) -> String {
    format!("{}.{}", lb.told_name(), addressing.hostname_domain)
}

/// The listener in `name:protocol:port:nodePort:appProtocol`.
pub(crate) fn listener(port: &str) -> Option<(&str, &str)> {
    let mut parts = port.split(':').skip(1);
    Some((parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests;
