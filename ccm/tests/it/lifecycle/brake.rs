//! Many Nodes whose instances are reported as ABSENT at once.

use std::time::Duration;

use provider_mock::Fixture;
use testenv::eventually;
use tokio::time::Instant;

use super::{EVERY_SECOND, ONLY_LIFECYCLE, asked, crowd, names, passes, settle, state};
use crate::world::{SOON, World};

/// A provider that offers no listing of instances, so no list protects the Nodes.
fn without_list() -> Fixture {
    let mut fixture = Fixture::default();
    fixture.capabilities.instances.listing = false;
    fixture
}

#[tokio::test]
async fn l6_mass_absence_deletes_nothing_and_the_brake_lets_few_go_after_its_hold() {
    const HOLD: Duration = Duration::from_secs(10);
    const SUSPECTS: usize = 6;
    let mut world = World::new(without_list()).await;
    crowd(&world, 14).await;
    let cloud = world.cloud().clone();
    for number in 0..SUSPECTS {
        settle(&world, &format!("suspect-{number}"), "False").await;
    }
    let hold = "--node-deletion-brake=min-age=1s,hold=10s";
    let _ccm = world.ccm(&[ONLY_LIFECYCLE, EVERY_SECOND, hold]);
    passes(&world, 1).await;

    // The provider says that everything is gone, even Ready Nodes: it uses the wrong account.
    let all = cloud.set_fault(state("ABSENT", None)).unwrap();
    passes(&world, 4).await;
    assert_eq!(names(&world).await.len(), 20);
    cloud.clear_fault(all);
    // It recognises some of the Ready Nodes and says that others are gone. So its answer about a
    // Node that is not Ready does not count.
    for number in (0..14).step_by(2) {
        let lie = state("ABSENT", Some(&format!("ready-{number:02}")));
        cloud.set_fault(lie).unwrap();
    }
    let absent = state("ABSENT", Some("suspect-0"));
    cloud.set_fault(absent).unwrap();
    passes(&world, 4).await;
    assert_eq!(names(&world).await.len(), 20);
    cloud.clear_faults();
    // The provider recognises no witness in another way: it reports the other Nodes as PENDING.
    cloud.set_fault(state("PENDING", None)).unwrap();
    for number in 0..SUSPECTS {
        let suspect = format!("suspect-{number}");
        cloud.set_fault(state("ABSENT", Some(&suspect))).unwrap();
    }
    passes(&world, 4).await;
    assert_eq!(names(&world).await.len(), 20);
    for number in 0..SUSPECTS {
        assert_eq!(world.events(&format!("suspect-{number}")).await, [""; 0]);
    }

    // Six of twenty are gone: more than may go at once.
    let began = Instant::now();
    for number in 0..SUSPECTS {
        cloud.remove_instance(&format!("suspect-{number}")).unwrap();
    }
    cloud.clear_faults();
    for number in 0..SUSPECTS {
        let said = world
            .event(&format!("suspect-{number}"), "Warning NodeDeletionHeld")
            .await;
        assert!(said.contains("the instances of 6 Nodes are gone"), "{said}");
    }
    // After the hold the ccm deletes Nodes at the usual pace: two, not six.
    eventually("the first is deleted", SOON, async || {
        let count = names(&world).await.len();
        if count < 20 { Ok(()) } else { Err(count) }
    })
    .await;
    assert!(began.elapsed() >= HOLD, "{:?}", began.elapsed());
    passes(&world, 3).await;
    assert_eq!(names(&world).await.len(), 18);
}

#[tokio::test]
async fn l5_l6_hundreds_are_asked_about_in_few_calls_and_stay_where_nobody_is_recognised() {
    let mut world = World::new(without_list()).await;
    for number in 0..250 {
        settle(&world, &format!("node-{number:03}"), "False").await;
    }
    let cloud = world.cloud().clone();
    cloud
        .set_latency("LookupInstances", Duration::from_secs(1))
        .unwrap();
    let brake = "--node-deletion-brake=min-age=1s,hold=1s";
    let _ccm = world.ccm(&[ONLY_LIFECYCLE, EVERY_SECOND, brake]);
    // ▲L5: three calls a pass, at once.
    let some = cloud.wait_until(SOON, |cloud| asked(cloud) >= 9).await;
    assert!(some);
    let calls = cloud.calls(Some("LookupInstances"));
    for pass in calls[..9].chunks(3) {
        let asked: usize = pass.iter().map(|call| call.count).sum();
        assert_eq!(asked, 250);
    }
    assert_eq!(cloud.most_in_flight("LookupInstances"), 3);

    // ▲L6: no Node is Ready, and the provider knows none: it may ask the wrong account.
    cloud.set_fault(state("ABSENT", None)).unwrap();
    let before = asked(&cloud);
    let more = cloud
        .wait_until(SOON, |cloud| asked(cloud) >= before + 15)
        .await;
    assert!(more);
    assert_eq!(names(&world).await.len(), 250);
    assert_eq!(world.events("node-000").await, [""; 0]);
}
