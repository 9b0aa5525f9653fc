//! The port of the webhooks.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::config;
use crate::serve::{Listener, Review, WebhookMetrics, WebhookSite, serve_webhooks};

/// The worker threads of a CSI provisioner, by default. The API server opens a connection for each
/// review that it makes at the same time.
const AT_ONCE: usize = 100;

#[tokio::test]
async fn b_v1_a_hundred_volumes_that_are_created_at_once_are_reviewed() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (directory.path().join("c"), directory.path().join("k"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let config = config(&[
        "--webhooks=persistent-volume-label",
        "--webhook-bind-address=127.0.0.1",
        &format!("--webhook-tls-cert-file={}", certificate.display()),
        &format!("--webhook-tls-private-key-file={}", key.display()),
    ]);
    let mut config = config.webhooks.unwrap();
    config.port = 0;
    let listener = Listener::bind_webhooks(&config).await.unwrap();
    let caller = Caller::trusting(listener.address(), &[made.cert.der().clone()]);
    // No review ends before all have begun.
    let all = Arc::new(Barrier::new(AT_ONCE));
    let review: Review = Arc::new(move |_, _| {
        let all = Arc::clone(&all);
        Box::pin(async move {
            all.wait().await;
            Ok(b"reviewed".to_vec())
        })
    });
    let site = WebhookSite {
        name: "slow",
        review,
        metrics: WebhookMetrics::register(&mut Registry::default()),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_webhooks(listener, site, CancellationToken::new()));
    let body = " ".repeat(4_000);
    let head = "POST /slow?timeout=30s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json";
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut reviews = JoinSet::new();
    for _ in 0..AT_ONCE {
        let mut connection = caller.tls().await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        reviews.spawn(async move {
            let mut answer = String::new();
            connection.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        });
    }
    let answers = timeout(Duration::from_mins(1), reviews.join_all()).await;
    for answer in answers.unwrap() {
        let answer = answer.unwrap();
        assert!(answer.ends_with("reviewed"), "{answer}");
    }
}
