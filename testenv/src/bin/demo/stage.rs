//! The processes of the demo, and how a step is told.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kube::Client;
use testenv::{ControlPlane, Process, User};
use tokio::time::{Instant, sleep, timeout_at};

/// What a step is about when it does not hold.
pub(crate) type Held<T = ()> = Result<T, String>;

/// A cloud with room for what the demo does. A lookup takes 50 ms, a load balancer one second.
const CLOUD: &str = include_str!("cloud.yaml");

/// The control plane, the provider and the ccm.
pub(crate) struct Stage {
    plane: ControlPlane,
    pub(crate) client: Client,
    provider: Option<Process>,
    ccm: Option<Process>,
    began: Instant,
    steps: usize,
    calls_before: BTreeMap<String, u64>,
    step_began: Instant,
}

impl Stage {
    /// Starts the control plane and grants the ccm its rights.
    pub(crate) async fn set() -> Held<Self> {
        let began = Instant::now();
        println!("Setting the stage: etcd and a real kube-apiserver on loopback ports ...");
        let plane = ControlPlane::start().await.map_err(text)?;
        let client = plane.client();
        let stage = Self {
            plane,
            client,
            provider: None,
            ccm: None,
            began,
            steps: 0,
            calls_before: BTreeMap::new(),
            step_began: began,
        };
        std::fs::write(stage.file("cloud.yaml"), CLOUD).map_err(text)?;
        std::fs::write(
            stage.file("rbac.yaml"),
            include_str!("../../../../deploy/kustomize/base/rbac.yaml"),
        )
        .map_err(text)?;
        stage.kubectl(&[
            "apply",
            "-f",
            &stage.file("rbac.yaml").display().to_string(),
        ])?;
        println!(
            "kube-apiserver {} answers after {:.1} s; the ccm has the rights of deploy/kustomize/base/rbac.yaml and no more.",
            stage
                .client
                .apiserver_version()
                .await
                .map_err(text)?
                .git_version,
            began.elapsed().as_secs_f64()
        );
        Ok(stage)
    }

    /// How long the demo runs.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// A file of the demo.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.plane.directory().join(name)
    }

    fn endpoint(&self) -> String {
        format!("unix://{}", self.file("socket/provider.sock").display())
    }

    /// Starts the provider; its cloud is kept in a file, as a real cloud outlives its provider.
    pub(crate) fn start_provider(&mut self) -> Held {
        let mut command = Command::new(beside_us("provider-mock")?);
        command
            .args(["serve", "--endpoint", &self.endpoint(), "--cloud"])
            .arg(self.file("cloud.yaml"))
            .arg("--state")
            .arg(self.file("cloud-state.json"));
        self.provider = Some(Process::start(command, self.file("provider.log")).map_err(text)?);
        // A new process counts from zero.
        self.calls_before.clear();
        Ok(())
    }

    /// Starts the ccm, as its own service account.
    pub(crate) fn start_ccm(&mut self) -> Held {
        let mut command = Command::new(beside_us("ccm")?);
        command
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig(User::Ccm))
            .args([
                format!("--provider=mock={}", self.endpoint()),
                "--secure-port=0".to_owned(),
                // In a cluster a Node must be a minute old before it can be deleted; nobody wants to watch that.
                "--node-deletion-brake=min-age=10s".to_owned(),
            ]);
        self.ccm = Some(Process::start(command, self.file("ccm.log")).map_err(text)?);
        Ok(())
    }

    /// kill -9.
    pub(crate) fn kill_provider(&mut self) {
        self.provider = None;
    }

    /// kill -9.
    pub(crate) fn kill_ccm(&mut self) {
        self.ccm = None;
    }

    /// What the ccm wrote.
    pub(crate) fn ccm_log(&self) -> String {
        std::fs::read_to_string(self.file("ccm.log")).unwrap_or_default()
    }

    /// Runs kubectl and returns what it printed.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Held<String> {
        run(self.plane.kubectl().args(args))
    }

    /// Runs `provider-mock ctl` and returns what it printed.
    pub(crate) fn ctl(&self, args: &[&str]) -> Held<String> {
        run(Command::new(beside_us("provider-mock")?)
            .args(["ctl", "--endpoint", &self.endpoint()])
            .args(args))
    }

    /// How often each RPC of the controllers was called since the provider's process began.
    pub(crate) fn calls(&self) -> Held<BTreeMap<String, u64>> {
        let json = self.ctl(&["calls", "--json"])?;
        let value: serde_json::Value = serde_json::from_str(&json).map_err(text)?;
        let counts = value["counts"]
            .as_object()
            .ok_or(format!("no counts in {json}"))?;
        Ok(counts
            .iter()
            .filter(|(rpc, _)| !matches!(rpc.as_str(), "Probe" | "GetProviderInfo"))
            .filter_map(|(rpc, count)| Some((rpc.clone(), count.as_u64()?)))
            .collect())
    }

    /// Begins a step: prints what is done.
    pub(crate) fn step(&mut self, title: &str, done: &str) {
        self.steps += 1;
        println!("\n━━ {}. {title}", self.steps);
        for line in done.lines() {
            println!("   {}", line.trim());
        }
        self.calls_before = self.calls().unwrap_or_default();
        self.step_began = Instant::now();
    }

    /// Shows what kubectl says, as proof.
    pub(crate) fn show(&self, args: &[&str]) -> Held {
        println!("   $ kubectl {}", shortened(args));
        for line in self.kubectl(args)?.lines() {
            println!("   {line}");
        }
        Ok(())
    }

    /// Ends a step that held: prints what it cost.
    pub(crate) fn held(&self, what: &str) -> Held {
        let cost: Vec<String> = self
            .calls()?
            .into_iter()
            .map(|(rpc, count)| {
                (
                    count.saturating_sub(*self.calls_before.get(&rpc).unwrap_or(&0)),
                    rpc,
                )
            })
            .filter(|(count, _)| *count > 0)
            .map(|(count, rpc)| format!("{rpc} {count}"))
            .collect();
        println!(
            "   ✔ {what} after {:.1} s. RPCs: {}",
            self.step_began.elapsed().as_secs_f64(),
            if cost.is_empty() {
                "none".to_owned()
            } else {
                cost.join(", ")
            }
        );
        Ok(())
    }

    /// The directory of the logs, which stays.
    pub(crate) fn keep_logs(&self) -> PathBuf {
        let kept = std::env::temp_dir().join(format!("ccm-demo-{}", std::process::id()));
        let _ = std::fs::create_dir_all(&kept);
        for name in [
            "ccm.log",
            "provider.log",
            "cloud-state.json",
            "kube-apiserver.log",
            "etcd.log",
        ] {
            let _ = std::fs::copy(self.file(name), kept.join(name));
        }
        kept
    }

    /// How to play with what still runs.
    pub(crate) fn tell_how_to_play(&self) {
        println!(
            "\nAll of it keeps running until Ctrl-C. In another terminal:\n\n  export KUBECONFIG={} PROVIDER_MOCK_ENDPOINT={}\n  {} kubectl get nodes\n  {} ctl instance list\n\nA Node that is Ready is never deleted, whatever the cloud says: docs/node-deletion.md.\nLogs: {}",
            self.plane.kubeconfig(User::Admin).display(),
            self.endpoint(),
            Path::new(self.plane.command("kubectl").get_program()).display(),
            beside_us("provider-mock").unwrap_or_default().display(),
            self.file("").display(),
        );
    }
}

/// Looks again and again until it holds, at most `deadline`.
pub(crate) async fn until<T, E: Display>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Result<T, E>,
) -> Held<T> {
    let end = Instant::now() + deadline;
    let mut reason = String::from("it was never looked at");
    while Instant::now() < end {
        match timeout_at(end, look()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(why)) => reason = why.to_string(),
            Err(_) => break,
        }
        sleep(Duration::from_millis(50)).await;
    }
    Err(format!(
        "not within {deadline:?}: {what}\n   last seen: {reason}"
    ))
}

/// The binaries of this workspace lie beside the demo's own.
fn beside_us(name: &str) -> Held<PathBuf> {
    let path = std::env::current_exe().map_err(text)?.with_file_name(name);
    if path.exists() {
        Ok(path)
    } else {
        Err(format!("{} is not built: run `make demo`", path.display()))
    }
}

fn run(command: &mut Command) -> Held<String> {
    let output = command.output().map_err(text)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}

fn shortened(args: &[&str]) -> String {
    args.iter()
        .map(|arg| match arg.split_once('=') {
            Some((flag, _)) if arg.len() > 60 => format!("{flag}=…"),
            _ => (*arg).to_owned(),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

pub(crate) fn text(error: impl Display) -> String {
    error.to_string()
}
