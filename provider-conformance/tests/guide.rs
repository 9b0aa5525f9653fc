//! docs/provider-guide.md documents every key of suite.yaml, and its example is valid.

use provider_conformance::{
    Config, EmptyTargetSets, Hook, KnownCluster, KnownInstance, KnownVolume, RouteMarks,
};

const GUIDE: &str = include_str!("../../docs/provider-guide.md");

#[test]
fn the_guides_suite_yaml_has_every_key_that_there_is() {
    let (_, block) = GUIDE.split_once("```yaml\n").expect("a block of YAML");
    let (text, _) = block.split_once("```\n").expect("the block ends");
    // The pattern has no `..`, so that whoever adds a key has to add it here and in the guide.
    let Config {
        instances,
        volumes,
        clusters,
        service_annotations,
        shared_load_balancer,
        empty_target_sets,
        route_marks,
        route_cidr,
        provider_id_pattern,
        secrets,
        hooks,
    } = Config::parse(text, "docs/provider-guide.md").unwrap();
    for KnownInstance {
        name,
        provider_id,
        state,
    } in instances.iter().take(1)
    {
        assert!(!name.is_empty() && provider_id.is_some() && state.is_some());
    }
    for KnownVolume {
        source_type,
        source,
        labels,
    } in volumes.iter().take(1)
    {
        assert!(text.contains(&format!("source_type: {source_type}")));
        assert!(!source.is_empty() && !labels.is_empty());
    }
    for KnownCluster { name, address } in clusters.iter().take(1) {
        assert!(!name.is_empty() && address.is_some());
    }
    assert!(!instances.is_empty() && !volumes.is_empty() && !clusters.is_empty());
    assert!(!service_annotations.is_empty() && !secrets.is_empty());
    assert!(shared_load_balancer.is_some_and(|annotations| !annotations.is_empty()));
    assert!(text.contains("empty_target_sets: taken"));
    assert_eq!(empty_target_sets, EmptyTargetSets::Taken);
    assert!(text.contains("route_marks: kept"));
    assert_eq!(route_marks, RouteMarks::Kept);
    assert_eq!(route_cidr.to_string(), "172.16.0.0/12");
    assert!(provider_id_pattern.is_some());
    assert_eq!(hooks.keys().copied().collect::<Vec<_>>(), Hook::ALL);
}

#[test]
fn the_guide_says_what_each_hook_does() {
    let (_, table) = GUIDE
        .split_once("| hook | what your command does |")
        .expect("the table of hooks");
    let (table, _) = table.split_once("\n\n").expect("the table ends");
    for hook in Hook::ALL {
        assert!(table.contains(&format!("`{}`", hook.key())), "{hook:?}");
    }
}

#[test]
fn what_the_suite_is_told_about_the_first_providers_is_the_same() {
    let minimal = include_str!("../../provider-sdk/examples/minimal.suite.yaml");
    assert_eq!(
        minimal,
        include_str!("../../providers/python/first.suite.yaml")
    );
    assert_eq!(minimal, include_str!("../../providers/go/first/suite.yaml"));
    Config::parse(minimal, "minimal.suite.yaml").unwrap();
}
