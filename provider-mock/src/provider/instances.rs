//! Instances.

use std::time::Duration;

use provider_sdk::{
    AddressKind, Answers, Call, Failure, Instance, InstanceFacet, InstanceOptions, InstanceQuery,
    Instances, ListInstances, Node, NodeAddress, async_trait,
};

use super::MockProvider;
use crate::cloud::State;
use crate::fixture::Zones;
use crate::instances::{self as cloud, Address, Found, Power};

/// The `retry_after` for an instance that the cloud does not show yet.
const PENDING_RETRY: Duration = Duration::from_secs(1);

#[async_trait]
impl Instances for MockProvider {
    async fn lookup(
        &self,
        call: &Call,
        node: &Node,
        query: &InstanceQuery,
    ) -> Result<Instance, Failure> {
        self.reach(call).await?;
        Ok(looked_up(&self.cloud.state(), node, query))
    }

    /// One operation of the cloud for all Nodes.
    async fn lookup_batch(
        &self,
        call: &Call,
        nodes: &[Node],
        query: &InstanceQuery,
    ) -> Result<Answers<Instance>, Failure> {
        self.reach(call).await?;
        let state = self.cloud.state();
        let mut answers = Answers::new();
        for node in nodes {
            answers.set(&node.name, Ok(looked_up(&state, node, query)));
        }
        Ok(answers)
    }

    fn options(&self) -> InstanceOptions {
        let settings = self.cloud.settings();
        let capability = &settings.capabilities.instances;
        InstanceOptions {
            max_batch: capability.max_batch,
            power_state: capability.power_state,
            max_in_flight: capability.max_in_flight,
            ..InstanceOptions::default()
        }
    }

    fn listing(&self) -> Option<&dyn ListInstances> {
        let listing = self.cloud.settings().capabilities.instances.listing;
        listing.then_some(self as &dyn ListInstances)
    }
}

#[async_trait]
impl ListInstances for MockProvider {
    async fn list(&self, call: &Call, facets: &[InstanceFacet]) -> Result<Vec<Instance>, Failure> {
        self.reach(call).await?;
        let metadata = facets.contains(&InstanceFacet::Metadata);
        let state = self.cloud.state();
        let seen = state
            .objects
            .instances
            .iter()
            .filter(|instance| !matches!(instance.power, Power::Pending | Power::Unmanaged));
        Ok(seen
            .map(|instance| shown(instance, &state, metadata))
            .collect())
    }
}

/// The answer about a Node.
fn looked_up(state: &State, node: &Node, query: &InstanceQuery) -> Instance {
    let prefixes = &state.settings.provider.provider_id_prefixes;
    let instances = &state.objects.instances;
    let id = node.provider_id.as_deref();
    match instances.look_up(&node.name, id, prefixes) {
        Found::Absent => Instance::absent(),
        Found::Pending => Instance::pending(PENDING_RETRY),
        Found::Unmanaged => Instance::unmanaged(),
        Found::Instance(found) => {
            let metadata = query.wants(InstanceFacet::Metadata);
            shown(found, state, metadata)
        }
    }
}

/// An instance in the contract's terms.
fn shown(found: &cloud::Instance, state: &State, metadata: bool) -> Instance {
    let capability = &state.settings.capabilities.instances;
    let id = &found.provider_id;
    let mut instance = match found.power {
        Power::Running if capability.power_state => Instance::running(id),
        Power::Stopped if capability.power_state => Instance::stopped(id),
        _ => Instance::present(id),
    };
    if !metadata {
        return instance;
    }
    // The SDK drops values that are no label values (INST-15).
    instance.instance_type.clone_from(&found.instance_type);
    instance.addresses = found.addresses.iter().map(address).collect();
    if capability.zones == Zones::Metadata {
        instance.zone.clone_from(&found.zone);
        instance.region.clone_from(&found.region);
    }
    instance.labels.clone_from(&found.labels);
    instance
}

pub(super) fn address(address: &Address) -> NodeAddress {
    let kind = match address {
        Address::Hostname(_) => AddressKind::Hostname,
        Address::InternalIp(_) => AddressKind::InternalIp,
        Address::ExternalIp(_) => AddressKind::ExternalIp,
        Address::InternalDns(_) => AddressKind::InternalDns,
        Address::ExternalDns(_) => AddressKind::ExternalDns,
    };
    NodeAddress::new(kind, address.text())
}

/// The reverse of [`address`]. `None`: the IP address is invalid.
pub(super) fn address_from(address: &NodeAddress) -> Option<Address> {
    let text = address.address.clone();
    Some(match address.kind {
        AddressKind::Hostname => Address::Hostname(text),
        AddressKind::InternalIp => Address::InternalIp(text.parse().ok()?),
        AddressKind::ExternalIp => Address::ExternalIp(text.parse().ok()?),
        AddressKind::InternalDns => Address::InternalDns(text),
        AddressKind::ExternalDns => Address::ExternalDns(text),
    })
}
