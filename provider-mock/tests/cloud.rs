//! The cloud over a real socket: instances, load balancers, routes, hints, restarts.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use common::{PATIENCE, World, cluster, dial, service};
use pb::delete_load_balancer_response::Outcome as Deleted;
use pb::ensure_load_balancer_response::Outcome as Ensured;
use provider_mock::{Fixture, LoadBalancer, Mock, Power, native_name};

const TWO: &str = "instances: [{name: a, zone: z, region: r}, {name: b}]";

#[tokio::test]
async fn the_example_is_served_whole() {
    let fixture = Fixture::load(&common::example()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mock = Mock::start(fixture, directory.path().join("provider.sock"), None)
        .await
        .unwrap();
    assert_eq!(mock.cloud().instance_count(), 6);
    let mut client = pb::provider_service_client::ProviderServiceClient::new(dial(&mock).await);
    let info = client
        .get_provider_info(pb::GetProviderInfoRequest::default())
        .await
        .unwrap()
        .into_inner();
    let capabilities = info.capabilities.unwrap();
    assert_eq!(capabilities.instances.unwrap().max_batch, Some(100));
    let lbs = capabilities.load_balancers.unwrap();
    assert!(lbs.listing && lbs.in_sync && lbs.features.len() == 9);
    assert!(
        capabilities.routes.is_some()
            && capabilities.changes.is_some()
            && capabilities.zones.is_some()
    );
}

#[tokio::test]
async fn what_is_switched_off_is_not_offered() {
    let yaml = "capabilities: {zones: {offered: false}, routes: {offered: false}, instances: {listing: false}}";
    let world = World::new(yaml).await;
    let info = world
        .provider()
        .get_provider_info(pb::GetProviderInfoRequest::default())
        .await
        .unwrap();
    let capabilities = info.into_inner().capabilities.unwrap();
    assert!(capabilities.zones.is_none() && capabilities.routes.is_none());
    assert!(!capabilities.instances.unwrap().listing);
    let routes = world
        .routes()
        .list_routes(pb::ListRoutesRequest {
            cluster: cluster("us"),
        })
        .await;
    assert_eq!(routes.unwrap_err().code(), tonic::Code::Unimplemented);
}

#[tokio::test]
async fn instances_change_while_it_runs() {
    let world = World::new(TWO).await;
    let cloud = world.mock.cloud();
    assert_eq!(
        world.states(&["a", "b", "c"]).await,
        ["a=RUNNING", "b=RUNNING", "c=ABSENT"]
    );
    cloud.stop_instance("a").unwrap();
    cloud.rename_instance("b", "c").unwrap();
    assert_eq!(
        world.states(&["a", "b", "c"]).await,
        ["a=STOPPED", "b=ABSENT", "c=RUNNING"]
    );
    cloud.set_power("a", Power::Pending).unwrap();
    cloud.set_power("c", Power::Unknown).unwrap();
    assert_eq!(world.states(&["a", "c"]).await, ["a=PENDING", "c=PRESENT"]);
    cloud.remove_instance("c").unwrap();
    assert_eq!(world.states(&["c"]).await, ["c=ABSENT"]);
    assert_eq!(cloud.call_count("LookupInstances"), 4);
    let last = cloud.calls(Some("LookupInstances")).pop().unwrap();
    assert_eq!(
        (last.count, last.names, last.outcome.as_str()),
        (1, vec!["c".to_owned()], "ok")
    );
}

#[tokio::test]
async fn a_load_balancer_is_made_kept_and_deleted() {
    let world = World::new(TWO).await;
    let cloud = world.mock.cloud();
    let made = world.ensure(service("web"), None, &["a", "b"]).await;
    let Some(Ensured::Ready(ready)) = made.outcome else {
        panic!("{made:?}")
    };
    assert_eq!(
        ready.status.unwrap().ingress[0].ip.as_deref(),
        Some("192.0.2.1")
    );
    assert_eq!(made.handle.as_deref(), Some("lb-1"));
    assert_eq!(cloud.cloud_writes(), 1);

    // Nothing differs: Ensure writes nothing, and Get reports `in_sync`.
    world
        .ensure(service("web"), Some("lb-1"), &["a", "b"])
        .await;
    assert_eq!(
        world.get(service("web"), &["a", "b"]).await.in_sync,
        Some(true)
    );
    assert_eq!(world.get(service("web"), &["a"]).await.in_sync, Some(false));
    assert_eq!((cloud.cloud_writes(), cloud.mutating_calls()), (1, 2));

    // A mark of a former owner ID is OURS, and the next write replaces it.
    cloud
        .change_load_balancer("lb-1", |lb| {
            lb.owner.as_mut().unwrap().owner_id = "former".into();
        })
        .unwrap();
    let refused = world.ensure(service("web"), Some("lb-1"), &["a"]).await;
    assert!(
        matches!(refused.outcome, Some(Ensured::Failed(failed)) if failed.code() == pb::FailureCode::Conflict)
    );
    world.initialize(&["former"]).await;
    world.ensure(service("web"), Some("lb-1"), &["a"]).await;
    let lb = cloud.load_balancer("default", "web").unwrap();
    assert_eq!(
        (lb.owner.unwrap().owner_id.as_str(), lb.targets),
        ("us", vec!["a".to_owned()])
    );

    assert!(matches!(
        world.delete(service("web"), Some("lb-1")).await,
        Deleted::Done(_)
    ));
    assert!(matches!(
        world.delete(service("web"), None).await,
        Deleted::Done(_)
    ));
    assert!(cloud.load_balancers().is_empty());
    assert_eq!(cloud.cloud_writes(), 3);
    let update = pb::UpdateLoadBalancerRequest {
        cluster: cluster("us"),
        service: Some(service("web")),
        handle: None,
        targets: Some(common::target_set(&["a"])),
    };
    let answer = world
        .load_balancers()
        .update_load_balancer(update)
        .await
        .unwrap()
        .into_inner();
    let Some(pb::update_load_balancer_response::Outcome::Failed(failed)) = answer.outcome else {
        panic!()
    };
    assert_eq!(failed.code(), pb::FailureCode::NotFound);
}

#[tokio::test]
async fn a_load_balancer_is_pending_until_its_time_has_come() {
    let world = World::new(TWO).await;
    let cloud = world.mock.cloud();
    cloud
        .set_provisioning(Duration::from_hours(1), Duration::from_hours(1))
        .unwrap();
    let made = world.ensure(service("web"), None, &["a"]).await;
    assert!(
        matches!(made.outcome, Some(Ensured::Pending(_))),
        "{made:?}"
    );
    assert_eq!(made.handle.as_deref(), Some("lb-1"));
    assert_eq!(world.get(service("web"), &["a"]).await.in_sync, Some(false));
    cloud
        .change_load_balancer("lb-1", |lb| lb.ready_at_ms = 0)
        .unwrap();
    assert!(matches!(
        world.ensure(service("web"), None, &["a"]).await.outcome,
        Some(Ensured::Ready(_))
    ));
    assert!(matches!(
        world.delete(service("web"), None).await,
        Deleted::Pending(_)
    ));
    assert_eq!(
        world.get(service("web"), &[]).await.presence(),
        pb::LoadBalancerPresence::Remnants
    );
    cloud
        .change_load_balancer("lb-1", |lb| lb.gone_at_ms = Some(0))
        .unwrap();
    assert!(matches!(
        world.delete(service("web"), None).await,
        Deleted::Done(_)
    ));
    assert_eq!(cloud.cloud_writes(), 2);
}

#[tokio::test]
async fn annotations_and_scripts_steer_single_services() {
    let yaml = "{target_errors: {b: {code: PRECONDITION}}, services: {default/web: {set_annotations: {k: v}, events: [{reason: Told}]}}}";
    let world = World::new(yaml).await;
    let cloud = world.mock.cloud();
    let made = world.ensure(service("web"), None, &["a", "b"]).await;
    assert_eq!(made.target_errors[0].node_name, "b");
    assert_eq!(made.annotations.unwrap().set["k"], "v");
    assert_eq!(made.events[0].reason, "Told");
    assert_eq!(cloud.load_balancers()[0].targets, ["a"]);
    let mut kept = service("web");
    kept.annotations
        .insert("mock.grpc-ccm.io/retain".into(), "true".into());
    assert!(matches!(
        world.delete(kept, None).await,
        Deleted::Retained(_)
    ));
    assert_eq!(cloud.load_balancers().len(), 1);
    let mut other = service("other");
    other
        .annotations
        .insert("mock.grpc-ccm.io/handled-elsewhere".into(), "true".into());
    assert!(matches!(
        world.ensure(other, None, &[]).await.outcome,
        Some(Ensured::HandledElsewhere(_))
    ));

    let unmarked = LoadBalancer {
        name: native_name("uid-old"),
        ..LoadBalancer::default()
    };
    cloud.plant_load_balancer(unmarked).unwrap();
    let found = world.get(service("old"), &[]).await;
    assert_eq!(found.ownership(), pb::Ownership::Unmarked);
}

/// LB-26: Delete removes the Service's own load balancer. Then it is not done, because an unmarked
/// one is left.
#[tokio::test]
async fn a_delete_is_not_done_while_an_unmarked_load_balancer_remains() {
    let world = World::new(TWO).await;
    let cloud = world.mock.cloud();
    for adopt_unmarked in [false, true] {
        world.ensure(service("web"), None, &[]).await;
        let unmarked = LoadBalancer {
            name: native_name("uid-web"),
            ..LoadBalancer::default()
        };
        cloud.plant_load_balancer(unmarked).unwrap();
        let delete = async |adopt_unmarked: bool| {
            let request = pb::DeleteLoadBalancerRequest {
                cluster: cluster("us"),
                service: Some(service("web")),
                handle: None,
                adopt_unmarked,
            };
            let mut client = world.load_balancers();
            let answer = client.delete_load_balancer(request).await.unwrap();
            answer.into_inner().outcome.unwrap()
        };
        let conflicts = |outcome: &Deleted| match outcome {
            Deleted::Failed(failed) => failed.code() == pb::FailureCode::Conflict,
            _ => false,
        };
        let first = delete(adopt_unmarked).await;
        if adopt_unmarked {
            assert!(matches!(first, Deleted::Pending(_)), "{first:?}");
        } else {
            assert!(conflicts(&first), "{first:?}");
            let again = delete(false).await;
            assert!(conflicts(&again), "{again:?}");
        }
        let left = cloud.load_balancers();
        assert!(left.len() == 1 && left[0].owner.is_none(), "{left:?}");
        let last = delete(true).await;
        assert!(matches!(last, Deleted::Done(_)), "{last:?}");
        assert!(cloud.load_balancers().is_empty());
    }
}

#[tokio::test]
async fn routes_are_made_listed_and_deleted() {
    let world = World::new("{instances: [{name: a}], routes: [{name: theirs, destination_cidr: 10.9.0.0/24, node_name: a, owner_id: them}]}").await;
    let cloud = world.mock.cloud();
    let route = |key: &str, cidr: &str| pb::Route {
        route_key: key.into(),
        name_hint: "uid-a".into(),
        destination_cidr: cidr.into(),
        node_name: Some("a".into()),
        ..Default::default()
    };
    let request = pb::CreateRoutesRequest {
        cluster: cluster("us"),
        routes: vec![route("1", "10.0.1.0/24"), route("2", "10.9.0.0/24")],
    };
    for _ in 0..2 {
        let answer = world
            .routes()
            .create_routes(request.clone())
            .await
            .unwrap()
            .into_inner();
        let done = |key: &str| {
            let result = answer
                .results
                .iter()
                .find(|result| result.route_key == key)
                .unwrap();
            matches!(result.outcome, Some(pb::route_result::Outcome::Done(_)))
        };
        assert!(done("1") && !done("2"), "{answer:?}");
    }
    assert_eq!((cloud.routes().len(), cloud.cloud_writes()), (2, 1));
    cloud.remove_instance("a").unwrap();
    let mut parts = world
        .routes()
        .list_routes(pb::ListRoutesRequest {
            cluster: cluster("us"),
        })
        .await
        .unwrap()
        .into_inner();
    let Some(pb::list_routes_response::Part::Routes(list)) =
        parts.message().await.unwrap().unwrap().part
    else {
        panic!()
    };
    assert!(list.routes.iter().all(|route| route.blackhole), "{list:?}");
    let ours: Vec<_> = list
        .routes
        .into_iter()
        .filter(|route| route.ownership() == pb::Ownership::Ours)
        .collect();
    let request = pb::DeleteRoutesRequest {
        cluster: cluster("us"),
        routes: vec![pb::Route {
            route_key: "x".into(),
            ..ours[0].clone()
        }],
    };
    world.routes().delete_routes(request).await.unwrap();
    assert_eq!(cloud.routes().len(), 1);
}

#[tokio::test]
async fn hints_come_and_are_resumed() {
    let world = World::new(TWO).await;
    let cloud = world.mock.cloud();
    let watch = |token: &str| pb::WatchChangesRequest {
        cluster: cluster("us"),
        resume_token: token.into(),
    };
    let mut stream = world
        .provider()
        .watch_changes(watch("unknown"))
        .await
        .unwrap()
        .into_inner();
    let first = stream.message().await.unwrap().unwrap();
    assert!(matches!(
        first.change,
        Some(pb::watch_changes_response::Change::Resync(_))
    ));
    cloud.stop_instance("a").unwrap();
    let hint = stream.message().await.unwrap().unwrap();
    let Some(pb::watch_changes_response::Change::Instance(change)) = hint.change else {
        panic!()
    };
    assert_eq!(
        (change.node_name.as_str(), change.provider_id.as_str()),
        ("a", "mock://z/a")
    );
    drop(stream);
    cloud.start_instance("b").unwrap();
    let mut stream = world
        .provider()
        .watch_changes(watch(&hint.resume_token))
        .await
        .unwrap()
        .into_inner();
    // The bookmark comes before the first change (PROV-21).
    let bookmark = stream.message().await.unwrap().unwrap();
    assert!(bookmark.change.is_none());
    assert_eq!(bookmark.resume_token, hint.resume_token);
    let hint = stream.message().await.unwrap().unwrap();
    assert!(
        matches!(hint.change, Some(pb::watch_changes_response::Change::Instance(change)) if change.node_name == "b")
    );
    // A shutdown ends the stream with status OK.
    let (end, ()) = tokio::join!(stream.message(), world.mock.shutdown());
    assert!(end.unwrap().is_none());
}

#[tokio::test]
async fn a_killed_provider_comes_back_with_the_same_cloud() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.json");
    let fixture = Fixture::parse(TWO, "test.yaml").unwrap();
    let socket = directory.path().join("provider.sock");
    let mock = Mock::start(fixture.clone(), &socket, Some(state.clone()))
        .await
        .unwrap();
    let channel = dial(&mock).await;
    let world = World {
        directory,
        mock,
        channel,
    };
    world.initialize(&[]).await;
    world.ensure(service("web"), None, &["a"]).await;
    let probe = world
        .provider()
        .probe(pb::ProbeRequest {})
        .await
        .unwrap()
        .into_inner();

    world
        .mock
        .cloud()
        .set_fault(provider_mock::Fault::new(
            "Probe",
            provider_mock::FaultKind::Hang,
        ))
        .unwrap();
    let mut client = world.provider();
    let hung = tokio::spawn(async move { client.probe(pb::ProbeRequest {}).await });
    assert!(
        world
            .mock
            .cloud()
            .wait_until(PATIENCE, |cloud| cloud.in_flight("Probe") == 1)
            .await
    );
    world.mock.kill();
    assert!(!world.mock.is_running());
    let cut = tokio::time::timeout(PATIENCE, hung).await.unwrap().unwrap();
    assert!(cut.is_err());
    world.mock.cloud().clear_faults();

    world.mock.restart().await.unwrap();
    let again = World {
        channel: dial(&world.mock).await,
        ..world
    };
    let answer = again
        .provider()
        .probe(pb::ProbeRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_ne!(answer.boot_id, probe.boot_id);
    assert_eq!(again.states(&["a"]).await, ["FAILURE_CODE_NOT_INITIALIZED"]);
    assert_eq!(again.mock.cloud().load_balancers().len(), 1);

    // Another cloud reads the objects from the state file, which overrides the fixture.
    again.mock.cloud().remove_instance("b").unwrap();
    let was = again.mock.cloud().load_balancers();
    let World {
        directory: _directory,
        mock,
        ..
    } = again;
    drop(mock);
    let other = provider_mock::Cloud::open_when_free(fixture, Some(&state))
        .await
        .unwrap();
    assert_eq!(other.load_balancers(), was);
    assert_eq!(other.instance_count(), 1);
}

#[tokio::test]
async fn b_v1_disks_have_labels_missing_ones_do_not_exist_and_foreign_ones_have_none() {
    use pb::get_volume_labels_response::Outcome;
    let world = World::new("volumes: {disk-1: {topology.kubernetes.io/zone: a}}").await;
    let info = world
        .provider()
        .get_provider_info(pb::GetProviderInfoRequest::default())
        .await
        .unwrap();
    let capability = info.into_inner().capabilities.unwrap().volumes.unwrap();
    assert_eq!(capability.source_types, ["csi/disk.mock.grpc-ccm.io"]);
    assert_eq!(capability.max_in_flight, Some(8));
    let labels = async |driver: &str, disk: &str| {
        let source = [("driver", driver), ("volumeHandle", disk)];
        let volume = pb::VolumeView {
            name: "pv".into(),
            source_type: "csi".into(),
            source: source.map(|(key, value)| (key.into(), value.into())).into(),
            ..Default::default()
        };
        let mut client = pb::volume_service_client::VolumeServiceClient::new(world.channel.clone());
        let answer = client.get_volume_labels(pb::GetVolumeLabelsRequest {
            cluster: cluster("us"),
            volume: Some(volume),
        });
        answer.await.unwrap().into_inner().outcome.unwrap()
    };
    let ours = "disk.mock.grpc-ccm.io";
    let Outcome::Labels(found) = labels(ours, "disk-1").await else {
        panic!("it has labels");
    };
    assert_eq!(found.labels["topology.kubernetes.io/zone"], "a");
    let Outcome::Failed(missing) = labels(ours, "disk-2").await else {
        panic!("VOL-1");
    };
    assert_eq!(missing.code(), pb::FailureCode::NotFound);
    let foreign = labels("disk.example.org", "disk-1").await;
    assert_eq!(foreign, Outcome::Labels(pb::VolumeLabels::default()));
}
