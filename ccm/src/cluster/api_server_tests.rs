//! The watch against a real API server that is killed meanwhile.

use std::time::Duration;

use clap::Parser as _;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use testenv::objects::NodeBuilder;
use testenv::{ControlPlane, eventually};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Cluster;
use crate::args::Args;
use crate::core::Key;

const DEADLINE: Duration = Duration::from_secs(90);

#[tokio::test]
async fn b_m8_the_stores_follow_the_api_server_through_its_restart() {
    let mut control_plane = ControlPlane::start().await.unwrap();
    let nodes = Api::<Node>::all(control_plane.client());
    let create = PostParams::default();
    let delete = DeleteParams::default();
    for name in ["a", "b"] {
        nodes
            .create(&create, &NodeBuilder::new(name).build())
            .await
            .unwrap();
    }
    let config = Args::try_parse_from(["ccm"])
        .unwrap()
        .into_config()
        .unwrap();
    let mut tasks = JoinSet::new();
    let cluster = Cluster::start(&control_plane.client(), 1, &config, &mut tasks);
    timeout(DEADLINE, cluster.synced()).await.unwrap();
    let kubernetes = Key {
        namespace: "default".to_owned(),
        name: "kubernetes".to_owned(),
    };
    let ranges = eventually("the Service range is there", DEADLINE, async || {
        cluster.service_ranges().filter(|ranges| !ranges.is_empty())
    });
    assert_eq!(ranges.await, ["10.0.0.0/16".parse().unwrap()]);
    // The API server is ready a moment before it creates this Service.
    eventually("the Service is there", DEADLINE, async || {
        cluster.services.get(&kubernetes)
    })
    .await;
    let mut changes = cluster.nodes.subscribe();
    assert_eq!(changes.unread().len(), 2);
    let node = cluster.nodes.get(&Key::node("a")).unwrap();
    assert_eq!(node.metadata.managed_fields, None);

    nodes
        .create(&create, &NodeBuilder::new("c").build())
        .await
        .unwrap();
    let change = timeout(DEADLINE, changes.next()).await.unwrap();
    assert!(change[0].old.is_none() && change[0].new.is_some());

    control_plane.kill_api_server();
    control_plane.start_api_server().await.unwrap();
    let nodes = Api::<Node>::all(control_plane.client());
    nodes.delete("b", &delete).await.unwrap();
    let change = timeout(DEADLINE, changes.next()).await.unwrap();
    assert!(change[0].old.is_some() && change[0].new.is_none());
    assert_eq!(cluster.nodes.len(), 2);
    assert_eq!(cluster.nodes.trouble(), None);
}
