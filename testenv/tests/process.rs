//! A handle controls its child process, and the child does not outlive the handle.

use std::{fs, process::Command, time::Duration};

use testenv::{ControlPlane, Error, Process, eventually};

const SOON: Duration = Duration::from_secs(10);

fn sh(script: &str, directory: &tempfile::TempDir) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Process::start(command, directory.path().join("log")).expect("sh can be started")
}

/// The state letter of a process (`R`, `S`, `T`, `Z`, …), `None` when there is no such process.
fn state(pid: u32) -> Option<char> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let state = status
        .lines()
        .find_map(|line| line.strip_prefix("State:"))?;
    state.trim_start().chars().next()
}

/// Whether the process has ended. A zombie has ended too: its parent has not waited for it yet.
fn has_ended(pid: u32) -> bool {
    matches!(state(pid), None | Some('Z'))
}

#[tokio::test]
async fn output_and_exit_code_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = sh("echo out; echo err >&2; exit 3", &directory);
    let status = process.wait(SOON).await.unwrap();
    assert_eq!(status.code(), Some(3));
    assert_eq!(process.log(), "out\nerr\n");
    process.kill();
    assert_eq!(process.exit_status(), Some(status));
}

#[tokio::test]
async fn waiting_has_an_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = sh("exec sleep 60", &directory);
    let error = process.wait(Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(error, Error::StillRuns { .. }), "{error}");
    assert!(error.to_string().starts_with("sh (pid "), "{error}");
}

#[tokio::test]
async fn a_signal_can_be_caught_and_a_kill_cannot() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = sh(
        "trap 'echo caught; exit 0' TERM; echo ready; while :; do sleep 0.01; done",
        &directory,
    );
    eventually("the trap is set", SOON, async || {
        process.log().contains("ready").then_some(())
    })
    .await;

    process.suspend();
    assert_eq!(state(process.pid()), Some('T'));
    // A second `suspend` returns, and SIGTERM ends the process after it is resumed.
    process.suspend();
    process.terminate();
    process.resume();
    let status = process.wait(SOON).await.unwrap();
    assert!(status.success(), "{status}");
    assert!(process.log().ends_with("caught\n"));

    let mut process = sh("exec sleep 60", &directory);
    process.kill();
    assert!(
        process
            .exit_status()
            .is_some_and(|status| !status.success())
    );
}

#[tokio::test]
async fn a_panic_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let process = sh("exec sleep 60", &directory);
    let pid = process.pid();
    let test = tokio::spawn(async move {
        let _process = process;
        panic!("as a failing test");
    });
    assert!(test.await.unwrap_err().is_panic());
    assert!(has_ended(pid));
}

/// If this variable is set, the test below is a process that another test kills.
const VICTIM: &str = "TESTENV_TEST_VICTIM";

#[tokio::test]
#[ignore = "is started by the_control_plane_dies_with_us, to be killed"]
async fn victim() {
    let Ok(way) = std::env::var(VICTIM) else {
        return;
    };
    let mut control_plane = ControlPlane::start().await.unwrap();
    if way == "suspended" {
        control_plane.suspend_api_server();
    }
    println!("directory {}", control_plane.directory().display());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn the_control_plane_dies_with_us() {
    for way in ["running", "suspended"] {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "victim", "--ignored", "--nocapture"])
            .env(VICTIM, way);
        let mut victim = Process::start(command, directory.path().join("log")).unwrap();
        let left = eventually("the victim has a control plane", 9 * SOON, async || {
            let log = victim.log();
            let line = log.lines().find_map(|line| line.strip_prefix("directory "));
            line.map(str::to_owned).ok_or(log.clone())
        })
        .await;
        let children = children(victim.pid());
        assert_eq!(children.len(), 2, "etcd and kube-apiserver");

        victim.kill();
        eventually("both have ended", SOON, async || {
            let states: Vec<_> = children.iter().map(|&pid| (pid, state(pid))).collect();
            if children.iter().all(|&pid| has_ended(pid)) {
                Ok(())
            } else {
                Err(format!("{way}: {states:?}"))
            }
        })
        .await;

        // The killed process could not remove its directory. The next control plane removes it.
        drop(ControlPlane::start().await.unwrap());
        assert!(!fs::exists(left).unwrap());
    }
}

fn children(parent: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).expect("it runs");
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
            pids.collect::<Vec<u32>>()
        })
        .collect()
}
