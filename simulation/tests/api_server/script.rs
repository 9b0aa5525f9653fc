//! The script: one request a line.

use std::collections::BTreeMap;

use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The line of the script.
    pub(crate) line: &'static str,
    /// The status code.
    pub(crate) code: u16,
    /// The object, or the events of a watch.
    pub(crate) body: Value,
}

/// A request, ready to be sent.
pub(crate) struct Ready {
    pub(crate) request: Request<Body>,
    /// The test reads events until this one, an ERROR, or the end of the watch.
    pub(crate) until: Option<Until>,
    pub(crate) watches: bool,
}

/// The last event that the test reads.
pub(crate) enum Until {
    /// One of this version, or of a later one.
    Version(u64),
    /// The first bookmark.
    Bookmark,
}

impl Until {
    pub(crate) fn is(&self, event: &Value) -> bool {
        let version = event["object"]["metadata"]["resourceVersion"].as_str();
        match self {
            Self::Version(last) => version
                .and_then(|text| text.parse().ok())
                .is_some_and(|version: u64| version >= *last),
            Self::Bookmark => event["type"] == "BOOKMARK",
        }
    }
}

/// The answers to earlier requests, by the names of the requests in the script.
#[derive(Default)]
pub(crate) struct Answers(BTreeMap<&'static str, Value>);

pub(crate) fn lines() -> impl Iterator<Item = &'static str> {
    let all = include_str!("script.txt").lines();
    all.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The name of a line's answer, and the rest of the line.
fn named(line: &'static str) -> (Option<&'static str>, &'static str) {
    match line.split_once(" = ") {
        Some((name, rest)) if !name.contains(' ') => (Some(name), rest),
        _ => (None, line),
    }
}

impl Answers {
    pub(crate) fn keep(&mut self, line: &'static str, body: &Value) {
        if let (Some(name), _) = named(line) {
            self.0.insert(name, body.clone());
        }
    }

    pub(crate) fn version(&self, name: &str) -> u64 {
        let version = self.0[name]["metadata"]["resourceVersion"].as_str();
        version.unwrap().parse().unwrap()
    }

    /// Replaces the references to earlier answers.
    fn resolve(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, answer) in &self.0 {
            let metadata = &answer["metadata"];
            for (field, value) in [
                ("uid", &metadata["uid"]),
                ("rv", &metadata["resourceVersion"]),
                ("name", &metadata["name"]),
                ("continue", &metadata["continue"]),
            ] {
                if let Some(value) = value.as_str() {
                    text = text.replace(&format!("${name}.{field}"), value);
                }
            }
        }
        text
    }

    pub(crate) fn request(&self, line: &'static str) -> Ready {
        let text = self.resolve(named(line).1);
        let (verb, rest) = text.split_once(' ').unwrap();
        let (target, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let (until, rest) = match rest.strip_prefix("until=") {
            Some("bookmark") => (Some(Until::Bookmark), ""),
            Some(version) => (Some(Until::Version(version.parse().expect(line))), ""),
            None => (None, rest),
        };
        let (base, rest) = match rest.strip_prefix("< ") {
            Some(rest) => {
                let (name, rest) = rest.split_once(' ').unwrap();
                (Some(self.0[name].clone()), rest)
            }
            None => (None, rest),
        };
        let mut body: Value = match rest {
            "" => Value::Null,
            rest => serde_yaml::from_str(rest).expect(line),
        };
        if let Some(mut base) = base {
            json_patch::merge(&mut base, &body);
            body = base;
        }
        let (method, content) = match verb {
            "GET" | "META" | "WATCH" => (Method::GET, ""),
            "POST" => (Method::POST, "application/json"),
            "PUT" => (Method::PUT, "application/json"),
            "MERGE" => (Method::PATCH, "application/merge-patch+json"),
            "STRATEGIC" => (Method::PATCH, "application/strategic-merge-patch+json"),
            "JSON" => (Method::PATCH, "application/json-patch+json"),
            "TEXT" => (Method::PATCH, "text/plain"),
            "DELETE" => (Method::DELETE, "application/json"),
            verb => panic!("{verb}: {line}"),
        };
        let mut uri = path(target);
        let mut more = |pair: &str| {
            uri.push(if uri.contains('?') { '&' } else { '?' });
            uri.push_str(pair);
        };
        if verb == "WATCH" {
            more("watch=true");
        }
        let writes = ["POST", "PUT", "PATCH"].contains(&method.as_str());
        if writes && !target.contains("fieldManager=") {
            more("fieldManager=ccm");
        }
        if ["POST", "PUT"].contains(&verb) {
            complete(target, &mut body);
        }
        let mut request = Request::builder().method(method).uri(uri);
        if !content.is_empty() {
            request = request.header("content-type", content);
        }
        let accepts = if verb == "META" {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        } else {
            "application/json"
        };
        let body = if body.is_null() {
            Body::empty()
        } else {
            Body::from(body.to_string().into_bytes())
        };
        Ready {
            request: request.header("accept", accepts).body(body).unwrap(),
            until,
            watches: verb == "WATCH",
        }
    }
}

/// `services@default/web/status?x=y` as a URL.
fn path(target: &str) -> String {
    let (target, query) = target.split_once('?').unwrap_or((target, ""));
    let (resource, object) = target.split_once('/').unwrap_or((target, ""));
    let (resource, namespace) = resource.split_once('@').unwrap_or((resource, "sim"));
    let root = match resource {
        "leases" => "/apis/coordination.k8s.io/v1",
        "endpointslices" => "/apis/discovery.k8s.io/v1",
        _ => "/api/v1",
    };
    let mut path = root.to_owned();
    if namespace != "-" && !["nodes", "namespaces", "persistentvolumes"].contains(&resource) {
        path = format!("{path}/namespaces/{namespace}");
    }
    for part in [resource, object].iter().filter(|part| !part.is_empty()) {
        path.push('/');
        path.push_str(part);
    }
    if !query.is_empty() {
        path.push('?');
        path.push_str(&query.replace("metadata.name=", "metadata.name%3D"));
    }
    path
}

/// Sets the body's version and kind, as clients do.
fn complete(target: &str, body: &mut Value) {
    let resource = target.split(['@', '/', '?']).next().unwrap_or_default();
    let (version, kind) = match resource {
        "nodes" => ("v1", "Node"),
        "services" => ("v1", "Service"),
        "events" => ("v1", "Event"),
        "namespaces" => ("v1", "Namespace"),
        "persistentvolumes" => ("v1", "PersistentVolume"),
        "leases" => ("coordination.k8s.io/v1", "Lease"),
        "endpointslices" => ("discovery.k8s.io/v1", "EndpointSlice"),
        other => panic!("{other}"),
    };
    for (field, value) in [("apiVersion", version), ("kind", kind)] {
        if body[field].is_null() {
            body[field] = json!(value);
        }
    }
}
