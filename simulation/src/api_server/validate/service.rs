//! Validation of Services.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::{Causes, list, text};
use crate::api_server::names::{dns_label, qualified, subdomain};

pub(super) fn service(causes: &mut Causes, service: &Value) {
    let spec = &service["spec"];
    let kind = text(&spec["type"]);
    let many = list(spec, "ports").count() > 1;
    if list(spec, "ports").next().is_none() && spec["clusterIP"] != "None" && kind != "ExternalName"
    {
        causes.required("spec.ports");
    }
    let number = |value: &Value| {
        value
            .as_u64()
            .is_some_and(|port| (1..65_536).contains(&port))
    };
    let mut names = BTreeSet::new();
    for (i, port) in list(spec, "ports") {
        let at = format!("spec.ports[{i}]");
        let name = &port["name"];
        if many && text(name).is_empty() {
            causes.required(format!("{at}.name"));
        } else if !text(name).is_empty() {
            causes.words(&format!("{at}.name"), name, &dns_label(text(name)));
            if !names.insert(text(name)) {
                causes.duplicate(format!("{at}.name"), name);
            }
        }
        if !number(&port["port"]) {
            causes.invalid(format!("{at}.port"), &port["port"], "no port");
        }
        causes.among(
            format!("{at}.protocol"),
            &port["protocol"],
            &["SCTP", "TCP", "UDP"],
        );
        if port["targetPort"].is_number() && !number(&port["targetPort"]) {
            causes.invalid(format!("{at}.targetPort"), &port["targetPort"], "no port");
        }
    }
    causes.among(
        "spec.sessionAffinity",
        &spec["sessionAffinity"],
        &["ClientIP", "None"],
    );
    causes.among(
        "spec.type",
        &spec["type"],
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    if kind == "ClusterIP" {
        for (i, port) in list(spec, "ports") {
            if port.get("nodePort").is_some() {
                causes.forbidden(
                    format!("spec.ports[{i}].nodePort"),
                    "no Service of type ClusterIP has one",
                );
            }
        }
    }
    for field in ["nodePort", "port"] {
        let mut seen = BTreeSet::new();
        for (i, port) in list(spec, "ports").filter(|(_, port)| port.get(field).is_some()) {
            if !seen.insert((text(&port["protocol"]), port[field].as_u64())) {
                let below = if field == "port" { "" } else { ".nodePort" };
                causes.duplicate(format!("spec.ports[{i}]{below}"), &port[field]);
            }
        }
    }
    let balanced = kind == "LoadBalancer";
    for field in [
        "LoadBalancerSourceRanges",
        "allocateLoadBalancerNodePorts",
        "loadBalancerClass",
    ] {
        let known = spec.get(field.replace("LoadBalancerS", "loadBalancerS"));
        if known.is_some() && !balanced {
            causes.forbidden(format!("spec.{field}"), "of Services of type LoadBalancer");
        }
    }
    if let (true, Some(class)) = (balanced, spec.get("loadBalancerClass")) {
        causes.words("spec.loadBalancerClass", class, &qualified(text(class)));
    }
    if balanced || kind == "NodePort" {
        causes.among(
            "spec.externalTrafficPolicy",
            &spec["externalTrafficPolicy"],
            &["Cluster", "Local"],
        );
    } else if let Some(policy) = spec.get("externalTrafficPolicy") {
        causes.invalid(
            "spec.externalTrafficPolicy",
            policy,
            "of Services that are reached from outside",
        );
    }
}

pub(super) fn service_updated(causes: &mut Causes, old: &Value, new: &Value) {
    let (old, new) = (&old["spec"], &new["spec"]);
    let set = |spec: &Value| !text(&spec["clusterIP"]).is_empty();
    if set(old) && set(new) && old["clusterIP"] != new["clusterIP"] {
        causes.invalid(
            "spec.clusterIPs[0]",
            &new["clusterIP"],
            "not what it was, and may not change",
        );
    }
    let balanced = |spec: &Value| spec["type"] == "LoadBalancer";
    if balanced(old) && balanced(new) {
        let class = "spec.loadBalancerClass";
        causes.immutable(class, &old["loadBalancerClass"], &new["loadBalancerClass"]);
    }
}

pub(super) fn ingresses(causes: &mut Causes, service: &Value) {
    let status = &service["status"]["loadBalancer"];
    if service["spec"]["type"] != "LoadBalancer" {
        if list(status, "ingress").next().is_some() {
            causes.forbidden(
                "status.loadBalancer.ingress",
                "of Services of type LoadBalancer",
            );
        }
        return;
    }
    for (i, ingress) in list(status, "ingress") {
        let at = format!("status.loadBalancer.ingress[{i}]");
        let (ip, mode, host) = (&ingress["ip"], &ingress["ipMode"], &ingress["hostname"]);
        if !text(ip).is_empty() && text(ip).parse::<IpAddr>().is_err() {
            causes.invalid(format!("{at}.ip"), ip, "no IP address");
        }
        match (text(ip).is_empty(), mode.is_null()) {
            (false, true) => causes.required(format!("{at}.ipMode")),
            (true, false) => causes.forbidden(format!("{at}.ipMode"), "of IP addresses"),
            (false, false) => causes.among(format!("{at}.ipMode"), mode, &["Proxy", "VIP"]),
            (true, true) => {}
        }
        if !text(host).is_empty() {
            causes.words(&format!("{at}.hostname"), host, &subdomain(text(host)));
            if text(host).parse::<IpAddr>().is_ok() {
                causes.invalid(format!("{at}.hostname"), host, "an IP address");
            }
        }
    }
}
