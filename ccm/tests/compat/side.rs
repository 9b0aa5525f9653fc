//! One side of the comparison: a control plane, a cloud, and the controller between them. Also the
//! actions of the scenarios.

use std::fmt::Write as _;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use provider_mock::{Cloud, Fault, Fixture, Mock};
use serde_json::{Value, json};
use testenv::objects::{LoadBalancerBuilder, UNINITIALIZED};
use testenv::{ControlPlane, Options, Process, User, View, eventually, free_port};

use crate::binary::binary;

/// How long a wait may take, on a slow machine and with the Go CCM's backoff.
pub const SOON: Duration = Duration::from_mins(1);

/// The flags of both: short periods for the scenarios, and metrics for everybody. The Lease is
/// renewed often, for `View::renewals`. A leader gives up only after 10 s without a renewal,
/// because 3 s were too few on a busy machine. Upstream does not release the Lease, so a hand-over
/// from upstream takes the whole 12 s.
pub const COMMON: [&str; 16] = [
    "--leader-elect=true",
    "--leader-elect-lease-duration=12s",
    "--leader-elect-renew-deadline=10s",
    "--leader-elect-retry-period=500ms",
    "--node-monitor-period=1s",
    "--node-status-update-frequency=1s",
    "--concurrent-node-syncs=8",
    "--concurrent-service-syncs=8",
    "--bind-address=127.0.0.1",
    "--cluster-cidr=10.244.0.0/16,fd00:10:244::/64",
    "--allocate-node-cidrs=true",
    "--configure-cloud-routes=true",
    "--route-reconciliation-period=1s",
    "--authentication-skip-lookup=true",
    "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
    // With the route controller: routes are one of the scenarios' groups.
    "--controllers=*",
];

/// Further flags of the ccm: a Node may be deleted when it is a second old, and many at once.
pub const OURS: [&str; 1] = ["--node-deletion-brake=min-age=1s,floor=20"];

/// Further flags of the Go CCM. Its default limit of requests would delay the scenarios.
pub const GO: [&str; 3] = ["--kube-api-qps=1000", "--kube-api-burst=1000", "-v=2"];

/// The value of `--cluster-cidr`.
const CLUSTER_CIDRS: &str = "10.244.0.0/16, fd00:10:244::/64";

/// Which controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// Upstream's, with the adapter.
    Go,
    /// The one of this crate.
    Ours,
}

impl Who {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Go => Self::Ours,
            Self::Ours => Self::Go,
        }
    }
}

/// How the ccm reaches the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The ccm's provider is the cloud itself.
    Direct,
    /// Through Go: the ccm's provider is the bridge. The bridge's cloud is the adapter, and the
    /// adapter's provider is the cloud.
    Bridge,
}

/// A control plane and a cloud, with one of the controllers. Clones share them.
#[derive(Clone)]
pub struct Side(Arc<Inner>);

struct Inner {
    who: Who,
    way: Way,
    plane: ControlPlane,
    view: View,
    mock: Mock,
    controllers: Mutex<Vec<Running>>,
    bridge: Mutex<Option<Process>>,
}

struct Running {
    who: Who,
    port: u16,
    process: Process,
    log: PathBuf,
}

impl Deref for Side {
    type Target = View;

    fn deref(&self) -> &View {
        &self.0.view
    }
}

impl Side {
    /// A side without a controller.
    pub async fn new(who: Who, way: Way, fixture: Fixture) -> Self {
        let options = Options {
            // Allows Services of two IP families. If a flag is given twice, the last one counts.
            api_server_flags: vec![
                "--service-cluster-ip-range=10.0.0.0/16,fd00:10::/108".to_owned(),
            ],
            ..Options::default()
        };
        let plane = ControlPlane::start_with(options).await.unwrap();
        plane.grant();
        let socket = plane.directory().join("socket/provider.sock");
        let mock = Mock::start(fixture, &socket, None).await.unwrap();
        Self(Arc::new(Inner {
            who,
            way,
            view: View {
                client: plane.client(),
                patience: SOON,
            },
            plane,
            mock,
            controllers: Mutex::new(Vec::new()),
            bridge: Mutex::new(None),
        }))
    }

    /// Starts the bridge if the ccm reaches the cloud through it. Restarts a running one: the
    /// adapter reads the cloud's capabilities only at its start.
    pub async fn bridge(&self) {
        if self.0.way == Way::Direct {
            return;
        }
        let directory = self.0.plane.directory();
        let config = directory.join("bridged-cloud-config.yaml");
        let text = format!(
            "endpoint: {}\nownerID: {}\nclusterCIDRs: [{CLUSTER_CIDRS}]\n",
            self.0.mock.endpoint(),
            self.owner().await
        );
        std::fs::write(&config, text).unwrap();
        let settings = self.cloud().settings();
        let offered = settings.capabilities.load_balancers.features.iter();
        let features: Vec<String> = offered
            .filter_map(|feature| {
                serde_json::to_value(feature)
                    .unwrap()
                    .as_str()
                    .map(str::to_owned)
            })
            .collect();
        let mut command = Command::new(binary());
        command
            .args(["--cloud-provider=grpc-ccm", "--cloud-config"])
            .arg(config)
            .arg(format!("--endpoint={}", self.bridge_endpoint()))
            .arg(format!("--service-feature={}", features.join(",")))
            // The adapter resolves the targets of routes among all Nodes, which the bridge's
            // stand-in for the API server does not have.
            .arg("--kubeconfig")
            .arg(self.0.plane.kubeconfig(User::Admin))
            .arg("--concurrent-services=8")
            .arg(format!(
                "--routes-track-addresses={}",
                settings.capabilities.routes.tracks_node_addresses
            ));
        let mut running = self.0.bridge.lock().unwrap();
        // The earlier process ends first, because both serve the same endpoint.
        *running = None;
        *running = Some(Process::start(command, directory.join("bridge.log")).unwrap());
    }

    fn bridge_endpoint(&self) -> String {
        let socket = self.0.plane.directory().join("bridge/provider.sock");
        format!("unix://{}", socket.display())
    }

    /// The name in reports.
    pub fn label(&self) -> &'static str {
        match (self.0.who, self.0.way) {
            (Who::Go, _) => "go",
            (Who::Ours, Way::Direct) => "ours",
            (Who::Ours, Way::Bridge) => "bridged",
        }
    }

    /// Whether the ccm works here without Go in between. Then it gets hints about changes in the
    /// cloud, and `in_sync`.
    pub fn is_ours_directly(&self) -> bool {
        self.0.who == Who::Ours && self.0.way == Way::Direct
    }

    /// Whether the ccm, if it leads on this side, reaches the cloud without Go in between.
    pub fn has_no_go_between(&self) -> bool {
        self.0.way == Way::Direct
    }

    pub fn who(&self) -> Who {
        self.0.who
    }

    pub fn cloud(&self) -> &Cloud {
        self.0.mock.cloud()
    }

    pub fn client(&self) -> Client {
        self.0.view.client.clone()
    }

    /// Starts one of the controllers beside those that run.
    pub fn start(&self, who: Who) {
        let mut controllers = self.0.controllers.lock().unwrap();
        let port = free_port();
        let directory = self.0.plane.directory();
        let endpoint = self.0.mock.endpoint();
        let mut command = match who {
            Who::Ours => {
                let endpoint = match self.0.way {
                    Way::Direct => endpoint,
                    Way::Bridge => self.bridge_endpoint(),
                };
                let ccm = env!("CARGO_BIN_EXE_ccm");
                let mut command = self.0.plane.ccm(ccm, "mock", &endpoint);
                command.args(OURS);
                command
            }
            Who::Go => {
                let config = directory.join("cloud-config.yaml");
                std::fs::write(&config, format!("endpoint: {endpoint}\n")).unwrap();
                let mut command = self.0.plane.command("go-ccm");
                command
                    .arg("--kubeconfig")
                    .arg(self.0.plane.kubeconfig(User::Admin))
                    .args(["--cloud-provider=grpc-ccm", "--cloud-config"])
                    .arg(config)
                    .args(GO);
                command
            }
        };
        command.args(COMMON).arg(format!("--secure-port={port}"));
        let log = directory.join(format!("controller-{port}.log"));
        let process = Process::start(command, log.clone()).unwrap();
        controllers.push(Running {
            who,
            port,
            process,
            log,
        });
    }

    /// Asks the controller that was started first to end, and waits until it has.
    pub async fn stop_first(&self) {
        let mut first = self.0.controllers.lock().unwrap().remove(0);
        first.process.terminate();
        // How the process ends is not compared: upstream's CCM releases no Lease on SIGTERM.
        first.process.wait(SOON).await.unwrap();
    }

    /// Suspends the controllers until the result is dropped. Then they see all changes at once.
    #[must_use]
    pub fn suspend(&self) -> Suspended<'_> {
        for running in &*self.0.controllers.lock().unwrap() {
            running.process.suspend();
        }
        Suspended(self)
    }

    /// The HTTPS port of the controller that was started last.
    pub fn port(&self) -> u16 {
        self.0.controllers.lock().unwrap().last().unwrap().port
    }

    /// Keeps the logs of this side's controllers that still run, and says where.
    pub fn keep_logs(&self) -> String {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let mut kept = String::new();
        let mut keep = |who: &str, log: &str| {
            let path = directory.join(format!("compat-{}-{who}.log", self.label()));
            std::fs::write(&path, log).unwrap();
            let _ = writeln!(kept, "log: {}", path.display());
        };
        for (number, running) in self.0.controllers.lock().unwrap().iter().enumerate() {
            let log = std::fs::read_to_string(&running.log).unwrap_or_default();
            keep(&format!("{number}-{:?}", running.who), &log);
        }
        if let Some(bridge) = self.0.bridge.lock().unwrap().as_ref() {
            keep("bridge", &bridge.log());
        }
        kept
    }

    /// The owner ID with which the cluster marks its objects in the cloud.
    pub async fn owner(&self) -> String {
        let namespaces: Api<Namespace> = Api::all(self.client());
        let system = namespaces.get("kube-system").await.unwrap();
        system.metadata.uid.unwrap()
    }

    /// Waits until another process than `before` leads. Returns its identity.
    pub async fn led(&self, before: &str) -> String {
        eventually("somebody else leads", SOON, async || {
            let holder = self.holder().await?;
            if holder.is_empty() || holder == before {
                Err(format!("{holder:?}"))
            } else {
                Ok(holder)
            }
        })
        .await
    }

    /// The Services of a namespace: each scenario has its own.
    pub fn services(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.client(), namespace)
    }

    pub async fn namespace(&self, name: &str) {
        let namespace = json!({"metadata": {"name": name}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        let namespaces: Api<Namespace> = Api::all(self.client());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
    }

    pub async fn create_service(&self, service: LoadBalancerBuilder) -> Service {
        self.create_raw_service(service.build()).await
    }

    pub async fn create_raw_service(&self, service: Service) -> Service {
        let services = self.services(&service.namespace().unwrap());
        services
            .create(&PostParams::default(), &service)
            .await
            .unwrap()
    }

    /// A merge patch of a Service, as a user does it.
    ///
    /// The patch carries the resourceVersion. The API server first tries a patch on the cached
    /// Service, and allocates the node ports before it writes. If the cache is stale, it tries
    /// again, and its own first attempt has taken the ports (`registry.Store.Update` of Kubernetes
    /// 1.36). With a resourceVersion it notices the stale cache before it allocates ports.
    pub async fn edit_service(&self, namespace: &str, patch: Value) {
        let services = self.services(namespace);
        eventually("the Service is edited", SOON, async || {
            let mut patch = patch.clone();
            let read = services.get_metadata("web").await.unwrap();
            patch["metadata"]["resourceVersion"] = read.resource_version().into();
            let patch = Patch::Merge(patch);
            match services.patch("web", &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(refused)) if refused.code == 409 => Err(refused.message),
                edited => Ok(edited.unwrap()),
            }
        })
        .await;
    }

    pub async fn delete_service(&self, namespace: &str) {
        let services = self.services(namespace);
        services
            .delete("web", &DeleteParams::default())
            .await
            .unwrap();
    }

    pub async fn delete_node(&self, name: &str) {
        let gone = self.nodes().delete(name, &DeleteParams::default()).await;
        gone.unwrap();
    }

    /// Waits until the Node, or its absence, is as wanted.
    pub async fn node_is(&self, name: &str, what: &str, good: impl Fn(Option<&Node>) -> bool) {
        let what = format!("{:?}: node {name} {what}", self.who());
        eventually(&what, SOON, async || {
            let node = self
                .nodes()
                .get_opt(name)
                .await
                .map_err(|e| e.to_string())?;
            if good(node.as_ref()) {
                Ok(())
            } else {
                Err(format!("{node:?}"))
            }
        })
        .await;
    }

    /// Waits until the Service `web` of the namespace, or its absence, is as wanted.
    pub async fn service_is(
        &self,
        namespace: &str,
        what: &str,
        good: impl Fn(Option<&Service>) -> bool,
    ) {
        let what = format!("{:?}: service {namespace}/web {what}", self.who());
        eventually(&what, SOON, async || {
            let services = self.services(namespace);
            let service = services.get_opt("web").await.map_err(|e| e.to_string())?;
            if good(service.as_ref()) {
                Ok(())
            } else {
                Err(format!("{service:?}"))
            }
        })
        .await;
    }

    pub async fn initialised(&self, name: &str) {
        self.node_is(name, "is initialised", |node| {
            let spec = node.and_then(|node| node.spec.as_ref());
            spec.is_some_and(|spec| {
                let mut taints = spec.taints.iter().flatten();
                spec.provider_id.is_some() && taints.all(|taint| taint.key != UNINITIALIZED)
            })
        })
        .await;
    }

    pub async fn balanced(&self, namespace: &str) {
        self.service_is(namespace, "has an address", |service| {
            service.is_some_and(|service| !ingress(service).is_empty())
        })
        .await;
    }

    /// Waits until the cloud is as wanted.
    pub async fn cloud_is(&self, what: &str, good: impl Fn(&Cloud) -> bool) {
        let became = self.cloud().wait_until(SOON, good).await;
        assert!(became, "{:?}: not in time: {what}", self.who());
    }

    /// How many calls of this RPC about this Service or Node have ended.
    pub fn asked(&self, rpc: &str, subject: &str) -> usize {
        let calls = self.cloud().calls(Some(rpc));
        let about = |names: &[String]| names.iter().any(|name| name == subject);
        calls.iter().filter(|call| about(&call.names)).count()
    }

    /// Waits until at least this many calls have ended.
    pub async fn asked_times(&self, rpc: &str, subject: &str, times: usize) {
        let what = format!("{times} {rpc} for {subject}");
        self.cloud_is(&what, |_| self.asked(rpc, subject) >= times)
            .await;
    }

    pub fn fault(&self, fault: Fault) -> u64 {
        self.cloud().set_fault(fault).unwrap()
    }
}

/// A side whose controllers are suspended.
pub struct Suspended<'a>(&'a Side);

impl Drop for Suspended<'_> {
    fn drop(&mut self) {
        for running in &*self.0.0.controllers.lock().unwrap() {
            running.process.resume();
        }
    }
}

/// Where the Service's load balancer can be reached.
pub fn ingress(service: &Service) -> Vec<String> {
    let status = service.status.as_ref();
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let points = balancer.and_then(|balancer| balancer.ingress.as_ref());
    let address = |point: &k8s_openapi::api::core::v1::LoadBalancerIngress| {
        point.ip.clone().or_else(|| point.hostname.clone())
    };
    points.into_iter().flatten().filter_map(address).collect()
}
