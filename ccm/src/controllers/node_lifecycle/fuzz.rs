//! The provider gives arbitrary answers about the Nodes. In about half of the passes it recognises
//! each Ready Node. The ccm deletes no Ready Node, and no more of the other Nodes than the brake
//! allows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Arbitrary as _, Unstructured};
use cloud_provider_api::v1alpha1 as api;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::brake::Brake;
use super::evidence::Answer;
use super::plan::{Findings, Ledger, WITNESSES};
use crate::args::BrakeConfig;
use crate::core::is_ready;
use crate::provider::{CallError, CallErrorCode};

const PERIOD: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_mins(10);
const MOST_NODES: usize = 30;
const MOST_PASSES: usize = 200;

fn node(index: usize, ready: bool) -> Arc<Node> {
    let mut node = Node::default();
    node.metadata.name = Some(format!("n-{index:02}"));
    node.metadata.uid = Some(format!("uid-{index}"));
    node.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    node.spec.get_or_insert_default().provider_id = Some(format!("mock://{index}"));
    let status = if ready { "True" } else { "Unknown" };
    node.status.get_or_insert_default().conditions = Some(vec![NodeCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        ..NodeCondition::default()
    }]);
    Arc::new(node)
}

fn index(node: &Node) -> usize {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    name.trim_start_matches("n-").parse().expect("its number")
}

fn uid(node: &Node) -> &str {
    node.metadata.uid.as_deref().unwrap_or_default()
}

/// Runs passes over one cluster: as many as the input suffices for, and at most [`MOST_PASSES`].
pub(crate) fn brake(input: &[u8]) {
    // A paused clock.
    crate::fuzz::runtime().block_on(async {
        let _ = passes(&mut Unstructured::new(input));
    });
}

fn answer(
    input: &mut Unstructured<'_>,
) -> arbitrary::Result<Option<Result<api::Instance, CallError>>> {
    use api::InstanceState as S;
    let state = match input.int_in_range(0..=9)? {
        0..=4 => S::Absent,
        5 => S::Running,
        6 => S::Stopped,
        7 => S::Unmanaged,
        8 => return Ok(Some(Err(CallError::new(CallErrorCode::Internal, "no")))),
        _ => return Ok(None),
    };
    Ok(Some(Ok(api::Instance {
        state: state.into(),
        ..Default::default()
    })))
}

fn passes(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let config = BrakeConfig::default();
    let mut brake = Brake::new(config);
    let mut ledger = Ledger::new(config.min_age, PERIOD, Duration::from_mins(1));
    let mut now = Instant::now();
    let mut alive: BTreeSet<usize> = (0..input.int_in_range(1..=MOST_NODES)?).collect();
    let mut in_row = [0_u32; MOST_NODES];
    let mut deleted: Vec<Instant> = Vec::new();
    // The Nodes that are not Ready, as bits. They change seldom, so that absences last.
    let mut down = 0_u64;
    for _ in 0..MOST_PASSES {
        if input.is_empty() {
            break;
        }
        if input.ratio(1, 6)? {
            down = u64::arbitrary(input)?;
        }
        let honest = input.ratio(1, 2)?;
        now += PERIOD * input.int_in_range(1..=13)?;
        let ready = |index: usize| down & (1 << index) == 0;
        let nodes: Vec<_> = alive
            .iter()
            .map(|&index| node(index, ready(index)))
            .collect();
        for node in &nodes {
            ledger.hurry(node, now);
        }
        let questions = ledger.questions(&mut brake, &nodes, |_| false, now);
        let mut asked = [questions.suspects, questions.absent].concat();
        let busy = |other: &str| asked.iter().any(|node| uid(node) == other);
        let witnesses = ledger.witnesses(&nodes, WITNESSES, busy);
        asked.extend(witnesses);
        let mut answers = Vec::new();
        for node in asked {
            let found = if honest && is_ready(&node) {
                Some(Ok(api::Instance {
                    state: api::InstanceState::Running.into(),
                    ..Default::default()
                }))
            } else {
                answer(input)?
            };
            if let Some(found) = found {
                answers.push(Answer {
                    node,
                    began: now,
                    at: now,
                    found,
                });
            }
        }
        let findings = Findings {
            answers: &answers,
            nodes: &nodes,
            may_delete: true,
            power_state: true,
            deadline: Duration::from_mins(1),
            start: now,
            now,
            wall: Timestamp::from_second(1_000_000).expect("a time"),
        };
        let pass = ledger.pass(&mut brake, &findings);
        for node in &nodes {
            let said = answers.iter().find(|answer| uid(&answer.node) == uid(node));
            let absent = said.is_some_and(|answer| {
                let found = answer.found.as_ref();
                found.is_ok_and(|it| it.state() == api::InstanceState::Absent)
            });
            let row = &mut in_row[index(node)];
            if absent && !is_ready(node) && pass.void.is_none() {
                *row += 1;
            } else if is_ready(node) || said.is_some() {
                *row = 0;
            }
        }
        for node in &pass.delete {
            assert!(!is_ready(node), "a Ready Node goes");
            let row = in_row[index(node)];
            assert!(
                row >= 2,
                "a Node goes after {row} ABSENT answers in valid passes"
            );
            alive.remove(&index(node));
            deleted.push(now);
        }
        let recent = deleted
            .iter()
            .filter(|at| now.duration_since(**at) < WINDOW)
            .count();
        let all = alive.len() + recent;
        assert!(recent <= (all / 10).max(2), "{recent} of {all} in a window");
        assert!(
            recent * 2 < all || recent <= 1,
            "{recent} of {all}: half or more"
        );
        assert!(!alive.is_empty(), "the last Node goes");
    }
    Ok(())
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    crate::fuzz::noise(2_000)
}
