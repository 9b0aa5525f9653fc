//! The fields that the API server adds and removes.

use serde_json::{Value, json};

use super::kind::{Kind, Trait};

/// Maps that the API server removes if they are empty.
const MAPS: [&str; 6] = [
    "labels",
    "annotations",
    "selector",
    "capacity",
    "allocatable",
    "volumeAttributes",
];
const NODE_INFO: [&str; 10] = [
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];

/// Completes an object from a request: removes empty fields and sets defaults.
pub(super) fn complete(kind: &Kind, object: &mut Value) {
    let managed = object["metadata"]
        .as_object_mut()
        .and_then(|metadata| metadata.remove("managedFields"));
    tidy(object);
    if let Some(managed) = managed {
        object["metadata"]["managedFields"] = managed;
    }
    if let (Value::Object(blank), Some(fields)) = (kind.blank(), object.as_object_mut()) {
        for (field, value) in blank {
            fields.entry(field).or_insert(value);
        }
    }
    match kind.plural {
        "nodes" => node(object),
        "services" => service(object),
        "persistentvolumes" => {
            default(
                &mut object["spec"],
                "persistentVolumeReclaimPolicy",
                json!("Retain"),
            );
            default(&mut object["spec"], "volumeMode", json!("Filesystem"));
            default(&mut object["status"], "phase", json!("Pending"));
        }
        "namespaces" => {
            let name = object["metadata"]["name"].clone();
            if !name.is_null() {
                default(&mut object["metadata"], "labels", json!({}));
                object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            }
        }
        "endpointslices" => {
            for port in items(object, "/ports") {
                default(port, "name", json!(""));
                default(port, "protocol", json!("TCP"));
            }
        }
        _ => {}
    }
}

fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|field, value| match value {
                Value::Null => false,
                Value::Array(all) => !all.is_empty(),
                Value::Object(all) => !all.is_empty() || !MAPS.contains(&field.as_str()),
                _ => true,
            });
            fields.values_mut().for_each(tidy);
        }
        Value::Array(all) => all.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// Sets a field if it is absent.
pub(super) fn default(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.entry(field).or_insert(value);
    }
}

pub(super) fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// The items of a list, which may be absent.
pub(super) fn items<'a>(object: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = object.pointer_mut(list).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

fn node(object: &mut Value) {
    let spec = &mut object["spec"];
    if spec["unschedulable"] == false {
        remove(spec, "unschedulable");
    }
    if spec["providerID"] == "" {
        remove(spec, "providerID");
    }
    for taint in items(spec, "/taints") {
        if taint["value"] == "" {
            remove(taint, "value");
        }
    }
    let status = &mut object["status"];
    if let (None, Some(capacity)) = (status.get("allocatable"), status.get("capacity").cloned()) {
        status["allocatable"] = capacity;
    }
    default(
        status,
        "daemonEndpoints",
        json!({"kubeletEndpoint": {"Port": 0}}),
    );
    default(status, "nodeInfo", json!({}));
    for field in NODE_INFO {
        default(&mut status["nodeInfo"], field, json!(""));
    }
}

fn service(object: &mut Value) {
    let spec = &mut object["spec"];
    default(spec, "sessionAffinity", json!("None"));
    default(spec, "type", json!("ClusterIP"));
    if spec["sessionAffinity"] == "ClientIP" {
        default(
            spec,
            "sessionAffinityConfig",
            json!({"clientIP": {"timeoutSeconds": 10_800}}),
        );
    }
    for port in items(spec, "/ports") {
        default(port, "protocol", json!("TCP"));
        let number = port["port"].clone();
        default(port, "targetPort", number);
    }
    let kind = spec["type"].clone();
    if kind == "LoadBalancer" || kind == "NodePort" {
        default(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if kind != "ExternalName" {
        default(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", json!(true));
        for ingress in items(object, "/status/loadBalancer/ingress") {
            if ingress.get("ip").is_some() {
                default(ingress, "ipMode", json!("VIP"));
            }
        }
    }
    default(&mut object["status"], "loadBalancer", json!({}));
}

/// The fields that the API server sets on a new object.
pub(super) fn created(kind: &Kind, object: &mut Value, now: &str) {
    match kind.plural {
        "services" => object["status"] = json!({"loadBalancer": {}}),
        "persistentvolumes" => {
            object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
            default(&mut object["metadata"], "finalizers", json!([]));
            if let Some(all) = object["metadata"]["finalizers"].as_array_mut() {
                all.push(json!("kubernetes.io/pv-protection"));
            }
        }
        "namespaces" => {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        _ => {}
    }
    if kind.has(Trait::Counts) {
        object["metadata"]["generation"] = json!(1);
    }
}

/// The fields that the API server keeps from the old object.
pub(super) fn updated(kind: &Kind, status: bool, old: &Value, new: &mut Value, now: &str) {
    match (kind.has(Trait::Status), status) {
        (true, true) => new["spec"] = old["spec"].clone(),
        (true, false) => new["status"] = old["status"].clone(),
        (false, _) => {}
    }
    for field in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        match old["metadata"].get(field) {
            Some(value) => new["metadata"][field] = value.clone(),
            None => remove(&mut new["metadata"], field),
        }
    }
    default(&mut new["metadata"], "uid", old["metadata"]["uid"].clone());
    if kind.plural == "persistentvolumes"
        && status
        && old["status"]["phase"] != new["status"]["phase"]
    {
        new["status"]["lastPhaseTransitionTime"] = json!(now);
    }
}
