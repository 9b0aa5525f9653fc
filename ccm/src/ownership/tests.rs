use serde_json::json;

use super::*;

fn info(
    prefixes: &[&str],
    balancers: Option<(&[&str], bool)>,
    instances: bool,
) -> api::GetProviderInfoResponse {
    api::GetProviderInfoResponse {
        provider_id_prefixes: prefixes.iter().map(ToString::to_string).collect(),
        capabilities: Some(api::Capabilities {
            instances: instances.then(api::InstanceCapability::default),
            load_balancers: balancers.map(|(classes, default_class)| api::LoadBalancerCapability {
                classes: classes.iter().map(ToString::to_string).collect(),
                default_class,
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn node(id: &str, label: Option<&str>) -> Node {
    let labels = label.map(|label| json!({PROVIDER_LABEL: label}));
    serde_json::from_value(json!({"metadata": {"labels": labels}, "spec": {"providerID": id}}))
        .unwrap()
}

fn service(class: Option<&str>) -> Service {
    serde_json::from_value(json!({"spec": {"loadBalancerClass": class}})).unwrap()
}

fn two() -> Ownership {
    let a = info(&["a://"], Some((&["fast"], true)), true);
    let b = info(&["a://edge/", "b://"], Some((&["slow"], true)), true);
    let c = info(&[], None, false);
    Ownership::of(&[("one", &a), ("two", &b), ("none", &c)], Some("two")).unwrap()
}

#[test]
fn l4_a_node_goes_by_the_longest_prefix_then_by_its_label() {
    use NodeOwner::{AskAll, Nobody, Provider};
    let ownership = two();
    let longest = format!("a://{}", "x".repeat(1020));
    let too_long = format!("{longest}x");
    let rows = [
        ("a://1", None, Provider("one")),
        ("a://edge/1", None, Provider("two")),
        ("a://edge", None, Provider("one")),
        ("b://1", Some("one"), Provider("two")),
        // A Node of another cloud.
        ("aws://1", None, Nobody),
        ("aws://1", Some("one"), Nobody),
        (longest.as_str(), None, Provider("one")),
        (too_long.as_str(), Some("one"), Nobody),
        ("", Some("one"), Provider("one")),
        ("", Some("other"), Nobody),
        ("", None, AskAll),
    ];
    for (id, label, owner) in rows {
        let node = node(id, label);
        assert_eq!(ownership.node_owner(&node), owner, "{id} {label:?}");
        let concerned: Vec<_> = ["one", "two", "none", "unheard-of"]
            .into_iter()
            .filter(|name| ownership.concerns(name, &node))
            .collect();
        let expected = match owner {
            Provider(name) => vec![name],
            AskAll => vec!["one", "two"],
            Nobody => vec![],
        };
        assert_eq!(concerned, expected, "{id} {label:?}");
    }
    assert_eq!(ownership.node_owner(&Node::default()), AskAll);
}

#[test]
fn b_s1_s1_a_service_goes_by_its_class() {
    let ownership = two();
    for (class, owner) in [
        (Some("fast"), Some("one")),
        (Some("slow"), Some("two")),
        (Some("other"), None),
        (None, Some("two")),
    ] {
        assert_eq!(ownership.service_owner(&service(class)), owner, "{class:?}");
    }
    let without = info(&["a://"], Some((&["fast"], false)), true);
    let ownership = Ownership::of(&[("one", &without)], None).unwrap();
    assert_eq!(ownership.service_owner(&service(None)), None);
}

#[test]
fn what_two_providers_claim_is_fatal() {
    let a = info(&["a://", "a://"], Some((&["fast", "fast"], true)), true);
    assert!(Ownership::of(&[("one", &a)], None).is_ok());
    let rows = [
        (info(&["a://"], None, true), "\"a://\""),
        (info(&["b://"], Some((&["fast"], false)), true), "\"fast\""),
        (info(&["b://"], Some((&[], true)), true), "without a"),
    ];
    for (b, text) in rows {
        let clash = Ownership::of(&[("one", &a), ("two", &b)], None).unwrap_err();
        let clash = clash.to_string();
        assert!(clash.contains(text), "{clash}");
        assert!(clash.contains("one and two"), "{clash}");
    }
}

#[test]
fn l4_the_nodes_of_another_cloud_are_counted_and_one_is_named() {
    let named = |name: &str, id: &str| {
        let mut node = node(id, None);
        node.metadata.name = Some(name.to_owned());
        node
    };
    let nodes = [
        named("z", "aws://2"),
        named("ours", "a://1"),
        named("theirs", "b://1"),
        named("new", ""),
        named("m", "aws://1"),
    ];
    let clouds = two().clouds("one", nodes.iter());
    let expected = Clouds {
        ours: 1,
        new: 1,
        others: 2,
        another: Some(("m".to_owned(), "aws://1".to_owned())),
    };
    assert_eq!(clouds, expected);
    assert_eq!(two().clouds("one", [].iter()), Clouds::default());
}
