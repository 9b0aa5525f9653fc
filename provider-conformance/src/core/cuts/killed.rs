//! Calls that are cut because the process is killed (CORE-6, CORE-14).

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use futures::future::join_all;
use pb::ensure_load_balancer_response::Outcome;

use super::super::super::check::{Check, Need, Verdict, after, check};
use super::super::super::config::KnownInstance;
use super::super::super::run::Run;
use super::super::tour::{self, ensure};
use super::{EARLY, SLOW, ensure_of, must_be_one, routes_of};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/an-ensure-cut-by-kill-9-is-resumed",
            ["CORE-6", "CORE-14", "LB-5"],
            "Ensure goes on after kill -9 at each of six moments, and makes one load balancer",
            [Need::Command, Need::LoadBalancers, SLOW],
            ensure_killed
        ),
        check!(
            "core/routes-cut-by-kill-9-are-resumed",
            ["CORE-6", "CORE-14", "ROUTE-2"],
            "CreateRoutes goes on after kill -9 at each of six moments, and makes each route once",
            [Need::Command, Need::Routes, SLOW],
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
            [Need::Command, Need::Instances, SLOW],
            lost_calls
        ),
    ]
}

/// Begins a call, kills the process after this time, starts it again, and ends the slowness of the
/// cloud.
async fn kill_during<F: Future>(run: &Run, later: Duration, call: F) -> Verdict {
    let killed = async {
        tokio::time::sleep(later).await;
        run.target().restart().await
    };
    let (_, killed) = futures::join!(call, killed);
    killed?;
    run.cloud_slow(Duration::ZERO).await
}

const OPERATION: Duration = Duration::from_millis(100);

/// When the process is killed, in milliseconds: during the cloud's first operation, around its end,
/// and after it. Only two are random, because starting the provider takes long.
fn moments(run: &Run) -> [u64; 6] {
    [10, run.draw(11..=94), 95, 105, run.draw(106..=180), 210]
}

/// If the check failed, adds that the process was killed this long after the call began.
fn killed_after(ms: u64, came: Verdict) -> Verdict {
    after(
        format_args!("kill -9 {ms} ms after the first call began"),
        came,
    )
}

async fn ensure_killed(run: &Run) -> Verdict {
    let nodes = run.few_nodes().await?;
    let service = run.service("killed");
    for moment in moments(run) {
        let came = ensure_killed_at(run, &service, &nodes, moment).await;
        killed_after(moment, came)?;
    }
    Ok(())
}

async fn ensure_killed_at(
    run: &Run,
    service: &pb::ServiceView,
    nodes: &[pb::NodeView],
    moment: u64,
) -> Verdict {
    let session = run.session().await?;
    run.cloud_slow(OPERATION).await?;
    let call = session.call_within(ensure_of(service, nodes.to_vec()), Duration::from_secs(5));
    kill_during(run, Duration::from_millis(moment), call).await?;
    let session = run.session().await?;
    // The handle may be lost with the answer. The load balancer is then found by its mark (LB-5).
    let made = ensure(&session, service, nodes.to_vec()).await?;
    let ready = matches!(made.answer()?.outcome, Some(Outcome::Ready(_)));
    made.must(
        ready,
        "CORE-6",
        "`ready`, after kill -9 during the same call",
    )?;
    must_be_one(
        run,
        &session,
        service,
        "an Ensure that was cut by kill -9 and repeated",
    )
    .await
}

async fn routes_killed(run: &Run) -> Verdict {
    let known = run.instances(1).await?;
    for moment in moments(run) {
        killed_after(moment, routes_killed_at(run, &known[0], moment).await)?;
    }
    Ok(())
}

async fn routes_killed_at(run: &Run, known: &KnownInstance, moment: u64) -> Verdict {
    let session = run.session().await?;
    let node = run.complete(&session, run.node_of(known)).await;
    let mut routes = routes_of(run, 3);
    for route in &mut routes {
        route.node_name = Some(node.name.clone());
        route.provider_id.clone_from(&node.provider_id);
        route.next_hop = None;
        route.node_addresses.clone_from(&node.addresses);
    }
    let request = pb::CreateRoutesRequest {
        cluster: None,
        routes: routes.clone(),
    };
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
    Ok(())
}

async fn outlives(run: &Run) -> Verdict {
    let nodes = run.few_nodes().await?;
    let session = run.session().await?;
    let service = run.service("outlives");
    let made = ensure(&session, &service, nodes).await?;
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
        "PRESENT and OURS: the load balancer and its mark are in the cloud, not in the process",
    )?;
    asked.must(
        answer.handle.is_none() || answer.handle == handle,
        "LB-3",
        format_args!("the handle {handle:?}, as before, or none"),
    )
}

async fn lost_calls(run: &Run) -> Verdict {
    let session = run.session().await?;
    run.cloud_slow(Duration::from_secs(10)).await?;
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
            "a gRPC status: the process was killed 9.9 s before the cloud answered",
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
