//! Faults and the reactions of the route controller: rows of `docs/faults.md`.

use super::*;

const CODES: [FailureCode; 10] = [
    FailureCode::Invalid,
    FailureCode::Precondition,
    FailureCode::NotFound,
    FailureCode::Conflict,
    FailureCode::Busy,
    FailureCode::Throttled,
    FailureCode::Credentials,
    FailureCode::Unavailable,
    FailureCode::NotInitialized,
    FailureCode::Internal,
];

/// Fault: CreateRoutes answers each code of the error table for one route | routes the others at
/// once; makes that one in the end; makes nothing twice; an event reports the failure, except a
/// single BUSY, NOT_INITIALIZED or CREDENTIALS
#[tokio::test(start_paused = true)]
async fn fault_route_a_create_fails_with_each_code() {
    for code in CODES {
        let world = World::started(0, |_| {}).await;
        world.fault(
            Fault::failure("CreateRoutes", code)
                .subject(cidr(1))
                .times(1),
        );
        for i in 0..3 {
            world.join(i);
        }
        let took = world
            .until("the others", |world| {
                world.condition(0) == "False RouteCreated"
                    && world.condition(2) == "False RouteCreated"
            })
            .await;
        assert!(
            took < Duration::from_secs(2),
            "routes the others at once: {code:?} {took:?}"
        );
        world
            .until("makes that one in the end", |world| world.all_created(3))
            .await;
        assert!(world.routed(3), "{code:?}");
        assert_eq!(
            world.cloud.cloud_writes(),
            3,
            "makes nothing twice: {code:?}"
        );
        // Failures that pass within seconds are not reported, nor are refused credentials within
        // half a minute.
        let reported = !matches!(
            code,
            FailureCode::Busy | FailureCode::NotInitialized | FailureCode::Credentials
        );
        assert_eq!(
            !world.events().is_empty(),
            reported,
            "an event reports the failure, except a single BUSY, NOT_INITIALIZED or CREDENTIALS: {code:?} {:?}",
            world.events()
        );
    }
}

/// Fault: the cloud refuses the credentials for many routes, and then accepts them | tries one
/// route every 20 s; makes all as soon as that one succeeds
#[tokio::test(start_paused = true)]
async fn fault_route_refused_credentials_are_tried_with_one_route() {
    let world = World::started(0, |_| {}).await;
    world.fault(Fault::failure("CreateRoutes", FailureCode::Credentials));
    for i in 0..20 {
        world.join(i);
    }
    sleep(Duration::from_secs(5)).await;
    let first = world.creates();
    sleep(Duration::from_mins(2)).await;
    // Each of these calls has one route.
    let probes = world.creates() - first;
    assert!(
        (4..=6).contains(&probes),
        "tries one route every 20 s: {probes} in 2 min"
    );
    world.cloud.clear_faults();
    let took = world
        .until("made", |world| world.routed(20) && world.all_created(20))
        .await;
    assert!(
        took < Duration::from_secs(41),
        "makes all as soon as that one succeeds: {took:?}"
    );
    assert_eq!(world.creates(), first + probes + 2);
}

/// Fault: CreateRoutes fails as a whole with each code of the error table | makes the missing
/// routes; makes nothing twice; marks its Nodes NetworkUnavailable meanwhile, unless smaller calls
/// or another Initialize come first
#[tokio::test(start_paused = true)]
async fn fault_route_a_call_fails_as_a_whole_with_each_code() {
    for code in CODES {
        let world = World::started(0, |_| {}).await;
        world.fault(Fault::failure("CreateRoutes", code).times(1));
        for i in 0..3 {
            world.join(i);
        }
        world
            .until("makes the missing routes", |world| world.all_created(3))
            .await;
        assert!(world.routed(3), "{code:?}");
        assert_eq!(
            world.cloud.cloud_writes(),
            3,
            "makes nothing twice: {code:?}"
        );
        // The call may fail because of one of its routes, so smaller calls try each route first.
        // After NOT_INITIALIZED the first failure does not count.
        let at_once = matches!(
            code,
            FailureCode::Invalid
                | FailureCode::NotFound
                | FailureCode::Internal
                | FailureCode::NotInitialized
        );
        let patches = if at_once { 3 } else { 6 };
        assert_eq!(
            world.api.writes().len(),
            patches,
            "marks its Nodes NetworkUnavailable meanwhile, unless smaller calls or another Initialize come first: {code:?}"
        );
    }
}

/// Fault: DeleteRoutes fails with each code of the error table, as a whole or for the route | routes
/// all Nodes in the end; removes the wrong route and makes both missing ones
#[tokio::test(start_paused = true)]
async fn fault_route_a_delete_fails_with_each_code() {
    let whole = CODES.map(|code| Fault::failure("DeleteRoutes", code));
    let single = whole.clone().map(|fault| fault.subject(cidr(1)));
    for fault in whole.into_iter().chain(single) {
        let mut world = World::new(2, |_| {}).await;
        // This route leads to the other Node.
        let mut wrong = Route::new("wrong", cidr(1));
        wrong.node_name = Some(name(0));
        wrong.owner_id = Some("owner".to_owned());
        world.cloud.plant_route(wrong).unwrap();
        world.fault(fault.clone().times(1));
        world.lead().await;
        world
            .until("routes all Nodes in the end", |world| world.all_created(2))
            .await;
        assert!(world.routed(2), "{fault:?}");
        assert!(world.deletes() >= 2, "{fault:?}");
        assert_eq!(
            world.cloud.cloud_writes(),
            3,
            "removes the wrong route and makes both missing ones: {fault:?}"
        );
    }
}

/// Fault: ListRoutes fails with each code of the error table or a gRPC status, breaks off, lacks
/// its end, has a wrong total, or cannot be read | makes and removes nothing; changes no condition;
/// the status page says so; asks again; routes all Nodes in the end
#[tokio::test(start_paused = true)]
async fn fault_route_a_list_that_fails_or_is_cut_is_no_list() {
    let mut faults: Vec<Fault> = CODES.map(|code| Fault::failure("ListRoutes", code)).into();
    faults.push(Fault::status("ListRoutes", tonic::Code::Unknown));
    faults.push(Fault::status("ListRoutes", tonic::Code::Unimplemented));
    for kind in [
        FaultKind::EndMissing,
        FaultKind::WrongTotal,
        FaultKind::FailedMidway,
        FaultKind::Garbage,
        FaultKind::NoAnswer,
        FaultKind::EmptyAnswer,
        FaultKind::Oversized,
    ] {
        faults.push(Fault::new("ListRoutes", kind));
    }
    for fault in faults {
        let mut world = World::new(3, |_| {}).await;
        world.plant(0..2);
        world.plant(5..9);
        let shown = format!("{fault:?}");
        world.fault(fault.times(3));
        world.lead().await;
        world.until("asks again", |world| world.lists() == 3).await;
        assert_eq!(
            (world.creates(), world.deletes()),
            (0, 0),
            "makes and removes nothing: {shown}"
        );
        assert!(
            world.api.writes().is_empty(),
            "changes no condition: {shown}"
        );
        let page = world.page();
        assert!(
            page.starts_with("mock: routes cannot be listed: "),
            "the status page says so: {shown}: {page}"
        );
        world
            .until("routes all Nodes in the end", |world| {
                world.routed(3) && world.all_created(3)
            })
            .await;
        let page = world.page();
        assert!(
            page.contains("the last reconciliation found"),
            "{shown}: {page}"
        );
    }
}

/// Fault: ListRoutes answers an empty list as complete | sets NetworkUnavailable to False on all
/// Nodes; changes nothing in the cloud
#[tokio::test(start_paused = true)]
async fn fault_route_an_empty_list_removes_nothing() {
    let mut world = World::new(3, |_| {}).await;
    world.plant(0..3);
    world.fault(Fault::new("ListRoutes", FaultKind::ListEmpty).times(1));
    world.lead().await;
    world
        .until("sets NetworkUnavailable to False on all Nodes", |world| {
            world.all_created(3)
        })
        .await;
    assert!(world.routed(3));
    assert_eq!(
        world.cloud.cloud_writes(),
        0,
        "changes nothing in the cloud"
    );
}

/// Fault: a listing whose routes have no known owner | makes the missing routes beside them;
/// removes nothing and makes nothing in their place; goes on when they have an owner again
#[tokio::test(start_paused = true)]
async fn fault_route_an_unknown_owner_is_left_alone() {
    let mut world = World::new(3, |_| {}).await;
    world.plant(1..5);
    world.fault(Fault::new("ListRoutes", FaultKind::Ownership).times(1));
    world.lead().await;
    world
        .until("makes the missing routes beside them", |world| {
            world.condition(0) == "False RouteCreated"
        })
        .await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(
        world.cloud.cloud_writes(),
        1,
        "removes nothing and makes nothing in their place"
    );
    let _ = world.provider.hints.send(Hint::Routes);
    world
        .until("goes on when they have an owner again", |world| {
            world.routed(3) && world.all_created(3)
        })
        .await;
}

/// Fault: one list calls the route of every live Node a blackhole | lists again; deletes nothing on
/// one answer
#[tokio::test(start_paused = true)]
async fn fault_route_one_list_of_blackholes_deletes_nothing() {
    let mut world = World::new(3, |_| {}).await;
    world.plant(0..3);
    // The cloud loses its instances for one list, so their routes are blackholes.
    for i in 0..3 {
        world.cloud.remove_instance(&name(i)).unwrap();
    }
    world.lead().await;
    world.until("listed", |world| world.lists() == 1).await;
    for i in 0..3 {
        world.cloud.add_instance(instance(i)).unwrap();
    }
    world.until("lists again", |world| world.lists() == 2).await;
    world
        .until("conditions", |world| world.all_created(3))
        .await;
    assert_eq!(
        (world.deletes(), world.creates()),
        (0, 0),
        "deletes nothing on one answer"
    );
}

/// Fault: CreateRoutes is never answered, before or after its effect | changes no condition before
/// the deadline (2 min); makes a route again only if the list lacks it
#[tokio::test(start_paused = true)]
async fn fault_route_a_create_that_hangs_is_looked_for_in_the_next_list() {
    for kind in [FaultKind::Hang, FaultKind::HangAfter] {
        let world = World::started(0, |_| {}).await;
        world.join(0);
        world.until("routes", |world| world.all_created(1)).await;
        // Somebody removed a route, and its Node's condition says that it exists.
        world.fault(Fault::new("CreateRoutes", kind).times(1));
        let gone = world.cloud.routes().remove(0);
        world.cloud.remove_route(&gone.name).unwrap();
        world
            .until("the call", |world| {
                world.cloud.in_flight("CreateRoutes") == 1
            })
            .await;
        let patches = world.api.writes().len();
        sleep(Duration::from_secs(119)).await;
        assert_eq!(
            world.api.writes().len(),
            patches,
            "changes no condition before the deadline (2 min): {kind}"
        );
        sleep(Duration::from_mins(1)).await;
        world
            .until("there", |world| world.routed(1) && world.all_created(1))
            .await;
        let again = u64::from(kind == FaultKind::Hang);
        assert_eq!(
            world.creates(),
            2 + again,
            "makes a route again only if the list lacks it: {kind}"
        );
    }
}

/// Fault: CreateRoutes makes the routes, and answers after its deadline | waits for the deadline (2
/// min); then asks for each route alone; makes nothing twice
#[tokio::test(start_paused = true)]
async fn fault_route_an_answer_after_the_deadline_makes_nothing_twice() {
    let world = World::started(0, |_| {}).await;
    // Nobody receives an answer after the deadline, so it counts as missing.
    world.fault(Fault::new("CreateRoutes", FaultKind::HangAfter).times(1));
    for i in 0..3 {
        world.join(i);
    }
    world.until("made", |world| world.routed(3)).await;
    let took = world
        .until("all conditions are set", |world| world.all_created(3))
        .await;
    assert!(
        took >= Duration::from_secs(119),
        "waits for the deadline (2 min): {took:?}"
    );
    assert_eq!(world.creates(), 1 + 3, "then asks for each route alone");
    assert_eq!(world.cloud.cloud_writes(), 3, "makes nothing twice");
}

/// Fault: DeleteRoutes is never answered | routes the other Node meanwhile; routes all Nodes in the
/// end; removes the wrong route and makes both missing ones
#[tokio::test(start_paused = true)]
async fn fault_route_a_delete_that_hangs_is_looked_for_in_the_next_list() {
    for kind in [FaultKind::Hang, FaultKind::HangAfter] {
        let mut world = World::new(2, |_| {}).await;
        let mut wrong = Route::new("wrong", cidr(1));
        wrong.node_name = Some(name(0));
        wrong.owner_id = Some("owner".to_owned());
        world.cloud.plant_route(wrong).unwrap();
        world.fault(Fault::new("DeleteRoutes", kind).times(1));
        world.lead().await;
        world
            .until("routes the other Node meanwhile", |world| {
                world.condition(0) == "False RouteCreated"
            })
            .await;
        world
            .until("routes all Nodes in the end", |world| {
                world.routed(2) && world.all_created(2)
            })
            .await;
        assert_eq!(
            world.cloud.cloud_writes(),
            3,
            "removes the wrong route and makes both missing ones: {kind}"
        );
    }
}

/// Fault: ListRoutes is never answered | makes and removes nothing meanwhile; asks again after the
/// deadline (5 min)
#[tokio::test(start_paused = true)]
async fn fault_route_a_list_that_hangs_is_asked_again() {
    let mut world = World::new(3, |_| {}).await;
    world.plant(1..5);
    world.fault(Fault::new("ListRoutes", FaultKind::Hang).times(1));
    world.lead().await;
    sleep(Duration::from_secs(290)).await;
    assert_eq!(
        world.cloud.cloud_writes(),
        0,
        "makes and removes nothing meanwhile"
    );
    let took = world
        .until("all", |world| world.routed(3) && world.all_created(3))
        .await;
    assert!(
        took < Duration::from_mins(1),
        "asks again after the deadline (5 min): {took:?}"
    );
}

/// Fault: the provider dies before or after the effect of each call | routes all Nodes when the
/// provider is back; makes and removes nothing twice
#[tokio::test(start_paused = true)]
async fn fault_route_the_provider_dies_before_and_after_the_effect() {
    for rpc in ["ListRoutes", "CreateRoutes", "DeleteRoutes"] {
        for kind in [
            FaultKind::Crash,
            FaultKind::CrashAfter,
            FaultKind::Disconnect,
            FaultKind::DisconnectAfter,
        ] {
            let mut world = World::new(3, |_| {}).await;
            world.plant(1..5);
            world.fault(Fault::new(rpc, kind).times(1));
            world.lead().await;
            world
                .provider
                .until("dead", |status| status.session.is_none())
                .await;
            sleep(Duration::from_secs(3)).await;
            start(&world.process, &world.cloud).await;
            world
                .until("routes all Nodes when the provider is back", |world| {
                    world.routed(3) && world.all_created(3)
                })
                .await;
            assert_eq!(
                world.cloud.cloud_writes(),
                3,
                "makes and removes nothing twice: {rpc} {kind}"
            );
        }
    }
}

/// Fault: results of CreateRoutes are missing, doubled, in another order, unset, or of a route that
/// the ccm did not ask about; or the answer is empty, too large, unreadable, or a failure after the
/// effect | routes all Nodes in the end; makes nothing twice
#[tokio::test(start_paused = true)]
async fn fault_route_results_that_break_the_contract_are_no_results() {
    for kind in [
        FaultKind::ResultsMissing,
        FaultKind::ResultsDuplicated,
        FaultKind::ResultsReordered,
        FaultKind::ResultsUnasked,
        FaultKind::UnsetOutcome,
        FaultKind::EmptyAnswer,
        FaultKind::Garbage,
        FaultKind::Oversized,
        FaultKind::StatusAfter,
        FaultKind::FailureAfter,
        FaultKind::LongText,
    ] {
        let world = World::started(0, |_| {}).await;
        world.fault(Fault::new("CreateRoutes", kind).times(1));
        for i in 0..3 {
            world.join(i);
        }
        world
            .until("routes all Nodes in the end", |world| {
                world.routed(3) && world.all_created(3)
            })
            .await;
        assert_eq!(world.cloud.cloud_writes(), 3, "makes nothing twice: {kind}");
    }
}

/// Fault: the API server answers 409, 422, 429 or 500 to the write of a condition, or after a 409
/// answers 403 to the read of the Node | the routes do not wait for it; writes it within 3 min;
/// makes no route again
#[tokio::test(start_paused = true)]
async fn fault_route_the_api_server_refuses_the_condition() {
    for codes in [
        vec![409],
        vec![409, 500],
        vec![409, 403, 403],
        vec![422],
        vec![429; 3],
        vec![500; 5],
        vec![500; 9],
    ] {
        let mut world = World::new(2, |_| {}).await;
        world.api.refuse(codes.clone());
        world.lead().await;
        let took = world.until("routes", |world| world.routed(2)).await;
        assert!(
            took < Duration::from_secs(1),
            "the routes do not wait for it: {codes:?} {took:?}"
        );
        let took = world
            .until("conditions", |world| world.all_created(2))
            .await;
        assert!(
            took < Duration::from_mins(3),
            "writes it within 3 min: {codes:?} {took:?}"
        );
        assert_eq!(world.creates(), 1, "makes no route again: {codes:?}");
    }
}

/// If the API server refuses the read after a conflict, the controller waits for about a minute.
#[tokio::test(start_paused = true)]
async fn a_node_that_may_not_be_read_after_a_conflict_waits_for_the_next_look() {
    let mut world = World::new(1, |_| {}).await;
    world.api.refuse([409, 403, 403]);
    world.lead().await;
    let took = world.until("condition", |world| world.all_created(1)).await;
    assert!(took > Duration::from_secs(30), "{took:?}");
    assert!(took < Duration::from_mins(2), "{took:?}");
}

/// Fault: the watch is cut (410 Gone), and Nodes are gone when it is back | removes nothing before
/// the list is complete; then removes the routes of the Nodes that are gone
#[tokio::test(start_paused = true)]
async fn fault_route_the_watch_is_cut_and_nodes_are_gone_when_it_is_back() {
    use kube::runtime::watcher::Event;
    let world = World::started(30, |_| {}).await;
    world.until("routes", |world| world.all_created(30)).await;
    sleep(Duration::from_mins(1)).await;
    let store = &world.context.cluster.nodes;
    store.apply(Event::Init);
    for i in 0..3 {
        world.api.forget(&name(i));
    }
    for node in world.api.nodes() {
        store.apply(Event::InitApply(node));
    }
    // The list is not complete yet: no Node is known to be gone.
    sleep(Duration::from_mins(1)).await;
    assert_eq!(
        world.deletes(),
        0,
        "removes nothing before the list is complete"
    );
    store.apply(Event::InitDone);
    world
        .until(
            "then removes the routes of the Nodes that are gone",
            |world| world.cloud.routes().len() == 27,
        )
        .await;
    assert_eq!(world.api.lists(), 0, "three are not many");
}

/// Fault: the ccm is killed between any two of its calls and writes | the next leader makes the
/// missing routes and removes the surplus ones; makes and removes nothing twice
#[tokio::test(start_paused = true)]
async fn fault_route_the_ccm_is_killed_between_any_two_steps() {
    let scene = || async {
        let world = World::new(6, |fixture| {
            fixture.capabilities.routes.max_batch = 2;
            fixture.capabilities.routes.max_in_flight = 1;
        })
        .await;
        world.plant(4..8);
        let mut wrong = Route::new("wrong", cidr(1));
        wrong.node_name = Some(name(0));
        wrong.owner_id = Some("owner".to_owned());
        world.cloud.plant_route(wrong).unwrap();
        world
            .cloud
            .set_latency("*", Duration::from_millis(20))
            .unwrap();
        world
    };
    let steps = |world: &World| {
        world.cloud.call_counts().values().sum::<u64>() + world.api.writes().len() as u64
    };
    // A call takes 20 ms. The kill follows at two different times after the step is seen.
    for within in [5, 25] {
        for step in 1..14 {
            let mut world = scene().await;
            world.lead().await;
            let first = steps(&world);
            let wait = world.until("the step", |world| {
                steps(world) >= first + step || world.all_created(6) && world.routed(6)
            });
            wait.await;
            sleep(Duration::from_millis(within)).await;
            world.kill_ccm().await;
            sleep(Duration::from_millis(100)).await;
            world.run();
            world
                .until(
                    "the next leader makes the missing routes and removes the surplus ones",
                    |world| world.routed(6) && world.all_created(6),
                )
                .await;
            assert_eq!(
                world.cloud.cloud_writes(),
                3 + 4,
                "makes and removes nothing twice: {step}"
            );
        }
    }
}
