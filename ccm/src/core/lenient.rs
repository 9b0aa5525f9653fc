//! Reads objects of the API server with times that their types cannot represent.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Stands for later times. Jiff ends a few hours after this.
const LATEST: &str = "9999-12-30T22:00:00Z";
/// Stands for earlier times. The API server accepts no earlier year in a request.
const EARLIEST: &str = "0000-01-01T00:00:00Z";
/// Go's zero time, which Go writes as null. A condition must have a time, but the API server
/// accepts a Service's condition without one.
const ZERO: &str = "0001-01-01T00:00:00Z";

/// An object of the API server. A time beyond jiff's range becomes the nearest in it, also if the
/// object is written back: the API server stores any time, and one such object would make a whole
/// list of its kind unreadable.
#[derive(Clone, Debug)]
pub(crate) struct Lenient<K>(pub(crate) K);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // The price is one object's JSON at a time, also in a list.
        let mut value = Value::deserialize(from)?;
        let object = K::deserialize(&value).or_else(|_| {
            clamp(&mut value);
            K::deserialize(value)
        });
        object.map(Self).map_err(D::Error::custom)
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Lenient<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

fn clamp(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(nearest) = nearest(text) {
                nearest.clone_into(text);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clamp),
        Value::Object(fields) => {
            // Annotations are free text, which controllers compare.
            let fields = fields.iter_mut().filter(|(name, _)| *name != "annotations");
            for (name, field) in fields {
                if name == "lastTransitionTime" && field.is_null() {
                    *field = ZERO.into();
                }
                clamp(field);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The nearest time, if the text is a time of the API server that jiff cannot represent.
fn nearest(text: &str) -> Option<&'static str> {
    let (nearest, digits) = match text.strip_prefix('-') {
        Some(digits) => (EARLIEST, digits),
        None => (LATEST, text),
    };
    let year = digits.find(|it: char| !it.is_ascii_digit())?;
    let rest = digits.as_bytes().get(year..)?;
    let pattern = b"-00-00T00:00:00";
    let is_time = year >= 4
        && rest.len() > pattern.len()
        && rest.iter().zip(pattern).all(|(it, like)| match like {
            b'0' => it.is_ascii_digit(),
            _ => it == like,
        })
        && rest.iter().all(|it| b"0123456789-+:.TZ".contains(it));
    (is_time && text.parse::<Timestamp>().is_err()).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Service};
    use serde_json::json;

    use super::*;

    #[test]
    fn b_m8_only_times_beyond_jiffs_range_are_changed() {
        for (text, expected) in [
            ("9999-12-31T23:59:59Z", Some(LATEST)),
            ("9999-12-31T23:59:59.999999Z", Some(LATEST)),
            ("292277026596-12-04T15:30:07Z", Some(LATEST)),
            ("-0001-12-31T23:00:00Z", Some(EARLIEST)),
            ("9999-12-30T22:00:00Z", None),
            ("0000-01-01T00:00:00Z", None),
            ("2026-01-02T03:04:05Z", None),
            ("9999-12-31", None),
            ("never: 9999-12-31T23:59:59Z", None),
            ("2026-01-02T03:04:05Z: no quota", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(nearest(text), expected, "{text}");
        }
        for nearest in [LATEST, EARLIEST] {
            assert!(nearest.parse::<Timestamp>().is_ok(), "{nearest}");
        }
    }

    #[test]
    fn b_m8_a_time_is_clamped_or_filled_in_wherever_it_stands_and_annotations_stay() {
        let never = "9999-12-31T23:59:59Z";
        let node = |time: &str| {
            json!({
                "metadata": {
                    "name": "a", "creationTimestamp": time, "annotations": {"until": never},
                    "managedFields": [{"manager": "m", "time": time}],
                },
                "spec": {"taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": time}]},
                "status": {"conditions": [
                    {"type": "Ready", "status": "True", "lastHeartbeatTime": time, "lastTransitionTime": time},
                ]},
            })
        };
        let read = serde_json::from_value::<Lenient<Node>>(node(never)).unwrap();
        let expected = serde_json::from_value::<Node>(node(LATEST)).unwrap();
        assert_eq!(read.0, expected);
        let untimed = |time: serde_json::Value| {
            json!({"status": {"conditions": [
                {"type": "X", "status": "True", "reason": "R", "message": "", "lastTransitionTime": time},
            ]}})
        };
        let read = serde_json::from_value::<Lenient<Service>>(untimed(json!(null))).unwrap();
        let expected = serde_json::from_value::<Service>(untimed(json!(ZERO))).unwrap();
        assert_eq!(read.0, expected);
        // Another fault of the object stays one.
        assert!(serde_json::from_value::<Lenient<Node>>(json!({"metadata": 1})).is_err());
    }
}
