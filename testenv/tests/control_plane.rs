//! The control plane behaves as a real one towards its clients.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use testenv::{
    ControlPlane, Options, User, eventually,
    objects::{LoadBalancerBuilder, NodeBuilder, UNINITIALIZED, set_ready},
};

const SOON: Duration = Duration::from_secs(10);

fn ready_of(node: &Node) -> Option<&str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")?;
    Some(&ready.status)
}

#[tokio::test]
async fn a_node_keeps_the_status_it_is_created_with() {
    let control_plane = ControlPlane::shared().await;
    let client = control_plane.client();
    let nodes = Api::<Node>::all(client.clone());

    let node = NodeBuilder::new("keeps-status")
        .uninitialized()
        .provider_id("mock://keeps-status")
        .address("InternalIP", "10.1.2.3")
        .build();
    nodes.create(&PostParams::default(), &node).await.unwrap();

    let node = nodes.get("keeps-status").await.unwrap();
    assert_eq!(ready_of(&node), Some("True"));
    let taints = node.spec.as_ref().unwrap().taints.as_ref().unwrap();
    assert_eq!(taints.len(), 1, "{taints:?}");
    assert_eq!(taints[0].key, UNINITIALIZED);

    let node = set_ready(&client, "keeps-status", "Unknown").await.unwrap();
    assert_eq!(ready_of(&node), Some("Unknown"));
    assert_eq!(node.status.unwrap().addresses.unwrap().len(), 1);
}

#[tokio::test]
async fn a_load_balancer_service_is_taken() {
    let control_plane = ControlPlane::shared().await;
    let services = Api::<Service>::namespaced(control_plane.client(), "default");
    let service = LoadBalancerBuilder::new("default", "taken")
        .external_traffic_policy("Local")
        .build();
    let service = services
        .create(&PostParams::default(), &service)
        .await
        .unwrap();
    let spec = service.spec.unwrap();
    assert!(spec.ports.unwrap()[0].node_port.is_some());
    assert!(spec.health_check_node_port.is_some());
}

#[tokio::test]
async fn rbac_decides_for_everyone_but_the_admin() {
    let control_plane = ControlPlane::shared().await;
    for user in [User::Ccm, User::Nobody] {
        let nodes = Api::<Node>::all(control_plane.client_for(user));
        let error = nodes.list(&ListParams::default()).await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("forbidden") && text.contains(user.name()),
            "{text}"
        );
    }
}

#[tokio::test]
async fn kubectl_works() {
    let control_plane = ControlPlane::shared().await;
    let nodes = Api::<Node>::all(control_plane.client());
    let node = NodeBuilder::new("seen-by-kubectl").build();
    nodes.create(&PostParams::default(), &node).await.unwrap();

    let output = control_plane
        .kubectl()
        .args(["get", "nodes"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .find(|line| line.starts_with("seen-by-kubectl"));
    assert!(
        line.is_some_and(|line| line.contains("Ready")),
        "{output:?}"
    );
}

#[tokio::test]
async fn each_start_is_a_cluster_of_its_own() {
    let (one, two) = tokio::join!(ControlPlane::start(), ControlPlane::start());
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.url(), two.url());

    let node = NodeBuilder::new("only-in-one").build();
    let nodes = Api::<Node>::all(one.client());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let found = Api::<Node>::all(two.client()).get_opt("only-in-one").await;
    assert!(found.unwrap().is_none());

    let directory = one.directory().to_owned();
    drop(one);
    assert!(!directory.exists());
}

#[tokio::test]
async fn killed_and_back_it_has_its_data_and_its_address() {
    let mut control_plane = ControlPlane::start().await.unwrap();
    let nodes = Api::<Node>::all(control_plane.client());
    let node = NodeBuilder::new("survives").build();
    nodes.create(&PostParams::default(), &node).await.unwrap();

    control_plane.kill_api_server();
    assert!(nodes.get("survives").await.is_err());
    assert!(control_plane.api_server().is_none());

    control_plane.start_api_server().await.unwrap();
    // The same client: same address, same certificate.
    nodes.get("survives").await.unwrap();
    assert!(control_plane.api_server().unwrap().resident_bytes() > 50 << 20);
}

#[tokio::test]
async fn suspended_it_answers_nothing_and_resumed_it_goes_on() {
    let mut control_plane = ControlPlane::start().await.unwrap();
    let nodes = Api::<Node>::all(control_plane.client());
    let node = NodeBuilder::new("waits").build();
    nodes.create(&PostParams::default(), &node).await.unwrap();

    control_plane.suspend_api_server();
    let answer = tokio::time::timeout(Duration::from_millis(300), nodes.get("waits")).await;
    assert!(answer.is_err(), "{answer:?}");

    control_plane.resume_api_server();
    eventually("the node is there again", SOON, async || {
        nodes.get("waits").await
    })
    .await;
}

#[tokio::test]
async fn the_audit_log_tells_who_wrote_what() {
    let options = Options {
        audit: true,
        ..Options::default()
    };
    let control_plane = ControlPlane::start_with(options).await.unwrap();
    let nodes = Api::<Node>::all(control_plane.client());
    let node = NodeBuilder::new("audited").build();
    nodes.create(&PostParams::default(), &node).await.unwrap();

    let path = control_plane.audit_log().unwrap();
    eventually("the creation is in the audit log", SOON, async || {
        let log = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        log.lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .find(|event| event["verb"] == "create" && event["objectRef"]["name"] == "audited")
            .map(|event| assert_eq!(event["user"]["username"], "admin"))
            .ok_or(format!("{} lines, none of them", log.lines().count()))
    })
    .await;
}

#[tokio::test]
async fn a_start_that_fails_tells_the_end_of_the_log() {
    let options = Options {
        api_server_flags: vec!["--no-such-flag".into()],
        ..Options::default()
    };
    let error = ControlPlane::start_with(options).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("kube-apiserver ended"), "{text}");
    assert!(text.contains("unknown flag: --no-such-flag"), "{text}");
}
