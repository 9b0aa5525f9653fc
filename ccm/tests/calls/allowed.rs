//! Where our controller may make more calls than upstream's, and why.

use crate::life::Row;

/// The bound of what a safety rule may cost.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Twice as many as upstream needs, or two where it needs none.
    Twice,
    /// More than a safety rule may cost: a fault of ours that is known, and at most so many calls. It has to shrink.
    Known(usize),
}

/// A situation in which more calls are allowed.
#[derive(Debug)]
pub struct Allowed {
    pub situation: &'static str,
    /// All clouds where none is named.
    pub clouds: &'static [&'static str],
    pub bound: Bound,
    /// The ID of docs/behaviour.md or of the contract.
    pub rule: &'static str,
    pub why: &'static str,
}

/// Reads of the Ready Nodes without whose answers an absence is not believed.
const WITNESSES: &str =
    "up to three Ready Nodes are asked about in each pass, not only where an instance is absent";

pub const ALLOWED: &[Allowed] = &[
    Allowed {
        situation: "a Node is not ready for ten seconds",
        clouds: &["annotated", "byid", "fake", "instancesv1"],
        bound: Bound::Known(24),
        rule: "▲L6",
        why: WITNESSES,
    },
    Allowed {
        situation: "power off for 20 s",
        clouds: &["annotated", "byid", "fake", "instancesv1"],
        bound: Bound::Known(40),
        rule: "▲L6",
        why: WITNESSES,
    },
    Allowed {
        situation: "an instance is gone, until its Node is",
        clouds: &[],
        bound: Bound::Known(28),
        rule: "▲L6",
        why: WITNESSES,
    },
    Allowed {
        situation: "429 for half a minute",
        clouds: &[],
        bound: Bound::Twice,
        rule: "B-S9",
        why: "both back off, with different chance",
    },
    Allowed {
        situation: "503 for half a minute",
        clouds: &[],
        bound: Bound::Twice,
        rule: "B-S9",
        why: "both back off, with different chance",
    },
    Allowed {
        situation: "401 for half a minute",
        clouds: &[],
        bound: Bound::Twice,
        rule: "▲M10",
        why: "one call tries again within 30 s",
    },
    Allowed {
        situation: "three Nodes join",
        clouds: &["fake", "lister"],
        bound: Bound::Twice,
        rule: "▲R6",
        why: "routes are listed once more after they were made",
    },
];

/// What is allowed to this cloud in this situation.
pub fn of(cloud: &str, situation: &str) -> Option<&'static Allowed> {
    ALLOWED.iter().find(|it| {
        it.situation == situation && (it.clouds.is_empty() || it.clouds.contains(&cloud))
    })
}

/// What is wrong with a row: more calls than upstream's, and not allowed.
pub fn wrong(cloud: &str, row: &Row) -> Option<String> {
    let (upstream, ours) = row.totals();
    let allowed = of(cloud, row.situation);
    let most = match allowed.map(|it| it.bound) {
        None => upstream,
        Some(Bound::Twice) => (2 * upstream).max(2),
        Some(Bound::Known(most)) => most.max(upstream),
    };
    (ours > most).then(|| {
        format!(
            "{cloud}, {}: upstream {:?}, ours {:?}, at most {most}: {allowed:?}",
            row.situation, row.upstream, row.ours
        )
    })
}
