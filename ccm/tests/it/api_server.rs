//! An API server that fails, throttles, dies and comes back.

pub mod rights;

use std::time::Duration;

use kube::api::DeleteParams;
use provider_mock::{Cloud, Fixture};
use testenv::objects::NodeBuilder;
use testenv::{Process, eventually};
use tokio::time::Instant;

use crate::proxy::{Proxy, Rule};
use crate::world::{PATIENT_LEASE, QUICK_LEASE, SOON, World, balancer, instance, said};

/// A Node and a Service, converged.
async fn converged(world: &World) {
    world.join("node-1").await;
    world.initialised("node-1").await;
    world.create_service(balancer("web")).await;
    world.shows_address("web").await;
    // The Node came before the Service: nothing is left to do.
    assert_eq!(
        mutating(world.cloud()),
        ["EnsureLoadBalancer default/web ok"]
    );
}

/// Calls that may change the cloud.
fn mutating(cloud: &Cloud) -> Vec<String> {
    let calls = cloud.calls(None).into_iter();
    calls
        .filter(|call| provider_mock::MUTATING_RPCS.contains(&call.rpc.as_str()))
        .map(|call| format!("{} {} {}", call.rpc, call.names.join(","), call.outcome))
        .collect()
}

#[tokio::test]
async fn b_m3_a_short_outage_costs_no_lead_and_no_call() {
    let mut world = World::new(Fixture::default()).await;
    // An API server starts in 3 s, on a busy machine in 20 s. With this renew deadline both are
    // short outages.
    let mut ccm = world.ccm(&PATIENT_LEASE);
    world.led_by(&ccm).await;
    converged(&world).await;
    let holder = world.leader().await;
    world.cloud().add_instance(instance("node-2")).unwrap();

    let killed = Instant::now();
    world.plane.kill_api_server();
    said(&ccm, "watch failed").await;
    world.plane.start_api_server().await.unwrap();
    let back = Instant::now();
    println!("the API server was away for {:?}", back - killed);
    world
        .register(NodeBuilder::new("node-2").uninitialized())
        .await;
    world.initialised("node-2").await;
    println!(
        "a Node that joined afterwards was initialised in {:?}",
        back.elapsed()
    );
    // The new Node is a target; nothing else changed.
    let updated = world
        .cloud()
        .wait_until(SOON, |cloud| mutating(cloud).len() >= 2);
    assert!(updated.await);
    assert_eq!(
        mutating(world.cloud()),
        [
            "EnsureLoadBalancer default/web ok",
            "UpdateLoadBalancer default/web ok"
        ]
    );
    assert_eq!(world.leader().await, holder);
    assert_eq!(world.cloud().call_count("Initialize"), 1);

    // The API server is suspended for less than the renew deadline. The leader keeps the Lease.
    world.plane.suspend_api_server();
    world.cloud().reset_calls();
    // The outage itself.
    tokio::time::sleep(Duration::from_secs(4)).await;
    world.plane.resume_api_server();
    world.join("node-3").await;
    world.initialised("node-3").await;
    assert_eq!(ccm.exit_status(), None);
    assert_eq!(world.leader().await, holder);
    world.delete_service("web").await;
    world.service_goes("web").await;
    let updates = mutating(world.cloud());
    assert_eq!(updates.last().unwrap(), "DeleteLoadBalancer default/web ok");
}

/// The ccm ends by itself after the renew deadline, and says why.
async fn gives_up(ccm: &mut Process) {
    let ended = ccm.wait(SOON).await.unwrap();
    assert_eq!(ended.code(), Some(1));
    let line = said(ccm, "the Lease was lost, another process may lead").await;
    assert!(line.contains("ERROR"), "{line}");
    assert!(line.contains("could not be renewed within 6s"), "{line}");
}

#[tokio::test]
async fn b_m3_a_long_outage_ends_the_leader_and_the_next_one_changes_nothing() {
    let mut world = World::new(Fixture::default()).await;
    let mut ccm = world.ccm(&QUICK_LEASE);
    world.led_by(&ccm).await;
    converged(&world).await;

    world.plane.kill_api_server();
    gives_up(&mut ccm).await;
    // A ccm that starts without an API server, such as a restarted container, waits for it.
    let mut next = world.ccm(&QUICK_LEASE);
    let line = said(&next, "waiting for the API server").await;
    assert!(
        line.contains("WARN") && line.contains("Connection refused"),
        "{line}"
    );
    world.cloud().reset_calls();
    world.plane.start_api_server().await.unwrap();
    world.led_by(&next).await;
    let asked = world
        .cloud()
        .wait_until(SOON, |cloud| cloud.call_count("GetLoadBalancer") == 1);
    assert!(asked.await, "{:?}", world.cloud().call_counts());
    world.join("node-2").await;
    world.initialised("node-2").await;
    // ▲S13: nothing but the call for the new target.
    let updated = world
        .cloud()
        .wait_until(SOON, |cloud| !mutating(cloud).is_empty());
    assert!(updated.await);
    assert_eq!(
        mutating(world.cloud()),
        ["UpdateLoadBalancer default/web ok"]
    );

    // Suspended: connections stay open, nothing answers.
    world.plane.suspend_api_server();
    gives_up(&mut next).await;
    world.plane.resume_api_server();
    let third = world.ccm(&QUICK_LEASE);
    world.led_by(&third).await;
}

/// A ccm behind a proxy.
async fn proxied(fixture: Fixture) -> (World, Proxy, Process) {
    let mut world = World::new(fixture).await;
    let proxy = Proxy::start(&world.plane).await;
    let flag = proxy.flag();
    let ccm = world.ccm(&[&PATIENT_LEASE[..], &[&flag]].concat());
    world.led_by(&ccm).await;
    (world, proxy, ccm)
}

#[tokio::test]
async fn m11_writes_wait_as_long_as_the_server_says_and_conflicts_are_read_again() {
    let (world, proxy, mut ccm) = proxied(Fixture::default()).await;
    // 429 with Retry-After: the same write again, after that time and not before (a Node's own
    // backoff begins with 1 s).
    proxy.answer(Rule {
        retry_after: Some(3),
        ..Rule::new("PATCH", "/nodes/busy", 2, 429)
    });
    world.join("busy").await;
    world.initialised("busy").await;
    let patches = proxy.seen("PATCH", "/nodes/busy");
    let refused: Vec<_> = patches.iter().filter(|seen| seen.status == 429).collect();
    assert_eq!(refused.len(), 2, "{patches:?}");
    for pair in patches
        .windows(2)
        .filter(|pair| pair[0].status == 429 && pair[0].path == pair[1].path)
    {
        let waited = pair[1].at - pair[0].at;
        assert!(waited >= Duration::from_secs(3), "{patches:?}");
    }

    // 409: read again, then written.
    proxy.answer(Rule::new("PATCH", "/nodes/changed?", 1, 409));
    world.join("changed").await;
    world.initialised("changed").await;
    assert_eq!(proxy.seen("PATCH", "/nodes/changed?")[0].status, 409);
    assert!(
        !proxy.seen("GET", "/nodes/changed").is_empty(),
        "{:#?}",
        proxy.seen("", "/nodes/changed")
    );

    // 500 and 503 without Retry-After: written again.
    proxy.answer(Rule::new("PATCH", "/nodes/error", 1, 500));
    proxy.answer(Rule::new("PATCH", "/nodes/error", 1, 503));
    world.join("error").await;
    world.initialised("error").await;
    let line = said(&ccm, "node=\"error\"").await;
    assert!(line.contains("the API server failed"), "{line}");

    // 422: an event reports it, and no other object waits.
    proxy.answer(Rule::new("PATCH", "/nodes/refused", 2, 422));
    world.join("refused").await;
    world.join("after").await;
    world.initialised("after").await;
    world.event("refused", "Warning NodeWriteRefused").await;
    world.initialised("refused").await;

    // Services: a failed write of the Service or of its status only delays the Service, and nothing
    // is created twice.
    for status in [409, 429, 500] {
        let rule = Rule {
            retry_after: (status == 429).then_some(1),
            ..Rule::new("PATCH", "/services/web", 1, status)
        };
        proxy.answer(rule);
    }
    proxy.answer(Rule::new("PATCH", "/services/web/status", 1, 409));
    world.create_service(balancer("web")).await;
    world.shows_address("web").await;
    assert_eq!(world.cloud().load_balancers().len(), 1);
    for status in [409, 429, 500] {
        let seen = proxy.seen("PATCH", "/services/web");
        assert!(
            seen.iter().any(|seen| seen.status == status),
            "{status}: {seen:?}"
        );
    }

    // A leader whose renewals are refused for less than the renew deadline keeps the Lease.
    let holder = world.leader().await;
    for status in [409, 429, 500] {
        proxy.answer(Rule::new("PUT", "/leases/", 1, status));
    }
    eventually("all three were answered to renewals", SOON, async || {
        let renewals = proxy.seen("PUT", "/leases/");
        let last = renewals.last().map(|seen| seen.status);
        let refused = renewals.iter().filter(|seen| seen.status >= 400).count();
        if refused == 3 && last == Some(200) {
            Ok(())
        } else {
            Err(format!("{refused} {last:?}"))
        }
    })
    .await;
    assert_eq!(world.leader().await, holder);
    assert_eq!(ccm.exit_status(), None);
}

#[tokio::test]
async fn b_m8_a_watch_that_is_cut_or_expired_misses_nothing() {
    let (world, proxy, mut ccm) = proxied(Fixture::default()).await;
    converged(&world).await;
    let lists = |what: &str| {
        let mut all = proxy.seen("GET", &format!("/api/v1/{what}?"));
        all.retain(|seen| !seen.path.contains("watch="));
        all
    };
    let listed = || (lists("nodes").len(), lists("services").len());
    assert_eq!(listed(), (1, 1));

    // The proxy cuts the watches. They resume without a list.
    proxy.cut();
    world.join("node-2").await;
    world.initialised("node-2").await;
    assert_eq!(listed(), (1, 1));

    // The watch expired: a new list. From it the ccm learns which objects were deleted meanwhile,
    // even without their finalizer, and it deletes their load balancers.
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#;
    proxy.answer(Rule {
        body: format!("{gone}\n"),
        ..Rule::new("GET", "/api/v1/services?&watch=", 1, 200)
    });
    proxy.answer(Rule {
        body: format!("{gone}\n"),
        ..Rule::new("GET", "/api/v1/nodes?&watch=", 1, 200)
    });
    // While the lists fail the ccm sees nothing.
    for path in ["/api/v1/nodes?", "/api/v1/services?"] {
        proxy.answer(Rule::new("GET", path, 2, 503));
    }
    proxy.cut();
    let services = world.services();
    let no_finalizer =
        kube::api::Patch::Merge(serde_json::json!({"metadata": {"finalizers": null}}));
    services
        .patch("web", &kube::api::PatchParams::default(), &no_finalizer)
        .await
        .unwrap();
    world.delete_service("web").await;
    world.cloud().remove_instance("node-2").unwrap();
    world
        .nodes()
        .delete("node-2", &DeleteParams::default())
        .await
        .unwrap();
    // ▲S9: this process knew the Service.
    let removed = world
        .cloud()
        .wait_until(SOON, |cloud| cloud.load_balancers().is_empty());
    assert!(removed.await, "{:?}", mutating(world.cloud()));
    world.join("node-3").await;
    world.initialised("node-3").await;
    // Each watch expired, so the ccm listed again. Two of these lists failed.
    for what in ["nodes", "services"] {
        let statuses: Vec<u16> = lists(what).iter().map(|seen| seen.status).collect();
        let new = statuses.strip_prefix(&[200, 503, 503]);
        assert!(
            new.is_some_and(|new| new.contains(&200)),
            "{what}: {statuses:?}"
        );
    }
    assert_eq!(ccm.exit_status(), None);
}
