//! The writes and events that answers lead to.

use super::*;

#[test]
fn s19_a_handle_is_stored_from_every_kind_of_answer() {
    let outcomes = [
        Some(ready(Some(ip("192.0.2.1")))),
        Some(Ensured::Pending(api::Pending::default())),
        Some(Ensured::Failed(failure(api::FailureCode::Unavailable))),
        None,
    ];
    let stored = {
        let mut service = service();
        service.metadata.annotations = Some(
            [(
                handle::ANNOTATION.to_owned(),
                handle::render("mock", Some("uid-1"), Some(""), Some("lb-1")),
            )]
            .into(),
        );
        service
    };
    for outcome in outcomes {
        let respond = |handle: &str| api::EnsureLoadBalancerResponse {
            handle: Some(handle.to_owned()),
            outcome: outcome.clone(),
            ..api::EnsureLoadBalancerResponse::default()
        };
        let first = after_ensure(&sent(&service(), None, &[]), respond("lb-1"));
        assert_eq!(first.new_handle.as_deref(), Some("lb-1"));
        assert!(
            first.metadata.unwrap().annotations[handle::ANNOTATION]
                .as_ref()
                .is_some_and(|text| text.contains("lb-1"))
        );
        let again = after_ensure(&sent(&stored, Some("lb-1"), &[]), respond("lb-1"));
        assert_eq!((again.new_handle, again.metadata), (None, None));
        let other = after_ensure(&sent(&stored, Some("lb-1"), &[]), respond("lb-2"));
        assert_eq!(other.new_handle.as_deref(), Some("lb-2"));
        let empty = after_ensure(&sent(&stored, Some("lb-1"), &[]), respond(""));
        assert_eq!((empty.new_handle, empty.metadata), (None, None));
        let long = after_ensure(&sent(&service(), None, &[]), respond(&"x".repeat(1025)));
        assert_eq!(code(&long.verdict), Some(CallErrorCode::Fault));
        assert_eq!(long.metadata, None);
    }
}

#[test]
fn s19_annotations_only_where_they_are_granted() {
    let mut service = service();
    service.metadata.annotations = Some(
        [("mock.io/same", "1"), ("mock.io/old", "1"), ("user/x", "1")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    );
    let prefixes = ["mock.io/".to_owned(), crate::core::DOMAIN.to_owned()];
    let keys = [
        "mock.io/new",
        "mock.io/same",
        "mock.io/b\u{e4}d",
        "mock.io/",
        "user/x",
        handle::ANNOTATION,
    ];
    let answer = after_ensure(
        &sent(&service, None, &prefixes),
        api::EnsureLoadBalancerResponse {
            annotations: Some(api::AnnotationChanges {
                set: keys.map(|key| (key.to_owned(), "1".to_owned())).into(),
                remove: vec!["mock.io/old".into(), "mock.io/none".into(), "user/x".into()],
            }),
            outcome: Some(ready(Some(ip("192.0.2.1")))),
            ..api::EnsureLoadBalancerResponse::default()
        },
    );
    let written = answer.metadata.unwrap();
    assert_eq!(
        written.annotations,
        [
            ("mock.io/new".to_owned(), Some("1".to_owned())),
            ("mock.io/old".to_owned(), None)
        ]
        .into()
    );
    assert_eq!(written.finalizers, None);
    assert_eq!(answer.notes.len(), 1);
    assert_eq!(answer.notes[0].reason, "AnnotationsRefused");
    assert!(answer.notes[0].message.contains("user/x"));
    // The event has the whole flag, with all prefixes. The flag leaves out keys that no flag can
    // allow.
    let flag = format!(
        "; to allow it set --provider-annotation-prefixes=mock.io/,{},user/",
        crate::core::DOMAIN
    );
    let message = &answer.notes[0].message;
    assert!(message.ends_with(&flag), "{message}");

    let huge = after_ensure(
        &sent(&service, None, &prefixes),
        api::EnsureLoadBalancerResponse {
            annotations: Some(api::AnnotationChanges {
                set: [("mock.io/huge".to_owned(), "x".repeat(100_000))].into(),
                remove: Vec::new(),
            }),
            ..api::EnsureLoadBalancerResponse::default()
        },
    );
    assert_eq!(huge.metadata, None);
    let message = &huge.notes[0].message;
    assert!(!message.contains("--provider"), "{message}");
}

#[test]
fn s19_the_flag_for_refused_annotations_leaves_out_a_key_that_is_only_too_long() {
    let prefixes = ["mock.io/x-".to_owned()];
    for (other, flag) in [
        (None, None),
        (Some("user/x"), Some("mock.io/x-,user/")),
        (Some("mock.io/y"), Some("mock.io/x-,mock.io/")),
    ] {
        let long = ("mock.io/x-1".to_owned(), "x".repeat(100_000));
        let other = other.map(|key| (key.to_owned(), "1".to_owned()));
        let answer = after_ensure(
            &sent(&service(), None, &prefixes),
            api::EnsureLoadBalancerResponse {
                annotations: Some(api::AnnotationChanges {
                    set: other.into_iter().chain([long]).collect(),
                    remove: Vec::new(),
                }),
                ..api::EnsureLoadBalancerResponse::default()
            },
        );
        let message = &answer.notes[0].message;
        assert!(message.contains("mock.io/x-1"), "{message}");
        let proposed = message.split_once("--provider-annotation-prefixes=");
        assert_eq!(proposed.map(|(_, flag)| flag), flag, "{message}");
    }
}

#[test]
fn s14_target_errors_are_told_together() {
    let error = |name: &str, after: prost_types::Duration| api::TargetError {
        node_name: name.to_owned(),
        failure: Some(api::Failure {
            retry_after: Some(after),
            ..failure(api::FailureCode::Precondition)
        }),
    };
    let errors: Vec<_> = (0..30)
        .map(|i| error(&format!("n{i}"), seconds(i)))
        .collect();
    let troubled = Troubled::of(errors);
    assert_eq!(troubled.nodes.len(), 10);
    assert_eq!(troubled.message, "no subnet (SubnetMissing)");
    assert_eq!(troubled.retry_after, Some(Duration::from_secs(29)));
    assert!(Troubled::of(Vec::new()).is_empty());
}

#[test]
fn b_s3_the_providers_own_events() {
    let event = |severity: api::EventSeverity, reason: &str| api::Event {
        severity: severity.into(),
        reason: reason.into(),
        message: "x".into(),
    };
    let notes = notes::of_provider(vec![
        event(api::EventSeverity::Warning, "QuotaLow"),
        event(api::EventSeverity::Normal, "Made"),
        event(api::EventSeverity::Unspecified, "not a word"),
        event(api::EventSeverity::Normal, "DeletedLoadBalancer"),
    ]);
    let shown: Vec<_> = notes
        .iter()
        .map(|note| (note.kind, &*note.reason))
        .collect();
    assert_eq!(
        shown,
        [
            (EventType::Warning, "QuotaLow"),
            (EventType::Normal, "Made"),
            (EventType::Normal, "ProviderEvent"),
            (EventType::Normal, "ProviderEvent")
        ]
    );
    // The ccm records at most this many events of one answer.
    let many = vec![event(api::EventSeverity::Normal, "Made"); 32];
    assert_eq!(notes::of_provider(many).len(), 32);
}
