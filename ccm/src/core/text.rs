//! Makes text from outside safe to print: one line, without control characters or bidirectional
//! controls.
//!
//! A provider's text appears in events, in the log and in `kubectl describe`. A line break in it
//! could forge a log line. An escape sequence could control a terminal. A bidirectional control
//! could show another text than the real one (CVE-2021-42574).

use std::borrow::Cow;
use std::io::{self, Write};

/// The most bytes of a provider ID, a handle, a resume token, a message or a reason (CORE-11).
pub(crate) const TEXT_LIMIT: usize = 1024;

/// The text with a space in place of each control character, each bidirectional control, and the
/// separators and invisible characters that `obeyed` lists.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    if text.contains(obeyed) {
        Cow::Owned(text.replace(obeyed, " "))
    } else {
        Cow::Borrowed(text)
    }
}

fn obeyed(char: char) -> bool {
    char.is_control()
        || matches!(char,
            // Marks, embeddings, overrides and isolates of the bidirectional algorithm.
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Line and paragraph separator.
            | '\u{2028}' | '\u{2029}'
            // Invisible: zero width space and no-break space, interlinear annotations, tags.
            | '\u{200b}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The writer of one log entry: writes it on one line, whatever its fields contain.
#[derive(Debug)]
pub struct Line<W>(pub W);

impl<W: Write> Write for Line<W> {
    /// The formatter passes a whole entry in one call.
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(entry);
        let (line, end) = match text.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (&*text, ""),
        };
        self.0
            .write_all(format!("{}{end}", plain(line)).as_bytes())?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Finding B10.
    #[test]
    fn what_is_obeyed_becomes_a_space() {
        assert_eq!(plain("größer 😀 —"), "größer 😀 —");
        assert_eq!(plain("a\r\nb\u{1b}[2Jc\u{9b}d\0e\tf"), "a  b [2Jc d e f");
        assert_eq!(
            plain("safe\u{202e}txt.exe\u{2066}\u{200f}\u{2028}\u{feff}."),
            "safe txt.exe    ."
        );
    }

    /// Finding B10.
    #[test]
    fn no_entry_of_the_log_becomes_two_lines() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&written);
        let log = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || Line(Sink(Arc::clone(&sink))))
            .finish();
        tracing::subscriber::with_default(log, || {
            let words = "no\n2026-01-01T00:00:00Z  INFO ccm: all is well\u{202e}";
            let steers = "a\u{1b}[2Jb\u{1b}]0;title\u{7}";
            tracing::warn!(field = words, shown = ?words, error = %steers, "the provider says: {words}");
        });
        let written = written.lock().unwrap();
        let text = String::from_utf8(written.clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.ends_with('\n') && !text.contains('\u{202e}'), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
