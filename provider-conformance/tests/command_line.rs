//! The binary `provider-conformance`: what it refuses, and its exit codes.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use provider_sdk::prelude::*;
use rustix::process::Pid;
use tokio::io::AsyncBufReadExt;
use tokio::task::JoinSet;

/// How long a test waits for an event that must happen.
const SOON: Duration = Duration::from_secs(20);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(SOON, future).await;
    waited.unwrap_or_else(|_| panic!("waited in vain for: {what}"))
}

/// A provider without capabilities.
struct Nothing;

#[async_trait]
impl Provider for Nothing {
    fn info(&self) -> ProviderInfo {
        ProviderInfo::new("nothing", "1.0.0")
    }

    async fn initialize(&self, _: &Call, _: &InitializeRequest) -> Result<Initialized, Failure> {
        Ok(Initialized::new("nowhere"))
    }
}

/// A provider that this process serves, until it is dropped.
struct Served {
    path: PathBuf,
    _directory: tempfile::TempDir,
    _server: JoinSet<Result<(), ServeError>>,
}

impl Served {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket/p.sock");
        let server = Server::new(Nothing).endpoint(format!("unix://{}", path.display()));
        let mut task = JoinSet::new();
        task.spawn(server.serve(std::future::pending()));
        let answers = async {
            while tokio::net::UnixStream::connect(&path).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        soon("a server that answers", answers).await;
        Self {
            path,
            _directory: directory,
            _server: task,
        }
    }

    fn endpoint(&self) -> String {
        format!("unix://{}", self.path.display())
    }
}

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
        &["no process answers", "/nowhere/x.sock"],
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
    // A run without checks is an error.
    refused(
        &["--endpoint", "unix:///x/y", "--skip", "*"],
        &["leave no check", "--list"],
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

/// The socket accepts connections, but no process answers. The suite reports that and exits with 2.
#[test]
fn what_accepts_and_never_answers_is_no_provider() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("silent.sock");
    let _listens = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let endpoint = format!("unix://{}", path.display());
    refused(
        &["--endpoint", &endpoint],
        &[&endpoint, "GetProviderInfo", "no answer"],
    );
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

/// Runs the suite on a provider that this process serves.
async fn against(provider: &Served, args: &[&str]) -> Output {
    tokio::process::Command::new(env!("CARGO_BIN_EXE_provider-conformance"))
        .args(["--endpoint", &provider.endpoint()])
        .args(args)
        .output()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_says_passed_failed_and_not_shown() {
    let provider = Served::start().await;
    let one = "provider/probe-tells-the-boot-id";
    let passed = against(&provider, &["--only", one]).await;
    let text = String::from_utf8(passed.stdout).unwrap();
    assert_eq!(passed.status.code(), Some(0), "{text}");
    assert!(
        text.contains(&format!("pass  {one}")) && text.contains("1 passed, 0 failed"),
        "{text}"
    );

    let hook = "core/a-throttled-cloud-is-throttled";
    let not_shown = against(&provider, &["--only", hook]).await;
    let text = String::from_utf8(not_shown.stdout).unwrap();
    assert_eq!(not_shown.status.code(), Some(1), "{text}");
    assert!(text.contains("no hook `cloud-fail`"), "{text}");
    let allowed = against(&provider, &["--only", hook, "--allow-skipped"]).await;
    assert_eq!(allowed.status.code(), Some(0));

    let directory = provider.path.parent().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory, open).unwrap();
    let mode = "core/directory-has-mode-0750";
    let failed = against(&provider, &["--only", mode]).await;
    let text = String::from_utf8(failed.stdout).unwrap();
    assert_eq!(failed.status.code(), Some(1), "{text}");
    for word in [
        "FAIL  core/directory",
        "mode 0750 (CORE-2)",
        "mode 0755",
        "failed: core/directory",
        "rule      CORE-2: ",
    ] {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
    let junit = against(&provider, &["--only", mode, "--format", "junit"]).await;
    let xml = String::from_utf8(junit.stdout).unwrap();
    assert!(
        xml.starts_with("<?xml") && xml.contains("<failure type=\"CORE-2\""),
        "{xml}"
    );
    let json = against(&provider, &["--only", mode, "--format", "json"]).await;
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["checks"][0]["failure"]["rule"], "CORE-2");
}

/// If the report cannot be written, the summary is printed all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_cannot_be_written_costs_no_summary() {
    let provider = Served::start().await;
    let one = "provider/probe-tells-the-boot-id";
    let output = against(&provider, &["--only", one, "--report", "/nowhere/r.json"]).await;
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("1 passed, 0 failed"), "{text}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("--report /nowhere/r.json"), "{error}");
}

fn interrupt(child: &tokio::process::Child) {
    let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_it_with_130() {
    let provider = Served::start().await;
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_provider-conformance"))
        .args(["--endpoint", &provider.endpoint()])
        .args([
            "--only",
            "core/answers-on-a-new-connection",
            "--only",
            "core/memory-does-not-grow-with-calls",
            "--soak",
            "1h",
        ])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = tokio::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let first = soon("the first check", lines.next_line()).await;
    assert!(first.unwrap().unwrap().starts_with("pass  core/answers"));
    interrupt(&child);
    let status = soon("its end", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(130));
}

/// Waits until the file has this many lines, and returns the first one.
async fn lines(file: &Path, count: usize) -> String {
    let written = async {
        loop {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if text.matches('\n').count() >= count {
                return text.lines().next().unwrap().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(&format!("{count} lines in {}", file.display()), written).await
}

/// Waits until the suite and the group of the provider's process have ended.
async fn ends_with_the_provider(mut child: tokio::process::Child, group: &str) {
    let status = soon("its end", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(130));
    let group = Pid::from_raw(group.parse().unwrap()).unwrap();
    let ended = async {
        while rustix::process::test_kill_process_group(group).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("the provider's end", ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_before_the_first_check_ends_it_and_the_provider() {
    let directory = tempfile::tempdir().unwrap();
    let started = directory.path().join("started");
    // It never serves, so the suite waits for it.
    let line = format!("echo $$ >'{}'; sleep 600", started.display());
    let child = tokio::process::Command::new(env!("CARGO_BIN_EXE_provider-conformance"))
        .args(["--command", &line])
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let group = lines(&started, 1).await;
    interrupt(&child);
    ends_with_the_provider(child, &group).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_ctrl_c_ends_the_provider_too() {
    let provider = Served::start().await;
    let directory = tempfile::tempdir().unwrap();
    let started = directory.path().join("started");
    let line = format!(
        "echo $$ >'{}'; socket=${{CLOUD_PROVIDER_ENDPOINT#unix://}}; mkdir -p \"${{socket%/*}}\"; ln -s '{}' \"$socket\"; sleep 600",
        started.display(),
        provider.path.display()
    );
    // The check calls this hook, and so does the clean-up.
    let called = directory.path().join("called");
    let hook = format!("echo $CODE >>'{}'; exec sleep 600", called.display());
    let config = directory.path().join("suite.yaml");
    std::fs::write(&config, format!("hooks:\n  cloud-fail: {hook:?}\n")).unwrap();
    let child = tokio::process::Command::new(env!("CARGO_BIN_EXE_provider-conformance"))
        .args(["--command", &line, "--config", config.to_str().unwrap()])
        .args(["--only", "core/a-throttled-cloud-is-throttled"])
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let group = lines(&started, 1).await;
    for count in [1, 2] {
        lines(&called, count).await;
        interrupt(&child);
    }
    ends_with_the_provider(child, &group).await;
}
