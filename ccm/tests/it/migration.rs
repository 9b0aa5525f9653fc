//! Leader migration (B-M6): two Leases, each controller under its own.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use provider_mock::Fixture;
use serde_json::json;
use testenv::objects::LoadBalancerBuilder;
use testenv::{Options, eventually};

use crate::world::{FAST_LEASE, SOON, World, ingress, said};

const MIGRATION: &str = "cloud-provider-extraction-migration";

fn leases(world: &World) -> Api<Lease> {
    Api::namespaced(world.client.clone(), "kube-system")
}

/// Writes another holder into the migration's Lease, as a kube-controller-manager would that takes or leaves it.
async fn hand(world: &World, holder: &str, seconds: i32) {
    let spec = json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds}});
    let patch = Patch::Merge(spec);
    leases(world)
        .patch(MIGRATION, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn holder(world: &World, name: &str) -> String {
    let lease = leases(world).get(name).await.unwrap();
    lease
        .spec
        .and_then(|spec| spec.holder_identity)
        .unwrap_or_default()
}

#[tokio::test]
async fn b_m6_a_migrated_controller_runs_only_while_its_own_lease_is_held() {
    let options = Options {
        audit: true,
        ..Options::default()
    };
    let mut world = World::with_options(Fixture::default(), options).await;
    world.apply("kustomize/components/leader-migration/rbac.yaml");
    // A kube-controller-manager holds the migration's Lease.
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": MIGRATION},
        "spec": {"holderIdentity": "kube-controller-manager_1", "leaseDurationSeconds": 3600},
    });
    let lease = serde_json::from_value(lease).unwrap();
    leases(&world)
        .create(&PostParams::default(), &lease)
        .await
        .unwrap();
    let file = world.file("migration.yaml");
    let text = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: cloud-provider-extraction-migration\n\
                controllerLeaders:\n- {name: service, component: '*'}\n- {name: cloud-node-lifecycle, component: kube-controller-manager}\n";
    std::fs::write(&file, text).unwrap();
    let config = format!("--leader-migration-config={}", file.display());
    let mut flags = FAST_LEASE.to_vec();
    flags.extend(["--enable-leader-migration", config.as_str()]);
    let mut ccm = world.ccm(&flags);

    // The main Lease alone: Nodes are initialised, Services wait.
    let identity = world.led_by(&ccm).await;
    let service = LoadBalancerBuilder::new("default", "web").build();
    let services = world.services();
    services
        .create(&PostParams::default(), &service)
        .await
        .unwrap();
    world.join("node-1").await;
    world.initialised("node-1").await;
    let line = said(
        &ccm,
        "another process holds the Lease of the leader migration",
    )
    .await;
    assert!(line.contains("service-lb-controller"), "{line}");
    let line = said(&ccm, "gives it to another component").await;
    assert!(line.contains("cloud-node-lifecycle-controller"), "{line}");
    world.renewals(3).await;
    assert_eq!(holder(&world, MIGRATION).await, "kube-controller-manager_1");
    assert_eq!(world.cloud().call_count("EnsureLoadBalancer"), 0);
    let web = services.get("web").await.unwrap();
    assert_eq!(web.metadata.finalizers, None);

    // It is released: both Leases are held by one process, and the Service is worked on.
    hand(&world, "", 1).await;
    eventually("both Leases are held", SOON, async || {
        let holder = holder(&world, MIGRATION).await;
        if holder == identity {
            Ok(())
        } else {
            Err(holder)
        }
    })
    .await;
    world
        .service_becomes("web", "it has an address", |web| ingress(web).is_some())
        .await;
    assert_eq!(world.cloud().call_count("Initialize"), 1);
    assert_eq!(world.holder().await.unwrap(), identity);

    // It is taken: the process ends, and leaves the main Lease to others.
    hand(&world, "kube-controller-manager_2", 3600).await;
    let ended = ccm.wait(SOON).await.unwrap();
    assert_eq!(ended.code(), Some(1), "{}", ccm.log());
    said(&ccm, "the Lease was lost, another process may lead").await;
    assert_eq!(world.holder().await.unwrap(), "");
    assert_eq!(holder(&world, MIGRATION).await, "kube-controller-manager_2");

    crate::api_server::rights::hold(&world, &["kustomize/components/leader-migration/rbac.yaml"]);
}

#[tokio::test]
async fn b_m6_both_leases_are_released_on_sigterm_and_the_loss_of_the_main_one_ends_the_process() {
    let mut world = World::new(Fixture::default()).await;
    world.apply("kustomize/components/leader-migration/rbac.yaml");
    let mut flags = FAST_LEASE.to_vec();
    flags.push("--enable-leader-migration");
    let mut first = world.ccm(&flags);
    let identity = world.led_by(&first).await;
    let held = async |identity: &str| {
        eventually("both Leases are held", SOON, async || {
            let lease = leases(&world).get_opt(MIGRATION).await.unwrap();
            let holder = lease.and_then(|lease| lease.spec?.holder_identity);
            if holder.as_deref() == Some(identity) {
                Ok(())
            } else {
                Err(format!("{holder:?}"))
            }
        })
        .await;
    };
    held(&identity).await;
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
    eventually("both Leases are held again", SOON, async || {
        let holder = holder(&world, MIGRATION).await;
        if holder == identity {
            Ok(())
        } else {
            Err(holder)
        }
    })
    .await;
    let taken = Patch::Merge(json!({"spec": {"holderIdentity": "go_1"}}));
    let main = "cloud-controller-manager";
    leases(&world)
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
