//! When passes run, and their results.

use super::*;

#[tokio::test(start_paused = true)]
async fn r6_a_thousand_nodes_are_ten_calls_and_routed_in_a_second() {
    let mut world = World::new(1000, |_| {}).await;
    world
        .cloud
        .set_latency("*", Duration::from_millis(50))
        .unwrap();
    world.provider.lead();
    world
        .provider
        .until("a session", |status| status.session.is_some())
        .await;
    world.run();
    let took = world.until("routes", |world| world.routed(1000)).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    world
        .until("conditions", |world| world.all_created(1000))
        .await;
    assert_eq!(
        (world.lists(), world.creates(), world.deletes()),
        (1, 10, 0)
    );
    assert_eq!(world.cloud.cloud_writes(), 1000);
    assert_eq!(
        world.api.writes().len(),
        1000,
        "one patch for each condition"
    );
}

#[tokio::test(start_paused = true)]
async fn r6_an_idle_hour_makes_at_most_one_list_and_a_day_one_for_each_or_nearly() {
    let mut world = World::of_days(20).await;
    world.lead().await;
    world.until("routes", |world| world.all_created(20)).await;
    let (lists, writes) = (world.lists(), world.api.writes().len());
    // Frequent changes of Nodes that do not matter for routes.
    for beat in 0..360 {
        sleep(Duration::from_secs(10)).await;
        world.api.edit(&name(beat % 20), |node| {
            node.metadata
                .annotations
                .get_or_insert_default()
                .insert("beat".to_owned(), beat.to_string());
        });
    }
    assert_eq!(world.lists(), lists, "an idle hour");
    sleep(Duration::from_hours(23)).await;
    let day = world.lists() - lists;
    assert!((19..=24).contains(&day), "{day} lists in a day");
    assert_eq!(world.api.writes().len(), writes, "and no write");
}

#[tokio::test(start_paused = true)]
async fn r6_a_storm_of_events_makes_one_look_in_ten_seconds() {
    let world = World::started(50, |_| {}).await;
    world.until("routes", |world| world.all_created(50)).await;
    let before = world.lists();
    for beat in 0..600 {
        sleep(Duration::from_millis(100)).await;
        world.api.edit(&name(beat % 50), |node| {
            node.status.get_or_insert_default().addresses = Some(vec![address(beat, 2)]);
        });
        let _ = world.provider.hints.send(Hint::Routes);
    }
    let lists = world.lists() - before;
    assert!((5..=7).contains(&lists), "{lists} lists in a minute");
    // The metric counts the same lists.
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &world.registry).unwrap();
    let line = format!("route_controller_route_sync_total {}", world.lists());
    assert!(text.contains(&line), "{text}");
}

#[tokio::test(start_paused = true)]
async fn r6_a_node_that_joins_is_routed_within_a_second_when_it_is_complete() {
    let world = World::started(3, |_| {}).await;
    world.until("routes", |world| world.all_created(3)).await;
    sleep(Duration::from_mins(1)).await;
    let before = world.lists();
    world.cloud.add_instance(instance(3)).unwrap();
    let mut new = node(3);
    let spec = new.spec.take();
    new.spec = Some(k8s_openapi::api::core::v1::NodeSpec::default());
    world.api.put(&new);
    // The Node first gets its Pod CIDR, and later its provider ID.
    sleep(Duration::from_secs(3)).await;
    world.api.edit(&name(3), |node| {
        node.spec.get_or_insert_default().pod_cidrs = spec.clone().unwrap().pod_cidrs;
    });
    sleep(Duration::from_secs(3)).await;
    assert_eq!(world.lists(), before, "nothing can be done yet");
    assert_eq!(world.condition(3), "");
    world.api.edit(&name(3), |node| node.spec = spec);
    let took = world.until("routed", |world| world.routed(4)).await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
    world.until("condition", |world| world.all_created(4)).await;
    // When the Node leaves, its route is removed.
    sleep(Duration::from_mins(1)).await;
    world.api.delete(&name(3));
    let took = world.until("removed", |world| world.routed(3)).await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
}

/// A Node without an owner may become this provider's (▲R8), so routes to its Pods stay.
#[tokio::test(start_paused = true)]
async fn r6_a_node_that_leaves_before_it_is_ours_takes_the_route_of_its_namesake_along() {
    let world = World::started(3, |_| {}).await;
    world.until("routes", |world| world.all_created(3)).await;
    sleep(Duration::from_mins(1)).await;
    // The Node registers again, and is deleted before it gets a provider ID.
    world.api.delete(&name(2));
    let mut anew = node(2);
    anew.spec.get_or_insert_default().provider_id = None;
    world.api.put(&anew);
    sleep(Duration::from_mins(1)).await;
    assert!(world.routed(3), "{:?}", world.routes());
    world.api.delete(&name(2));
    let took = world.until("removed", |world| world.routed(2)).await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn r6_a_hint_is_followed_and_a_route_that_somebody_removed_is_made_again() {
    let world = World::started(3, |_| {}).await;
    world.until("routes", |world| world.all_created(3)).await;
    sleep(Duration::from_mins(1)).await;
    // The mock sends a hint about the removal (WatchChanges).
    let gone = world.cloud.routes().remove(0);
    world.cloud.remove_route(&gone.name).unwrap();
    let took = world.until("again", |world| world.routed(3)).await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
    assert!(world.all_created(3));
}

#[tokio::test(start_paused = true)]
async fn b_r3_addresses_that_change_make_the_route_anew() {
    let world = World::started(3, |fixture| {
        fixture.capabilities.routes.tracks_node_addresses = true;
    })
    .await;
    world.until("routes", |world| world.all_created(3)).await;
    sleep(Duration::from_mins(1)).await;
    let before = world.cloud.writes().len();
    world.api.edit(&name(1), |node| {
        node.status.get_or_insert_default().addresses = Some(vec![address(1, 7)]);
    });
    world
        .until("made again", |world| {
            world.cloud.writes().len() >= before + 2
        })
        .await;
    let writes = &world.cloud.writes()[before..];
    assert!(
        writes[0].contains("remove route") && writes[1].contains("put route"),
        "{writes:?}"
    );
    sleep(Duration::from_mins(5)).await;
    assert_eq!(
        world.cloud.writes().len(),
        before + 2,
        "and then it is as it should be"
    );
    assert!(world.routed(3) && world.all_created(3));
}

#[tokio::test(start_paused = true)]
async fn b_r2_a_foreign_route_is_never_deleted() {
    let world = World::new(2, |_| {}).await;
    world.plant(0..2);
    for (name, cidr, owner) in [
        ("foreign", "10.8.77.0/24", Some("them")),
        ("outside", "192.0.2.0/24", Some("owner")),
        ("stale", "10.8.78.0/24", Some("owner")),
        ("unmarked", "10.8.79.0/24", None),
    ] {
        let mut route = Route::new(name, cidr);
        route.node_name = Some("gone".to_owned());
        route.owner_id = owner.map(str::to_owned);
        world.cloud.plant_route(route).unwrap();
    }
    let mut world = world;
    world.lead().await;
    world
        .until("removed", |world| world.cloud.routes().len() == 4)
        .await;
    sleep(Duration::from_mins(5)).await;
    let left: Vec<String> = world
        .cloud
        .routes()
        .into_iter()
        .map(|route| route.name)
        .collect();
    assert_eq!(left, ["foreign", "outside", "r0", "r1"]);
}

#[tokio::test(start_paused = true)]
async fn r5_a_create_that_fails_is_told_and_tried_again() {
    let world = World::started(0, |_| {}).await;
    world.fault(
        Fault::failure("CreateRoutes", FailureCode::Precondition)
            .subject(cidr(1))
            .times(2),
    );
    for i in 0..3 {
        world.join(i);
    }
    world
        .until("the others", |world| {
            world.condition(0) == "False RouteCreated"
        })
        .await;
    world
        .until("it failed", |world| {
            world.condition(1) == "True NoRouteCreated"
        })
        .await;
    let events = world.events();
    assert_eq!(events.len(), 1, "{events:?}");
    for part in [
        "Warning FailedToCreateRoute",
        "Could not create route n0001-",
        " 10.8.1.0/24 for node n0001 after ",
        "scripted by the mock (PreconditionMissing) (PRECONDITION from CreateRoutes of provider mock, attempt 1, next try at 1970-01-12T13:46:4",
    ] {
        assert!(events[0].contains(part), "{events:?}");
    }
    let took = world
        .until("it is made", |world| world.all_created(3))
        .await;
    assert!(took < Duration::from_secs(25), "{took:?}");
    assert!(world.routed(3));
}

#[tokio::test(start_paused = true)]
async fn b_r5_r4_a_failure_for_the_former_node_says_nothing_of_the_next_one() {
    let world = World::started(0, |_| {}).await;
    let slow = Duration::from_secs(30);
    world.cloud.set_latency("CreateRoutes", slow).unwrap();
    world.fault(Fault::failure("CreateRoutes", FailureCode::Precondition).times(1));
    world.join(1);
    let called = |world: &World| world.cloud.in_flight("CreateRoutes") == 1;
    world.until("called", called).await;
    world.api.delete(&name(1));
    let mut next = node(2);
    next.spec.get_or_insert_default().pod_cidrs = Some(vec![cidr(1)]);
    world.cloud.add_instance(instance(2)).unwrap();
    world.api.put(&next);
    let created = |world: &World| world.condition(2) == "False RouteCreated";
    world.until("created", created).await;
    assert_eq!(world.creates(), 2);
    assert_eq!(world.api.writes(), ["PATCH n0002/status"]);
    assert!(world.events().is_empty(), "{:?}", world.events());
}

#[tokio::test(start_paused = true)]
async fn r8_a_node_is_routed_as_soon_as_it_is_known_to_be_this_providers() {
    let world = World::started(0, |_| {}).await;
    for i in 0..3 {
        world.cloud.add_instance(instance(i)).unwrap();
        let mut joining = node(i);
        joining.spec.get_or_insert_default().provider_id = None;
        if i == 1 {
            let whose = ("grpc-ccm.io/provider".to_owned(), "mock".to_owned());
            joining.metadata.labels = Some([whose].into());
        }
        world.api.put(&joining);
    }
    let created = |i: usize| move |world: &World| world.condition(i) == "False RouteCreated";
    world.until("by its label", created(1)).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(world.routes(), [format!("{} {}", cidr(1), name(1))]);
    assert_eq!(world.condition(0), "", "nothing is known of it yet");
    let becomes = |i: usize, id: &str| {
        world.api.edit(&name(i), |node| {
            node.spec.get_or_insert_default().provider_id = Some(id.to_owned());
        });
    };
    becomes(2, "other://n0002");
    becomes(0, "mock://n0000");
    let took = world.until("by its ID", created(0)).await;
    assert!(took < Duration::from_secs(11), "{took:?}");
    sleep(Duration::from_mins(1)).await;
    assert!(world.routed(2), "{:?}", world.routes());
    assert_eq!(world.condition(2), "", "another cloud's");
}

#[tokio::test(start_paused = true)]
async fn m10_a_route_that_hangs_keeps_no_other_waiting() {
    let world = World::started(0, |_| {}).await;
    world.fault(Fault::new("CreateRoutes", FaultKind::Hang).subject(cidr(7)));
    for i in 0..100 {
        world.join(i);
    }
    // The batch with the hanging route waits for the deadline and is cut into ten parts. The part
    // with that route is cut into ten again.
    let others = |world: &World| {
        (0..100)
            .filter(|i| *i != 7)
            .all(|i| world.condition(i) == "False RouteCreated")
    };
    let took = world.until("all others", others).await;
    assert!(took < Duration::from_mins(5), "{took:?}");
    // Nodes that join meanwhile do not wait for the deadline.
    for i in 100..110 {
        world.join(i);
        let took = world
            .until("routed", |world| world.condition(i) == "False RouteCreated")
            .await;
        assert!(took < Duration::from_secs(12), "{took:?}");
    }
    // The ccm now sends the hanging route alone, and only that route fails.
    world
        .until("told", |world| world.condition(7) == "True NoRouteCreated")
        .await;
    let events = world.events();
    assert!(
        events.iter().all(|event| event.contains("n0007")),
        "{events:?}"
    );
    world.cloud.clear_faults();
    world.until("made", |world| world.all_created(110)).await;
}

#[tokio::test(start_paused = true)]
async fn b_r2_never_two_calls_for_one_route_and_never_more_than_may_be() {
    let world = World::started(0, |fixture| {
        fixture.capabilities.routes.max_in_flight = 3;
        fixture.capabilities.routes.max_batch = 10;
    })
    .await;
    world
        .cloud
        .set_latency("CreateRoutes", Duration::from_secs(15))
        .unwrap();
    for i in 0..100 {
        world.join(i);
    }
    world.until("routes", |world| world.all_created(100)).await;
    assert_eq!(world.creates(), 10, "a pass skips destinations in flight");
    assert!(
        world.cloud.most_in_flight("CreateRoutes") <= 2,
        "one place is left to the list"
    );
    let mut entries = world.cloud.calls(Some("CreateRoutes"));
    entries.retain(|entry| entry.count > 10);
    assert!(entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn b_r4_the_conditions_of_others_stay_and_ours_is_written_once() {
    let world = World::of_days(1).await;
    world.api.edit(&name(0), |node| {
        let ready = k8s_openapi::api::core::v1::NodeCondition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            ..Default::default()
        };
        node.status.get_or_insert_default().conditions = Some(vec![ready]);
    });
    let mut world = world;
    // The kubelet writes before our patch.
    world.api.before_next_write(|api| {
        api.edit(&name(0), |node| {
            node.metadata
                .annotations
                .get_or_insert_default()
                .insert("beat".to_owned(), "1".to_owned());
        });
    });
    world.lead().await;
    world.until("condition", |world| world.all_created(1)).await;
    let node = world.api.node(&name(0)).unwrap();
    assert_eq!(node.status.unwrap().conditions.unwrap().len(), 2);
    sleep(Duration::from_hours(30)).await;
    assert_eq!(world.api.writes(), ["PATCH n0000/status"]);
}

/// A network plugin writes this condition, within 50 ms whenever its reason is not the plugin's.
/// Returns how many conditions the ccm writes in a minute of that.
async fn contested(world: &World, status: &str) -> usize {
    let before = world.api.writes().len();
    for _ in 0..1200 {
        if !world.condition(0).ends_with("CiliumIsUp") {
            world.api.edit(&name(0), |node| {
                let conditions = node.status.get_or_insert_default().conditions.as_mut();
                for condition in conditions.into_iter().flatten() {
                    status.clone_into(&mut condition.status);
                    condition.reason = Some("CiliumIsUp".to_owned());
                }
            });
        }
        sleep(Duration::from_millis(50)).await;
    }
    world.api.writes().len() - before
}

#[tokio::test(start_paused = true)]
async fn b_r4_another_reason_for_the_right_status_stays_until_the_next_pass() {
    let world = World::started(1, |_| {}).await;
    world.until("condition", |world| world.all_created(1)).await;
    assert_eq!(contested(&world, "False").await, 0);
    assert_eq!(world.condition(0), "False CiliumIsUp");
    let _ = world.provider.hints.send(Hint::Routes);
    let took = world.until("a pass", |world| world.all_created(1)).await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn b_r4_a_wrong_status_of_another_writer_is_corrected_at_most_every_ten_seconds() {
    let world = World::started(1, |_| {}).await;
    world.until("condition", |world| world.all_created(1)).await;
    let writes = contested(&world, "True").await;
    assert!((5..=6).contains(&writes), "{writes}");
    world.until("corrected", |world| world.all_created(1)).await;
    let writes = world.api.writes().len();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(world.api.writes().len(), writes);
}

#[tokio::test(start_paused = true)]
async fn r6_a_list_ends_the_backoff_of_the_lists_that_failed_before() {
    let world = World::started(1, |_| {}).await;
    world.until("routes", |world| world.all_created(1)).await;
    let fails = async |times: u32| {
        sleep(Duration::from_mins(1)).await;
        let lists = world.lists();
        world.fault(Fault::failure("ListRoutes", FailureCode::Unavailable).times(times));
        let _ = world.provider.hints.send(Hint::Routes);
        let failed = lists + u64::from(times);
        world
            .until("it fails", |world| world.lists() == failed)
            .await;
        let good = |world: &World| world.lists() > failed;
        world.until("a list", good).await
    };
    let took = fails(6).await;
    assert!(took > Duration::from_mins(4), "{took:?}");
    let took = fails(1).await;
    assert!(took < Duration::from_secs(13), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn b_r2_a_batch_keeps_to_the_bytes_that_the_provider_takes() {
    let world = World::started(2500, |fixture| {
        fixture.capabilities.routes.max_batch = 5000;
        fixture.provider.max_request_bytes = 64 * 1024;
    })
    .await;
    world.until("routes", |world| world.all_created(2500)).await;
    assert!((2..=6).contains(&world.creates()), "{}", world.creates());
    assert!(world.routed(2500));
}

#[tokio::test(start_paused = true)]
async fn r5_busy_is_tried_again_in_a_second_without_another_list() {
    let world = World::started(0, |_| {}).await;
    world.fault(
        Fault::failure("CreateRoutes", FailureCode::Busy)
            .subject(cidr(1))
            .times(3),
    );
    for i in 0..3 {
        world.join(i);
    }
    let took = world.until("made", |world| world.all_created(3)).await;
    assert!(took < Duration::from_secs(7), "{took:?}");
    assert_eq!(world.api.writes().len(), 3, "no condition flapped");
    assert_eq!(world.creates(), 4);
    // The route stays BUSY: the condition shows that after the first attempt and five quick ones.
    world.fault(Fault::failure("CreateRoutes", FailureCode::Busy).subject(cidr(3)));
    world.join(3);
    world
        .until("it failed", |world| {
            world.condition(3) == "True NoRouteCreated"
        })
        .await;
    assert_eq!(world.creates(), 4 + 6);
    assert_eq!(world.deletes(), 0);
}

#[tokio::test(start_paused = true)]
async fn r5_a_create_that_is_under_way_when_its_node_goes_is_not_tried_again() {
    let world = World::started(0, |_| {}).await;
    world.fault(Fault::delay("CreateRoutes", Duration::from_secs(30)).subject(cidr(1)));
    for i in 0..2 {
        world.join(i);
    }
    // The instance disappears before the call, the Node during the call.
    world.cloud.remove_instance(&name(1)).unwrap();
    world.until("the list", |world| world.lists() == 1).await;
    sleep(Duration::from_secs(5)).await;
    world.api.delete(&name(1));
    world
        .until("a list after the call", |world| world.lists() == 3)
        .await;
    let creates = world.creates();
    sleep(Duration::from_mins(20)).await;
    assert_eq!(world.creates(), creates);
    assert!(world.routed(1));
}
