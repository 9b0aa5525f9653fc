//! Makes programs that a test then starts.
//!
//! Another process writes each file. If this one did, a child that another thread starts meanwhile
//! would inherit the open file, and until that child executes its own program Linux would refuse to
//! execute this one: "Text file busy" (ETXTBSY).

use std::path::Path;
use std::process::Command;

/// Copies a program, with its mode. Panics if that fails.
pub fn copied(from: &Path, to: &Path) {
    make(Command::new("cp").args([from, to]), to);
}

/// Writes a shell script and makes it executable. Panics if that fails.
pub fn script(path: &Path, lines: &str) {
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\"";
    let mut shell = Command::new("/bin/sh");
    make(shell.args(["-c", write]).arg(path).arg(lines), path);
}

fn make(command: &mut Command, path: &Path) {
    let made = command.status().is_ok_and(|status| status.success());
    assert!(made, "cannot make {}", path.display());
}
