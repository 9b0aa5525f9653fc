//! Upstream's Go cloud-controller-manager runs against the control plane. The benchmarks compare
//! the ccm with it.

use std::{fs, time::Duration};

use k8s_openapi::api::core::v1::{Node, Service};
use kube::{Api, api::PostParams};
use testenv::{
    ControlPlane, Process, User, eventually,
    objects::{LoadBalancerBuilder, NodeBuilder},
};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn it_initialises_a_node_and_counts_its_calls() {
    let control_plane = ControlPlane::start().await.unwrap();
    let nodes = Api::<Node>::all(control_plane.client());
    let services = Api::<Service>::namespaced(control_plane.client(), "default");
    let node = NodeBuilder::new("joins").uninitialized().build();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let service = LoadBalancerBuilder::new("default", "web").build();
    services
        .create(&PostParams::default(), &service)
        .await
        .unwrap();

    let calls = control_plane.directory().join("calls.json");
    let mut command = control_plane.command("go-ccm");
    command
        .arg("--kubeconfig")
        .arg(control_plane.kubeconfig(User::Admin))
        .args([
            "--cloud-provider=bench",
            "--leader-elect=false",
            "--authentication-skip-lookup=true",
            "--controllers=cloud-node-controller,cloud-node-lifecycle-controller,service-lb-controller",
            "--secure-port=0",
        ])
        .env("GO_CCM_LATENCY", "1ms")
        .env("GO_CCM_CALLS", &calls);
    let mut ccm = Process::start(command, control_plane.directory().join("go-ccm.log")).unwrap();

    eventually("the node is initialised", SOON, async || {
        let node = nodes
            .get("joins")
            .await
            .map_err(|error| error.to_string())?;
        let spec = node.spec.unwrap_or_default();
        if spec.provider_id.as_deref() == Some("bench://joins") && spec.taints.is_none() {
            Ok(())
        } else {
            Err(format!("{spec:?}\n{}", ccm.log()))
        }
    })
    .await;
    eventually("the Service has an address", SOON, async || {
        let service = services
            .get("web")
            .await
            .map_err(|error| error.to_string())?;
        let status = service.status.and_then(|status| status.load_balancer);
        let ingress = status.and_then(|status| status.ingress).unwrap_or_default();
        let address = ingress.first().and_then(|ingress| ingress.ip.clone());
        address.ok_or_else(|| ccm.log())
    })
    .await;

    ccm.terminate();
    ccm.wait(SOON).await.unwrap();
    let counted: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&calls).unwrap()).unwrap();
    assert!(counted["InstanceMetadata"].as_u64() >= Some(1), "{counted}");
    assert_eq!(counted["EnsureLoadBalancer"], 1, "{counted}");
}
