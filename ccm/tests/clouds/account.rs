//! A token of another account, which has nothing of this cluster. The ccm concludes nothing from
//! the objects of that account, and creates nothing there.

use serde_json::json;
use testenv::objects::set_ready;
use testenv::{Vendor, eventually};

use crate::world::{SOON, World};

#[tokio::test]
async fn a_token_of_another_account_at_digitalocean_is_refused_and_no_node_is_lost() {
    rotated_to_another_account(Vendor::DigitalOcean).await;
}

#[tokio::test]
async fn a_token_of_another_project_at_hetzner_is_refused_and_no_node_is_lost() {
    rotated_to_another_account(Vendor::Hetzner).await;
}

async fn rotated_to_another_account(vendor: Vendor) {
    let (reason, scope, whose) = match vendor {
        Vendor::DigitalOcean => ("AnotherAccount", "another-account", "GET /v2/account"),
        Vendor::Hetzner => ("AnotherProject", "network 5822", "GET /v1/networks/{id}"),
    };
    let mut world = World::running(vendor, 1).await;
    let uid = world.join(0).await.metadata.uid;
    world.expose("web", &[]).await;
    world.served("web").await;
    let there = world.cloud.balancers().unwrap();
    let writes = world.cloud.writes().unwrap();
    let token = json!({"elsewhere": true});
    world.cloud.ask("PUT", "tokens/other", &token).unwrap();

    // The token is replaced while the provider runs. An event on the Service reports that the
    // provider refuses it. The provider tries the new token again when the ccm asks about the Node.
    world.cloud.put_token("other").unwrap();
    world.expose("late", &[]).await;
    let words = ["ProviderCredentialsRefused", reason];
    world.tells("service", "late", &words).await;
    let asked = || {
        let calls = world.cloud.calls().unwrap();
        calls.get(whose).copied().unwrap_or_default()
    };
    let before = asked();
    set_ready(&world.client, "node-0", "Unknown").await.unwrap();
    eventually("the token is tried again", SOON, async || {
        let now = asked();
        (now > before).then_some(()).ok_or(now)
    })
    .await;

    // The provider starts with the other account's token and accepts it. The ccm then creates and
    // deletes nothing, and an event on the Lease says why.
    world.cloud.kill_provider();
    world.cloud.start_provider(&[]).unwrap();
    let words = ["CloudScopeChanged", scope];
    world
        .tells("lease", "cloud-controller-manager", &words)
        .await;
    world.renewals(3).await;
    assert_eq!(world.nodes().get("node-0").await.unwrap().metadata.uid, uid);
    assert_eq!(world.cloud.writes().unwrap(), writes);
    assert_eq!(world.cloud.balancers().unwrap(), there);

    world.cloud.put_token(vendor.token()).unwrap();
    world.cloud.kill_provider();
    world.cloud.start_provider(&[]).unwrap();
    world
        .tells("lease", "cloud-controller-manager", &["CloudScopeAccepted"])
        .await;
    set_ready(&world.client, "node-0", "True").await.unwrap();
    world.served("late").await;
    assert_eq!(world.nodes().get("node-0").await.unwrap().metadata.uid, uid);
    assert_eq!(world.made(), 2, "one in the other account");
    for name in ["web", "late"] {
        world.unexpose(name).await;
    }
    assert_eq!(world.cloud.balancers().unwrap(), []);
}
