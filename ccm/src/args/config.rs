//! The validated configuration, which the rest of the program reads.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{LeaderMigrationConfig, ServeConfig, TlsConfig};

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
    /// The admission webhooks, if any is on and their port is not 0.
    pub webhooks: Option<WebhookConfig>,
    /// The leader steps down after this long without an answer of its provider. 60 s.
    #[serde(serialize_with = "go_duration")]
    pub provider_timeout: Duration,
    /// The provider's deadline hints raise no deadline of a call beyond this. 15 min.
    #[serde(serialize_with = "go_duration")]
    pub max_call_deadline: Duration,
    /// Requests per second to the API server. `None`: no limit.
    pub kube_api_qps: Option<f32>,
    /// Burst above `kube_api_qps`.
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
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterConfig {
    /// `--cluster-name`; `kubernetes`.
    pub name: String,
    /// `--cluster-owner-id`; the UID of `kube-system` where absent.
    pub owner_id: Option<String>,
    /// `--previous-owner-ids`.
    pub previous_owner_ids: Vec<String>,
    /// `--cluster-cidr`.
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

    /// The controller's short name.
    pub fn alias(self) -> &'static str {
        match self {
            Self::CloudNode => "cloud-node",
            Self::CloudNodeLifecycle => "cloud-node-lifecycle",
            Self::ServiceLb => "service",
            Self::NodeRoute => "route",
            Self::VolumeLabel => "pvlabel",
        }
    }

    /// Its service account in `kube-system` with `--use-service-account-credentials`. These are
    /// upstream's accounts. Each cluster binds a role to them, except to `pvl-controller`.
    pub fn service_account(self) -> &'static str {
        match self {
            Self::CloudNode | Self::CloudNodeLifecycle => "node-controller",
            Self::ServiceLb => "service-controller",
            Self::NodeRoute => "route-controller",
            Self::VolumeLabel => "pvl-controller",
        }
    }

    /// The controller's name, as in `--controllers`, `/healthz` and the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::CloudNode => "cloud-node-controller",
            Self::CloudNodeLifecycle => "cloud-node-lifecycle-controller",
            Self::ServiceLb => "service-lb-controller",
            Self::NodeRoute => "node-route-controller",
            Self::VolumeLabel => "persistent-volume-label-controller",
        }
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
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderElectionConfig {
    /// `--leader-elect`; true.
    pub enabled: bool,
    /// `--leader-elect-lease-duration`; 15 s.
    #[serde(serialize_with = "go_duration")]
    pub lease_duration: Duration,
    /// `--leader-elect-renew-deadline`; 10 s.
    #[serde(serialize_with = "go_duration")]
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`; 2 s.
    #[serde(serialize_with = "go_duration")]
    pub retry_period: Duration,
    /// `--leader-elect-resource-name`; `cloud-controller-manager`.
    pub resource_name: String,
    /// `--leader-elect-resource-namespace`; `kube-system`.
    pub resource_namespace: String,
}

/// The node controller.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeConfig {
    /// `--node-status-update-frequency`; 5 min.
    #[serde(serialize_with = "go_duration")]
    pub status_update_frequency: Duration,
    /// `--concurrent-node-syncs`: lowers how many lookups the node controller makes at once.
    /// `None`: the provider's `max_in_flight`, at most 32.
    pub concurrent_syncs: Option<usize>,
    /// How long a batch that is not full waits for more Nodes. 100 ms.
    #[serde(serialize_with = "go_duration")]
    pub batch_linger: Duration,
}

/// The node lifecycle controller.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLifecycleConfig {
    /// `--node-monitor-period`; 5 s.
    #[serde(serialize_with = "go_duration")]
    pub monitor_period: Duration,
    /// `--node-deletion-brake`.
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
    /// Do not look for them.
    Ignore,
    /// Record an event and a metric, and log it.
    Report,
    /// Report and delete them.
    Delete,
}

/// The service controller.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceConfig {
    /// `--concurrent-service-syncs`: lowers how many Services are reconciled at once. `None`: the
    /// provider's `max_in_flight`, at most 32.
    pub concurrent_syncs: Option<usize>,
    /// `--adopt-unmarked-load-balancers`.
    pub adopt_unmarked: bool,
    /// `--orphaned-load-balancers`; report.
    pub orphans: OrphanPolicy,
    /// `--orphaned-load-balancer-period`; 10 min.
    #[serde(serialize_with = "go_duration")]
    pub orphan_period: Duration,
    /// `--provider-annotation-prefixes`: prefixes of annotation keys that the provider may write on
    /// a Service.
    pub annotation_prefixes: Vec<String>,
    /// `--service-cluster-ip-range`. If empty, the ccm reads the ServiceCIDR objects.
    pub cluster_ip_ranges: Vec<ipnet::IpNet>,
}

/// The route controller.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteConfig {
    /// `--allocate-node-cidrs`; false.
    pub allocate_node_cidrs: bool,
    /// `--configure-cloud-routes`; true.
    pub configure_cloud_routes: bool,
    /// `--route-reconciliation-period`: the shortest time between the starts of two passes; 10 s.
    #[serde(serialize_with = "go_duration")]
    pub reconciliation_period: Duration,
    /// `--concurrent-route-syncs`: lowers how many calls that create or delete routes run at once.
    /// `None`: one less than the provider's `max_in_flight`; at least 1, at most 31.
    pub concurrent_syncs: Option<usize>,
}

/// The admission webhooks and their HTTPS port.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookConfig {
    /// `--webhooks`; none.
    pub webhooks: BTreeSet<Webhook>,
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

/// The admission webhooks. All are off by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Webhook {
    /// Labels and node affinity of new PersistentVolumes (B-V1).
    VolumeLabel,
}

impl Webhook {
    /// All webhooks.
    pub const ALL: [Self; 1] = [Self::VolumeLabel];

    /// The webhook's name, as in `--webhooks`, in metrics, and in its path.
    pub fn name(self) -> &'static str {
        match self {
            Self::VolumeLabel => "persistent-volume-label",
        }
    }
}

impl Serialize for Webhook {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
