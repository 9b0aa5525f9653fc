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

/// The result of a call about one load balancer. Success and failure both carry [`Notes`]. `?`
/// works on a plain [`Failure`].
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

/// Load balancers. The cluster's owner ID and the Service's UID identify a load balancer (LB-1);
/// namespace and name are for people.
///
/// A provider must not touch a load balancer, listener, frontend or rule that it did not make or
/// adopt for this owner (LB-2; [`Call::owns`]). It must check the ownership of the object that a
/// handle names, because a user can edit the handle (LB-4). It must work without a handle (LB-5).
///
/// While `ensure`, `update` or `delete` runs for a Service, the SDK answers a further call of these
/// three for the same Service with `failed: BUSY` (CORE-7).
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// Reports the state of this Service's load balancer. It writes nothing (LB-6).
    ///
    /// Failures: INVALID, CONFLICT, THROTTLED, CREDENTIALS, UNAVAILABLE, INTERNAL. Deadline 5 min.
    async fn get(&self, call: &Call, request: &GetLoadBalancer)
    -> LoadBalancerResult<LoadBalancer>;

    /// Creates the load balancer, or changes it to match the request. The request is the full
    /// state: a cleared field removes its setting (LB-7). If nothing differs, it writes nothing
    /// (LB-8).
    ///
    /// Failures: all but NOT_FOUND. Deadline 5 min; answer [`Ensured::Pending`] before 80 % of it.
    async fn ensure(
        &self,
        call: &Call,
        request: &EnsureLoadBalancer,
    ) -> LoadBalancerResult<Ensured>;

    /// Sets the targets, and changes nothing else except perhaps the mark (LB-16). If the load
    /// balancer does not exist, return NOT_FOUND (LB-11).
    ///
    /// Failures: all. Deadline 5 min.
    async fn update(
        &self,
        call: &Call,
        request: &UpdateLoadBalancer,
    ) -> LoadBalancerResult<Updated>;

    /// Removes everything that was made for this Service. [`Deleted::Done`] means that the provider
    /// searched the cloud and that nothing is left. If that is uncertain, return a failure (LB-12).
    /// If the load balancer does not exist, return [`Deleted::Done`].
    ///
    /// Failures: all but NOT_FOUND. Deadline 5 min.
    async fn delete(
        &self,
        call: &Call,
        request: &DeleteLoadBalancer,
    ) -> LoadBalancerResult<Deleted>;

    /// The capabilities of this service.
    fn options(&self) -> LoadBalancerOptions {
        LoadBalancerOptions::default()
    }

    /// The listing, if the cloud can list all load balancers.
    fn listing(&self) -> Option<&dyn ListLoadBalancers> {
        None
    }
}

/// Lists all load balancers. It is a separate trait: the provider has the capability `listing` if
/// [`LoadBalancers::listing`] returns `Some`.
#[async_trait]
pub trait ListLoadBalancers: Send + Sync {
    /// All load balancers that are marked for this cluster. The list must be complete; otherwise
    /// return a failure (LB-13). Deadline 5 min.
    async fn list(&self, call: &Call) -> Result<Vec<ListedLoadBalancer>, Failure>;
}

/// The capabilities of the load balancer service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerOptions {
    /// The values of `spec.loadBalancerClass` that this provider serves: at most 64, none twice,
    /// and none of them `default`. Each has 1 to 253 ASCII letters, digits and `._:/@+-`.
    pub classes: Vec<String>,
    /// Whether this provider also serves Services without a class; must be `true` if `classes` is
    /// empty. `true` by default.
    pub default_class: bool,
    /// Whether `get` sets [`LoadBalancer::in_sync`]. If so, a restarted controller calls no Ensure
    /// for a load balancer that is in sync. `false` by default.
    pub in_sync: bool,
    /// Whether this cloud does not use targets. The controller then makes no call when Nodes
    /// change. `false` by default.
    pub ignores_nodes: bool,
    /// Which Nodes can be targets. [`TargetScope::Owned`] by default.
    pub target_scope: TargetScope,
    /// The most targets of one load balancer. `None` or 0: no limit.
    pub max_targets: Option<u32>,
    /// The supported fields of a Service. If a Service uses a further [`ServiceFeature`], the
    /// controller records a Warning event. Empty by default.
    pub features: Vec<ServiceFeature>,
    /// How many calls of this service may run at once; 8 by default.
    pub max_in_flight: u32,
    /// Further fields of a target. If one changes, the controller calls
    /// [`update`](LoadBalancers::update) for every load balancer with that target. Name, UID,
    /// provider ID and addresses always have this effect. The controller sends targets with these
    /// fields and with those of
    /// [`ProviderInfo::node_projection`](crate::ProviderInfo::node_projection). A change of a field
    /// that only `node_projection` names causes a call only if other Nodes become the targets.
    /// Empty by default.
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
    /// Also Nodes that another provider owns, and Nodes that no provider owns. For clouds that send
    /// traffic to plain IP addresses.
    All,
}

/// Fields of a Service that a cloud may support.
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
    /// The Service.
    pub service: Service,
    /// The handle of an earlier answer.
    pub handle: Option<String>,
    /// The wanted targets, which `in_sync` takes into account. `None` if they do not matter.
    pub targets: Option<Vec<Node>>,
}

/// Request of [`LoadBalancers::ensure`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EnsureLoadBalancer {
    /// The Service.
    pub service: Service,
    /// The handle of an earlier answer.
    pub handle: Option<String>,
    /// The targets, in the order of their names. `None` leaves the targets as they are. Empty means
    /// none (LB-10).
    pub targets: Option<Vec<Node>>,
    /// Whether the operator allows the provider to adopt an unmarked load balancer whose native
    /// name, tag, handle or status address matches. The provider must then mark it (LB-9).
    pub adopt_unmarked: bool,
}

/// Request of [`LoadBalancers::update`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UpdateLoadBalancer {
    /// The Service.
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
    /// The Service, as the controller last saw it. For an orphaned load balancer of a listing it
    /// has only namespace, name, UID, type and, if the listing gave a handle, the annotation with
    /// the handle.
    pub service: Service,
    /// The handle of an earlier answer.
    pub handle: Option<String>,
    /// Whether the operator allows the provider to delete an unmarked load balancer with the native
    /// name or a tag of this Service (LB-26). If not, the answer about such a load balancer is
    /// CONFLICT or [`Deleted::Retained`] (LB-24), never [`Deleted::Done`].
    pub adopt_unmarked: bool,
}
