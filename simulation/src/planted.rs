//! Finds the seed that shows each planted bug, and writes the table of them.

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ccm::planted::{Bug, is_reached, plant};

use crate::parallel::each;
use crate::plan::Plan;
use crate::run::judge;

/// The result of the search for a bug.
#[derive(Debug)]
pub struct Looked {
    /// The bug.
    pub bug: Bug,
    /// The first seed that shows it, and the violation. Without the bug, this seed violates no
    /// invariant.
    pub found: Option<(u64, String)>,
}

/// Searches for these bugs with these seeds. Calls `found` when a seed shows a bug that no smaller
/// seed has shown so far.
pub fn look(
    bugs: &[Bug],
    seeds: Range<u64>,
    found: impl Fn(Bug, u64, &str) + Sync,
) -> anyhow::Result<Vec<Looked>> {
    let first: Vec<_> = bugs.iter().map(|_| Mutex::new(None)).collect();
    let is_open = |place: usize, seed: u64| {
        let first: &Option<(u64, String)> = &locked(&first[place]);
        first.as_ref().is_none_or(|(first, _)| seed < *first)
    };
    each(seeds, |seed| {
        let open = |place: &usize| is_open(*place, seed);
        if !(0..bugs.len()).any(|place| open(&place)) {
            return Ok(false);
        }
        let plan = Plan::of(seed);
        plant(None);
        if !judge(&plan)?.violations.is_empty() {
            return Ok(true);
        }
        // A run that does not reach the place of a bug proves nothing about it.
        let reached: Vec<usize> = (0..bugs.len())
            .filter(|place| is_reached(bugs[*place]))
            .collect();
        for place in reached.into_iter().filter(open) {
            plant(Some(bugs[place]));
            let report = judge(&plan);
            plant(None);
            let seen = report?.violations.into_iter().next();
            if let Some(seen) = seen.filter(|_| open(&place)) {
                found(bugs[place], seed, &seen);
                *locked(&first[place]) = Some((seed, seen));
            }
        }
        Ok(true)
    })?;
    let all = bugs.iter().zip(first);
    Ok(all
        .map(|(bug, first)| Looked {
            bug: *bug,
            found: first.into_inner().unwrap_or_else(PoisonError::into_inner),
        })
        .collect())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A row of the table. It begins with the bug's description.
fn row(Looked { bug, found }: &Looked, seeds: &Range<u64>) -> String {
    let (seed, seen) = match found {
        Some((seed, seen)) => (seed.to_string(), seen.replace('|', "\\|")),
        None => (
            format!("none of {}", seeds.end - seeds.start),
            String::new(),
        ),
    };
    format!("{} {seed} | {seen} |", head(*bug))
}

fn head(bug: Bug) -> String {
    let what = bug.what().trim_end_matches('.');
    format!("| {what} | {} |", bug.finding())
}

/// The table with these rows. All other rows stay.
fn table(before: &str, all: &[Looked], seeds: &Range<u64>) -> String {
    let rows = Bug::ALL.iter().map(|bug| {
        let looked = all.iter().find(|looked| looked.bug == *bug);
        let head = head(*bug);
        looked.map_or_else(
            || {
                let kept = before.lines().find(|line| line.starts_with(&head));
                kept.map_or_else(|| format!("{head} not looked for yet | |"), str::to_owned)
            },
            |looked| row(looked, seeds),
        )
    });
    let rows: Vec<String> = rows.collect();
    format!(
        "| bug | finding | found by seed | what is seen |\n|---|---|---|---|\n{}\n",
        rows.join("\n")
    )
}

/// The seed that shows this bug, as the table in the document says. `None`: the table has no seed.
#[must_use]
pub fn seed_of(document: &str, bug: Bug) -> Option<u64> {
    let head = head(bug);
    let row = document.lines().find_map(|line| line.strip_prefix(&head))?;
    row.split('|').next()?.trim().parse().ok()
}

const BEGIN: &str = "<!-- `make simulate PLANTED=1 UPDATE_DOCS=1` writes this -->\n";
const END: &str = "<!-- to here -->\n";

/// Puts these rows into the table of the document.
pub fn write(path: &Path, all: &[Looked], seeds: &Range<u64>) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (table, after) = rest.split_once(END)?;
        Some((before, table, after))
    });
    let Some((before, old, after)) = parts else {
        anyhow::bail!(
            "{}: no place for the table: write {BEGIN:?} and {END:?}",
            path.display()
        );
    };
    let table = table(old, all, seeds);
    std::fs::write(path, format!("{before}{BEGIN}\n{table}\n{END}{after}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_were_not_looked_for_stay() {
        let looked = |bug, found| Looked { bug, found };
        let (first, second) = (Bug::ALL[0], Bug::ALL[1]);
        let old = table("", &[looked(first, Some((3, "a|b".to_owned())))], &(1..5));
        let new = table(&old, &[looked(second, None)], &(1..5));
        let lines: Vec<&str> = new.lines().collect();
        assert_eq!(lines[2], format!("{} 3 | a\\|b |", head(first)));
        assert_eq!(lines[3], format!("{} none of 4 |  |", head(second)));
        assert_eq!(lines.len(), Bug::ALL.len() + 2);
        assert!(lines[4].ends_with("| not looked for yet | |"));
    }
}
