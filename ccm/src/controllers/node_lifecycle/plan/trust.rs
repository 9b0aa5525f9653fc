//! Whether the ccm can trust the answers of a pass, and why a pass is void. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::InstanceState::{Absent, Present, Running, Stopped};
use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::super::ask::Answer;
use super::Findings;
use super::nodes::{is_witness, name, provider_id, uid};
use crate::core::is_ready;
use crate::provider::CallErrorCode;

/// An ABSENT to an older question does not count. The calls about a batch, a part of it, and a
/// witness may each take a minute.
pub(super) const OLDEST_ANSWER: Duration = Duration::from_mins(3);

/// Whether this is an ABSENT that needs a witness.
pub(in super::super) fn is_claim(answer: &Answer) -> bool {
    answer.state() == Absent && !is_ready(&answer.node)
}

/// Whether the ccm asked the question too long ago.
pub(in super::super) fn is_too_old(claim: &Answer, now: Instant) -> bool {
    now.saturating_duration_since(claim.began) > OLDEST_ANSWER
}

/// Whether one of these answers vouches for an ABSENT: it came no earlier, and is about a Ready
/// Node. If no Node is Ready, any Node will do.
pub(in super::super) fn is_vouched(
    claim: &Answer,
    answers: &[Answer],
    nodes: &[Arc<Node>],
) -> bool {
    let none_ready = is_none_ready(nodes);
    answers.iter().any(|answer| {
        let vouches = if none_ready {
            is_recognised(answer.state())
        } else {
            vouches_as_ready(answer)
        };
        vouches && answer.at >= claim.at
    })
}

/// Whether no Node is Ready: then the others vouch for each other.
pub(in super::super) fn is_none_ready(nodes: &[Arc<Node>]) -> bool {
    !nodes.iter().any(|node| is_witness(node))
}

pub(super) fn vouches_as_ready(answer: &Answer) -> bool {
    is_ready(&answer.node) && is_recognised(answer.state())
}

pub(super) fn is_recognised(state: api::InstanceState) -> bool {
    matches!(state, Present | Running | Stopped)
}

/// Why the pass is void; `None` if it is valid.
pub(super) fn void(
    found: &Findings<'_>,
    relevant: &[&Answer],
    now_there: &BTreeMap<&str, &Arc<Node>>,
) -> Option<String> {
    let liar = found
        .answers
        .iter()
        .filter(|answer| answer.state() == Absent)
        .filter_map(|answer| now_there.get(uid(&answer.node)))
        .find(|node| is_ready(node));
    if let Some(node) = liar {
        let name = name(node);
        return Some(format!(
            "the provider reports that the instance of the Ready Node {name} is gone"
        ));
    }
    if let Some((name, id)) = mixed_up(found) {
        return Some(format!(
            "the provider's result for Node {name} names {id}, which is another Node's instance"
        ));
    }
    let mut claims = relevant.iter().filter(|answer| is_claim(answer));
    if !found.may_delete || claims.all(|claim| is_vouched(claim, found.answers, found.nodes)) {
        None
    } else if is_none_ready(found.nodes) {
        Some("no Node is Ready, and the provider recognises none of them".to_owned())
    } else {
        Some("the provider recognises none of the Ready Nodes in the lookups".to_owned())
    }
}

/// Why the pass learned nothing, if all answers are failures. Missed deadlines alone do not count:
/// one Node's lookup may hang.
pub(super) fn failed(answers: &[Answer]) -> Option<String> {
    if answers.iter().any(|answer| answer.found.is_ok()) {
        return None;
    }
    let mut failures = answers.iter().filter_map(|it| it.found.as_ref().err());
    let trouble = failures.find(|trouble| trouble.code != CallErrorCode::Deadline)?;
    Some(format!("no lookup succeeded: {trouble}"))
}

/// An answer about another Node's instance: the other answers may be mixed up too. An ID that no
/// Node has may be another spelling.
fn mixed_up<'a>(found: &'a Findings<'_>) -> Option<(&'a str, &'a str)> {
    let others = found.answers.iter().filter_map(|answer| {
        let instance = answer.found.as_ref().ok()?;
        let id = instance.provider_id.as_deref()?;
        (id != provider_id(&answer.node)).then_some((&answer.node, id))
    });
    let others: Vec<_> = others.collect();
    if others.is_empty() {
        return None;
    }
    let known: BTreeSet<&str> = found.nodes.iter().map(|node| provider_id(node)).collect();
    let mut others = others.into_iter();
    let (node, id) = others.find(|(_, id)| known.contains(id))?;
    Some((name(node), id))
}
