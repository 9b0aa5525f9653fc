//! The volumes and rights of each container in the Pod, with each set of values. A real API server
//! admits the Pod.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testenv::ControlPlane;
use testenv::manifests::{kustomize, objects};

use crate::chart::value_sets;
use crate::{container, containers, find, pod, rendered};

const SOCKETS: &str = "/run/cloud-provider";

/// A container's mounts: volume and path.
fn mounts(container: &Value) -> Vec<(&str, &str)> {
    let mounts = container["volumeMounts"].as_array();
    mounts
        .into_iter()
        .flatten()
        .map(|mount| {
            (
                mount["name"].as_str().unwrap(),
                mount["mountPath"].as_str().unwrap(),
            )
        })
        .collect()
}

/// The names of the volumes for which `is` returns true.
fn volumes(pod: &Value, is: impl Fn(&Value) -> bool) -> BTreeSet<&str> {
    let volumes = pod["volumes"].as_array().unwrap().iter();
    volumes
        .filter(|volume| is(volume))
        .map(|volume| volume["name"].as_str().unwrap())
        .collect()
}

fn mounted<'a>(container: &'a Value, volumes: &BTreeSet<&str>) -> BTreeSet<&'a str> {
    mounts(container)
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| volumes.contains(name))
        .collect()
}

#[test]
fn only_the_ccm_sees_the_service_accounts_token() {
    for (name, values) in value_sets() {
        let objects = rendered(&values);
        let pod = pod(&objects);
        assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
        for object in objects.iter().filter(|it| it["kind"] == "ServiceAccount") {
            assert_eq!(object["automountServiceAccountToken"], false, "{name}");
        }
        let tokens = volumes(pod, |volume| {
            volume.to_string().contains("serviceAccountToken")
        });
        assert_eq!(tokens.len(), 1, "{name}: {tokens:?}");
        // Client libraries look for the token there.
        assert!(
            mounts(container(pod, "ccm")).contains(&(
                "kubernetes",
                "/var/run/secrets/kubernetes.io/serviceaccount"
            )),
            "{name}"
        );
        assert!(tokens.contains("kubernetes"), "{name}: {tokens:?}");
        for other in containers(pod) {
            if other["name"] != "ccm" {
                assert!(mounted(other, &tokens).is_empty(), "{name}: {other}");
            }
        }
    }
}

#[test]
fn only_the_provider_sees_the_clouds_secret() {
    let secret = "cloud-credentials";
    let mut seen = 0;
    for (name, mut values) in value_sets() {
        values["provider"]["secret"] = json!({"name": secret, "env": true});
        let objects = rendered(&values);
        let pod = pod(&objects);
        let with_it = volumes(pod, |volume| volume["secret"]["secretName"] == secret);
        assert_eq!(with_it.len(), 1, "{name}: {with_it:?}");
        for container in containers(pod) {
            let mounts_it = !mounted(container, &with_it).is_empty();
            let names_it = container.to_string().contains(secret);
            let is_provider = container["name"] == "provider";
            assert_eq!(mounts_it, is_provider, "{name}: {container}");
            assert_eq!(names_it, is_provider, "{name}: {container}");
            seen += usize::from(is_provider);
        }
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn both_containers_are_confined_share_a_group_and_nothing_else_but_the_socket() {
    for (name, values) in value_sets() {
        let objects = rendered(&values);
        let pod = pod(&objects);
        let security = &pod["securityContext"];
        assert_eq!(security["runAsNonRoot"], true, "{name}");
        assert_eq!(
            security["seccompProfile"]["type"], "RuntimeDefault",
            "{name}"
        );
        let all = containers(pod);
        assert_eq!(all.len(), 2, "{name}");
        for container in &all {
            let security = &container["securityContext"];
            assert_eq!(security["privileged"], false, "{name}");
            assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}), "{name}");
            assert_eq!(security["runAsGroup"], 65532, "{name}");
        }
        let (ccm, provider) = (container(pod, "ccm"), container(pod, "provider"));
        assert_eq!(ccm["securityContext"]["runAsUser"], 65532, "{name}");
        assert_eq!(provider["securityContext"]["runAsUser"], 65533, "{name}");
        let flags = ccm["args"].as_array().unwrap();
        assert!(
            flags.contains(&json!("--provider-peer-uid=65533")),
            "{name}"
        );

        let in_ccm: BTreeSet<_> = mounts(ccm).into_iter().collect();
        let in_provider: BTreeSet<_> = mounts(provider).into_iter().collect();
        let shared: Vec<_> = in_ccm.intersection(&in_provider).collect();
        assert_eq!(shared, [&("socket", SOCKETS)], "{name}");
        let socket = pod["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|volume| volume["name"] == "socket")
            .unwrap();
        assert_eq!(socket["emptyDir"]["medium"], "Memory", "{name}");
        let endpoint = format!("unix://{SOCKETS}/socket/provider.sock");
        assert!(
            flags
                .iter()
                .any(|flag| flag.as_str().unwrap().ends_with(&format!("={endpoint}"))),
            "{name}: {flags:?}"
        );
        assert!(
            provider["env"]
                .as_array()
                .unwrap()
                .contains(&json!({"name": "CLOUD_PROVIDER_ENDPOINT", "value": endpoint})),
            "{name}"
        );
    }
}

#[test]
fn no_probe_ends_a_ccm_whose_cloud_is_down_and_the_kubelet_reaches_it_on_a_node_without_addresses()
{
    for (name, values) in value_sets() {
        let objects = rendered(&values);
        let pod = pod(&objects);
        let ccm = container(pod, "ccm");
        for (probe, path) in [
            ("startupProbe", "/livez"),
            ("livenessProbe", "/livez"),
            ("readinessProbe", "/readyz"),
        ] {
            let get = &ccm[probe]["httpGet"];
            assert_eq!(get["path"], path, "{name}: {probe}");
            assert_eq!(get["scheme"], "HTTPS", "{name}: {probe}");
            let loopback = get["host"] == "127.0.0.1" || get["host"] == "::1";
            let on_host = pod["hostNetwork"] == true;
            assert_eq!(loopback, on_host, "{name}: {probe} {get}");
        }
    }
}

#[test]
fn the_pod_starts_on_a_node_that_nobody_has_initialised() {
    let objects = rendered(&json!({}));
    let pod = pod(&objects);
    let tolerated: BTreeSet<_> = pod["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|toleration| {
            assert_eq!(toleration["operator"], "Exists");
            // It tolerates all effects.
            assert_eq!(toleration["effect"], Value::Null);
            toleration["key"].as_str().unwrap()
        })
        .collect();
    for taint in [
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/network-unavailable",
        "node-role.kubernetes.io/control-plane",
    ] {
        assert!(tolerated.contains(taint), "{taint}");
    }
    assert_eq!(pod["hostNetwork"], true);
    // The cluster's DNS waits for the ccm.
    assert_eq!(pod["dnsPolicy"], "Default");
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
}

/// An update never waits for ports that are in use: with any number of replicas, it removes a Pod
/// before it adds one.
#[test]
fn an_update_needs_no_free_ports() {
    for values in [
        json!({}),
        json!({"replicas": 1}),
        json!({"kind": "DaemonSet"}),
    ] {
        let objects = rendered(&values);
        let workload = objects
            .iter()
            .find(|it| it["kind"] == "Deployment" || it["kind"] == "DaemonSet")
            .unwrap();
        let field = match workload["kind"].as_str() {
            Some("Deployment") => "strategy",
            _ => "updateStrategy",
        };
        let rolling = &workload["spec"][field]["rollingUpdate"];
        assert_eq!(
            rolling,
            &json!({"maxSurge": 0, "maxUnavailable": 1}),
            "{values}"
        );
    }
}

/// The API server's answer to a dry run of these objects.
pub(crate) fn dry_run(plane: &ControlPlane, objects: &[Value]) -> Result<String, String> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let mut kubectl: Command = plane.kubectl();
    let mut child = kubectl
        .args(["apply", "--dry-run=server", "--validate=strict", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(child.stdin.take().unwrap(), &list).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout) + &text(&output.stderr))
    } else {
        Err(text(&output.stderr))
    }
}

#[tokio::test]
async fn a_real_api_server_accepts_every_object() {
    let plane = ControlPlane::shared().await;
    let mut sets: Vec<_> = value_sets()
        .into_iter()
        .map(|(name, values)| (name, rendered(&values)))
        .collect();
    for overlay in ["base", "overlays/mock", "overlays/daemonset"] {
        sets.push((overlay.to_owned(), objects(&kustomize(overlay).unwrap())));
    }
    for (name, mut objects) in sets {
        // This API server does not know the kinds of the Prometheus operator: see monitors.rs.
        objects.retain(|object| object["apiVersion"] != "monitoring.coreos.com/v1");
        let count = objects.len();
        let said = dry_run(plane, &objects).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(
            said.matches("server dry run").count(),
            count,
            "{name}: {said}"
        );
        // Warnings are about deprecated or unknown fields.
        assert!(!said.contains("Warning"), "{name}: {said}");
    }
}

/// The API server's answer to the Pod of these values, in a namespace with this Pod Security level.
async fn admitted(level: &str, values: &Value) -> Result<String, String> {
    let plane = ControlPlane::shared().await;
    let namespace = format!("level-{level}");
    let made = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": level}},
    });
    let mut kubectl = plane.kubectl();
    let mut child = kubectl
        .args(["apply", "-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(child.stdin.take().unwrap(), &made).unwrap();
    assert!(child.wait().unwrap().success());
    let objects = rendered(values);
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "ccm", "namespace": namespace},
        "spec": pod(&objects),
    });
    dry_run(plane, &[pod])
}

#[tokio::test]
async fn the_pod_is_of_the_level_restricted_but_for_the_hosts_network() {
    let refused = admitted("restricted", &json!({})).await.unwrap_err();
    let (_, why) = refused.split_once("restricted:latest\": ").unwrap();
    let why = why.trim();
    // All objections are about the host's network.
    let reasons: Vec<_> = why.split("), ").collect();
    for reason in &reasons {
        assert!(
            reason.starts_with("host namespaces (hostNetwork=true")
                || reason.starts_with("hostPort (")
                || reason.starts_with("probe or lifecycle host ("),
            "{why}"
        );
    }
    admitted("privileged", &json!({})).await.unwrap();
    let own_network = json!({"hostNetwork": false, "dnsPolicy": "ClusterFirst"});
    admitted("restricted", &own_network).await.unwrap();
}

#[test]
fn a_pod_disruption_budget_lets_nodes_be_drained_whatever_the_ccm_says() {
    let objects = rendered(&json!({"replicas": 1}));
    let budget = find(&objects, "PodDisruptionBudget", "cloud-controller-manager");
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow");
}
