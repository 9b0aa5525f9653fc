//! JUnit's XML: a `testsuite` for each group of consecutive checks of one service, and one for what
//! was left behind.

use std::io;

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::super::check::Failed;
use super::super::rules;
use super::{Entry, Outcome, Report};

pub(super) fn write(report: &Report) -> Result<String, String> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    document(&mut writer, report).map_err(|error| error.to_string())?;
    String::from_utf8(writer.into_inner()).map_err(|error| error.to_string())
}

fn document(writer: &mut Writer<Vec<u8>>, report: &Report) -> io::Result<()> {
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let skipped = report.not_offered() + report.not_set_up() + report.not_tried();
    let left = report.left.len();
    writer
        .create_element("testsuites")
        .with_attribute(("name", report.provider.as_str()))
        .with_attribute(("tests", (report.entries.len() + left).to_string().as_str()))
        .with_attribute(("failures", (report.failed() + left).to_string().as_str()))
        .with_attribute(("skipped", skipped.to_string().as_str()))
        .with_attribute(("time", format!("{:.3}", report.took.as_secs_f64()).as_str()))
        .write_inner_content(|writer| {
            let suites = report
                .entries
                .chunk_by(|one, next| service(one) == service(next));
            for entries in suites {
                let count = |is: fn(&Outcome) -> bool| {
                    entries
                        .iter()
                        .filter(|entry| is(&entry.outcome))
                        .count()
                        .to_string()
                };
                writer
                    .create_element("testsuite")
                    .with_attribute(("name", entries.first().map_or("", service)))
                    .with_attribute(("tests", entries.len().to_string().as_str()))
                    .with_attribute((
                        "failures",
                        count(|of| matches!(of, Outcome::Failed(_))).as_str(),
                    ))
                    .with_attribute((
                        "skipped",
                        count(|of| matches!(of, Outcome::Skipped(_))).as_str(),
                    ))
                    .write_inner_content(|writer| {
                        entries.iter().try_for_each(|entry| case(writer, entry))
                    })?;
            }
            if left > 0 {
                clean_up(writer, report)?;
            }
            Ok(())
        })?;
    Ok(())
}

/// A failure for each entry of `Report::left`.
fn clean_up(writer: &mut Writer<Vec<u8>>, report: &Report) -> io::Result<()> {
    let count = report.left.len().to_string();
    writer
        .create_element("testsuite")
        .with_attribute(("name", "clean-up"))
        .with_attribute(("tests", count.as_str()))
        .with_attribute(("failures", count.as_str()))
        .with_attribute(("skipped", "0"))
        .write_inner_content(|writer| {
            report
                .left
                .iter()
                .enumerate()
                .try_for_each(|(number, left)| {
                    writer
                        .create_element("testcase")
                        .with_attribute(("classname", "clean-up"))
                        .with_attribute(("name", format!("clean-up/{}", number + 1).as_str()))
                        .with_attribute(("time", "0"))
                        .write_inner_content(|writer| {
                            writer
                                .create_element("failure")
                                .with_attribute(("type", "left-behind"))
                                .with_attribute(("message", plain(left).as_str()))
                                .write_empty()?;
                            Ok(())
                        })?;
                    Ok(())
                })
        })?;
    Ok(())
}

fn service(entry: &Entry) -> &str {
    entry.id.split('/').next().unwrap_or_default()
}

fn case(writer: &mut Writer<Vec<u8>>, entry: &Entry) -> io::Result<()> {
    let time = format!("{:.3}", entry.took.as_secs_f64());
    let case = writer
        .create_element("testcase")
        .with_attribute(("classname", service(entry)))
        .with_attribute(("name", entry.id))
        .with_attribute(("time", time.as_str()));
    match &entry.outcome {
        Outcome::Passed => case.write_empty()?,
        // JUnit has no warnings: the case passes, with a text.
        Outcome::Warned(failed) => case.write_inner_content(|writer| {
            let text = told("warning", entry, failed);
            writer
                .create_element("system-out")
                .write_text_content(BytesText::new(&plain(&text)))?;
            Ok(())
        })?,
        Outcome::Skipped(skipped) => case.write_inner_content(|writer| {
            writer
                .create_element("skipped")
                .with_attribute(("message", plain(&skipped.reason).as_str()))
                .write_empty()?;
            Ok(())
        })?,
        Outcome::Failed(failed) => case.write_inner_content(|writer| {
            let text = told("failure", entry, failed);
            writer
                .create_element("failure")
                .with_attribute(("type", failed.rule.as_str()))
                .with_attribute(("message", plain(&failed.expected).as_str()))
                .write_text_content(BytesText::new(&plain(&text)))?;
            Ok(())
        })?,
    };
    Ok(())
}

fn told(what: &str, entry: &Entry, failed: &Failed) -> String {
    let rule = rules::text(&failed.rule).map_or(String::new(), |text| {
        format!("\nrule: {}: {text}", failed.rule)
    });
    format!(
        "{what} ({}): {}\nsent: {}\nexpected: {}\nreceived: {}{rule}",
        failed.rule, entry.title, failed.sent, failed.expected, failed.came
    )
}

/// XML 1.0 cannot represent most control characters.
fn plain(text: &str) -> String {
    let legal = |c: char| matches!(c, '\n' | '\t') || !c.is_control();
    text.chars()
        .map(|c| if legal(c) { c } else { '\u{fffd}' })
        .collect()
}
