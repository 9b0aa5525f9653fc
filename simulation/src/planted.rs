//! Which seed finds each bug that can be planted, and the table of that.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ccm::planted::{Bug, plant};

use crate::parallel::each;
use crate::plan::Plan;
use crate::run::judge;

/// A bug that was looked for.
#[derive(Debug)]
pub struct Looked {
    /// Which.
    pub bug: Bug,
    /// The first seed that shows it, and what it shows. Without the bug that seed holds.
    pub found: Option<(u64, String)>,
}

/// Looks for a bug with these seeds.
pub fn look(bug: Bug, seeds: Range<u64>) -> anyhow::Result<Looked> {
    let found = Mutex::new(BTreeMap::new());
    each(seeds, |seed| {
        let plan = Plan::of(seed);
        plant(Some(bug));
        let report = judge(&plan);
        plant(None);
        let Some(first) = report?.violations.into_iter().next() else {
            return Ok(true);
        };
        if !judge(&plan)?.violations.is_empty() {
            return Ok(true);
        }
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.insert(seed, first);
        Ok(false)
    })?;
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Looked {
        bug,
        found: found.into_iter().next(),
    })
}

/// The rows of the table.
#[must_use]
pub fn table(all: &[Looked], seeds: &Range<u64>) -> String {
    let mut text =
        String::from("| bug | finding | found by seed | what is seen |\n|---|---|---|---|\n");
    for Looked { bug, found } in all {
        let (seed, seen) = match found {
            Some((seed, seen)) => (seed.to_string(), seen.as_str()),
            None => (format!("none of {}", seeds.end - seeds.start), ""),
        };
        // A string takes whatever is written to it.
        let _ = writeln!(
            text,
            "| {} | {} | {seed} | {} |",
            bug.what().trim_end_matches('.'),
            bug.finding(),
            seen.replace('|', "\\|")
        );
    }
    text
}

const BEGIN: &str = "<!-- `make simulate PLANTED=1 UPDATE_DOCS=1` writes this -->\n";
const END: &str = "<!-- to here -->\n";

/// Puts the table into the document.
pub fn write(path: &Path, table: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let parts = text
        .split_once(BEGIN)
        .and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let Some((head, tail)) = parts else {
        anyhow::bail!(
            "{}: there is no place for the table: write {BEGIN:?} and {END:?}",
            path.display()
        );
    };
    std::fs::write(path, format!("{head}{BEGIN}\n{table}\n{END}{tail}"))?;
    Ok(())
}
