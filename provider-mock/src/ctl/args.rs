//! The flags.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use provider_sdk::FailureCode;

use crate::control::HealthWord;
use crate::duration::HumanDuration;
use crate::faults::FaultKind;
use crate::fixture::failure_code;
use crate::instances::{Address, Power};
use crate::lies::Lie;

/// A cloud in memory behind the provider contract.
#[derive(Debug, Parser)]
#[command(name = "provider-mock", version)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Serve a cloud until SIGTERM or SIGINT.
    Serve {
        /// The socket: unix:// and an absolute path, in a directory of its own.
        #[arg(long, env = "PROVIDER_MOCK_ENDPOINT", default_value = provider_sdk::DEFAULT_ENDPOINT)]
        endpoint: String,
        /// The cloud's YAML file. Without it the cloud is empty and offers everything.
        #[arg(long, value_name = "FILE")]
        cloud: Option<PathBuf>,
        /// The file that keeps the cloud across restarts. Its objects win over those of the YAML
        /// file.
        #[arg(long, value_name = "FILE")]
        state: Option<PathBuf>,
        /// Break the contract in this way. May be repeated. `provider-mock faults` prints the
        /// names.
        #[arg(long, value_name = "NAME", value_parser = fault_name)]
        fault: Vec<&'static Lie>,
        /// The log level: error, warn, info, debug, trace, or a filter of `tracing`.
        #[arg(long, default_value = "info")]
        log_level: String,
    },
    /// Probe a provider, for exec probes of the kubelet: exit code 0 if it answers, else 1 and a
    /// line with the reason.
    Probe {
        /// The provider's endpoint.
        #[arg(long, env = "PROVIDER_MOCK_ENDPOINT", default_value = provider_sdk::DEFAULT_ENDPOINT)]
        endpoint: String,
        /// The timeout.
        #[arg(long, default_value = "1s")]
        timeout: HumanDuration,
        /// Also require READY or DEGRADED.
        #[arg(long)]
        ready: bool,
    },
    /// Change or show the cloud of a running mock.
    Ctl {
        /// The mock's endpoint.
        #[arg(long, global = true, env = "PROVIDER_MOCK_ENDPOINT", default_value = provider_sdk::DEFAULT_ENDPOINT)]
        endpoint: String,
        /// Print JSON.
        #[arg(long, global = true)]
        json: bool,
        /// The command.
        #[command(subcommand)]
        command: Box<Ctl>,
    },
    /// Change or show a cloud in its state file, offline: for the hooks of providers that share it.
    File(Box<super::file::FileArgs>),
    /// Print the named faults of `serve --fault`, and the kinds of scripted faults of the YAML file
    /// and of `ctl fault set`.
    Faults,
}

/// The verbs of ctl.
#[derive(Debug, Subcommand)]
pub enum Ctl {
    /// Instances.
    #[command(subcommand)]
    Instance(InstanceVerb),
    /// Load balancers.
    #[command(subcommand)]
    Lb(LbVerb),
    /// Routes.
    #[command(subcommand)]
    Route(RouteVerb),
    /// Scripted faults.
    #[command(subcommand)]
    Fault(FaultVerb),
    /// Set how long each call of an RPC takes.
    Latency {
        /// The RPC, such as LookupInstances; `*` for all.
        rpc: String,
        /// The duration, such as 50ms; 0ms is no latency.
        latency: HumanDuration,
    },
    /// Set how long the cloud takes to create and to delete a load balancer.
    Provisioning {
        /// The time to create one, such as 30s.
        load_balancer: HumanDuration,
        /// The time to delete one.
        #[arg(default_value = "0ms")]
        deletion: HumanDuration,
    },
    /// Set how the mock treats one Service. A setting that is not given gets its default.
    Service {
        /// namespace/name.
        service: String,
        /// Keep its load balancer when it is deleted.
        #[arg(long)]
        retain: bool,
        /// Answer `handled_elsewhere`: another controller handles it.
        #[arg(long)]
        handled_elsewhere: bool,
        /// Let answers set this annotation. May be repeated.
        #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
        set_annotation: Vec<(String, String)>,
        /// Let answers remove this annotation. May be repeated.
        #[arg(long, value_name = "KEY")]
        remove_annotation: Vec<String>,
        /// Let answers carry this Normal event. May be repeated.
        #[arg(long, value_name = "REASON=MESSAGE", value_parser = pair)]
        event: Vec<(String, String)>,
        /// Let answers carry this Warning event. May be repeated.
        #[arg(long, value_name = "REASON=MESSAGE", value_parser = pair)]
        warning: Vec<(String, String)>,
    },
    /// Make a Node fail as a load balancer target; without a code it works again.
    TargetError {
        /// The Node's name.
        node: String,
        /// The failure's code, such as PRECONDITION.
        #[arg(value_parser = failure_code)]
        code: Option<FailureCode>,
        /// The failure's message.
        #[arg(long)]
        message: Option<String>,
    },
    /// Set the state that Probe answers: starting, ready, degraded, broken.
    Health {
        /// The state.
        #[arg(value_parser = word::<HealthWord>)]
        state: HealthWord,
        /// The message.
        #[arg(default_value = "")]
        message: String,
    },
    /// Let every operation of the cloud fail with a code, such as THROTTLED; NONE ends that.
    Fail {
        /// The code, or NONE.
        code: WeatherCode,
    },
    /// Delay every operation of the cloud.
    Slow {
        /// The delay in milliseconds; 0 ends it.
        ms: u64,
    },
    /// Print the number of all writes to the cloud.
    Writes,
    /// Set the cloud scope that Initialize answers.
    Scope {
        /// The scope.
        scope: String,
    },
    /// Answer NOT_INITIALIZED to each request with a cluster until the next Initialize, as a process
    /// that has just started does.
    ForgetInitialize,
    /// Send the hint that anything may have changed to all controllers that watch.
    Resync,
    /// Show the number of calls of each RPC, the writes, and the last calls.
    Calls {
        /// Only this RPC.
        rpc: Option<String>,
        /// The most calls to show of each RPC.
        #[arg(long, default_value_t = 20)]
        last: usize,
        /// Forget all calls except those in flight, and all writes, instead.
        #[arg(long)]
        reset: bool,
    },
    /// Restore the objects, settings and faults of the YAML file, and forget all calls except those
    /// in flight.
    Reset,
    /// Run a command in JSON.
    Run {
        /// The command, for example {"command":"instance-list"}.
        command: String,
    },
}

/// The verbs of instances.
#[derive(Debug, Subcommand)]
pub enum InstanceVerb {
    /// Show all.
    List,
    /// Add one and print its provider ID.
    Add(InstanceArgs),
    /// Replace the instance with this name. It keeps its ID and provider ID unless they are given.
    Set(InstanceArgs),
    /// Remove one.
    Remove {
        /// Its name or ID.
        name: String,
    },
    /// Shut one down.
    Stop {
        /// Its name or ID.
        name: String,
    },
    /// Start one.
    Start {
        /// Its name or ID.
        name: String,
    },
    /// Set the state that the cloud reports: running, stopped, unknown, pending, unmanaged.
    Power {
        /// Its name or ID.
        name: String,
        /// The state.
        #[arg(value_parser = word::<Power>)]
        power: Power,
    },
    /// Rename one.
    Rename {
        /// Its name or ID.
        name: String,
        /// The new name.
        to: String,
    },
}

/// An instance.
#[derive(Debug, clap::Args)]
pub struct InstanceArgs {
    /// Its name.
    pub(super) name: String,
    /// Its ID; by default the name.
    #[arg(long, default_value = "")]
    pub(super) id: String,
    /// Its provider ID; by default made of prefix, zone and ID.
    #[arg(long, default_value = "")]
    pub(super) provider_id: String,
    /// Its type.
    #[arg(long = "type")]
    pub(super) instance_type: Option<String>,
    /// Its zone.
    #[arg(long)]
    pub(super) zone: Option<String>,
    /// Its region.
    #[arg(long)]
    pub(super) region: Option<String>,
    /// An address. May be repeated.
    #[arg(long, value_name = "KIND=ADDRESS", value_parser = Address::parse)]
    pub(super) address: Vec<Address>,
    /// A label. May be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(super) label: Vec<(String, String)>,
    /// Its state: running, stopped, unknown, pending, unmanaged.
    #[arg(long, default_value = "running", value_parser = word::<Power>)]
    pub(super) power: Power,
}

/// The verbs of load balancers.
#[derive(Debug, Subcommand)]
pub enum LbVerb {
    /// Show all, with targets and owners.
    List,
    /// Add one directly to the cloud, and print its handle. Without --owner-id it is unmarked.
    Add {
        /// Its native name.
        name: String,
        /// The owner ID of its mark.
        #[arg(long)]
        owner_id: Option<String>,
        /// The Service UID of its mark.
        #[arg(long, default_value = "")]
        uid: String,
        /// The namespace/name of that Service.
        #[arg(long, default_value = "")]
        service: String,
        /// An address. May be repeated.
        #[arg(long)]
        address: Vec<std::net::IpAddr>,
        /// A target, by the Node's name. May be repeated.
        #[arg(long)]
        target: Vec<String>,
        /// Make it a remnant: only parts of it are left.
        #[arg(long)]
        remnant: bool,
    },
    /// Print the marks of the load balancers with this handle.
    Marks {
        /// Its handle.
        handle: String,
    },
    /// Remove one directly from the cloud.
    Remove {
        /// Its handle.
        handle: String,
    },
}

/// The verbs of routes.
#[derive(Debug, Subcommand)]
pub enum RouteVerb {
    /// Show all.
    List,
    /// Add one directly to the cloud. Without --owner-id it is unmarked.
    Add {
        /// Its name.
        name: String,
        /// The destination CIDR.
        destination_cidr: String,
        /// The target, by the Node's name.
        #[arg(long)]
        node_name: Option<String>,
        /// The target, by provider ID.
        #[arg(long)]
        provider_id: Option<String>,
        /// The target, by address.
        #[arg(long)]
        next_hop: Option<String>,
        /// The target, by name, if it is neither a Node, nor an instance, nor an address.
        #[arg(long)]
        gateway: Option<String>,
        /// The owner ID of its mark.
        #[arg(long)]
        owner_id: Option<String>,
    },
    /// Remove one directly from the cloud.
    Remove {
        /// Its name.
        name: String,
    },
}

/// The verbs of faults.
#[derive(Debug, Subcommand)]
pub enum FaultVerb {
    /// Show those that are set.
    List,
    /// Set one. `provider-mock faults` prints the kinds.
    Set {
        /// The RPC; `*` for all that the kind applies to.
        rpc: String,
        /// The kind.
        kind: FaultKind,
        /// Limit it to this object: the name of a Node, volume or cluster, a Service
        /// (namespace/name), or a route's key, destination or Node.
        #[arg(long)]
        subject: Option<String>,
        /// Limit it to this number of calls. Without it the fault stays until it is cleared.
        #[arg(long)]
        times: Option<u32>,
        /// The failure's code, such as THROTTLED.
        #[arg(long, value_parser = failure_code)]
        code: Option<FailureCode>,
        /// The failure's message.
        #[arg(long, requires = "code")]
        message: Option<String>,
        /// The failure's reason.
        #[arg(long, requires = "code")]
        reason: Option<String>,
        /// The failure's retry_after.
        #[arg(long, requires = "code")]
        retry_after: Option<HumanDuration>,
        /// The gRPC status, such as UNAVAILABLE.
        #[arg(long)]
        status: Option<String>,
        /// The delay of the call.
        #[arg(long)]
        delay: Option<HumanDuration>,
        /// The value, for kinds that take one.
        #[arg(long)]
        value: Option<String>,
    },
    /// Clear the fault with this number; without a number, all.
    Clear {
        /// Its number, as `fault list` shows it.
        id: Option<u64>,
    },
}

fn fault_name(text: &str) -> Result<&'static Lie, String> {
    Lie::find(text)
}

/// The code with which every operation of the cloud fails; `NONE` if none fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeatherCode(pub(super) Option<FailureCode>);

impl std::str::FromStr for WeatherCode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "NONE" {
            return Ok(Self(None));
        }
        let code = failure_code(text).map_err(|error| format!("{error}, or NONE"))?;
        Ok(Self(Some(code)))
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("{text:?} has no key and value; write KEY=VALUE"))
}

/// Parses a word that is also used in JSON and YAML.
fn word<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::Value::from(text)).map_err(|error| error.to_string())
}
