//! How the port treats requests, without its TLS.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use super::*;
use crate::serve::authorities::Shown;
use crate::serve::slots::Slots;

/// A webhook `echo` that answers with the length of the body and the time for the review in
/// milliseconds. It never answers `hang`.
fn site() -> (Router, Registry) {
    let mut registry = Registry::default();
    let metrics = WebhookMetrics::register(&mut registry);
    let review: Review = Arc::new(|body, patience| {
        Box::pin(async move {
            match &body[..] {
                b"wrong" => Err("that is wrong".to_owned()),
                b"hang" => std::future::pending().await,
                _ => Ok(format!("{} {}", body.len(), patience.as_millis()).into_bytes()),
            }
        })
    });
    (served("echo", review, metrics, &anybody()), registry)
}

fn served(
    name: &'static str,
    review: Review,
    metrics: WebhookMetrics,
    callers: &Authorities,
) -> Router {
    let site = WebhookSite {
        name,
        review,
        metrics,
    };
    router(site, callers)
}

fn anybody() -> Authorities {
    let authorities = Authorities::of_webhooks(None).now_or_never();
    authorities.unwrap().unwrap()
}

async fn send(router: &Router, request: Request) -> (u16, String) {
    let answer = router.clone().oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn request(path: &str, body: impl Into<Body>) -> Request {
    Request::post(path)
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn b_v1_what_is_no_review_is_refused_with_what_is_wrong() {
    let (router, _) = site();
    let (status, text) = send(&router, request("/echo", "abc")).await;
    assert_eq!((status, text.as_str()), (200, "3 7500"));
    let (status, text) = send(&router, request("/echo", "wrong")).await;
    assert_eq!((status, text.as_str()), (400, "that is wrong\n"));
    let (status, _) = send(&router, request("/other", "abc")).await;
    assert_eq!(status, 404);
    let get = Request::get("/echo").body(Body::empty()).unwrap();
    assert_eq!(send(&router, get).await.0, 405);
    let plain = Request::post("/echo").body(Body::from("abc")).unwrap();
    let (status, text) = send(&router, plain).await;
    assert_eq!(status, 400);
    assert!(text.contains("application/json"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn b_v1_a_huge_body_is_refused_and_one_of_the_largest_object_is_not() {
    let (router, _) = site();
    let (status, text) = send(&router, request("/echo", vec![b' '; BODY_BYTES + 1])).await;
    assert_eq!(status, 413, "{text}");
    assert!(text.contains("524288"), "{text}");
    let (status, _) = send(&router, request("/echo", vec![b' '; BODY_BYTES])).await;
    assert_eq!(status, 200);
}

#[tokio::test(start_paused = true)]
async fn b_v1_the_api_servers_patience_is_kept_to() {
    for (query, given) in [
        ("?timeout=4s", "3000"),
        ("?timeout=1m0s", "22500"),
        ("?timeout=5ms", "750"),
        ("?timeout=soon", "7500"),
        ("?timeout=-3s", "7500"),
        ("?other=1&timeout=8s", "6000"),
    ] {
        let (router, _) = site();
        let (status, text) = send(&router, request(&format!("/echo{query}"), "abc")).await;
        assert_eq!((status, text), (200, format!("3 {given}")), "{query}");
    }
    // The caller gets an answer even if the webhook hangs.
    let (router, _) = site();
    let started = Instant::now();
    let (status, _) = send(&router, request("/echo?timeout=2s", "hang")).await;
    assert_eq!(status, 408);
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    // A body that never ends.
    let endless = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
    let (status, _) = send(&router, request("/echo?timeout=2s", endless)).await;
    assert_eq!(status, 408);
}

/// Finding B9: at most two of the largest bodies are decoded at once.
#[tokio::test(start_paused = true)]
async fn b_v1_few_large_reviews_are_worked_on_at_once() {
    let (mut most, at_once) = (0, Arc::new(AtomicUsize::new(0)));
    let review: Review = {
        let at_once = Arc::clone(&at_once);
        Arc::new(move |body, _| {
            let at_once = Arc::clone(&at_once);
            Box::pin(async move {
                at_once.fetch_add(body.len(), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(500)).await;
                at_once.fetch_sub(body.len(), Ordering::Relaxed);
                Ok(Vec::new())
            })
        })
    };
    let metrics = WebhookMetrics::register(&mut Registry::default());
    let router = served("slow", review, metrics, &anybody());
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let router = router.clone();
        let request = request("/slow", vec![b' '; BODY_BYTES]);
        calls.spawn(async move { send(&router, request).await.0 });
    }
    while !calls.is_empty() {
        tokio::select! {
            Some(done) = calls.join_next() => assert_eq!(done.unwrap(), 200),
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
        most = most.max(at_once.load(Ordering::Relaxed));
    }
    assert_eq!(most, BYTES_AT_ONCE);
}

/// Shows the bound for bodies that do not state their length.
#[tokio::test(start_paused = true)]
async fn b_v1_the_bodies_that_wait_for_their_turn_have_a_bound() {
    let read = Arc::new(AtomicUsize::new(0));
    let review: Review = Arc::new(|_, _| Box::pin(std::future::pending()));
    let metrics = WebhookMetrics::register(&mut Registry::default());
    let router = served("slow", review, metrics, &anybody());
    let mut calls = JoinSet::new();
    for _ in 0..64 {
        let (router, read) = (router.clone(), Arc::clone(&read));
        let whole = async move {
            read.fetch_add(BODY_BYTES, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from(vec![b' '; BODY_BYTES]))
        };
        let body = Body::from_stream(futures::stream::once(whole));
        calls.spawn(async move { send(&router, request("/slow", body)).await.0 });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(read.load(Ordering::Relaxed), BYTES_HELD);
}

#[tokio::test(start_paused = true)]
async fn b_v1_strangers_that_send_nothing_keep_no_ordinary_review_waiting() {
    let (router, _) = site();
    let mut strangers = JoinSet::new();
    for _ in 0..64 {
        let router = router.clone();
        let endless = futures::stream::pending::<Result<Bytes, std::io::Error>>();
        let request = request("/echo?timeout=30s", Body::from_stream(endless));
        strangers.spawn(async move { send(&router, request).await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for (bytes, code) in [(4096, 200), (SMALL_BODY, 200), (SMALL_BODY + 1, 408)] {
        let body = vec![b' '; bytes];
        let (status, _) = send(&router, request("/echo?timeout=2s", body)).await;
        assert_eq!(status, code, "{bytes}");
    }
}

/// Finding B9: a caller that sends no body holds its place no longer than `BODY_TIME`.
#[tokio::test(start_paused = true)]
async fn b_v1_a_body_has_to_come_within_five_seconds() {
    let (router, _) = site();
    let endless = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
    let started = Instant::now();
    let (status, text) = send(&router, request("/echo?timeout=30s", endless)).await;
    assert_eq!(
        (status, text.as_str()),
        (408, "the body did not come in time\n")
    );
    assert_eq!(started.elapsed(), BODY_TIME);
}

/// Finding B9: with `--webhook-client-ca-file` the port refuses a stranger's review.
#[tokio::test]
async fn b_v1_only_callers_of_a_trusted_authority_are_answered_where_one_is_named() {
    let authority = || {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let certificate = |of: &CertifiedIssuer<'_, KeyPair>| {
        let mut params = CertificateParams::new([]).unwrap();
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let made = params.signed_by(&KeyPair::generate().unwrap(), of).unwrap();
        Shown::new(&[made.der().clone()]).unwrap()
    };
    let (ours, other) = (authority(), authority());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.crt");
    std::fs::write(&file, ours.pem()).unwrap();
    let callers = Authorities::of_webhooks(Some(&file)).await.unwrap();
    let metrics = WebhookMetrics::register(&mut Registry::default());
    let review: Review = Arc::new(|_, _| Box::pin(async { Ok(b"answered".to_vec()) }));
    let router = served("echo", review, metrics, &callers);
    for (shown, status) in [
        (Some(certificate(&ours)), 200),
        (Some(certificate(&other)), 401),
        (None, 401),
    ] {
        let mut request = request("/echo", "abc");
        if let Some(shown) = shown {
            request.extensions_mut().insert(shown);
        }
        let slots = Slots::new(1, 0);
        let slot = slots.take().unwrap();
        request.extensions_mut().insert(slot.clone());
        let serving = slot.serve();
        let (came, text) = send(&router, request).await;
        assert_eq!(came, status, "{text}");
        // Only a stranger's connection is closed for another one during its request.
        let stays = slots.take().is_none();
        assert_eq!(stays, status == 200);
        drop(serving);
    }
    let missing = Authorities::of_webhooks(Some(&directory.path().join("none"))).await;
    let error = missing.err().unwrap().to_string();
    assert!(error.contains("--webhook-client-ca-file"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn b_m7_requests_are_counted_under_upstreams_names() {
    let (router, registry) = site();
    send(&router, request("/echo", "abc")).await;
    send(&router, request("/echo", "wrong")).await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "cloud_provider_webhook_request_total{code=\"200\",webhook=\"echo\"} 1",
        "cloud_provider_webhook_request_total{code=\"400\",webhook=\"echo\"} 1",
        "cloud_provider_webhook_request_duration_seconds_count{code=\"200\",webhook=\"echo\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
