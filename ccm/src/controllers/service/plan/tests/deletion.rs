//! Deletions, and the writes after them.

use super::*;

#[test]
fn b_s5_what_is_deleted() {
    let known = confirmed(&held(), 1);
    let cases = [
        ("type changed", cluster_ip(held()), None, Step::Delete),
        ("being deleted", deleting(held()), None, Step::Delete),
        (
            "▲S9: without the finalizer, known",
            deleting(service()),
            Some(&known),
            Step::Delete,
        ),
        (
            "▲S9: type changed and finalizer taken off",
            cluster_ip(service()),
            Some(&known),
            Step::Delete,
        ),
        (
            "without the finalizer, not known",
            deleting(service()),
            None,
            Step::Ignore,
        ),
        (
            "another provider's",
            deleting(handled(held(), "other", Some("lb"))),
            None,
            blocked("other", None),
        ),
        (
            "edited to be another provider's, but we made it",
            deleting(handled(held(), "other", Some("lb"))),
            Some(&known),
            Step::Delete,
        ),
    ];
    for (name, service, record, expected) in cases {
        assert_eq!(step(&service, record), expected, "{name}");
    }
}

#[test]
fn b_s5_what_is_written_when_it_is_gone() {
    let gone = |service: &Service, retained| Record {
        cloud: if retained {
            Cloud::Kept
        } else {
            Cloud::Deleted
        },
        progress: Progress::UNCONFIRMED,
        ..confirmed(service, 1)
    };
    let release = |service: &Service, retained| match step(service, Some(&gone(service, retained)))
    {
        Step::Release { status, metadata } => (status, metadata),
        Step::Ignore => (None, None),
        other => panic!("{other:?}"),
    };
    let only_ours = |mut service: Service| {
        service.metadata.finalizers = Some(vec![FINALIZER.into()]);
        service
    };

    let changed = cluster_ip(handled(with_status(held()), ME, Some("lb")));
    let (status, metadata) = release(&changed, false);
    assert_eq!(
        status.unwrap().load_balancer,
        Some(LoadBalancerStatus::default())
    );
    let metadata = metadata.unwrap();
    assert_eq!(metadata.finalizers.unwrap(), ["x/y"]);
    assert_eq!(metadata.annotations[handle::ANNOTATION], None);

    let (_, metadata) = release(&changed, true);
    assert!(metadata.unwrap().annotations.is_empty(), "kept on purpose");

    let vanishing = deleting(only_ours(handled(with_status(held()), ME, Some("lb"))));
    let (status, metadata) = release(&vanishing, false);
    assert!(status.is_none(), "it vanishes with the finalizer");
    let metadata = metadata.unwrap();
    assert_eq!(metadata.finalizers.unwrap(), Vec::<String>::new());
    assert!(metadata.annotations.is_empty());

    let lingering = deleting(with_status(held()));
    let (status, metadata) = release(&lingering, false);
    assert!(status.is_some(), "somebody else's finalizer holds it");
    assert!(metadata.is_some());

    assert_eq!(release(&cluster_ip(service()), false), (None, None));
    // The Service wants a load balancer again, so one is created.
    let again = held();
    let record = Record {
        check: false,
        ..gone(&again, false)
    };
    assert_eq!(step(&again, Some(&record)), Step::Ensure);
}
