//! Parsed requests.

use std::collections::BTreeMap;

use http::Method;
use percent_encoding::percent_decode_str;

use super::kind::{Kind, Trait};
use super::refusal::Refusal;
use super::store::Id;

/// The supported parameters. A request with another one asks for an unsupported feature.
const PARAMETERS: [&str; 10] = [
    "allowWatchBookmarks",
    "continue",
    "fieldManager",
    "fieldSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];

/// A parsed request.
pub(super) struct Asked {
    pub(super) verb: &'static str,
    pub(super) kind: &'static Kind,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) status: bool,
    query: BTreeMap<String, String>,
}

impl Asked {
    /// `None`: no API server supports this request, or this one does not.
    pub(super) fn of(method: &Method, path: &str, query: &str) -> Option<Self> {
        let query = parameters(query)?;
        let path = path
            .strip_prefix("/api/")
            .or_else(|| path.strip_prefix("/apis/"))?;
        let kinds = super::kind::KINDS.iter();
        let mut kinds = kinds.filter(|kind| path.starts_with(kind.version));
        // A kind's path begins with the version of its group.
        let path = path
            .strip_prefix(kinds.next()?.version)?
            .strip_prefix('/')?;
        let parts: Vec<&str> = path.split('/').collect();
        let (namespace, rest) = match parts.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, name, status) = match rest {
            [plural] => (plural, "", false),
            [plural, name] => (plural, *name, false),
            [plural, name, "status"] => (plural, *name, true),
            _ => return None,
        };
        let kind = Kind::named(plural)?;
        let watches = query
            .get("watch")
            .is_some_and(|value| value == "true" || value == "1");
        let verb = match (method.as_str(), name) {
            ("GET", "") if watches => "WATCH",
            ("GET", "") => "LIST",
            ("GET", _) => "GET",
            ("POST", "") => "POST",
            ("PUT", name) if !name.is_empty() => "PUT",
            ("PATCH", name) if !name.is_empty() => "PATCH",
            ("DELETE", name) if !name.is_empty() => "DELETE",
            _ => return None,
        };
        if status && !kind.has(Trait::Status) {
            return None;
        }
        Some(Self {
            verb,
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            status,
            query,
        })
    }

    /// The call site's name in faults and coverage.
    pub(super) fn site(&self) -> String {
        let part = if self.status { "/status" } else { "" };
        format!("{} {}{part}", self.verb, self.kind.plural)
    }

    pub(super) fn id(&self) -> Id {
        Id::new(self.kind.plural, &self.namespace, &self.name)
    }

    pub(super) fn changes(&self) -> bool {
        !matches!(self.verb, "GET" | "LIST" | "WATCH")
    }

    pub(super) fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        matches!(self.parameter(name), "true" | "1")
    }

    /// `None`: the parameter is absent.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        match self.parameter(name) {
            "" => Ok(None),
            text => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(error) => Err(Refusal::bad_request(format!("{name} {text:?}: {error}"))),
            },
        }
    }

    /// The name in the field selector.
    pub(super) fn selected(&self) -> Option<&str> {
        self.parameter("fieldSelector")
            .strip_prefix("metadata.name=")
    }

    /// Whether the request is about this object.
    pub(super) fn shows(&self, id: &Id) -> bool {
        id.kind == self.kind.plural
            && (self.namespace.is_empty() || id.namespace == self.namespace)
            && self.selected().is_none_or(|name| name == id.name)
    }

    /// The start of a page: the version of the list and the first object.
    pub(super) fn continued(&self) -> Result<Option<(u64, Id)>, Refusal> {
        let token = self.parameter("continue");
        if token.is_empty() {
            return Ok(None);
        }
        let parts: Vec<&str> = token.split('_').collect();
        if let [version, namespace, name] = parts.as_slice()
            && let Ok(version) = version.parse()
        {
            return Ok(Some((version, Id::new(self.kind.plural, namespace, name))));
        }
        Err(Refusal::bad_request(format!(
            "continue {token:?} is none of ours"
        )))
    }
}

/// The token of a page. No namespace has a `_`, and no name in a list of several pages has one.
pub(super) fn token(version: u64, next: &Id) -> String {
    format!("{version}_{}_{}", next.namespace, next.name)
}

fn parameters(query: &str) -> Option<BTreeMap<String, String>> {
    let mut parameters = BTreeMap::new();
    for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        if !PARAMETERS.contains(&key) {
            return None;
        }
        let value = percent_decode_str(value).decode_utf8().ok()?.into_owned();
        if key == "fieldSelector" && !value.starts_with("metadata.name=") {
            return None;
        }
        parameters.insert(key.to_owned(), value);
    }
    Some(parameters)
}
