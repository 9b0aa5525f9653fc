//! One channel per session, never silently reconnected.

use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Node;

use super::{Projection, Trouble};
use crate::lease::Fence;
use crate::providers::Ownership;

/// An initialised session with a provider: all calls of the controllers go through one. It ends with its connection;
/// calls after that are `Disconnected`.
pub(crate) struct Session {
    /// What `GetProviderInfo` answered, validated.
    pub(crate) info: api::GetProviderInfoResponse,
    /// What it wants to see of Nodes.
    pub(crate) projection: Projection,
    /// Who owns which Node and Service.
    pub(crate) ownership: Arc<Ownership>,
}

/// How a provider is; published by `watch`. Tests and the wiring start from `default()`: never seen.
#[derive(Clone, Default)]
pub(crate) struct ProviderStatus {
    /// The initialised session, while there is one: only while we lead.
    pub(crate) session: Option<Arc<Session>>,
    /// What its last Probe said; UNSPECIFIED before the first, and while it cannot be reached.
    pub(crate) probe: api::ProbeState,
    /// For people: why there is no session, or what the Probe said; empty when all is well.
    pub(crate) message: String,
    /// When it last answered anything.
    pub(crate) last_answer: Option<tokio::time::Instant>,
    /// Whether its `cloud_scope` is the accepted one; else nothing is created or deleted (▲S20).
    pub(crate) scope_accepted: bool,
    /// Who it is, while it is connected: on standbys too.
    pub(crate) info: Option<Arc<api::GetProviderInfoResponse>>,
    /// What Initialize last answered.
    pub(crate) cloud_scope: Option<String>,
}

impl ProviderStatus {
    /// The session, if the controllers may work now (READY or DEGRADED).
    pub(crate) fn working(&self) -> Option<&Arc<Session>> {
        match self.probe {
            api::ProbeState::Ready | api::ProbeState::Degraded => self.session.as_ref(),
            api::ProbeState::Unspecified | api::ProbeState::Starting | api::ProbeState::Broken => {
                None
            }
        }
    }

    /// Whether Nodes may be deleted: READY and the scope accepted.
    pub(crate) fn may_delete_nodes(&self) -> bool {
        self.session.is_some() && self.probe == api::ProbeState::Ready && self.scope_accepted
    }

    /// Whether a replica may stand for election: its own provider answers, as what it is (▲M9).
    pub(crate) fn reachable(&self) -> bool {
        self.info.is_some()
    }
}

impl Session {
    /// Asks about these Nodes. The answers are in the order of `nodes`; each was matched by name and UID and checked against
    /// the contract's limits, so that a result that is missing, doubled or unset is that Node's `Fault`.
    /// `Err`: the call failed as a whole. `nodes` is at most `max_batch` long; it is cut further to `max_request_bytes`.
    pub(crate) async fn lookup_instances(
        &self,
        _nodes: &[&Node],
        _facets: &[api::InstanceFacet],
        _max_age: Duration,
    ) -> Result<Vec<Result<api::Instance, Trouble>>, Trouble> {
        todo!()
    }

    /// All instances; `Err` where the listing was not complete.
    pub(crate) async fn list_instances(
        &self,
        _facets: &[api::InstanceFacet],
    ) -> Result<Vec<api::Instance>, Trouble> {
        todo!()
    }

    /// Zones of these Nodes, as `lookup_instances`.
    pub(crate) async fn lookup_zones(
        &self,
        _nodes: &[&Node],
    ) -> Result<Vec<Result<api::Zone, Trouble>>, Trouble> {
        todo!()
    }

    /// GetLoadBalancer. The answer was checked: `outcome` is set, limits hold.
    pub(crate) async fn get_load_balancer(
        &self,
        _request: api::GetLoadBalancerRequest,
    ) -> Result<api::GetLoadBalancerResponse, Trouble> {
        todo!()
    }

    /// EnsureLoadBalancer; `cluster` is filled in here. A `failed` outcome is an Ok here: it can carry a handle.
    pub(crate) async fn ensure_load_balancer(
        &self,
        _fence: &Fence,
        _request: api::EnsureLoadBalancerRequest,
    ) -> Result<api::EnsureLoadBalancerResponse, Trouble> {
        todo!()
    }

    /// UpdateLoadBalancer.
    pub(crate) async fn update_load_balancer(
        &self,
        _fence: &Fence,
        _request: api::UpdateLoadBalancerRequest,
    ) -> Result<api::UpdateLoadBalancerResponse, Trouble> {
        todo!()
    }

    /// DeleteLoadBalancer.
    pub(crate) async fn delete_load_balancer(
        &self,
        _fence: &Fence,
        _request: api::DeleteLoadBalancerRequest,
    ) -> Result<api::DeleteLoadBalancerResponse, Trouble> {
        todo!()
    }

    /// ListLoadBalancers; `Err` where the listing was not complete.
    pub(crate) async fn list_load_balancers(
        &self,
    ) -> Result<Vec<api::ListedLoadBalancer>, Trouble> {
        todo!()
    }

    /// `InstanceCapability.max_batch`, with its default.
    pub(crate) fn max_batch(&self) -> usize {
        self.info
            .capabilities
            .as_ref()
            .and_then(|offered| offered.instances.as_ref()?.max_batch)
            .filter(|batch| *batch > 0)
            .map_or(100, |batch| batch as usize)
    }
}
