//! Calls that are cut: by their caller, by the deadline, with the connection, with the process (CORE-6 to CORE-9).

use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use futures::future::join_all;
use pb::ensure_load_balancer_response::Outcome;
use tokio::time::{Instant, timeout};

use super::super::call::{Answer, Exchange};
use super::super::check::{Check, Need, Verdict, check, must};
use super::super::hooks::Hook;
use super::super::run::{Run, targets};
use super::super::session::Session;
use super::tour::{self, ensure};

/// How long each operation of the cloud takes where calls are cut.
const SLOW: Duration = Duration::from_millis(400);
/// When they are cut: before the first operation can have ended.
const EARLY: Duration = Duration::from_millis(100);
const SLOW_WRITES: [Need; 2] = [Need::Hook(Hook::CloudSlow), Need::Hook(Hook::CloudWrites)];

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/cancelled-calls-cost-nothing",
            ["CORE-6"],
            "64 calls that are cancelled at once keep no other call waiting",
            cancelled
        ),
        check!(
            "core/deadlines-are-kept",
            ["CORE-9", "CORE-8"],
            "a call whose deadline passes ends, and keeps no other call waiting",
            [Need::Instances, SLOW_WRITES[0]],
            deadlines
        ),
        check!(
            "core/a-cancelled-ensure-writes-nothing",
            ["CORE-8"],
            "EnsureLoadBalancer that is cancelled before the cloud did anything writes nothing afterwards",
            [Need::LoadBalancers, SLOW_WRITES[0], SLOW_WRITES[1]],
            |run| ensure_cut(run, Cut::Cancel)
        ),
        check!(
            "core/an-ensure-past-its-deadline-writes-nothing",
            ["CORE-8", "CORE-9"],
            "EnsureLoadBalancer whose deadline passes before the cloud did anything writes nothing afterwards",
            [Need::LoadBalancers, SLOW_WRITES[0], SLOW_WRITES[1]],
            |run| ensure_cut(run, Cut::Deadline)
        ),
        check!(
            "core/an-ensure-whose-connection-is-lost-writes-nothing",
            ["CORE-8"],
            "EnsureLoadBalancer whose connection is lost before the cloud did anything writes nothing afterwards",
            [Need::LoadBalancers, SLOW_WRITES[0], SLOW_WRITES[1]],
            |run| ensure_cut(run, Cut::Connection)
        ),
        check!(
            "core/a-cancelled-delete-writes-nothing",
            ["CORE-8"],
            "DeleteLoadBalancer that is cancelled before the cloud did anything writes nothing afterwards",
            [Need::LoadBalancers, SLOW_WRITES[0], SLOW_WRITES[1]],
            delete_cut
        ),
        check!(
            "core/a-cancelled-create-routes-writes-nothing",
            ["CORE-8"],
            "CreateRoutes that is cancelled before the cloud did anything writes nothing afterwards",
            [Need::Routes, SLOW_WRITES[0], SLOW_WRITES[1]],
            |run| routes_cut(run, Cut::Cancel)
        ),
        check!(
            "core/a-create-routes-whose-connection-is-lost-writes-nothing",
            ["CORE-8"],
            "CreateRoutes whose connection is lost before the cloud did anything writes nothing afterwards",
            [Need::Routes, SLOW_WRITES[0], SLOW_WRITES[1]],
            |run| routes_cut(run, Cut::Connection)
        ),
        check!(
            "core/overlapping-ensures-make-one",
            ["CORE-7", "CORE-6"],
            "eight overlapping Ensures of one Service are serialised or BUSY, and make one load balancer",
            [Need::LoadBalancers],
            overlapping
        ),
        check!(
            "core/overlapping-ensure-and-delete-agree",
            ["CORE-7", "CORE-6"],
            "overlapping Ensure and Delete of one Service are serialised or BUSY, and Delete afterwards leaves nothing",
            [Need::LoadBalancers],
            ensure_and_delete
        ),
        check!(
            "core/an-ensure-cut-by-kill-9-is-resumed",
            ["CORE-6", "CORE-14", "LB-5"],
            "Ensure goes on where kill -9 cut it, at whatever point, and makes one load balancer",
            [Need::Command, Need::LoadBalancers, SLOW_WRITES[0]],
            ensure_killed
        ),
        check!(
            "core/routes-cut-by-kill-9-are-resumed",
            ["CORE-6", "CORE-14", "ROUTE-2"],
            "CreateRoutes goes on where kill -9 cut it, at whatever point, and makes each route once",
            [Need::Command, Need::Routes, SLOW_WRITES[0]],
            routes_killed
        ),
        check!(
            "core/what-was-made-outlives-the-process",
            ["CORE-14", "CORE-6", "LB-5"],
            "a load balancer that was made is found as OURS by a new process, without its handle",
            [Need::Command, Need::LoadBalancers],
            outlives
        ),
        check!(
            "core/calls-lost-with-the-process-are-statuses",
            ["CORE-4", "CORE-6"],
            "calls that kill -9 cuts end with a gRPC status, and work when they are repeated",
            [Need::Command, Need::Instances, SLOW_WRITES[0]],
            lost_calls
        ),
    ]
}

async fn cancelled(run: &Run) -> Verdict {
    let offered = run.capabilities();
    let session = run.session().await?;
    let calls: Vec<_> = (0..64)
        .map(|number| {
            let (session, offered) = (session.clone(), offered.clone());
            async move {
                let cut = Duration::from_micros(100 * number);
                if offered.instances.is_some() {
                    let _ = timeout(cut, session.call(tour::lookup(run))).await;
                }
                let _ = timeout(cut, session.call(pb::GetProviderInfoRequest::default())).await;
            }
        })
        .collect();
    join_all(calls).await;
    // An HTTP/2 stack may hang up on a caller that cancels so much at once; the controller then dials again.
    let session = run.connect().await?;
    session.call(pb::ProbeRequest::default()).await.answer()?;
    if offered.instances.is_some() {
        session.call(tour::lookup(run)).await.success("CORE-6")?;
    }
    Ok(())
}

async fn deadlines(run: &Run) -> Verdict {
    let session = run.session().await?;
    run.cloud_slow(Duration::from_secs(5)).await?;
    let began = Instant::now();
    let calls: Vec<_> = (0..16)
        .map(|_| session.call_within(tour::lookup(run), EARLY * 2))
        .collect();
    let asked = join_all(calls).await;
    let took = began.elapsed();
    for asked in &asked {
        // A provider that answers from a cache, or `failed`, in time is as good.
        let late = asked.came.is_ok() && asked.took > Duration::from_secs(4);
        asked.must(
            !late,
            "CORE-9",
            "an answer or a status by the deadline of 200 ms",
        )?;
    }
    must(
        took < Duration::from_secs(4),
        "CORE-9",
        "16 LookupInstances with a deadline of 200 ms",
        "all end by then",
        format_args!("they took {took:?}"),
    )?;
    run.cloud_slow(Duration::ZERO).await?;
    // No call of theirs still holds what this one needs.
    let after = session
        .call_within(tour::lookup(run), Duration::from_secs(4))
        .await;
    after.success("CORE-9").map(|_| ())
}

#[derive(Clone, Copy)]
enum Cut {
    Cancel,
    Deadline,
    Connection,
}

/// Sends a call and cuts it; answers what was done, in words.
async fn cut<R: super::super::call::Rpc>(session: Session, request: R, how: Cut) -> String {
    match how {
        Cut::Deadline => {
            let asked = session.call_within(request, EARLY).await;
            format!("{} with a deadline of {EARLY:?}", asked.sent())
        }
        Cut::Cancel => {
            let sent = format!("{} that was cancelled after {EARLY:?}", R::NAME);
            let _ = timeout(EARLY, session.call(request)).await;
            // The connection lives on: what is cut is the call.
            let _ = session.call(pb::ProbeRequest::default()).await;
            sent
        }
        Cut::Connection => {
            let sent = format!("{} whose connection was closed after {EARLY:?}", R::NAME);
            let _ = timeout(EARLY, session.call(request)).await;
            drop(session);
            sent
        }
    }
}

/// Cuts a call while the cloud takes its time, waits until what goes on in spite of that must have written, and counts.
async fn writes_nothing<R: super::super::call::Rpc>(
    run: &Run,
    session: Session,
    request: R,
    how: Cut,
) -> Verdict {
    let before = run.cloud_writes().await?;
    run.cloud_slow(SLOW).await?;
    let sent = cut(session, request, how).await;
    tokio::time::sleep(SLOW * 4).await;
    run.cloud_slow(Duration::ZERO).await?;
    let after = run.cloud_writes().await?;
    must(
        after == before,
        "CORE-8",
        format_args!("{sent}, while each operation of the cloud takes {SLOW:?}"),
        "no write to the cloud: it stops before its next one",
        format_args!("{} writes", after - before),
    )
}

fn ensure_of(service: &pb::ServiceView, nodes: Vec<pb::NodeView>) -> pb::EnsureLoadBalancerRequest {
    pb::EnsureLoadBalancerRequest {
        service: Some(service.clone()),
        targets: Some(targets(nodes)),
        ..Default::default()
    }
}

async fn ensure_cut(run: &Run, how: Cut) -> Verdict {
    let session = run.session().await?;
    let service = run.service("cut");
    writes_nothing(run, session, ensure_of(&service, Vec::new()), how).await?;
    // It is whole when it is asked for again.
    let session = run.session().await?;
    ensure(&session, &service, Vec::new()).await.map(|_| ())
}

async fn delete_cut(run: &Run) -> Verdict {
    let session = run.session().await?;
    let service = run.service("cut");
    let made = ensure(&session, &service, Vec::new()).await?;
    let handle = made.answer()?.handle.clone();
    let request = pb::DeleteLoadBalancerRequest {
        cluster: None,
        service: Some(service),
        handle,
    };
    writes_nothing(run, session, request, Cut::Cancel).await
}

fn routes_of(run: &Run, count: usize) -> Vec<pb::Route> {
    (0..count)
        .map(|number| pb::Route {
            route_key: number.to_string(),
            ..tour::route(run)
        })
        .collect()
}

async fn routes_cut(run: &Run, how: Cut) -> Verdict {
    let session = run.session().await?;
    let routes = routes_of(run, 4);
    let request = pb::CreateRoutesRequest {
        cluster: None,
        routes,
    };
    writes_nothing(run, session, request, how).await
}

/// How many of the load balancers of this cluster are this Service's; `None` where they are not listed.
async fn listed(run: &Run, session: &Session, service: &pb::ServiceView) -> Verdict<Option<usize>> {
    if !run.sees(&[Need::LoadBalancerListing]) {
        return Ok(None);
    }
    let all = session
        .list(pb::ListLoadBalancersRequest::default())
        .await
        .items()?;
    let ours = all
        .iter()
        .filter(|of| of.owners.iter().any(|owner| owner.uid == service.uid));
    Ok(Some(ours.count()))
}

async fn must_be_one(
    run: &Run,
    session: &Session,
    service: &pb::ServiceView,
    after: &str,
) -> Verdict {
    let count = listed(run, session, service).await?;
    must(
        count.is_none_or(|count| count == 1),
        "CORE-6",
        format_args!("{after}, then ListLoadBalancers"),
        "one load balancer of the Service",
        format_args!("{count:?}"),
    )
}

fn busy_or<T: Answer + std::fmt::Debug>(asked: &Exchange<T>) -> Verdict {
    let answer = asked.answer()?;
    let fine = match answer.failed() {
        Some(failure) => failure.code() == FailureCode::Busy,
        None => answer.says_something(),
    };
    asked.must(
        fine,
        "CORE-7",
        "a success, or `failed` with BUSY: the calls overlap",
    )
}

async fn overlapping(run: &Run) -> Verdict {
    let session = run.session().await?;
    let service = run.service("overlap");
    if run.has_hook(Hook::CloudSlow) {
        run.cloud_slow(Duration::from_millis(50)).await?;
    }
    let calls: Vec<_> = (0..8)
        .map(|_| session.call(ensure_of(&service, Vec::new())))
        .collect();
    let asked = join_all(calls).await;
    asked.iter().try_for_each(busy_or)?;
    ensure(&session, &service, Vec::new()).await?;
    must_be_one(run, &session, &service, "eight overlapping Ensures").await
}

async fn ensure_and_delete(run: &Run) -> Verdict {
    let session = run.session().await?;
    let service = run.service("overlap");
    let delete = pb::DeleteLoadBalancerRequest {
        service: Some(service.clone()),
        ..Default::default()
    };
    for _ in 0..3 {
        let ensure_it = session.call(ensure_of(&service, Vec::new()));
        let delete_it = session.call(delete.clone());
        let (ensured, deleted) = futures::join!(ensure_it, delete_it);
        busy_or(&ensured)?;
        busy_or(&deleted)?;
    }
    let gone = run
        .eventually(Duration::from_mins(1), || async {
            let asked = session.call(delete.clone()).await;
            let outcome = asked.came.ok()?.outcome;
            matches!(
                outcome,
                Some(pb::delete_load_balancer_response::Outcome::Done(_))
            )
            .then_some(())
        })
        .await;
    must(
        gone.is_some(),
        "LB-12",
        "Delete again and again",
        "`done`",
        "something else for a minute",
    )?;
    let count = listed(run, &session, &service).await?;
    must(
        count.is_none_or(|count| count == 0),
        "CORE-7",
        "overlapping Ensure and Delete, then Delete until `done`, then ListLoadBalancers",
        "no load balancer of the Service",
        format_args!("{count:?}"),
    )
}

/// Begins a call while the cloud is slow, and kills the process so much later.
async fn kill_during<F: Future>(run: &Run, later: Duration, call: F) -> Verdict {
    let killed = async {
        tokio::time::sleep(later).await;
        run.target().restart().await
    };
    let (_, killed) = futures::join!(call, killed);
    killed?;
    run.cloud_slow(Duration::ZERO).await
}

/// When the process is killed: while the cloud's first operation runs, about at its end, and after it.
const MOMENTS: [u64; 6] = [10, 60, 95, 105, 130, 210];
const OPERATION: Duration = Duration::from_millis(100);

async fn ensure_killed(run: &Run) -> Verdict {
    let service = run.service("killed");
    for moment in MOMENTS {
        let session = run.session().await?;
        run.cloud_slow(OPERATION).await?;
        let call = session.call_within(ensure_of(&service, Vec::new()), Duration::from_secs(5));
        kill_during(run, Duration::from_millis(moment), call).await?;
        let session = run.session().await?;
        // The handle may be lost with the answer: it is found by its mark (LB-5).
        let made = ensure(&session, &service, Vec::new()).await?;
        let ready = matches!(made.answer()?.outcome, Some(Outcome::Ready(_)));
        made.must(
            ready,
            "CORE-6",
            "`ready`, after kill -9 during the same call",
        )?;
        must_be_one(
            run,
            &session,
            &service,
            "an Ensure that was cut by kill -9 and repeated",
        )
        .await?;
    }
    Ok(())
}

async fn routes_killed(run: &Run) -> Verdict {
    let known = run.instances(1).await?;
    for moment in MOMENTS {
        let mut routes = routes_of(run, 3);
        for route in &mut routes {
            route.node_name = Some(known[0].name.clone());
            route.provider_id.clone_from(&known[0].provider_id);
            route.next_hop = None;
        }
        let request = pb::CreateRoutesRequest {
            cluster: None,
            routes: routes.clone(),
        };
        let session = run.session().await?;
        run.cloud_slow(OPERATION).await?;
        let call = session.call_within(request.clone(), Duration::from_secs(5));
        kill_during(run, Duration::from_millis(moment), call).await?;
        let session = run.session().await?;
        let asked = session.call(request).await;
        let answer = asked.success("CORE-6")?;
        let done = answer
            .results
            .iter()
            .filter(|result| matches!(result.outcome, Some(pb::route_result::Outcome::Done(_))));
        asked.must(
            done.count() == routes.len(),
            "CORE-6",
            "each route is `done`, after kill -9 during the same call",
        )?;
        let listing = session.list(pb::ListRoutesRequest::default()).await;
        let all = listing.items()?;
        for route in &routes {
            let same = all
                .iter()
                .filter(|of| of.destination_cidr == route.destination_cidr);
            listing.must(
                same.count() == 1,
                "CORE-6",
                format_args!("one route to {}", route.destination_cidr),
            )?;
        }
    }
    Ok(())
}

async fn outlives(run: &Run) -> Verdict {
    let session = run.session().await?;
    let service = run.service("outlives");
    let made = ensure(&session, &service, Vec::new()).await?;
    let handle = made.answer()?.handle.clone();
    run.target().restart().await?;
    let session = run.session().await?;
    let asked = session
        .call(pb::GetLoadBalancerRequest {
            service: Some(service),
            ..Default::default()
        })
        .await;
    let answer = asked.success("LB-5")?;
    let ours = matches!(&answer.outcome, Some(pb::get_load_balancer_response::Outcome::Found(found))
        if found.presence() == pb::LoadBalancerPresence::Present && found.ownership() == pb::Ownership::Ours);
    asked.must(
        ours,
        "CORE-14",
        "PRESENT and OURS: the cloud keeps it with its mark, not the process",
    )?;
    asked.must(
        answer.handle.is_none() || answer.handle == handle,
        "LB-3",
        format_args!("the handle {handle:?}, or none (as it was)"),
    )
}

async fn lost_calls(run: &Run) -> Verdict {
    let session = run.session().await?;
    run.cloud_slow(Duration::from_secs(2)).await?;
    let calls: Vec<_> = (0..8).map(|_| session.call(tour::lookup(run))).collect();
    let killed = async {
        tokio::time::sleep(EARLY).await;
        run.target().restart().await
    };
    let (asked, killed) = futures::join!(join_all(calls), killed);
    killed?;
    for asked in &asked {
        asked.must(
            asked.came.is_err(),
            "CORE-4",
            "a gRPC status: the process was killed 1.9 s before the cloud answered",
        )?;
    }
    run.cloud_slow(Duration::ZERO).await?;
    let session = run.session().await?;
    session
        .call(tour::lookup(run))
        .await
        .success("CORE-6")
        .map(|_| ())
}
