//! The findings of lists of load balancers (▲S16), and the conditions of a Service (▲S15).

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::api_server::WriteFault;
use super::cloud::Balancer;
use super::*;
use crate::controllers::service::handle::{self, Stored};
use crate::controllers::service::plan::FINALIZER;
use crate::core::ProviderLabel;

const DELETE: &[&str] = &["--orphaned-load-balancers=delete"];

/// Three load balancers are created. Then the Service of one vanishes while no loop runs, and a new
/// process starts a loop.
async fn orphaned(arguments: &'static [&'static str]) -> World {
    let mut world = World::with(1, arguments).await;
    for i in 0..3 {
        world.server.put(&named(i));
    }
    world
        .until("all made", |w| {
            (0..3).all(|i| w.address(&format!("s{i}")).is_some())
        })
        .await;
    world.rest().await;
    world.stop.cancel();
    world.tasks.join_next().await;
    world.server.remove("s1");
    world.memory = Arc::default();
    world.start();
    world
}

fn reported(world: &World) -> Vec<String> {
    let events = world.events.recorded();
    events
        .into_iter()
        .filter(|event| event.contains("OrphanedLoadBalancer"))
        .collect()
}

async fn lists(world: &World, more: usize) {
    let before = world.cloud.state().lists;
    let deadline = Instant::now() + Duration::from_mins(11 * more as u64);
    while world.cloud.state().lists < before + more {
        assert!(Instant::now() < deadline, "no list in eleven minutes");
        sleep(Duration::from_secs(1)).await;
    }
    world.rest().await;
}

#[tokio::test(start_paused = true)]
async fn s16_an_orphan_is_told_of_once_and_stays() {
    let world = orphaned(&[]).await;
    lists(&world, 1).await;
    assert_eq!(reported(&world), [""; 0], "one list is not enough");
    lists(&world, 3).await;
    let reported = reported(&world);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].contains("lb-u1"), "{reported:?}");
    assert_eq!(world.cloud.state().balancers.len(), 3);
    assert_eq!(world.cloud.called("Delete"), 0);
}

#[tokio::test(start_paused = true)]
async fn s16_an_orphan_is_deleted_where_that_is_asked_for_after_two_lists() {
    let world = orphaned(DELETE).await;
    lists(&world, 1).await;
    assert_eq!(world.cloud.called("Delete"), 0);
    lists(&world, 1).await;
    world
        .until("the orphan is gone", |w| {
            w.cloud.state().balancers.len() == 2
        })
        .await;
    lists(&world, 2).await;
    let deletes: Vec<_> = world
        .calls()
        .into_iter()
        .filter(|call| call.starts_with("Delete"))
        .collect();
    assert_eq!(deletes, ["Delete s1 h-u1"]);
}

#[tokio::test(start_paused = true)]
async fn s16_a_list_that_is_not_complete_counts_for_nothing() {
    let world = orphaned(DELETE).await;
    world.cloud.state().miscounted = 1;
    lists(&world, 3).await;
    assert_eq!(
        (reported(&world).len(), world.cloud.called("Delete")),
        (0, 0)
    );
    world.cloud.state().miscounted = 0;
    lists(&world, 2).await;
    world
        .until("the orphan is gone", |w| {
            w.cloud.state().balancers.len() == 2
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn s16_a_service_that_only_the_watch_has_lost_keeps_its_load_balancer() {
    let world = orphaned(DELETE).await;
    // The Service is missing in the store, but the API server has it.
    world.server.put(&named(1));
    world.server.lose_service("s1");
    lists(&world, 4).await;
    assert_eq!(world.cloud.called("Delete"), 0);
    assert_eq!(world.cloud.state().balancers.len(), 3);
}

/// The gauges: load balancers without a Service, Services with several, Services whose load
/// balancer is not listed.
fn gauges(world: &World) -> (i64, i64, i64) {
    let metrics = &world.metrics;
    let shown = |family: &Family<ProviderLabel, Gauge>| family.get_or_create(&"mock".into()).get();
    (
        shown(&metrics.orphans),
        shown(&metrics.duplicates),
        shown(&metrics.unlisted),
    )
}

#[tokio::test(start_paused = true)]
async fn s16_what_lists_say_is_counted_as_long_as_they_say_it() {
    let mut world = World::new(1).await;
    // More Services than the log names for one list.
    for i in 0..15 {
        world.server.put(&named(i));
    }
    world
        .until("all made", |w| {
            (0..15).all(|i| w.address(&format!("s{i}")).is_some())
        })
        .await;
    {
        let mut cloud = world.cloud.state();
        cloud.unlisted = (0..12).map(|i| format!("u{i}")).collect();
        cloud.doubled = (12..15).map(|i| format!("u{i}")).collect();
    }
    lists(&world, 1).await;
    assert_eq!(gauges(&world), (0, 0, 0), "one list is not enough");
    lists(&world, 1).await;
    assert_eq!(gauges(&world), (0, 3, 12));
    lists(&world, 1).await;
    assert_eq!(gauges(&world), (0, 3, 12), "reported once, still counted");
    assert_eq!(world.cloud.called("Get"), 12, "ten, and then two");
    world.provider.start(world.cloud.service());
    for more in [0, 1, 1] {
        lists(&world, more).await;
        let counted = "a new process of the same provider and its first list change no gauge";
        assert_eq!(gauges(&world), (0, 3, 12), "{counted}");
    }
    let events = world.events.recorded();
    let of = |reason: &str| {
        let reported = events.iter().filter(|event| event.contains(reason));
        reported.count()
    };
    assert_eq!(
        (of("DuplicateLoadBalancer"), of("LoadBalancerNotListed")),
        (3, 7),
        "ten by name"
    );
    world.cloud.state().unlisted.pop_last();
    world.cloud.state().doubled.clear();
    lists(&world, 1).await;
    assert_eq!(gauges(&world), (0, 0, 11));
    world.cloud.state().unlisted.clear();
    lists(&world, 1).await;
    assert_eq!(gauges(&world), (0, 0, 0));

    // The gauges of a process that no longer leads are zero.
    world.cloud.state().unlisted.insert("u2".to_owned());
    lists(&world, 2).await;
    assert_eq!(gauges(&world).2, 1);
    world.stop.cancel();
    world.tasks.join_next().await;
    assert_eq!(gauges(&world), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn s16_a_load_balancer_that_somebody_removed_is_made_anew_after_two_lists() {
    type Says = fn(&mut api::GetProviderInfoResponse);
    let looks: [(Says, &[&str]); 2] = [
        (|_| {}, &["Get s1 h-u1", "Ensure s1 h-u1"]),
        // Without `in_sync` the check is an Ensure.
        (
            |info| {
                let offered = info.capabilities.as_mut().unwrap();
                offered.load_balancers.as_mut().unwrap().in_sync = false;
            },
            &["Ensure s1 h-u1"],
        ),
    ];
    for (says, expected) in looks {
        let world = World::that_says(1, says).await;
        for i in 0..3 {
            world.server.put(&named(i));
        }
        world
            .until("all made", |w| {
                (0..3).all(|i| w.address(&format!("s{i}")).is_some())
            })
            .await;
        lists(&world, 1).await;
        world.cloud.state().balancers.remove("u1");
        world.cloud.state().calls.clear();
        lists(&world, 1).await;
        assert_eq!(world.calls(), [""; 0], "one list is not enough");
        lists(&world, 1).await;
        assert_eq!(world.calls(), expected);
        assert!(world.cloud.state().balancers.contains_key("u1"));
        lists(&world, 2).await;
        assert_eq!(world.calls(), expected, "it exists, and is listed");
        assert_eq!(gauges(&world), (0, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn s16_nobody_looks_where_that_is_not_wanted() {
    let world = orphaned(&["--orphaned-load-balancers=ignore"]).await;
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.cloud.state().lists, 0);
}

#[tokio::test(start_paused = true)]
async fn s15_a_port_that_is_not_served_shows_in_the_status_as_long_as_it_is() {
    let world = World::new(1).await;
    let protocol = |service: &mut Service, name: &str| {
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].protocol = Some(name.into());
    };
    let conditions = |world: &World| {
        let status = world.server.get("web").unwrap().status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let shown = |it: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
            format!("{}={} {}", it.type_, it.status, it.message)
        };
        conditions.iter().map(shown).collect::<Vec<_>>()
    };
    let mut udp = service();
    protocol(&mut udp, "UDP");
    world.server.put(&udp);
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    let expected =
        "LoadBalancerPortsError=True The provider does not honour spec.ports[].protocol: UDP";
    assert_eq!(conditions(&world), [expected]);
    world.rest().await;
    assert_eq!(world.calls(), ["Ensure web -"]);
    let events = world.events.recorded();
    assert!(
        events
            .iter()
            .any(|event| event.contains("UnsupportedServiceField")),
        "{events:?}"
    );

    world.server.edit("web", |service| protocol(service, "TCP"));
    world
        .until("the condition is gone", |w| conditions(w).is_empty())
        .await;
    world
        .server
        .edit("web", |service| protocol(service, "SCTP"));
    world
        .until("it is back", |w| !conditions(w).is_empty())
        .await;
    world.server.edit("web", |service| {
        service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
    });
    world
        .until("nothing of ours is left", |w| {
            !has_finalizer(&w.server.get("web").unwrap())
                && conditions(w).is_empty()
                && w.address("web").is_none()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn m3_after_the_stop_no_call_follows_a_write_of_conditions() {
    let mut world = World::new(1).await;
    let mut udp = service();
    udp.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].protocol = Some("UDP".into());
    // The write of the finalizer is stored, and the one of the conditions hangs.
    world.server.fault(2, 1, WriteFault::Hangs);
    world.server.put(&udp);
    world
        .until("the conditions are being written", |w| {
            w.server.attempts().len() == 2
        })
        .await;
    world.stop.cancel();
    world.tasks.join_next().await;
    assert_eq!(world.server.attempts()[1].of, "web/status");
    assert_eq!(world.calls(), [""; 0]);
}

/// The stop and another class come during Ensure, so after its writes the class is still to be
/// recorded.
#[tokio::test(start_paused = true)]
async fn m3_after_the_stop_the_result_of_a_call_is_written_and_nothing_else() {
    const OTHER: &str = "example.com/other";
    let mut world = World::that_says(1, |info| {
        let capabilities = info.capabilities.as_mut().unwrap();
        let offered = capabilities.load_balancers.as_mut().unwrap();
        offered.classes.push(OTHER.to_owned());
    })
    .await;
    world.server.put(&service());
    world
        .until("a call", |w| w.cloud.called("Ensure") == 1)
        .await;
    world.server.edit("web", |service| {
        service.spec.as_mut().unwrap().load_balancer_class = Some(OTHER.to_owned());
    });
    world.stop.cancel();
    world.tasks.join_next().await;
    let web = world.server.get("web").unwrap();
    let stored = Stored::of(&web);
    assert_eq!(stored.handle_of("mock"), Some("h-uid-1"), "the result");
    assert_eq!(stored.class(), Some(""), "the class waits for the next ccm");
    assert_eq!(world.server.writes(), ["web", "web"]);
    assert_eq!(world.calls(), ["Ensure web -"]);
}

/// The first write of the handle that Get found fails, and a step of its own repeats it.
#[tokio::test(start_paused = true)]
async fn m3_s19_after_the_stop_a_handle_whose_write_failed_is_still_stored() {
    let mut world = World::new(1).await;
    let mut known = service();
    known.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    let without = handle::render("mock", Some("uid-1"), Some(""), None);
    known.metadata.annotations = Some([(handle::ANNOTATION.to_owned(), without)].into());
    world.stop.cancel();
    world.tasks.join_next().await;
    world
        .cloud
        .state()
        .balancers
        .insert("uid-1".to_owned(), Balancer::default());
    world.server.fault(1, 1, WriteFault::Refused(422));
    world.server.put(&known);
    world.start();
    world.until("a call", |w| w.cloud.called("Get") == 1).await;
    world.stop.cancel();
    world.tasks.join_next().await;
    assert_eq!(world.server.attempts().len(), 2);
    let web = world.server.get("web").unwrap();
    assert_eq!(Stored::of(&web).handle_of("mock"), Some("h-uid-1"));
    assert_eq!(world.calls(), ["Get web -"]);
}
