//! AWS's API, played by moto: a Python package, pinned, installed into cargo's target directory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use provider_sdk::conformance::Hook;
use testenv::{Process, eventually};

use crate::clouds::{BRIDGE, Instance, text};

/// How long moto may take to start: it imports much.
const START: Duration = Duration::from_mins(2);

/// A small account: see `clouds/aws/cloud.py`.
pub struct Aws {
    port: u16,
    python: PathBuf,
    _moto: Process,
}

impl Aws {
    /// An account with a network and these instances; the cloud's configuration lies in the folder.
    pub async fn start(directory: &Path, names: &[&str]) -> (Self, Vec<Instance>) {
        let venv = venv();
        let mut command = Command::new(venv.join("bin/python"));
        command
            .arg(Path::new(BRIDGE).join("clouds/aws/server.py"))
            .args(["-H", "127.0.0.1", "-p", "0"]);
        let moto = Process::start(command, directory.join("moto.log")).unwrap();
        let port = eventually("moto says its port", START, async || {
            let log = moto.log();
            let (_, after) = log
                .split_once("http://127.0.0.1:")
                .ok_or_else(|| log.clone())?;
            let port: String = after.chars().take_while(char::is_ascii_digit).collect();
            port.parse::<u16>().map_err(|error| error.to_string())
        })
        .await;
        let aws = Self {
            port,
            python: venv.join("bin/python"),
            _moto: moto,
        };
        let mut arguments = vec!["setup"];
        arguments.extend(names);
        let printed = aws.run(&arguments);
        std::fs::write(directory.join("cloud.conf"), &printed).unwrap();
        let instances = printed.lines().filter_map(|line| {
            let (node, provider_id) = line.strip_prefix("# ")?.split_once(' ')?;
            Some(Instance {
                node: node.to_owned(),
                provider_id: provider_id.to_owned(),
            })
        });
        let instances = instances.collect();
        (aws, instances)
    }

    /// Runs `cloud.py`.
    pub fn run(&self, arguments: &[&str]) -> String {
        text(self.script(arguments).output().unwrap())
    }

    /// The hooks of suite.yaml: what a person does at AWS's console.
    pub fn hooks(&self) -> String {
        let mut text = "hooks:\n".to_owned();
        for (hook, arguments) in [
            (Hook::InstanceAdd, "add \"$NAME\""),
            (Hook::InstanceRemove, "remove \"$PROVIDER_ID\""),
            (Hook::InstanceStop, "stop \"$PROVIDER_ID\""),
            (Hook::InstanceStart, "start \"$PROVIDER_ID\""),
            (Hook::CloudWrites, "console writes"),
            (Hook::CloudFail, "console fail \"code=$CODE\""),
            (Hook::CloudSlow, "console slow \"ms=$MS\""),
            (Hook::LoadBalancerRemove, "unbalance \"$HANDLE\""),
        ] {
            let line = format!("exec {:?} {arguments}", self.script(&[]));
            let line = serde_json::to_string(&line).unwrap();
            writeln!(text, "  {}: {line}", hook.key()).unwrap();
        }
        text
    }

    fn script(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.python);
        command
            .arg(Path::new(BRIDGE).join("clouds/aws/cloud.py"))
            .arg(self.port.to_string())
            .args(arguments);
        command
    }

    /// How AWS's SDK finds the stand-in, as variables for `env`.
    pub fn environment(&self) -> String {
        format!(
            "AWS_ACCESS_KEY_ID=testing AWS_SECRET_ACCESS_KEY=testing AWS_REGION=eu-west-1 AWS_EC2_METADATA_DISABLED=true AWS_ENDPOINT_URL=http://127.0.0.1:{}",
            self.port
        )
    }
}

/// The environment of Python with what `requirements.txt` pins.
fn venv() -> PathBuf {
    let pinned = Path::new(BRIDGE).join("clouds/aws/requirements.txt");
    let wanted = std::fs::read_to_string(&pinned).unwrap();
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moto");
    let lock = std::fs::File::create(venv.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let stamp = venv.join("installed.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return venv;
    }
    let _ = std::fs::remove_dir_all(&venv);
    let made = Command::new("python3")
        .args(["-m", "venv"])
        .arg(&venv)
        .output();
    text(made.expect("Python 3.11 or newer with its module venv is needed"));
    let installed = Command::new(venv.join("bin/pip"))
        .args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--requirement",
        ])
        .arg(&pinned)
        .output();
    text(installed.unwrap());
    std::fs::write(&stamp, wanted).unwrap();
    venv
}
