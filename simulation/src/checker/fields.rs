//! The owners of an object's fields: which fields a ccm's write may change, and which it must not.

use serde_json::Value;

use super::model::USER_TYPE;
use super::{FINALIZER, UNINITIALIZED};

/// The taint of a Node whose machine is stopped.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// The condition of a Node without a route.
pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";
/// The annotation with the record of a Service's load balancer, such as its class and handle.
pub const RECORD: &str = "grpc-ccm.io/load-balancer";
const OURS: &str = "grpc-ccm.io/";
/// The labels with a Node's instance type.
pub(super) const TYPES: [&str; 2] = [
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
];
const LABELS: [&str; 6] = [
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/region",
];

/// The errors in a change of an object by a ccm.
pub(super) fn wrong(site: &str, before: &Value, now: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must_stay = |what: &str, before: &Value, now: &Value| {
        if before != now {
            wrong.push(format!("{what} from {before} to {now}"));
        }
    };
    let metadata = |object: &Value, field: &str, ours: &dyn Fn(&str) -> bool| {
        let mut left = object["metadata"][field].clone();
        if let Some(map) = left.as_object_mut() {
            map.retain(|key, _| !ours(key));
        }
        if left.as_object().is_some_and(serde_json::Map::is_empty) {
            left = Value::Null;
        }
        left
    };
    let without = |list: &Value, ours: &dyn Fn(&Value) -> bool| -> Value {
        let others = list.as_array().into_iter().flatten();
        others.filter(|one| !ours(one)).cloned().collect()
    };
    let label = |key: &str| LABELS.contains(&key);
    let nothing = |_: &str| false;
    match site {
        "PATCH nodes" => {
            let taint = |taint: &Value| taint["key"] == UNINITIALIZED || taint["key"] == SHUTDOWN;
            must_stay(
                "taints",
                &without(&before["spec"]["taints"], &taint),
                &without(&now["spec"]["taints"], &taint),
            );
            must_stay(
                "labels",
                &metadata(before, "labels", &label),
                &metadata(now, "labels", &label),
            );
            must_stay(
                "annotations",
                &metadata(before, "annotations", &nothing),
                &metadata(now, "annotations", &nothing),
            );
            must_stay(
                "finalizers",
                &before["metadata"]["finalizers"],
                &now["metadata"]["finalizers"],
            );
            must_stay("spec", &others_spec(before), &others_spec(now));
            for key in TYPES {
                let label = |node: &Value| node["metadata"]["labels"][key].clone();
                // While it initialises a Node, the ccm sets the labels (▲N11).
                if label(before) == USER_TYPE && !has_taint(before, UNINITIALIZED) {
                    must_stay(key, &label(before), &label(now));
                }
            }
            if has_taint(before, UNINITIALIZED)
                && !has_taint(now, UNINITIALIZED)
                && !shows_address(now)
            {
                wrong.push("the taint of an uninitialised Node that shows no address".to_owned());
            }
        }
        "PATCH nodes/status" => {
            let ours = |condition: &Value| condition["type"] == NETWORK_UNAVAILABLE;
            must_stay(
                "conditions",
                &without(&before["status"]["conditions"], &ours),
                &without(&now["status"]["conditions"], &ours),
            );
        }
        "PATCH services" => {
            let ours = |key: &str| key.starts_with(OURS);
            must_stay("spec", &before["spec"], &now["spec"]);
            must_stay(
                "annotations",
                &metadata(before, "annotations", &ours),
                &metadata(now, "annotations", &ours),
            );
            must_stay(
                "labels",
                &metadata(before, "labels", &nothing),
                &metadata(now, "labels", &nothing),
            );
            let finalizer = |one: &Value| one == FINALIZER;
            must_stay(
                "finalizers",
                &without(&before["metadata"]["finalizers"], &finalizer),
                &without(&now["metadata"]["finalizers"], &finalizer),
            );
        }
        "PATCH services/status" => must_stay("spec", &before["spec"], &now["spec"]),
        _ => {}
    }
    wrong
}

/// The fields of a Node's `spec` that no ccm may change.
fn others_spec(node: &Value) -> Value {
    let mut spec = node["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("taints");
        fields.remove("providerID");
    }
    spec
}

/// Whether the Node has this taint.
#[must_use]
pub fn has_taint(node: &Value, key: &str) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|all| all.iter().any(|taint| taint["key"] == key))
}

/// The status of a Node's condition.
#[must_use]
pub fn condition<'a>(node: &'a Value, kind: &str) -> Option<&'a str> {
    let all = node["status"]["conditions"].as_array()?;
    let found = all.iter().find(|one| one["type"] == kind)?;
    found["status"].as_str()
}

/// Whether the Node is Ready.
#[must_use]
pub fn is_ready(node: &Value) -> bool {
    condition(node, "Ready") == Some("True")
}

fn shows_address(node: &Value) -> bool {
    let all = node["status"]["addresses"].as_array();
    all.is_some_and(|all| all.iter().any(|one| one["type"] == "InternalIP"))
}

/// The object's UID.
#[must_use]
pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Whether the Node has a provider ID. A ccm never deletes a Node without one.
#[must_use]
pub fn is_known(node: &Value) -> bool {
    node["spec"]["providerID"].is_string()
}

/// Whether the Service has the finalizer that keeps it until its load balancer is gone.
#[must_use]
pub fn has_finalizer(service: &Value) -> bool {
    let all = service["metadata"]["finalizers"].as_array();
    all.is_some_and(|all| all.iter().any(|one| one == FINALIZER))
}

/// Whether the Service is of type LoadBalancer and its record has its class.
#[must_use]
pub fn is_recorded(service: &Value) -> bool {
    let record = service["metadata"]["annotations"][RECORD].as_str();
    let record: Value = serde_json::from_str(record.unwrap_or_default()).unwrap_or_default();
    let class = service["spec"]["loadBalancerClass"].as_str();
    service["spec"]["type"] == "LoadBalancer" && record["class"] == class.unwrap_or_default()
}
