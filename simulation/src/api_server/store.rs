//! Objects, and the one history that lists and watches are answered from.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};
use tokio::time::Instant;

/// A refusal as the API server words it: status code, reason, message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub u16, pub &'static str, pub String);

impl Refusal {
    fn conflict(id: &Id) -> Self {
        let text = "the object has been modified; please apply your changes to the latest version and try again";
        Self(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} {:?}: {text}",
                id.kind, id.name
            ),
        )
    }

    fn not_found(id: &Id) -> Self {
        Self(
            404,
            "NotFound",
            format!("{} {:?} not found", id.kind, id.name),
        )
    }

    fn invalid(id: &Id, why: &str) -> Self {
        Self(
            422,
            "Invalid",
            format!("{} {:?} is invalid: {why}", id.kind, id.name),
        )
    }
}

/// Names an object. The kind is the resource's plural; the namespace is empty for what has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// The plural, for example `nodes`.
    pub kind: &'static str,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Id {
    /// An ID.
    #[must_use]
    pub fn new(kind: &'static str, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// The kinds that are served: plural, apiVersion, kind.
pub const KINDS: [(&str, &str, &str); 8] = [
    ("nodes", "v1", "Node"),
    ("services", "v1", "Service"),
    ("events", "v1", "Event"),
    ("namespaces", "v1", "Namespace"),
    ("persistentvolumes", "v1", "PersistentVolume"),
    ("leases", "coordination.k8s.io/v1", "Lease"),
    ("servicecidrs", "networking.k8s.io/v1", "ServiceCIDR"),
    ("endpointslices", "discovery.k8s.io/v1", "EndpointSlice"),
];

/// One entry of the history.
#[derive(Clone, Debug)]
pub struct Change {
    /// The resourceVersion.
    pub version: u64,
    /// When.
    pub at: Instant,
    /// ADDED, MODIFIED or DELETED.
    pub what: &'static str,
    /// Which object.
    pub id: Id,
    /// As it was then.
    pub object: Value,
}

/// How a patch is to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// RFC 7386.
    Merge,
    /// The same, but lists of conditions merge by their type.
    Strategic,
}

/// What the API server holds.
#[derive(Default)]
pub struct Store {
    version: u64,
    uids: u64,
    objects: BTreeMap<Id, Value>,
    history: VecDeque<Change>,
    /// Wall time in seconds, as `creationTimestamp` shows it.
    pub wall: Option<Box<dyn Fn() -> String + Send>>,
}

impl Store {
    /// The newest resourceVersion.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The oldest version that a watch may begin from.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.history.front().map_or(0, |first| first.version - 1)
    }

    /// Forgets the history: watches from before are too old.
    pub fn compact(&mut self) {
        self.version += 1;
        self.history.clear();
    }

    /// Changes after this version.
    pub fn since(&self, version: u64) -> impl Iterator<Item = &Change> {
        let from = self
            .history
            .partition_point(|change| change.version <= version);
        self.history.range(from..)
    }

    /// One object.
    #[must_use]
    pub fn get(&self, id: &Id) -> Option<&Value> {
        self.objects.get(id)
    }

    /// All of a kind, in one namespace or in all.
    #[must_use]
    pub fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let all = self.objects.iter();
        all.filter(|(id, _)| id.kind == kind && (namespace.is_empty() || id.namespace == namespace))
            .map(|(_, object)| object.clone())
            .collect()
    }

    fn keep(&mut self, what: &'static str, id: &Id, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let change = Change {
            version: self.version,
            at: Instant::now(),
            what,
            id: id.clone(),
            object: object.clone(),
        };
        self.history.push_back(change);
        if what == "DELETED" {
            self.objects.remove(id);
        } else {
            self.objects.insert(id.clone(), object.clone());
        }
        object
    }

    /// POST.
    pub fn create(
        &mut self,
        kind: &'static str,
        namespace: &str,
        mut object: Value,
    ) -> Result<Value, Refusal> {
        let metadata = &object["metadata"];
        let mut name = metadata["name"].as_str().unwrap_or_default().to_owned();
        self.uids += 1;
        if name.is_empty() {
            let prefix = metadata["generateName"].as_str().unwrap_or_default();
            name = format!("{prefix}{:05}", self.uids);
        }
        let id = Id::new(kind, namespace, &name);
        if self.objects.contains_key(&id) {
            return Err(Refusal(
                409,
                "AlreadyExists",
                format!("{kind} {name:?} already exists"),
            ));
        }
        let (_, version, word) = KINDS
            .iter()
            .find(|(plural, ..)| *plural == kind)
            .copied()
            .unwrap_or(("", "v1", ""));
        object["apiVersion"] = json!(version);
        object["kind"] = json!(word);
        object["metadata"]["name"] = json!(name);
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object["metadata"]["uid"] = json!(format!(
            "{:08x}-0000-4000-8000-000000000000",
            0x9e37_79b9_u64.wrapping_mul(self.uids) & 0xffff_ffff
        ));
        if let Some(wall) = &self.wall {
            object["metadata"]["creationTimestamp"] = json!(wall());
        }
        validate(&id, None, &object)?;
        Ok(self.keep("ADDED", &id, object))
    }

    /// PUT. The resourceVersion counts where it is given.
    pub fn replace(&mut self, id: &Id, mut object: Value) -> Result<Value, Refusal> {
        let old = self.objects.get(id).ok_or_else(|| Refusal::not_found(id))?;
        let given = &object["metadata"];
        for field in ["uid", "resourceVersion"] {
            if !given[field].is_null() && given[field] != old["metadata"][field] {
                return Err(Refusal::conflict(id));
            }
        }
        for field in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "name",
            "namespace",
        ] {
            object["metadata"][field] = old["metadata"][field].clone();
        }
        prune_nulls(&mut object["metadata"]);
        for field in ["apiVersion", "kind"] {
            object[field] = old[field].clone();
        }
        let old = old.clone();
        self.update(id, &old, object)
    }

    /// PATCH of the object, or of its status alone.
    pub fn patch(
        &mut self,
        id: &Id,
        how: Patch,
        status: bool,
        patch: &Value,
        manager: &str,
    ) -> Result<Value, Refusal> {
        let old = self
            .objects
            .get(id)
            .ok_or_else(|| Refusal::not_found(id))?
            .clone();
        let given = &patch["metadata"];
        for field in ["uid", "resourceVersion"] {
            if !given[field].is_null() && given[field] != old["metadata"][field] {
                return Err(Refusal::conflict(id));
            }
        }
        let mut object = old.clone();
        merge(&mut object, patch, how);
        // Each part has its own door.
        if status {
            let shown = object["status"].take();
            object = old.clone();
            object["status"] = shown;
        } else {
            object["status"] = old["status"].clone();
            note_labels(&mut object, &old, manager);
        }
        object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        prune_nulls(&mut object);
        self.update(id, &old, object)
    }

    fn update(&mut self, id: &Id, old: &Value, object: Value) -> Result<Value, Refusal> {
        let mut same = object.clone();
        same["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        if same == *old {
            return Ok(same);
        }
        validate(id, Some(old), &object)?;
        let metadata = &object["metadata"];
        let held = metadata["finalizers"]
            .as_array()
            .is_some_and(|all| !all.is_empty());
        if !metadata["deletionTimestamp"].is_null() && !held {
            return Ok(self.keep("DELETED", id, object));
        }
        Ok(self.keep("MODIFIED", id, object))
    }

    /// DELETE, with preconditions.
    pub fn delete(&mut self, id: &Id, preconditions: &Value) -> Result<Value, Refusal> {
        let mut object = self
            .objects
            .get(id)
            .ok_or_else(|| Refusal::not_found(id))?
            .clone();
        for field in ["uid", "resourceVersion"] {
            if !preconditions[field].is_null() && preconditions[field] != object["metadata"][field]
            {
                return Err(Refusal::conflict(id));
            }
        }
        let held = object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| !all.is_empty());
        if !held {
            return Ok(self.keep("DELETED", id, object));
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            let now = self
                .wall
                .as_ref()
                .map_or_else(|| "1970-01-01T00:00:00Z".to_owned(), |wall| wall());
            object["metadata"]["deletionTimestamp"] = json!(now);
            return Ok(self.keep("MODIFIED", id, object));
        }
        Ok(object)
    }
}

/// What the real one refuses of what a ccm writes.
fn validate(id: &Id, old: Option<&Value>, object: &Value) -> Result<(), Refusal> {
    if id.kind == "nodes" {
        let before = old.map_or(&Value::Null, |old| &old["spec"]["providerID"]);
        if before.as_str().is_some_and(|id| !id.is_empty())
            && object["spec"]["providerID"] != *before
        {
            return Err(Refusal(
                403,
                "Forbidden",
                format!(
                    "node {:?}: spec.providerID: Forbidden: node updates may only change labels, taints, or capacity",
                    id.name
                ),
            ));
        }
        let taints = object["spec"]["taints"].as_array();
        let mut seen = std::collections::BTreeSet::new();
        for taint in taints.into_iter().flatten() {
            if !seen.insert((taint["key"].to_string(), taint["effect"].to_string())) {
                return Err(Refusal::invalid(id, "spec.taints: Duplicate value"));
            }
        }
    }
    for (key, value) in object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let value = value.as_str().unwrap_or_default();
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if key.is_empty() || value.len() > 63 || !value.chars().all(fits) {
            return Err(Refusal::invalid(
                id,
                &format!("metadata.labels: Invalid value: {value:?}"),
            ));
        }
    }
    Ok(())
}

fn prune_nulls(value: &mut Value) {
    if let Value::Object(object) = value {
        object.retain(|_, value| !value.is_null());
        object.values_mut().for_each(prune_nulls);
    }
}

fn merge(value: &mut Value, patch: &Value, how: Patch) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (key, patch) in patch {
        if patch.is_null() {
            if let Some(object) = value.as_object_mut() {
                object.remove(key);
            }
        } else if let (Patch::Strategic, "conditions", Some(new)) =
            (how, key.as_str(), patch.as_array())
        {
            let mut all = value[key].as_array().cloned().unwrap_or_default();
            for condition in new {
                match all.iter_mut().find(|one| one["type"] == condition["type"]) {
                    Some(one) => merge(one, condition, how),
                    None => all.push(condition.clone()),
                }
            }
            value[key] = Value::Array(all);
        } else {
            merge(&mut value[key], patch, how);
        }
    }
}

/// Managed fields, for labels alone: who set each one last.
fn note_labels(object: &mut Value, old: &Value, manager: &str) {
    let empty = serde_json::Map::new();
    let labels = object["metadata"]["labels"]
        .as_object()
        .unwrap_or(&empty)
        .clone();
    let before = old["metadata"]["labels"].as_object().unwrap_or(&empty);
    let set: Vec<&String> = labels
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value))
        .map(|(key, _)| key)
        .collect();
    if set.is_empty() {
        return;
    }
    let mut entries = old["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    if !entries.iter().any(|entry| entry["manager"] == manager) {
        entries.push(json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}));
    }
    for entry in &mut entries {
        let ours = entry["manager"] == manager;
        for key in &set {
            let field = format!("f:{key}");
            if ours {
                entry["fieldsV1"]["f:metadata"]["f:labels"][field] = json!({});
            } else if let Some(fields) = entry["fieldsV1"]["f:metadata"]["f:labels"].as_object_mut()
            {
                fields.remove(&field);
            }
        }
    }
    object["metadata"]["managedFields"] = Value::Array(entries);
}
