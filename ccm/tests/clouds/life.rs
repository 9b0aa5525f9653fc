//! The life of Nodes and a Service with both clouds, and of routes with Hetzner.

use k8s_openapi::api::core::v1::Node;
use testenv::objects::set_ready;
use testenv::{Vendor, eventually};

use crate::world::{SOON, World};

const ROUTES: [&str; 2] = ["--cluster-cidr=10.244.0.0/16", "--allocate-node-cidrs=true"];

#[tokio::test]
async fn droplets_and_load_balancers_of_digitalocean_are_served() {
    whole_life(Vendor::DigitalOcean).await;
}

#[tokio::test]
async fn servers_load_balancers_and_routes_of_hetzner_are_served() {
    whole_life(Vendor::Hetzner).await;
}

async fn whole_life(vendor: Vendor) {
    let mut world = World::new(vendor, 4).await;
    world.cloud.start_provider(&[]).unwrap();
    world.start_ccm(&ROUTES);
    for number in 0..3 {
        let node = world.join(number).await;
        has_what_the_cloud_says(vendor, &node);
    }
    world.expose("web", &[]).await;
    let web = world.served("web").await;
    world
        .targets(&web.id, &["node-0", "node-1", "node-2"])
        .await;
    world.join(3).await;
    let all = ["node-0", "node-1", "node-2", "node-3"];
    world.targets(&web.id, &all).await;
    if vendor == Vendor::Hetzner {
        routed(&world, &[0, 1, 2, 3]).await;
    }

    // An instance is removed, and its kubelet falls silent.
    world.cloud.remove_machine("node-2").unwrap();
    set_ready(&world.client, "node-2", "Unknown").await.unwrap();
    eventually("the Node is removed", SOON, async || {
        match world.nodes().get_opt("node-2").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    world
        .targets(&web.id, &["node-0", "node-1", "node-3"])
        .await;
    if vendor == Vendor::Hetzner {
        routed(&world, &[0, 1, 3]).await;
    }

    // Both processes are new. They write nothing, neither in the cloud nor to a Node.
    world.stop().await;
    let (writes, looks) = (world.cloud.writes().unwrap(), world.looks());
    let nodes = world.versions().await;
    world.cloud.start_provider(&[]).unwrap();
    world.start_ccm(&ROUTES);
    world.looked(looks).await;
    assert_eq!(world.cloud.writes().unwrap(), writes);
    assert_eq!(world.versions().await, nodes);

    world.unexpose("web").await;
    assert_eq!(world.cloud.balancers().unwrap(), []);
}

fn has_what_the_cloud_says(vendor: Vendor, node: &Node) {
    let id = node.spec.as_ref().unwrap().provider_id.as_deref().unwrap();
    let labels = node.metadata.labels.as_ref().unwrap();
    let status = node.status.as_ref().unwrap();
    let addresses = status.addresses.as_deref().unwrap();
    let kinds: Vec<&str> = addresses.iter().map(|it| it.type_.as_str()).collect();
    let (prefix, wanted, kind, region) = match vendor {
        Vendor::DigitalOcean => (
            "digitalocean://",
            ["Hostname", "InternalIP", "ExternalIP"],
            "s-2vcpu-4gb",
            "nyc1",
        ),
        Vendor::Hetzner => (
            "hcloud://",
            ["Hostname", "ExternalIP", "InternalIP"],
            "cx22",
            "fsn1",
        ),
    };
    assert!(id.starts_with(prefix), "{id}");
    assert_eq!(kinds, wanted);
    assert_eq!(labels["node.kubernetes.io/instance-type"], kind);
    assert_eq!(labels["topology.kubernetes.io/region"], region);
}

/// Waits until the network has a route to the Pods of these Nodes and of no other.
async fn routed(world: &World, numbers: &[usize]) {
    let wanted: Vec<String> = numbers
        .iter()
        .map(|number| format!("10.244.{number}.0/24"))
        .collect();
    eventually(&format!("the routes are {wanted:?}"), SOON, async || {
        let routes = world.cloud.ask("GET", "routes", &().into()).unwrap();
        let routes = routes.as_array().cloned().unwrap_or_default();
        let mut found: Vec<String> = routes
            .iter()
            .filter_map(|route| Some(route["destination"].as_str()?.to_owned()))
            .collect();
        found.sort();
        (found == wanted).then_some(()).ok_or(format!("{found:?}"))
    })
    .await;
}
