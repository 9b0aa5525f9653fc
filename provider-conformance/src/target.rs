//! The checked provider: one that runs already, or one that the suite starts, kills and restarts.

use std::fs::{File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::check::{Stop, Verdict, cut};
use super::idle::{Heard, Idle};

/// The environment variable with a command's endpoint. `{endpoint}` in the command is replaced too.
pub(crate) const ENDPOINT_VARIABLE: &str = "CLOUD_PROVIDER_ENDPOINT";
/// A secret in the environment of a provider that the suite starts. No answer may contain it.
pub(crate) const CANARY: &str = "conformance-canary-5f1d7c0e9b3a";
/// The limit for a provider's start.
const START: Duration = Duration::from_mins(1);
/// The limit for a killed process to be gone.
const DEATH: Duration = Duration::from_secs(20);
/// The limit for a process to end after its connections have ended.
const END: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// The provider to check.
#[derive(Debug, Clone)]
pub enum Provider {
    /// A provider that already serves at this endpoint: `unix://` and an absolute path.
    Endpoint(String),
    /// A shell command that starts a provider.
    Command(String),
}

#[derive(Debug)]
pub(crate) struct Target {
    path: PathBuf,
    command: Option<Started>,
    idle: Mutex<Idle>,
}

#[derive(Debug)]
struct Started {
    line: String,
    directory: TempDir,
    process: Mutex<Option<Process>>,
}

/// A process group of the provider. Dropping this kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    group: Pid,
    log: PathBuf,
    /// The suite sent SIGTERM.
    termed: bool,
}

pub(crate) fn fill_in(line: &str, endpoint: &str) -> String {
    line.replace("{endpoint}", endpoint)
}

impl Target {
    /// Connects to a provider, or starts its command.
    pub(crate) async fn reach(provider: &Provider) -> Result<Self, String> {
        match provider {
            Provider::Endpoint(endpoint) => {
                let path = endpoint
                    .strip_prefix("unix://")
                    .filter(|path| path.starts_with('/'))
                    .ok_or_else(|| {
                        format!("--endpoint {endpoint:?}: write unix:// and an absolute path")
                    })?;
                let target = Self {
                    path: path.into(),
                    command: None,
                    idle: Mutex::default(),
                };
                match UnixStream::connect(&target.path).await {
                    Ok(_) => {
                        target.idle.lock().await.begin(&target.path).await;
                        Ok(target)
                    }
                    Err(error) => Err(format!("no process answers at {endpoint}: {error}")),
                }
            }
            Provider::Command(line) => {
                let directory = tempfile::Builder::new()
                    .prefix("conformance-")
                    // The provider itself has to refuse other users at the socket.
                    .permissions(Permissions::from_mode(0o711))
                    .tempdir()
                    .map_err(|error| format!("cannot make a directory for the socket: {error}"))?;
                let target = Self {
                    // The provider creates the socket's directory (CORE-2).
                    path: directory.path().join("socket/provider.sock"),
                    command: Some(Started {
                        line: line.clone(),
                        directory,
                        process: Mutex::new(None),
                    }),
                    idle: Mutex::default(),
                };
                target.start().await?;
                Ok(target)
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.path.display())
    }

    /// Whether the suite starts the provider.
    pub(crate) fn is_ours(&self) -> bool {
        self.command.is_some()
    }

    fn started(&self) -> Verdict<&Started> {
        let lack = || Stop::not_set_up("the suite did not start the provider (--command)");
        self.command.as_ref().ok_or_else(lack)
    }

    /// Starts the provider unless it runs, and waits until its socket accepts connections. Without
    /// a command it does nothing.
    pub(crate) async fn start(&self) -> Result<(), String> {
        let Some(started) = &self.command else {
            return Ok(());
        };
        let mut process = started.process.lock().await;
        if let Some(running) = process.as_mut()
            && running
                .child
                .try_wait()
                .is_ok_and(|status| status.is_none())
        {
            return Ok(());
        }
        if process.take().is_some() {
            self.idle.lock().await.died();
        }
        let mut new = started.spawn(&self.endpoint())?;
        let patience = Instant::now() + START;
        while UnixStream::connect(&self.path).await.is_err() {
            if let Ok(Some(status)) = new.child.try_wait() {
                return Err(format!(
                    "the command ended ({status}) before a process answered at {}; its last output:\n{}",
                    self.endpoint(),
                    new.last_words()
                ));
            }
            if Instant::now() > patience {
                return Err(format!(
                    "no process answers at {} after {START:?}; the suite replaces {{endpoint}} in the command with this endpoint and sets \
                     ${ENDPOINT_VARIABLE}; the command's last output:\n{}",
                    self.endpoint(),
                    new.last_words()
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
        *process = Some(new);
        self.idle.lock().await.begin(&self.path).await;
        Ok(())
    }

    /// The events on idle connections since the run began, and how long the longest connection
    /// lasted. Waits until the current connection is at least this old.
    pub(crate) async fn idle(&self, at_least: Duration) -> (Vec<Heard>, Duration) {
        let since = self.idle.lock().await.since();
        if let Some(since) = since {
            tokio::time::sleep_until(since + at_least).await;
        }
        self.idle.lock().await.heard()
    }

    /// Why and how the process ended, if it has ended and the suite neither killed nor restarted it.
    pub(crate) async fn died(&self) -> Option<String> {
        let mut process = self.command.as_ref()?.process.lock().await;
        let running = process.as_mut()?;
        // Its connections end a little before the process.
        let mut status = tokio::time::timeout(END, running.child.wait()).await;
        if status.is_err() && UnixStream::connect(&self.path).await.is_err() {
            // It serves no longer, so it is about to end.
            status = tokio::time::timeout(END * 4, running.child.wait()).await;
        }
        let status = status.ok()?.ok()?;
        let why = if running.termed {
            "after the suite's SIGTERM"
        } else {
            "by itself"
        };
        Some(format!(
            "{why} ({status}; its last output:\n{})",
            running.last_words()
        ))
    }

    /// Starts the provider again unless it runs, so that this check or a later one can go on.
    pub(crate) async fn revive(&self) -> Verdict {
        self.start().await.map_err(|error| {
            Stop::failed(
                "CORE-6",
                "the provider is started again on its old endpoint",
                "it serves again",
                error,
            )
        })
    }

    /// Kills the provider's process group as `kill -9` does, and waits until it has ended.
    pub(crate) async fn kill(&self) -> Verdict {
        let process = self.started()?.process.lock().await.take();
        self.idle.lock().await.end();
        if let Some(mut process) = process {
            process.signal(Signal::KILL);
            process.ended(DEATH).await;
        }
        Ok(())
    }

    /// Kills the provider and starts it again.
    pub(crate) async fn restart(&self) -> Verdict {
        self.kill().await?;
        self.revive().await
    }

    /// Sends SIGTERM, then waits as [`Self::wait`] does.
    pub(crate) async fn terminate(&self, patience: Duration) -> Verdict<Option<ExitStatus>> {
        self.send_term().await?;
        self.wait(patience).await
    }

    /// Sends SIGTERM and does not wait.
    pub(crate) async fn send_term(&self) -> Verdict {
        if let Some(process) = &mut *self.started()?.process.lock().await {
            self.idle.lock().await.end();
            process.termed = true;
            process.signal(Signal::TERM);
        }
        Ok(())
    }

    /// Waits for the end of a provider after SIGTERM. `None`: no process ran, or it still ran after
    /// this time and was killed.
    pub(crate) async fn wait(&self, patience: Duration) -> Verdict<Option<ExitStatus>> {
        let process = self.started()?.process.lock().await.take();
        Ok(match process {
            Some(mut process) => process.ended(patience).await,
            None => None,
        })
    }

    /// A second process of the same command on the same endpoint. The caller waits for its end.
    pub(crate) fn second(&self) -> Verdict<Process> {
        let started = self.started()?;
        started
            .spawn(&self.endpoint())
            .map_err(|error| Stop::not_set_up(format!("cannot start a second process: {error}")))
    }

    /// The ID of the process at the socket's other end.
    pub(crate) async fn pid(&self) -> Option<i32> {
        UnixStream::connect(&self.path)
            .await
            .ok()?
            .peer_cred()
            .ok()?
            .pid()
    }
}

impl Started {
    fn spawn(&self, endpoint: &str) -> Result<Process, String> {
        let log = self.directory.path().join("provider.log");
        let fault = |error: std::io::Error| format!("cannot start the command: {error}");
        let file = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&log)
            .map_err(fault)?;
        let child = Command::new("sh")
            .arg("-c")
            .arg(fill_in(&self.line, endpoint))
            .env(ENDPOINT_VARIABLE, endpoint)
            .env("CLOUD_PROVIDER_CANARY_SECRET", CANARY)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(fault)?)
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .map_err(fault)?;
        let group = child
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()))
            .ok_or_else(|| "the command ended at once".to_owned())?;
        Ok(Process {
            child,
            group,
            log,
            termed: false,
        })
    }
}

impl Process {
    fn signal(&self, signal: Signal) {
        // It may be gone already.
        let _ = kill_process_group(self.group, signal);
    }

    /// Waits for the end of the whole group for at most this time, then kills the rest.
    pub(crate) async fn ended(&mut self, patience: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + patience;
        let status = tokio::time::timeout_at(until, self.child.wait()).await;
        // The shell may end before the provider that it started.
        while status.is_ok() && test_kill_process_group(self.group).is_ok() {
            if Instant::now() > until {
                self.signal(Signal::KILL);
                return None;
            }
            tokio::time::sleep(LOOK).await;
        }
        if let Ok(status) = status {
            return status.ok();
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait().await;
        None
    }

    /// The end of the provider's output.
    pub(crate) fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        cut(&lines[lines.len().saturating_sub(10)..].join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
