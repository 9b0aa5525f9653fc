//! A real cloud's provider as the Pod's second container: DigitalOcean's, in front of the test API
//! of its cloud, installed by the values of `deploy/examples`.

use serde_json::json;
use testenv::{TestCloud, Vendor, eventually};

use crate::images::Image;
use crate::release::helm_with;
use crate::world::{PATIENCE, World, is_initialised, outcome};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_of_digitalocean_with_the_example_values_serves_a_service_and_leaves_nothing() {
    let mut world = World::new("DigitalOcean, helm install", &["node-a"]).await;
    let cloud = TestCloud::start_in(Vendor::DigitalOcean, &world.cluster)
        .await
        .unwrap();
    let outcome = outcome(Box::pin(story(&mut world, &cloud))).await;
    drop(cloud);
    world.finish(outcome);
}

async fn story(world: &mut World, cloud: &TestCloud) {
    let address = world.cluster.machine("node-a").address();
    let droplet = json!({ "name": "node-a", "address": address });
    let id = cloud.ask("POST", "machines", &droplet).unwrap();
    let token = Vendor::DigitalOcean.token();
    world.kubectl(&[
        "create",
        "secret",
        "generic",
        "digitalocean",
        &format!("--from-literal=access-token={token}"),
    ]);
    world.boot("node-a").await;

    world.report.start();
    let url = cloud.url();
    let values = json!({ "provider": { "env": [{ "name": "DO_OVERRIDE_URL", "value": url }] } });
    helm_with(world, "install", &["digitalocean", "one-node"], &values);
    let node = world.node_becomes("node-a", "it is initialised", is_initialised);
    let node = node.await;
    world.report.lap("helm install to the Node initialised");
    let spec = node.spec.unwrap();
    assert_eq!(spec.provider_id.as_deref(), id.as_str());
    let labels = node.metadata.labels.unwrap_or_default();
    let of = |key: &str| labels.get(key).map(String::as_str);
    assert_eq!(of("topology.kubernetes.io/region"), Some("nyc1"));
    assert_eq!(of("node.kubernetes.io/instance-type"), Some("s-2vcpu-4gb"));
    let (ccm, provider) = (Image::Ccm.reference(), Image::DigitalOcean.reference());
    world.ready(1, &ccm, &provider).await;

    world.report.start();
    world.expose("web").await;
    let address = world.gets_address("web").await;
    world.report.lap("Service to its address");
    let balancers = cloud.balancers().unwrap();
    let [balancer] = &balancers[..] else {
        panic!("{balancers:?}")
    };
    assert_eq!(balancer.addresses, [address]);
    assert_eq!(balancer.targets, ["node-a"]);

    world.kubectl(&["delete", "service", "web", "--namespace=default"]);
    eventually("nothing is left in the cloud", PATIENCE, async || {
        let left = cloud.balancers().unwrap();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
}
