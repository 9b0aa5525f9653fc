//! The deletion guards (▲L6), in the whole loop.

use super::*;
use crate::controllers::node::testing::{Fault, ListingEnd};

#[tokio::test(start_paused = true)]
async fn l6_the_listing_vetoes_and_nothing_is_deleted_while_degraded() {
    let looping = Looping::start(20).await;
    looping.cloud.state().listed.push("mock://n0003".to_owned());
    looping.down([3], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(looping.left(), 20);
    looping.cloud.state().probe = api::ProbeState::Degraded;
    looping
        .provider
        .until("degraded", |status| !status.may_delete())
        .await;
    looping.cloud.state().listed.clear();
    let calls = looping.lookups();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(looping.left(), 20);
    assert!(looping.lookups() > calls);
    looping.cloud.state().probe = api::ProbeState::Ready;
    looping.until("deleted", |this| this.left() == 19).await;
}

#[tokio::test(start_paused = true)]
async fn l6_a_mass_absence_is_held_and_said() {
    let looping = Looping::start(100).await;
    looping.down(0..40, api::InstanceState::Absent);
    let took = looping
        .until("the first go", |this| this.left() < 100)
        .await;
    assert!(
        took > Duration::from_mins(15) && took < Duration::from_mins(16),
        "{took:?}"
    );
    let held = looping.metrics.status_lines();
    assert!(
        held.len() == 1 && held[0].contains("holds back"),
        "{held:?}"
    );
    let events = looping.context.writes.events.recorded();
    assert!(
        events
            .iter()
            .any(|event| event.contains("NodeDeletionHeld")),
        "{events:?}"
    );
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(looping.left(), 90);
    // The other instances turn out to exist.
    looping.cloud.state().states.clear();
    looping
        .until("let go", |this| this.metrics.status_lines().is_empty())
        .await;
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(looping.left(), 90);
}

#[tokio::test(start_paused = true)]
async fn l6_the_status_page_counts_the_held_nodes_as_long_as_the_brake_holds() {
    let second = Duration::from_secs(1);
    let (looping, cloud) = Looping::start_probed(100, second, |_| {}).await;
    looping.down(0..40, api::InstanceState::Absent);
    let told = |this: &Looping| {
        let lines = this.metrics.status_lines().concat();
        lines.contains("holds back 40 Nodes")
    };
    looping.until("held", told).await;
    let still = async |what: &str| {
        for _ in 0..15 {
            tokio::time::sleep(PERIOD).await;
            assert!(
                told(&looping),
                "{what}: {:?}",
                looping.metrics.status_lines()
            );
        }
    };
    cloud.state().probe = api::ProbeState::Degraded;
    still("the provider is DEGRADED").await;
    cloud.state().probe = api::ProbeState::Ready;
    still("it is READY again").await;
    cloud
        .state()
        .poison
        .extend((0..100).map(|i| format!("n{i:04}")));
    still("all lookups fail").await;
    cloud.state().poison.clear();
    still("they succeed again").await;
    // The provider recognises no Ready Node.
    let ready = (40..100).map(|i| (format!("n{i:04}"), api::InstanceState::Absent));
    cloud.state().states.extend(ready);
    let voids = looping.metrics.voids("mock");
    still("the passes are void").await;
    assert!(looping.metrics.voids("mock") > voids);
    cloud
        .state()
        .states
        .retain(|name, _| name.as_str() < "n0040");
    still("they are valid again").await;
    assert_eq!(looping.left(), 100);
}

#[tokio::test(start_paused = true)]
async fn l6_the_brake_outlives_the_loop() {
    let mut looping = Looping::start(100).await;
    // In the first window of a term only the floor applies.
    tokio::time::sleep(Duration::from_mins(11)).await;
    looping.down(0..10, api::InstanceState::Absent);
    looping.until("a tenth", |this| this.left() == 90).await;
    // After each start of the loop nine more Nodes lose their instance.
    for round in 1..5 {
        looping.again().await;
        looping.down(round * 10..round * 10 + 9, api::InstanceState::Absent);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(looping.left(), 90, "round {round}");
    }
    // A brake that holds since an earlier term is reported in each term.
    let events = looping.context.writes.events.recorded();
    let held = |event: &String| event.contains("NodeDeletionHeld n0010") && event.contains("(x4)");
    assert!(events.iter().any(held), "{events:?}");
    // The brake still holds after the window. The quarter of an hour begins again with each start.
    tokio::time::sleep(Duration::from_mins(13)).await;
    looping.again().await;
    let took = looping.until("the next", |this| this.left() < 90).await;
    assert!(took > Duration::from_mins(15), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn l6_a_new_process_deletes_two_at_once_and_not_the_share() {
    let looping = Looping::start(100).await;
    looping.down(0..2, api::InstanceState::Absent);
    let took = looping.until("two", |this| this.left() == 98).await;
    assert!(took <= Duration::from_secs(11), "{took:?}");
    looping.down([2], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(9)).await;
    assert_eq!(looping.left(), 98);
}

#[tokio::test(start_paused = true)]
async fn l6_a_deletion_without_an_answer_counts_for_the_brake() {
    let looping = Looping::start(100).await;
    looping.api.faults.writes(1, 2, Fault::Lost);
    looping.down(0..2, api::InstanceState::Absent);
    looping.until("two", |this| this.left() == 98).await;
    looping.down([2], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(9)).await;
    assert_eq!(looping.left(), 98, "the API server deleted both");
}

#[tokio::test(start_paused = true)]
async fn l6_a_provider_of_another_account_deletes_nothing() {
    let looping = Looping::start(20).await;
    let all = (0..20).map(|i| (format!("n{i:04}"), api::InstanceState::Absent));
    looping.cloud.state().states = all.collect();
    looping.down([1], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(40)).await;
    assert_eq!(looping.left(), 20);
}

#[tokio::test(start_paused = true)]
async fn l6_who_shares_a_provider_id_is_told_and_stays() {
    let looping = Looping::start(20).await;
    looping.api.edit("n0004", |node| {
        let spec = node.spec.get_or_insert_default();
        spec.provider_id = Some("mock://n0003".to_owned());
    });
    looping.down([3], api::InstanceState::Absent);
    // The other Node with this provider ID is not Ready either.
    looping
        .cloud
        .state()
        .states
        .insert("n0004".to_owned(), api::InstanceState::Absent);
    looping.api.edit("n0004", |node| {
        node.status.get_or_insert_default().conditions = None;
    });
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(looping.left(), 20);
    let events = looping.context.writes.events.recorded();
    assert_eq!(events.len(), 2, "{events:?}");
    for (event, other) in events.iter().zip(["Node n0004", "Node n0003"]) {
        assert!(event.contains("NodeDeletionHeld"), "{event}");
        assert!(event.contains("instance mock://n0003 is gone"), "{event}");
        assert!(event.contains(other), "{event}");
    }
    // A person deletes the right Node.
    looping.api.delete("n0003");
    looping.until("deleted", |this| this.left() == 18).await;
}

#[tokio::test(start_paused = true)]
async fn l6_of_two_nodes_the_one_whose_machine_is_gone_goes_at_once() {
    let looping = Looping::start(2).await;
    looping.down([1], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 1).await;
    assert!(took <= Duration::from_secs(11), "{took:?}");
    // No Ready Node is left to vouch for the provider.
    looping.down([0], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(40)).await;
    assert_eq!(looping.left(), 1);
}

#[tokio::test(start_paused = true)]
async fn l6_of_two_nodes_the_one_goes_only_by_a_complete_list() {
    let looping = Looping::start(2).await;
    looping.cloud.state().listing = ListingEnd::Cut;
    looping.down([1], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 1).await;
    let hold = Duration::from_mins(15);
    assert!(
        took >= hold && took <= hold + Duration::from_mins(1),
        "{took:?}"
    );
    let events = looping.context.writes.events.recorded();
    let said = |event: &String| event.contains("NodeDeletionHeld") && event.contains("one of two");
    assert!(events.iter().any(said), "{events:?}");

    let looping = Looping::start(2).await;
    looping.cloud.state().listed.push("mock://n0001".to_owned());
    looping.down([1], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(looping.left(), 2, "the list has its instance");
}

/// The provider breaks INST-16.
#[tokio::test(start_paused = true)]
async fn l6_a_list_with_an_instance_without_id_vetoes_with_the_others() {
    let listed = || vec![String::new(), "mock://n0001".to_owned()];
    let looping = Looping::start(20).await;
    looping.cloud.state().listed = listed();
    looping.down([1, 3], api::InstanceState::Absent);
    looping.until("deleted", |this| this.left() == 19).await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert!(looping.api.node("n0001").is_some() && looping.left() == 19);
    // The list is not complete.
    let looping = Looping::start(2).await;
    looping.cloud.state().listed = listed();
    looping.down([0], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 1).await;
    assert!(took >= Duration::from_mins(15), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn l6_where_a_witness_is_not_recognised_others_are_asked() {
    let looping = Looping::start(5).await;
    let fail = |node: &str| looping.cloud.state().poison.insert(node.to_owned());
    fail("n0000");
    fail("n0002");
    looping.down([1], api::InstanceState::Absent);
    looping.until("deleted", |this| this.left() == 4).await;
    let first = looping.cloud.state().lookups[1].clone();
    assert!(first == ["n0000"] || first == ["n0002"], "{first:?}");

    // If the provider recognises no Ready Node, the Node stays.
    for node in ["n0003", "n0004"] {
        fail(node);
    }
    looping.api.put(&node(5, "True"));
    looping.api.put(&node(6, "True"));
    fail("n0005");
    fail("n0006");
    looping.down([0], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(looping.left(), 6);
}
