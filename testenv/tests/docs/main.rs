//! The documents that are made from the tests or compared with them.
//!
//! `docs/parity.md` names the tests for each line of `docs/behaviour.md`. `docs/faults.md` lists
//! faults and their effects. `make docs` writes both. The tests that `docs/upstream-situations.md`
//! names must exist.

mod behaviour;
mod claims;
mod faults;
mod layers;
mod measure;
mod parity;
mod situations;
mod sources;
mod threats;
mod updates;
mod written;

use std::{path::Path, sync::LazyLock};

use behaviour::Behaviour;
use sources::Test;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn behaviour() -> Behaviour {
    Behaviour::parse(&read("docs/behaviour.md"))
        .unwrap_or_else(|error| panic!("docs/behaviour.md: {error}"))
}

/// All tests, which are read once, because reading takes seconds.
fn tests() -> &'static [Test] {
    static TESTS: LazyLock<Result<Vec<Test>, String>> = LazyLock::new(|| sources::tests(root()));
    TESTS.as_ref().unwrap_or_else(|error| panic!("{error}"))
}

fn nothing_wrong(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn every_id_has_a_test_and_every_id_that_is_named_exists() {
    nothing_wrong(&parity::wrong(&behaviour(), tests()));
}

#[test]
fn no_comment_names_an_id_that_does_not_exist() {
    let behaviour = behaviour();
    let mut wrong = Vec::new();
    for file in sources::files(root(), &["rs", "proto", "md", "go", "yaml"]) {
        let text = read(&file);
        for (number, line) in text.lines().enumerate() {
            for id in behaviour::ids_in(line) {
                if !behaviour.has(&id) {
                    wrong.push(format!("{file}:{}: there is no {id}", number + 1));
                }
            }
        }
    }
    nothing_wrong(&wrong);
}

#[test]
fn parity_is_what_the_tests_say() {
    let there = std::fs::read_to_string(root().join("docs/parity.md")).unwrap_or_default();
    let compared = written::between(&there, parity::COMPARED)
        .unwrap_or_else(|error| panic!("docs/parity.md: {error}"));
    let text = parity::render(&behaviour(), tests(), &compared);
    testenv::document::holds(&root().join("docs/parity.md"), None, &text, "make docs");
}

#[test]
fn faults_are_what_the_tests_say() {
    let tests = tests();
    nothing_wrong(&faults::wrong(tests));
    nothing_wrong(&faults::lacking(tests));
    let claims = claims::Claims::read(root(), &faults::files(tests));
    let claims = claims.unwrap_or_else(|error| panic!("{error}"));
    nothing_wrong(&faults::not_asserted(tests, &claims));
    let kept = faults::kept(&root().join("simulation/regressions"));
    let kept = kept.unwrap_or_else(|error| panic!("{error}"));
    testenv::document::holds(
        &root().join("docs/faults.md"),
        None,
        &faults::render(tests, &kept),
        "make docs",
    );
}

#[test]
fn situations_refer_to_what_exists() {
    nothing_wrong(&situations::wrong(
        &read("docs/upstream-situations.md"),
        tests(),
    ));
}

#[test]
fn each_threat_has_a_test_or_is_open() {
    nothing_wrong(&threats::wrong(&read("docs/threat-model.md"), tests()));
}

#[test]
fn rooms_import_lower_layers_only_and_decisions_do_no_io() {
    let layers = layers::table(&read("docs/architecture.md"))
        .unwrap_or_else(|error| panic!("docs/architecture.md: {error}"));
    let sources = layers::sources_beside(&root().join("ccm/src/lib.rs"));
    let sources = sources.unwrap_or_else(|error| panic!("{error}"));
    nothing_wrong(&layers::wrong(&layers, &sources));
}
