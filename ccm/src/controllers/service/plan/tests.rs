mod class;
mod deletion;
mod status;
mod stored;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, PortStatus, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::controllers::service::fixtures::service;

const ME: &str = "mock";
// Written out: it is upstream's, and Services of a Go CCM have it.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

fn capability() -> LoadBalancerCapability {
    LoadBalancerCapability {
        default_class: true,
        classes: vec!["mock.io/fast".into()],
        in_sync: true,
        ..LoadBalancerCapability::default()
    }
}

fn facts(capability: &LoadBalancerCapability) -> Facts<'_> {
    Facts {
        me: ME,
        owner: true,
        departed: false,
        capability,
    }
}

fn set(fingerprint: u128) -> TargetSet {
    TargetSet {
        nodes: vec![Arc::default()],
        fingerprint: Fingerprint(fingerprint),
        version: 0,
        left_out: 0,
    }
}

/// A Service with the finalizer but without the annotation, as a Go CCM leaves it.
fn bare() -> Service {
    let mut service = service();
    service.metadata.finalizers = Some(vec!["x/y".into(), FINALIZER.into()]);
    service
}

/// A Service with the finalizer and the annotation.
fn held() -> Service {
    handled(bare(), ME, None)
}

fn handled(mut service: Service, provider: &str, handle: Option<&str>) -> Service {
    let class = Some(class(&service));
    let value = handle::render(provider, service.metadata.uid.as_deref(), class, handle);
    service
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(handle::ANNOTATION.to_owned(), value);
    service
}

fn classed(mut service: Service, class: &str) -> Service {
    service.spec.get_or_insert_default().load_balancer_class = Some(class.to_owned());
    service
}

fn cluster_ip(mut service: Service) -> Service {
    service.spec.get_or_insert_default().type_ = Some("ClusterIP".into());
    service
}

fn deleting(mut service: Service) -> Service {
    service.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    service
}

fn with_status(mut service: Service) -> Service {
    service.status = Some(ServiceStatus {
        load_balancer: Some(status("192.0.2.1")),
        ..ServiceStatus::default()
    });
    service
}

fn status(ip: &str) -> LoadBalancerStatus {
    LoadBalancerStatus {
        ingress: Some(vec![LoadBalancerIngress {
            ip: Some(ip.into()),
            ..LoadBalancerIngress::default()
        }]),
    }
}

fn made_by(provider: &str) -> Cloud {
    let by = provider.to_owned();
    Cloud::MayStand { by }
}

/// A record with everything confirmed, with these targets.
fn confirmed(service: &Service, targets: u128) -> Record {
    Record {
        cloud: made_by(ME),
        progress: Progress::Confirmed {
            inputs: service_inputs(service),
            targets: Some(Fingerprint(targets)),
        },
        check: false,
        ..Record::new(&Arc::new(service.clone()))
    }
}

fn step(service: &Service, record: Option<&Record>) -> Step {
    next_step(service, record, Some(&set(1)), &facts(&capability()))
}

#[test]
fn b_s1_who_wants_a_load_balancer() {
    let external = {
        let mut service = service();
        service.spec.get_or_insert_default().type_ = Some("ExternalName".into());
        service
    };
    for (name, service) in [
        ("another type", cluster_ip(service())),
        ("external name", external),
        ("being deleted, never ours", deleting(service())),
        ("no spec", Service::default()),
    ] {
        assert_eq!(step(&service, None), Step::Ignore, "{name}");
    }
    let capability = capability();
    let not_ours = Facts {
        owner: false,
        ..facts(&capability)
    };
    for service in [
        service(),
        bare(),
        deleting(bare()),
        cluster_ip(bare()),
        handled(deleting(held()), "other", Some("lb")),
    ] {
        assert_eq!(next_step(&service, None, None, &not_ours), Step::Ignore);
    }
}

#[test]
fn b_s2_the_finalizer_comes_first() {
    let mut other = service();
    other.metadata.finalizers = Some(vec!["x/y".into()]);
    let Step::AddFinalizer(patch) = step(&other, None) else {
        panic!("no finalizer");
    };
    assert_eq!(patch.finalizers.unwrap(), ["x/y", FINALIZER]);
    // The same patch stores the owner.
    assert_eq!(
        patch.annotations[handle::ANNOTATION].as_deref(),
        Some(r#"{"provider":"mock","uid":"uid-1","class":""}"#)
    );
    // Somebody removed the finalizer, so it is added again.
    assert!(matches!(
        step(&service(), Some(&confirmed(&service(), 1))),
        Step::AddFinalizer(_)
    ));
}

#[test]
fn b_s2_ours_among_the_finalizers() {
    let with = |names: &[&str]| {
        let mut service = service();
        service.metadata.finalizers = Some(names.iter().map(|&name| name.into()).collect());
        service
    };
    for (name, service, expected) in [
        ("none", service(), false),
        ("somebody else's", with(&["x/y"]), false),
        ("ours", with(&[FINALIZER]), true),
        ("ours and others", with(&[FINALIZER, "x/y"]), true),
    ] {
        assert_eq!(has_finalizer(&service), expected, "{name}");
        let adds = matches!(step(&service, None), Step::AddFinalizer(_));
        assert_eq!(adds, !expected, "{name}");
    }
}

#[test]
fn b_s1_every_protocol_gets_a_load_balancer() {
    for protocol in ["TCP", "UDP", "SCTP"] {
        let mut service = held();
        let spec = service.spec.get_or_insert_default();
        spec.ports.get_or_insert_default()[0].protocol = Some(protocol.into());
        let fresh = Record {
            check: false,
            ..Record::new(&Arc::new(service.clone()))
        };
        assert_eq!(step(&service, Some(&fresh)), Step::Ensure, "{protocol}");
    }
}

#[test]
fn b_s4_what_calls_the_provider() {
    let service = held();
    let mut edited = held();
    edited.spec.get_or_insert_default().external_ips = Some(vec!["192.0.2.7".into()]);
    let mut labelled = with_status(held());
    labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    let fresh = Record {
        check: false,
        ..Record::new(&Arc::new(service.clone()))
    };
    let elsewhere = Record {
        progress: Progress::Elsewhere {
            inputs: service_inputs(&service),
        },
        ..confirmed(&service, 0)
    };
    let cases = [
        ("made by us just now", &service, Some(fresh), Step::Ensure),
        (
            "confirmed",
            &service,
            Some(confirmed(&service, 1)),
            Step::Ignore,
        ),
        (
            "labels and status",
            &labelled,
            Some(confirmed(&service, 1)),
            Step::Ignore,
        ),
        (
            "an input",
            &edited,
            Some(confirmed(&service, 1)),
            Step::Ensure,
        ),
        (
            "targets (B-S7)",
            &service,
            Some(confirmed(&service, 2)),
            Step::Update,
        ),
        (
            "an input and targets: one call",
            &edited,
            Some(confirmed(&service, 2)),
            Step::Ensure,
        ),
        (
            "an update failed (B-S10)",
            &service,
            Some(Record {
                progress: Progress::Rejected,
                ..confirmed(&service, 2)
            }),
            Step::Ensure,
        ),
        (
            "an update is pending (B-S9)",
            &service,
            Some(Record {
                progress: Progress::Pending {
                    inputs: Some(service_inputs(&service)),
                },
                ..confirmed(&service, 1)
            }),
            Step::Update,
        ),
        (
            "an update is pending, and an input",
            &edited,
            Some(Record {
                progress: Progress::Pending {
                    inputs: Some(service_inputs(&service)),
                },
                ..confirmed(&service, 1)
            }),
            Step::Ensure,
        ),
        (
            "handled elsewhere (B-S8)",
            &service,
            Some(elsewhere.clone()),
            Step::Ignore,
        ),
        (
            "handled elsewhere, then edited",
            &edited,
            Some(elsewhere),
            Step::Ensure,
        ),
    ];
    for (name, service, record, expected) in cases {
        assert_eq!(step(service, record.as_ref()), expected, "{name}");
    }
}

#[test]
fn b_s4_targets_that_do_not_matter_call_nothing() {
    let service = held();
    let ignores = LoadBalancerCapability {
        ignores_nodes: true,
        ..capability()
    };
    let record = confirmed(&service, 2);
    assert_eq!(
        next_step(&service, Some(&record), Some(&set(1)), &facts(&ignores)),
        Step::Ignore
    );
}

#[test]
fn s13_after_a_restart_get_comes_first() {
    assert_eq!(step(&held(), None), Step::Get);
    let blind = LoadBalancerCapability {
        in_sync: false,
        ..capability()
    };
    let targets = set(1);
    assert_eq!(
        next_step(&held(), None, Some(&targets), &facts(&blind)),
        Step::Ensure
    );
    // A hint.
    let hinted = Record {
        check: true,
        ..confirmed(&held(), 1)
    };
    assert_eq!(step(&held(), Some(&hinted)), Step::Get);
}

#[test]
fn s19_what_another_provider_made_in_this_process_is_not_deleted_through_this_one() {
    let made = |by: &str| Record {
        cloud: made_by(by),
        ..confirmed(&held(), 1)
    };
    let leaving = [
        cluster_ip(held()),
        deleting(held()),
        deleting(handled(held(), "other", Some("lb-9"))),
    ];
    for service in leaving {
        assert_eq!(step(&service, Some(&made(ME))), Step::Delete);
        let expected = blocked("other", None);
        assert_eq!(step(&service, Some(&made("other"))), expected);
        // The Service is gone, and only its load balancer is left.
        let capability = capability();
        let facts = Facts {
            departed: true,
            ..facts(&capability)
        };
        let step = |by| next_step(&service, Some(&made(by)), None, &facts);
        assert_eq!((step(ME), step("other")), (Step::Delete, expected));
    }
}

#[test]
fn s19_handles() {
    let unsaved = |service: &Service, handle: &str| Record {
        unsaved_handle: Some(("mock".to_owned(), handle.to_owned())),
        ..confirmed(service, 1)
    };
    // The handle is stored before any other call.
    for service in [held(), handled(held(), ME, Some("old")), deleting(held())] {
        let record = unsaved(&service, "lb-1");
        let Step::StoreHandle(patch) = step(&service, Some(&record)) else {
            panic!("not stored");
        };
        assert_eq!(
            patch.annotations[handle::ANNOTATION].as_deref(),
            Some(r#"{"provider":"mock","uid":"uid-1","class":"","handle":"lb-1"}"#)
        );
        assert_eq!(
            handle_to_send(&service, Some(&record), ME).as_deref(),
            Some("lb-1")
        );
    }
    let stored = handled(held(), ME, Some("lb-1"));
    assert_eq!(step(&stored, Some(&unsaved(&stored, "lb-1"))), Step::Ignore);
    assert_eq!(handle_to_send(&stored, None, ME).as_deref(), Some("lb-1"));
    // Another provider's handle is neither sent nor ignored.
    let foreign = handled(held(), "other", Some("lb-9"));
    assert_eq!(handle_to_send(&foreign, None, ME), None);
    assert_eq!(step(&foreign, None), blocked("other", None));
    // An unreadable handle is not sent. The provider has its own marks.
    let mut garbage = held();
    garbage.metadata.annotations =
        Some([(handle::ANNOTATION.to_owned(), "lb-1".to_owned())].into());
    assert_eq!(handle_to_send(&garbage, None, ME), None);
    assert_eq!(step(&garbage, None), Step::Get);
}

#[test]
fn b_s4_our_own_writes_are_no_news() {
    let at = |mut service: Service, version: &str| {
        service.metadata.resource_version = Some(version.to_owned());
        service
    };
    let record = {
        let service = handled(held(), ME, Some("lb-1"));
        confirmed(&at(service, "20"), 1)
    };
    let news = |service: Service| is_news(&service, Some(&record));
    let edited = |mut service: Service| {
        service.spec.get_or_insert_default().external_ips = Some(vec!["192.0.2.7".into()]);
        service
    };
    let stored = || handled(held(), ME, Some("lb-1"));

    assert!(!news(at(stored(), "20")), "the same");
    assert!(!news(at(service(), "15")), "before our writes came through");
    assert!(!news(at(edited(service()), "15")), "older still");
    assert!(!news(at(with_status(stored()), "21")), "status");
    assert!(
        !news(at(handled(held(), ME, Some("lb-2")), "21")),
        "another handle is no reason for a call"
    );
    assert!(news(at(edited(stored()), "21")), "an input");
    assert!(news(at(deleting(stored()), "21")));
    assert!(news(at(cluster_ip(stored()), "21")));
    assert!(
        news(at(handled(service(), ME, Some("lb-1")), "21")),
        "finalizer off"
    );
    assert!(news(at(handled(held(), "other", Some("lb-1")), "21")));
    let mut anew = stored();
    anew.metadata.uid = Some("uid-2".into());
    assert!(news(at(anew, "1")), "made again under the same name");

    assert!(is_news(&service(), None));
    assert!(is_news(&deleting(held()), None));
    assert!(
        !is_news(&cluster_ip(service()), None),
        "ten thousand of these cost nothing"
    );
}

#[test]
fn s12_who_is_woken_by_other_targets() {
    let (mine, other) = (Fingerprint(1), Fingerprint(2));
    let inputs = service_inputs(&held());
    let record = |progress: Progress, tried: u128| Record {
        progress,
        tried: Some(Fingerprint(tried)),
        failures: 4,
        ..confirmed(&held(), 1)
    };
    let base = confirmed(&held(), 1);
    assert!(wants_targets(&base, other));
    assert!(!wants_targets(&base, mine));
    let not_attached = Progress::Confirmed {
        inputs,
        targets: None,
    };
    for sleeper in [
        record(not_attached.clone(), 2),
        record(Progress::Rejected, 2),
        record(Progress::UNCONFIRMED, 3),
        record(Progress::Elsewhere { inputs }, 3),
        record(Progress::Pending { inputs: None }, 3),
        record(
            Progress::Pending {
                inputs: Some(inputs),
            },
            3,
        ),
    ] {
        assert!(!wants_targets(&sleeper, other), "{sleeper:?}");
    }
    for awake in [record(not_attached, 3), record(Progress::Rejected, 3)] {
        assert!(wants_targets(&awake, other), "{awake:?}");
    }
    let hinted = Record {
        check: true,
        ..base
    };
    assert!(wants_targets(&hinted, other), "its check may have to wait");
}
