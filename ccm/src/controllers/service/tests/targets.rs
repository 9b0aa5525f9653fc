//! Nodes join, leave and change.

mod seen;

use k8s_openapi::api::core::v1::{NodeAddress, NodeCondition, NodeStatus};

use super::cloud::Fault;
use super::*;

#[tokio::test(start_paused = true)]
async fn b_s7_a_service_made_while_nodes_join_is_ensured_with_those_that_are_there() {
    let world = World::new(0).await;
    world.server.put(&named(1));
    world
        .until("an address", |w| w.address("s1").is_some())
        .await;
    world.rest().await;
    let alarms = |world: &World| {
        let events = world.events.recorded();
        let alarms = events.iter().filter(|event| event.contains("UnAvailable"));
        alarms.count()
    };
    assert_eq!(alarms(&world), 1, "of the one without Nodes");

    world.server.put_node(node("n0"));
    world.server.put(&service());
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    assert_eq!(world.targets(), ["n0"]);
    assert_eq!(world.cloud.called("Update"), 0, "nothing has settled yet");
    world.rest().await;
    assert_eq!(world.cloud.called("Update"), 1, "of the one that was there");
    assert_eq!(world.cloud.called("Ensure"), 2);
    assert_eq!(alarms(&world), 1);

    // A load balancer that is created while a Node leaves does not get that Node as a target
    // either.
    world.server.put_node(node("n1"));
    world.rest().await;
    world.server.remove_node("n0");
    world.server.put(&named(2));
    world
        .until("an address", |w| w.address("s2").is_some())
        .await;
    let state = world.cloud.state();
    assert_eq!(state.balancers["u2"].targets, ["n1"]);
}

#[tokio::test(start_paused = true)]
async fn s12_a_service_that_is_busy_while_nodes_join_is_not_updated_for_each() {
    let world = World::new(1).await;
    for i in 0..50 {
        world.server.put(&named(i));
    }
    world
        .until("all made", |w| w.cloud.called("Ensure") == 50)
        .await;
    world.rest().await;
    for i in 0..40 {
        world.server.put_node(node(&format!("new{i:02}")));
        // Meanwhile, other changes give jobs to some of the Services, or to all.
        for j in (0..50).filter(|j| i % 10 == 0 || j % 10 == i % 10) {
            world.server.edit(&format!("s{j}"), |service| {
                service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 100 + i;
            });
        }
        sleep(Duration::from_millis(90)).await;
    }
    world.rest().await;
    let updates = world.cloud.called("Update");
    assert!(updates <= 60, "{updates} updates");
    let state = world.cloud.state();
    assert!(state.balancers.values().all(|lb| lb.targets.len() == 41));
}

#[tokio::test(start_paused = true)]
async fn s12_joins_are_coalesced() {
    let world = World::new(1).await;
    for i in 0..200 {
        world.server.put(&named(i));
    }
    world
        .until("all made", |w| w.cloud.called("Ensure") == 200)
        .await;
    world.rest().await;
    for i in 0..50 {
        world.server.put_node(node(&format!("new{i:02}")));
        sleep(Duration::from_millis(90)).await;
    }
    world.rest().await;
    let updates = world.cloud.called("Update");
    assert!((200..=220).contains(&updates), "{updates} updates");
    assert_eq!(world.cloud.called("Ensure"), 200);
    let state = world.cloud.state();
    assert!(state.balancers.values().all(|lb| lb.targets.len() == 51));
}

/// A kubelet can write its Node's addresses and labels.
#[tokio::test(start_paused = true)]
async fn s14_a_node_that_is_too_large_is_no_target_and_blocks_nobody() {
    let world = World::new(1).await;
    let addresses = |text: String, many: usize| {
        let address = NodeAddress {
            type_: "InternalDNS".to_owned(),
            address: text,
        };
        Some(NodeStatus {
            addresses: Some(vec![address; many]),
            ..NodeStatus::default()
        })
    };
    let mut long = node("long");
    long.status = addresses("a".repeat(3_000_000), 1);
    let mut many = node("many");
    many.status = addresses("b".repeat(250), 1000);
    for node in [long, many] {
        world.server.put_node(node);
    }
    world.server.put(&named(0));
    world
        .until("all made", |w| w.cloud.called("Ensure") == 1)
        .await;
    world.rest().await;
    let targets = |w: &World| -> Vec<String> {
        let state = w.cloud.state();
        let balancer = state.balancers.values().next().unwrap();
        balancer.targets.clone()
    };
    // An invalid address is not sent, but the Node is a target all the same.
    assert_eq!(targets(&world), ["long", "n0"]);
    let reported = world.events.recorded();
    let reported = reported
        .iter()
        .filter(|event| event.contains("NodeTooLargeForTarget"));
    assert_eq!(reported.count(), 1);
    world.server.put_node(node("many"));
    world.rest().await;
    assert_eq!(targets(&world), ["long", "many", "n0"]);
}

#[tokio::test(start_paused = true)]
async fn s14_where_each_node_is_too_large_a_service_has_no_targets() {
    let world = World::new(0).await;
    let mut many = node("many");
    let address = NodeAddress {
        type_: "InternalDNS".to_owned(),
        address: "b".repeat(250),
    };
    many.status = Some(NodeStatus {
        addresses: Some(vec![address; 1000]),
        ..NodeStatus::default()
    });
    world.server.put_node(many);
    world.server.put(&service());
    world.until("made", |w| w.cloud.called("Ensure") == 1).await;
    assert!(world.targets().is_empty());
}

/// The cache has lost a Node that the API server still has.
#[tokio::test(start_paused = true)]
async fn n13_a_service_tells_that_its_targets_are_in_doubt() {
    let world = World::new(1).await;
    world.server.lose_node("n0");
    world.server.put(&service());
    world
        .until("told", |w| {
            let events = w.events.recorded();
            events
                .iter()
                .any(|event| event.contains("waits for its targets"))
        })
        .await;
    assert_eq!(world.cloud.called("Ensure"), 0);
}

/// The watch of Services is late, and the selector has changed since.
#[tokio::test(start_paused = true)]
async fn s17_a_selector_that_the_watch_does_not_show_yet_is_followed() {
    let world = World::new(1).await;
    world.server.put(&service());
    world.server.cut_watch();
    world.server.edit("web", |service| {
        let selector = ("grpc-ccm.io/node-selector".to_owned(), "!spot".to_owned());
        service.metadata.annotations = Some([selector].into());
    });
    world.until("targets", |w| w.targets() == ["n0"]).await;
    let attempts = world.server.attempts();
    assert!(attempts.len() < 8, "{attempts:?}");
}

#[tokio::test(start_paused = true)]
async fn s17_a_set_that_is_cut_is_told_and_follows_the_nodes_that_are_ready() {
    let world = World::that_says(0, |info| {
        let offered = info.capabilities.as_mut().unwrap();
        offered.load_balancers.as_mut().unwrap().max_targets = Some(2);
    })
    .await;
    let put = |name: &str, status: &str| {
        let ready = NodeCondition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            ..NodeCondition::default()
        };
        let mut node = node(name);
        node.status.get_or_insert_default().conditions = Some(vec![ready]);
        world.server.put_node(node);
    };
    let reported = |words: &str| {
        let events = world.events.recorded();
        let reported = events.iter().filter(|event| event.contains(words));
        reported.count()
    };
    let names = ["n0", "n1", "n2", "n3"];
    for name in &names[..2] {
        put(name, "True");
    }
    let mut local = service();
    local.spec.as_mut().unwrap().external_traffic_policy = Some("Local".to_owned());
    world.server.put(&local);
    world.until("targets", |w| w.targets().len() == 2).await;
    world.rest().await;
    assert_eq!(reported("LoadBalancerTargetsCut"), 0);
    for name in &names[2..] {
        put(name, "True");
    }
    world.rest().await;
    let chosen = world.targets();
    // The event comes even if the same two Nodes are chosen.
    assert_eq!(
        reported("2 targets for a load balancer, and 4 Nodes qualify"),
        1
    );
    assert_eq!(reported("choose such Nodes by the annotation"), 1);
    put(&chosen[0], "False");
    let without = |w: &World| w.targets().len() == 2 && !w.targets().contains(&chosen[0]);
    world.until("another one", without).await;
    assert_eq!(
        reported("LoadBalancerTargetsCut"),
        1,
        "once, as long as it lasts"
    );
    let updates = world.cloud.called("Update");
    put(&chosen[0], "True");
    world.until("as before", |w| w.targets() == chosen).await;
    let other = names
        .iter()
        .find(|name| !chosen.contains(&(**name).to_owned()));
    put(other.unwrap(), "False");
    world.rest().await;
    assert_eq!(world.cloud.called("Update"), updates + 1);
}

#[tokio::test(start_paused = true)]
async fn b_s7_an_older_set_never_follows_a_newer_one() {
    let world = World::new(1).await;
    // The provider takes four calls at once, with 20 ms each. So a round over all Services takes
    // longer than Nodes need to settle.
    for i in 0..400 {
        world.server.put(&named(i));
    }
    world
        .until("all made", |w| w.cloud.called("Ensure") == 400)
        .await;
    world.rest().await;
    world.server.put_node(node("n1"));
    sleep(Duration::from_millis(1_500)).await;
    assert!(world.cloud.called("Update") < 400, "the round still runs");
    world.server.put_node(node("n2"));
    // Meanwhile the port of a Service that the round has not reached changes.
    world.server.edit("s399", |service| {
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 81;
    });
    world.rest().await;
    let state = world.cloud.state();
    for (uid, sets) in &state.sets {
        assert!(sets.is_sorted(), "{uid}: {sets:?}");
        assert_eq!(sets.last(), Some(&3), "{uid}");
    }
}

#[tokio::test(start_paused = true)]
async fn b_s7_an_empty_set_is_not_believed_from_the_watch_alone() {
    let world = World::new(1).await;
    world.server.put(&service());
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    world.server.lose_node("n0");
    world.rest().await;
    assert_eq!(world.targets(), ["n0"]);
    assert_eq!(world.cloud.called("Update"), 0);
    world.server.put_node(node("n0"));
    world.rest().await;
    world.server.remove_node("n0");
    world.until("no targets", |w| w.targets().is_empty()).await;
    let events = world.events.recorded();
    assert!(
        events
            .iter()
            .any(|event| event.contains("UnAvailableLoadBalancer")),
        "{events:?}"
    );
    // Somebody deleted the load balancer: the next change of targets leads to a new one (B-S10).
    world.cloud.state().balancers.clear();
    world.server.put_node(node("n1"));
    world.until("made again", |w| w.targets() == ["n1"]).await;
}

#[tokio::test(start_paused = true)]
async fn s17_a_set_in_doubt_keeps_no_other_service_waiting() {
    let world = World::new(1).await;
    world.server.put(&service());
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    world.server.lose_node("n0");
    world.rest().await;
    // No Node matches this selector, and the API server still has to confirm that.
    let mut other = named(1);
    let selector = (
        "grpc-ccm.io/node-selector".to_owned(),
        "tier=gold".to_owned(),
    );
    other.metadata.annotations = Some([selector].into());
    let put = Instant::now();
    world.server.put(&other);
    world
        .until("an address", |w| w.address("s1").is_some())
        .await;
    assert!(
        put.elapsed() < Duration::from_secs(2),
        "{:?}",
        put.elapsed()
    );
    assert_eq!(world.targets(), ["n0"]);
}

impl World {
    /// A new process of the provider, which changes its info with `says`.
    pub(super) async fn comes_back(&self, says: fn(&mut api::GetProviderInfoResponse)) {
        self.cloud.state().says = Some(says);
        self.provider.kill();
        self.running
            .until("it is away", |status| status.working().is_none())
            .await;
        self.provider.start(self.cloud.service());
    }
}

fn offered(info: &mut api::GetProviderInfoResponse) -> &mut api::LoadBalancerCapability {
    let offered = info.capabilities.as_mut().unwrap();
    offered.load_balancers.as_mut().unwrap()
}

#[tokio::test(start_paused = true)]
async fn s20_a_provider_that_comes_back_with_another_class_gets_the_services_that_wait_for_it() {
    const OTHER: &str = "example.com/other";
    type Says = fn(&mut api::GetProviderInfoResponse);
    let rows: [(Option<&str>, Option<&str>, Says, Says); 2] = [
        (
            None,
            Some(OTHER),
            |_| {},
            |info| offered(info).classes.push(OTHER.to_owned()),
        ),
        // It begins to serve Services without a class.
        (
            Some(OTHER),
            None,
            |info| {
                offered(info).classes.push(OTHER.to_owned());
                offered(info).default_class = false;
            },
            |info| offered(info).classes.push(OTHER.to_owned()),
        ),
    ];
    for (served, waits, first, then) in rows {
        let world = World::that_says(1, first).await;
        for (i, class) in [(0, served), (1, waits)] {
            let mut service = named(i);
            service.spec.as_mut().unwrap().load_balancer_class = class.map(str::to_owned);
            world.server.put(&service);
        }
        world
            .until("the other one is made", |w| w.address("s0").is_some())
            .await;
        world.rest().await;
        assert_eq!(world.address("s1"), None);
        world.comes_back(then).await;
        world.running.accept_claims().await;
        world
            .until("it is served without an edit", |w| {
                w.address("s1").is_some()
            })
            .await;
    }
}

/// The whole offer counts, not its classes alone.
#[tokio::test(start_paused = true)]
async fn s9_a_provider_that_comes_back_with_more_features_is_asked_again_about_what_it_refused() {
    let world = World::new(1).await;
    let refused = Fault::Fails(api::Failure {
        code: api::FailureCode::Invalid.into(),
        message: "no source ranges".into(),
        ..Default::default()
    });
    world
        .cloud
        .state()
        .faults
        .insert("Ensure", [refused].into());
    let mut waits = service();
    let ranges = Some(vec!["192.0.2.0/24".to_owned()]);
    waits.spec.as_mut().unwrap().load_balancer_source_ranges = ranges;
    world.server.put(&waits);
    world
        .until("refused", |w| w.cloud.called("Ensure") == 1)
        .await;
    world.rest().await;
    // A new process with the same offer is no reason to ask again.
    world.comes_back(|_| {}).await;
    world.running.session().await;
    world.rest().await;
    assert_eq!(world.cloud.called("Ensure"), 1);
    world
        .comes_back(|info| {
            let ranges = api::ServiceFeature::SourceRanges;
            offered(info).features.push(ranges.into());
        })
        .await;
    world.running.session().await;
    let came = Instant::now();
    world
        .until("it is served without an edit", |w| {
            w.address("web").is_some()
        })
        .await;
    assert!(
        came.elapsed() < Duration::from_secs(2),
        "{:?}",
        came.elapsed()
    );
}
