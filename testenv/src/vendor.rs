//! A vendor's cloud on this machine: the test API of `providers/`, with the real provider.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, Site, command_in};
use crate::error::{Error, While};
use crate::process::Process;

/// The vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// Droplets and load balancers.
    DigitalOcean,
    /// Servers, load balancers and the routes of a network.
    Hetzner,
}

impl Vendor {
    /// All vendors.
    pub const ALL: [Self; 2] = [Self::DigitalOcean, Self::Hetzner];

    /// The name of the vendor's folder below `providers/`, and of the provider.
    pub fn name(self) -> &'static str {
        match self {
            Self::DigitalOcean => "digitalocean",
            Self::Hetzner => "hetzner",
        }
    }

    /// The vendor of this name.
    pub fn of_name(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|it| it.name() == name);
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|it| it.name()).collect();
            Error::Refused(format!(
                "CLOUD={name:?} is no cloud with a test API; use one of {}, or none for the mock",
                names.join(", ")
            ))
        })
    }

    /// The token that the test API accepts.
    pub fn token(self) -> &'static str {
        match self {
            Self::DigitalOcean => "dop_v1_test",
            Self::Hetzner => "hcloud-test-token",
        }
    }

    /// The API's limit of calls in an hour.
    pub fn calls_an_hour(self) -> u64 {
        match self {
            Self::DigitalOcean => 5_000,
            Self::Hetzner => 3_600,
        }
    }

    /// The provider's environment variables. Except for `DIGITALOCEAN_TOKEN`, the vendor's own
    /// controller reads variables of the same names.
    fn environment(self, api: &str) -> Vec<(&'static str, String)> {
        match self {
            Self::DigitalOcean => vec![
                ("DO_OVERRIDE_URL", api.to_owned()),
                ("DIGITALOCEAN_TOKEN", self.token().to_owned()),
                ("REGION", "nyc1".to_owned()),
            ],
            Self::Hetzner => vec![
                ("HCLOUD_ENDPOINT", format!("{api}/v1")),
                ("HCLOUD_TOKEN", self.token().to_owned()),
                ("HCLOUD_NETWORK", "cluster".to_owned()),
                ("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1".to_owned()),
            ],
        }
    }

    /// Builds the provider and its test API. Go needs only seconds if nothing has changed.
    fn build(self) -> Result<(PathBuf, PathBuf), Error> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let mut command = Command::new(format!("{root}/providers/prepare.sh"));
        let provider = output_of(command.arg(self.name()))?;
        let provider = provider.trim();
        Ok((provider.into(), format!("{provider}-testapi").into()))
    }
}

/// A load balancer in the test API.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Balancer {
    /// The cloud's ID, which is the provider's handle.
    pub id: String,
    /// Its name in the console.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// The machines behind it, by name.
    pub targets: Vec<String>,
    /// The texts that identify its owner.
    pub marks: Vec<String>,
}

/// A vendor's cloud. Its test API ends when the last handle to this cloud is dropped.
#[derive(Debug)]
pub struct TestCloud {
    /// The vendor.
    pub vendor: Vendor,
    directory: PathBuf,
    command: PathBuf,
    testapi: PathBuf,
    /// The network of the test API, if it is not the host's.
    network: Option<PathBuf>,
    url: String,
    provider: Option<Process>,
    api: Arc<Process>,
}

impl TestCloud {
    /// The cloud without machines or a provider. Its files are in a folder of `directory`.
    pub async fn start(vendor: Vendor, directory: &Path) -> Result<Self, Error> {
        Self::start_at(vendor, directory, None).await
    }

    /// Like [`start`](Self::start), in a network that a cluster's machines and Pods can reach.
    pub async fn start_in(vendor: Vendor, cluster: &Cluster) -> Result<Self, Error> {
        let site = Some((cluster.network(), Site::gateway()));
        Self::start_at(vendor, cluster.directory(), site).await
    }

    async fn start_at(
        vendor: Vendor,
        directory: &Path,
        site: Option<(PathBuf, Ipv4Addr)>,
    ) -> Result<Self, Error> {
        let (command, testapi) = vendor.build()?;
        let directory = made(directory.join(vendor.name()))?;
        let address = directory.join("api-address");
        let (network, listen) = match site {
            Some((network, address)) => (Some(network), address),
            None => (None, Ipv4Addr::LOCALHOST),
        };
        let mut serve = testapi_in(network.as_deref(), &testapi);
        serve.arg("serve").arg("--address-file").arg(&address);
        serve.arg(format!("--listen={listen}:0"));
        let api = Process::start_apart(serve, directory.join("api.log"))?;
        let end = Instant::now() + Duration::from_mins(1);
        let url = loop {
            if let Ok(url) = std::fs::read_to_string(&address) {
                break url;
            }
            if Instant::now() > end {
                return Err(Error::NotReady {
                    what: format!("the test API of {} does not answer", vendor.name()),
                    log: api.log_path().to_owned(),
                    tail: api.log_tail(),
                });
            }
            sleep(Duration::from_millis(10)).await;
        };
        let cloud = Self {
            vendor,
            directory,
            command,
            testapi,
            network,
            url,
            provider: None,
            api: Arc::new(api),
        };
        cloud.put_token(vendor.token())?;
        Ok(cloud)
    }

    /// The same account for another cluster. Its provider's files are in a folder of `directory`.
    pub fn beside(&self, directory: &Path) -> Result<Self, Error> {
        let cloud = Self {
            vendor: self.vendor,
            directory: made(directory.join(self.vendor.name()))?,
            command: self.command.clone(),
            testapi: self.testapi.clone(),
            network: self.network.clone(),
            url: self.url.clone(),
            provider: None,
            api: Arc::clone(&self.api),
        };
        cloud.put_token(self.vendor.token())?;
        Ok(cloud)
    }

    /// Where the provider serves.
    pub fn endpoint(&self) -> String {
        format!(
            "unix://{}",
            self.directory.join("s/provider.sock").display()
        )
    }

    /// The file that the provider reads its token from.
    fn token_file(&self) -> PathBuf {
        self.directory.join("token")
    }

    /// Replaces the token, as a rotation does.
    pub fn put_token(&self, token: &str) -> Result<(), Error> {
        let new = self.directory.join("token.new");
        std::fs::write(&new, token)
            .and_then(|()| std::fs::rename(&new, self.token_file()))
            .while_doing(|| "cannot write the token".to_owned())
    }

    /// Where its API is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The environment that a provider needs to serve this cloud.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        self.vendor.environment(&self.url)
    }

    /// Starts the provider, with these flags too.
    pub fn start_provider(&mut self, flags: &[&str]) -> Result<(), Error> {
        let mut command = Command::new(&self.command);
        command
            .arg(format!("--endpoint={}", self.endpoint()))
            .arg(format!("--token-file={}", self.token_file().display()))
            .envs(self.environment())
            .args(flags);
        let log = self.directory.join("provider.log");
        self.provider = Some(Process::start_apart(command, log)?);
        Ok(())
    }

    /// kill -9.
    pub fn kill_provider(&mut self) {
        self.provider = None;
    }

    /// The log of the provider.
    pub fn provider_log(&self) -> String {
        std::fs::read_to_string(self.directory.join("provider.log")).unwrap_or_default()
    }

    /// The log of the test API.
    pub fn api_log(&self) -> String {
        self.api.log()
    }

    /// Calls the control endpoint of the test API. `providers/digitalocean/README.md` has examples.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, Error> {
        let mut command = testapi_in(self.network.as_deref(), &self.testapi);
        command.args(["ask", &self.url, method, path, &body.to_string()]);
        let said = output_of(&mut command)?;
        let said = said.trim();
        // A text is printed as it is.
        Ok(serde_json::from_str(said).unwrap_or_else(|_| said.into()))
    }

    /// A shell command for a call of the control endpoint, without a body.
    pub fn command(&self, method: &str, path: &str) -> String {
        format!(
            "{} ask {} {method} {path}",
            self.testapi.display(),
            self.url
        )
    }

    /// Makes a machine. Returns its provider ID.
    pub fn add_machine(&self, name: &str) -> Result<String, Error> {
        let id = self.ask("POST", "machines", &json!({"name": name}))?;
        Ok(id.as_str().unwrap_or_default().to_owned())
    }

    /// Removes a machine.
    pub fn remove_machine(&self, name: &str) -> Result<(), Error> {
        self.ask("DELETE", &format!("machines/{name}"), &Value::Null)
            .map(drop)
    }

    /// Replaces the settings of the test API.
    pub fn set(&self, settings: &Value) -> Result<(), Error> {
        self.ask("PUT", "settings", settings).map(drop)
    }

    /// All load balancers, with their targets in order.
    pub fn balancers(&self) -> Result<Vec<Balancer>, Error> {
        let all = self.ask("GET", "balancers", &Value::Null)?;
        let all: Option<Vec<Balancer>> = serde_json::from_value(all.clone())
            .map_err(|error| Error::Refused(format!("balancers: {error}: {all}")))?;
        let mut all = all.unwrap_or_default();
        for balancer in &mut all {
            balancer.targets.sort();
        }
        Ok(all)
    }

    /// How often each call is in the journal of the test API. The journal drops old calls.
    pub fn calls(&self) -> Result<BTreeMap<String, u64>, Error> {
        let counts = self.ask("GET", "calls", &Value::Null)?;
        serde_json::from_value(counts).map_err(|error| Error::Refused(format!("calls: {error}")))
    }

    /// How many calls that write have succeeded.
    pub fn writes(&self) -> Result<u64, Error> {
        let writes = self.ask("GET", "writes", &Value::Null)?;
        Ok(writes.as_u64().unwrap_or_default())
    }
}

fn testapi_in(network: Option<&Path>, testapi: &Path) -> Command {
    network.map_or_else(
        || Command::new(testapi),
        |network| command_in(network, testapi),
    )
}

fn made(directory: PathBuf) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(&directory).while_doing(|| format!("{}", directory.display()))?;
    Ok(directory)
}

fn output_of(command: &mut Command) -> Result<String, Error> {
    let what = format!("{command:?}");
    let output = command.output().while_doing(|| what.clone())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Command {
        what,
        status: output.status,
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
