//! A Service as the provider sees it, and the addresses of its load balancer.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// A Service with the fields that concern a load balancer. Unless a comment says otherwise,
/// absent and empty fields are as in the Kubernetes API.
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
    /// `spec.loadBalancerSourceRanges`: CIDRs that may reach the load balancer. Empty means all. If
    /// that field is empty, these are the CIDRs of the annotation
    /// `service.beta.kubernetes.io/load-balancer-source-ranges`.
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
    /// A Service of type `LoadBalancer` with only namespace, name and UID, for tests.
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
    /// `name`; empty if it has none.
    pub name: String,
    /// `protocol`: `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// `appProtocol`.
    pub app_protocol: Option<String>,
    /// `port`: the load balancer's port, 1..65535.
    pub port: i32,
    /// `targetPort`, a number or a name, as text; empty if it has none.
    pub target_port: String,
    /// `nodePort`: the port on the Nodes. `None` if none is allocated.
    pub node_port: Option<i32>,
}

/// The addresses of a load balancer: `status.loadBalancer` of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadBalancerStatus {
    /// The entries, each with an address, a host name or both.
    pub ingress: Vec<Ingress>,
}

impl LoadBalancerStatus {
    /// A status with these addresses.
    pub fn ips<T: Into<String>>(addresses: impl IntoIterator<Item = T>) -> Self {
        Self {
            ingress: addresses.into_iter().map(Ingress::ip).collect(),
        }
    }

    /// A status with this host name.
    pub fn hostname(name: impl Into<String>) -> Self {
        Self {
            ingress: vec![Ingress::hostname(name)],
        }
    }
}

/// One address of a load balancer. At least one of `ip` and `hostname` is set. `ip` parses as an
/// address, and `hostname` is a DNS name in lower case of at most 253 bytes (LB-19).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ingress {
    /// An IPv4 or IPv6 address.
    pub ip: Option<String>,
    /// A DNS name.
    pub hostname: Option<String>,
    /// How traffic to `ip` arrives at the Nodes (KEP-1860); `None` is VIP.
    pub ip_mode: Option<IpMode>,
    /// The ports, with their errors.
    pub ports: Vec<PortStatus>,
}

impl Ingress {
    /// An entry with this address.
    pub fn ip(address: impl Into<String>) -> Self {
        Self {
            ip: Some(address.into()),
            ..Self::default()
        }
    }

    /// An entry with this host name.
    pub fn hostname(name: impl Into<String>) -> Self {
        Self {
            hostname: Some(name.into()),
            ..Self::default()
        }
    }
}

/// The destination address that traffic to a load balancer has when it arrives at the Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpMode {
    /// The load balancer's address. Nodes may bypass the load balancer.
    Vip,
    /// A Node's or Pod's address. Nodes must not bypass the load balancer.
    Proxy,
}

/// A port of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortStatus {
    /// The port.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The error of the port: CamelCase, or `domain/CamelCase`. `None`: no error.
    pub error: Option<String>,
}
