use std::sync::Arc;
use std::time::Duration;

use api::ensure_load_balancer_response::Outcome;
use api::list_instances_response::Part;
use cloud_provider_api::v1alpha1 as api;
use futures::StreamExt as _;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::super::lookup::{Called, IsolatedKeys, Lookup, answers};
use super::super::testing::{InMemory, Running, maintained};
use super::super::{CallErrorCode, Session};
use super::fake::{Fake, all_run, failure};
use crate::core::Fence;

fn nodes(count: usize) -> Vec<Node> {
    let node =
        |n| serde_json::json!({"metadata": {"name": format!("n{n}"), "uid": format!("u{n}")}});
    (0..count)
        .map(|n| serde_json::from_value(node(n)).unwrap())
        .collect()
}

async fn with(fake: &Fake) -> (Running, Arc<Session>) {
    let running = maintained(InMemory::running(fake.service()));
    running.lead();
    let session = running.session().await;
    (running, session)
}

async fn lookup(
    session: &Session,
    nodes: &[Node],
) -> Result<Vec<Result<api::Instance, super::super::CallError>>, super::super::CallError> {
    let nodes: Vec<_> = nodes.iter().collect();
    session
        .lookup_instances(&nodes, &[api::InstanceFacet::Metadata], Duration::ZERO)
        .await
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_cut_to_the_bytes_that_the_provider_takes_and_answered_in_order() {
    let fake = Fake::new("1");
    fake.set(|s| {
        s.info.max_request_bytes = Some(65_536);
        s.info.node_projection = Some(api::NodeProjection {
            all_labels: true,
            ..Default::default()
        });
        s.lookup = |request| {
            assert!(prost::Message::encoded_len(request) <= 65_536);
            let mut results = all_run(request);
            results.reverse();
            results
        };
    });
    let (_running, session) = with(&fake).await;
    let mut nodes = nodes(100);
    for node in &mut nodes {
        node.metadata.labels = Some([("l".to_owned(), "x".repeat(2000))].into());
    }
    nodes[50].metadata.labels = Some([("l".to_owned(), "x".repeat(70_000))].into());
    let nodes = nodes.into_iter().map(Arc::new).collect();
    let batches = session.batches(&IsolatedKeys::default(), nodes);
    let session = &*session;
    let ask = |nodes: Vec<Arc<Node>>| async move {
        let asked: Vec<Node> = nodes.iter().map(|node| (**node).clone()).collect();
        let outcome = lookup(session, &asked).await;
        (nodes, outcome) as Called<api::Instance>
    };
    let found: Vec<Vec<Lookup<api::Instance>>> = answers(batches, ask).collect().await;
    let found: Vec<_> = found.into_iter().flatten().collect();
    assert_eq!(found.len(), 100);
    for lookup in &found {
        let name = lookup.item.metadata.name.as_deref().unwrap();
        if name == "n50" {
            let trouble = lookup.answer.as_ref().unwrap_err();
            assert_eq!(trouble.code, CallErrorCode::Fault);
            assert!(trouble.message.contains("65536"));
        } else {
            let id = lookup.answer.as_ref().unwrap().provider_id.clone();
            assert_eq!(id, Some(format!("mock://{name}")));
        }
    }
    // Of about 2,060 bytes, 31 fit. The large one parts the others into 50 and 49.
    assert_eq!(fake.called("LookupInstances"), 4);
    assert!(lookup(session, &[]).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_run_at_once_than_the_provider_takes() {
    let fake = Fake::new("1");
    let (_running, session) = with(&fake).await;
    let nodes = nodes(1);
    let calls = join_all((0..20).map(|_| lookup(&session, &nodes))).await;
    assert!(calls.iter().all(Result::is_ok));
    assert_eq!(fake.0.lock().unwrap().running, (0, 2));
}

#[tokio::test(start_paused = true)]
async fn m10_a_slow_list_of_the_only_place_fails_no_call_behind_it() {
    let fake = Fake::new("1");
    fake.set(|s| {
        let balancers = s
            .info
            .capabilities
            .as_mut()
            .unwrap()
            .load_balancers
            .as_mut();
        let balancers = balancers.unwrap();
        balancers.max_in_flight = Some(1);
        balancers.listing = true;
        s.ensure.outcome = Some(Outcome::HandledElsewhere(api::HandledElsewhere {}));
        s.slow = [
            ("ListLoadBalancers", Duration::from_secs(290)),
            ("EnsureLoadBalancer", Duration::from_secs(20)),
        ]
        .into();
    });
    let (_running, session) = with(&fake).await;
    let fence = Fence::open();
    let ensure = || session.ensure_load_balancer(&fence, api::EnsureLoadBalancerRequest::default());
    let (_, one, two) = tokio::join!(session.list_load_balancers(), ensure(), ensure());
    assert!(one.is_ok() && two.is_ok(), "{two:?}");
}

/// Shows ▲M7 too.
#[tokio::test(start_paused = true)]
async fn m10_a_call_that_hangs_ends_at_its_deadline_and_others_go_on() {
    let fake = Fake::new("1");
    fake.set(|s| {
        s.hang = ["LookupInstances"].into();
        s.ensure.outcome = Some(Outcome::HandledElsewhere(api::HandledElsewhere {}));
    });
    let (running, session) = with(&fake).await;
    let nodes = nodes(1);
    let start = Instant::now();
    let fence = Fence::open();
    let (hangs, goes) = tokio::join!(lookup(&session, &nodes), async {
        let answer = session
            .ensure_load_balancer(&fence, api::EnsureLoadBalancerRequest::default())
            .await;
        (answer, start.elapsed())
    });
    assert_eq!(hangs.unwrap_err().code, CallErrorCode::Deadline);
    assert!(start.elapsed() >= Duration::from_mins(1));
    assert!(goes.0.is_ok() && goes.1 < Duration::from_secs(1));
    assert!(!session.is_over());
    let text = running.exposition();
    for line in [
        "ccm_provider_rpc_total{provider=\"mock\",rpc=\"LookupInstances\",outcome=\"deadline\"} 1",
        "ccm_provider_rpc_total{provider=\"mock\",rpc=\"EnsureLoadBalancer\",outcome=\"ok\"} 1",
        "ccm_provider_rpc_duration_seconds_count{provider=\"mock\",rpc=\"LookupInstances\"} 1",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn throttled_slows_the_whole_service_and_no_other() {
    let fake = Fake::new("1");
    let (_running, session) = with(&fake).await;
    let nodes = nodes(1);
    fake.set(|s| s.failures = [failure(api::FailureCode::Throttled, Some(20))].into());
    let throttled = lookup(&session, &nodes).await.unwrap_err();
    assert_eq!(throttled.code, CallErrorCode::Throttled);

    let start = Instant::now();
    let fence = Fence::open();
    session
        .ensure_load_balancer(&fence, api::EnsureLoadBalancerRequest::default())
        .await
        .unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
    lookup(&session, &nodes).await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(19));

    // This is too long to wait: the call fails at once, and says when to try again.
    fake.set(|s| s.failures = [failure(api::FailureCode::Throttled, Some(300))].into());
    lookup(&session, &nodes).await.unwrap_err();
    let before = fake.called("LookupInstances");
    let start = Instant::now();
    let trouble = lookup(&session, &nodes).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(trouble.code, CallErrorCode::Throttled);
    assert!(trouble.retry_after.unwrap() > Duration::from_secs(298));
    assert_eq!(fake.called("LookupInstances"), before);
}

#[tokio::test(start_paused = true)]
async fn m12_nothing_that_changes_the_cloud_is_sent_past_the_fence() {
    let fake = Fake::new("1");
    fake.set(|s| {
        let offered = s.info.capabilities.get_or_insert_default();
        offered.routes = Some(api::RouteCapability::default());
    });
    let (_running, session) = with(&fake).await;
    let fence = Fence::closed();
    let routes = || vec![api::Route::default()];
    let codes = [
        session
            .ensure_load_balancer(&fence, api::EnsureLoadBalancerRequest::default())
            .await
            .unwrap_err()
            .code,
        session
            .update_load_balancer(&fence, api::UpdateLoadBalancerRequest::default())
            .await
            .unwrap_err()
            .code,
        session
            .delete_load_balancer(&fence, api::DeleteLoadBalancerRequest::default())
            .await
            .unwrap_err()
            .code,
        session
            .create_routes(&fence, routes())
            .await
            .unwrap_err()
            .code,
        session
            .delete_routes(&fence, routes())
            .await
            .unwrap_err()
            .code,
    ];
    assert_eq!(codes, [CallErrorCode::Fenced; 5]);
    assert_eq!(fake.log(), ["GetProviderInfo", "Initialize"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_the_contract_is_a_failure_that_keeps_the_handle() {
    let fake = Fake::new("1");
    let (_running, session) = with(&fake).await;
    let fence = Fence::open();
    let ready = || Outcome::Ready(api::LoadBalancerReady::default());
    for (handle, outcome, kept) in [
        ("h".to_owned(), None, true),
        ("h".repeat(2000), Some(ready()), false),
        (String::new(), Some(ready()), false),
    ] {
        fake.set(|s| {
            s.ensure.handle = Some(handle.clone());
            s.ensure.outcome = outcome;
            s.ensure.events = vec![api::Event {
                message: "m".repeat(9000),
                ..Default::default()
            }];
        });
        let (answer, _) = session
            .ensure_load_balancer(&fence, api::EnsureLoadBalancerRequest::default())
            .await
            .unwrap();
        assert_eq!(answer.handle, kept.then_some(handle));
        let failure = answer.outcome.unwrap_err();
        assert_eq!(failure.code, CallErrorCode::Internal);
        assert_eq!(failure.reason, "ContractFault");
        assert!(answer.events[0].message.len() <= 1024);
    }
    // NOT_FOUND as a gRPC status is no answer.
    let get = session
        .get_load_balancer(api::GetLoadBalancerRequest::default())
        .await;
    assert_eq!(get.unwrap_err().code, CallErrorCode::Unknown);
}

#[tokio::test(start_paused = true)]
async fn core_16_a_listing_without_its_end_is_no_listing() {
    let instances = |count: usize| {
        let instance = api::Instance {
            state: api::InstanceState::Present.into(),
            provider_id: Some("mock://1".into()),
            ..Default::default()
        };
        Part::Instances(api::InstanceList {
            instances: vec![instance; count],
        })
    };
    let foreign = Part::Instances(api::InstanceList {
        instances: vec![api::Instance {
            state: api::InstanceState::Present.into(),
            provider_id: Some("aws://1".into()),
            ..Default::default()
        }],
    });
    let end = |total| Part::End(api::ListEnd { total });
    let failed = Part::Failed(failure(api::FailureCode::Unavailable, None));
    let rows = [
        (vec![instances(2), instances(1), end(3)], None),
        (vec![end(0)], None),
        (vec![], Some(CallErrorCode::Fault)),
        (vec![instances(2)], Some(CallErrorCode::Fault)),
        (vec![instances(2), end(3)], Some(CallErrorCode::Fault)),
        (vec![instances(2), end(1)], Some(CallErrorCode::Fault)),
        (vec![end(0), instances(1)], Some(CallErrorCode::Fault)),
        // The prefix may be one that does not count (▲S21).
        (vec![foreign, end(1)], None),
        (vec![instances(1), failed], Some(CallErrorCode::Unavailable)),
    ];
    let fake = Fake::new("1");
    let (_running, session) = with(&fake).await;
    for (number, (parts, expected)) in rows.into_iter().enumerate() {
        fake.set(|s| {
            s.list = parts
                .into_iter()
                .map(|part| api::ListInstancesResponse { part: Some(part) })
                .collect();
        });
        let list = session.list_instances(&[]).await;
        assert_eq!(list.err().map(|t| t.code), expected, "row {number}");
    }
    fake.set(|s| s.list = vec![api::ListInstancesResponse { part: None }]);
    let list = session.list_instances(&[]).await;
    assert_eq!(list.unwrap_err().code, CallErrorCode::Fault);
}

#[tokio::test(start_paused = true)]
async fn m13_a_code_that_the_rpc_does_not_list_is_internal() {
    use api::FailureCode as Code;
    let fake = Fake::new("1");
    let (running, session) = with(&fake).await;
    let fence = Fence::open();
    for (given, code, as_given) in [
        (Code::NotFound, CallErrorCode::Internal, false),
        (Code::Conflict, CallErrorCode::Conflict, true),
        (Code::Credentials, CallErrorCode::Credentials, true),
    ] {
        fake.set(|s| s.failures = [failure(given, None)].into());
        let (answer, _) = session
            .ensure_load_balancer(&fence, api::EnsureLoadBalancerRequest::default())
            .await
            .unwrap();
        let failure = answer.outcome.expect_err("it failed");
        assert_eq!(failure.code, code, "{given:?}");
        assert!(failure.message.starts_with("scripted"), "{failure:?}");
        let named = failure.message.contains("NOT_FOUND");
        assert_eq!(named, !as_given, "{failure:?}");
    }

    // CONFLICT is listed for a Node, but not for the whole call.
    let nodes = nodes(1);
    fake.set(|s| s.failures = [failure(Code::Conflict, None)].into());
    let whole = lookup(&session, &nodes).await.unwrap_err();
    assert_eq!(whole.code, CallErrorCode::Internal);
    for (given, code) in [
        (Code::Conflict, CallErrorCode::Conflict),
        (Code::NotFound, CallErrorCode::Internal),
    ] {
        fake.set(|s| {
            s.lookup = match given {
                Code::Conflict => |request| item_fails(request, Code::Conflict),
                _ => |request| item_fails(request, Code::NotFound),
            };
        });
        let item = lookup(&session, &nodes).await.unwrap().remove(0);
        assert_eq!(item.unwrap_err().code, code);
    }

    // A listing has no items that can fail.
    let failed = Part::Failed(failure(Code::NotFound, None));
    fake.set(|s| s.list = vec![api::ListInstancesResponse { part: Some(failed) }]);
    let list = session.list_instances(&[]).await;
    assert_eq!(list.unwrap_err().code, CallErrorCode::Internal);

    let text = running.exposition();
    assert!(!text.contains("not_found"), "{text}");
    assert!(
        text.contains("rpc=\"EnsureLoadBalancer\",outcome=\"internal\"} 1"),
        "{text}"
    );
}

fn item_fails(
    request: &api::LookupInstancesRequest,
    code: api::FailureCode,
) -> Vec<api::LookupInstanceResult> {
    let mut results = all_run(request);
    for result in &mut results {
        result.outcome = Some(api::lookup_instance_result::Outcome::Failed(failure(
            code, None,
        )));
    }
    results
}

#[tokio::test]
async fn an_answer_of_20_mib_is_a_fault_and_no_more() {
    let fake = Fake::new("1");
    fake.set(|s| {
        s.lookup = |request| {
            let mut results = all_run(request);
            results[0].node_name = "x".repeat(20 * 1024 * 1024);
            results
        };
    });
    let (_running, session) = with(&fake).await;
    let nodes = nodes(1);
    let trouble = lookup(&session, &nodes).await.unwrap_err();
    assert_eq!(trouble.code, CallErrorCode::Fault);
    // An answer of 10 MiB is accepted.
    fake.set(|s| {
        s.lookup = |request| {
            let mut results = all_run(request);
            results.push(api::LookupInstanceResult {
                node_name: "x".repeat(10 * 1024 * 1024),
                ..Default::default()
            });
            results
        };
    });
    assert!(lookup(&session, &nodes).await.unwrap()[0].is_ok());
}
