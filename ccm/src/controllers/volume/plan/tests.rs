//! The cases of upstream's persistent volume label controller and admission plugin, and the ccm's
//! own.

use serde_json::{Value, json};

use super::*;

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

fn disk() -> Value {
    json!({
        "metadata": {"name": "pv", "uid": "u"},
        "spec": {"csi": {"driver": "disk.example.org", "volumeHandle": "d-1"}},
    })
}

fn volume(value: Value) -> PersistentVolume {
    serde_json::from_value(value).unwrap()
}

/// A volume with node affinity. Each term is a list of `(key, values)`.
fn with_terms(terms: &[&[(&str, &[&str])]]) -> PersistentVolume {
    let terms: Vec<Value> = terms
        .iter()
        .map(|term| {
            let expressions: Vec<Value> = term
                .iter()
                .map(|(key, values)| json!({"key": key, "operator": "In", "values": values}))
                .collect();
            json!({"matchExpressions": expressions})
        })
        .collect();
    let mut value = disk();
    value["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
    volume(value)
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// Terms in the format `key=a|b,key=c; key=d`.
fn terms(affinity: Option<&VolumeNodeAffinity>) -> Option<String> {
    let terms = &affinity?.required.as_ref()?.node_selector_terms;
    let expression = |it: &NodeSelectorRequirement| {
        assert_eq!(it.operator, "In");
        format!(
            "{}={}",
            it.key,
            it.values.clone().unwrap_or_default().join("|")
        )
    };
    let term = |term: &NodeSelectorTerm| {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        expressions
            .iter()
            .map(expression)
            .collect::<Vec<_>>()
            .join(",")
    };
    Some(terms.iter().map(term).collect::<Vec<_>>().join("; "))
}

fn plan(volume: &PersistentVolume, given: &[(&str, &str)]) -> Option<Labelling> {
    answered(volume, "mock", &labels(given)).unwrap()
}

/// The case's name, the volume, the provider's labels, and the expected terms.
type Row<'a> = (
    &'a str,
    &'a PersistentVolume,
    &'a [(&'a str, &'a str)],
    Option<&'a str>,
);

#[test]
fn b_v1_node_affinity_is_made_of_zone_and_region_and_goes_into_each_term() {
    let none = volume(disk());
    let two = with_terms(&[&[("c", &["1", "2"]), ("d", &["3"])], &[("e", &["4"])]]);
    let rows: &[Row<'_>] = &[
        (
            "one zone",
            &none,
            &[(ZONE, "a")],
            Some("topology.kubernetes.io/zone=a"),
        ),
        (
            "zone and region",
            &none,
            &[(ZONE, "a"), (REGION, "r")],
            Some("topology.kubernetes.io/region=r,topology.kubernetes.io/zone=a"),
        ),
        (
            "by their old names",
            &none,
            &[(BETA_ZONE, "a"), (BETA_REGION, "r")],
            Some(
                "failure-domain.beta.kubernetes.io/region=r,failure-domain.beta.kubernetes.io/zone=a",
            ),
        ),
        (
            "several zones, in order and once each",
            &none,
            &[(ZONE, "c__a__b__a")],
            Some("topology.kubernetes.io/zone=a|b|c"),
        ),
        (
            "several zones by the old name",
            &none,
            &[(BETA_ZONE, "b__a")],
            Some("failure-domain.beta.kubernetes.io/zone=a|b"),
        ),
        (
            "a region is one, whatever it looks like",
            &none,
            &[(REGION, "b__a")],
            Some("topology.kubernetes.io/region=b__a"),
        ),
        (
            "into each of the terms that are there",
            &two,
            &[(ZONE, "a__b")],
            Some("c=1|2,d=3,topology.kubernetes.io/zone=a|b; e=4,topology.kubernetes.io/zone=a|b"),
        ),
        (
            "other labels are labels and nothing else",
            &two,
            &[("example.org/tier", "gold")],
            None,
        ),
        (
            "affinity without terms gets one",
            &with_terms(&[]),
            &[(ZONE, "a")],
            Some("topology.kubernetes.io/zone=a"),
        ),
    ];
    for (what, volume, given, expected) in rows {
        let found = plan(volume, given).unwrap().patch;
        assert_eq!(found.labels, labels(given), "{what}");
        assert_eq!(
            terms(found.node_affinity.as_ref()).as_deref(),
            *expected,
            "{what}"
        );
    }
}

#[test]
fn b_v1_terms_that_say_something_of_zone_or_region_are_left_as_they_are() {
    for (what, held) in [
        ("the same zone", with_terms(&[&[(ZONE, &["a"])]])),
        ("another zone", with_terms(&[&[(ZONE, &["z"])]])),
        (
            "in the second term only",
            with_terms(&[&[("e", &["1"])], &[(REGION, &["r"])]]),
        ),
    ] {
        let found = plan(&held, &[(ZONE, "a"), (REGION, "r")]).unwrap().patch;
        assert_eq!(found.node_affinity, None, "{what}");
        assert_eq!(
            found.labels.len(),
            2,
            "{what}: the labels are set all the same"
        );
    }
    // A term with the former key of the zone says nothing about the present key.
    let old = with_terms(&[&[(BETA_ZONE, &["a"])]]);
    let found = plan(&old, &[(ZONE, "a")]).unwrap().patch;
    assert_eq!(
        terms(found.node_affinity.as_ref()).as_deref(),
        Some("failure-domain.beta.kubernetes.io/zone=a,topology.kubernetes.io/zone=a")
    );
}

#[test]
fn b_v1_terms_by_field_get_the_zone_too() {
    let mut value = disk();
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": ["n"]}]);
    value["spec"]["nodeAffinity"] =
        json!({"required": {"nodeSelectorTerms": [{"matchFields": fields}]}});
    let found = plan(&volume(value), &[(ZONE, "a")]).unwrap().patch;
    let affinity = found.node_affinity.unwrap();
    let [term] = affinity
        .required
        .unwrap()
        .node_selector_terms
        .try_into()
        .unwrap();
    assert_eq!(term.match_fields.unwrap().len(), 1);
    assert_eq!(term.match_expressions.unwrap()[0].key, ZONE);
}

#[test]
fn b_v1_an_empty_term_stays_empty_because_it_matches_no_node() {
    let some = with_terms(&[&[("e", &["1"])], &[]]);
    let found = plan(&some, &[(ZONE, "a")]).unwrap().patch;
    assert_eq!(
        terms(found.node_affinity.as_ref()).as_deref(),
        Some("e=1,topology.kubernetes.io/zone=a; ")
    );
    let none = plan(&with_terms(&[&[], &[]]), &[(ZONE, "a")]).unwrap();
    assert_eq!((none.patch.node_affinity, none.not_set), (None, None));
    assert_eq!(none.patch.labels, labels(&[(ZONE, "a")]));
}

#[test]
fn b_v1_more_terms_than_the_bound_get_no_zone() {
    let term: &[(&str, &[&str])] = &[("e", &["1"])];
    let given = [(ZONE, "a")];
    let most = plan(&with_terms(&[term; MOST_TERMS]), &given).unwrap();
    assert!(most.patch.node_affinity.is_some() && most.not_set.is_none());
    let many = with_terms(&[term; MOST_TERMS + 1]);
    let found = plan(&many, &given).unwrap();
    assert_eq!(found.patch.node_affinity, None);
    assert_eq!(found.patch.labels, labels(&given), "the labels are set");
    assert!(found.not_set.unwrap().contains("101 terms"));

    // A volume with labels of its own gets the mark, so that the ccm does not report it again.
    let found = trusted(&many, "mock", &labels(&given)).unwrap().unwrap();
    assert!(found.not_set.is_some());
    let after = patched(&many, &found.patch);
    assert_eq!(task(&after, "mock", &[]), Task::LeaveAlone);
}

#[test]
fn b_v1_the_providers_labels_overwrite_what_is_there_and_nothing_else_is_touched() {
    let mut value = disk();
    value["metadata"]["labels"] = json!({ZONE: "wrong", "example.org/tier": "gold", "mine": "1"});
    let held = volume(value);
    let found = plan(&held, &[(ZONE, "a"), ("example.org/tier", "gold")]).unwrap();
    assert_eq!(
        found.patch.labels,
        labels(&[(ZONE, "a")]),
        "only what differs"
    );
    let after = patched(&held, &found.patch);
    assert_eq!(
        after.metadata.labels.unwrap(),
        labels(&[(ZONE, "a"), ("example.org/tier", "gold"), ("mine", "1")])
    );
    assert_eq!(
        after.metadata.annotations.unwrap()[MARK],
        "mock csi driver=disk.example.org,volumeHandle=d-1"
    );
}

/// ccm/tests/stored documents the origin of this volume.
#[test]
fn b_v1_a_volume_that_an_older_version_labelled_is_done_and_is_labelled_in_the_same_way() {
    let stored = include_str!("../../../../tests/stored/f13e2bc/volume.json");
    let stored: PersistentVolume = serde_json::from_str(stored).unwrap();
    let types = ["csi/disk.example.org".to_owned()];
    assert_eq!(task(&stored, "mock", &types), Task::LeaveAlone);
    let mut bare: PersistentVolume = stored.clone();
    bare.metadata.annotations = None;
    bare.metadata.labels = None;
    bare.spec.get_or_insert_default().node_affinity = None;
    assert!(matches!(task(&bare, "mock", &types), Task::Ask(_)));
    let found = plan(&bare, &[(ZONE, "a"), (REGION, "r")]).unwrap();
    assert_eq!(patched(&bare, &found.patch), stored);
}

#[test]
fn b_v1_a_volume_without_labels_of_this_cloud_is_left_alone() {
    assert_eq!(plan(&volume(disk()), &[]), None);
    assert_eq!(plan(&with_terms(&[&[("c", &["1"])]]), &[]), None);
}

#[test]
fn b_v1_labels_that_no_volume_can_have_are_dropped_and_named() {
    let found = plan(
        &volume(disk()),
        &[
            (ZONE, "a"),
            ("kubernetes.io/hostname", "n"),
            ("node.k8s.io/x", "1"),
            ("grpc-ccm.io/provider", "other"),
            ("example.org/long", &"x".repeat(64)),
            ("-wrong", "1"),
            ("fine", "1"),
        ],
    )
    .unwrap();
    assert_eq!(found.patch.labels, labels(&[(ZONE, "a"), ("fine", "1")]));
    assert_eq!(found.dropped.len(), 5, "{:?}", found.dropped);
    assert!(
        found.dropped[0].starts_with("\"-wrong\" = \"1\""),
        "{:?}",
        found.dropped
    );

    // The answer counts even if no label is left, so the ccm does not ask again.
    let found = plan(&volume(disk()), &[("kubernetes.io/os", "x")]).unwrap();
    assert!(found.patch.labels.is_empty() && found.patch.annotations.contains_key(MARK));
}

#[test]
fn a_zone_that_no_label_can_hold_is_no_answer() {
    for wrong in ["", "a____b", "__a", "a__", "a b", "a__-b", &"z".repeat(64)] {
        let error = answered(&volume(disk()), "mock", &labels(&[(ZONE, wrong)])).unwrap_err();
        assert!(error.contains(ZONE), "{error}");
    }
    assert!(answered(&volume(disk()), "mock", &labels(&[(REGION, "")])).is_err());
}

#[test]
fn b_v1_a_volume_that_is_done_is_not_asked_about_again() {
    let fresh = volume(disk());
    assert!(matches!(task(&fresh, "mock", &[]), Task::Ask(_)));
    let found = plan(&fresh, &[(ZONE, "a")]).unwrap();
    let mut done = patched(&fresh, &found.patch);
    assert_eq!(task(&done, "mock", &[]), Task::LeaveAlone);
    // The ccm asks if the provider differs, or if the source differs under the same annotations.
    assert!(matches!(task(&done, "other", &[]), Task::Ask(_)));
    let csi = done.spec.as_mut().unwrap().csi.as_mut().unwrap();
    csi.volume_handle = "d-2".to_owned();
    assert!(matches!(task(&done, "mock", &[]), Task::Ask(_)));
}

#[test]
fn b_v1_who_is_asked_about() {
    let with = |field: &str, entry: Value| {
        let mut value = disk();
        value["metadata"][field] = entry;
        volume(value)
    };
    let spec = |spec: Value| volume(json!({"metadata": {"name": "pv"}, "spec": spec}));
    let ours = ["csi/disk.example.org".to_owned()];
    let provisioned = json!({PROVISIONED_BY: "disk.example.org"});
    for (what, volume, source_types, asked) in vec![
        ("a disk of this cloud", volume(disk()), &ours[..], true),
        ("the provider names no sources", volume(disk()), &[], true),
        (
            "a directory of a node",
            spec(json!({"hostPath": {"path": "/d"}})),
            &ours,
            false,
        ),
        (
            "another driver's",
            spec(json!({"csi": {"driver": "x", "volumeHandle": "d"}})),
            &ours,
            false,
        ),
        ("no source that is known", spec(json!({})), &[], false),
        (
            "still being provisioned",
            spec(json!({"awsElasticBlockStore": {"volumeID": PLACEHOLDER}})),
            &[],
            false,
        ),
        (
            "being deleted",
            with("deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            &ours,
            false,
        ),
        (
            "provisioned, without labels",
            with("annotations", provisioned.clone()),
            &ours,
            true,
        ),
        (
            "labelled by hand: not believed",
            with("labels", json!({ZONE: "a", REGION: "r"})),
            &ours,
            true,
        ),
    ] {
        let asks = matches!(task(&volume, "mock", source_types), Task::Ask(_));
        assert_eq!(asks, asked, "{what}");
    }
}

#[test]
fn b_v1_labels_of_whoever_provisioned_the_volume_are_believed() {
    let provisioned = |labels: Value| {
        let mut value = disk();
        value["metadata"]["annotations"] = json!({PROVISIONED_BY: "disk.example.org"});
        value["metadata"]["labels"] = labels;
        volume(value)
    };
    for (what, held, trusted) in [
        (
            "both",
            json!({ZONE: "a", REGION: "r", "x": "1"}),
            Some([(REGION, "r"), (ZONE, "a")]),
        ),
        (
            "both by their old names",
            json!({BETA_ZONE: "a", BETA_REGION: "r"}),
            Some([(BETA_REGION, "r"), (BETA_ZONE, "a")]),
        ),
        (
            "the new names go before the old",
            json!({BETA_ZONE: "b", BETA_REGION: "b", ZONE: "a", REGION: "r"}),
            Some([(REGION, "r"), (ZONE, "a")]),
        ),
        ("the zone alone", json!({ZONE: "a"}), None),
        ("mixed names", json!({ZONE: "a", BETA_REGION: "r"}), None),
    ] {
        match (task(&provisioned(held), "mock", &[]), trusted) {
            (Task::Trust(found), Some(expected)) => assert_eq!(found, labels(&expected), "{what}"),
            (Task::Ask(_), None) => {}
            (task, _) => panic!("{what}: {task:?}"),
        }
    }

    let held = provisioned(json!({ZONE: "a__b", REGION: "r"}));
    let Task::Trust(believed) = task(&held, "mock", &[]) else {
        panic!("believed");
    };
    let found = trusted(&held, "mock", &believed).unwrap().unwrap();
    assert!(found.patch.labels.is_empty(), "they are there");
    assert_eq!(
        terms(found.patch.node_affinity.as_ref()).as_deref(),
        Some("topology.kubernetes.io/region=r,topology.kubernetes.io/zone=a|b")
    );
    let after = patched(&held, &found.patch);
    assert_eq!(
        trusted(&after, "mock", &believed),
        Ok(None),
        "nothing is left to do"
    );
}

#[test]
fn b_v1_only_a_change_of_what_counts_wakes() {
    let old = volume(disk());
    assert!(wakes(None, &old));
    assert!(!wakes(Some(&old), &old));
    let mut new = old.clone();
    new.metadata.resource_version = Some("2".to_owned());
    new.spec.as_mut().unwrap().storage_class_name = Some("fast".to_owned());
    assert!(!wakes(Some(&old), &new));
    new.metadata.labels = Some(labels(&[("a", "1")]));
    assert!(wakes(Some(&old), &new));
    assert!(wakes(Some(&old), &with_terms(&[&[("a", &["1"])]])));
    let mut again = old.clone();
    again.metadata.uid = Some("another".to_owned());
    assert!(wakes(Some(&old), &again), "made again under the same name");
}
