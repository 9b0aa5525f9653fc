//! An API server that only answers reviews.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// How the API server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    /// It accepts no connection.
    Gone,
    /// 403: the client may not create reviews.
    Forbids,
    /// 200 with a body that is not a review.
    Garbled,
    /// 201 with a review without a status.
    Mute,
    /// It never answers.
    Hangs,
}

/// It accepts only the tokens `alice` and `pod`. Alice may get `/metrics`, `/configz`, `/statusz`,
/// health, single checks and the missing `/nothing`. The Pod may get `/healthz` and `/readyz`.
/// Everybody may get `/version`.
#[derive(Clone)]
pub(super) struct ApiServer(Arc<Mutex<State>>);

struct State {
    mood: Mood,
    token_reviews: usize,
    access_reviews: Vec<Value>,
    hanging: usize,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            mood: Mood::Well,
            token_reviews: 0,
            access_reviews: Vec::new(),
            hanging: 0,
        })))
    }
}

impl ApiServer {
    pub(super) fn set(&self, mood: Mood) {
        self.0.lock().unwrap().mood = mood;
    }

    /// The numbers of TokenReviews and SubjectAccessReviews that it decided so far.
    pub(super) fn asked(&self) -> (usize, usize) {
        let state = self.0.lock().unwrap();
        (state.token_reviews, state.access_reviews.len())
    }

    /// The number of reviews that it never answered.
    pub(super) fn hanging(&self) -> usize {
        self.0.lock().unwrap().hanging
    }

    /// The spec of the latest SubjectAccessReview.
    pub(super) fn last_access_review(&self) -> Value {
        let state = self.0.lock().unwrap();
        state.access_reviews.last().cloned().unwrap()
    }

    pub(super) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        Client::new(service, "default")
    }

    async fn answer(
        &self,
        request: http::Request<Body>,
    ) -> Result<http::Response<Body>, tower::BoxError> {
        assert_eq!(request.method(), http::Method::POST);
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await?.to_bytes();
        let mut review: Value = serde_json::from_slice(&body).unwrap();
        let mood = self.0.lock().unwrap().mood;
        match mood {
            Mood::Well => {}
            Mood::Gone => return Err("connection refused".into()),
            Mood::Forbids => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"});
                return Ok(response(403, &status));
            }
            Mood::Garbled => return Ok(response(200, &json!("nothing"))),
            Mood::Mute => return Ok(response(201, &review)),
            Mood::Hangs => {
                self.0.lock().unwrap().hanging += 1;
                match std::future::pending::<Infallible>().await {}
            }
        }
        let status = match (path.as_str(), review["kind"].as_str()) {
            ("/apis/authentication.k8s.io/v1/tokenreviews", Some("TokenReview")) => {
                self.token_status(&review["spec"])
            }
            ("/apis/authorization.k8s.io/v1/subjectaccessreviews", Some("SubjectAccessReview")) => {
                self.access_status(&review["spec"])
            }
            other => panic!("{other:?}"),
        };
        review["status"] = status;
        Ok(response(201, &review))
    }

    fn token_status(&self, spec: &Value) -> Value {
        self.0.lock().unwrap().token_reviews += 1;
        if spec["token"] == "alice" {
            json!({
                "authenticated": true,
                "user": {
                    "username": "alice", "uid": "u-1", "groups": ["ops", "system:authenticated"], "extra": {"scopes": ["a", "b"]},
                },
            })
        } else if spec["token"] == "pod" {
            json!({"authenticated": true, "user": {"username": "pod", "groups": ["system:authenticated"]}})
        } else {
            json!({"error": "invalid bearer token", "user": {}})
        }
    }

    fn access_status(&self, spec: &Value) -> Value {
        self.0.lock().unwrap().access_reviews.push(spec.clone());
        let attributes = &spec["nonResourceAttributes"];
        let allowed = match (attributes["verb"].as_str(), attributes["path"].as_str()) {
            (Some("get" | "head"), Some("/version")) => true,
            // As in the ClusterRole system:public-info-viewer.
            (Some("get"), Some("/healthz" | "/readyz")) if spec["user"] == "pod" => true,
            (Some("get"), Some(path)) if path.matches('/').count() == 2 => spec["user"] == "alice",
            (
                Some("get" | "head"),
                Some("/healthz" | "/readyz" | "/metrics" | "/configz" | "/statusz" | "/nothing"),
            ) => spec["user"] == "alice",
            _ => false,
        };
        // Both allowed and denied, as a chain of authorizers may answer.
        let denied = attributes["path"] == "/contradiction";
        json!({"allowed": allowed || denied, "denied": denied})
    }
}

fn response(status: u16, body: &Value) -> http::Response<Body> {
    http::Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Body::from(serde_json::to_vec(body).unwrap()))
        .unwrap()
}
