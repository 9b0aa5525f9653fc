//! A wrong wall clock for one process: a library that is loaded before libc. The monotonic clock is
//! unchanged, as after setting the time.

use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = r"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) {
        now->tv_sec += AHEAD;
    }
    return result;
}
";

/// Compiles the library into this directory; for `LD_PRELOAD`.
pub fn ahead_by(seconds: i64, directory: &Path, name: &str) -> PathBuf {
    let source = directory.join(format!("{name}.c"));
    let library = directory.join(format!("{name}.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-fPIC", "-O1"])
        .arg(format!("-DAHEAD=({seconds})"))
        .arg("-o")
        .args([&library, &source]);
    let output = command.output().expect("a C compiler");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    library
}
