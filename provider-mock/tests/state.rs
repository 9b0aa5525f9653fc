//! The state file: one cloud at a time holds it. A change that cannot be written to it is reverted.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use common::{World, cluster, dial, service};
use pb::delete_load_balancer_response::Outcome as Deleted;
use pb::ensure_load_balancer_response::Outcome as Ensured;
use provider_mock::{Cloud, Fixture, Instance, LoadBalancer, Mock, Route};

const TWO: &str = "instances: [{name: a}, {name: b}]";

#[tokio::test(start_paused = true)]
async fn a_second_cloud_on_one_state_file_waits_and_is_then_refused() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.json");
    let fixture = Fixture::parse(TWO, "test.yaml").unwrap();
    let first = Cloud::open(fixture.clone(), Some(&state)).unwrap();
    let error = Cloud::open_when_free(fixture.clone(), Some(&state))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("state.json: another provider-mock uses") && error.contains("--state"),
        "{error}"
    );
    // The second cloud waits for the first, which still drains.
    let (second, ()) = tokio::join!(Cloud::open_when_free(fixture, Some(&state)), async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        drop(first);
    });
    assert_eq!(second.unwrap().instance_count(), 2);
}

/// Everything that a person, a test and the controller can see of the objects and the writes.
fn seen(cloud: &Cloud) -> String {
    format!(
        "{:?} {:?} {:?} {:?}",
        cloud.instances(),
        cloud.load_balancers(),
        cloud.routes(),
        cloud.writes()
    )
}

#[tokio::test]
async fn what_could_not_be_saved_did_not_happen() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.json");
    let fixture = Fixture::parse(TWO, "test.yaml").unwrap();
    let mock = Mock::start(
        fixture,
        directory.path().join("s/provider.sock"),
        Some(state.clone()),
    )
    .await
    .unwrap();
    let channel = dial(&mock).await;
    let world = World {
        directory,
        mock,
        channel,
    };
    world.initialize(&[]).await;
    world.ensure(service("web"), None, &["a", "b"]).await;
    let cloud = world.mock.cloud();
    cloud.plant_route(Route::new("r", "10.0.1.0/24")).unwrap();
    let before = seen(cloud);

    // A directory at the path of the new file makes every save fail.
    let new = state.with_file_name("state.json.new");
    std::fs::create_dir(&new).unwrap();
    let internal = pb::FailureCode::Internal;
    for name in ["web", "other"] {
        let made = world.ensure(service(name), None, &["a"]).await;
        assert!(
            matches!(&made.outcome, Some(Ensured::Failed(failed)) if failed.code() == internal),
            "{made:?}"
        );
    }
    let deleted = world.delete(service("web"), None).await;
    assert!(matches!(deleted, Deleted::Failed(failed) if failed.code() == internal));
    let update = pb::UpdateLoadBalancerRequest {
        cluster: cluster("us"),
        service: Some(service("web")),
        handle: None,
        targets: Some(common::target_set(&["a"])),
    };
    let updated = world.load_balancers().update_load_balancer(update).await;
    assert!(matches!(
        updated.unwrap().into_inner().outcome,
        Some(pb::update_load_balancer_response::Outcome::Failed(_))
    ));
    let routes = ["10.0.2.0/24", "10.0.3.0/24"].map(|cidr| pb::Route {
        route_key: cidr.into(),
        name_hint: "hint".into(),
        destination_cidr: cidr.into(),
        node_name: Some("a".into()),
        ..pb::Route::default()
    });
    let mut client = world.routes();
    let created = client.create_routes(pb::CreateRoutesRequest {
        cluster: cluster("us"),
        routes: routes.to_vec(),
    });
    let failed = created.await.unwrap().into_inner().failed.unwrap();
    assert_eq!(failed.code(), internal);
    let errors = [
        cloud.add_instance(Instance::new("c")).err(),
        cloud.remove_instance("a").err(),
        cloud.rename_instance("a", "z").err(),
        cloud.stop_instance("b").err(),
        cloud.plant_load_balancer(LoadBalancer::default()).err(),
        cloud.remove_load_balancer("lb-1").err(),
        cloud
            .change_load_balancer("lb-1", |lb| lb.targets.clear())
            .err(),
        cloud.plant_route(Route::new("s", "10.0.4.0/24")).err(),
        cloud.remove_route("r").err(),
        cloud.reset().err(),
    ];
    for (index, error) in errors.into_iter().enumerate() {
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("state.json"), "{index}: {error:?}");
    }
    assert_eq!(seen(cloud), before);

    // The next save does not have the reverted change either.
    std::fs::remove_dir(&new).unwrap();
    cloud.stop_instance("b").unwrap();
    world.ensure(service("other"), None, &["a"]).await;
    assert!(cloud.load_balancers().iter().any(|lb| lb.handle == "lb-2"));
    let saved: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&state).unwrap()).unwrap();
    let count = |what: &str| saved[what].as_array().unwrap().len();
    assert_eq!(
        (count("instances"), count("load_balancers"), count("routes")),
        (2, 2, 1)
    );
}
