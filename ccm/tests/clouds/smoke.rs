//! Tests `make smoke`, the trial of a provider on a real account: the trial leaves nothing in the
//! account. Here a test API plays the account.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testenv::{Process, TestCloud, Vendor, eventually};

use crate::world::SOON;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../providers/smoke.sh");

struct Smoke {
    cloud: TestCloud,
    directory: tempfile::TempDir,
    runs: usize,
}

impl Smoke {
    async fn new(vendor: Vendor) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cloud = TestCloud::start(vendor, directory.path()).await.unwrap();
        cloud.add_machine("node-0").unwrap();
        cloud.ask("PUT", "latency", &json!({"ms": 100})).unwrap();
        Self {
            cloud,
            directory,
            runs: 0,
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(SCRIPT);
        command
            .env("CLOUD", self.cloud.vendor.name())
            .envs(self.cloud.environment());
        command
    }

    fn start(&mut self) -> Process {
        self.runs += 1;
        let mut command = self.command();
        command.env("YES", "1");
        let log = self.directory.path().join(format!("{}.log", self.runs));
        Process::start(command, log).unwrap()
    }

    /// Waits until the process prints this.
    async fn says(process: &Process, text: &str) {
        eventually(&format!("it says {text:?}"), SOON, async || {
            let log = process.log();
            log.contains(text).then_some(()).ok_or(log)
        })
        .await;
    }

    /// Runs the whole trial. Returns the number of its steps.
    async fn run(&mut self) -> usize {
        let mut process = self.start();
        let status = process.wait(SOON).await.unwrap();
        let log = process.log();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.ends_with("all is well, and nothing is left\n"), "{log}");
        self.nothing_is_left(&log);
        log.lines().filter(|line| line.starts_with("step ")).count()
    }

    fn nothing_is_left(&self, log: &str) {
        assert_eq!(self.cloud.balancers().unwrap(), [], "{log}");
        if self.cloud.vendor == Vendor::Hetzner {
            let routes = self.cloud.ask("GET", "routes", &Value::Null).unwrap();
            assert_eq!(routes, json!([]), "{log}");
        }
    }
}

#[tokio::test]
async fn digitalocean_is_tried_and_nothing_is_left_wherever_that_is_interrupted() {
    interrupted_at_each_step(Vendor::DigitalOcean, 6).await;
}

#[tokio::test]
async fn hetzner_is_tried_and_nothing_is_left_wherever_that_is_interrupted() {
    interrupted_at_each_step(Vendor::Hetzner, 7).await;
}

async fn interrupted_at_each_step(vendor: Vendor, steps: usize) {
    let mut smoke = Smoke::new(vendor).await;
    assert_eq!(smoke.run().await, steps);
    let writes = smoke.cloud.writes().unwrap();
    assert!(writes >= 3, "{writes}: made, changed and removed");
    for step in 1..=steps {
        let mut process = smoke.start();
        Smoke::says(&process, &format!("step {step}:")).await;
        process.terminate();
        let status = process.wait(SOON).await.unwrap();
        let log = process.log();
        assert!(matches!(status.code(), Some(130 | 0)), "{status}: {log}");
        assert!(log.contains("nothing is left"), "{log}");
        smoke.nothing_is_left(&log);
    }

    // After kill -9 the objects of the run stay. The next run finds them by their mark, and removes
    // them first. The killed run does not get as far as to remove them itself.
    let hangs = json!({
        "match": "^DELETE /v./load_balancers", "times": -1, "break": true, "delay_ms": 600_000
    });
    smoke.cloud.ask("POST", "plans", &hangs).unwrap();
    let mut process = smoke.start();
    Smoke::says(&process, "listens on port 80\n").await;
    process.kill();
    assert_eq!(smoke.cloud.balancers().unwrap().len(), 1);
    smoke.cloud.ask("DELETE", "plans", &Value::Null).unwrap();
    smoke.run().await;
}

#[tokio::test]
async fn nothing_is_done_before_somebody_has_read_what_it_costs_and_agrees() {
    for vendor in Vendor::ALL {
        let smoke = Smoke::new(vendor).await;
        let asked = smoke.command().stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&asked.stdout);
        assert_eq!(asked.status.code(), Some(1), "{said}");
        assert!(said.contains("bills") && said.contains("Go on?"), "{said}");
        assert_eq!(smoke.cloud.calls().unwrap().len(), 0);
    }
    let wrong = Command::new(SCRIPT).env("CLOUD", "azure").output().unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(said.contains("digitalocean hetzner"), "{said}");
    let missing = Command::new(SCRIPT)
        .env("CLOUD", "hetzner")
        .env_remove("HCLOUD_TOKEN")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&missing.stderr);
    assert_eq!(missing.status.code(), Some(2));
    assert!(said.contains("HCLOUD_TOKEN is not set"), "{said}");
}
