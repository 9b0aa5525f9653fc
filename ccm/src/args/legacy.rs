//! Flags of a Go CCM that have no effect here. The ccm accepts them, and says why or what replaced
//! them.

use super::{Notice, parse};

const CLOUD: &str = "the cloud is another process: see --provider";
const CLOUD_CONFIG: &str = "the cloud's configuration belongs to the provider process";
const BATCHES: &str = "the ccm refreshes Nodes in batches: see --concurrent-node-syncs";
const RESYNC: &str = "the ccm does not resynchronise watches by time";
const PROFILING: &str = "the ccm has no Go profiler";
const GATES: &str = "no gate depends on a version: see --feature-gates";
const APIS: &str = "the ccm serves no API versions";
const LOGS: &str = "logs go to standard error; see -v, --logging-format and RUST_LOG";
const CONTENT_TYPE: &str = "the ccm speaks JSON with the API server";
const LEASES: &str = "leader election uses Lease objects only";

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Count,
    Duration,
    Text,
}

use Kind::{Bool, Count, Duration, Text};

/// A flag of a Go CCM.
struct Legacy {
    /// The group of `--help`, as in a Go CCM.
    group: &'static str,
    name: &'static str,
    kind: Kind,
    /// The value that asks for what the ccm does anyway. It gets no notice.
    holds: &'static str,
    answer: &'static str,
}

const fn flag(
    group: &'static str,
    name: &'static str,
    kind: Kind,
    holds: &'static str,
    answer: &'static str,
) -> Legacy {
    Legacy {
        group,
        name,
        kind,
        holds,
        answer,
    }
}

/// Flags of a Go CCM built on k8s.io/cloud-provider v0.36: those in its help, and those that it
/// still takes without listing them.
#[rustfmt::skip]
const FLAGS: &[Legacy] = &[
    flag("Debugging flags", "contention-profiling", Bool, "false", PROFILING),
    flag("Debugging flags", "profiling", Bool, "false", PROFILING),
    flag("Generic flags", "allow-metric-labels", Text, "", "the values of metric labels are bounded"),
    flag("Generic flags", "allow-metric-labels-manifest", Text, "", "the values of metric labels are bounded"),
    flag("Generic flags", "allow-untagged-cloud", Bool, "", "the provider marks what the cluster owns: see --cluster-owner-id and --adopt-unmarked-load-balancers"),
    flag("Generic flags", "cidr-allocator-type", Text, "", "the kube-controller-manager allocates Pod CIDRs"),
    flag("Generic flags", "cloud-config", Text, "", CLOUD_CONFIG),
    flag("Generic flags", "cloud-provider", Text, "", CLOUD),
    flag("Generic flags", "controller-start-interval", Duration, "0s", "controllers start at once"),
    flag("Generic flags", "debug-cloud-controller", Bool, "", PROFILING),
    flag("Generic flags", "disabled-metrics", Text, "", "the ccm disables no metric"),
    flag("Generic flags", "emulated-version", Text, "", GATES),
    flag("Generic flags", "emulation-forward-compatible", Bool, "", APIS),
    flag("Generic flags", "external-cloud-volume-plugin", Text, "", "volumes belong to CSI drivers"),
    flag("Generic flags", "kube-api-content-type", Text, "", CONTENT_TYPE),
    flag("Generic flags", "leader-elect-resource-lock", Text, "leases", LEASES),
    flag("Generic flags", "min-resync-period", Duration, "", RESYNC),
    flag("Generic flags", "node-monitor-grace-period", Duration, "", "the kube-controller-manager decides on readiness"),
    flag("Generic flags", "node-sync-period", Duration, "", "a watch brings changes of Nodes to load balancers"),
    flag("Generic flags", "runtime-config-emulation-forward-compatible", Bool, "", APIS),
    flag("Generic flags", "show-hidden-metrics-for-version", Text, "", "the ccm hides no metric"),
    flag("Cloud-node-controller flags", "concurrent-node-status-updates", Count, "", BATCHES),
    flag("Webhook serving flags", "webhook-disable-http2-serving", Bool, "true", "the webhooks' port speaks HTTP/1.1"),
    flag("Secure serving flags", "disable-http2-serving", Bool, "true", "the HTTPS port speaks HTTP/1.1"),
    flag("Secure serving flags", "http2-max-streams-per-connection", Count, "", "the HTTPS port speaks HTTP/1.1"),
    flag("Secure serving flags", "permit-address-sharing", Bool, "true", "the ccm always binds the port with SO_REUSEADDR"),
    flag("Global flags", "log-flush-frequency", Duration, "", LOGS),
    flag("Global flags", "log-json-info-buffer-size", Text, "", LOGS),
    flag("Global flags", "log-json-split-stream", Bool, "false", LOGS),
    flag("Global flags", "log-text-info-buffer-size", Text, "", LOGS),
    flag("Global flags", "log-text-split-stream", Bool, "false", LOGS),
    flag("Global flags", "vmodule", Text, "", LOGS),
];

/// The flags of [`FLAGS`], added to the command by hand so that they stay one table.
#[derive(Clone, Debug, Default)]
pub(super) struct LegacyArgs {
    given: Vec<Notice>,
}

impl LegacyArgs {
    pub(super) fn given(&self) -> Vec<Notice> {
        self.given.clone()
    }
}

/// Whether this is the name of one of these flags. None takes a list.
pub(super) fn is_legacy(name: &str) -> bool {
    FLAGS.iter().any(|flag| flag.name == name)
}

impl Kind {
    fn check(self, text: &str) -> Result<String, String> {
        match self {
            Bool => parse::boolean(text).map(|value| value.to_string()),
            Duration => parse::duration(text).map(|_| text.to_owned()),
            Count => match text.parse::<u32>() {
                Ok(count) => Ok(count.to_string()),
                Err(_) => Err("expected a whole number that is not negative".to_owned()),
            },
            Text => Ok(text.to_owned()),
        }
    }

    fn value_name(self) -> &'static str {
        match self {
            Bool => "BOOL",
            Count => "COUNT",
            Duration => "DURATION",
            Text => "VALUE",
        }
    }
}

impl clap::Args for LegacyArgs {
    fn augment_args(mut command: clap::Command) -> clap::Command {
        for flag in FLAGS {
            let kind = flag.kind;
            let mut arg = clap::Arg::new(flag.name)
                .long(flag.name)
                .help(format!("No effect: {}", flag.answer))
                .help_heading(flag.group)
                .hide_short_help(true)
                .action(clap::ArgAction::Append)
                .value_parser(move |text: &str| kind.check(text))
                .value_name(kind.value_name());
            arg = if kind == Bool {
                arg.num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
            } else {
                arg.num_args(1).allow_hyphen_values(true)
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
            .filter(|flag| {
                let last = matches
                    .get_many::<String>(flag.name)
                    .and_then(Iterator::last);
                last.is_some_and(|value| flag.holds.is_empty() || value != flag.holds)
            })
            .map(|flag| Notice::new(format!("--{}", flag.name), flag.answer))
            .collect();
        Ok(Self { given })
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
