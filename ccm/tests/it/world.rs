//! A cluster, a cloud and the ccm between them.

mod objects;

use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use provider_mock::{Cloud, Fixture, Instance, Mock};
use testenv::objects::NodeBuilder;
use testenv::{ControlPlane, Options, Pool, Pooled, Process, View, deployed, eventually, show_log};

pub use objects::balancer;

/// How long a wait may take, on a slow machine.
pub const SOON: Duration = Duration::from_secs(30);

/// The binary under test.
pub const CCM: &str = env!("CARGO_BIN_EXE_ccm");

/// A Lease that a standby soon takes after its holder is killed.
pub const QUICK_LEASE: [&str; 3] = [
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=500ms",
];

/// An election whose leader survives even long stalls.
pub const PATIENT_LEASE: [&str; 2] = [
    "--leader-elect-lease-duration=90s",
    "--leader-elect-renew-deadline=60s",
];

/// The annotation of the Lease that names the cloud scope of provider `mock`.
pub const SCOPE: &str = "grpc-ccm.io/cloud-scope-mock";

static PLANES: Pool = Pool::new(ControlPlane::grant);

/// A control plane for itself (Nodes are cluster-wide), a mock provider in this process, and the
/// ccms that a test starts.
///
/// Another test may have used the control plane before. It holds nothing of that test: see
/// [`Pool`].
pub struct World {
    view: View,
    pub mock: Mock,
    started: usize,
    /// Returned last, when no process of the test runs any more.
    pub plane: Pooled,
}

impl World {
    /// A world without a ccm yet. The cloud has no instances unless the fixture has some.
    pub async fn new(fixture: Fixture) -> Self {
        Self::on(PLANES.take().await.unwrap(), fixture).await
    }

    /// A world on a control plane with these options.
    pub async fn with_options(fixture: Fixture, options: Options) -> Self {
        Self::on(PLANES.take_with(options).await.unwrap(), fixture).await
    }

    /// A world on a control plane with an audit log.
    pub async fn audited(fixture: Fixture) -> Self {
        let options = Options {
            audit: true,
            ..Options::default()
        };
        Self::with_options(fixture, options).await
    }

    /// A world on a control plane with an audit log, where the ccm has only the rights in these
    /// objects (YAML).
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

    /// Grants the rights in these objects (YAML).
    pub fn grant(&self, rights: &str) {
        let file = self.file("rights.yaml");
        std::fs::write(&file, rights).unwrap();
        self.plane.apply(&file);
    }

    async fn on(plane: Pooled, fixture: Fixture) -> Self {
        let socket = plane.directory().join("socket/provider.sock");
        let mock = Mock::start(fixture, &socket, None).await.unwrap();
        Self {
            view: View {
                client: plane.client(),
                patience: SOON,
            },
            mock,
            started: 0,
            plane,
        }
    }

    /// Grants the rights in this file of `deploy/`.
    pub fn apply(&self, file: &str) {
        self.plane.apply(&deployed(file));
    }

    /// A world with a ccm that leads.
    pub async fn with_ccm(fixture: Fixture) -> (Self, Process) {
        let mut world = Self::new(fixture).await;
        let ccm = world.ccm(&[]);
        world.leader().await;
        (world, ccm)
    }

    pub fn cloud(&self) -> &Cloud {
        self.mock.cloud()
    }

    /// Starts a ccm as its own service account. Its rights are those of
    /// `deploy/kustomize/base/rbac.yaml`, unless the world was made with others. Its HTTPS port is
    /// off unless `flags` say otherwise.
    pub fn ccm(&mut self, flags: &[&str]) -> Process {
        let command = self.command(flags);
        self.start(command)
    }

    /// The command of [`ccm`](Self::ccm).
    pub fn command(&self, flags: &[&str]) -> Command {
        let mut command = self.plane.ccm(CCM, "mock", &self.mock.endpoint());
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

    /// The whole lines of the audit log of the API server of a world that has one.
    pub fn audit_log(&self) -> String {
        let mut log = std::fs::read_to_string(self.plane.audit_log().unwrap()).unwrap();
        log.truncate(log.rfind('\n').map_or(0, |end| end + 1));
        log
    }

    /// The path of a file in the control plane's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.plane.directory().join(name)
    }

    /// Waits until a process leads. Returns its identity.
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

    /// Waits until this ccm leads. Returns its identity.
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

    /// Kills a ccm (SIGKILL) and, as an operator in a hurry may, removes its name from the Lease.
    /// So the next ccm need not wait until the Lease expires.
    pub async fn crash(&self, ccm: &mut Process) {
        ccm.kill();
        let nobody = serde_json::json!({"spec": {"holderIdentity": ""}});
        self.edit_lease(nobody).await;
    }

    /// Accepts this cloud scope, as an operator does.
    pub async fn accept_scope(&self, scope: &str) {
        let accepted = serde_json::json!({"metadata": {"annotations": {SCOPE: scope}}});
        self.edit_lease(accepted).await;
    }

    /// Adds an instance, and registers its Node as a kubelet does.
    pub async fn join(&self, name: &str) {
        self.cloud().add_instance(instance(name)).unwrap();
        self.register(NodeBuilder::new(name).uninitialized()).await;
    }
}

impl Deref for World {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl Drop for World {
    /// If the test fails, shows the last log lines of the ccms.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for number in 1..=self.started {
            let name = format!("ccm-{number}.log");
            let log = std::fs::read_to_string(self.file(&name)).unwrap_or_default();
            show_log(&name, &log);
        }
    }
}

/// Waits until the process has logged this text. Returns the first line with it.
pub async fn said(process: &Process, text: &str) -> String {
    said_one_of(process, &[text]).await
}

/// Waits until the process has logged one of these texts. Returns the first line with one.
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
