//! A migration from the vendor's controller and back: the load balancer stays, the ccm creates no
//! second one for its Service, and no Node is touched. The test plays the vendor's controller.

use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use serde_json::{Value, json};
use testenv::objects::{NodeBuilder, annotation, ingress};
use testenv::{Balancer, Vendor, eventually};

use crate::world::{SOON, World};

/// The finalizer of upstream's service controller.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const DO_ID: &str = "kubernetes.digitalocean.com/load-balancer-id";
const HETZNER_ID: &str = "load-balancer.hetzner.cloud/id";

#[tokio::test]
async fn from_digitaloceans_controller_and_back_the_load_balancer_stays_and_no_node_is_touched() {
    there_and_back(Vendor::DigitalOcean).await;
}

#[tokio::test]
async fn from_hetzners_controller_and_back_the_load_balancer_stays_and_no_node_is_touched() {
    there_and_back(Vendor::Hetzner).await;
}

async fn there_and_back(vendor: Vendor) {
    let mut world = World::new(vendor, 0).await;
    initialised_node(&world).await;
    let (service, made) = vendor_serves(&world).await;
    let annotations = service.metadata.annotations.clone().unwrap();
    let nodes = world.versions().await;
    let writes = world.cloud.writes().unwrap();

    // Without the operator's grant nothing in the cloud is touched, and an event on the Service
    // says what is missing.
    world.cloud.start_provider(&[]).unwrap();
    world.start_ccm(&[]);
    let words = ["SyncLoadBalancerFailed", "CONFLICT", "adoption", &made.id];
    world.tells("service", "web", &words).await;
    assert_eq!(world.cloud.writes().unwrap(), writes);
    world.stop().await;

    world.cloud.start_provider(&[]).unwrap();
    world.start_ccm(&["--adopt-unmarked-load-balancers"]);
    let adopted = eventually("the load balancer is marked", SOON, async || {
        let all = world.cloud.balancers().unwrap();
        let [one] = all.as_slice() else {
            return Err(format!("{all:?}"));
        };
        let settled = one.marks != made.marks && one.targets == ["node-0"];
        settled.then(|| one.clone()).ok_or(format!("{one:?}"))
    })
    .await;
    same(&made, &adopted);
    world
        .tells("service", "web", &["EnsuredLoadBalancer"])
        .await;
    // A Service that only the ccm has ever handled.
    world.expose("new", &[]).await;
    let new = world.served("new").await;
    world.stop().await;

    // The ccm starts without the operator's grant. DigitalOcean's controller would find the ccm's
    // load balancers by an annotation of their Services, so here the provider writes that
    // annotation.
    let looks = world.looks();
    let mut back: Vec<&str> = Vec::new();
    if vendor == Vendor::DigitalOcean {
        world
            .cloud
            .start_provider(&["--write-load-balancer-id"])
            .unwrap();
        back.push("--provider-annotation-prefixes=kubernetes.digitalocean.com/");
    } else {
        world.cloud.start_provider(&[]).unwrap();
    }
    let writes = world.cloud.writes().unwrap();
    world.start_ccm(&back);
    world.looked(looks).await;
    for (name, balancer) in [("web", &adopted), ("new", &new)] {
        found_by_the_vendor(&world, name, balancer).await;
    }
    world.stop().await;
    assert_eq!(
        world.cloud.writes().unwrap(),
        writes,
        "the way back writes nothing"
    );

    // What the vendor's controller would find when it leads again.
    let service = world.services().get("web").await.unwrap();
    let now = service.metadata.annotations.as_ref().unwrap();
    for (key, value) in &annotations {
        assert_eq!(now.get(key), Some(value), "{key}");
    }
    assert!(made.addresses.contains(&ingress(&service).unwrap()));
    assert!(
        service
            .metadata
            .finalizers
            .unwrap()
            .contains(&FINALIZER.to_owned())
    );
    assert_eq!(world.made(), 1, "that of the Service that is new");
    assert_eq!(
        world.versions().await,
        nodes,
        "somebody has written to a Node"
    );
}

/// Checks that the adopted load balancer has the same ID and addresses.
fn same(made: &Balancer, adopted: &Balancer) {
    assert_eq!(made.id, adopted.id);
    assert_eq!(made.addresses, adopted.addresses);
}

/// Waits until the vendor's controller would find the Service's load balancer: DigitalOcean's by
/// the ID in its annotation, Hetzner's by its label.
async fn found_by_the_vendor(world: &World, name: &str, balancer: &Balancer) {
    eventually(&format!("{name} is found"), SOON, async || {
        let service = world.services().get(name).await.unwrap();
        let found = match world.cloud.vendor {
            Vendor::DigitalOcean => annotation(&service, DO_ID).as_ref() == Some(&balancer.id),
            Vendor::Hetzner => {
                let uid = service.metadata.uid.as_deref().unwrap();
                let label = format!("hcloud-ccm/service-uid {uid}");
                let all = world.cloud.balancers().unwrap();
                all.iter()
                    .any(|it| it.id == balancer.id && it.marks.contains(&label))
            }
        };
        found.then_some(()).ok_or(format!("{:?}", service.metadata))
    })
    .await;
}

/// A Node as the vendor's controller leaves it.
async fn initialised_node(world: &World) {
    let id = world.cloud.add_machine("node-0").unwrap();
    let (kind, region, zone) = match world.cloud.vendor {
        Vendor::DigitalOcean => ("s-2vcpu-4gb", "nyc1", None),
        Vendor::Hetzner => ("cx22", "fsn1", Some("fsn1-dc14")),
    };
    let mut node = NodeBuilder::new("node-0")
        .provider_id(id)
        .address("Hostname", "node-0");
    for (key, value) in [
        ("node.kubernetes.io/instance-type", Some(kind)),
        ("beta.kubernetes.io/instance-type", Some(kind)),
        ("topology.kubernetes.io/region", Some(region)),
        ("failure-domain.beta.kubernetes.io/region", Some(region)),
        ("topology.kubernetes.io/zone", zone),
        ("failure-domain.beta.kubernetes.io/zone", zone),
    ] {
        if let Some(value) = value {
            node = node.label(key, value);
        }
    }
    node = match world.cloud.vendor {
        Vendor::DigitalOcean => node
            .address("InternalIP", "10.10.0.4")
            .address("ExternalIP", "198.51.100.4"),
        Vendor::Hetzner => node
            .label("instance.hetzner.cloud/provided-by", "cloud")
            .address("ExternalIP", "203.0.0.2")
            .address("InternalIP", "10.1.0.4"),
    };
    let how = PostParams::default();
    world.nodes().create(&how, &node.build()).await.unwrap();
}

/// A Service with a load balancer as the vendor's controller creates, names and marks it.
async fn vendor_serves(world: &World) -> (Service, Balancer) {
    let users: &[(&str, &str)] = match world.cloud.vendor {
        Vendor::DigitalOcean => &[(
            "service.beta.kubernetes.io/do-loadbalancer-type",
            "REGIONAL",
        )],
        Vendor::Hetzner => &[("load-balancer.hetzner.cloud/location", "fsn1")],
    };
    let service = world.expose("web", users).await;
    let uid = service.metadata.uid.unwrap();
    let name: String = format!("a{}", uid.replace('-', ""))
        .chars()
        .take(32)
        .collect();
    let (labels, key) = match world.cloud.vendor {
        Vendor::DigitalOcean => (Value::Null, DO_ID),
        Vendor::Hetzner => (json!({"hcloud-ccm/service-uid": uid}), HETZNER_ID),
    };
    world
        .cloud
        .ask("POST", &format!("balancers/{name}"), &labels)
        .unwrap();
    let made = world.cloud.balancers().unwrap().remove(0);
    let metadata = json!({"metadata": {"finalizers": [FINALIZER], "annotations": {key: made.id}}});
    world.edit_service("web", metadata).await;
    let ingress: Vec<Value> = made.addresses.iter().map(|ip| json!({"ip": ip})).collect();
    let status = json!({"status": {"loadBalancer": {"ingress": ingress}}});
    let how = kube::api::PatchParams::default();
    let patch = kube::api::Patch::Merge(status);
    let service = world
        .services()
        .patch_status("web", &how, &patch)
        .await
        .unwrap();
    (service, made)
}
