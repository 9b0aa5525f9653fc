//! Starts etcd and kube-apiserver, and waits until they are ready.

use std::{
    ffi::OsString,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    cluster::Site,
    control_plane::Options,
    credentials::{Account, Credentials, User},
    directory::Directory,
    error::{Error, While},
    ports,
    process::Process,
};

/// The limit for a component's start.
const START_DEADLINE: Duration = Duration::from_mins(3);

/// How many ports a start tries, if another process takes the chosen port first.
const PORT_ATTEMPTS: usize = 5;

/// etcd.go prints this when it serves.
const ETCD_READY: &str = "etcd: ready";

/// The files of one control plane, and the commands that use them.
#[derive(Debug)]
pub(crate) struct Components {
    /// The network, for a control plane of a whole cluster.
    site: Option<Site>,
    pub(crate) binary: PathBuf,
    pub(crate) directory: Directory,
    pub(crate) credentials: Credentials,
    options: Options,
    etcd_port: u16,
}

impl Components {
    pub(crate) fn new(binary: PathBuf, options: Options) -> Result<Self, Error> {
        let directory = Directory::new()?;
        let credentials = Credentials::write(directory.path(), &[])?;
        let components = Self {
            site: None,
            binary,
            directory,
            credentials,
            options,
            etcd_port: 0,
        };
        components.write("audit-policy.json", AUDIT_POLICY)?;
        Ok(components)
    }

    /// The components of a cluster, in a separate network. The API server knows these accounts too.
    pub(crate) async fn new_in_site(
        binary: PathBuf,
        machine: &Path,
        options: Options,
        accounts: &[Account],
    ) -> Result<Self, Error> {
        let mut components = Self::new(binary, options)?;
        components.credentials = Credentials::write(components.directory.path(), accounts)?;
        components.site = Some(Site::open(machine, components.directory.path()).await?);
        Ok(components)
    }

    pub(crate) fn site(&self) -> Option<&Site> {
        self.site.as_ref()
    }

    /// A file of this control plane.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn etcd_port(&self) -> u16 {
        self.etcd_port
    }

    pub(crate) fn audit_log(&self) -> Option<PathBuf> {
        self.options.audit.then(|| self.path("audit.log"))
    }

    /// The client configuration of `user`.
    pub(crate) async fn config(&self, user: User) -> Result<Config, Error> {
        let kubeconfig = Kubeconfig::read_from(self.credentials.kubeconfig(user))?;
        Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
    }

    pub(crate) async fn start_etcd(&mut self) -> Result<Process, Error> {
        let mut attempts = PORT_ATTEMPTS;
        loop {
            self.etcd_port = ports::free_port();
            attempts -= 1;
            match self.start_etcd_once().await {
                Err(error) if attempts > 0 && port_was_taken(&error) => {}
                result => return result,
            }
        }
    }

    /// Starts kube-apiserver on a free port, or on the site's. Returns the process and the port.
    pub(crate) async fn start_api_server(&self) -> Result<(Process, u16), Error> {
        let mut attempts = PORT_ATTEMPTS;
        loop {
            let port = match &self.site {
                Some(site) => site.port(),
                None => ports::free_port(),
            };
            attempts -= 1;
            self.credentials
                .write_kubeconfigs(&format!("https://127.0.0.1:{port}"))?;
            match self.start_api_server_at(port).await {
                Err(error) if attempts > 0 && port_was_taken(&error) => {}
                result => return Ok((result?, port)),
            }
        }
    }

    async fn start_etcd_once(&self) -> Result<Process, Error> {
        let log = self.path("etcd.log");
        // The ready line of an earlier attempt must not count.
        fs::write(&log, "").while_doing(|| format!("cannot write {}", log.display()))?;
        let mut command = self.command("etcd");
        command
            .arg("--data-dir")
            .arg(self.path("etcd"))
            .arg(format!("--client-port={}", self.etcd_port))
            .arg(format!("--peer-port={}", ports::free_port()));
        let process = Process::start(command, log)?;
        ready("etcd", process, async |process| {
            if process.log().lines().any(|line| line == ETCD_READY) {
                Ok(())
            } else {
                Err("it has not reported that it is ready".into())
            }
        })
        .await
    }

    pub(crate) async fn start_api_server_at(&self, port: u16) -> Result<Process, Error> {
        let files = &self.credentials;
        let mut command = self.command("kube-apiserver");
        command
            .arg(format!(
                "--etcd-servers=http://127.0.0.1:{}",
                self.etcd_port
            ))
            .args(self.place(port))
            .args(flag("--cert-dir", self.directory.path()))
            .args(flag("--tls-cert-file", files.serving_certificate()))
            .args(flag("--tls-private-key-file", files.serving_key()))
            .args(flag("--client-ca-file", files.ca()))
            .args(flag(
                "--service-account-signing-key-file",
                files.account_key(),
            ))
            .args(flag(
                "--service-account-key-file",
                files.account_public_key(),
            ))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg("--service-cluster-ip-range=10.0.0.0/16")
            .arg("--authorization-mode=Node,RBAC")
            .args(flag("--token-auth-file", files.tokens()))
            // Endpoints of the Service `kubernetes` must not have a loopback address, and nobody
            // needs them here.
            .arg("--endpoint-reconciler-type=none")
            .args(["--external-hostname=localhost", "--allow-privileged=true"]);
        if let Some(log) = self.audit_log() {
            command
                .args(flag("--audit-policy-file", self.path("audit-policy.json")))
                .args(flag("--audit-log-path", log))
                // A test may read the log as soon as it has the response.
                .arg("--audit-log-mode=blocking");
        }
        command.args(&self.options.api_server_flags);

        let process = Process::start(command, self.path("kube-apiserver.log"))?;
        let mut config = self.config(User::Admin).await?;
        config.default_retry = false;
        let client = Client::try_from(config)?;
        ready("kube-apiserver", process, async |_| {
            let look = timeout(Duration::from_secs(2), serves(&client));
            look.await
                .map_err(|_| "it did not answer in 2 s".into())
                .flatten()
        })
        .await
    }

    /// The flags that differ between a single control plane and one of a cluster.
    fn place(&self, port: u16) -> Vec<OsString> {
        let Some(site) = &self.site else {
            return vec![
                "--bind-address=127.0.0.1".into(),
                "--advertise-address=127.0.0.1".into(),
                format!("--secure-port={port}").into(),
                // Without controllers no namespace gets a service account, and no Node loses its
                // taint.
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into(),
            ];
        };
        let mut flags = site.api_server_flags();
        for (name, path) in [
            (
                "--kubelet-client-certificate",
                self.credentials.kubelet_certificate(),
            ),
            ("--kubelet-client-key", self.credentials.kubelet_key()),
        ] {
            flags.extend([name.into(), path.into()]);
        }
        flags
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = match &self.site {
            Some(site) => site.command(&self.binary),
            None => Command::new(&self.binary),
        };
        command
            .arg(subcommand)
            // A separate process group. If this process is killed while the component is suspended,
            // the kernel resumes the orphaned group with a SIGHUP. Without that, the component
            // would stay suspended. A terminal's Ctrl-C reaches only the test.
            .process_group(0);
        command
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.path(name);
        fs::write(&path, text).while_doing(|| format!("cannot write {}", path.display()))
    }
}

const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived"],
  "rules": [{ "level": "Metadata" }]
}
"#;

fn flag(name: &str, path: impl AsRef<Path>) -> [PathBuf; 2] {
    [PathBuf::from(name), path.as_ref().to_owned()]
}

/// Whether the API server is ready *and* has the namespaces that tests write to. The namespaces
/// appear a little after /readyz succeeds.
async fn serves(client: &Client) -> Result<(), String> {
    let request = http::Request::get("/readyz").body(Vec::new());
    let request = request.map_err(|error| error.to_string())?;
    client
        .request_text(request)
        .await
        .map_err(|error| error.to_string())?;
    let namespaces = Api::<Namespace>::all(client.clone());
    for name in ["default", "kube-system"] {
        namespaces
            .get_metadata(name)
            .await
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Waits until `look` finds `process` ready; an error if it ends or the deadline passes.
pub(crate) async fn ready(
    name: &str,
    mut process: Process,
    look: impl AsyncFn(&Process) -> Result<(), String>,
) -> Result<Process, Error> {
    let end = Instant::now() + START_DEADLINE;
    let what = loop {
        let Err(reason) = look(&process).await else {
            return Ok(process);
        };
        if let Some(status) = process.exit_status() {
            break format!("{name} ended: {status}");
        }
        if Instant::now() >= end {
            break format!("{name} is not ready after {START_DEADLINE:?}: {reason}");
        }
        sleep(Duration::from_millis(25)).await;
    };
    Err(Error::NotReady {
        what,
        log: process.log_path().to_owned(),
        tail: process.log_tail(),
    })
}

fn port_was_taken(error: &Error) -> bool {
    matches!(error, Error::NotReady { tail, .. } if tail.contains("address already in use"))
}
