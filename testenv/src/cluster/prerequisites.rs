//! The requirements that a cluster's host must meet.

use std::{env, fmt, path::Path};

/// Something that is missing, and how to get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Root,
    Command {
        name: &'static str,
        package: &'static str,
    },
    Plugin,
    Device(&'static str),
}

/// The programs, and their Debian packages.
const COMMANDS: [(&str, &str); 4] = [
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("nsenter", "util-linux"),
];

/// Where distributions put the plugins of container networks.
const PLUGINS: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];

/// The only required plugin: Pods with a network of their own get only a loopback.
pub(crate) const PLUGIN: &str = "loopback";

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str(
                "root: the cluster makes containers, mounts and networks (run it with sudo -E)",
            ),
            Self::Command { name, package } => write!(
                f,
                "{name}: install the package {package} (Debian: apt-get install {package})"
            ),
            Self::Plugin => write!(
                f,
                "the CNI plugin {PLUGIN} in one of {}: install it (Debian: apt-get install containernetworking-plugins)",
                PLUGINS.join(", ")
            ),
            Self::Device(path) => write!(
                f,
                "{path}: give it to the container in which this runs, or run this on a machine"
            ),
        }
    }
}

/// The directory of the plugins.
pub(crate) fn plugins() -> Option<&'static str> {
    let has = |directory: &&str| Path::new(directory).join(PLUGIN).exists();
    PLUGINS.into_iter().find(has)
}

/// Everything that is missing, one line each. `None`: a cluster can be started.
pub(crate) fn missing() -> Option<String> {
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        missing.push(Missing::Root);
    }
    let paths = env::var_os("PATH").unwrap_or_default();
    for (name, package) in COMMANDS {
        let has = |directory: &Path| directory.join(name).is_file();
        if !env::split_paths(&paths).any(|directory| has(&directory)) {
            missing.push(Missing::Command { name, package });
        }
    }
    if plugins().is_none() {
        missing.push(Missing::Plugin);
    }
    // Kubelet watches the kernel's log for processes that ran out of memory.
    for device in ["/dev/kmsg"] {
        if !Path::new(device).exists() {
            missing.push(Missing::Device(device));
        }
    }
    let lines: Vec<String> = missing.iter().map(|one| format!("  - {one}")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_the_way_to_get_it() {
        let (name, package) = COMMANDS[2];
        let said = Missing::Command { name, package }.to_string();
        assert!(said.contains("apt-get install runc"), "{said}");
        assert!(Missing::Root.to_string().starts_with("root:"));
    }
}
