//! A provider that is not well, and one that reaches another cloud than before.

use provider_mock::Fixture;
use provider_sdk::Health;

use super::{EVERY_SECOND, asked, crowd, passes, settle};
use crate::world::{SOON, World};

#[tokio::test]
async fn l6_s20_nothing_is_deleted_while_degraded_and_another_scope_touches_nothing_until_accepted()
{
    let mut world = World::new(Fixture::default()).await;
    crowd(&world, 5).await;
    settle(&world, "limping", "False").await;
    settle(&world, "gone", "False").await;
    settle(&world, "elsewhere", "False").await;
    let cloud = world.cloud().clone();

    // DEGRADED from the start: it is asked, and nothing is deleted.
    cloud.remove_instance("gone").unwrap();
    cloud.set_health(Health::degraded("half of the API is down"));
    let _ccm = world.ccm(&[
        "--controllers=cloud-node,cloud-node-lifecycle",
        EVERY_SECOND,
        "--node-deletion-brake=min-age=1s,floor=3",
    ]);
    passes(&world, 4).await;
    world.node("gone").await.unwrap();
    assert_eq!(world.events("gone").await, [""; 0]);
    cloud.set_health(Health::ready());
    world.node_goes("gone").await;

    // Another account: it knows other machines by the same IDs.
    cloud.set_cloud_scope("another account").unwrap();
    cloud.forget_initialize();
    let again = cloud
        .wait_until(SOON, |cloud| cloud.call_count("Initialize") >= 2)
        .await;
    assert!(again);
    cloud.remove_instance("elsewhere").unwrap();
    world.join("fresh").await;
    let before = asked(&cloud);
    world.renewals(5).await;
    assert!(asked(&cloud) <= before + 1, "it goes on asking");
    world.node("elsewhere").await.unwrap();
    world.is_uninitialised("fresh").await;

    world.accept_scope("another account").await;
    world.node_goes("elsewhere").await;
    world.initialised("fresh").await;
}
