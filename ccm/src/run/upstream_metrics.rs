//! Checks that the metrics have the names, types, labels and buckets of a Go CCM (B-M7).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prometheus_client::registry::Registry;

use super::metrics::Metrics;
use crate::args::Controller;
use crate::serve;

/// 1 s to about 17 min.
const DELAYS: &[&str] = &["1", "4", "16", "64", "256", "1024", "+Inf"];
/// 1 s to about 4.5 h.
const SYNCS: &[&str] = &[
    "1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024", "2048", "4096", "8192",
    "16384", "+Inf",
];
/// The bounds as Go computes them, with its rounding errors.
const QUEUE: &[&str] = &[
    "1e-08",
    "1e-07",
    "1e-06",
    "9.999999999999999e-06",
    "9.999999999999999e-05",
    "0.001",
    "0.01",
    "0.1",
    "1",
    "10",
    "+Inf",
];
const REQUESTS: &[&str] = &[
    "0.005", "0.025", "0.1", "0.25", "0.5", "1", "2", "4", "8", "15", "30", "60", "+Inf",
];
const SIZES: &[&str] = &[
    "64",
    "256",
    "512",
    "1024",
    "4096",
    "16384",
    "65536",
    "262144",
    "1.048576e+06",
    "4.194304e+06",
    "1.6777216e+07",
    "+Inf",
];

/// Name, type, labels, buckets.
const UPSTREAM: &[(&str, &str, &[&str], &[&str])] = &[
    (
        "node_controller_cloud_provider_taint_removal_delay_seconds",
        "histogram",
        &[],
        DELAYS,
    ),
    (
        "node_controller_initial_node_sync_delay_seconds",
        "histogram",
        &[],
        DELAYS,
    ),
    (
        "service_controller_loadbalancer_sync_total",
        "counter",
        &[],
        &[],
    ),
    (
        "service_controller_nodesync_error_total",
        "counter",
        &[],
        &[],
    ),
    (
        "service_controller_nodesync_latency_seconds",
        "histogram",
        &[],
        SYNCS,
    ),
    (
        "service_controller_update_loadbalancer_host_latency_seconds",
        "histogram",
        &[],
        SYNCS,
    ),
    ("route_controller_route_sync_total", "counter", &[], &[]),
    (
        "running_managed_controllers",
        "gauge",
        &["manager", "name"],
        &[],
    ),
    ("leader_election_master_status", "gauge", &["name"], &[]),
    ("workqueue_depth", "gauge", &["name"], &[]),
    ("workqueue_adds_total", "counter", &["name"], &[]),
    ("workqueue_retries_total", "counter", &["name"], &[]),
    (
        "workqueue_queue_duration_seconds",
        "histogram",
        &["name"],
        QUEUE,
    ),
    (
        "workqueue_work_duration_seconds",
        "histogram",
        &["name"],
        QUEUE,
    ),
    ("workqueue_unfinished_work_seconds", "gauge", &["name"], &[]),
    (
        "workqueue_longest_running_processor_seconds",
        "gauge",
        &["name"],
        &[],
    ),
    (
        "rest_client_requests_total",
        "counter",
        &["code", "host", "method"],
        &[],
    ),
    (
        "rest_client_request_retries_total",
        "counter",
        &["code", "host", "verb"],
        &[],
    ),
    (
        "rest_client_request_duration_seconds",
        "histogram",
        &["host", "verb"],
        REQUESTS,
    ),
    (
        "rest_client_rate_limiter_duration_seconds",
        "histogram",
        &["host", "verb"],
        REQUESTS,
    ),
    (
        "rest_client_request_size_bytes",
        "histogram",
        &["host", "verb"],
        SIZES,
    ),
    (
        "rest_client_response_size_bytes",
        "histogram",
        &["host", "verb"],
        SIZES,
    ),
    ("process_cpu_seconds_total", "counter", &[], &[]),
    ("process_start_time_seconds", "gauge", &[], &[]),
    ("process_resident_memory_bytes", "gauge", &[], &[]),
    ("process_virtual_memory_bytes", "gauge", &[], &[]),
    ("process_open_fds", "gauge", &[], &[]),
    ("process_max_fds", "gauge", &[], &[]),
];

/// The parts of a family that a scraper sees.
#[derive(Debug, Default)]
pub(super) struct Family {
    pub(super) kind: String,
    pub(super) help: String,
    pub(super) labels: BTreeSet<String>,
    buckets: Vec<String>,
    samples: usize,
}

/// Parses Prometheus' text format, as far as the tests need it.
pub(super) fn scraped(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, words) = rest.split_once(' ').unwrap();
            words.clone_into(&mut families.entry(name.to_owned()).or_default().help);
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            families.entry(name.to_owned()).or_default().kind = kind.to_owned();
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        value.parse::<f64>().unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| {
                name.strip_suffix(suffix)
                    .filter(|base| families.contains_key(*base))
            })
            .unwrap_or(name);
        let family = families
            .get_mut(base)
            .unwrap_or_else(|| panic!("{line} has no TYPE"));
        family.samples += 1;
        for label in labels
            .trim_end_matches('}')
            .split("\",")
            .filter(|it| !it.is_empty())
        {
            let (key, value) = label.split_once("=\"").unwrap();
            let value = value.trim_end_matches('"');
            if key != "le" {
                family.labels.insert(key.to_owned());
            } else if !family.buckets.iter().any(|known| known == value) {
                family.buckets.push(value.to_owned());
            }
        }
    }
    families
}

/// A registry with a sample in each family.
pub(super) fn touched() -> Registry {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry, &crate::serve::Health::default());
    metrics.loops.running(Controller::CloudNode, true);
    metrics.lease.stands("cloud-controller-manager");
    let backoff = crate::core::Backoff::new(Duration::from_secs(1), Duration::from_secs(1));
    let queue = crate::queue::Queue::new("service", backoff, 1, &metrics.queues);
    queue.add(1);
    metrics.kube.touch("127.0.0.1:6443");
    metrics.provider.touch();
    metrics.events.touch();
    metrics.webhooks.touch();
    metrics.loops.node.touch();
    metrics.loops.node_lifecycle.touch();
    metrics.loops.route.touch();
    metrics.loops.service.touch();
    // The registry shows the queue's load only while the queue lives.
    std::mem::forget(queue);
    registry
}

#[tokio::test]
async fn b_m7_names_types_labels_and_buckets_are_those_of_a_go_ccm() {
    let text = serve::exposition(&touched()).unwrap();
    let families = scraped(&text);
    for (name, kind, labels, buckets) in UPSTREAM {
        let family = families
            .get(*name)
            .unwrap_or_else(|| panic!("{name} in {:?}", families.keys()));
        assert_eq!(family.kind, *kind, "{name}");
        assert!(
            family.help.len() > 3 && family.samples > 0,
            "{name}: {family:?}"
        );
        let shown: Vec<&str> = family.labels.iter().map(String::as_str).collect();
        assert_eq!(shown, *labels, "{name}");
        assert_eq!(family.buckets, *buckets, "{name}");
    }
    // Each family that is not in the table has one of these prefixes.
    let known: BTreeSet<&str> = UPSTREAM.iter().map(|row| row.0).collect();
    for name in families
        .keys()
        .filter(|name| !known.contains(name.as_str()))
    {
        let ours = [
            "ccm_",
            "node_lifecycle_controller_",
            "node_controller_oldest_",
            "service_controller_duplicated_",
            "route_controller_failing_",
            "service_controller_orphaned_",
            "service_controller_overdue_",
            "service_controller_unlisted_",
            // Upstream has this one too, if it serves webhooks.
            "cloud_provider_webhook_",
        ];
        assert!(ours.iter().any(|prefix| name.starts_with(prefix)), "{name}");
    }
}
