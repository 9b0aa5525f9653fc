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
