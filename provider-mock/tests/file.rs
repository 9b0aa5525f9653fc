//! `provider-mock file`, the weather, and the count of all writes, which a reset does not change.
//! The hooks of a conformance run use them.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use cloud_provider_api::v1alpha1 as pb;
use common::{World, cluster, cut_on_arrival, dial, service};
use pb::ensure_load_balancer_response::Outcome as Ensured;
use provider_mock::{Cloud, Fixture, Mock, Power, Weather};
use provider_sdk::FailureCode;

fn file(state: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_provider-mock"))
        .args(["file", "--state"])
        .arg(state)
        .args(args)
        .output()
        .unwrap()
}

fn text(state: &Path, args: &[&str]) -> String {
    let output = file(state, args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn error(state: &Path, args: &[&str]) -> String {
    let output = file(state, args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn state_in(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("cloud.json")
}

#[test]
fn what_is_done_to_the_file_is_there_when_a_mock_opens_it() {
    let directory = tempfile::tempdir().unwrap();
    let state = state_in(&directory);
    assert_eq!(
        text(&state, &["instance", "add", "a", "--zone", "z"]),
        "mock://z/a\n"
    );
    assert_eq!(
        text(&state, &["--prefix", "py://", "instance", "add", "b"]),
        "py://b\n"
    );
    text(&state, &["instance", "add", "c"]);
    assert_eq!(text(&state, &["instance", "stop", "a"]), "");
    text(&state, &["instance", "stop", "b"]);
    text(&state, &["instance", "start", "b"]);
    text(&state, &["instance", "remove", "c"]);
    assert_eq!(
        text(&state, &["load-balancer", "add-unmarked", "by-hand"]),
        "lb-1\n"
    );
    text(
        &state,
        &[
            "route",
            "add-unmarked",
            "r",
            "10.0.1.0/24",
            "--provider-id",
            "mock://z/a",
        ],
    );
    text(
        &state,
        &[
            "route",
            "add-blackhole",
            "b",
            "10.0.2.0/24",
            "--owner-id",
            "us",
        ],
    );
    for (what, name) in [("load-balancer", "more"), ("route", "more")] {
        let mut add = vec![what, "add-unmarked", name];
        add.extend((what == "route").then_some("10.0.3.0/24"));
        let printed = text(&state, &add);
        let handle = if what == "route" {
            name
        } else {
            printed.trim()
        };
        text(&state, &[what, "remove", handle]);
    }
    let cloud = Cloud::open(Fixture::default(), Some(&state)).unwrap();
    let seen: Vec<_> = cloud
        .instances()
        .into_iter()
        .map(|instance| (instance.name, instance.power))
        .collect();
    assert_eq!(
        seen,
        [("a".into(), Power::Stopped), ("b".into(), Power::Running)]
    );
    let load_balancers = cloud.load_balancers();
    assert_eq!((load_balancers.len(), &load_balancers[0].owner), (1, &None));
    let routes = cloud.routes();
    assert_eq!(routes.len(), 2);
    assert_eq!(routes[0].owner_id.as_deref(), Some("us"));
    assert_eq!(routes[0].provider_id.as_deref(), Some("mock://gone/b"));
    assert_eq!((routes[1].name.as_str(), &routes[1].owner_id), ("r", &None));
    assert_eq!(cloud.all_writes(), 0, "nobody wrote through a provider");
    drop(cloud);
    assert!(text(&state, &["instance", "list"]).contains("mock://z/a"));
    assert!(text(&state, &["--json", "route", "list"]).contains("\"10.0.2.0/24\""));
}

#[test]
fn what_is_wrong_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let state = state_in(&directory);
    for (args, words) in [
        (&["instance", "stop", "nobody"][..], &["nobody"][..]),
        (&["fail", "SLEEPY"], &["SLEEPY", "THROTTLED", "NONE"]),
        (&["slow", "fast"], &["fast"]),
        (
            &["route", "add-unmarked", "r", "10.0.1.0"],
            &["10.0.1.0", "/24"],
        ),
    ] {
        let error = error(&state, args);
        for word in words {
            assert!(error.contains(word), "{args:?}: {error}");
        }
    }
    let output = Command::new(env!("CARGO_BIN_EXE_provider-mock"))
        .args(["file", "writes"])
        .output()
        .unwrap();
    let missing = String::from_utf8_lossy(&output.stderr);
    assert!(missing.contains("--state"), "{missing}");
}

#[test]
fn a_file_that_a_mock_serves_is_waited_for_and_then_refused() {
    let directory = tempfile::tempdir().unwrap();
    let state = state_in(&directory);
    let cloud = Cloud::open(Fixture::default(), Some(&state)).unwrap();
    let since = Instant::now();
    let error = error(&state, &["instance", "add", "a"]);
    assert!(error.contains("cloud.json.lock"), "{error}");
    assert!(since.elapsed() >= Duration::from_secs(5));
    drop(cloud);
    text(&state, &["instance", "add", "a"]);
}

#[test]
fn the_weather_stands_beside_the_state_file() {
    let directory = tempfile::tempdir().unwrap();
    let state = state_in(&directory);
    let weather = || std::fs::read_to_string(state.with_file_name("cloud.json.weather.json"));
    text(&state, &["fail", "THROTTLED"]);
    text(&state, &["slow", "250"]);
    assert_eq!(weather().unwrap(), r#"{"fail":"THROTTLED","slow_ms":250}"#);
    text(&state, &["fail", "NONE"]);
    assert_eq!(weather().unwrap(), r#"{"fail":null,"slow_ms":250}"#);
    std::fs::write(state.with_file_name("cloud.json.weather.json"), "{}").unwrap();
    text(&state, &["slow", "0"]);
    assert_eq!(weather().unwrap(), r#"{"fail":null,"slow_ms":0}"#);
}

#[tokio::test]
async fn all_writes_are_counted_across_resets_and_providers() {
    let directory = tempfile::tempdir().unwrap();
    let state = state_in(&directory);
    let mut written = 0;
    for name in ["web", "api"] {
        let socket = directory.path().join("s/provider.sock");
        let mock = Mock::start(Fixture::default(), socket, Some(state.clone()))
            .await
            .unwrap();
        let channel = dial(&mock).await;
        let directory = tempfile::tempdir().unwrap();
        let world = World {
            directory,
            mock,
            channel,
        };
        world.initialize(&[]).await;
        world.ensure(service(name), None, &[]).await;
        world.ensure(service(name), None, &[]).await;
        world.mock.cloud().reset_calls();
        written += 1;
        assert_eq!(world.mock.cloud().all_writes(), written);
    }
    assert_eq!(text(&state, &["writes"]), "2\n");
}

#[tokio::test]
async fn in_bad_weather_everything_that_reaches_the_cloud_fails_and_probe_says_so() {
    let world = World::new("instances: [{name: a}]").await;
    let cloud = world.mock.cloud().clone();
    let probe = || async {
        let answer = world.provider().probe(pb::ProbeRequest {}).await;
        answer.unwrap().into_inner()
    };
    let last = probe().await.last_cloud_success;
    cloud.set_weather(Weather {
        fail: Some(FailureCode::Throttled),
        slow_ms: 0,
    });
    assert_eq!(world.states(&["a"]).await, ["FAILURE_CODE_THROTTLED"]);
    let made = world.ensure(service("web"), None, &[]).await;
    assert!(
        matches!(&made.outcome, Some(Ensured::Failed(failed))
            if failed.code() == pb::FailureCode::Throttled && failed.retry_after.is_some()),
        "{made:?}"
    );
    let request = pb::ListRoutesRequest {
        cluster: cluster("us"),
    };
    let mut listing = world
        .routes()
        .list_routes(request)
        .await
        .unwrap()
        .into_inner();
    let part = listing.message().await.unwrap().unwrap().part;
    assert!(matches!(
        part,
        Some(pb::list_routes_response::Part::Failed(_))
    ));
    let initialize = pb::InitializeRequest {
        cluster: cluster("us"),
        ..Default::default()
    };
    let answer = world
        .provider()
        .initialize(initialize)
        .await
        .unwrap()
        .into_inner();
    assert!(matches!(
        answer.outcome,
        Some(pb::initialize_response::Outcome::Failed(_))
    ));
    let degraded = probe().await;
    assert_eq!(degraded.state(), pb::ProbeState::Degraded);
    assert!(degraded.message.contains("THROTTLED"), "{degraded:?}");
    assert_eq!((degraded.last_cloud_success, cloud.all_writes()), (last, 0));

    let slow = |slow_ms| Weather {
        fail: None,
        slow_ms,
    };
    cloud.set_weather(slow(300));
    let began = Instant::now();
    assert_eq!(world.states(&["a", "b"]).await, ["a=RUNNING", "b=ABSENT"]);
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(probe().await.state(), pb::ProbeState::Ready);
    // A call that is cut during a slow operation of the cloud writes nothing.
    cloud.set_weather(slow(60_000));
    let call = world.ensure(service("web"), None, &[]);
    cut_on_arrival(&cloud, "EnsureLoadBalancer", call).await;
    let ended = |cloud: &Cloud| cloud.call_count("EnsureLoadBalancer") == 2;
    assert!(cloud.wait_until(common::PATIENCE, ended).await);
    cloud.set_weather(Weather::default());
    assert_eq!(cloud.load_balancers(), []);
}
