//! Authentication (TokenReview) and authorisation (SubjectAccessReview) of requests. If a review
//! that a request needs has no answer, the request is refused (B-M4).

use std::sync::{Arc, Mutex};

use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use tokio::time::Instant;

use super::authorities::{Authorities, Shown};
use super::cache::{Cache, Digest, digest};
use super::reviews::{NotReviewed, Reviews};
use super::user::User;
use crate::args::ServeConfig;
use crate::core::lock;

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
    always_allowed: Vec<PathPattern>,
    users: Mutex<Cache<Option<Arc<User>>>>,
    allowed: Mutex<Cache<()>>,
    denied: Mutex<Cache<()>>,
}

/// Members of this group may do everything without a SubjectAccessReview, as in the API server.
const MASTERS: &str = "system:masters";

/// A user that may get this page may read why a check fails.
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
            always_allowed: config
                .authorization
                .always_allow_paths
                .iter()
                .map(|path| PathPattern::new(path))
                .collect(),
            users: Mutex::new(Cache::new(config.authentication.token_ttl)),
            allowed: Mutex::new(Cache::new(config.authorization.allowed_ttl)),
            denied: Mutex::new(Cache::new(config.authorization.denied_ttl)),
        }))
    }

    /// Decides about a request. Paths that are always allowed need no API server: a probe with a
    /// token must not fail because the API server is down.
    pub(super) async fn review(&self, request: &Parts) -> Result<Admitted, Refusal> {
        let inner = &self.0;
        let path = request.uri.path();
        if inner
            .always_allowed
            .iter()
            .any(|pattern| pattern.matches(path))
        {
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
        match Credentials::of(&request.headers) {
            Credentials::Token(token) => {
                if let Some(user) = self.who(token).await? {
                    return Ok(user);
                }
                refused = true;
            }
            Credentials::Unreadable => refused = true,
            Credentials::None => {}
        }
        if refused {
            return Err(Refusal::Unauthenticated);
        }
        Ok(Arc::new(User::anonymous()))
    }

    /// The user of this token. `None`: the token is not valid.
    async fn who(&self, token: &str) -> Result<Option<Arc<User>>, Refusal> {
        let question = digest(token.as_bytes());
        if let Some(known) = recall(&self.users, &question) {
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
        keep(&self.users, question, user.clone());
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
        if recall(&self.allowed, &question).is_some() {
            return Ok(true);
        }
        if recall(&self.denied, &question).is_some() {
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
        keep(verdicts, question, ());
        Ok(allowed)
    }
}

fn recall<V: Clone>(cache: &Mutex<Cache<V>>, question: &Digest) -> Option<V> {
    let cache = lock(cache);
    cache.get(question, Instant::now())
}

fn keep<V: Clone>(cache: &Mutex<Cache<V>>, question: Digest, answer: V) {
    let mut cache = lock(cache);
    cache.put(question, answer, Instant::now());
}

/// The Authorization header of a request.
#[derive(Debug, PartialEq, Eq)]
enum Credentials<'a> {
    /// No header, no token, or a scheme that is not supported (`Basic`).
    None,
    Token(&'a str),
    /// A header that is not text.
    Unreadable,
}

impl<'a> Credentials<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return Self::None;
        };
        let Ok(value) = value.to_str() else {
            return Self::Unreadable;
        };
        match value.trim().split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                Self::Token(token.trim())
            }
            _ => Self::None,
        }
    }
}

/// A path that is always allowed. With a `*` at its end, it allows every path that begins with it.
#[derive(Debug)]
enum PathPattern {
    Exact(String),
    Prefix(String),
}

impl PathPattern {
    fn new(pattern: &str) -> Self {
        let pattern = pattern.trim_start_matches('/');
        match pattern.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Exact(pattern.to_owned()),
        }
    }

    fn matches(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) => path.starts_with(prefix.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_m4_credentials_of_a_request() {
        let cases: [(Option<&[u8]>, Credentials<'_>); 9] = [
            (None, Credentials::None),
            (Some(b""), Credentials::None),
            (Some(b"Bearer"), Credentials::None),
            (Some(b"Bearer "), Credentials::None),
            (Some(b"Basic dTpw"), Credentials::None),
            (Some(b"Bearer abc"), Credentials::Token("abc")),
            (Some(b"bearer   abc "), Credentials::Token("abc")),
            (Some(b"BEARER a.b.c"), Credentials::Token("a.b.c")),
            (Some(b"Bearer \xff"), Credentials::Unreadable),
        ];
        for (value, expected) in cases {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(header::AUTHORIZATION, value.try_into().unwrap());
            }
            assert_eq!(Credentials::of(&headers), expected, "{value:?}");
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
            assert_eq!(
                PathPattern::new(pattern).matches(path),
                expected,
                "{pattern} {path}"
            );
        }
    }
}
