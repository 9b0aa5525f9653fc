mod bounds;
mod written;

use api::delete_load_balancer_response::Outcome as Deleted;
use api::ensure_load_balancer_response::Outcome as Ensured;
use api::get_load_balancer_response::Outcome as Got;
use api::update_load_balancer_response::Outcome as Updated;

use super::*;
use crate::controllers::service::fixtures::service;
use crate::controllers::service::handle;
use crate::provider::Parts;
use crate::writes::EventType;

fn sent<'a>(service: &'a Service, handle: Option<&'a str>, prefixes: &'a [String]) -> Call<'a> {
    Call {
        op: Op::Ensure,
        me: "mock",
        departed: false,
        service,
        handle,
        targets: None,
        adopt_unmarked: false,
        prefixes,
        service_ranges: &[],
    }
}

fn after_get(sent: &Call<'_>, response: api::GetLoadBalancerResponse) -> Answer {
    super::after_get(sent, response.parts("GetLoadBalancer"))
}

fn after_ensure(sent: &Call<'_>, response: api::EnsureLoadBalancerResponse) -> Answer {
    super::after_ensure(sent, response.parts("EnsureLoadBalancer"))
}

fn after_update(sent: &Call<'_>, response: api::UpdateLoadBalancerResponse) -> Answer {
    super::after_update(sent, response.parts("UpdateLoadBalancer"))
}

fn after_delete(sent: &Call<'_>, response: api::DeleteLoadBalancerResponse) -> Answer {
    super::after_delete(sent, response.parts("DeleteLoadBalancer"))
}

fn failure(code: api::FailureCode) -> api::Failure {
    api::Failure {
        code: code.into(),
        reason: "SubnetMissing".into(),
        message: "no subnet".into(),
        retry_after: None,
    }
}

fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

fn ip(ip: &str) -> api::LoadBalancerStatus {
    api::LoadBalancerStatus {
        ingress: vec![api::LoadBalancerIngress {
            ip: Some(ip.into()),
            ..api::LoadBalancerIngress::default()
        }],
    }
}

fn ready(status: Option<api::LoadBalancerStatus>) -> Ensured {
    Ensured::Ready(api::LoadBalancerReady { status })
}

fn ensured(outcome: Option<Ensured>) -> Answer {
    after_ensure(
        &sent(&service(), None, &[]),
        api::EnsureLoadBalancerResponse {
            outcome,
            ..api::EnsureLoadBalancerResponse::default()
        },
    )
}

fn code(verdict: &Verdict) -> Option<CallErrorCode> {
    match verdict {
        Verdict::Failed(trouble) => Some(trouble.code),
        _ => None,
    }
}

#[test]
fn b_s8_outcomes_of_ensure() {
    assert!(matches!(
        ensured(Some(ready(Some(ip("192.0.2.1"))))).verdict,
        Verdict::Ready(ref status, ref troubled)
            if status.ingress.as_ref().unwrap()[0].ip.as_deref() == Some("192.0.2.1") && troubled.is_empty()
    ));
    assert_eq!(
        ensured(Some(Ensured::HandledElsewhere(api::HandledElsewhere {}))).verdict,
        Verdict::Elsewhere
    );
    let pending = api::Pending {
        retry_after: Some(seconds(7)),
        message: "soon".into(),
    };
    assert_eq!(
        ensured(Some(Ensured::Pending(pending))).verdict,
        Verdict::Pending(Duration::from_secs(7), "soon".into())
    );
    let message = "x".repeat(5_000);
    let (kept, retry_after) = (cut(&message), Some(seconds(7)));
    let pending = Ensured::Pending(api::Pending {
        retry_after,
        message,
    });
    let verdict = ensured(Some(pending)).verdict;
    assert_eq!(verdict, Verdict::Pending(Duration::from_secs(7), kept));
    assert_eq!(
        code(
            &ensured(Some(Ensured::Failed(failure(
                api::FailureCode::Precondition
            ))))
            .verdict
        ),
        Some(CallErrorCode::Precondition)
    );
    // An answer that violates the contract is a fault, and no status is written.
    for outcome in [
        None,
        Some(ready(None)),
        Some(ready(Some(api::LoadBalancerStatus::default()))),
        Some(ready(Some(ip("not an address")))),
        Some(ready(Some(ip("")))),
    ] {
        assert_eq!(code(&ensured(outcome).verdict), Some(CallErrorCode::Fault));
    }
}

#[test]
fn b_s10_update_of_what_is_gone_is_no_failure() {
    let updated = |outcome| {
        after_update(
            &sent(&service(), None, &[]),
            api::UpdateLoadBalancerResponse {
                outcome,
                ..api::UpdateLoadBalancerResponse::default()
            },
        )
        .verdict
    };
    assert_eq!(
        updated(Some(Updated::Failed(failure(api::FailureCode::NotFound)))),
        Verdict::Missing
    );
    assert_eq!(
        code(&updated(Some(Updated::Failed(failure(
            api::FailureCode::Internal
        ))))),
        Some(CallErrorCode::Internal)
    );
    assert_eq!(
        updated(Some(Updated::Done(api::Done {}))),
        Verdict::Updated(Troubled::default())
    );
    assert_eq!(
        updated(Some(Updated::HandledElsewhere(api::HandledElsewhere {}))),
        Verdict::Elsewhere
    );
    assert_eq!(code(&updated(None)), Some(CallErrorCode::Fault));
}

#[test]
fn s18_only_done_and_retained_let_a_service_go() {
    let deleted = |handle: Option<&str>, outcome| {
        let service = service();
        after_delete(
            &sent(&service, handle, &[]),
            api::DeleteLoadBalancerResponse {
                outcome,
                ..api::DeleteLoadBalancerResponse::default()
            },
        )
    };
    let gone = Verdict::Gone { retained: false };
    assert_eq!(
        deleted(Some("lb"), Some(Deleted::Done(api::Done {}))).verdict,
        gone
    );
    let kept = deleted(
        Some("lb"),
        Some(Deleted::Retained(api::Retained {
            reason: "deletion protection".into(),
        })),
    );
    assert_eq!(kept.verdict, Verdict::Gone { retained: true });
    assert_eq!(kept.notes[0].kind, EventType::Warning);
    assert!(kept.notes[0].message.contains("deletion protection"));

    let elsewhere = || Some(Deleted::HandledElsewhere(api::HandledElsewhere {}));
    assert_eq!(deleted(None, elsewhere()).verdict, gone);
    let orphaned = deleted(Some("lb"), elsewhere());
    assert_eq!(
        orphaned.verdict,
        Verdict::Orphaned,
        "what was made before would leak"
    );
    assert_eq!(orphaned.notes.len(), 1);

    let pending = deleted(
        None,
        Some(Deleted::Pending(api::Pending {
            retry_after: None,
            message: "draining".into(),
        })),
    );
    assert_eq!(
        pending.verdict,
        Verdict::Pending(Duration::from_secs(5), "draining".into())
    );
    assert_eq!(pending.notes.len(), 0, "reported with the next try");
    // A "not found" from Delete does not mean "done".
    for outcome in [
        None,
        Some(Deleted::Failed(failure(api::FailureCode::NotFound))),
    ] {
        assert!(code(&deleted(None, outcome).verdict).is_some());
    }
}

#[test]
fn s13_only_a_marked_load_balancer_that_is_in_sync_spares_ensure() {
    use api::LoadBalancerPresence as P;
    use api::Ownership as O;
    let with = |status, presence: P, ownership: O, in_sync| {
        after_get(
            &sent(&service(), None, &[]),
            api::GetLoadBalancerResponse {
                outcome: Some(Got::Found(api::LoadBalancer {
                    presence: presence.into(),
                    ownership: ownership.into(),
                    status,
                    in_sync,
                    ..api::LoadBalancer::default()
                })),
                ..api::GetLoadBalancerResponse::default()
            },
        )
        .verdict
    };
    let somewhere = || {
        Some(api::LoadBalancerStatus {
            ingress: ip("192.0.2.1").ingress,
        })
    };
    let in_sync = |verdict| matches!(verdict, Verdict::InSync(Some(_)));
    assert!(in_sync(with(somewhere(), P::Present, O::Ours, Some(true))));
    let found = |presence, ownership, in_sync| with(None, presence, ownership, in_sync);
    assert_eq!(
        found(P::Present, O::Ours, Some(true)),
        Verdict::OutOfSync {
            exists: true,
            theirs: None,
        },
        "A20: neither the answer nor the Service says where it is"
    );
    let nowhere = Some(api::LoadBalancerStatus::default());
    assert_eq!(
        with(nowhere, P::Present, O::Ours, Some(true)),
        Verdict::OutOfSync {
            exists: true,
            theirs: None,
        },
        "the address that the Service shows is not taken away for it"
    );
    let not_ours = |presence, ownership| {
        (presence == P::Present && ownership != O::Ours).then(|| Theirs {
            foreign: ownership == O::Foreign,
            name: String::new(),
            addresses: Vec::new(),
        })
    };
    for (presence, ownership, in_sync, exists) in [
        (P::Present, O::Ours, Some(false), true),
        (P::Present, O::Ours, None, true),
        (P::Present, O::Unmarked, Some(true), false),
        (P::Present, O::Foreign, Some(true), false),
        (P::Remnants, O::Ours, Some(true), true),
        (P::Absent, O::Unspecified, Some(true), false),
    ] {
        assert_eq!(
            found(presence, ownership, in_sync),
            Verdict::OutOfSync {
                exists,
                theirs: not_ours(presence, ownership),
            },
            "{presence:?} {ownership:?} {in_sync:?}"
        );
    }
}

#[test]
fn s13_what_is_in_sync_has_an_address_and_all_its_targets() {
    let found = |service: &Service, target_errors| {
        let response = api::GetLoadBalancerResponse {
            target_errors,
            outcome: Some(Got::Found(api::LoadBalancer {
                presence: api::LoadBalancerPresence::Present.into(),
                ownership: api::Ownership::Ours.into(),
                in_sync: Some(true),
                ..api::LoadBalancer::default()
            })),
            ..api::GetLoadBalancerResponse::default()
        };
        after_get(&sent(service, None, &[]), response).verdict
    };
    let ensure = Verdict::OutOfSync {
        exists: true,
        theirs: None,
    };
    let mut written = service();
    let address = api::LoadBalancerStatus {
        ingress: ip("192.0.2.1").ingress,
    };
    let address = load_balancer_status(&address, &[]);
    written.status.get_or_insert_default().load_balancer = Some(address.unwrap());
    // The status of this Service was never written.
    assert_eq!(found(&service(), Vec::new()), ensure);
    assert_eq!(found(&written, Vec::new()), Verdict::InSync(None));
    // A load balancer with a target that could not be attached is not in sync either.
    assert_eq!(found(&written, vec![api::TargetError::default()]), ensure);
}

#[test]
fn s19_what_was_not_ours_and_is_ready_at_the_same_address_was_taken_over() {
    let status = |ips: &[&str]| api::LoadBalancerStatus {
        ingress: ips.iter().flat_map(|it| ip(it).ingress).collect(),
    };
    let found = |ownership: api::Ownership| {
        let outcome = Got::Found(api::LoadBalancer {
            presence: api::LoadBalancerPresence::Present.into(),
            ownership: ownership.into(),
            load_balancer_name: "theirs".into(),
            status: Some(status(&["192.0.2.1", "192.0.2.2"])),
            ..api::LoadBalancer::default()
        });
        let response = api::GetLoadBalancerResponse {
            outcome: Some(outcome),
            ..api::GetLoadBalancerResponse::default()
        };
        match after_get(&sent(&service(), None, &[]), response).verdict {
            Verdict::OutOfSync { theirs, .. } => theirs,
            other => panic!("{other:?}"),
        }
    };
    let now = |ip: &str| load_balancer_status(&status(&[ip]), &[]).unwrap();
    let unmarked = found(api::Ownership::Unmarked).unwrap();
    let foreign = found(api::Ownership::Foreign).unwrap();
    assert!(unmarked.taken_by(&now("192.0.2.2"), None, false));
    assert!(
        !unmarked.taken_by(&now("192.0.2.2"), None, true),
        "it is granted"
    );
    assert!(foreign.taken_by(&now("192.0.2.2"), None, false));
    assert!(
        foreign.taken_by(&now("192.0.2.2"), None, true),
        "never granted"
    );
    for theirs in [unmarked, foreign] {
        // An honest provider creates its own load balancer beside the existing one.
        assert!(!theirs.taken_by(&now("192.0.2.3"), None, false));
        assert!(!theirs.taken_by(&LoadBalancerStatus::default(), None, false));
        // The Service asks for that address, which the other load balancer gave up.
        assert!(!theirs.taken_by(&now("192.0.2.2"), Some("192.0.2.2"), false));
    }
    assert_eq!(found(api::Ownership::Ours), None);
}
