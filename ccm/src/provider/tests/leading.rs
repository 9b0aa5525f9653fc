use std::sync::Arc;
use std::time::Duration;

use api::ensure_load_balancer_response::Outcome::HandledElsewhere;
use api::watch_changes_response::Change;
use cloud_provider_api::v1alpha1 as api;
use tokio::time::{Instant, sleep, timeout};

use super::super::limits::TEXT_LIMIT;
use super::super::testing::{InMemory, SCOPE_KEY, maintained, maintained_as};
use super::super::{CallErrorCode, Hint, ProviderStatus, Session};
use super::fake::{Fake, failure};
use crate::core::{Fence, log_to};

#[tokio::test(start_paused = true)]
async fn not_initialized_is_initialised_again_once() {
    let fake = Fake::new("1");
    let running = maintained(InMemory::running(fake.service()));
    running.lead();
    let session = running.session().await;
    let not_initialized = || failure(api::FailureCode::NotInitialized, None);
    fake.set(|s| s.failures = [not_initialized(), not_initialized()].into());
    let fence = Fence::open();
    let ensure = || session.ensure_load_balancer(&fence, api::EnsureLoadBalancerRequest::default());
    let (one, two) = tokio::join!(ensure(), ensure());
    for answer in [one, two] {
        let failure = answer.unwrap().0.outcome.unwrap_err();
        assert_eq!(failure.code, CallErrorCode::NotInitialized);
    }
    let again = timeout(
        Duration::from_secs(1),
        running.until("a new session", |s| {
            s.session
                .as_ref()
                .is_some_and(|new| !Arc::ptr_eq(new, &session))
        }),
    );
    again.await.unwrap();
    assert_eq!(fake.called("Initialize"), 2);
    assert_eq!(
        fake.called("GetProviderInfo"),
        1,
        "over the same connection"
    );
}

#[tokio::test(start_paused = true)]
async fn a_provider_whose_stream_of_changes_reports_not_initialized_is_initialised_again() {
    let fake = Fake::new("1");
    let change = |change| api::WatchChangesResponse {
        resume_token: String::new(),
        change: Some(change),
    };
    fake.set(|s| {
        s.info.capabilities.as_mut().unwrap().changes = Some(api::ChangeCapability {});
        let forgot = failure(api::FailureCode::NotInitialized, None);
        s.changes = vec![change(Change::Failed(forgot))];
    });
    let running = maintained(InMemory::running(fake.service()));
    let mut hints = running.hints.subscribe();
    running.lead();
    let again = running.until("a second Initialize", |s| {
        s.session.is_some() && fake.called("Initialize") == 2
    });
    timeout(Duration::from_secs(5), again).await.unwrap();
    fake.set(|s| s.changes = vec![change(Change::Routes(api::RoutesChange {}))]);
    // Changes may have been missed meanwhile.
    for expected in [Hint::Resync, Hint::Routes] {
        let hint = timeout(Duration::from_secs(5), hints.recv()).await.unwrap();
        assert_eq!(hint.unwrap(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn prov_18_what_waits_is_not_sent_to_a_provider_that_forgot_its_initialize() {
    let fake = Fake::new("1");
    fake.set(|s| {
        let offered = s.info.capabilities.as_mut().unwrap();
        offered.load_balancers.as_mut().unwrap().max_in_flight = Some(2);
        s.ensure.outcome = Some(HandledElsewhere(api::HandledElsewhere {}));
        s.slow = [("EnsureLoadBalancer", Duration::from_secs(10))].into();
    });
    let running = maintained(InMemory::running(fake.service()));
    running.lead();
    let session = running.session().await;
    let fence = Fence::open();
    let ensure = async |session: &Session| {
        let request = api::EnsureLoadBalancerRequest::default();
        let answer = session.ensure_load_balancer(&fence, request).await;
        answer.map(|(answer, _)| answer.outcome)
    };
    let start = Instant::now();
    let first = ensure(&session);
    let second = async {
        sleep(Duration::from_secs(5)).await;
        let forgot = failure(api::FailureCode::NotInitialized, None);
        fake.set(|s| s.failures = [forgot].into());
        ensure(&session).await
    };
    // The first fails after 10 s with NOT_INITIALIZED. The second is under way until 15 s.
    let waits = async {
        sleep(Duration::from_secs(6)).await;
        ensure(&session).await
    };
    let next = async {
        let next = running.until("a new session", |s| {
            let new = s.session.as_ref();
            new.is_some_and(|new| !Arc::ptr_eq(new, &session))
        });
        let next = next.await.session.unwrap();
        // The second call takes one place.
        let answers = tokio::join!(ensure(&next), ensure(&next));
        assert!(answers.0.is_ok() && answers.1.is_ok(), "{answers:?}");
        start.elapsed()
    };
    let (first, second, waits, elapsed) = tokio::join!(first, second, waits, next);
    assert!(matches!(first, Ok(Err(_))), "{first:?}");
    assert!(matches!(second, Ok(Ok(HandledElsewhere(_)))), "{second:?}");
    let refused = waits.unwrap_err();
    assert_eq!(refused.code, CallErrorCode::Disconnected, "never sent");
    assert_eq!(fake.called("EnsureLoadBalancer"), 4);
    assert!(
        elapsed >= Duration::from_secs(25),
        "{elapsed:?}: two at once at most"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_initialize_is_repeated_and_told() {
    let fake = Fake::new("1");
    fake.set(|s| {
        s.initialize = [
            failure(api::FailureCode::Credentials, None),
            failure(api::FailureCode::Internal, None),
            failure(api::FailureCode::Unavailable, Some(3)),
        ]
        .into();
    });
    let running = maintained(InMemory::running(fake.service()));
    running.lead();
    let status = running
        .until("a reason", |s| s.message.contains("Credentials"))
        .await;
    assert!(status.working().is_none() && status.reachable());
    let session = running.session().await;
    assert!(running.status.borrow().message.is_empty());
    assert_eq!(fake.called("Initialize"), 4);
    let text = running.exposition();
    for outcome in ["credentials", "internal", "unavailable", "ok"] {
        let line = format!(
            "ccm_provider_rpc_total{{provider=\"mock\",rpc=\"Initialize\",outcome=\"{outcome}\"}} 1"
        );
        assert!(text.contains(&line), "{text}");
    }
    // A process that does not lead has no session.
    running.leading.send_replace(None);
    running.until("no session", |s| s.session.is_none()).await;
    let answer = session
        .get_load_balancer(api::GetLoadBalancerRequest::default())
        .await;
    assert_eq!(answer.unwrap_err().code, CallErrorCode::Disconnected);
    assert!(running.status.borrow().reachable());
    // Leading again needs no new connection.
    running.lead();
    running.session().await;
    assert_eq!(fake.called("GetProviderInfo"), 1);
}

#[tokio::test(start_paused = true)]
async fn s20_a_changed_scope_is_accepted_by_the_annotation_without_a_restart() {
    let fake = Fake::new("1");
    let provider = InMemory::running(fake.service());
    let running = maintained(provider.clone());
    running.lead();
    running.session().await;
    assert_eq!(*running.recorded.lock().unwrap(), ["account 1"]);
    assert!(running.status.borrow().may_delete());

    let moved = Fake::new("2");
    moved.set(|s| s.scope = "account 2".into());
    provider.start(moved.service());
    let status = running
        .until("another scope", |s| {
            s.cloud_scope.as_deref() == Some("account 2")
                && s.probe == api::ProbeState::Ready
                && s.session.is_some()
        })
        .await;
    assert!(!status.scope_accepted && !status.may_delete());
    for text in [
        "account 1",
        "account 2",
        "kubectl annotate",
        "grpc-ccm.io/cloud-scope",
    ] {
        assert!(status.complaint().contains(text), "{}", status.complaint());
    }
    assert_eq!(running.recorded.lock().unwrap().len(), 1);

    // Somebody deletes the Lease. The ccm stores the accepted scope again. This does not accept the
    // new scope.
    running.annotations.send_replace([].into());
    let mut annotations = running.annotations.subscribe();
    let again = annotations.wait_for(|now| now.contains_key(SCOPE_KEY));
    let again = tokio::time::timeout(Duration::from_secs(5), again).await;
    assert_eq!(again.unwrap().unwrap()[SCOPE_KEY], "account 1");
    assert!(!running.status.borrow().scope_accepted);

    running
        .annotations
        .send_replace([(SCOPE_KEY.into(), "account 2".into())].into());
    let status = running.until("accepted", |s| s.scope_accepted).await;
    assert!(status.may_delete());
    assert_eq!(status.complaint(), "");
    assert_eq!(moved.called("Initialize"), 1);

    running
        .annotations
        .send_replace([(SCOPE_KEY.into(), "account 1".into())].into());
    running.until("refused again", |s| !s.scope_accepted).await;
}

/// The longest texts: the command fits into an event, and the status has all.
#[tokio::test(start_paused = true)]
async fn s20_the_command_that_accepts_a_scope_is_never_cut() {
    let (lease, name) = ("l".repeat(253), "p".repeat(47));
    let annotate = format!(
        "kubectl annotate lease -n {} {lease} --overwrite",
        "n".repeat(63)
    );
    let fake = Fake::new("1");
    let scope = "s".repeat(253);
    fake.set(|s| s.scope.clone_from(&scope));
    let provider = InMemory::running(fake.service());
    let running = maintained_as(&name, &annotate, provider, Duration::from_secs(10));
    let (key, former) = (format!("grpc-ccm.io/cloud-scope-{name}"), "f".repeat(253));
    running
        .annotations
        .send_replace([(key.clone(), former.clone())].into());
    running.lead();
    let status = running.until("work", |s| s.working().is_some()).await;
    let message = &status.message;
    let command = format!("{annotate} {key}='{scope}'");
    let obstacle = crate::report::Obstacle::of_provider(&name, &status);
    for event in [
        format!("provider {name}: {message}"),
        obstacle.unwrap().in_full(),
    ] {
        let end = event.find(&command).unwrap() + command.len();
        assert!(end < 1_000, "{end}: {event}");
    }
    assert!(message.ends_with(&format!("{former:?}")), "{message}");
}

#[tokio::test(start_paused = true)]
async fn s21_a_new_prefix_is_held_until_it_is_accepted_without_a_restart() {
    let fake = Fake::new("1");
    let provider = InMemory::running(fake.service());
    let running = maintained(provider.clone());
    running.lead();
    let session = running.session().await;
    let first = session.info.provider_id_prefixes.clone();

    provider.kill();
    let status = running.until("the loss", |s| !s.reachable()).await;
    assert_eq!(
        status.ownership.unwrap(),
        session.ownership,
        "kept while the provider is away"
    );

    let greedy = Fake::new("2");
    greedy.set(|s| s.info.provider_id_prefixes.push("aws:///".into()));
    provider.start(greedy.service());
    let status = running
        .until("something is held", |s| !s.held.is_empty())
        .await;
    let session = status.session.clone().unwrap();
    assert_eq!(session.info.provider_id_prefixes, first);
    assert_eq!(session.ownership.owner_of_id("aws:///i-1"), None);
    assert!(status.may_delete(), "all else goes on");
    assert!(status.complaint().contains("prefixes=aws:///"));

    running.accept_claims().await;
    let status = running
        .until("accepted", |s| s.session.is_some() && s.held.is_empty())
        .await;
    let session = status.session.unwrap();
    assert_eq!(session.ownership.owner_of_id("aws:///i-1"), Some("mock"));
}

#[tokio::test(start_paused = true)]
async fn s20_nothing_is_called_before_the_first_scope_is_remembered() {
    use std::sync::atomic::Ordering;

    let fake = Fake::new("1");
    let running = maintained(InMemory::running(fake.service()));
    running.unwritable.store(true, Ordering::SeqCst);
    running.lead();
    running
        .until("a reason", |s| s.message.contains("until the Lease stores"))
        .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let status = running.status.borrow().clone();
    assert!(status.session.is_none() && status.reachable());
    assert_eq!(fake.called("Initialize"), 1);
    // The Lease has another leader's scope instead, so this scope is not the accepted one.
    running
        .annotations
        .send_replace([(SCOPE_KEY.into(), "account 2".into())].into());
    let status = running.until("a session", |s| s.session.is_some()).await;
    assert!(!status.scope_accepted);

    // The Lease becomes writable after a while.
    let running = maintained(InMemory::running(Fake::new("2").service()));
    running.unwritable.store(true, Ordering::SeqCst);
    running.lead();
    running
        .until("a reason", |s| s.message.contains("until the Lease stores"))
        .await;
    running.unwritable.store(false, Ordering::SeqCst);
    let status = running.until("a session", |s| s.session.is_some()).await;
    assert!(status.scope_accepted);
    assert_eq!(running.annotations.borrow()[SCOPE_KEY], "account 1");
}

#[tokio::test(start_paused = true)]
async fn prov_21_a_stream_that_ended_before_its_first_message_is_followed_by_a_resync() {
    let fake = Fake::new("1");
    fake.set(|s| s.info.capabilities.as_mut().unwrap().changes = Some(api::ChangeCapability {}));
    let running = maintained(InMemory::running(fake.service()));
    let mut hints = running.hints.subscribe();
    running.lead();
    running.session().await;
    let streams = |fake: &Fake| {
        let log = fake.log().into_iter();
        log.filter(|rpc| rpc.starts_with("WatchChanges ")).count()
    };
    while streams(&fake) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let bookmark = |token: &str| api::WatchChangesResponse {
        resume_token: token.into(),
        change: None,
    };
    fake.set(|s| s.changes = vec![bookmark("t1"), bookmark("t2")]);
    assert_eq!(hints.recv().await.unwrap(), Hint::Resync);
    // With a token no change is lost.
    let before = streams(&fake);
    while streams(&fake) < before + 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(hints.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn prov_21_a_stream_that_left_no_token_is_followed_by_one_resync() {
    let fake = Fake::new("1");
    let message = |token: &str, change| api::WatchChangesResponse {
        resume_token: token.into(),
        change,
    };
    let without_token = || message("", Some(Change::Routes(api::RoutesChange {})));
    fake.set(|s| {
        s.info.capabilities.as_mut().unwrap().changes = Some(api::ChangeCapability {});
        s.changes = vec![without_token()];
    });
    let running = maintained(InMemory::running(fake.service()));
    let mut hints = running.hints.subscribe();
    running.lead();
    running.session().await;
    let mut hint = async || {
        let hint = timeout(Duration::from_mins(1), hints.recv()).await;
        hint.ok().map(Result::unwrap)
    };
    assert_eq!(hint().await, Some(Hint::Routes), "no stream came before");

    fake.set(|s| s.changes = vec![without_token(), without_token()]);
    for expected in [Hint::Resync, Hint::Routes, Hint::Routes] {
        assert_eq!(hint().await, Some(expected));
    }

    let failed = Change::Failed(failure(api::FailureCode::Internal, None));
    fake.set(|s| s.changes = vec![message("", Some(failed))]);
    assert_eq!(hint().await, None, "a stream that only fails");
    fake.set(|s| s.changes = vec![message("t1", None)]);
    assert_eq!(hint().await, Some(Hint::Resync));
    assert_eq!(hint().await, None, "once, and a token covers the rest");
}

#[tokio::test(start_paused = true)]
async fn prov_5_hints_are_passed_on_and_the_stream_is_resumed() {
    let fake = Fake::new("1");
    let change = |token: &str, change| api::WatchChangesResponse {
        resume_token: token.into(),
        change: Some(change),
    };
    fake.set(|s| {
        s.info.capabilities.as_mut().unwrap().changes = Some(api::ChangeCapability {});
        s.changes = vec![
            change("t1", Change::Resync(api::Resync {})),
            change(
                "t2",
                Change::Instance(api::InstanceChange {
                    provider_id: "mock://1".into(),
                    node_name: String::new(),
                }),
            ),
            api::WatchChangesResponse {
                resume_token: "t3".into(),
                change: None,
            },
        ];
    });
    let provider = InMemory::running(fake.service());
    let running = maintained(provider.clone());
    let mut hints = running.hints.subscribe();
    running.lead();
    let session = running.session().await;
    assert_eq!(hints.recv().await.unwrap(), Hint::Resync);
    assert_eq!(
        hints.recv().await.unwrap(),
        Hint::Instance {
            provider_id: "mock://1".into(),
            node_name: String::new()
        }
    );
    let watched = |fake: &Fake| -> Vec<String> {
        let log = fake.log().into_iter();
        log.filter(|rpc| rpc.starts_with("WatchChanges")).collect()
    };
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(watched(&fake)[..2], ["WatchChanges ", "WatchChanges t3"]);
    assert!(!session.is_over(), "the end of the stream is no fault");

    let second = Fake::new("2");
    second.set(|s| {
        s.info = {
            let mut info = fake.0.lock().unwrap().info.clone();
            info.boot_id = "2".into();
            info
        }
    });
    provider.start(second.service());
    session.ended().await;
    running.session().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        watched(&second)[0],
        "WatchChanges t3",
        "kept over reconnects"
    );
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_forgets_each_initialize_is_told() {
    let fake = Fake::new("1");
    let running = maintained(InMemory::running(fake.service()));
    running.lead();
    let first = running.session().await;
    let forgets = || failure(api::FailureCode::NotInitialized, None);
    fake.set(|s| s.failures = [forgets(), forgets()].into());
    let fence = Fence::open();
    let ensure = async |session: &Session| {
        let request = api::EnsureLoadBalancerRequest::default();
        let answer = session.ensure_load_balancer(&fence, request).await;
        assert!(answer.unwrap().0.outcome.is_err());
    };
    ensure(&first).await;
    let second = running.until("a new session", |s| {
        let new = s.session.as_ref();
        new.is_some_and(|new| !Arc::ptr_eq(new, &first))
    });
    ensure(&second.await.session.unwrap()).await;
    let told = |s: &ProviderStatus| s.session.is_none() && !s.message.is_empty();
    let status = running.until("a reason", told).await;
    let complaint = status.complaint();
    assert!(complaint.contains("NOT_INITIALIZED"), "{complaint}");
    running.session().await;
    assert_eq!(running.status.borrow().complaint(), "");
}

#[tokio::test(start_paused = true)]
async fn prov_21_a_token_that_is_too_long_is_logged_once_for_each_stream() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let _logging = log_to("info", Arc::new(log.reopen().unwrap()));
    let fake = Fake::new("1");
    let hint = || api::WatchChangesResponse {
        resume_token: "t".repeat(TEXT_LIMIT + 1),
        change: Some(Change::Routes(api::RoutesChange {})),
    };
    fake.set(|s| {
        s.info.capabilities.as_mut().unwrap().changes = Some(api::ChangeCapability {});
        s.changes = vec![hint(), hint(), hint()];
    });
    let running = maintained(InMemory::running(fake.service()));
    let mut hints = running.hints.subscribe();
    running.lead();
    for stream in 1..=2 {
        let mut routes = 0;
        while routes < 3 {
            routes += usize::from(hints.recv().await.unwrap() == Hint::Routes);
        }
        let text = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(text.matches("a resume_token").count(), stream, "{text}");
        fake.set(|s| s.changes = vec![hint(), hint(), hint()]);
    }
}
