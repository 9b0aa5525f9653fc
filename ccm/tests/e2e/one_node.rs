//! A cluster of one Node, with kubectl: from nothing to a Service, crashes in the Pod, attacks on
//! it, the provider as a native sidecar and as an ordinary container, changes of the provider,
//! providers that do not work, and a reboot.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use testenv::Machine;
use testenv::objects::{UNINITIALIZED, is_tainted};

use crate::before::Before;
use crate::cloud::{HOST_PATH, STATE, provider_id};
use crate::hostile;
use crate::images::Image;
use crate::strangers;
use crate::world::{
    NAME, PATIENCE, ROOT, World, condition, copy, id, is_initialised, outcome, restarts, sidecars,
};

/// A tag that does not exist.
const NOWHERE: &str = "nowhere";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_with_kubectl_from_nothing_through_deaths_and_swaps() {
    let mut world = World::new("One Node, kubectl apply -k", &["node-a"]).await;
    let outcome = outcome(Box::pin(story(&mut world))).await;
    world.finish(outcome);
}

async fn story(world: &mut World) {
    let own = from_nothing(world).await;
    killed(world, "provider").await;
    ordinary(world, &own).await;
    killed(world, "provider").await;
    killed(world, "ccm").await;
    strangers::at_the_https_port(world).await;
    hostile::provider(world).await;
    swapped(world).await;
    broken(world).await;
    rebooted(world).await;
}

/// An operator's copy of `deploy/kustomize`: the overlay `mock` for the machine of the Node, and
/// another overlay with a directory of the Node for a cloud that several providers share. A third
/// overlay has the provider as a native sidecar.
fn kustomizations(directory: &Path, address: &str) -> [String; 3] {
    copy(
        &Path::new(ROOT).join("deploy/kustomize"),
        &directory.join("deploy"),
    );
    let mock = directory.join("deploy/overlays/mock");
    let machine = json!({
        "instances": [{
            "name": "node-a", "provider_id": provider_id("node-a"), "type": "mock.large", "zone": "zone-a", "region": "region-1",
            "addresses": [{ "InternalIP": address }, { "Hostname": "node-a" }],
        }],
    });
    std::fs::write(mock.join("cloud.yaml"), machine.to_string()).unwrap();
    // The mock and the Python provider both accept this flag, so only the image changes. Each image
    // has its own probe command, so the overlays remove the probes.
    let provider = json!({
        "name": "provider",
        "args": [format!("--state={STATE}")],
        "startupProbe": null,
        "livenessProbe": null,
        "volumeMounts": [{ "name": "cloud", "mountPath": "/cloud" }],
    });
    let make = |name: &str, components: &[&str], containers: Value| {
        let folder = directory.join(name);
        std::fs::create_dir(&folder).unwrap();
        let mut pod = containers;
        pod["volumes"] =
            json!([{ "name": "cloud", "hostPath": { "path": HOST_PATH, "type": "Directory" } }]);
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": NAME },
            "spec": { "template": { "spec": pod } },
        });
        let kustomization = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["../deploy/overlays/mock"],
            "components": components,
            "patches": [{ "target": { "kind": "Deployment", "name": NAME }, "patch": deployment.to_string() }],
        });
        std::fs::write(folder.join("kustomization.yaml"), kustomization.to_string()).unwrap();
        folder
    };
    let own = make(
        "own",
        &[],
        json!({ "containers": [{ "name": "ccm" }, provider] }),
    );
    let sidecar = make(
        "sidecar",
        &["../deploy/components/native-sidecar"],
        json!({ "initContainers": [provider] }),
    );
    [mock, sidecar, own].map(|path| path.display().to_string())
}

/// Ends with the provider as a native sidecar; returns the operator's folder without the sidecar.
async fn from_nothing(world: &mut World) -> String {
    world.report.start();
    world.boot("node-a").await;
    world
        .report
        .lap("machine switched on, images imported, Node registered");
    let node = world.node("node-a").await;
    assert!(
        is_tainted(&node, UNINITIALIZED),
        "the kubelet waits for a cloud-controller-manager"
    );
    let address = world.cluster.machine("node-a").address().to_string();

    let directory = world.cluster.directory().join("operator");
    let [mock, sidecar, own] = kustomizations(&directory, &address);
    world.kubectl(&["apply", "--kustomize", &mock]);
    let node = world.node_becomes("node-a", "it is initialised", is_initialised);
    let node = node.await;
    world.report.lap("kubectl apply -k to Node initialised");
    assert_eq!(
        node.spec.as_ref().and_then(|spec| spec.provider_id.clone()),
        Some(provider_id("node-a"))
    );
    let addresses = node.status.and_then(|status| status.addresses);
    assert!(
        addresses
            .into_iter()
            .flatten()
            .any(|one| one.type_ == "InternalIP" && one.address == address)
    );
    let first = one_pod(world, Image::Mock).await;
    world.report.lap("from there to both containers ready");
    let version = world.kubectl(&[
        "exec",
        &first.name_any(),
        "--container",
        "provider",
        "--",
        "/provider-mock",
        "ctl",
        "instance",
        "list",
    ]);
    assert!(version.contains("node-a"), "{version}");

    replaced(world, &sidecar, &first, true).await;
    world
        .report
        .lap("kubectl apply of the provider as a native sidecar to its Pod ready");
    world.expose("web").await;
    let first = world.gets_address("web").await;
    assert!(first.parse::<std::net::IpAddr>().is_ok(), "{first}");
    world
        .report
        .lap("Service of type LoadBalancer to its address");

    // `kubectl logs` and `kubectl exec` need the Node's address.
    let pod = one_pod(world, Image::Mock).await.name_any();
    world.said(&pod, "ccm", " leading identity=").await;
    let exec = |container: &str, command: &[&str]| {
        let mut arguments = vec!["exec", &pod, "--container", container, "--"];
        arguments.extend(command);
        world.kubectl(&arguments)
    };
    let version = exec("ccm", &["/ccm", "--version"]);
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    let writes = exec("provider", &["/provider-mock", "ctl", "writes"]);
    assert_eq!(writes.trim().parse(), Ok(world.cloud.writes()), "{writes}");
    world.report.lap("kubectl logs and exec");
    own
}

/// Applies a folder. Afterwards there is another Pod, with or without a native sidecar.
async fn replaced(world: &World, folder: &str, before: &Pod, sidecar: bool) -> Pod {
    world.kubectl(&["apply", "--kustomize", folder]);
    testenv::eventually("the Pod before is gone", PATIENCE, async || {
        let pods = world.pods().await;
        let gone = !pods.iter().any(|pod| pod.uid() == before.uid());
        gone.then_some(())
    })
    .await;
    let pod = one_pod(world, Image::Mock).await;
    assert_eq!(sidecars(&pod), usize::from(sidecar));
    let containers = pod.spec.as_ref().map(|spec| spec.containers.len());
    assert_eq!(containers, Some(2 - usize::from(sidecar)));
    pod
}

/// The native sidecar becomes an ordinary container.
async fn ordinary(world: &mut World, folder: &str) {
    let before = one_pod(world, Image::Mock).await;
    let untouched = Before::of(world).await;
    world.report.start();
    let pod = replaced(world, folder, &before, false).await;
    world
        .said(&pod.name_any(), "ccm", " leading identity=")
        .await;
    world
        .report
        .lap("kubectl apply of the provider as an ordinary container to the ccm leading with it");
    world.renewals(3).await;
    untouched.assert_untouched(world).await;
}

/// The only Pod, ready, with this provider.
pub async fn one_pod(world: &World, provider: Image) -> Pod {
    let (ccm, provider) = (Image::Ccm.reference(), provider.reference());
    let mut pods = world.ready(1, &ccm, &provider).await;
    pods.remove(0)
}

/// The test kills one container of the Pod. Only that container is started again, and nothing is
/// written a second time.
async fn killed(world: &mut World, victim: &str) {
    let other = if victim == "ccm" { "provider" } else { "ccm" };
    let before = one_pod(world, Image::Mock).await;
    let pod = before.name_any();
    let untouched = Before::of(world).await;
    let sessions = world
        .logs(&pod, "ccm")
        .matches("initialised the provider")
        .count();

    world.report.start();
    assert!(Machine::kill(&id(&before, victim)) > 0);
    if victim == "ccm" {
        // Waits for the new process, which has a log of its own.
        world.restarted(&before, "ccm").await;
        world.said(&pod, "ccm", "initialised the provider").await;
    } else {
        let again = sessions + 1;
        world
            .said_times(&pod, "ccm", "initialised the provider", again)
            .await;
    }
    let how = if victim == "provider" && sidecars(&before) == 1 {
        ", a native sidecar,"
    } else {
        ""
    };
    world.report.lap(&format!(
        "{victim}{how} killed to the ccm leading with a provider"
    ));
    world.restarted(&before, victim).await;
    let after = one_pod(world, Image::Mock).await;
    assert_eq!(after.uid(), before.uid());
    assert_eq!(restarts(&after, victim), restarts(&before, victim) + 1);
    assert_eq!(id(&after, other), id(&before, other), "{other} goes on");
    // Time for the controllers to handle what they found at their start.
    world.renewals(3).await;
    untouched.assert_untouched(world).await;
    world.report.start();
}

/// The provider's image changes to another language. The cloud and its objects stay the same.
async fn swapped(world: &mut World) {
    let address = world.gets_address("web").await;
    let before = Before::of(world).await;
    world.report.start();
    world.set_image("provider", &Image::Python.reference());
    let pod = one_pod(world, Image::Python).await;
    world
        .said(&pod.name_any(), "ccm", "initialised the provider")
        .await;
    world
        .report
        .lap("kubectl set image, mock to Python, to the ccm leading with it");
    world.renewals(3).await;
    before.assert_untouched(world).await;

    world.report.start();
    world.expose("second").await;
    let second = world.gets_address("second").await;
    world
        .report
        .lap("Service to its address, by the Python provider");
    assert_ne!(second, address);
    assert_eq!(world.gets_address("web").await, address);
    let now: BTreeSet<_> = world.cloud.load_balancers().into_iter().collect();
    let mut balancers = before.load_balancers.iter();
    assert!(balancers.all(|one| now.contains(one)), "{now:?}");
    assert_eq!(now.len(), 2, "{now:?}");
    before.assert_same_node(world).await;
}

/// The provider's image is one that serves nothing, then one that does not exist. The ccm logs what
/// is wrong, deletes nothing, and goes on once the image is right.
async fn broken(world: &mut World) {
    let before = Before::of(world).await;
    for image in [
        "grpc-ccm/pause:e2e".to_owned(),
        Image::Python.tagged(NOWHERE),
    ] {
        world.set_image("provider", &image);
        let what = format!("a Pod with {image}");
        let pod = testenv::eventually(&what, PATIENCE, async || {
            let pods = world.pods().await;
            let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
            let found = pods
                .into_iter()
                .find(|pod| crate::world::image(pod, "provider") == image);
            found.ok_or(names).map_err(|names| format!("{names:?}"))
        })
        .await;
        let pod = pod.name_any();
        world
            .said(&pod, "ccm", "provider is not available: controllers pause")
            .await;
        world
            .said(&pod, "ccm", "/run/cloud-provider/socket/provider.sock")
            .await;
        assert!(
            !world.pods().await.iter().any(crate::world::is_ready),
            "no Pod is ready while the provider does not work"
        );
        if image.ends_with(NOWHERE) {
            // One Service is created, another one is deleted: both wait. The ccm logs the reason
            // again after 10 s.
            world.expose("third").await;
            world.kubectl(&[
                "delete",
                "service",
                "second",
                "--namespace=default",
                "--wait=false",
            ]);
            let pauses = "provider is not available: controllers pause";
            world.said_times(&pod, "ccm", pauses, 2).await;
        }
    }
    before.assert_untouched(world).await;

    world.report.start();
    world.set_image("provider", &Image::Mock.reference());
    world.gets_address("third").await;
    world
        .report
        .lap("kubectl set image, broken to good, to a waiting Service's address");
    one_pod(world, Image::Mock).await;
    testenv::eventually("what was deleted is gone", PATIENCE, async || {
        let names = world.cloud.served();
        if names == ["web", "third"] {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await;
    before.assert_same_node(world).await;
}

/// Kubelet stops, then the machine is switched off and on. The cloud knows the machine, so its Node
/// stays.
async fn rebooted(world: &mut World) {
    let before = Before::of(world).await;
    world.cluster.machine("node-a").stop_kubelet();
    world.report.start();
    world
        .node_becomes("node-a", "it is not ready", |node| {
            condition(node) == "Unknown"
        })
        .await;
    world.report.lap("kubelet ended to Node not ready");
    // The Pod still runs there. Its ccm asks the cloud, which knows the machine.
    world.renewals(4).await;
    before.assert_same_node(world).await;

    world.cluster.machine("node-a").switch_off();
    world.report.start();
    world.cluster.machine("node-a").switch_on().await.unwrap();
    world.cluster.machine("node-a").start_kubelet().unwrap();
    world
        .node_becomes("node-a", "it is ready again", |node| {
            condition(node) == "True"
        })
        .await;
    let pod = one_pod(world, Image::Mock).await;
    world
        .said(&pod.name_any(), "ccm", "initialised the provider")
        .await;
    world
        .report
        .lap("power off and on to the ccm leading with a provider");
    assert!(is_initialised(&world.node("node-a").await));
    before.assert_same_node(world).await;
    assert_eq!(world.cloud.load_balancers(), before.load_balancers);
}
