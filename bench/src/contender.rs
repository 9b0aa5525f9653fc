//! The measured programs: an upstream Go CCM, or ours.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use testenv::{ControlPlane, Process, User};
use tokio::time::{Instant, sleep};

/// Which controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Upstream at its defaults.
    Go,
    /// Upstream with many workers, and a client-side throttle that is too high to matter.
    GoTuned,
    /// Ours at its defaults.
    Ours,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Go => "Go CCM",
            Self::GoTuned => "Go CCM, tuned",
            Self::Ours => "ccm",
        }
    }
}

/// The duration of each call of Go's cloud. `cloud.yaml` has that of our provider's RPCs.
const LATENCY: &str = "50ms";

/// The answers of the cloud.
pub(crate) enum Instances<'a> {
    /// All exist and run.
    Run,
    /// All are shut down.
    Stopped,
    /// The cloud reports that none exists, although all do.
    Gone,
    /// All but this one exist and run.
    OneGone(&'a str),
}

/// The provider asks its cloud about each Node separately. It allows 32 lookups at once, because
/// the ccm never makes more. The tuned Go CCM has 64 workers, so it may have twice as many in
/// flight.
const CALL_PER_NODE: &str =
    "capabilities:\n  instances:\n    max_batch: 1\n    max_in_flight: 32\n";

/// A controller with its cloud.
pub(crate) struct Contender {
    kind: Kind,
    provider: Option<Process>,
    ccm: Option<Process>,
    number: usize,
    routes: bool,
}

impl Contender {
    /// Starts no controller yet, only our provider if the contender is ours. The Go CCM's process
    /// contains its cloud. Go's cloud and ours have an instance for every Node name of a scenario.
    pub(crate) async fn new(kind: Kind, plane: &ControlPlane, number: usize) -> Result<Self> {
        Self::with_cloud(kind, plane, number, include_str!("cloud.yaml")).await
    }

    /// As [`Self::new`]. If the contender is ours, its provider asks its cloud about each Node
    /// separately.
    pub(crate) async fn with_a_call_per_node(kind: Kind, plane: &ControlPlane) -> Result<Self> {
        let cloud = format!("{}{CALL_PER_NODE}", include_str!("cloud.yaml"));
        Self::with_cloud(kind, plane, 0, &cloud).await
    }

    async fn with_cloud(
        kind: Kind,
        plane: &ControlPlane,
        number: usize,
        text: &str,
    ) -> Result<Self> {
        let mut contender = Self {
            kind,
            provider: None,
            ccm: None,
            number,
            routes: false,
        };
        if kind == Kind::Ours {
            let cloud = plane.directory().join("cloud.yaml");
            std::fs::write(&cloud, text)?;
            let mut command = Command::new(beside_us("provider-mock")?);
            command
                .args(["serve", "--endpoint", &contender.endpoint(plane), "--cloud"])
                .arg(cloud);
            contender.provider = Some(Process::start(
                command,
                plane.directory().join(format!("provider-{number}.log")),
            )?);
            let end = Instant::now() + Duration::from_secs(10);
            while contender.calls(plane).is_err() {
                if Instant::now() > end {
                    bail!("the provider does not answer");
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(contender)
    }

    fn endpoint(&self, plane: &ControlPlane) -> String {
        format!(
            "unix://{}",
            plane
                .directory()
                .join(format!("socket-{}/p.sock", self.number))
                .display()
        )
    }

    fn calls_file(&self, plane: &ControlPlane) -> PathBuf {
        plane
            .directory()
            .join(format!("go-ccm-calls-{}.json", self.number))
    }

    fn machines_file(&self, plane: &ControlPlane) -> PathBuf {
        let name = format!("go-ccm-machines-{}.json", self.number);
        plane.directory().join(name)
    }

    /// From now on the cloud gives these answers about its instances.
    pub(crate) fn cloud_says(&self, plane: &ControlPlane, what: &Instances<'_>) -> Result<()> {
        if self.kind != Kind::Ours {
            let said = match what {
                Instances::Run => json!({}),
                Instances::Stopped => json!({"all": "stopped"}),
                Instances::Gone => json!({"all": "gone"}),
                Instances::OneGone(name) => json!({"gone": [name]}),
            };
            let path = self.machines_file(plane);
            // Replaces the file atomically, because the cloud may read it at any time.
            let new = path.with_extension("new");
            std::fs::write(&new, said.to_string())?;
            return Ok(std::fs::rename(new, path)?);
        }
        self.ctl(plane, &["fault", "clear"])?;
        let lie = [
            "fault",
            "set",
            "LookupInstances",
            "instance-state",
            "--value",
        ];
        match what {
            Instances::Run => {}
            Instances::Stopped => drop(self.ctl(plane, &[&lie[..], &["STOPPED"]].concat())?),
            Instances::Gone => {
                self.ctl(plane, &["fault", "set", "ListInstances", "list-empty"])?;
                self.ctl(plane, &[&lie[..], &["ABSENT"]].concat())?;
            }
            Instances::OneGone(name) => drop(self.ctl(plane, &["instance", "remove", name])?),
        }
        Ok(())
    }

    fn ctl(&self, plane: &ControlPlane, words: &[&str]) -> Result<Vec<u8>> {
        let output = Command::new(beside_us("provider-mock")?)
            .args(["ctl", "--endpoint", &self.endpoint(plane)])
            .args(words)
            .output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(output.stdout)
    }

    /// The controller makes routes from its next start on.
    pub(crate) fn with_routes(&mut self) {
        self.routes = true;
    }

    /// Starts the controller.
    pub(crate) fn start(&mut self, plane: &ControlPlane, elect: bool) -> Result<()> {
        let mut command = if self.kind == Kind::Ours {
            let mut command = Command::new(beside_us("ccm")?);
            command.arg(format!("--provider=mock={}", self.endpoint(plane)));
            command
        } else {
            let mut command = plane.command("go-ccm");
            let routes = if self.routes {
                ",node-route-controller"
            } else {
                ""
            };
            command
                .args(["--cloud-provider=bench", "--authentication-skip-lookup=true"])
                .arg(format!("--controllers=cloud-node-controller,cloud-node-lifecycle-controller,service-lb-controller{routes}"))
                .env("GO_CCM_LATENCY", LATENCY)
                .env("GO_CCM_CALLS", self.calls_file(plane))
                .env("GO_CCM_MACHINES", self.machines_file(plane));
            if self.kind == Kind::GoTuned {
                command.args([
                    "--concurrent-node-syncs=64",
                    "--concurrent-service-syncs=64",
                    "--kube-api-qps=100000",
                    "--kube-api-burst=100000",
                ]);
            }
            command
        };
        command
            .arg("--kubeconfig")
            .arg(plane.kubeconfig(User::Admin))
            .args([
                "--secure-port=0".to_owned(),
                format!("--leader-elect={elect}"),
            ]);
        if self.routes {
            command.args(["--allocate-node-cidrs=true", "--cluster-cidr=10.0.0.0/8"]);
        }
        let log = plane.directory().join(format!("ccm-{}.log", self.number));
        self.ccm = Some(Process::start(command, log)?);
        Ok(())
    }

    /// kill -9 of the controller.
    pub(crate) fn kill(&mut self) {
        self.ccm = None;
    }

    /// SIGTERM to the controller.
    pub(crate) fn terminate(&mut self) {
        if let Some(ccm) = &self.ccm {
            ccm.terminate();
        }
    }

    /// Resident memory in MB of the controller and of the provider. NaN for the provider if there
    /// is none: the Go CCM's process contains its cloud.
    pub(crate) fn megabytes(&self) -> [f64; 2] {
        [&self.ccm, &self.provider].map(|process| {
            let process = process.as_ref();
            process.map_or(f64::NAN, |it| (it.resident_bytes() / 1_000_000) as f64)
        })
    }

    /// Calls of the cloud so far, by method or RPC. A Go CCM counts from its last start on.
    pub(crate) fn calls(&self, plane: &ControlPlane) -> Result<BTreeMap<String, u64>> {
        if self.kind != Kind::Ours {
            let text =
                std::fs::read_to_string(self.calls_file(plane)).unwrap_or_else(|_| "{}".to_owned());
            return Ok(serde_json::from_str(&text)?);
        }
        let text = self.ctl(plane, &["calls", "--json"])?;
        let value: serde_json::Value = serde_json::from_slice(&text)?;
        serde_json::from_value(value["counts"].clone()).context("counts of calls")
    }

    /// The sum of the calls whose name has one of these prefixes.
    pub(crate) fn count(&self, plane: &ControlPlane, names: &[&str]) -> Result<u64> {
        Ok(self
            .calls(plane)?
            .iter()
            .filter(|(name, _)| names.iter().any(|begin| name.starts_with(begin)))
            .map(|(_, count)| count)
            .sum())
    }

    /// Waits until no call with one of these prefixes was made for this time. Returns the number of
    /// such calls so far.
    pub(crate) async fn quiet(
        &self,
        plane: &ControlPlane,
        names: &[&str],
        for_so_long: Duration,
    ) -> Result<u64> {
        let mut last = (self.count(plane, names)?, Instant::now());
        let end = Instant::now() + Duration::from_mins(10);
        while last.1.elapsed() < for_so_long {
            sleep(Duration::from_millis(500)).await;
            let now = self.count(plane, names)?;
            if now != last.0 {
                last = (now, Instant::now());
            }
            if Instant::now() > end {
                bail!("the calls never stopped: {now}");
            }
        }
        Ok(last.0)
    }
}

pub(crate) fn beside_us(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.exists() {
        Ok(path)
    } else {
        bail!("{} is not built: run `make bench`", path.display())
    }
}
