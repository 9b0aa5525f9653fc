//! `provider-mock file`: edits a state file. No running mock may hold it; providers that share it
//! hold its lock only for each operation. The edits are changes by a person or a test, so they do
//! not count as writes of a provider.

use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::args::{InstanceArgs, WeatherCode};
use super::commands::Shows;
use super::tables;
use crate::cloud::Cloud;
use crate::control::Command;
use crate::fixture::{Fixture, ProviderSettings};
use crate::instances::Power;
use crate::load_balancers::LoadBalancer;
use crate::routes::Route;
use crate::store::{LOOK, Lock, beside, replace, writes_noted};
use crate::weather::Weather;

/// The state file, the form of the output, and the verb.
#[derive(Debug, clap::Args)]
pub struct FileArgs {
    /// The state file. If it does not exist, the cloud is new and empty.
    #[arg(long, global = true, value_name = "FILE", env = "PROVIDER_MOCK_STATE")]
    state: Option<PathBuf>,
    /// The prefix of the provider IDs of instances that state none.
    #[arg(long, global = true, default_value = "mock://")]
    prefix: String,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: FileVerb,
}

/// The verbs of file.
#[derive(Debug, Subcommand)]
pub(super) enum FileVerb {
    /// Instances.
    #[command(subcommand)]
    Instance(FileInstance),
    /// Load balancers.
    #[command(subcommand)]
    LoadBalancer(FileLoadBalancer),
    /// Routes.
    #[command(subcommand)]
    Route(FileRoute),
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
}

/// The verbs of instances.
#[derive(Debug, Subcommand)]
pub(super) enum FileInstance {
    /// Show all.
    List,
    /// Add one and print its provider ID.
    Add(InstanceArgs),
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
}

/// The verbs of load balancers.
#[derive(Debug, Subcommand)]
pub(super) enum FileLoadBalancer {
    /// Show all, with targets and owners.
    List,
    /// Plant an unmarked one and print its handle.
    AddUnmarked {
        /// Its native name.
        name: String,
        /// An address.
        #[arg(long)]
        address: Vec<std::net::IpAddr>,
    },
    /// Print the marks of the load balancers with this handle.
    Marks {
        /// Its handle.
        handle: String,
    },
    /// Remove one.
    Remove {
        /// Its handle.
        handle: String,
    },
}

/// The verbs of routes.
#[derive(Debug, Subcommand)]
pub(super) enum FileRoute {
    /// Show all.
    List,
    /// Plant an unmarked one.
    AddUnmarked {
        /// Its name.
        name: String,
        /// The destination CIDR.
        destination_cidr: String,
        /// The target.
        #[arg(long)]
        provider_id: Option<String>,
        /// The target, by name, if it is neither a Node, nor an instance, nor an address.
        #[arg(long)]
        gateway: Option<String>,
    },
    /// Plant one with an owner's mark. Its target is an instance that does not exist.
    AddBlackhole {
        /// Its name.
        name: String,
        /// The destination CIDR.
        destination_cidr: String,
        /// The owner ID of its mark.
        #[arg(long)]
        owner_id: String,
    },
    /// Remove one.
    Remove {
        /// Its name.
        name: String,
    },
}

/// Runs the verb. Returns the text to print.
pub(super) fn run(args: FileArgs) -> Result<String, String> {
    let FileArgs {
        state,
        prefix,
        json,
        verb,
    } = args;
    let state = state
        .ok_or("--state is missing; give the cloud's state file, such as --state cloud.json")?;
    let (shows, command) = match verb {
        FileVerb::Fail { code } => return weather(&state, |weather| weather.fail = code.0),
        FileVerb::Slow { ms } => return weather(&state, |weather| weather.slow_ms = ms),
        FileVerb::Writes => return writes_noted(&state).map(|count| count.to_string()),
        FileVerb::Instance(verb) => verb.command(),
        FileVerb::LoadBalancer(verb) => verb.command(),
        FileVerb::Route(verb) => verb.command(&prefix),
    };
    let fixture = Fixture {
        provider: ProviderSettings {
            provider_id_prefixes: vec![prefix],
            ..ProviderSettings::default()
        },
        ..Fixture::default()
    };
    let cloud = Cloud::open(fixture, Some(&state)).map_err(|error| error.to_string())?;
    let result = cloud.run(command).map_err(|error| error.to_string())?;
    tables::print(shows, json, &result)
}

/// Changes the weather file beside the state file.
fn weather(state: &Path, change: impl FnOnce(&mut Weather)) -> Result<String, String> {
    let _lock = Lock::take(state, LOOK)?;
    let path = beside(state, ".weather.json");
    let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut weather = match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| fault(&error))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Weather::default(),
        Err(error) => return Err(fault(&format!("cannot be read: {error}"))),
    };
    change(&mut weather);
    let text = serde_json::to_string(&weather).map_err(|error| fault(&error))?;
    replace(&path, &text).map_err(|(what, error)| fault(&format!("cannot be {what}: {error}")))?;
    Ok(String::new())
}

impl FileInstance {
    fn command(self) -> (Shows, Command) {
        let power = |name, power| (Shows::Nothing, Command::InstancePower { name, power });
        match self {
            Self::List => (Shows::Instances, Command::InstanceList),
            Self::Add(instance) => {
                let instance = instance.instance();
                (Shows::ProviderId, Command::InstanceAdd { instance })
            }
            Self::Remove { name } => (Shows::Nothing, Command::InstanceRemove { name }),
            Self::Stop { name } => power(name, Power::Stopped),
            Self::Start { name } => power(name, Power::Running),
        }
    }
}

impl FileLoadBalancer {
    fn command(self) -> (Shows, Command) {
        match self {
            Self::List => (Shows::LoadBalancers, Command::LoadBalancerList),
            Self::AddUnmarked { name, address } => {
                let load_balancer = LoadBalancer {
                    name,
                    addresses: address,
                    ..LoadBalancer::default()
                };
                (Shows::Handle, Command::LoadBalancerAdd { load_balancer })
            }
            Self::Marks { handle } => (Shows::Json, Command::LoadBalancerMarks { handle }),
            Self::Remove { handle } => (Shows::Nothing, Command::LoadBalancerRemove { handle }),
        }
    }
}

impl FileRoute {
    fn command(self, prefix: &str) -> (Shows, Command) {
        match self {
            Self::List => (Shows::Routes, Command::RouteList),
            Self::AddUnmarked {
                name,
                destination_cidr,
                provider_id,
                gateway,
            } => {
                let route = Route {
                    provider_id,
                    gateway,
                    ..Route::new(name, destination_cidr)
                };
                (Shows::Nothing, Command::RouteAdd { route })
            }
            Self::AddBlackhole {
                name,
                destination_cidr,
                owner_id,
            } => {
                let route = Route {
                    provider_id: Some(format!("{prefix}gone/{name}")),
                    owner_id: Some(owner_id),
                    ..Route::new(name, destination_cidr)
                };
                (Shows::Nothing, Command::RouteAdd { route })
            }
            Self::Remove { name } => (Shows::Nothing, Command::RouteRemove { name }),
        }
    }
}
