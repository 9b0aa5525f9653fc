//! Some seeds, each time: `make simulate` plays more.

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

#[test]
fn the_same_seed_has_the_same_trace() {
    for seed in [3, 25, 41] {
        let (one, two) = (run(&Plan::of(seed)).unwrap(), run(&Plan::of(seed)).unwrap());
        let differs = one
            .lines
            .iter()
            .zip(&two.lines)
            .find(|(one, two)| one != two);
        assert_eq!(one.digest, two.digest, "seed {seed}: first at {differs:#?}");
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
