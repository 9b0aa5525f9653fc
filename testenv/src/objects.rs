//! Builds Nodes and Services for tests. They have only the fields that controllers need; further
//! methods add others.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, Service, ServicePort, ServiceSpec,
        Taint,
    },
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, Time},
        util::intstr::IntOrString,
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

/// The taint of a node that no cloud-controller-manager has initialised yet.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Builds a [`Node`]: Ready, and nothing else by default.
#[derive(Debug, Clone)]
#[must_use]
pub struct NodeBuilder(Node);

impl NodeBuilder {
    /// A Ready node. The API server keeps a status that a Node is created with.
    pub fn new(name: impl Into<String>) -> Self {
        Self(Node {
            metadata: ObjectMeta {
                name: Some(name.into()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec::default()),
            status: Some(NodeStatus {
                conditions: Some(vec![ready_condition("True")]),
                ..NodeStatus::default()
            }),
        })
    }

    /// With the taint [`UNINITIALIZED`], as a kubelet with `--cloud-provider=external` registers.
    pub fn uninitialized(self) -> Self {
        self.taint(UNINITIALIZED, "true", "NoSchedule")
    }

    /// With a taint.
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        let taint = Taint {
            key: key.to_owned(),
            value: (!value.is_empty()).then(|| value.to_owned()),
            effect: effect.to_owned(),
            time_added: None,
        };
        self.spec().taints.get_or_insert_default().push(taint);
        self
    }

    /// With `spec.providerID`.
    pub fn provider_id(mut self, id: impl Into<String>) -> Self {
        self.spec().provider_id = Some(id.into());
        self
    }

    /// With `spec.podCIDRs`, and the first as `spec.podCIDR`.
    pub fn pod_cidrs(mut self, cidrs: &[&str]) -> Self {
        self.spec().pod_cidr = cidrs.first().map(|&cidr| cidr.to_owned());
        self.spec().pod_cidrs = Some(cidrs.iter().map(|&cidr| cidr.to_owned()).collect());
        self
    }

    /// With this status of the Ready condition: `True`, `False` or `Unknown`.
    pub fn ready(mut self, status: &str) -> Self {
        self.status().conditions = Some(vec![ready_condition(status)]);
        self
    }

    /// Removes all conditions, as if the kubelet never reported.
    pub fn never_reported(mut self) -> Self {
        self.status().conditions = None;
        self
    }

    /// Adds an address, such as `("InternalIP", "10.0.0.1")`.
    pub fn address(mut self, kind: &str, address: &str) -> Self {
        let address = NodeAddress {
            type_: kind.to_owned(),
            address: address.to_owned(),
        };
        self.status()
            .addresses
            .get_or_insert_default()
            .push(address);
        self
    }

    /// With a label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        insert(&mut self.0.metadata.labels, key, value);
        self
    }

    /// With an annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        insert(&mut self.0.metadata.annotations, key, value);
        self
    }

    /// The node.
    pub fn build(self) -> Node {
        self.0
    }

    fn spec(&mut self) -> &mut NodeSpec {
        self.0.spec.get_or_insert_default()
    }

    fn status(&mut self) -> &mut NodeStatus {
        self.0.status.get_or_insert_default()
    }
}

/// Builds a [`Service`] of type LoadBalancer, with TCP port 80 by default.
#[derive(Debug, Clone)]
#[must_use]
pub struct LoadBalancerBuilder(Service);

impl LoadBalancerBuilder {
    /// A Service of type LoadBalancer in a namespace that exists, such as `default`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        let name = name.into();
        Self(Service {
            metadata: ObjectMeta {
                namespace: Some(namespace.into()),
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(ServiceSpec {
                type_: Some("LoadBalancer".into()),
                selector: Some(BTreeMap::from([("app".into(), name)])),
                ports: Some(vec![port("http", 80, "TCP")]),
                ..ServiceSpec::default()
            }),
            status: None,
        })
    }

    /// With another number of its first port.
    pub fn listens_on(mut self, number: u16) -> Self {
        if let Some(first) = self.spec().ports.get_or_insert_default().first_mut() {
            first.port = number.into();
        }
        self
    }

    /// With one more port.
    pub fn port(mut self, name: &str, number: u16, protocol: &str) -> Self {
        let port = port(name, number, protocol);
        self.spec().ports.get_or_insert_default().push(port);
        self
    }

    /// With `spec.loadBalancerClass`.
    pub fn class(mut self, class: &str) -> Self {
        self.spec().load_balancer_class = Some(class.to_owned());
        self
    }

    /// With `spec.externalTrafficPolicy`: `Cluster` or `Local`.
    pub fn external_traffic_policy(mut self, policy: &str) -> Self {
        self.spec().external_traffic_policy = Some(policy.to_owned());
        self
    }

    /// With a label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        insert(&mut self.0.metadata.labels, key, value);
        self
    }

    /// With an annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        insert(&mut self.0.metadata.annotations, key, value);
        self
    }

    /// The Service.
    pub fn build(self) -> Service {
        self.0
    }

    fn spec(&mut self) -> &mut ServiceSpec {
        self.0.spec.get_or_insert_default()
    }
}

/// Whether the Node has a taint with this key.
pub fn is_tainted(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    taints.unwrap_or_default().iter().any(|it| it.key == key)
}

/// The first address or host name that the Service shows for its load balancer.
pub fn ingress(service: &Service) -> Option<String> {
    let status = service.status.as_ref()?.load_balancer.as_ref()?;
    let point = status.ingress.as_ref()?.first()?;
    point.ip.clone().or_else(|| point.hostname.clone())
}

/// The value of the Service's annotation.
pub fn annotation(service: &Service, key: &str) -> Option<String> {
    service.metadata.annotations.as_ref()?.get(key).cloned()
}

/// Sets the Ready condition of a node: `True`, `False` or `Unknown`, changed now.
pub async fn set_ready(client: &Client, node: &str, status: &str) -> kube::Result<Node> {
    let patch = json!({ "status": { "conditions": [ready_condition(status)] } });
    Api::<Node>::all(client.clone())
        .patch_status(node, &PatchParams::default(), &Patch::Strategic(patch))
        .await
}

fn ready_condition(status: &str) -> NodeCondition {
    let now = Time(Timestamp::now());
    NodeCondition {
        type_: "Ready".into(),
        status: status.to_owned(),
        reason: Some("Testenv".into()),
        last_heartbeat_time: Some(now.clone()),
        last_transition_time: Some(now),
        ..NodeCondition::default()
    }
}

fn port(name: &str, number: u16, protocol: &str) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: number.into(),
        protocol: Some(protocol.to_owned()),
        target_port: Some(IntOrString::Int(8080)),
        ..ServicePort::default()
    }
}

fn insert(map: &mut Option<BTreeMap<String, String>>, key: &str, value: &str) {
    map.get_or_insert_default()
        .insert(key.to_owned(), value.to_owned());
}
