//! Which requests are admitted.

use std::time::Duration;

use axum::http::Request;
use axum::http::request::Parts;
use serde_json::json;

use super::api_server::{ApiServer, Mood};
use super::{Limits, Port, config};
use crate::serve::Reviewer;
use crate::serve::auth::Refusal;
use crate::serve::authorities::Authorities;
use crate::serve::reviews::REVIEW_TIMEOUT;

#[tokio::test]
async fn b_m4_a_valid_token_is_authorised_as_its_user() {
    let port = Port::open().await;
    assert_eq!(port.status("/metrics", Some("alice")).await, 200);
    assert_eq!(
        port.api_server.last_access_review(),
        json!({
            "user": "alice", "uid": "u-1", "groups": ["ops", "system:authenticated"], "extra": {"scopes": ["a", "b"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        })
    );
}

#[tokio::test]
async fn b_m4_denied_wins_over_allowed() {
    let port = Port::open().await;
    for _ in 0..2 {
        assert_eq!(port.status("/contradiction", Some("alice")).await, 403);
    }
}

#[tokio::test]
async fn b_m4_no_token_is_anonymous_and_authorised_as_such() {
    let port = Port::open().await;
    let answer = port.caller.get("/metrics", None).await;
    assert_eq!(
        (answer.status, answer.text.as_str()),
        (
            403,
            "user \"system:anonymous\" may not get the path \"/metrics\"\n"
        )
    );
    assert_eq!(
        port.api_server.last_access_review(),
        json!({
            "user": "system:anonymous", "groups": ["system:unauthenticated"],
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        })
    );
    assert_eq!(port.status("/version", None).await, 200);
    assert_eq!(port.api_server.asked(), (0, 2));
}

#[tokio::test]
async fn b_m4_an_invalid_token_is_401_also_where_anonymous_may() {
    let port = Port::open().await;
    for path in ["/metrics", "/version", "/nothing"] {
        let answer = port.caller.get(path, Some("mallory")).await;
        assert_eq!(answer.status, 401);
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
        assert!(!answer.text.contains("mallory"));
    }
    assert_eq!(
        port.api_server.asked(),
        (1, 0),
        "the answer for the token is cached"
    );
}

#[tokio::test]
async fn b_m4_skip_lookup_is_about_authorities_and_tokens_count_as_before() {
    let port = Port::open_with(&["--authentication-skip-lookup"], Limits::default()).await;
    assert_eq!(port.status("/metrics", Some("alice")).await, 200);
    assert_eq!(port.status("/version", Some("mallory")).await, 401);
    assert_eq!(port.status("/metrics", None).await, 403);
}

#[tokio::test]
async fn b_m4_without_an_answer_of_the_api_server_nobody_is_let_in() {
    for mood in [Mood::Gone, Mood::Forbids, Mood::Garbled, Mood::Mute] {
        let port = Port::open().await;
        port.api_server.set(mood);
        let answer = port.caller.get("/metrics", Some("alice")).await;
        assert_eq!(answer.status, 500, "{mood:?}");
        assert!(
            answer
                .text
                .contains("cannot ask the API server (TokenReview)")
        );
        let answer = port.caller.get("/version", None).await;
        assert_eq!(answer.status, 500, "{mood:?}");
        assert!(answer.text.contains("(SubjectAccessReview)"));
        port.api_server.set(Mood::Well);
        assert_eq!(
            port.status("/metrics", Some("alice")).await,
            200,
            "a failure is not cached"
        );
    }
}

#[tokio::test]
async fn b_m4_always_allowed_paths_are_the_flags() {
    let flags = ["--authorization-always-allow-paths=/metrics,/ver*"];
    let port = Port::open_with(&flags, Limits::default()).await;
    assert_eq!(port.status("/metrics", None).await, 200);
    assert_eq!(port.status("/version", Some("mallory")).await, 200);
    assert_eq!(port.status("/healthz", None).await, 403);
    assert_eq!(port.api_server.asked(), (0, 1));
}

fn get(path: &str, token: Option<&str>) -> Parts {
    let mut request = Request::get(path);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(()).unwrap().into_parts().0
}

/// How long an answer is cached.
const LIFETIME: Duration = Duration::from_secs(10);

async fn reviewer_with(flags: &[&str]) -> (ApiServer, Reviewer) {
    let api_server = ApiServer::default();
    let serve = config(flags).serve;
    let authorities = Authorities::read(&serve.authentication).await.unwrap();
    let reviewer = Reviewer::new(
        api_server.client(),
        api_server.client(),
        authorities,
        &serve,
    );
    (api_server, reviewer)
}

async fn reviewer() -> (ApiServer, Reviewer) {
    reviewer_with(&[]).await
}

#[tokio::test(start_paused = true)]
async fn b_m4_answers_are_cached_for_ten_seconds() {
    let (api_server, reviewer) = reviewer().await;
    let alice = get("/metrics", Some("alice"));
    let anonymous = get("/metrics", None);
    for _ in 0..20 {
        reviewer.review(&alice).await.unwrap();
        assert!(matches!(
            reviewer.review(&anonymous).await,
            Err(Refusal::Forbidden { .. })
        ));
    }
    assert_eq!(api_server.asked(), (1, 2));
    api_server.set(Mood::Gone);
    reviewer.review(&alice).await.unwrap();
    assert!(
        reviewer
            .review(&get("/version", Some("alice")))
            .await
            .is_err(),
        "what was not asked before is not let in"
    );
    tokio::time::advance(LIFETIME).await;
    assert!(matches!(
        reviewer.review(&alice).await,
        Err(Refusal::NotReviewed(_))
    ));
    api_server.set(Mood::Well);
    reviewer.review(&alice).await.unwrap();
    assert_eq!(api_server.asked(), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn b_m4_a_review_that_hangs_is_given_up() {
    let (api_server, reviewer) = reviewer().await;
    api_server.set(Mood::Hangs);
    let start = tokio::time::Instant::now();
    // More requests than may be reviewed at once: the wait for a turn counts too.
    let alice = get("/metrics", Some("alice"));
    let answers = futures::future::join_all((0..100).map(|_| reviewer.review(&alice))).await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Err(Refusal::NotReviewed(_))))
    );
    assert!(start.elapsed() < REVIEW_TIMEOUT + Duration::from_secs(1));
    api_server.set(Mood::Well);
    reviewer.review(&alice).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn b_m4_each_kind_of_answer_counts_as_long_as_its_flag_says() {
    let (api_server, reviewer) = reviewer_with(&[
        "--authentication-token-webhook-cache-ttl=20s",
        "--authorization-webhook-cache-authorized-ttl=30s",
        "--authorization-webhook-cache-unauthorized-ttl=0s",
    ])
    .await;
    let (alice, anonymous) = (get("/metrics", Some("alice")), get("/metrics", None));
    let mut asked = Vec::new();
    for wait in [0, 19, 2, 10] {
        tokio::time::advance(Duration::from_secs(wait)).await;
        reviewer.review(&alice).await.unwrap();
        assert!(reviewer.review(&anonymous).await.is_err());
        asked.push(api_server.asked());
    }
    // The token's answer expires after 20 s, the yes after 30 s, and the no is never kept.
    assert_eq!(asked, [(1, 2), (1, 3), (2, 4), (2, 6)]);
}
