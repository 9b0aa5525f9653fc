//! Load balancers for Services of `type: LoadBalancer` (`load_balancer.proto`; Go's LoadBalancer).

mod answer;
mod service;

use async_trait::async_trait;

use crate::{Call, Failure, Node, NodeProjection};

pub use answer::{
    Answer, Deleted, Ensured, Event, ListedLoadBalancer, LoadBalancer, Notes, Presence, ServiceRef,
    Updated,
};
pub use service::{Ingress, IpMode, LoadBalancerStatus, PortStatus, Service, ServicePort};

/// What a method of [`LoadBalancers`] answers. Both sides carry [`Notes`]: also a failure can say what happened on the way. `?` on a plain [`Failure`] works.
///
/// ```
/// # use provider_sdk::*;
/// fn answer() -> LoadBalancerResult<Ensured> {
///     let id = make().map_err(|failure| Answer::from(failure).with_handle("lb-1"))?;
///     Ok(Answer::from(Ensured::Pending(Pending::new("the cloud is making it"))).with_handle(id))
/// }
/// # fn make() -> Result<String, Failure> { Ok("lb-1".into()) }
/// # assert_eq!(answer().unwrap().notes.handle.as_deref(), Some("lb-1"));
/// ```
pub type LoadBalancerResult<T> = Result<Answer<T>, Answer<Failure>>;

/// Load balancers. One is identified by the cluster's owner ID and the Service's UID (LB-1); namespace and name are for people.
///
/// A provider must not touch a load balancer, listener, frontend or rule that it did not make for this owner (LB-2; [`Call::owns`]), must check the ownership of what
/// a handle names (a user can edit it; LB-4), and must work without a handle (LB-5).
///
/// While ensure, update or delete of a Service runs, another of them for the same Service is answered `failed: BUSY` by the SDK (CORE-7).
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// How is the load balancer of this Service? Writes nothing (LB-6).
    ///
    /// Failures: INVALID, CONFLICT, THROTTLED, CREDENTIALS, UNAVAILABLE, INTERNAL. Deadline 5 min.
    async fn get(&self, call: &Call, request: &GetLoadBalancer)
    -> LoadBalancerResult<LoadBalancer>;

    /// Makes the load balancer, or makes it as the Service asks. The request is the full state: a field that was cleared is removed (LB-7). On a load balancer that
    /// already is as asked it writes nothing (LB-8).
    ///
    /// Failures: all but NOT_FOUND. Deadline 5 min; answer [`Ensured::Pending`] before 80 % of it.
    async fn ensure(
        &self,
        call: &Call,
        request: &EnsureLoadBalancer,
    ) -> LoadBalancerResult<Ensured>;

    /// Makes the targets those that are given, and nothing else. Where the load balancer does not exist: NOT_FOUND (LB-11).
    ///
    /// Failures: all. Deadline 5 min.
    async fn update(
        &self,
        call: &Call,
        request: &UpdateLoadBalancer,
    ) -> LoadBalancerResult<Updated>;

    /// Removes everything that was made for this Service. [`Deleted::Done`] means that nothing is left and that it was looked for; unsure is a failure, never done (LB-12). One that
    /// does not exist is done.
    ///
    /// Failures: all but NOT_FOUND. Deadline 5 min.
    async fn delete(
        &self,
        call: &Call,
        request: &DeleteLoadBalancer,
    ) -> LoadBalancerResult<Deleted>;

    /// What the controller is told about this service.
    fn options(&self) -> LoadBalancerOptions {
        LoadBalancerOptions::default()
    }

    /// Listing, where the cloud can list completely.
    fn listing(&self) -> Option<&dyn ListLoadBalancers> {
        None
    }
}

/// Lists all load balancers; a separate trait, so that the capability `listing` follows from implementing it.
#[async_trait]
pub trait ListLoadBalancers: Send + Sync {
    /// All load balancers that are marked for this cluster; complete, or a failure (LB-13). Deadline 5 min.
    async fn list(&self, call: &Call) -> Result<Vec<ListedLoadBalancer>, Failure>;
}

/// What the controller is told about the load balancer service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerOptions {
    /// The values of `spec.loadBalancerClass` that this provider serves.
    pub classes: Vec<String>,
    /// Services without a class are served too. `true` by default.
    pub default_class: bool,
    /// [`LoadBalancer::in_sync`] is answered: that is what makes a restart of the controller free. `false` by default.
    pub in_sync: bool,
    /// The targets do not matter to this cloud: changes of Nodes make no call. `false` by default.
    pub ignores_nodes: bool,
    /// Which Nodes can be targets. Owned by default.
    pub target_scope: TargetScope,
    /// The most targets that one load balancer takes; no limit where `None`.
    pub max_targets: Option<u32>,
    /// The fields of a Service that are honoured; a Service that uses another one gets a Warning event. None by default.
    pub features: Vec<ServiceFeature>,
    /// How many calls of this service may run at once; 8 by default.
    pub max_in_flight: u32,
    /// Which further fields of a target matter to this cloud: a change of one is a reason for [`update`](LoadBalancers::update), of every load balancer that has the target. Name,
    /// UID, provider ID and addresses always are. Targets are sent with these fields and with those of [`ProviderInfo::node_projection`](crate::ProviderInfo::node_projection);
    /// what is named there alone is as it is when a call is made, and is no reason for one. Nothing by default.
    pub target_projection: NodeProjection,
}

impl Default for LoadBalancerOptions {
    fn default() -> Self {
        Self {
            classes: Vec::new(),
            default_class: true,
            in_sync: false,
            ignores_nodes: false,
            target_scope: TargetScope::Owned,
            max_targets: None,
            features: Vec::new(),
            max_in_flight: 8,
            target_projection: NodeProjection::default(),
        }
    }
}

/// Which Nodes can be targets of a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TargetScope {
    /// Only Nodes with a provider ID of this provider's prefixes.
    Owned,
    /// Also Nodes that nobody or another provider owns: clouds that balance to plain IP addresses.
    All,
}

/// Fields of a Service that a cloud may or may not honour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ServiceFeature {
    /// `spec.loadBalancerSourceRanges`.
    SourceRanges,
    /// `spec.sessionAffinity: ClientIP`.
    SessionAffinity,
    /// `spec.externalTrafficPolicy: Local`.
    ExternalTrafficPolicyLocal,
    /// Ports with protocol UDP.
    Udp,
    /// Ports with protocol SCTP.
    Sctp,
    /// Two IP families.
    DualStack,
    /// `status.loadBalancer.ingress[].ipMode` is set by the provider (KEP-1860).
    IpMode,
    /// `spec.loadBalancerIP`.
    LoadBalancerIp,
    /// `spec.ports[].appProtocol`.
    AppProtocol,
}

/// Request of [`LoadBalancers::get`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GetLoadBalancer {
    /// For which Service.
    pub service: Service,
    /// The handle of an earlier answer.
    pub handle: Option<String>,
    /// The targets that it should have, for `in_sync`; `None` where they do not matter.
    pub targets: Option<Vec<Node>>,
}

/// Request of [`LoadBalancers::ensure`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EnsureLoadBalancer {
    /// For which Service.
    pub service: Service,
    /// The handle of an earlier answer.
    pub handle: Option<String>,
    /// The targets, in the order of their names. `None` leaves the targets alone; empty means none (LB-10).
    pub targets: Option<Vec<Node>>,
    /// The operator grants that an unmarked load balancer is taken over, where the native name, a tag, the handle or a status address matches; then it must be
    /// marked (LB-9).
    pub adopt_unmarked: bool,
}

/// Request of [`LoadBalancers::update`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UpdateLoadBalancer {
    /// For which Service.
    pub service: Service,
    /// The handle of an earlier answer.
    pub handle: Option<String>,
    /// The targets, in the order of their names; empty means none.
    pub targets: Vec<Node>,
}

/// Request of [`LoadBalancers::delete`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeleteLoadBalancer {
    /// For which Service, as the controller last saw it.
    pub service: Service,
    /// The handle of an earlier answer.
    pub handle: Option<String>,
    /// The operator grants that an unmarked load balancer with the native name or a tag of this
    /// Service is removed (LB-26); without it that one is CONFLICT, never done.
    pub adopt_unmarked: bool,
}
