//! The kept plans, the traces of 30 seeds, and each planted bug. `make seeds` also plays 2,000
//! seeds.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use simulation::regression::{Regression, files};

#[test]
fn what_failed_once_holds_and_fails_again_with_its_bug() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let files = files(&directory).unwrap();
    assert!(!files.is_empty(), "{} is empty", directory.display());
    for file in files {
        let wrong = Regression::read(&file).unwrap().check().unwrap();
        assert!(wrong.is_empty(), "{}: {wrong:#?}", file.display());
    }
}

/// Without `tokio_unstable`, tokio chooses at random which receiver of a `watch` channel wakes
/// first.
#[cfg(tokio_unstable)]
mod the_same_seed_has_the_same_trace {
    use std::process::Command;

    use simulation::plan::Plan;
    use simulation::run::run;

    #[test]
    fn twice() {
        for seed in 1..=20 {
            let of = |seed| run(&Plan::of(seed)).unwrap();
            let (one, two) = (of(seed), of(seed));
            let differs = one
                .lines
                .iter()
                .zip(&two.lines)
                .find(|(one, two)| one != two);
            assert_eq!(differs, None, "seed {seed}");
            assert_eq!(one.digest, two.digest, "seed {seed}");
        }
    }

    #[test]
    fn in_another_process() {
        let args = ["--from", "21", "--seeds", "10", "--digest"];
        let mut other = Command::new(env!("CARGO_BIN_EXE_simulate"));
        let other = other.args(args).output().unwrap();
        let here: Vec<String> = (21..31)
            .map(|seed| format!("{seed} {:016x}", run(&Plan::of(seed)).unwrap().digest))
            .collect();
        let there = String::from_utf8(other.stdout).unwrap();
        assert_eq!(there.lines().collect::<Vec<_>>(), here);
    }
}

#[test]
fn each_planted_bug_is_found_by_its_seed_or_by_a_kept_plan() {
    use ccm::planted::Bug;
    use simulation::planted::{look, seed_of};

    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(here.join("../docs/simulation.md")).unwrap();
    let files = files(&here.join("regressions")).unwrap();
    let kept: Vec<_> = files
        .iter()
        .filter_map(|file| Regression::read(file).unwrap().bug)
        .collect();
    for bug in Bug::ALL {
        if let Some(seed) = seed_of(&document, *bug) {
            let looked = look(&[*bug], seed..seed + 1, |_, _, _| {}).unwrap();
            assert!(looked[0].found.is_some(), "{bug:?}: seed {seed}");
        } else {
            assert!(kept.contains(&format!("{bug:?}")), "{bug:?}: nothing");
        }
    }
}
