//! ServiceMonitor and PodMonitor: what the Prometheus operator's own definitions of them say.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testenv::ControlPlane;

use crate::rendered;
use crate::secure::dry_run;

/// The operator's release, as a Go module: its definitions are among the examples.
const MODULE: &str = "github.com/prometheus-operator/prometheus-operator@v0.85.0";
/// What that release is, as go.sum would have it.
const SUM: &str = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=";

/// Where its definitions of custom resources are: downloaded once, and kept among Go's modules.
fn definitions() -> PathBuf {
    let output = Command::new("go")
        .args(["mod", "download", "-json", MODULE])
        .env("GOWORK", "off")
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert_eq!(said["Sum"], SUM, "another release");
    let directory = PathBuf::from(said["Dir"].as_str().unwrap());
    directory.join("example/prometheus-operator-crd")
}

/// With strict validation a field that is not there is an error.
#[tokio::test]
async fn the_prometheus_operators_definitions_accept_both_monitors() {
    let plane = ControlPlane::start().await.unwrap();
    for kind in ["servicemonitors", "podmonitors"] {
        let file = definitions().join(format!("monitoring.coreos.com_{kind}.yaml"));
        let name = format!("crd/{kind}.monitoring.coreos.com");
        for arguments in [
            vec!["create", "-f", file.to_str().unwrap()],
            vec!["wait", "--for=condition=Established", &name],
        ] {
            let output = plane.kubectl().args(&arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
        }
    }
    let mut objects = rendered(&json!({ "monitoring": {
        "serviceMonitor": { "enabled": true, "labels": { "release": "prometheus" } },
        "podMonitor": { "enabled": true, "tokenSecret": { "name": "prometheus-token" } },
    } }));
    objects.retain(|object| object["apiVersion"] == "monitoring.coreos.com/v1");
    let said = dry_run(&plane, &objects).unwrap();
    assert_eq!(said.matches("server dry run").count(), 2, "{said}");
    assert!(!said.contains("Warning"), "{said}");

    for mut wrong in objects {
        let endpoints = match wrong["kind"].as_str() {
            Some("PodMonitor") => "podMetricsEndpoints",
            _ => "endpoints",
        };
        wrong["spec"][endpoints][0]["bearer"] = json!("what nobody knows");
        let refused = dry_run(&plane, &[wrong]).unwrap_err();
        assert!(refused.contains("bearer"), "{refused}");
    }
}
