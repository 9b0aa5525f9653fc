//! The chart itself: lint, snapshots, and its errors for wrong values.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use testenv::manifests::{deploy, helm, render};

use crate::{container, everything, find, on_top, pod, rendered};

/// The examples that users add to those of a cloud.
const ON_TOP: [&str; 3] = ["one-node", "high-availability", "monitors"];

/// The sets of values in `deploy/chart/ci` and `deploy/examples`, and a set `mock`: name and
/// values. A set that users add to a cloud's has the name `CLOUD+NAME`, for each cloud.
pub(crate) fn value_sets() -> Vec<(String, Value)> {
    let (mut sets, clouds) = (values_in("chart/ci"), values_in("examples"));
    let (above, clouds): (Vec<_>, Vec<_>) = clouds
        .into_iter()
        .partition(|(name, _)| ON_TOP.contains(&&**name));
    assert_eq!((above.len(), clouds.len()), (ON_TOP.len(), 3));
    for (cloud, values) in clouds {
        for (name, above) in &above {
            sets.push((format!("{cloud}+{name}"), on_top(values.clone(), above)));
        }
        sets.push((cloud, values));
    }
    let mock = json!({"provider": {"image": {"repository": "provider-mock"}}});
    sets.push(("mock".to_owned(), mock));
    sets.sort_by(|(one, _), (other, _)| one.cmp(other));
    sets
}

/// The sets of values in a folder of `deploy`.
fn values_in(folder: &str) -> Vec<(String, Value)> {
    fs::read_dir(deploy().join(folder))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let text = fs::read_to_string(entry.path()).unwrap();
            let name = entry.file_name().into_string().unwrap();
            let name = name.strip_suffix("-values.yaml").unwrap().to_owned();
            (name, serde_yaml::from_str(&text).unwrap())
        })
        .collect()
}

#[test]
fn helm_lint_finds_nothing_with_any_set_of_values() {
    for (name, values) in value_sets() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), values.to_string()).unwrap();
        let linted = helm()
            .unwrap()
            .args(["lint", "--strict", "--values"])
            .arg(file.path())
            .arg(deploy().join("chart"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&linted.stdout);
        assert!(linted.status.success(), "{name}: {text}");
        // Lint may only recommend an icon.
        let said: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with('[') && !line.contains("icon is recommended"))
            .collect();
        assert!(said.is_empty(), "{name}: {said:?}");
    }
}

#[test]
fn each_set_of_values_renders_as_its_snapshot() {
    let folder = deploy().join("../testenv/tests/manifests/snapshots");
    fs::create_dir_all(&folder).unwrap();
    let mut names = BTreeSet::new();
    for (name, values) in value_sets() {
        // Other tests check the sets that users add.
        if name.contains('+') {
            continue;
        }
        let text = render(&values, &[]).unwrap();
        let file = format!("{name}.yaml");
        crate::rendered::is(&folder.join(&file), &text);
        names.insert(file);
    }
    let there: BTreeSet<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(there, names, "snapshots of values that are no more");
}

#[test]
fn an_example_on_top_changes_of_each_cloud_what_its_name_says() {
    let mut seen = 0;
    for (name, values) in value_sets() {
        let Some((cloud, above)) = name.split_once('+') else {
            continue;
        };
        seen += 1;
        let objects = rendered(&values);
        let deployment = find(&objects, "Deployment", "cloud-controller-manager");
        let made = pod(&objects);
        let provider = container(made, "provider");
        let image = provider["image"].as_str().unwrap();
        assert!(
            image.contains(&format!("/provider-{cloud}:")),
            "{name}: {image}"
        );
        let replicas = match above {
            "one-node" => 1,
            "high-availability" => 3,
            _ => 2,
        };
        assert_eq!(deployment["spec"]["replicas"], replicas, "{name}");
        let sidecar = made["initContainers"].is_array();
        assert_eq!(sidecar, above == "high-availability", "{name}");
        let monitor = objects.iter().any(|it| it["kind"] == "ServiceMonitor");
        assert_eq!(monitor, above == "monitors", "{name}");
    }
    assert_eq!(seen, 9);
}

/// Wrong values, and words of the error for each.
type Wrong = (Value, &'static [&'static str]);

fn against_the_schema() -> Vec<Wrong> {
    vec![
        (json!({"replica": 3}), &["'replica'"][..]),
        (json!({"replicas": "3"}), &["replicas", "integer"]),
        (json!({"ccm": {"securePrt": 1}}), &["/ccm", "'securePrt'"]),
        (
            json!({"ccm": {"securePort": 70000}}),
            &["/ccm/securePort", "65,535"],
        ),
        (
            json!({"ccm": {"image": {"tags": "x"}}}),
            &["/ccm/image", "'tags'"],
        ),
        (
            json!({"ccm": {"image": {"digest": "sha256:12"}}}),
            &["/ccm/image/digest"],
        ),
        (
            json!({"ccm": {"extraArgs": {"--v": 4}}}),
            &["/ccm/extraArgs", "--v"],
        ),
        (
            json!({"ccm": {"orphanedLoadBalancers": "remove"}}),
            &["/ccm/orphanedLoadBalancers", "'delete'"],
        ),
        (
            json!({"controllers": ["cloud-node"]}),
            &["/controllers/0", "'cloud-node-controller'"],
        ),
        (json!({"controllers": []}), &["/controllers"]),
        (json!({"kind": "StatefulSet"}), &["/kind", "'DaemonSet'"]),
        (
            json!({"leaderElection": {"leaseDuration": "15"}}),
            &["/leaderElection/leaseDuration"],
        ),
        (
            json!({"leaderElection": {"retryPeriod": "0.5m2s", "renewDeadline": "1s2m"}}),
            &[
                "/leaderElection/retryPeriod",
                "/leaderElection/renewDeadline",
            ],
        ),
        (
            json!({"monitoring": {"podMonitor": {"interval": "1.5m"}, "serviceMonitor": {"interval": "1s1m"}}}),
            &[
                "/monitoring/podMonitor/interval",
                "/monitoring/serviceMonitor/interval",
            ],
        ),
        (
            json!({"provider": {"name": "My Cloud"}}),
            &["/provider/name"],
        ),
        (
            json!({"provider": {"probe": {"command": "/probe"}}}),
            &["/provider/probe/command", "array"],
        ),
        (
            json!({"provider": {"runAsUser": 0}}),
            &["/provider/runAsUser"],
        ),
        (
            json!({"provider": {"probe": {"startup": {"periodSeconds": 0}}}}),
            &["/provider/probe/startup/periodSeconds"],
        ),
    ]
}

/// The templates refuse wrong values that the schema cannot express.
fn against_the_templates() -> Vec<Wrong> {
    vec![
        (
            json!({"provider": {"image": {"repository": ""}}}),
            &[
                "provider.image.repository",
                "provider-mock",
                "provider-digitalocean",
                "provider-hetzner",
                "provider-aws",
                "your own image",
            ],
        ),
        (
            json!({"provider": {"image": {"repository": "my-cloud/provider", "tag": "1"}}}),
            &[
                "provider.image.registry",
                "my-cloud/provider",
                "registry.example",
            ],
        ),
        (
            json!({"ccm": {"image": {"repository": "my/ccm"}}}),
            &["ccm.image.registry", "my/ccm"],
        ),
        (
            json!({"ccm": {"extraArgs": {"controllers": "*"}}}),
            &["ccm.extraArgs.controllers", "another value"],
        ),
        (
            json!({"ccm": {"extraArgs": {"cluster-cidr": "10.0.0.0/8"}}}),
            &["ccm.extraArgs.cluster-cidr", "another value"],
        ),
        (
            json!({"ccm": {"extraArgs": {"leader-elect": false}}}),
            &["ccm.extraArgs.leader-elect", "always on"],
        ),
        (
            json!({"provider": {"runAsUser": 65532}}),
            &["provider.runAsUser", "ccm.runAsUser", "another"],
        ),
        (
            json!({"ccm": {"runAsUser": 65533}}),
            &["provider.runAsUser", "ccm.runAsUser", "another"],
        ),
        (
            json!({"controllers": everything()}),
            &["cluster.cidrs", "10.244.0.0/16"],
        ),
        (
            json!({"cluster": {"cidrs": ["10.244.0.0/16"]}}),
            &["cluster.cidrs", "node-route-controller"],
        ),
        (
            json!({"controllers": ["cloud-node-controller"], "cluster": {"serviceCIDRs": ["10.96.0.0/12"]}}),
            &["cluster.serviceCIDRs", "service-lb-controller"],
        ),
        (
            json!({"ccm": {"extraArgs": {"service-cluster-ip-range": "10.96.0.0/12"}}}),
            &["ccm.extraArgs.service-cluster-ip-range", "another value"],
        ),
        (
            json!({"volumeWebhook": {"enabled": true}}),
            &["volumeWebhook.certificateSecret", "kubernetes.io/tls"],
        ),
        (
            json!({"provider": {"image": {"repository": "my-cloud/provider"}}}),
            &["my-cloud/provider", "provider.image.tag"],
        ),
        (
            json!({"hostNetwork": false, "ccm": {"bindAddress": "127.0.0.1"}}),
            &["ccm.bindAddress", "probes", "0.0.0.0"],
        ),
        (
            json!({
                "ccm": {"bindAddress": "127.0.0.1", "certificateSecret": "serving"},
                "monitoring": {"serviceMonitor": {"enabled": true}, "tokenSecret": {"name": "t"}},
            }),
            &["ccm.bindAddress", "Prometheus"],
        ),
        (
            json!({"monitoring": {"podMonitor": {"enabled": true}}}),
            &["ccm.certificateSecret", "kubernetes.io/tls", "token"],
        ),
        (
            json!({
                "ccm": {"certificateSecret": "serving"},
                "monitoring": {"serviceMonitor": {"enabled": true}},
            }),
            &["monitoring.tokenSecret.name"],
        ),
    ]
}

#[test]
fn a_wrong_value_is_refused_by_its_name() {
    for (values, words) in against_the_schema()
        .into_iter()
        .chain(against_the_templates())
    {
        let named = json!({"provider": {"image": {"repository": "provider-mock"}}});
        let error = match render(&on_top(named, &values), &[]) {
            Ok(_) => panic!("{values} is accepted"),
            Err(error) => error.to_string(),
        };
        for word in words {
            assert!(error.contains(word), "{values}: {word:?} is not in {error}");
        }
    }
}

#[test]
fn each_form_of_a_duration_that_its_reader_takes_is_accepted() {
    for (lease, interval) in [
        ("20s500ms", "1d"),
        ("1m", "1m30s"),
        ("0.5m", "0"),
        ("15.5s", "500ms"),
    ] {
        let values = json!({
            "provider": {"image": {"repository": "provider-mock"}},
            "leaderElection": {"leaseDuration": lease},
            "monitoring": {"serviceMonitor": {"interval": interval}, "podMonitor": {"interval": interval}},
        });
        let rendered = render(&values, &[]);
        assert!(rendered.is_ok(), "{lease}, {interval}: {rendered:?}");
    }
}

/// The path of each key of a mapping of mappings: `ccm.image.tag`.
fn keys(value: &Value, way: &str, found: &mut BTreeSet<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let way = format!("{way}{key}");
        keys(value, &format!("{way}."), found);
        found.insert(way);
    }
}

fn described(schema: &Value, way: &str, found: &mut BTreeSet<String>) {
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        let way = format!("{way}{key}");
        described(schema, &format!("{way}."), found);
        found.insert(way);
    }
}

/// The mappings with named keys that permit other keys too.
fn open(schema: &Value, way: &str, found: &mut Vec<String>) {
    let properties = schema["properties"].as_object();
    if properties.is_some() && schema["additionalProperties"] != false {
        found.push(way.to_owned());
    }
    for (key, schema) in properties.into_iter().flatten() {
        open(schema, &format!("{way}.{key}"), found);
    }
}

#[test]
fn the_schema_knows_all_values_and_every_mapping_of_it_is_closed() {
    let read = |name: &str| fs::read_to_string(deploy().join("chart").join(name)).unwrap();
    let values: Value = serde_yaml::from_str(&read("values.yaml")).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let (mut there, mut known) = (BTreeSet::new(), BTreeSet::new());
    described(&schema, "", &mut known);
    keys(&values, "", &mut there);
    // Below these, users choose the keys, or Kubernetes has keys without a default here.
    let free = |way: &str| {
        [
            "affinity.",
            "daemonSet.affinity.",
            "ccm.resources.",
            "provider.resources.",
        ]
        .iter()
        .any(|prefix| way.starts_with(prefix))
            || way == "global"
            || way.ends_with("Probe.initialDelaySeconds")
            || way.ends_with("Probe.terminationGracePeriodSeconds")
    };
    let odd: Vec<_> = there
        .symmetric_difference(&known)
        .filter(|way| !free(way))
        .collect();
    assert!(
        odd.is_empty(),
        "in values.yaml or in its schema only: {odd:?}"
    );

    let mut found = Vec::new();
    open(&schema, "", &mut found);
    assert!(found.is_empty(), "a typo would not be seen in {found:?}");
}

#[test]
fn chart_images_and_crates_have_one_version() {
    let text = fs::read_to_string(deploy().join("chart/Chart.yaml")).unwrap();
    let chart: Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    let objects = rendered(&json!({}));
    let pod = pod(&objects);
    for (name, image) in [("ccm", "ccm"), ("provider", "provider-mock")] {
        let image = format!("localhost/grpc-ccm/{image}:{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(container(pod, name)["image"], image);
    }
}

#[test]
fn an_image_is_named_as_its_values_say() {
    let image = |values: Value| {
        let objects = rendered(&json!({"ccm": {"image": values}}));
        container(pod(&objects), "ccm")["image"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let digest = format!("sha256:{}", "0".repeat(64));
    for (values, expected) in [
        (
            json!({"registry": "r.example"}),
            format!("r.example/ccm:{}", env!("CARGO_PKG_VERSION")),
        ),
        (
            json!({"registry": "r.example:5000/x/"}),
            format!("r.example:5000/x/ccm:{}", env!("CARGO_PKG_VERSION")),
        ),
        (json!({"tag": "v1"}), "localhost/grpc-ccm/ccm:v1".to_owned()),
        (
            json!({"tag": "v1", "digest": digest}),
            format!("localhost/grpc-ccm/ccm@{digest}"),
        ),
        (
            json!({"repository": "r.example/x/ccm", "tag": "v1"}),
            "r.example/x/ccm:v1".to_owned(),
        ),
    ] {
        assert_eq!(image(values), expected);
    }
}

#[test]
fn with_a_namespace_of_its_own_only_what_must_be_in_kube_system_is_there() {
    let output = helm()
        .unwrap()
        .args(["template", "x"])
        .arg(deploy().join("chart"))
        .args(["--namespace", "clouds"])
        .args(["--set", "provider.image.repository=provider-mock"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let objects = testenv::manifests::objects(&String::from_utf8(output.stdout).unwrap());
    let there: BTreeSet<_> = objects
        .iter()
        .filter(|object| object["metadata"]["namespace"] == "kube-system")
        .map(|object| object["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        there,
        BTreeSet::from([
            "system:cloud-controller-manager:authentication-reader",
            "system:cloud-controller-manager:leader-election",
        ])
    );
    let binding = find(
        &objects,
        "ClusterRoleBinding",
        "system:cloud-controller-manager",
    );
    assert_eq!(binding["subjects"][0]["namespace"], "clouds");
}

#[test]
fn what_an_operator_adds_of_his_own_is_where_he_says() {
    let objects = rendered(&json!({
        "annotations": {"example.com/owner": "clouds"},
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["api.example"]}],
        "ccm": {
            "volumes": [{"name": "tls", "secret": {"secretName": "serving"}}],
            "volumeMounts": [{"name": "tls", "mountPath": "/etc/tls", "readOnly": true}],
            "extraArgs": {"tls-cert-file": "/etc/tls/tls.crt"},
        },
        "provider": {"probe": {
            "command": ["/provider", "probe"],
            "startup": {"periodSeconds": 5, "failureThreshold": 60},
        }},
        "extraObjects": [{
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "mine", "namespace": "{{ .Release.Namespace }}"},
        }],
    }));
    let deployment = find(&objects, "Deployment", "cloud-controller-manager");
    let metadata = &deployment["metadata"];
    assert_eq!(metadata["annotations"]["example.com/owner"], "clouds");
    let labels = &metadata["labels"];
    assert_eq!(
        labels["app.kubernetes.io/instance"],
        "cloud-controller-manager"
    );
    assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm");
    let chart = concat!("grpc-ccm-", env!("CARGO_PKG_VERSION"));
    assert_eq!(labels["helm.sh/chart"], chart);
    let pod = pod(&objects);
    assert_eq!(pod["hostAliases"][0]["hostnames"][0], "api.example");
    let (ccm, provider) = (container(pod, "ccm"), container(pod, "provider"));
    assert!(ccm["volumeMounts"].to_string().contains("/etc/tls"));
    assert!(!provider["volumeMounts"].to_string().contains("/etc/tls"));
    assert!(pod["volumes"].to_string().contains("serving"));
    assert_eq!(provider["startupProbe"]["periodSeconds"], 5);
    assert_eq!(provider["startupProbe"]["failureThreshold"], 60);
    let mine = find(&objects, "ConfigMap", "mine");
    assert_eq!(mine["metadata"]["namespace"], "kube-system");
}

/// Two releases can be in one cluster: they have no object with the same kind and name.
#[test]
fn a_release_of_another_name_shares_no_object_with_the_first() {
    let names = |release: &str| -> BTreeSet<String> {
        let objects = rendered(&json!({
            "fullnameOverride": release,
            "leaderElection": {"resourceName": release},
            "controllers": everything(),
            "cluster": {"cidrs": ["10.244.0.0/16"]},
            "volumeWebhook": {"enabled": true, "certificateSecret": "webhook"},
        }));
        let name = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
        objects.iter().map(name).collect()
    };
    let (one, other) = (names("one"), names("other"));
    assert_eq!(one.len(), other.len());
    let both: Vec<_> = one.intersection(&other).collect();
    assert!(both.is_empty(), "{both:?}");
}
