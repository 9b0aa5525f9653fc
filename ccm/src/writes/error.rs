//! Why a write did not happen.

use crate::core::Fenced;
use crate::kube_client::fenced;

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The object is gone, or another object now has its name. A patch of an object that has gone
    /// counts as success (B-S11).
    #[error("the object is gone")]
    Gone,
    /// Somebody wrote the object in between. Read it again and decide again.
    #[error("somebody changed the object in between")]
    Conflict,
    /// This process is not the leader any more.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The API server refuses the content (such as 422) or the right (403): repeating the same
    /// write helps only after something else changed. Or it refuses a DELETE with 401 or 429.
    #[error("the API server refused it: {0}")]
    Refused(String),
    /// Any other failure that remains after the client layer's retries: such as 401, 429, 5xx, or a
    /// failure of the transport. Repeat with backoff.
    #[error("the API server failed: {0}")]
    Unavailable(String),
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        if fenced(&error) {
            return Self::Fenced(Fenced);
        }
        let kube::Error::Api(status) = error else {
            return Self::Unavailable(error.to_string());
        };
        match status.code {
            // A proxy's own 404 says nothing about the object.
            404 if status.reason == "NotFound" => Self::Gone,
            409 => Self::Conflict,
            // The UID is immutable, so the API server refuses a patch with another UID.
            422 if names_uid(&status) => Self::Gone,
            // A token that has just expired or been rotated, no answer of the API server itself, a
            // request that arrived too slowly, an expired resourceVersion, or too many requests.
            401 | 404 | 408 | 410 | 429 => Self::Unavailable(status.message),
            400..=499 => Self::Refused(status.message),
            _ => Self::Unavailable(status.message),
        }
    }
}

fn names_uid(status: &kube::core::Status) -> bool {
    status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .any(|cause| cause.field == "metadata.uid")
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answer(code: u16, field: Option<&str>) -> WriteError {
        let reason = if code == 404 { "NotFound" } else { "Reason" };
        let mut status = Status::failure("text", reason).with_code(code);
        status.details = field
            .map(|field| serde_json::json!({ "causes": [{ "field": field }] }))
            .map(|details| serde_json::from_value(details).unwrap());
        kube::Error::Api(status.boxed()).into()
    }

    #[test]
    fn b_s11_answers_become_what_a_loop_does_about_them() {
        assert!(matches!(answer(404, None), WriteError::Gone));
        assert!(matches!(answer(409, None), WriteError::Conflict));
        assert!(matches!(
            answer(422, Some("metadata.uid")),
            WriteError::Gone
        ));
        for code in [400, 403, 405, 413, 415, 422] {
            assert!(
                matches!(answer(code, Some("spec.taints")), WriteError::Refused(text) if text == "text"),
                "{code}"
            );
        }
        for code in [401, 408, 429, 500, 503, 504] {
            assert!(
                matches!(answer(code, None), WriteError::Unavailable(_)),
                "{code}"
            );
        }
    }

    #[test]
    fn m11_a_404_that_is_not_the_api_servers_says_nothing_about_the_object() {
        let status = Status::failure("<html>", "Failed to parse error data").with_code(404);
        let error = WriteError::from(kube::Error::Api(status.boxed()));
        assert!(matches!(error, WriteError::Unavailable(_)), "{error}");
    }

    #[test]
    fn m12_a_closed_fence_is_told_from_transport() {
        let fenced = kube::Error::Service(Box::new(Fenced));
        assert!(matches!(WriteError::from(fenced), WriteError::Fenced(_)));
        let broken = kube::Error::Service(Box::new(std::io::Error::other("reset")));
        assert!(matches!(
            WriteError::from(broken),
            WriteError::Unavailable(_)
        ));
    }
}
