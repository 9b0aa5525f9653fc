//! Makes the answers of two API servers comparable. Each API server chooses UIDs, versions, names,
//! addresses and ports. A word replaces each of these values. Equal values get equal words, and
//! versions stay in their order.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::script::Outcome;

/// The characters of the suffixes that the API server appends to names.
const SUFFIX: &str = "bcdfghjklmnpqrstvwxz2456789";
/// The fields with times of the API server.
const TIMES: [&str; 4] = [
    "creationTimestamp",
    "deletionTimestamp",
    "lastPhaseTransitionTime",
    "time",
];

#[derive(Default)]
struct Seen {
    /// The word for each text that the API server chose.
    words: BTreeMap<String, String>,
    uids: BTreeMap<String, usize>,
    versions: BTreeSet<u64>,
    ports: BTreeMap<u64, usize>,
    addresses: BTreeMap<String, usize>,
}

/// The answers of one API server, with words instead of the values that it chose.
pub(crate) fn normal(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    let mut seen = Seen::default();
    for outcome in &outcomes {
        seen.learn(&outcome.body);
    }
    for outcome in &mut outcomes {
        seen.tell(&mut outcome.body, "");
    }
    outcomes
}

fn number(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}

impl Seen {
    fn learn(&mut self, value: &Value) {
        match value {
            Value::Array(all) => all.iter().for_each(|one| self.learn(one)),
            Value::Object(fields) => {
                let metadata = &value["metadata"];
                if let Some(uid) = metadata["uid"].as_str() {
                    self.versions.extend(number(&metadata["resourceVersion"]));
                    let name = metadata["name"].as_str().unwrap_or_default();
                    let kind = value["kind"].as_str().unwrap_or_default();
                    let name = self.name(name, metadata["generateName"].as_str());
                    // Items of a list have no kind. An earlier request created the item.
                    if !self.words.contains_key(uid) {
                        let count = self.uids.entry(format!("{kind} {name}")).or_default();
                        *count += 1;
                        let word = format!("<uid {count} of {kind} {name}>");
                        self.words.insert(uid.to_owned(), word);
                    }
                }
                fields.values().for_each(|one| self.learn(one));
            }
            Value::String(text) => {
                if text.starts_with("10.0.") && !include_str!("script.txt").contains(text) {
                    let count = self.addresses.len();
                    self.addresses.entry(text.clone()).or_insert(count);
                }
            }
            Value::Number(port) => {
                let port = port.as_u64().unwrap_or_default();
                if (30_000..32_768).contains(&port)
                    && !include_str!("script.txt").contains(&port.to_string())
                {
                    let count = self.ports.len();
                    self.ports.entry(port).or_insert(count);
                }
            }
            Value::Bool(_) | Value::Null => {}
        }
    }

    /// The name, or a word if the API server completed it.
    fn name(&mut self, name: &str, prefix: Option<&str>) -> String {
        let suffix = prefix.and_then(|prefix| name.strip_prefix(prefix));
        match suffix {
            Some(suffix) if suffix.len() == 5 && suffix.chars().all(|c| SUFFIX.contains(c)) => {
                let word = format!("{}<completed>", prefix.unwrap_or_default());
                self.words.insert(name.to_owned(), word.clone());
                word
            }
            _ => name.to_owned(),
        }
    }

    /// A word for the newest known version up to `version`. The version of a list or a bookmark may
    /// be that of another object.
    fn version(&self, version: u64) -> String {
        format!("<version {}>", self.versions.range(..=version).count())
    }

    fn tell(&self, value: &mut Value, key: &str) {
        match value {
            Value::Array(all) => {
                if key == "managedFields" {
                    // The API server sorts them by their times, which are whole seconds.
                    all.sort_by_key(|one| format!("{}{}", one["manager"], one["subresource"]));
                }
                for one in all {
                    self.tell(one, "");
                }
            }
            Value::Object(fields) => {
                for (key, value) in fields {
                    self.tell(value, key);
                }
            }
            Value::String(text) => {
                if TIMES.contains(&key) {
                    *text = text.replace(|c: char| c.is_ascii_digit(), "0");
                } else if key == "resourceVersion" {
                    if let Ok(version) = text.parse() {
                        *text = self.version(version);
                    }
                } else if key == "continue" {
                    "<continue>".clone_into(text);
                } else if let Some(count) = self.addresses.get(text) {
                    *text = format!("<address {count}>");
                } else {
                    for (own, word) in &self.words {
                        if text.contains(own) {
                            *text = text.replace(own, word);
                        }
                    }
                    if key == "message" {
                        *text = self.message(text);
                    }
                }
            }
            Value::Number(port) => {
                if let Some(count) = port.as_u64().and_then(|port| self.ports.get(&port)) {
                    *value = json!(format!("<port {count}>"));
                }
            }
            Value::Bool(_) | Value::Null => {}
        }
    }

    /// Replaces the versions, which are in brackets.
    fn message(&self, text: &str) -> String {
        let mut told = String::new();
        for (count, part) in text.split('(').enumerate() {
            if count > 0 {
                told.push('(');
            }
            match part.split_once(')') {
                Some((inner, rest)) if inner.parse::<u64>().is_ok() => {
                    told.push_str(&self.version(inner.parse().unwrap_or_default()));
                    told.push(')');
                    told.push_str(rest);
                }
                _ => told.push_str(part),
            }
        }
        told
    }
}
