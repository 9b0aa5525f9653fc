//! The binary `provider-conformance`: its own bad input.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_provider-conformance"))
        .args(args)
        .output()
        .unwrap()
}

fn refused(args: &[&str], words: &[&str]) {
    let output = run(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    for word in words {
        assert!(
            error.contains(word),
            "{args:?}: {word:?} is not in: {error}"
        );
    }
}

#[test]
fn bad_input_is_named_with_what_would_be_right() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("suite.yaml");
    std::fs::write(&config, "hooks:\n  cloud-slows: x\n").unwrap();
    let config = config.to_str().unwrap();
    refused(&[], &["--endpoint", "--command"]);
    refused(&["--endpoint", "tcp://1"], &["tcp://1", "unix://"]);
    refused(
        &["--endpoint", "unix:///nowhere/x.sock"],
        &["nobody answers", "/nowhere/x.sock"],
    );
    refused(
        &["--endpoint", "unix:///x/y", "--command", "x"],
        &["--command"],
    );
    refused(&["--command", "exit 7"], &["the command ended", "7"]);
    refused(
        &["--command", "echo no such cloud >&2; exit 1"],
        &["no such cloud"],
    );
    refused(
        &["--endpoint", "unix:///x/y", "--only", "nothing/*"],
        &["nothing/*", "--list"],
    );
    refused(
        &["--endpoint", "unix:///x/y", "--soak", "soon"],
        &["--soak", "90s"],
    );
    refused(
        &["--endpoint", "unix:///x/y", "--format", "xml"],
        &["junit"],
    );
    refused(
        &["--endpoint", "unix:///x/y", "--config", config],
        &["suite.yaml:2:", "cloud-slows", "did you mean `cloud-slow`"],
    );
    refused(
        &["--endpoint", "unix:///x/y", "--config", "/nowhere.yaml"],
        &["/nowhere.yaml", "cannot be read"],
    );
}

#[test]
fn what_serves_no_provider_service_is_no_provider() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // Accepts and hangs up: no gRPC at all.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            drop(stream);
        }
    });
    let endpoint = format!("unix://{}", path.display());
    refused(&["--endpoint", &endpoint], &[&endpoint]);
}

#[test]
fn list_prints_each_check_with_its_rules_and_what_it_shows() {
    let output = run(&["--list"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("provider/probe-tells-the-boot-id\t"))
        .unwrap();
    assert!(
        line.contains("PROV-7") && line.contains("boot_id"),
        "{line}"
    );
    let some = run(&["--list", "--only", "zones/*"]);
    let some = String::from_utf8(some.stdout).unwrap();
    assert!(
        !some.is_empty() && some.lines().all(|line| line.starts_with("zones/")),
        "{some}"
    );
}
