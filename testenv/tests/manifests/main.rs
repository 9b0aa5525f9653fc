//! The manifests of `deploy/`: the chart, and the files that are rendered from it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod chart;
mod install;
mod monitors;
mod release;
mod rendered;
mod rights;
mod secure;

use serde_json::{Value, json};
use testenv::manifests::{objects, render};

/// The objects of the chart with these values. If they name no provider, the mock is the provider.
fn rendered(values: &Value) -> Vec<Value> {
    let values = on_top(
        json!({"provider": {"image": {"repository": "provider-mock"}}}),
        values,
    );
    objects(&render(&values, &[]).unwrap_or_else(|error| panic!("{error}\n{values}")))
}

/// Merges values into others, as helm merges a second file.
fn on_top(below: Value, above: &Value) -> Value {
    match (below, above) {
        (Value::Object(mut below), Value::Object(above)) => {
            for (key, value) in above {
                let old = below.remove(key).unwrap_or_default();
                below.insert(key.clone(), on_top(old, value));
            }
            below.into()
        }
        (_, above) => above.clone(),
    }
}

/// The object of this kind and name, which must exist once.
fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects
        .iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    let names: Vec<_> = objects
        .iter()
        .map(|object| format!("{} {}", object["kind"], object["metadata"]["name"]))
        .collect();
    match (found.next(), found.next()) {
        (Some(object), None) => object,
        (None, _) => panic!("no {kind} {name} among {names:?}"),
        (Some(_), Some(_)) => panic!("{kind} {name} is there twice"),
    }
}

/// The Pod of the Deployment or DaemonSet.
fn pod(objects: &[Value]) -> &Value {
    let workload = objects
        .iter()
        .find(|object| object["kind"] == "Deployment" || object["kind"] == "DaemonSet");
    &workload.expect("a Deployment or DaemonSet")["spec"]["template"]["spec"]
}

/// All containers of a Pod.
fn containers(pod: &Value) -> Vec<&Value> {
    ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| pod[list].as_array().into_iter().flatten())
        .collect()
}

/// The container of this name.
fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let found = containers(pod)
        .into_iter()
        .find(|container| container["name"] == name);
    found.unwrap_or_else(|| panic!("no container {name} in {pod}"))
}

/// All controllers.
fn everything() -> Value {
    json!([
        "cloud-node-controller",
        "cloud-node-lifecycle-controller",
        "service-lb-controller",
        "node-route-controller",
        "persistent-volume-label-controller"
    ])
}
