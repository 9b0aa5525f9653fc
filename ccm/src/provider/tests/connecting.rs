use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use tokio::time::{Instant, timeout};

use super::super::connect::{Connector, Pipe, UnixConnector};
use super::super::testing::{InMemory, maintained};
use super::super::{CallErrorCode, ProviderStatus};
use super::fake::Fake;
use crate::core::at_each_line;

fn node(name: &str) -> k8s_openapi::api::core::v1::Node {
    serde_json::from_value(serde_json::json!({"metadata": {"name": name, "uid": "u"}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_restarted_provider_is_never_called_before_initialize() {
    let first = Fake::new("1");
    let provider = InMemory::running(first.service());
    let running = maintained(provider.clone());
    running.lead();
    let session = running.session().await;
    let n = node("n");
    assert!(
        session
            .lookup_instances(&[&n], &[], Duration::ZERO)
            .await
            .is_ok()
    );

    let second = Fake::new("2");
    provider.kill();
    provider.start(second.service());
    // A call on the old session fails at once, and reaches no process.
    let nodes = [&n];
    let called = session.lookup_instances(&nodes, &[], Duration::ZERO);
    let trouble = timeout(Duration::from_secs(1), called).await.unwrap();
    assert_eq!(trouble.unwrap_err().code, CallErrorCode::Disconnected);
    assert!(session.is_over());

    // Calls need a new session, for which the new process was initialised.
    running
        .until("the new process", |s| {
            s.info.as_ref().is_some_and(|i| i.boot_id == "2")
        })
        .await;
    let session = running.session().await;
    assert!(
        session
            .lookup_instances(&[&n], &[], Duration::ZERO)
            .await
            .is_ok()
    );
    assert_eq!(
        second.log(),
        ["GetProviderInfo", "Initialize", "LookupInstances"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cut_is_disconnected() {
    let fake = Fake::new("1");
    fake.set(|s| s.hang = ["LookupInstances"].into());
    let provider = InMemory::running(fake.service());
    let running = maintained(provider.clone());
    running.lead();
    let session = running.session().await;
    let n = node("n");
    let nodes = [&n];
    let call = session.lookup_instances(&nodes, &[], Duration::ZERO);
    let cut = async {
        while fake.called("LookupInstances") == 0 {
            tokio::task::yield_now().await;
        }
        provider.kill();
    };
    let (answer, ()) = tokio::join!(call, cut);
    assert_eq!(answer.unwrap_err().code, CallErrorCode::Disconnected);
    let status = running.until("no session", |s| s.session.is_none()).await;
    assert!(!status.reachable());
}

#[tokio::test(start_paused = true)]
async fn m9_a_socket_that_appears_is_found_within_a_second() {
    let provider = InMemory::default();
    let running = maintained(provider.clone());
    running.lead();
    let status = running.until("a reason", |s| !s.message.is_empty()).await;
    assert!(status.complaint().contains("does not exist yet"));
    tokio::time::sleep(Duration::from_hours(1)).await;
    let before = Instant::now();
    provider.start(Fake::new("1").service());
    running.session().await;
    assert!(before.elapsed() <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_needs_a_newer_controller_is_refused() {
    let fake = Fake::new("1");
    fake.set(|s| s.info.min_controller_minor = 7);
    let provider = InMemory::running(fake.service());
    let running = maintained(provider.clone());
    running.lead();
    let status = running.until("a reason", |s| !s.message.is_empty()).await;
    assert!(
        status.message.contains("upgrade the ccm"),
        "{}",
        status.message
    );
    assert!(!status.reachable());
    tokio::time::sleep(Duration::from_secs(89)).await;
    assert_eq!(fake.log(), ["GetProviderInfo"; 3], "every 30 s");
    // A process that takes its place is asked at once.
    provider.start(Fake::new("2").service());
    timeout(Duration::from_secs(2), running.session())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn standbys_probe_and_do_not_initialise() {
    let fake = Fake::new("1");
    let running = maintained(InMemory::running(fake.service()));
    running
        .until("ready", |s| s.probe == api::ProbeState::Ready)
        .await;
    tokio::time::sleep(Duration::from_secs(95)).await;
    assert_eq!(fake.called("Probe"), 10);
    assert_eq!(fake.log(), ["GetProviderInfo"]);
    let status = running.status.borrow().clone();
    assert!(status.reachable() && status.working().is_none());
    assert!(status.last_answer.unwrap().elapsed() < Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn m9_the_states_of_a_probe_decide_who_works() {
    use api::ProbeState as P;
    let fake = Fake::new("1");
    let running = maintained(InMemory::running(fake.service()));
    running.lead();
    for (state, read, works, deletes) in [
        (P::Ready, P::Ready, true, true),
        (P::Degraded, P::Degraded, true, false),
        (P::Starting, P::Starting, false, false),
        (P::Broken, P::Broken, false, false),
        (P::Degraded, P::Degraded, true, false),
        (P::Unspecified, P::Broken, false, false),
    ] {
        fake.set(|s| {
            s.probe = state;
            s.probe_message = "why".into();
        });
        let status = running
            .until("the state", |s| s.probe == read && s.session.is_some())
            .await;
        assert_eq!(status.working().is_some(), works, "{state:?}");
        assert_eq!(status.may_delete(), deletes, "{state:?}");
        let why = if read == P::Ready { "" } else { "why" };
        assert_eq!(status.complaint(), why);
    }
    assert_eq!(
        fake.called("Initialize"),
        1,
        "none of them ends the session"
    );
}

#[tokio::test(start_paused = true)]
async fn probes_that_hang_end_the_connection() {
    let fake = Fake::new("1");
    let running = maintained(InMemory::running(fake.service()));
    running.lead();
    let session = running.session().await;
    fake.set(|s| s.hang = ["Probe"].into());
    timeout(Duration::from_secs(25), session.ended())
        .await
        .unwrap();
    fake.set(|s| s.hang.clear());
    running.session().await;
    assert_eq!(fake.called("GetProviderInfo"), 2);
}

#[tokio::test(start_paused = true)]
async fn another_boot_id_in_a_probe_is_another_process() {
    let fake = Fake::new("1");
    let running = maintained(InMemory::running(fake.service()));
    running.lead();
    let session = running.session().await;
    fake.set(|s| s.info.boot_id = "2".into());
    session.ended().await;
    running.session().await;
    assert_eq!(
        fake.log(),
        [
            "GetProviderInfo",
            "Initialize",
            "GetProviderInfo",
            "Initialize"
        ]
    );
}

#[tokio::test]
async fn the_peer_of_the_socket_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("provider.sock");
    let unix = |peer_uid| UnixConnector {
        socket: socket.clone(),
        peer_uid,
    };
    let refused = |result: Result<_, String>| result.map(|_: Box<dyn Pipe>| ()).unwrap_err();
    let missing = refused(unix(None).connect().await);
    assert!(missing.contains("does not exist yet"), "{missing}");

    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let uid = std::os::unix::fs::MetadataExt::uid(&folder.path().metadata().unwrap());
    assert!(unix(None).connect().await.is_ok());
    assert!(unix(Some(uid)).connect().await.is_ok());
    let wrong = refused(unix(Some(uid + 1)).connect().await);
    assert!(wrong.contains(&format!("uid {uid}")), "{wrong}");
    assert!(wrong.contains(&format!("uid {}", uid + 1)), "{wrong}");
    drop(listener);
    // A child that another test starts may have the listener until it executes its program.
    let silent = timeout(Duration::from_mins(1), async {
        loop {
            match unix(None).connect().await {
                Ok(_) => tokio::task::yield_now().await,
                refusal => break refused(refusal),
            }
        }
    });
    let silent = silent.await.unwrap();
    assert!(silent.starts_with("no process listens on"), "{silent}");
}

#[tokio::test]
async fn a_provider_that_shuts_down_properly_is_followed_to_its_successor() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("provider.sock");
    let serve = |fake: &Fake, stop: tokio_util::sync::CancellationToken| {
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
        tonic::transport::Server::builder()
            .add_routes(fake.routes())
            .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
    };
    let mut servers = tokio::task::JoinSet::new();
    let first = Fake::new("1");
    let stop = tokio_util::sync::CancellationToken::new();
    servers.spawn(serve(&first, stop.clone()));
    let running = maintained(UnixConnector {
        socket: socket.clone(),
        peer_uid: None,
    });
    running.lead();
    let session = running.session().await;

    stop.cancel();
    timeout(Duration::from_mins(1), servers.join_next())
        .await
        .unwrap();
    std::fs::remove_file(&socket).unwrap();
    // Sooner than a Probe, which follows each 10 s, can show it.
    timeout(Duration::from_secs(9), session.ended())
        .await
        .unwrap();

    let second = Fake::new("2");
    servers.spawn(serve(&second, tokio_util::sync::CancellationToken::new()));
    timeout(Duration::from_mins(1), running.session())
        .await
        .unwrap();
    assert_eq!(second.log(), ["GetProviderInfo", "Initialize"]);
}

/// Shows ▲M7 too.
#[tokio::test(start_paused = true)]
async fn the_state_of_a_provider_and_each_attempt_to_connect_are_metrics() {
    let provider = InMemory::default();
    let running = maintained(provider.clone());
    running
        .until("nobody listens", |status| !status.message.is_empty())
        .await;
    let shown = |line: &str| {
        let text = running.exposition();
        assert!(text.contains(line), "{line} in {text}");
    };
    shown("ccm_provider_state{provider=\"mock\",state=\"disconnected\"} 1");
    shown("ccm_provider_connects_total{provider=\"mock\",outcome=\"unreachable\"} 1");

    let fake = Fake::new("1");
    provider.start(fake.service());
    running
        .until("it is READY", |status| {
            status.probe == api::ProbeState::Ready
        })
        .await;
    tokio::task::yield_now().await;
    shown("ccm_provider_state{provider=\"mock\",state=\"ready\"} 1");
    shown("ccm_provider_state{provider=\"mock\",state=\"disconnected\"} 0");
    shown("ccm_provider_connects_total{provider=\"mock\",outcome=\"ok\"} 1");
}

#[tokio::test(start_paused = true)]
async fn the_status_can_be_read_while_a_change_of_it_is_logged() {
    let fake = Fake::new("1");
    fake.set(|s| {
        s.probe = api::ProbeState::Degraded;
        s.probe_message = "slow".into();
    });
    let running = maintained(InMemory::running(fake.service()));
    let status = running.status.clone();
    let (readable, _logging) = at_each_line("info", move || {
        let (status, (done, read)) = (status.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            drop(status.borrow());
            let _ = done.send(());
        });
        read.recv_timeout(Duration::from_mins(1)).is_ok()
    });
    let degraded = |s: &ProviderStatus| s.probe == api::ProbeState::Degraded;
    running.until("the state", degraded).await;
    // The connection, and the state.
    assert_eq!(*readable.lock().unwrap(), [true, true]);
}
