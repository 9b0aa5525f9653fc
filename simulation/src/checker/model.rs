//! The state that must hold after a long time without faults, computed from the last actions of
//! users, kubelets and the console. This module uses no code of the controllers.

use std::collections::BTreeSet;
use std::sync::Arc;

use provider_mock::{Address, Cloud, Instance, Power, Route};
use serde_json::Value;

use super::fields::{self, NETWORK_UNAVAILABLE, SHUTDOWN, condition, has_taint, is_ready};
use super::{RECORD, UNINITIALIZED, has_finalizer, is_known};
use crate::api_server::store::Object;
use crate::plan::{SECOND_CLASS, Setup, Trait};

/// The value of a label that a user wrote over the ccm's.
pub const USER_TYPE: &str = "user-type";
/// The prefix of the Pods' addresses.
pub const CLUSTER_CIDR: &str = "10.244.";

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The present world.
pub struct World<'a> {
    /// All Nodes.
    pub nodes: &'a [Arc<Object>],
    /// All Services.
    pub services: &'a [Arc<Object>],
    /// The cloud, and that of the second ccm.
    pub clouds: &'a [Cloud],
    /// The initial setup of the run.
    pub setup: &'a Setup,
    /// Whether the deletion brake may still hold Nodes without instances.
    pub braked: bool,
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The instance of a Node: by its provider ID, else by its name.
pub(super) fn instance(cloud: &Cloud, node: &Value) -> Option<Instance> {
    match node["spec"]["providerID"].as_str() {
        Some(id) => cloud.instance_of(id),
        None => cloud.instance(name(node)),
    }
}

/// How many load balancers are marked for the Service with this UID.
pub(super) fn balancers_of(cloud: &Cloud, uid: &str) -> usize {
    let all = cloud.load_balancers();
    all.iter()
        .filter(|one| one.owner.as_ref().is_some_and(|owner| owner.uid == uid))
        .count()
}

/// The differences from the expected state.
#[must_use]
pub fn wrong(world: &World<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    let Some(cloud) = world.clouds.first() else {
        return wrong;
    };
    for node in world.nodes {
        wrong.extend(node_is(world, cloud, node));
    }
    if world.setup.has(Trait::Routes) {
        wrong.extend(routes(world, cloud));
    }
    let targets = targets(world.nodes);
    for service in world.services {
        wrong.extend(service_is(world, service, &targets));
    }
    let uids: BTreeSet<&str> = world
        .services
        .iter()
        .filter_map(|service| service["metadata"]["uid"].as_str())
        .collect();
    for cloud in world.clouds {
        let all = cloud.load_balancers();
        let ours = |owner: &&provider_mock::Mark| owner.owner_id != crate::run::FOREIGN_OWNER;
        let without = all.iter().filter(|one| {
            let owner = one.owner.as_ref().filter(ours);
            owner.is_some_and(|owner| !uids.contains(owner.uid.as_str()))
        });
        wrong.extend(without.map(|one| format!("the load balancer {} has no Service", one.handle)));
    }
    wrong
}

fn shown_addresses(instance: &Instance) -> Vec<(&'static str, String)> {
    let all = instance.addresses.iter();
    all.map(|address| {
        let kind = match address {
            Address::Hostname(_) => "Hostname",
            Address::InternalIp(_) => "InternalIP",
            Address::ExternalIp(_) => "ExternalIP",
            Address::InternalDns(_) => "InternalDNS",
            Address::ExternalDns(_) => "ExternalDNS",
        };
        (kind, address.text())
    })
    .collect()
}

fn node_is(world: &World<'_>, cloud: &Cloud, node: &Value) -> Vec<String> {
    let (name, ready) = (name(node), is_ready(node));
    let mut wrong = Vec::new();
    let Some(instance) = instance(cloud, node) else {
        // A Ready Node stays: no ccm deletes it.
        if !ready && !world.braked && is_known(node) {
            wrong.push(format!(
                "the Node {name} is there, and its instance is gone"
            ));
        }
        return wrong;
    };
    if has_taint(node, UNINITIALIZED) {
        wrong.push(format!("the Node {name} is not initialised"));
        return wrong;
    }
    if node["spec"]["providerID"] != instance.provider_id.as_str() {
        wrong.push(format!(
            "the Node {name} has the provider ID {}, its instance {}",
            node["spec"]["providerID"], instance.provider_id
        ));
    }
    let shown: Vec<(&str, String)> = node["status"]["addresses"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| Some((one["type"].as_str()?, one["address"].as_str()?.to_owned())))
        .filter(|(kind, _)| *kind != "Hostname")
        .collect();
    let has = shown_addresses(&instance);
    if shown != has {
        wrong.push(format!(
            "the Node {name} shows the addresses {shown:?}, its instance has {has:?}"
        ));
    }
    let fact = instance.instance_type.as_deref().unwrap_or_default();
    for key in fields::TYPES {
        let label = node["metadata"]["labels"][key].as_str().unwrap_or_default();
        if label != fact && label != USER_TYPE {
            wrong.push(format!(
                "the Node {name} has the label {key}={label}, its instance is a {fact}"
            ));
        }
    }
    let down = instance.power == Power::Stopped && world.setup.has(Trait::PowerState) && !ready;
    if down && !has_taint(node, SHUTDOWN) {
        wrong.push(format!(
            "the Node {name} is shut down, and has no taint that says so"
        ));
    }
    if ready && has_taint(node, SHUTDOWN) {
        wrong.push(format!(
            "the Node {name} is Ready, and has the taint of one that is shut down"
        ));
    }
    wrong
}

/// The names of the Nodes that are targets of load balancers.
fn targets(nodes: &[Arc<Object>]) -> Vec<String> {
    let fit = |node: &&Arc<Object>| {
        node["spec"]["providerID"].is_string()
            && node["metadata"]["labels"][EXCLUDE] != "true"
            && node["metadata"]["deletionTimestamp"].is_null()
    };
    let mut names: Vec<String> = nodes
        .iter()
        .filter(fit)
        .map(|node| name(node).to_owned())
        .collect();
    names.sort();
    names
}

/// The cloud whose ccm now serves this Service.
fn served_by<'a>(world: &World<'a>, service: &Value) -> Option<&'a Cloud> {
    if service["spec"]["type"] != "LoadBalancer" {
        return None;
    }
    match service["spec"]["loadBalancerClass"].as_str() {
        Some(SECOND_CLASS) => world.clouds.get(1),
        class => world.clouds.first().filter(|cloud| {
            let settings = cloud.settings();
            let offered = &settings.capabilities.load_balancers;
            offered.serves(class)
        }),
    }
}

fn service_is(world: &World<'_>, service: &Value, targets: &[String]) -> Vec<String> {
    let (name, uid) = (name(service), fields::uid(service));
    if !service["metadata"]["deletionTimestamp"].is_null() {
        return vec![format!("the Service {name} is still being deleted")];
    }
    let mut wrong = Vec::new();
    let shown: Vec<&str> = service["status"]["loadBalancer"]["ingress"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["ip"].as_str())
        .collect();
    let Some(cloud) = served_by(world, service) else {
        if world
            .clouds
            .iter()
            .any(|cloud| balancers_of(cloud, uid) > 0)
        {
            wrong.push(format!(
                "the Service {name} is none of ours, and its load balancer exists"
            ));
        }
        if has_finalizer(service) {
            wrong.push(format!(
                "the Service {name} is none of ours, and has our finalizer"
            ));
        }
        // The component for another class owns the status.
        if !shown.is_empty() && service["spec"]["type"] != "LoadBalancer" {
            wrong.push(format!(
                "the Service {name} is none of ours, and shows {shown:?}"
            ));
        }
        if service["metadata"]["annotations"][RECORD].is_string() {
            wrong.push(format!(
                "the Service {name} is none of ours, and has our annotation"
            ));
        }
        return wrong;
    };
    let all: usize = world
        .clouds
        .iter()
        .map(|cloud| balancers_of(cloud, uid))
        .sum();
    let own = cloud.load_balancers();
    let own = own
        .iter()
        .find(|one| one.owner.as_ref().is_some_and(|owner| owner.uid == uid));
    let Some(balancer) = own.filter(|_| all == 1) else {
        wrong.push(format!("the Service {name} has {all} load balancers"));
        return wrong;
    };
    if !has_finalizer(service) {
        wrong.push(format!(
            "the Service {name} has a load balancer and no finalizer"
        ));
    }
    let addresses: Vec<String> = balancer.addresses.iter().map(ToString::to_string).collect();
    if shown != addresses {
        wrong.push(format!(
            "the Service {name} shows {shown:?}, its load balancer has {addresses:?}"
        ));
    }
    let ports: Vec<String> = service["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| port["port"].to_string())
        .collect();
    let does: Vec<String> = balancer
        .config
        .ports
        .iter()
        .filter_map(|port| port.split(':').nth(2).map(str::to_owned))
        .collect();
    if ports != does {
        wrong.push(format!(
            "the Service {name} asks for the ports {ports:?}, its load balancer has {does:?}"
        ));
    }
    let mut attached = balancer.targets.clone();
    attached.sort();
    if attached != targets {
        wrong.push(format!(
            "the Service {name} has the targets {attached:?}, and right would be {targets:?}"
        ));
    }
    let record = service["metadata"]["annotations"][RECORD].as_str();
    let record: Value = serde_json::from_str(record.unwrap_or_default()).unwrap_or_default();
    if record["handle"] != balancer.handle.as_str() {
        wrong.push(format!(
            "the Service {name} has the handle {}, its load balancer {}",
            record["handle"], balancer.handle
        ));
    }
    wrong
}

/// The Pod CIDR of a Node.
#[must_use]
pub fn pod_cidr(node: &Value) -> Option<&str> {
    node["spec"]["podCIDR"].as_str()
}

fn leads_to(route: &Route, node: &Value) -> bool {
    let by_id = route.provider_id.as_deref();
    match by_id {
        Some(id) => node["spec"]["providerID"] == id,
        None => route.node_name.as_deref() == Some(name(node)),
    }
}

/// Whether the route was made for other addresses than its Node has. A route that somebody made by
/// hand has none.
fn follows_others(route: &Route, node: &Value) -> bool {
    let texts = |all: &mut dyn Iterator<Item = String>| all.collect::<BTreeSet<_>>();
    let made_for = texts(&mut route.node_addresses.iter().map(Address::text));
    let has = node["status"]["addresses"].as_array().into_iter().flatten();
    let has = texts(&mut has.filter_map(|one| Some(one["address"].as_str()?.to_owned())));
    leads_to(route, node) && !made_for.is_empty() && made_for != has
}

fn routes(world: &World<'_>, cloud: &Cloud) -> Vec<String> {
    let mut wrong = Vec::new();
    let all = cloud.routes();
    let mut wanted = BTreeSet::new();
    for node in world.nodes {
        let Some(cidr) = pod_cidr(node) else {
            continue;
        };
        wanted.insert(cidr);
        if !is_known(node) || instance(cloud, node).is_none() {
            // Without a provider ID the ccm makes no route, and without an instance the cloud makes
            // none.
            continue;
        }
        let to: Vec<&Route> = all
            .iter()
            .filter(|route| route.destination_cidr == cidr)
            .collect();
        let right = to.iter().any(|route| leads_to(route, node));
        let foreign = to
            .iter()
            .any(|route| route.owner_id.as_deref() == Some(crate::run::FOREIGN_OWNER));
        if !right && !foreign {
            wrong.push(format!("the Node {} has no route", name(node)));
        }
        if right && to.iter().any(|route| !leads_to(route, node)) && !foreign {
            wrong.push(format!(
                "a route to the Pods of {} leads elsewhere",
                name(node)
            ));
        }
        if world.setup.has(Trait::TracksAddresses) {
            for route in to.iter().filter(|route| follows_others(route, node)) {
                wrong.push(format!(
                    "the route {} of the Node {} was made for {:?}",
                    route.name,
                    name(node),
                    route.node_addresses
                ));
            }
        }
        if right && condition(node, NETWORK_UNAVAILABLE) != Some("False") {
            wrong.push(format!(
                "the Node {} has its route, and its condition {NETWORK_UNAVAILABLE} is {:?}",
                name(node),
                condition(node, NETWORK_UNAVAILABLE)
            ));
        }
    }
    if world.nodes.is_empty() {
        // If the view has no Nodes, the ccm removes no route (▲R7).
        return wrong;
    }
    let ours = |route: &&Route| {
        let owner = route.owner_id.as_deref();
        owner.is_some_and(|owner| owner != crate::run::FOREIGN_OWNER)
            && route.destination_cidr.starts_with(CLUSTER_CIDR)
    };
    for route in all.iter().filter(ours) {
        if !wanted.contains(route.destination_cidr.as_str()) {
            wrong.push(format!("the route {} leads to no Node's Pods", route.name));
        }
    }
    wrong
}
