//! What `make seeds` checks beside new seeds. Each function returns what is wrong.

use std::path::Path;

use anyhow::Context as _;
use ccm::planted::Bug;

use crate::plan::Plan;
use crate::planted::{look, seed_of};
use crate::regression::{Regression, files};
use crate::run::run;

/// A check of `simulate --check`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Check {
    /// Each kept plan passes, and fails with its planted bug if it names one.
    Kept,
    /// Each planted bug is found by the seed that docs/simulation.md names, or by a kept plan.
    Planted,
    /// The seeds 1 to 20 have the same trace when each is played twice.
    Twice,
}

impl Check {
    /// Runs this check.
    pub fn run(self) -> anyhow::Result<Vec<String>> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let kept = files(&here.join("regressions"))?;
        let kept = kept.iter().map(|file| Regression::read(file));
        let kept: Vec<Regression> = kept.collect::<Result<_, _>>()?;
        anyhow::ensure!(!kept.is_empty(), "simulation/regressions is empty");
        match self {
            Self::Kept => plans(&kept),
            Self::Planted => {
                let document = here.join("../docs/simulation.md");
                let read = std::fs::read_to_string(&document);
                bugs(
                    &read.with_context(|| document.display().to_string())?,
                    &kept,
                )
            }
            Self::Twice => twice(),
        }
    }
}

fn plans(kept: &[Regression]) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for one in kept {
        let errors = one.check()?.into_iter();
        wrong.extend(errors.map(|error| format!("the plan that shows {:?}: {error}", one.shows)));
    }
    Ok(wrong)
}

fn bugs(document: &str, kept: &[Regression]) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for bug in Bug::ALL {
        let name = format!("{bug:?}");
        if let Some(seed) = seed_of(document, *bug) {
            let looked = look(&[*bug], seed..seed + 1, |_, _, _| {})?;
            if looked.iter().all(|one| one.found.is_none()) {
                wrong.push(format!("{name}: seed {seed} does not show it"));
            }
        } else if kept.iter().all(|one| one.bug.as_ref() != Some(&name)) {
            wrong.push(format!("{name}: no seed and no kept plan shows it"));
        }
    }
    Ok(wrong)
}

fn twice() -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for seed in 1..=20 {
        let (one, two) = (run(&Plan::of(seed))?, run(&Plan::of(seed))?);
        if one.digest != two.digest {
            let mut lines = one.lines.iter().zip(&two.lines);
            let differ = lines.find(|(one, two)| one != two);
            wrong.push(format!(
                "seed {seed}: the first lines that differ: {differ:?}"
            ));
        }
    }
    Ok(wrong)
}
