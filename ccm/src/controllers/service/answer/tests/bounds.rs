//! The limits for annotations and handles in an answer, and when a handle is stored.

use super::*;

#[test]
fn s19_what_the_api_server_takes_as_the_key_of_an_annotation() {
    let label = "a".repeat(63);
    let domain = [label.as_str(); 4].join(".");
    for (key, fits) in [
        ("a", true),
        ("A-b_c.9", true),
        ("mock.io/a", true),
        ("a-b.c9/x", true),
        ("Mock.IO/A", true),
        (&label, true),
        (&format!("{}/a", &domain[..253]), true),
        ("", false),
        ("/a", false),
        ("mock.io/", false),
        ("mock.io/a/b", false),
        ("-a", false),
        ("a-", false),
        ("a b", false),
        ("\u{e4}", false),
        ("mock_.io/a", false),
        ("mock..io/a", false),
        ("-mock.io/a", false),
        ("mock-.io/a", false),
        (&"a".repeat(64), false),
        (&format!("{domain}/a"), false),
    ] {
        assert_eq!(is_annotation_key(key), fits, "{key:?}");
    }
}

#[test]
fn s19_annotations_of_64_kib_in_all_are_written_and_one_byte_more_is_not() {
    let key = "mock.io/k";
    let most = 64 * 1024 - key.len();
    for (bytes, written) in [(most, 1), (most + 1, 0)] {
        let answer = after_ensure(
            &sent(&service(), None, &["mock.io/".to_owned()]),
            api::EnsureLoadBalancerResponse {
                annotations: Some(api::AnnotationChanges {
                    set: [(key.to_owned(), "x".repeat(bytes))].into(),
                    remove: Vec::new(),
                }),
                outcome: Some(ready(Some(ip("192.0.2.1")))),
                ..api::EnsureLoadBalancerResponse::default()
            },
        );
        let patch = answer.metadata.unwrap_or_default();
        assert_eq!(patch.annotations.len(), written, "{bytes}");
    }
}

#[test]
fn s19_annotations_of_several_answers_have_64_kib_in_all() {
    let half = || "x".repeat(32 * 1024 - "mock.io/k".len());
    let mut service = service();
    service.metadata.annotations = Some(
        [("mock.io/1", half()), ("mock.io/2", half())]
            .map(|(key, value)| (key.to_owned(), value))
            .into(),
    );
    let written = |set: &[(&str, String)], remove: &[&str]| {
        let set = set
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()));
        let answer = after_ensure(
            &sent(&service, None, &["mock.io/".to_owned()]),
            api::EnsureLoadBalancerResponse {
                annotations: Some(api::AnnotationChanges {
                    set: set.collect(),
                    remove: remove.iter().map(|&key| key.to_owned()).collect(),
                }),
                outcome: Some(ready(Some(ip("192.0.2.1")))),
                ..api::EnsureLoadBalancerResponse::default()
            },
        );
        let patch = answer.metadata.unwrap_or_default();
        let keys = patch.annotations.into_keys();
        keys.filter(|key| key.starts_with("mock.io/"))
            .collect::<Vec<_>>()
    };
    let more = ("mock.io/3", half());
    assert_eq!(written(std::slice::from_ref(&more), &[]), [""; 0]);
    assert_eq!(
        written(&[("mock.io/2", "short".to_owned())], &[]),
        ["mock.io/2"]
    );
    let other = "x".repeat(32 * 1024 - "mock.io/1".len() + 1);
    assert_eq!(
        written(
            &[
                ("mock.io/1", other.clone()),
                ("mock.io/2", "short".to_owned())
            ],
            &[]
        ),
        ["mock.io/1", "mock.io/2"],
        "in any order"
    );
    assert_eq!(written(&[more], &["mock.io/1"]), ["mock.io/1", "mock.io/3"]);
}

#[test]
fn s19_a_handle_of_1024_bytes_is_stored() {
    let handle = "x".repeat(1024);
    let answer = after_ensure(
        &sent(&service(), None, &[]),
        api::EnsureLoadBalancerResponse {
            handle: Some(handle.clone()),
            outcome: Some(ready(Some(ip("192.0.2.1")))),
            ..api::EnsureLoadBalancerResponse::default()
        },
    );
    assert_eq!(code(&answer.verdict), None);
    let stored = format!("{:?}", answer.metadata.unwrap().annotations);
    assert!(stored.contains(&handle), "{stored}");
}

#[test]
fn s18_s19_the_handle_of_what_is_being_deleted_is_stored_and_of_what_is_gone_not() {
    let pending = Deleted::Pending(api::Pending::default());
    for (outcome, stored) in [(pending, true), (Deleted::Done(api::Done {}), false)] {
        let answer = after_delete(
            &sent(&service(), None, &[]),
            api::DeleteLoadBalancerResponse {
                handle: Some("lb-7".into()),
                outcome: Some(outcome),
                ..api::DeleteLoadBalancerResponse::default()
            },
        );
        let written = format!("{:?}", answer.metadata);
        assert_eq!(written.contains("lb-7"), stored, "{written}");
    }
}
