mod docs;
mod files;
mod serving;
mod upstream;

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;

fn parse(flags: &[&str]) -> Result<Args, Vec<String>> {
    Args::parse_from_command_line(std::iter::once(&"ccm").chain(flags))
        .map_err(|error| vec![error.to_string()])
}

fn config(flags: &[&str]) -> Result<Config, Vec<String>> {
    parse(flags)?
        .into_config()
        .map_err(|wrong| wrong.iter().map(ToString::to_string).collect())
}

/// The flags that get a notice, in order.
fn answered(flags: &[&str]) -> Vec<String> {
    let notices = parse(flags).unwrap().notices();
    notices.into_iter().map(|notice| notice.flag).collect()
}

#[track_caller]
fn refused(flags: &[&str], words: &[&str]) {
    let text = config(flags).expect_err("these flags are wrong").join("\n");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[test]
fn b_m5_defaults_are_those_of_the_go_ccm() {
    let config = config(&[]).unwrap();
    assert_eq!(config.cluster.name, "kubernetes");
    assert_eq!(config.node.status_update_frequency, Duration::from_mins(5));
    assert_eq!(config.node_lifecycle.monitor_period, Duration::from_secs(5));
    assert_eq!(config.serve.port, 10258);
    let on = Controller::ALL.into_iter().filter(|it| it.on_by_default());
    assert_eq!(config.controllers, on.collect::<BTreeSet<_>>());
    assert_eq!(
        config.kube_api_qps, None,
        "▲M11: no throttle unless asked for"
    );
}

#[test]
fn b_m3_lease_defaults() {
    let election = config(&[]).unwrap().leader_election;
    assert!(election.enabled);
    assert_eq!(election.lease_duration, Duration::from_secs(15));
    assert_eq!(election.renew_deadline, Duration::from_secs(10));
    assert_eq!(election.retry_period, Duration::from_secs(2));
    assert_eq!(election.resource_name, "cloud-controller-manager");
    assert_eq!(election.resource_namespace, "kube-system");
}

#[test]
fn b_m1_controllers_by_name_alias_star_and_minus() {
    use Controller::{CloudNode, CloudNodeLifecycle, NodeRoute, ServiceLb, VolumeLabel};
    for (flag, expected) in [
        (
            "*",
            vec![CloudNode, CloudNodeLifecycle, ServiceLb, NodeRoute],
        ),
        ("*,-service", vec![CloudNode, CloudNodeLifecycle, NodeRoute]),
        (
            "-node-route-controller,*",
            vec![CloudNode, CloudNodeLifecycle, ServiceLb],
        ),
        (
            "cloud-node,service-lb-controller",
            vec![CloudNode, ServiceLb],
        ),
        (
            "route,cloud-node-lifecycle",
            vec![CloudNodeLifecycle, NodeRoute],
        ),
        // Off by default (B-V1).
        ("pvlabel", vec![VolumeLabel]),
        (
            "*,persistent-volume-label-controller,-route",
            vec![CloudNode, CloudNodeLifecycle, ServiceLb, VolumeLabel],
        ),
    ] {
        let config = config(&[&format!("--controllers={flag}")]).unwrap();
        assert_eq!(config.controllers, expected.into_iter().collect(), "{flag}");
    }
}

#[test]
fn b_m1_an_unknown_controller_is_an_error_that_lists_the_known_ones() {
    refused(
        &["--controllers=*,ingress"],
        &[
            "ingress",
            "cloud-node-controller",
            "cloud-node-lifecycle-controller",
            "service-lb-controller",
            "node-route-controller",
        ],
    );
    refused(
        &["--controllers=-service,service"],
        &["at least one controller"],
    );
    // Another wrong flag hides nothing.
    refused(
        &["--kube-api-qps=0", "--controllers=-service,service"],
        &["--kube-api-qps=0", "at least one controller"],
    );
}

#[test]
fn a_second_provider_is_refused_clearly() {
    refused(
        &[
            "--provider",
            "a=unix:///a.sock",
            "--provider",
            "b=unix:///b.sock",
        ],
        &["--provider=b", "only one provider"],
    );
}

#[test]
fn a_provider_needs_a_name_and_an_absolute_unix_endpoint() {
    let long = format!("x=unix:///{}", "p".repeat(107));
    for (value, word) in [
        ("unix:///a.sock", "NAME"),
        ("mock", "NAME=unix:///PATH"),
        ("mock=/run/a.sock", "unix://"),
        ("mock=http://localhost", "unix://"),
        ("mock=unix://a.sock", "absolute"),
        ("Mock=unix:///a.sock", "lower-case"),
        ("-x=unix:///a.sock", "dash"),
        (long.as_str(), "107"),
    ] {
        refused(&[&format!("--provider={value}")], &[word, "--provider"]);
    }
    let config = config(&[
        "--provider=mock=unix:///run/x/p.sock",
        "--provider-peer-uid=65532",
    ])
    .unwrap();
    assert_eq!(config.providers[0].name, "mock");
    assert_eq!(config.providers[0].socket, PathBuf::from("/run/x/p.sock"));
    assert_eq!(config.providers[0].peer_uid, Some(65532));
}

#[test]
fn flags_that_contradict_each_other_are_named_all_at_once() {
    refused(
        &[
            "--leader-elect-lease-duration=5s",
            "--leader-elect-renew-deadline=10s",
            "--leader-elect-retry-period=9s",
            "--node-monitor-period=0s",
        ],
        &[
            "--leader-elect-lease-duration=5s",
            "--leader-elect-renew-deadline=10s",
            "--node-monitor-period",
        ],
    );
    refused(&["--tls-cert-file=a.pem"], &["--tls-private-key-file"]);
    refused(
        &["--leader-elect-lease-duration=15500ms"],
        &["whole seconds"],
    );
}

#[test]
fn cluster_cidrs_are_one_or_two_of_different_families() {
    assert_eq!(
        config(&["--cluster-cidr=10.0.0.0/8,fd00::/48"])
            .unwrap()
            .cluster
            .cidrs
            .len(),
        2
    );
    refused(
        &["--cluster-cidr=10.0.0.0/8,10.1.0.0/16"],
        &[
            "--cluster-cidr=10.0.0.0/8,10.1.0.0/16",
            "different IP families",
        ],
    );
    refused(&["--cluster-cidr=10.0.0.0"], &["--cluster-cidr"]);
}

/// Shows ▲S22.
#[test]
fn service_ranges_are_none_or_one_or_two_of_different_families() {
    let ranges = |flag: &str| config(&[flag]).map(|config| config.service.cluster_ip_ranges);
    let flag = "--service-cluster-ip-range";
    let both = ["10.96.0.0/12", "fd00:10::/108"].map(|range| range.parse().unwrap());
    assert_eq!(
        ranges(&format!("{flag}=10.96.0.0/12,fd00:10::/108")),
        Ok(both.to_vec())
    );
    assert_eq!(ranges(&format!("{flag}=")), Ok(Vec::new()));
    for wrong in [
        "10.96.0.0/12,10.112.0.0/16",
        "fd00::/108,fd01::/108",
        "10.96.0.0",
    ] {
        let wrong = format!("{flag}={wrong}");
        refused(&[&wrong], &[flag]);
    }
}

#[test]
fn b_m5_a_value_that_cannot_be_read_is_answered_with_what_would_be_right() {
    for (flag, right) in [
        ("--cluster-cidr=10.0.0.0", "such as 10.244.0.0/16"),
        ("--v=high", "a whole number such as"),
        ("--kube-api-qps=many", "a number such as 20"),
        ("--kube-api-burst=-1", "a whole number above 0"),
        ("--bind-address=all", "an IP address such as 0.0.0.0"),
        (
            "--webhook-bind-address=all",
            "an IP address such as 0.0.0.0",
        ),
        ("--node-status-update-frequency=5", "a duration such as 5s"),
    ] {
        let (name, value) = flag.split_once('=').unwrap();
        let error = Args::try_parse_from(["ccm", flag]).unwrap_err().to_string();
        for part in [name, value, right] {
            assert!(error.contains(part), "{flag}: {error}");
        }
    }
}

#[test]
fn b_r1_routes_need_the_cidr_of_the_cluster() {
    let off = config(&[]).unwrap().route;
    assert!(!off.allocate_node_cidrs && off.configure_cloud_routes);
    assert_eq!(off.reconciliation_period, Duration::from_secs(10));
    assert_eq!(off.concurrent_syncs, None);
    let on = config(&[
        "--allocate-node-cidrs",
        "--cluster-cidr=10.244.0.0/16,fd00::/48",
        "--route-reconciliation-period=30s",
        "--concurrent-route-syncs=2",
    ])
    .unwrap();
    assert!(on.route.allocate_node_cidrs);
    assert_eq!(on.route.reconciliation_period, Duration::from_secs(30));
    assert_eq!(on.route.concurrent_syncs, Some(2));
    assert_eq!(on.cluster.cidrs.len(), 2);
    for wrong in [
        "",
        "10.0.0.0/8,10.1.0.0/16",
        "10.0.0.0/8,fd00::/48,fd01::/48",
        "ten",
    ] {
        let flag = format!("--cluster-cidr={wrong}");
        let flags: &[&str] = if wrong.is_empty() {
            &["--allocate-node-cidrs=true"]
        } else {
            &["--allocate-node-cidrs=true", &flag]
        };
        refused(flags, &["--cluster-cidr"]);
    }
    // A route controller that does not run needs no CIDR.
    for flags in [
        ["--allocate-node-cidrs", "--configure-cloud-routes=false"],
        ["--allocate-node-cidrs", "--controllers=*,-route"],
    ] {
        config(&flags).unwrap();
    }
    refused(
        &["--route-reconciliation-period=0s"],
        &["--route-reconciliation-period", "1s"],
    );
}

#[test]
fn durations_are_written_as_go_writes_them() {
    for (text, expected) in [
        ("5m0s", 300_000),
        ("1h30m", 5_400_000),
        ("100ms", 100),
        ("1m30s", 90_000),
        ("10s", 10_000),
        ("1.5s", 1_500),
        ("0", 0),
        ("1.5h", 5_400_000),
    ] {
        assert_eq!(
            super::parse::duration(text).map(|it| it.as_millis()),
            Ok(expected),
            "{text}"
        );
    }
    for text in [
        "5",
        "",
        "-5s",
        "five",
        "+",
        "00",
        "+0",
        "-0",
        "1.5h30m",
        "+.5s1.m1500us500µs",
        "0.0001h1s",
        "0.33333333333333333333h0s",
        "1.5h30",
        "1.5h30x",
        ".s",
        "1.2.3s1h",
        "-1.5h30m",
        "9999999999h1.5h1s",
        "1.5h-1s",
        "1.5h 30m",
    ] {
        assert!(super::parse::duration(text).is_err(), "{text}");
    }
}

#[test]
fn booleans_take_gos_forms() {
    assert!(
        !config(&["--leader-elect=false"])
            .unwrap()
            .leader_election
            .enabled
    );
    assert!(config(&["--leader-elect"]).unwrap().leader_election.enabled);
    assert!(
        config(&["--adopt-unmarked-load-balancers"])
            .unwrap()
            .service
            .adopt_unmarked
    );
}

#[test]
fn the_brake_is_set_by_its_figures() {
    let brake = config(&["--node-deletion-brake=floor=5,share=25%"])
        .unwrap()
        .node_lifecycle
        .brake;
    assert_eq!(
        brake,
        BrakeConfig {
            floor: 5,
            share: 0.25,
            ..BrakeConfig::default()
        }
    );
    for wrong in [
        "floor=-1",
        "share=50%",
        "share=0.1",
        "window=0s",
        "speed=1",
        "floor",
    ] {
        refused(
            &[&format!("--node-deletion-brake={wrong}")],
            &[wrong.split('=').next().unwrap()],
        );
    }
}

#[test]
fn b_m5_flags_of_the_go_ccm_are_answered_unless_they_ask_for_what_is_so_anyway() {
    assert_eq!(
        answered(&[
            "--cloud-provider=aws",
            "--cloud-config",
            "/etc/cloud.conf",
            "--profiling",
            "--min-resync-period=12h0m0s",
            "--feature-gates=CloudControllerManagerWebhook=false",
            "--kube-api-burst=30",
        ]),
        [
            "--profiling",
            "--cloud-config",
            "--cloud-provider",
            "--min-resync-period",
            "--feature-gates",
            "--kube-api-burst",
        ]
    );
    // A negative rate is no throttle either.
    let negative = ["--kube-api-qps=-1", "--kube-api-burst=30"];
    assert_eq!(answered(&negative), ["--kube-api-burst"]);
    let silent: [&str; 0] = [];
    assert_eq!(
        answered(&[
            "--profiling=false",
            "--leader-elect-resource-lock=leases",
            "--disable-http2-serving",
            "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true",
            "--kube-api-qps=20",
            "--kube-api-burst=30",
        ]),
        silent
    );
    // As with Go's flags: if a flag with one value is given twice, the last one counts.
    assert_eq!(answered(&["--profiling", "--profiling=false"]), silent);
    assert_eq!(
        config(&["--cluster-name=a", "--cluster-name=b"])
            .unwrap()
            .cluster
            .name,
        "b"
    );
}

#[test]
fn b_m5_values_of_flags_that_do_nothing_are_checked_too() {
    for (flag, word) in [
        ("--profiling=maybe", "true, false"),
        ("--min-resync-period=12", "such as 5s"),
        ("--http2-max-streams-per-connection=many", "whole number"),
        ("--webhook-secure-port=-1", "0..=65535"),
    ] {
        refused(&[flag], &[flag.split('=').next().unwrap(), word]);
    }
}

#[test]
fn b_m5_gates_are_checked() {
    refused(
        &["--feature-gates=Nope=true,APIServerTracing=false"],
        &["--feature-gates=Nope=true", "AllAlpha", "locked"],
    );
    assert!(config(&["--feature-gates="]).is_ok());
}

#[test]
fn b_m5_the_version_names_this_component_and_its_commit() {
    let version = |flags: &[&str]| parse(flags).unwrap().version();
    let line = version(&["--version"]).unwrap();
    let begin = concat!("ccm v", env!("CARGO_PKG_VERSION"), ", commit ");
    assert!(line.starts_with(begin), "{line}");
    assert_eq!(version(&["--version=true"]), Some(line));
    assert_eq!(version(&["--version=false"]), None);
    assert_eq!(version(&[]), None);
    let raw = version(&["--version=raw"]).unwrap();
    for part in [
        "version.Info{Major:\"",
        concat!("GitVersion:\"v", env!("CARGO_PKG_VERSION"), "\""),
        "Platform:\"linux/",
    ] {
        assert!(raw.contains(part), "{raw}");
    }
    refused(&["--version=soon"], &["--version", "true, false or raw"]);
}

#[test]
fn a_negative_rate_is_no_throttle_as_in_client_go() {
    assert_eq!(config(&["--kube-api-qps=-1"]).unwrap().kube_api_qps, None);
    refused(&["--kube-api-qps=0"], &["--kube-api-qps=0", "above 0"]);
}

#[test]
fn the_command_line_is_consistent() {
    use clap::CommandFactory;
    Args::command().debug_assert();
    command().debug_assert();
}

mod webhooks;

#[test]
fn b_m6_leader_migration_needs_an_election_and_its_flag() {
    let migration = |flags: &[&str]| config(flags).unwrap().leader_migration;
    assert_eq!(migration(&[]), None);
    let asked = migration(&["--enable-leader-migration"]);
    assert_eq!(asked, Some(LeaderMigrationConfig::default()));
    let flags = ["--enable-leader-migration", "--leader-elect=false"];
    assert_eq!(migration(&flags), None);
    assert_eq!(answered(&flags), ["--enable-leader-migration"]);
    let flags = ["--leader-migration-config=/nonexistent"];
    assert_eq!(migration(&flags), None);
    assert_eq!(answered(&flags), ["--leader-migration-config"]);
    refused(
        &[
            "--enable-leader-migration",
            "--leader-migration-config=/nonexistent",
        ],
        &[
            "--leader-migration-config=/nonexistent",
            "a file that can be read",
        ],
    );
}
