//! When the ccm asks about a Node again, and which answers count.

use super::*;

impl Driver {
    /// The names of the due Nodes: first without an ABSENT that counts, then with one.
    fn due(&mut self, nodes: &[Arc<Node>]) -> [Vec<String>; 2] {
        let questions = self
            .ledger
            .questions(&mut self.brake, nodes, |_| false, self.now);
        [questions.suspects, questions.absent]
            .map(|nodes| nodes.iter().map(|node| name(node).to_owned()).collect())
    }

    /// Whether a Node is due after `wait`, and not a moment earlier.
    fn is_due_after(&mut self, nodes: &[Arc<Node>], wait: Duration) -> bool {
        let moment = Duration::from_millis(1);
        self.now += wait.saturating_sub(moment);
        let before = self.due(nodes).concat();
        self.now += moment;
        before.is_empty() && !self.due(nodes).concat().is_empty()
    }

    /// A pass with answers to questions asked `ago` before: Ready Nodes are RUNNING, the others in
    /// `state`.
    fn reported(&mut self, nodes: &[Arc<Node>], state: api::InstanceState, ago: Duration) -> Pass {
        let answers = nodes.iter().map(|node| Answer {
            node: Arc::clone(node),
            began: self.now - ago,
            at: self.now,
            found: match if is_ready(node) { Running } else { state } {
                Unspecified => Err(trouble()),
                state => Ok(api::Instance {
                    state: state as i32,
                    ..api::Instance::default()
                }),
            },
        });
        let answers: Vec<Answer> = answers.collect();
        let findings = Findings {
            answers: &answers,
            nodes,
            may_delete: self.may_delete,
            power_state: self.power_state,
            deadline: self.deadline,
            start: self.now,
            now: self.now,
            wall: wall(),
        };
        self.ledger.pass(&mut self.brake, &findings)
    }
}

const AT_ONCE: Duration = Duration::ZERO;

#[test]
fn l1_a_node_is_asked_about_again_after_a_period_and_at_once_when_it_changes() {
    let mut driver = Driver::new();
    let nodes = cluster(3, 1);
    driver.reported(&nodes, Running, AT_ONCE);
    assert_eq!(driver.due(&nodes).concat(), [""; 0]);
    let changed = [&nodes[1..], &[node("down-000", Some("False"))]].concat();
    assert_eq!(driver.due(&changed)[0], ["down-000"]);
    assert!(driver.is_due_after(&nodes, PERIOD));
    let busy = driver
        .ledger
        .questions(&mut driver.brake, &nodes, |_| true, driver.now);
    assert!(busy.suspects.is_empty() && !busy.idle, "it is being asked");
}

#[test]
fn l1_a_node_about_which_nothing_changes_waits_for_a_tenth_of_that_time() {
    let mut driver = Driver::new();
    let nodes = cluster(3, 1);
    driver.reported(&nodes, Running, AT_ONCE);
    driver.now += Duration::from_secs(100);
    driver.reported(&nodes, Running, AT_ONCE);
    assert!(driver.is_due_after(&nodes, Duration::from_secs(10)));
    driver.now += Duration::from_hours(1);
    driver.reported(&nodes, Running, AT_ONCE);
    assert!(
        driver.is_due_after(&nodes, PERIOD * MOST_PERIODS),
        "at most"
    );
    // Another state is a change. After a failed lookup the next one may succeed.
    for state in [Stopped, Unspecified, Unspecified] {
        driver.reported(&nodes, state, AT_ONCE);
        assert!(driver.is_due_after(&nodes, PERIOD), "{state:?}");
        driver.now += Duration::from_mins(10);
    }
}

#[test]
fn l1_a_provider_that_takes_its_time_has_it_unless_an_absent_needs_another_answer() {
    let took = Duration::from_secs(20);
    let mut driver = Driver::new();
    let nodes = cluster(3, 1);
    driver.reported(&nodes, Running, took);
    assert!(driver.is_due_after(&nodes, took));
    driver.reported(&nodes, Absent, took);
    assert!(driver.is_due_after(&nodes, PERIOD), "one ABSENT");
    assert_eq!(driver.due(&nodes)[1], ["down-000"]);
    driver.may_delete = false;
    driver.reported(&nodes, Absent, took);
    assert!(driver.is_due_after(&nodes, took), "two of them");
    assert_eq!(driver.due(&nodes)[0], ["down-000"], "its row is broken");
}

#[test]
fn l7_a_hint_makes_a_node_due_at_once_also_while_it_is_asked_about() {
    let mut driver = Driver::new();
    let nodes = cluster(3, 1);
    driver.reported(&nodes, Running, AT_ONCE);
    driver.ledger.hinted(&nodes[0], driver.now);
    assert_eq!(driver.due(&nodes)[0], ["down-000"]);
    // The hint came no later than the question, so the answer covers it.
    driver.now += PERIOD;
    driver.reported(&nodes, Running, PERIOD);
    assert!(driver.is_due_after(&nodes, PERIOD));
    driver.ledger.hinted(&nodes[0], driver.now);
    driver.now += PERIOD;
    driver.reported(&nodes, Running, PERIOD * 2);
    assert_eq!(driver.due(&nodes)[0], ["down-000"]);
}

#[test]
fn l6_absent_answers_ten_minutes_apart_belong_together_and_no_longer_ones() {
    let moment = Duration::from_millis(1);
    // The longer the deadline of a lookup, the later an answer may come.
    for (deadline, more, deleted) in [
        (DEADLINE, Duration::ZERO, 1),
        (DEADLINE, moment, 0),
        (5 * DEADLINE, Duration::ZERO, 1),
        (5 * DEADLINE, moment, 0),
    ] {
        let mut driver = Driver::new();
        driver.deadline = deadline;
        let nodes = cluster(3, 1);
        driver.reported(&nodes, Absent, AT_ONCE);
        driver.now += deadline * LONGEST_PENDING + Duration::from_mins(1) + more;
        let pass = driver.reported(&nodes, Absent, AT_ONCE);
        assert_eq!(pass.delete.len(), deleted, "{deadline:?} {more:?}");
    }
}

#[test]
fn l6_with_a_long_period_two_absent_answers_belong_together_too() {
    let period = Duration::from_mins(11);
    let mut driver = Driver::new();
    driver.ledger = Ledger::new(BrakeConfig::default().min_age, period, period * 2);
    let nodes = cluster(3, 1);
    driver.reported(&nodes, Absent, AT_ONCE);
    driver.now += period;
    assert_eq!(driver.reported(&nodes, Absent, AT_ONCE).delete.len(), 1);
}

#[test]
fn l6_one_of_two_goes_where_a_ready_node_vouched_for_both_answers() {
    let mut driver = Driver::new();
    let nodes = cluster(1, 1);
    driver.reported(&nodes, Absent, AT_ONCE);
    driver.now += PERIOD;
    let pass = driver.reported(&nodes, Absent, AT_ONCE);
    assert!(pass.one_of_two && names(&pass.delete) == ["down-000"]);
    assert!(!pass.waiting, "it was told");
    // The other Node was not Ready when the first answer came.
    let mut driver = Driver::new();
    let other = node("ready-000", Some("Unknown"));
    let before = [Arc::clone(&nodes[0]), other];
    driver.pass_with(&before, &before, |node| {
        let gone = name(node) == "down-000";
        Some(Ok(if gone { Absent } else { Running }))
    });
    driver.now += PERIOD;
    let pass = driver.reported(&nodes, Absent, AT_ONCE);
    assert!(pass.delete.is_empty() && pass.void.is_none(), "{pass:?}");
}

#[test]
fn l6_where_nothing_is_known_the_row_begins_again_and_the_hold_goes_on() {
    let mut driver = Driver::new();
    let nodes = cluster(2, 2);
    let minute = |driver: &mut Driver, state| {
        driver.now += Duration::from_mins(1);
        driver.reported(&nodes, state, AT_ONCE)
    };
    for _ in 0..=14 {
        assert!(minute(&mut driver, Absent).delete.is_empty());
    }
    minute(&mut driver, Unspecified);
    assert_eq!(driver.due(&nodes)[1], [""; 0], "no row");
    assert!(minute(&mut driver, Absent).delete.is_empty());
    assert_eq!(minute(&mut driver, Absent).delete.len(), 1);
    // The provider became unusable before the request.
    for node in &nodes {
        driver.ledger.interrupt(&mut driver.brake, node, true);
    }
    assert!(minute(&mut driver, Absent).delete.is_empty());
    assert_eq!(minute(&mut driver, Absent).delete.len(), 1);
}

#[test]
fn l6_a_held_node_is_asked_about_once_a_minute_and_at_once_after_a_hint() {
    let mut driver = Driver::new();
    let nodes = cluster(2, 2);
    driver.reported(&nodes, Absent, AT_ONCE);
    driver.now += PERIOD;
    let pass = driver.reported(&nodes, Absent, AT_ONCE);
    assert_eq!((pass.held.len(), driver.brake.holds()), (2, true));
    assert!(driver.is_due_after(&nodes, Duration::from_secs(55)));
    driver.ledger.hinted(&nodes[0], driver.now);
    driver.reported(&nodes, Absent, PERIOD);
    assert_eq!(driver.due(&nodes)[1], ["down-000"]);
}

#[test]
fn l6_in_a_short_hold_a_held_node_is_asked_about_fifteen_times_too() {
    let mut driver = Driver::new();
    driver.brake = Brake::new(BrakeConfig {
        hold: Duration::from_mins(5),
        ..BrakeConfig::default()
    });
    let nodes = cluster(2, 2);
    driver.reported(&nodes, Absent, AT_ONCE);
    driver.now += PERIOD;
    assert_eq!(driver.reported(&nodes, Absent, AT_ONCE).held.len(), 2);
    assert!(driver.is_due_after(&nodes, Duration::from_secs(20)));
}

#[test]
fn l6_a_deletion_that_is_put_off_needs_no_new_answers_and_leaves_its_room() {
    let mut driver = Driver::new();
    let nodes = cluster(3, 1);
    driver.reported(&nodes, Absent, AT_ONCE);
    for _ in 0..5 {
        driver.now += PERIOD;
        let pass = driver.reported(&nodes, Absent, AT_ONCE);
        assert_eq!(names(&pass.delete), ["down-000"]);
        driver.ledger.postpone(&mut driver.brake, &nodes[0]);
    }
    // If nothing may be deleted any more, two new answers are needed.
    driver.ledger.interrupt(&mut driver.brake, &nodes[0], true);
    for deleted in [0, 1] {
        driver.now += PERIOD;
        let pass = driver.reported(&nodes, Absent, AT_ONCE);
        assert_eq!(pass.delete.len(), deleted);
    }
}

#[test]
fn l6_a_node_whose_delete_request_was_not_answered_goes_after_two_new_answers() {
    let mut driver = Driver::new();
    let nodes = cluster(3, 1);
    for _ in 0..3 {
        assert!(driver.reported(&nodes, Absent, AT_ONCE).delete.is_empty());
        driver.now += PERIOD;
        let pass = driver.reported(&nodes, Absent, AT_ONCE);
        assert_eq!(names(&pass.delete), ["down-000"]);
        driver.ledger.interrupt(&mut driver.brake, &nodes[0], false);
        driver.now += PERIOD;
    }
}

#[test]
fn l6_nodes_that_share_an_id_stay_and_are_named() {
    let mut driver = Driver::new();
    let mut nodes = cluster(9, 2);
    nodes[1] = edited(&nodes[1], |node| {
        node.spec.get_or_insert_default().provider_id = Some("mock://down-000".to_owned());
    });
    driver.reported(&nodes, Absent, AT_ONCE);
    driver.now += PERIOD;
    let pass = driver.reported(&nodes, Absent, AT_ONCE);
    assert_eq!(names(&pass.shared), ["down-000", "down-001"]);
    assert!(pass.delete.is_empty());
}

#[test]
fn b_l3_a_node_that_changed_since_the_answer_gets_no_taint_by_it() {
    let mut driver = Driver::new();
    let nodes = cluster(3, 1);
    let changed = [&nodes[1..], &[node("down-000", Some("False"))]].concat();
    assert_eq!(driver.reported(&nodes, Stopped, AT_ONCE).taint.len(), 1);
    let pass = driver.pass_with(&nodes, &changed, |_| Some(Ok(Stopped)));
    assert!(pass.taint.is_empty(), "{pass:?}");
}

#[test]
fn l6_where_no_node_is_ready_only_those_that_were_recognised_are_witnesses() {
    let mut driver = Driver::new();
    let nodes = cluster(0, 3);
    let asked = driver.ledger.witnesses(&nodes, WITNESSES, |_| false);
    assert!(asked.is_empty(), "{asked:?}");
    driver.reported(&nodes, Running, AT_ONCE);
    let asked = driver.ledger.witnesses(&nodes, WITNESSES, |_| false);
    assert_eq!(asked.len(), 3);
}

#[test]
fn l6_only_absent_needs_somebody_who_vouches() {
    let mut driver = Driver::new();
    let nodes = cluster(3, 1);
    let pass = driver.pass_with(&nodes, &nodes, |node| {
        (!is_ready(node)).then_some(Ok(Running))
    });
    assert_eq!(pass.void, None);
}

#[test]
fn a_pass_that_brought_failures_alone_says_so_unless_deadlines_passed() {
    let late = || CallError {
        code: CallErrorCode::Deadline,
        ..trouble()
    };
    let failed = |answer: &dyn Fn(&Node) -> Result<api::InstanceState, CallError>| {
        let nodes = cluster(1, 2);
        let pass = Driver::new().pass_with(&nodes, &nodes, |node| Some(answer(node)));
        pass.failed
    };
    let reported = failed(&|_| Err(trouble())).unwrap();
    assert!(reported.starts_with("no lookup succeeded: "), "{reported}");
    assert_eq!(failed(&|_| Err(late())), None);
    let one = |node: &Node| {
        if name(node) == "down-000" {
            Ok(Running)
        } else {
            Err(trouble())
        }
    };
    assert_eq!(failed(&one), None);
}

#[test]
fn m10_where_one_node_is_asked_about_for_all_they_take_turns() {
    let mut driver = Driver::new();
    let nodes = cluster(0, 3);
    driver.pass_with(&nodes, &nodes, |_| Some(Err(trouble())));
    let mut turns = Vec::new();
    for _ in 0..4 {
        driver.now += Duration::from_secs(20);
        let questions = driver
            .ledger
            .questions(&mut driver.brake, &nodes, |_| false, driver.now);
        assert_eq!(questions.suspects.len(), 3);
        let one = driver.ledger.one_for_all(&questions);
        assert!(one.absent.is_empty() && one.suspects.len() == 1);
        turns.push(name(&one.suspects[0]).to_owned());
        let answers = one.suspects.into_iter().map(|node| Answer {
            node,
            began: driver.now,
            at: driver.now,
            found: Err(trouble()),
        });
        let answers: Vec<Answer> = answers.collect();
        let findings = Findings {
            answers: &answers,
            nodes: &nodes,
            may_delete: true,
            power_state: false,
            deadline: DEADLINE,
            start: driver.now,
            now: driver.now,
            wall: wall(),
        };
        driver.ledger.pass(&mut driver.brake, &findings);
    }
    assert_eq!(turns, ["down-000", "down-001", "down-002", "down-000"]);
}
