//! What a side looks like, as lines that can be compared: everything of every object except what no two clusters share.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::api::{Api, ListParams};
use provider_mock::Route;
use serde_json::Value;

use crate::side::{Side, ingress};

/// Path and value.
pub type Lines = BTreeMap<String, String>;

/// Everything of one side, ready to be cut into scenarios.
pub struct Snapshot {
    nodes: Vec<Value>,
    services: Vec<Value>,
    events: Vec<Event>,
    cloud: Vec<(String, Value)>,
    routes: Vec<Route>,
    /// What is written instead of UIDs, addresses and handles.
    words: Vec<(String, String)>,
}

impl Snapshot {
    pub async fn take(side: &Side) -> Self {
        let all = ListParams::default();
        let nodes: Api<Node> = Api::all(side.client());
        let nodes = nodes.list(&all).await.unwrap().items;
        let services: Api<Service> = Api::all(side.client());
        let services = services.list(&all).await.unwrap().items;
        let events: Api<Event> = Api::all(side.client());
        let mut events = events.list(&all).await.unwrap().items;
        // The API server speaks too, of the addresses and ports that it gave away.
        events.retain(|event| {
            let reporter = event.reporting_component.as_deref().unwrap_or_default();
            let source = event.source.as_ref();
            let source = source.and_then(|source| source.component.as_deref());
            !(reporter.contains("repair") || source.unwrap_or_default().is_empty())
        });
        let cloud = side.cloud();

        let mut words = vec![(side.owner().await, "<owner>".to_owned())];
        for node in &nodes {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let uid = node.metadata.uid.clone().unwrap_or_default();
            words.push((uid, format!("<uid of {name}>")));
        }
        for service in &services {
            let meta = &service.metadata;
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            let uid = meta.uid.clone().unwrap_or_default();
            words.push((uid, format!("<uid of {namespace}>")));
            for address in ingress(service) {
                words.push(address_of(namespace, address));
            }
        }
        let mut things = Vec::new();
        for balancer in cloud.load_balancers() {
            let owner = balancer.owner.clone().unwrap_or_default();
            let namespace = owner.namespace.clone();
            words.push((owner.uid, format!("<uid of {namespace}>")));
            words.push((owner.owner_id, "<owner>".to_owned()));
            for address in &balancer.addresses {
                words.push(address_of(&namespace, address.to_string()));
            }
            let mut value = serde_json::to_value(&balancer).unwrap();
            // Made of the UID, or times.
            for key in ["name", "handle", "ready_at_ms", "gone_at_ms"] {
                value.as_object_mut().unwrap().remove(key);
            }
            things.push((namespace, value));
        }
        // The longest first: one may begin with another.
        words.retain(|(word, _)| !word.is_empty());
        words.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
        Self {
            nodes: nodes.into_iter().map(plain).collect(),
            services: services.into_iter().map(plain).collect(),
            events,
            cloud: things,
            routes: cloud.routes(),
            words,
        }
    }

    /// The lines of one scenario: its Nodes, its Services, their events, load balancers and routes.
    pub fn of(&self, scenario: &str) -> Lines {
        let mut lines = Lines::new();
        let mine = |name: &str| {
            let rest = name.strip_prefix(scenario);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("--"))
        };
        for node in &self.nodes {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            if mine(name) {
                flatten(&format!("node {name}"), node, &mut lines);
            }
        }
        for service in &self.services {
            let namespace = service["metadata"]["namespace"].as_str();
            if namespace == Some(scenario) {
                flatten("service", service, &mut lines);
            }
        }
        for (namespace, balancer) in &self.cloud {
            if namespace == scenario {
                flatten("cloud", balancer, &mut lines);
            }
        }
        for route in &self.routes {
            let target = route.node_name.as_deref().unwrap_or_default();
            if mine(&route.name) || mine(target) {
                let whose = if mine(&route.name) { "planted" } else { "made" };
                let path = format!("route {} {whose}", route.destination_cidr);
                flatten(&path, &serde_json::to_value(route).unwrap(), &mut lines);
            }
        }
        for event in &self.events {
            let about = &event.involved_object;
            let name = about.name.as_deref().unwrap_or_default();
            let kind = about.kind.as_deref().unwrap_or_default();
            let is_mine = match kind {
                "Node" => mine(name),
                "Service" => about.namespace.as_deref() == Some(scenario),
                _ => false,
            };
            if is_mine {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                let source = event.source.as_ref().map(|source| text(&source.component));
                let line = format!(
                    "event on {}: {} {}: {} [{}]",
                    if kind == "Node" { name } else { "the service" },
                    text(&event.type_),
                    text(&event.reason),
                    without_times(without_attempt(&text(&event.message))),
                    source.unwrap_or_default(),
                );
                lines.insert(line, "seen".to_owned());
            }
        }
        lines
            .into_iter()
            .map(|(path, value)| (self.worded(path), self.worded(value)))
            .collect()
    }

    fn worded(&self, mut text: String) -> String {
        for (word, instead) in &self.words {
            if text.contains(word.as_str()) {
                text = text.replace(word.as_str(), instead);
            }
        }
        handles(&text)
    }
}

/// An event's text without which call of the provider it is about, the attempt and the next try, which ours add in the end (▲N13); the ITs that
/// `kubectl describe` what is stuck look at those.
fn without_attempt(text: &str) -> &str {
    let of_a_call = |rest: &str| rest.contains(" of provider ") && rest.contains(", attempt ");
    match text.rfind(" (") {
        Some(at) if of_a_call(&text[at..]) => &text[..at],
        _ => text,
    }
}

/// The event of a route that could not be made: without how long that took.
fn without_times(text: &str) -> String {
    // An event series of client-go carries the text of its latest.
    let latest = text.trim_start_matches("(combined from similar events): ");
    if !latest.starts_with("Could not create route ") {
        return text.to_owned();
    }
    match latest.split_once(" after ") {
        Some((before, after)) => {
            let why = after.split_once(": ").map_or(after, |(_took, why)| why);
            format!("{before} after <time>: {why}")
        }
        None => latest.to_owned(),
    }
}

/// Without the numbers of the mock's handles, `lb-14`: they follow the order in which load balancers were made.
fn handles(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("lb-") {
        let number = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        shown += before;
        shown += if number == 0 { "lb-" } else { "<handle>" };
        rest = &after[number..];
    }
    shown + rest
}

/// A load balancer's address is whichever was free.
fn address_of(namespace: &str, address: String) -> (String, String) {
    let family = if address.contains(':') {
        "IPv6"
    } else {
        "IPv4"
    };
    let word = format!("<{family} of {namespace}>");
    (address, word)
}

/// The object without what no two clusters share.
fn plain(object: impl serde::Serialize) -> Value {
    let mut value = serde_json::to_value(object).unwrap();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        for key in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "managedFields",
            "generation",
        ] {
            metadata.remove(key);
        }
        if let Some(deletion) = metadata.get_mut("deletionTimestamp") {
            *deletion = "<time>".into();
        }
    }
    for key in ["clusterIP", "clusterIPs"] {
        if let Some(spec) = value["spec"].as_object_mut() {
            spec.remove(key);
        }
    }
    scrub(&mut value);
    value
}

/// Takes out times, and what the API server chose at random.
fn scrub(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for key in ["lastHeartbeatTime", "lastTransitionTime", "timeAdded"] {
                map.remove(key);
            }
            for key in ["nodePort", "healthCheckNodePort"] {
                // What a scenario chose itself is below 30086.
                if map
                    .get(key)
                    .and_then(Value::as_u64)
                    .is_some_and(|port| port >= 30_086)
                {
                    map.insert(key.to_owned(), "<port>".into());
                }
            }
            map.values_mut().for_each(scrub);
        }
        Value::Array(items) => items.iter_mut().for_each(scrub),
        _ => {}
    }
}

/// One line for each value.
fn flatten(path: &str, value: &Value, lines: &mut Lines) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                flatten(&format!("{path} {key}"), value, lines);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                flatten(&format!("{path} {index}"), value, lines);
            }
        }
        Value::String(text) => {
            lines.insert(path.to_owned(), random_ports(text));
        }
        value => {
            lines.insert(path.to_owned(), value.to_string());
        }
    }
}

/// `http:TCP:80:31234:` of the mock, without the node port that the API server chose.
fn random_ports(text: &str) -> String {
    let parts: Vec<&str> = text.split(':').collect();
    let chosen = |part: &str| {
        let port = part.parse::<u16>();
        port.is_ok_and(|port| (30_086..=32_767).contains(&port))
    };
    if parts.len() < 2 || text.contains(char::is_whitespace) {
        return text.to_owned();
    }
    let shown: Vec<&str> = parts
        .into_iter()
        .map(|part| if chosen(part) { "<port>" } else { part })
        .collect();
    shown.join(":")
}
