//! The mock passes the conformance suite. The suite starts it as a process on a real socket, and
//! kills and restarts it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod own_knowledge;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use provider_conformance::{
    Config, EmptyTargetSets, Entry, Hook, Lack, Options, Outcome, Progress, Provider, Report,
    RouteMarks, Selection, run,
};
use provider_mock::{Fixture, Mock};

const BINARY: &str = env!("CARGO_BIN_EXE_provider-mock");

/// The cloud: enough instances for every check, and the volumes and clusters of the checks.
const CLOUD: &str = "
instance_templates:
- {count: 12, name: node-%d, id: i-node-%d, type: mock.small, zones: [zone-a, zone-b], region: region-1, internal_pools: [10.1.0.0/16], labels: {mock.example/number: '%d'}}
clusters: {kubernetes: 203.0.113.10}
volumes:
  disk-1: {topology.kubernetes.io/zone: zone-a, topology.kubernetes.io/region: region-1}
capabilities:
  volumes: {source_types: [csi/disk.mock.grpc-ccm.io]}
  load_balancers: {max_targets: 5100}
  routes: {tracks_node_addresses: true}
addressing: {ip_mode: vip}
provisioning: {load_balancer: 30ms}
";

/// Load balancers with slow deletions and host names, and few supported fields of a Service.
const NARROW: &str = "
instance_templates:
- {count: 12, name: node-%d, id: i-node-%d, zones: [zone-a, zone-b]}
capabilities:
  load_balancers:
    classes: [mock.grpc-ccm.io/lb]
    targets: ignored
    listing: false
    in_sync: false
    max_in_flight: 2
    features: [dual-stack]
addressing: {mode: hostname}
provisioning: {deletion: 500ms}
";

/// Load balancers without a listing and without `in_sync`.
const BLIND: &str = "
instance_templates:
- {count: 4, name: node-%d, id: i-node-%d, zones: [zone-a, zone-b]}
capabilities:
  load_balancers: {listing: false, in_sync: false}
";

/// A cloud whose load balancers need at least one target (LB-31).
const TARGETED: &str = "
instance_templates:
- {count: 4, name: node-%d, id: i-node-%d, zones: [zone-a, zone-b]}
capabilities:
  load_balancers: {targets: needed}
";

/// The narrow cloud passes these checks. A cloud that offers everything skips them.
const SHOWN_OF_NARROW: [&str; 4] = [
    "load-balancers/delete-pending",
    "load-balancers/ensure-of-remnants",
    "load-balancers/field-not-honoured",
    "load-balancers/targets-ignored",
];

/// The checks that do not apply if all Services share one load balancer.
const NOT_OF_SHARED: [&str; 3] = [
    // `ctl` removes by the handles of the state file. The provider reports the handle of the whole.
    "load-balancers/update-removed-behind-the-back",
    "load-balancers/delete-removed-behind-the-back",
    // Two clusters can have the same handle for two load balancers.
    "load-balancers/handle-of-other-cluster",
];

fn hook(hook: Hook) -> &'static str {
    match hook {
        Hook::InstanceAdd => {
            "instance add \"$NAME\" --zone zone-a --region region-1 --type mock.small"
        }
        Hook::InstanceOdd => {
            "instance add \"$NAME\" --zone zone-a --region region-1 --type \"$TYPE\""
        }
        Hook::InstanceRemove => "instance remove \"$NAME\"",
        Hook::InstanceStop => "instance stop \"$NAME\"",
        Hook::InstanceStart => "instance start \"$NAME\"",
        Hook::CloudWrites => "writes",
        Hook::CloudFail => "fail \"$CODE\"",
        Hook::CloudSlow => "slow \"$MS\"",
        Hook::LoadBalancerUnmarked => "lb add \"$NAME\" --address 192.0.2.222",
        Hook::LoadBalancerMarks => "lb marks \"$HANDLE\"",
        Hook::LoadBalancerRemove => "lb remove \"$HANDLE\"",
        Hook::RouteUnmarked => "route add \"$NAME\" \"$CIDR\" --provider-id \"$PROVIDER_ID\"",
        Hook::RouteGateway => "route add \"$NAME\" \"$CIDR\" --gateway igw-1",
        Hook::RouteBlackhole => {
            "route add \"$NAME\" \"$CIDR\" --owner-id \"$OWNER_ID\" --provider-id mock://zone-a/gone"
        }
        Hook::RouteRemove => "route remove \"$NAME\"",
    }
}

fn config() -> Config {
    let mut text = String::from(
        "
instances:
- {name: node-0, provider_id: 'mock://zone-a/i-node-0', state: RUNNING}
- {name: node-1, provider_id: 'mock://zone-b/i-node-1', state: RUNNING}
- {name: node-2, provider_id: 'mock://zone-a/i-node-2', state: RUNNING}
volumes:
- {source: {driver: disk.mock.grpc-ccm.io, volumeHandle: disk-1}, labels: {topology.kubernetes.io/zone: zone-a, topology.kubernetes.io/region: region-1}}
clusters:
- {name: kubernetes, address: 203.0.113.10}
shared_load_balancer: {mock.grpc-ccm.io/shared-load-balancer: front}
hooks:
",
    );
    for of in Hook::ALL {
        let line = format!("exec '{BINARY}' ctl --endpoint '{{endpoint}}' {}", hook(of));
        writeln!(
            text,
            "  {}: {}",
            of.key(),
            serde_json::to_string(&line).unwrap()
        )
        .unwrap();
    }
    Config::parse(&text, "suite.yaml").unwrap()
}

/// The command that serves the mock with this cloud.
fn command(directory: &Path, text: &str) -> String {
    let cloud = directory.join("cloud.yaml");
    std::fs::write(&cloud, text).unwrap();
    let state = directory.join("state.json");
    format!(
        "exec '{BINARY}' serve --endpoint {{endpoint}} --cloud '{}' --state '{}'",
        cloud.display(),
        state.display()
    )
}

fn mock(directory: &Path, text: &str) -> Provider {
    Provider::Command(command(directory, text))
}

/// The mock with this named fault.
fn faulty(directory: &Path, text: &str, fault: &str) -> Provider {
    Provider::Command(format!("{} --fault {fault}", command(directory, text)))
}

/// CONFORMANCE_ONLY runs only the checks whose IDs match.
fn selection(skip: &[&str]) -> Selection {
    let only: Vec<String> = std::env::var("CONFORMANCE_ONLY").into_iter().collect();
    let skip: Vec<String> = skip.iter().map(ToString::to_string).collect();
    Selection::new(&only, &skip).unwrap()
}

/// Runs the suite. Fails with the checks that did not pass, except those that need a capability
/// that the provider does not offer. Returns the IDs of the latter.
async fn passes(directory: &Path, cloud: &str, selection: Selection) -> Vec<&'static str> {
    let options = Options {
        provider: mock(directory, cloud),
        config: config(),
        selection,
        soak: Duration::from_secs(2),
    };
    let report = run(options, std::future::pending(), |progress| {
        if let Progress::Ended(entry) = progress {
            eprintln!("{} {:?}", entry.id, entry.took);
        }
    });
    let report = report.await.unwrap();
    let not_offered = |entry: &&Entry| matches!(&entry.outcome, Outcome::Skipped(skipped) if skipped.lack == Lack::Capability);
    let wrong: Vec<_> = report
        .entries
        .iter()
        .filter(|entry| !matches!(entry.outcome, Outcome::Passed) && !not_offered(entry))
        .map(|entry| format!("{}: {:#?}", entry.id, entry.outcome))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(report.left, Vec::<String>::new());
    let state = std::fs::read_to_string(directory.join("state.json")).unwrap_or_default();
    // Until the next write the file keeps objects whose deletion has ended.
    let state: serde_json::Value = serde_json::from_str(&state).unwrap_or_default();
    let mut left = state["load_balancers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    left.retain(|of| of["gone_at_ms"].is_null());
    left.extend(state["routes"].as_array().cloned().unwrap_or_default());
    left.extend(state["instances"].as_array().cloned().unwrap_or_default());
    let state = serde_json::to_string(&left).unwrap();
    assert!(
        !state.contains("conformance-"),
        "something is left in the cloud: {state}"
    );
    let skipped = report.entries.iter().filter(not_offered);
    skipped.map(|entry| entry.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mock_passes_every_check_and_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let mut skipped = passes(directory.path(), CLOUD, selection(&[])).await;
    let root = rustix::process::geteuid().is_root();
    skipped.retain(|id| {
        *id != "core/what-is-not-offered-is-not-served"
            && !SHOWN_OF_NARROW.contains(id)
            && (root || *id != "core/another-user-is-refused")
    });
    assert!(skipped.is_empty(), "it offers everything: {skipped:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mock_whose_load_balancers_can_do_little_passes_too() {
    if std::env::var_os("CONFORMANCE_ONLY").is_some_and(|only| only != "load-balancers/*") {
        return;
    }
    let only = [
        "delete-*",
        "ensure-*",
        "field-*",
        "handle-*",
        "owner-*",
        "shared-*",
        "targets-*",
    ];
    let only: Vec<_> = only.map(|of| format!("load-balancers/{of}")).into();
    let directory = tempfile::tempdir().unwrap();
    let selection = Selection::new(&only, &[]).unwrap();
    let skipped = passes(directory.path(), NARROW, selection).await;
    assert!(SHOWN_OF_NARROW.iter().all(|id| !skipped.contains(id)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mock_that_offers_only_instances_passes_and_the_rest_is_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let cloud = "
instance_templates:
- {count: 4, name: node-%d, id: i-node-%d, zones: [zone-a, zone-b], region: region-1, internal_pools: [10.1.0.0/16]}
capabilities:
  instances: {listing: false, power_state: false}
  zones: {offered: false}
  load_balancers: {offered: false}
  routes: {offered: false}
  clusters: {offered: false}
  volumes: {offered: false}
  changes: {offered: false}
";
    let skipped = passes(directory.path(), cloud, selection(&["core/memory-*"])).await;
    if std::env::var_os("CONFORMANCE_ONLY").is_some() {
        return;
    }
    assert!(!skipped.contains(&"core/what-is-not-offered-is-not-served"));
    for service in [
        "zones/",
        "load-balancers/",
        "routes/",
        "clusters/",
        "volumes/",
    ] {
        let of_service = skipped.iter().any(|id| id.starts_with(service));
        assert!(of_service, "{service} {skipped:?}");
    }
}

/// With `empty_target_sets: refused`, a cloud that refuses empty target sets passes, and a cloud
/// that accepts them fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_without_empty_target_sets_passes_and_one_that_takes_them_is_found_out() {
    let mut config = config();
    config.empty_target_sets = EmptyTargetSets::Refused;
    config.provider_id_pattern = Some("mock://zone-a/i-########".to_owned());
    let directory = tempfile::tempdir().unwrap();
    let provider = mock(directory.path(), TARGETED);
    let only = ["core/*", "provider/*", "load-balancers/*"];
    let report = report_of(provider, config.clone(), &only).await;
    let failed = report
        .entries
        .iter()
        .filter(|entry| matches!(entry.outcome, Outcome::Failed(_) | Outcome::Warned(_)));
    let failed: Vec<_> = failed.collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(report.left, Vec::<String>::new());
    let directory = tempfile::tempdir().unwrap();
    let id = "load-balancers/targets-empty-is-none";
    let report = report_of(mock(directory.path(), CLOUD), config, &[id]).await;
    let Outcome::Failed(failed) = &report.entries[0].outcome else {
        panic!("{:?}", report.entries[0].outcome);
    };
    assert_eq!(failed.rule, "LB-31");
}

/// If a load balancer needs a target, and the suite knows no instance, the checks of calls in
/// flight have nothing to send.
#[tokio::test(flavor = "multi_thread")]
async fn calls_in_flight_are_skipped_without_a_target_that_the_cloud_needs() {
    let mut config = config();
    config.empty_target_sets = EmptyTargetSets::Refused;
    config.instances.clear();
    config.hooks.remove(&Hook::InstanceAdd);
    let directory = tempfile::tempdir().unwrap();
    let cloud = format!("{TARGETED}  instances: {{listing: false}}\n");
    let only = ["provider/calls-in-flight-*"];
    let report = report_of(mock(directory.path(), &cloud), config.clone(), &only).await;
    assert_eq!(report.entries.len(), 2);
    for entry in &report.entries {
        let Outcome::Skipped(skipped) = &entry.outcome else {
            panic!("{entry:?}");
        };
        assert_eq!(skipped.lack, Lack::Setup);
    }
    // What needs no target is still seen.
    let liar = format!("{cloud}faults: [{{rpc: CreateRoutes, kind: status}}]\n");
    for id in [
        "provider/calls-in-flight-keep-their-owner",
        "core/a-call-ends-at-its-deadline-with-deadline-exceeded",
        "core/memory-does-not-grow-with-calls",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let report = report_of(mock(directory.path(), &liar), config.clone(), &[id]).await;
        assert_eq!(report.failed(), 1, "{:?}", report.entries);
    }
}

/// If the unmarked load balancer has no address, the suite cannot see whether a name comes first.
#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_name_and_address_is_not_passed_without_an_address() {
    let mut config = config();
    let hook = config.hooks[&Hook::LoadBalancerUnmarked].replace(" --address 192.0.2.222", "");
    config.hooks.insert(Hook::LoadBalancerUnmarked, hook);
    let directory = tempfile::tempdir().unwrap();
    let only = ["load-balancers/owner-unmarked-by-name"];
    let report = report_of(mock(directory.path(), CLOUD), config, &only).await;
    let Outcome::Skipped(skipped) = &report.entries[0].outcome else {
        panic!("{:?}", report.entries);
    };
    assert!(skipped.reason.contains("no address"), "{}", skipped.reason);
}

/// ROUTE-12: if a cloud keeps no marks on routes, no route may be OURS.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_says_ours_of_routes_without_marks_is_found() {
    let mut config = config();
    config.route_marks = RouteMarks::None;
    let directory = tempfile::tempdir().unwrap();
    let checks = ["routes/create-marks", "routes/foreign-is-not-removed"];
    let report = report_of(mock(directory.path(), CLOUD), config, &checks).await;
    let outcome = |id: &str| {
        let entry = report.entries.iter().find(|entry| entry.id == id).unwrap();
        &entry.outcome
    };
    let Outcome::Failed(failed) = outcome(checks[0]) else {
        panic!("{:?}", outcome(checks[0]));
    };
    assert_eq!(failed.rule, "ROUTE-12");
    let Outcome::Skipped(skipped) = outcome(checks[1]) else {
        panic!("{:?}", outcome(checks[1]));
    };
    assert_eq!(skipped.lack, Lack::Capability);
}

/// INST-13: PENDING claims the Node.
#[tokio::test(flavor = "multi_thread")]
async fn inst_13_pending_for_an_unknown_name_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let cloud = format!(
        "{CLOUD}faults: [{{rpc: LookupInstances, kind: instance-state, value: PENDING}}]\n"
    );
    let only = ["instances/an-unknown-name-is-not-claimed"];
    let report = report_of(mock(directory.path(), &cloud), config(), &only).await;
    let Outcome::Failed(failed) = &report.entries[0].outcome else {
        panic!("{:?}", report.entries[0].outcome);
    };
    assert_eq!(failed.rule, "INST-13");
}

/// Annotations with which Services of the mock share one load balancer.
fn sharing(name: &str) -> BTreeMap<String, String> {
    let key = format!("{}shared-load-balancer", provider_mock::ANNOTATION_PREFIX);
    [(key, name.to_owned())].into()
}

/// LB-30: an owner in a listing has no UID if the mark holds only the UID's digits.
#[tokio::test(flavor = "multi_thread")]
async fn a_mock_whose_list_tells_no_uids_passes_too() {
    let directory = tempfile::tempdir().unwrap();
    let cloud = format!("{CLOUD}faults: [{{rpc: ListLoadBalancers, kind: owner-uid}}]\n");
    let only = [
        "core/overlapping-*",
        "load-balancers/at-once-*",
        "load-balancers/delete-done",
        "load-balancers/list-*",
        "load-balancers/owner-*",
        "load-balancers/shared-*",
    ];
    let selection = Selection::new(&only.map(String::from), &[]).unwrap();
    let skipped = passes(directory.path(), &cloud, selection).await;
    assert_eq!(skipped, Vec::<&str>::new());
}

/// Every Service has the annotation: one address and one handle for all.
#[tokio::test(flavor = "multi_thread")]
async fn a_mock_whose_services_all_share_one_load_balancer_passes_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config();
    config.service_annotations = sharing("all");
    config.shared_load_balancer = Some(BTreeMap::new());
    let options = Options {
        provider: mock(directory.path(), CLOUD),
        config,
        selection: Selection::new(&["load-balancers/*".into()], &NOT_OF_SHARED.map(Into::into))
            .unwrap(),
        soak: Duration::ZERO,
    };
    let report = run(options, std::future::pending(), |_| {}).await.unwrap();
    let wrong: Vec<_> = report
        .entries
        .iter()
        .filter(|entry| matches!(entry.outcome, Outcome::Failed(_) | Outcome::Warned(_)))
        .map(|entry| format!("{}: {:#?}", entry.id, entry.outcome))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(report.left, Vec::<String>::new());
}

/// Without `shared_load_balancer` the suite skips a check of sharing. If its annotations share
/// nothing, the report says so.
#[tokio::test(flavor = "multi_thread")]
async fn what_suite_yaml_says_of_sharing_is_taken_at_its_word() {
    let nothing = [("other.example/share".to_owned(), "x".to_owned())].into();
    for (shares, lack, words) in [
        (
            None,
            Lack::Capability,
            "suite.yaml has no `shared_load_balancer`",
        ),
        (
            Some(nothing),
            Lack::Setup,
            "write the annotations that make them share one",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config();
        config.shared_load_balancer = shares;
        let only = ["load-balancers/shared-served"];
        let report = report_of(mock(directory.path(), CLOUD), config, &only).await;
        let Outcome::Skipped(skipped) = &report.entries[0].outcome else {
            panic!("{:?}", report.entries[0].outcome);
        };
        assert_eq!(skipped.lack, lack);
        assert!(skipped.reason.contains(words), "{}", skipped.reason);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mock_that_takes_one_item_in_a_call_passes_too() {
    let directory = tempfile::tempdir().unwrap();
    let cloud = CLOUD.replace(
        "capabilities:\n",
        "capabilities:\n  instances: {max_batch: 1}\n",
    );
    let cloud = cloud.replace("routes: {", "routes: {max_batch: 1, ");
    let only = ["instances/*", "routes/*"].map(str::to_owned);
    let selection = Selection::new(&only, &[]).unwrap();
    let skipped = passes(directory.path(), &cloud, selection).await;
    // These need two items in one call.
    let of_two = [
        "instances/removed-harms-no-neighbour",
        "routes/dual-stack",
        "routes/nothing-written-after-the-end",
        "routes/same-destination-to-two",
        "routes/same-destination-twice",
        "routes/same-key-twice",
    ];
    assert_eq!(BTreeSet::from_iter(skipped), BTreeSet::from(of_two));
}

/// A provider may state any `max_batch`, also one with more routes than the network has parts.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_max_batch_costs_neither_time_nor_memory() {
    for (max_batch, said) in [
        (5_000, None),
        (u32::MAX, Some("max_batch is 20000 or more")),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config();
        config.route_cidr = "172.16.0.0/12".to_owned().try_into().unwrap();
        let cloud = format!(
            "{TARGETED}  instances: {{max_batch: {max_batch}}}\n  routes: {{max_batch: {max_batch}}}\n"
        );
        let only = [
            "core/requests-that-break-*",
            "*/beyond-max-batch",
            "*/full-batch",
        ];
        let report = report_of(mock(directory.path(), &cloud), config, &only).await;
        assert_eq!(report.entries.len(), 7);
        for entry in &report.entries {
            match (&entry.outcome, said) {
                (Outcome::Passed, None) => {}
                (Outcome::Passed, Some(_)) if entry.id.ends_with("full-batch") => {}
                (Outcome::Skipped(skipped), Some(said)) => {
                    assert!(skipped.reason.contains(said), "{entry:?}");
                }
                _ => panic!("{entry:?}"),
            }
        }
    }
}

/// Runs these checks, whatever their results.
async fn report_of(provider: Provider, config: Config, only: &[&str]) -> Report {
    let only: Vec<_> = only.iter().map(ToString::to_string).collect();
    let options = Options {
        provider,
        config,
        selection: Selection::new(&only, &[]).unwrap(),
        soak: Duration::from_secs(2),
    };
    run(options, std::future::pending(), |_| {}).await.unwrap()
}

/// Every offered RPC may leak. The test asserts a call of each RPC except the listings.
#[tokio::test(flavor = "multi_thread")]
async fn the_check_for_growth_calls_every_rpc() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = Fixture::parse(CLOUD, "cloud.yaml").unwrap();
    let mock = Mock::start(fixture, directory.path().join("s/provider.sock"), None);
    let mock = mock.await.unwrap();
    let provider = Provider::Endpoint(format!("unix://{}", mock.path().display()));
    let only = ["core/memory-does-not-grow-with-calls"];
    let report = report_of(provider, Config::default(), &only).await;
    // The mock runs in this process, whose memory other tests use too.
    assert_eq!(report.entries.len(), 1);
    for rpc in [
        "GetProviderInfo",
        "Initialize",
        "Probe",
        "WatchChanges",
        "LookupInstances",
        "LookupZones",
        "GetLoadBalancer",
        "EnsureLoadBalancer",
        "UpdateLoadBalancer",
        "DeleteLoadBalancer",
        "CreateRoutes",
        "DeleteRoutes",
        "GetControlPlaneAddress",
        "GetVolumeLabels",
    ] {
        assert!(!mock.cloud().calls(Some(rpc)).is_empty(), "{rpc}");
    }
}
