//! Missing rights: the log says which right is missing, and which account lacks it.

use super::*;

/// A role with this rule, and its binding to the ccm.
fn role(name: &str, rule: &Value) -> String {
    let group = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]});
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "cloud-controller-manager", "namespace": "kube-system"}]
    });
    format!("{role}\n---\n{binding}\n")
}

#[tokio::test]
async fn b_m5_a_right_that_is_missing_at_the_start_is_named_and_the_ccm_goes_on_when_it_is_granted()
{
    let none = role(
        "ccm-none",
        &json!({"nonResourceURLs": ["/none"], "verbs": ["get"]}),
    );
    let mut world = World::with_rights(Fixture::default(), &none).await;
    let ccm = world.ccm(&[]);
    let lacks = |right: &str| {
        format!(
            "service account cloud-controller-manager of namespace kube-system lacks the right to {right}"
        )
    };
    let again = |right: &str| format!("(kubectl auth can-i {right} --as={})", User::Ccm.name());
    let of_core = |resources: &[&str], verbs: &[&str]| json!({"apiGroups": [""], "resources": resources, "verbs": verbs});

    let line = said(
        &ccm,
        &lacks("get namespaces/kube-system in namespace kube-system"),
    )
    .await;
    assert!(
        line.contains("the API server answers, but refuses"),
        "{line}"
    );
    assert!(
        line.contains(&again("get namespaces/kube-system -n kube-system")),
        "{line}"
    );
    world.grant(&role("ccm-owner", &of_core(&["namespaces"], &["get"])));

    let line = said(&ccm, &lacks("list nodes in the whole cluster")).await;
    assert!(
        line.contains("the API server answers, but refuses the watch"),
        "{line}"
    );
    assert!(line.contains(&again("list nodes -A")), "{line}");
    let watched = of_core(&["nodes", "services"], &["list", "watch"]);
    world.grant(&role("ccm-watch", &watched));
    // The ccm does not need this right, so it goes on.
    said(
        &ccm,
        &lacks("list servicecidrs.networking.k8s.io in the whole cluster"),
    )
    .await;

    let lease = "get leases.coordination.k8s.io/cloud-controller-manager in namespace kube-system";
    let line = said(&ccm, &lacks(lease)).await;
    assert!(
        line.contains("refuses the Lease: this process cannot lead"),
        "{line}"
    );
    let log = ccm.log();
    assert!(!log.contains("waiting for the API server"), "{log}");
    world.apply("kustomize/base/rbac.yaml");
    world.led_by(&ccm).await;
    // The command in the message finds the granted right, even if it is for one name only.
    let command = line.split("(kubectl ").nth(1).unwrap();
    let command = command.split_once(')').unwrap().0;
    let asked = world.plane.kubectl().args(command.split(' ')).output();
    let asked = asked.unwrap();
    assert_eq!(
        String::from_utf8_lossy(&asked.stdout).trim(),
        "yes",
        "{command}: {asked:?}"
    );
    // It was logged once, not at each attempt.
    let times = ccm.log().matches(&lacks(lease)).count();
    assert_eq!(times, 1, "{}", ccm.log());
}
