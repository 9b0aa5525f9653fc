mod table;

use std::sync::Arc;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus};

use super::*;
use crate::controllers::service::fixtures::{reaction, service};
use crate::writes::EventType;

const ME: &str = "mock";

fn set() -> TargetSet {
    TargetSet {
        nodes: vec![Arc::new(api::NodeView {
            name: "a".into(),
            ..api::NodeView::default()
        })],
        fingerprint: Fingerprint(7),
        version: 0,
        left_out: 0,
    }
}

fn record() -> Record {
    Record::new(&Arc::new(service()))
}

fn call<'a>(op: Op, service: &'a Service, targets: &'a TargetSet) -> Call<'a> {
    Call {
        op,
        me: ME,
        departed: false,
        service,
        handle: None,
        targets: Some(targets),
        adopt_unmarked: false,
        prefixes: &[],
        service_ranges: &[],
    }
}

fn trouble(code: CallErrorCode, retry_after: Option<u64>) -> CallError {
    CallError {
        retry_after: retry_after.map(Duration::from_secs),
        ..CallError::new(code, "no")
    }
}

fn run(record: &mut Record, op: Op, verdict: &Verdict, now: Instant) -> Effects {
    let (service, set) = (service(), set());
    let call = call(op, &service, &set);
    let (sent, _) = begin(record.clone(), &call, &LoadBalancerCapability::default());
    let (settled, effects) = settle(sent, &call, verdict, None, reaction, now);
    *record = settled;
    effects
}

fn inputs() -> Fingerprint {
    service_inputs(&service())
}

fn confirmed(targets: Option<u128>) -> Progress {
    Progress::Confirmed {
        inputs: inputs(),
        targets: targets.map(Fingerprint),
    }
}

fn ready() -> Verdict {
    Verdict::Ready(LoadBalancerStatus::default(), Troubled::default())
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn b_s9_pending_is_again_after_exactly_the_delay() {
    let now = Instant::now();
    let mut record = record();
    record.failures = 3;
    let next = run(
        &mut record,
        Op::Ensure,
        &Verdict::Pending(secs(17), "being made".into()),
        now,
    );
    assert_eq!(next.requeue, Some(Requeue::At(now + secs(17))));
    let reported = next.reported.unwrap();
    assert!(reported.at_once && reported.answered.code == Some("PENDING"));
    assert_eq!(
        reported.answered.words,
        "The load balancer is not ready yet: being made"
    );
    assert_eq!(record.failures, 3, "failure count untouched");
    assert_eq!(record.progress, Progress::Pending { inputs: None });
}

#[test]
fn b_s9_what_follows_each_failure() {
    use CallErrorCode as T;
    let now = Instant::now();
    let at = |seconds| Requeue::At(now + secs(seconds));
    let refused = |probe, each| Requeue::Refused {
        probe: now + secs(probe),
        at: now + secs(each),
    };
    let cases = [
        (T::Invalid, None, at(1800), true),
        (T::Invalid, Some(60), at(60), true),
        (T::Precondition, None, Requeue::Retry, true),
        (T::Precondition, Some(90), at(90), true),
        (T::NotFound, None, Requeue::Retry, true),
        (T::Conflict, None, at(300), true),
        (T::Busy, None, at(1), false),
        (T::Throttled, Some(20), at(20), true),
        (T::Credentials, None, refused(20, 300), false),
        (T::Credentials, Some(60), refused(60, 60), false),
        (T::Unavailable, None, Requeue::Retry, true),
        (T::NotInitialized, None, Requeue::RetryTransport, false),
        (T::Internal, None, Requeue::Retry, true),
        (T::Unknown, None, Requeue::RetryTransport, false),
        (T::Disconnected, None, Requeue::RetryTransport, false),
        (T::Fault, None, Requeue::Retry, true),
        (T::Fenced, None, Requeue::Retry, false),
    ];
    for (code, after, outcome, reported) in cases {
        let mut record = record();
        let verdict = Verdict::Failed(trouble(code, after));
        let next = run(&mut record, Op::Ensure, &verdict, now);
        assert_eq!(next.requeue, Some(outcome), "{code:?}");
        let tells = next
            .reported
            .map(|reported| (reported.at_once, reported.answered.code));
        let expected = (code != T::Fenced).then_some((reported, Some(code.name())));
        assert_eq!(tells, expected, "{code:?}");
        assert_eq!(record.failures, 1, "{code:?}");
        let rejected = record.progress == Progress::Rejected;
        assert_eq!(rejected, code == T::Invalid, "{code:?}");
        let accepted = (code == T::Credentials).then_some(false);
        assert_eq!(next.accepted, accepted, "{code:?}");
    }
}

#[test]
fn b_s9_refused_credentials_are_reported_for_all_where_the_driver_says_so() {
    let (service, set) = (service(), set());
    let call = call(Op::Ensure, &service, &set);
    let verdict = Verdict::Failed(trouble(CallErrorCode::Credentials, None));
    for event in [false, true] {
        let reaction = |trouble: &CallError| Failed {
            event,
            ..reaction(trouble)
        };
        let (_, effects) = settle(record(), &call, &verdict, None, reaction, Instant::now());
        let at_once = effects.reported.map(|reported| reported.at_once);
        assert_eq!((effects.refused, at_once), (event, Some(false)));
    }
}

#[test]
fn b_s9_an_outage_that_is_logged_is_not_logged_for_each_service() {
    let (service, set) = (service(), set());
    let call = call(Op::Ensure, &service, &set);
    let logged = |code, warn| {
        let verdict = Verdict::Failed(trouble(code, None));
        let reaction = |trouble: &CallError| Failed {
            warn,
            ..reaction(trouble)
        };
        let (_, effects) = settle(record(), &call, &verdict, None, reaction, Instant::now());
        effects.reported.unwrap().logged
    };
    assert!(!logged(CallErrorCode::Unavailable, true));
    assert!(logged(CallErrorCode::Unavailable, false));
    // Each failure of the Service itself is a warning.
    assert!(!logged(CallErrorCode::Internal, false));
}

#[test]
fn b_s3_failures_in_upstreams_words() {
    let now = Instant::now();
    let set = set();
    let reported = |op, departed| {
        let service = service();
        let call = Call {
            departed,
            ..call(op, &service, &set)
        };
        let verdict = Verdict::Failed(trouble(CallErrorCode::Precondition, None));
        let (_, effects) = settle(record(), &call, &verdict, None, reaction, now);
        let answered = effects.reported.unwrap().answered;
        assert_eq!(answered.kind, EventType::Warning);
        (answered.reason.to_owned(), answered.words)
    };
    let expect = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
    assert_eq!(
        reported(Op::Ensure, false),
        expect(
            "SyncLoadBalancerFailed",
            "Error syncing load balancer: failed to ensure load balancer: no"
        )
    );
    assert_eq!(
        reported(Op::Delete, false),
        expect(
            "SyncLoadBalancerFailed",
            "Error syncing load balancer: failed to delete load balancer: no"
        )
    );
    assert_eq!(
        reported(Op::Delete, true),
        expect(
            "DeleteLoadBalancerFailed",
            "Error deleting load balancer: no"
        )
    );
    assert_eq!(
        reported(Op::Update, false),
        expect(
            "UpdateLoadBalancerFailed",
            "Error updating load balancer with new hosts [a] [node names limited, total number of nodes: 1], error: no"
        )
    );
}

#[test]
fn s18_a_delete_that_keeps_failing_says_so_whatever_the_failure() {
    let now = Instant::now();
    let mut record = record();
    let verdict = Verdict::Failed(trouble(CallErrorCode::Busy, None));
    let reported: Vec<_> = (0..4)
        .map(|_| {
            run(&mut record, Op::Delete, &verdict, now)
                .reported
                .unwrap()
                .at_once
        })
        .collect();
    assert_eq!(reported, [false, false, true, true]);
    assert_eq!(record.cloud.by(), Some(ME));
}

#[test]
fn s18_the_first_delete_is_reported_as_such_whatever_failed_before() {
    let (now, service, set) = (Instant::now(), service(), set());
    let deletes = call(Op::Delete, &service, &set);
    let trouble = |code| Verdict::Failed(trouble(code, None));
    for before in [
        Verdict::Pending(secs(17), String::new()),
        trouble(CallErrorCode::Internal),
    ] {
        let mut record = record();
        for _ in 0..5 {
            run(&mut record, Op::Ensure, &before, now);
        }
        for reported in [vec![notes::deleting()], Vec::new()] {
            let (sent, notes) = begin(record, &deletes, &LoadBalancerCapability::default());
            assert_eq!(notes, reported, "{before:?}");
            let busy = trouble(CallErrorCode::Busy);
            let (settled, effects) = settle(sent, &deletes, &busy, None, reaction, now);
            assert!(!effects.reported.unwrap().at_once, "{before:?}");
            record = settled;
        }
        // It is made again, and deleted again.
        run(
            &mut record,
            Op::Delete,
            &Verdict::Gone { retained: false },
            now,
        );
        assert!(!record.deletes);
        run(&mut record, Op::Ensure, &ready(), now);
        let (_, notes) = begin(record, &deletes, &LoadBalancerCapability::default());
        assert_eq!(notes, [notes::deleting()], "{before:?}");
    }
}

/// The warnings about the Service do not repeat with the next call.
#[test]
fn s15_s17_s19_what_is_reported_before_a_call() {
    use crate::controllers::service::handle::ANNOTATION;

    let plain = service();
    let mut unreadable = plain.clone();
    unreadable.metadata.annotations = Some([(ANNOTATION.to_owned(), "?".to_owned())].into());
    let mut affine = plain.clone();
    affine.spec.as_mut().unwrap().session_affinity = Some("ClientIP".to_owned());
    let few = TargetSet {
        left_out: 2,
        ..set()
    };
    let garbage = notes::garbage();
    let unsupported = notes::unsupported(&["spec.sessionAffinity: ClientIP"], ME);
    let cut = notes::targets_cut(&few, &plain);
    for op in [Op::Get, Op::Ensure, Op::Update, Op::Delete] {
        let before = |record: Record, service: &Service, targets: &TargetSet| {
            let call = call(op, service, targets);
            let (record, mut notes) = begin(record, &call, &LoadBalancerCapability::default());
            notes.retain(|note| *note != notes::ensuring() && *note != notes::deleting());
            (record, notes)
        };
        // The notes before a first call. Before the next one, after a failure, there are none.
        let both = |service: &Service, targets: &TargetSet| {
            let (record, first) = before(record(), service, targets);
            let record = Record {
                failures: 1,
                ..record
            };
            let (_, next) = before(record, service, targets);
            assert_eq!(next, [], "{op:?}");
            first
        };
        let shown =
            |is: bool, note: &Note| is.then(|| note.clone()).into_iter().collect::<Vec<_>>();
        assert_eq!(both(&plain, &set()), [], "{op:?}");
        let first = both(&unreadable, &set());
        assert_eq!(first, shown(op != Op::Update, &garbage), "{op:?}");
        let first = both(&affine, &set());
        assert_eq!(first, shown(op != Op::Delete, &unsupported), "{op:?}");
        let first = both(&plain, &few);
        assert_eq!(first, shown(op != Op::Delete, &cut), "{op:?}");
        // After `pending` it is no first call either.
        let waiting = Record {
            progress: Progress::Pending { inputs: None },
            deletes: op == Op::Delete,
            ..record()
        };
        assert_eq!(before(waiting, &unreadable, &set()).1, [], "{op:?}");
    }
}

#[test]
fn s14_target_errors_never_fail_the_rest_and_are_tried_again() {
    let now = Instant::now();
    let mut record = record();
    let troubled = |retry_after| Troubled {
        nodes: vec!["a".into()],
        message: "full".into(),
        retry_after,
    };
    let verdict = Verdict::Ready(LoadBalancerStatus::default(), troubled(None));
    let next = run(&mut record, Op::Ensure, &verdict, now);
    assert_eq!(next.requeue, Some(Requeue::Retry));
    assert_eq!(
        next.reported.unwrap().answered.reason,
        "UpdateLoadBalancerFailed"
    );
    assert_eq!(record.progress, confirmed(None));
    let verdict = Verdict::Updated(troubled(Some(secs(9))));
    let next = run(&mut record, Op::Update, &verdict, now);
    assert_eq!(next.requeue, Some(Requeue::At(now + secs(9))));
    assert_eq!(record.failures, 2);
    let next = run(
        &mut record,
        Op::Update,
        &Verdict::Updated(Troubled::default()),
        now,
    );
    assert_eq!(next.requeue, Some(Requeue::Forget));
    assert_eq!((record.failures, record.progress), (0, confirmed(Some(7))));
}

#[test]
fn b_s4_what_was_half_done_is_not_confirmed_any_more() {
    let (service, set) = (service(), set());
    let sent = |op| {
        let record = Record {
            progress: confirmed(Some(7)),
            ..record()
        };
        let call = call(op, &service, &set);
        begin(record, &call, &LoadBalancerCapability::default()).0
    };
    assert_eq!(sent(Op::Get).progress, confirmed(Some(7)));
    let update = sent(Op::Update).progress;
    assert_eq!(update, confirmed(None), "some of the targets may be others");
    for op in [Op::Ensure, Op::Delete] {
        let progress = sent(op).progress;
        let expected = Progress::UNCONFIRMED;
        assert_eq!(progress, expected, "the user may put the former back");
    }
}

#[test]
fn s10_gone_on_update_is_made_anew_at_once() {
    let now = Instant::now();
    let mut record = record();
    run(&mut record, Op::Ensure, &ready(), now);
    let next = run(&mut record, Op::Update, &Verdict::Missing, now);
    assert_eq!((next.requeue, next.reported), (None, None));
    assert_eq!(record.progress, Progress::UNCONFIRMED);
}

#[test]
fn b_s10_an_update_that_fails_is_followed_by_an_ensure() {
    let now = Instant::now();
    let mut record = record();
    run(&mut record, Op::Ensure, &ready(), now);
    let failed = Verdict::Failed(trouble(CallErrorCode::Internal, None));
    let next = run(&mut record, Op::Update, &failed, now);
    assert_eq!(next.requeue, Some(Requeue::Retry));
    assert_eq!(record.progress, Progress::Rejected);
    run(&mut record, Op::Ensure, &failed, now);
    let expected = Progress::Rejected;
    assert_eq!(record.progress, expected, "until one succeeds");
    run(&mut record, Op::Ensure, &ready(), now);
    assert_eq!(record.progress, confirmed(Some(7)));
    run(&mut record, Op::Ensure, &failed, now);
    let expected = Progress::UNCONFIRMED;
    assert_eq!(
        record.progress, expected,
        "the Ensure is tried again anyway"
    );
}

#[test]
fn b_s9_an_update_that_is_pending_keeps_its_inputs() {
    let now = Instant::now();
    let mut record = record();
    run(&mut record, Op::Ensure, &ready(), now);
    let pending = Verdict::Pending(secs(1), String::new());
    let waits = Progress::Pending {
        inputs: Some(inputs()),
    };
    for _ in 0..2 {
        run(&mut record, Op::Update, &pending, now);
        assert_eq!(record.progress, waits);
    }
    // If a Get that a hint caused fails, the Service is no longer pending, and the confirmed inputs
    // stay.
    let failed = Verdict::Failed(trouble(CallErrorCode::Internal, None));
    run(&mut record, Op::Get, &failed, now);
    assert_eq!(record.progress, confirmed(None));
    run(&mut record, Op::Ensure, &pending, now);
    assert_eq!(record.progress, Progress::Pending { inputs: None });
}

#[test]
fn s13_get_in_sync_confirms_and_out_of_sync_does_not() {
    let now = Instant::now();
    let mut record = record();
    let next = run(&mut record, Op::Get, &Verdict::InSync(None), now);
    assert_eq!(next.requeue, Some(Requeue::Forget));
    assert_eq!((record.cloud.by(), record.check), (Some(ME), false));
    assert_eq!(record.progress, confirmed(Some(7)));
    let found = Verdict::OutOfSync {
        exists: true,
        theirs: None,
    };
    let next = run(&mut record, Op::Get, &found, now);
    assert_eq!(next.requeue, None);
    assert_eq!(record.progress, Progress::UNCONFIRMED);
    assert!(!record.check);
    record.check = true;
    let lost = Verdict::Failed(trouble(CallErrorCode::Unknown, None));
    run(&mut record, Op::Get, &lost, now);
    assert!(record.check, "asked again");
}

/// If Get finds a kept or deleted load balancer again, the record says that it may exist. So the
/// ccm calls Delete before it releases the Service.
#[test]
fn s18_what_get_finds_again_may_stand() {
    for cloud in [Cloud::Deleted, Cloud::Kept] {
        for found in [
            Verdict::InSync(None),
            Verdict::OutOfSync {
                exists: true,
                theirs: None,
            },
        ] {
            let mut record = Record {
                cloud: cloud.clone(),
                ..record()
            };
            run(&mut record, Op::Get, &found, Instant::now());
            assert_eq!(record.cloud.by(), Some(ME), "{cloud:?} {found:?}");
        }
    }
}

#[test]
fn s19_who_made_it_is_noted_before_the_call_and_when_it_is_found() {
    let after = |op, verdict: Option<Verdict>| {
        let mut record = record();
        if let Some(verdict) = verdict {
            run(&mut record, op, &verdict, Instant::now());
        } else {
            let (service, set) = (service(), set());
            let call = call(op, &service, &set);
            record = begin(record, &call, &LoadBalancerCapability::default()).0;
        }
        record.cloud.by().map(str::to_owned)
    };
    let found = |exists| {
        Some(Verdict::OutOfSync {
            exists,
            theirs: None,
        })
    };
    assert_eq!(after(Op::Ensure, None).as_deref(), Some(ME));
    assert_eq!(after(Op::Delete, None).as_deref(), Some(ME));
    assert_eq!(after(Op::Get, found(true)).as_deref(), Some(ME));
    assert_eq!(after(Op::Get, found(false)), None);
}

#[test]
fn s19_what_get_said_is_not_ours_holds_for_the_ensure_that_follows() {
    let now = Instant::now();
    let theirs = Theirs {
        foreign: false,
        name: "theirs".into(),
        addresses: vec!["192.0.2.1".into()],
    };
    let found = Verdict::OutOfSync {
        exists: false,
        theirs: Some(theirs.clone()),
    };
    for last in [
        Verdict::Pending(secs(1), String::new()),
        ready(),
        Verdict::Failed(trouble(CallErrorCode::Conflict, None)),
        Verdict::Elsewhere,
    ] {
        let mut record = record();
        run(&mut record, Op::Get, &found, now);
        let theirs = Some(theirs.clone());
        assert_eq!(record.progress, Progress::Unconfirmed { theirs });
        run(&mut record, Op::Ensure, &last, now);
        let still = matches!(record.progress, Progress::Unconfirmed { theirs: Some(_) });
        assert!(!still, "{last:?}");
    }
}

/// Shows ▲S19: the ccm reports a takeover only if the address is the same.
#[test]
fn s19_who_makes_it_ready_where_another_one_was_took_that_over() {
    let now = Instant::now();
    let at = |ip: &str| LoadBalancerStatus {
        ingress: Some(vec![LoadBalancerIngress {
            ip: Some(ip.into()),
            ..LoadBalancerIngress::default()
        }]),
    };
    for (ip, taken) in [("192.0.2.1", true), ("192.0.2.2", false)] {
        let theirs = Theirs {
            foreign: true,
            name: "theirs".into(),
            addresses: vec!["192.0.2.1".into()],
        };
        let found = Verdict::OutOfSync {
            exists: false,
            theirs: Some(theirs),
        };
        let mut record = record();
        run(&mut record, Op::Get, &found, now);
        let ready = Verdict::Ready(at(ip), Troubled::default());
        let notes = run(&mut record, Op::Ensure, &ready, now).notes;
        let reasons: Vec<&str> = notes.iter().map(|note| &*note.reason).collect();
        let expected: &[&str] = if taken {
            &["LoadBalancerTakenOver", "EnsuredLoadBalancer"]
        } else {
            &["EnsuredLoadBalancer"]
        };
        assert_eq!(reasons, expected, "{ip}");
    }
}
