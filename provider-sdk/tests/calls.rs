//! What becomes of one call: mapped, isolated, cancelled, limited.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests may fail by panic as tests do"
)]

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};

use cloud_provider_api::v1alpha1 as pb;
use common::{Running, cluster, code, ensure, named_cluster, node, soon};
use futures::StreamExt;
use pb::ensure_load_balancer_response::Outcome as Ensured;
use pb::lookup_instance_result::Outcome as Looked;
use tonic::Code;

/// The log of this test process.
fn log() -> Arc<Mutex<Vec<u8>>> {
    #[derive(Clone)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl Write for Sink {
        fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(data);
            Ok(data.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    static LOG: OnceLock<Arc<Mutex<Vec<u8>>>> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let sink = Sink(log.clone());
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || sink.clone())
            .init();
        log
    })
    .clone()
}

fn logged(parts: &[&str]) -> bool {
    let text = String::from_utf8_lossy(&log().lock().unwrap()).into_owned();
    text.lines()
        .any(|line| parts.iter().all(|part| line.contains(part)))
}

fn outcome<'a>(response: &'a pb::LookupInstancesResponse, name: &str) -> &'a Looked {
    let result = response
        .results
        .iter()
        .find(|result| result.node_name == name)
        .unwrap();
    assert_eq!(result.node_uid, format!("uid-{name}"));
    result.outcome.as_ref().unwrap()
}

fn failed(outcome: &Looked) -> &pb::Failure {
    match outcome {
        Looked::Failed(failure) => failure,
        Looked::Found(found) => panic!("{found:?}"),
    }
}

#[tokio::test]
async fn before_initialize_every_call_for_a_cluster_is_not_initialized() {
    let running = Running::start().await;
    let response = running.lookup(&["a"]).await;
    assert_eq!(
        code(response.failed.as_ref()),
        pb::FailureCode::NotInitialized
    );
    let Some(Ensured::Failed(failure)) = running.ensure("a").await.unwrap().outcome else {
        panic!("not failed")
    };
    assert_eq!(failure.code(), pb::FailureCode::NotInitialized);
    let routes = pb::ListRoutesRequest { cluster: cluster() };
    let mut stream = running
        .routes()
        .await
        .list_routes(routes)
        .await
        .unwrap()
        .into_inner();
    let Some(pb::list_routes_response::Part::Failed(failure)) =
        stream.message().await.unwrap().unwrap().part
    else {
        panic!("not failed")
    };
    assert_eq!(failure.code(), pb::FailureCode::NotInitialized);
    let watch = pb::WatchChangesRequest {
        cluster: cluster(),
        resume_token: String::new(),
    };
    let mut hints = running
        .provider()
        .await
        .watch_changes(watch)
        .await
        .unwrap()
        .into_inner();
    let Some(pb::watch_changes_response::Change::Failed(failure)) =
        hints.message().await.unwrap().unwrap().change
    else {
        panic!("not failed")
    };
    assert_eq!(failure.code(), pb::FailureCode::NotInitialized);

    // An Initialize that fails changes nothing; one that succeeds does.
    let refused = pb::InitializeRequest {
        cluster: named_cluster("refused"),
        ..Default::default()
    };
    let answer = running
        .provider()
        .await
        .initialize(refused)
        .await
        .unwrap()
        .into_inner();
    let Some(pb::initialize_response::Outcome::Failed(failure)) = answer.outcome else {
        panic!("not failed")
    };
    assert_eq!(failure.code(), pb::FailureCode::Credentials);
    assert!(running.lookup(&["a"]).await.failed.is_some());
    running.initialize().await;
    assert!(running.lookup(&["a"]).await.failed.is_none());
}

#[tokio::test]
async fn a_request_for_another_cluster_or_none_does_not_pass() {
    let running = Running::initialized().await;
    for (cluster, expected) in [
        (None, pb::FailureCode::Invalid),
        (
            Some(pb::ClusterRef {
                name: "test".into(),
                owner_id: "owner-2".into(),
            }),
            pb::FailureCode::NotInitialized,
        ),
    ] {
        let request = pb::LookupInstancesRequest {
            cluster,
            ..Default::default()
        };
        let response = running
            .instances()
            .await
            .lookup_instances(request)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(code(response.failed.as_ref()), expected);
    }
}

#[tokio::test]
async fn probe_answers_before_initialize_with_the_boot_id_and_the_last_success() {
    let running = Running::start().await;
    let mut client = running.provider().await;
    let info = client
        .get_provider_info(pb::GetProviderInfoRequest::default())
        .await
        .unwrap()
        .into_inner();
    let probe = client
        .probe(pb::ProbeRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(probe.state(), pb::ProbeState::Degraded);
    assert_eq!(probe.message, "a test");
    assert_eq!(probe.boot_id, info.boot_id);
    assert!(!probe.boot_id.is_empty());
    assert_eq!(probe.last_cloud_success, None);
    running.initialize().await;
    let probe = client
        .probe(pb::ProbeRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!(probe.last_cloud_success.is_some());
    let other = Running::start().await;
    let probe = other
        .provider()
        .await
        .probe(pb::ProbeRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_ne!(probe.boot_id, info.boot_id);
}

#[tokio::test]
async fn a_batch_is_matched_by_name_and_each_fault_stays_with_its_node() {
    log();
    let running = Running::initialized().await;
    let names = [
        "a",
        "absent",
        "forgotten",
        "throttled",
        "twice",
        "stranger",
        "long",
        "no-ip",
    ];
    let response = running.lookup(&names).await;
    assert_eq!(response.failed, None);
    assert_eq!(response.results.len(), names.len());
    let Looked::Found(found) = outcome(&response, "a") else {
        panic!("a failed")
    };
    assert_eq!(found.state(), pb::InstanceState::Running);
    assert_eq!(found.provider_id.as_deref(), Some("test://a"));
    let Looked::Found(found) = outcome(&response, "absent") else {
        panic!("absent failed")
    };
    assert_eq!(found.state(), pb::InstanceState::Absent);
    let throttled = failed(outcome(&response, "throttled"));
    assert_eq!(throttled.code(), pb::FailureCode::Throttled);
    assert_eq!(throttled.retry_after.unwrap().seconds, 7);
    for (name, what) in [
        ("forgotten", "no answer for this Node"),
        ("twice", "answered twice"),
        ("stranger", "other://1"),
        ("long", "2007 bytes, more than 1024"),
        ("no-ip", "not an IP address"),
    ] {
        let failure = failed(outcome(&response, name));
        assert_eq!(failure.code(), pb::FailureCode::Internal, "{name}");
        assert!(
            failure.message.contains(what),
            "{name}: {}",
            failure.message
        );
    }
    assert!(logged(&["unasked", "nobody asked"]));
    assert!(logged(&["2007 bytes", "LookupInstances"]));
}

#[tokio::test]
async fn a_node_twice_and_a_batch_too_large_are_invalid() {
    let running = Running::initialized().await;
    let response = running.lookup(&["a", "a"]).await;
    assert_eq!(code(response.failed.as_ref()), pb::FailureCode::Invalid);
    let names: Vec<String> = (0..5001).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let response = running.lookup(&names).await;
    assert_eq!(code(response.failed.as_ref()), pb::FailureCode::Invalid);
}

#[tokio::test]
async fn a_panic_fails_its_own_call_and_stands_in_the_log() {
    log();
    let running = Running::initialized().await;
    let status = running.ensure("panics").await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(
        status.message().contains("the load balancer of doom"),
        "{status}"
    );
    assert!(logged(&["EnsureLoadBalancer", "the load balancer of doom"]));

    // The same object can be worked on again, and others were not harmed.
    let status = running.ensure("panics").await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(matches!(
        running.ensure("other").await.unwrap().outcome,
        Some(Ensured::Ready(_))
    ));
}

#[tokio::test]
async fn a_panic_for_one_item_is_that_items_failure() {
    log();
    let running = Running::initialized().await;
    let route = |key: &str, hint: &str| pb::Route {
        route_key: key.into(),
        name_hint: hint.into(),
        destination_cidr: format!("10.0.{key}.0/24"),
        ..Default::default()
    };
    let request = pb::CreateRoutesRequest {
        cluster: cluster(),
        routes: vec![route("1", ""), route("2", "panics"), route("3", "")],
    };
    let response = running
        .routes()
        .await
        .create_routes(request)
        .await
        .unwrap()
        .into_inner();
    let kinds: Vec<_> = response
        .results
        .iter()
        .map(|result| {
            let done = matches!(result.outcome, Some(pb::route_result::Outcome::Done(_)));
            (result.route_key.as_str(), done)
        })
        .collect();
    assert_eq!(kinds, [("1", true), ("2", false), ("3", true)]);
    assert!(logged(&["CreateRoutes", "the route of doom"]));
}

#[tokio::test]
async fn a_cancelled_call_stops_before_its_next_write() {
    let running = Running::initialized().await;
    let mut client = running.load_balancers().await;
    let call = tokio::spawn(async move { client.ensure_load_balancer(ensure("gated")).await });
    running.cloud.journal.until("write 1").await;
    call.abort();
    running.cloud.journal.until("dropped").await;
    running.cloud.gate.add_permits(1);
    // The same object is free again, and the next call gets through to its second write.
    let answer = running.ensure("gated").await.unwrap();
    assert!(
        matches!(answer.outcome, Some(Ensured::Ready(_))),
        "{answer:?}"
    );
    assert_eq!(
        running.cloud.journal.entries(),
        ["write 1", "dropped", "write 1", "write 2", "dropped"]
    );
}

#[tokio::test]
async fn a_disconnected_call_stops_before_its_next_write() {
    let running = Running::initialized().await;
    let (channel, socket) = common::channel_and_socket(&running.path).await;
    let mut client = pb::load_balancer_service_client::LoadBalancerServiceClient::new(channel);
    let call = tokio::spawn(async move { client.ensure_load_balancer(ensure("gated")).await });
    running.cloud.journal.until("write 1").await;
    // As when the controller is killed: the socket closes, and no cancellation is sent.
    socket.shutdown(std::net::Shutdown::Both).unwrap();
    running.cloud.journal.until("dropped").await;
    assert_eq!(running.cloud.journal.entries(), ["write 1", "dropped"]);
    soon("the call", call).await.unwrap().unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn code_that_never_yields_and_code_that_was_spawned_are_told() {
    for name in ["blocking", "spawned"] {
        let running = Running::initialized().await;
        let mut client = running.load_balancers().await;
        let call = tokio::spawn(async move { client.ensure_load_balancer(ensure(name)).await });
        running.cloud.journal.until("write 1").await;
        if name == "blocking" {
            call.abort();
        } else {
            // The call ends with its answer; what it left behind may not write any more either.
            call.await.unwrap().unwrap();
        }
        running.cloud.journal.until("stopped").await;
        assert_eq!(running.cloud.journal.entries(), ["write 1", "stopped"]);
    }
}

#[tokio::test]
async fn the_servers_side_ends_a_call_at_its_deadline() {
    let running = Running::initialized().await;
    let mut request = tonic::Request::new(ensure("gated"));
    // Only the header: this client itself would wait for ever.
    request
        .metadata_mut()
        .insert("grpc-timeout", "50m".parse().unwrap());
    let mut client = running.load_balancers().await;
    let status = soon("the deadline", client.ensure_load_balancer(request))
        .await
        .unwrap_err();
    assert!(
        matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled),
        "{status}"
    );
    running.cloud.journal.until("dropped").await;
    assert_eq!(running.cloud.journal.entries(), ["write 1", "dropped"]);
}

#[tokio::test]
async fn an_overlap_on_the_same_service_or_route_is_busy() {
    let running = Running::initialized().await;
    let mut client = running.load_balancers().await;
    let first = tokio::spawn(async move { client.ensure_load_balancer(ensure("gated")).await });
    running.cloud.journal.until("write 1").await;
    let request = pb::DeleteLoadBalancerRequest {
        cluster: cluster(),
        service: ensure("gated").service,
        handle: None,
    };
    let mut client = running.load_balancers().await;
    let answer = client
        .delete_load_balancer(request.clone())
        .await
        .unwrap()
        .into_inner();
    let Some(pb::delete_load_balancer_response::Outcome::Failed(failure)) = answer.outcome else {
        panic!("not failed")
    };
    assert_eq!(failure.code(), pb::FailureCode::Busy);
    // Another Service, and reading the same one, are no overlap.
    assert!(matches!(
        running.ensure("other").await.unwrap().outcome,
        Some(Ensured::Ready(_))
    ));
    let get = pb::GetLoadBalancerRequest {
        cluster: cluster(),
        service: request.service.clone(),
        ..Default::default()
    };
    let found = client
        .get_load_balancer(get)
        .await
        .unwrap()
        .into_inner()
        .outcome;
    assert!(matches!(
        found,
        Some(pb::get_load_balancer_response::Outcome::Found(_))
    ));
    running.cloud.gate.add_permits(1);
    first.await.unwrap().unwrap();
    let answer = client
        .delete_load_balancer(request)
        .await
        .unwrap()
        .into_inner();
    assert!(matches!(
        answer.outcome,
        Some(pb::delete_load_balancer_response::Outcome::Done(_))
    ));

    let routes = |hint: &str, cidrs: &[&str]| pb::CreateRoutesRequest {
        cluster: cluster(),
        routes: cidrs
            .iter()
            .map(|cidr| pb::Route {
                route_key: (*cidr).into(),
                name_hint: hint.into(),
                destination_cidr: (*cidr).into(),
                ..Default::default()
            })
            .collect(),
    };
    let running = Running::initialized().await;
    let mut client = running.routes().await;
    let gated = routes("gated", &["10.0.1.0/24"]);
    let first = tokio::spawn(async move { client.create_routes(gated).await });
    running.cloud.journal.until("write 1").await;
    let mut client = running.routes().await;
    let both = routes("", &["10.0.1.0/24", "10.0.2.0/24"]);
    let results = client
        .create_routes(both)
        .await
        .unwrap()
        .into_inner()
        .results;
    let Some(pb::route_result::Outcome::Failed(failure)) = &results[0].outcome else {
        panic!("not failed")
    };
    assert_eq!(failure.code(), pb::FailureCode::Busy);
    assert!(matches!(
        results[1].outcome,
        Some(pb::route_result::Outcome::Done(_))
    ));
    running.cloud.gate.add_permits(1);
    first.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_failure_carries_the_handle_and_what_else_happened() {
    let running = Running::initialized().await;
    let answer = running.ensure("half-made").await.unwrap();
    assert_eq!(answer.handle.as_deref(), Some("lb-7"));
    assert_eq!(answer.events[0].message.len(), 1024, "cut to the limit");
    assert_eq!(answer.annotations.unwrap().set["test/a"], "b");
    assert_eq!(answer.target_errors[0].node_name, "n1");
    let Some(Ensured::Failed(failure)) = answer.outcome else {
        panic!("not failed")
    };
    assert_eq!(failure.code(), pb::FailureCode::Precondition);
}

#[tokio::test]
async fn an_answer_past_a_limit_is_a_failure_and_a_good_handle_is_kept() {
    log();
    let running = Running::initialized().await;
    let answer = running.ensure("long-handle").await.unwrap();
    assert_eq!(answer.handle, None);
    assert!(matches!(answer.outcome, Some(Ensured::Failed(_))));
    assert!(logged(&[
        "EnsureLoadBalancer",
        "default/long-handle",
        "1025 bytes"
    ]));
    let answer = running.ensure("bad-status").await.unwrap();
    assert_eq!(answer.handle.as_deref(), Some("lb-8"));
    assert!(matches!(answer.outcome, Some(Ensured::Failed(_))));
}

#[tokio::test]
async fn targets_that_are_absent_empty_or_by_reference_are_told_apart() {
    use pb::update_load_balancer_response::Outcome;
    let running = Running::initialized().await;
    let mut client = running.load_balancers().await;
    let update = |targets| pb::UpdateLoadBalancerRequest {
        cluster: cluster(),
        service: ensure("a").service,
        handle: None,
        targets,
    };
    let set = |set| Some(pb::TargetSet { set });
    for (targets, invalid) in [
        (None, true),
        (set(None), true),
        (set(Some(pb::target_set::Set::Ref("x".into()))), true),
        (
            set(Some(pb::target_set::Set::Inline(pb::TargetList::default()))),
            false,
        ),
    ] {
        let answer = client
            .update_load_balancer(update(targets))
            .await
            .unwrap()
            .into_inner();
        match answer.outcome {
            Some(Outcome::Failed(failure)) => {
                assert!(invalid);
                assert_eq!(failure.code(), pb::FailureCode::Invalid);
            }
            Some(Outcome::Pending(_)) => assert!(!invalid),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_listing_comes_in_parts_and_ends_with_its_total_or_fails_whole() {
    let running = Running::initialized().await;
    let mut client = running.instances().await;
    let list = |name| pb::ListInstancesRequest {
        cluster: named_cluster(name),
        facets: vec![],
    };
    let stream = client
        .list_instances(list("test"))
        .await
        .unwrap()
        .into_inner();
    let parts: Vec<_> = stream
        .map(|part| part.unwrap().part.unwrap())
        .collect()
        .await;
    let sizes: Vec<u64> = parts
        .iter()
        .map(|part| match part {
            pb::list_instances_response::Part::Instances(list) => list.instances.len() as u64,
            pb::list_instances_response::Part::End(end) => end.total,
            pb::list_instances_response::Part::Failed(failure) => panic!("{failure:?}"),
        })
        .collect();
    assert_eq!(sizes, [500, 500, 234, 1234]);
    let stream = client
        .list_instances(list("broken-list"))
        .await
        .unwrap()
        .into_inner();
    let parts: Vec<_> = stream
        .map(|part| part.unwrap().part.unwrap())
        .collect()
        .await;
    assert!(
        matches!(parts[..], [pb::list_instances_response::Part::Failed(_)]),
        "{parts:?}"
    );
}

#[tokio::test]
async fn a_request_of_almost_16_mib_is_accepted_and_a_larger_one_is_not() {
    let running = Running::initialized().await;
    let request = |bytes: usize| {
        let mut node = node("a");
        node.labels.insert("big".into(), "x".repeat(bytes));
        pb::LookupInstancesRequest {
            cluster: cluster(),
            nodes: vec![node],
            ..Default::default()
        }
    };
    let mut client = running.instances().await;
    let answer = client
        .lookup_instances(request((16 << 20) - 1000))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answer.results.len(), 1);
    let status = client
        .lookup_instances(request((16 << 20) + 1))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    assert_eq!(running.lookup(&["a"]).await.results.len(), 1);
}

#[tokio::test]
async fn hints_flow_and_a_watch_ends_as_the_vendors_method_does() {
    log();
    let running = Running::initialized().await;
    let mut client = running.provider().await;
    let watch = |token: &str| pb::WatchChangesRequest {
        cluster: cluster(),
        resume_token: token.into(),
    };
    let mut stream = client.watch_changes(watch("")).await.unwrap().into_inner();
    let hint = soon("a hint", stream.message()).await.unwrap().unwrap();
    assert_eq!(hint.resume_token, "1");
    assert!(matches!(
        hint.change,
        Some(pb::watch_changes_response::Change::Resync(_))
    ));
    drop(stream);
    running.cloud.journal.until("dropped").await;

    let mut stream = client
        .watch_changes(watch("ends"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        soon("a hint", stream.message())
            .await
            .unwrap()
            .unwrap()
            .resume_token,
        "2"
    );
    assert!(soon("the end", stream.message()).await.unwrap().is_none());
    let mut stream = client
        .watch_changes(watch("fails"))
        .await
        .unwrap()
        .into_inner();
    let last = soon("the failure", stream.message()).await.unwrap();
    let Some(pb::watch_changes_response::Change::Failed(failure)) = last.unwrap().change else {
        panic!("not failed")
    };
    assert!(failure.message.contains("no feed"), "{failure:?}");
    assert!(soon("the end", stream.message()).await.unwrap().is_none());

    let mut stream = client
        .watch_changes(watch("panics"))
        .await
        .unwrap()
        .into_inner();
    let status = soon("the end", stream.message()).await.unwrap_err();
    assert!(status.message().contains("the watch of doom"), "{status}");
    assert!(logged(&["WatchChanges", "the watch of doom"]));
}
