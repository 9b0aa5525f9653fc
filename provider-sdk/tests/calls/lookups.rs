//! A batch of Nodes.

use super::*;

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
        "no-name",
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
    // INST-15: the instance is answered without the address that is no DNS name.
    let Looked::Found(found) = outcome(&response, "no-name") else {
        panic!("no-name failed")
    };
    assert_eq!(found.addresses, []);
    assert!(logged(&["leaving an address out", "a_b"]));
    assert!(logged(&["unasked", "not in the request"]));
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

    // The panic released its object, and calls for other objects succeed.
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
