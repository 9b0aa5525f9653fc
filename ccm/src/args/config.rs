//! The validated configuration, which the rest of the program reads. Where a flag sets a field as
//! it is, the field is the flag, and its comment is the flag's help.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{LeaderMigrationConfig, ServeConfig, TlsConfig, parse};

/// The whole configuration, validated.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// Path of the kubeconfig. Without it and `master`: in-cluster configuration.
    pub kubeconfig: Option<PathBuf>,
    /// URL of the API server; overrides the kubeconfig's.
    pub master: Option<String>,
    /// The providers. Exactly one for now.
    pub providers: Vec<ProviderEndpoint>,
    /// Which cluster this is.
    pub cluster: ClusterConfig,
    /// The controllers to run.
    pub controllers: BTreeSet<Controller>,
    /// Leader election.
    pub leader_election: LeaderElectionConfig,
    /// `--enable-leader-migration` and `--leader-migration-config`; none without leader election.
    pub leader_migration: Option<LeaderMigrationConfig>,
    /// `--use-service-account-credentials`; false.
    pub use_service_account_credentials: bool,
    /// The node controller's configuration.
    pub node: NodeConfig,
    /// The node lifecycle controller's configuration.
    pub node_lifecycle: NodeLifecycleConfig,
    /// The service controller's configuration.
    pub service: ServiceConfig,
    /// The route controller's configuration.
    pub route: RouteConfig,
    /// The HTTPS port.
    pub serve: ServeConfig,
    /// The admission webhook, if it is on and its port is not 0.
    pub webhooks: Option<WebhookConfig>,
    /// The leader steps down after this long without an answer of its provider. 60 s.
    #[serde(serialize_with = "go_duration")]
    pub provider_timeout: Duration,
    /// The provider's deadline hints can raise the deadline of a call up to this. 15 min.
    #[serde(serialize_with = "go_duration")]
    pub max_call_deadline: Duration,
    /// Requests per second to the API server. `None`: no limit.
    pub kube_api_qps: Option<f32>,
    /// Requests at once before `kube_api_qps` applies. `None`: twice that rate.
    pub kube_api_burst: Option<u32>,
}

/// Where a provider listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderEndpoint {
    /// The name that the operator gave it: lower-case letters, digits and dashes, at most 47 bytes.
    pub name: String,
    /// The path of its Unix socket.
    pub socket: PathBuf,
    /// The uid that the peer must have (SO_PEERCRED). `None`: not checked.
    pub peer_uid: Option<u32>,
    /// The cloud scope that the operator accepts (`--accept-cloud-scope`).
    pub accepted_cloud_scope: Option<String>,
    /// The classes of load balancers that it may serve (`--load-balancer-classes`). `default` means
    /// Services without a class. `None`: new classes wait until an operator accepts them.
    pub load_balancer_classes: Option<Vec<String>>,
    /// What its prefixes of provider IDs must begin with (`--provider-id-prefixes`). `None`: new
    /// prefixes wait until an operator accepts them.
    pub provider_id_prefixes: Option<Vec<String>>,
}

/// Which cluster this is.
#[derive(Clone, Debug, clap::Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(next_help_heading = "Generic flags")]
pub struct ClusterConfig {
    /// The cluster's name. A provider may use it in the names that the cloud shows. A Go cloud
    /// behind the bridge may find its objects by it, so do not change it there.
    #[arg(
        long = "cluster-name",
        value_name = "NAME",
        default_value = "kubernetes"
    )]
    pub name: String,

    /// The ID that marks this cluster as the owner of cloud objects. The default is the UID of the
    /// namespace kube-system. A cluster that is restored from a backup keeps its load
    /// balancers if it keeps this ID and the UIDs of its Services.
    #[arg(
        long = "cluster-owner-id",
        value_name = "ID",
        help_heading = "Provider flags"
    )]
    pub owner_id: Option<String>,

    /// Earlier IDs of this cluster. The provider treats cloud objects that carry them as this
    /// cluster's own.
    #[arg(
        long,
        value_name = "ID",
        value_delimiter = ',',
        help_heading = "Provider flags"
    )]
    pub previous_owner_ids: Vec<String>,

    /// CIDRs of the cluster's Pods: one, or two of different IP families. The route controller
    /// owns the routes inside them.
    #[arg(
        long = "cluster-cidr",
        value_name = "CIDR",
        value_delimiter = ',',
        value_parser = parse::expecting::<ipnet::IpNet>("a CIDR with its length, such as 10.244.0.0/16 or fd00::/48")
    )]
    pub cidrs: Vec<ipnet::IpNet>,
}

/// The controllers (B-M1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// `cloud-node-controller`.
    CloudNode,
    /// `cloud-node-lifecycle-controller`.
    CloudNodeLifecycle,
    /// `service-lb-controller`.
    ServiceLb,
    /// `node-route-controller`.
    NodeRoute,
    /// `persistent-volume-label-controller`. It runs only if it is named.
    VolumeLabel,
}

impl Controller {
    /// All controllers.
    pub const ALL: [Self; 5] = [
        Self::CloudNode,
        Self::CloudNodeLifecycle,
        Self::ServiceLb,
        Self::NodeRoute,
        Self::VolumeLabel,
    ];

    /// Whether `*` includes it.
    pub fn on_by_default(self) -> bool {
        self != Self::VolumeLabel
    }

    /// Its name, its short name and its service account.
    #[rustfmt::skip]
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::CloudNode => ("cloud-node-controller", "cloud-node", "node-controller"),
            Self::CloudNodeLifecycle => ("cloud-node-lifecycle-controller", "cloud-node-lifecycle", "node-controller"),
            Self::ServiceLb => ("service-lb-controller", "service", "service-controller"),
            Self::NodeRoute => ("node-route-controller", "route", "route-controller"),
            Self::VolumeLabel => ("persistent-volume-label-controller", "pvlabel", "pvl-controller"),
        }
    }

    /// The controller's name, as in `--controllers`, `/healthz` and the log.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// The controller's short name.
    pub fn alias(self) -> &'static str {
        self.words().1
    }

    /// Its service account in `kube-system` with `--use-service-account-credentials`. These are
    /// upstream's accounts. Each cluster binds a role to them, except to `pvl-controller`.
    pub fn service_account(self) -> &'static str {
        self.words().2
    }
}

impl Serialize for Controller {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Serializes a duration in the form of the flags, such as `1m30s`.
pub(super) fn go_duration<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    use jiff::fmt::friendly::{Designator, Spacing, SpanPrinter};
    const PRINTER: SpanPrinter = SpanPrinter::new()
        .designator(Designator::Compact)
        .spacing(Spacing::None);
    serializer.serialize_str(&PRINTER.unsigned_duration_to_string(duration))
}

/// Leader election (B-M3).
#[derive(Clone, Debug, clap::Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(next_help_heading = "Generic flags")]
pub struct LeaderElectionConfig {
    /// Elect a leader before working. It must be on with more than one replica.
    #[arg(long = "leader-elect", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean)]
    pub enabled: bool,

    /// How long other replicas wait after the last renewal before they take the Lease.
    #[arg(long = "leader-elect-lease-duration", value_name = "DURATION", default_value = "15s", value_parser = parse::duration)]
    #[serde(serialize_with = "go_duration")]
    pub lease_duration: Duration,

    /// How long the leader tries to renew the Lease before it gives up. It must be less than the
    /// lease duration.
    #[arg(long = "leader-elect-renew-deadline", value_name = "DURATION", default_value = "10s", value_parser = parse::duration)]
    #[serde(serialize_with = "go_duration")]
    pub renew_deadline: Duration,

    /// How long to wait between attempts to acquire or renew the Lease.
    #[arg(long = "leader-elect-retry-period", value_name = "DURATION", default_value = "2s", value_parser = parse::duration)]
    #[serde(serialize_with = "go_duration")]
    pub retry_period: Duration,

    /// The Lease's name.
    #[arg(
        long = "leader-elect-resource-name",
        value_name = "NAME",
        default_value = "cloud-controller-manager"
    )]
    pub resource_name: String,

    /// The Lease's namespace.
    #[arg(
        long = "leader-elect-resource-namespace",
        value_name = "NAMESPACE",
        default_value = "kube-system"
    )]
    pub resource_namespace: String,
}

/// The node controller.
#[derive(Clone, Debug, clap::Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(next_help_heading = "Cloud-node-controller flags")]
pub struct NodeConfig {
    /// How often the ccm refreshes the addresses and labels of initialised Nodes.
    #[arg(long = "node-status-update-frequency", value_name = "DURATION", default_value = "5m", value_parser = parse::duration, help_heading = "Misc flags")]
    #[serde(serialize_with = "go_duration")]
    pub status_update_frequency: Duration,

    /// How many lookups of Nodes the node controller makes at once. The default is what the
    /// provider allows (8 if it states no number), at most 32. This flag can only lower it.
    #[arg(id = "concurrent-node-syncs", long, value_name = "COUNT", value_parser = parse::workers)]
    pub concurrent_syncs: Option<usize>,

    /// How long a batch that is not full waits for more Nodes. 100 ms.
    #[arg(skip = Duration::from_millis(100))]
    #[serde(serialize_with = "go_duration")]
    pub batch_linger: Duration,
}

/// The node lifecycle controller.
#[derive(Clone, Debug, clap::Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(next_help_heading = "Cloud-node-lifecycle-controller flags")]
pub struct NodeLifecycleConfig {
    /// The shortest time between two periodic lookups of a Node that is not Ready. While nothing
    /// changes, the ccm asks less often.
    #[arg(long = "node-monitor-period", value_name = "DURATION", default_value = "5s", value_parser = parse::duration, help_heading = "Generic flags")]
    #[serde(serialize_with = "go_duration")]
    pub monitor_period: Duration,

    /// How fast the ccm may delete Nodes. Within WINDOW it deletes at most FLOOR Nodes or SHARE of
    /// the provider's Nodes, whichever is more, and less than half of them. In the first WINDOW of
    /// each term it deletes at most FLOOR Nodes. If more are due, it deletes a Node only after its
    /// instance was absent for HOLD. The limit within WINDOW stays, but is at least one Node.
    /// docs/node-deletion.md has the exceptions for one and two Nodes. The ccm deletes no
    /// Node that is younger than MIN-AGE.
    #[arg(
        long = "node-deletion-brake",
        value_parser = parse::brake,
        value_name = "window=10m,floor=2,share=10%,hold=15m,min-age=1m",
        default_value = "window=10m,floor=2,share=10%,hold=15m,min-age=1m"
    )]
    pub brake: BrakeConfig,
}

/// How fast Nodes may be deleted (docs/node-deletion.md).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BrakeConfig {
    /// The window in which deletions are counted. 10 min.
    #[serde(serialize_with = "go_duration")]
    pub window: Duration,
    /// Up to this many Nodes may be deleted in a window, if they are less than half of the Nodes
    /// and no more Nodes are due. 2.
    pub floor: usize,
    /// This share of the provider's Nodes may be deleted in a window, 0.0..0.5. 0.10.
    pub share: f64,
    /// If more Nodes are due, the ccm deletes a Node only after its instance was absent for this
    /// long. 15 min.
    #[serde(serialize_with = "go_duration")]
    pub hold: Duration,
    /// A Node that is younger than this is never deleted. 1 min.
    #[serde(serialize_with = "go_duration")]
    pub min_age: Duration,
}

impl Default for BrakeConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_mins(10),
            floor: 2,
            share: 0.10,
            hold: Duration::from_mins(15),
            min_age: Duration::from_mins(1),
        }
    }
}

/// What to do with load balancers whose Service does not exist any more (▲S16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum OrphanPolicy {
    /// Do not list the load balancers.
    Ignore,
    /// Record an event and a metric, and log it.
    Report,
    /// Report and delete them.
    Delete,
}

/// The service controller.
#[derive(Clone, Debug, clap::Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(next_help_heading = "Service-lb-controller flags")]
pub struct ServiceConfig {
    /// How many Services are reconciled at once. The default is what the provider allows (8 if it
    /// states no number), at most 32. This flag can only lower it.
    #[arg(id = "concurrent-service-syncs", long, value_name = "COUNT", value_parser = parse::workers)]
    pub concurrent_syncs: Option<usize>,

    /// Let the provider adopt load balancers without an owner mark, for a migration from a Go CCM.
    #[arg(long = "adopt-unmarked-load-balancers", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean)]
    pub adopt_unmarked: bool,

    /// What to do with a load balancer whose Service, of this cluster, does not exist any more:
    /// `ignore`; `report` it by event, log and metric; or `delete` it too. The provider must offer
    /// a list of its load balancers, and two lists in a row must agree. `delete` includes load
    /// balancers that the provider kept on purpose and still lists.
    #[arg(
        long = "orphaned-load-balancers",
        value_name = "WHAT",
        default_value = "report",
        value_enum
    )]
    pub orphans: OrphanPolicy,

    /// How often the ccm lists the provider's load balancers (--orphaned-load-balancers).
    #[arg(long = "orphaned-load-balancer-period", value_name = "DURATION", default_value = "10m", value_parser = parse::duration)]
    #[serde(serialize_with = "go_duration")]
    pub orphan_period: Duration,

    /// Prefixes of the annotation keys that the provider may write on a Service. The ccm drops
    /// other annotations and records an event.
    #[arg(
        long = "provider-annotation-prefixes",
        value_name = "PREFIX",
        value_delimiter = ',',
        help_heading = "Provider flags"
    )]
    pub annotation_prefixes: Vec<String>,

    /// The ranges of the Services' cluster IPs, as the kube-apiserver has them: one, or two of
    /// different IP families. The ccm refuses a load balancer whose address is in them. Without
    /// this flag it reads the ServiceCIDR objects.
    #[arg(
        long = "service-cluster-ip-range",
        value_name = "CIDR",
        value_delimiter = ',',
        value_parser = parse::expecting::<ipnet::IpNet>("a CIDR with its length, such as 10.96.0.0/12 or fd00:10::/108")
    )]
    pub cluster_ip_ranges: Vec<ipnet::IpNet>,
}

/// The route controller.
#[derive(Clone, Debug, clap::Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(next_help_heading = "Generic flags")]
pub struct RouteConfig {
    /// Nodes have Pod CIDRs, and the cloud needs routes to them. The route controller runs only
    /// with this flag, and needs --cluster-cidr.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean)]
    pub allocate_node_cidrs: bool,

    /// Create routes to the Nodes' Pods in the cloud, if --allocate-node-cidrs is on and the
    /// provider offers routes.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean)]
    pub configure_cloud_routes: bool,

    /// The shortest time between two reconciliations of all routes. Changes of Nodes, for example,
    /// trigger them.
    #[arg(long = "route-reconciliation-period", value_name = "DURATION", default_value = "10s", value_parser = parse::duration)]
    #[serde(serialize_with = "go_duration")]
    pub reconciliation_period: Duration,

    /// How many calls that create or delete routes run at once. The default is one less than the
    /// provider allows, at least 1 and at most 31. This flag can only lower it.
    #[arg(id = "concurrent-route-syncs", long, value_name = "COUNT", value_parser = parse::workers, help_heading = "Node-route-controller flags")]
    pub concurrent_syncs: Option<usize>,
}

/// The name of the admission webhook, as in `--webhooks`, in metrics, and in its path. It sets labels
/// and node affinity of new PersistentVolumes (B-V1), and is off by default.
pub const VOLUME_WEBHOOK: &str = "persistent-volume-label";

/// The admission webhook and its HTTPS port.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookConfig {
    /// `--webhook-bind-address`; 0.0.0.0.
    pub bind_address: IpAddr,
    /// `--webhook-secure-port`; 10260.
    pub port: u16,
    /// `--webhook-client-ca-file`. `None`: any client may call.
    pub client_ca_file: Option<PathBuf>,
    /// `--webhook-tls-cert-file` and `--webhook-tls-private-key-file`, or the files in
    /// `--webhook-cert-dir`; and the TLS settings.
    pub tls: TlsConfig,
}
