//! Flags of the service controller.

use std::time::Duration;

use super::{OrphanPolicy, parse};

/// The flags, in upstream's group.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Service-lb-controller flags")]
pub(super) struct ServiceArgs {
    /// Let the provider adopt load balancers without an owner mark, for a migration from a Go CCM.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean)]
    pub(super) adopt_unmarked_load_balancers: bool,

    /// The ranges of the Services' cluster IPs, as the kube-apiserver has them: one, or two of
    /// different IP families. The ccm refuses a load balancer whose address is in them. Without
    /// this flag it reads the ServiceCIDR objects.
    #[arg(
        long,
        value_name = "CIDR",
        value_delimiter = ',',
        value_parser = parse::expecting::<ipnet::IpNet>("a CIDR with its length, such as 10.96.0.0/12 or fd00:10::/108")
    )]
    pub(super) service_cluster_ip_range: Vec<ipnet::IpNet>,

    /// What to do with a load balancer whose Service, of this cluster, does not exist any more:
    /// `ignore`; `report` it by event, log and metric; or `delete` it too. The provider must offer
    /// a list of its load balancers, and two lists in a row must agree.
    #[arg(long, value_name = "WHAT", default_value = "report", value_enum)]
    pub(super) orphaned_load_balancers: OrphanPolicy,

    /// How often the ccm lists the provider's load balancers (--orphaned-load-balancers).
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse::duration)]
    pub(super) orphaned_load_balancer_period: Duration,
}
