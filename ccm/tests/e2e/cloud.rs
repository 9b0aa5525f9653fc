//! The cloud that the mock and the providers in other languages serve: a file, as
//! `providers/README.md` describes it, in a directory that all machines share.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// The user ID of providers in the manifests.
const PROVIDER: u32 = 65533;
const GROUP: u32 = 65532;

/// The path of the file in a provider's container.
pub const STATE: &str = "/cloud/cloud.json";
/// The path of the directory on a Node.
pub const HOST_PATH: &str = "/run/shared/cloud";

pub struct Cloud {
    directory: PathBuf,
}

impl Cloud {
    /// An empty cloud.
    pub fn new(directory: &Path) -> Self {
        fs::create_dir_all(directory).unwrap();
        fs::set_permissions(directory, fs::Permissions::from_mode(0o770)).unwrap();
        chown(directory, Some(PROVIDER), Some(GROUP)).unwrap();
        let cloud = Self {
            directory: directory.to_owned(),
        };
        cloud.write(&json!({
            "format": 1, "now_ms": 0, "saved_at_unix_ms": now(), "last_number": 0,
            "instances": [], "load_balancers": [], "routes": []
        }));
        cloud
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.directory.join(format!("cloud.json{suffix}"))
    }

    fn write(&self, state: &Value) {
        let new = self.file(".new");
        fs::write(&new, state.to_string()).unwrap();
        chown(&new, Some(PROVIDER), Some(GROUP)).unwrap();
        fs::rename(&new, self.file("")).unwrap();
    }

    fn read(&self) -> Value {
        let text = fs::read_to_string(self.file("")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Changes the file without a provider, and waits for a concurrent writer.
    fn edit(&self, change: impl FnOnce(&mut Value)) {
        let path = self.file(".lock");
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .unwrap();
        chown(&path, Some(PROVIDER), Some(GROUP)).unwrap();
        lock.lock().unwrap();
        let mut state = self.read();
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let passed = now().saturating_sub(number(&state["saved_at_unix_ms"]));
        state["now_ms"] = json!(number(&state["now_ms"]) + passed);
        state["saved_at_unix_ms"] = json!(now());
        change(&mut state);
        self.write(&state);
    }

    pub fn add_instance(&self, name: &str, address: Ipv4Addr) {
        self.edit(|state| {
            state["instances"].as_array_mut().unwrap().push(json!({
                "id": format!("i-{name}"), "name": name, "provider_id": provider_id(name),
                "type": "mock.large", "zone": "zone-a", "region": "region-1",
                "addresses": [{"InternalIP": address}, {"Hostname": name}], "labels": {}, "power": "running"
            }));
        });
    }

    pub fn remove_instance(&self, name: &str) {
        self.edit(|state| {
            let instances = state["instances"].as_array_mut().unwrap();
            instances.retain(|instance| instance["name"] != name);
        });
    }

    /// `running` or `stopped`.
    pub fn set_power(&self, name: &str, power: &str) {
        self.edit(|state| {
            let instances = state["instances"].as_array_mut().unwrap();
            for instance in instances.iter_mut().filter(|one| one["name"] == name) {
                instance["power"] = json!(power);
            }
        });
    }

    /// The Services with a load balancer, in the order of the load balancers' creation.
    pub fn served(&self) -> Vec<String> {
        let balancers = self.load_balancers().into_iter();
        balancers.map(|(_, service)| service).collect()
    }

    /// The handles of the load balancers and their owners.
    pub fn load_balancers(&self) -> Vec<(String, String)> {
        let state = self.read();
        let balancers = state["load_balancers"].as_array().unwrap();
        let there = balancers.iter().filter(|one| one["gone_at_ms"].is_null());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        there
            .map(|one| (text(&one["handle"]), text(&one["owner"]["name"])))
            .collect()
    }

    /// Which Nodes the load balancer of this Service leads to.
    pub fn targets(&self, service: &str) -> Vec<String> {
        let state = self.read();
        let balancers = state["load_balancers"].as_array().unwrap();
        let mut ours = balancers
            .iter()
            .filter(|one| one["gone_at_ms"].is_null() && one["owner"]["name"] == service);
        let targets = ours.next().and_then(|one| one["targets"].as_array());
        let targets = targets.into_iter().flatten();
        let mut names: Vec<String> = targets
            .map(|one| one.as_str().unwrap_or_default().to_owned())
            .collect();
        names.sort_unstable();
        names
    }

    /// Whether the load balancer of this Service listens on a port.
    pub fn listens_on(&self, service: &str, port: usize) -> bool {
        let state = self.read();
        let balancers = state["load_balancers"].as_array().unwrap();
        let ours = balancers
            .iter()
            .filter(|one| one["gone_at_ms"].is_null() && one["owner"]["name"] == service);
        let ports = ours.filter_map(|one| one["config"]["ports"].as_array());
        let texts = ports.flatten().filter_map(Value::as_str);
        // `name:protocol:port:nodePort:appProtocol`
        let mut ports = texts.filter_map(|text| text.split(':').nth(2));
        ports.any(|one| one == port.to_string())
    }

    /// How many writes ever reached the cloud.
    pub fn writes(&self) -> usize {
        let log = fs::read_to_string(self.file(".writes"));
        log.map_or(0, |log| log.lines().count())
    }
}

/// An instance's provider ID.
pub fn provider_id(name: &str) -> String {
    format!("mock://zone-a/i-{name}")
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}
