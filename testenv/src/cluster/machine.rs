//! A machine of a cluster: namespaces of its own with containerd, and a kubelet that can be started
//! and stopped.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    Site, node_files,
    prerequisites::{self, PLUGIN},
    site::command_in,
};
use crate::{
    components::{Components, ready},
    error::{Error, While},
    process::Process,
};

/// The path of the program `machine` on a node.
const OWN_PROGRAM: &str = "/run/machine";
/// How long the machine may take to end, until its last cgroup is removed.
const SWITCHING_OFF: Duration = Duration::from_secs(30);

/// A machine. Dropping it switches it off at once.
#[derive(Debug)]
pub struct Machine {
    // Dropped in this order.
    kubelet: Option<Process>,
    power: Option<Power>,
    name: String,
    address: Ipv4Addr,
    /// The directory of the logs of its supervisor, containerd and kubelets.
    logs: PathBuf,
    program: PathBuf,
    network: PathBuf,
    /// The supervisor's arguments.
    arguments: Vec<String>,
    boots: u32,
}

/// The state of a machine that is switched on.
#[derive(Debug)]
struct Power {
    supervisor: Process,
    /// The process ID of its first process, as seen from outside.
    first: u32,
}

impl Drop for Power {
    fn drop(&mut self) {
        // The supervisor ends all processes and removes the cgroups. If it were killed, the cgroups
        // would stay.
        self.supervisor.end_within(SWITCHING_OFF);
    }
}

impl Machine {
    /// A machine that is switched off. `number` is unique in its cluster.
    pub(crate) fn build(
        program: &Path,
        name: &str,
        number: u8,
        site: &Site,
        components: &Components,
    ) -> Result<Self, Error> {
        let plugins = prerequisites::plugins()
            .ok_or_else(|| Error::Prerequisites(format!("  - the CNI plugin {PLUGIN}")))?;
        let logs = components.path(name);
        let disk = logs.join("disk");
        let shared = components.path("shared");
        fs::create_dir_all(&shared).while_doing(|| format!("cannot make {}", shared.display()))?;
        let cluster = components.directory.path().file_name().unwrap_or_default();
        let cgroup = format!("{}/{name}", cluster.to_string_lossy());
        node_files::write(&disk, name, &cgroup, plugins, components)?;
        let (address, length) = Site::node_address(number);
        let arguments = vec![
            "node".to_owned(),
            format!("--name={name}"),
            format!("--cgroup={cgroup}"),
            format!("--address={address}/{length}"),
            format!("--gateway={}", Site::gateway()),
            format!("--disk={}", disk.display()),
            format!("--shared={}", shared.display()),
        ];
        Ok(Self {
            kubelet: None,
            power: None,
            name: name.to_owned(),
            address,
            logs,
            program: program.to_owned(),
            network: site.network(),
            arguments,
            boots: 0,
        })
    }

    /// The machine's host name, and its Node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The machine's address in the cluster's network.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The folder of the machine's logs. Below it, `disk/log/pods` has the logs of containers.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Switches the machine on, and waits until containerd answers. No earlier container runs any
    /// more. Does nothing if the machine is on.
    pub async fn switch_on(&mut self) -> Result<(), Error> {
        if self.power.is_some() {
            return Ok(());
        }
        self.boots += 1;
        let mut command = command_in(&self.network, &self.program);
        command.args(&self.arguments);
        let log = self.logs.join(format!("boot-{}.log", self.boots));
        let supervisor = Process::start_apart(command, log)?;
        let supervisor = ready(&self.name, supervisor, async |process| {
            let log = process.log();
            let is_ready = log.lines().any(|line| line == "node: ready");
            is_ready
                .then_some(())
                .ok_or("it has not reported that it is ready".into())
        })
        .await?;
        let first = first_process(&supervisor.log()).ok_or_else(|| Error::NotReady {
            what: format!("{} does not report its first process", self.name),
            log: supervisor.log_path().to_owned(),
            tail: supervisor.log_tail(),
        })?;
        self.power = Some(Power { supervisor, first });
        Ok(())
    }

    /// Switches the machine off: all its processes end at once.
    pub fn switch_off(&mut self) {
        self.kubelet = None;
        self.power = None;
    }

    /// Starts kubelet, if the machine is on. Does nothing if kubelet was started and not stopped.
    /// Kubelet registers the Node.
    pub fn start_kubelet(&mut self) -> Result<(), Error> {
        let Some(power) = &self.power else {
            return Ok(());
        };
        if self.kubelet.is_none() {
            let mut command = power.command(&["--pid", "--net", "--uts", "--ipc"]);
            command
                .args([OWN_PROGRAM, "kubelet"])
                .args([
                    "--config=/var/lib/kubelet/config.yaml",
                    "--kubeconfig=/var/lib/kubelet/kubeconfig",
                ])
                .arg(format!("--hostname-override={}", self.name))
                .arg("--cloud-provider=external");
            let log = self.logs.join("kubelet.log");
            self.kubelet = Some(Process::start_apart(command, log)?);
        }
        Ok(())
    }

    /// Ends kubelet; the containers go on.
    pub fn stop_kubelet(&mut self) {
        self.kubelet = None;
    }

    /// Gives containerd an image from an OCI archive, if the machine is on. Returns the image's
    /// names in containerd.
    pub fn import(&self, archive: &Path) -> Result<Vec<String>, Error> {
        let file =
            fs::File::open(archive).while_doing(|| format!("cannot read {}", archive.display()))?;
        let said = self.ctr(&["images", "import", "-"], Stdio::from(file))?;
        // `unpacking NAME (sha256:…)...done`
        let name = |line: &str| {
            Some(
                line.strip_prefix("unpacking ")?
                    .split(' ')
                    .next()?
                    .to_owned(),
            )
        };
        Ok(said.lines().filter_map(name).collect())
    }

    /// Gives an image another name, if the machine is on.
    pub fn tag(&self, image: &str, name: &str) -> Result<(), Error> {
        let arguments = ["images", "tag", "--force", image, name];
        self.ctr(&arguments, Stdio::null()).map(drop)
    }

    /// The process IDs of a container as seen from outside, in ascending order. The ID is as in a
    /// Pod's status, with or without `containerd://`.
    pub fn processes_of(container: &str) -> Vec<u32> {
        let id = container.trim_start_matches("containerd://");
        let Ok(processes) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        let mut pids: Vec<u32> = processes
            .flatten()
            .filter_map(|process| process.file_name().to_string_lossy().parse().ok())
            .filter(|pid: &u32| {
                let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"));
                groups.is_ok_and(|groups| groups.lines().any(|line| line.ends_with(id)))
            })
            .collect();
        pids.sort_unstable();
        pids
    }

    /// Kills all processes of a container (SIGKILL), and returns how many there were.
    pub fn kill(container: &str) -> usize {
        Self::signal(Self::processes_of(container), Signal::KILL)
    }

    /// Stops the processes of a container (SIGSTOP): they exist but do not respond. Returns how many
    /// there were. A probe that runs in the container at this moment goes on, because the kubelet
    /// waits minutes for a stopped one.
    pub fn hang(container: &str) -> usize {
        let is_probe = |pid: u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let argument = line.split(|byte| *byte == 0).nth(1).unwrap_or_default();
            // `init`: the container's runtime is about to start the probe.
            argument == b"probe" || argument == b"init"
        };
        let mut processes = Self::processes_of(container);
        processes.retain(|pid| !is_probe(*pid));
        Self::signal(processes, Signal::STOP)
    }

    fn signal(processes: Vec<u32>, signal: Signal) -> usize {
        let reached = processes
            .into_iter()
            .filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
            .filter(|pid| kill_process(*pid, signal).is_ok());
        reached.count()
    }

    fn ctr(&self, arguments: &[&str], input: Stdio) -> Result<String, Error> {
        let Some(power) = &self.power else {
            return Ok(String::new());
        };
        let mut command = power.command(&[]);
        command
            .args(["ctr", "--namespace=k8s.io"])
            .args(arguments)
            .stdin(input);
        let what = format!("ctr {} on {}", arguments.join(" "), self.name);
        let output = command.output().while_doing(|| what.clone())?;
        if !output.status.success() {
            return Err(Error::Command {
                what,
                status: output.status,
                output: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Power {
    /// A command in the machine's mount namespace and in these other namespaces. With the PID
    /// namespace, the command is a child of `nsenter`. Kubelet ends when its standard input closes.
    fn command(&self, namespaces: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.first))
            .arg("--mount")
            .args(namespaces)
            .arg("--");
        command
    }
}

fn first_process(log: &str) -> Option<u32> {
    let line = log
        .lines()
        .find(|line| line.starts_with("node: boots as process"))?;
    line.split_whitespace().next_back()?.parse().ok()
}
