//! Strangers on the Node: processes beside the Pod in its network, which keep the HTTPS port's
//! connections open.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use testenv::{Process, User};
use tokio::task::JoinSet;

use crate::callers::{HALF_HELLO, IN_TIME, Sends, connector, silent, time_of_99_in_100_probes};
use crate::images::Image;
use crate::inside::Inside;
use crate::one_node::one_pod;
use crate::world::{World, id};

/// The ccm's HTTPS port.
const PORT: u16 = 10258;
/// The environment variable of a process on the Node: its role.
const ROLE: &str = "CCM_E2E_AT_THE_PORT";
const STRANGERS: &str = "strangers";
const MEASURES: &str = "measures";
/// The number of strangers of each kind: silent from the beginning, silent in the middle of the
/// handshake, and silent after the handshake.
const OF_EACH: u8 = 200;
/// Strangers end by themselves after this time.
const LIFE: Duration = Duration::from_mins(15);
const MIB: u64 = 1 << 20;

/// `at_the_port_of` runs this test on the Node. Without its variable the test does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_port() {
    match std::env::var(ROLE).as_deref() {
        Ok(STRANGERS) => {
            let mut strangers = JoinSet::new();
            for number in 0..OF_EACH {
                let shaken = Sends::Handshake(connector(None));
                strangers.spawn(silent([127, 0, 1, number], PORT, Sends::Bytes(b"")));
                strangers.spawn(silent([127, 0, 2, number], PORT, Sends::Bytes(HALF_HELLO)));
                strangers.spawn(silent([127, 0, 3, number], PORT, shaken));
            }
            let _ = tokio::time::timeout(LIFE, strangers.join_all()).await;
        }
        Ok(MEASURES) => {
            let late = time_of_99_in_100_probes(PORT, User::Admin.token()).await;
            assert!(late < IN_TIME, "{late:?}");
        }
        _ => {}
    }
}

/// Runs the test `at_the_port` as a process in the network of a container.
fn at_the_port_of(ccm: &Inside, role: &str, directory: &Path) -> Process {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", ccm.network().display()))
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "strangers::at_the_port", "--nocapture"])
        .env(ROLE, role);
    Process::start(command, directory.join(format!("{role}.log"))).unwrap()
}

/// 600 connections of strangers cost neither the Pod's readiness, nor more than one of 100 probes
/// beside them, nor a scrape, nor the Lease.
pub async fn at_the_https_port(world: &mut World) {
    let before = one_pod(world, Image::Mock).await;
    let pod = before.name_any();
    let ccm = Inside::of(&before, "ccm");
    let base = ccm.resident_bytes_from_here();
    let directory = world.cluster.directory().to_owned();

    world.report.start();
    let mut strangers = at_the_port_of(&ccm, STRANGERS, &directory);
    let full = "the HTTPS port is full: the ccm closes an older connection";
    world.said(&pod, "ccm", full).await;
    world.report.lap("600 strangers to a full HTTPS port");
    let mut measures = at_the_port_of(&ccm, MEASURES, &directory);
    let ended = measures.wait(LIFE).await.unwrap();
    assert!(ended.success(), "{}", measures.log());
    world
        .report
        .lap("100 probes and 5 scrapes that are answered in time meanwhile");
    // The kubelet probes readiness every 5 s and liveness every 10 s.
    world.renewals(6).await;
    assert!(strangers.exit_status().is_none(), "{}", strangers.log());
    strangers.kill();
    world.report.lap("6 renewals of the Lease meanwhile");

    let failed = failed_probes(world, &pod);
    eprint!("failed probes of this Pod since it began:\n{failed}");
    let after = one_pod(world, Image::Mock).await;
    // On a busy machine the kubelet may lose one probe; after three in sequence this time changes.
    assert_eq!(ready_since(&after), ready_since(&before), "{failed}");
    assert_goes_on(world, &before).await;
    let added = ccm.most_resident_bytes().saturating_sub(base);
    eprintln!("600 strangers: {} MiB over {} MiB", added / MIB, base / MIB);
    assert!(added < 64 * MIB, "{added}");
}

/// Checks that the Pod is ready, and that the same processes run in it.
pub async fn assert_goes_on(world: &World, before: &Pod) {
    let after = one_pod(world, Image::Mock).await;
    for container in ["ccm", "provider"] {
        assert_eq!(id(&after, container), id(before, container), "{container}");
    }
}

/// When the kubelet last changed the Pod's condition `Ready`.
fn ready_since(pod: &Pod) -> Time {
    let mut conditions = pod
        .status
        .iter()
        .flat_map(|it| it.conditions.iter().flatten());
    let ready = conditions.find(|it| it.type_ == "Ready").unwrap();
    ready.last_transition_time.clone().unwrap()
}

/// The kubelet's events about failed probes of the Pod: how often, and the message.
fn failed_probes(world: &World, pod: &str) -> String {
    world.kubectl(&[
        "get",
        "events",
        &format!("--field-selector=involvedObject.name={pod},reason=Unhealthy"),
        "--output=jsonpath={range .items[*]}{.count} x {.message}{\"\\n\"}{end}",
    ])
}
