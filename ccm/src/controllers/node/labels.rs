//! The labels of a Node. Pure.

use std::collections::{BTreeMap, BTreeSet};

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

use crate::core::{is_reserved_key, is_valid_key, is_valid_value};
use crate::planted::planted;

type Labels = BTreeMap<String, String>;

/// A fact of the cloud and the two labels for it, the current label first (B-N3).
struct Pair {
    current: &'static str,
    beta: &'static str,
    fact: fn(&api::Instance) -> Option<&str>,
}

const PAIRS: [Pair; 3] = [
    Pair {
        current: "node.kubernetes.io/instance-type",
        beta: "beta.kubernetes.io/instance-type",
        fact: |instance| instance.instance_type.as_deref(),
    },
    Pair {
        current: "topology.kubernetes.io/zone",
        beta: "failure-domain.beta.kubernetes.io/zone",
        fact: |instance| instance.zone.as_deref(),
    },
    Pair {
        current: "topology.kubernetes.io/region",
        beta: "failure-domain.beta.kubernetes.io/region",
        fact: |instance| instance.region.as_deref(),
    },
];

/// Changes to a Node's labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LabelChanges {
    /// Labels to set. Each differs from the Node's.
    pub(super) set: Labels,
    /// For a Node that is being initialised: labels from the provider with invalid syntax, as text
    /// for people (▲N14).
    pub(super) dropped: Vec<String>,
    /// For such a Node: labels from the provider that it may not set (B-N4), as text for people.
    /// Those that the Node has, or this plan sets, with the same value are left out.
    pub(super) reserved: Vec<String>,
    /// A label differs, and only the Node's managed fields say who wrote it (▲N12).
    pub(super) needs_managed: bool,
}

/// The changes for a Node that is being initialised (B-N3, B-N4, ▲N14).
pub(super) fn initial(existing: &Labels, instance: &api::Instance) -> LabelChanges {
    let mut changes = LabelChanges::default();
    for pair in &PAIRS {
        let Some(value) = stated(pair, instance) else {
            continue;
        };
        if !is_valid_value(value) {
            changes.dropped.push(describe(pair.current, value));
            continue;
        }
        for key in [pair.current, pair.beta] {
            set_where_different(&mut changes.set, existing, key, value);
        }
    }
    for (key, value) in &instance.labels {
        if is_reserved_key(key) {
            // A reserved label is no mistake if the Node has this value already, or if this plan
            // sets it.
            let holds = |labels: &Labels| labels.get(key) == Some(value);
            if !holds(existing) && !holds(&changes.set) {
                changes.reserved.push(describe(key, value));
            }
            continue;
        }
        if existing.contains_key(key) {
            continue;
        }
        if is_valid_key(key) && is_valid_value(value) {
            changes.set.insert(key.clone(), value.clone());
        } else {
            changes.dropped.push(describe(key, value));
        }
    }
    changes
}

/// The changes for an initialised Node. The current label gets the value of its beta label (B-N10).
/// Labels that this controller wrote follow the cloud (▲N12), and missing labels are added. A
/// missing beta label is added only together with its current label. All other labels stay.
///
/// `instance` is `None` if no answer shows that it exists. `managed` has the keys that this
/// controller wrote last. `None`: the managed fields were not read.
pub(super) fn refreshed(
    existing: &Labels,
    instance: Option<&api::Instance>,
    managed: Option<&BTreeSet<String>>,
) -> LabelChanges {
    let mut changes = LabelChanges::default();
    let mut ours = |key: &str| {
        changes.needs_managed |= managed.is_none();
        planted!(UsersLabelIsReset) || managed.is_some_and(|keys| keys.contains(key))
    };
    let mut set = Labels::new();
    for pair in &PAIRS {
        let fact = instance
            .and_then(|instance| stated(pair, instance))
            .filter(|value| is_valid_value(value));
        let (beta, current) = (existing.get(pair.beta), existing.get(pair.current));
        let value = match (beta, current, fact) {
            (Some(holder), _, Some(fact)) if holder != fact && ours(pair.beta) => fact,
            // Without a beta label, only the current one changes: a new beta label would win from
            // then on.
            (None, Some(holder), Some(fact)) if holder != fact && ours(pair.current) => {
                set.insert(pair.current.to_owned(), fact.to_owned());
                continue;
            }
            (Some(holder), ..) => holder.as_str(),
            (None, None, Some(fact)) => fact,
            (None, ..) => continue,
        };
        for key in [pair.current, pair.beta] {
            set_where_different(&mut set, existing, key, value);
        }
    }
    for (key, value) in instance.iter().flat_map(|instance| &instance.labels) {
        if is_reserved_key(key) || !is_valid_key(key) || !is_valid_value(value) {
            continue;
        }
        let holder = existing.get(key);
        if holder.is_none_or(|holder| holder != value && ours(key)) {
            set.insert(key.clone(), value.clone());
        }
    }
    changes.set = set;
    changes
}

/// The label keys that `manager` wrote last, from the managed fields of a Node that was read from
/// the API server.
pub(super) fn managed_keys(fields: &[ManagedFieldsEntry], manager: &str) -> BTreeSet<String> {
    fields
        .iter()
        .filter(|entry| entry.manager.as_deref() == Some(manager))
        .filter_map(|entry| entry.fields_v1.as_ref())
        .filter_map(|fields| fields.0.get("f:metadata")?.get("f:labels")?.as_object())
        .flat_map(|labels| labels.keys())
        .filter_map(|key| key.strip_prefix("f:"))
        .map(str::to_owned)
        .collect()
}

fn stated<'a>(pair: &Pair, instance: &'a api::Instance) -> Option<&'a str> {
    (pair.fact)(instance).filter(|value| !value.is_empty())
}

fn set_where_different(set: &mut Labels, existing: &Labels, key: &str, value: &str) {
    if existing.get(key).is_none_or(|held| held != value) {
        set.insert(key.to_owned(), value.to_owned());
    }
}

fn describe(key: &str, value: &str) -> String {
    let short: String = value.chars().take(80).collect();
    let key: String = key.chars().take(80).collect();
    format!("{key:?} = {short:?}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;

    use super::*;

    const TYPE: &str = "node.kubernetes.io/instance-type";
    const BETA_TYPE: &str = "beta.kubernetes.io/instance-type";

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn instance(pairs: &[(&str, &str)]) -> api::Instance {
        api::Instance {
            instance_type: Some("m5.large".to_owned()),
            labels: labels(pairs),
            ..api::Instance::default()
        }
    }

    #[test]
    fn b_n3_both_labels_of_each_fact_are_set() {
        let given = api::Instance {
            zone: Some("z".to_owned()),
            region: Some("r".to_owned()),
            ..instance(&[])
        };
        let changes = initial(
            &labels(&[(TYPE, "old"), ("topology.kubernetes.io/zone", "z")]),
            &given,
        );
        assert_eq!(
            changes.set,
            labels(&[
                (TYPE, "m5.large"),
                (BETA_TYPE, "m5.large"),
                ("failure-domain.beta.kubernetes.io/zone", "z"),
                ("topology.kubernetes.io/region", "r"),
                ("failure-domain.beta.kubernetes.io/region", "r"),
            ])
        );
        assert_eq!(
            initial(&Labels::new(), &api::Instance::default()),
            LabelChanges::default()
        );
    }

    #[test]
    fn b_n4_additional_labels_only_where_the_key_is_free_and_not_reserved() {
        let given = api::Instance {
            instance_type: None,
            ..instance(&[
                ("free", "1"),
                ("example.com/free", "1"),
                ("notkubernetes.io/free", "1"),
                ("taken", "1"),
                ("kubernetes.io/a", "1"),
                ("node.kubernetes.io/a", "1"),
                ("k8s.io/a", "1"),
                ("x.y.k8s.io/a", "1"),
                ("grpc-ccm.io/provider", "other"),
            ])
        };
        let changes = initial(&labels(&[("taken", "0")]), &given);
        assert_eq!(
            changes.reserved,
            [
                r#""grpc-ccm.io/provider" = "other""#,
                r#""k8s.io/a" = "1""#,
                r#""kubernetes.io/a" = "1""#,
                r#""node.kubernetes.io/a" = "1""#,
                r#""x.y.k8s.io/a" = "1""#,
            ]
        );
        let wanted = labels(&[
            ("free", "1"),
            ("example.com/free", "1"),
            ("notkubernetes.io/free", "1"),
        ]);
        assert_eq!(changes.set, wanted);
        assert!(changes.dropped.is_empty());
    }

    #[test]
    fn b_n4_a_reserved_label_that_says_what_is_so_is_not_told() {
        let hostname = ("kubernetes.io/hostname", "node-a");
        let zone = ("topology.kubernetes.io/zone", "z");
        let given = api::Instance {
            zone: Some("z".to_owned()),
            ..instance(&[hostname, zone])
        };
        assert!(
            initial(&labels(&[hostname]), &given).reserved.is_empty(),
            "a correct provider causes no report"
        );
        let other = initial(&labels(&[("kubernetes.io/hostname", "node-b")]), &given);
        assert_eq!(
            other.reserved,
            [r#""kubernetes.io/hostname" = "node-a""#],
            "what the Node has stays"
        );
        assert!(!other.set.contains_key("kubernetes.io/hostname"));
        let elsewhere = api::Instance {
            zone: Some("y".to_owned()),
            ..instance(&[zone])
        };
        let contradicted = initial(&Labels::new(), &elsewhere);
        assert_eq!(contradicted.reserved.len(), 1);
        assert_eq!(contradicted.set[zone.0], "y");
    }

    #[test]
    fn n14_what_no_label_can_be_is_dropped_and_named() {
        let long = "x".repeat(64);
        let given = api::Instance {
            instance_type: Some("two words".to_owned()),
            ..instance(&[
                ("good", "fine"),
                ("empty", ""),
                ("long", &long),
                ("-key", "v"),
                ("UPPER.example/key", "v"),
                ("a/b/c", "v"),
                ("umlaut", "ä"),
            ])
        };
        let changes = initial(&Labels::new(), &given);
        assert_eq!(changes.set, labels(&[("good", "fine"), ("empty", "")]));
        assert_eq!(changes.dropped.len(), 6);
        assert!(changes.dropped[0].contains("two words"));
    }

    #[test]
    fn b_n10_the_beta_label_wins_and_fills_in() {
        for (name, existing, wanted) in [
            (
                "the current one is missing",
                labels(&[(BETA_TYPE, "a")]),
                labels(&[(TYPE, "a")]),
            ),
            (
                "they differ",
                labels(&[(BETA_TYPE, "a"), (TYPE, "b")]),
                labels(&[(TYPE, "a")]),
            ),
            (
                "they agree",
                labels(&[(BETA_TYPE, "a"), (TYPE, "a")]),
                Labels::new(),
            ),
            (
                "there is no beta label",
                labels(&[(TYPE, "b")]),
                Labels::new(),
            ),
        ] {
            assert_eq!(refreshed(&existing, None, None).set, wanted, "{name}");
        }
    }

    #[test]
    fn n12_only_what_we_wrote_is_kept_current() {
        let ours: BTreeSet<String> = [TYPE, BETA_TYPE, "team"].map(str::to_owned).into();
        let nobody = BTreeSet::new();
        let both = labels(&[(BETA_TYPE, "old"), (TYPE, "old"), ("team", "a")]);
        let given = instance(&[("team", "b")]);

        let unsure = refreshed(&both, Some(&given), None);
        assert!(unsure.needs_managed && unsure.set.is_empty());
        let changed = refreshed(&both, Some(&given), Some(&ours));
        let wanted = labels(&[(BETA_TYPE, "m5.large"), (TYPE, "m5.large"), ("team", "b")]);
        assert_eq!((changed.set, changed.needs_managed), (wanted, false));
        assert!(refreshed(&both, Some(&given), Some(&nobody)).set.is_empty());

        // Somebody else's beta label still wins over our current label.
        let mixed = labels(&[(BETA_TYPE, "theirs"), (TYPE, "m5.large")]);
        let only_current: BTreeSet<String> = [TYPE.to_owned()].into();
        let changed = refreshed(&mixed, Some(&instance(&[])), Some(&only_current));
        assert_eq!(changed.set, labels(&[(TYPE, "theirs")]));

        // Missing labels need no managed fields, and neither do labels that match.
        let added = refreshed(&Labels::new(), Some(&given), None);
        assert!(!added.needs_managed);
        assert_eq!(added.set.len(), 3);
        let current = labels(&[(BETA_TYPE, "m5.large"), (TYPE, "m5.large"), ("team", "b")]);
        assert_eq!(
            refreshed(&current, Some(&given), None),
            LabelChanges::default()
        );
    }

    #[test]
    fn n12_managed_fields_tell_whose_a_label_is() {
        let entry = |manager: &str, key: &str| ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            fields_v1: Some(FieldsV1(serde_json::json!({
                "f:metadata": {"f:labels": {key: {}, ".": {}}, "f:annotations": {"f:no": {}}},
                "f:spec": {"f:labels": {"f:no": {}}},
            }))),
            ..ManagedFieldsEntry::default()
        };
        let fields = [
            entry("ccm", "f:example.com/a"),
            entry("kubectl", "f:theirs"),
            entry("ccm", "f:b"),
        ];
        let keys: Vec<String> = managed_keys(&fields, "ccm").into_iter().collect();
        assert_eq!(keys, ["b", "example.com/a"]);
    }
}
