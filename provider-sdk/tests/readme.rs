//! The README shows the minimal provider as it is.

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

#[test]
fn the_guide_shows_the_load_balancers_that_are_compiled_here() {
    let guide = include_str!("../../docs/provider-guide.md");
    let example = include_str!("../examples/load_balancers.rs");
    let shown = guide.split("```rust\n").skip(1).map(|rest| {
        let end = rest.find("```\n").expect("the block ends");
        &rest[..end]
    });
    for block in shown {
        assert!(
            example.contains(block),
            "docs/provider-guide.md shows what does not stand in examples/load_balancers.rs:\n{block}"
        );
    }
    assert_eq!(guide.matches("```rust\n").count(), 1);
}

#[test]
fn the_guide_shows_the_python_provider_that_the_suite_is_run_against() {
    let guide = include_str!("../../docs/provider-guide.md");
    let first = include_str!("../../providers/python/first.py");
    assert!(
        guide.contains(&format!("```python\n{}\n```", first.trim_end())),
        "copy providers/python/first.py into docs/provider-guide.md"
    );
}

#[test]
fn the_guide_shows_the_main_of_a_bridged_cloud_that_is_built() {
    let guide = include_str!("../../docs/provider-guide.md");
    let main = include_str!("../../providers/go/bridge/template/main.go");
    assert!(
        guide.contains(&format!("```go\n{}\n```", main.trim_end())),
        "copy providers/go/bridge/template/main.go into docs/provider-guide.md"
    );
}
