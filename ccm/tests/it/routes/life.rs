//! The life of routes.

use kube::api::DeleteParams;
use provider_mock::{Fault, FaultKind, Fixture, Route};
use provider_sdk::FailureCode;
use testenv::{eventually, free_port};

use super::{CREATED, FAILED, ccm, cloud_has, condition, join, register};
use crate::input::get;
use crate::world::{SOON, World, said};

#[tokio::test]
async fn b_r2_b_r4_a_node_gets_its_routes_its_condition_and_loses_them_with_itself() {
    let mut world = World::new(Fixture::default()).await;
    let mut stale = Route::new("stale", "10.244.9.0/24");
    stale.node_name = Some("gone".to_owned());
    world.cloud().plant_route(stale).unwrap();
    let mut outside = Route::new("office", "192.168.0.0/16");
    outside.next_hop = Some("10.0.0.254".to_owned());
    world.cloud().plant_route(outside).unwrap();
    let _ccm = ccm(&mut world, &[]).await;
    join(&world, "node-1", &["10.244.1.0/24", "fd00:244:1::/64"]).await;
    join(&world, "node-2", &["10.244.2.0/24"]).await;
    condition(&world, "node-1", CREATED).await;
    let node = condition(&world, "node-2", CREATED).await;
    // The Node keeps the conditions of other writers.
    let conditions = node.status.unwrap().conditions.unwrap();
    assert!(
        conditions.iter().any(|it| it.type_ == "Ready"),
        "{conditions:?}"
    );
    cloud_has(
        &world,
        &[
            "10.244.1.0/24 node-1",
            "10.244.2.0/24 node-2",
            "192.168.0.0/16 -",
            "fd00:244:1::/64 node-1",
        ],
    )
    .await;
    // The Node is deleted, and comes again under its name with another CIDR.
    let uid = world.node("node-2").await.unwrap().metadata.uid.unwrap();
    world
        .nodes()
        .delete("node-2", &DeleteParams::default())
        .await
        .unwrap();
    cloud_has(
        &world,
        &[
            "10.244.1.0/24 node-1",
            "192.168.0.0/16 -",
            "fd00:244:1::/64 node-1",
        ],
    )
    .await;
    register(&world, "node-2", &["10.244.3.0/24"]).await;
    let node = condition(&world, "node-2", CREATED).await;
    let hint = node.metadata.uid.unwrap();
    assert_ne!(hint, uid);
    let routes = world.cloud().routes();
    let new = routes
        .iter()
        .find(|route| route.destination_cidr == "10.244.3.0/24");
    let new = new.expect("the new route");
    assert!(
        new.name.contains(&hint),
        "named after the UID: {}",
        new.name
    );
}

#[tokio::test]
async fn b_r5_b_r4_a_create_that_fails_is_an_event_and_a_condition_until_it_succeeds() {
    let mut world = World::new(Fixture::default()).await;
    let fault = Fault::failure("CreateRoutes", FailureCode::Precondition);
    world
        .cloud()
        .set_fault(fault.subject("10.244.1.0/24"))
        .unwrap();
    let _ccm = ccm(&mut world, &[]).await;
    join(&world, "node-1", &["10.244.1.0/24"]).await;
    join(&world, "node-2", &["10.244.2.0/24"]).await;
    condition(&world, "node-2", CREATED).await;
    condition(&world, "node-1", FAILED).await;
    let event = world
        .event(
            "node-1",
            "Warning FailedToCreateRoute Could not create route",
        )
        .await;
    assert!(
        event.contains("10.244.1.0/24 for node node-1") && event.contains("scripted by the mock"),
        "{event}"
    );
    world.cloud().clear_faults();
    condition(&world, "node-1", CREATED).await;
}

#[tokio::test]
async fn b_r1_b_m2_routes_run_only_where_the_flags_and_the_provider_say_so() {
    let mut world = World::new(Fixture::default()).await;
    join(&world, "node-1", &["10.244.1.0/24"]).await;
    // Without --allocate-node-cidrs.
    let plain = world.ccm(&["--cluster-cidr=10.244.0.0/16"]);
    said(&plain, "--allocate-node-cidrs is not set").await;
    world.initialised("node-1").await;
    plain.terminate();
    // A start-up error.
    let mut command = world.command(&[
        "--allocate-node-cidrs",
        "--cluster-cidr=10.244.0.0/16,10.245.0.0/16",
    ]);
    let refused = command.output().unwrap();
    assert!(!refused.status.success());
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        text.contains("--cluster-cidr=10.244.0.0/16,10.245.0.0/16"),
        "{text}"
    );
    // A provider without routes, which gets them with another image.
    world
        .cloud()
        .change_settings(|fixture| fixture.capabilities.routes.offered = false)
        .unwrap();
    world.mock.restart().await.unwrap();
    let ccm = ccm(&mut world, &[]).await;
    said(&ccm, "the provider offers no routes").await;
    assert_eq!(world.cloud().call_count("ListRoutes"), 0);
    world
        .cloud()
        .change_settings(|fixture| fixture.capabilities.routes.offered = true)
        .unwrap();
    world.mock.restart().await.unwrap();
    condition(&world, "node-1", CREATED).await;
}

/// Fault: the provider process hangs in CreateRoutes and the ccm is killed meanwhile | the next
/// leader makes the missing routes once
#[tokio::test]
async fn fault_route_the_real_ccm_is_killed_in_the_middle_of_a_call() {
    let mut world = World::new(Fixture::default()).await;
    let fault = Fault::new("CreateRoutes", FaultKind::Hang).times(1);
    world.cloud().set_fault(fault).unwrap();
    let mut first = ccm(&mut world, &[]).await;
    join(&world, "node-1", &["10.244.1.0/24"]).await;
    eventually("the call is made", SOON, async || {
        let running = world.cloud().in_flight("CreateRoutes");
        if running == 1 { Ok(()) } else { Err(running) }
    })
    .await;
    world.crash(&mut first).await;
    let _second = ccm(&mut world, &[]).await;
    condition(&world, "node-1", CREATED).await;
    cloud_has(&world, &["10.244.1.0/24 node-1"]).await;
    let writes = world.cloud().cloud_writes();
    assert_eq!(writes, 1, "the next leader makes the missing routes once");
}

#[tokio::test]
async fn b_m7_the_metrics_have_upstreams_names() {
    let mut world = World::new(Fixture::default()).await;
    let port = free_port();
    let serve = format!("--secure-port={port}");
    let _ccm = ccm(&mut world, &[&serve, "--bind-address=127.0.0.1"]).await;
    join(&world, "node-1", &["10.244.1.0/24"]).await;
    condition(&world, "node-1", CREATED).await;
    let (status, text) = get(port, "/metrics", Some("testenv-admin")).await;
    assert_eq!(status, 200);
    for line in [
        "route_controller_route_sync_total ",
        "workqueue_adds_total{name=\"Routes\"}",
        "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"route\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
