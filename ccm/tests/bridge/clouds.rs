//! The clouds, and the changes that tests make in them from outside. One Go binary, built once,
//! serves all clouds except AWS.

use std::path::{Path, PathBuf};
use std::process::Command;

use testenv::Process;

use crate::aws::Aws;
pub use crate::binary::{binary, go, text};

/// A cloud behind the bridge.
pub enum Cloud {
    /// A cloud whose state is a file that `clouds file` changes.
    File { name: &'static str, state: PathBuf },
    /// `k8s.io/cloud-provider-aws`, and moto as AWS's API.
    Aws(Aws),
}

/// A Node that the cloud has an instance for.
pub struct Instance {
    pub node: String,
    pub provider_id: String,
}

impl Cloud {
    /// A cloud of `providers/go/bridge/shapes`, or upstream's `fake`, with its state in this
    /// folder.
    pub fn file(name: &'static str, directory: &Path) -> Self {
        let state = directory.join(format!("{name}.json"));
        let config = match name {
            "fake" => state.display().to_string(),
            _ => format!("state: {}\n", state.display()),
        };
        std::fs::write(directory.join("cloud.conf"), config).unwrap();
        Self::File { name, state }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::File { name, .. } => name,
            Self::Aws(_) => "aws",
        }
    }

    /// The prefix of its provider IDs.
    pub fn scheme(&self) -> String {
        format!("{}://", self.name())
    }

    /// The provider's command line for `sh`, without the endpoint.
    pub fn provider(&self, directory: &Path) -> String {
        let (environment, binary, named) = match self {
            Self::File { name, .. } => {
                let environment = match *name {
                    // This provider fills its cache only at its start. After a refill by chance,
                    // checks that are listed as exceptions would pass.
                    "careless" => "env CARELESS_PERIOD=1h ",
                    // This provider must see the tests' changes at once (INST-5).
                    "lister" => "env LISTER_CACHE=1ms ",
                    _ => "",
                };
                let named = format!(" --cloud-provider={name}");
                (environment.to_owned(), binary(), named)
            }
            Self::Aws(aws) => {
                let variables = aws
                    .environment()
                    .map(|(name, value)| format!("{name}={value} "));
                let environment = format!("env {}", variables.concat());
                (environment, crate::aws::provider(), String::new())
            }
        };
        format!(
            "exec {environment}'{}'{named} --cloud-config='{}'",
            binary.display(),
            directory.join("cloud.conf").display()
        )
    }

    /// Adds the instance of a Node. AWS's instances exist from the start.
    pub fn add(&self, node: &str) -> Instance {
        match self {
            Self::File { .. } => {
                let id = self.edit(&["instance-add", node]);
                Instance {
                    node: node.to_owned(),
                    provider_id: id.trim().to_owned(),
                }
            }
            Self::Aws(_) => panic!("AWS names its Nodes itself"),
        }
    }

    /// Takes the instance away.
    pub fn remove(&self, instance: &Instance) {
        match self {
            Self::File { .. } => {
                self.edit(&["instance-remove", &instance.node]);
            }
            Self::Aws(aws) => {
                let id = instance.provider_id.rsplit('/').next().unwrap();
                aws.run(&["remove", id]);
            }
        }
    }

    /// Changes the cloud's file.
    pub fn edit(&self, arguments: &[&str]) -> String {
        let Self::File { state, .. } = self else {
            panic!("only a cloud in a file")
        };
        let mut command = Command::new(binary());
        command
            .arg("file")
            .arg(state)
            .arg(self.scheme())
            .args(arguments);
        text(command.output().unwrap())
    }

    /// A text for each load balancer in the cloud. `None` for upstream's fake, which removes none.
    pub fn load_balancers(&self) -> Option<Vec<String>> {
        match self {
            Self::File { name: "fake", .. } => None,
            Self::File { state, .. } => {
                let state: serde_json::Value =
                    serde_json::from_slice(&std::fs::read(state).unwrap()).unwrap();
                let all = state["loadBalancers"].as_object().unwrap();
                Some(all.values().map(ToString::to_string).collect())
            }
            Self::Aws(aws) => Some(aws.run(&["balancers"]).lines().map(str::to_owned).collect()),
        }
    }

    /// The command of upstream's controller with this cloud, or of AWS's own controller. The caller
    /// adds flags.
    pub fn upstream(&self, directory: &Path) -> Command {
        let mut command = match self {
            Self::File { .. } => {
                let mut command = Command::new(binary());
                command.arg("go-ccm");
                command
            }
            Self::Aws(aws) => {
                let mut command = Command::new(crate::aws::vendors());
                command.envs(aws.environment());
                command
            }
        };
        command
            .arg(format!("--cloud-provider={}", self.name()))
            .arg("--cloud-config")
            .arg(directory.join("cloud.conf"));
        command
    }

    /// How many calls the cloud's API received, and which calls after the first `skipped` are
    /// writes.
    pub fn calls(&self, skipped: usize) -> (usize, Vec<String>) {
        let state = match self {
            Self::File { state, .. } => state,
            Self::Aws(aws) => {
                let calls = aws.calls();
                let writes = calls.iter().skip(skipped);
                let writes = writes.filter(|call| !call.contains(":Describe"));
                return (calls.len(), writes.cloned().collect());
            }
        };
        let journal = std::fs::read_to_string(state.with_extension("json.calls")).unwrap();
        let calls: Vec<&str> = journal.lines().collect();
        let writes = calls.iter().skip(skipped).filter(|line| {
            let call: serde_json::Value = serde_json::from_str(line).unwrap();
            !call["what"].as_str().unwrap().starts_with("GET")
        });
        (calls.len(), writes.map(|&line| line.to_owned()).collect())
    }

    /// Starts the provider.
    pub fn start(&self, directory: &Path, socket: &Path) -> Process {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!(
            "{} --endpoint 'unix://{}'",
            self.provider(directory),
            socket.display()
        ));
        Process::start(command, directory.join("provider.log")).unwrap()
    }
}
