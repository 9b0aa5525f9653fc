//! The Rust, Python and Go blocks of README.md and docs/provider-guide.md are copies from files.

#[test]
fn the_readme_shows_the_minimal_example_that_is_compiled_here() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let readme = std::fs::read_to_string(format!("{root}/README.md")).unwrap();
    let example = include_str!("../examples/minimal.rs");
    assert!(
        readme.contains(&format!("```rust\n{}\n```", example.trim_end())),
        "copy provider-sdk/examples/minimal.rs into README.md"
    );
    assert!(example.lines().count() < 60, "the minimal example grew");
}

const GUIDE: &str = include_str!("../../docs/provider-guide.md");

/// The guide's fenced blocks in this language.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    let shown = GUIDE.split(&begin).skip(1);
    shown
        .map(|rest| rest.split_once("```\n").expect("the block ends").0)
        .collect()
}

#[test]
fn the_guide_shows_the_load_balancers_and_the_main_that_are_compiled_here() {
    let example = include_str!("../examples/load_balancers.rs");
    let shown = blocks("rust");
    for block in &shown {
        assert!(
            example.contains(block),
            "docs/provider-guide.md shows a block that is not in examples/load_balancers.rs:\n{block}"
        );
    }
    assert_eq!(shown.len(), 2);
}

#[test]
fn the_guide_shows_the_python_provider_that_the_suite_is_run_against() {
    let first = include_str!("../../providers/python/first.py");
    assert_eq!(
        blocks("python"),
        [first],
        "copy providers/python/first.py into docs/provider-guide.md"
    );
}

#[test]
fn the_guide_shows_the_main_of_a_bridged_cloud_and_the_probe_that_are_built() {
    let main = include_str!("../../providers/go/bridge/template/main.go");
    let first = include_str!("../../providers/go/first/main.go");
    let balancers = include_str!("../../providers/go/sdk/balancers_example_test.go");
    let [template, shown, probe] = blocks("go")[..] else {
        panic!("docs/provider-guide.md has other blocks of Go than three");
    };
    assert!(
        balancers.contains(shown),
        "docs/provider-guide.md shows a block that is not in providers/go/sdk/balancers_example_test.go:\n{shown}"
    );
    assert_eq!(
        template, main,
        "copy providers/go/bridge/template/main.go into docs/provider-guide.md"
    );
    assert!(
        first.contains(probe),
        "docs/provider-guide.md shows a block that is not in providers/go/first/main.go:\n{probe}"
    );
}

#[test]
fn every_fenced_block_of_the_guide_is_held_to_a_file() {
    // provider-conformance/tests/guide.rs parses the YAML block. providers/guide.sh runs the
    // indented blocks.
    let held: usize = ["rust", "python", "go", "yaml"]
        .map(|language| blocks(language).len())
        .iter()
        .sum();
    assert_eq!(GUIDE.matches("```").count(), 2 * held);
    assert_eq!(blocks("yaml").len(), 1);
}
