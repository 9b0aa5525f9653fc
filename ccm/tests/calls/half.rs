//! One side of the comparison: an API server, a cloud in a file, and the processes between them.
//! Also the actions of the situations.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use serde_json::{Value, json};
use testenv::objects::{
    LoadBalancerBuilder, NodeBuilder, UNINITIALIZED, ingress, is_tainted, set_ready,
};
use testenv::{ControlPlane, Process, User, View, eventually, show_log};
use tokio::time::sleep;

use crate::binary::{binary, text};

/// How long a process may take to end, on a slow machine.
pub const SOON: Duration = Duration::from_secs(90);

/// The cloud that answers from a cache of instances, and the call that fills it.
const CACHES: &str = "careless";
const FILLS: &str = "GET /instances";
/// How long a machine boots.
const BOOT: Duration = Duration::from_millis(1500);
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Which controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Upstream's, with the cloud linked in.
    Upstream,
    /// Ours, with the cloud behind the bridge.
    Ours,
}

/// The processes to restart. Upstream has only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    Both,
    Ccm,
    Provider,
}

/// Calls by their method.
pub type Calls = BTreeMap<String, usize>;

/// The periods in the flags.
#[derive(Clone, Copy, Debug)]
pub struct Periods {
    /// How often the Nodes' addresses are refreshed.
    refresh: Duration,
    /// How often Nodes that are not Ready are looked up.
    monitor: Duration,
    /// How often routes are reconciled.
    routes: Duration,
}

impl Periods {
    /// Upstream's defaults.
    pub const DEFAULT: Self = Self {
        refresh: Duration::from_mins(5),
        monitor: Duration::from_secs(5),
        routes: Duration::from_secs(10),
    };

    /// The defaults, but with a refresh that is too rare to fall into a situation by chance. A
    /// controller still refreshes at its start. Only the idle hour, with [`Self::DEFAULT`], counts
    /// further refreshes.
    pub const OF_EVENTS: Self = Self {
        refresh: Duration::from_hours(2),
        ..Self::DEFAULT
    };

    /// The periods, shorter by this factor.
    pub fn divided_by(self, divisor: u32) -> Self {
        Self {
            refresh: self.refresh / divisor,
            monitor: self.monitor / divisor,
            routes: self.routes / divisor,
        }
    }
}

pub struct Half {
    who: Who,
    pub cloud: &'static str,
    view: View,
    plane: ControlPlane,
    state: PathBuf,
    config: PathBuf,
    /// The periods in the controller's flags.
    periods: Mutex<Periods>,
    ccm: Mutex<Option<Process>>,
    provider: Mutex<Option<Process>>,
}

impl Half {
    /// Starts a side with its controller.
    pub async fn start(who: Who, cloud: &'static str) -> Self {
        let plane = ControlPlane::start().await.unwrap();
        plane.grant();
        let state = plane.directory().join("cloud.json");
        let config = plane.directory().join("cloud.conf");
        let said = match cloud {
            "fake" => state.display().to_string(),
            _ => format!("state: {}\n", state.display()),
        };
        std::fs::write(&config, said).unwrap();
        let half = Self {
            who,
            cloud,
            view: View {
                client: plane.client(),
                patience: Duration::from_mins(4),
            },
            plane,
            state,
            config,
            periods: Mutex::new(Periods::OF_EVENTS),
            ccm: Mutex::new(None),
            provider: Mutex::new(None),
        };
        half.start_provider();
        half.start_ccm();
        half
    }

    fn start_provider(&self) {
        if self.who == Who::Upstream {
            return;
        }
        let mut command = Command::new(binary());
        command
            .arg(format!("--cloud-provider={}", self.cloud))
            .arg(format!("--cloud-config={}", self.config.display()))
            .arg(format!("--endpoint={}", self.endpoint()));
        let log = self.plane.directory().join("provider.log");
        *self.provider.lock().unwrap() = Some(Process::start(command, log).unwrap());
    }

    fn endpoint(&self) -> String {
        let socket = self.plane.directory().join("bridge/provider.sock");
        format!("unix://{}", socket.display())
    }

    fn start_ccm(&self) {
        let mut command = match self.who {
            Who::Ours => {
                let ccm = env!("CARGO_BIN_EXE_ccm");
                let mut command = self.plane.ccm(ccm, "bridged", &self.endpoint());
                command
                    // The Nodes here are younger than the default `min-age`.
                    .arg("--node-deletion-brake=min-age=1s")
                    .arg("--provider-annotation-prefixes=annotated.example/,byid.example/,service.byid.example/");
                command
            }
            Who::Upstream => {
                let mut command = Command::new(binary());
                command
                    .arg("go-ccm")
                    .arg("--kubeconfig")
                    .arg(self.plane.kubeconfig(User::Admin))
                    .arg(format!("--cloud-provider={}", self.cloud))
                    .arg(format!("--cloud-config={}", self.config.display()))
                    .args(["--allow-untagged-cloud", "-v=2"]);
                command
            }
        };
        let periods = *self.periods.lock().unwrap();
        command
            .args(["--leader-elect=false", "--secure-port=0"])
            .args(["--cluster-cidr=10.244.0.0/16", "--allocate-node-cidrs=true"]);
        for (flag, period) in [
            ("node-status-update-frequency", periods.refresh),
            ("node-monitor-period", periods.monitor),
            ("route-reconciliation-period", periods.routes),
        ] {
            // The ccm accepts no period below one second.
            let period = match self.who {
                Who::Ours => period.max(Duration::from_secs(1)),
                Who::Upstream => period,
            };
            command.arg(format!("--{flag}={}ms", period.as_millis()));
        }
        let log = self.plane.directory().join("ccm.log");
        *self.ccm.lock().unwrap() = Some(Process::start(command, log).unwrap());
    }

    /// Sets the periods from the next start of the controller on.
    pub fn set_periods(&self, periods: Periods) {
        *self.periods.lock().unwrap() = periods;
    }

    /// Asks processes to end, waits until they have, and starts them again.
    pub async fn restart(&self, what: Restart) {
        if what != Restart::Provider || self.who == Who::Upstream {
            end(&self.ccm).await;
        }
        if what != Restart::Ccm {
            end(&self.provider).await;
            self.start_provider();
        }
        if self.ccm.lock().unwrap().is_none() {
            self.start_ccm();
        }
    }

    /// Kills the process that the cloud's code runs in, and starts it again.
    pub fn kill_cloud(&self) {
        match self.who {
            Who::Upstream => {
                *self.ccm.lock().unwrap() = None;
                self.start_ccm();
            }
            Who::Ours => {
                *self.provider.lock().unwrap() = None;
                self.start_provider();
            }
        }
    }

    /// Changes the cloud from outside.
    pub fn edit(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(binary());
        command
            .arg("file")
            .arg(&self.state)
            .arg(format!("{}://", self.cloud))
            .args(arguments);
        text(command.output().unwrap())
    }

    /// All calls of the cloud's API, one on each line.
    pub fn log(&self) -> String {
        let mut path = self.state.clone().into_os_string();
        path.push(".calls");
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// The calls of the cloud's API after the first `first`, by method, and the number of all
    /// calls.
    pub fn calls_from(&self, first: usize) -> (Calls, usize) {
        let mut calls = Calls::new();
        let mut all = 0;
        for line in self.log().lines() {
            all += 1;
            let call: Value = serde_json::from_str(line).unwrap();
            let what = call["what"].as_str().unwrap();
            // This cloud fills its cache every five seconds, whatever any controller does.
            if all > first && !(self.cloud == CACHES && what == FILLS) {
                let method = what.split(' ').next().unwrap();
                *calls.entry(method.to_owned()).or_default() += 1;
            }
        }
        (calls, all)
    }

    /// Adds an instance, and registers its Node as a kubelet does after the boot. By then a cloud
    /// with a cache of instances has filled the cache.
    pub async fn register(&self, number: u8) {
        let name = node(number);
        self.edit(&["instance-add", &name]);
        if self.cloud == CACHES {
            let before = self.log().lines().count();
            self.becomes("it fills its cache", async || {
                let log = self.log();
                let mut calls = log.lines().skip(before);
                let filled = calls.any(|call| call.contains(FILLS));
                filled.then_some(()).ok_or(log)
            })
            .await;
        } else {
            sleep(BOOT).await;
        }
        let node = NodeBuilder::new(name)
            .uninitialized()
            .label("kubernetes.io/os", "linux")
            .pod_cidrs(&[&format!("10.244.{number}.0/24")]);
        self.view.register(node).await;
    }

    pub async fn initialised(&self, number: u8) {
        self.node_is(number, "is initialised", |node| {
            node.is_some_and(|node| !is_tainted(node, UNINITIALIZED))
        })
        .await;
    }

    pub async fn is_shut_down(&self, number: u8, wanted: bool) {
        self.node_is(number, &format!("is shut down: {wanted}"), |node| {
            node.is_some_and(|node| is_tainted(node, SHUTDOWN) == wanted)
        })
        .await;
    }

    pub async fn is_gone(&self, number: u8) {
        self.node_is(number, "is gone", |node| node.is_none()).await;
    }

    async fn node_is(&self, number: u8, what: &str, good: impl Fn(Option<&Node>) -> bool) {
        let name = node(number);
        self.becomes(&format!("{name} {what}"), async || {
            let node = self.nodes().get_opt(&name).await;
            let node = node.map_err(|error| error.to_string())?;
            if good(node.as_ref()) {
                Ok(())
            } else {
                Err(format!("{node:?}"))
            }
        })
        .await;
    }

    /// Sets the Ready condition, as a kubelet or the node controller does.
    pub async fn ready(&self, number: u8, status: &str) {
        set_ready(&self.client, &node(number), status)
            .await
            .unwrap();
    }

    pub async fn serve(&self, name: &str) {
        let service = LoadBalancerBuilder::new("default", name);
        self.create_service(service).await;
    }

    pub async fn served(&self, name: &str) {
        self.service_is(name, "has an address", |service| {
            service.is_some_and(|it| ingress(it).is_some())
        })
        .await;
    }

    pub async fn unserved(&self, name: &str) {
        self.service_is(name, "has no finalizer", |service| {
            service.is_none_or(|it| it.metadata.finalizers.iter().flatten().next().is_none())
        })
        .await;
    }

    async fn service_is(&self, name: &str, what: &str, good: impl Fn(Option<&Service>) -> bool) {
        self.becomes(&format!("{name} {what}"), async || {
            let service = self.services().get_opt(name).await;
            let service = service.map_err(|error| error.to_string())?;
            if good(service.as_ref()) {
                Ok(())
            } else {
                Err(format!("{service:?}"))
            }
        })
        .await;
    }

    pub async fn annotate(&self, name: &str, value: &str) {
        let annotations = json!({"metadata": {"annotations": {"example.com/changed": value}}});
        self.edit_service(name, annotations).await;
    }

    /// Gives the Service another port, which every cloud has to write.
    pub async fn listen(&self, name: &str, port: u16) {
        let ports = json!([{"name": "http", "port": port, "protocol": "TCP"}]);
        self.edit_service(name, json!({"spec": {"ports": ports}}))
            .await;
    }

    /// Waits until a write to the cloud after the first `first` calls has succeeded.
    pub async fn written_since(&self, first: usize) {
        self.becomes("the cloud is written to", async || {
            let text = self.log();
            let written = text.lines().skip(first).any(|line| {
                let call: Value = serde_json::from_str(line).unwrap_or_default();
                call["status"] == 200
                    && !call["what"]
                        .as_str()
                        .is_some_and(|it| it.starts_with("GET"))
            });
            if written { Ok(()) } else { Err(text) }
        })
        .await;
    }

    /// Waits until `good` returns `Ok`, for at most four minutes.
    async fn becomes(&self, what: &str, good: impl AsyncFnMut() -> Result<(), String>) {
        let what = format!("{} with {:?}: {what}", self.cloud, self.who);
        eventually(&what, Duration::from_mins(4), good).await;
    }
}

impl Deref for Half {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["ccm.log", "provider.log"] {
                let log = std::fs::read_to_string(self.plane.directory().join(name));
                show_log(&format!("{:?} {name}", self.who), &log.unwrap_or_default());
            }
        }
    }
}

async fn end(process: &Mutex<Option<Process>>) {
    let taken = process.lock().unwrap().take();
    if let Some(mut process) = taken {
        process.terminate();
        process.wait(SOON).await.unwrap();
    }
}

pub fn node(number: u8) -> String {
    format!("node-{number}")
}
