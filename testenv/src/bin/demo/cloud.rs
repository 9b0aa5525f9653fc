//! The cloud of the demo: the mock, or a vendor's test API with this vendor's provider in front of
//! it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testenv::{Balancer, Process, TestCloud, Vendor};

use crate::stage::{Held, beside_us, run, text};

/// The configuration of the mock's cloud. Most calls take 20 ms. A load balancer is ready after one
/// second.
const CLOUD: &str = include_str!("cloud.yaml");

/// The RPCs that count as changes of the mock's cloud.
const MUTATING: [&str; 3] = [
    "EnsureLoadBalancer",
    "UpdateLoadBalancer",
    "DeleteLoadBalancer",
];

/// The cloud with the demo's machines.
pub(crate) enum Cloud {
    /// In memory, behind `provider-mock`.
    Mock {
        directory: PathBuf,
        provider: Option<Process>,
    },
    /// Behind a vendor's API.
    Vendor(TestCloud),
}

impl Cloud {
    /// The cloud with the machines node-1 to node-6, and no provider yet.
    pub(crate) async fn new(vendor: Option<Vendor>, directory: &Path) -> Held<Self> {
        let Some(vendor) = vendor else {
            std::fs::write(directory.join("cloud.yaml"), CLOUD).map_err(text)?;
            return Ok(Self::Mock {
                directory: directory.to_owned(),
                provider: None,
            });
        };
        println!(
            "Building the provider of {} and its test API ...",
            vendor.name()
        );
        let cloud = TestCloud::start(vendor, directory).await.map_err(text)?;
        for number in 1..=6 {
            cloud.add_machine(&format!("node-{number}")).map_err(text)?;
        }
        cloud
            .ask("PUT", "latency", &json!({"ms": 20}))
            .map_err(text)?;
        cloud
            .set(&match vendor {
                Vendor::DigitalOcean => json!({"provision_ms": 1000}),
                Vendor::Hetzner => json!({"action_ms": 1000}),
            })
            .map_err(text)?;
        Ok(Self::Vendor(cloud))
    }

    /// The provider's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Mock { .. } => "mock",
            Self::Vendor(cloud) => cloud.vendor.name(),
        }
    }

    /// The unit of [`calls`](Self::calls).
    pub(crate) fn counted(&self) -> &'static str {
        match self {
            Self::Mock { .. } => "RPCs",
            Self::Vendor(_) => "Calls of the API",
        }
    }

    /// Where the provider serves.
    pub(crate) fn endpoint(&self) -> String {
        match self {
            Self::Mock { directory, .. } => {
                format!(
                    "unix://{}",
                    directory.join("socket/provider.sock").display()
                )
            }
            Self::Vendor(cloud) => cloud.endpoint(),
        }
    }

    /// Starts the provider. Its cloud outlives it. Returns whether calls are counted from zero
    /// again.
    pub(crate) fn start_provider(&mut self) -> Held<bool> {
        let endpoint = self.endpoint();
        match self {
            Self::Mock {
                directory,
                provider,
            } => {
                let mut command = Command::new(beside_us("provider-mock")?);
                command
                    .args(["serve", "--endpoint", &endpoint, "--cloud"])
                    .arg(directory.join("cloud.yaml"))
                    .arg("--state")
                    .arg(directory.join("cloud-state.json"));
                let log = directory.join("provider.log");
                *provider = Some(Process::start(command, log).map_err(text)?);
                Ok(true)
            }
            Self::Vendor(cloud) => {
                cloud.start_provider(&[]).map_err(text)?;
                Ok(false)
            }
        }
    }

    /// kill -9.
    pub(crate) fn kill_provider(&mut self) {
        match self {
            Self::Mock { provider, .. } => *provider = None,
            Self::Vendor(cloud) => cloud.kill_provider(),
        }
    }

    fn ctl(&self, args: &[&str]) -> Held<Value> {
        let said = run(Command::new(beside_us("provider-mock")?)
            .args(["ctl", "--endpoint", &self.endpoint()])
            .args(args))?;
        serde_json::from_str(&said).map_err(text)
    }

    /// Removes the instance of this Node.
    pub(crate) fn remove_instance(&self, name: &str) -> Held {
        match self {
            Self::Mock { .. } => run(Command::new(beside_us("provider-mock")?)
                .args(["ctl", "--endpoint", &self.endpoint()])
                .args(["instance", "remove", name]))
            .map(drop),
            Self::Vendor(cloud) => cloud.remove_machine(name).map_err(text),
        }
    }

    /// How often the controllers called each RPC except Probe and GetProviderInfo, or the provider
    /// each method of the cloud's API.
    pub(crate) fn calls(&self) -> Held<BTreeMap<String, u64>> {
        if let Self::Vendor(cloud) = self {
            return cloud.calls().map_err(text);
        }
        let value = self.ctl(&["calls", "--json"])?;
        let counts = value["counts"]
            .as_object()
            .ok_or(format!("no counts in {value}"))?;
        Ok(counts
            .iter()
            .filter(|(rpc, _)| !matches!(rpc.as_str(), "Probe" | "GetProviderInfo"))
            .filter_map(|(rpc, count)| Some((rpc.clone(), count.as_u64()?)))
            .collect())
    }

    /// How many calls that change load balancers were made: RPCs of the mock, or writes of the API.
    pub(crate) fn changes(&self) -> Held<u64> {
        if let Self::Vendor(cloud) = self {
            return cloud.writes().map_err(text);
        }
        let calls = self.calls()?;
        Ok(MUTATING.iter().filter_map(|rpc| calls.get(*rpc)).sum())
    }

    /// How many calls have read load balancers.
    pub(crate) fn looks(&self) -> Held<u64> {
        let calls = self.calls()?;
        let looked = calls.iter().filter(|(call, _)| {
            *call == "GetLoadBalancer"
                || call.starts_with("GET ") && call.contains("/load_balancers")
        });
        Ok(looked.map(|(_, count)| count).sum())
    }

    /// All load balancers, with their targets in order.
    pub(crate) fn balancers(&self) -> Held<Vec<Balancer>> {
        if let Self::Vendor(cloud) = self {
            return cloud.balancers().map_err(text);
        }
        let all = self.ctl(&["lb", "list", "--json"])?;
        let texts = |value: &Value| -> Vec<String> {
            let texts = value.as_array().into_iter().flatten();
            texts
                .filter_map(|it| it.as_str().map(str::to_owned))
                .collect()
        };
        let balancer = |it: &Value| {
            let mut targets = texts(&it["targets"]);
            targets.sort();
            Balancer {
                id: it["handle"].to_string(),
                name: it["owner"].to_string(),
                addresses: texts(&it["addresses"]),
                targets,
                marks: Vec::new(),
            }
        };
        Ok(all.as_array().into_iter().flatten().map(balancer).collect())
    }

    /// The logs, and the mock's state, as files in the directory of the demo.
    pub(crate) fn logs(&self) -> Vec<String> {
        match self {
            Self::Mock { .. } => ["provider.log", "cloud-state.json"]
                .map(String::from)
                .into(),
            Self::Vendor(cloud) => ["provider.log", "api.log"]
                .map(|log| format!("{}/{log}", cloud.vendor.name()))
                .into(),
        }
    }

    /// Instructions for experiments: the variables to export, and a command that lists instances or
    /// load balancers.
    pub(crate) fn how_to_play(&self) -> (String, String) {
        match self {
            Self::Mock { .. } => (
                format!(" PROVIDER_MOCK_ENDPOINT={}", self.endpoint()),
                format!(
                    "{} ctl instance list",
                    beside_us("provider-mock").unwrap_or_default().display()
                ),
            ),
            Self::Vendor(cloud) => (String::new(), cloud.command("GET", "balancers")),
        }
    }
}
