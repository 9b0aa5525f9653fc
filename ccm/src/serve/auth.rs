//! Authentication (TokenReview) and authorisation (SubjectAccessReview) of requests. If a review
//! that a request needs has no answer, the request is refused (B-M4).

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::{self, ToStrError};
use axum::http::request::Parts;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;

use super::authorities::{Authorities, Shown};
use super::cache::{Cache, digest};
use super::reviews::{NotReviewed, Reviews};
use super::user::User;
use crate::args::ServeConfig;

/// Why a request is refused. The caller gets the text. Only the log has the cause of a failed
/// review.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("neither the bearer token nor the client certificate is valid")]
    Unauthenticated,
    #[error("user {user:?} may not {verb} the path {path:?}")]
    Forbidden {
        user: String,
        verb: String,
        path: String,
    },
    #[error(transparent)]
    NotReviewed(#[from] NotReviewed),
}

/// How a request was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// The path is open to everybody, or to the anonymous user.
    Anybody,
    /// An authenticated user may see the path.
    Authenticated,
}

/// Authenticates and authorises requests. Clones share their caches.
#[derive(Clone)]
pub(crate) struct Reviewer(Arc<Inner>);

struct Inner {
    tokens: Reviews,
    access: Reviews,
    authorities: Authorities,
    always_allowed: Vec<String>,
    users: Cache<Option<Arc<User>>>,
    allowed: Cache<()>,
    denied: Cache<()>,
}

/// Members of this group may do everything without a SubjectAccessReview, as in the API server.
const MASTERS: &str = "system:masters";

/// An authenticated user that may get this page may read why a check fails.
const STATUS_PAGE: &str = "/statusz";

impl Reviewer {
    /// `authentication` creates TokenReviews, `authorization` SubjectAccessReviews.
    pub(crate) fn new(
        authentication: Client,
        authorization: Client,
        authorities: Authorities,
        config: &ServeConfig,
    ) -> Self {
        Self(Arc::new(Inner {
            tokens: Reviews::new(
                "TokenReview",
                "/apis/authentication.k8s.io/v1/tokenreviews",
                authentication,
            ),
            access: Reviews::new(
                "SubjectAccessReview",
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                authorization,
            ),
            authorities,
            always_allowed: config.authorization.always_allow_paths.clone(),
            users: Cache::new(config.authentication.token_ttl),
            allowed: Cache::new(config.authorization.allowed_ttl),
            denied: Cache::new(config.authorization.denied_ttl),
        }))
    }

    /// Decides about a request. Paths that are always allowed need no API server: a probe with a
    /// token must not fail because the API server is down.
    pub(super) async fn review(&self, request: &Parts) -> Result<Admitted, Refusal> {
        let inner = &self.0;
        let path = request.uri.path();
        let mut always_allowed = inner.always_allowed.iter();
        if always_allowed.any(|pattern| allows(pattern, path)) {
            return Ok(Admitted::Anybody);
        }
        inner.judge(request, path).await
    }

    /// Whether the caller is an authenticated user that may see the status page. That page says as
    /// much as the reasons of failed checks. The right to get `/readyz` proves nothing: by default
    /// Kubernetes gives it to every account (ClusterRole system:public-info-viewer).
    pub(super) async fn sees_reasons(&self, request: &Parts) -> bool {
        let shows_something = request.extensions.get::<Shown>().is_some()
            || request.headers.contains_key(header::AUTHORIZATION);
        // Most callers are probes. They must cost no review.
        shows_something
            && matches!(
                self.0.judge(request, STATUS_PAGE).await,
                Ok(Admitted::Authenticated)
            )
    }
}

impl Inner {
    async fn judge(&self, request: &Parts, path: &str) -> Result<Admitted, Refusal> {
        let user = self.authenticate(request).await?;
        let admitted = if *user == User::anonymous() {
            Admitted::Anybody
        } else {
            Admitted::Authenticated
        };
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(admitted);
        }
        let verb = request.method.as_str().to_ascii_lowercase();
        if self.may(&user, &verb, path).await? {
            return Ok(admitted);
        }
        Err(Refusal::Forbidden {
            user: user.name.clone(),
            verb,
            path: path.to_owned(),
        })
    }

    /// Finds the user: by a front proxy's headers, a client certificate, or a token. Without them,
    /// the user is anonymous. One invalid credential does no harm as long as another is valid.
    async fn authenticate(&self, request: &Parts) -> Result<Arc<User>, Refusal> {
        let mut refused = false;
        if let Some(shown) = request.extensions.get::<Shown>() {
            match self.authorities.judge(shown).await {
                Some(verdict) => {
                    let proxy = verdict.proxy.as_ref();
                    let named =
                        proxy.and_then(|headers| User::of_headers(&request.headers, headers));
                    if let Some(user) = named
                        .map(User::authenticated)
                        .or_else(|| verdict.user.clone())
                    {
                        return Ok(Arc::new(user));
                    }
                    refused = verdict.refused;
                }
                None => refused = true,
            }
        }
        match bearer_token(&request.headers) {
            Ok(Some(token)) => {
                if let Some(user) = self.who(token).await? {
                    return Ok(user);
                }
                refused = true;
            }
            Err(_) => refused = true,
            Ok(None) => {}
        }
        if refused {
            return Err(Refusal::Unauthenticated);
        }
        Ok(Arc::new(User::anonymous()))
    }

    /// The user of this token. `None`: the token is not valid.
    async fn who(&self, token: &str) -> Result<Option<Arc<User>>, Refusal> {
        let question = digest(token.as_bytes());
        if let Some(known) = self.users.get(&question) {
            return Ok(known);
        }
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let user = self
            .tokens
            .ask(&review, |answer: TokenReview| {
                let status = answer.status?;
                Some(status.user.filter(|_| status.authenticated == Some(true)))
            })
            .await?
            .and_then(|user| {
                Some(Arc::new(
                    User {
                        name: user.username.filter(|name| !name.is_empty())?,
                        uid: user.uid,
                        groups: user.groups.unwrap_or_default(),
                        extra: user.extra,
                    }
                    .authenticated(),
                ))
            });
        self.users.put(question, user.clone());
        Ok(user)
    }

    async fn may(&self, user: &User, verb: &str, path: &str) -> Result<bool, Refusal> {
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: user.uid.clone(),
            groups: Some(user.groups.clone()),
            extra: user.extra.clone(),
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some(verb.to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let question = digest(&self.access.body(&spec)?);
        if self.allowed.get(&question).is_some() {
            return Ok(true);
        }
        if self.denied.get(&question).is_some() {
            return Ok(false);
        }
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let allowed = self
            .access
            .ask(&review, |answer: SubjectAccessReview| {
                let status = answer.status?;
                Some(status.allowed && status.denied != Some(true))
            })
            .await?;
        let verdicts = if allowed { &self.allowed } else { &self.denied };
        verdicts.put(question, ());
        Ok(allowed)
    }
}

/// The token in the Authorization header. `None`: no header, no token, or a scheme that is not
/// supported (`Basic`). An error: the header is not text.
fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, ToStrError> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let words = value.to_str()?.trim().split_once(' ');
    Ok(words
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim()))
}

/// Whether the pattern of always allowed paths allows this path. With a `*` at its end, it allows
/// every path that begins with it.
fn allows(pattern: &str, path: &str) -> bool {
    let pattern = pattern.trim_start_matches('/');
    let path = path.strip_prefix('/').unwrap_or(path);
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_m4_credentials_of_a_request() {
        type Case<'a> = (Option<&'a [u8]>, Result<Option<&'a str>, ()>);
        let cases: [Case<'_>; 9] = [
            (None, Ok(None)),
            (Some(b""), Ok(None)),
            (Some(b"Bearer"), Ok(None)),
            (Some(b"Bearer "), Ok(None)),
            (Some(b"Basic dTpw"), Ok(None)),
            (Some(b"Bearer abc"), Ok(Some("abc"))),
            (Some(b"bearer   abc "), Ok(Some("abc"))),
            (Some(b"BEARER a.b.c"), Ok(Some("a.b.c"))),
            (Some(b"Bearer \xff"), Err(())),
        ];
        for (value, expected) in cases {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(header::AUTHORIZATION, value.try_into().unwrap());
            }
            let token = bearer_token(&headers).map_err(|_| ());
            assert_eq!(token, expected, "{value:?}");
        }
    }

    #[test]
    fn b_m4_always_allowed_paths() {
        for (pattern, path, expected) in [
            ("/healthz", "/healthz", true),
            ("healthz", "/healthz", true),
            ("/healthz", "/healthz/", false),
            ("/healthz", "/healthz/../metrics", false),
            ("/healthz", "/healthzz", false),
            ("/healthz", "//healthz", false),
            ("/healthz*", "/healthzz", true),
            ("/debug/*", "/debug/a/b", true),
            ("/debug/*", "/debug", false),
            ("/a*b", "/aXb", false),
            ("*", "/metrics", true),
            ("", "/metrics", false),
        ] {
            assert_eq!(allows(pattern, path), expected, "{pattern} {path}");
        }
    }
}
