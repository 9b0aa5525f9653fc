//! The `ccm` with each cloud: it initialises Nodes, serves a Service, and removes a Node whose
//! instance is gone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use testenv::objects::{LoadBalancerBuilder, NodeBuilder, UNINITIALIZED, set_ready};
use testenv::{ControlPlane, Pool, Pooled, Process, User, eventually};

use crate::aws::Aws;
use crate::clouds::{Cloud, Instance};

/// Long enough for anything that should happen soon, on a slow machine.
pub const SOON: Duration = Duration::from_secs(90);
const CLUSTER: &str = "--cluster-name=bridge";
const ZONE: &str = "topology.kubernetes.io/zone";
/// The annotation in which the cloud `annotated` stores the ID of its load balancer.
const NOTED: &str = "annotated.example/load-balancer-id";

pub static PLANES: Pool = Pool::new(grant);

fn grant(plane: &ControlPlane) {
    let rbac = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../deploy/kustomize/base/rbac.yaml"
    );
    let applied = plane.kubectl().args(["apply", "-f", rbac]).output();
    assert!(applied.unwrap().status.success());
}

/// A cluster, a Go cloud, and the processes between them.
pub struct World {
    client: Client,
    pub cloud: Cloud,
    plane: Pooled,
    running: BTreeMap<&'static str, Process>,
}

impl World {
    pub fn new(plane: Pooled, cloud: Cloud) -> Self {
        Self {
            client: plane.client(),
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_ccm"));
        command
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig(User::Ccm))
            .arg(format!(
                "--provider=bridged=unix://{}",
                self.socket().display()
            ))
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

    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), "kube-system")
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// The events of the Service or Node in `kubectl describe`.
    pub async fn events_of(&self, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let of = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = events.list(&of).await.unwrap();
        events.into_iter().filter_map(|it| it.message).collect()
    }

    pub async fn node(&self, name: &str, what: &str, good: impl Fn(&Node) -> bool) -> Node {
        eventually(&format!("{name}: {what}"), SOON, async || {
            let node = self.nodes().get(name).await;
            let node = node.map_err(|error| error.to_string())?;
            if good(&node) {
                Ok(node)
            } else {
                Err(format!("{:?} {:?}", node.spec, node.metadata.labels))
            }
        })
        .await
    }

    pub async fn service(
        &self,
        name: &str,
        what: &str,
        good: impl Fn(&Service) -> bool,
    ) -> Service {
        eventually(&format!("{name}: {what}"), SOON, async || {
            let service = self.services().get(name).await;
            let service = service.map_err(|error| error.to_string())?;
            if good(&service) {
                Ok(service)
            } else {
                Err(format!("{:?} {:?}", service.metadata, service.status))
            }
        })
        .await
    }

    /// Nodes as kubelets register them, until each is initialised.
    pub async fn join(&self, instances: &[Instance]) {
        self.register(instances).await;
        self.joined(instances).await;
    }

    /// Nodes as kubelets register them.
    pub async fn register(&self, instances: &[Instance]) {
        for (number, instance) in instances.iter().enumerate() {
            let node = NodeBuilder::new(&instance.node)
                .uninitialized()
                .pod_cidrs(&[&format!("10.244.{number}.0/24")]);
            self.nodes()
                .create(&PostParams::default(), &node.build())
                .await
                .unwrap();
        }
    }

    /// Until each is initialised.
    pub async fn joined(&self, instances: &[Instance]) {
        for instance in instances {
            // Upstream writes the addresses after the taint has gone.
            let initialised = |node: &Node| {
                let addresses = node.status.as_ref().and_then(|it| it.addresses.as_ref());
                !tainted(node) && addresses.is_some_and(|all| !all.is_empty())
            };
            let node = self
                .node(&instance.node, "is initialised", initialised)
                .await;
            let spec = node.spec.unwrap();
            assert_eq!(spec.provider_id.as_ref(), Some(&instance.provider_id));
            assert!(node.metadata.labels.unwrap().contains_key(ZONE));
        }
    }

    /// A Service of type LoadBalancer, until it has an address.
    pub async fn serve(&self, name: &str) -> Service {
        let service = LoadBalancerBuilder::new("default", name).build();
        self.services()
            .create(&PostParams::default(), &service)
            .await
            .unwrap();
        self.service(name, "has an address", |service| ingress(service).is_some())
            .await
    }

    /// Deletes the Service, until it has gone and nothing is left in the cloud.
    pub async fn unserve(&self, name: &str) {
        self.services()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        eventually(&format!("{name} has gone"), SOON, async || {
            match self.services().get_opt(name).await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        assert_eq!(self.cloud.load_balancers().unwrap_or_default(), [""; 0]);
    }

    /// The instance goes, the kubelet falls silent: the Node is removed, and no other.
    pub async fn lose(&self, instance: &Instance, others: &[Instance]) {
        self.cloud.remove(instance);
        set_ready(&self.client, &instance.node, "Unknown")
            .await
            .unwrap();
        eventually("the Node is removed", SOON, async || {
            match self.nodes().get_opt(&instance.node).await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        for other in others {
            self.nodes().get(&other.node).await.unwrap();
        }
    }
}

impl Drop for World {
    /// Shows what each process logged last, where the test fails.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for process in self.running.values() {
                let log = process.log();
                let lines: Vec<&str> = log.lines().collect();
                let last = &lines[lines.len().saturating_sub(40)..];
                eprintln!("--- {}\n{}", process.log_path().display(), last.join("\n"));
            }
        }
        // They end before the API server does.
        self.running.clear();
    }
}

pub fn tainted(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == UNINITIALIZED))
}

/// The address or host name of the Service's load balancer.
pub fn ingress(service: &Service) -> Option<String> {
    let status = service.status.as_ref()?.load_balancer.as_ref()?;
    let point = status.ingress.as_ref()?.first()?;
    point.ip.clone().or_else(|| point.hostname.clone())
}

fn annotation(service: &Service, key: &str) -> Option<String> {
    service.metadata.annotations.as_ref()?.get(key).cloned()
}

pub fn instances(cloud: &Cloud) -> Vec<Instance> {
    (0..4).map(|n| cloud.add(&format!("node-{n}"))).collect()
}

/// The behaviour of every cloud.
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
    // It has routes: each Node says that its own is there.
    let routed = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|it| it.conditions.as_ref());
        conditions.is_some_and(|all| {
            all.iter()
                .any(|it| it.type_ == "NetworkUnavailable" && it.status == "False")
        })
    };
    world.node("node-0", "has a route", routed).await;
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

    // The Service has the load balancer's ID although the call failed: it is pending for many
    // calls.
    world.cloud.edit(&["pending-for", "1000"]);
    let slow = LoadBalancerBuilder::new("default", "slow").build();
    world
        .services()
        .create(&PostParams::default(), &slow)
        .await
        .unwrap();
    let noted = |service: &Service| annotation(service, NOTED).is_some();
    let slow = world.service("slow", "is noted", noted).await;
    assert_eq!(ingress(&slow), None);
    let made = world.cloud.load_balancers().unwrap();
    assert_eq!(made.len(), 1, "{made:?}");
    assert!(made[0].contains(&annotation(&slow, NOTED).unwrap()));
    // The next calls go on with that one, and its end is found by it.
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
