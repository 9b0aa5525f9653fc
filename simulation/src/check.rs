//! The checks of `simulate --check`, which `make seeds` runs besides its 2,000 seeds. Each function
//! returns what is wrong.

use std::path::{Path, PathBuf};

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
        match self {
            Self::Kept => plans(),
            Self::Planted => bugs(),
            Self::Twice => twice(),
        }
    }
}

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn kept() -> anyhow::Result<Vec<(PathBuf, Regression)>> {
    let directory = Path::new(HERE).join("regressions");
    let files = files(&directory)?;
    anyhow::ensure!(!files.is_empty(), "{} is empty", directory.display());
    let read = |file: PathBuf| Regression::read(&file).map(|one| (file, one));
    files.into_iter().map(read).collect()
}

fn plans() -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (file, one) in kept()? {
        let errors = one.check()?.into_iter();
        wrong.extend(errors.map(|error| format!("{}: {error}", file.display())));
    }
    Ok(wrong)
}

fn bugs() -> anyhow::Result<Vec<String>> {
    let document = Path::new(HERE).join("../docs/simulation.md");
    let read = std::fs::read_to_string(&document);
    let document = read.with_context(|| document.display().to_string())?;
    let kept = kept()?;
    let mut wrong = Vec::new();
    for bug in Bug::ALL {
        let name = format!("{bug:?}");
        if let Some(seed) = seed_of(&document, *bug) {
            let looked = look(&[*bug], seed..seed + 1, |_, _, _| {})?;
            if looked.iter().all(|one| one.found.is_none()) {
                wrong.push(format!("{name}: seed {seed} does not show it"));
            }
        } else if kept.iter().all(|(_, one)| one.bug.as_ref() != Some(&name)) {
            wrong.push(format!("{name}: no seed and no kept plan shows it"));
        }
    }
    Ok(wrong)
}

fn twice() -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for seed in 1..=20 {
        let (one, two) = (run(&Plan::of(seed))?, run(&Plan::of(seed))?);
        let mut lines = one.lines.iter().zip(&two.lines);
        let differ = lines.find(|(one, two)| one != two);
        if differ.is_some() || one.digest != two.digest {
            wrong.push(format!(
                "seed {seed}: the first lines that differ: {differ:?}"
            ));
        }
    }
    Ok(wrong)
}
