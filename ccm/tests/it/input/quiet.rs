//! The log that an operator reads.

use provider_mock::{Fault, Fixture};
use provider_sdk::FailureCode;
use testenv::eventually;
use testenv::objects::set_ready;

use crate::world::{PATIENT_LEASE, SOON, World, balancer, said};

#[tokio::test]
async fn in_a_converged_cluster_nothing_is_logged_and_nothing_is_written() {
    let mut world = World::new(Fixture::default()).await;
    let proxy = crate::proxy::Proxy::start(&world.plane).await;
    // These periods are as short as they can be, so many passes happen.
    let ccm = world.ccm(&[
        "--node-monitor-period=1s",
        "--node-status-update-frequency=1s",
        // A slow renewal is logged after a third of the renew deadline.
        PATIENT_LEASE[0],
        PATIENT_LEASE[1],
        &proxy.flag(),
    ]);
    world.led_by(&ccm).await;
    for name in ["node-1", "node-2", "down"] {
        world.join(name).await;
        world.initialised(name).await;
    }
    // A Node that is not Ready and whose machine runs: passes ask about it.
    set_ready(&world.client, "down", "False").await.unwrap();
    world.balanced("web").await;
    world.event("web", "Normal EnsuredLoadBalancer").await;
    said(&ccm, "ensured load balancer").await;
    let writes = eventually("the last write has ended", SOON, async || {
        let before = proxy.writes().len();
        world.renewals(2).await;
        let after = proxy.writes().len();
        if after == before {
            Ok(after)
        } else {
            Err(format!("{} more writes", after - before))
        }
    })
    .await;
    let lines = ccm.log().lines().count();
    world.cloud().reset_calls();
    let passed = world.cloud().wait_until(2 * SOON, |cloud| {
        cloud.call_count("Probe") >= 3 && cloud.call_count("LookupInstances") >= 20
    });
    assert!(passed.await, "{:?}", world.cloud().call_counts());
    let log = ccm.log();
    let new: Vec<_> = log.lines().skip(lines).collect();
    assert!(new.is_empty(), "{new:#?}");
    let new = proxy.writes();
    assert_eq!(new.len(), writes, "{:?}", &new[writes..]);
    assert_eq!(world.cloud().mutating_calls(), 0);
    // The ccm polls nothing: in the whole test it sent fewer than ten GETs that are no watch.
    let gets = proxy.seen("GET", "");
    let polled = gets.iter().filter(|seen| !seen.path.contains("watch="));
    let before: Vec<_> = polled.map(|seen| seen.path.as_str()).collect();
    assert!(before.len() < 10, "{before:?}");
}

#[tokio::test]
async fn what_goes_wrong_is_said_once_with_the_object_the_provider_and_the_error() {
    let mut world = World::new(Fixture::default()).await;
    let ccm = world.ccm(&["--node-monitor-period=1s"]);
    world.led_by(&ccm).await;
    let fail = |rpc: &str, subject: &str| {
        let fault = Fault::failure(rpc, FailureCode::Precondition).subject(subject);
        world.cloud().set_fault(fault).unwrap();
    };
    fail("LookupInstances", "node-1");
    fail("EnsureLoadBalancer", "default/web");
    world.join("node-1").await;
    world.create_service(balancer("web")).await;
    for object in ["node=\"node-1\"", "service=default/web"] {
        let line = said(&ccm, object).await;
        for word in ["WARN", "provider=mock", "error=", "scripted by the mock"] {
            assert!(line.contains(word), "{word:?} is not in: {line}");
        }
    }
    let again = world.cloud().wait_until(SOON, |cloud| {
        cloud.call_count("LookupInstances") >= 3 && cloud.call_count("EnsureLoadBalancer") >= 2
    });
    assert!(again.await, "{:?}", world.cloud().call_counts());
    let log = ccm.log();
    let of_node = log.lines().filter(|line| line.contains("node=\"node-1\""));
    assert_eq!(of_node.count(), 1, "{log}");
    // For a Service the log has a line for each attempt, and the attempts become rarer.
    let of_service = log
        .lines()
        .filter(|line| line.contains("service=default/web"))
        .count();
    assert!(of_service <= 2, "{log}");
}
