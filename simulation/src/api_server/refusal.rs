//! Refusals of the API server, as a Status.

use serde_json::{Value, json};

use super::kind::Kind;

/// A refusal: the content of the Status.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The status code.
    pub code: u16,
    /// The reason in one word; empty for some.
    pub reason: &'static str,
    /// For people. The words are ours, not a real API server's.
    pub message: String,
    /// The object of the refusal, or null.
    pub details: Value,
}

impl Refusal {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
        }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    fn about(kind: &Kind, name: &str, code: u16, reason: &'static str, what: &str) -> Self {
        Self {
            details: details(kind, kind.plural, name),
            ..Self::new(
                code,
                reason,
                format!("{} {name:?}: {what}", kind.resource()),
            )
        }
    }

    pub(super) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::about(kind, name, 404, "NotFound", "there is none")
    }

    pub(super) fn exists(kind: &Kind, name: &str) -> Self {
        Self::about(kind, name, 409, "AlreadyExists", "there is one")
    }

    pub(super) fn conflict(kind: &Kind, name: &str, what: &str) -> Self {
        Self::about(kind, name, 409, "Conflict", what)
    }

    /// A precondition does not hold.
    pub(super) fn precondition(kind: &Kind, name: &str, field: &str) -> Self {
        let what = format!("its {field} is not the one of the precondition");
        let mut refusal = Self::conflict(kind, name, &what);
        // A real API server names the kind here, not the resource.
        refusal.details["kind"] = json!(kind.word);
        refusal
    }

    pub(super) fn terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let what = format!("the namespace {namespace} is being deleted");
        let mut refusal = Self::about(kind, name, 403, "Forbidden", &what);
        refusal.details["causes"] = json!([{"reason": "NamespaceTerminating", "message": what, "field": "metadata.namespace"}]);
        refusal
    }

    pub(super) fn expired(message: &str) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Refuses the content, for these causes.
    pub(super) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let told: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let mut details = details(kind, kind.word, name);
        details["causes"] = causes.iter().map(Cause::shown).collect();
        Self {
            details,
            ..Self::new(
                422,
                "Invalid",
                format!("{} {name:?} is invalid: {}", kind.full(), told.join(", ")),
            )
        }
    }

    /// The Status.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "message": self.message, "code": self.code});
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

/// The Status for an object that was deleted at once.
pub(super) fn deleted(kind: &Kind, name: &str, uid: &Value) -> Value {
    let mut details = details(kind, kind.plural, name);
    details["uid"] = uid.clone();
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success", "details": details})
}

fn details(kind: &Kind, word: &str, name: &str) -> Value {
    let mut details = json!({"kind": word});
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    details
}

/// Why content is refused.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    pub(super) field: String,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Cause {
    fn shown(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}
