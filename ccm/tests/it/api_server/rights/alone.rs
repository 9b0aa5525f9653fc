//! Each controller alone, with the rights that the chart grants for it alone: they suffice, and the
//! controller uses each of them, except for those that every ccm has.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::Api;
use provider_sdk::FailureCode;
use testenv::Process;
use testenv::objects::NodeBuilder;

use super::*;
use crate::world::balancer;

/// The rights that the chart grants for these controllers.
fn rights(controllers: &[&str]) -> String {
    let mut values = json!({
        "controllers": controllers,
        "provider": {"image": {"repository": "provider-mock"}},
    });
    if controllers.contains(&"node-route-controller") {
        values["cluster"] = json!({"cidrs": ["10.244.0.0/16", "fd00:244::/48"]});
    }
    let mut templates = vec!["rbac.yaml"];
    if controllers.contains(&"persistent-volume-label-controller") {
        templates.push("rbac-volumes.yaml");
    }
    render(&values, &templates).unwrap()
}

/// The rights of any ccm: the Lease, events, the cluster's identity. The test of all controllers
/// shows that they are used.
fn everybodys() -> BTreeSet<String> {
    let of = |controller| granted(&rights(&[controller]));
    let volumes = of("persistent-volume-label-controller");
    of("node-route-controller")
        .intersection(&volumes)
        .cloned()
        .collect()
}

/// A world in which a ccm with only this controller leads, and the proxy before the API server.
async fn alone(controller: &str, fixture: Fixture, more: &[&str]) -> (World, Proxy, Process) {
    let mut world = World::with_rights(fixture, &rights(&[controller])).await;
    let proxy = Proxy::start(&world.plane).await;
    let controllers = format!("--controllers={controller}");
    let proxied = proxy.flag();
    let mut flags = vec![controllers.as_str(), proxied.as_str()];
    flags.extend(more);
    let port = free_port().to_string();
    let port = format!("--secure-port={port}");
    flags.extend([port.as_str(), "--bind-address=127.0.0.1"]);
    let ccm = world.ccm(&flags);
    world.led_by(&ccm).await;
    (world, proxy, ccm)
}

/// Checks that the API server refused nothing, that the ccm used only rights that it has, and that
/// it used all of them, except for those that every ccm has.
async fn suffice_and_are_needed(world: &World, controller: &str) {
    let granted = granted(&rights(&[controller]));
    let own: BTreeSet<_> = granted.difference(&everybodys()).cloned().collect();
    assert!(!own.is_empty(), "{controller}: {granted:?}");
    // The API server logs a request only when it answers.
    let what = format!("{controller} uses all its rights");
    let asked = eventually(&what, SOON, async || {
        let asked = asked(&world.audit_log());
        let unused = unused(&own, &asked);
        if unused.is_empty() {
            Ok(asked)
        } else {
            Err(format!("not used: {unused:?}"))
        }
    })
    .await;
    nothing_refused(&asked);
    // Everybody may ask for the version. A role of the cluster itself grants the other right.
    let others = ["/version get", "/configmaps get"];
    no_more_asked(&asked, &granted, &others, controller);
}

#[tokio::test]
async fn b_m5_the_node_controller_needs_its_rights_and_no_more() {
    let controller = "cloud-node-controller";
    let (world, proxy, _ccm) = alone(controller, Fixture::default(), &[]).await;
    proxy.answer(Rule::new("PATCH", "/nodes/node-1", 1, 409));
    world.join("node-1").await;
    world.initialised("node-1").await;
    suffice_and_are_needed(&world, controller).await;
}

#[tokio::test]
async fn b_m5_the_lifecycle_controller_alone_may_delete_nodes() {
    let controller = "cloud-node-lifecycle-controller";
    let more = [
        "--node-monitor-period=1s",
        "--node-deletion-brake=min-age=1s",
    ];
    let (world, _proxy, _ccm) = alone(controller, Fixture::default(), &more).await;
    for name in ["node-1", "node-2", "node-3"] {
        let instance = crate::world::instance(name);
        world.cloud().add_instance(instance).unwrap();
        let node = NodeBuilder::new(name).provider_id(format!("mock://zone-1/{name}"));
        world.register(node).await;
    }
    world.instance_stops("node-2").await;
    world.instance_and_node_go("node-1").await;
    suffice_and_are_needed(&world, controller).await;
    let controllers = [
        "cloud-node-controller",
        "service-lb-controller",
        "node-route-controller",
        "persistent-volume-label-controller",
    ];
    let others = granted(&rights(&controllers));
    let deletes: Vec<_> = others
        .iter()
        .filter(|what| what.ends_with(" delete"))
        .collect();
    assert!(deletes.is_empty(), "{deletes:?}");
}

#[tokio::test]
async fn b_m5_the_service_controller_needs_its_rights_and_no_more() {
    let controller = "service-lb-controller";
    let (world, proxy, _ccm) = alone(controller, Fixture::default(), &[]).await;
    proxy.answer(Rule::new("PATCH", "/services/web", 1, 409));
    world.service_comes_and_goes("web").await;
    let fault = provider_mock::Fault::failure("EnsureLoadBalancer", FailureCode::Invalid);
    world.cloud().set_fault(fault).unwrap();
    world.create_service(balancer("wrong")).await;
    world.event("wrong", "Warning SyncLoadBalancerFailed").await;
    suffice_and_are_needed(&world, controller).await;
}

#[tokio::test]
async fn b_m5_the_route_controller_needs_its_rights_and_no_more() {
    let controller = "node-route-controller";
    let (world, proxy, _ccm) = alone(controller, Fixture::default(), &crate::routes::FLAGS).await;
    proxy.answer(Rule::new("PATCH", "/nodes/node-1/status", 1, 409));
    let instance = crate::world::instance("node-1");
    world.cloud().add_instance(instance).unwrap();
    // As another controller leaves it: initialised.
    let node = NodeBuilder::new("node-1")
        .provider_id("mock://zone-1/node-1")
        .pod_cidrs(&["10.244.1.0/24"]);
    world.register(node).await;
    crate::routes::condition(&world, "node-1", crate::routes::CREATED).await;
    suffice_and_are_needed(&world, controller).await;
}

#[tokio::test]
async fn b_m5_b_v1_the_volume_controller_needs_its_rights_and_no_more() {
    let controller = "persistent-volume-label-controller";
    let zone = "topology.kubernetes.io/zone";
    let disk = (
        "d-1".to_owned(),
        BTreeMap::from([(zone.to_owned(), "a".to_owned())]),
    );
    let fixture = Fixture {
        volumes: [disk].into(),
        ..Fixture::default()
    };
    let (world, proxy, _ccm) = alone(controller, fixture, &[]).await;
    proxy.answer(Rule::new("PATCH", "/persistentvolumes/one", 1, 409));
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": "one"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": "disk.mock.grpc-ccm.io", "volumeHandle": "d-1"},
        },
    }))
    .unwrap();
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    volumes
        .create(&PostParams::default(), &volume)
        .await
        .unwrap();
    eventually("the volume is labelled", SOON, async || {
        let labels = volumes.get("one").await.unwrap().metadata.labels;
        let labelled = labels.is_some_and(|labels| labels.contains_key(zone));
        labelled.then_some(()).ok_or("it is not")
    })
    .await;
    suffice_and_are_needed(&world, controller).await;
}
