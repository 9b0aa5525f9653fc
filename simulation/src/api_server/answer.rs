//! Responses.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use super::kind::Kind;
use super::refusal::Refusal;
use super::request;
use super::store::{Object, Page};

/// An answer of the API server.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, Broken>>;

/// A connection that breaks.
#[derive(Debug, thiserror::Error)]
#[error("the connection broke")]
pub(super) struct Broken;

/// The object's text with its kind in front.
pub(super) fn text(kind: &Kind, object: &Object) -> String {
    let rest = object.text().strip_prefix('{').unwrap_or_default();
    format!(
        r#"{{"apiVersion":"{}","kind":"{}",{rest}"#,
        kind.version, kind.word
    )
}

pub(super) fn of_object(code: StatusCode, kind: &Kind, object: &Object) -> Answer {
    of_text(code, text(kind, object))
}

/// The metadata alone.
pub(super) fn of_metadata(object: &Object) -> Answer {
    let metadata = &object["metadata"];
    let partial = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
    of_value(StatusCode::OK, &partial)
}

pub(super) fn of_page(kind: &Kind, page: &Page, count: bool) -> Answer {
    let mut metadata = json!({"resourceVersion": page.version.to_string()});
    if let Some((next, remaining)) = &page.rest {
        metadata["continue"] = json!(request::token(page.version, next));
        if count {
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    let mut text = format!(
        r#"{{"apiVersion":"{}","kind":"{}List","metadata":{metadata},"items":["#,
        kind.version, kind.word
    );
    for (i, object) in page.items.iter().enumerate() {
        if i > 0 {
            text.push(',');
        }
        text.push_str(object.text());
    }
    text.push_str("]}");
    of_text(StatusCode::OK, text)
}

pub(super) fn of_value(code: StatusCode, value: &Value) -> Answer {
    of_text(code, value.to_string())
}

pub(super) fn of_text(code: StatusCode, text: String) -> Answer {
    let body = Full::new(Bytes::from(text));
    let body = body.map_err(|never: Infallible| match never {});
    let mut response = Response::new(UnsyncBoxBody::new(body));
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

pub(super) fn refused(refusal: &Refusal) -> Answer {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = of_value(code, &refusal.status());
    if refusal.code == 429 {
        let second = HeaderValue::from_static("1");
        response.headers_mut().insert(header::RETRY_AFTER, second);
    }
    response
}
