//! Flags, parsed and validated into one [`Config`]. No wiring here.

mod command;
mod config;
mod file;
#[cfg(test)]
pub(crate) mod fuzz;
mod gates;
mod legacy;
mod migration;
mod parse;
mod probe;
mod serve_config;
mod serving;
mod speech;
#[cfg(test)]
mod tests;
mod validate;
pub(crate) mod version;
mod webhook;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

pub use command::{ArgsError, command};
pub use config::*;
pub use file::FileFault;
pub use migration::{LeaderMigrationConfig, Side};
pub(crate) use parse::server_url;
pub use probe::ProbeArgs;
pub use serve_config::*;

/// A cloud-controller-manager for every cloud: the cloud is another process, the provider, that serves a gRPC contract on a Unix socket.
#[derive(Debug, Parser)]
#[command(name = "ccm")]
pub struct Args {
    /// The provider: NAME=unix:///PATH. NAME is yours to choose (lower-case letters, digits, dashes).
    #[arg(
        long = "provider",
        value_name = "NAME=ENDPOINT",
        default_value = "cloud=unix:///run/cloud-provider/socket/provider.sock",
        help_heading = "Provider flags"
    )]
    provider: Vec<parse::ProviderFlag>,

    /// The uid that must serve the provider's socket (SO_PEERCRED). Not checked unless given.
    #[arg(long, value_name = "UID", help_heading = "Provider flags")]
    provider_peer_uid: Option<u32>,

    /// Step down as leader after so long without any answer of the provider.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse::duration, help_heading = "Provider flags")]
    provider_timeout: Duration,

    /// No deadline of a call to the provider is raised beyond this by the provider's hints.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = parse::duration, help_heading = "Provider flags")]
    max_provider_call_deadline: Duration,

    /// The cloud scope (account, project, region) that is right from now on, after the provider's credentials began to reach another one than before. Until it is
    /// accepted nothing is created or deleted. The scope that is seen stands in the log and on the Lease.
    #[arg(long, value_name = "SCOPE", help_heading = "Provider flags")]
    accept_cloud_scope: Option<String>,

    /// The load balancer classes that the provider may serve; `default` stands for Services without a class. Without this flag those count that the provider claims at
    /// first, and a new one waits until an operator accepts it: the event `ProviderClaimsHeld` on the Lease has the command.
    #[arg(
        long,
        value_name = "CLASS",
        value_delimiter = ',',
        help_heading = "Provider flags"
    )]
    load_balancer_classes: Option<Vec<String>>,

    /// What the provider's prefixes of provider IDs must begin with, such as `aws:///`. Without this flag as with load balancer classes.
    #[arg(
        long,
        value_name = "PREFIX",
        value_delimiter = ',',
        help_heading = "Provider flags"
    )]
    provider_id_prefixes: Option<Vec<String>>,

    /// Prefixes of annotation keys that the provider may write on a Service; others are dropped with an event.
    #[arg(
        long,
        value_name = "PREFIX",
        value_delimiter = ',',
        help_heading = "Provider flags"
    )]
    provider_annotation_prefixes: Vec<String>,

    /// Path of the kubeconfig; the in-cluster configuration where neither this nor --master is given.
    #[arg(long, value_name = "FILE", help_heading = "Misc flags")]
    kubeconfig: Option<PathBuf>,

    /// URL of the API server, or HOST:PORT; overrides the kubeconfig's.
    #[arg(long, value_name = "URL", help_heading = "Misc flags")]
    master: Option<String>,

    /// Requests a second to the API server. No limit of our own unless given, or where it is negative: the server's 429 and Retry-After are obeyed.
    #[arg(long, value_name = "QPS", value_parser = parse::expecting::<f32>("a number such as 20 or 0.5"), help_heading = "Generic flags")]
    kube_api_qps: Option<f32>,

    /// How many requests may exceed --kube-api-qps for a moment.
    #[arg(long, value_name = "COUNT", value_parser = parse::expecting::<u32>("a whole number above 0"), help_heading = "Generic flags")]
    kube_api_burst: Option<u32>,

    /// The cluster's name: part of the names that the cloud shows.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "kubernetes",
        help_heading = "Generic flags"
    )]
    cluster_name: String,

    /// The cluster's identity as an owner of cloud objects. The UID of the kube-system namespace unless given; a rebuilt cluster keeps its load balancers by keeping it.
    #[arg(long, value_name = "ID", help_heading = "Provider flags")]
    cluster_owner_id: Option<String>,

    /// Identities that this cluster had before.
    #[arg(
        long,
        value_name = "ID",
        value_delimiter = ',',
        help_heading = "Provider flags"
    )]
    previous_owner_ids: Vec<String>,

    /// CIDRs of the cluster's Pods: one, or two of different families. Routes inside of them are the route controller's.
    #[arg(
        long,
        value_name = "CIDR",
        value_delimiter = ',',
        value_parser = parse::expecting::<ipnet::IpNet>("a CIDR with its length, such as 10.244.0.0/16 or fd00::/48"),
        help_heading = "Generic flags"
    )]
    cluster_cidr: Vec<ipnet::IpNet>,

    /// The Nodes' Pod CIDRs are allocated, and are to be set on the cloud. The route controller runs only with it, and needs --cluster-cidr.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean, help_heading = "Generic flags")]
    allocate_node_cidrs: bool,

    /// Make routes to the Nodes' Pods in the cloud, where --allocate-node-cidrs is on and the provider offers routes.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean, help_heading = "Generic flags")]
    configure_cloud_routes: bool,

    /// The least time between two looks at all routes. Changes of Nodes trigger them, not time.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse::duration, help_heading = "Generic flags")]
    route_reconciliation_period: Duration,

    /// Controllers to run: '*', names, and -name to leave one out. Known: cloud-node-controller (cloud-node), cloud-node-lifecycle-controller
    /// (cloud-node-lifecycle), service-lb-controller (service), node-route-controller (route); and, off unless named,
    /// persistent-volume-label-controller (pvlabel).
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true,
        help_heading = "Generic flags"
    )]
    controllers: Vec<String>,

    /// How often the addresses of initialised Nodes are refreshed.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse::duration, help_heading = "Misc flags")]
    node_status_update_frequency: Duration,

    /// How often Nodes that are not Ready are checked in the cloud.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse::duration, help_heading = "Generic flags")]
    node_monitor_period: Duration,

    /// How many lookups of Nodes run at once. As many as the provider allows, at most 32, unless given; it only lowers that.
    #[arg(long, value_name = "COUNT", value_parser = parse::workers, help_heading = "Cloud-node-controller flags")]
    concurrent_node_syncs: Option<usize>,

    /// How many Services are worked on at once. As many as the provider allows, at most 32, unless given; it only lowers that.
    #[arg(long, value_name = "COUNT", value_parser = parse::workers, help_heading = "Service-lb-controller flags")]
    concurrent_service_syncs: Option<usize>,

    /// How many calls that make or remove routes run at once. As many as the provider allows, at most 32, unless given; it only lowers that.
    #[arg(long, value_name = "COUNT", value_parser = parse::workers, help_heading = "Node-route-controller flags")]
    concurrent_route_syncs: Option<usize>,

    /// How fast Nodes may be deleted: within WINDOW at most the larger of FLOOR and SHARE of the provider's Nodes, and never half of them (one of two
    /// may go, see docs/node-deletion.md); beyond that only after the same absences held for HOLD; and none that is younger than MIN-AGE.
    #[arg(
        long,
        value_name = "window=10m,floor=2,share=10%,hold=15m,min-age=1m",
        default_value = "window=10m,floor=2,share=10%,hold=15m,min-age=1m",
        help_heading = "Cloud-node-lifecycle-controller flags"
    )]
    node_deletion_brake: parse::BrakeFlag,

    /// Let the provider take over load balancers that carry no owner's mark (made by a Go CCM before): for a migration.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean, help_heading = "Service-lb-controller flags")]
    adopt_unmarked_load_balancers: bool,

    /// The ranges of the Services' cluster IPs: one, or two of different families, as the kube-apiserver has them. No load balancer may be at an address in them. Where absent, the
    /// ServiceCIDR objects say them.
    #[arg(
        long,
        value_name = "CIDR",
        value_delimiter = ',',
        value_parser = parse::expecting::<ipnet::IpNet>("a CIDR with its length, such as 10.96.0.0/12 or fd00:10::/108"),
        help_heading = "Service-lb-controller flags"
    )]
    service_cluster_ip_range: Vec<ipnet::IpNet>,

    /// What becomes of load balancers that are marked for a Service of this cluster which does not exist any more: `ignore`; `report` by event, log and
    /// metric; or `delete`, too. The provider is asked for the list of its load balancers where it offers one, and two lists in a row must agree.
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "report",
        value_enum,
        help_heading = "Service-lb-controller flags"
    )]
    orphaned_load_balancers: OrphanPolicy,

    /// How often the provider is asked for the list of its load balancers (--orphaned-load-balancers).
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse::duration, help_heading = "Service-lb-controller flags")]
    orphaned_load_balancer_period: Duration,

    /// Elect a leader before working: with more than one replica it must be on.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean, help_heading = "Generic flags")]
    leader_elect: bool,

    /// How long others wait, without a renewal, before they take the Lease.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse::duration, help_heading = "Generic flags")]
    leader_elect_lease_duration: Duration,

    /// How long the leader tries to renew before it gives up. Less than the lease duration.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse::duration, help_heading = "Generic flags")]
    leader_elect_renew_deadline: Duration,

    /// How long to wait between attempts.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse::duration, help_heading = "Generic flags")]
    leader_elect_retry_period: Duration,

    /// The Lease's name.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "cloud-controller-manager",
        help_heading = "Generic flags"
    )]
    leader_elect_resource_name: String,

    /// The Lease's namespace.
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "kube-system",
        help_heading = "Generic flags"
    )]
    leader_elect_resource_namespace: String,

    /// Run the controllers that migrate from another component under a Lease that both components stand for. Only with --leader-elect.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean, help_heading = "Leader-migration flags")]
    enable_leader_migration: bool,

    /// Which controllers, and which Lease: a LeaderMigrationConfiguration of controllermanager.config.k8s.io. Where absent: routes, Services and the Node
    /// lifecycle, under cloud-provider-extraction-migration.
    #[arg(long, value_name = "FILE", help_heading = "Leader-migration flags")]
    leader_migration_config: Option<PathBuf>,

    /// Let each controller write as a service account of its own in kube-system (node-controller, service-controller, route-controller, pvl-controller): deploy/ has the rights for it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean, help_heading = "Generic flags")]
    use_service_account_credentials: bool,

    #[command(flatten)]
    serving: serving::ServingArgs,

    /// Verbosity of the log as in the Go CCM: 0 to 3 is info, 4 and 5 debug, more is trace. RUST_LOG, where set, decides in detail.
    #[arg(
        short,
        long = "v",
        value_name = "LEVEL",
        value_parser = parse::expecting::<u16>("a whole number such as 0, 2 or 4"),
        default_value_t = 0,
        help_heading = "Global flags"
    )]
    verbosity: u16,

    /// `text` or `json`.
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Global flags"
    )]
    logging_format: LogFormat,

    /// A YAML file with flags: keys are their names without the dashes, lists are lists. What stands on the command line wins.
    #[arg(long, value_name = "FILE", help_heading = "Misc flags")]
    config: Option<PathBuf>,

    /// Gates of a Go CCM, GATE=true or GATE=false. None changes what this program does; each is answered with what holds here.
    #[arg(
        long,
        value_name = "GATE=BOOL",
        value_delimiter = ',',
        help_heading = "Generic flags"
    )]
    feature_gates: Vec<String>,

    /// Print the version and end; `raw` prints all that is known about it.
    #[arg(long, value_name = "true|raw", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = version::format, help_heading = "Global flags")]
    version: Option<VersionFormat>,

    #[command(flatten)]
    webhook: webhook::WebhookArgs,

    #[command(flatten)]
    legacy: legacy::LegacyArgs,

    /// Where flags of the configuration file stand in it: `FILE:LINE`.
    #[arg(skip)]
    origins: BTreeMap<String, String>,
}

pub use version::VersionFormat;

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of text.
    Text,
    /// One JSON object a line.
    Json,
}

/// A flag that was given, and what the operator should know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The flag with its dashes.
    pub flag: String,
    /// What replaced it, or why it does nothing.
    pub text: String,
}

/// A value that cannot be right: which flag, what it was, what would be right.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{flag}={value}: expected {expected}", .origin.as_deref().unwrap_or_default())]
pub struct InvalidFlag {
    /// The flag with its dashes.
    pub flag: &'static str,
    /// What was given.
    pub value: String,
    /// What would be right.
    pub expected: String,
    /// `FILE:LINE: ` where it stands in the configuration file.
    pub origin: Option<String>,
}

impl InvalidFlag {
    fn new(flag: &'static str, value: impl Display, expected: impl Into<String>) -> Self {
        Self {
            flag,
            value: value.to_string(),
            expected: expected.into(),
            origin: None,
        }
    }
}

impl Args {
    /// The log's verbosity and format.
    pub fn log(&self) -> (u16, LogFormat) {
        (self.verbosity, self.logging_format)
    }

    /// What `--version` prints, where it was given.
    pub fn version(&self) -> Option<String> {
        self.version.and_then(version::text)
    }

    /// Flags that were given and mean something else here, each with what replaced it.
    pub fn notices(&self) -> Vec<Notice> {
        let mut notices = self.legacy.given();
        notices.extend(self.serving.notices());
        notices.extend(self.webhook.notices());
        notices.extend(gates::answers(&self.feature_gates, &mut Vec::new()));
        let mut idle = |flag: &str, text: &str| {
            notices.push(Notice {
                flag: flag.to_owned(),
                text: text.to_owned(),
            });
        };
        if self.enable_leader_migration && !self.leader_elect {
            idle(
                "--enable-leader-migration",
                "without --leader-elect there is no Lease to migrate by",
            );
        }
        if self.leader_migration_config.is_some() && !self.enable_leader_migration {
            idle(
                "--leader-migration-config",
                "it is read with --enable-leader-migration only",
            );
        }
        if self.kube_api_burst.is_some() && self.kube_api_qps.is_none() {
            notices.push(Notice {
                flag: "--kube-api-burst".to_owned(),
                text: "there is no throttle unless --kube-api-qps is given".to_owned(),
            });
        }
        notices
    }
}
