//! Single faults and pairs of faults, in the life of one Service and of one Node. At a site with
//! many requests, only the first ones get faults. Pairs have only some kinds of refusals.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::parallel::each;
use crate::plan::{Life, Plan, Strike, counts_in_pairs};
use crate::run::judge;

/// The results of all runs of one life.
#[derive(Debug, Default)]
pub struct Played {
    /// The number of runs in which one fault occurred, and two.
    pub runs: (u64, u64),
    /// The plans that failed, with their first violations.
    pub failed: Vec<(Plan, String)>,
}

/// The faults to play in this life.
pub struct Faults {
    life: Life,
    /// The number of single faults that occur. [`Faults::of`] plays them.
    one: u64,
    /// The plans with one fault that failed, with their first violations.
    failed: Vec<(Plan, String)>,
    pairs: Vec<Vec<Strike>>,
}

impl Faults {
    /// Plays the single faults. Makes the pairs of those that occur and that [`counts_in_pairs`]
    /// accepts. A request before the faults begin, or after they end, has no fault.
    pub fn of(life: Life) -> anyhow::Result<Self> {
        let counts = judge(&life.plan())?.counts;
        let singles = life.singles(&counts).into_iter();
        let singles: Vec<Vec<Strike>> = singles.map(|one| vec![one]).collect();
        let outcomes = outcomes(life, &singles, |_| {})?;
        let occur = singles.iter().zip(&outcomes);
        let occur = occur.filter(|(_, outcome)| outcome.occurs);
        let occur: Vec<&Strike> = occur.flat_map(|(single, _)| single).collect();
        let some = occur.iter().filter(|one| counts_in_pairs(one));
        let some: Vec<&Strike> = some.copied().collect();
        let mut pairs = Vec::new();
        for (at, first) in some.iter().enumerate() {
            let others = some[at + 1..].iter();
            let others =
                others.filter(|second| second.site != first.site || second.number != first.number);
            pairs.extend(others.map(|second| vec![(*first).clone(), (*second).clone()]));
        }
        Ok(Self {
            life,
            one: occur.len() as u64,
            failed: failed(life, &singles, outcomes),
            pairs,
        })
    }

    /// The number of pairs.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        self.pairs.len() as u64
    }
}

/// Plays the pairs. Calls `done` after each run. The result includes the single faults.
pub fn play(faults: &Faults, done: impl Fn(bool) + Sync) -> anyhow::Result<Played> {
    let outcomes = outcomes(faults.life, &faults.pairs, done)?;
    let two = outcomes.iter().filter(|outcome| outcome.occurs).count();
    let mut all = faults.failed.clone();
    all.extend(failed(faults.life, &faults.pairs, outcomes));
    Ok(Played {
        runs: (faults.one, two as u64),
        failed: all,
    })
}

/// The outcome of one run.
struct Outcome {
    /// Whether all faults of the plan occurred.
    occurs: bool,
    /// The first violation.
    violation: Option<String>,
}

/// Plays the life with each of these sets of faults. Calls `done` after each run. The outcomes have
/// the order of the sets.
fn outcomes(
    life: Life,
    sets: &[Vec<Strike>],
    done: impl Fn(bool) + Sync,
) -> anyhow::Result<Vec<Outcome>> {
    let all = Mutex::new(BTreeMap::new());
    each(0..sets.len() as u64, |number| {
        let Some(set) = usize::try_from(number).ok().and_then(|at| sets.get(at)) else {
            return Ok(false);
        };
        let report = judge(&life.with(set))?;
        let outcome = Outcome {
            occurs: report.hit.values().sum::<u64>() >= set.len() as u64,
            violation: report.violations.into_iter().next(),
        };
        done(outcome.violation.is_none());
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(number, outcome);
        Ok(true)
    })?;
    let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(all.into_values().collect())
}

/// The plans that failed, with their first violations.
fn failed(life: Life, sets: &[Vec<Strike>], outcomes: Vec<Outcome>) -> Vec<(Plan, String)> {
    let played = sets.iter().zip(outcomes);
    let failed = played.filter_map(|(set, outcome)| Some((set, outcome.violation?)));
    failed.map(|(set, first)| (life.with(set), first)).collect()
}
