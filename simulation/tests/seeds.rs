//! The kept plans, the traces of 30 seeds, and each planted bug. `make seeds` also plays 2,000
//! seeds. All of it runs in the program `simulate`, because linking the optimised ccm a second time
//! takes minutes of CPU.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

fn simulate(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
    let output = command.args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text}{errors}");
    text
}

#[test]
fn what_failed_once_holds_and_fails_again_with_its_bug() {
    simulate(&["--check", "kept"]);
}

/// Without `tokio_unstable`, tokio chooses at random which receiver of a `watch` channel wakes
/// first.
#[cfg(tokio_unstable)]
mod the_same_seed_has_the_same_trace {
    use super::simulate;

    #[test]
    fn twice() {
        simulate(&["--check", "twice"]);
    }

    #[test]
    fn in_another_process_and_after_other_seeds() {
        let first = simulate(&["--digest", "--from", "21", "--seeds", "10"]);
        let second = simulate(&["--digest", "--from", "11", "--seeds", "20"]);
        let second: Vec<&str> = second.lines().skip(10).collect();
        assert_eq!(first.lines().collect::<Vec<_>>(), second);
        assert_eq!(second.len(), 10);
    }
}

#[test]
fn each_planted_bug_is_found_by_its_seed_or_by_a_kept_plan() {
    simulate(&["--check", "planted"]);
}
