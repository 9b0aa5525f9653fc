use super::*;

const RUN: &str = "conformance-1234";

fn ensure(owner_id: &str, uid: &str) -> Made {
    Made::Ensure(pb::EnsureLoadBalancerRequest {
        cluster: Some(pb::ClusterRef {
            name: RUN.into(),
            owner_id: owner_id.into(),
        }),
        service: Some(pb::ServiceView {
            uid: uid.into(),
            ..Default::default()
        }),
        ..Default::default()
    })
}

fn remove(cidr: &str) -> Made {
    Made::Remove(pb::DeleteRoutesRequest {
        cluster: Some(pb::ClusterRef {
            name: RUN.into(),
            owner_id: format!("{RUN}-1-a"),
        }),
        routes: vec![pb::Route {
            destination_cidr: cidr.into(),
            ..Default::default()
        }],
    })
}

#[test]
fn what_the_suite_did_not_make_is_not_touched() {
    let ledger = Ledger::new(RUN.into());
    ledger.issue_uid("ours");
    ledger.issue_cidr("100.64.1.0/24");
    for (made, word) in [
        (ensure("a-real-cluster", "ours"), "owner ID"),
        (ensure("conformance-1234-1-a", "a-real-service"), "UID"),
        (remove("10.0.0.0/24"), "destination"),
    ] {
        let why = ledger.permit(&made).expect_err(word);
        assert!(why.contains(word) && why.contains("does not send"), "{why}");
    }
    assert!(ledger.things().is_empty());
    ledger.permit(&remove("100.64.1.0/24")).unwrap();
    ledger
        .permit(&ensure("conformance-1234-1-a", "ours"))
        .unwrap();
    assert_eq!(ledger.things().len(), 1);
}

#[test]
fn what_an_update_may_have_made_is_removed_too() {
    let ledger = Ledger::new(RUN.into());
    ledger.issue_uid("ours");
    let Made::Ensure(request) = ensure("conformance-1234-1-a", "ours") else {
        unreachable!()
    };
    let update = Made::Update(pb::UpdateLoadBalancerRequest {
        cluster: request.cluster,
        service: request.service,
        ..Default::default()
    });
    ledger.permit(&update).unwrap();
    assert_eq!(ledger.fresh_things().len(), 1);
    assert_eq!(
        ledger.take_unseen(),
        BTreeSet::from(["conformance-1234-1-a".to_owned()])
    );
}

#[test]
fn a_route_is_lost_if_its_destination_is_of_this_run_and_nothing_records_it() {
    let ledger = Ledger::new(RUN.into());
    assert!(ledger.issue_cidr("100.64.1.0/24"));
    assert!(ledger.has_lost_route("100.64.1.0/24"));
    assert!(!ledger.has_lost_route("10.0.0.0/24"));
    ledger.avoid_cidr("100.64.2.0/24");
    assert!(!ledger.issue_cidr("100.64.2.0/24"), "somebody else's");
    assert!(!ledger.has_issued("100.64.2.0/24"));
    assert!(!ledger.has_lost_route("100.64.2.0/24"));
    let cluster = pb::ClusterRef::default();
    let cidr = "100.64.1.0/24".to_owned();
    for thing in [
        Thing::Route {
            cluster,
            cidr: cidr.clone(),
        },
        Thing::UnmarkedRoute {
            name: "by-a-hook".into(),
            cidr: cidr.clone(),
        },
    ] {
        ledger.note(thing.clone());
        assert!(!ledger.has_lost_route(&cidr), "{thing}");
        ledger.gone(&thing.key());
    }
    assert!(ledger.has_lost_route(&cidr));
}

/// A listing may have a destination in another form (ROUTE-8).
#[test]
fn a_destination_is_a_network_and_not_a_text() {
    let ledger = Ledger::new(RUN.into());
    let (issued, listed) = ("fd64:6363:0:1::/64", "FD64:6363:0000:0001:0:0:0:0/64");
    assert!(ledger.issue_cidr(issued));
    assert!(!ledger.issue_cidr(listed));
    assert!(ledger.has_issued(listed) && ledger.has_lost_route(listed));
    let Made::Remove(mut request) = remove(listed) else {
        unreachable!()
    };
    let cluster = request.cluster.clone().unwrap_or_default();
    ledger.note(Thing::Route {
        cluster,
        cidr: issued.into(),
    });
    assert!(!ledger.has_lost_route(listed));
    request.routes[0].route_key = "0".into();
    let made = Made::Remove(request);
    ledger.permit(&made).unwrap();
    let answer = pb::DeleteRoutesResponse {
        results: vec![pb::RouteResult {
            route_key: "0".into(),
            outcome: Some(pb::route_result::Outcome::Done(pb::Done {})),
        }],
        ..Default::default()
    };
    ledger.answered(&made, &answer);
    assert!(ledger.things().is_empty());
}

#[test]
fn what_was_made_is_known_with_its_handle_until_it_is_gone() {
    let ledger = Ledger::new(RUN.into());
    ledger.issue_uid("ours");
    let made = ensure("conformance-1234-1-a", "ours");
    // Recorded before the answer, which may never arrive.
    ledger.permit(&made).unwrap();
    assert_eq!(ledger.fresh_things().len(), 1);
    let answer = pb::EnsureLoadBalancerResponse {
        handle: Some("h-1".into()),
        ..Default::default()
    };
    ledger.answered(&made, &answer);
    let things = ledger.things();
    assert!(
        matches!(&things[0].1, Thing::LoadBalancer { handle: Some(handle), .. } if handle == "h-1")
    );
    ledger.tried();
    assert!(ledger.fresh_things().is_empty() && ledger.things().len() == 1);
    ledger.gone(&things[0].0);
    assert!(ledger.things().is_empty());
}
