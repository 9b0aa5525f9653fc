//! Checks, with each set of values, that rights are granted only for the necessary objects and
//! namespaces.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testenv::manifests::{kustomize, objects};

use crate::chart::value_sets;
use crate::rendered::{COMPONENTS, with_components};
use crate::{everything, rendered};

/// The objects that the chart and kustomize make, each list with its input: a set of values, one
/// controller alone, a folder, or all components.
fn made() -> Vec<(String, Vec<Value>)> {
    let mut sets = value_sets();
    let all = everything();
    for own in [false, true] {
        let accounts = json!({"enabled": own});
        for controller in all.as_array().unwrap() {
            let mut values = json!({"controllers": [controller], "serviceAccountCredentials": accounts, "leaderMigration": accounts});
            if controller == "node-route-controller" {
                values["cluster"] = json!({"cidrs": ["10.244.0.0/16"]});
            }
            sets.push((values.to_string(), values));
        }
        let values = json!({"serviceAccountCredentials": accounts});
        sets.push((values.to_string(), values));
    }
    let mut made: Vec<_> = sets
        .into_iter()
        .map(|(name, values)| (name, rendered(&values)))
        .collect();
    for folder in ["base", "overlays/mock", "overlays/daemonset"] {
        made.push((folder.to_owned(), objects(&kustomize(folder).unwrap())));
    }
    made.push((COMPONENTS.join(", "), with_components("base", &COMPONENTS)));
    made
}

/// The words of a list.
fn words(value: &Value) -> BTreeSet<&str> {
    let words = value.as_array().into_iter().flatten();
    words.map(|word| word.as_str().unwrap()).collect()
}

/// The errors in a rule of a role of this kind.
fn wrong(kind: &str, rule: &Value) -> Vec<String> {
    // The verbs that may be granted without a name, and the kind of role that may grant them.
    let bound: [(&str, &[&str], &str); 5] = [
        ("namespaces", &[], "ClusterRole"),
        ("leases", &["create"], "Role"),
        ("serviceaccounts", &["create"], "Role"),
        ("serviceaccounts/token", &[], "Role"),
        ("configmaps", &[], "Role"),
    ];
    let (resources, verbs) = (words(&rule["resources"]), words(&rule["verbs"]));
    let named = !words(&rule["resourceNames"]).is_empty();
    let mut wrong = Vec::new();
    for list in [
        "apiGroups",
        "resources",
        "verbs",
        "resourceNames",
        "nonResourceURLs",
    ] {
        for word in words(&rule[list]) {
            if word.contains('*') {
                wrong.push(format!("{list} has {word}"));
            }
        }
    }
    for resource in resources {
        if resource.split('/').next() == Some("secrets") {
            wrong.push("secrets".to_owned());
        }
        for (_, free, place) in bound.iter().filter(|(bound, ..)| *bound == resource) {
            if kind != *place {
                wrong.push(format!("{resource} in a {kind}"));
            }
            if !named && !verbs.iter().all(|verb| free.contains(verb)) {
                wrong.push(format!("{resource} of any name"));
            }
        }
    }
    // These rights lead to all other rights.
    for verb in ["bind", "escalate", "impersonate"] {
        if verbs.contains(verb) {
            wrong.push(verb.to_owned());
        }
    }
    wrong
}

/// Whether a binding names a role of these objects, or one of two roles that the cluster has.
fn bound_to(binding: &Value, objects: &[Value]) -> bool {
    let to = &binding["roleRef"];
    let made = objects
        .iter()
        .any(|object| object["kind"] == to["kind"] && object["metadata"]["name"] == to["name"]);
    made || to["name"] == "system:auth-delegator"
        || (to["kind"] == "Role" && to["name"] == "extension-apiserver-authentication-reader")
}

#[test]
fn what_can_be_granted_for_one_object_or_one_namespace_is_granted_for_no_more() {
    let mut wrongs = Vec::new();
    for (name, objects) in made() {
        let mut roles = 0;
        for object in &objects {
            let kind = object["kind"].as_str().unwrap();
            let of = &object["metadata"]["name"];
            match kind {
                "Role" | "ClusterRole" => {
                    roles += 1;
                    for rule in object["rules"].as_array().unwrap() {
                        for wrong in wrong(kind, rule) {
                            wrongs.push(format!("{name}: {kind} {of}: {wrong}"));
                        }
                    }
                }
                "RoleBinding" | "ClusterRoleBinding" if !bound_to(object, &objects) => {
                    wrongs.push(format!("{name}: {kind} {of}: {}", object["roleRef"]));
                }
                _ => {}
            }
        }
        assert!(roles > 1, "{name}: {roles}");
    }
    assert!(wrongs.is_empty(), "{wrongs:#?}");
}

/// The granted names are those in the values, and the accounts of the enabled controllers.
#[test]
fn the_objects_that_are_granted_are_those_that_the_values_name() {
    let base = ["kube-system", "cloud-controller-manager"];
    for (values, more) in [
        (json!({}), &[][..]),
        (
            json!({"serviceAccountCredentials": {"enabled": true}}),
            &["node-controller", "service-controller"],
        ),
        (
            json!({
                "controllers": everything(),
                "cluster": {"cidrs": ["10.244.0.0/16"]},
                "serviceAccountCredentials": {"enabled": true},
                "leaderMigration": {"enabled": true},
            }),
            &[
                "node-controller",
                "service-controller",
                "route-controller",
                "pvl-controller",
                "cloud-provider-extraction-migration",
            ],
        ),
        (
            json!({
                "controllers": ["node-route-controller"],
                "cluster": {"cidrs": ["10.244.0.0/16"]},
                "serviceAccountCredentials": {"enabled": true},
            }),
            &["route-controller"],
        ),
    ] {
        let objects = rendered(&values);
        let rules = objects
            .iter()
            .flat_map(|object| object["rules"].as_array().into_iter().flatten());
        let named: BTreeSet<_> = rules
            .flat_map(|rule| words(&rule["resourceNames"]))
            .collect();
        let wanted: BTreeSet<_> = base.into_iter().chain(more.iter().copied()).collect();
        assert_eq!(named, wanted, "{values}");
    }
}
