//! The situations in which the ccm may make more calls than upstream's CCM, and why.

use crate::life::Row;

/// A situation in which a rule may cost up to twice as many calls as upstream needs, or two if
/// upstream needs none.
#[derive(Debug)]
pub struct Allowed {
    pub situation: &'static str,
    /// If empty, all clouds.
    pub clouds: &'static [&'static str],
    /// The ID of docs/behaviour.md or of the contract.
    pub rule: &'static str,
    pub why: &'static str,
}

/// The reason for a cloud with `--get-before-update`.
const GET_BEFORE_UPDATE: &str = "this cloud's Update does not fail without a load balancer, so with `--get-before-update` the bridge reads it before each Update";

pub const ALLOWED: &[Allowed] = &[
    Allowed {
        situation: "an instance is gone, until its Node is deleted",
        clouds: &["annotated", "byid", "fake", "instancesv1"],
        rule: "▲L6",
        why: "the ccm deletes a Node after two answers, each with a Ready Node as its witness; upstream deletes it after one answer",
    },
    Allowed {
        situation: "an instance is gone, until its Node is deleted",
        clouds: &["careless"],
        rule: "LB-11",
        why: GET_BEFORE_UPDATE,
    },
    Allowed {
        situation: "a Node joins under two Services",
        clouds: &["careless"],
        rule: "LB-11",
        why: GET_BEFORE_UPDATE,
    },
];

/// The entry that allows this cloud more calls in this situation.
pub fn of(cloud: &str, situation: &str) -> Option<&'static Allowed> {
    ALLOWED.iter().find(|it| {
        it.situation == situation && (it.clouds.is_empty() || it.clouds.contains(&cloud))
    })
}

/// The error in a row: more calls than upstream's, or than its entry in [`ALLOWED`] permits.
pub fn wrong(cloud: &str, row: &Row) -> Option<String> {
    let (upstream, ours) = row.totals();
    let allowed = of(cloud, row.situation);
    let most = allowed.map_or(upstream, |_| (2 * upstream).max(2));
    (ours > most).then(|| {
        format!(
            "{cloud}, {}: upstream {:?}, ours {:?}, at most {most}: {allowed:?}",
            row.situation, row.upstream, row.ours
        )
    })
}
