//! The result of a run.

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

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// The provider's name and version.
    pub provider: String,
    /// Each check that ran or was skipped, in order.
    pub entries: Vec<Entry>,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// The objects that the suite created and could not remove, and other failures of its clean-up.
    pub left: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// The result of one check.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its ID.
    pub id: &'static str,
    /// The rules that it tests.
    pub rules: &'static [&'static str],
    /// Its subject.
    pub title: &'static str,
    /// Its outcome.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// The outcome of one check.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// No tested rule is violated.
    Passed,
    /// A rule is violated.
    Failed(Failed),
    /// A rule with SHOULD is violated, which is no failure.
    Warned(Failed),
    /// The check could not run completely.
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

    /// How many found a violated SHOULD.
    pub fn warned(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Warned(_)))
    }

    /// How many were skipped because the provider or its cloud does not have their subject, or this
    /// machine cannot show it.
    pub fn not_offered(&self) -> usize {
        self.lacks(Lack::Capability)
    }

    /// How many were skipped because the suite lacks the setup. Their rules are not tested
    /// completely.
    pub fn not_set_up(&self) -> usize {
        self.lacks(Lack::Setup)
    }

    /// How many were not run because the provider did not answer.
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

    /// The report. As text, only the part after the lines of the checks.
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
