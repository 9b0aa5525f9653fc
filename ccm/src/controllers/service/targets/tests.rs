mod changes;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::controllers::service::fixtures::node;

// Written out, because users and other programs write them.
const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

fn view(node: &Node) -> api::NodeView {
    api::NodeView {
        name: node.metadata.name.clone().unwrap(),
        uid: node.metadata.uid.clone().unwrap(),
        provider_id: node.spec.as_ref().unwrap().provider_id.clone(),
        ready: ready(node),
        ..api::NodeView::default()
    }
}

fn ready(node: &Node) -> Option<bool> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|it| it.type_ == "Ready")?;
    Some(ready.status == "True")
}

fn observe(candidates: &mut Candidates, node: Node) -> bool {
    let (view, identity) = (view(&node), identity(&node));
    observe_as(candidates, node, view, &identity)
}

/// The identity if the provider names no further fields.
fn identity(node: &Node) -> api::NodeView {
    api::NodeView {
        ready: None,
        ..view(node)
    }
}

fn observe_as(
    candidates: &mut Candidates,
    node: Node,
    view: api::NodeView,
    identity: &api::NodeView,
) -> bool {
    let name = node.metadata.name.clone().unwrap();
    let now = Candidate::new(Arc::new(node), view, identity);
    candidates.observe(&name, Some(now))
}

fn names(set: &TargetSet) -> Vec<&str> {
    set.nodes.iter().map(|node| node.name.as_str()).collect()
}

fn label(node: &mut Node, key: &str, value: &str) {
    node.metadata
        .labels
        .get_or_insert_default()
        .insert(key.to_owned(), value.to_owned());
}

type Edit = fn(&mut Node);
type Change = fn(&mut api::NodeView);

#[test]
fn b_s6_who_is_a_target() {
    let cases: [(&str, Edit, bool); 14] = [
        ("plain", |_| {}, true),
        (
            "being deleted",
            |n| n.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH)),
            false,
        ),
        ("excluded", |n| label(n, EXCLUDE_LABEL, "true"), false),
        (
            "excluded by any value",
            |n| label(n, EXCLUDE_LABEL, ""),
            false,
        ),
        ("not excluded", |n| label(n, EXCLUDE_LABEL, "false"), true),
        (
            "not excluded, as Go writes it",
            |n| label(n, EXCLUDE_LABEL, "False"),
            true,
        ),
        (
            "not excluded, as a number",
            |n| label(n, EXCLUDE_LABEL, "0"),
            true,
        ),
        (
            "excluded by a number",
            |n| label(n, EXCLUDE_LABEL, "1"),
            false,
        ),
        ("another label", |n| label(n, "example.com/rack", "1"), true),
        ("ready", |n| condition(n, "Ready", "True"), true),
        ("not ready", |n| condition(n, "Ready", "False"), true),
        (
            "the autoscaler takes it away",
            |n| taint(n, AUTOSCALER_TAINT),
            false,
        ),
        (
            "another taint",
            |n| taint(n, "node.kubernetes.io/not-ready"),
            true,
        ),
        ("no status", |n| n.status = None, true),
    ];
    for scope in [api::TargetScope::Owned, api::TargetScope::All] {
        for (name, edit, expected) in cases {
            let mut node = node("a");
            edit(&mut node);
            assert_eq!(eligible(&node, scope, true), expected, "{name}");
        }
    }
}

fn taint(node: &mut Node, key: &str) {
    node.spec
        .get_or_insert_default()
        .taints
        .get_or_insert_default()
        .push(Taint {
            key: key.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        });
}

#[test]
fn s14_owned_needs_the_owner_and_the_id() {
    let plain = node("a");
    let mut fresh = node("b");
    fresh.spec.get_or_insert_default().provider_id = None;
    let mut empty = node("c");
    empty.spec.get_or_insert_default().provider_id = Some(String::new());
    for scope in [api::TargetScope::Owned, api::TargetScope::Unspecified] {
        assert!(eligible(&plain, scope, true));
        assert!(!eligible(&plain, scope, false));
        assert!(!eligible(&fresh, scope, true));
        assert!(!eligible(&empty, scope, true));
    }
    assert!(eligible(&plain, api::TargetScope::All, false));
    assert!(eligible(&fresh, api::TargetScope::All, false));
}

#[test]
fn b_s7_s14_what_a_target_is_changes_a_set_and_what_is_sent_with_it_does_not() {
    let all = NodeSelector::default();
    let mut candidates = Candidates::default();
    assert!(observe(&mut candidates, node("a")));
    let before = candidates.select(&all);
    assert!(!observe(&mut candidates, node("a")), "the same again");
    assert!(candidates.is_current(&before));

    let changes: [(&str, Change); 8] = [
        ("provider ID", |v| v.provider_id = Some("mock://new".into())),
        ("UID", |v| v.uid = "new".into()),
        ("addresses", |v| {
            v.addresses.push(api::NodeAddress {
                r#type: api::NodeAddressType::InternalIp.into(),
                address: "10.0.0.1".into(),
            });
        }),
        ("a label", |v| {
            v.labels.insert("zone".into(), "a".into());
        }),
        ("an annotation", |v| {
            v.annotations.insert("x".into(), "a".into());
        }),
        ("a taint", |v| v.taints.push(api::Taint::default())),
        ("node info", |v| {
            v.node_info = Some(api::NodeInfo::default());
        }),
        ("readiness", |v| v.ready = Some(false)),
    ];
    for (name, change) in changes {
        let mut changed = view(&node("a"));
        change(&mut changed);
        observe(&mut candidates, node("a"));
        let before = candidates.select(&all);
        // The change only affects the request's view.
        let same = identity(&node("a"));
        assert!(
            !observe_as(&mut candidates, node("a"), changed.clone(), &same),
            "{name}"
        );
        assert!(!candidates.is_current(&before), "{name}");
        let sent = candidates.select(&all);
        assert_eq!(sent.nodes, [Arc::new(changed.clone())], "{name}");
        assert_eq!(sent.fingerprint, before.fingerprint, "{name}");
        // The change affects the target's identity, or a field that the provider names.
        observe(&mut candidates, node("a"));
        assert!(
            observe_as(&mut candidates, node("a"), changed.clone(), &changed),
            "{name}"
        );
        let other = candidates.select(&all);
        assert_ne!(other.fingerprint, before.fingerprint, "{name}");
    }
    let before = candidates.select(&all);
    assert!(candidates.observe("a", None), "gone");
    observe(&mut candidates, node("b"));
    assert!(!candidates.is_current(&before), "one went and one came");
    candidates.observe("b", None);
    assert!(!candidates.observe("a", None), "gone already");
    let empty = candidates.select(&all);
    candidates.clear(None);
    assert!(!candidates.is_current(&empty), "all are examined again");
}

#[test]
fn s17_a_selector_limits_the_targets() {
    let mut candidates = Candidates::default();
    for (name, zone) in [("a", "z1"), ("b", "z2"), ("c", "z1")] {
        let mut node = node(name);
        label(&mut node, "zone", zone);
        observe(&mut candidates, node);
    }
    let mut service = crate::controllers::service::fixtures::service();
    service.metadata.annotations =
        Some([("grpc-ccm.io/node-selector".to_owned(), "zone=z1".to_owned())].into());
    let selector = NodeSelector::of(&service).unwrap();
    assert_eq!(names(&candidates.select(&selector)), ["a", "c"]);
    let mut moved = node("b");
    label(&mut moved, "zone", "z1");
    assert!(
        observe(&mut candidates, moved),
        "a label that is not projected"
    );
    assert_eq!(names(&candidates.select(&selector)), ["a", "b", "c"]);
}

#[test]
fn s17_a_subset_is_stable() {
    let select = |count: usize, without: Option<usize>| -> BTreeSet<String> {
        let mut candidates = Candidates::default();
        candidates.clear(Some(50));
        for i in (0..count).filter(|i| Some(*i) != without) {
            observe(&mut candidates, node(&format!("node-{i:04}")));
        }
        let set = candidates.select(&NodeSelector::default());
        assert!(set.nodes.is_sorted_by_key(|node| node.name.clone()));
        names(&set).into_iter().map(str::to_owned).collect()
    };
    let before = select(500, None);
    assert_eq!(before.len(), 50);
    // One more Node displaces at most one chosen Node.
    for count in 501..520 {
        let after = select(count, None);
        let smaller = select(count - 1, None);
        assert!(after.difference(&smaller).count() <= 1, "{count}");
    }
    // If a chosen Node leaves, another Node takes its place. Otherwise the subset stays.
    for gone in 0..500 {
        let after = select(500, Some(gone));
        let chosen = before.contains(&format!("node-{gone:04}"));
        assert_eq!(before.difference(&after).count(), usize::from(chosen));
        assert_eq!(after.len(), 50);
    }
    // The names are in sequence, but the chosen Nodes are spread over all of them.
    let low = before
        .iter()
        .filter(|name| name.as_str() < "node-0250")
        .count();
    assert!((10..=40).contains(&low), "{low} of 50 in the first half");
    assert_eq!(select(30, None).len(), 30);
}

#[test]
fn s17_of_a_set_that_is_cut_the_ready_nodes_come_first() {
    let is = |name: &str, status: &str| {
        let mut node = node(name);
        condition(&mut node, "Ready", status);
        node
    };
    let (all, nodes) = (NodeSelector::default(), ["a", "b", "c", "d"]);
    let mut candidates = Candidates::default();
    candidates.clear(Some(2));
    for name in nodes {
        observe(&mut candidates, is(name, "True"));
    }
    let before = candidates.select(&all);
    assert_eq!((before.nodes.len(), before.left_out), (2, 2));
    let first = names(&before)[0].to_owned();
    assert!(observe(&mut candidates, is(&first, "Unknown")));
    let after = candidates.select(&all);
    assert!(after.nodes.len() == 2 && !names(&after).contains(&first.as_str()));
    // When the Node is Ready again, the choice is as before. It is also as before when no Node is
    // Ready.
    assert!(observe(&mut candidates, is(&first, "True")));
    assert_eq!(candidates.select(&all).fingerprint, before.fingerprint);
    for name in nodes {
        observe(&mut candidates, is(name, "False"));
    }
    assert_eq!(names(&candidates.select(&all)), names(&before));
    // If all are chosen, readiness does not matter.
    for name in &nodes[..2] {
        candidates.observe(name, None);
    }
    let whole = candidates.select(&all);
    assert_eq!(whole.left_out, 0);
    // Nor does it without a limit.
    let mut unlimited = Candidates::default();
    observe(&mut unlimited, is("a", "False"));
    assert!(!observe(&mut unlimited, is("a", "True")));
    assert!(
        !observe(&mut candidates, is("c", "True")),
        "no reason for a call (B-S7)"
    );
    assert_eq!(candidates.select(&all).fingerprint, whole.fingerprint);
}

#[test]
fn b_s7_a_set_that_shrinks_to_empty_waits_for_the_api_servers_word() {
    let all = NodeSelector::default();
    let mut candidates = Candidates::default();
    let mut sets = Sets::default();

    sets.offer(&all, candidates.select(&all));
    assert!(sets.get(&all).is_none(), "the first set waits too");
    let now = Instant::now();
    assert_eq!(sets.to_ask(now), std::slice::from_ref(&all));
    assert!(sets.confirm_empty(&all));
    assert!(sets.get(&all).unwrap().is_empty());
    sets.offer(&all, candidates.select(&all));
    assert!(sets.get(&all).unwrap().is_empty(), "still empty");
    assert!(sets.to_ask(now).is_empty());

    observe(&mut candidates, node("a"));
    sets.offer(&all, candidates.select(&all));
    assert_eq!(names(sets.get(&all).unwrap()), ["a"]);
    candidates.observe("a", None);
    sets.offer(&all, candidates.select(&all));
    assert_eq!(names(sets.get(&all).unwrap()), ["a"], "the old set stays");
    assert_eq!(sets.to_ask(now), std::slice::from_ref(&all));
    observe(&mut candidates, node("a"));
    sets.offer(&all, candidates.select(&all));
    assert_eq!(names(sets.get(&all).unwrap()), ["a"], "it came back");
    assert!(sets.to_ask(now).is_empty());
    assert!(!sets.confirm_empty(&all), "a late answer changes nothing");
    sets.retain(|_| false);
    assert!(sets.get(&all).is_none());
}

#[test]
fn s17_one_selector_that_waits_keeps_no_other_waiting() {
    let now = Instant::now();
    let later = now + Duration::from_secs(5);
    let empty = || Candidates::default().select(&NodeSelector::default());
    let selector = |text: &str| {
        let mut service = crate::controllers::service::fixtures::service();
        let annotation = ("grpc-ccm.io/node-selector".to_owned(), text.to_owned());
        service.metadata.annotations = Some([annotation].into());
        NodeSelector::of(&service).unwrap()
    };
    let (first, second) = (selector("a"), selector("b"));
    let mut sets = Sets::default();
    sets.offer(&first, empty());
    assert_eq!(sets.next_ask(), None, "it is asked about at once");
    assert!(sets.ask_again(&first, later));
    assert!(sets.to_ask(now).is_empty());
    assert_eq!(sets.next_ask(), Some(later));
    // After another offer, the first set still waits. The second set does not wait for the first.
    sets.offer(&first, empty());
    sets.offer(&second, empty());
    assert_eq!(sets.to_ask(now), std::slice::from_ref(&second));
    assert_eq!(sets.to_ask(later).len(), 2);
    sets.confirm_empty(&first);
    assert!(!sets.ask_again(&first, later), "it is in doubt no more");
    assert_eq!(sets.next_ask(), None);
}

fn condition(node: &mut Node, kind: &str, status: &str) {
    let condition = NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        ..NodeCondition::default()
    };
    let status = node.status.get_or_insert_default();
    status.conditions.get_or_insert_default().push(condition);
}
