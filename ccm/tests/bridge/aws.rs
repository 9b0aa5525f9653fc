//! AWS's API, played by moto, a pinned Python package that is installed into cargo's target
//! directory. Also the clients of that API: this project's provider, and the vendor's own
//! controller.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use testenv::{Process, eventually};

use crate::clouds::{Instance, go, text};

/// The provider's folder.
pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../providers/aws");
/// The package of the vendor's own controller.
const VENDORS: &str = "k8s.io/cloud-provider-aws/cmd/aws-cloud-controller-manager";

/// The longest time that moto's start may take. moto imports many modules.
const START: Duration = Duration::from_mins(2);

/// The binary of a package of the module `providers/aws`: the provider (`.`), or the vendor's
/// controller. Go rebuilds only what changed. The first build takes minutes.
pub fn binary(package: &'static str) -> &'static Path {
    static BINARIES: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    let (slot, name) = if package == "." {
        (&BINARIES[0], "aws-provider")
    } else {
        (&BINARIES[1], "aws-ccm")
    };
    slot.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let built = go(FOLDER, &["build", "-ldflags=-s -w", "-o"])
            .arg(&path)
            .arg(package)
            .output();
        text(built.expect("go 1.26 or newer is needed"));
        path
    })
}

/// The provider.
pub fn provider() -> &'static Path {
    binary(".")
}

/// The vendor's controller.
pub fn vendors() -> &'static Path {
    binary(VENDORS)
}

/// A small account: see `testapi/cloud.py`.
pub struct Aws {
    port: u16,
    python: PathBuf,
    _moto: Process,
}

impl Aws {
    /// Starts moto, with an account that has a network and these instances. Writes the cloud's
    /// configuration into the folder.
    pub async fn start(directory: &Path, names: &[&str]) -> (Self, Vec<Instance>) {
        let venv = venv();
        let mut command = Command::new(venv.join("bin/python"));
        command
            .arg(Path::new(FOLDER).join("testapi/server.py"))
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

    /// The provider's suite.yaml.
    pub fn suite(&self) -> String {
        let text = std::fs::read_to_string(Path::new(FOLDER).join("suite.yaml")).unwrap();
        text.replace("$TESTAPI", &format!("exec {:?}", self.script(&[])))
    }

    /// The calls that the API received with the provider's access key, such as
    /// `ec2:DescribeInstances`.
    pub fn calls(&self) -> Vec<String> {
        serde_json::from_str(&self.run(&["console", "calls"])).unwrap()
    }

    fn script(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.python);
        command
            .arg(Path::new(FOLDER).join("testapi/cloud.py"))
            .arg(self.port.to_string())
            .args(arguments);
        command
    }

    /// The environment with which AWS's SDK reaches moto.
    pub fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ACCESS_KEY_ID", "AKIATESTPROVIDER".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "aws-test-secret".to_owned()),
            ("AWS_REGION", "eu-west-1".to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
            (
                "AWS_ENDPOINT_URL",
                format!("http://127.0.0.1:{}", self.port),
            ),
        ]
    }
}

/// The Python environment with the packages that `requirements.txt` pins.
fn venv() -> PathBuf {
    let pinned = Path::new(FOLDER).join("testapi/requirements.txt");
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
