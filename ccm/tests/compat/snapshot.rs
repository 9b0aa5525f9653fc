//! The state of a side as lines for comparison: its Nodes, Services, events, load balancers and
//! routes, without the values that differ between all clusters.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, EventSeries, Node, Service};
use kube::api::{Api, ListParams};
use provider_mock::Route;
use serde_json::{Value, json};

use crate::scenario::said;
use crate::side::{Side, ingress};
use crate::words::Words;

/// Path and value.
pub type Lines = BTreeMap<String, String>;

/// Everything of one side, ready to be cut into scenarios.
pub struct Snapshot {
    nodes: Vec<Value>,
    services: Vec<Value>,
    events: Vec<Event>,
    cloud: Vec<(String, Value)>,
    routes: Vec<Route>,
    /// The replacements for UIDs, addresses and handles.
    words: Words,
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
        // Leaves out the API server's events about addresses and ports, and events without a
        // source.
        events.retain(|event| {
            let reporter = event.reporting_component.as_deref().unwrap_or_default();
            let source = event.source.as_ref();
            let source = source.and_then(|source| source.component.as_deref());
            !(reporter.contains("repair") || source.unwrap_or_default().is_empty())
        });
        let cloud = side.cloud();

        let mut words = Words::default();
        words.put(side.owner().await, "<owner>".to_owned());
        for node in &nodes {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let uid = node.metadata.uid.clone().unwrap_or_default();
            words.put(uid, format!("<uid of {name}>"));
        }
        for service in &services {
            let meta = &service.metadata;
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            let uid = meta.uid.clone().unwrap_or_default();
            words.put(uid, format!("<uid of {namespace}>"));
            for address in ingress(service) {
                words.put_address(namespace, address);
            }
        }
        let mut things = Vec::new();
        let mut balancers = cloud.load_balancers();
        // In the order of their creation.
        balancers.sort_by_key(|balancer| (balancer.handle.len(), balancer.handle.clone()));
        for balancer in balancers {
            let owner = balancer.owner.clone().unwrap_or_default();
            let namespace = owner.namespace.clone();
            words.put(owner.uid, format!("<uid of {namespace}>"));
            words.put(owner.owner_id, "<owner>".to_owned());
            for address in &balancer.addresses {
                words.put_address(&namespace, address.to_string());
            }
            let mut value = serde_json::to_value(&balancer).unwrap();
            // These values derive from the UID, from times or from the order of creation.
            for key in ["name", "handle", "ready_at_ms", "gone_at_ms"] {
                value.as_object_mut().unwrap().remove(key);
            }
            things.push((namespace, value));
        }
        words.order();
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
        let balancers = self.cloud.iter().filter(|(of, _)| of == scenario);
        for (number, (_, balancer)) in (1..).zip(balancers) {
            flatten(&numbered("cloud", number), balancer, &mut lines);
        }
        for (path, route) in self.routes_of(&mine) {
            flatten(&path, &route, &mut lines);
        }
        let mut seen: BTreeMap<String, u64> = BTreeMap::new();
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
                *seen.entry(self.words.of(line)).or_default() += times(event);
            }
        }
        let seen = seen.into_iter().map(|(line, times)| (line, said(times)));
        let lines = lines.into_iter();
        lines
            .map(|(path, value)| (self.words.of(path), self.words.of(value)))
            .chain(seen)
            .collect()
    }

    /// The routes of one scenario. Routes of one CIDR are numbered, in the order of their
    /// comparable fields.
    fn routes_of(&self, mine: &impl Fn(&str) -> bool) -> Vec<(String, Value)> {
        let mut by_path: BTreeMap<String, Vec<(String, Value)>> = BTreeMap::new();
        for route in &self.routes {
            let target = route.node_name.as_deref().unwrap_or_default();
            if mine(&route.name) || mine(target) {
                let whose = if mine(&route.name) { "planted" } else { "made" };
                let path = format!("route {} {whose}", route.destination_cidr);
                let value = serde_json::to_value(route).unwrap();
                let order = self.words.of(value.to_string());
                by_path.entry(path).or_default().push((order, value));
            }
        }
        let mut all = Vec::new();
        for (path, mut routes) in by_path {
            routes.sort_by(|one, other| one.0.cmp(&other.0));
            let routes = (1..).zip(routes);
            all.extend(routes.map(|(number, (_, route))| (numbered(&path, number), route)));
        }
        all
    }
}

/// The first object keeps the path. Further ones get a number.
fn numbered(path: &str, number: usize) -> String {
    match number {
        1 => path.to_owned(),
        number => format!("{path} #{number}"),
    }
}

/// How often an event was recorded.
fn times(event: &Event) -> u64 {
    let series = event.series.as_ref().and_then(|series| series.count);
    let count = event.count.max(series).unwrap_or(1);
    u64::try_from(count).unwrap_or(1).max(1)
}

/// An event's text without the RPC, the attempt and the next try, which the ccm appends (▲N13). The
/// tests with `kubectl describe` in `it` check those.
fn without_attempt(text: &str) -> &str {
    let of_a_call = |rest: &str| rest.contains(" of provider ") && rest.contains(", attempt ");
    match text.rfind(" (") {
        Some(at) if of_a_call(&text[at..]) => &text[..at],
        _ => text,
    }
}

/// An event's text. If it is about a route that could not be created, without the duration.
fn without_times(text: &str) -> String {
    // An event series of client-go carries the text of its latest event.
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

/// The object without fields that differ between all clusters.
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

/// Removes times, and replaces ports that the API server chose at random.
fn scrub(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for key in ["lastHeartbeatTime", "lastTransitionTime", "timeAdded"] {
                map.remove(key);
            }
            for key in ["nodePort", "healthCheckNodePort"] {
                // The scenarios choose ports below 30086.
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

/// A text of the mock such as `http:TCP:80:31234:`, with `<port>` for a node port that the API
/// server chose.
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

/// A Snapshot without objects.
fn empty() -> Snapshot {
    Snapshot {
        nodes: Vec::new(),
        services: Vec::new(),
        events: Vec::new(),
        cloud: Vec::new(),
        routes: Vec::new(),
        words: Words::default(),
    }
}

/// Finding C3.
#[test]
fn a_second_load_balancer_of_a_namespace_has_lines_of_its_own() {
    let of = |namespace: &str, port: u16| (namespace.to_owned(), json!({ "port": port }));
    let snapshot = Snapshot {
        cloud: vec![of("web", 80), of("other", 81), of("web", 82)],
        ..empty()
    };
    let expected = [("cloud #2 port", "82"), ("cloud port", "80")];
    assert_eq!(shown(&snapshot.of("web")), expected);
}

/// Finding C3.
#[test]
fn a_second_route_of_a_cidr_has_lines_of_its_own() {
    let route = |name: &str, node: &str, cidr: &str| Route {
        name: name.to_owned(),
        node_name: Some(node.to_owned()),
        destination_cidr: cidr.to_owned(),
        ..Route::default()
    };
    let snapshot = Snapshot {
        // Their order in the cloud does not matter.
        routes: vec![
            route("r3", "web--b", "10.0.0.0/24"),
            route("r1", "web--a", "10.0.0.0/24"),
            route("r2", "web--c", "10.0.1.0/24"),
            route("r4", "other", "10.0.0.0/24"),
            route("web--by-hand", "web--a", "10.0.0.0/24"),
        ],
        ..empty()
    };
    let mut lines = snapshot.of("web");
    lines.retain(|path, _| path.ends_with(" name"));
    let expected = [
        ("route 10.0.0.0/24 made #2 name", "r3"),
        ("route 10.0.0.0/24 made name", "r1"),
        ("route 10.0.0.0/24 planted name", "web--by-hand"),
        ("route 10.0.1.0/24 made name", "r2"),
    ];
    assert_eq!(shown(&lines), expected);
}

/// Finding C3.
#[test]
fn how_often_an_event_came_is_the_sum_over_its_objects() {
    let event = |reason: &str, count: Option<i32>, series: Option<i32>| {
        let mut event = Event {
            reason: Some(reason.to_owned()),
            type_: Some("Normal".to_owned()),
            message: Some("text".to_owned()),
            count,
            series: series.map(|count| EventSeries {
                count: Some(count),
                ..EventSeries::default()
            }),
            ..Event::default()
        };
        event.involved_object.kind = Some("Service".to_owned());
        event.involved_object.namespace = Some("web".to_owned());
        event
    };
    let snapshot = Snapshot {
        events: vec![
            event("Once", None, None),
            event("Counted", Some(2), None),
            event("Counted", Some(1), None),
            event("Series", Some(1), Some(4)),
            event("Often", Some(70), None),
        ],
        ..empty()
    };
    let expected = [
        (
            "event on the service: Normal Counted: text []",
            "seen 3 times",
        ),
        (
            "event on the service: Normal Often: text []",
            "seen again and again",
        ),
        ("event on the service: Normal Once: text []", "seen"),
        (
            "event on the service: Normal Series: text []",
            "seen 4 times",
        ),
    ];
    assert_eq!(shown(&snapshot.of("web")), expected);
}

fn shown(lines: &Lines) -> Vec<(&str, &str)> {
    let lines = lines.iter();
    lines.map(|(path, value)| (&**path, &**value)).collect()
}
