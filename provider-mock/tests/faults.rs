//! Scripted faults over a real socket.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use common::{PATIENCE, World, cluster, cut_on_arrival, service};
use pb::ensure_load_balancer_response::Outcome as Ensured;
use pb::provider_service_client::ProviderServiceClient;
use provider_mock::{Cloud, Fault, FaultKind, Fixture, KINDS};
use tonic::Code;

const TWO: &str = "instances: [{name: a}, {name: b}]";

fn fault(text: &str) -> Fault {
    let fixture = Fixture::parse(&format!("faults: [{{{text}}}]"), "test.yaml").unwrap();
    fixture.faults[0].clone()
}

#[tokio::test]
async fn answers_are_rewritten() {
    let world = World::new(TWO).await;
    for (text, want) in [
        (
            "kind: failure, failure: {code: BUSY}",
            vec!["FAILURE_CODE_BUSY"],
        ),
        (
            "kind: failure, subject: a, failure: {code: BUSY}",
            vec!["a=BUSY", "b=RUNNING"],
        ),
        (
            "kind: failure-after, failure: {code: BUSY}",
            vec!["FAILURE_CODE_BUSY"],
        ),
        (
            "kind: failure-after, subject: b",
            vec!["a=RUNNING", "b=INTERNAL"],
        ),
        ("kind: results-missing, subject: a", vec!["b=RUNNING"]),
        ("kind: results-missing", vec![]),
        (
            "kind: results-duplicated, subject: a",
            vec!["a=RUNNING", "a=RUNNING", "b=RUNNING"],
        ),
        (
            "kind: results-unasked, value: x",
            vec!["a=RUNNING", "b=RUNNING", "x=RUNNING"],
        ),
        (
            "kind: unset-outcome, subject: a",
            vec!["a=unset", "b=RUNNING"],
        ),
        (
            "kind: instance-state",
            vec!["a=UNSPECIFIED", "b=UNSPECIFIED"],
        ),
        (
            "kind: instance-state, value: ABSENT",
            vec!["a=ABSENT", "b=ABSENT"],
        ),
        (
            "kind: instance-state, value: UNMANAGED, subject: b",
            vec!["a=RUNNING", "b=UNMANAGED"],
        ),
        ("kind: empty-answer", vec![]),
    ] {
        let mut set = fault(text);
        set.rpc = "LookupInstances".into();
        world.mock.cloud().set_fault(set.times(1)).unwrap();
        assert_eq!(world.states(&["a", "b"]).await, want, "{text}");
        assert_eq!(
            world.states(&["a", "b"]).await,
            ["a=RUNNING", "b=RUNNING"],
            "cleared after one call"
        );
    }
    // A fault that applies to the only item.
    world
        .mock
        .cloud()
        .set_fault(fault(
            "rpc: LookupInstances, kind: failure, subject: a, times: 1",
        ))
        .unwrap();
    assert_eq!(world.states(&["a"]).await, ["a=INTERNAL"]);
    world
        .mock
        .cloud()
        .set_fault(Fault::new("LookupInstances", FaultKind::WrongUid).times(1))
        .unwrap();
    assert_eq!(
        world.lookup(&["a"]).await.unwrap().results[0].node_uid,
        "wrong-uid"
    );
    let outcomes: Vec<_> = world
        .mock
        .cloud()
        .calls(None)
        .into_iter()
        .map(|call| call.outcome)
        .collect();
    assert!(
        outcomes.contains(&"failed:BUSY".into()) && outcomes.contains(&"ok, 1 failed".into()),
        "{outcomes:?}"
    );
}

#[tokio::test]
async fn a_fault_with_a_routes_destination_or_node_strikes_its_result() {
    let world = World::new(TWO).await;
    let route = |key: &str, cidr: &str, node: &str| pb::Route {
        route_key: key.into(),
        name: format!("route-{key}"),
        destination_cidr: cidr.into(),
        node_name: Some(node.into()),
        ..Default::default()
    };
    let request = pb::DeleteRoutesRequest {
        cluster: cluster("us"),
        routes: vec![
            route("x", "10.0.1.0/24", "a"),
            route("y", "10.0.2.0/24", "b"),
        ],
    };
    let delete = async || {
        let answer = world.routes().delete_routes(request.clone()).await;
        let results = answer.unwrap().into_inner().results;
        let mut seen: Vec<_> = results
            .into_iter()
            .map(|result| match result.outcome {
                Some(pb::route_result::Outcome::Done(_)) => format!("{}=done", result.route_key),
                Some(pb::route_result::Outcome::Failed(failed)) => {
                    format!("{}={}", result.route_key, failed.code().as_str_name())
                }
                None => format!("{}=unset", result.route_key),
            })
            .collect();
        seen.sort();
        seen
    };
    for subject in ["x", "10.0.1.0/24", "a"] {
        for (kind, want) in [
            ("failure, failure: {code: BUSY}", "x=FAILURE_CODE_BUSY"),
            ("failure-after", "x=FAILURE_CODE_INTERNAL"),
            ("unset-outcome", "x=unset"),
        ] {
            let text = format!("rpc: DeleteRoutes, subject: {subject}, times: 1, kind: {kind}");
            world.mock.cloud().set_fault(fault(&text)).unwrap();
            assert_eq!(delete().await, [want, "y=done"], "{text}");
        }
        let text =
            format!("rpc: DeleteRoutes, subject: {subject}, times: 1, kind: results-missing");
        world.mock.cloud().set_fault(fault(&text)).unwrap();
        assert_eq!(delete().await, ["y=done"], "{text}");
    }
}

#[tokio::test]
async fn statuses_sizes_and_hangs() {
    let world = World::new(TWO).await;
    let cloud = world.mock.cloud();
    for (set, want) in [
        (
            Fault::status("LookupInstances", Code::Unavailable),
            Code::Unavailable,
        ),
        (
            fault("kind: status-after, status: INTERNAL"),
            Code::Internal,
        ),
        (Fault::new("*", FaultKind::Oversized), Code::OutOfRange),
        (Fault::new("*", FaultKind::NoAnswer), Code::Internal),
        (Fault::new("*", FaultKind::Garbage), Code::Internal),
    ] {
        let kind = set.kind;
        cloud.set_fault(set).unwrap();
        assert_eq!(
            world.lookup(&["a"]).await.unwrap_err().code(),
            want,
            "{kind}"
        );
        cloud.clear_faults();
    }
    cloud
        .set_fault(Fault::new("LookupInstances", FaultKind::Hang))
        .unwrap();
    cut_on_arrival(cloud, "LookupInstances", world.lookup(&["a"])).await;
    assert!(
        cloud
            .wait_until(PATIENCE, |cloud| cloud.in_flight("LookupInstances") == 0)
            .await
    );
    assert_eq!(
        cloud.calls(Some("LookupInstances")).pop().unwrap().outcome,
        "cancelled"
    );
}

#[tokio::test]
async fn a_crash_after_the_effect_leaves_it() {
    let world = World::new(TWO).await;
    let cloud = world.mock.cloud();
    cloud
        .set_fault(Fault::new("EnsureLoadBalancer", FaultKind::CrashAfter))
        .unwrap();
    let request = pb::EnsureLoadBalancerRequest {
        cluster: cluster("us"),
        service: Some(service("web")),
        ..Default::default()
    };
    let cut = world.load_balancers().ensure_load_balancer(request).await;
    assert!(cut.is_err());
    assert!(!world.mock.is_running());
    assert_eq!(cloud.load_balancers().len(), 1);
    cloud.clear_faults();
    world.mock.restart().await.unwrap();
    let world = World {
        channel: common::dial(&world.mock).await,
        ..world
    };
    world.initialize(&[]).await;
    assert!(matches!(
        world.ensure(service("web"), None, &[]).await.outcome,
        Some(Ensured::Ready(_))
    ));
    assert_eq!(
        world.mock.cloud().cloud_writes(),
        1,
        "it is found again by its mark"
    );
}

#[tokio::test]
async fn a_provider_that_is_a_process_outlives_a_cut_of_its_connections() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = format!("unix://{}", directory.path().join("s/p.sock").display());
    let cloud = Cloud::open(Fixture::default(), None).unwrap();
    cloud
        .set_fault(Fault::new("Probe", FaultKind::Disconnect).times(1))
        .unwrap();
    let at = endpoint.clone();
    let process = tokio::spawn(async move { provider_mock::serve(cloud, &at).await });
    let dial = async || loop {
        if let Ok(channel) = provider_mock::ctl::dial(&endpoint).await {
            return ProviderServiceClient::new(channel);
        }
        tokio::task::yield_now().await;
    };
    let dial = async || tokio::time::timeout(PATIENCE, dial()).await.unwrap();
    let mut one = dial().await;
    let cut = one.probe(pb::ProbeRequest {}).await.unwrap_err();
    assert_ne!(cut.code(), Code::Ok, "{cut}");
    // The provider still serves: a new connection gets its answer.
    let mut next = dial().await;
    next.probe(pb::ProbeRequest {}).await.unwrap();
    assert!(!process.is_finished());
    process.abort();
}

#[tokio::test]
async fn the_provider_itself_can_lie() {
    let world = World::new(TWO).await;
    let cloud = world.mock.cloud();
    for text in [
        "rpc: GetProviderInfo, kind: contract-minor, value: \"7\"",
        "rpc: GetProviderInfo, kind: min-controller-minor, value: \"8\"",
        "rpc: GetProviderInfo, kind: boot-id, value: other",
        "rpc: GetProviderInfo, kind: load-balancer-class, value: example.com/others",
        "rpc: Probe, kind: probe-state, value: BROKEN",
        "rpc: Initialize, kind: cloud-scope, value: elsewhere",
    ] {
        cloud.set_fault(fault(text)).unwrap();
    }
    let info = world
        .provider()
        .get_provider_info(pb::GetProviderInfoRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (
            info.contract_minor,
            info.min_controller_minor,
            info.boot_id.as_str()
        ),
        (7, 8, "other")
    );
    let offer = info.capabilities.unwrap().load_balancers.unwrap();
    assert!(offer.classes.contains(&"example.com/others".to_owned()));
    let probe = world
        .provider()
        .probe(pb::ProbeRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(probe.state(), pb::ProbeState::Broken);
    let request = pb::InitializeRequest {
        cluster: cluster("us"),
        ..Default::default()
    };
    let done = world
        .provider()
        .initialize(request)
        .await
        .unwrap()
        .into_inner();
    let Some(pb::initialize_response::Outcome::Initialized(done)) = done.outcome else {
        panic!()
    };
    assert_eq!(done.cloud_scope, "elsewhere");

    cloud.forget_initialize();
    assert_eq!(world.states(&["a"]).await, ["FAILURE_CODE_NOT_INITIALIZED"]);
    // The stream has `failed`, and ends (PROV-6).
    let request = pb::WatchChangesRequest {
        cluster: cluster("us"),
        ..Default::default()
    };
    let answer = world.provider().watch_changes(request).await;
    let mut stream = answer.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    let Some(pb::watch_changes_response::Change::Failed(failed)) = first.change else {
        panic!()
    };
    assert_eq!(failed.code(), pb::FailureCode::NotInitialized);
    assert_eq!(stream.message().await.unwrap(), None);
    world.initialize(&[]).await;
    assert_eq!(world.states(&["a"]).await, ["a=RUNNING"]);
}

#[tokio::test]
async fn listings_break_off() {
    let world = World::new(TWO).await;
    for (kind, want) in [
        (FaultKind::EndMissing, "ab"),
        (FaultKind::WrongTotal, "ab3"),
        (FaultKind::ListEmpty, "0"),
        (FaultKind::FailedMidway, "ab!"),
        (FaultKind::FailureAfter, "!"),
        (FaultKind::Failure, "!"),
    ] {
        world
            .mock
            .cloud()
            .set_fault(Fault::new("ListInstances", kind).times(1))
            .unwrap();
        let request = pb::ListInstancesRequest {
            cluster: cluster("us"),
            facets: vec![3],
        };
        let mut parts = world
            .instances()
            .list_instances(request)
            .await
            .unwrap()
            .into_inner();
        let mut seen = String::new();
        while let Some(part) = parts.message().await.unwrap() {
            match part.part {
                Some(pb::list_instances_response::Part::Instances(list)) => {
                    seen.extend(
                        list.instances
                            .iter()
                            .map(|i| i.provider_id().replace("mock://", "")),
                    );
                }
                Some(pb::list_instances_response::Part::End(end)) => seen += &end.total.to_string(),
                Some(pb::list_instances_response::Part::Failed(_)) => seen += "!",
                None => seen += "?",
            }
        }
        assert_eq!(seen, want, "{kind}");
    }
}

#[test]
fn every_kind_can_be_set_for_all_rpcs() {
    let cloud = provider_mock::Cloud::new(Fixture::default()).unwrap();
    for row in KINDS {
        let mut set = Fault::new("*", row.kind);
        set.delay = Some(Duration::from_millis(1).into());
        cloud.set_fault(set).unwrap();
    }
    assert_eq!(cloud.faults().len(), KINDS.len());
}
