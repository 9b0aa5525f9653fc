//! Single rules.

use super::*;
use crate::controllers::route::facts::matters;

#[test]
fn b_r2_a_create_carries_what_the_cloud_needs() {
    let mut scene = Scene::new(&["a 10.8.1.0/24 10.0.0.1"], &[]);
    let create = scene.look().tasks.remove(0).create.unwrap();
    let expected = api::Route {
        route_key: "10.8.1.0/24".to_owned(),
        name_hint: "uid-a".to_owned(),
        destination_cidr: "10.8.1.0/24".to_owned(),
        node_name: Some("a".to_owned()),
        provider_id: Some("mock://a".to_owned()),
        node_addresses: addresses("10.0.0.1"),
        ..api::Route::default()
    };
    assert_eq!(create, expected);
}

#[test]
fn b_r2_a_live_nodes_route_goes_as_a_blackhole_only_when_two_lists_say_so() {
    let (a, hole) = ("a 10.8.1.0/24", "r1 10.8.1.0/24 !>a");
    let mut scene = Scene::new(&[a], &[hole]);
    let first = scene.look();
    assert_eq!(show(&first), "", "nothing is deleted on one answer");
    assert!(first.again, "but asked about again");
    assert_eq!(scene.conditions(), "");
    assert_eq!(scene.shown(), "-r1 +a:10.8.1.0/24");
    // A list without the blackhole comes between two lists with it.
    let mut scene = Scene::new(&[a], &[hole]);
    scene.look();
    scene.routes = vec![route("r1 10.8.1.0/24 >a")];
    assert_eq!(scene.shown(), "");
    assert_eq!(scene.conditions(), "a=created");
    scene.routes = vec![route(hole)];
    assert_eq!(scene.shown(), "");
    assert_eq!(scene.conditions(), "a=created", "and no condition flaps");
}

#[test]
fn r10_an_unmarked_route_to_an_address_of_no_node_stays_until_it_is_a_blackhole() {
    let (a, right) = ("a 10.8.1.0/24 10.0.0.1", "r1 10.8.1.0/24 >a");
    let mut scene = Scene::new(&[a], &[right, "r9 10.8.9.0/24 @10.0.0.9 unmarked"]);
    for _ in 0..3 {
        assert_eq!(scene.shown(), "");
    }
    scene.routes = vec![route(right), route("r9 10.8.9.0/24 ! unmarked")];
    assert_eq!(scene.shown(), "-r9");
    let mut scene = Scene::new(&[a], &[right, "r9 10.8.9.0/24 @10.0.0.9"]);
    assert_eq!(scene.shown(), "-r9", "marked as ours");
}

#[test]
fn r2_a_next_hop_that_is_none_of_the_nodes_addresses_is_wrong_when_two_lists_say_so() {
    let (a, stray) = (
        "a 10.8.1.0/24 10.0.0.1,10.0.0.2",
        "r1 10.8.1.0/24 @10.0.0.9 unmarked",
    );
    let mut scene = Scene::new(&[a], &[stray]);
    let first = scene.look();
    assert_eq!(show(&first), "", "nothing is deleted on one answer");
    assert!(first.again, "but asked about again");
    assert_eq!(scene.conditions(), "", "traffic may be lost");
    let second = scene.look();
    assert_eq!(show(&second), "-r1 +a:10.8.1.0/24");
    assert_eq!(scene.done(&second), "a=created");
    assert_eq!(scene.shown(), "");
    // If the cloud gives the created route the same next hop, it reaches the Node that way.
    scene.routes = vec![route(stray)];
    for _ in 0..3 {
        assert_eq!(scene.shown(), "");
        assert_eq!(scene.conditions(), "a=created");
    }
    // A route to another address is still wrong, and so is this route for another Node.
    scene.routes = vec![route("r1 10.8.1.0/24 @10.0.0.8")];
    assert_eq!(scene.shown() + &scene.shown(), "-r1 +a:10.8.1.0/24");
    scene.nodes = vec![node("b 10.8.1.0/24 10.0.0.5")];
    scene.routes = vec![route(stray)];
    assert_eq!(scene.shown() + &scene.shown(), "-r1 +b:10.8.1.0/24");
    // Other cases: the Node gets the address in between, a right route is beside the stray one, or
    // two other Nodes have the address.
    let mut scene = Scene::new(&[a], &[stray]);
    scene.look();
    scene.node("a").addresses = addresses("10.0.0.9");
    assert_eq!(scene.shown(), "");
    assert_eq!(scene.conditions(), "a=created");
    let mut scene = Scene::new(&[a], &[stray, "r2 10.8.1.0/24 >a"]);
    assert_eq!(scene.shown() + &scene.shown(), "-r1");
    let twins = ["b - 10.0.0.9", "c - 10.0.0.9"];
    let mut scene = Scene::new(&[a, twins[0], twins[1]], &[stray]);
    assert_eq!(scene.shown() + &scene.shown(), "-r1 +a:10.8.1.0/24");
}

#[test]
fn b_r2_r8_nodes_that_are_not_ours_to_route_are_left_alone() {
    let routes = ["r1 10.8.1.0/24 >a", "r2 10.8.2.0/24 >a", "r3 10.8.2.0/24 !"];
    for owner in [Owner::Others, Owner::Unclaimed] {
        let mut scene = Scene::new(&["a 10.8.1.0/24", "b 10.8.2.0/24"], &routes);
        scene.node("b").owner = owner;
        assert_eq!(scene.shown(), "", "{owner:?}: not made, not removed");
        assert_eq!(scene.conditions(), "a=created", "{owner:?}: no condition");
        scene.routes.truncate(1);
        assert_eq!(scene.shown(), "", "{owner:?}");
    }
    // A Node that is being deleted keeps its route until it is gone, and gets no new one.
    let mut scene = Scene::new(&["a 10.8.1.0/24", "b 10.8.2.0/24"], &["r1 10.8.1.0/24 >a"]);
    scene.node("a").leaving = true;
    scene.node("b").leaving = true;
    assert_eq!(scene.shown(), "");
    assert_eq!(scene.conditions(), "");
    // Another Node gets the CIDR, so the route is replaced by one to that Node.
    scene.nodes.push(node("c 10.8.1.0/24"));
    assert_eq!(scene.shown(), "-r1 +c:10.8.1.0/24");
}

#[test]
fn b_r2_a_node_made_anew_under_its_name_is_another_instance() {
    let mut scene = Scene::new(&["a 10.8.1.0/24"], &["r1 10.8.1.0/24 >a"]);
    scene.node("a").provider_id = "mock://a-2".to_owned();
    scene.node("a").uid = "uid-2".to_owned();
    let pass = scene.look();
    assert_eq!(show(&pass), "-r1 +a:10.8.1.0/24");
    assert_eq!(pass.tasks[0].create.as_ref().unwrap().name_hint, "uid-2");
    // The Node's label names this provider, and the Node has no provider ID yet, so only its name
    // counts.
    let mut scene = Scene::new(&["a 10.8.1.0/24"], &["r1 10.8.1.0/24 >a"]);
    scene.node("a").provider_id.clear();
    assert_eq!(scene.shown(), "");
}

#[test]
fn b_r2_of_two_nodes_with_one_cidr_who_has_the_route_keeps_it() {
    let mut scene = Scene::new(&["a 10.8.1.0/24", "b 10.8.1.0/24"], &["r1 10.8.1.0/24 >b"]);
    let pass = scene.look();
    assert_eq!(show(&pass), "");
    assert_eq!(scene.conditions(), "a=failed b=created");
    assert_eq!(pass.clashes.len(), 1);
    let (loser, cidr, winner) = &pass.clashes[0];
    assert_eq!(
        (
            loser.name.as_str(),
            cidr.to_string().as_str(),
            winner.as_str()
        ),
        ("a", "10.8.1.0/24", "b")
    );
    // Without a route in the list, the oldest Node gets the route.
    scene.routes.clear();
    scene.node("a").created = Some(jiff::Timestamp::from_second(20).unwrap());
    scene.node("b").created = Some(jiff::Timestamp::from_second(10).unwrap());
    assert_eq!(scene.shown(), "+b:10.8.1.0/24");
}

#[test]
fn r7_nothing_is_removed_unless_it_may_be() {
    let routes = [
        "r1 10.8.1.0/24 >b",
        "r4 10.8.4.0/24 >gone",
        "r5 10.8.5.0/24 !",
    ];
    let nodes = ["a 10.8.1.0/24", "b 10.8.2.0/24"];
    let mut scene = Scene::new(&nodes, &routes);
    scene.may_delete = false;
    let pass = scene.look();
    assert_eq!(
        show(&pass),
        "+b:10.8.2.0/24",
        "a route in nobody's way is made"
    );
    assert_eq!(pass.held, 3);
    assert_eq!(
        pass.summary(Some("r9 is odd")),
        "the last reconciliation found 3 routes, 1 to create, 0 to delete, 3 kept although they should go: the provider is not READY, or no Node is known; r9 is odd"
    );
    scene.may_delete = true;
    assert_eq!(
        scene.look().summary(None),
        "the last reconciliation found 3 routes, 2 to create, 3 to delete"
    );
    assert_eq!(scene.shown(), "-r1 +a:10.8.1.0/24 +b:10.8.2.0/24 -r4 -r5");
}

#[test]
fn r7_many_deletions_need_a_second_look_and_only_what_both_say_goes() {
    let all = |count: usize| -> Vec<String> {
        (0..count)
            .map(|i| format!("r{i} 10.8.{i}.0/24 >n{i}"))
            .collect()
    };
    let nodes = |numbers: std::ops::Range<usize>| -> Vec<NodeFacts> {
        numbers
            .map(|i| node(&format!("n{i} 10.8.{i}.0/24")))
            .collect()
    };
    // Routes, Nodes that are gone, and whether that is many.
    for (routes, gone, many) in [
        (10, 5, false),
        (10, 6, true),
        (100, 10, false),
        (100, 11, true),
        (50, 6, true),
    ] {
        let listed = all(routes);
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        let mut scene = Scene::new(&[], &listed);
        scene.nodes = nodes(gone..routes);
        let pass = scene.look();
        assert_eq!(pass.needs_second_look, many, "{routes} {gone}");
        assert_eq!(pass.inside, routes);
        // The API server has all Nodes but the first and the last.
        scene.nodes = nodes(1..routes - 1);
        let second = scene.look();
        let tasks = confirmed(&pass.tasks, second.tasks);
        let confirmed = Pass {
            tasks,
            ..Pass::default()
        };
        assert_eq!(show(&confirmed), "-r0");
    }
    // Tasks of the second pass without deletions stay: that pass has dropped the plan of the first.
    let mut scene = Scene::new(&["a 10.8.1.0/24"], &[]);
    let first = scene.look();
    let second = scene.look();
    assert_eq!(confirmed(&first.tasks, second.tasks).len(), 1);
}

#[test]
fn b_r4_r4_what_is_not_known_changes_no_condition() {
    let node = ["a 10.8.1.0/24"];
    for code in [
        CallErrorCode::Deadline,
        CallErrorCode::Unknown,
        CallErrorCode::Fault,
        CallErrorCode::Disconnected,
        CallErrorCode::NotInitialized,
    ] {
        let mut scene = Scene::new(&node, &[]);
        let pass = scene.look();
        scene.fails(&pass, code);
        assert_eq!(scene.conditions(), "", "{code:?}: nobody knows");
        // The list shows that the route was created.
        scene.routes = vec![route("r1 10.8.1.0/24 >a")];
        assert_eq!(scene.shown(), "");
        assert_eq!(scene.conditions(), "a=created", "{code:?}");
        // The list shows that the route was not created.
        let mut scene = Scene::new(&node, &[]);
        let pass = scene.look();
        scene.fails(&pass, code);
        scene.look();
        let away = [CallErrorCode::Disconnected, CallErrorCode::NotInitialized];
        if away.contains(&code) {
            assert_eq!(scene.conditions(), "", "{code:?}: it was away, once");
            let Due::Work(task) = scene.due("10.8.1.0/24") else {
                panic!("{code:?}: it is planned");
            };
            let pass = Pass {
                tasks: vec![*task],
                ..Pass::default()
            };
            scene.fails(&pass, code);
            scene.look();
        }
        assert_eq!(scene.conditions(), "a=failed", "{code:?}");
    }
    // The provider answered with a failure.
    let mut scene = Scene::new(&node, &[]);
    let pass = scene.look();
    scene.fails(&pass, CallErrorCode::Throttled);
    assert_eq!(scene.conditions(), "a=failed");
    // An old failure is forgotten when the route exists. If it is missing again, it does not count
    // as failing.
    scene.routes = vec![route("r1 10.8.1.0/24 >a")];
    scene.look();
    scene.routes.clear();
    scene.look();
    assert_eq!(scene.conditions(), "");
}

#[test]
fn r5_a_create_that_failed_is_tried_again_later_and_others_at_once() {
    let mut scene = Scene::new(&["a 10.8.1.0/24", "b 10.8.2.0/24"], &[]);
    let mut pass = scene.look();
    pass.tasks.truncate(1);
    scene.fails(&pass, CallErrorCode::Conflict);
    // After CONFLICT the destination waits for its time. The other Node's destination does not.
    assert_eq!(scene.shown(), "+b:10.8.2.0/24");
    let again = scene.due("10.8.1.0/24");
    assert_eq!(
        again,
        Due::Work(Box::new(pass.tasks.remove(0))),
        "without a list"
    );
    // After INVALID the destination waits for a change of the Node, or half an hour.
    let mut scene = Scene::new(&["a 10.8.1.0/24"], &[]);
    let pass = scene.look();
    scene.fails(&pass, CallErrorCode::Invalid);
    assert_eq!(scene.shown(), "");
    scene.node("a").provider_id = "mock://zone/a".to_owned();
    assert_eq!(scene.shown(), "+a:10.8.1.0/24");
    // Without an answer, only the next list shows the result.
    let mut scene = Scene::new(&["a 10.8.1.0/24"], &[]);
    let pass = scene.look();
    scene.fails(&pass, CallErrorCode::Disconnected);
    assert_eq!(scene.due("10.8.1.0/24"), Due::List);
    assert_eq!(scene.shown(), "+a:10.8.1.0/24");
    scene.ledger.forget_plans();
    assert_eq!(scene.due("10.8.1.0/24"), Due::List, "of another session");
}

#[test]
fn r5_a_route_whose_removal_failed_is_removed_on_a_list_of_that_time() {
    let failed = || {
        let mut scene = Scene::new(&["a 10.8.1.0/24"], &["r1 10.8.2.0/24 >gone"]);
        scene.routes.push(route("r2 10.8.1.0/24 >a"));
        let pass = scene.look();
        assert_eq!(show(&pass), "-r1");
        let task = pass.tasks[0].clone();
        assert_eq!(scene.due("10.8.2.0/24"), Due::Work(Box::new(task.clone())));
        let trouble = CallError::new(CallErrorCode::Precondition, "no");
        let ended = Ended::Failed(&trouble);
        scene
            .ledger
            .deleted(task.destination, false, ended, scene.now);
        (scene, task)
    };
    let (mut scene, task) = failed();
    assert_eq!(scene.due("10.8.2.0/24"), Due::Work(Box::new(task)));
    let (mut scene, _) = failed();
    scene.now += Duration::from_mins(5);
    assert_eq!(scene.due("10.8.2.0/24"), Due::List, "it is old");
    assert_eq!(scene.shown(), "-r1");
    let (mut scene, _) = failed();
    assert_eq!(scene.shown(), "", "a list before its time");
    assert_eq!(scene.due("10.8.2.0/24"), Due::List);
    assert_eq!(scene.shown(), "-r1");
    // The route is gone from the list: the key of its destination waits no longer.
    let (mut scene, task) = failed();
    scene.routes.remove(0);
    assert_eq!(scene.look().settled, [task.destination]);
    assert_eq!(scene.due("10.8.2.0/24"), Due::Nothing);
}

#[test]
fn r5_a_wrong_route_whose_removal_failed_waits_although_the_right_one_exists() {
    let mut scene = Scene::new(
        &["a 10.8.1.0/24"],
        &["r1 10.8.1.0/24 >a", "r2 10.8.1.0/24 >gone"],
    );
    let pass = scene.look();
    assert_eq!(show(&pass), "-r2");
    assert_eq!(scene.conditions(), "a=created");
    let trouble = CallError::new(CallErrorCode::Invalid, "no");
    scene
        .ledger
        .begin(&pass.tasks[0].destination, true, scene.now);
    let ended = Ended::Failed(&trouble);
    scene
        .ledger
        .deleted(pass.tasks[0].destination, false, ended, scene.now);
    // The next list shows both routes again.
    let pass = scene.look();
    assert_eq!((show(&pass), pass.settled), (String::new(), Vec::new()));
    assert_eq!(scene.conditions(), "a=created");
}

#[test]
fn r5_a_removal_that_failed_waits_although_the_create_before_it_was_refused() {
    let mut scene = Scene::new(&["a 10.8.1.0/24", "b 10.8.2.0/24"], &["r2 10.8.2.0/24 >b"]);
    let pass = scene.look();
    assert_eq!(show(&pass), "+a:10.8.1.0/24");
    scene.fails(&pass, CallErrorCode::Invalid);
    // Its Node goes, and the list has a route of a Node that is gone.
    scene.nodes.remove(0);
    scene.routes.push(route("r1 10.8.1.0/24 >a"));
    let pass = scene.look();
    assert_eq!(show(&pass), "-r1", "not what was refused");
    let destination = pass.tasks[0].destination;
    scene.ledger.begin(&destination, true, scene.now);
    let trouble = CallError::new(CallErrorCode::Precondition, "no");
    let ended = Ended::Failed(&trouble);
    scene.ledger.deleted(destination, false, ended, scene.now);
    assert_eq!(scene.shown(), "", "it waits for its time");
    assert_eq!(scene.due("10.8.1.0/24"), Due::List);
    assert_eq!(scene.shown(), "-r1");
}

#[test]
fn r5_b_r4_a_node_does_not_take_over_the_failures_of_the_former_one() {
    for (routes, does) in [
        (vec![], "+b:10.8.1.0/24"),
        (vec!["r1 10.8.1.0/24 >gone"], "-r1 +b:10.8.1.0/24"),
    ] {
        let mut scene = Scene::new(&["a 10.8.1.0/24"], &routes);
        let pass = scene.look();
        let destination = pass.tasks[0].destination;
        scene.fails(&pass, CallErrorCode::Conflict);
        assert_eq!(scene.conditions(), "a=failed");
        scene.nodes = vec![node("b 10.8.1.0/24")];
        let pass = scene.look();
        assert_eq!(show(&pass), does, "at once");
        assert_eq!(pass.settled, [destination], "without the former backoff");
        assert_eq!(scene.conditions(), "", "nothing was tried for this Node");
        assert!(!scene.ledger.is_failing(&destination));
        assert_eq!(scene.done(&pass), "b=created");
    }
}

#[test]
fn r4_an_answer_about_the_former_node_says_nothing_about_the_next_one() {
    let trouble = CallError::new(CallErrorCode::Invalid, "no");
    for ended in [Ended::Done, Ended::Failed(&trouble), Ended::Busy] {
        let mut scene = Scene::new(&["a 10.8.1.0/24"], &[]);
        let task = scene.look().tasks.remove(0);
        let destination = task.destination;
        scene.ledger.begin(&destination, true, scene.now);
        scene.nodes = vec![node("b 10.8.1.0/24")];
        assert_eq!(scene.shown(), "", "a call is in flight");
        let sent = task.create.unwrap();
        scene.ledger.created(destination, &sent, ended, scene.now);
        assert_eq!(scene.conditions(), "", "{ended:?}");
        assert!(!scene.ledger.is_failing(&destination), "{ended:?}");
        assert!(scene.ledger.take_look_again(), "{ended:?}");
        assert_eq!(scene.shown(), "+b:10.8.1.0/24", "{ended:?}");
    }
}

#[test]
fn b_r2_a_pass_reports_at_most_ten_faults() {
    let mut scene = Scene::new(&["a 10.8.1.0/24"], &[]);
    let bad = api::Route {
        ownership: 77,
        ..route("r1 10.8.1.0/24 >a")
    };
    scene.routes = vec![bad; 12];
    assert_eq!(scene.look().faults.len(), 10);
}

#[test]
fn b_r2_each_route_of_a_deletion_has_its_own_key() {
    let routes = ["r1 10.8.1.0/24 >gone", "r2 10.8.1.0/24 >gone"];
    let pass = Scene::new(&["a 10.8.2.0/24"], &routes).look();
    let deleted = pass.tasks.iter().flat_map(|task| &task.delete);
    let keys: Vec<&str> = deleted.map(|route| route.route_key.as_str()).collect();
    assert_eq!(keys, ["r1 10.8.1.0/24", "r2 10.8.1.0/24"]);
}

#[test]
fn b_r2_a_list_from_before_a_call_says_nothing_of_what_it_did() {
    let mut scene = Scene::new(
        &["a 10.8.1.0/24", "b 10.8.2.0/24"],
        &["r1 10.8.1.0/24 >gone"],
    );
    let pass = scene.look();
    assert_eq!(show(&pass), "-r1 +a:10.8.1.0/24 +b:10.8.2.0/24");
    let stale = scene.now;
    for task in &pass.tasks {
        scene.ledger.begin(&task.destination, true, scene.now);
    }
    // Work on all tasks is in progress, so the pass has none.
    assert_eq!(scene.shown(), "");
    scene.done(&pass);
    assert!(
        scene.ledger.take_look_again(),
        "and then a new list is needed"
    );
    // A list that was requested before the removal still has the removed route.
    let routes = vec![route("r1 10.8.1.0/24 >gone")];
    let late = super::pass(
        &mut scene.ledger,
        &Look {
            nodes: &scene.nodes,
            routes: &routes,
            cluster_cidrs: &scene.cidrs,
            tracks_addresses: false,
            may_delete: true,
            asked_at: stale,
        },
    );
    assert_eq!(show(&late), "");
    assert!(late.again);
}

#[test]
fn b_r2_a_route_that_breaks_the_contract_is_left_alone() {
    let listed = [
        api::Route {
            ownership: 0,
            ..route("r1 10.8.1.0/24 >b")
        },
        api::Route {
            ownership: 77,
            ..route("r1 10.8.1.0/24 >b")
        },
        api::Route {
            name: "n".repeat(254),
            ..route("r1 10.8.1.0/24 >b")
        },
        api::Route {
            node_name: Some("n".repeat(254)),
            ..route("r1 10.8.1.0/24 >b")
        },
        api::Route {
            provider_id: Some("p".repeat(1025)),
            ..route("r1 10.8.1.0/24 >b")
        },
        api::Route {
            blackhole: false,
            ..route("r1 10.8.1.0/24 !")
        },
    ];
    for bad in listed {
        let mut scene = Scene::new(&["a 10.8.1.0/24", "b 10.8.2.0/24"], &[]);
        scene.routes = vec![bad.clone()];
        let pass = scene.look();
        assert_eq!(show(&pass), "+b:10.8.2.0/24", "{bad:?}");
        assert_eq!(pass.faults.len(), 1, "{bad:?}");
        assert_eq!(scene.conditions(), "", "{bad:?}");
        // The same holds if no Node wants its destination.
        scene.nodes.remove(0);
        assert_eq!(scene.shown(), "+b:10.8.2.0/24", "{bad:?}");
    }
}

#[test]
fn b_r2_whom_nobody_wants_any_more_is_forgotten() {
    let mut scene = Scene::new(&["a 10.8.1.0/24", "b 10.8.2.0/24"], &["r3 10.8.3.0/24 >c"]);
    let pass = scene.look();
    scene.done(&pass);
    scene.nodes.clear();
    scene.nodes.push(node("d 10.8.4.0/24"));
    scene.routes.clear();
    scene.look();
    assert_eq!(scene.ledger.len(), 1);
    assert!(scene.ledger.nodes().eq([NodeName {
        name: "d".to_owned(),
        uid: "uid-d".to_owned()
    }]));
}

#[test]
fn r6_what_changes_a_node_for_routes() {
    let old = node("a 10.8.1.0/24 10.0.0.1");
    let changed = |change: fn(&mut NodeFacts)| {
        let mut new = old.clone();
        change(&mut new);
        matters(Some(&old), Some(&new))
    };
    assert!(
        changed(|node| node.addresses = addresses("10.0.0.2")),
        "its address"
    );
    assert!(
        changed(|node| node.pod_cidrs = super::node("a 10.8.9.0/24").pod_cidrs),
        "its Pod CIDR"
    );
    assert!(changed(|node| node.uid = "uid-2".to_owned()), "made again");
    assert!(
        changed(|node| node.provider_id = "mock://b".to_owned()),
        "another instance"
    );
    assert!(
        changed(|node| node.owner = Owner::Others),
        "not ours any more"
    );
    assert!(!changed(|_| {}), "nothing");
    assert!(
        !changed(|node| node.leaving = true),
        "it leaves: its route stays"
    );
    assert!(matters(None, Some(&old)), "it joins");
    assert!(matters(Some(&old), None), "it is gone");
    let unrouted = node("a - 10.0.0.1");
    assert!(
        !matters(None, Some(&unrouted)),
        "without a Pod CIDR it needs no route yet"
    );
    assert!(matters(Some(&unrouted), Some(&old)), "it got one");
    let unclaimed = NodeFacts {
        owner: Owner::Unclaimed,
        ..old.clone()
    };
    assert!(
        !matters(None, Some(&unclaimed)),
        "without a provider ID neither"
    );
    assert!(matters(Some(&unclaimed), Some(&old)));
    assert!(
        matters(Some(&unclaimed), None),
        "the route of an earlier Node stayed for it"
    );
    let other = NodeFacts {
        owner: Owner::Others,
        ..unclaimed.clone()
    };
    assert!(!matters(Some(&unclaimed), Some(&other)), "it stays for it");
    assert!(matters(Some(&other), None), "and goes after it");
    assert!(!matters(Some(&unrouted), None), "nothing stayed for it");
}

#[test]
fn r6_five_thousand_nodes_that_are_routed_need_nothing() {
    let mut scene = Scene::new(&[], &[]);
    scene.cidrs = vec!["10.0.0.0/8".parse().unwrap()];
    let at = |i: usize| format!("10.{}.{}.0/24", i / 250, i % 250);
    scene.nodes = (0..5000)
        .map(|i| node(&format!("n{i} {}", at(i))))
        .collect();
    scene.routes = (0..5000)
        .map(|i| route(&format!("r{i} {} >n{i} foreign", at(i))))
        .collect();
    assert!(scene.look().tasks.is_empty());
}
