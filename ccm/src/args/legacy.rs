//! Flags of the Go CCM that mean something else here, or nothing yet: accepted, and answered with what replaced them.

/// A flag of the Go CCM that was given, and what the operator should know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyFlag {
    /// The flag with its dashes.
    pub flag: String,
    /// What replaced it, or why it does nothing.
    pub answer: &'static str,
}

const CLOUD: &str = "the cloud is another process here: see --provider";
const CLOUD_CONFIG: &str = "the cloud's configuration belongs to the provider process";
const MIGRATION: &str = "leader migration is not served by this version yet";
const BATCHES: &str = "Nodes are refreshed in batches: see --concurrent-node-syncs";
const RESYNC: &str = "watches are not resynchronised by time here";
const CREDENTIALS: &str = "all controllers use one identity in this version";
const PROFILING: &str = "there is no Go profiler here";
const GATES: &str = "there are no feature gates in this version";
const TLS: &str =
    "rustls decides on versions and cipher suites (TLS 1.2 and 1.3, forward secret suites only)";
const REQUEST_HEADER: &str = "authentication by a front proxy is not served by this version";
const WEBHOOKS: &str = "there are no admission webhooks in this version";
const CACHE: &str = "answers of the API server about callers are cached for 10 s";
const LOGS: &str = "logs go to standard error; see -v, --logging-format and RUST_LOG";
const CONTENT_TYPE: &str = "the API server is spoken to in JSON";
const LEASES: &str = "only Lease objects are used for leader election";

/// Name, whether it takes a value, answer. What a Go CCM built on k8s.io/cloud-provider v0.36 lists in its help.
const FLAGS: &[(&str, bool, &str)] = &[
    ("cloud-provider", true, CLOUD),
    ("cloud-config", true, CLOUD_CONFIG),
    (
        "allow-untagged-cloud",
        false,
        "ownership marks are the provider's: see --cluster-owner-id and --adopt-unmarked-load-balancers",
    ),
    (
        "cidr-allocator-type",
        true,
        "Pod CIDRs are allocated by the kube-controller-manager",
    ),
    (
        "node-sync-period",
        true,
        "Node changes reach load balancers by watch",
    ),
    ("concurrent-node-status-updates", true, BATCHES),
    (
        "node-monitor-grace-period",
        true,
        "the kube-controller-manager decides on readiness",
    ),
    ("min-resync-period", true, RESYNC),
    ("use-service-account-credentials", false, CREDENTIALS),
    (
        "controller-start-interval",
        true,
        "controllers start at once",
    ),
    ("kube-api-content-type", true, CONTENT_TYPE),
    ("enable-leader-migration", false, MIGRATION),
    ("leader-migration-config", true, MIGRATION),
    ("leader-elect-resource-lock", true, LEASES),
    ("feature-gates", true, GATES),
    ("emulated-version", true, GATES),
    ("emulation-forward-compatible", false, GATES),
    ("runtime-config-emulation-forward-compatible", false, GATES),
    ("profiling", false, PROFILING),
    ("contention-profiling", false, PROFILING),
    ("debug-cloud-controller", false, PROFILING),
    (
        "external-cloud-volume-plugin",
        true,
        "volumes belong to CSI drivers",
    ),
    (
        "cert-dir",
        true,
        "a self-made certificate lives in memory only: see --tls-cert-file",
    ),
    ("tls-cipher-suites", true, TLS),
    ("tls-curve-preferences", true, TLS),
    ("tls-min-version", true, TLS),
    (
        "tls-sni-cert-key",
        true,
        "one certificate is served: see --tls-cert-file",
    ),
    (
        "http2-max-streams-per-connection",
        true,
        "the HTTPS port speaks HTTP/1.1",
    ),
    (
        "disable-http2-serving",
        false,
        "the HTTPS port speaks HTTP/1.1",
    ),
    (
        "permit-address-sharing",
        false,
        "the port is bound without SO_REUSEADDR tricks",
    ),
    (
        "permit-port-sharing",
        false,
        "the port is bound without SO_REUSEPORT",
    ),
    (
        "client-ca-file",
        true,
        "callers of the HTTPS port show a bearer token",
    ),
    ("requestheader-allowed-names", true, REQUEST_HEADER),
    ("requestheader-client-ca-file", true, REQUEST_HEADER),
    ("requestheader-extra-headers-prefix", true, REQUEST_HEADER),
    ("requestheader-group-headers", true, REQUEST_HEADER),
    ("requestheader-uid-headers", true, REQUEST_HEADER),
    ("requestheader-username-headers", true, REQUEST_HEADER),
    ("authentication-token-webhook-cache-ttl", true, CACHE),
    (
        "authentication-tolerate-lookup-failure",
        false,
        "a caller who cannot be looked up is refused",
    ),
    ("authorization-webhook-cache-authorized-ttl", true, CACHE),
    ("authorization-webhook-cache-unauthorized-ttl", true, CACHE),
    ("webhooks", true, WEBHOOKS),
    ("webhook-bind-address", true, WEBHOOKS),
    ("webhook-secure-port", true, WEBHOOKS),
    ("webhook-cert-dir", true, WEBHOOKS),
    ("webhook-tls-cert-file", true, WEBHOOKS),
    ("webhook-tls-private-key-file", true, WEBHOOKS),
    ("webhook-tls-cipher-suites", true, WEBHOOKS),
    ("webhook-tls-min-version", true, WEBHOOKS),
    ("webhook-tls-sni-cert-key", true, WEBHOOKS),
    ("log-flush-frequency", true, LOGS),
    ("log-json-info-buffer-size", true, LOGS),
    ("log-json-split-stream", false, LOGS),
    ("log-text-info-buffer-size", true, LOGS),
    ("log-text-split-stream", false, LOGS),
    ("vmodule", true, LOGS),
    (
        "show-hidden-metrics-for-version",
        true,
        "no metric is hidden",
    ),
    ("disabled-metrics", true, "no metric is disabled"),
    (
        "allow-metric-labels",
        true,
        "metric labels are bounded by design",
    ),
    (
        "allow-metric-labels-manifest",
        true,
        "metric labels are bounded by design",
    ),
];

/// The flags of [`FLAGS`], added to the command by hand so that they stay one table.
#[derive(Clone, Debug, Default)]
pub(super) struct LegacyArgs {
    given: Vec<LegacyFlag>,
}

impl LegacyArgs {
    pub(super) fn given(&self) -> Vec<LegacyFlag> {
        self.given.clone()
    }
}

impl clap::Args for LegacyArgs {
    fn augment_args(mut command: clap::Command) -> clap::Command {
        for (name, takes_value, answer) in FLAGS {
            let mut arg = clap::Arg::new(*name)
                .long(*name)
                .help(*answer)
                .help_heading("Flags of the Go CCM that do nothing here")
                .hide_short_help(true)
                .action(clap::ArgAction::Append)
                .value_name("VALUE");
            arg = if *takes_value {
                arg.num_args(1)
            } else {
                arg.num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
            };
            command = command.arg(arg);
        }
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for LegacyArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let given = FLAGS
            .iter()
            .filter(|(name, ..)| matches.contains_id(name))
            .map(|(name, _, answer)| LegacyFlag {
                flag: format!("--{name}"),
                answer,
            })
            .collect();
        Ok(Self { given })
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
