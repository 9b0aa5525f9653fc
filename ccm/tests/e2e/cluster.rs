//! The cluster itself: nothing of this repository runs in it yet.

use std::process::Command;

use testenv::{Cluster, Leftovers, Options, Process, eventually};

use crate::world::{PATIENCE, alone};

/// The environment variable of `victim`. Its value is a directory.
const VICTIM: &str = "CCM_E2E_VICTIM";

/// The next test runs this one in another process and kills it. Without the variable it does
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim() {
    let Ok(directory) = std::env::var(VICTIM) else {
        return;
    };
    let mut cluster = Cluster::start(&["node-a"], Options::default())
        .await
        .unwrap();
    cluster.boot("node-a", &[]).await.unwrap();
    std::fs::write(
        format!("{directory}/cluster"),
        cluster.directory().display().to_string(),
    )
    .unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_that_is_killed_leaves_no_process_mount_cgroup_or_interface() {
    let _alone = alone().await;
    let before = Leftovers::now(&[]);
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "cluster::victim", "--nocapture"])
        .env(VICTIM, directory.path());
    let mut victim = Process::start(command, directory.path().join("log")).unwrap();
    let cluster = eventually("its cluster runs", PATIENCE, async || {
        let told = std::fs::read_to_string(directory.path().join("cluster"));
        told.ok()
            .filter(|path| !path.is_empty())
            .ok_or_else(|| victim.log())
    })
    .await;
    let cluster = [cluster.into()];
    let running = Leftovers::now(&cluster).since(&before);
    assert!(
        running.iter().any(|one| one.contains("containerd"))
            && running.iter().any(|one| one.starts_with("left: cgroup")),
        "the check would find such leftovers: {running:#?}"
    );
    victim.kill();
    drop(victim);
    eventually("nothing is left", PATIENCE, async || {
        let left = Leftovers::now(&cluster).since(&before);
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:#?}"))
        }
    })
    .await;
}
