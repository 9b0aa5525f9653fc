//! The Go binary with all clouds of these tests except AWS: it serves each over the bridge, and
//! runs upstream's Go CCM with each. Other test binaries include this file by its path.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The bridge's folder.
pub const BRIDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../providers/go/bridge");

/// The output of a command that must succeed.
pub fn text(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The Go binary. Go rebuilds only what changed. The first build takes minutes.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bridge-clouds");
        let built = go("clouds", &["build", "-ldflags=-s -w", "-o"])
            .arg(&path)
            .arg(".")
            .output();
        text(built.expect("go 1.26 or newer is needed"));
        path
    })
}

/// The command `go`, run in this folder. A relative path begins in the bridge's folder.
pub fn go(folder: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(Path::new(BRIDGE).join(folder))
        .args(arguments)
        .env("GOFLAGS", "-trimpath -buildvcs=false")
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off");
    command
}
