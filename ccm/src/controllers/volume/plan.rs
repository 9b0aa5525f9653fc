//! The changes to a PersistentVolume. Pure.
//!
//! The annotation [`MARK`] names the provider and the volume's source. The same patch writes it and
//! the labels, so the ccm does not ask about a labelled volume again after a restart. The ccm plans
//! again for a copied volume with another source, and for a volume whose annotation was removed.

use std::collections::{BTreeMap, BTreeSet};

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, VolumeNodeAffinity,
};
use kube::ResourceExt;

use crate::core::{is_reserved_key, is_valid_key, is_valid_value};
use crate::provider::{is_asked_about, volume_view};
use crate::writes::VolumePatch;

/// The annotation that names the provider and the source of a volume's labels.
pub(super) const MARK: &str = "grpc-ccm.io/volume-labels";

/// The provisioner of a dynamically created volume sets this annotation.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The name of a disk that is still being created.
const PLACEHOLDER: &str = "placeholder-for-provisioning";
/// The separator of zones in a label.
const ZONES: &str = "__";
/// The most terms that get zone and region. Anybody's review may have over 20,000 terms in its
/// 512 KiB, and the requirements of one term may have 500 bytes.
const MOST_TERMS: usize = 100;

/// The label keys of zone and region: the current ones, then the former ones.
const TOPOLOGY: [[&str; 2]; 2] = [
    [
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    ],
    [
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    ],
];

type Labels = BTreeMap<String, String>;

/// What to do for a volume.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Task {
    /// Nothing: the volume has its mark, is being deleted, or is not a volume to ask this provider
    /// about.
    LeaveAlone,
    /// The provisioner has set the labels already.
    Trust(Labels),
    /// Ask the provider.
    Ask(Box<api::VolumeView>),
}

/// What to do for a volume. `source_types` are the sources that this provider declares as its own.
pub(super) fn task(volume: &PersistentVolume, provider: &str, source_types: &[String]) -> Task {
    let Some(view) = volume_view(volume) else {
        return Task::LeaveAlone;
    };
    if volume.metadata.deletion_timestamp.is_some()
        || !is_asked_about(&view, source_types)
        || view.source.values().any(|value| value == PLACEHOLDER)
        || view.annotations.get(MARK) == Some(&mark(provider, &view))
    {
        return Task::LeaveAlone;
    }
    if view.annotations.contains_key(PROVISIONED_BY) {
        let both = |keys: &[&str; 2]| -> Option<Labels> {
            keys.iter()
                .map(|key| view.labels.get_key_value(*key))
                .map(|label| label.map(|(key, value)| (key.clone(), value.clone())))
                .collect()
        };
        if let Some(labels) = TOPOLOGY.iter().find_map(both) {
            return Task::Trust(labels);
        }
    }
    Task::Ask(Box::new(view))
}

/// Whether this change may lead to a new task.
pub(super) fn wakes(old: Option<&PersistentVolume>, new: &PersistentVolume) -> bool {
    let relevant = |volume: &PersistentVolume| {
        let affinity = volume
            .spec
            .as_ref()
            .and_then(|spec| spec.node_affinity.clone());
        (volume_view(volume), affinity)
    };
    old.is_none_or(|old| relevant(old) != relevant(new))
}

/// Labels and node affinity for a volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Labelling {
    pub(super) patch: VolumePatch,
    /// The provider's labels that have a reserved key or an invalid syntax, as text for people.
    pub(super) dropped: Vec<String>,
    /// Why zone and region cannot become node affinity, as text for people.
    pub(super) not_set: Option<String>,
}

/// The changes that follow from the provider's labels. `None`: there are none. `Err`: the answer is
/// wrong, as text for people.
pub(super) fn answered(
    volume: &PersistentVolume,
    provider: &str,
    labels: &Labels,
) -> Result<Option<Labelling>, String> {
    if labels.is_empty() {
        return Ok(None);
    }
    let mut usable = Labels::new();
    let mut dropped = Vec::new();
    for (key, value) in labels {
        if is_topology(key) || (!is_reserved_key(key) && is_valid_key(key) && is_valid_value(value))
        {
            usable.insert(key.clone(), value.clone());
        } else {
            dropped.push(shown(key, value));
        }
    }
    let mut found = labelling(volume, &usable)?;
    if let Some(view) = volume_view(volume) {
        let mark = mark(provider, &view);
        found.patch.annotations.insert(MARK.to_owned(), mark);
    }
    Ok(Some(Labelling { dropped, ..found }))
}

/// The changes that follow from the volume's own labels: the node affinity that is missing for
/// them.
pub(super) fn trusted(
    volume: &PersistentVolume,
    provider: &str,
    labels: &Labels,
) -> Result<Option<Labelling>, String> {
    let found = answered(volume, provider, labels)?;
    // The volume has these labels already. Without new node affinity only a mark may be written. It
    // says that people were told why there is no affinity.
    Ok(found.filter(|found| found.patch.node_affinity.is_some() || found.not_set.is_some()))
}

/// The volume after this patch.
pub(super) fn patched(volume: &PersistentVolume, patch: &VolumePatch) -> PersistentVolume {
    let mut volume = volume.clone();
    let metadata = &mut volume.metadata;
    for (field, entries) in [
        (&mut metadata.labels, &patch.labels),
        (&mut metadata.annotations, &patch.annotations),
    ] {
        if !entries.is_empty() {
            field.get_or_insert_default().extend(entries.clone());
        }
    }
    if let Some(affinity) = &patch.node_affinity {
        volume.spec.get_or_insert_default().node_affinity = Some(affinity.clone());
    }
    volume
}

/// Overwrites existing labels: a zone that somebody set by hand may be wrong.
fn labelling(volume: &PersistentVolume, labels: &Labels) -> Result<Labelling, String> {
    let mut requirements = Vec::new();
    for (key, value) in labels.iter().filter(|(key, _)| is_topology(key)) {
        requirements.push(requirement(key, value)?);
    }
    let existing = volume.labels();
    let (node_affinity, not_set) = match affinity(volume, &requirements) {
        Ok(affinity) => (affinity, None),
        Err(why) => (None, Some(why)),
    };
    Ok(Labelling {
        patch: VolumePatch {
            labels: labels
                .iter()
                .filter(|(key, value)| existing.get(*key) != Some(*value))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            annotations: BTreeMap::new(),
            node_affinity,
        },
        dropped: Vec::new(),
        not_set,
    })
}

/// Adds these requirements to each term of the volume's node affinity that is not empty. Without
/// terms, they become one. `None` if there is nothing to add, if all terms are empty, or if a term
/// has one of these keys already: the author's choice stays. `Err`: there are too many terms.
fn affinity(
    volume: &PersistentVolume,
    requirements: &[NodeSelectorRequirement],
) -> Result<Option<VolumeNodeAffinity>, String> {
    if requirements.is_empty() {
        return Ok(None);
    }
    let existing = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.node_affinity.as_ref());
    let terms = existing
        .and_then(|affinity| affinity.required.as_ref())
        .map_or(&[][..], |required| &required.node_selector_terms);
    let named = |key: &String| {
        requirements
            .iter()
            .any(|requirement| requirement.key == *key)
    };
    let taken = |term: &NodeSelectorTerm| {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        expressions.iter().any(|expression| named(&expression.key))
    };
    if terms.iter().any(taken) {
        return Ok(None);
    }
    // An empty term matches no Node. With the zone it would match each Node there, although the
    // author's other terms may allow only some of them.
    let open = terms.iter().filter(|term| !is_empty(term)).count();
    if open > MOST_TERMS {
        return Err(format!(
            "it has {open} terms; the ccm adds to at most {MOST_TERMS}"
        ));
    }
    if open == 0 && !terms.is_empty() {
        return Ok(None);
    }
    let mut affinity = existing.cloned().unwrap_or_default();
    let terms = &mut affinity
        .required
        .get_or_insert_default()
        .node_selector_terms;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm {
            match_expressions: Some(requirements.to_vec()),
            ..NodeSelectorTerm::default()
        });
        return Ok(Some(affinity));
    }
    for term in terms.iter_mut().filter(|term| !is_empty(term)) {
        let expressions = term.match_expressions.get_or_insert_default();
        expressions.extend(requirements.iter().cloned());
    }
    Ok(Some(affinity))
}

/// Whether this term is empty. Then it matches no Node.
fn is_empty(term: &NodeSelectorTerm) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    expressions.is_empty() && fields.is_empty()
}

fn requirement(key: &str, value: &str) -> Result<NodeSelectorRequirement, String> {
    let values: BTreeSet<&str> = if is_zone(key) {
        value.split(ZONES).collect()
    } else {
        [value].into()
    };
    let good = |value: &&str| !value.is_empty() && is_valid_value(value);
    if !is_valid_value(value) || !values.iter().all(good) {
        return Err(format!(
            "the provider's label {} is no zone or region: zones are label values joined by {ZONES}",
            shown(key, value)
        ));
    }
    Ok(NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(values.into_iter().map(str::to_owned).collect()),
    })
}

fn is_topology(key: &str) -> bool {
    TOPOLOGY.iter().flatten().any(|known| *known == key)
}

fn is_zone(key: &str) -> bool {
    TOPOLOGY.iter().any(|[zone, _]| *zone == key)
}

fn mark(provider: &str, volume: &api::VolumeView) -> String {
    let fields: Vec<String> = volume
        .source
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    format!("{provider} {} {}", volume.source_type, fields.join(","))
}

fn shown(key: &str, value: &str) -> String {
    let short = |text: &str| text.chars().take(80).collect::<String>();
    format!("{:?} = {:?}", short(key), short(value))
}

#[cfg(test)]
mod tests;
