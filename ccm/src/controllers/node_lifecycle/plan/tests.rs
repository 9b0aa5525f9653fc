mod asking;
mod guards;
mod outcomes;

use api::InstanceState::{Pending, Present, Running, Unmanaged};
use k8s_openapi::api::core::v1::{NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::answers::{LONGEST_PENDING, OLDEST_ANSWER};
use super::nodes::NO_SCHEDULE;
use super::*;
use crate::args::BrakeConfig;
use crate::core::is_ready;
use crate::provider::{CallError, CallErrorCode};

// Written out, because users tolerate this taint.
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const PERIOD: Duration = Duration::from_secs(5);
/// The deadline of a lookup.
const DEADLINE: Duration = Duration::from_mins(1);

fn wall() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn node(name: &str, ready: Option<&str>) -> Arc<Node> {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.uid = Some(format!("uid-{name}"));
    node.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    node.spec.get_or_insert_default().provider_id = Some(format!("mock://{name}"));
    node.status.get_or_insert_default().conditions = ready.map(|status| {
        vec![NodeCondition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            ..NodeCondition::default()
        }]
    });
    Arc::new(node)
}

fn edited(node: &Arc<Node>, edit: impl FnOnce(&mut Node)) -> Arc<Node> {
    let mut node = Node::clone(node);
    edit(&mut node);
    Arc::new(node)
}

/// `ready` Ready Nodes and `down` that are not, sorted by name.
fn cluster(ready: usize, down: usize) -> Vec<Arc<Node>> {
    let down = (0..down).map(|i| node(&format!("down-{i:03}"), Some("Unknown")));
    let ready = (0..ready).map(|i| node(&format!("ready-{i:03}"), Some("True")));
    down.chain(ready).collect()
}

fn trouble() -> CallError {
    CallError {
        code: CallErrorCode::Unknown,
        reason: String::new(),
        message: "no".to_owned(),
        retry_after: None,
        rpc: None,
        call_id: None,
    }
}

/// Drives a ledger through passes.
struct Driver {
    ledger: Ledger,
    brake: Brake,
    now: Instant,
    may_delete: bool,
    power_state: bool,
    deadline: Duration,
    pending: BTreeSet<String>,
    /// The provider IDs in the answers, by Node. Other answers have none.
    ids: BTreeMap<&'static str, &'static str>,
}

impl Driver {
    fn new() -> Self {
        Self {
            ledger: Ledger::new(
                BrakeConfig::default().min_age,
                PERIOD,
                Duration::from_mins(1),
            ),
            brake: Brake::new(BrakeConfig::default()),
            now: Instant::now(),
            may_delete: true,
            power_state: true,
            deadline: DEADLINE,
            pending: BTreeSet::new(),
            ids: BTreeMap::new(),
        }
    }

    /// A pass. `answer` gives the provider's answer for a Node. `after` has the Nodes after the
    /// answers.
    fn pass_with(
        &mut self,
        nodes: &[Arc<Node>],
        after: &[Arc<Node>],
        answer: impl Fn(&Node) -> Option<Result<api::InstanceState, CallError>>,
    ) -> Pass {
        self.now += PERIOD;
        // Other tests cover how often the ccm asks about a Node.
        for node in nodes {
            self.ledger.hurry(node, self.now);
        }
        let busy = |uid: &str| self.pending.contains(uid);
        let questions = self
            .ledger
            .questions(&mut self.brake, nodes, busy, self.now);
        let mut asked = [questions.suspects, questions.absent].concat();
        let busy = |other: &str| busy(other) || asked.iter().any(|node| uid(node) == other);
        let witnesses = self.ledger.witnesses(nodes, WITNESSES, busy);
        asked.extend(witnesses);
        let answers: Vec<Answer> = asked
            .into_iter()
            .filter_map(|node| {
                let state = answer(&node)?;
                let found = state.map(|state| api::Instance {
                    state: state as i32,
                    provider_id: self.ids.get(name(&node)).map(|id| (*id).to_owned()),
                    ..api::Instance::default()
                });
                Some(Answer {
                    node,
                    began: self.now,
                    at: self.now,
                    found,
                })
            })
            .collect();
        let findings = Findings {
            answers: &answers,
            nodes: after,
            may_delete: self.may_delete,
            power_state: self.power_state,
            deadline: self.deadline,
            start: self.now,
            now: self.now,
            wall: wall(),
        };
        self.ledger.pass(&mut self.brake, &findings)
    }

    /// A pass in which Ready Nodes are RUNNING and the others in state `down`.
    fn pass(&mut self, nodes: &[Arc<Node>], down: api::InstanceState) -> Pass {
        self.pass_with(nodes, nodes, |node| {
            Some(Ok(if is_ready(node) { Running } else { down }))
        })
    }
}

fn names(nodes: &[Arc<Node>]) -> Vec<&str> {
    nodes.iter().map(|node| name(node)).collect()
}

#[test]
fn b_l1_only_nodes_that_are_not_ready_are_asked_about() {
    let mut driver = Driver::new();
    let nodes = vec![
        node("a", Some("False")),
        node("b", Some("Unknown")),
        node("c", None),
        node("d", Some("True")),
    ];
    let now = driver.now;
    let questions = driver
        .ledger
        .questions(&mut driver.brake, &nodes, |_| false, now);
    assert_eq!(names(&questions.suspects), ["a", "b", "c"]);
    assert!(questions.absent.is_empty() && !questions.idle);
    let questions = driver
        .ledger
        .questions(&mut driver.brake, &cluster(3, 0), |_| false, now);
    assert!(questions.suspects.is_empty() && questions.absent.is_empty() && questions.idle);
}

#[test]
fn l6_witnesses_rotate() {
    let mut driver = Driver::new();
    let nodes = cluster(4, 1);
    let mut next = || {
        let witnesses = driver.ledger.witnesses(&nodes, WITNESSES, |_| false);
        witnesses
            .iter()
            .map(|node| name(node)[8..].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(next(), ["0", "1", "2"].map(str::to_owned));
    assert_eq!(next(), ["3", "0", "1"].map(str::to_owned));
    assert_eq!(next(), ["2", "3", "0"].map(str::to_owned));
}

#[test]
fn b_l2_l6_two_absent_answers_in_valid_passes_in_a_row() {
    let mut driver = Driver::new();
    let nodes = cluster(9, 1);
    assert!(driver.pass(&nodes, Absent).delete.is_empty());
    let second = driver.pass(&nodes, Absent);
    assert_eq!(names(&second.delete), ["down-000"]);
    // The ccm is deleting the Node, so it does not ask about the Node again.
    let questions = driver
        .ledger
        .questions(&mut driver.brake, &nodes, |_| false, driver.now);
    assert!(questions.idle);
    // The Node was spared, so it needs two new answers.
    let gone = second.delete[0].clone();
    driver.ledger.spare(&mut driver.brake, &gone);
    assert!(driver.pass(&nodes, Absent).delete.is_empty());
    assert_eq!(driver.pass(&nodes, Absent).delete.len(), 1);
}

#[test]
fn b_l4_nothing_but_absent_counts_and_everything_else_breaks_the_row() {
    for between in [Present, Running, Stopped, Pending, Unmanaged, Unspecified] {
        let mut driver = Driver::new();
        let nodes = cluster(9, 1);
        for _ in 0..5 {
            assert!(driver.pass(&nodes, Absent).delete.is_empty(), "{between:?}");
            assert!(
                driver.pass(&nodes, between).delete.is_empty(),
                "{between:?}"
            );
            assert!(
                driver.pass(&nodes, between).delete.is_empty(),
                "{between:?}"
            );
        }
    }
    let mut driver = Driver::new();
    let nodes = cluster(9, 1);
    for _ in 0..5 {
        assert!(driver.pass(&nodes, Absent).delete.is_empty());
        let pass = driver.pass_with(&nodes, &nodes, |node| {
            Some(if is_ready(node) {
                Ok(Running)
            } else {
                Err(trouble())
            })
        });
        assert!(pass.delete.is_empty() && pass.void.is_none());
    }
}

/// The Node after a deletion and a new creation, with another UID.
fn anew(node: &Arc<Node>) -> Arc<Node> {
    edited(node, |node| node.metadata.uid = Some("another".to_owned()))
}

/// The Node is still not Ready, but since another time: it may have been Ready in between.
fn flapped(node: &Arc<Node>) -> Arc<Node> {
    edited(node, |node| {
        let status = node.status.get_or_insert_default();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_transition_time = Some(Time(wall()));
        }
    })
}

#[test]
fn l6_an_answer_is_discarded_if_the_node_was_replaced_or_became_ready_meanwhile() {
    for change in [anew, flapped] {
        let nodes = cluster(9, 1);
        let mut later = nodes.clone();
        later[0] = change(&nodes[0]);
        let absent = |node: &Node| Some(Ok(if is_ready(node) { Running } else { Absent }));
        // The ccm asks before the change, and the answers come after the change.
        let mut driver = Driver::new();
        driver.pass(&nodes, Absent);
        assert!(driver.pass_with(&nodes, &later, absent).delete.is_empty());
        // A new row begins: it takes two more answers.
        assert!(driver.pass(&later, Absent).delete.is_empty());
        assert_eq!(driver.pass(&later, Absent).delete.len(), 1);
        // The same, if the change comes between two passes.
        let mut driver = Driver::new();
        driver.pass(&nodes, Absent);
        assert!(driver.pass(&later, Absent).delete.is_empty());
        assert_eq!(driver.pass(&later, Absent).delete.len(), 1);
    }
}

#[test]
fn l6_absent_needs_a_witness_whose_answer_is_no_older() {
    let nodes = cluster(1, 1);
    let now = Instant::now();
    let answer = |node: &Arc<Node>, state: api::InstanceState, after: u64| Answer {
        node: Arc::clone(node),
        began: now,
        at: now + Duration::from_secs(after),
        found: Ok(api::Instance {
            state: state.into(),
            ..api::Instance::default()
        }),
    };
    let claim = answer(&nodes[0], Absent, 5);
    for (state, after, vouches) in [
        (Running, 4, false),
        (Running, 5, true),
        (Present, 6, true),
        (Stopped, 6, true),
        (Pending, 6, false),
        (Unmanaged, 6, false),
        (Unspecified, 6, false),
    ] {
        let witness = [answer(&nodes[1], state, after)];
        let vouched = vouched_until(&witness, false) >= Some(claim.at);
        assert_eq!(vouched, vouches, "{state:?} after {after} s");
    }
    // A Node that is not Ready vouches only if no Node is Ready.
    let other = [answer(&node("other", None), Stopped, 6)];
    assert_eq!(vouched_until(&other, false), None);
    assert_eq!(vouched_until(&other, true), Some(other[0].at));
    let early = answer(&nodes[1], Running, 3);
    let both = [answer(&nodes[1], Running, 6), early];
    assert_eq!(vouched_until(&both, false), Some(both[0].at));
    for deadline in [DEADLINE, 5 * DEADLINE] {
        let oldest = deadline * OLDEST_ANSWER;
        assert!(!is_too_old(&claim, deadline, now + oldest));
        assert!(is_too_old(&claim, deadline, now + oldest + PERIOD));
    }
}

type Between = fn(&mut Driver, &[Arc<Node>]);

#[test]
fn m10_an_answer_that_is_still_to_come_neither_counts_nor_breaks_the_row() {
    let nodes = cluster(3, 2);
    let slow = || [uid(&nodes[0]).to_owned()].into();
    let answer = |node: &Node| {
        let late = name(node) == "down-000";
        (!late).then_some(Ok(if is_ready(node) { Running } else { Stopped }))
    };
    let said = |driver: &mut Driver| driver.pass(&nodes, Absent).delete.len();
    let mut driver = Driver::new();
    driver.pass_with(&nodes, &nodes, |node| {
        let state = if is_ready(node) { Running } else { Absent };
        (name(node) != "down-001").then_some(Ok(state))
    });
    for _ in 0..6 {
        driver.pending = slow();
        assert!(driver.pass_with(&nodes, &nodes, answer).delete.is_empty());
    }
    driver.pending.clear();
    assert_eq!(said(&mut driver), 1, "two answers, with nothing between");

    // A void pass, a provider that is not READY and a long time break this row.
    let void: Between = |driver, nodes| {
        let pass = driver.pass_with(nodes, nodes, |_| Some(Ok(Absent)));
        assert!(pass.void.is_some());
    };
    let degraded: Between = |driver, nodes| {
        driver.may_delete = false;
        driver.pass(nodes, Running);
        driver.may_delete = true;
    };
    let ages: Between =
        |driver, _| driver.now += DEADLINE * LONGEST_PENDING + Duration::from_mins(1);
    for between in [void, degraded, ages] {
        let mut driver = Driver::new();
        let absent = |node: &Node| {
            let state = if is_ready(node) { Running } else { Absent };
            (name(node) != "down-001").then_some(Ok(state))
        };
        driver.pass_with(&nodes, &nodes, absent);
        driver.pending = slow();
        between(&mut driver, &nodes);
        driver.pass_with(&nodes, &nodes, answer);
        driver.pending.clear();
        assert!(driver.pass_with(&nodes, &nodes, absent).delete.is_empty());
    }
}

#[test]
fn m10_a_node_that_was_due_waits_for_a_pass_that_says_so() {
    let nodes = cluster(20, 6);
    let mut driver = Driver::new();
    // The brake holds them all for a quarter of an hour.
    for _ in 0..400 {
        if !driver.pass(&nodes, Absent).delete.is_empty() {
            break;
        }
    }
    driver.pending = nodes.iter().map(|node| uid(node).to_owned()).collect();
    let pass = driver.pass_with(&nodes, &nodes, |node| is_ready(node).then_some(Ok(Running)));
    assert!(pass.delete.is_empty() && pass.void.is_none());
}

#[test]
fn l6_a_pass_that_calls_a_ready_node_absent_is_void() {
    let mut driver = Driver::new();
    let nodes = cluster(9, 1);
    for _ in 0..10 {
        let pass = driver.pass_with(&nodes, &nodes, |node| {
            Some(Ok(if name(node) == "ready-001" {
                Running
            } else {
                Absent
            }))
        });
        assert!(pass.void.is_some() && pass.delete.is_empty());
    }
    // The same, if a Node becomes Ready while the question is under way.
    let mut driver = Driver::new();
    let after: Vec<_> = [node("down-000", Some("True"))]
        .into_iter()
        .chain(nodes[1..].to_vec())
        .collect();
    let answer = |node: &Node| Some(Ok(if is_ready(node) { Running } else { Absent }));
    assert!(driver.pass_with(&nodes, &after, answer).void.is_some());
}

#[test]
fn l6_a_pass_with_answers_about_other_nodes_instances_is_void() {
    let mut driver = Driver::new();
    let nodes = cluster(3, 1);
    // The answer for ready-001 is about another Node's instance, so it is unclear whose instance is
    // ABSENT.
    driver.ids.insert("ready-001", "mock://ready-000");
    for _ in 0..4 {
        let pass = driver.pass(&nodes, Absent);
        let void = pass.void.unwrap();
        assert!(
            void.contains("ready-001") && void.contains("mock://ready-000"),
            "{void}"
        );
        assert!(pass.delete.is_empty());
    }
    // The Node's own ID, or another spelling of it, belongs to no other Node.
    driver.ids = BTreeMap::from([
        ("ready-001", "mock://ready-001"),
        ("ready-002", "mock:///2"),
    ]);
    assert!(driver.pass(&nodes, Absent).delete.is_empty());
    assert_eq!(names(&driver.pass(&nodes, Absent).delete), ["down-000"]);
}

#[test]
fn l6_a_pass_without_a_recognised_witness_is_void_and_breaks_the_row() {
    for witness in [
        None,
        Some(Err(trouble())),
        Some(Ok(Pending)),
        Some(Ok(Unmanaged)),
        Some(Ok(Unspecified)),
    ] {
        let mut driver = Driver::new();
        let nodes = cluster(9, 1);
        driver.pass(&nodes, Absent);
        let pass = driver.pass_with(&nodes, &nodes, |node| {
            if is_ready(node) {
                witness.clone()
            } else {
                Some(Ok(Absent))
            }
        });
        assert!(pass.void.is_some() && pass.delete.is_empty(), "{witness:?}");
        assert!(driver.pass(&nodes, Absent).delete.is_empty());
        assert_eq!(driver.pass(&nodes, Absent).delete.len(), 1);
    }
}

#[test]
fn l6_without_a_ready_node_the_asked_ones_witness() {
    let mut driver = Driver::new();
    let nodes = cluster(0, 10);
    for _ in 0..400 {
        let pass = driver.pass(&nodes, Absent);
        assert!(pass.void.is_some() && pass.delete.is_empty());
    }
    let one_is_known = |node: &Node| {
        Some(Ok(if name(node) == "down-001" {
            Stopped
        } else {
            Absent
        }))
    };
    let nodes = cluster(0, 10);
    let pass = driver.pass_with(&nodes, &nodes, one_is_known);
    assert!(pass.void.is_none() && pass.delete.is_empty());
    // Nine of ten are due, so the brake holds.
    let pass = driver.pass_with(&nodes, &nodes, one_is_known);
    assert!(driver.brake.holds() && pass.delete.is_empty() && pass.held.len() == 9);
    // The only Node of a cluster stays.
    let mut driver = Driver::new();
    for _ in 0..400 {
        assert!(driver.pass(&cluster(0, 1), Absent).delete.is_empty());
    }
}

#[test]
fn b_l3_stopped_is_tainted_and_ready_is_not() {
    let mut driver = Driver::new();
    let nodes = cluster(1, 1);
    let pass = driver.pass(&nodes, Stopped);
    assert_eq!(names(&pass.taint), ["down-000"]);
    let other = Taint {
        key: "other".to_owned(),
        ..Taint::default()
    };
    let node = edited(&nodes[0], |node| {
        node.spec.get_or_insert_default().taints = Some(vec![other.clone()]);
    });
    let taints = with_shutdown_taint(&node).unwrap();
    assert_eq!((taints.len(), &taints[0]), (2, &other));
    assert_eq!(
        (taints[1].key.as_str(), taints[1].effect.as_str()),
        (SHUTDOWN, NO_SCHEDULE)
    );

    let tainted = edited(&node, |node| {
        node.spec.get_or_insert_default().taints = Some(taints);
    });
    let after = vec![tainted.clone(), nodes[1].clone()];
    assert!(driver.pass(&after, Stopped).taint.is_empty());
    assert_eq!(with_shutdown_taint(&tainted), None);
    assert_eq!(
        without_shutdown_taint(&tainted),
        None,
        "it is not Ready yet"
    );
    let back = edited(&tainted, |node| node.status.clone_from(&nodes[1].status));
    assert_eq!(without_shutdown_taint(&back), Some(vec![other]));

    driver.power_state = false;
    assert!(driver.pass(&nodes, Stopped).taint.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the answers, the ledger deletes no Ready Node, no Node after only one ABSENT, and
    /// no Node beyond the limit.
    #[test]
    fn l6_no_sequence_of_answers_deletes_what_must_stay(
        size in 1_usize..40,
        moody in prop::collection::vec((0_u8..100, 0_u8..100, any::<u64>()), 1..400),
    ) {
        let mut driver = Driver::new();
        let mut alive: Vec<usize> = (0..size).collect();
        let mut in_row = vec![0_u32; size];
        let mut deleted: Vec<Instant> = Vec::new();
        for (down, absent, seed) in moody {
            let dice = |i: usize, salt: u64| {
                let mut x = seed ^ (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt.wrapping_mul(0xBF58_476D_1CE4_E5B9);
                x ^= x >> 30;
                x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
                (x >> 33) % 100
            };
            let nodes: Vec<Arc<Node>> = alive
                .iter()
                .map(|&i| node(&format!("n-{i:03}"), Some(if dice(i, 1) < u64::from(down) { "Unknown" } else { "True" })))
                .collect();
            let index = |node: &Node| name(node)[2..].parse::<usize>().unwrap();
            let answer = |node: &Node| {
                let roll = dice(index(node), 2);
                Some(if roll < u64::from(absent) { Ok(Absent) } else if roll < 98 { Ok(Running) } else { Err(trouble()) })
            };
            let pass = driver.pass_with(&nodes, &nodes, answer);
            for node in &nodes {
                let counts = !is_ready(node) && answer(node) == Some(Ok(Absent)) && pass.void.is_none();
                let row = &mut in_row[index(node)];
                *row = if counts { *row + 1 } else { 0 };
            }
            for node in &pass.delete {
                prop_assert!(!is_ready(node));
                prop_assert!(in_row[index(node)] >= 2);
                alive.retain(|&i| i != index(node));
                deleted.push(driver.now);
            }
            let recent = deleted.iter().filter(|when| driver.now.duration_since(**when) < Duration::from_mins(10)).count();
            let before = alive.len() + recent;
            prop_assert!(recent <= (before / 10).max(2));
            prop_assert!(recent * 2 < before || recent <= 1);
        }
    }
}
