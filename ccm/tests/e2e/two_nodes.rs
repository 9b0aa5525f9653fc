//! Two Nodes, with helm: from a DaemonSet on the control plane to two replicas, rolling updates of
//! either image, a Node that is drained, without power, and gone.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use testenv::eventually;

use crate::control_plane;
use crate::images::Image;
use crate::leaders::Leaders;
use testenv::objects::is_tainted;

use crate::world::{NAME, PATIENCE, World, condition, is_ready, outcome};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const NODES: [&str; 2] = ["node-a", "node-b"];
/// The longest time without a leader in an update or a drain. A Lease that is not released runs out
/// only after 15 s.
const MOST: Duration = Duration::from_secs(12);
/// [`MOST`], if a leader let its Lease expire.
const EXPIRED: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_with_helm_through_updates_a_drain_an_outage_and_an_end() {
    let mut world = World::new("Two Nodes, helm install", &NODES).await;
    let outcome = outcome(Box::pin(story(&mut world))).await;
    world.finish(outcome);
}

async fn story(world: &mut World) {
    let logs = NODES.map(|node| {
        let directory = world.cluster.directory().join(node);
        directory.join("disk/log/pods")
    });
    let leaders = Leaders::watch(&world.client, logs.to_vec());
    control_plane::installed(world).await;
    control_plane::succeeded(world).await;
    let pods = world.pods().await;
    let hosts: BTreeSet<String> = pods.iter().map(host).collect();
    assert_eq!(hosts.len(), 2, "one on each Node: {hosts:?}");
    updated(world, &leaders).await;
    drained(world, &leaders).await;
    let terms = leaders.check_never_two();
    assert!(terms >= 4, "{terms} terms");
    gone(world).await;
}

/// The longest time without a leader since [`Leaders::forget`].
fn most(leaders: &Leaders) -> Duration {
    if leaders.let_expire() { EXPIRED } else { MOST }
}

/// Each image is updated while Services are created. At no time are there two leaders, and a
/// time without one is shorter than [`most`].
async fn updated(world: &mut World, leaders: &Leaders) {
    let ccm = Image::Ccm.reference();
    let next = [Image::Ccm.tagged("next"), Image::Python.tagged("next")];
    let updates = [
        ("provider", next[1].clone(), [ccm, next[1].clone()]),
        ("ccm", next[0].clone(), next),
    ];
    let (node, balancers) = (world.node("node-a").await, world.cloud.load_balancers());
    for (container, image, both) in updates {
        leaders.forget();
        world.report.start();
        world.set_image(container, &image);
        for number in 0..3 {
            let name = format!("{container}-{number}");
            world.expose(&name).await;
            world.gets_address(&name).await;
        }
        world.ready(2, &both[0], &both[1]).await;
        world
            .report
            .lap(&format!("rolling update of {container}, both Pods"));
        // The last hand-over shows in the Lease when it is renewed.
        world.renewals(2).await;
        let (gap, holders) = leaders.longest_gap();
        let most = most(leaders);
        world.report.row(
            &format!(
                "— longest time between two renewals or takeovers of the Lease ({holders} holders)"
            ),
            gap,
        );
        assert!(gap < most, "nobody led for {gap:?} (at most {most:?})");
        assert!(holders > 1, "it was handed over");
        leaders.check_never_two();
    }
    assert_eq!(world.node("node-a").await.uid(), node.uid());
    let now: BTreeSet<_> = world.cloud.load_balancers().into_iter().collect();
    assert!(balancers.iter().all(|one| now.contains(one)), "{now:?}");
    assert_eq!(now.len(), balancers.len() + 6, "one for each Service");
    let lease = format!("lease/{NAME}");
    let holder = world.kubectl(&["get", &lease, "--output=jsonpath={.spec.holderIdentity}"]);
    assert!(!holder.is_empty());
}

/// A Node is drained for maintenance and has no power: the cloud says that the machine is stopped,
/// and the Node stays.
async fn drained(world: &mut World, leaders: &Leaders) {
    // The leader's Node is drained, so the leader hands over.
    let lease = format!("lease/{NAME}");
    let holder = world.kubectl(&["get", &lease, "--output=jsonpath={.spec.holderIdentity}"]);
    let away = NODES
        .into_iter()
        .find(|node| holder.starts_with(node))
        .unwrap_or_else(|| panic!("the host name is the first of the identity: {holder}"));
    let before = world.node(away).await;
    leaders.forget();
    world.report.start();
    world.kubectl(&[
        "drain",
        away,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--timeout=120s",
    ]);
    world
        .report
        .lap("kubectl drain of the leader's Node (the PodDisruptionBudget lets one go)");
    world.renewals(2).await;
    let (gap, _) = leaders.longest_gap();
    let most = most(leaders);
    assert!(gap < most, "nobody led for {gap:?} (at most {most:?})");

    world.cluster.machine(away).switch_off();
    world.cloud.set_power(away, "stopped");
    world
        .node_becomes(away, "it is tainted as shut down", |node| {
            is_tainted(node, SHUTDOWN)
        })
        .await;
    world
        .report
        .lap("power off to the Node tainted as shut down");
    assert_eq!(world.node(away).await.uid(), before.uid());

    world.cloud.set_power(away, "running");
    world.cluster.machine(away).switch_on().await.unwrap();
    world.cluster.machine(away).start_kubelet().unwrap();
    world.kubectl(&["uncordon", away]);
    let after = world
        .node_becomes(away, "it is ready again", |node| {
            condition(node) == "True" && !is_tainted(node, SHUTDOWN)
        })
        .await;
    assert_eq!(after.uid(), before.uid());
    let next = [Image::Ccm.tagged("next"), Image::Python.tagged("next")];
    world.ready(2, &next[0], &next[1]).await;
    world.report.lap("power on to ready, both replicas");
}

/// A machine is removed from the cloud: its Node is deleted, and nothing else is.
async fn gone(world: &mut World) {
    let balancers = world.cloud.load_balancers();
    let other = world.node("node-a").await;
    world.report.start();
    world.cluster.machine("node-b").switch_off();
    world.cloud.remove_instance("node-b");
    eventually(
        "the Node of the removed machine is gone",
        PATIENCE,
        async || (!world.node_exists("node-b").await).then_some(()),
    )
    .await;
    world
        .report
        .lap("machine removed from the cloud to its Node gone");
    // If the leader ran on that machine, another replica leads after the Lease's duration.
    eventually("a replica works on", PATIENCE, async || {
        let pods = world.pods().await;
        let ready = pods
            .iter()
            .filter(|pod| is_ready(pod) && host(pod) == "node-a");
        (ready.count() == 1).then_some(())
    })
    .await;
    world.renewals(3).await;
    assert_eq!(world.node("node-a").await.uid(), other.uid());
    assert_eq!(world.cloud.load_balancers(), balancers);
}

fn host(pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    let node = spec.and_then(|spec| spec.node_name.clone());
    node.unwrap_or_else(|| format!("{} is nowhere", pod.name_any()))
}
