//! Validation of content. A refusal has the same fields and reasons as a real API server's, in the
//! same order.

mod service;

use std::collections::BTreeSet;

use serde_json::Value;

use super::kind::Kind;
use super::names::{dns_label, label_value, qualified, subdomain};
use super::refusal::{Cause, Refusal};
use service::{ingresses, service, service_updated};

/// The causes to refuse the content that the checks have found so far.
#[derive(Default)]
pub(super) struct Causes(Vec<Cause>);

impl Causes {
    fn add(&mut self, reason: &'static str, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Cause {
            field: field.into(),
            reason,
            message: message.into(),
        });
    }

    pub(super) fn invalid(&mut self, field: impl Into<String>, value: &Value, why: &str) {
        self.add("FieldValueInvalid", field, format!("{value} is {why}"));
    }

    fn required(&mut self, field: impl Into<String>) {
        self.add("FieldValueRequired", field, "there has to be one");
    }

    fn forbidden(&mut self, field: impl Into<String>, why: &str) {
        self.add("FieldValueForbidden", field, why);
    }

    fn duplicate(&mut self, field: impl Into<String>, value: &Value) {
        self.add(
            "FieldValueDuplicate",
            field,
            format!("{value} is there already"),
        );
    }

    fn one_of(&mut self, field: impl Into<String>, value: &Value, known: &[&str]) {
        let told = format!("{value} is none of {}", known.join(", "));
        self.add("FieldValueNotSupported", field, told);
    }

    fn immutable(&mut self, field: &str, old: &Value, new: &Value) {
        if old != new {
            self.invalid(field, new, "not what it was, and may not change");
        }
    }

    /// Adds a cause unless the value of `field` is one of these.
    fn among(&mut self, field: impl Into<String>, value: &Value, known: &[&str]) {
        match value.as_str() {
            None | Some("") => self.required(field),
            Some(text) if known.contains(&text) => {}
            Some(_) => self.one_of(field, value, known),
        }
    }

    fn words(&mut self, field: &str, value: &Value, why: &[&'static str]) {
        for why in why {
            self.invalid(field, value, why);
        }
    }

    /// `Err` if there is a cause.
    pub(super) fn settle(self, kind: &Kind, name: &str) -> Result<(), Refusal> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(Refusal::invalid(kind, name, &self.0))
    }
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    value[field].as_array().into_iter().flatten().enumerate()
}

fn pairs<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value[field].as_object().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The errors in a new object.
pub(super) fn created(kind: &Kind, object: &Value) -> Causes {
    let mut causes = Causes::default();
    let metadata = &object["metadata"];
    if kind.plural == "events" {
        event(&mut causes, object);
        if !causes.0.is_empty() {
            return causes;
        }
    }
    let name = &metadata["name"];
    if text(name).is_empty() {
        causes.required("metadata.name");
    } else {
        match kind.plural {
            "namespaces" | "services" => {
                causes.words("metadata.name", name, &dns_label(text(name)));
            }
            // The name only has to be valid in a path.
            "events" => {}
            _ => causes.words("metadata.name", name, &subdomain(text(name))),
        }
    }
    metadata_of(&mut causes, kind, metadata);
    match kind.plural {
        "nodes" => taints(&mut causes, object),
        "services" => service(&mut causes, object),
        "persistentvolumes" => volume(&mut causes, object),
        "leases" => lease(&mut causes, object),
        "endpointslices" => {
            causes.among(
                "addressType",
                &object["addressType"],
                &["FQDN", "IPv4", "IPv6"],
            );
        }
        _ => {}
    }
    causes
}

/// The errors in a changed object.
pub(super) fn updated(kind: &Kind, status: bool, old: &Value, new: &Value) -> Causes {
    let mut causes = Causes::default();
    // The checks that all kinds share come first.
    common(&mut causes, &new["metadata"]);
    metadata_changed(&mut causes, old, new);
    if kind.plural == "events" {
        event(&mut causes, new);
        return causes;
    }
    match (kind.plural, status) {
        ("nodes", status) => {
            if !status {
                metadata_of(&mut causes, kind, &new["metadata"]);
                taints(&mut causes, new);
            }
            metadata_updated(&mut causes, kind, old, new);
            node_updated(&mut causes, old, new);
        }
        ("services", true) => {
            metadata_updated(&mut causes, kind, old, new);
            ingresses(&mut causes, new);
        }
        ("services", false) => {
            metadata_updated(&mut causes, kind, old, new);
            service_updated(&mut causes, old, new);
            service(&mut causes, new);
        }
        ("persistentvolumes", false) => {
            metadata_of(&mut causes, kind, &new["metadata"]);
            volume(&mut causes, new);
            metadata_updated(&mut causes, kind, old, new);
            volume_updated(&mut causes, old, new);
        }
        ("leases", _) => {
            metadata_updated(&mut causes, kind, old, new);
            lease(&mut causes, new);
        }
        ("endpointslices", _) => {
            metadata_updated(&mut causes, kind, old, new);
            causes.immutable("addressType", &old["addressType"], &new["addressType"]);
        }
        _ => metadata_updated(&mut causes, kind, old, new),
    }
    causes
}

fn labels(causes: &mut Causes, metadata: &Value) {
    for (key, value) in pairs(metadata, "labels") {
        causes.words(
            "metadata.labels",
            &Value::from(key.as_str()),
            &qualified(key),
        );
        causes.words("metadata.labels", value, &label_value(text(value)));
    }
    for (key, _) in pairs(metadata, "annotations") {
        let lower = key.to_lowercase();
        causes.words(
            "metadata.annotations",
            &Value::from(key.as_str()),
            &qualified(&lower),
        );
    }
}

fn common(causes: &mut Causes, metadata: &Value) {
    labels(causes, metadata);
    for (_, finalizer) in list(metadata, "finalizers") {
        causes.words(
            "metadata.finalizers",
            finalizer,
            &qualified(text(finalizer)),
        );
    }
}

fn metadata_of(causes: &mut Causes, kind: &Kind, metadata: &Value) {
    common(causes, metadata);
    domains(causes, kind, metadata);
}

/// Finalizers of kinds in the core group need a domain, except three of Kubernetes.
fn domains(causes: &mut Causes, kind: &Kind, metadata: &Value) {
    if kind.group.is_empty() {
        for (i, finalizer) in list(metadata, "finalizers") {
            if !text(finalizer).contains('/')
                && !["kubernetes", "orphan", "foregroundDeletion"].contains(&text(finalizer))
            {
                causes.invalid(
                    format!("metadata.finalizers[{i}]"),
                    finalizer,
                    "without a domain",
                );
            }
        }
    }
}

fn metadata_updated(causes: &mut Causes, kind: &Kind, old: &Value, new: &Value) {
    metadata_changed(causes, old, new);
    domains(causes, kind, &new["metadata"]);
}

fn metadata_changed(causes: &mut Causes, old: &Value, new: &Value) {
    let (old, new) = (&old["metadata"], &new["metadata"]);
    if !old["deletionTimestamp"].is_null() {
        let before: Vec<&Value> = list(old, "finalizers").map(|(_, one)| one).collect();
        if list(new, "finalizers").any(|(_, one)| !before.contains(&one)) {
            causes.forbidden(
                "metadata.finalizers",
                "none is added to what is being deleted",
            );
        }
    }
    for field in ["name", "namespace", "uid"] {
        causes.immutable(&format!("metadata.{field}"), &old[field], &new[field]);
    }
    labels(causes, new);
}

fn taints(causes: &mut Causes, node: &Value) {
    let mut seen = BTreeSet::new();
    for (i, taint) in list(&node["spec"], "taints") {
        // A real API server gives this path.
        let at = format!("metadata.taints[{i}]");
        causes.words(
            &format!("{at}.key"),
            &taint["key"],
            &qualified(text(&taint["key"])),
        );
        if let Some(why) = label_value(text(&taint["value"])).first() {
            causes.invalid(format!("{at}.value"), &taint["value"], why);
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        causes.among(format!("{at}.effect"), &taint["effect"], &effects);
        if !seen.insert((text(&taint["key"]), text(&taint["effect"]))) {
            causes.duplicate(at, taint);
        }
    }
}

fn node_updated(causes: &mut Causes, old: &Value, new: &Value) {
    let mut seen = BTreeSet::new();
    for (i, address) in list(&new["status"], "addresses") {
        if !seen.insert((text(&address["type"]), text(&address["address"]))) {
            causes.duplicate(format!("status.addresses[{i}]"), address);
        }
    }
    let (old, spec) = (&old["spec"], &new["spec"]);
    if !old["podCIDRs"].is_null() && old["podCIDRs"] != spec["podCIDRs"] {
        causes.forbidden("spec.podCIDRs", "set once, it stays");
    }
    if !text(&old["providerID"]).is_empty() && old["providerID"] != spec["providerID"] {
        causes.forbidden("spec.providerID", "set once, it stays");
    }
    taints(causes, new);
}

/// Whether this field of a PersistentVolume's `spec` is a volume source, as all fields except these
/// are.
fn is_source(field: &str) -> bool {
    ![
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    ]
    .contains(&field)
}

fn sources(volume: &Value) -> Vec<(&String, &Value)> {
    pairs(volume, "spec")
        .filter(|(field, _)| is_source(field))
        .collect()
}

fn volume(causes: &mut Causes, volume: &Value) {
    let spec = &volume["spec"];
    if spec["accessModes"].is_null() {
        causes.required("spec.accessModes");
    }
    if spec["capacity"]["storage"].is_null() {
        if spec["capacity"].is_null() {
            causes.required("spec.capacity");
        }
        causes.one_of("spec.capacity", &spec["capacity"], &["storage"]);
    }
    if sources(volume).is_empty() {
        causes.required("spec");
    }
}

fn volume_updated(causes: &mut Causes, old: &Value, new: &Value) {
    if sources(old) != sources(new) {
        causes.forbidden("spec.persistentvolumesource", "it stays as it was made");
    }
    let affinity = &old["spec"]["nodeAffinity"];
    if !affinity.is_null() {
        // A real API server gives this path.
        causes.immutable("nodeAffinity", affinity, &new["spec"]["nodeAffinity"]);
    }
}

fn lease(causes: &mut Causes, lease: &Value) {
    let spec = &lease["spec"];
    for (field, least) in [("leaseDurationSeconds", 1), ("leaseTransitions", 0)] {
        if spec[field].as_i64().is_some_and(|number| number < least) {
            causes.invalid(format!("spec.{field}"), &spec[field], "too small");
        }
    }
}

fn event(causes: &mut Causes, event: &Value) {
    let about = &event["involvedObject"]["namespace"];
    let own = text(&event["metadata"]["namespace"]);
    let fits = match text(about) {
        "" => own == "default",
        about => about == own,
    };
    if !fits {
        causes.invalid(
            "involvedObject.namespace",
            about,
            "not the namespace of the Event",
        );
    }
}
