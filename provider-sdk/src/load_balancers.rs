//! Load balancers for Services of `type: LoadBalancer` (`load_balancer.proto`; Go's LoadBalancer).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::{Call, Failure, Node, Ownership, Pending};

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
}

/// A Service, with every field that concerns a load balancer. Absent and empty fields are as in the Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Service {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; never empty.
    pub uid: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`, without `kubectl.kubernetes.io/last-applied-configuration`.
    pub annotations: BTreeMap<String, String>,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// `metadata.creationTimestamp`.
    pub created: Option<SystemTime>,
    /// `metadata.deletionTimestamp`; `None` while the Service is not being deleted.
    pub deleted: Option<SystemTime>,
    /// `spec.type`, for example `LoadBalancer`.
    pub service_type: String,
    /// `spec.loadBalancerClass`.
    pub load_balancer_class: Option<String>,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
    /// `spec.clusterIPs`.
    pub cluster_ips: Vec<String>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<String>,
    /// `spec.loadBalancerIP`.
    pub load_balancer_ip: Option<String>,
    /// `spec.loadBalancerSourceRanges`: CIDRs that may reach the load balancer; empty is everybody.
    pub source_ranges: Vec<String>,
    /// `spec.sessionAffinity`: `None` or `ClientIP`.
    pub session_affinity: String,
    /// `spec.sessionAffinityConfig.clientIP.timeoutSeconds`.
    pub session_affinity_timeout: Option<Duration>,
    /// `spec.externalTrafficPolicy`: `Cluster` or `Local`.
    pub external_traffic_policy: String,
    /// `spec.internalTrafficPolicy`.
    pub internal_traffic_policy: Option<String>,
    /// `spec.healthCheckNodePort`; with `Local`.
    pub health_check_node_port: Option<i32>,
    /// `spec.ipFamilies`: `IPv4`, `IPv6`, in order of preference.
    pub ip_families: Vec<String>,
    /// `spec.ipFamilyPolicy`: `SingleStack`, `PreferDualStack` or `RequireDualStack`.
    pub ip_family_policy: Option<String>,
    /// `spec.allocateLoadBalancerNodePorts`; `None` is true.
    pub allocate_node_ports: Option<bool>,
    /// `spec.publishNotReadyAddresses`.
    pub publish_not_ready_addresses: bool,
    /// `status.loadBalancer`.
    pub status: LoadBalancerStatus,
}

impl Service {
    /// A Service of type `LoadBalancer` with nothing but namespace, name and UID, for tests.
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        uid: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
            service_type: "LoadBalancer".into(),
            ..Self::default()
        }
    }
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServicePort {
    /// `name`; empty where it has none.
    pub name: String,
    /// `protocol`: `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// `appProtocol`.
    pub app_protocol: Option<String>,
    /// `port`: what the load balancer listens on, 1..65535.
    pub port: i32,
    /// `targetPort`, a number or a name, as text; empty where it has none.
    pub target_port: String,
    /// `nodePort`: where the Nodes listen; `None` where none is allocated.
    pub node_port: Option<i32>,
}

/// Where a load balancer can be reached: `status.loadBalancer` of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadBalancerStatus {
    /// The points where it can be reached.
    pub ingress: Vec<Ingress>,
}

impl LoadBalancerStatus {
    /// Reached at these addresses.
    pub fn ips<T: Into<String>>(addresses: impl IntoIterator<Item = T>) -> Self {
        Self {
            ingress: addresses.into_iter().map(Ingress::ip).collect(),
        }
    }

    /// Reached at this host name.
    pub fn hostname(name: impl Into<String>) -> Self {
        Self {
            ingress: vec![Ingress::hostname(name)],
        }
    }
}

/// One point where a load balancer can be reached; at least one of `ip` and `hostname` is set, `ip` parses as an address, `hostname` has at most 253 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ingress {
    /// An IPv4 or IPv6 address.
    pub ip: Option<String>,
    /// A DNS name.
    pub hostname: Option<String>,
    /// How traffic to `ip` arrives at the Nodes (KEP-1860); `None` is VIP.
    pub ip_mode: Option<IpMode>,
    /// The ports, and what is wrong with them.
    pub ports: Vec<PortStatus>,
}

impl Ingress {
    /// Reached at this address.
    pub fn ip(address: impl Into<String>) -> Self {
        Self {
            ip: Some(address.into()),
            ..Self::default()
        }
    }

    /// Reached at this host name.
    pub fn hostname(name: impl Into<String>) -> Self {
        Self {
            hostname: Some(name.into()),
            ..Self::default()
        }
    }
}

/// How traffic to an address of a load balancer arrives at the Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpMode {
    /// With the load balancer's address as its destination: Nodes may short-cut it.
    Vip,
    /// With a Node's or Pod's address as its destination: Nodes must not short-cut it.
    Proxy,
}

/// A port of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortStatus {
    /// The port.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// What is wrong with it: CamelCase, or `domain/CamelCase`; `None` when nothing is.
    pub error: Option<String>,
}

/// An answer about a load balancer, with what else is to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    /// The outcome.
    pub outcome: T,
    /// What else is to be said.
    pub notes: Box<Notes>,
}

/// What may stand beside every outcome, also beside a failure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notes {
    /// The cloud's own ID of what was made: opaque, 1 to 1,024 bytes. Return it as soon as the cloud knows it, also with a pending or failed answer; the controller stores it before
    /// its next call and sends it back ever after. `None` means: as it was (LB-3).
    pub handle: Option<String>,
    /// What the user of the Service should read.
    pub events: Vec<Event>,
    /// Annotations to set on the Service; only keys with a prefix that the operator granted are applied.
    pub set_annotations: BTreeMap<String, String>,
    /// Keys of annotations to remove from the Service.
    pub remove_annotations: Vec<String>,
    /// Targets that could not be attached, by the Node's name. They never fail the rest; the controller repeats the call with backoff.
    pub target_errors: BTreeMap<String, Failure>,
}

impl<T> From<T> for Answer<T> {
    fn from(outcome: T) -> Self {
        Self {
            outcome,
            notes: Box::default(),
        }
    }
}

impl<T> Answer<T> {
    /// Carries the handle; see [`Notes::handle`].
    #[must_use]
    pub fn with_handle(mut self, handle: impl Into<String>) -> Self {
        self.notes.handle = Some(handle.into());
        self
    }

    /// Carries an event.
    #[must_use]
    pub fn with_event(mut self, event: Event) -> Self {
        self.notes.events.push(event);
        self
    }

    /// Sets an annotation on the Service.
    #[must_use]
    pub fn with_annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.notes.set_annotations.insert(key.into(), value.into());
        self
    }

    /// Removes an annotation from the Service.
    #[must_use]
    pub fn without_annotation(mut self, key: impl Into<String>) -> Self {
        self.notes.remove_annotations.push(key.into());
        self
    }

    /// Says that this Node could not be attached.
    #[must_use]
    pub fn with_target_error(mut self, node_name: impl Into<String>, failure: Failure) -> Self {
        self.notes.target_errors.insert(node_name.into(), failure);
        self
    }
}

/// Something that the user of the Service should read; recorded as an event on the Service. Reason and message are at most 1,024 bytes; cut beyond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// A Warning, else Normal.
    pub warning: bool,
    /// CamelCase, one word.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

impl Event {
    /// An event of type Normal.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            warning: false,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// An event of type Warning.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            warning: true,
            reason: reason.into(),
            message: message.into(),
        }
    }
}

/// A load balancer as the cloud has it. Made by one of its constructors.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadBalancer {
    /// Whether there is one.
    pub presence: Presence,
    /// Whose it is; `None` only when absent.
    pub ownership: Option<Ownership>,
    /// Its name in the cloud, for people. At most 253 bytes.
    pub name: String,
    /// Where it can be reached.
    pub status: Option<LoadBalancerStatus>,
    /// Whether ensure with the same service, targets and handle would write nothing and answer ready (LB-14); with [`LoadBalancerOptions::in_sync`].
    pub in_sync: Option<bool>,
}

/// Whether there is a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Presence {
    /// There is nothing.
    Absent,
    /// There is one.
    Present,
    /// Parts are left that delete would remove.
    Remnants,
}

impl LoadBalancer {
    /// There is nothing.
    pub fn absent() -> Self {
        Self {
            presence: Presence::Absent,
            ownership: None,
            name: String::new(),
            status: None,
            in_sync: None,
        }
    }

    /// There is one.
    pub fn present(
        ownership: Ownership,
        name: impl Into<String>,
        status: LoadBalancerStatus,
    ) -> Self {
        Self {
            presence: Presence::Present,
            ownership: Some(ownership),
            name: name.into(),
            status: Some(status),
            in_sync: None,
        }
    }

    /// Parts are left that delete would remove.
    pub fn remnants(ownership: Ownership, name: impl Into<String>) -> Self {
        Self {
            presence: Presence::Remnants,
            ownership: Some(ownership),
            name: name.into(),
            status: None,
            in_sync: None,
        }
    }

    /// Says whether it is as asked; see [`LoadBalancer::in_sync`].
    #[must_use]
    pub fn in_sync(mut self, in_sync: bool) -> Self {
        self.in_sync = Some(in_sync);
        self
    }
}

/// What came of ensure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ensured {
    /// It is as asked; the status becomes the Service's.
    Ready(LoadBalancerStatus),
    /// It is being made.
    Pending(Pending),
    /// Another component takes care of this Service (Go's `ImplementedElsewhere`).
    HandledElsewhere,
}

/// What came of update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Updated {
    /// The targets are as asked.
    Done,
    /// It is being done.
    Pending(Pending),
    /// Another component takes care of this Service.
    HandledElsewhere,
}

/// What came of delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deleted {
    /// Nothing is left, and it was looked for (LB-12).
    Done,
    /// It is being done.
    Pending(Pending),
    /// It is kept on purpose: Warning event, and the Service may go.
    Retained {
        /// Why, for people. At most 1,024 bytes; cut beyond.
        reason: String,
    },
    /// Another component takes care of this Service.
    HandledElsewhere,
}

/// A load balancer that is marked for this cluster. Limits: name 253 bytes, handle 1,024 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedLoadBalancer {
    /// Its name in the cloud.
    pub name: String,
    /// See [`Notes::handle`].
    pub handle: Option<String>,
    /// The Services that it, or a part of it, is marked for.
    pub owners: Vec<ServiceRef>,
}

/// Names a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServiceRef {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
}
