//! The traces that a cluster must not leave on its host.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Directories that kubelet, containerd and container networks write to by default, and that of
/// [`SHARED`](super::SHARED).
const DIRECTORIES: [&str; 9] = [
    "/etc/cni",
    "/opt/containerd",
    "/run/containerd",
    "/run/shared",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
];

/// The kernel settings that kubelet changes for the whole machine.
const TUNABLES: [&str; 6] = [
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

/// Deeper directories below [`DIRECTORIES`] are ignored: they belong to others.
const DEPTH: usize = 3;

/// A snapshot. Compare two with [`since`](Self::since).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers(BTreeSet<String>);

impl Leftovers {
    /// The mounts, network interfaces, clusters' cgroups and kernel settings, and the files in the
    /// directories that a machine's programs use. Also the processes that run a program of a
    /// machine, or have one of `directories` in their command line.
    pub fn now(directories: &[PathBuf]) -> Self {
        let mut found = BTreeSet::new();
        let lines = |file: &str| fs::read_to_string(file).unwrap_or_default();
        for line in lines("/proc/self/mountinfo").lines() {
            let point = line.split(' ').nth(4).unwrap_or_default();
            found.insert(format!("mount {point}"));
        }
        for line in lines("/proc/net/dev").lines() {
            if let Some((interface, _)) = line.split_once(':') {
                found.insert(format!("interface {}", interface.trim()));
            }
        }
        for tunable in TUNABLES {
            let value = lines(&format!("/proc/sys/{tunable}"));
            found.insert(format!("{tunable} = {}", value.trim()));
        }
        for directory in DIRECTORIES {
            list(Path::new(directory), DEPTH, &mut found);
        }
        cgroups(&mut found);
        processes(directories, &mut found);
        Self(found)
    }

    /// The new and the missing entries since `before`.
    pub fn since(&self, before: &Self) -> Vec<String> {
        let added = self.0.difference(&before.0);
        let gone = before.0.difference(&self.0);
        let added = added.map(|one| format!("left: {one}"));
        added
            .chain(gone.map(|one| format!("gone: {one}")))
            .collect()
    }
}

fn list(path: &Path, depth: usize, found: &mut BTreeSet<String>) {
    if fs::symlink_metadata(path).is_ok() {
        found.insert(format!("file {}", path.display()));
    }
    if depth == 0 {
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        list(&entry.path(), depth - 1, found);
    }
}

/// The cgroups that are named for a cluster, or that kubelet creates.
fn cgroups(found: &mut BTreeSet<String>) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in mounts.lines() {
        let Some((mount, system)) = line.split_once(" - ") else {
            continue;
        };
        if !system.starts_with("cgroup") {
            continue;
        }
        let root = PathBuf::from(mount.split(' ').nth(4).unwrap_or_default());
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(crate::directory::PREFIX)
                || ["kubepods", "k8s.io"].contains(&name.as_str())
            {
                found.insert(format!("cgroup {}", entry.path().display()));
            }
        }
    }
}

/// The processes that run a program of a machine, or have one of `directories` in their command
/// line.
fn processes(directories: &[PathBuf], found: &mut BTreeSet<String>) {
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(line) = fs::read(process.path().join("cmdline")) else {
            continue;
        };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let program = line.split(' ').next().unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default();
        let is_ours = ["containerd", "containerd-shim-runc-v2", "runc", "machine"].contains(&name)
            || directories
                .iter()
                .any(|directory| line.contains(&*directory.to_string_lossy()));
        if is_ours {
            let pid = process.file_name().to_string_lossy().into_owned();
            found.insert(format!("process {pid}: {line}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_and_what_went_are_both_told() {
        let set = |text: &[&str]| Leftovers(text.iter().map(|one| (*one).to_owned()).collect());
        let before = set(&["mount /", "mount /gone"]);
        let after = set(&["mount /", "cgroup /sys/fs/cgroup/cpu/kubepods"]);
        assert_eq!(
            after.since(&before),
            [
                "left: cgroup /sys/fs/cgroup/cpu/kubepods",
                "gone: mount /gone"
            ]
        );
        assert!(after.since(&after).is_empty());
    }

    #[test]
    fn a_process_that_knows_a_clusters_directory_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", "read line; :"])
            .arg(directory.path().join("kubeconfig"));
        let process = crate::Process::start(command, directory.path().join("log")).unwrap();
        let known = [directory.path().to_owned()];
        let found = |leftovers: &Leftovers| {
            let own = format!("process {}:", process.pid());
            leftovers.0.iter().any(|one| one.starts_with(&own))
        };
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !found(&Leftovers::now(&known)) {
            assert!(std::time::Instant::now() < end, "it is not found");
        }
    }
}
