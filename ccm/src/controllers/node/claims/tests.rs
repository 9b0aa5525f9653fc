use k8s_openapi::api::core::v1::{NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::provider::CallErrorCode;

const NOW: i64 = 1_000_000;

fn wall() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

/// A Node with the taint and without an ID. It has been Ready, or not Ready, for this many seconds.
fn fresh(name: &str, ready: bool, seconds: i64) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.spec.get_or_insert_default().taints = Some(vec![Taint {
        key: "node.cloudprovider.kubernetes.io/uninitialized".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }]);
    let since = Timestamp::from_second(NOW - seconds).unwrap();
    node.status.get_or_insert_default().conditions = Some(vec![NodeCondition {
        type_: "Ready".to_owned(),
        status: if ready { "True" } else { "Unknown" }.to_owned(),
        last_transition_time: Some(Time(since)),
        ..NodeCondition::default()
    }]);
    node
}

fn holder(name: &str, ready: bool, seconds: i64) -> Node {
    let mut node = fresh(name, ready, seconds);
    node.spec = None;
    node.spec.get_or_insert_default().provider_id = Some("mock://i".to_owned());
    node
}

fn may_have(node: &Node, there: &[Node]) -> Result<(), CallError> {
    let store = there.iter().cloned().collect();
    Claims::default().claim(node, "mock://i", &store, wall())
}

#[test]
fn l6_an_id_that_another_node_has_is_not_given_again() {
    let node = fresh("twin", true, 5);
    assert_eq!(may_have(&node, &[]), Ok(()));
    let trouble = may_have(&node, &[holder("a", true, 9_999)]).unwrap_err();
    assert_eq!(trouble.code, CallErrorCode::Fault);
    for words in ["\"mock://i\"", "Node a has", "5 min"] {
        assert!(trouble.message.contains(words), "{}", trouble.message);
    }
    // The holder is the Node itself: a write had no answer, or the Node was created again under
    // its name.
    assert_eq!(may_have(&node, &[holder("twin", true, 9_999)]), Ok(()));
}

#[test]
fn l6_a_stale_node_does_not_block_the_machine_that_came_back_under_another_name() {
    let node = fresh("renamed", true, 5);
    for (ready, seconds, blocks) in [
        (true, 9_999, true),
        (false, 299, true),
        (false, 300, false),
        // The wall clock is behind the time of the transition.
        (false, -100, true),
    ] {
        let held = may_have(&node, &[holder("old", ready, seconds)]);
        assert_eq!(held.is_err(), blocks, "{ready} {seconds}");
    }
    // Without a Ready condition, the Node's age decides.
    let mut silent = holder("old", false, 0);
    silent.status = None;
    assert!(may_have(&node, std::slice::from_ref(&silent)).is_err());
    silent.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert_eq!(may_have(&node, &[silent]), Ok(()));
    let mut going = holder("old", true, 9_999);
    going.metadata.deletion_timestamp = Some(Time(wall()));
    assert_eq!(may_have(&node, &[going.clone()]), Ok(()));
    // One holder that blocks the ID is enough, even if another holder does not.
    assert!(may_have(&node, &[going, holder("other", true, 9_999)]).is_err());
}

#[test]
fn l6_an_id_is_given_once_though_the_watch_is_behind() {
    let claims = Claims::default();
    let mut nodes = ["a", "b", "c", "going"].map(|name| fresh(name, true, 5));
    nodes[3].metadata.deletion_timestamp = Some(Time(wall()));
    let store: Store<Node> = nodes.into_iter().collect();
    let claim = |name: &str, id: &str| claims.claim(&fresh(name, true, 5), id, &store, wall());
    // The claim of a Node that is gone, or being deleted, keeps the ID from nobody.
    assert_eq!(claim("gone", "1"), Ok(()));
    assert_eq!(claim("going", "1"), Ok(()));
    assert_eq!(claim("a", "1"), Ok(()));
    assert_eq!(claim("a", "1"), Ok(()));
    let reserved = claim("b", "1").unwrap_err().message;
    assert!(
        reserved.ends_with("\"1\", which the ccm is giving to Node a"),
        "{reserved}"
    );
    // The provider corrects its answer.
    assert_eq!(claim("a", "2"), Ok(()));
    assert_eq!(claim("b", "1"), Ok(()));
    claims.settled("a");
    assert_eq!(claim("c", "2"), Ok(()));
    claims.settled("b");
    claims.settled("c");
    assert!(claims.claims().is_empty(), "nothing is left behind");
}

#[test]
fn l6_an_id_that_one_call_gives_to_two_new_nodes_is_given_to_neither() {
    let lookup = |node: Node, id: &str| Lookup {
        item: Arc::new(node),
        answer: Ok(api::Instance {
            provider_id: Some(id.to_owned()),
            ..api::Instance::default()
        }),
        whole: false,
    };
    let mut found = vec![
        lookup(fresh("a", true, 5), "1"),
        lookup(fresh("b", true, 5), "1"),
        lookup(fresh("c", true, 5), "2"),
        // This Node has an ID already, so its answer gives it none.
        lookup(holder("d", true, 5), "2"),
        // This Node is stale: its machine has returned as c.
        lookup(fresh("stale", false, 400), "2"),
        lookup(fresh("e", true, 5), ""),
        lookup(fresh("f", true, 5), ""),
    ];
    refuse_what_is_given_twice(&mut found, wall());
    let refused: Vec<(&str, &str)> = found
        .iter()
        .filter_map(|lookup| {
            let trouble = lookup.answer.as_ref().err()?;
            Some((name(&lookup.item), trouble.message.as_str()))
        })
        .collect();
    assert_eq!(refused.len(), 2, "{refused:?}");
    for ((node, message), (expected, other)) in refused.iter().zip([("a", "b"), ("b", "a")]) {
        assert_eq!(*node, expected);
        let text = format!("\"1\", and the same for Node {other}: ");
        assert!(message.contains(&text), "{message}");
    }
}
