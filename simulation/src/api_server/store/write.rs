//! POST, PUT, PATCH and DELETE: from a request to the stored object.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Done, Effect, Id, Object, Patch, Store};
use crate::api_server::kind::{Kind, Trait};
use crate::api_server::refusal::Refusal;
use crate::api_server::validate::Causes;
use crate::api_server::{defaults, managed, services, validate};

/// The characters of generated name suffixes.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Store {
    /// POST by a user.
    pub fn create(
        &mut self,
        kind: &'static str,
        namespace: &str,
        object: Value,
    ) -> Result<Done, Refusal> {
        self.create_as(kind, namespace, object, "kubectl")
    }

    /// POST.
    pub fn create_as(
        &mut self,
        plural: &'static str,
        namespace: &str,
        mut object: Value,
        manager: &str,
    ) -> Result<Done, Refusal> {
        let kind = known(plural)?;
        typed(kind, &mut object)?;
        self.chosen += 1;
        let chosen = self.chosen;
        let metadata = &mut object["metadata"];
        defaults::remove(metadata, "uid");
        let name = match (metadata["name"].as_str(), metadata["generateName"].as_str()) {
            (Some(name), _) if !name.is_empty() => name.to_owned(),
            (_, Some(prefix)) if !prefix.is_empty() => format!("{prefix}{}", suffix(chosen)),
            _ => String::new(),
        };
        let own = metadata["namespace"].as_str().unwrap_or_default();
        if kind.has(Trait::Namespaced) && !own.is_empty() && own != namespace {
            return Err(Refusal::bad_request(
                "the namespaces of the object and of the URL differ",
            ));
        }
        if kind.has(Trait::Namespaced) {
            metadata["namespace"] = json!(namespace);
            self.is_open(kind, namespace, &name)?;
        } else {
            defaults::remove(metadata, "namespace");
        }
        if metadata["resourceVersion"]
            .as_str()
            .is_some_and(|version| !version.is_empty())
        {
            let what = "an object that is to be made has no resourceVersion";
            return Err(Refusal::new(500, "", what));
        }
        metadata["name"] = json!(name);
        defaults::complete(kind, &mut object);
        let now = self.now();
        managed::note(kind, false, None, &mut object, manager, &now);
        defaults::created(kind, &mut object, &now);
        object["metadata"]["uid"] = json!(format!(
            "{:08x}-0000-4000-8000-{chosen:012x}",
            0x9e37_79b9_u64.wrapping_mul(chosen) & 0xffff_ffff
        ));
        object["metadata"]["creationTimestamp"] = json!(now);
        let id = Id::new(plural, namespace, &name);
        self.choose_ports(kind, &id, &mut object)?;
        validate::created(kind, &object).settle(kind, &name)?;
        if self.objects.contains_key(&id) {
            return Err(Refusal::exists(kind, &name));
        }
        Ok(Done {
            object: self.keep("ADDED", &id, object),
            effect: Effect::Created,
        })
    }

    /// Whether the namespace accepts new objects.
    fn is_open(&self, kind: &Kind, namespace: &str, name: &str) -> Result<(), Refusal> {
        match self.objects.get(&Id::new("namespaces", "", namespace)) {
            None => Err(Refusal::not_found(known("namespaces")?, namespace)),
            Some(found) if found["status"]["phase"] == "Terminating" => {
                Err(Refusal::terminating(kind, name, namespace))
            }
            Some(_) => Ok(()),
        }
    }

    fn choose_ports(&mut self, kind: &Kind, id: &Id, object: &mut Value) -> Result<(), Refusal> {
        if kind.plural != "services" {
            return Ok(());
        }
        self.chosen += 1;
        let others = self
            .of_kind("services", "")
            .filter(|(other, _)| *other != id);
        let taken = others
            .flat_map(|(_, other)| services::node_ports(other))
            .collect();
        services::choose(object, taken, self.chosen).or_else(|place| {
            let mut causes = Causes::default();
            let field = format!("spec.ports[{place}].nodePort");
            causes.invalid(
                field,
                &object["spec"]["ports"][place]["nodePort"],
                "another Service's",
            );
            causes.settle(kind, &id.name)
        })
    }

    /// PUT of the object, or of its status alone.
    pub fn replace(
        &mut self,
        id: &Id,
        status: bool,
        mut object: Value,
        manager: &str,
    ) -> Result<Done, Refusal> {
        let kind = known(id.kind)?;
        typed(kind, &mut object)?;
        if object["metadata"]["name"] != id.name.as_str() {
            return Err(Refusal::bad_request(
                "the names of the object and of the URL differ",
            ));
        }
        let Some(old) = self.objects.get(id) else {
            let given = |field: &str| {
                object["metadata"][field]
                    .as_str()
                    .is_some_and(|text| !text.is_empty())
            };
            return match (kind.has(Trait::PutCreates) && !status, given("uid")) {
                (false, _) => Err(Refusal::not_found(kind, &id.name)),
                (true, true) => Err(Refusal::conflict(
                    kind,
                    &id.name,
                    "there is none of this UID",
                )),
                (true, false) => self.create_as(id.kind, &id.namespace, object, manager),
            };
        };
        let given = &object["metadata"]["uid"];
        if !given.is_null() && *given != old["metadata"]["uid"] {
            return Err(Refusal::conflict(kind, &id.name, "it has another UID"));
        }
        let old = Arc::clone(old);
        self.update(kind, id, status, &old, object, manager)
    }

    /// PATCH of the object, or of its status alone.
    pub fn patch(
        &mut self,
        id: &Id,
        how: Patch,
        status: bool,
        patch: &Value,
        manager: &str,
    ) -> Result<Done, Refusal> {
        let kind = known(id.kind)?;
        let old = self
            .objects
            .get(id)
            .ok_or_else(|| Refusal::not_found(kind, &id.name))?;
        let old = Arc::clone(old);
        let mut object = old.value.clone();
        how.apply(&mut object, patch)?;
        if object["metadata"]["name"] != id.name.as_str() {
            return Err(Refusal::bad_request(
                "the names of the object and of the URL differ",
            ));
        }
        self.update(kind, id, status, &old, object, manager)
    }

    fn update(
        &mut self,
        kind: &'static Kind,
        id: &Id,
        status: bool,
        old: &Arc<Object>,
        mut object: Value,
        manager: &str,
    ) -> Result<Done, Refusal> {
        let version = &old["metadata"]["resourceVersion"];
        match object["metadata"]["resourceVersion"].as_str() {
            None | Some("") if !kind.has(Trait::Unconditional) => {
                let mut causes = Causes::default();
                causes.invalid("metadata.resourceVersion", &json!(0), "none");
                // A real API server names the resource here, not the kind.
                let mut refused = causes.settle(kind, &id.name);
                if let Err(refused) = &mut refused {
                    refused.details["kind"] = json!(kind.plural);
                }
                refused?;
            }
            None | Some("") => {}
            Some(given) if version == given => {}
            Some(_) => return Err(Refusal::conflict(kind, &id.name, "it was changed since")),
        }
        defaults::complete(kind, &mut object);
        let now = self.now();
        let moved = managed::note(kind, status, Some(old), &mut object, manager, &now);
        defaults::updated(kind, status, old, &mut object, &now);
        if kind.has(Trait::Namespaced) {
            defaults::default(&mut object["metadata"], "namespace", json!(id.namespace));
        }
        if kind.plural == "services" && !status {
            services::keep(old, &mut object);
            services::drop_of_other_types(old, &mut object);
            self.choose_ports(kind, id, &mut object)?;
        }
        object["metadata"]["resourceVersion"] = version.clone();
        validate::updated(kind, status, old, &object).settle(kind, &id.name)?;
        if !moved && same(old, &object) {
            return Ok(Done {
                object: Arc::clone(old),
                effect: Effect::Kept,
            });
        }
        let held =
            !object["metadata"]["finalizers"].is_null() || !object["spec"]["finalizers"].is_null();
        if !old["metadata"]["deletionTimestamp"].is_null() && !held {
            // The DELETED event shows the old object.
            self.keep("DELETED", id, old.value.clone());
            return Ok(Done {
                object: Object::new(object),
                effect: Effect::Deleted,
            });
        }
        if kind.has(Trait::Counts) {
            let generation = old["metadata"]["generation"].as_u64().unwrap_or(0);
            object["metadata"]["generation"] = json!(generation + 1);
        }
        Ok(Done {
            object: self.keep("MODIFIED", id, object),
            effect: Effect::Kept,
        })
    }

    /// DELETE, with preconditions.
    pub fn delete(&mut self, id: &Id, preconditions: &Value) -> Result<Done, Refusal> {
        let kind = known(id.kind)?;
        let old = self
            .objects
            .get(id)
            .ok_or_else(|| Refusal::not_found(kind, &id.name))?;
        let old = Arc::clone(old);
        for field in ["uid", "resourceVersion"] {
            if !preconditions[field].is_null() && preconditions[field] != old["metadata"][field] {
                return Err(Refusal::precondition(kind, &id.name, field));
            }
        }
        let mut object = old.value.clone();
        let namespace = kind.plural == "namespaces";
        if !namespace && object["metadata"]["finalizers"].is_null() {
            return Ok(Done {
                object: self.keep("DELETED", id, object),
                effect: Effect::Deleted,
            });
        }
        if !object["metadata"]["deletionTimestamp"].is_null() {
            return Ok(Done {
                object: old,
                effect: Effect::Kept,
            });
        }
        object["metadata"]["deletionTimestamp"] = json!(self.now());
        if namespace {
            object["status"]["phase"] = json!("Terminating");
        } else {
            object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        }
        Ok(Done {
            object: self.keep("MODIFIED", id, object),
            effect: Effect::Kept,
        })
    }
}

fn known(plural: &str) -> Result<&'static Kind, Refusal> {
    Kind::named(plural)
        .ok_or_else(|| Refusal::new(404, "NotFound", format!("{plural} are not served")))
}

/// Removes the object's kind and version, which must be those of `kind`.
fn typed(kind: &Kind, object: &mut Value) -> Result<(), Refusal> {
    let Some(fields) = object.as_object_mut() else {
        return Err(Refusal::bad_request("the body is no object"));
    };
    for (field, right) in [("apiVersion", kind.version), ("kind", kind.word)] {
        if fields.remove(field).is_some_and(|given| given != right) {
            return Err(Refusal::bad_request(format!("{field} is not {right}")));
        }
    }
    if !fields.get("metadata").is_some_and(Value::is_object) {
        fields.insert("metadata".to_owned(), json!({}));
    }
    Ok(())
}

/// Whether nothing but the managed fields differs.
fn same(old: &Value, new: &Value) -> bool {
    let fields = |value: &Value| value.as_object().map_or(0, serde_json::Map::len);
    let equal = |old: &Value, new: &Value, but: &str| {
        fields(old) == fields(new)
            && old.as_object().into_iter().flatten().all(|(field, value)| {
                field == but || new.get(field).is_some_and(|new| new == value)
            })
    };
    equal(old, new, "metadata") && equal(&old["metadata"], &new["metadata"], "managedFields")
}

fn suffix(mut number: u64) -> String {
    let mut suffix = String::new();
    for _ in 0..5 {
        let letters = ALPHABET.len() as u64;
        suffix.push(char::from(ALPHABET[(number % letters) as usize]));
        number /= letters;
    }
    suffix
}
