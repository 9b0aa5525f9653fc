//! Patches: JSON merge (RFC 7386), strategic merge, and JSON patches (RFC 6902).

use serde_json::{Map, Value, json};

use super::refusal::Refusal;

/// The ways to apply a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// RFC 7386.
    Merge,
    /// Kubernetes' strategic merge: like RFC 7386, but some lists merge by a key.
    Strategic,
    /// RFC 6902.
    Json,
}

impl Patch {
    /// The patch with this content type.
    pub(super) fn of(content: &[u8]) -> Option<Self> {
        match content {
            b"application/merge-patch+json" => Some(Self::Merge),
            b"application/strategic-merge-patch+json" => Some(Self::Strategic),
            b"application/json-patch+json" => Some(Self::Json),
            _ => None,
        }
    }

    pub(super) fn apply(self, object: &mut Value, patch: &Value) -> Result<(), Refusal> {
        match (self, patch) {
            (Self::Json, patch) => {
                let operations: json_patch::Patch = serde_json::from_value(patch.clone())
                    .map_err(|error| Refusal::bad_request(format!("no JSON patch: {error}")))?;
                json_patch::patch(object, &operations).map_err(|error| Refusal {
                    details: json!({}),
                    ..Refusal::new(422, "Invalid", format!("the patch: {error}"))
                })
            }
            (Self::Merge, Value::Object(_)) => {
                json_patch::merge(object, patch);
                Ok(())
            }
            (Self::Strategic, Value::Object(patch)) => strategic(object, patch),
            _ => Err(Refusal::bad_request("a merge patch is an object")),
        }
    }
}

/// The merge key of a list. `None`: the list is replaced. `Some("")`: the items themselves are the
/// keys.
fn key_of(field: &str) -> Option<&'static str> {
    match field {
        "conditions" | "addresses" => Some("type"),
        "ports" => Some("port"),
        "ownerReferences" => Some("uid"),
        "finalizers" | "podCIDRs" => Some(""),
        _ => None,
    }
}

fn strategic(value: &mut Value, patch: &Map<String, Value>) -> Result<(), Refusal> {
    if patch.get("$patch").is_some_and(|how| how == "replace") {
        let mut whole = patch.clone();
        whole.remove("$patch");
        *value = Value::Object(whole);
        return Ok(());
    }
    if !value.is_object() {
        *value = json!({});
    }
    for (field, patch) in patch {
        if field.starts_with('$') {
            let told = format!("the directive {field} of strategic merge patches is not served");
            return Err(Refusal::bad_request(told));
        }
        match patch {
            Value::Null => {
                if let Some(fields) = value.as_object_mut() {
                    fields.remove(field);
                }
            }
            Value::Object(patch) => strategic(&mut value[field], patch)?,
            Value::Array(new) => match key_of(field) {
                Some(key) => {
                    let old = value[field].as_array().cloned().unwrap_or_default();
                    value[field] = Value::Array(merged(&old, new, key)?);
                }
                None => value[field] = patch.clone(),
            },
            patch => value[field] = patch.clone(),
        }
    }
    Ok(())
}

/// Merges a list by a key. An item that the patch does not name comes before the patch's next item
/// only if it did so in the old list. Otherwise the patch's item comes first.
fn merged(old: &[Value], new: &[Value], key: &str) -> Result<Vec<Value>, Refusal> {
    let same = |one: &Value, other: &Value| {
        if key.is_empty() {
            one == other
        } else {
            one[key] == other[key]
        }
    };
    let (mut patched, mut gone) = (Vec::<Value>::new(), Vec::new());
    for patch in new {
        if patch.get("$patch").is_some_and(|how| how == "delete") {
            gone.push(patch);
            continue;
        }
        let mut item = old.iter().find(|one| same(one, patch)).cloned();
        match (&mut item, patch) {
            (Some(item), Value::Object(patch)) => strategic(item, patch)?,
            _ => item = Some(patch.clone()),
        }
        patched.extend(item);
    }
    let place = |item: &Value| old.iter().position(|one| same(one, item));
    let rest = old.iter().filter(|one| {
        !patched
            .iter()
            .chain(gone.iter().copied())
            .any(|item| same(one, item))
    });
    let rest: Vec<Value> = rest.cloned().collect();
    let (mut rest, mut patched) = (rest.into_iter().peekable(), patched.into_iter().peekable());
    let mut all = Vec::new();
    loop {
        let first = match (rest.peek(), patched.peek()) {
            (None, None) => return Ok(all),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(one), Some(other)) => {
                matches!((place(one), place(other)), (Some(one), Some(other)) if one < other)
            }
        };
        all.extend(if first { rest.next() } else { patched.next() });
    }
}
