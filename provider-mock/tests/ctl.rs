//! The binary: serve, ctl, kill -9.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_provider-mock");

/// A process that serves a mock. Dropping this kills it.
struct Served {
    child: Child,
    endpoint: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(directory: &Path) -> Served {
    let endpoint = format!("unix://{}/s/provider.sock", directory.display());
    let child = Command::new(BINARY)
        .args(["serve", "--endpoint", &endpoint, "--cloud"])
        .arg(common::example())
        .arg("--state")
        .arg(directory.join("state.json"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let served = Served { child, endpoint };
    let patience = Instant::now() + common::PATIENCE;
    while !served.run(&["instance", "list"]).status.success() {
        assert!(Instant::now() < patience, "the mock does not answer");
    }
    served
}

impl Served {
    fn run(&self, args: &[&str]) -> Output {
        Command::new(BINARY)
            .args(["ctl", "--endpoint", &self.endpoint])
            .args(args)
            .output()
            .unwrap()
    }

    fn text(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let args: Vec<_> = args.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.text(&args)).unwrap()
    }

    fn error(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn a_person_changes_the_cloud_and_a_kill_forgets_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = serve(directory.path());
    assert!(
        served
            .text(&["instance", "list"])
            .contains("mock://zone-a/i-node-0")
    );
    served.text(&[
        "instance",
        "add",
        "new",
        "--zone",
        "z",
        "--address",
        "InternalIP=10.0.0.9",
        "--label",
        "k=v",
    ]);
    served.text(&["instance", "stop", "new"]);
    served.text(&["instance", "rename", "new", "newer"]);
    served.text(&["instance", "remove", "node-1"]);
    served.text(&[
        "route",
        "add",
        "r",
        "10.5.0.0/24",
        "--node-name",
        "newer",
        "--owner-id",
        "us",
    ]);
    served.text(&[
        "lb",
        "add",
        "foreign",
        "--owner-id",
        "them",
        "--uid",
        "u",
        "--service",
        "ns/web",
    ]);

    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let error = served.error(&["instance", "list"]);
    assert!(
        error.contains("provider.sock") && error.contains("provider-mock serve"),
        "{error}"
    );

    let served = serve(directory.path());
    let instances = served.json(&["instance", "list"]);
    let newer = instances
        .as_array()
        .unwrap()
        .iter()
        .find(|i| i["name"] == "newer")
        .unwrap();
    assert_eq!(
        (&newer["id"], &newer["power"]),
        (&"new".into(), &"stopped".into())
    );
    assert!(!served.text(&["instance", "list"]).contains("node-1 "));
    assert!(served.text(&["route", "list"]).contains("10.5.0.0/24"));
    assert!(served.text(&["lb", "list"]).contains("ns/web"));

    faults_and_hooks(&served);
}

/// Further commands of a person, or of the hooks of a conformance run.
fn faults_and_hooks(served: &Served) {
    served.text(&[
        "fault",
        "set",
        "LookupInstances",
        "failure",
        "--code",
        "THROTTLED",
        "--times",
        "3",
        "--retry-after",
        "2s",
    ]);
    assert!(served.text(&["fault", "list"]).contains("THROTTLED"));
    served.text(&["fault", "clear"]);
    assert_eq!(served.json(&["fault", "list"]), Value::Array(Vec::new()));
    let calls = served.json(&["calls"]);
    assert_eq!(
        (&calls["cloud_writes"], &calls["mutating_calls"]),
        (&0.into(), &0.into())
    );
    // Commands of the hooks of a conformance run.
    assert_eq!(served.text(&["instance", "add", "hook"]), "mock://hook\n");
    let handle = served.text(&["lb", "add", "unmarked"]);
    assert!(
        handle.starts_with("lb-") && handle.lines().count() == 1,
        "{handle}"
    );
    assert_eq!(served.text(&["writes"]), "0\n");
    served.text(&["fail", "CREDENTIALS"]);
    served.text(&["slow", "1"]);
    served.text(&["fail", "NONE"]);
    served.text(&["slow", "0"]);
    for (args, part) in [
        (&["instance", "stop", "nobody"][..], "nobody"),
        (
            &["fault", "set", "Probe", "failure"][..],
            "does not apply to Probe",
        ),
        (&["latency", "Prob", "5ms"][..], "Probe"),
        (&["calls", "Bogus"][..], "\"Bogus\" is no RPC"),
        (&["calls", "Bogus"][..], "LookupInstances"),
        (
            &["instance", "add", "x", "--address", "InternalIP=10.0"][..],
            "10.0",
        ),
        (&["run", "{}"][..], "instance-list"),
    ] {
        let error = served.error(args);
        assert!(error.contains(part), "{args:?}: {error}");
    }
    served.text(&["reset"]);
    assert!(served.text(&["instance", "list"]).contains("node-1 "));
}

#[test]
fn a_cloud_file_that_is_wrong_ends_it_with_the_file_the_line_and_the_field() {
    let directory = tempfile::tempdir().unwrap();
    for (name, content, words) in [
        (
            "broken.yaml",
            "provider:\n  name: mock\n instances: 3\n",
            &["broken.yaml:3:"][..],
        ),
        (
            "unknown.yaml",
            "provider:\n  name: mock\n  colour: blue\n",
            &[
                "unknown.yaml:3:",
                "colour",
                "cloud_scope",
                "3 |   colour: blue",
            ],
        ),
        (
            "type.yaml",
            "capabilities:\n  instances:\n    max_batch: many\n",
            &[
                "type.yaml:3:16: capabilities.instances.max_batch: ",
                "max_batch: many",
            ],
        ),
        (
            "values.yaml",
            "provider:\n  name: Mock\nlatency:\n  Lookup: 1s\nfaults:\n- kind: hang\n  rpc: Hop\n",
            &[
                "values.yaml:2:3: provider.name: \"Mock\"",
                "values.yaml:4:3: latency.Lookup",
                "values.yaml:7:3: faults[0].rpc: \"Hop\"",
                "LookupInstances",
            ],
        ),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        let output = serve_once(&path);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {error}");
        for word in words {
            assert!(error.contains(word), "{name}: {word:?} is not in: {error}");
        }
    }
    let output = serve_once(&directory.path().join("missing.yaml"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("missing.yaml: cannot be read: No such file"),
        "{error}"
    );
}

/// Serves at an impossible endpoint, so that the process ends with a valid file too.
fn serve_once(cloud: &Path) -> Output {
    let nowhere = "unix:///proc/nowhere/provider.sock";
    Command::new(BINARY)
        .args(["serve", "--endpoint", nowhere, "--cloud"])
        .arg(cloud)
        .output()
        .unwrap()
}

#[test]
fn the_cloud_for_a_conformance_run_has_what_its_suite_file_says() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let fixture = provider_mock::Fixture::load(&examples.join("conformance.yaml")).unwrap();
    let suite = std::fs::read_to_string(examples.join("suite.yaml")).unwrap();
    let suite: Value = serde_yaml::from_str(&suite).unwrap();
    let cloud = provider_mock::Cloud::new(fixture.clone()).unwrap();
    let instances = cloud.instances();
    let known = suite["instances"].as_array().unwrap();
    assert!(known.len() > 2);
    for known in known {
        let found = instances
            .iter()
            .find(|found| known["name"] == found.name.as_str());
        let found = found.unwrap();
        assert_eq!(known["provider_id"], found.provider_id);
        assert_eq!(known["state"], found.power.to_string().to_uppercase());
    }
    let disk = suite["volumes"][0]["source"]["volumeHandle"]
        .as_str()
        .unwrap();
    let labels = serde_json::to_value(&fixture.volumes[disk]).unwrap();
    assert_eq!(suite["volumes"][0]["labels"], labels);
    let cluster = &suite["clusters"][0];
    assert_eq!(
        cluster["address"],
        fixture.clusters[cluster["name"].as_str().unwrap()]
    );
}

#[test]
fn a_named_fault_is_listed_and_one_that_is_none_gets_the_nearest() {
    let output = Command::new(BINARY).arg("faults").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for lie in provider_mock::Lie::all() {
        let named = format!("{} ", lie.name);
        let mut rows = text.lines();
        let row = rows.find(|line| line.trim_start().starts_with(&named));
        let row = row.unwrap_or_else(|| panic!("{named}is not listed"));
        assert!(row.contains(lie.check), "{row}");
    }
    let (named, kinds) = text.split_once("Kinds of scripted faults").unwrap();
    assert!(named.contains("serve --fault") && kinds.contains("results-swapped"));
    let output = Command::new(BINARY)
        .args(["serve", "--fault", "absent-on-throtle"])
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    for word in [
        "--fault",
        "absent-on-throtle",
        "\"absent-on-throttle\"",
        "provider-mock faults",
    ] {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

#[test]
fn a_mock_is_probed_by_its_own_binary() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = serve(directory.path());
    let probe = |flags: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(["probe", "--timeout=30s", "--endpoint"]);
        let output = command.arg(&served.endpoint).args(flags).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), text)
    };
    assert_eq!(
        probe(&[]),
        (0, "live: the provider says READY\n".to_owned())
    );
    served.text(&["fail", "UNAVAILABLE"]);
    let (code, line) = probe(&[]);
    assert_eq!(code, 0, "a cloud that is down kills nobody: {line}");
    served.text(&["fail", "NONE"]);
    served.text(&["health", "broken", "no key"]);
    assert_eq!(probe(&[]).0, 0);
    let (code, line) = probe(&["--ready"]);
    let said = "provider-mock: not ready: the provider says BROKEN (no key)\n";
    assert_eq!((code, &*line), (1, said));
    let endpoint = served.endpoint.clone();
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let output = Command::new(BINARY)
        .args(["probe", "--endpoint", &endpoint])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.contains("no process listens on"), "{line}");
}
