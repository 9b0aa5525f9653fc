//! A container's process and its view, inspected from outside: the images have no shell, so no
//! command in them could show what is missing.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use procfs::net::TcpState;
use procfs::process::{ClearRefs, FDTarget, Process};
use testenv::Machine;

use crate::world::id;

/// Users and group of the manifests.
const CCM: u32 = 65532;
const PROVIDER: u32 = 65533;
const GROUP: u32 = 65532;

/// The mounts: the ccm's token, the socket of both containers, and the provider's Secret.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const SOCKET: &str = "/run/cloud-provider";
pub const SECRET: &str = "/etc/cloud-provider/secret";
/// Mounts of kubelet and the runtime in every container.
const EVERYWHERE: [&str; 5] = ["/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname"];
const RESOLVER: &str = "/etc/resolv.conf";

/// The first process of a container.
pub struct Inside(Process);

impl Inside {
    pub fn of(pod: &Pod, container: &str) -> Self {
        let processes = Machine::processes_of(&id(pod, container));
        let first = processes.first().copied();
        let first = first.unwrap_or_else(|| panic!("{container} does not run"));
        Self(Process::new(first.cast_signed()).unwrap())
    }

    /// When it began, in ticks since the machine's start.
    pub fn began(&self) -> u64 {
        self.0.stat().unwrap().starttime
    }

    /// Resets the peak of its resident memory, and returns the new peak.
    pub fn resident_bytes_from_here(&self) -> u64 {
        self.0.clear_refs(ClearRefs::PeakRSS).unwrap();
        self.most_resident_bytes()
    }

    /// The peak of its resident memory since the last reset.
    pub fn most_resident_bytes(&self) -> u64 {
        let most = self.0.status().unwrap().vmhwm;
        most.unwrap() * 1024
    }

    /// Its network namespace, for `nsenter`.
    pub fn network(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.0.pid()).into()
    }

    /// Its mounts besides the common ones: `rw` or `ro`.
    fn mounts(&self) -> BTreeMap<String, &'static str> {
        let all = self.0.mountinfo().unwrap().into_iter();
        let mounts = all.map(|mount| {
            let how = if mount.mount_options.contains_key("ro") {
                "ro"
            } else {
                "rw"
            };
            (mount.mount_point.display().to_string(), how)
        });
        let is_everywhere = |point: &str| {
            let mut points = EVERYWHERE.iter();
            point == RESOLVER
                || points.any(|one| {
                    let below = point.strip_prefix(one);
                    below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
                })
        };
        mounts.filter(|(point, _)| !is_everywhere(point)).collect()
    }

    pub fn environment(&self) -> BTreeMap<String, String> {
        let all = self.0.environ().unwrap().into_iter();
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        all.map(|(name, value)| (text(name), text(value))).collect()
    }

    /// A file in its view. `None`: it does not exist.
    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(format!("/proc/{}/root{path}", self.0.pid())).ok()
    }

    /// The peers that it has connected to by TCP, without those that connected to its own port.
    pub fn connected_to(&self, own_port: u16) -> BTreeSet<SocketAddr> {
        let sockets: HashSet<u64> = self
            .0
            .fd()
            .unwrap()
            .flatten()
            .filter_map(|fd| match fd.target {
                FDTarget::Socket(inode) => Some(inode),
                _ => None,
            })
            .collect();
        let all = [self.0.tcp().unwrap(), self.0.tcp6().unwrap_or_default()].concat();
        all.into_iter()
            .filter(|one| one.state == TcpState::Established && sockets.contains(&one.inode))
            .filter(|one| one.local_address.port() != own_port)
            .map(|one| one.remote_address)
            .collect()
    }

    /// Checks that the process has the user and group of the manifests, and no privileges.
    fn assert_confined(&self, user: u32) {
        let status = self.0.status().unwrap();
        assert_eq!([status.ruid, status.euid, status.suid], [user; 3]);
        assert_eq!([status.rgid, status.egid, status.sgid], [GROUP; 3]);
        let capabilities = [status.capinh, status.capprm, status.capeff];
        assert_eq!(capabilities, [0; 3]);
        assert_eq!(status.capbnd, Some(0), "nothing could give it any");
        assert_eq!(status.nonewprivs, Some(1));
        assert_eq!(status.seccomp, Some(2), "it is filtered: RuntimeDefault");
    }
}

/// Checks that each container of the Pod sees only its own mounts. The provider has a Secret, and
/// the directory of a cloud at `/cloud`. `variable` is a key of the Secret, and its value.
pub fn assert_each_sees_its_own(pod: &Pod, variable: (&str, &str)) {
    let (ccm, provider) = (Inside::of(pod, "ccm"), Inside::of(pod, "provider"));
    ccm.assert_confined(CCM);
    provider.assert_confined(PROVIDER);

    let mounts = |all: &[(&str, &'static str)]| -> BTreeMap<String, &'static str> {
        let all = all.iter().map(|(point, how)| ((*point).to_owned(), *how));
        all.collect()
    };
    // The complete list: any other mount would be in it.
    let expected = mounts(&[("/", "ro"), (SOCKET, "ro"), (TOKEN, "ro")]);
    assert_eq!(ccm.mounts(), expected);
    let expected = [
        ("/", "ro"),
        ("/cloud", "rw"),
        (SECRET, "ro"),
        (SOCKET, "rw"),
    ];
    assert_eq!(provider.mounts(), mounts(&expected));

    let token = ccm.read(&format!("{TOKEN}/token")).unwrap();
    assert_eq!(token.split('.').count(), 3, "a JWT: {} bytes", token.len());
    assert_eq!(provider.read(&format!("{TOKEN}/token")), None);
    let (name, value) = variable;
    let file = format!("{SECRET}/{name}");
    assert_eq!(provider.read(&file).as_deref(), Some(value));
    assert_eq!(ccm.read(&file), None);

    let environment = provider.environment();
    assert_eq!(environment.get(name).map(String::as_str), Some(value));
    let environment = ccm.environment();
    assert!(
        !environment.values().any(|one| one.contains(value)),
        "the Secret is in the ccm's environment: {:?}",
        environment.keys()
    );
}
