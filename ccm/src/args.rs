//! Flags, parsed and validated into one [`Config`]. No wiring here.

mod command;
mod config;
mod election;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod gates;
mod legacy;
mod migration;
mod parse;
mod probe;
mod provider;
mod serve_config;
mod serving;
mod speech;
#[cfg(test)]
mod tests;
mod validate;
pub(crate) mod version;
mod webhook;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use clap::Parser;

pub use command::{ArgsError, command};
pub use config::*;
pub use file::FileFault;
pub use migration::{LeaderMigrationConfig, Side};
pub(crate) use parse::server_url;
pub use probe::ProbeArgs;
pub use serve_config::*;

/// A cloud-controller-manager for every cloud. The cloud's part is another process, the provider,
/// which serves a gRPC contract on a Unix socket.
#[derive(Debug, Parser)]
#[command(name = "ccm", next_help_heading = "Generic flags")]
pub struct Args {
    /// Path of the kubeconfig. Without this flag and --master the ccm uses the in-cluster
    /// configuration.
    #[arg(long, value_name = "FILE", help_heading = "Misc flags")]
    kubeconfig: Option<PathBuf>,

    /// URL of the API server, or HOST:PORT; overrides the kubeconfig's.
    #[arg(long, value_name = "URL", help_heading = "Misc flags")]
    master: Option<String>,

    /// Requests per second to the API server, except those for the Lease and the HTTPS port.
    /// Without this flag, or with a negative value, the ccm sets no limit of its own: it obeys 429
    /// and Retry-After.
    #[arg(long, value_name = "QPS", value_parser = parse::expecting::<f32>("a number such as 20 or 0.5"))]
    kube_api_qps: Option<f32>,

    /// How many requests the ccm may send at once before --kube-api-qps applies. The default is
    /// twice that rate.
    #[arg(long, value_name = "COUNT", value_parser = parse::expecting::<u32>("a whole number above 0"))]
    kube_api_burst: Option<u32>,

    /// Controllers to run: '*' for all that are on by default, NAME to add one, -NAME to leave one
    /// out. Known: cloud-node-controller (cloud-node), cloud-node-lifecycle-controller
    /// (cloud-node-lifecycle), service-lb-controller (service), node-route-controller (route). Off
    /// by default: persistent-volume-label-controller (pvlabel).
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true
    )]
    controllers: Vec<String>,

    /// Let the controllers write as service accounts of their own in kube-system: node-controller
    /// for both Node controllers, service-controller, route-controller, pvl-controller. deploy/ has
    /// the rights for them.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean)]
    use_service_account_credentials: bool,

    /// Verbosity of the log as in a Go CCM: 0 to 3 is info, 4 and 5 is debug, more is trace.
    /// RUST_LOG overrides it.
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

    /// A YAML file with flags: a key is a flag's name without the dashes, and a list of values may
    /// be a YAML list. The command line overrides it.
    #[arg(long, value_name = "FILE", help_heading = "Misc flags")]
    config: Option<PathBuf>,

    /// Gates of a Go CCM, GATE=true or GATE=false. None of them changes what the ccm does. The ccm
    /// logs what holds for each gate that differs.
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    feature_gates: Vec<String>,

    /// Print the version and exit; `raw` prints everything known about it.
    #[arg(long, value_name = "true|raw", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = version::format, help_heading = "Global flags")]
    version: Option<VersionFormat>,

    // A flattened struct changes the group of the fields after it, so these are last.
    #[command(flatten)]
    provider: provider::ProviderArgs,

    #[command(flatten)]
    cluster: ClusterConfig,

    #[command(flatten)]
    node: NodeConfig,

    #[command(flatten)]
    node_lifecycle: NodeLifecycleConfig,

    #[command(flatten)]
    service: ServiceConfig,

    #[command(flatten)]
    route: RouteConfig,

    #[command(flatten)]
    election: election::ElectionArgs,

    #[command(flatten)]
    serving: serving::ServingArgs,

    #[command(flatten)]
    webhook: webhook::WebhookArgs,

    #[command(flatten)]
    legacy: legacy::LegacyArgs,

    /// The place of each flag in the configuration file: `FILE:LINE`.
    #[arg(skip)]
    origins: BTreeMap<String, String>,
}

pub use version::VersionFormat;

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of text.
    Text,
    /// One JSON object a line.
    Json,
}

/// A flag that was given, and a text about it for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The flag with its dashes.
    pub flag: String,
    /// What replaced it, or why it has no effect.
    pub text: String,
}

impl Notice {
    fn new(flag: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            flag: flag.into(),
            text: text.into(),
        }
    }
}

/// An invalid value of a flag, and what would be valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{flag}={value}: expected {expected}", .origin.as_deref().unwrap_or_default())]
pub struct InvalidFlag {
    /// The flag with its dashes.
    pub flag: Cow<'static, str>,
    /// The given value.
    pub value: String,
    /// What would be valid.
    pub expected: String,
    /// `FILE:LINE: ` if the value is in the configuration file.
    pub origin: Option<String>,
}

impl InvalidFlag {
    fn new(
        flag: impl Into<Cow<'static, str>>,
        value: impl Display,
        expected: impl Into<String>,
    ) -> Self {
        Self {
            flag: flag.into(),
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

    /// The output of `--version`, if it was given.
    pub fn version(&self) -> Option<String> {
        self.version.and_then(version::text)
    }

    /// Notices for given flags, or their values, that have no effect here.
    pub fn notices(&self) -> Vec<Notice> {
        let mut notices = self.legacy.given();
        notices.extend(self.serving.notices());
        notices.extend(self.webhook.notices());
        notices.extend(gates::answers(&self.feature_gates, &mut Vec::new()));
        notices.extend(self.election.notices());
        if self.kube_api_burst.is_some() && self.kube_api_qps.is_none_or(|qps| qps < 0.0) {
            notices.push(Notice::new(
                "--kube-api-burst",
                "there is no throttle unless --kube-api-qps is above 0",
            ));
        }
        notices
    }
}
