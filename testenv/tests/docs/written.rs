//! A document that is written by a tool.

use std::{fs, path::Path};

/// Holds a document to what it would be written as, or writes it.
pub(crate) fn is(root: &Path, path: &str, text: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
        fs::write(root.join(path), text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let there = fs::read_to_string(root.join(path)).unwrap_or_default();
    if let Some((line, (there, wanted))) = difference(&there, text) {
        panic!(
            "{path} is not what the tests say, first in line {line}:\n  there:  {there}\n  wanted: {wanted}\n\
             `make docs` (UPDATE_DOCS=1) writes it anew"
        );
    }
}

/// The first line that differs, with its number.
fn difference<'a>(there: &'a str, wanted: &'a str) -> Option<(usize, (&'a str, &'a str))> {
    if there == wanted {
        return None;
    }
    let lines = |text: &'a str| text.split('\n').chain(std::iter::repeat("(end)"));
    let mut lines = (1..).zip(lines(there).zip(lines(wanted)));
    lines.find(|(_, (there, wanted))| there != wanted)
}

/// What stands between two marks, each alone on its line and there once. Nothing in an empty text.
pub(crate) fn between(text: &str, (begin, end): (&str, &str)) -> Result<String, String> {
    let place = |mark: &str| {
        let mut places = text.lines().enumerate().filter(|(_, line)| *line == mark);
        match (places.next(), places.next()) {
            (Some((place, _)), None) => Ok(place),
            (None, _) => Err(format!("no line {mark}")),
            (Some(_), Some((second, _))) => Err(format!("{mark} again in line {}", second + 1)),
        }
    };
    if text.is_empty() {
        return Ok(String::new());
    }
    let (first, last) = (place(begin)?, place(end)?);
    if last < first {
        return Err(format!("{end} stands before {begin}"));
    }
    let mut kept = String::new();
    for line in text.lines().take(last).skip(first + 1) {
        kept.push_str(line);
        kept.push('\n');
    }
    Ok(kept)
}

#[test]
fn marks_stand_once_and_in_order() {
    let between = |text| between(text, ("<a>", "<b>"));
    assert_eq!(
        between("x\n<a>\none\n\ntwo\n<b>\ny\n").unwrap(),
        "one\n\ntwo\n"
    );
    assert_eq!(between("<a>\n<b>\n").unwrap(), "");
    assert_eq!(between("").unwrap(), "");
    for text in [
        "x\n",
        "<a>\n",
        "<b>\n<a>\n",
        "<a>\n<a>\n<b>\n",
        "x <a>\n<b>\n",
    ] {
        assert!(between(text).is_err(), "{text}");
    }
}

#[test]
fn the_first_difference_is_named() {
    assert_eq!(difference("a\nb\n", "a\nb\n"), None);
    assert_eq!(difference("a\nb\n", "a\nc\n"), Some((2, ("b", "c"))));
    assert_eq!(difference("a\n", "a\nc\n"), Some((2, ("", "c"))));
    assert_eq!(difference("a", "a\n"), Some((2, ("(end)", ""))));
    assert_eq!(difference("", "a\n"), Some((1, ("", "a"))));
}
