//! The files that are rendered from the chart. They match the chart, and kustomize makes the same
//! objects from them as helm.

use std::fs;

use serde_json::{Value, json};
use testenv::manifests::{deploy, kustomize, objects, render};

use crate::{container, containers, everything, find, on_top, pod, rendered};

/// The values of the base of kustomize, with a placeholder for the provider's image.
fn based(values: &Value) -> Value {
    let nobodys =
        json!({"registry": "registry.invalid", "repository": "your-provider", "tag": "unset"});
    on_top(json!({"provider": {"image": nobodys}}), values)
}

/// The labels that only helm's objects have: the managing tool, the release and the chart.
const OF_HELM: [&str; 3] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
];

/// The objects that helm makes of these values, merged into those of the base.
fn by_helm(values: &Value) -> Vec<Value> {
    let mut made = objects(&render(&based(values), &[]).unwrap());
    for object in &mut made {
        let labels = object["metadata"]["labels"].as_object_mut().unwrap();
        for label in OF_HELM {
            assert!(labels.remove(label).is_some(), "{label} is not in {object}");
        }
    }
    made
}

/// Each file of `deploy/kustomize` that is made from the chart: name, templates, values.
fn files() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("base/rbac.yaml", "rbac.yaml", json!({})),
        ("base/deployment.yaml", "deployment.yaml", json!({})),
        (
            "base/poddisruptionbudget.yaml",
            "poddisruptionbudget.yaml",
            json!({}),
        ),
        (
            "overlays/daemonset/daemonset.yaml",
            "daemonset.yaml",
            json!({"kind": "DaemonSet"}),
        ),
        (
            "components/volumes/rbac.yaml",
            "rbac-volumes.yaml",
            json!({"controllers": everything(), "cluster": {"cidrs": ["10.244.0.0/16"]}}),
        ),
        (
            "components/volume-webhook/webhook.yaml",
            "webhook.yaml",
            json!({"volumeWebhook": {"enabled": true, "certificateSecret": "cloud-controller-manager-webhook"}}),
        ),
        (
            "components/leader-migration/rbac.yaml",
            "rbac-leader-migration.yaml",
            json!({"leaderMigration": {"enabled": true}}),
        ),
        (
            "components/service-account-credentials/rbac.yaml",
            "rbac-service-account-credentials.yaml",
            json!({"serviceAccountCredentials": {"enabled": true}}),
        ),
        (
            "components/routes-account/rbac.yaml",
            "rbac-routes-account.yaml",
            json!({
                "controllers": everything(),
                "cluster": {"cidrs": ["10.244.0.0/16"]},
                "serviceAccountCredentials": {"enabled": true},
            }),
        ),
        (
            "components/volumes-account/rbac.yaml",
            "rbac-volumes-account.yaml",
            json!({
                "controllers": everything(),
                "cluster": {"cidrs": ["10.244.0.0/16"]},
                "serviceAccountCredentials": {"enabled": true},
            }),
        ),
        (
            "components/monitoring/monitoring.yaml",
            "monitoring.yaml",
            monitored(),
        ),
    ]
}

/// The values of the component `monitoring`.
fn monitored() -> Value {
    json!({
        "ccm": {"certificateSecret": "cloud-controller-manager-serving"},
        "monitoring": {
            "reader": {"serviceAccount": "prometheus-scrape", "namespace": "kube-system"},
            "tokenSecret": {"name": "prometheus-token"},
            "serviceMonitor": {"enabled": true},
        },
    })
}

/// Compares a file with the chart's output, or writes it.
pub(crate) fn is(path: &std::path::Path, text: &str) {
    if testenv::document::asked_for("UPDATE_MANIFESTS") {
        fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let there = fs::read_to_string(path).unwrap_or_default();
    if there != text {
        let differs = there.lines().zip(text.lines()).position(|(a, b)| a != b);
        let line = differs.unwrap_or_else(|| there.lines().count().min(text.lines().count()));
        panic!(
            "{} is not what deploy/chart makes, first in line {}:\n  there:  {:?}\n  wanted: {:?}\n`make manifests` writes it again",
            path.display(),
            line + 1,
            there.lines().nth(line),
            text.lines().nth(line),
        );
    }
}

#[test]
fn kustomize_has_what_the_chart_renders() {
    for (path, template, values) in files() {
        let text = render(&based(&values), &[template]).unwrap();
        let source = format!("# Source: grpc-ccm/templates/{template}\n");
        let text = text.trim_start_matches("---\n").replace(&source, "");
        // Templates leave blank lines behind.
        let unwanted =
            |line: &str| line.is_empty() || OF_HELM.iter().any(|label| line.contains(label));
        let lines: Vec<_> = text.lines().filter(|line| !unwanted(line)).collect();
        let text = lines.join("\n");
        let text = format!("# Made of deploy/chart by `make manifests`.\n{text}\n");
        is(&deploy().join("kustomize").join(path), &text);
    }
}

/// Sorts the objects, because their order has no meaning.
fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    objects.sort_by_key(|object| {
        format!(
            "{} {} {}",
            object["kind"], object["metadata"]["namespace"], object["metadata"]["name"]
        )
    });
    objects
}

#[test]
fn kustomize_makes_of_its_base_what_helm_makes_of_the_chart() {
    let helm = by_helm(&json!({}));
    let kustomize = objects(&kustomize("base").unwrap());
    assert_eq!(sorted(kustomize), sorted(helm));
}

#[test]
fn kustomize_makes_of_each_component_and_overlay_what_helm_makes_of_the_value_for_it() {
    let volumes = json!([
        "cloud-node-controller",
        "cloud-node-lifecycle-controller",
        "service-lb-controller",
        "persistent-volume-label-controller"
    ]);
    for (components, values) in [
        (&["single-node"][..], json!({"replicas": 1})),
        (&["native-sidecar"], json!({"provider": {"sidecar": true}})),
        (&["volumes"], json!({"controllers": volumes})),
        (
            &["volume-webhook"],
            json!({"volumeWebhook": {"enabled": true, "certificateSecret": "cloud-controller-manager-webhook"}}),
        ),
        (&["monitoring"], monitored()),
        (
            &["leader-migration"],
            json!({"leaderMigration": {"enabled": true}}),
        ),
        (
            &["service-account-credentials"],
            json!({"serviceAccountCredentials": {"enabled": true}}),
        ),
        (
            &["volumes", "service-account-credentials", "volumes-account"],
            json!({"controllers": volumes, "serviceAccountCredentials": {"enabled": true}}),
        ),
    ] {
        let mut made = with_components("base", components);
        let mut helm = by_helm(&values);
        // Flags have no order.
        for objects in [&mut helm, &mut made] {
            sort_flags(objects);
        }
        assert_eq!(sorted(made), sorted(helm), "components {components:?}");
    }
    let helm = by_helm(&json!({"kind": "DaemonSet"}));
    let made = objects(&kustomize("overlays/daemonset").unwrap());
    assert_eq!(sorted(made), sorted(helm), "overlay daemonset");
}

/// A user's patch of the Deployment turns on the node-route-controller with the cluster's CIDRs.
/// All other objects are equal to helm's.
#[test]
fn kustomize_grants_the_account_of_the_route_controller_what_helm_grants_it() {
    let components = [
        "volumes",
        "service-account-credentials",
        "routes-account",
        "volumes-account",
    ];
    let values = json!({
        "controllers": everything(),
        "cluster": {"cidrs": ["10.244.0.0/16"]},
        "serviceAccountCredentials": {"enabled": true},
    });
    let mut made = with_components("base", &components);
    let mut helm = by_helm(&values);
    for objects in [&mut made, &mut helm] {
        objects.retain(|object| object["kind"] != "Deployment");
    }
    assert_eq!(sorted(made), sorted(helm));
}

fn sort_flags(objects: &mut [Value]) {
    for object in objects {
        let containers = &mut object["spec"]["template"]["spec"]["containers"];
        for container in containers.as_array_mut().into_iter().flatten() {
            if let Some(flags) = container["args"].as_array_mut() {
                flags.sort_by_key(ToString::to_string);
            }
        }
    }
}

/// The objects of a user's kustomization with these components.
pub(crate) fn with_components(base: &str, components: &[&str]) -> Vec<Value> {
    with_components_and_patch(base, components, None)
}

/// As [`with_components`]. If `spec` is given, the kustomization also patches the Deployment's
/// Pods.
fn with_components_and_patch(base: &str, components: &[&str], spec: Option<Value>) -> Vec<Value> {
    let kustomize_folder = deploy().join("kustomize").canonicalize().unwrap();
    let own = tempfile::tempdir().unwrap();
    // Kustomize wants relative paths.
    let up = "../".repeat(own.path().canonicalize().unwrap().components().count() - 1);
    let path = |part: &str| format!("{up}.{}/{part}", kustomize_folder.display());
    let list: Vec<_> = components
        .iter()
        .map(|name| path(&format!("components/{name}")))
        .collect();
    let mut text = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [path(base)],
        "components": list,
    });
    if let Some(spec) = spec {
        let patch = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"},
            "spec": {"template": {"spec": spec}},
        });
        text["patches"] = json!([{"patch": patch.to_string()}]);
    }
    fs::write(own.path().join("kustomization.yaml"), text.to_string()).unwrap();
    objects(&testenv::manifests::kustomize(&own.path().display().to_string()).unwrap())
}

/// The components that can be combined on each base.
pub(crate) const COMPONENTS: [&str; 8] = [
    "native-sidecar",
    "volumes",
    "volume-webhook",
    "leader-migration",
    "service-account-credentials",
    "routes-account",
    "volumes-account",
    "monitoring",
];

#[test]
fn components_can_be_put_together_upon_deployment_and_daemonset() {
    for base in ["base", "overlays/daemonset", "overlays/mock"] {
        let made = with_components(base, &COMPONENTS);
        let pod = pod(&made);
        let flags = pod["containers"][0]["args"].to_string();
        for flag in [
            "persistent-volume-label-controller",
            "--webhooks=persistent-volume-label",
            "--enable-leader-migration=true",
            "--use-service-account-credentials=true",
        ] {
            assert!(flags.contains(flag), "{base}: {flag} is not in {flags}");
        }
        assert_eq!(pod["initContainers"][0]["name"], "provider", "{base}");
        find(&made, "ServiceMonitor", "cloud-controller-manager");
        // The ccm's own account may write no Node, Service or volume.
        let volumes = find(
            &made,
            "ClusterRole",
            "system:cloud-controller-manager:volumes",
        );
        assert_eq!(
            volumes["rules"][0]["verbs"],
            json!(["list", "watch"]),
            "{base}"
        );
        let names: Vec<_> = made
            .iter()
            .filter(|object| object["kind"] == "ClusterRole")
            .map(|object| object["metadata"]["name"].as_str().unwrap())
            .collect();
        assert!(
            !names.contains(&"system:cloud-controller-manager:controllers"),
            "{base}: {names:?}"
        );
    }
}

/// The comment at the head of `base/kustomization.yaml` promises this.
#[test]
fn a_patch_of_ones_own_finds_the_provider_with_the_native_sidecar_and_without() {
    let provider = json!({"name": "provider", "args": ["--region=eu-1"]});
    let ordinary = json!({"containers": [{"name": "ccm"}, provider]});
    let sidecar = json!({"initContainers": [provider]});
    for (components, spec) in [(vec![], ordinary), (vec!["native-sidecar"], sidecar)] {
        let made = with_components_and_patch("base", &components, Some(spec));
        let pod = pod(&made);
        let names: Vec<_> = containers(pod).iter().map(|one| &one["name"]).collect();
        let count = names.len();
        assert_eq!(count, 2, "{components:?}: {names:?}");
        let provider = container(pod, "provider");
        assert_eq!(provider["args"], json!(["--region=eu-1"]));
        assert!(provider["image"].is_string(), "{provider}");
        assert_eq!(pod["containers"][0]["name"], "ccm");
    }
}

#[test]
fn the_mock_overlay_has_one_replica_a_cloud_that_its_provider_reads_and_a_probe_of_it() {
    let made = objects(&kustomize("overlays/mock").unwrap());
    let deployment = find(&made, "Deployment", "cloud-controller-manager");
    assert_eq!(deployment["spec"]["replicas"], 1);
    let made_pod = pod(&made);
    let map = made_pod["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|volume| volume["name"] == "config")
        .map(|volume| volume["configMap"]["name"].as_str().unwrap())
        .unwrap();
    // The ConfigMap's name has the hash of its content, so a change of the file makes a new Pod.
    let map = find(&made, "ConfigMap", map);
    assert!(map["data"]["cloud.yaml"].is_string(), "{map}");
    let helm = rendered(&json!({"provider": {
        "args": ["--cloud=/etc/cloud-provider/config/cloud.yaml"],
        "config": {"files": map["data"]},
        "probe": {"command": ["/provider-mock", "probe", "--timeout", "4s"]},
    }}));
    let mut provider = container(made_pod, "provider").clone();
    let mut wanted = container(pod(&helm), "provider").clone();
    assert!(provider["livenessProbe"].is_object(), "{provider}");
    // Their order has no meaning.
    for container in [&mut provider, &mut wanted] {
        let mounts = container["volumeMounts"].as_array_mut().unwrap();
        mounts.sort_by_key(|mount| mount["name"].to_string());
    }
    assert_eq!(provider, wanted);
}
