//! Install, upgrade and uninstall, as an operator does them, on a real API server.

use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{ListParams, PostParams};
use testenv::manifests::{NAMESPACE, deploy, helm};
use testenv::objects::NodeBuilder;
use testenv::{ControlPlane, User};

const RELEASE: &str = "ccm";

/// `helm` with the admin's kubeconfig.
fn operator(plane: &ControlPlane, command: &str) -> Command {
    let mut helm = helm().unwrap();
    helm.env("KUBECONFIG", plane.kubeconfig(User::Admin)).args([
        command,
        RELEASE,
        "--namespace",
        NAMESPACE,
    ]);
    helm
}

/// The output of the command, which must succeed.
fn done(mut command: Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the first command of the notes that begins with `begins`, in a shell. Returns its output.
fn told_command(plane: &ControlPlane, notes: &str, begins: &str) -> String {
    let mut lines = notes.lines().map(str::trim);
    let line = lines.find(|line| line.starts_with(begins));
    let line = line.unwrap_or_else(|| panic!("{begins:?} is not in {notes}"));
    let kubectl = plane.kubectl();
    let program = kubectl.get_program().to_str().unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c"]);
    shell.arg(format!(
        "kubectl() {{ '{program}' kubectl \"$@\"; }}; {line}"
    ));
    for (name, value) in kubectl.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    done(shell)
}

/// The rights in a ClusterRole, as `resources: verbs`.
async fn rights(plane: &ControlPlane, role: &str) -> Vec<String> {
    let roles: Api<ClusterRole> = Api::all(plane.client());
    let rules = roles.get(role).await.unwrap().rules.unwrap_or_default();
    let text = rules.into_iter().map(|rule| {
        format!(
            "{}: {}",
            rule.resources.unwrap_or_default().join(","),
            rule.verbs.join(",")
        )
    });
    text.collect()
}

#[tokio::test]
async fn helm_installs_tells_the_next_step_upgrades_and_leaves_nothing() {
    let plane = ControlPlane::start().await.unwrap();
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(plane.client());
    let waiting = NodeBuilder::new("alone")
        .taint("node.kubernetes.io/not-ready", "", "NoSchedule")
        .uninitialized();
    nodes
        .create(&PostParams::default(), &waiting.build())
        .await
        .unwrap();
    let chart = deploy().join("chart");

    let mut install = operator(&plane, "install");
    install.arg(&chart);
    install.args(["--set", "provider.image.repository=provider-mock"]);
    let notes = done(install);
    for told in [
        "kubectl -n kube-system rollout status deployment/cloud-controller-manager",
        // The cluster has fewer Nodes than replicas, and the provider is the mock.
        "the cluster has 1 Node(s), and replicas is 2",
        "that is a cloud in memory",
    ] {
        assert!(notes.contains(told), "{told:?} is not in {notes}");
    }
    let waits = told_command(&plane, &notes, "kubectl get nodes");
    assert!(waits.starts_with("alone "), "{waits}");
    let deployments: Api<Deployment> = Api::namespaced(plane.client(), NAMESPACE);
    let replicas = async || {
        let deployment = deployments.get("cloud-controller-manager").await.unwrap();
        deployment.spec.unwrap().replicas
    };
    assert_eq!(replicas().await, Some(2));
    let role = "system:cloud-controller-manager:controllers";
    let all = [
        "nodes: get,patch,delete",
        "nodes/status: patch",
        "services: get,patch",
        "services/status: patch",
    ];
    assert_eq!(rights(&plane, role).await, all);

    // An upgrade that turns controllers off takes their rights away.
    let mut upgrade = operator(&plane, "upgrade");
    upgrade.arg(&chart).args([
        "--set",
        "replicas=1,provider.image.repository=registry.example/provider,provider.image.tag=1.0.0,controllers={cloud-node-controller}",
    ]);
    let notes = done(upgrade);
    assert!(!notes.contains("WARNING"), "{notes}");
    assert_eq!(replicas().await, Some(1));
    assert_eq!(
        rights(&plane, role).await,
        ["nodes: get,patch", "nodes/status: patch"]
    );

    done(operator(&plane, "uninstall"));
    let left = deployments.list(&ListParams::default()).await.unwrap();
    assert!(left.items.is_empty(), "{left:?}");
    let roles: Api<ClusterRole> = Api::all(plane.client());
    let left = roles.list(&ListParams::default()).await.unwrap();
    let left: Vec<_> = left
        .into_iter()
        .filter_map(|role| role.metadata.name)
        .filter(|name| name.starts_with("system:cloud-controller-manager"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
