//! A cluster, a cloud that is a file, and providers that serve it one after the other.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::{Node, Service};
use kube::ResourceExt;
use kube::api::ListParams;
use provider_mock::{Fixture, Mock};
use serde_json::{Value, json};
use testenv::objects::{LoadBalancerBuilder, NodeBuilder, UNINITIALIZED, ingress, is_tainted};
use testenv::{ControlPlane, Process, View, eventually};

/// Long enough for a hundred Nodes on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(2);
/// The cloud scope of the other cloud's provider.
pub const OTHER_SCOPE: &str = "another account, another region";

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The language of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Python,
    Go,
    /// `provider-mock`.
    Rust,
}

/// A provider that serves.
pub enum Provider {
    Process(Process),
    Mock(Mock),
}

pub struct World {
    view: View,
    plane: ControlPlane,
    started: usize,
}

impl Deref for World {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl World {
    /// A cloud with this many machines, from `node-0` on, and a cluster without Nodes.
    pub async fn new(machines: usize) -> Self {
        let plane = ControlPlane::start().await.unwrap();
        plane.grant();
        let world = Self {
            view: View {
                client: plane.client(),
                patience: PATIENCE,
            },
            plane,
            started: 0,
        };
        std::fs::write(world.state(), cloud_of(machines).to_string()).unwrap();
        world
    }

    fn file(&self, name: &str) -> PathBuf {
        self.plane.directory().join(name)
    }

    fn state(&self) -> PathBuf {
        self.file("cloud.json")
    }

    fn socket(&self) -> PathBuf {
        self.file("socket/provider.sock")
    }

    /// Starts a provider of the cloud and waits until it accepts connections on the socket.
    pub async fn provider(&mut self, language: Language) -> Provider {
        let state = self.state();
        let provider = match language {
            Language::Rust => {
                let mock = Mock::start(Fixture::default(), self.socket(), Some(state));
                Provider::Mock(mock.await.unwrap())
            }
            Language::Python => Provider::Process(self.start("python", &state, &[])),
            Language::Go => Provider::Process(self.start("go", &state, &[])),
        };
        self.answers().await;
        provider
    }

    /// Starts a provider of another cloud, without machines, on the same socket.
    pub async fn provider_of_another_cloud(&mut self) -> Provider {
        let state = self.file("other.json");
        std::fs::write(&state, cloud_of(0).to_string()).unwrap();
        let flags = [
            "--name=other",
            "--prefix=other://",
            "--cloud-scope",
            OTHER_SCOPE,
        ];
        let provider = Provider::Process(self.start("go", &state, &flags));
        self.answers().await;
        provider
    }

    async fn answers(&self) {
        eventually("the provider answers", PATIENCE, async || {
            let dialled = tokio::net::UnixStream::connect(self.socket()).await;
            dialled.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }

    fn start(&mut self, language: &str, state: &Path, flags: &[&str]) -> Process {
        let prepared = Command::new(format!("{ROOT}/providers/prepare.sh"))
            .arg(language)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&prepared.stderr);
        assert!(prepared.status.success(), "{errors}");
        let line = String::from_utf8(prepared.stdout).unwrap();
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().expect("prepare.sh prints a command"));
        command
            .args(words)
            .arg(format!("--endpoint=unix://{}", self.socket().display()))
            .arg(format!("--state={}", state.display()))
            .args(flags);
        self.started += 1;
        let log = self.file(&format!("provider-{}.log", self.started));
        Process::start(command, log).unwrap()
    }

    /// Ends a provider as a kubelet would: SIGTERM, and it drains.
    pub async fn end(&self, provider: Provider) {
        match provider {
            Provider::Mock(mock) => mock.shutdown().await,
            Provider::Process(mut process) => {
                process.terminate();
                eventually("the provider has ended", PATIENCE, async || {
                    process.exit_status().map(drop).ok_or("it runs")
                })
                .await;
            }
        }
    }

    /// A ccm as its own service account.
    pub fn ccm(&self, flags: &[&str]) -> Process {
        let endpoint = format!("unix://{}", self.socket().display());
        let ccm = env!("CARGO_BIN_EXE_ccm");
        let mut command = self.plane.ccm(ccm, "mock", &endpoint);
        command.arg("--secure-port=0").args(flags);
        Process::start(command, self.file("ccm.log")).unwrap()
    }

    pub async fn said(&self, ccm: &Process, text: &str) {
        eventually(&format!("the log says {text:?}"), PATIENCE, async || {
            let log = ccm.log();
            if log.contains(text) { Ok(()) } else { Err(log) }
        })
        .await;
    }

    /// Registers a Node as a kubelet does.
    pub async fn register(&self, number: usize) {
        register(&self.view, number).await;
    }

    pub async fn expose(&self, name: &str) {
        expose(&self.view, name).await;
    }

    pub async fn all_nodes(&self) -> Vec<Node> {
        self.nodes()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    }

    /// All Services of type LoadBalancer.
    pub async fn all_services(&self) -> Vec<Service> {
        let listed = self.services().list(&ListParams::default()).await;
        let mut services = listed.unwrap().items;
        services.retain(|service| type_of(service) == "LoadBalancer");
        services
    }

    /// The cloud's load balancers in its file.
    pub fn load_balancers(&self) -> Vec<Value> {
        let state = std::fs::read_to_string(self.state()).unwrap();
        let state: Value = serde_json::from_str(&state).unwrap();
        let balancers = state["load_balancers"].as_array().cloned();
        let mut balancers = balancers.unwrap_or_default();
        balancers.retain(|balancer| balancer["gone_at_ms"].is_null());
        balancers
    }

    /// How many handles the cloud ever gave.
    pub fn handles_given(&self) -> usize {
        let state = std::fs::read_to_string(self.state()).unwrap();
        let state: Value = serde_json::from_str(&state).unwrap();
        state["last_number"].as_u64().unwrap() as usize
    }

    pub fn writes_of_the_other_cloud(&self) -> usize {
        let log = std::fs::read_to_string(self.file("other.json.writes"));
        log.map_or(0, |log| log.lines().count())
    }

    /// Whether this many Nodes are initialised, and each Service has what it asks for.
    pub async fn converged(&self, nodes: usize) -> Result<(), String> {
        let all = self.all_nodes().await;
        let waiting: Vec<String> = all
            .iter()
            .filter(|node| is_tainted(node, UNINITIALIZED))
            .map(ResourceExt::name_any)
            .collect();
        if all.len() != nodes || !waiting.is_empty() {
            return Err(format!("{} Nodes, {waiting:?} wait", all.len()));
        }
        let balancers = self.load_balancers();
        for service in self.all_services().await {
            let name = service.name_any();
            let uid = service.uid().unwrap_or_default();
            let Some(balancer) = balancers
                .iter()
                .find(|balancer| balancer["owner"]["uid"] == uid.as_str())
            else {
                return Err(format!("{name} has no load balancer"));
            };
            if ingress(&service).is_none()
                || ingress(&service).as_deref() != balancer["addresses"][0].as_str()
            {
                return Err(format!("{name} shows {:?}", ingress(&service)));
            }
            let targets = balancer["targets"].as_array().map_or(0, Vec::len);
            let port = balancer["config"]["ports"][0].as_str().unwrap_or_default();
            if targets != nodes || !port.starts_with(&format!("http:TCP:{}:", port_of(&service))) {
                return Err(format!("{name}: {targets} targets, {port}"));
            }
        }
        Ok(())
    }

    /// Accepts the scope, as the command in the ccm's log does.
    pub async fn accept_scope(&self, scope: &str) {
        let accept = json!({"metadata": {"annotations": {"grpc-ccm.io/cloud-scope-mock": scope}}});
        self.edit_lease(accept).await;
    }

    /// Changes that go on until they are stopped: Nodes join, Services get other ports, further
    /// Services come and go.
    pub fn load(&self, from: usize, joining: usize, services: usize) -> Load {
        let (changes, ending) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (exposed, joined) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let view = self.view.clone();
        let task = tokio::spawn({
            let (changes, ending) = (Arc::clone(&changes), Arc::clone(&ending));
            let (exposed, joined) = (Arc::clone(&exposed), Arc::clone(&joined));
            async move {
                let mut pace = tokio::time::interval(Duration::from_millis(100));
                let mut turn = 0;
                while !ending.load(Ordering::Relaxed) {
                    pace.tick().await;
                    match turn % 5 {
                        0 if joined.load(Ordering::Relaxed) < joining => {
                            register(&view, from + joined.fetch_add(1, Ordering::Relaxed)).await;
                        }
                        1 => {
                            let number = exposed.fetch_add(1, Ordering::Relaxed);
                            expose(&view, &format!("extra-{number}")).await;
                        }
                        3 if exposed.load(Ordering::Relaxed) > 3 => {
                            // Old enough to have a load balancer, or to be about to get one.
                            let number = exposed.load(Ordering::Relaxed) - 3;
                            view.delete_service(&format!("extra-{number}")).await;
                        }
                        _ => listen_on(&view, turn % services, 1000 + turn).await,
                    }
                    turn += 1;
                    changes.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Load {
            changes,
            ending,
            exposed,
            joined,
            task,
        }
    }
}

/// The work of [`World::load`].
pub struct Load {
    changes: Arc<AtomicUsize>,
    ending: Arc<AtomicBool>,
    exposed: Arc<AtomicUsize>,
    joined: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Load {
    pub fn changes(&self) -> usize {
        self.changes.load(Ordering::Relaxed)
    }

    /// Ends the changes. Returns how many Nodes joined, and how many Services were created beyond
    /// the first ones.
    pub async fn stop(self) -> (usize, usize) {
        self.ending.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        let now = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (now(&self.joined), now(&self.exposed))
    }
}

async fn register(view: &View, number: usize) {
    let node = NodeBuilder::new(format!("node-{number}"));
    view.register(node.uninitialized()).await;
}

async fn expose(view: &View, name: &str) {
    let service = LoadBalancerBuilder::new("default", name);
    view.create_service(service).await;
}

async fn listen_on(view: &View, service: usize, port: usize) {
    let ports = json!([{"name": "http", "port": port, "protocol": "TCP"}]);
    let patch = json!({"spec": {"ports": ports}});
    view.edit_service(&format!("web-{service}"), patch).await;
}

/// A state file of the cloud, as `providers/README.md` describes it.
fn cloud_of(machines: usize) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let instance = |number: usize| {
        json!({
            "id": format!("i-{number}"), "name": format!("node-{number}"),
            "provider_id": format!("mock://zone-a/i-{number}"), "type": "mock.large", "zone": "zone-a", "region": "region-1",
            "addresses": [{"InternalIP": format!("10.1.{}.{}", number / 250, number % 250 + 1)}], "power": "running"
        })
    };
    let instances: Vec<Value> = (0..machines).map(instance).collect();
    json!({
        "format": 1, "now_ms": 0, "saved_at_unix_ms": now.as_millis() as u64, "last_number": 0,
        "instances": instances, "load_balancers": [], "routes": []
    })
}

fn type_of(service: &Service) -> &str {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.type_.as_deref())
        .unwrap_or_default()
}

fn port_of(service: &Service) -> i32 {
    let spec = service.spec.as_ref();
    let ports = spec.and_then(|spec| spec.ports.as_deref());
    ports
        .and_then(|ports| ports.first())
        .map_or(0, |port| port.port)
}

/// How many times the ccm has initialised a provider.
pub fn sessions(ccm: &Process) -> usize {
    ccm.log().matches("initialised the provider").count()
}
