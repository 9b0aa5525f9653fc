//! Makes text from outside safe to print: one line, without control characters or bidirectional
//! controls.
//!
//! A provider's text appears in events, in the log and in `kubectl describe`. A line break in it
//! could forge a log line. An escape sequence could control a terminal. A bidirectional control
//! could show another text than the real one (CVE-2021-42574).

use std::borrow::Cow;
use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

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

/// As [`plain`], but keeps the escape sequences that set colours, because the formatter writes such
/// sequences itself. Other sequences can come from fields: the formatter does not escape `Display`.
fn coloured(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let mut line = plain(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let colour = part.strip_prefix('[').is_some_and(|rest| {
            let code = |char: char| char.is_ascii_digit() || char == ';';
            rest.trim_start_matches(code).starts_with('m')
        });
        line.push(if colour { '\u{1b}' } else { ' ' });
        line.push_str(&plain(part));
    }
    line
}

/// Writes each log entry on one line, whatever its fields contain.
#[derive(Clone, Copy, Debug)]
pub struct Lines<M> {
    inner: M,
    /// Whether the formatter writes colours.
    colours: bool,
}

impl<M> Lines<M> {
    /// Writes to this writer.
    pub fn new(inner: M, colours: bool) -> Self {
        Self { inner, colours }
    }
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Lines<M> {
    type Writer = Line<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Line {
            inner: self.inner.make_writer(),
            colours: self.colours,
        }
    }
}

/// The writer of one log entry.
#[derive(Debug)]
pub struct Line<W> {
    inner: W,
    colours: bool,
}

impl<W: Write> Write for Line<W> {
    /// The formatter passes a whole entry in one call.
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(entry);
        let (line, end) = match text.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (&*text, ""),
        };
        let line = if self.colours {
            Cow::Owned(coloured(line))
        } else {
            plain(line)
        };
        self.inner.write_all(format!("{line}{end}").as_bytes())?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
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
        for colours in [false, true] {
            let written = Arc::new(Mutex::new(Vec::new()));
            let sink = Arc::clone(&written);
            let make = move || Sink(Arc::clone(&sink));
            let log = tracing_subscriber::fmt()
                .with_ansi(colours)
                .with_writer(Lines::new(make, colours))
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
            assert_eq!(text.contains('\u{1b}'), colours, "{text}");
            assert!(
                !text.contains("\u{1b}[2J") && !text.contains("\u{1b}]"),
                "{text}"
            );
        }
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
