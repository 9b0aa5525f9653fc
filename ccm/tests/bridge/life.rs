//! The `ccm` with four of the clouds: it initialises Nodes, serves a Service, and removes a Node
//! whose instance is gone.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use testenv::objects::{
    LoadBalancerBuilder, NodeBuilder, UNINITIALIZED, annotation, ingress, is_tainted, set_ready,
};
use testenv::{ControlPlane, Pool, Pooled, Process, User, View, show_log};

use crate::aws::Aws;
use crate::clouds::{Cloud, Instance};

/// How long a wait may take, on a slow machine.
pub const SOON: Duration = Duration::from_secs(90);
const CLUSTER: &str = "--cluster-name=bridge";
const ZONE: &str = "topology.kubernetes.io/zone";
/// The annotation in which the cloud `annotated` stores the ID of its load balancer.
const NOTED: &str = "annotated.example/load-balancer-id";

pub static PLANES: Pool = Pool::new(ControlPlane::grant);

/// A cluster, a Go cloud, and the processes between them.
pub struct World {
    view: View,
    pub cloud: Cloud,
    plane: Pooled,
    running: BTreeMap<&'static str, Process>,
}

impl World {
    pub fn new(plane: Pooled, cloud: Cloud) -> Self {
        Self {
            view: View {
                client: plane.client(),
                patience: SOON,
            },
            cloud,
            plane,
            running: BTreeMap::new(),
        }
    }

    /// The cloud runs behind the bridge, with the ccm in front of it.
    fn start(plane: Pooled, cloud: Cloud, flags: &[&str]) -> Self {
        let mut world = Self::new(plane, cloud);
        world.start_ours(flags);
        world
    }

    fn socket(&self) -> PathBuf {
        self.plane.directory().join("bridge/provider.sock")
    }

    pub fn start_ours(&mut self, flags: &[&str]) {
        let provider = self.cloud.start(self.plane.directory(), &self.socket());
        self.running.insert("provider", provider);
        let endpoint = format!("unix://{}", self.socket().display());
        let ccm = env!("CARGO_BIN_EXE_ccm");
        let mut command = self.plane.ccm(ccm, "bridged", &endpoint);
        command
            .args([
                "--secure-port=0",
                CLUSTER,
                "--node-monitor-period=1s",
                "--node-deletion-brake=min-age=1s",
                "--provider-annotation-prefixes=annotated.example/,byid.example/,service.byid.example/",
            ])
            .args(flags);
        let log = self.plane.directory().join("ccm.log");
        self.running
            .insert("ccm", Process::start(command, log).unwrap());
    }

    /// Upstream's Go CCM runs with the cloud linked in.
    pub fn start_upstream(&mut self, flags: &[&str]) {
        let directory = self.plane.directory();
        let mut command = self.cloud.upstream(directory);
        command
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig(User::Admin))
            .args(["--allow-untagged-cloud", "--secure-port=0", CLUSTER])
            .args(flags);
        let log = directory.join("upstream.log");
        self.running
            .insert("upstream", Process::start(command, log).unwrap());
    }

    /// Asks the process to end, and waits until it has.
    pub async fn end(&mut self, name: &str) {
        let mut process = self.running.remove(name).unwrap();
        process.terminate();
        process.wait(SOON).await.unwrap();
    }

    /// Registers Nodes as kubelets do, and waits until each is initialised.
    pub async fn join(&self, instances: &[Instance]) {
        self.register(instances).await;
        self.joined(instances).await;
    }

    /// Registers Nodes as kubelets do.
    pub async fn register(&self, instances: &[Instance]) {
        for (number, instance) in instances.iter().enumerate() {
            let node = NodeBuilder::new(&instance.node)
                .uninitialized()
                .pod_cidrs(&[&format!("10.244.{number}.0/24")]);
            self.view.register(node).await;
        }
    }

    /// Waits until each Node is initialised.
    pub async fn joined(&self, instances: &[Instance]) {
        for instance in instances {
            // Upstream writes the addresses after the taint has gone.
            let initialised = |node: &Node| {
                let addresses = node.status.as_ref().and_then(|it| it.addresses.as_ref());
                !is_tainted(node, UNINITIALIZED) && addresses.is_some_and(|all| !all.is_empty())
            };
            let node = self
                .node_becomes(&instance.node, "is initialised", initialised)
                .await;
            let spec = node.spec.unwrap();
            assert_eq!(spec.provider_id.as_ref(), Some(&instance.provider_id));
            assert!(node.metadata.labels.unwrap().contains_key(ZONE));
        }
    }

    /// Creates a Service of type LoadBalancer, and waits until it has an address.
    pub async fn serve(&self, name: &str) -> Service {
        let service = LoadBalancerBuilder::new("default", name);
        self.create_service(service).await;
        self.shows_address(name).await
    }

    /// Deletes the Service, waits until it is gone, and checks that no load balancer is left
    /// (except in upstream's fake, which removes none).
    pub async fn unserve(&self, name: &str) {
        self.delete_service(name).await;
        self.service_goes(name).await;
        assert_eq!(self.cloud.load_balancers().unwrap_or_default(), [""; 0]);
    }

    /// Removes the instance, and lets its kubelet fall silent. The controller must delete this Node
    /// and no other.
    pub async fn lose(&self, instance: &Instance, others: &[Instance]) {
        self.cloud.remove(instance);
        set_ready(&self.client, &instance.node, "Unknown")
            .await
            .unwrap();
        self.node_goes(&instance.node).await;
        for other in others {
            self.nodes().get(&other.node).await.unwrap();
        }
    }
}

impl Deref for World {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl Drop for World {
    /// If the test fails, shows the last log lines of each process.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for process in self.running.values() {
                show_log(&process.log_path().display().to_string(), &process.log());
            }
        }
        // The processes end before the API server.
        self.running.clear();
    }
}

pub fn instances(cloud: &Cloud) -> Vec<Instance> {
    (0..4).map(|n| cloud.add(&format!("node-{n}"))).collect()
}

/// The behaviour that each cloud here must show.
async fn whole_life(world: &World, instances: &[Instance]) {
    world.join(instances).await;
    let web = world.serve("web").await;
    assert!(annotation(&web, "grpc-ccm.io/load-balancer").is_some());
    let (gone, others) = instances.split_last().unwrap();
    world.lose(gone, others).await;
    world.unserve("web").await;
}

#[tokio::test]
async fn upstreams_fake_runs_behind_the_ccm() {
    let plane = PLANES.take().await.unwrap();
    let cloud = Cloud::file("fake", plane.directory());
    let instances = instances(&cloud);
    let flags = ["--cluster-cidr=10.244.0.0/16", "--allocate-node-cidrs=true"];
    let world = World::start(plane, cloud, &flags);
    whole_life(&world, &instances).await;
    // The cloud has routes: the Node's condition says that its route exists.
    let routed = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|it| it.conditions.as_ref());
        conditions.is_some_and(|all| {
            all.iter()
                .any(|it| it.type_ == "NetworkUnavailable" && it.status == "False")
        })
    };
    world.node_becomes("node-0", "has a route", routed).await;
}

#[tokio::test]
async fn a_cloud_with_the_older_instances_and_zones_runs_behind_the_ccm() {
    let plane = PLANES.take().await.unwrap();
    let cloud = Cloud::file("instancesv1", plane.directory());
    let instances = instances(&cloud);
    let world = World::start(plane, cloud, &[]);
    whole_life(&world, &instances).await;
}

#[tokio::test]
async fn a_cloud_that_notes_its_load_balancer_on_the_service_runs_behind_the_ccm() {
    let plane = PLANES.take().await.unwrap();
    let cloud = Cloud::file("annotated", plane.directory());
    let instances = instances(&cloud);
    let world = World::start(plane, cloud, &[]);
    whole_life(&world, &instances).await;

    // The cloud reports the new load balancer as pending for 1000 calls, so Ensure does not
    // succeed. The Service has the load balancer's ID all the same.
    world.cloud.edit(&["pending-for", "1000"]);
    let slow = LoadBalancerBuilder::new("default", "slow");
    world.create_service(slow).await;
    let noted = |service: &Service| annotation(service, NOTED).is_some();
    let slow = world.service_becomes("slow", "is noted", noted).await;
    assert_eq!(ingress(&slow), None);
    let made = world.cloud.load_balancers().unwrap();
    assert_eq!(made.len(), 1, "{made:?}");
    assert!(made[0].contains(&annotation(&slow, NOTED).unwrap()));
    // The deletion removes that load balancer.
    world.unserve("slow").await;
}

#[tokio::test]
async fn whole_cloud_provider_aws_runs_behind_the_ccm() {
    let plane = PLANES.take().await.unwrap();
    let directory: &Path = plane.directory();
    let (aws, instances) = Aws::start(directory, &["a", "b", "c", "d"]).await;
    let flags = ["--cluster-cidr=10.244.0.0/16", "--allocate-node-cidrs=true"];
    let world = World::start(plane, Cloud::Aws(aws), &flags);
    whole_life(&world, &instances).await;
}
