//! The chart, as an operator installs and upgrades it with helm.

use serde_json::{Value, json};
use testenv::User;

use crate::cloud::{HOST_PATH, STATE};
use crate::inside::SECRET;
use crate::world::{NAMESPACE, ROOT, World, output};

/// The brake may delay the deletion of one of two Nodes for `hold`. The default is 15 minutes.
const BRAKE: &str = "hold=10s,min-age=1s";

/// The Secret of the provider, and a key of it.
const CREDENTIALS: &str = "cloud-credentials";
pub const CREDENTIAL: (&str, &str) = ("CLOUD_TOKEN", "e2e-only-the-provider-knows-it");
/// Another key: the mock's settings. The mock serves only if it can read them, and reports the
/// version in them.
const SETTINGS: &str = "settings.yaml";
pub const VERSION: &str = "0.1.0-of-the-secret";

/// Makes the Secret.
pub fn create_secret(world: &World) {
    let (name, value) = CREDENTIAL;
    let settings = json!({ "provider": { "version": VERSION } });
    world.kubectl(&[
        "create",
        "secret",
        "generic",
        CREDENTIALS,
        &format!("--from-literal={name}={value}"),
        &format!("--from-literal={SETTINGS}={settings}"),
    ]);
}

/// One ccm on each control plane Node. The kubelet probes its provider. The ccm does not use the
/// Service `kubernetes`.
pub fn daemon_set(api_server: &str, port: u16) -> Value {
    json!({
        "kind": "DaemonSet",
        "apiServer": { "host": api_server, "port": port },
        // A process that hangs is killed after this time.
        "terminationGracePeriodSeconds": 5,
        "provider": {
            "image": { "repository": "provider-mock" },
            "sidecar": true,
            "args": [format!("--state={STATE}"), format!("--cloud={SECRET}/{SETTINGS}")],
            "secret": { "name": CREDENTIALS, "env": true },
            // The probe fails soon, but not if the machine is slow for a moment.
            "probe": { "command": ["/provider-mock", "probe", "--timeout=2s"], "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 6 },
            "volumes": volumes(),
            "volumeMounts": mounts(),
        },
        "ccm": ccm(),
    })
}

/// A Deployment with two replicas. The provider is the one in Python, not the mock of `daemon_set`.
/// The kubelet probes it too.
pub fn deployment() -> Value {
    json!({
        "provider": {
            "image": { "repository": "provider-python" },
            "args": [format!("--state={STATE}")],
            "secret": { "name": CREDENTIALS, "env": true },
            "probe": { "command": ["/usr/bin/python3.13", "/provider/provider.py", "probe", "--timeout=4s"] },
            "volumes": volumes(),
            "volumeMounts": mounts(),
        },
        "ccm": ccm(),
    })
}

fn volumes() -> Value {
    json!([{ "name": "cloud", "hostPath": { "path": HOST_PATH, "type": "Directory" } }])
}

fn mounts() -> Value {
    json!([{ "name": "cloud", "mountPath": "/cloud" }])
}

/// The test must not wait for the default periods.
fn ccm() -> Value {
    json!({ "extraArgs": { "node-monitor-period": "1s" }, "nodeDeletionBrake": BRAKE })
}

/// `helm install` or `helm upgrade`.
pub fn helm(world: &World, verb: &str, values: &Value) {
    helm_with(world, verb, &[], values);
}

/// [`helm`] with these files of `deploy/examples` before the values.
pub fn helm_with(world: &World, verb: &str, examples: &[&str], values: &Value) {
    let file = world.cluster.directory().join("values.yaml");
    std::fs::write(&file, values.to_string()).unwrap();
    let mut helm = testenv::manifests::helm().unwrap();
    helm.env("KUBECONFIG", world.cluster.kubeconfig(User::Admin))
        .args([verb, "ccm"])
        .arg(format!("{ROOT}/deploy/chart"))
        .args(["--namespace", NAMESPACE]);
    for example in examples {
        helm.arg(format!(
            "--values={ROOT}/deploy/examples/{example}-values.yaml"
        ));
    }
    helm.arg("--values").arg(&file);
    output(helm).unwrap();
}
