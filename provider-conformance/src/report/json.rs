//! One JSON object.

use serde::Serialize;

use super::super::check::Lack;
use super::super::rules;
use super::{Outcome, Report};

#[derive(Serialize)]
struct Document<'a> {
    provider: &'a str,
    passed: usize,
    failed: usize,
    warned: usize,
    skipped_not_offered: usize,
    skipped_not_set_up: usize,
    skipped_not_tried: usize,
    interrupted: bool,
    seconds: f64,
    left_behind: &'a [String],
    checks: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    title: &'a str,
    rules: &'a [&'a str],
    seconds: f64,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Failure<'a>>,
}

#[derive(Serialize)]
struct Failure<'a> {
    rule: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_text: Option<&'static str>,
    sent: &'a str,
    expected: &'a str,
    came: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'a str>,
}

pub(super) fn write(report: &Report) -> Result<String, String> {
    let checks = report.entries.iter().map(|entry| {
        let (outcome, reason, failure) = match &entry.outcome {
            Outcome::Passed => ("passed", None, None),
            Outcome::Failed(failed) | Outcome::Warned(failed) => (
                if matches!(entry.outcome, Outcome::Failed(_)) {
                    "failed"
                } else {
                    "warned"
                },
                None,
                Some(Failure {
                    rule: &failed.rule,
                    rule_text: rules::text(&failed.rule),
                    sent: &failed.sent,
                    expected: &failed.expected,
                    came: &failed.came,
                    cause: failed.cause.as_deref(),
                }),
            ),
            Outcome::Skipped(skipped) => (
                match skipped.lack {
                    Lack::Capability => "skipped_not_offered",
                    Lack::Setup => "skipped_not_set_up",
                    Lack::Answer => "skipped_not_tried",
                },
                Some(skipped.reason.as_str()),
                None,
            ),
        };
        Row {
            id: entry.id,
            title: entry.title,
            rules: entry.rules,
            seconds: entry.took.as_secs_f64(),
            outcome,
            reason,
            failure,
        }
    });
    let document = Document {
        provider: &report.provider,
        passed: report.passed(),
        failed: report.failed(),
        warned: report.warned(),
        skipped_not_offered: report.not_offered(),
        skipped_not_set_up: report.not_set_up(),
        skipped_not_tried: report.not_tried(),
        interrupted: report.interrupted,
        seconds: report.took.as_secs_f64(),
        left_behind: &report.left,
        checks: checks.collect(),
    };
    serde_json::to_string_pretty(&document).map_err(|error| error.to_string())
}
