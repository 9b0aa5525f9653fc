//! A cluster, a cloud and the ccm between them.

mod objects;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use provider_mock::{Cloud, Fixture, Instance, Mock};
use testenv::objects::{NodeBuilder, UNINITIALIZED};
use testenv::{ControlPlane, Options, Pool, Pooled, Process, User, eventually};

pub use objects::balancer;

/// Long enough for anything that should happen soon, on a slow machine.
pub const SOON: Duration = Duration::from_secs(30);

/// The binary under test.
pub const CCM: &str = env!("CARGO_BIN_EXE_ccm");

/// Leader election as fast as whole seconds allow.
pub const FAST_LEASE: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];

/// The annotation of the Lease that names the cloud scope of provider `mock`.
pub const SCOPE: &str = "grpc-ccm.io/cloud-scope-mock";

static PLANES: Pool = Pool::new(grant);

/// Applies `deploy/kustomize/base/rbac.yaml`.
fn grant(plane: &ControlPlane) {
    apply(plane, deployed("kustomize/base/rbac.yaml").as_ref());
}

/// The path of a file of `deploy/`.
pub fn deployed(file: &str) -> String {
    format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/{}"), file)
}

fn apply(plane: &ControlPlane, path: &Path) {
    let mut kubectl = plane.kubectl();
    let applied = kubectl.args(["apply", "-f"]).arg(path).output().unwrap();
    let errors = String::from_utf8_lossy(&applied.stderr);
    assert!(applied.status.success(), "{errors}");
}

/// A control plane for itself (Nodes are cluster-wide), a mock provider in this process, and the
/// ccms that a test starts.
///
/// The control plane was perhaps another test's before, and holds nothing of it: see [`Pool`].
pub struct World {
    pub client: Client,
    pub mock: Mock,
    started: usize,
    /// Given back last, when nothing of ours is at work any more.
    pub plane: Pooled,
}

impl World {
    /// Without any ccm yet. The cloud has no instances unless the fixture says so.
    pub async fn new(fixture: Fixture) -> Self {
        Self::on(PLANES.take().await.unwrap(), fixture).await
    }

    /// The same on a control plane with these options.
    pub async fn with_options(fixture: Fixture, options: Options) -> Self {
        Self::on(PLANES.take_with(options).await.unwrap(), fixture).await
    }

    /// On a control plane with an audit log.
    pub async fn audited(fixture: Fixture) -> Self {
        let options = Options {
            audit: true,
            ..Options::default()
        };
        Self::with_options(fixture, options).await
    }

    /// On a control plane of its own, where the ccm may do what these objects (YAML) say, and
    /// nothing else. It has an audit log.
    pub async fn with_rights(fixture: Fixture, rights: &str) -> Self {
        static BARE: Pool = Pool::new(|_| ());
        let options = Options {
            audit: true,
            ..Options::default()
        };
        let world = Self::on(BARE.take_with(options).await.unwrap(), fixture).await;
        world.grant(rights);
        world
    }

    /// Grants what these objects (YAML) say.
    pub fn grant(&self, rights: &str) {
        let file = self.file("rights.yaml");
        std::fs::write(&file, rights).unwrap();
        apply(&self.plane, &file);
    }

    async fn on(plane: Pooled, fixture: Fixture) -> Self {
        let socket = plane.directory().join("socket/provider.sock");
        let mock = Mock::start(fixture, &socket, None).await.unwrap();
        let client = plane.client();
        Self {
            client,
            mock,
            started: 0,
            plane,
        }
    }

    /// Grants what this file of `deploy/` grants.
    pub fn apply(&self, file: &str) {
        apply(&self.plane, deployed(file).as_ref());
    }

    /// With a ccm that leads.
    pub async fn with_ccm(fixture: Fixture) -> (Self, Process) {
        let mut world = Self::new(fixture).await;
        let ccm = world.ccm(&[]);
        world.leader().await;
        (world, ccm)
    }

    pub fn cloud(&self) -> &Cloud {
        self.mock.cloud()
    }

    /// Starts a ccm as its own service account, with no more than `deploy/kustomize/base/rbac.yaml`
    /// grants. Its HTTPS port is off unless `flags` say otherwise.
    pub fn ccm(&mut self, flags: &[&str]) -> Process {
        let command = self.command(flags);
        self.start(command)
    }

    /// The command of [`ccm`](Self::ccm).
    pub fn command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(CCM);
        command
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig(User::Ccm))
            .arg(format!("--provider=mock={}", self.mock.endpoint()));
        if !flags.iter().any(|flag| flag.starts_with("--secure-port")) {
            command.arg("--secure-port=0");
        }
        command.args(flags);
        command
    }

    /// Starts this command with a log of its own.
    pub fn start(&mut self, command: Command) -> Process {
        self.started += 1;
        Process::start(command, self.file(&format!("ccm-{}.log", self.started))).unwrap()
    }

    /// The audit log of the API server of a world that has one.
    pub fn audit_log(&self) -> String {
        std::fs::read_to_string(self.plane.audit_log().unwrap()).unwrap()
    }

    /// A file that goes with the world.
    pub fn file(&self, name: &str) -> PathBuf {
        self.plane.directory().join(name)
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Waits for a leader. Returns its identity.
    pub async fn leader(&self) -> String {
        eventually("somebody leads", SOON, async || {
            let holder = self.holder().await?;
            if holder.is_empty() {
                Err("nobody".to_owned())
            } else {
                Ok(holder)
            }
        })
        .await
    }

    /// The current holder of the Lease; empty if there is none.
    pub async fn holder(&self) -> Result<String, String> {
        let spec = self.lease().await?.spec;
        Ok(spec
            .and_then(|spec| spec.holder_identity)
            .unwrap_or_default())
    }

    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), "kube-system")
    }

    pub async fn lease(&self) -> Result<Lease, String> {
        self.leases()
            .get("cloud-controller-manager")
            .await
            .map_err(|error| error.to_string())
    }

    /// Waits until this very ccm leads; its identity.
    pub async fn led_by(&self, ccm: &Process) -> String {
        eventually("this ccm leads", SOON, async || {
            let holder = self.holder().await?;
            if !holder.is_empty() && ccm.log().contains(&format!("leading identity={holder}")) {
                Ok(holder)
            } else {
                Err(format!("{holder:?}\n{}", ccm.log()))
            }
        })
        .await
    }

    /// Kills a ccm (SIGKILL) and, as an operator in a hurry may, takes its name off the Lease: the
    /// next one need not wait 15 s for it to expire.
    pub async fn crash(&self, ccm: &mut Process) {
        ccm.kill();
        let nobody = serde_json::json!({"spec": {"holderIdentity": ""}});
        self.change_lease(nobody).await;
    }

    /// As an operator says that the credentials of the provider may reach this scope.
    pub async fn accept_scope(&self, scope: &str) {
        let accepted = serde_json::json!({"metadata": {"annotations": {SCOPE: scope}}});
        self.change_lease(accepted).await;
    }

    async fn change_lease(&self, change: serde_json::Value) {
        let (lease, patch) = ("cloud-controller-manager", PatchParams::default());
        self.leases()
            .patch(lease, &patch, &Patch::Merge(change))
            .await
            .unwrap();
    }

    /// Waits for this many renewals of the leader's Lease: it lives, and about two seconds passed
    /// for each.
    pub async fn renewals(&self, times: usize) {
        let mut seen = None;
        for _ in 0..=times {
            seen = eventually("the Lease is renewed", SOON, async || {
                let renewed = self.lease().await?.spec.and_then(|spec| spec.renew_time);
                if renewed == seen {
                    Err(format!("still {seen:?}"))
                } else {
                    Ok(renewed)
                }
            })
            .await;
        }
    }

    /// An instance and its Node, as a kubelet registers it.
    pub async fn join(&self, name: &str) {
        self.cloud().add_instance(instance(name)).unwrap();
        self.register(NodeBuilder::new(name).uninitialized()).await;
    }

    /// A Node.
    pub async fn register(&self, node: NodeBuilder) -> Node {
        self.nodes()
            .create(&PostParams::default(), &node.build())
            .await
            .unwrap()
    }

    /// Waits until the Node has a provider ID and no taint, and returns it.
    pub async fn initialised(&self, name: &str) -> Node {
        eventually(&format!("{name} is initialised"), SOON, async || {
            let node = self.node(name).await?;
            let id = node
                .spec
                .as_ref()
                .and_then(|spec| spec.provider_id.as_ref());
            if id.is_some() && !taints(&node).contains(&UNINITIALIZED) {
                Ok(node)
            } else {
                Err(format!("{:?}", node.spec))
            }
        })
        .await
    }

    pub async fn node(&self, name: &str) -> Result<Node, String> {
        self.nodes()
            .get(name)
            .await
            .map_err(|error| error.to_string())
    }

    /// Waits until the Node is as the test wants it.
    pub async fn node_becomes(&self, name: &str, what: &str, good: impl Fn(&Node) -> bool) -> Node {
        eventually(&format!("{name}: {what}"), SOON, async || {
            let node = self.node(name).await?;
            if good(&node) {
                Ok(node)
            } else {
                Err(format!("{:?} {:?}", node.spec, node.metadata.labels))
            }
        })
        .await
    }

    /// Waits until the Service is as the test wants it.
    pub async fn service_becomes(
        &self,
        name: &str,
        what: &str,
        good: impl Fn(&Service) -> bool,
    ) -> Service {
        eventually(&format!("{name}: {what}"), SOON, async || {
            let service = self
                .services()
                .get(name)
                .await
                .map_err(|error| error.to_string())?;
            if good(&service) {
                Ok(service)
            } else {
                Err(format!("{:?} {:?}", service.metadata, service.status))
            }
        })
        .await
    }

    /// Events on the object of this name, as `Type Reason message`.
    pub async fn events(&self, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::all(self.client.clone());
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = events
            .list(&about)
            .await
            .map(|list| list.items)
            .unwrap_or_default();
        let text = |event: Event| {
            format!(
                "{} {} {}",
                event.type_.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default()
            )
        };
        events.into_iter().map(text).collect()
    }

    /// Waits until an event on the object begins so.
    pub async fn event(&self, name: &str, begins: &str) -> String {
        eventually(
            &format!("an event {begins:?} on {name}"),
            SOON,
            async || {
                let events = self.events(name).await;
                let found = events.iter().find(|event| event.starts_with(begins));
                found.cloned().ok_or(format!("{events:?}"))
            },
        )
        .await
    }
}

impl Drop for World {
    /// Shows what the ccms said last, where the test fails.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for number in 1..=self.started {
            let name = format!("ccm-{number}.log");
            let log = std::fs::read_to_string(self.file(&name)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(60)..];
            eprintln!("--- the end of {name}\n{}", last.join("\n"));
        }
    }
}

/// Waits until the process has logged this text; the first line with it.
pub async fn said(process: &Process, text: &str) -> String {
    said_one_of(process, &[text]).await
}

/// Waits until the process has logged one of these texts; the first line with one.
pub async fn said_one_of(process: &Process, texts: &[&str]) -> String {
    eventually(
        &format!("the log says one of {texts:?}"),
        SOON,
        async || {
            let log = process.log();
            let says = |line: &&str| texts.iter().any(|text| line.contains(text));
            let line = log.lines().find(says);
            line.map(str::to_owned).ok_or(log)
        },
    )
    .await
}

/// A port of the loopback that nothing listens on, below those that systems give to outgoing
/// connections.
pub fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 9_000) as u16;
    (0..1_000)
        .map(|_| first + NEXT.fetch_add(1, Ordering::Relaxed) % 1_000)
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a port is free")
}

/// An instance with an address, a type, a zone and a region.
pub fn instance(name: &str) -> Instance {
    let number = name
        .bytes()
        .fold(7_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    Instance::new(name)
        .instance_type("mock.large")
        .place("zone-1", "region-1")
        .internal_ip([10, 1, number, name.len() as u8].into())
}

/// The keys of the Node's taints.
pub fn taints(node: &Node) -> Vec<&str> {
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    taints.iter().map(|taint| taint.key.as_str()).collect()
}

/// The value of a label.
pub fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// The Node's addresses as `Type=address`.
pub fn addresses(node: &Node) -> Vec<String> {
    let addresses = node
        .status
        .as_ref()
        .and_then(|status| status.addresses.as_deref())
        .unwrap_or_default();
    addresses
        .iter()
        .map(|it| format!("{}={}", it.type_, it.address))
        .collect()
}

/// The address or host name of the Service's load balancer.
pub fn ingress(service: &Service) -> Option<String> {
    let ingress = service
        .status
        .as_ref()?
        .load_balancer
        .as_ref()?
        .ingress
        .as_ref()?
        .first()?;
    ingress.ip.clone().or_else(|| ingress.hostname.clone())
}
