//! What the event of a Node says while the Node waits (▲N13).

use super::*;
use crate::controllers::node::testing::Fault;

#[tokio::test(start_paused = true)]
async fn n13_a_node_whose_zone_is_looked_up_is_told_of_lookup_zones() {
    let cloud = Cloud::new();
    let zones = Zones {
        hang: ["n0000".to_owned()].into(),
        ..Zones::default()
    };
    cloud.state().zones = Some(zones);
    let looping = Looping::start_on(cloud, 1, |_| {}).await;
    for what in [
        "has not answered LookupZones yet",
        "no answer in time from LookupZones of provider",
    ] {
        looping.until(what, |this| this.tells(&[what])).await;
    }
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn n13_a_node_that_waits_because_the_cloud_asked_to_slow_down_is_told_so() {
    let looping = Looping::start(0).await;
    looping.cloud.state().failures = [api::FailureCode::Throttled].into();
    looping.cloud.state().retry_after = Some(Duration::from_mins(2));
    looping.api.put(&fresh("n0000"));
    looping
        .until("throttled", |this| this.sizes().len() == 1)
        .await;
    looping.api.put(&fresh("n0001"));
    let told = |this: &Looping| this.tells(&["n0001", "to slow down: all its new"]);
    looping
        .until_at_most("told", Duration::from_mins(1), told)
        .await;
    looping.until("all", |this| this.uninitialized() == 0).await;
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn n13_a_node_whose_write_waits_for_the_api_server_is_told_so() {
    let looping = Looping::start(0).await;
    looping.api.faults.writes(1, 250, Fault::Hangs);
    for i in 0..250 {
        looping.api.put(&fresh(&format!("n{i:04}")));
    }
    let told =
        |this: &Looping| this.tells(&["the API server has not answered the writes of this Node"]);
    looping
        .until_at_most("told", Duration::from_mins(1), told)
        .await;
    looping.until("all", |this| this.uninitialized() == 0).await;
    looping.stop().await;
}
