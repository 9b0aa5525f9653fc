//! A whole cluster: a control plane with its controllers and scheduler in a network of its own, and
//! machines with kubelet and containers.

mod leftovers;
mod machine;
mod node_files;
mod prerequisites;
mod site;

use std::{
    fs,
    net::SocketAddr,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    process::Command,
};

use tokio::task::spawn_blocking;

use crate::{
    binary::{control_plane_binary, machine_binary, pause_binary},
    components::Components,
    control_plane::{ControlPlane, Options},
    credentials::Account,
    error::{Error, While},
    process::Process,
};

pub use leftovers::Leftovers;
pub use machine::Machine;
pub(crate) use site::{Site, command_in};

/// The path of [`Cluster::shared`] on all machines.
pub const SHARED: &str = "/run/shared";

/// A running cluster: machines, and a [`ControlPlane`] with kube-controller-manager, kube-scheduler
/// and the admission plugins that a control plane alone disables.
///
/// The machines have namespaces of their own. Dropping the cluster ends its processes and removes
/// its files. If this process is killed, the cluster's processes end too, and the next process that
/// starts a control plane removes the cluster's directory.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: the machines end before their network is gone.
    machines: Vec<Machine>,
    _scheduler: Process,
    _controllers: Process,
    plane: ControlPlane,
    program: PathBuf,
    pause: PathBuf,
}

impl Cluster {
    /// The error has a line for each requirement that this machine lacks, and says how to get it.
    pub fn check_prerequisites() -> Result<(), Error> {
        match prerequisites::missing() {
            Some(missing) => Err(Error::Prerequisites(missing)),
            None => Ok(()),
        }
    }

    /// Builds the programs if necessary, and starts a cluster with machines of these names, which
    /// are switched off. Returns when the API server serves.
    pub async fn start(machines: &[&str], mut options: Options) -> Result<Self, Error> {
        Self::check_prerequisites()?;
        let built = spawn_blocking(|| -> Result<_, Error> {
            Ok((control_plane_binary()?, machine_binary()?, pause_binary()?))
        });
        let (binary, program, pause) = built
            .await
            .map_err(std::io::Error::other)
            .while_doing(|| "building was interrupted".into())??;
        let [controllers, scheduler] =
            ["kube-controller-manager", "kube-scheduler"].map(Account::component);
        let mut accounts = vec![controllers.clone(), scheduler.clone()];
        accounts.extend(machines.iter().map(|name| Account::node(name)));
        options
            .api_server_flags
            .push("--enable-admission-plugins=NodeRestriction".into());

        let components = Components::new_in_site(binary, &program, options, &accounts).await?;
        let plane = ControlPlane::start_components(components).await?;
        let components = plane.components();
        let files = &components.credentials;
        let controllers = component(
            &plane,
            &program,
            &controllers,
            "kube-controller-manager",
            |command| {
                command
                    .arg("--use-service-account-credentials=true")
                    .arg(format!(
                        "--service-account-private-key-file={}",
                        files.account_key().display()
                    ))
                    .arg(format!("--root-ca-file={}", files.ca().display()))
                    .arg("--cloud-provider=external")
                    .arg("--node-monitor-period=1s")
                    .arg(format!(
                        "--node-monitor-grace-period={}s",
                        node_files::GRACE_SECONDS
                    ));
            },
        )?;
        let scheduler = component(&plane, &program, &scheduler, "kube-scheduler", |_| {})?;
        let mut cluster = Self {
            machines: Vec::new(),
            _scheduler: scheduler,
            _controllers: controllers,
            pause: plane.directory().join("pause.oci.tar"),
            plane,
            program,
        };
        write_pause_image(&cluster.program, &pause, &cluster.pause)?;
        for (number, name) in (1..).zip(machines) {
            let components = cluster.plane.components();
            let site = components.site().expect("a cluster has one");
            let machine = Machine::build(&cluster.program, name, number, site, components)?;
            cluster.machines.push(machine);
        }
        Ok(cluster)
    }

    /// The machine with this name.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn machine(&mut self, name: &str) -> &mut Machine {
        let found = self
            .machines
            .iter_mut()
            .find(|machine| machine.name() == name);
        found.expect("the cluster was started with it")
    }

    /// Switches a machine on, imports the images in these archives, and starts the machine's
    /// kubelet.
    pub async fn boot(&mut self, name: &str, images: &[PathBuf]) -> Result<(), Error> {
        let pause = self.pause.clone();
        let machine = self.machine(name);
        machine.switch_on().await?;
        machine.import(&pause)?;
        for image in images {
            machine.import(image)?;
        }
        machine.start_kubelet()
    }

    /// The API server's own address in the machines' network. It is not the address of the Service
    /// `kubernetes`.
    pub fn api_server() -> SocketAddr {
        Site::api_server()
    }

    /// The path of the network namespace that connects the machines.
    pub(crate) fn network(&self) -> PathBuf {
        let site = self.plane.components().site();
        site.expect("a cluster has one").network()
    }

    /// A directory that every machine sees as [`SHARED`], with the same content.
    pub fn shared(&self) -> PathBuf {
        self.plane.directory().join("shared")
    }
}

impl Deref for Cluster {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        &self.plane
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut ControlPlane {
        &mut self.plane
    }
}

/// Starts one of the control plane's other components.
fn component(
    plane: &ControlPlane,
    program: &Path,
    account: &Account,
    name: &str,
    more: impl FnOnce(&mut Command),
) -> Result<Process, Error> {
    let components = plane.components();
    let kubeconfig = components.path(format!("{name}.kubeconfig"));
    let text = account.kubeconfig(&Site::url(), &components.credentials.ca());
    fs::write(&kubeconfig, text)
        .while_doing(|| format!("cannot write {}", kubeconfig.display()))?;
    let site = components.site().expect("a cluster has one");
    let mut command = site.command(program);
    command
        .arg(name)
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg("--bind-address=127.0.0.1")
        .arg("--authentication-skip-lookup=true")
        .arg("--leader-elect=false");
    more(&mut command);
    Process::start_apart(command, components.path(format!("{name}.log")))
}

/// Writes the image of the sandboxes, which has nothing but our own program.
fn write_pause_image(program: &Path, pause: &Path, archive: &Path) -> Result<(), Error> {
    let mut command = Command::new(program);
    command
        .arg("image")
        .arg(format!("--program={}", pause.display()))
        .arg(format!("--reference={}", node_files::PAUSE_IMAGE))
        .arg(format!("--output={}", archive.display()));
    let output = command
        .output()
        .while_doing(|| "cannot make the pause image".into())?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Command {
        what: "making the pause image".into(),
        status: output.status,
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
