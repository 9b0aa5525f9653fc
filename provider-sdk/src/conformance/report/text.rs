//! For people.

use std::fmt::Write as _;

use super::{Entry, Outcome, Report};

/// One check; a failure with what was sent, expected and came.
pub(crate) fn entry(entry: &Entry) -> String {
    let id = entry.id;
    match &entry.outcome {
        Outcome::Passed => format!("pass  {id} ({} ms)", entry.took.as_millis()),
        Outcome::Skipped(skipped) => format!("skip  {id}: {}", skipped.reason),
        Outcome::Failed(failed) | Outcome::Warned(failed) => {
            let word = if matches!(entry.outcome, Outcome::Failed(_)) {
                "FAIL"
            } else {
                "warn"
            };
            let indent = |text: &str| text.replace('\n', "\n                ");
            format!(
                "{word}  {id}: {}\n      sent      {}\n      expected  {} ({})\n      came      {}",
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
        "\n{}: {} passed, {} failed, {} with a warning, {} skipped because the provider does not offer them, {} skipped because the suite was not told how; {:.1} s\n",
        report.provider,
        report.passed(),
        report.failed(),
        report.warned(),
        report.not_offered(),
        report.not_set_up(),
        report.took.as_secs_f64(),
    );
    for entry in &report.entries {
        match &entry.outcome {
            Outcome::Failed(failed) => {
                let _ = writeln!(text, "failed: {} ({})", entry.id, failed.rule);
            }
            Outcome::Warned(failed) => {
                let _ = writeln!(text, "warning: {} ({})", entry.id, failed.rule);
            }
            Outcome::Passed | Outcome::Skipped(_) => {}
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
