//! Credentials that reach another account, project or region (▲S20).

use provider_mock::Fixture;
use serde_json::json;
use testenv::eventually;
use testenv::objects::{NodeBuilder, ingress};

use super::{balancer, has_finalizer};
use crate::world::{SCOPE, SOON, World, instance};

impl World {
    /// The provider comes back with these credentials.
    async fn provider_reaches(&self, scope: &str) {
        self.mock.kill();
        self.cloud().set_cloud_scope(scope).unwrap();
        let initialized = self.cloud().call_count("Initialize");
        self.mock.restart().await.unwrap();
        let again = self
            .cloud()
            .wait_until(SOON, |cloud| cloud.call_count("Initialize") > initialized);
        assert!(again.await);
    }
}

#[tokio::test]
async fn s20_another_scope_stops_everything_until_it_is_accepted() {
    let (mut world, mut ccm) = World::with_ccm(Fixture::default()).await;
    for name in ["kept", "leaving", "retyped"] {
        world.balanced(name).await;
    }
    let remembered = eventually("the scope is on the Lease", SOON, async || {
        let lease = world.lease().await;
        lease.ok()?.metadata.annotations?.get(SCOPE).cloned()
    })
    .await;
    assert_eq!(remembered, "mock account, mock region");

    world.provider_reaches("another account").await;
    world.cloud().reset_calls();
    let before = world.cloud().load_balancers();
    world.create_service(balancer("new")).await;
    world
        .edit(
            "kept",
            json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}),
        )
        .await;
    world.delete_service("leaving").await;
    world
        .edit("retyped", json!({"spec": {"type": "ClusterIP"}}))
        .await;
    world.cloud().add_instance(instance("a")).unwrap();
    world
        .register(NodeBuilder::new("a").provider_id("mock://zone-1/a"))
        .await;
    world.renewals(2).await;
    assert_eq!(world.cloud().mutating_calls(), 0);
    // Another process that starts now makes no mutating call either, also when the provider goes
    // and comes back.
    world.crash(&mut ccm).await;
    let ccm = world.ccm(&[]);
    let initialized = world
        .cloud()
        .wait_until(SOON, |cloud| cloud.call_count("Initialize") > 0);
    assert!(initialized.await);
    world.provider_reaches("another account").await;
    world.renewals(2).await;
    assert_eq!(world.cloud().mutating_calls(), 0);
    assert_eq!(world.cloud().load_balancers(), before);
    assert!(has_finalizer(&world.service("leaving").await));
    assert!(has_finalizer(&world.service("retyped").await));
    assert!(ccm.log().contains("another account"), "{}", ccm.log());

    // As the log says: an annotation on the Lease.
    world.accept_scope("another account").await;
    world.service_goes("leaving").await;
    world.shows_address("new").await;
    world.targeted("new", &["a"]).await;
    world.targeted("kept", &["a"]).await;
    world
        .service_becomes("retyped", "is clean", |service| {
            !has_finalizer(service) && ingress(service).is_none()
        })
        .await;
    assert_eq!(
        world.made("kept").unwrap().config.source_ranges,
        ["10.0.0.0/8"]
    );
    assert_eq!(world.cloud().load_balancers().len(), 2);
}

#[tokio::test]
async fn s20_a_flag_accepts_a_scope_at_the_start() {
    let (mut world, mut ccm) = World::with_ccm(Fixture::default()).await;
    world.balanced("web").await;
    world.crash(&mut ccm).await;
    world.cloud().set_cloud_scope("another account").unwrap();
    world.cloud().reset_calls();
    let _ccm = world.ccm(&["--accept-cloud-scope=another account"]);
    world.later_one_is_served("later").await;
    // From now on only the new scope is accepted.
    world.provider_reaches("mock account, mock region").await;
    world.cloud().reset_calls();
    world.delete_service("web").await;
    world.renewals(2).await;
    assert_eq!(world.cloud().mutating_calls(), 0);
}
