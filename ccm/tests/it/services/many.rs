//! Many Services at once, and what a converged cluster costs.

use std::time::Duration;

use provider_mock::Fixture;
use testenv::eventually;
use testenv::objects::{ingress, set_ready};
use tokio::time::Instant;

use super::{ENSURE, GET, UPDATE, balancer};
use crate::world::{SOON, World};

const MANY: usize = 20;

fn names() -> Vec<String> {
    (0..MANY).map(|number| format!("web-{number:02}")).collect()
}

impl World {
    /// Waits until all have an address and this many targets.
    async fn all_balance_to(&self, nodes: usize) {
        for name in names() {
            self.shows_address(&name).await;
            eventually(&format!("{name} has {nodes} targets"), SOON, async || {
                let targets = self.targets(&name);
                (targets.len() == nodes)
                    .then_some(())
                    .ok_or(format!("{targets:?}"))
            })
            .await;
        }
    }

    fn no_change(&self, why: &str) {
        let calls = self.cloud().call_counts();
        assert_eq!(
            self.cloud().cloud_writes(),
            0,
            "{why}: {:?}",
            self.cloud().writes()
        );
        assert_eq!(self.cloud().mutating_calls(), 0, "{why}: {calls:?}");
    }
}

#[tokio::test]
async fn s12_s13_b_s7_joins_are_coalesced_and_a_restart_is_free() {
    let mut fixture = Fixture::default();
    fixture.provider.node_readiness = true;
    let (mut world, mut ccm) = World::with_ccm(fixture).await;
    // The ccm makes as many calls in parallel as the provider accepts.
    world
        .cloud()
        .set_latency(ENSURE, Duration::from_secs(4))
        .unwrap();
    for name in names() {
        world.create_service(balancer(&name)).await;
    }
    let all_at_work = world
        .cloud()
        .wait_until(SOON, |cloud| cloud.in_flight(ENSURE) == 8)
        .await;
    assert!(all_at_work, "eight at a time");
    world.cloud().set_latency(ENSURE, Duration::ZERO).unwrap();
    world.all_balance_to(0).await;
    assert_eq!(world.cloud().most_in_flight(ENSURE), 8);
    world.cloud().reset_calls();

    // Twenty joins over a few seconds.
    let began = Instant::now();
    for number in 0..MANY {
        world.join(&format!("node-{number:02}")).await;
        world.initialised(&format!("node-{number:02}")).await;
    }
    world.all_balance_to(MANY).await;
    // The changes of Nodes settle for a second before the targets are updated.
    let most = MANY as u64 * (2 + began.elapsed().as_secs());
    let updates = world.cloud().call_count(UPDATE);
    assert!(
        (20..=most).contains(&updates),
        "{updates} updates of 20 load balancers for 20 joins, at most {most} are expected"
    );
    assert_eq!(world.cloud().call_count(ENSURE), 0);

    // The target set stays the same, so the ccm makes no mutating call.
    world.renewals(2).await;
    world.cloud().reset_calls();
    for number in 0..MANY {
        // Every second Node stays not Ready.
        for status in ["False", "True", "False"].iter().take(2 + number % 2) {
            set_ready(&world.client, &format!("node-{number:02}"), status)
                .await
                .unwrap();
        }
    }
    world.renewals(2).await;
    world.no_change("a Ready flap of all Nodes");

    // A restart: one Get each, and no mutating call.
    let before: Vec<_> = world.statuses().await;
    world.crash(&mut ccm).await;
    world.cloud().reset_calls();
    let mut ccm = world.ccm(&[]);
    for name in names() {
        world.asked_times(GET, &name, 1).await;
    }
    world.renewals(2).await;
    world.no_change("a restart");
    assert_eq!(world.cloud().call_count(GET), MANY as u64);
    assert_eq!(world.statuses().await, before);

    // A restart of the provider costs no mutating call either.
    world.mock.kill();
    world.mock.restart().await.unwrap();
    world.renewals(2).await;
    world.no_change("a restart of the provider");

    // A provider that cannot say `in_sync` gets Ensure, which writes nothing.
    world.crash(&mut ccm).await;
    world
        .cloud()
        .change_settings(|settings| settings.capabilities.load_balancers.in_sync = false)
        .unwrap();
    world.mock.kill();
    world.mock.restart().await.unwrap();
    world.cloud().reset_calls();
    let mut ccm = world.ccm(&["--concurrent-service-syncs=3"]);
    world
        .cloud()
        .set_latency(ENSURE, Duration::from_millis(100))
        .unwrap();
    for name in names() {
        world.asked_times(ENSURE, &name, 1).await;
    }
    world.renewals(2).await;
    assert_eq!(world.cloud().call_count(ENSURE), MANY as u64);
    assert_eq!(world.cloud().most_in_flight(ENSURE), 3);
    assert_eq!(world.cloud().call_count(UPDATE), 0);
    assert_eq!(
        world.cloud().cloud_writes(),
        0,
        "{:?}",
        world.cloud().writes()
    );
    assert_eq!(world.statuses().await, before);
    assert!(ccm.exit_status().is_none());
}

impl World {
    async fn statuses(&self) -> Vec<(Option<String>, Option<String>)> {
        let mut statuses = Vec::new();
        for name in names() {
            let service = self.service(&name).await;
            statuses.push((ingress(&service), service.metadata.resource_version.clone()));
        }
        statuses
    }
}
