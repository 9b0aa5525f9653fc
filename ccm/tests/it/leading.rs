//! Leadership and its end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use provider_mock::{Fault, FaultKind, Fixture};
use testenv::eventually;
use testenv::objects::ingress;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::proxy::Proxy;
use crate::world::{QUICK_LEASE, SOON, World, balancer, said};

const HANDLE: &str = "grpc-ccm.io/load-balancer";

/// Records the holders of the Lease, one after the other.
struct Holders {
    seen: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Holders {
    fn watch(world: &World) -> Self {
        let leases = world.leases();
        let seen = Arc::new(Mutex::new(Vec::<String>::new()));
        let written = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut changes = std::pin::pin!(kube::runtime::watcher::watch_object(
                leases,
                "cloud-controller-manager"
            ));
            while let Some(change) = futures::StreamExt::next(&mut changes).await {
                let holder = change
                    .ok()
                    .flatten()
                    .and_then(|lease| lease.spec?.holder_identity);
                let Some(holder) = holder.filter(|holder| !holder.is_empty()) else {
                    continue;
                };
                let mut seen = written.lock().unwrap();
                if seen.last() != Some(&holder) {
                    seen.push(holder);
                }
            }
        });
        Self { seen, task }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until an EnsureLoadBalancer is in progress.
async fn ensures(world: &World) {
    let ensures = world
        .cloud()
        .wait_until(SOON, |cloud| cloud.in_flight("EnsureLoadBalancer") == 1);
    assert!(ensures.await);
}

/// Waits until the holder of the Lease has lost it. By then no EnsureLoadBalancer is in progress.
async fn given_away_after_the_call(world: &World, identity: &str) {
    eventually("the Lease is given away", SOON, async || {
        if world.holder().await? == identity {
            return Err("it is held".to_owned());
        }
        let in_flight = world.cloud().in_flight("EnsureLoadBalancer");
        assert_eq!(in_flight, 0, "released while a call ran");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn b_m3_m3_released_on_sigterm_taken_over_after_kill_and_after_suspension() {
    let mut world = World::new(Fixture::default()).await;
    let holders = Holders::watch(&world);
    let mut first = world.ccm(&[
        "--leader-elect-lease-duration=60s",
        "--leader-elect-renew-deadline=40s",
    ]);
    let first_identity = world.led_by(&first).await;
    let mut second = world.ccm(&QUICK_LEASE);
    let line = said(&second, "another process leads").await;
    assert!(line.contains(&first_identity), "{line}");
    assert!(line.contains("lease_until=20"), "{line}");

    // SIGTERM: the leader releases the Lease and exits with 0. The standby leads long before the
    // first one's Lease of 60 s would expire.
    let asked = Instant::now();
    first.terminate();
    let second_identity = world.led_by(&second).await;
    let took = asked.elapsed();
    println!("after SIGTERM another led in {took:?}");
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(
        first.wait(SOON).await.unwrap().code(),
        Some(0),
        "{}",
        first.log()
    );
    said(&first, "released the Lease").await;

    // kill -9: the standby does not lead at once. The Lease lasts for 8 s from the last renewal,
    // which was some time before the kill.
    let proxy = Proxy::start(&world.plane).await;
    let through = proxy.flag();
    let mut flags = QUICK_LEASE.to_vec();
    flags.push(&through);
    let mut third = world.ccm(&flags);
    said(&third, "another process leads").await;
    let killed = Instant::now();
    second.kill();
    let third_identity = world.led_by(&third).await;
    let took = killed.elapsed();
    println!("after kill -9 another led in {took:?}");
    assert!(took > Duration::from_secs(3), "{took:?}");

    // SIGSTOP with a lookup in flight: the other process takes over. After SIGCONT the old leader
    // writes nothing, and ends.
    let mut fourth = world.ccm(&QUICK_LEASE);
    said(&fourth, "another process leads").await;
    world.join("node-0").await;
    world.initialised("node-0").await;
    let delay = Fault::delay("LookupInstances", Duration::from_secs(1));
    let delay = world.cloud().set_fault(delay).unwrap();
    world.join("node-1").await;
    let asks = world
        .cloud()
        .wait_until(SOON, |cloud| cloud.in_flight("LookupInstances") > 0);
    assert!(asks.await);
    third.suspend();
    let fourth_identity = world.led_by(&fourth).await;
    world.cloud().clear_fault(delay);
    world.initialised("node-1").await;
    world.join("node-2").await;
    world.initialised("node-2").await;
    let writes = proxy.writes().len();
    assert!(writes > 0, "the third never wrote through the proxy");
    third.resume();
    let ended = third.wait(SOON).await.unwrap();
    assert_eq!(ended.code(), Some(1));
    said(&third, "the Lease was lost, another process may lead").await;
    let after = proxy.writes();
    assert_eq!(after.len(), writes, "{:?}", &after[writes..]);

    // Each process led once.
    let expected = [
        first_identity,
        second_identity,
        third_identity,
        fourth_identity,
    ];
    assert_eq!(holders.seen(), expected);
    assert_eq!(fourth.exit_status(), None);
    assert_eq!(world.cloud().call_count("Initialize"), 4);
}

#[tokio::test]
async fn m3_the_lease_is_not_released_before_a_call_that_changes_the_cloud_has_ended() {
    let mut world = World::new(Fixture::default()).await;
    let mut first = world.ccm(&[]);
    let identity = world.led_by(&first).await;
    let second = world.ccm(&[]);
    said(&second, "another process leads").await;
    let latency = Duration::from_secs(10);
    world
        .cloud()
        .set_latency("EnsureLoadBalancer", latency)
        .unwrap();
    world.create_service(balancer("web")).await;
    ensures(&world).await;
    world
        .cloud()
        .set_latency("EnsureLoadBalancer", Duration::ZERO)
        .unwrap();
    first.terminate();
    given_away_after_the_call(&world, &identity).await;
    let calls = world.cloud().calls(Some("EnsureLoadBalancer"));
    assert_eq!(
        (calls[0].outcome.as_str(), calls[0].duration_ms >= 9_900),
        ("ok", true),
        "{calls:?}"
    );
    // The call's result was stored before, so the next leader knows it.
    let web = world.services().get("web").await.unwrap();
    assert!(ingress(&web).is_some(), "{:?}", web.status);
    assert!(
        web.metadata
            .annotations
            .unwrap_or_default()
            .contains_key(HANDLE)
    );
    assert_eq!(first.wait(SOON).await.unwrap().code(), Some(0));
    world.led_by(&second).await;

    // ▲S13: the next leader asks, and changes nothing.
    let gets = world
        .cloud()
        .wait_until(SOON, |cloud| cloud.call_count("GetLoadBalancer") >= 1);
    assert!(gets.await, "{:?}", world.cloud().call_counts());
    assert_eq!(world.cloud().call_count("EnsureLoadBalancer"), 1);
}

#[tokio::test]
async fn m3_what_does_not_end_is_cancelled_after_twenty_seconds_and_the_lease_then_expires() {
    let mut world = World::new(Fixture::default()).await;
    let mut ccm = world.ccm(&[]);
    let identity = world.led_by(&ccm).await;
    let hang = Fault::new("EnsureLoadBalancer", FaultKind::Hang);
    world.cloud().set_fault(hang).unwrap();
    world.create_service(balancer("web")).await;
    ensures(&world).await;
    let asked = Instant::now();
    ccm.terminate();
    assert_eq!(ccm.wait(2 * SOON).await.unwrap().code(), Some(0));
    let took = asked.elapsed();
    assert!(took >= Duration::from_secs(19), "{took:?}");
    let call_ended = world
        .cloud()
        .wait_until(SOON, |cloud| cloud.in_flight("EnsureLoadBalancer") == 0);
    assert!(call_ended.await);
    assert_eq!(
        world.cloud().calls(Some("EnsureLoadBalancer"))[0].outcome,
        "cancelled"
    );
    said(&ccm, "calls still run: they are cancelled").await;
    // A provider that does not stop at a cancellation may still work on the call.
    said(&ccm, "letting the Lease expire instead of releasing it").await;
    assert_eq!(world.holder().await.unwrap(), identity);
}

#[tokio::test]
async fn b_m3_a_second_signal_ends_it_at_once() {
    let (world, mut ccm) = World::with_ccm(Fixture::default()).await;
    let hang = Fault::new("EnsureLoadBalancer", FaultKind::Hang);
    world.cloud().set_fault(hang).unwrap();
    world.create_service(balancer("web")).await;
    ensures(&world).await;
    ccm.terminate();
    said(&ccm, "stepping down").await;
    ccm.terminate();
    // The first signal alone would end it after twenty seconds.
    let ended = ccm.wait(Duration::from_secs(10)).await.unwrap();
    assert_eq!(ended.code(), Some(1));
    said(&ccm, "asked to end a second time").await;
}

#[tokio::test]
async fn b_m3_without_election_it_warns_works_and_leaves_the_lease_alone() {
    let mut world = World::new(Fixture::default()).await;
    let mut ccm = world.ccm(&["--leader-elect=false"]);
    let line = said(&ccm, "--leader-elect=false").await;
    assert!(
        line.contains("WARN") && line.contains("a second ccm"),
        "{line}"
    );
    world.join("node-1").await;
    world.initialised("node-1").await;
    assert!(world.lease().await.is_err());
    ccm.terminate();
    assert_eq!(ccm.wait(SOON).await.unwrap().code(), Some(0));
}
