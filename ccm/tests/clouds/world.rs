//! A cluster, a vendor's cloud, and the processes between them.

use std::ops::Deref;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::ListParams;
use serde_json::Value;
use testenv::objects::{LoadBalancerBuilder, NodeBuilder, ingress};
use testenv::{
    Balancer, ControlPlane, Pool, Pooled, Process, TestCloud, Vendor, View, eventually, show_log,
};

/// Long enough for several waits of the controllers, on a slow machine.
pub const SOON: Duration = Duration::from_secs(90);

static PLANES: Pool = Pool::new(ControlPlane::grant);

pub struct World {
    view: View,
    pub cloud: TestCloud,
    ccm: Option<Process>,
    plane: Pooled,
}

impl World {
    /// An empty cluster and a cloud with the machines node-0, node-1 and so on; neither provider
    /// nor ccm runs yet.
    pub async fn new(vendor: Vendor, machines: usize) -> Self {
        let plane = PLANES.take().await.unwrap();
        let cloud = TestCloud::start(vendor, plane.directory()).await.unwrap();
        for number in 0..machines {
            cloud.add_machine(&format!("node-{number}")).unwrap();
        }
        Self {
            view: view(&plane),
            cloud,
            ccm: None,
            plane,
        }
    }

    /// Another cluster in the same account.
    pub async fn beside(other: &Self) -> Self {
        let plane = PLANES.take().await.unwrap();
        Self {
            view: view(&plane),
            cloud: other.cloud.beside(plane.directory()).unwrap(),
            ccm: None,
            plane,
        }
    }

    /// A world with a running provider and ccm.
    pub async fn running(vendor: Vendor, machines: usize) -> Self {
        let mut world = Self::new(vendor, machines).await;
        world.cloud.start_provider(&[]).unwrap();
        world.start_ccm(&[]);
        world
    }

    pub fn start_ccm(&mut self, flags: &[&str]) {
        let (vendor, endpoint) = (self.cloud.vendor.name(), self.cloud.endpoint());
        let mut command = self.plane.ccm(env!("CARGO_BIN_EXE_ccm"), vendor, &endpoint);
        command
            .args([
                "--secure-port=0",
                "--cluster-name=clouds",
                "--node-monitor-period=1s",
                "--node-deletion-brake=min-age=1s",
            ])
            .args(flags);
        let log = self.plane.directory().join("ccm.log");
        self.ccm = Some(Process::start(command, log).unwrap());
    }

    /// SIGTERM to the ccm, and its end; then kill -9 of the provider.
    pub async fn stop(&mut self) {
        let mut ccm = self.ccm.take().unwrap();
        ccm.terminate();
        ccm.wait(SOON).await.unwrap();
        self.cloud.kill_provider();
    }

    /// Registers a Node as a kubelet does, and waits until it is initialised.
    pub async fn join(&self, number: usize) -> Node {
        self.register(number).await;
        self.initialised(&format!("node-{number}")).await
    }

    /// Registers a Node as a kubelet does.
    pub async fn register(&self, number: usize) {
        let name = format!("node-{number}");
        let node = NodeBuilder::new(&name)
            .uninitialized()
            .pod_cidrs(&[&format!("10.244.{number}.0/24")]);
        self.view.register(node).await;
    }

    /// Creates a Service of type LoadBalancer with these annotations.
    pub async fn expose(&self, name: &str, annotations: &[(&str, &str)]) -> Service {
        let service = LoadBalancerBuilder::new("default", name);
        let annotated = |service: LoadBalancerBuilder, (key, value): &(&str, &str)| {
            service.annotation(key, value)
        };
        let service = annotations.iter().fold(service, annotated);
        self.create_service(service).await
    }

    /// Waits until the Service shows an address that the cloud's load balancer has, and until that
    /// load balancer has targets: the ccm may see the Service before the Nodes. Returns it.
    pub async fn served(&self, name: &str) -> Balancer {
        eventually(&format!("{name} is served"), SOON, async || {
            let service = self.services().get(name).await;
            let service = service.map_err(|error| error.to_string())?;
            let all = self.cloud.balancers().unwrap();
            let shown = ingress(&service);
            let found = all.iter().find(|it| {
                let shows = |shown: &String| it.addresses.contains(shown);
                !it.targets.is_empty() && shown.as_ref().is_some_and(shows)
            });
            match found {
                Some(found) => Ok(found.clone()),
                None => Err(format!("{shown:?} {all:?} {:?}", self.events(name).await)),
            }
        })
        .await
    }

    /// Deletes the Service, and waits until it is gone.
    pub async fn unexpose(&self, name: &str) {
        self.delete_service(name).await;
        self.service_goes(name).await;
    }

    /// Waits until this load balancer has these targets.
    pub async fn targets(&self, id: &str, wanted: &[&str]) {
        eventually(&format!("the targets are {wanted:?}"), SOON, async || {
            let all = self.cloud.balancers().unwrap();
            match all.iter().find(|it| it.id == id) {
                Some(it) if it.targets == wanted => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// The object's events in `kubectl describe`.
    pub fn describe(&self, kind: &str, name: &str) -> String {
        let mut kubectl = self.plane.kubectl();
        if kind == "lease" {
            kubectl.args(["--namespace", "kube-system"]);
        }
        let output = kubectl.args(["describe", kind, name]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let events = text.split_once("Events:").map(|(_, events)| events);
        events.unwrap_or(&text).to_owned()
    }

    /// Waits until one line of these events has all the words.
    pub async fn tells(&self, kind: &str, name: &str, words: &[&str]) -> String {
        eventually(
            &format!("{kind} {name} tells {words:?}"),
            SOON,
            async || {
                let events = self.describe(kind, name);
                let found = events
                    .lines()
                    .find(|line| words.iter().all(|word| line.contains(word)));
                found.map(str::to_owned).ok_or(events)
            },
        )
        .await
    }

    /// Waits until the provider has read load balancers again, and for two more renewals of the
    /// Lease.
    pub async fn looked(&self, before: u64) {
        eventually("load balancers were looked at", SOON, async || {
            let now = self.looks();
            (now > before).then_some(()).ok_or(now)
        })
        .await;
        self.renewals(2).await;
    }

    pub fn looks(&self) -> u64 {
        let calls = self.cloud.calls().unwrap();
        let looked = calls
            .iter()
            .filter(|(call, _)| call.starts_with("GET ") && call.contains("/load_balancers"));
        looked.map(|(_, count)| count).sum()
    }

    /// How many load balancers were ever created through the API.
    pub fn made(&self) -> usize {
        let journal = self.cloud.ask("GET", "journal", &Value::Null).unwrap();
        let made = |call: &&Value| {
            call["method"] == "POST"
                && call["route"].as_str().unwrap().ends_with("/load_balancers")
                && call["status"].as_u64().unwrap() < 300
        };
        journal.as_array().unwrap().iter().filter(made).count()
    }

    /// Each Node's name and resourceVersion, which changes when anybody changes the Node.
    pub async fn versions(&self) -> Vec<(Option<String>, Option<String>)> {
        let all = self.nodes().list(&ListParams::default()).await.unwrap();
        let of = |node: Node| (node.metadata.name, node.metadata.resource_version);
        all.items.into_iter().map(of).collect()
    }

    /// From now on the test API handles matching calls as the plan says.
    pub fn plan(&self, plan: &Value) {
        self.cloud.ask("POST", "plans", plan).unwrap();
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
            let ccm = std::fs::read_to_string(self.plane.directory().join("ccm.log"));
            for (name, log) in [
                ("ccm", ccm.unwrap_or_default()),
                ("provider", self.cloud.provider_log()),
                ("test API", self.cloud.api_log()),
            ] {
                show_log(&format!("{} {name}", self.cloud.vendor.name()), &log);
            }
        }
        // The ccm ends before the API server.
        self.ccm = None;
    }
}

fn view(plane: &ControlPlane) -> View {
    View {
        client: plane.client(),
        patience: SOON,
    }
}
