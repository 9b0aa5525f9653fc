//! A provider that comes and goes, and incomplete views of the cluster.

use std::sync::Arc;

use cloud_provider_api::v1alpha1::ProbeState;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::Routes;
use super::super::calls::Kind;
use super::*;
use crate::controllers::node::testing::Fault::Late;
use crate::provider::{CallErrorCode, Capability};

#[tokio::test(start_paused = true)]
async fn m9_a_provider_that_is_back_finds_what_is_to_be_done() {
    let world = World::started(3, |_| {}).await;
    world.until("routes", |world| world.all_created(3)).await;
    sleep(Duration::from_mins(1)).await;
    world.process.kill();
    world
        .provider
        .until("gone", |status| status.working().is_none())
        .await;
    world.join(3);
    sleep(Duration::from_secs(30)).await;
    start(&world.process, &world.cloud).await;
    world
        .provider
        .until("back", |status| status.working().is_some())
        .await;
    let took = world.until("routed", |world| world.routed(4)).await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn s20_another_cloud_scope_makes_and_removes_nothing() {
    let mut world = World::new(3, |_| {}).await;
    world.plant(3..4);
    world.provider.annotations.send_replace(
        [(
            crate::provider::testing::SCOPE_KEY.to_owned(),
            "another account".to_owned(),
        )]
        .into(),
    );
    world.lead().await;
    world
        .provider
        .until("refused", |status| {
            status.session.is_some() && !status.scope_accepted
        })
        .await;
    sleep(Duration::from_mins(10)).await;
    assert_eq!((world.lists(), world.creates(), world.deletes()), (0, 0, 0));
    assert!(
        (0..3).all(|i| world.condition(i).is_empty()),
        "and changes no condition"
    );
    let scope = world.provider.status.borrow().cloud_scope.clone().unwrap();
    world
        .provider
        .annotations
        .send_replace([(crate::provider::testing::SCOPE_KEY.to_owned(), scope)].into());
    world.until("accepted", |world| world.routed(3)).await;
}

#[tokio::test(start_paused = true)]
async fn m9_a_degraded_provider_makes_routes_and_removes_none() {
    let mut world = World::new(3, |_| {}).await;
    world.plant(3..4);
    world.fault(Fault::new("Probe", FaultKind::ProbeState).value("DEGRADED"));
    world.lead().await;
    world.until("made", |world| world.all_created(3)).await;
    let lists = world.lists();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.deletes(), 0);
    assert_eq!(world.lists(), lists, "nor does it ask again and again");
    world.cloud.clear_faults();
    world
        .provider
        .until("READY", ProviderStatus::may_delete)
        .await;
    let took = world.until("removed", |world| world.routed(3)).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn r7_a_view_without_nodes_removes_nothing() {
    let mut world = World::of_days(0).await;
    world.plant(0..30);
    world.lead().await;
    sleep(Duration::from_hours(48)).await;
    assert!(world.lists() > 0);
    assert_eq!(world.deletes(), 0);
}

#[tokio::test(start_paused = true)]
async fn r7_before_many_routes_go_the_api_server_is_asked() {
    let world = World::started(30, |_| {}).await;
    world.until("routes", |world| world.all_created(30)).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(world.api.lists(), 0);
    // The store loses twenty Nodes, of which the API server still has eighteen.
    for i in 0..20 {
        world.api.hide(&name(i));
    }
    for i in 0..2 {
        world.api.delete(&name(i));
    }
    world.until("asked", |world| world.api.lists() > 0).await;
    world
        .until("removed", |world| world.routes().len() == 28)
        .await;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(
        world.routes().len(),
        28,
        "what the API server has keeps its route"
    );
    // The controller cannot read the Nodes from the API server, so it removes nothing.
    world.api.refuse([500; 1000]);
    for i in 20..30 {
        world.api.hide(&name(i));
    }
    sleep(Duration::from_mins(2)).await;
    assert_eq!(world.routes().len(), 28);
}

/// Deletes seven of thirty Nodes. Returns when the API server has the request for all Nodes, which
/// it answers `late`.
async fn seven_of_thirty_go(late: Duration) -> World {
    let world = World::started(30, |_| {}).await;
    world.until("routes", |world| world.all_created(30)).await;
    sleep(Duration::from_mins(1)).await;
    world.api.faults.reads(1, Late(late));
    for i in 23..30 {
        world.api.delete(&name(i));
    }
    world.until("asked", |world| world.api.lists() == 1).await;
    world
}

#[tokio::test(start_paused = true)]
async fn r7_a_provider_that_is_broken_when_the_api_server_answers_is_asked_again() {
    let world = seven_of_thirty_go(Duration::from_secs(30)).await;
    let session = usable(&world).await.session.unwrap();
    world.fault(Fault::new("Probe", FaultKind::ProbeState).value("BROKEN"));
    let broken = |status: &ProviderStatus| status.probe == ProbeState::Broken;
    world.provider.until("BROKEN", broken).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!((world.api.lists(), world.deletes()), (1, 0));
    world.cloud.clear_faults();
    let now = usable(&world).await.session.unwrap();
    assert!(Arc::ptr_eq(&session, &now));
    let took = world.until("removed", |world| world.routed(23)).await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn r7_a_late_answer_deletes_no_route_of_nodes_that_came_meanwhile() {
    let world = seven_of_thirty_go(Duration::from_secs(20)).await;
    let lists = world.lists();
    for i in 23..30 {
        world.api.put(&node(i));
    }
    let newer = |world: &World| world.lists() == lists + 1;
    let took = world.until("a newer pass", newer).await;
    assert!(
        took > Duration::from_secs(15),
        "one pass at a time: {took:?}"
    );
    sleep(Duration::from_mins(10)).await;
    assert!(world.routed(30), "{:?}", world.routes());
    assert_eq!(world.deletes(), 0);
}

#[tokio::test(start_paused = true)]
async fn r7_routes_go_although_nodes_join_during_each_pass() {
    let world = World::started(30, |_| {}).await;
    world.until("routes", |world| world.all_created(30)).await;
    sleep(Duration::from_mins(1)).await;
    let slow = Duration::from_secs(15);
    world.cloud.set_latency("ListRoutes", slow).unwrap();
    world.api.faults.reads(1000, Late(Duration::from_secs(5)));
    for i in 23..30 {
        world.api.delete(&name(i));
    }
    for i in 30..60 {
        world.join(i);
        sleep(Duration::from_secs(4)).await;
    }
    assert!(world.deletes() > 0, "{:?}", world.routes());
    let wanted = |world: &World| world.routes().len() == 53;
    world.until("the rest", wanted).await;
}

#[tokio::test(start_paused = true)]
async fn b_r2_r7_routes_of_gone_nodes_go_though_list_and_nodes_take_over_five_minutes() {
    let world = World::started(30, |_| {}).await;
    world.until("routes", |world| world.all_created(30)).await;
    sleep(Duration::from_mins(1)).await;
    let slow = Duration::from_secs(285);
    world.cloud.set_latency("ListRoutes", slow).unwrap();
    world.api.faults.reads(1000, Late(Duration::from_secs(20)));
    for i in 23..30 {
        world.api.delete(&name(i));
    }
    let took = world.until("removed", |world| world.routed(23)).await;
    assert!(took < Duration::from_mins(6), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn m3_what_is_in_flight_ends_and_nothing_new_is_begun() {
    let mut world = World::started(0, |fixture| {
        fixture.capabilities.routes.max_in_flight = 2;
        fixture.capabilities.routes.max_batch = 10;
    })
    .await;
    world
        .cloud
        .set_latency("CreateRoutes", Duration::from_secs(5))
        .unwrap();
    for i in 0..50 {
        world.join(i);
    }
    world
        .until("in flight", |world| {
            world.cloud.in_flight("CreateRoutes") == 1
        })
        .await;
    world.stop_ccm().await;
    assert_eq!(world.cloud.in_flight("CreateRoutes"), 0);
    assert_eq!(world.creates(), 1);
    world.run();
    world
        .until("the next one goes on", |world| world.all_created(50))
        .await;
    assert_eq!(world.cloud.cloud_writes(), 50);
}

/// The status once a session is usable.
async fn usable(world: &World) -> ProviderStatus {
    let ready = |status: &ProviderStatus| {
        status.usable(Capability::Routes).is_some() && status.may_delete()
    };
    world.provider.until("a usable session", ready).await
}

#[tokio::test(start_paused = true)]
async fn m9_each_condition_of_a_call_is_looked_at_just_before_it() {
    let world = World::new(1, |_| {}).await;
    world.provider.lead();
    let before = usable(&world).await;
    world.process.kill();
    let gone = |status: &ProviderStatus| status.session.is_none();
    world.provider.until("gone", gone).await;
    start(&world.process, &world.cloud).await;
    let now = usable(&world).await;
    let sent = async |status: &ProviderStatus, stopped: bool| {
        let stop = CancellationToken::new();
        if stopped {
            stop.cancel();
        }
        let (_sender, status) = watch::channel(status.clone());
        let context = LoopContext {
            status,
            stop,
            ..world.context.clone()
        };
        let metrics = Metrics::register(&mut Registry::default());
        let (routes, session) = (Routes::new(context, metrics), now.session.clone().unwrap());
        let mut sent = [false; 2];
        for (kind, sent) in [Kind::Create, Kind::Delete].into_iter().zip(&mut sent) {
            let answer = routes.call(&session, kind, &[]).await;
            *sent = !answer.is_err_and(|trouble| trouble.code == CallErrorCode::Fenced);
        }
        sent
    };
    let with = |change: fn(&mut ProviderStatus)| {
        let mut status = now.clone();
        change(&mut status);
        status
    };
    let degraded = with(|status| status.probe = ProbeState::Degraded);
    let broken = with(|status| status.probe = ProbeState::Broken);
    let refused = with(|status| status.scope_accepted = false);
    for (what, status, stopped, wanted) in [
        ("all is well", &now, false, [true, true]),
        ("DEGRADED", &degraded, false, [true, false]),
        ("BROKEN", &broken, false, [false, false]),
        ("another cloud scope", &refused, false, [false, false]),
        ("another session", &before, false, [false, false]),
        ("the loop stops", &now, true, [false, false]),
    ] {
        assert_eq!(sent(status, stopped).await, wanted, "{what}");
    }
}
