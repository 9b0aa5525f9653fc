//! What came of a run.

mod json;
mod junit;
mod text;

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;

use super::check::{Failed, Lack, Skipped};

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object.
    Json,
    /// JUnit's XML, which most CI systems read.
    Junit,
}

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// The provider's name and version.
    pub provider: String,
    /// Each check that ran or was skipped, in order.
    pub entries: Vec<Entry>,
    /// It was ended before its end.
    pub interrupted: bool,
    /// What the suite made and could not remove.
    pub left: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// What came of one check.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its ID.
    pub id: &'static str,
    /// The rules that it shows.
    pub rules: &'static [&'static str],
    /// What it shows.
    pub title: &'static str,
    /// What came of it.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// What came of one check.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The rules hold, as far as it shows.
    Passed,
    /// One does not.
    Failed(Failed),
    /// One that is a SHOULD does not: no failure.
    Warned(Failed),
    /// It could not be shown.
    Skipped(Skipped),
}

impl Report {
    pub(super) fn new(info: &pb::GetProviderInfoResponse) -> Self {
        Self {
            provider: format!("{} {}", info.provider_name, info.provider_version),
            entries: Vec::new(),
            interrupted: false,
            left: Vec::new(),
            took: Duration::ZERO,
        }
    }

    /// How many passed.
    pub fn passed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Passed))
    }

    /// How many failed.
    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// How many found that the provider does not do what it SHOULD.
    pub fn warned(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Warned(_)))
    }

    /// How many were skipped because the provider does not offer what they are about.
    pub fn not_offered(&self) -> usize {
        self.lacks(Lack::Capability)
    }

    /// How many were skipped because the suite was not told how: these are not shown.
    pub fn not_set_up(&self) -> usize {
        self.lacks(Lack::Setup)
    }

    /// How many were not tried since the provider did not answer.
    pub fn not_tried(&self) -> usize {
        self.lacks(Lack::Answer)
    }

    fn lacks(&self, lack: Lack) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Skipped(skipped) if skipped.lack == lack))
    }

    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.entries
            .iter()
            .filter(|entry| is(&entry.outcome))
            .count()
    }

    /// The report; of the text only what follows the checks, which were written as they ended.
    pub(super) fn write(&self, format: Format, verbose: bool) -> Result<String, String> {
        match format {
            Format::Text => Ok(text::summary(self, verbose)),
            Format::Json => json::write(self),
            Format::Junit => junit::write(self),
        }
    }
}

pub(super) use text::{entry as text_of, is_gathered};

#[cfg(test)]
pub(super) mod tests;
