//! Managed fields: which manager last set which field. With them the ccm knows the writer of a
//! label.

use serde_json::{Map, Value, json};

use super::kind::{Kind, Trait};

/// Fields of the metadata that have no owner.
const UNOWNED: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

static NOTHING: Value = Value::Null;

/// Steps as managed fields name them: `f:` a field, `k:` an item by its keys, `v:` an item by its
/// value.
type Path = Vec<String>;

/// The effect of a write.
#[derive(Default)]
struct Changes {
    /// New fields, and fields with another value.
    taken: Vec<Path>,
    removed: Vec<Path>,
}

/// Updates the managed fields in `new` after a write. Returns whether anything but times changed in
/// them.
pub(super) fn note(
    kind: &Kind,
    status: bool,
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    now: &str,
) -> bool {
    let before = old.and_then(|old| old["metadata"]["managedFields"].as_array());
    if let (Some(_), None) = (old, before) {
        // If an object has no managed fields, a later write adds none.
        if let Some(metadata) = new["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        return false;
    }
    let mut changes = Changes::default();
    let blank;
    let old = if let Some(old) = old {
        old
    } else {
        blank = kind.blank();
        &blank
    };
    compare_whole(kind, status, old, new, &mut changes);
    let mut entries = before.cloned().unwrap_or_default();
    let subresource = if status { "status" } else { "" };
    let ours = |entry: &Value| {
        entry["manager"] == manager && entry["subresource"].as_str().unwrap_or("") == subresource
    };
    let mut differs = false;
    for entry in &mut entries {
        let own = ours(entry);
        let Some(fields) = entry["fieldsV1"].as_object_mut() else {
            continue;
        };
        for path in &changes.removed {
            differs |= remove(fields, path);
        }
        if !own {
            for path in &changes.taken {
                differs |= remove(fields, path);
            }
        }
    }
    if !changes.taken.is_empty() {
        let place = entries.iter().position(ours).unwrap_or_else(|| {
            let mut entry = json!({"manager": manager, "operation": "Update", "apiVersion": kind.version, "fieldsType": "FieldsV1", "fieldsV1": {}});
            if status {
                entry["subresource"] = json!("status");
            }
            entries.push(entry);
            entries.len() - 1
        });
        entries[place]["time"] = json!(now);
        if let Some(fields) = entries[place]["fieldsV1"].as_object_mut() {
            for path in &changes.taken {
                differs |= insert(fields, path);
            }
        }
    }
    entries.retain(|entry| {
        entry["fieldsV1"]
            .as_object()
            .is_some_and(|all| !all.is_empty())
    });
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    entries.sort_by_cached_key(|entry| {
        ["time", "manager", "subresource"].map(|field| text(entry, field))
    });
    if entries.is_empty() {
        if let Some(metadata) = new["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
    } else {
        new["metadata"]["managedFields"] = Value::Array(entries);
    }
    differs
}

fn compare_whole(kind: &Kind, status: bool, old: &Value, new: &Value, changes: &mut Changes) {
    // The object and its status are written separately.
    let other = match (kind.has(Trait::Status), status) {
        (true, true) => "spec",
        (true, false) => "status",
        (false, _) => "",
    };
    for (field, old, new) in differing(old, new) {
        if field == other {
            continue;
        }
        let mut at = At {
            kind: kind.plural,
            names: vec![field],
            path: vec![format!("f:{field}")],
        };
        if field != "metadata" {
            compare(&mut at, old, new, changes);
            continue;
        }
        let (old, new) = (old.unwrap_or(&NOTHING), new.unwrap_or(&NOTHING));
        for (field, old, new) in differing(old, new) {
            if !UNOWNED.contains(&field) {
                at.down(field, format!("f:{field}"), old, new, changes);
            }
        }
    }
}

/// The fields of either object whose values differ, with both values.
fn differing<'a>(
    old: &'a Value,
    new: &'a Value,
) -> impl Iterator<Item = (&'a str, Option<&'a Value>, Option<&'a Value>)> {
    let keys = |value: &'a Value| value.as_object().into_iter().flat_map(Map::keys);
    let more = keys(new).filter(|key| old.get(key.as_str()).is_none());
    keys(old)
        .chain(more)
        .map(|field| (field.as_str(), old.get(field), new.get(field)))
        .filter(|(_, old, new)| old != new)
}

/// A place in an object.
struct At<'a> {
    kind: &'a str,
    /// The field names of the path. `*` is an item.
    names: Vec<&'a str>,
    path: Path,
}

impl<'a> At<'a> {
    fn down(
        &mut self,
        name: &'a str,
        step: String,
        old: Option<&'a Value>,
        new: Option<&'a Value>,
        changes: &mut Changes,
    ) {
        self.names.push(name);
        self.path.push(step);
        compare(self, old, new, changes);
        self.names.pop();
        self.path.pop();
    }

    /// Whether an object is owned as a whole.
    fn is_atomic(&self) -> bool {
        matches!(
            (self.kind, self.names.as_slice()),
            ("services", ["spec", "selector"])
                | ("events", ["involvedObject" | "related"])
                | (
                    "persistentvolumes",
                    ["spec", "claimRef"] | ["spec", "nodeAffinity", "required"]
                )
                | (_, ["metadata", "ownerReferences", "*"])
        )
    }

    /// The keys of a list's items. Empty: the items are values. `None`: the list is owned as a
    /// whole.
    fn keys(&self) -> Option<&'static [&'static str]> {
        match (self.kind, self.names.as_slice()) {
            (_, ["metadata", "finalizers"]) | ("nodes", ["spec", "podCIDRs"]) => Some(&[]),
            (_, ["metadata", "ownerReferences"]) => Some(&["uid"]),
            (_, ["status", "conditions"]) | ("nodes", ["status", "addresses"]) => Some(&["type"]),
            ("services", ["spec", "ports"]) => Some(&["port", "protocol"]),
            _ => None,
        }
    }
}

fn compare<'a>(
    at: &mut At<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    changes: &mut Changes,
) {
    if old == new {
        return;
    }
    let empty = |side: Option<&Value>| {
        side.is_none_or(|side| match side {
            Value::Object(all) => all.is_empty(),
            Value::Array(all) => all.is_empty(),
            Value::Null => true,
            _ => false,
        })
    };
    let whole = empty(old) && empty(new);
    let any = |is: fn(&Value) -> bool| old.is_some_and(is) || new.is_some_and(is);
    if any(Value::is_object) && !whole && !at.is_atomic() {
        let (old, new) = (old.unwrap_or(&NOTHING), new.unwrap_or(&NOTHING));
        for (field, old, new) in differing(old, new) {
            at.down(field, format!("f:{field}"), old, new, changes);
        }
    } else if let (true, false, Some(keys)) = (any(Value::is_array), whole, at.keys()) {
        compare_items(at, keys, old, new, changes);
    } else {
        let which = if new.is_none() {
            &mut changes.removed
        } else {
            &mut changes.taken
        };
        which.push(at.path.clone());
        return;
    }
    if old.is_none() {
        changes.taken.push(at.path.clone());
    } else if new.is_none() {
        changes.removed.push(at.path.clone());
    }
}

fn compare_items<'a>(
    at: &mut At<'a>,
    keys: &[&str],
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    changes: &mut Changes,
) {
    let items = |side: Option<&'a Value>| side.and_then(Value::as_array).into_iter().flatten();
    let step = |item: &Value| {
        if keys.is_empty() {
            return format!("v:{item}");
        }
        let known: Map<String, Value> = keys
            .iter()
            .map(|key| ((*key).to_owned(), item[*key].clone()))
            .collect();
        format!("k:{}", Value::Object(known))
    };
    let mut steps: Vec<String> = Vec::new();
    for item in items(old).chain(items(new)) {
        let step = step(item);
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    for step_of_all in steps {
        let those = |side: Option<&'a Value>| -> Vec<&'a Value> {
            items(side)
                .filter(|item| step(item) == step_of_all)
                .collect()
        };
        let (before, after) = (those(old), those(new));
        let whole = |path: &Path| {
            let mut path = path.clone();
            path.push(step_of_all.clone());
            path
        };
        // Items with the same key have one owner.
        match (before.as_slice(), after.as_slice()) {
            ([] | [_], [] | [_]) => {
                let sides = (before.first().copied(), after.first().copied());
                at.down("*", step_of_all, sides.0, sides.1, changes);
            }
            ([_, _, ..], [_, _, ..]) => {
                if before != after {
                    changes.taken.push(whole(&at.path));
                }
            }
            ([_, _, ..], after) => {
                changes.removed.push(whole(&at.path));
                if let Some(one) = after.first() {
                    at.down("*", step_of_all, None, Some(one), changes);
                }
            }
            (before, _) => {
                changes.taken.push(whole(&at.path));
                if let Some(one) = before.first() {
                    at.down("*", step_of_all, Some(one), None, changes);
                }
            }
        }
    }
}

/// Adds a path. A field that is owned itself and has owned fields below it gets the step `.` too.
fn insert(fields: &mut Map<String, Value>, path: &[String]) -> bool {
    let [step, rest @ ..] = path else {
        let differs = !fields.is_empty() && !fields.contains_key(".");
        if differs {
            fields.insert(".".to_owned(), json!({}));
        }
        return differs;
    };
    let known = fields.contains_key(step);
    let Some(below) = fields
        .entry(step.clone())
        .or_insert_with(|| json!({}))
        .as_object_mut()
    else {
        return false;
    };
    if known && !rest.is_empty() && below.is_empty() {
        below.insert(".".to_owned(), json!({}));
    }
    insert(below, rest) || !known
}

fn remove(fields: &mut Map<String, Value>, path: &[String]) -> bool {
    let [step, rest @ ..] = path else {
        return false;
    };
    let Some(below) = fields.get_mut(step).and_then(Value::as_object_mut) else {
        return false;
    };
    let differs = if !rest.is_empty() {
        remove(below, rest)
    } else if below.is_empty() {
        fields.remove(step);
        return true;
    } else {
        below.remove(".").is_some()
    };
    if differs && below.is_empty() {
        // No step is left below, and the field is not owned itself.
        fields.remove(step);
    } else if differs && below.len() == 1 && below.contains_key(".") {
        below.clear();
    }
    differs
}
