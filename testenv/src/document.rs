//! Checks that documents in the repository are as the tests generate them. With `UPDATE_DOCS=1` it
//! writes them first.

use std::fs;
use std::path::Path;

/// Whether this variable requests writing documents. Only `1` does. Panics at any other value that
/// is not empty, so that nothing is rewritten by accident.
pub fn asked_for(variable: &str) -> bool {
    is_one(variable, std::env::var(variable).ok().as_deref())
}

fn is_one(variable: &str, value: Option<&str>) -> bool {
    match value {
        Some("1") => true,
        None | Some("") => false,
        Some(other) => panic!(
            "{variable}={other}: the only valid value is 1, which writes the generated documents"
        ),
    }
}

/// Compares a document, or its part between two marks, with this text. With `UPDATE_DOCS=1` writes
/// the text first; `command` is the command that does this.
pub fn holds(path: &Path, marks: Option<(&str, &str)>, text: &str, command: &str) {
    // Tests run in parallel, and several write parts of one document.
    static WRITING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = WRITING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let read =
        || fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let wanted = match marks {
        None => text.to_owned(),
        Some((begin, end)) => {
            let there = read();
            let parts = there
                .split_once(begin)
                .and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
            let (before, after) = parts
                .unwrap_or_else(|| panic!("{} has no {begin:?} before a {end:?}", path.display()));
            format!("{before}{begin}{text}{end}{after}")
        }
    };
    if asked_for("UPDATE_DOCS") {
        fs::write(path, &wanted).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let there = read();
    let ends = std::iter::repeat("(end)");
    let mut lines = (1..).zip(
        there
            .lines()
            .chain(ends.clone())
            .zip(wanted.lines().chain(ends)),
    );
    if there != wanted {
        let differs = lines.find(|(_, (there, wanted))| there != wanted);
        panic!(
            "{} differs from what the tests generate, first at {differs:?}: `UPDATE_DOCS=1 {command}` writes it",
            path.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_1_asks_for_documents_and_any_other_text_is_refused() {
        assert!(is_one("UPDATE_DOCS", Some("1")));
        for value in [None, Some("")] {
            assert!(!is_one("UPDATE_DOCS", value), "{value:?}");
        }
        for value in ["0", "true", "false", "yes", "11", " 1"] {
            let refused = std::panic::catch_unwind(|| is_one("UPDATE_DOCS", Some(value)));
            let said = refused.expect_err(value);
            let said = said.downcast_ref::<String>().unwrap();
            let start = format!("UPDATE_DOCS={value}: the only valid value is 1");
            assert!(said.starts_with(&start), "{said}");
        }
    }

    #[test]
    fn a_document_that_differs_is_refused_and_nothing_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("page.md");
        let marks = Some(("<a>\n", "<b>\n"));
        fs::write(&path, "before\n<a>\none\n<b>\nafter\n").unwrap();
        holds(&path, marks, "one\n", "make docs");
        for (marks, text) in [
            (marks, "two\n"),
            (Some(("<c>", "<d>")), ""),
            (None, "one\n"),
        ] {
            let refused = std::panic::catch_unwind(|| holds(&path, marks, text, "make docs"));
            let said = refused.unwrap_err();
            let said = said.downcast_ref::<String>().unwrap();
            assert!(said.contains("page.md"), "{said}");
        }
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "before\n<a>\none\n<b>\nafter\n"
        );
    }
}
