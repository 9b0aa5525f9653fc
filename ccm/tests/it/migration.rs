//! Leader migration (B-M6): two Leases, each controller under its own.

use std::time::Duration;

use kube::api::{Patch, PatchParams, PostParams};
use provider_mock::Fixture;
use serde_json::json;
use testenv::eventually;

use crate::world::{SOON, World, balancer, said};

const MIGRATION: &str = "cloud-provider-extraction-migration";

/// Writes another holder into the migration's Lease, as a kube-controller-manager does when it
/// takes or leaves it.
async fn hand(world: &World, holder: &str, seconds: i32) {
    let spec = json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds}});
    let patch = Patch::Merge(spec);
    world
        .leases()
        .patch(MIGRATION, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn holder(world: &World, name: &str) -> String {
    let lease = world.leases().get(name).await.unwrap();
    lease
        .spec
        .and_then(|spec| spec.holder_identity)
        .unwrap_or_default()
}

/// Waits until the leader has the migration's Lease too.
async fn hold_both(world: &World, identity: &str) {
    eventually("both Leases are held", SOON, async || {
        let lease = world.leases().get_opt(MIGRATION).await.unwrap();
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        if holder.as_deref() == Some(identity) {
            Ok(())
        } else {
            Err(format!("{holder:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn b_m6_a_migrated_controller_runs_only_while_its_own_lease_is_held() {
    let mut world = World::audited(Fixture::default()).await;
    world.apply("kustomize/components/leader-migration/rbac.yaml");
    // A kube-controller-manager holds the migration's Lease.
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": MIGRATION},
        "spec": {"holderIdentity": "kube-controller-manager_1", "leaseDurationSeconds": 3600},
    });
    let lease = serde_json::from_value(lease).unwrap();
    world
        .leases()
        .create(&PostParams::default(), &lease)
        .await
        .unwrap();
    let file = world.file("migration.yaml");
    let text = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: cloud-provider-extraction-migration\n\
                controllerLeaders:\n- {name: service, component: '*'}\n- {name: cloud-node-lifecycle, component: kube-controller-manager}\n";
    std::fs::write(&file, text).unwrap();
    let config = format!("--leader-migration-config={}", file.display());
    let mut ccm = world.ccm(&["--enable-leader-migration", &config]);

    // The main Lease alone: Nodes are initialised, Services wait.
    let identity = world.led_by(&ccm).await;
    world.create_service(balancer("web")).await;
    world.join("node-1").await;
    world.initialised("node-1").await;
    let line = said(
        &ccm,
        "this process does not hold the Lease of the leader migration",
    )
    .await;
    assert!(line.contains("service-lb-controller"), "{line}");
    let line = said(&ccm, "gives it to another component").await;
    assert!(line.contains("cloud-node-lifecycle-controller"), "{line}");
    world.renewals(3).await;
    assert_eq!(holder(&world, MIGRATION).await, "kube-controller-manager_1");
    assert_eq!(world.cloud().call_count("EnsureLoadBalancer"), 0);
    let web = world.services().get("web").await.unwrap();
    assert_eq!(web.metadata.finalizers, None);

    // The migration's Lease is released: the ccm takes it too, and works on the Service.
    hand(&world, "", 1).await;
    hold_both(&world, &identity).await;
    world.shows_address("web").await;
    assert_eq!(world.cloud().call_count("Initialize"), 1);
    assert_eq!(world.holder().await.unwrap(), identity);

    // Somebody takes the migration's Lease: the ccm ends, and leaves the main Lease to others.
    hand(&world, "kube-controller-manager_2", 3600).await;
    let ended = ccm.wait(SOON).await.unwrap();
    assert_eq!(ended.code(), Some(1), "{}", ccm.log());
    said(&ccm, "the Lease was lost, another process may lead").await;
    assert_eq!(world.holder().await.unwrap(), "");
    assert_eq!(holder(&world, MIGRATION).await, "kube-controller-manager_2");

    crate::api_server::rights::hold(
        &world,
        "kustomize/components/leader-migration/rbac.yaml",
        |_| true,
    );
}

/// Shows ▲M3 too.
#[tokio::test]
async fn b_m6_the_loss_of_the_migration_lease_lets_calls_under_the_main_one_end() {
    let mut world = World::new(Fixture::default()).await;
    world.apply("kustomize/components/leader-migration/rbac.yaml");
    let file = world.file("migration.yaml");
    let text = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: cloud-provider-extraction-migration\n\
                controllerLeaders:\n- {name: cloud-node-lifecycle, component: '*'}\n";
    std::fs::write(&file, text).unwrap();
    let config = format!("--leader-migration-config={}", file.display());
    let mut ccm = world.ccm(&["--enable-leader-migration", &config]);
    let identity = world.led_by(&ccm).await;
    hold_both(&world, &identity).await;
    let latency = Duration::from_secs(10);
    world
        .cloud()
        .set_latency("EnsureLoadBalancer", latency)
        .unwrap();
    world.create_service(balancer("web")).await;
    let ensures = world
        .cloud()
        .wait_until(SOON, |cloud| cloud.in_flight("EnsureLoadBalancer") == 1);
    assert!(ensures.await);

    hand(&world, "kube-controller-manager_2", 3600).await;
    assert_eq!(ccm.wait(SOON).await.unwrap().code(), Some(1));
    let calls = world.cloud().calls(Some("EnsureLoadBalancer"));
    assert_eq!(calls[0].outcome, "ok", "{calls:?}");
    world.shows_address("web").await;
    assert_eq!(world.holder().await.unwrap(), "", "nothing was cancelled");
}

#[tokio::test]
async fn b_m6_both_leases_are_released_on_sigterm_and_the_loss_of_the_main_one_ends_the_process() {
    let mut world = World::new(Fixture::default()).await;
    world.apply("kustomize/components/leader-migration/rbac.yaml");
    let flags = ["--enable-leader-migration"];
    let mut first = world.ccm(&flags);
    let identity = world.led_by(&first).await;
    hold_both(&world, &identity).await;
    let mut command = world.command(&flags);
    command.env("CCM_TEST", "second");
    first.terminate();
    assert_eq!(
        first.wait(SOON).await.unwrap().code(),
        Some(0),
        "{}",
        first.log()
    );
    assert_eq!(world.holder().await.unwrap(), "");
    assert_eq!(holder(&world, MIGRATION).await, "");

    let mut second = world.start(command);
    let identity = world.led_by(&second).await;
    hold_both(&world, &identity).await;
    let taken = Patch::Merge(json!({"spec": {"holderIdentity": "go_1"}}));
    let main = "cloud-controller-manager";
    world
        .leases()
        .patch(main, &PatchParams::default(), &taken)
        .await
        .unwrap();
    assert_eq!(
        second.wait(SOON).await.unwrap().code(),
        Some(1),
        "{}",
        second.log()
    );
    assert_eq!(world.holder().await.unwrap(), "go_1");
}
