//! A cluster whose first Node belongs to its control plane. First a DaemonSet runs the ccm there,
//! with the provider as a native sidecar that the kubelet probes. Then a Deployment replaces it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use testenv::{Cluster, Machine, eventually};

use crate::before::Before;
use crate::images::Image;
use crate::inside::{Inside, assert_each_sees_its_own};
use crate::release::{self, CREDENTIAL, VERSION, helm};
use crate::world::{
    NAME, NAMESPACE, PATIENCE, World, container, id, is_initialised, restarts, sidecars,
};

const LABEL: &str = "node-role.kubernetes.io/control-plane";
/// The ccm's HTTPS port.
const PORT: u16 = 10258;

/// `node-a` is the control plane's, `node-b` is not. At the end the DaemonSet's ccm leads.
pub async fn installed(world: &mut World) {
    world.report.start();
    world.boot("node-a").await;
    world
        .report
        .lap("machine switched on, images imported, Node registered");
    // As kubeadm sets up control planes.
    world.kubectl(&["label", "node", "node-a", &format!("{LABEL}=")]);
    world.kubectl(&["taint", "node", "node-a", &format!("{LABEL}=:NoSchedule")]);
    release::create_secret(world);
    let api_server = Cluster::api_server();
    let values = release::daemon_set(&api_server.ip().to_string(), api_server.port());
    world.report.start();
    helm(world, "install", &values);
    let initialised = world.node_becomes("node-a", "it is initialised", is_initialised);
    initialised.await;
    world
        .report
        .lap("helm install of the DaemonSet with a native sidecar to the Node initialised");
    let pod = the_pod(world).await;
    world.report.lap("from there to the Pod ready");

    assert_eq!(sidecars(&pod), 1);
    let (ccm, provider) = (Inside::of(&pod, "ccm"), Inside::of(&pod, "provider"));
    assert!(
        provider.began() < ccm.began(),
        "the ccm waits for the provider"
    );
    let log = world.logs(&pod.name_any(), "ccm");
    assert!(
        !log.contains("provider is not available"),
        "it served when the ccm came: {log}"
    );
    assert_each_sees_its_own(&pod, CREDENTIAL);
    assert_eq!(ccm.connected_to(PORT), BTreeSet::from([api_server]));
    assert!(
        log.contains(&format!("version={VERSION:?}")),
        "the provider's user reads its Secret: {log}"
    );

    world.expose("web").await;
    world.gets_address("web").await;
    world.report.lap("Service to its address");
    hung(world).await;

    let writes = world.cloud.writes();
    world.report.start();
    world.boot("node-b").await;
    world
        .report
        .lap("second machine on, Node registered, which is not of the control plane");
    let initialised = world.node_becomes("node-b", "it is initialised", is_initialised);
    initialised.await;
    world.report.lap("from there to the Node initialised");
    let now = the_pod(world).await;
    assert_eq!(now.uid(), pod.uid(), "none is on the other Node");
    let both = ["node-a", "node-b"];
    eventually("web leads to both Nodes", PATIENCE, async || {
        let targets = world.cloud.targets("web");
        // The mock notes a write after it has stored the state.
        let noted = world.cloud.writes() > writes;
        let done = targets == both && noted;
        done.then_some(()).ok_or(targets.join(", "))
    })
    .await;
    world
        .report
        .lap("from there to the Service's load balancer that leads to it");
}

async fn the_pod(world: &World) -> Pod {
    let (ccm, provider) = (Image::Ccm.reference(), Image::Mock.reference());
    world.ready(1, &ccm, &provider).await.remove(0)
}

/// The provider stops answering. Its probe fails, and only its container is restarted.
async fn hung(world: &mut World) {
    let before = the_pod(world).await;
    let untouched = Before::of(world).await;
    world.report.start();
    assert!(Machine::hang(&id(&before, "provider")) > 0);
    let pod = before.name_any();
    world
        .said_times(&pod, "ccm", "initialised the provider", 2)
        .await;
    world
        .report
        .lap("provider stopped (SIGSTOP) to the ccm leading with the restarted provider");
    world.restarted(&before, "provider").await;
    let after = the_pod(world).await;
    assert_eq!(after.uid(), before.uid());
    assert_eq!(restarts(&after, "provider"), 1);
    assert_eq!(id(&after, "ccm"), id(&before, "ccm"), "the ccm goes on");
    let events = world.kubectl(&[
        "get",
        "events",
        &format!("--field-selector=involvedObject.name={pod},reason=Unhealthy"),
        "--output=jsonpath={range .items[*]}{.message}{\"\\n\"}{end}",
    ]);
    let told = "Liveness probe failed: provider-mock: not live: no answer from /run/cloud-provider/socket/provider.sock";
    assert!(events.contains(told), "{events}");
    world.renewals(3).await;
    untouched.assert_untouched(world).await;
}

/// A Deployment, whose Pods have two ordinary containers, replaces the DaemonSet. The old leader
/// ends before its provider. No ccm changes a Node, a Service or the cloud.
pub async fn succeeded(world: &mut World) {
    let old = the_pod(world).await;
    let untouched = Before::of(world).await;
    let mut logs = ["ccm", "provider"].map(|container| log_of(world, &old, container));
    world.report.start();
    helm(world, "upgrade", &release::deployment());
    let pods = world
        .ready(2, &Image::Ccm.reference(), &Image::Python.reference())
        .await;
    world
        .report
        .lap("helm upgrade to a Deployment of two with another provider, to both Pods ready");
    let sets = world.kubectl(&["get", "daemonsets", "--output=name"]);
    assert!(!sets.contains(NAME), "{sets}");
    let [ccm, provider] = logs.each_mut().map(|log| {
        let mut text = String::new();
        log.read_to_string(&mut text).unwrap();
        text
    });
    let last = ccm.lines().next_back().and_then(at);
    let ends = provider
        .lines()
        .find(|line| line.contains("SIGTERM: the provider shuts down"));
    let ends = ends.and_then(at);
    assert!(
        last.is_some() && ends.is_some() && last < ends,
        "the provider is ended after the ccm: {ccm}\n{provider}"
    );
    for pod in &pods {
        assert_eq!(sidecars(pod), 0);
        assert_each_sees_its_own(pod, CREDENTIAL);
        let started = container(pod, "provider").and_then(|container| container.started);
        assert_eq!(started, Some(true), "its probe said so");
        assert_eq!(restarts(pod, "provider"), 0);
    }
    world.renewals(3).await;
    untouched.assert_untouched(world).await;
}

/// The log of a container, open: it can be read when the Pod is gone.
fn log_of(world: &World, pod: &Pod, container: &str) -> File {
    let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
    let path = world
        .cluster
        .directory()
        .join("node-a/disk/log/pods")
        .join(format!("{NAMESPACE}_{name}_{uid}"))
        .join(container)
        .join(format!("{}.log", restarts(pod, container)));
    File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// When a line of the log was written.
fn at(line: &str) -> Option<Timestamp> {
    line.split(' ').next()?.parse().ok()
}
