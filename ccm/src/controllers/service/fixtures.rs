//! Objects for the tests of this controller.

use k8s_openapi::api::core::v1::{Node, NodeSpec, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::controller::Failed;
use crate::provider::CallError;

/// The reaction to a failure, without the driver's memory of failures.
pub(super) fn reaction(trouble: &CallError) -> Failed {
    let reaction = trouble.reaction(0);
    Failed {
        retry: reaction.retry,
        event: reaction.event,
        warn: false,
    }
}

/// A Service `default/web` of `type: LoadBalancer` with one port, as the API server shows it.
pub(super) fn service() -> Service {
    Service {
        metadata: ObjectMeta {
            name: Some("web".into()),
            namespace: Some("default".into()),
            uid: Some("uid-1".into()),
            resource_version: Some("10".into()),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            type_: Some("LoadBalancer".into()),
            ports: Some(vec![ServicePort {
                port: 80,
                node_port: Some(30_080),
                protocol: Some("TCP".into()),
                ..ServicePort::default()
            }]),
            ip_families: Some(vec!["IPv4".into()]),
            session_affinity: Some("None".into()),
            external_traffic_policy: Some("Cluster".into()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// A Node with a provider ID.
pub(super) fn node(name: &str) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(format!("uid-{name}")),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(format!("mock://{name}")),
            ..NodeSpec::default()
        }),
        status: None,
    }
}
