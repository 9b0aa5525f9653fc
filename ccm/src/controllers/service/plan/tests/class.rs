//! Classes: the current and the former owner of a Service.

use super::*;

#[test]
fn s1_a_class_is_written_down_before_it_vanishes() {
    let fast = classed(service(), "mock.io/fast");
    let Step::AddFinalizer(patch) = step(&fast, None) else {
        panic!("no finalizer");
    };
    assert_eq!(
        patch.annotations[handle::ANNOTATION].as_deref(),
        Some(r#"{"provider":"mock","uid":"uid-1","class":"mock.io/fast"}"#)
    );
    // The class vanished with the type, and the default provider is another one.
    let left = cluster_ip(handled(held(), ME, None));
    let capability = capability();
    let not_default = Facts {
        owner: false,
        ..facts(&capability)
    };
    assert_eq!(next_step(&left, None, None, &not_default), Step::Delete);
}

/// A Service with our finalizer and a class that we do not serve. `before` is the class in its
/// annotation.
fn returned(before: Option<&str>, handle: Option<&str>) -> Service {
    let mut service = classed(with_status(held()), "other.io/lb");
    let value = handle::render(ME, service.metadata.uid.as_deref(), before, handle);
    let annotations = service.metadata.annotations.get_or_insert_default();
    annotations.insert(handle::ANNOTATION.to_owned(), value);
    service
}

#[test]
fn s1_a_service_that_returns_with_another_class_is_let_go() {
    let capability = capability();
    let not_ours = Facts {
        owner: false,
        ..facts(&capability)
    };
    let step =
        |service: &Service, record: Option<&Record>| next_step(service, record, None, &not_ours);
    let without_finalizer = {
        let mut service = returned(Some(""), None);
        service.metadata.finalizers = Some(vec!["x/y".into()]);
        service
    };
    for (name, service, expected) in [
        ("it had none", returned(Some(""), None), Step::Delete),
        (
            "it had none, and a handle",
            returned(Some(""), Some("lb-1")),
            Step::Delete,
        ),
        (
            "it had one of ours",
            returned(Some("mock.io/fast"), None),
            Step::Delete,
        ),
        (
            "the class is the same, and served no more",
            returned(Some("other.io/lb"), Some("lb-1")),
            Step::Ignore,
        ),
        (
            "nobody wrote the class down",
            returned(None, Some("lb-1")),
            Step::Ignore,
        ),
        (
            "nobody took it on",
            classed(bare(), "other.io/lb"),
            Step::Ignore,
        ),
        (
            "another provider took it on",
            classed(handled(held(), "other", None), "third.io/lb"),
            Step::Ignore,
        ),
        ("our finalizer is off", without_finalizer, Step::Ignore),
        (
            "and is deleted then",
            deleting(returned(Some(""), None)),
            Step::Delete,
        ),
    ] {
        assert_eq!(step(&service, None), expected, "{name}");
    }

    // A handle that was not stored in time is stored, and the recorded class stays.
    let service = returned(Some(""), None);
    let unsaved = Record {
        unsaved_handle: Some((ME.to_owned(), "lb-1".to_owned())),
        ..confirmed(&service, 1)
    };
    let Step::StoreHandle(patch) = step(&service, Some(&unsaved)) else {
        panic!("not stored");
    };
    assert_eq!(
        patch.annotations[handle::ANNOTATION].as_deref(),
        Some(r#"{"provider":"mock","uid":"uid-1","class":"","handle":"lb-1"}"#)
    );

    // The status belongs to another component by now.
    for service in [service.clone(), deleting(service)] {
        let gone = Record {
            cloud: Cloud::Deleted,
            ..confirmed(&service, 1)
        };
        let Step::Release { status, metadata } = step(&service, Some(&gone)) else {
            panic!("not released");
        };
        assert_eq!(status, None);
        let metadata = metadata.unwrap();
        assert_eq!(metadata.finalizers.unwrap(), ["x/y"]);
        assert_eq!(metadata.annotations[handle::ANNOTATION], None);
    }
}

#[test]
fn s1_what_another_ccm_of_the_same_provider_took_on_is_left_to_it() {
    const THEIRS: &str = "mock.io/slow";
    let took = |service: Service| handled(classed(service, THEIRS), ME, Some("lb-1"));
    let declassed = |mut service: Service| {
        service.spec.get_or_insert_default().load_balancer_class = None;
        service
    };
    let capability = capability();
    let not_ours = Facts {
        owner: false,
        ..facts(&capability)
    };
    for (name, service, facts) in [
        ("it is deleted", deleting(took(bare())), &not_ours),
        (
            "its type was changed, and we are the default",
            declassed(cluster_ip(took(bare()))),
            &facts(&capability),
        ),
        (
            "it went on to a third",
            classed(took(bare()), "other.io/lb"),
            &not_ours,
        ),
        (
            "another provider's, and its type was changed",
            declassed(cluster_ip(handled(classed(bare(), THEIRS), "other", None))),
            &facts(&capability),
        ),
    ] {
        assert_eq!(
            next_step(&service, None, None, facts),
            Step::Ignore,
            "{name}"
        );
    }
    // The Service stays blocked for this ccm until the other ccm releases it.
    let returned = declassed(took(bare()));
    assert_eq!(step(&returned, None), blocked(ME, Some(THEIRS)));
    assert!(matches!(step(&service(), None), Step::AddFinalizer(_)));
    // A load balancer that this process created is its own, even if its provider no longer serves
    // the class.
    let known = confirmed(&deleting(took(bare())), 1);
    assert_eq!(step(&deleting(took(bare())), Some(&known)), Step::Delete);
    let known = confirmed(&returned, 1);
    assert!(matches!(
        step(&returned, Some(&known)),
        Step::StoreHandle(_)
    ));
}

#[test]
fn s1_a_class_of_ours_for_another_is_written_down() {
    let service = classed(handled(held(), ME, Some("lb-1")), "mock.io/fast");
    let Step::StoreHandle(patch) = step(&service, Some(&confirmed(&service, 1))) else {
        panic!("not stored");
    };
    assert_eq!(
        patch.annotations[handle::ANNOTATION].as_deref(),
        Some(r#"{"provider":"mock","uid":"uid-1","class":"mock.io/fast","handle":"lb-1"}"#)
    );
}

#[test]
fn s1_what_is_not_written_down_is_whatever_else_is_known() {
    let annotated = |text: &str| {
        let mut service = bare();
        let annotations = service.metadata.annotations.get_or_insert_default();
        annotations.insert(handle::ANNOTATION.to_owned(), text.to_owned());
        service
    };
    for (name, service, written) in [
        (
            "it arrives with the finalizer",
            bare(),
            r#"{"provider":"mock","uid":"uid-1","class":""}"#,
        ),
        (
            "it came along with another one's manifest",
            annotated(r#"{"provider":"mock","uid":"another","class":"","handle":"lb-9"}"#),
            r#"{"provider":"mock","uid":"uid-1","class":""}"#,
        ),
        (
            "an early version wrote it, or an operator",
            annotated(r#"{"provider":"mock","handle":"lb-1"}"#),
            r#"{"provider":"mock","uid":"uid-1","class":"","handle":"lb-1"}"#,
        ),
    ] {
        for record in [None, Some(confirmed(&service, 1))] {
            let Step::StoreHandle(patch) = step(&service, record.as_ref()) else {
                panic!("{name}: not written");
            };
            let now = patch.annotations[handle::ANNOTATION].as_deref();
            assert_eq!(now, Some(written), "{name}");
        }
        assert_eq!(step(&cluster_ip(service), None), Step::Delete, "{name}");
    }
    let garbage = annotated("lb-1");
    let record = confirmed(&garbage, 1);
    assert_eq!(
        step(&garbage, Some(&record)),
        Step::Ignore,
        "left to whoever edited it"
    );
}

#[test]
fn s1_a_class_of_ours_for_another_is_an_input() {
    let before = handled(held(), ME, Some("lb-1"));
    let after = handled(classed(held(), "mock.io/fast"), ME, Some("lb-1"));
    assert_eq!(step(&after, Some(&confirmed(&before, 1))), Step::Ensure);
}
