//! For people.

use std::fmt::Write as _;

use super::{Entry, Outcome, Report};

/// One check; a failure with what was sent, expected and came.
pub(crate) fn entry(entry: &Entry) -> String {
    let id = entry.id;
    match &entry.outcome {
        Outcome::Passed => format!("pass  {id} ({} ms)", entry.took.as_millis()),
        Outcome::Skipped(skipped) => format!("skip  {id}: {}", skipped.reason),
        Outcome::Failed(failed) => {
            let indent = |text: &str| text.replace('\n', "\n                ");
            format!(
                "FAIL  {id}: {}\n      sent      {}\n      expected  {} ({})\n      came      {}",
                entry.title,
                indent(&failed.sent),
                indent(&failed.expected),
                failed.rule,
                indent(&failed.came),
            )
        }
    }
}

/// What stands below the checks.
pub(super) fn summary(report: &Report) -> String {
    let mut text = format!(
        "\n{}: {} passed, {} failed, {} skipped because the provider does not offer them, {} skipped because the suite was not told how; {:.1} s\n",
        report.provider,
        report.passed(),
        report.failed(),
        report.not_offered(),
        report.not_set_up(),
        report.took.as_secs_f64(),
    );
    for entry in &report.entries {
        if let Outcome::Failed(failed) = &entry.outcome {
            let _ = writeln!(text, "failed: {} ({})", entry.id, failed.rule);
        }
    }
    if report.interrupted {
        text.push_str("interrupted: the other checks did not run\n");
    }
    for left in &report.left {
        let _ = writeln!(text, "left behind, to be removed by hand: {left}");
    }
    text
}
