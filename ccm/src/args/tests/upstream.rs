//! The options of a Go CCM (k8s.io/cloud-provider/options), case by case, and its whole list of
//! flags.

use super::*;

/// Group, name, type and default of each flag in the `--help` of a Go CCM. An integration test
/// compares the names with those of the real program.
const GO_FLAGS: &str = include_str!("go_ccm_flags.txt");

struct GoFlag {
    group: &'static str,
    name: &'static str,
    kind: &'static str,
    default: &'static str,
}

fn go_flags() -> Vec<GoFlag> {
    let read = |line: &'static str| {
        let mut fields = line.split('\t');
        let mut next = || fields.next().unwrap_or_default();
        GoFlag {
            group: next(),
            name: next(),
            kind: next(),
            default: next(),
        }
    };
    GO_FLAGS.lines().map(read).collect()
}

fn arg<'a>(command: &'a clap::Command, name: &str) -> Option<&'a clap::Arg> {
    command
        .get_arguments()
        .find(|arg| arg.get_long() == Some(name))
}

#[test]
fn b_m5_no_flag_of_a_go_ccm_is_unknown_and_each_stands_in_its_group() {
    let flags = go_flags();
    assert!(flags.len() > 80, "{}", flags.len());
    let command = command();
    for flag in &flags {
        let ours = arg(&command, flag.name).unwrap_or_else(|| panic!("--{} is unknown", flag.name));
        assert_eq!(ours.get_help_heading(), Some(flag.group), "--{}", flag.name);
        assert!(ours.get_help().is_some(), "--{}", flag.name);
        // As in Go, a boolean has no value, or one behind "=".
        if flag.kind == "bool" && flag.name != "help" {
            let values = ours.get_num_args().unwrap();
            assert_eq!(
                (values.min_values(), values.max_values()),
                (0, 1),
                "--{}",
                flag.name
            );
            assert!(ours.is_require_equals_set(), "--{}", flag.name);
        }
    }
    for group in [
        "Generic flags",
        "Secure serving flags",
        "Authentication flags",
        "Misc flags",
        "Global flags",
    ] {
        assert!(command::GROUPS.contains(&group));
    }
    for ours in command.get_arguments() {
        let group = ours.get_help_heading().unwrap_or_default();
        assert!(
            command::GROUPS.contains(&group),
            "{:?} is in {group:?}",
            ours.get_id()
        );
    }
}

#[test]
fn b_m5_defaults_are_upstreams_except_where_it_is_slower() {
    // These have no default here. Without these flags the provider's limit holds (▲M11), and the
    // ccm limits no requests.
    let differs = [
        "concurrent-node-syncs",
        "concurrent-service-syncs",
        "kube-api-qps",
        "kube-api-burst",
    ];
    let command = command();
    for flag in go_flags() {
        let ours = arg(&command, flag.name).unwrap();
        if differs.contains(&flag.name) || legacy::is_legacy(flag.name) {
            continue;
        }
        let default: Vec<String> = ours
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy().into_owned())
            .collect();
        let theirs = flag.default.trim_matches(['[', ']']);
        let same = |ours: &str| match (
            super::super::parse::duration(ours),
            super::super::parse::duration(theirs),
        ) {
            (Ok(ours), Ok(theirs)) => ours == theirs,
            _ => ours == theirs,
        };
        let zero = |ours: &str| theirs.is_empty() && ["false", "0", ""].contains(&ours);
        let ours = default.join(",");
        assert!(
            same(&ours) || zero(&ours),
            "--{}: {ours:?}, not {theirs:?}",
            flag.name
        );
    }
}

/// Upstream: no flag is given.
#[test]
fn b_m5_upstream_options_defaults() {
    let config = config(&[]).unwrap();
    let election = &config.leader_election;
    assert!(election.enabled);
    assert_eq!(
        (
            election.lease_duration,
            election.renew_deadline,
            election.retry_period
        ),
        (
            Duration::from_secs(15),
            Duration::from_secs(10),
            Duration::from_secs(2)
        )
    );
    assert_eq!(
        (
            election.resource_name.as_str(),
            election.resource_namespace.as_str()
        ),
        ("cloud-controller-manager", "kube-system")
    );
    assert_eq!((config.kubeconfig, config.master), (None, None));
    assert_eq!(config.cluster.name, "kubernetes");
    assert!(config.cluster.cidrs.is_empty());
    assert_eq!(config.node_lifecycle.monitor_period, Duration::from_secs(5));
    assert_eq!(config.node.status_update_frequency, Duration::from_mins(5));
    assert!(!config.route.allocate_node_cidrs && config.route.configure_cloud_routes);
    assert_eq!(config.route.reconciliation_period, Duration::from_secs(10));
    assert_eq!(config.serve.port, 10258);
    assert!(config.serve.bind_address.is_unspecified());
    assert!(config.serve.tls.files.is_none());
    assert_eq!(
        config.serve.authorization.always_allow_paths,
        ["/healthz", "/readyz", "/livez"]
    );
    let on = Controller::ALL.into_iter().filter(|it| it.on_by_default());
    assert_eq!(config.controllers, on.collect::<BTreeSet<_>>());
    assert!(config.webhooks.is_none());
}

/// A whole command line, as for a Go CCM.
const WHOLE: [&str; 35] = [
    "--allocate-node-cidrs=true",
    "--authorization-always-allow-paths=",
    "--bind-address=192.168.9.8",
    "--cert-dir=/certificates",
    "--cloud-config=/etc/cloud",
    "--cloud-provider=some",
    "--cluster-cidr=10.40.0.0/16",
    "--cluster-name=blue",
    "--configure-cloud-routes=false",
    "--contention-profiling=true",
    "--controller-start-interval=3m",
    "--controllers=cloud-node,-service",
    "--http2-max-streams-per-connection=9",
    "--kube-api-burst=90",
    "--kube-api-content-type=application/json",
    "--kube-api-qps=45.5",
    "--kubeconfig=/etc/kubeconfig",
    "--leader-elect=false",
    "--leader-elect-lease-duration=40s",
    "--leader-elect-renew-deadline=20s",
    "--leader-elect-resource-lock=leases",
    "--leader-elect-retry-period=4s",
    "--master=https://192.168.9.7:6443",
    "--min-resync-period=90m",
    "--node-status-update-frequency=7m",
    "--profiling=false",
    "--route-reconciliation-period=20s",
    "--secure-port=10002",
    "--use-service-account-credentials=false",
    "--concurrent-node-syncs=6",
    "--webhooks=persistent-volume-label",
    "--webhook-cert-dir=/certificates",
    "--webhook-disable-http2-serving=true",
    "--webhook-tls-min-version=VersionTLS13",
    "--webhook-tls-sni-cert-key=a.crt,a.key:a.example",
];

/// Upstream: a whole command line, in which one flag clears a list.
#[test]
fn b_m5_upstream_options_from_flags() {
    let config = config(&WHOLE).unwrap();
    let none: [&str; 0] = [];
    assert_eq!(config.serve.authorization.always_allow_paths, none);
    assert_eq!(config.serve.bind_address.to_string(), "192.168.9.8");
    assert_eq!(config.serve.port, 10002);
    assert_eq!(config.cluster.name, "blue");
    assert_eq!(config.cluster.cidrs, ["10.40.0.0/16".parse().unwrap()]);
    assert!(config.route.allocate_node_cidrs && !config.route.configure_cloud_routes);
    assert_eq!(config.route.reconciliation_period, Duration::from_secs(20));
    assert_eq!(config.controllers, BTreeSet::from([Controller::CloudNode]));
    assert_eq!(
        (config.kube_api_qps, config.kube_api_burst),
        (Some(45.5), Some(90))
    );
    assert_eq!(config.kubeconfig, Some(PathBuf::from("/etc/kubeconfig")));
    assert_eq!(config.master.as_deref(), Some("https://192.168.9.7:6443"));
    let election = config.leader_election;
    assert!(!election.enabled);
    assert_eq!(
        (
            election.lease_duration,
            election.renew_deadline,
            election.retry_period
        ),
        (
            Duration::from_secs(40),
            Duration::from_secs(20),
            Duration::from_secs(4)
        )
    );
    assert_eq!(config.node.status_update_frequency, Duration::from_mins(7));
    assert_eq!(config.node.concurrent_syncs, Some(6));
}

/// Upstream: the same options without webhooks make the same configuration.
#[test]
fn b_m5_upstream_options_without_webhooks() {
    let without: Vec<&str> = WHOLE
        .into_iter()
        .filter(|flag| !flag.starts_with("--webhook"))
        .collect();
    let shown = |flags: &[&str]| {
        let mut shown = serde_json::to_value(config(flags).unwrap()).unwrap();
        (shown["webhooks"].take(), shown)
    };
    let (none, others) = shown(&without);
    let (webhooks, same) = shown(&WHOLE);
    assert_eq!(others, same);
    assert!(none.is_null());
    assert_eq!(webhooks["tls"]["minVersion"], "VersionTLS13");
    let answers = answered(&without);
    assert!(
        !answers.iter().any(|flag| flag.starts_with("--webhook")),
        "{answers:?}"
    );
}

/// Upstream: an alias counts as the name, also behind a minus.
#[test]
fn b_m1_upstream_options_aliases() {
    for (alias, name) in [
        ("cloud-node", "cloud-node-controller"),
        ("cloud-node-lifecycle", "cloud-node-lifecycle-controller"),
        ("service", "service-lb-controller"),
        ("route", "node-route-controller"),
    ] {
        for (short, long) in [
            (alias.to_owned(), name.to_owned()),
            (format!("*,-{alias}"), format!("*,-{name}")),
        ] {
            let of = |list: &str| {
                config(&[&format!("--controllers={list}")])
                    .unwrap()
                    .controllers
            };
            assert_eq!(of(&short), of(&long), "{short}");
        }
    }
}

/// Upstream: the number of workers for Nodes.
#[test]
fn b_m5_upstream_options_node_workers() {
    for (flags, right) in [
        (vec![], true),
        (vec!["--concurrent-node-syncs=-5"], false),
        (vec!["--concurrent-node-syncs=0"], false),
        (vec!["--concurrent-node-syncs=5"], true),
        (
            vec![
                "--concurrent-node-syncs=5",
                "--concurrent-node-status-updates=5",
            ],
            true,
        ),
        (
            vec![
                "--concurrent-node-syncs=5",
                "--concurrent-node-status-updates=-5",
            ],
            false,
        ),
    ] {
        assert_eq!(config(&flags).is_ok(), right, "{flags:?}");
    }
}

#[test]
fn b_m5_an_empty_file_name_is_none_as_for_a_go_ccm() {
    let command = command();
    let files: Vec<String> = go_flags()
        .iter()
        .filter(|flag| flag.default.is_empty() && flag.kind == "string")
        .filter(|flag| {
            ["file", "kubeconfig", "dir", "cidr"]
                .iter()
                .any(|end| flag.name.ends_with(end))
        })
        .map(|flag| format!("--{}=", flag.name))
        .collect();
    assert!(files.len() > 8, "{files:?}");
    assert!(arg(&command, "kubeconfig").is_some());
    let flags: Vec<&str> = files.iter().map(String::as_str).collect();
    let shown = |flags: &[&str]| serde_json::to_value(config(flags).unwrap()).unwrap();
    assert_eq!(shown(&flags), shown(&[]));
    let two: Vec<&str> = flags
        .iter()
        .flat_map(|flag| [flag.trim_end_matches('='), ""])
        .collect();
    assert_eq!(shown(&two), shown(&[]), "as two arguments");
    // A name must not be empty.
    refused(&["--cluster-name="], &["--cluster-name="]);
}
