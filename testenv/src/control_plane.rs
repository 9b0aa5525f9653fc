//! etcd and kube-apiserver as two child processes.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use kube::{Client, Config};
use tokio::{sync::OnceCell, task::spawn_blocking};

use crate::{
    binary::control_plane_binary,
    components::Components,
    contents::compact,
    credentials::User,
    error::{Error, While},
    process::Process,
};

/// The options of a control plane. The default is right for most tests.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Write an audit log of all requests, level `Metadata`: see [`ControlPlane::audit_log`].
    pub audit: bool,
    /// More flags for kube-apiserver, after the default ones.
    pub api_server_flags: Vec<String>,
}

/// A running control plane: etcd and kube-apiserver on the loopback, with RBAC, and no controllers.
///
/// So nothing manages Pods or Endpoints, and nothing collects garbage: a test writes these objects
/// itself. Dropping the control plane kills both processes and removes their data.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields are dropped in this order: kube-apiserver needs etcd, and both write into the
    // directory.
    api_server: Option<Process>,
    etcd: Process,
    components: Components,
    port: u16,
    configs: Vec<(User, Config)>,
}

impl ControlPlane {
    /// Starts a control plane with the default [`Options`]. Builds the binary if necessary. Returns
    /// when the API server answers.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(Options::default()).await
    }

    /// Starts a control plane with these options.
    pub async fn start_with(options: Options) -> Result<Self, Error> {
        let binary = spawn_blocking(control_plane_binary)
            .await
            .map_err(std::io::Error::other)
            .while_doing(|| "building was interrupted".into())??;
        Self::start_components(Components::new(binary, options)?).await
    }

    /// Starts a control plane from these components.
    pub(crate) async fn start_components(mut components: Components) -> Result<Self, Error> {
        let etcd = components.start_etcd().await?;
        let (api_server, port) = components.start_api_server().await?;
        let mut configs = Vec::new();
        for user in User::ALL {
            configs.push((user, components.config(user).await?));
        }
        Ok(Self {
            api_server: Some(api_server),
            etcd,
            components,
            port,
            configs,
        })
    }

    /// The control plane that all tests of this test binary share. The first caller starts it.
    ///
    /// Each test uses names of its own. A test that kills or suspends kube-apiserver needs its own
    /// control plane, such as that of [`start`](Self::start). The shared control plane ends with the
    /// process.
    ///
    /// # Panics
    ///
    /// If the control plane cannot be started.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED
            .get_or_init(async || match Self::start().await {
                Ok(control_plane) => control_plane,
                Err(error) => panic!("cannot start the shared control plane: {error}"),
            })
            .await
    }

    /// The base URL of the API server.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The user's kubeconfig, for `--kubeconfig`.
    pub fn kubeconfig(&self, user: User) -> PathBuf {
        self.components.credentials.kubeconfig(user)
    }

    /// The CA that signed the API server's certificate, as a PEM file.
    pub fn ca(&self) -> PathBuf {
        self.components.credentials.ca()
    }

    /// The configuration of a client: for tests that add layers or a proxy.
    pub fn config(&self, user: User) -> Config {
        let found = self.configs.iter().find(|(other, _)| *other == user);
        found.expect("every user has one").1.clone()
    }

    /// A new client of the admin. It belongs to the runtime that it was made in, so each test needs
    /// its own.
    pub fn client(&self) -> Client {
        self.client_for(User::Admin)
    }

    /// A new client of a user.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn client_for(&self, user: User) -> Client {
        Client::try_from(self.config(user)).expect("our own kubeconfig is valid")
    }

    /// `kubectl` as the admin. The caller adds arguments and runs it.
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(&self.components.binary);
        command
            .arg("kubectl")
            .env("KUBECONFIG", self.kubeconfig(User::Admin))
            .env("KUBECACHEDIR", self.components.path("kubectl-cache"));
        command
    }

    /// Applies the manifests in this file, as the admin.
    ///
    /// # Panics
    ///
    /// If the API server refuses one of them.
    pub fn apply(&self, file: &Path) {
        let applied = self.kubectl().args(["apply", "-f"]).arg(file).output();
        let applied = applied.expect("kubectl runs");
        let errors = String::from_utf8_lossy(&applied.stderr);
        assert!(applied.status.success(), "{}: {errors}", file.display());
    }

    /// Grants the ccm the rights in `deploy/kustomize/base/rbac.yaml`.
    pub fn grant(&self) {
        self.apply(&deployed("kustomize/base/rbac.yaml"));
    }

    /// The command of a ccm with its own service account and a provider of this name at this
    /// endpoint: for [`Process::start`].
    pub fn ccm(&self, binary: impl AsRef<OsStr>, provider: &str, endpoint: &str) -> Command {
        let mut command = Command::new(binary);
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig(User::Ccm))
            .arg(format!("--provider={provider}={endpoint}"));
        command
    }

    /// A command of the same binary, such as `go-ccm`: for [`Process::start`].
    pub fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.components.binary);
        command.arg(subcommand);
        command
    }

    /// A directory for files of the test, removed with the control plane.
    pub fn directory(&self) -> &Path {
        self.components.directory.path()
    }

    /// The audit log, a JSON object a line, if [`Options::audit`] asked for it.
    pub fn audit_log(&self) -> Option<PathBuf> {
        self.components.audit_log()
    }

    /// The log of kube-apiserver.
    pub fn api_server_log(&self) -> String {
        fs::read_to_string(self.components.path("kube-apiserver.log")).unwrap_or_default()
    }

    /// The process of kube-apiserver, for its PID and memory; `None` while it is killed.
    pub fn api_server(&self) -> Option<&Process> {
        self.api_server.as_ref()
    }

    /// The files and commands, for a cluster that adds components.
    pub(crate) fn components(&self) -> &Components {
        &self.components
    }

    /// The port of etcd, for reading the contents.
    pub(crate) fn etcd_port(&self) -> u16 {
        self.components.etcd_port()
    }

    /// The process IDs of etcd and kube-apiserver.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let own = [Some(&self.etcd), self.api_server.as_ref()];
        own.into_iter().flatten().map(Process::pid).collect()
    }

    /// Makes etcd and kube-apiserver forget the history before this resourceVersion. That restarts
    /// kube-apiserver.
    ///
    /// # Panics
    ///
    /// If etcd refuses the compaction.
    pub async fn forget_before(&mut self, version: u64) -> Result<(), Error> {
        self.kill_api_server();
        let compacted = compact(self.etcd_port(), version).await;
        compacted.expect("etcd compacts its old revisions");
        self.start_api_server().await
    }

    /// Kills kube-apiserver (SIGKILL). Its data stays in etcd.
    pub fn kill_api_server(&mut self) {
        self.api_server = None;
    }

    /// Starts kube-apiserver again, on the same port with the same data. Does nothing if it runs.
    pub async fn start_api_server(&mut self) -> Result<(), Error> {
        if self.api_server.is_none() {
            self.api_server = Some(self.components.start_api_server_at(self.port).await?);
        }
        Ok(())
    }

    /// Suspends kube-apiserver (SIGSTOP): connections stay open and nothing answers.
    pub fn suspend_api_server(&mut self) {
        if let Some(process) = &self.api_server {
            process.suspend();
        }
    }

    /// Resumes kube-apiserver after [`suspend_api_server`](Self::suspend_api_server).
    pub fn resume_api_server(&mut self) {
        if let Some(process) = &self.api_server {
            process.resume();
        }
    }
}

/// The path of a file in `deploy/`.
pub fn deployed(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(file)
}
