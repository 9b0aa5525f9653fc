//! Flags of the provider.

use std::time::Duration;

use super::{InvalidFlag, ProviderEndpoint, parse};

/// The flags, in a group of their own.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Provider flags")]
pub(super) struct ProviderArgs {
    /// The provider: NAME=unix:///PATH. Choose NAME: lower-case letters, digits and dashes.
    #[arg(
        long = "provider",
        value_name = "NAME=ENDPOINT",
        default_value = "cloud=unix:///run/cloud-provider/socket/provider.sock"
    )]
    provider: Vec<parse::ProviderFlag>,

    /// The UID that the provider's process must have (SO_PEERCRED). Without this flag the ccm does
    /// not check it.
    #[arg(long, value_name = "UID")]
    provider_peer_uid: Option<u32>,

    /// How long the leader waits for a usable answer to Probe, GetProviderInfo or Initialize before
    /// it steps down.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse::duration)]
    pub(super) provider_timeout: Duration,

    /// The provider's deadline hints can raise the deadline of a call up to this.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = parse::duration)]
    pub(super) max_provider_call_deadline: Duration,

    /// Accept this cloud scope (account, project, region) after the provider's credentials
    /// changed. Without this flag the ccm accepts the first scope that a provider reports. While
    /// the provider reports another scope than the accepted one, the ccm creates and deletes
    /// nothing. The log and an event on the Lease show the new scope.
    #[arg(long, value_name = "SCOPE")]
    accept_cloud_scope: Option<String>,

    /// The load balancer classes that the provider may serve; `default` stands for Services
    /// without a class. Without this flag the ccm accepts the classes that the provider claims
    /// first, and holds a class that it claims later until an operator accepts it. The event
    /// `ProviderClaimsHeld` on the Lease shows the command.
    #[arg(long, value_name = "CLASS", value_delimiter = ',')]
    load_balancer_classes: Option<Vec<String>>,

    /// The provider may claim only prefixes of provider IDs that begin with one of these, such as
    /// `aws:///`. Without this flag the ccm accepts and holds prefixes as it does load balancer
    /// classes.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    provider_id_prefixes: Option<Vec<String>>,
}

impl ProviderArgs {
    /// The configuration of the providers. Errors go to `wrong`.
    pub(super) fn config(&self, wrong: &mut Vec<InvalidFlag>) -> Vec<ProviderEndpoint> {
        for prefix in self.provider_id_prefixes.iter().flatten() {
            if !prefix.contains("://") {
                wrong.push(InvalidFlag::new(
                    "--provider-id-prefixes",
                    prefix,
                    "what provider IDs begin with, up to \"://\" or further: aws:///, digitalocean://",
                ));
            }
        }
        if let [_, second, ..] = self.provider.as_slice() {
            wrong.push(InvalidFlag::new(
                "--provider",
                &second.name,
                "only one provider for now; for a second cloud run a second ccm with another provider name, its own Lease (--leader-elect-resource-name) and other load balancer classes (--load-balancer-classes)",
            ));
        }
        self.provider
            .iter()
            .map(|flag| ProviderEndpoint {
                name: flag.name.clone(),
                socket: flag.socket.clone(),
                peer_uid: self.provider_peer_uid,
                accepted_cloud_scope: self.accept_cloud_scope.clone(),
                load_balancer_classes: self.load_balancer_classes.clone(),
                provider_id_prefixes: self.provider_id_prefixes.clone(),
            })
            .collect()
    }
}
