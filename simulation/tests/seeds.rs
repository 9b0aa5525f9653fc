//! Some seeds, each time: `make simulate` plays more.

#![allow(clippy::unwrap_used, reason = "tests")]

use simulation::plan::Plan;
use simulation::run::run;

/// A seed that fails, with what it shows, is printed with the command that shows its trace.
fn hold(seeds: impl IntoIterator<Item = u64>) {
    for seed in seeds {
        let report = run(&Plan::of(seed)).unwrap();
        assert!(
            report.violations.is_empty(),
            "seed {seed}: {:#?}\n`make simulate SEED={seed}` shows its trace, and the shortest plan that fails",
            report.violations
        );
    }
}

#[test]
fn the_invariants_hold_for_the_first_seeds() {
    hold(1..=12);
}

#[test]
fn the_invariants_hold_for_more_seeds() {
    hold(13..=24);
}

/// The lines in the order of their times. Within one millisecond the order is not decided by the seed yet.
fn trace(seed: u64) -> Vec<String> {
    let mut lines = run(&Plan::of(seed)).unwrap().lines;
    lines.sort();
    lines
}

#[test]
fn the_same_seed_has_the_same_trace() {
    for seed in [3, 25, 41] {
        let (one, two) = (trace(seed), trace(seed));
        let differs = one.iter().zip(&two).find(|(one, two)| one != two);
        assert_eq!(differs, None, "seed {seed}");
    }
}

#[test]
fn a_bug_that_is_planted_is_found() {
    use ccm::planted::{Bug, plant};

    for (bug, seeds) in [
        (Bug::FailedUpdateIsForgotten, 28..40),
        (Bug::ReleasedTooEarly, 1..20),
    ] {
        plant(Some(bug));
        let found = seeds
            .into_iter()
            .find(|seed| !run(&Plan::of(*seed)).unwrap().violations.is_empty());
        plant(None);
        assert!(found.is_some(), "{bug:?}");
    }
}
