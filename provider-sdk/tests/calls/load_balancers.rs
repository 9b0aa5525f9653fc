//! Calls about the load balancer of a Service.

use super::*;

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
        adopt_unmarked: false,
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
    // A call for another Service does not overlap, and neither does a Get for the same Service.
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
    let gated = routes("gated", &["fd00:1::/64"]);
    let first = tokio::spawn(async move { client.create_routes(gated).await });
    running.cloud.journal.until("write 1").await;
    let mut client = running.routes().await;
    // The same network, written in another way (ROUTE-8).
    let both = routes("", &["FD00:0001:0::/64", "10.0.2.0/24"]);
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

/// PROV-18: a call of the former owner may still run, and it is about the same Service.
#[tokio::test]
async fn an_overlap_with_a_call_of_the_former_owner_is_busy_too() {
    let heir = || {
        Some(pb::ClusterRef {
            name: "test".into(),
            owner_id: "owner-2".into(),
        })
    };
    let running = Running::initialized().await;
    let mut client = running.load_balancers().await;
    let first = tokio::spawn(async move { client.ensure_load_balancer(ensure("gated")).await });
    running.cloud.journal.until("write 1").await;
    let route = |cluster, hint: &str| pb::CreateRoutesRequest {
        cluster,
        routes: vec![pb::Route {
            name_hint: hint.into(),
            destination_cidr: "10.0.2.0/24".into(),
            ..Default::default()
        }],
    };
    let mut client = running.routes().await;
    let gated = route(cluster(), "gated");
    let second = tokio::spawn(async move { client.create_routes(gated).await });
    let begun = || {
        let entries = running.cloud.journal.entries();
        entries.iter().filter(|entry| *entry == "write 1").count()
    };
    while begun() < 2 {
        tokio::task::yield_now().await;
    }
    running.initialize_for(heir(), "owner-1").await;
    // The UID of the Service decides, not its name.
    let mut again = ensure("renamed");
    again.cluster = heir();
    again.service.as_mut().unwrap().uid = "uid-gated".into();
    let mut client = running.load_balancers().await;
    let answer = client.ensure_load_balancer(again).await.unwrap();
    let Some(Ensured::Failed(failure)) = answer.into_inner().outcome else {
        panic!("not failed")
    };
    assert_eq!(failure.code(), pb::FailureCode::Busy);
    let mut client = running.routes().await;
    let answer = client.create_routes(route(heir(), "")).await.unwrap();
    let outcome = answer.into_inner().results.remove(0).outcome;
    let Some(pb::route_result::Outcome::Failed(failure)) = outcome else {
        panic!("not failed")
    };
    assert_eq!(failure.code(), pb::FailureCode::Busy);
    running.cloud.gate.add_permits(2);
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
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
