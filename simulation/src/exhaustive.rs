//! Single faults and pairs of faults, in the life of one Service and of one Node. At a site with
//! many requests, only the first ones get faults. Pairs have only some kinds of refusals.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use crate::parallel::each;
use crate::plan::{Life, Plan, Strike, counts_in_pairs};
use crate::run::judge;

/// The results of all runs of one life.
#[derive(Debug, Default)]
pub struct Played {
    /// The number of runs with one fault, and with two.
    pub runs: (u64, u64),
    /// The plans that failed, with their first violations.
    pub failed: Vec<(Plan, String)>,
}

/// The faults to play in this life.
pub struct Faults {
    life: Life,
    /// Each single fault, then the pairs.
    sets: Vec<Vec<Strike>>,
    one: u64,
}

impl Faults {
    /// Plays the single faults to find those that occur, and makes the pairs of those that
    /// [`counts_in_pairs`] accepts.
    pub fn of(life: Life) -> anyhow::Result<Self> {
        let counts = judge(&life.plan())?.counts;
        let singles = occurring(life, &life.singles(&counts))?;
        let mut sets: Vec<Vec<Strike>> = singles.iter().map(|one| vec![one.clone()]).collect();
        let one = sets.len() as u64;
        let some: Vec<&Strike> = singles.iter().filter(|one| counts_in_pairs(one)).collect();
        for (at, first) in some.iter().enumerate() {
            let others = some[at + 1..].iter();
            let others =
                others.filter(|second| second.site != first.site || second.number != first.number);
            sets.extend(others.map(|second| vec![(*first).clone(), (*second).clone()]));
        }
        Ok(Self { life, sets, one })
    }

    /// The number of runs.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.sets.len() as u64
    }
}

/// The faults that occur. A request before the faults begin, or after they end, has none.
fn occurring(life: Life, singles: &[Strike]) -> anyhow::Result<Vec<Strike>> {
    let occur = Mutex::new(BTreeSet::new());
    each(0..singles.len() as u64, |number| {
        let Some(strike) = usize::try_from(number).ok().and_then(|at| singles.get(at)) else {
            return Ok(false);
        };
        let plan = life.with(std::slice::from_ref(strike));
        if !judge(&plan)?.hit.is_empty() {
            let mut occur = occur.lock().unwrap_or_else(PoisonError::into_inner);
            occur.insert(number);
        }
        Ok(true)
    })?;
    let occur = occur.into_inner().unwrap_or_else(PoisonError::into_inner);
    let numbered = (0..).zip(singles);
    Ok(numbered
        .filter(|(number, _)| occur.contains(number))
        .map(|(_, strike)| strike.clone())
        .collect())
}

/// Plays these faults. Calls `done` after each run.
pub fn play(faults: &Faults, done: impl Fn(bool) + Sync) -> anyhow::Result<Played> {
    let (life, sets, one, all) = (faults.life, &faults.sets, faults.one, faults.runs());
    let failed = Mutex::new(BTreeMap::new());
    each(0..all, |number| {
        let Ok(at) = usize::try_from(number) else {
            return Ok(false);
        };
        let plan = life.with(&sets[at]);
        let first = judge(&plan)?.violations.into_iter().next();
        done(first.is_none());
        if let Some(first) = first {
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.insert(number, (plan, first));
        }
        Ok(true)
    })?;
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Played {
        runs: (one, all - one),
        failed: failed.into_values().collect(),
    })
}
