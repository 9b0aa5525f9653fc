//! The files on a machine's disk before it is first switched on.

use std::{fs, io, path::Path};

use serde_json::json;

use super::prerequisites::PLUGIN;
use crate::{
    cluster::Site,
    components::Components,
    credentials::Account,
    error::{Error, While},
};

/// The sandboxes' image. It is a full name, because containerd accepts no other.
pub(crate) const PAUSE_IMAGE: &str = "docker.io/grpc-ccm/pause:e2e";

/// How long a kubelet may be silent before its Node is not ready (kube-controller-manager).
pub(crate) const GRACE_SECONDS: u32 = 10;

/// Writes all files. `disk` is the machine's directory, and `cgroup` is the cgroup of its Pods.
pub(crate) fn write(
    disk: &Path,
    name: &str,
    cgroup: &str,
    plugins: &str,
    components: &Components,
) -> Result<(), Error> {
    let credentials = &components.credentials;
    let certificate = fs::read_to_string(credentials.ca())
        .while_doing(|| format!("cannot read {}", credentials.ca().display()))?;
    // As the node sees it.
    let ca = Path::new("/var/lib/kubelet/ca.crt");
    let kubeconfig = Account::node(name).kubeconfig(&Site::url(), ca);
    let files = [
        ("lib/kubelet/ca.crt", certificate),
        ("lib/kubelet/kubeconfig", kubeconfig),
        ("lib/kubelet/config.yaml", kubelet_config(cgroup)),
        ("lib/containerd/config.toml", containerd_config(plugins)),
        ("lib/cni/net.d/10-loopback.conflist", network_config()),
    ];
    let write = |path: &Path, text: &str| -> io::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, text)
    };
    for (file, text) in files {
        let path = disk.join(file);
        write(&path, &text).while_doing(|| format!("cannot write {}", path.display()))?;
    }
    let logs = disk.join("log");
    fs::create_dir_all(&logs).while_doing(|| format!("cannot make {}", logs.display()))
}

fn containerd_config(plugins: &str) -> String {
    // `opt` would create a directory in /opt. Without restrict_oom_score_adj, runc fails on
    // machines without CAP_SYS_RESOURCE.
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{plugins}"
  conf_dir = "/var/lib/cni/net.d"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
"#
    )
}

fn network_config() -> String {
    let text =
        json!({ "cniVersion": "0.3.1", "name": "loopback", "plugins": [{ "type": PLUGIN }] });
    text.to_string()
}

fn kubelet_config(cgroup: &str) -> String {
    let text = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": "/var/lib/kubelet/ca.crt" },
        },
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{cgroup}"),
        "failCgroupV1": false,
        "enforceNodeAllocatable": [],
        "evictionHard": {},
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        "makeIPTablesUtilChains": false,
        "resolvConf": "",
        // kube-controller-manager must notice a silent kubelet within GRACE_SECONDS. The kubelet
        // renews its Lease each quarter of this duration.
        "nodeLeaseDurationSeconds": 8,
        "nodeStatusUpdateFrequency": "1s",
    });
    format!("{text:#}\n")
}
