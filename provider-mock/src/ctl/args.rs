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
    /// Serve a cloud until SIGTERM.
    Serve {
        /// Where: unix:// and an absolute path, in a directory of its own.
        #[arg(long, env = "PROVIDER_MOCK_ENDPOINT", default_value = provider_sdk::DEFAULT_ENDPOINT)]
        endpoint: String,
        /// The cloud's YAML file; an empty cloud that offers everything without it.
        #[arg(long, value_name = "FILE")]
        cloud: Option<PathBuf>,
        /// Where the cloud is kept across restarts; its objects go before those of the YAML file.
        #[arg(long, value_name = "FILE")]
        state: Option<PathBuf>,
        /// Break the contract in this way; may be repeated. `provider-mock faults` prints the ways.
        #[arg(long, value_name = "NAME", value_parser = fault_name)]
        fault: Vec<&'static Lie>,
        /// error, warn, info, debug, trace, or a filter of `tracing`.
        #[arg(long, default_value = "info")]
        log_level: String,
    },
    /// Ask a provider how it is, for exec probes of the kubelet: 0 where it answers, else 1, and a line that says why.
    Probe {
        /// Where it is served.
        #[arg(long, env = "PROVIDER_MOCK_ENDPOINT", default_value = provider_sdk::DEFAULT_ENDPOINT)]
        endpoint: String,
        /// How long it may take.
        #[arg(long, default_value = "1s")]
        timeout: HumanDuration,
        /// It must be READY or DEGRADED, too.
        #[arg(long)]
        ready: bool,
    },
    /// Change or show the cloud of a mock that is served.
    Ctl {
        /// Where the mock is served.
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
    /// Print the named faults of `serve --fault`, and the kinds of scripted faults of the YAML file and of `ctl fault set`.
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
    /// Say how long an RPC takes; `*` for all.
    Latency {
        /// The RPC.
        rpc: String,
        /// How long, such as 50ms.
        latency: HumanDuration,
    },
    /// Say how long load balancers take.
    Provisioning {
        /// To be made.
        load_balancer: HumanDuration,
        /// To go.
        #[arg(default_value = "0ms")]
        deletion: HumanDuration,
    },
    /// Say how one Service is treated; what is not given is as usual.
    Service {
        /// namespace/name.
        service: String,
        /// Keep its load balancer when it is deleted.
        #[arg(long)]
        retain: bool,
        /// Somebody else takes care of it.
        #[arg(long)]
        handled_elsewhere: bool,
        /// Answers set this annotation.
        #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
        set_annotation: Vec<(String, String)>,
        /// Answers remove this annotation.
        #[arg(long, value_name = "KEY")]
        remove_annotation: Vec<String>,
        /// Answers carry this Normal event.
        #[arg(long, value_name = "REASON=MESSAGE", value_parser = pair)]
        event: Vec<(String, String)>,
        /// Answers carry this Warning event.
        #[arg(long, value_name = "REASON=MESSAGE", value_parser = pair)]
        warning: Vec<(String, String)>,
    },
    /// Say that a Node cannot be attached to load balancers; without a code that it can.
    TargetError {
        /// The Node's name.
        node: String,
        /// The failure's code, such as PRECONDITION.
        #[arg(value_parser = failure_code)]
        code: Option<FailureCode>,
        /// The failure's sentence.
        #[arg(long)]
        message: Option<String>,
    },
    /// Say what Probe answers: starting, ready, degraded, broken.
    Health {
        /// The state.
        #[arg(value_parser = word::<HealthWord>)]
        state: HealthWord,
        /// Why.
        #[arg(default_value = "")]
        message: String,
    },
    /// Let every operation of the cloud fail with a code, such as THROTTLED; NONE heals.
    Fail {
        /// The code, or NONE.
        code: WeatherCode,
    },
    /// Let every operation of the cloud take so long first.
    Slow {
        /// Milliseconds; 0 heals.
        ms: u64,
    },
    /// Print how many writes ever reached the cloud.
    Writes,
    /// Say which cloud scope Initialize answers.
    Scope {
        /// The scope.
        scope: String,
    },
    /// Answer NOT_INITIALIZED until the next Initialize.
    ForgetInitialize,
    /// Tell watching controllers to look at everything again.
    Resync,
    /// Show how often each RPC was called, what was written, and the last calls.
    Calls {
        /// Only this RPC.
        rpc: Option<String>,
        /// At most so many calls of each RPC.
        #[arg(long, default_value_t = 20)]
        last: usize,
        /// Forget all calls and writes instead.
        #[arg(long)]
        reset: bool,
    },
    /// Go back to the YAML file: objects, settings, faults, calls.
    Reset,
    /// Run a command that is given as JSON.
    Run {
        /// For example {"command":"instance-list"}.
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
    /// Put this one in the place of the one with its name; identity stays unless given.
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
    /// Say what the cloud tells of one: running, stopped, unknown, pending, unmanaged.
    Power {
        /// Its name or ID.
        name: String,
        /// What.
        #[arg(value_parser = word::<Power>)]
        power: Power,
    },
    /// Give one another name.
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
    /// Its ID; the name unless given.
    #[arg(long, default_value = "")]
    pub(super) id: String,
    /// Its provider ID; made of prefix, zone and ID unless given.
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
    /// An address.
    #[arg(long, value_name = "KIND=ADDRESS", value_parser = Address::parse)]
    pub(super) address: Vec<Address>,
    /// A label.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(super) label: Vec<(String, String)>,
    /// running, stopped, unknown, pending, unmanaged.
    #[arg(long, default_value = "running", value_parser = word::<Power>)]
    pub(super) power: Power,
}

/// The verbs of load balancers.
#[derive(Debug, Subcommand)]
pub enum LbVerb {
    /// Show all, with targets and owners.
    List,
    /// Plant one and print its handle; without an owner it is unmarked.
    Add {
        /// Its native name.
        name: String,
        /// Whom it is marked for.
        #[arg(long)]
        owner_id: Option<String>,
        /// The UID of the Service that it is marked for.
        #[arg(long, default_value = "")]
        uid: String,
        /// The namespace/name of that Service.
        #[arg(long, default_value = "")]
        service: String,
        /// An address.
        #[arg(long)]
        address: Vec<std::net::IpAddr>,
        /// A target.
        #[arg(long)]
        target: Vec<String>,
        /// Only parts of it are left.
        #[arg(long)]
        remnant: bool,
    },
    /// Print whom the one with this handle is marked for.
    Marks {
        /// Its handle.
        handle: String,
    },
    /// Remove one behind the controller's back.
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
    /// Plant one; without an owner it is unmarked.
    Add {
        /// Its name.
        name: String,
        /// Where packets go to.
        destination_cidr: String,
        /// The target by the Node's name.
        #[arg(long)]
        node_name: Option<String>,
        /// The target by provider ID.
        #[arg(long)]
        provider_id: Option<String>,
        /// The target by address.
        #[arg(long)]
        next_hop: Option<String>,
        /// The target by name, where it is neither a Node, nor an instance, nor an address.
        #[arg(long)]
        gateway: Option<String>,
        /// Whom it is marked for.
        #[arg(long)]
        owner_id: Option<String>,
    },
    /// Remove one behind the controller's back.
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
        /// The RPC; `*` for all that the kind can strike.
        rpc: String,
        /// The kind.
        kind: FaultKind,
        /// Only this Node, Service (namespace/name) or route.
        #[arg(long)]
        subject: Option<String>,
        /// Only for the next so many calls.
        #[arg(long)]
        times: Option<u32>,
        /// The failure's code, such as THROTTLED.
        #[arg(long, value_parser = failure_code)]
        code: Option<FailureCode>,
        /// The failure's sentence.
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
        /// How long the call waits.
        #[arg(long)]
        delay: Option<HumanDuration>,
        /// What the kind asks for.
        #[arg(long)]
        value: Option<String>,
    },
    /// Clear one, or all.
    Clear {
        /// Its number.
        id: Option<u64>,
    },
}

fn fault_name(text: &str) -> Result<&'static Lie, String> {
    Lie::find(text)
}

/// How every operation of the cloud fails; `NONE` where none does.
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

/// A word that JSON and YAML know too.
fn word<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::Value::from(text)).map_err(|error| error.to_string())
}
