//! Guards that keep a Node after two ABSENT answers.

use super::*;

#[test]
fn l6_the_brake_holds_a_mass_absence_for_a_quarter_of_an_hour() {
    let mut driver = Driver::new();
    let nodes = cluster(80, 20);
    driver.pass(&nodes, Absent);
    let second = driver.pass(&nodes, Absent);
    assert!(second.delete.is_empty() && second.held.len() == 20);
    assert!(driver.brake.holds());
    let mut passes = 2;
    let gone = loop {
        let pass = driver.pass(&nodes, Absent);
        passes += 1;
        if !pass.delete.is_empty() {
            break pass.delete.len();
        }
    };
    assert_eq!((passes, gone), (15 * 60 / 5 + 1, 10));
    // When all absent Nodes recover, the brake is released.
    let nodes = &nodes[10..];
    driver.pass(nodes, Running);
    assert!(!driver.brake.holds());
}

#[test]
fn l6_a_node_that_is_spared_is_still_absent_for_the_brake() {
    let mut driver = Driver::new();
    let nodes = cluster(80, 20);
    driver.pass(&nodes, Absent);
    let held = driver.pass(&nodes, Absent).held;
    for node in &held {
        driver.ledger.spare(&mut driver.brake, node);
    }
    // A pass without an answer about these Nodes.
    driver.pass_with(&nodes, &nodes, |_| None);
    assert!(driver.brake.holds());
    driver.pass(&nodes, Running);
    assert!(!driver.brake.holds());
}

#[test]
fn l6_a_node_whose_lookup_keeps_failing_keeps_the_brake_for_one_hold_at_most() {
    let mut driver = Driver::new();
    let nodes = cluster(80, 21);
    let pass = |driver: &mut Driver, state| {
        driver.pass_with(&nodes, &nodes, |node| {
            Some(match name(node) {
                "down-020" => Err(trouble()),
                _ if is_ready(node) => Ok(Running),
                _ => Ok(state),
            })
        })
    };
    pass(&mut driver, Absent);
    assert_eq!(pass(&mut driver, Absent).held.len(), 20);
    // The others are back, and that Node may be gone too.
    for _ in 0..5 {
        pass(&mut driver, Running);
        assert!(driver.brake.holds());
    }
    driver.now += driver.brake.hold().saturating_sub(7 * PERIOD);
    pass(&mut driver, Running);
    assert!(!driver.brake.holds());
    // If a Node was ABSENT when its lookup began to fail, the brake goes on.
    pass(&mut driver, Absent);
    assert_eq!(pass(&mut driver, Absent).held.len(), 20);
    driver.now += 2 * driver.brake.hold();
    pass(&mut driver, Unspecified);
    assert!(driver.brake.holds());
}

#[test]
fn l6_a_new_session_whose_lookups_fail_keeps_the_brake_for_the_nodes_that_it_held() {
    let mut driver = Driver::new();
    let nodes = cluster(80, 20);
    driver.pass(&nodes, Absent);
    assert_eq!(driver.pass(&nodes, Absent).held.len(), 20);
    driver.ledger.start_over();
    driver.pass(&nodes, Unspecified);
    driver.now += 2 * driver.brake.hold();
    driver.pass(&nodes, Unspecified);
    assert!(driver.brake.holds());
    // Most are back. The rest are few enough to go at once without the brake.
    for _ in 0..2 {
        let pass = driver.pass_with(&nodes, &nodes, |node| {
            let gone = ["down-000", "down-001"].contains(&name(node));
            Some(Ok(if gone { Absent } else { Running }))
        });
        assert!(pass.delete.is_empty() && driver.brake.holds());
    }
    // What the provider recognised again counts like any other Node.
    driver.pass(&nodes[2..], Unspecified);
    driver.now += driver.brake.hold();
    driver.pass(&nodes[2..], Unspecified);
    assert!(!driver.brake.holds());
}

#[test]
fn l6_a_deletion_that_the_watch_does_not_show_counts_once() {
    let mut driver = Driver::new();
    let nodes = cluster(2, 2);
    let state = |node: &Node, absent: &str| match name(node) {
        name if name == absent => Some(Ok(Absent)),
        "down-000" => None,
        _ => Some(Ok(Running)),
    };
    driver.pass_with(&nodes, &nodes, |node| state(node, "down-000"));
    let pass = driver.pass_with(&nodes, &nodes, |node| state(node, "down-000"));
    assert_eq!(names(&pass.delete), ["down-000"]);
    // The API server executed it, and the answer was lost.
    driver.ledger.interrupt(&mut driver.brake, &nodes[0], false);
    driver.pass_with(&nodes, &nodes, |node| state(node, "down-001"));
    let pass = driver.pass_with(&nodes, &nodes, |node| state(node, "down-001"));
    assert_eq!(names(&pass.held), ["down-001"], "one of four");
}

#[test]
fn l6_a_deleted_node_that_lingers_counts_once_and_lets_the_brake_go() {
    let mut driver = Driver::new();
    let mut nodes = cluster(4, 1);
    driver.pass(&nodes, Absent);
    assert_eq!(driver.pass(&nodes, Absent).delete.len(), 1);
    // A finalizer keeps it.
    nodes[0] = edited(&nodes[0], |node| {
        node.metadata.deletion_timestamp = Some(Time(wall()));
    });
    nodes.push(node("down-001", None));
    driver.pass(&nodes, Absent);
    assert_eq!(names(&driver.pass(&nodes, Absent).delete), ["down-001"]);
    // A third one within the window is beyond the limit.
    nodes.push(node("down-002", None));
    driver.pass(&nodes, Absent);
    assert_eq!(driver.pass(&nodes, Absent).held.len(), 1);
    nodes.pop();
    nodes.pop();
    driver.pass(&nodes, Absent);
    assert!(!driver.brake.holds());
}

#[test]
fn l6_the_hold_counts_only_valid_passes_and_one_recovery_starts_it_again() {
    let mut driver = Driver::new();
    let nodes = cluster(2, 2);
    for _ in 0..170 {
        assert!(driver.pass(&nodes, Absent).delete.is_empty());
        let lies = driver.pass_with(&nodes, &nodes, |_| Some(Ok(Absent)));
        assert!(lies.void.is_some());
    }
    driver.may_delete = false;
    for _ in 0..200 {
        assert!(driver.pass(&nodes, Absent).delete.is_empty());
    }
    driver.may_delete = true;
    for _ in 0..179 {
        assert!(driver.pass(&nodes, Absent).delete.is_empty());
    }
    driver.pass(&nodes, Present);
    for _ in 0..179 {
        assert!(driver.pass(&nodes, Absent).delete.is_empty());
    }
}

#[test]
fn l6_a_gap_between_two_answers_holds_no_longer_than_the_longest_step() {
    // Each gap lasts five minutes. It counts as one minute, unless a lookup may take longer.
    for (deadline, gaps) in [(DEADLINE, 15), (3 * DEADLINE, 5), (14 * DEADLINE, 3)] {
        let mut driver = Driver::new();
        driver.deadline = deadline;
        let nodes = cluster(2, 2);
        let gap = Duration::from_mins(5).saturating_sub(PERIOD);
        for _ in 0..gaps {
            driver.now += gap;
            assert!(driver.pass(&nodes, Absent).delete.is_empty());
        }
        driver.now += gap;
        let deleted = driver.pass(&nodes, Absent).delete.len();
        assert_eq!(deleted, 1, "{deadline:?}");
    }
}

#[test]
fn l6_a_new_session_starts_over_and_nothing_is_deleted_while_degraded() {
    let mut driver = Driver::new();
    let nodes = cluster(9, 1);
    driver.pass(&nodes, Absent);
    driver.ledger.start_over();
    assert!(driver.pass(&nodes, Absent).delete.is_empty());
    driver.may_delete = false;
    for _ in 0..3 {
        assert!(driver.pass(&nodes, Absent).delete.is_empty());
    }
    driver.may_delete = true;
    assert!(driver.pass(&nodes, Absent).delete.is_empty());
    assert_eq!(driver.pass(&nodes, Absent).delete.len(), 1);
}

#[test]
fn l6_a_young_node_and_one_that_is_going_stay() {
    let mut driver = Driver::new();
    let mut nodes = cluster(9, 1);
    nodes[0] = edited(&nodes[0], |node| {
        let born = wall() - jiff::SignedDuration::from_secs(59);
        node.metadata.creation_timestamp = Some(Time(born));
    });
    for _ in 0..5 {
        assert!(driver.pass(&nodes, Absent).delete.is_empty());
    }
    nodes[0] = edited(&nodes[0], |node| {
        node.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        node.metadata.deletion_timestamp = Some(Time(wall()));
    });
    for _ in 0..5 {
        assert!(driver.pass(&nodes, Absent).delete.is_empty());
    }
}

#[test]
fn l6_the_last_look() {
    let decided = node("n", Some("False"));
    let look = |fresh: &Node| last_look(&decided, fresh, Duration::from_mins(1), wall());
    assert_eq!(look(&decided), Ok(()));
    assert!(look(&node("n", Some("True"))).is_err());
    assert!(look(&edited(&decided, |node| node.metadata.uid = Some("new".to_owned()))).is_err());
    assert!(
        look(&edited(&decided, |node| node.metadata.deletion_timestamp =
            Some(Time(wall()))))
        .is_err()
    );
    assert!(
        look(&edited(&decided, |node| node.metadata.creation_timestamp =
            Some(Time(wall()))))
        .is_err()
    );
    assert!(look(&edited(&decided, |node| node.metadata.creation_timestamp = None)).is_err());
    let other = edited(&decided, |node| {
        node.spec.get_or_insert_default().provider_id = None;
    });
    assert!(look(&other).is_err());
}

#[test]
fn l6_nodes_that_share_a_provider_id_are_never_due() {
    let mut nodes = cluster(20, 3);
    nodes[1] = edited(&nodes[1], |node| {
        let spec = node.spec.get_or_insert_default();
        spec.provider_id = Some("mock://down-000".to_owned());
    });
    let mut driver = Driver::new();
    let mut pass = Pass::default();
    for _ in 0..3 {
        let next = driver.pass(&nodes, Absent);
        assert!(next.held.is_empty(), "{next:?}");
        pass.delete.extend(next.delete);
        pass.shared = next.shared;
    }
    assert_eq!(names(&pass.delete), ["down-002"]);
    assert_eq!(names(&pass.shared), ["down-000", "down-001"]);
    // One of the two is gone: now it is clear whose instance an answer means.
    nodes.remove(0);
    let pass = driver.pass(&nodes, Absent);
    assert_eq!(names(&pass.delete), ["down-001"]);
    assert!(pass.shared.is_empty());
}

#[test]
fn l6_a_node_keeps_another_one_with_its_provider_id_though_it_is_ready() {
    let mut nodes = cluster(20, 1);
    nodes[1] = edited(&nodes[1], |node| {
        node.spec.get_or_insert_default().provider_id = Some("mock://down-000".to_owned());
    });
    let mut driver = Driver::new();
    for _ in 0..3 {
        // The provider finds instances by the Nodes' names, and answers ABSENT for one name only.
        assert!(driver.pass(&nodes, Absent).delete.is_empty());
    }
}

#[test]
fn l6_nodes_that_share_a_provider_id_do_not_keep_the_brake() {
    let mut nodes = cluster(80, 20);
    nodes[1] = edited(&nodes[1], |node| {
        node.spec.get_or_insert_default().provider_id = Some("mock://down-000".to_owned());
    });
    let mut driver = Driver::new();
    driver.pass(&nodes, Absent);
    assert_eq!(driver.pass(&nodes, Absent).held.len(), 18);
    let still = |driver: &mut Driver, absent: &[&str]| {
        let pass = driver.pass_with(&nodes, &nodes, |node| {
            let gone = absent.contains(&name(node));
            Some(Ok(if gone { Absent } else { Running }))
        });
        (pass.shared.len(), driver.brake.holds())
    };
    let (pair, three) = (
        ["down-000", "down-001"],
        ["down-000", "down-001", "down-002"],
    );
    assert_eq!(still(&mut driver, &three), (2, true));
    // After a new session, only an answer about each Node shows that the others are back.
    driver.ledger.start_over();
    driver.pass_with(&nodes, &nodes, |node| match name(node) {
        "down-000" | "down-001" => Some(Ok(Absent)),
        _ => is_ready(node).then_some(Ok(Running)),
    });
    assert!(driver.brake.holds());
    assert_eq!(still(&mut driver, &pair), (2, false));
}
