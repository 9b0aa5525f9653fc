//! The API server is suspended. Each test has an API server of its own, with two arenas: the ccm
//! leads in one of them, and upstream's CCM in the other.

use std::time::Duration;

use testenv::{ControlPlane, eventually};
use tokio::time::{Instant, sleep_until};

use crate::arena::{Arena, SOON};
use crate::contender::Kind::{self, Go, Ours};

async fn stopped_for(seconds: u64) {
    let mut plane = ControlPlane::start().await.unwrap();
    let mut arenas = Vec::new();
    for (name, kinds) in [("ours", [Ours, Go]), ("go", [Go, Ours])] {
        let name = format!("stopped-{seconds}-{name}");
        arenas.push((Arena::new(&plane, &name).await, kinds));
    }
    // Only after both arenas are created: `Arena::new` blocks the thread, and with it the links.
    for (arena, kinds) in &mut arenas {
        for kind in *kinds {
            arena.start(&plane, kind).await;
            arena.led_by(0).await;
        }
    }
    for (arena, _) in &arenas {
        arena.renewals(0, 2).await;
    }
    let stopped = Instant::now();
    plane.suspend_api_server();
    sleep_until(stopped + Duration::from_secs(seconds)).await;
    plane.resume_api_server();
    let resumed = Instant::now();
    for (arena, kinds) in &mut arenas {
        if goes_on(arena, kinds[0], seconds).await {
            arena.verdict(&[0]);
            continue;
        }
        let (_, code) = arena.ends(0).await;
        assert_eq!(code, Some(1));
        let took = arena.led_by(1).await.saturating_duration_since(resumed);
        arena.measured("from the server's return to the next leader", took);
        arena.renewals(1, 2).await;
        arena.verdict(&[0, 1]);
    }
}

/// Whether the leader survived the outage. Ours counts from its last good renewal, so an outage of
/// 12 s ends it. Upstream counts from the first renewal that failed, so it may survive 12 s.
async fn goes_on(arena: &mut Arena, leader: Kind, seconds: u64) -> bool {
    let renewed = arena.contenders[0].link.claims().len();
    let goes_on = eventually("the leader renews or has ended", SOON, async || {
        let contender = &mut arena.contenders[0];
        if contender.process.exit_status().is_some() {
            return Some(false);
        }
        (contender.link.claims().len() >= renewed + 2).then_some(true)
    })
    .await;
    assert!(!goes_on || (leader == Go && seconds == 12));
    goes_on
}

#[tokio::test]
async fn m12_the_api_server_stands_still_for_12_s() {
    stopped_for(12).await;
}

#[tokio::test]
async fn m12_the_api_server_stands_still_for_20_s() {
    stopped_for(20).await;
}
