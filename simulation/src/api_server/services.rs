//! Addresses and ports of Services: those that the API server chooses, keeps, and removes when a
//! Service's type changes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::defaults::{default, items, remove};

const FIRST_PORT: u64 = 30_000;
const PORTS: u64 = 2_768;

/// Fields that only a Service of type LoadBalancer has.
const OF_LOAD_BALANCERS: [&str; 2] = ["allocateLoadBalancerNodePorts", "loadBalancerClass"];

fn has_node_ports(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer" || service["spec"]["type"] == "NodePort"
}

fn has_health_port(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local"
}

fn has_address(service: &Value) -> bool {
    service["spec"]["type"] != "ExternalName"
}

/// The node ports of a Service.
pub(super) fn node_ports(service: &Value) -> BTreeSet<u64> {
    let spec = &service["spec"];
    let all = spec["ports"].as_array().into_iter().flatten();
    all.map(|port| &port["nodePort"])
        .chain([&spec["healthCheckNodePort"]])
        .filter_map(Value::as_u64)
        .filter(|port| *port > 0)
        .collect()
}

/// Keeps assigned values that the new object omits.
pub(super) fn keep(old: &Value, new: &mut Value) {
    if has_address(old) && has_address(new) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if let Some(value) = old["spec"].get(field) {
                default(&mut new["spec"], field, value.clone());
            }
        }
    }
    if has_node_ports(old) && has_node_ports(new) {
        let used: BTreeSet<u64> = node_ports(old)
            .intersection(&node_ports(new))
            .copied()
            .collect();
        for port in items(new, "/spec/ports") {
            let before = old["spec"]["ports"].as_array().into_iter().flatten();
            let before = before
                .filter(|one| one["name"] == port["name"])
                .find_map(|one| one["nodePort"].as_u64());
            if let Some(before) = before.filter(|before| !used.contains(before)) {
                default(port, "nodePort", json!(before));
            }
        }
    }
    if has_health_port(old) && has_health_port(new) {
        default(
            &mut new["spec"],
            "healthCheckNodePort",
            old["spec"]["healthCheckNodePort"].clone(),
        );
    }
}

/// Removes fields that the new type of the Service does not have, unless the user changed them in
/// the same write.
pub(super) fn drop_of_other_types(old: &Value, new: &mut Value) {
    if has_node_ports(old) && !has_node_ports(new) && node_ports(old).is_superset(&node_ports(new))
    {
        for port in items(new, "/spec/ports") {
            remove(port, "nodePort");
        }
        if old["spec"]["externalTrafficPolicy"] == new["spec"]["externalTrafficPolicy"] {
            remove(&mut new["spec"], "externalTrafficPolicy");
        }
    }
    let same = |new: &Value, field: &str| old["spec"].get(field) == new["spec"].get(field);
    if has_health_port(old) && !has_health_port(new) && same(new, "healthCheckNodePort") {
        remove(&mut new["spec"], "healthCheckNodePort");
    }
    if new["spec"]["type"] == "LoadBalancer" {
        return;
    }
    if old["spec"]["type"] == "LoadBalancer" {
        for field in OF_LOAD_BALANCERS {
            if same(new, field) {
                remove(&mut new["spec"], field);
            }
        }
    }
    new["status"]["loadBalancer"] = json!({});
}

/// Chooses the missing addresses and ports. `taken`: node ports of other Services. `Err`: the index
/// of a port whose node port another Service has.
pub(super) fn choose(
    service: &mut Value,
    mut taken: BTreeSet<u64>,
    number: u64,
) -> Result<(), usize> {
    let spec = &mut service["spec"];
    if spec["type"] != "ExternalName" {
        if spec["clusterIP"].as_str().unwrap_or_default().is_empty() {
            spec["clusterIP"] = json!(format!("10.0.{}.{}", number / 250 % 250, number % 250 + 1));
        }
        let address = spec["clusterIP"].clone();
        let headless = address == "None" && spec.get("selector").is_none();
        default(spec, "clusterIPs", json!([address]));
        let (families, policy) = if headless {
            (json!(["IPv4", "IPv6"]), "RequireDualStack")
        } else {
            (json!(["IPv4"]), "SingleStack")
        };
        default(spec, "ipFamilies", families);
        default(spec, "ipFamilyPolicy", json!(policy));
    }
    let health = has_health_port(service);
    let wanted =
        has_node_ports(service) && service["spec"]["allocateLoadBalancerNodePorts"] != false;
    let spec = &mut service["spec"];
    for (place, port) in items(spec, "/ports").enumerate() {
        let number = port.get("nodePort").and_then(Value::as_u64);
        if number.is_some_and(|number| taken.contains(&number)) {
            return Err(place);
        }
    }
    taken.extend(node_ports(service));
    let mut next = || {
        // A released port is not assigned again soon.
        let all = (0..PORTS).map(|place| FIRST_PORT + (number * 8 + place) % PORTS);
        let free = all
            .into_iter()
            .find(|port| !taken.contains(port))
            .unwrap_or(0);
        taken.insert(free);
        json!(free)
    };
    let spec = &mut service["spec"];
    if wanted {
        for port in items(spec, "/ports") {
            let number = port.get("nodePort").and_then(Value::as_u64);
            if number.unwrap_or(0) == 0 {
                port["nodePort"] = next();
            }
        }
    }
    if health && spec.get("healthCheckNodePort").is_none() {
        spec["healthCheckNodePort"] = next();
    }
    Ok(())
}
