//! The error text if Go is missing or too old.

use std::{path::Path, process::Command};

use testenv::program;

fn build_with_path(path: &Path) -> String {
    let target = tempfile::tempdir().expect("a temporary directory");
    let output = Command::new(env!("CARGO_BIN_EXE_control-plane"))
        .env("CARGO_TARGET_DIR", target.path())
        .env("PATH", path)
        .env_remove("TESTENV_CONTROL_PLANE")
        .output()
        .expect("it can be started");
    assert!(!output.status.success());
    String::from_utf8(output.stderr).expect("it prints text")
}

#[test]
fn without_go_it_says_in_one_line_what_to_install() {
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(
        build_with_path(empty.path()),
        "the test control plane needs Go 1.26.0 or newer (there is no go in PATH): install it from https://go.dev/dl\n"
    );
}

#[test]
fn an_old_go_is_told_like_none() {
    let bin = tempfile::tempdir().unwrap();
    let version = "echo go version go1.9.7 linux/amd64";
    program::script(&bin.path().join("go"), version);
    let text = build_with_path(bin.path());
    assert!(text.contains("(found go1.9.7): install it from"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}
