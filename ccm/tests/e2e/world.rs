//! A cluster in which the manifests are applied, and an operator's actions and checks.

use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use testenv::objects::{LoadBalancerBuilder, UNINITIALIZED, ingress, is_tainted};
use testenv::{Cluster, Leftovers, Options, View, eventually};
use tokio::sync::{Mutex, MutexGuard};

use crate::audit;
use crate::cloud::Cloud;
use crate::images::{self, Image};
use crate::report::Report;

/// The limit for a wait that takes seconds on an idle machine.
pub const PATIENCE: Duration = Duration::from_mins(3);
/// The names and the namespace of the manifests.
pub const NAME: &str = "cloud-controller-manager";
pub const NAMESPACE: &str = "kube-system";

pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// One cluster at a time: each test checks whether its cluster leaves anything on the machine.
pub async fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::const_new(());
    ONE.lock().await
}

pub struct World {
    // Dropped in this order.
    pub cluster: Cluster,
    view: View,
    pub cloud: Cloud,
    pub report: Report,
    before: Leftovers,
    /// The archives of the images. Each machine has them before its kubelet starts.
    archives: Vec<PathBuf>,
    _alone: MutexGuard<'static, ()>,
}

impl Deref for World {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl World {
    /// A cluster without Nodes, whose machines will have these names, and a cloud with these
    /// machines. The images are built.
    pub async fn new(title: &'static str, machines: &[&str]) -> Self {
        let alone = alone().await;
        let archives = images::build().await;
        let before = Leftovers::now(&[]);
        let mut report = Report::new(title);
        let options = Options {
            audit: true,
            ..Options::default()
        };
        let mut cluster = Cluster::start(machines, options).await.unwrap();
        report.lap("control plane ready, from nothing");
        let cloud = Cloud::new(&cluster.shared().join("cloud"));
        for name in machines {
            let address = cluster.machine(name).address();
            cloud.add_instance(name, address);
        }
        Self {
            view: View {
                client: cluster.client(),
                patience: PATIENCE,
            },
            cluster,
            cloud,
            report,
            before,
            archives,
            _alone: alone,
        }
    }

    /// Switches a machine on; its kubelet registers a Node, which waits for a
    /// cloud-controller-manager.
    pub async fn boot(&mut self, name: &str) {
        self.cluster.boot(name, &self.archives).await.unwrap();
        // A second tag for the same image, as for another release.
        let machine = self.cluster.machine(name);
        for image in [Image::Ccm, Image::Python] {
            let version = env!("CARGO_PKG_VERSION");
            machine
                .tag(&image.tagged(version), &image.tagged("next"))
                .unwrap();
        }
        let what = format!("{name} registers");
        eventually(&what, PATIENCE, async || self.view.node(name).await).await;
    }

    /// Runs `kubectl` as the admin, by default in the namespace of the manifests. Returns its
    /// output.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments).unwrap()
    }

    pub fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.cluster.kubectl();
        command.args(["--namespace", NAMESPACE]).args(arguments);
        output(command)
    }

    /// Gives a container another image, with `kubectl set image`.
    pub fn set_image(&self, container: &str, image: &str) {
        let object = format!("deployment/{NAME}");
        self.kubectl(&["set", "image", &object, &format!("{container}={image}")]);
    }

    pub fn logs(&self, pod: &str, container: &str) -> String {
        self.try_kubectl(&["logs", pod, "--container", container])
            .unwrap_or_default()
    }

    /// The Pods of the ccm, those that are ending too.
    pub async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let labelled = ListParams::default().labels(&format!("app.kubernetes.io/name={NAME}"));
        pods.list(&labelled).await.unwrap().items
    }

    /// Waits until exactly this many Pods are there, all of them ready and with these images.
    /// Returns them.
    pub async fn ready(&self, count: usize, ccm: &str, provider: &str) -> Vec<Pod> {
        let what = format!("{count} Pods are ready with {ccm} and {provider}");
        eventually(&what, PATIENCE, async || {
            let pods = self.pods().await;
            let told: Vec<String> = pods.iter().map(told).collect();
            let good = |pod: &&Pod| {
                is_ready(pod) && image(pod, "ccm") == ccm && image(pod, "provider") == provider
            };
            if pods.len() == count && pods.iter().filter(good).count() == count {
                return Ok(pods);
            }
            Err(format!("{told:#?}"))
        })
        .await
    }

    /// Waits until the status of the only Pod shows that its container was restarted. The log of
    /// another container may show that before the kubelet does.
    pub async fn restarted(&self, before: &Pod, container: &str) {
        let what = format!("{container} was restarted");
        eventually(&what, PATIENCE, async || {
            let now = self.pods().await.remove(0);
            (restarts(&now, container) > restarts(before, container)).then_some(())
        })
        .await;
    }

    /// Waits until the log of a Pod's container has this text.
    pub async fn said(&self, pod: &str, container: &str, text: &str) {
        self.said_times(pod, container, text, 1).await;
    }

    /// Waits until the log of a Pod's container has this text this many times.
    pub async fn said_times(&self, pod: &str, container: &str, text: &str, times: usize) {
        let what = format!("{container} of {pod} says {text:?}");
        eventually(&what, PATIENCE, async || {
            let log = self.logs(pod, container);
            if log.matches(text).count() >= times {
                Ok(())
            } else {
                Err(log)
            }
        })
        .await;
    }

    pub async fn node(&self, name: &str) -> Node {
        self.view.node(name).await.unwrap()
    }

    pub async fn node_exists(&self, name: &str) -> bool {
        self.nodes().get_opt(name).await.unwrap().is_some()
    }

    /// Makes a Service of type LoadBalancer.
    pub async fn expose(&self, name: &str) {
        let service = LoadBalancerBuilder::new("default", name);
        self.create_service(service).await;
    }

    /// The Service's address, if it has one.
    pub async fn address(&self, service: &str) -> Option<String> {
        ingress(&self.services().get(service).await.unwrap())
    }

    /// Waits for the Service's address.
    pub async fn gets_address(&self, service: &str) -> String {
        let service = self.shows_address(service).await;
        ingress(&service).unwrap()
    }

    /// The changes of the ccm's account so far, except for its Lease, events and reviews, from the
    /// API server's audit log.
    pub fn changes(&self) -> Vec<String> {
        audit::changes(&self.audit_log())
    }

    /// How often the ccm's account created or patched an event whose name begins with this. An
    /// event's name begins with the name of its object.
    pub fn event_writes(&self, begin: &str) -> usize {
        audit::event_writes(&self.audit_log(), begin)
    }

    fn audit_log(&self) -> PathBuf {
        self.cluster.audit_log().expect("it was asked for")
    }

    /// Waits for this many more renewals of the Lease: time in which the controllers worked.
    pub async fn renewals(&self, more: usize) {
        let count = || audit::renewals(&self.audit_log());
        let until = count() + more;
        eventually("the Lease is renewed", PATIENCE, async || {
            let now = count();
            (now >= until).then_some(()).ok_or(now)
        })
        .await;
    }

    /// The end of a test, before the cluster is gone. After a failure it prints what an operator
    /// would check. After a success it checks the ccm's requests to the API server, and what is
    /// left on the machine.
    pub fn finish(mut self, outcome: Outcome) {
        if outcome.is_err() {
            self.tell();
        }
        if std::env::var("KEEP").is_ok_and(|keep| keep == "1") {
            self.keep();
        }
        if let Err(panic) = outcome {
            drop(self);
            std::panic::resume_unwind(panic);
        }
        self.report.rights(audit::check(&self.audit_log()));
        let directory = self.cluster.directory().to_owned();
        let Self {
            cluster,
            before,
            mut report,
            _alone,
            ..
        } = self;
        report.start();
        drop(cluster);
        report.lap("all of it gone");
        let left = Leftovers::now(&[directory]).since(&before);
        assert!(left.is_empty(), "left on this machine: {left:#?}");
        report.print();
    }

    /// Prints what an operator would check.
    fn tell(&self) {
        let looks: [&[&str]; 3] = [
            &[
                "get",
                "nodes,pods,services,leases",
                "--all-namespaces",
                "--output=wide",
            ],
            &[
                "get",
                "events",
                "--all-namespaces",
                "--sort-by=.lastTimestamp",
            ],
            &[
                "logs",
                "--selector",
                "app.kubernetes.io/name=cloud-controller-manager",
                "--all-containers",
                "--prefix",
                "--tail=40",
            ],
        ];
        for arguments in looks {
            let said = self.try_kubectl(arguments).unwrap_or_else(|error| error);
            eprintln!("--- kubectl {}\n{said}", arguments.join(" "));
        }
    }

    /// Prints where the cluster is, and leaves it running until the process is ended.
    fn keep(&self) {
        let kubeconfig = self.cluster.kubeconfig(testenv::User::Admin);
        eprintln!(
            "KEEP=1: the cluster runs until Ctrl-C.\n  export KUBECONFIG={}\n  logs: {}",
            kubeconfig.display(),
            self.cluster.directory().display()
        );
        loop {
            std::thread::park();
        }
    }
}

/// How the body of a test ended.
pub type Outcome = Result<(), Box<dyn std::any::Any + Send>>;

/// Runs the body of a test.
pub async fn outcome(body: impl Future<Output = ()>) -> Outcome {
    AssertUnwindSafe(body).catch_unwind().await
}

/// The output of a command.
pub fn output(mut command: Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {printed}{errors}"))
}

/// A copy of a folder, for an operator's own changes.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

pub fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let statuses = status.container_statuses.iter().flatten();
    let mut all = statuses.chain(status.init_container_statuses.iter().flatten());
    all.find(|container| container.name == name)
}

/// How often a container was started again.
pub fn restarts(pod: &Pod, name: &str) -> i32 {
    container(pod, name).map_or(0, |container| container.restart_count)
}

/// The container's ID.
pub fn id(pod: &Pod, name: &str) -> String {
    let id = container(pod, name).and_then(|container| container.container_id.clone());
    id.unwrap_or_default()
}

/// The container's image in the Pod's spec.
pub fn image(pod: &Pod, name: &str) -> String {
    let spec = pod.spec.as_ref();
    let containers = spec.into_iter().flat_map(|spec| {
        let ordinary = spec.containers.iter();
        ordinary.chain(spec.init_containers.iter().flatten())
    });
    let mut found = containers.filter(|container| container.name == name);
    found
        .next()
        .and_then(|container| container.image.clone())
        .unwrap_or_default()
}

/// How many native sidecars the Pod has.
pub fn sidecars(pod: &Pod) -> usize {
    let containers = pod.spec.iter().flat_map(|spec| &spec.init_containers);
    let sidecars = containers
        .flatten()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"));
    sidecars.count()
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

fn told(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let states: Vec<String> = status
        .and_then(|status| status.container_statuses.as_ref())
        .into_iter()
        .flatten()
        .map(|one| {
            format!(
                "{} {} ready={} {:?}",
                one.name, one.image, one.ready, one.state
            )
        })
        .collect();
    let ending = pod.metadata.deletion_timestamp.is_some();
    format!("{} ending={ending} {states:?}", pod.name_any())
}

pub fn is_initialised(node: &Node) -> bool {
    !is_tainted(node, UNINITIALIZED)
}

/// The status of the Node's Ready condition.
pub fn condition(node: &Node) -> String {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    ready.map(|ready| ready.status.clone()).unwrap_or_default()
}
