//! Checks ServiceMonitor and PodMonitor against the Prometheus operator's own definitions.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testenv::ControlPlane;

use crate::chart::value_sets;
use crate::secure::dry_run;
use crate::{container, pod, rendered};

/// The operator's release, as a Go module: its definitions are among the examples.
const MODULE: &str = "github.com/prometheus-operator/prometheus-operator@v0.85.0";
/// The checksum of that release, as in go.sum.
const SUM: &str = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=";

/// The folder of its definitions of custom resources. Go downloads them once into its module cache.
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

/// With strict validation, an unknown field is an error.
#[tokio::test]
async fn the_prometheus_operators_definitions_accept_both_monitors() {
    let plane = ControlPlane::start().await.unwrap();
    for kind in ["servicemonitors", "podmonitors"] {
        let file = definitions().join(format!("monitoring.coreos.com_{kind}.yaml"));
        let name = format!("crd/{kind}.monitoring.coreos.com");
        for arguments in [
            vec!["create", "-f", file.to_str().unwrap()],
            vec!["wait", "--for=condition=Established", "--timeout=1m", &name],
        ] {
            let output = plane.kubectl().args(&arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
        }
    }
    let mut objects = rendered(&json!({
        "ccm": { "certificateSecret": "serving" },
        "monitoring": {
            "tokenSecret": { "name": "prometheus-token" },
            "serviceMonitor": { "enabled": true, "labels": { "release": "prometheus" } },
            "podMonitor": { "enabled": true },
        },
    }));
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

/// The provider shares the network namespace, so it could listen on the port. Prometheus must not
/// send its token to the provider.
#[test]
fn prometheus_knows_the_ccm_before_it_sends_its_token() {
    let mut seen = 0;
    for (name, values) in value_sets() {
        let objects = rendered(&values);
        for monitor in &objects {
            let scrapes = match monitor["kind"].as_str() {
                Some("ServiceMonitor") => &monitor["spec"]["endpoints"],
                Some("PodMonitor") => &monitor["spec"]["podMetricsEndpoints"],
                _ => continue,
            };
            for scrape in scrapes.as_array().unwrap() {
                seen += 1;
                let tls = &scrape["tlsConfig"];
                assert_eq!(tls["insecureSkipVerify"], Value::Null, "{name}: {scrape}");
                assert!(tls["serverName"].is_string(), "{name}: {scrape}");
                assert!(tls["ca"]["secret"]["name"].is_string(), "{name}: {scrape}");
                let token = &scrape["authorization"]["credentials"];
                assert!(token["name"].is_string(), "{name}: {scrape}");
                assert_eq!(scrape["bearerTokenFile"], Value::Null, "{name}: {scrape}");
            }
            // The ccm serves the certificate that the monitors expect, and no other container has
            // its key.
            let pod = pod(&objects);
            let args = container(pod, "ccm")["args"].to_string();
            assert!(args.contains("--tls-private-key-file="), "{name}: {args}");
            let mounts = |which: &str| {
                let mounts = container(pod, which)["volumeMounts"].to_string();
                mounts.contains("\"serving-certificate\"")
            };
            assert!(mounts("ccm") && !mounts("provider"), "{name}");
        }
    }
    assert!(seen >= 3, "{seen}");
}

#[test]
fn on_the_hosts_network_the_port_is_hidden_unless_somebody_scrapes_it() {
    let bound = |values: &Value| {
        let objects = rendered(values);
        let args = container(pod(&objects), "ccm")["args"].as_array().unwrap();
        let bound: Vec<_> = args
            .iter()
            .filter_map(|it| it.as_str()?.strip_prefix("--bind-address="))
            .map(str::to_owned)
            .collect();
        assert_eq!(bound.len(), 1, "{args:?}");
        bound[0].clone()
    };
    let reader = json!({"reader": {"serviceAccount": "prometheus"}});
    for (values, expected) in [
        (json!({}), "127.0.0.1"),
        (json!({"hostNetwork": false}), "0.0.0.0"),
        (json!({"monitoring": reader}), "0.0.0.0"),
        (json!({"ccm": {"bindAddress": "::"}}), "::"),
    ] {
        assert_eq!(bound(&values), expected, "{values}");
    }
}
