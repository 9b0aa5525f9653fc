//! The text for people.

use std::fmt::Write as _;

use super::super::check::{Failed, Lack};
use super::super::rules;
use super::{Entry, Outcome, Report};

/// One check. A failure has the request, the expectation and the answer.
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
            let rule = rules::text(&failed.rule).map_or(String::new(), |text| {
                format!("\n      rule      {}: {text}", failed.rule)
            });
            format!(
                "{word}  {id}: {}\n      sent      {}\n      expected  {} ({})\n      received  {}{rule}",
                entry.title,
                indent(&failed.sent),
                indent(&failed.expected),
                failed.rule,
                indent(&failed.came),
            )
        }
    }
}

/// Whether a check has no line of its own without `--verbose`: the checks that are not offered or
/// not run get one line for each reason.
pub(crate) fn is_gathered(entry: &Entry) -> bool {
    matches!(&entry.outcome, Outcome::Skipped(skipped) if skipped.lack != Lack::Setup)
}

/// One line for all checks that were skipped for the same reason, in the order in which the reasons
/// first occur.
fn gathered(report: &Report) -> String {
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for entry in report.entries.iter().filter(|entry| is_gathered(entry)) {
        if let Outcome::Skipped(skipped) = &entry.outcome {
            match reasons.iter_mut().find(|(of, _)| *of == skipped.reason) {
                Some((_, count)) => *count += 1,
                None => reasons.push((&skipped.reason, 1)),
            }
        }
    }
    let mut text = String::new();
    for (reason, count) in reasons {
        let _ = writeln!(text, "skipped {count}: {reason}");
    }
    text
}

/// The text after the checks.
pub(super) fn summary(report: &Report, verbose: bool) -> String {
    let mut text = if verbose {
        String::new()
    } else {
        gathered(report)
    };
    let not_tried = match report.not_tried() {
        0 => String::new(),
        count => format!(", {count} skipped because the provider does not answer"),
    };
    let left = match report.left.len() {
        0 => String::new(),
        count => format!(", {count} left behind"),
    };
    let _ = write!(
        text,
        "\n{}: {} passed, {} failed, {} with a warning, {} skipped because the provider, its cloud or this machine lacks what they check, {} skipped because they lack their setup{not_tried}{left}; {:.1} s\n",
        report.provider,
        report.passed(),
        report.failed(),
        report.warned(),
        report.not_offered(),
        report.not_set_up(),
        report.took.as_secs_f64(),
    );
    let causes = causes(report);
    for (first, ids) in &causes {
        let (count, ids) = (ids.len(), ids.join(", "));
        let _ = writeln!(
            text,
            "{count} failures with the same cause: {}: {ids}",
            first.came
        );
    }
    for entry in &report.entries {
        match &entry.outcome {
            Outcome::Failed(failed) if is_one_of(&causes, failed) => {}
            Outcome::Failed(failed) => {
                let _ = writeln!(text, "failed: {}{}", entry.id, broken(&failed.rule));
            }
            Outcome::Warned(failed) => {
                let _ = writeln!(text, "warning: {}{}", entry.id, broken(&failed.rule));
            }
            Outcome::Passed | Outcome::Skipped(_) => {}
        }
    }
    if report.interrupted {
        text.push_str("interrupted: the other checks did not run\n");
    }
    for left in &report.left {
        let _ = writeln!(text, "left behind, remove by hand: {left}");
    }
    text
}

/// The causes of more than one failure, each with its first failure and the IDs of all its checks.
fn causes(report: &Report) -> Vec<(&Failed, Vec<&str>)> {
    let mut causes: Vec<(&Failed, Vec<&str>)> = Vec::new();
    for entry in &report.entries {
        let Outcome::Failed(failed) = &entry.outcome else {
            continue;
        };
        match causes.iter_mut().find(|(of, _)| of.cause == failed.cause) {
            Some((_, ids)) => ids.push(entry.id),
            None if failed.cause.is_some() => causes.push((failed, vec![entry.id])),
            None => {}
        }
    }
    causes.retain(|(_, ids)| ids.len() > 1);
    causes
}

fn is_one_of(causes: &[(&Failed, Vec<&str>)], failed: &Failed) -> bool {
    causes.iter().any(|(of, _)| of.cause == failed.cause)
}

/// The ID of the rule, and its text if there is one.
fn broken(rule: &str) -> String {
    match rules::text(rule) {
        Some(text) => format!(" ({rule}: {text})"),
        None => format!(" ({rule})"),
    }
}
