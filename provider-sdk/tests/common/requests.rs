//! Requests, and messages in requests.

use std::collections::BTreeMap;

use cloud_provider_api::v1alpha1 as pb;

#[allow(clippy::unnecessary_wraps, reason = "a message field is optional")]
pub(crate) fn cluster() -> Option<pb::ClusterRef> {
    named_cluster("test")
}

#[allow(clippy::unnecessary_wraps, reason = "a message field is optional")]
pub(crate) fn named_cluster(name: &str) -> Option<pb::ClusterRef> {
    Some(pb::ClusterRef {
        name: name.into(),
        owner_id: "owner-1".into(),
    })
}

pub(crate) fn node(name: &str) -> pb::NodeView {
    pb::NodeView {
        name: name.into(),
        uid: format!("uid-{name}"),
        labels: BTreeMap::new(),
        ..Default::default()
    }
}

pub(crate) fn ensure(name: &str) -> pb::EnsureLoadBalancerRequest {
    pb::EnsureLoadBalancerRequest {
        cluster: cluster(),
        service: Some(pb::ServiceView {
            namespace: "default".into(),
            name: name.into(),
            uid: format!("uid-{name}"),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(crate) fn code(failure: Option<&pb::Failure>) -> pb::FailureCode {
    failure.expect("a failure").code()
}
