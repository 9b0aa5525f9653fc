use std::sync::Arc;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::LoadBalancerStatus;

use super::*;
use crate::controllers::service::answer::{Theirs, Troubled};
use crate::controllers::service::fingerprint::service_inputs;
use crate::controllers::service::fixtures::service;
use crate::writes::EventType;

const ME: &str = "mock";

fn set() -> TargetSet {
    TargetSet {
        nodes: vec![api::NodeView {
            name: "a".into(),
            ..api::NodeView::default()
        }],
        fingerprint: Fingerprint(7),
        version: 0,
        left_out: 0,
    }
}

fn applied() -> Applied {
    Applied::new(&Arc::new(service()))
}

fn trouble(code: TroubleCode, retry_after: Option<u64>) -> Trouble {
    Trouble {
        retry_after: retry_after.map(Duration::from_secs),
        ..Trouble::new(code, "no")
    }
}

fn run(applied: &mut Applied, op: Op, verdict: &Verdict, now: Instant) -> Next {
    let set = set();
    let made = Made {
        op,
        me: ME,
        departed: false,
        inputs: service_inputs(&service()),
        targets: Some(&set),
        jitter: 0.0,
    };
    begin(applied, op, ME);
    conclude(applied, verdict, &made, now)
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
    let mut applied = applied();
    applied.failures = 3;
    let next = run(
        &mut applied,
        Op::Ensure,
        &Verdict::Pending(secs(17), "being made".into()),
        now,
    );
    assert_eq!(next.outcome, Some(Outcome::At(now + secs(17))));
    let told = next.told.unwrap();
    assert!(told.at_once && told.code == Some("PENDING"));
    assert_eq!(
        told.note.message,
        "The load balancer is not ready yet: being made"
    );
    assert_eq!(applied.failures, 3, "failure count untouched");
    assert!(applied.pending && applied.inputs.is_none());
}

#[test]
fn b_s9_what_follows_each_failure() {
    use TroubleCode as T;
    let now = Instant::now();
    let at = |seconds| Outcome::At(now + secs(seconds));
    let refused = |probe, each| Outcome::Refused {
        probe: now + secs(probe),
        at: now + secs(each),
    };
    let cases = [
        (T::Invalid, None, at(1800), true),
        (T::Invalid, Some(60), at(60), true),
        (T::Precondition, None, Outcome::Retry, true),
        (T::Precondition, Some(90), at(90), true),
        (T::NotFound, None, Outcome::Retry, true),
        (T::Conflict, None, at(300), true),
        (T::Busy, None, at(1), false),
        (T::Throttled, Some(20), at(20), true),
        (T::Credentials, None, refused(20, 300), false),
        (T::Credentials, Some(60), refused(60, 60), false),
        (T::Unavailable, None, Outcome::Retry, true),
        (T::NotInitialized, None, Outcome::RetryTransport, false),
        (T::Internal, None, Outcome::Retry, true),
        (T::Unknown, None, Outcome::RetryTransport, false),
        (T::Disconnected, None, Outcome::RetryTransport, false),
        (T::Fault, None, Outcome::Retry, true),
        (T::Fenced, None, Outcome::Retry, false),
    ];
    for (code, after, outcome, told) in cases {
        let mut applied = applied();
        let verdict = Verdict::Failed(trouble(code, after));
        let next = run(&mut applied, Op::Ensure, &verdict, now);
        assert_eq!(next.outcome, Some(outcome), "{code:?}");
        let tells = next.told.map(|told| (told.at_once, told.code));
        let expected = (code != T::Fenced).then_some((told, Some(code.name())));
        assert_eq!(tells, expected, "{code:?}");
        assert_eq!(
            next.throttle,
            (code == T::Throttled).then(|| secs(20)),
            "{code:?}"
        );
        assert_eq!((applied.failures, applied.inputs), (1, None), "{code:?}");
        assert_eq!(applied.wrong, code == T::Invalid, "{code:?}");
    }
}

#[test]
fn b_s9_busy_is_quick_five_times() {
    let now = Instant::now();
    let mut applied = applied();
    let verdict = Verdict::Failed(trouble(TroubleCode::Busy, None));
    for _ in 0..5 {
        let next = run(&mut applied, Op::Ensure, &verdict, now);
        assert_eq!(next.outcome, Some(Outcome::At(now + secs(1))));
    }
    let next = run(&mut applied, Op::Ensure, &verdict, now);
    assert_eq!(next.outcome, Some(Outcome::Retry));
}

#[test]
fn b_s3_failures_in_upstreams_words() {
    let now = Instant::now();
    let set = set();
    let told = |op, departed| {
        let made = Made {
            op,
            me: ME,
            departed,
            inputs: Fingerprint(0),
            targets: Some(&set),
            jitter: 0.0,
        };
        let verdict = Verdict::Failed(trouble(TroubleCode::Precondition, None));
        let told = conclude(&mut applied(), &verdict, &made, now).told;
        let note = told.unwrap().note;
        assert_eq!(note.kind, EventType::Warning);
        (note.reason.into_owned(), note.message)
    };
    let expect = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
    assert_eq!(
        told(Op::Ensure, false),
        expect(
            "SyncLoadBalancerFailed",
            "Error syncing load balancer: failed to ensure load balancer: no"
        )
    );
    assert_eq!(
        told(Op::Delete, false),
        expect(
            "SyncLoadBalancerFailed",
            "Error syncing load balancer: failed to delete load balancer: no"
        )
    );
    assert_eq!(
        told(Op::Delete, true),
        expect(
            "DeleteLoadBalancerFailed",
            "Error deleting load balancer: no"
        )
    );
    assert_eq!(
        told(Op::Update, false),
        expect(
            "UpdateLoadBalancerFailed",
            "Error updating load balancer with new hosts [a] [node names limited, total number of nodes: 1], error: no"
        )
    );
}

#[test]
fn s18_a_delete_that_keeps_failing_says_so_whatever_the_failure() {
    let now = Instant::now();
    let mut applied = applied();
    let verdict = Verdict::Failed(trouble(TroubleCode::Busy, None));
    let told: Vec<_> = (0..4)
        .map(|_| {
            run(&mut applied, Op::Delete, &verdict, now)
                .told
                .unwrap()
                .at_once
        })
        .collect();
    assert_eq!(told, [false, false, true, true]);
    assert!(!applied.gone && applied.touched);
}

#[test]
fn s14_target_errors_never_fail_the_rest_and_are_tried_again() {
    let now = Instant::now();
    let mut applied = applied();
    let troubled = |retry_after| Troubled {
        nodes: vec!["a".into()],
        message: "full".into(),
        retry_after,
    };
    let verdict = Verdict::Ready(LoadBalancerStatus::default(), troubled(None));
    let next = run(&mut applied, Op::Ensure, &verdict, now);
    assert_eq!(next.outcome, Some(Outcome::Retry));
    assert_eq!(next.told.unwrap().note.reason, "UpdateLoadBalancerFailed");
    assert!(applied.inputs.is_some() && applied.targets.is_none());
    let verdict = Verdict::Updated(troubled(Some(secs(9))));
    let next = run(&mut applied, Op::Update, &verdict, now);
    assert_eq!(next.outcome, Some(Outcome::At(now + secs(9))));
    assert_eq!(applied.failures, 2);
    let next = run(
        &mut applied,
        Op::Update,
        &Verdict::Updated(Troubled::default()),
        now,
    );
    assert_eq!(next.outcome, Some(Outcome::Forget));
    assert_eq!(
        (applied.failures, applied.targets),
        (0, Some(Fingerprint(7)))
    );
}

#[test]
fn b_s4_what_was_half_done_is_not_confirmed_any_more() {
    let now = Instant::now();
    let mut applied = applied();
    run(&mut applied, Op::Ensure, &ready(), now);
    assert_eq!(applied.inputs, Some(service_inputs(&service())));
    let failed = Verdict::Failed(trouble(TroubleCode::Internal, None));
    run(&mut applied, Op::Update, &failed, now);
    assert_eq!(applied.targets, None, "some of the targets may be others");
    run(&mut applied, Op::Ensure, &failed, now);
    assert_eq!(applied.inputs, None, "the user may put the former back");
}

#[test]
fn s10_gone_on_update_is_made_anew_at_once() {
    let now = Instant::now();
    let mut applied = applied();
    run(&mut applied, Op::Ensure, &ready(), now);
    let next = run(&mut applied, Op::Update, &Verdict::Missing, now);
    assert_eq!(next, Next::at_once());
    assert_eq!(applied.inputs, None);
}

#[test]
fn b_s10_an_update_that_fails_is_followed_by_an_ensure() {
    let now = Instant::now();
    let mut applied = applied();
    run(&mut applied, Op::Ensure, &ready(), now);
    let failed = Verdict::Failed(trouble(TroubleCode::Internal, None));
    let next = run(&mut applied, Op::Update, &failed, now);
    assert_eq!(next.outcome, Some(Outcome::Retry));
    assert!(applied.mend);
    assert!(applied.inputs.is_some(), "its inputs are as they were");
    run(&mut applied, Op::Ensure, &failed, now);
    assert!(applied.mend, "until one succeeds");
    run(&mut applied, Op::Ensure, &ready(), now);
    assert!(!applied.mend);
    run(&mut applied, Op::Ensure, &failed, now);
    assert!(!applied.mend, "an Ensure that fails is tried again anyway");
}

#[test]
fn s13_get_in_sync_confirms_and_out_of_sync_does_not() {
    let now = Instant::now();
    let mut applied = applied();
    let next = run(&mut applied, Op::Get, &Verdict::InSync(None), now);
    assert_eq!(next.outcome, Some(Outcome::Forget));
    assert!(applied.touched && !applied.look);
    assert_eq!(applied.targets, Some(Fingerprint(7)));
    let next = run(
        &mut applied,
        Op::Get,
        &Verdict::OutOfSync {
            exists: true,
            theirs: None,
        },
        now,
    );
    assert_eq!(next, Next::at_once());
    assert!(applied.inputs.is_none() && !applied.look);
    applied.look = true;
    run(
        &mut applied,
        Op::Get,
        &Verdict::Failed(trouble(TroubleCode::Unknown, None)),
        now,
    );
    assert!(applied.look, "asked again");
}

#[test]
fn s19_who_made_it_is_noted_before_the_call_and_when_it_is_found() {
    let after = |op, verdict: Option<Verdict>| {
        let mut applied = applied();
        match verdict {
            Some(verdict) => drop(run(&mut applied, op, &verdict, Instant::now())),
            None => begin(&mut applied, op, ME),
        }
        applied.by
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
        Verdict::Failed(trouble(TroubleCode::Conflict, None)),
        Verdict::Elsewhere,
    ] {
        let mut applied = applied();
        run(&mut applied, Op::Get, &found, now);
        assert_eq!(applied.theirs.as_ref(), Some(&theirs));
        run(&mut applied, Op::Ensure, &last, now);
        assert_eq!(applied.theirs, None, "{last:?}");
    }
}
