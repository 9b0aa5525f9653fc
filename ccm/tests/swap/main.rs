//! A part of `make conformance`. A provider is replaced by one in another language, on the same
//! socket and the same cloud, while Nodes join, and Services are created, changed and deleted. The
//! ccm must lose nothing, create nothing twice, and delete nothing that the test did not delete. In
//! a second test a provider of another cloud takes the socket, and touches nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    reason = "helpers of tests"
)]

mod world;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use testenv::objects::{UNINITIALIZED, ingress, is_tainted};
use testenv::{LEASE, eventually};

use world::{Language, OTHER_SCOPE, PATIENCE, World};

const NODES: usize = 100;
/// The most Nodes that join while providers change.
const JOINING: usize = 30;
const SERVICES: usize = 20;
/// The least number of changes between two swaps.
const CHANGES: usize = 25;

/// The time until calls resume is only printed, because the machine has other work too. Two
/// tests that do not depend on real time show that it is within a second of the socket's return:
/// `m9_where_nobody_listens_it_is_dialled_again_within_a_second` and, from the socket to a session,
/// `m9_a_socket_that_appears_is_found_within_a_second`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m9_a_provider_in_another_language_takes_over_under_load_and_nothing_is_lost_made_twice_or_deleted()
 {
    let mut world = World::new(NODES + JOINING).await;
    let mut provider = world.provider(Language::Python).await;
    let ccm = world.ccm(&[]);
    for number in 0..NODES {
        world.register(number).await;
    }
    for number in 0..SERVICES {
        world.expose(&format!("web-{number}")).await;
    }
    let converged = async |world: &World, nodes: usize| {
        eventually("all is as it should be", PATIENCE, async || {
            world.converged(nodes).await
        })
        .await;
    };
    converged(&world, NODES).await;
    let first: BTreeMap<String, String> = identities(&world.all_nodes().await);

    let load = world.load(NODES, JOINING, SERVICES);
    for language in [Language::Go, Language::Rust, Language::Python, Language::Go] {
        let made = load.changes();
        eventually("changes go on", PATIENCE, async || {
            let now = load.changes();
            (now >= made + CHANGES).then_some(()).ok_or(now)
        })
        .await;
        let sessions = world::sessions(&ccm);
        world.end(provider).await;
        provider = world.provider(language).await;
        let answers = tokio::time::Instant::now();
        eventually("the ccm has a session again", PATIENCE, async || {
            let now = world::sessions(&ccm);
            (now > sessions).then_some(()).ok_or_else(|| ccm.log())
        })
        .await;
        eprintln!(
            "{language:?} answers; initialised {:.2} s later",
            answers.elapsed().as_secs_f64()
        );
    }
    let (joined, exposed) = load.stop().await;
    converged(&world, NODES + joined).await;

    // The very same Nodes: none was deleted and registered again by anyone.
    let last = identities(&world.all_nodes().await);
    for (name, uid) in &first {
        assert_eq!(last.get(name), Some(uid), "{name}");
    }
    // A load balancer for each Service and no other, each on an address of its own.
    let services = world.all_services().await;
    let uids: BTreeSet<String> = services.iter().filter_map(ResourceExt::uid).collect();
    let balancers = world.load_balancers();
    let owners: Vec<&str> = balancers
        .iter()
        .map(|balancer| balancer["owner"]["uid"].as_str().unwrap())
        .collect();
    assert_eq!(owners.len(), uids.len(), "{owners:?}");
    let owners: BTreeSet<String> = owners.into_iter().map(str::to_owned).collect();
    assert_eq!(owners, uids);
    let addresses: BTreeSet<String> = services.iter().filter_map(ingress).collect();
    assert_eq!(addresses.len(), services.len());
    // Handles are numbered: a load balancer that was created twice would have used one more.
    let (given, asked) = (world.handles_given(), SERVICES + exposed);
    assert!(
        given <= asked,
        "{given} load balancers were made for {asked} Services"
    );
    drop(provider);
}

/// Shows ▲L4 and ▲S20 too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m9_a_provider_of_another_cloud_on_the_same_socket_touches_nothing_and_is_told() {
    let mut world = World::new(4).await;
    let provider = world.provider(Language::Python).await;
    let ccm = world.ccm(&["--node-monitor-period=1s"]);
    for number in 0..4 {
        world.register(number).await;
    }
    world.expose("web-0").await;
    eventually("all is as it should be", PATIENCE, async || {
        world.converged(4).await
    })
    .await;
    let before = identities(&world.all_nodes().await);
    let cloud = world.load_balancers();

    // Another cloud does not know these machines. A Node is not Ready, as if its machine were gone.
    world.end(provider).await;
    let _other = world.provider_of_another_cloud().await;
    testenv::objects::set_ready(&world.client, "node-0", "Unknown")
        .await
        .unwrap();
    world.delete_service("web-0").await;
    world
        .said(&ccm, "the provider's credentials reach another cloud scope")
        .await;
    let told = world.event(LEASE, "CloudScopeChanged").await;
    // The command that accepts it names the scope.
    let accept = format!("cloud-scope-mock='{OTHER_SCOPE}'");
    assert!(told.contains(&accept), "{told}");
    // `kubectl describe` of the Lease shows to which cloud the Nodes belong, and that the ccm
    // leaves them alone.
    let told = world.event(LEASE, "NodesOfAnotherCloud").await;
    for part in [
        "not one Node is of the cloud of provider mock (other), whose provider IDs begin with [\"other://\"]",
        "4 are of another, such as Node node-0 with \"mock://zone-a/i-0\"",
        "neither refreshed, tainted nor deleted",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let untouched = async |world: &World| {
        // Time for passes of the lifecycle controller, and for checks of the other controllers.
        world.renewals(4).await;
        let nodes = world.all_nodes().await;
        assert_eq!(identities(&nodes), before);
        assert!(!nodes.iter().any(|node| is_tainted(node, UNINITIALIZED)));
        let services = world.all_services().await;
        assert_eq!(services.len(), 1, "the Service waits for its own cloud");
        assert!(services[0].metadata.deletion_timestamp.is_some());
        assert_eq!(world.load_balancers(), cloud, "the first cloud");
        assert_eq!(world.writes_of_the_other_cloud(), 0);
    };
    untouched(&world).await;

    // The ccm touches nothing even if an operator accepts the new scope: these Nodes carry the
    // first cloud's provider IDs, and the Service carries the first provider's handle.
    world.accept_scope(OTHER_SCOPE).await;
    world.said(&ccm, "accepted the cloud scope").await;
    untouched(&world).await;
    world.event(LEASE, "CloudScopeAccepted").await;
    let says = "made a load balancer for this Service, this is provider \"other\": the ccm creates and deletes nothing";
    let told = world.event("web-0", says).await;
    assert!(told.contains("SyncLoadBalancerFailed"), "{told}");
}

fn identities(nodes: &[Node]) -> BTreeMap<String, String> {
    let of = |node: &Node| (node.name_any(), node.uid().unwrap_or_default());
    nodes.iter().map(of).collect()
}
