//! `/metrics` of both: the names, types and labels that dashboards and alerts know (B-M7).

use std::collections::{BTreeMap, BTreeSet};

use http_body_util::BodyExt;
use kube::client::Body;
use kube::{Client, Config};

use crate::scenario::{Facts, Scenario};
use crate::side::Side;

/// The prefixes of the compared families. If a family of our own begins with one of them, the
/// scenario names it as a difference.
const COMPARED: [&str; 6] = [
    "node_controller_",
    "route_controller_",
    "service_controller_",
    "running_managed_controllers",
    "workqueue_",
    "leader_election_master_status",
];

pub fn scenarios() -> Vec<Scenario> {
    let mut scenario = Scenario::new(
        "metrics",
        "the test scrapes the metrics of both: names, types, labels, buckets, queues and controllers",
        &["B-M7"],
        async |side: Side, _| families(&scrape(side.port()).await),
    )
    .differs(
        "▲N13",
        "the ccm has a metric for the age of the oldest waiting Node",
        "metric node_controller_oldest_uninitialized_node_age_seconds",
        None,
        Some("gauge {provider} []"),
    );
    for name in [
        "route_controller_failing_routes",
        "service_controller_overdue_services",
    ] {
        scenario = scenario.differs(
            "▲M7",
            "the ccm counts the routes that fail and the Services that wait",
            &format!("metric {name}"),
            None,
            Some("gauge {provider} []"),
        );
    }
    for family in [
        "adds_total",
        "depth",
        "longest_running_processor_seconds",
        "queue_duration_seconds",
        "retries_total",
        "unfinished_work_seconds",
        "work_duration_seconds",
    ] {
        scenario = scenario
            .differs(
                "▲S12",
                "the ccm coalesces changes of Nodes and does not queue them",
                &format!("metric workqueue_{family} name=node"),
                Some("there"),
                None,
            )
            .differs(
                "▲R6",
                "the ccm reconciles routes after changes, from a queue with the name that upstream gives it under its feature gate",
                &format!("metric workqueue_{family} name=Routes"),
                None,
                Some("there"),
            );
        scenario = scenario.differs(
            "▲L7",
            "lifecycle passes have a queue, and a hint brings the next pass forward",
            &format!("metric workqueue_{family} name=NodeLifecycle"),
            None,
            Some("there"),
        );
        for name in ["RouteCalls", "RouteConditions"] {
            scenario = scenario.differs(
                "▲R6",
                "route calls and condition writes have separate queues, so that neither waits for the other",
                &format!("metric workqueue_{family} name={name}"),
                None,
                Some("there"),
            );
        }
    }
    vec![scenario]
}

async fn scrape(port: u16) -> String {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    let client = Client::try_from(config).unwrap();
    let request = http::Request::get("/metrics").body(Body::empty()).unwrap();
    let answer = client.send(request).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// A line for each family, with its type, labels and buckets, and one for each queue and controller
/// that a label names.
fn families(text: &str) -> Facts {
    let mut types = BTreeMap::new();
    let mut labels: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut buckets: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut named = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            if let Some((family, kind)) = rest.split_once(' ') {
                types.insert(family, kind);
            }
            continue;
        }
        let Some((sample, _)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let (name, pairs) = sample.split_once('{').unwrap_or((sample, ""));
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .filter_map(|end| name.strip_suffix(end))
            .find(|family| types.get(family) == Some(&"histogram"))
            .unwrap_or(name);
        let keys = labels.entry(family).or_default();
        for pair in pairs
            .trim_end_matches('}')
            .split(',')
            .filter(|pair| !pair.is_empty())
        {
            let (key, value) = pair.split_once('=').unwrap();
            keys.insert(key.to_owned());
            match key {
                "le" => {
                    let bounds = buckets.entry(family).or_default();
                    let bound: f64 = value.trim_matches('"').parse().unwrap();
                    bounds.insert(format!("{bound:.3e}"));
                }
                "name" | "manager" => {
                    named.insert((family, format!("{key}={}", value.trim_matches('"'))));
                }
                _ => {}
            }
        }
    }
    // OpenMetrics names a counter without the `_total` of its samples.
    let samples = |family: &str, kind: &str| match kind {
        "counter" if !family.ends_with("_total") => format!("{family}_total"),
        _ => family.to_owned(),
    };
    let compared = |family: &str| COMPARED.iter().any(|begin| family.starts_with(begin));
    let mut facts = Facts::new();
    for (family, kind) in types.iter().filter(|(family, _)| compared(family)) {
        let shown = samples(family, kind);
        let keys = labels.remove(shown.as_str()).unwrap_or_default();
        let keys: Vec<String> = keys.into_iter().collect();
        let mut bounds: Vec<String> = buckets
            .remove(family)
            .unwrap_or_default()
            .into_iter()
            .collect();
        bounds.sort_unstable();
        let text = format!("{kind} {{{}}} [{}]", keys.join(","), bounds.join(" "));
        facts.insert(format!("metric {shown}"), text);
    }
    // Upstream's libraries also name queues for the certificates of the HTTPS port. These belong to
    // no controller.
    let left_out = |name: &str| {
        ["Certificate", "ConfigMap", "CA"]
            .iter()
            .any(|word| name.contains(word))
    };
    let named = named
        .iter()
        .filter(|(family, name)| compared(family) && !left_out(name));
    for (family, name) in named {
        facts.insert(format!("metric {family} {name}"), "there".to_owned());
    }
    facts
}
