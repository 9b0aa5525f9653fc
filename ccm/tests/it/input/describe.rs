//! `kubectl describe` explains a waiting Node or Service within a minute (▲N13, ▲S18).

use std::time::Duration;

use kube::api::DeleteParams;
use provider_mock::fixture::FailureSpec;
use provider_mock::{Fault, FaultKind, Fixture};
use provider_sdk::FailureCode;
use testenv::eventually;
use testenv::objects::NodeBuilder;
use tokio::time::Instant;

use crate::world::{World, balancer};

const MINUTE: Duration = Duration::from_mins(1);

/// The lines under `Events:`.
async fn describe(world: &World, kind: &str, name: &str) -> Result<String, String> {
    let mut kubectl = world.plane.kubectl();
    kubectl.args(["describe", kind, name]);
    // The mock, whose Probes have a limit of 5 s, runs in this thread.
    let output = tokio::task::spawn_blocking(move || kubectl.output());
    let output = output.await.unwrap().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, events) = text.split_once("Events:").ok_or(text.clone())?;
    Ok(events.to_owned())
}

/// Waits until one line of the description's events has all these words; no longer than a minute
/// after `began`.
async fn tells(world: &World, began: Instant, kind: &str, name: &str, words: &[&str]) {
    let left = MINUTE.saturating_sub(began.elapsed());
    eventually(
        &format!("{kind} {name} tells {words:?}"),
        left,
        async || {
            let events = describe(world, kind, name).await?;
            let told = events
                .lines()
                .any(|line| words.iter().all(|word| line.contains(word)));
            told.then_some(()).ok_or(events)
        },
    )
    .await;
}

fn failure(rpc: &str, code: FailureCode, subject: &str, message: &str) -> Fault {
    let spec = FailureSpec {
        message: Some(message.to_owned()),
        ..FailureSpec::new(code)
    };
    let fault = Fault::new(rpc, FaultKind::Failure);
    fault.subject(subject).with_failure(spec)
}

const NEXT: &str = "next try at 20";
const ASKED: [&str; 2] = [
    "from LookupInstances of provider mock for the name \"",
    "from EnsureLoadBalancer of provider mock, attempt ",
];

/// The kind and name of an object, and what `kubectl describe` shows of it.
const TOLD: &[(&str, &str, &[&str; 5])] = &[
    (
        "node",
        "quota",
        &[
            "Warning  NodeNotInitialized",
            "no quota left in zone-1",
            "PRECONDITION",
            ASKED[0],
            NEXT,
        ],
    ),
    (
        "service",
        "no-subnet",
        &[
            "Warning  SyncLoadBalancerFailed",
            "Error syncing load balancer: failed to ensure load balancer: there is no subnet in zone-1",
            "PRECONDITION",
            ASKED[1],
            NEXT,
        ],
    ),
    (
        "node",
        "down",
        &[
            "Warning  NodeNotInitialized",
            "the cloud is on fire",
            "UNAVAILABLE",
            ASKED[0],
            NEXT,
        ],
    ),
    (
        "service",
        "down",
        &[
            "Warning  SyncLoadBalancerFailed",
            "the cloud is on fire",
            "UNAVAILABLE",
            ASKED[1],
            NEXT,
        ],
    ),
    (
        "service",
        "hangs",
        &[
            "Warning  LoadBalancerPending",
            "provider mock has not answered EnsureLoadBalancer yet",
            "it was asked at 20",
            "",
            "",
        ],
    ),
    (
        "service",
        "deleted",
        &[
            "Warning  SyncLoadBalancerFailed",
            "failed to delete load balancer: it is still in use",
            "UNAVAILABLE",
            "from DeleteLoadBalancer of provider mock, attempt ",
            NEXT,
        ],
    ),
];

#[tokio::test]
async fn n13_s18_kubectl_describe_tells_what_was_answered_and_when_the_next_try_is() {
    use FailureCode::{Precondition, Unavailable};
    let mut world = World::new(Fixture::default()).await;
    let _ccm = world.ccm(&[]);
    world.leader().await;
    world.create_service(balancer("deleted")).await;
    world.shows_address("deleted").await;
    for fault in [
        failure(
            "LookupInstances",
            Precondition,
            "quota",
            "no quota left in zone-1",
        ),
        failure(
            "LookupInstances",
            Unavailable,
            "down",
            "the cloud is on fire",
        ),
        failure(
            "EnsureLoadBalancer",
            Precondition,
            "default/no-subnet",
            "there is no subnet in zone-1",
        ),
        failure(
            "EnsureLoadBalancer",
            Unavailable,
            "default/down",
            "the cloud is on fire",
        ),
        failure(
            "DeleteLoadBalancer",
            Unavailable,
            "default/deleted",
            "it is still in use",
        ),
        Fault::new("EnsureLoadBalancer", FaultKind::Hang).subject("default/hangs"),
    ] {
        world.cloud().set_fault(fault).unwrap();
    }
    let began = Instant::now();
    for name in ["quota", "down"] {
        world.join(name).await;
    }
    for name in ["no-subnet", "down", "hangs"] {
        world.create_service(balancer(name)).await;
    }
    let deleted = world.services();
    deleted
        .delete("deleted", &DeleteParams::default())
        .await
        .unwrap();
    for (kind, name, words) in TOLD {
        tells(&world, began, kind, name, *words).await;
    }
    // Each object has one line, however often the ccm tried: a repeat changes the Event that
    // exists.
    for (kind, name, reason) in [
        ("node", "quota", "NodeNotInitialized"),
        ("service", "no-subnet", "SyncLoadBalancerFailed"),
    ] {
        let events = describe(&world, kind, name).await.unwrap();
        let lines = events.lines().filter(|line| line.contains(reason));
        assert_eq!(lines.count(), 1, "{events}");
    }
}

#[tokio::test]
async fn n13_kubectl_describe_tells_that_the_provider_is_away() {
    let mut world = World::new(Fixture::default()).await;
    let ccm = world.ccm(&["--logging-format=json"]);
    world.leader().await;
    world.join("early").await;
    world.initialised("early").await;
    world.create_service(balancer("before")).await;
    world.shows_address("before").await;
    world.mock.shutdown().await;
    let began = Instant::now();
    world
        .register(NodeBuilder::new("late").uninitialized())
        .await;
    world.create_service(balancer("late")).await;
    for (kind, reason) in [
        ("node", "Warning  NodeNotInitialized"),
        ("service", "Warning  LoadBalancerPending"),
    ] {
        let words = [
            reason,
            "provider mock is not available: ",
            "next try as soon as the provider is available",
        ];
        tells(&world, began, kind, "late", &words).await;
    }
    // The log is JSON here: one object a line, with a field for each fact that an operator searches
    // for.
    let log = ccm.log();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for (message, kind, name, rpc) in [
        (
            "ensured load balancer",
            "service",
            "default/before",
            "EnsureLoadBalancer",
        ),
        ("Node initialised", "node", "early", "LookupInstances"),
    ] {
        let line = lines
            .iter()
            .find(|line| line["message"] == message)
            .unwrap_or_else(|| panic!("{message}: {log}"));
        assert!(
            line["took_ms"].is_u64() && line["timestamp"].is_string(),
            "{line}"
        );
        for (field, value) in [
            ("level", "INFO"),
            (kind, name),
            ("provider", "mock"),
            ("rpc", rpc),
        ] {
            assert_eq!(line[field], value, "{line}");
        }
        assert_eq!(line["attempt"], 1, "{line}");
    }
}
