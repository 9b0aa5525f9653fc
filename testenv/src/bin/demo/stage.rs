//! The processes of the demo, and its output.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kube::Client;
use testenv::{ControlPlane, Process, User, Vendor};
use tokio::time::{Instant, sleep, timeout_at};

use crate::cloud::Cloud;

/// The result of a step. `Err`: what failed.
pub(crate) type Held<T = ()> = Result<T, String>;

/// The control plane, the provider and the ccm.
pub(crate) struct Stage {
    plane: ControlPlane,
    pub(crate) client: Client,
    pub(crate) cloud: Cloud,
    ccm: Option<Process>,
    began: Instant,
    steps: usize,
    calls_before: BTreeMap<String, u64>,
    changes_before: u64,
    step_began: Instant,
}

impl Stage {
    /// Starts the control plane and grants the ccm its rights.
    pub(crate) async fn set(vendor: Option<Vendor>) -> Held<Self> {
        let began = Instant::now();
        println!("Starting etcd and a real kube-apiserver on loopback ports ...");
        let plane = ControlPlane::start().await.map_err(text)?;
        let client = plane.client();
        let stage = Self {
            cloud: Cloud::new(vendor, plane.directory()).await?,
            plane,
            client,
            ccm: None,
            began,
            steps: 0,
            calls_before: BTreeMap::new(),
            changes_before: 0,
            step_began: began,
        };
        stage.plane.grant();
        println!(
            "kube-apiserver {} answers after {:.1} s; the ccm has only the rights of deploy/kustomize/base/rbac.yaml.",
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

    /// How long the demo has been running.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// A file of the demo.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.plane.directory().join(name)
    }

    /// Starts the provider.
    pub(crate) fn start_provider(&mut self) -> Held {
        if self.cloud.start_provider()? {
            self.calls_before.clear();
            self.changes_before = 0;
        }
        Ok(())
    }

    /// Starts the ccm, as its own service account.
    pub(crate) fn start_ccm(&mut self) -> Held {
        let (provider, endpoint) = (self.cloud.name(), self.cloud.endpoint());
        let ccm = beside_us("ccm")?;
        let mut command = self.plane.ccm(ccm, provider, &endpoint);
        command.args([
            "--secure-port=0".to_owned(),
            // By default the ccm deletes a Node only if it is a minute old. A demo is too short for
            // that.
            "--node-deletion-brake=min-age=10s".to_owned(),
        ]);
        self.ccm = Some(Process::start(command, self.file("ccm.log")).map_err(text)?);
        Ok(())
    }

    /// kill -9.
    pub(crate) fn kill_ccm(&mut self) {
        self.ccm = None;
    }

    /// The log of the ccm.
    pub(crate) fn ccm_log(&self) -> String {
        std::fs::read_to_string(self.file("ccm.log")).unwrap_or_default()
    }

    /// Runs kubectl and returns what it printed.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Held<String> {
        run(self.plane.kubectl().args(args))
    }

    /// How many of the calls in [`Cloud::changes`] belong to this step.
    pub(crate) fn changes(&self) -> Held<u64> {
        Ok(self.cloud.changes()?.saturating_sub(self.changes_before))
    }

    /// Begins a step: prints its title and action.
    pub(crate) fn step(&mut self, title: &str, done: &str) {
        self.steps += 1;
        println!("\n━━ {}. {title}", self.steps);
        for line in done.lines() {
            println!("   {}", line.trim());
        }
        self.calls_before = self.cloud.calls().unwrap_or_default();
        self.changes_before = self.cloud.changes().unwrap_or_default();
        self.step_began = Instant::now();
    }

    /// Prints kubectl's output as evidence.
    pub(crate) fn show(&self, args: &[&str]) -> Held {
        println!("   $ kubectl {}", shortened(args));
        for line in self.kubectl(args)?.lines() {
            println!("   {line}");
        }
        Ok(())
    }

    /// Ends a successful step: prints its cost.
    pub(crate) fn held(&self, what: &str) -> Held {
        let cost: Vec<String> = self
            .cloud
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
            "   ✔ {what} after {:.1} s. {}: {}",
            self.step_began.elapsed().as_secs_f64(),
            self.cloud.counted(),
            if cost.is_empty() {
                "none".to_owned()
            } else {
                cost.join(", ")
            }
        );
        Ok(())
    }

    /// Copies the logs to a directory that stays, and returns it.
    pub(crate) fn keep_logs(&self) -> PathBuf {
        let kept = std::env::temp_dir().join(format!("ccm-demo-{}", std::process::id()));
        let _ = std::fs::create_dir_all(&kept);
        let mut logs = self.cloud.logs();
        logs.extend(["ccm.log", "kube-apiserver.log", "etcd.log"].map(String::from));
        for name in logs {
            let _ = std::fs::copy(self.file(&name), kept.join(name.replace('/', "-")));
        }
        kept
    }

    /// Prints instructions for experiments with the running processes.
    pub(crate) fn tell_how_to_play(&self) {
        let (exports, command) = self.cloud.how_to_play();
        println!(
            "\nEverything keeps running until Ctrl-C. In another terminal:\n\n  export KUBECONFIG={}{exports}\n  {} kubectl get nodes\n  {command}\n\nThe ccm never deletes a Ready Node, whatever the cloud answers: docs/node-deletion.md.\nLogs: {}",
            self.plane.kubeconfig(User::Admin).display(),
            Path::new(self.plane.command("kubectl").get_program()).display(),
            self.file("").display(),
        );
    }
}

/// Repeats `look` until it succeeds, for at most `deadline`.
pub(crate) async fn until<T, E: Display>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Result<T, E>,
) -> Held<T> {
    let end = Instant::now() + deadline;
    let mut reason = String::from("no check has run");
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

/// The binaries of this workspace are beside the demo's own.
pub(crate) fn beside_us(name: &str) -> Held<PathBuf> {
    let path = std::env::current_exe().map_err(text)?.with_file_name(name);
    if path.exists() {
        Ok(path)
    } else {
        Err(format!("{} is not built: run `make demo`", path.display()))
    }
}

pub(crate) fn run(command: &mut Command) -> Held<String> {
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
