//! Plans that failed once, in files with their violations.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ccm::planted::{Bug, plant};
use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::run::judge;

/// A plan that failed once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Regression {
    /// The violations, or the bug that caused them. `A3` and the like are the numbers of bugs that
    /// a review found.
    pub shows: String,
    /// The planted bug with which the plan fails again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bug: Option<String>,
    /// The shortest plan that failed.
    pub plan: Plan,
}

impl Regression {
    /// Reads the plan in this file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let read: Self = serde_json::from_str(text)?;
        read.bug()?;
        Ok(read)
    }

    /// The text of the file, with one step or fault a line.
    pub fn text(&self) -> anyhow::Result<String> {
        let Plan {
            seed,
            setup,
            steps,
            strikes,
        } = &self.plan;
        let mut fields = vec![format!("{{\n\"shows\": {}", json(&self.shows)?)];
        if let Some(bug) = &self.bug {
            fields.push(format!("\"bug\": {}", json(bug)?));
        }
        fields.push(format!("\"plan\": {{\n\"seed\": {seed}"));
        fields.push(format!("\"setup\": {}", json(setup)?));
        fields.push(format!("\"steps\": {}", list(steps)?));
        fields.push(format!("\"strikes\": {}\n}}\n}}\n", list(strikes)?));
        Ok(fields.join(",\n"))
    }

    fn bug(&self) -> anyhow::Result<Option<Bug>> {
        self.bug.as_deref().map(named).transpose()
    }

    /// The errors: the plan fails without a planted bug, or succeeds with the one that should make
    /// it fail.
    pub fn check(&self) -> anyhow::Result<Vec<String>> {
        let mut wrong = judge(&self.plan)?.violations;
        if let Some(bug) = self.bug()? {
            plant(Some(bug));
            let report = judge(&self.plan);
            plant(None);
            if report?.violations.is_empty() {
                wrong.push(format!("the plan does not show the planted bug {bug:?}"));
            }
        }
        Ok(wrong)
    }
}

/// The bug with this name.
pub fn named(name: &str) -> anyhow::Result<Bug> {
    let mut all = Bug::ALL.iter().copied();
    all.find(|bug| format!("{bug:?}") == name)
        .with_context(|| format!("bug {name:?}: no bug has this name, see ccm/src/planted.rs"))
}

/// The JSON files of this directory, in the order of their names.
pub fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    Ok(files)
}

fn json(value: &(impl Serialize + ?Sized)) -> anyhow::Result<String> {
    Ok(serde_json::to_string(value)?)
}

fn list(all: &[impl Serialize]) -> anyhow::Result<String> {
    let lines: Vec<String> = all.iter().map(json).collect::<Result<_, _>>()?;
    Ok(match lines.as_slice() {
        [] => "[]".to_owned(),
        lines => format!("[\n{}\n]", lines.join(",\n")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() -> anyhow::Result<()> {
        for seed in 1..50 {
            let one = Regression {
                shows: "\"it\"".to_owned(),
                bug: (seed % 2 == 0).then(|| format!("{:?}", Bug::ALL[0])),
                plan: Plan::of(seed),
            };
            assert_eq!(Regression::parse(&one.text()?)?, one);
        }
        Ok(())
    }

    #[test]
    fn a_bug_that_is_not_there_is_named() {
        let error = named("NoSuchBug").unwrap_err().to_string();
        assert!(error.contains("\"NoSuchBug\""), "{error}");
    }
}
