//! The results of `probe` for the kubelet.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests may fail by panic as tests do"
)]

mod common;

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use common::{Running, SOON, endpoint, place, soon};
use provider_sdk::prelude::*;

#[tokio::test]
async fn a_provider_answers_its_own_probe_whomever_else_it_accepts() {
    for allowed in [None, Some(4242)] {
        let running = Running::start_with(|server| server.peer_uid(allowed)).await;
        let health = probe(&endpoint(&running.path), SOON).await.unwrap();
        // Probe needs no Initialize.
        assert_eq!(health, Health::degraded("a test"));
    }
}

async fn line(path: &std::path::Path, timeout: Duration, ready: bool) -> Result<String, String> {
    let command = ProbeCommand {
        endpoint: endpoint(path),
        timeout,
        ready,
    };
    soon("the probe", command.run()).await
}

#[tokio::test]
async fn the_line_says_how_the_provider_is() {
    struct Is(Health);
    #[async_trait]
    impl Provider for Is {
        fn info(&self) -> ProviderInfo {
            ProviderInfo::new("is", "1")
        }
        async fn initialize(
            &self,
            _: &Call,
            _: &InitializeRequest,
        ) -> Result<Initialized, Failure> {
            Ok(Initialized::new("x"))
        }
        fn health(&self) -> Health {
            self.0.clone()
        }
    }
    for (health, said, works) in [
        (Health::ready(), "READY", true),
        (Health::degraded("a\nb"), "DEGRADED (a b)", true),
        (Health::starting("reads"), "STARTING (reads)", false),
        (Health::broken("no key"), "BROKEN (no key)", false),
    ] {
        let (_directory, path) = place();
        let server = Server::new(Is(health)).endpoint(endpoint(&path));
        let served = tokio::spawn(server.serve(std::future::pending()));
        common::answering(&path).await;
        let live = line(&path, SOON, false).await;
        assert_eq!(live, Ok(format!("live: the provider says {said}")));
        let ready = line(&path, SOON, true).await;
        let expected = if works {
            Ok(format!("ready: the provider says {said}"))
        } else {
            Err(format!("not ready: the provider says {said}"))
        };
        assert_eq!(ready, expected);
        served.abort();
    }
}

#[tokio::test]
async fn what_does_not_answer_is_named_in_time() {
    let (_directory, path) = place();
    let why = line(&path, SOON, false).await.unwrap_err();
    assert!(why.starts_with("not live: the socket"), "{why}");
    assert!(why.contains("does not exist"), "{why}");

    std::fs::create_dir(path.parent().unwrap()).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    let why = line(&path, SOON, false).await.unwrap_err();
    assert!(why.contains("no process listens on"), "{why}");

    for garbage in ["", "HTTP/1.1 400 Bad Request\r\n\r\n"] {
        std::fs::remove_file(&path).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(garbage.as_bytes()).unwrap();
        });
        let why = line(&path, SOON, true).await.unwrap_err();
        assert!(why.contains("did not answer as a provider"), "{why}");
        assert!(why.starts_with("not ready: "), "{why}");
        answering.join().unwrap();
    }

    std::fs::remove_file(&path).unwrap();
    // The kernel accepts the connection, and no process answers on it.
    let _silent = UnixListener::bind(&path).unwrap();
    let began = Instant::now();
    let patience = Duration::from_millis(200);
    let why = line(&path, patience, false).await.unwrap_err();
    assert!(why.contains("no answer from"), "{why}");
    assert!(why.contains("within 200ms"), "{why}");
    assert!(began.elapsed() >= patience);

    let wrong = probe("tcp://x", SOON).await.unwrap_err().to_string();
    assert!(wrong.contains("does not begin with unix://"), "{wrong}");
}
