//! Routes in a changing and failing cloud: blackholes (ROUTE-1), and results that are not done
//! (ROUTE-2).

use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::super::call::{Rpc, short_code};
use super::super::check::{Check, Need, Verdict, check, must};
use super::super::hooks::Hook;
use super::super::instances::ask::{ALL, Known, look_up, lookup};
use super::super::run::Run;
use super::super::session::Session;
use super::ask::{
    as_listed, list, list_to, made, must_be_our_own, none, only, removed, target, wanted, wanted_to,
};

const FAIL: Need = Need::Hook(Hook::CloudFail);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "routes/blackholes-are-listed",
            ["ROUTE-1"],
            "a route whose target is gone is listed, as a blackhole",
            [Need::Routes, Need::Hook(Hook::RouteBlackhole)],
            blackhole
        ),
        check!(
            "routes/blackhole-is-removed",
            ["ROUTE-4"],
            "a blackhole of ours can be removed",
            [Need::Routes, Need::Hook(Hook::RouteBlackhole)],
            blackhole_removed
        ),
        check!(
            "routes/target-goes",
            ["ROUTE-1"],
            "after its instance is removed, a route is listed as a blackhole, or not at all",
            [
                Need::Routes,
                Need::Instances,
                Need::Hook(Hook::InstanceAdd),
                Need::Hook(Hook::InstanceRemove)
            ],
            target_goes
        ),
        check!(
            "routes/make-throttled",
            ["ROUTE-2", "CORE-15"],
            "while the cloud throttles, no route is done: `failed` with THROTTLED",
            [Need::Routes, FAIL],
            throttled
        ),
        check!(
            "routes/make-refused-credentials",
            ["ROUTE-2", "CORE-15"],
            "while the cloud refuses the credentials, no route is done: `failed` with CREDENTIALS",
            [Need::Routes, FAIL],
            credentials
        ),
        check!(
            "routes/make-unavailable",
            ["ROUTE-2", "CORE-15"],
            "while the cloud is down, no route is done: `failed` with UNAVAILABLE",
            [Need::Routes, FAIL],
            unavailable
        ),
    ]
}

async fn blackhole_of(run: &Run, session: &Session) -> Verdict<pb::Route> {
    let cidr = run.cidr();
    run.blackhole_route(&run.name("blackhole"), &cidr).await?;
    let route = only(session, &cidr, "ROUTE-1").await?;
    must_be_our_own(run, &route, "ROUTE-5", "to the owner that it is marked for")?;
    let expected = "blackhole: its target is gone";
    must(
        route.blackhole,
        "ROUTE-1",
        "ListRoutes",
        expected,
        format_args!("{route:?}"),
    )?;
    Ok(route)
}

async fn blackhole(run: &Run) -> Verdict {
    let session = run.session().await?;
    blackhole_of(run, &session).await?;
    Ok(())
}

async fn blackhole_removed(run: &Run) -> Verdict {
    let session = run.session().await?;
    let route = blackhole_of(run, &session).await?;
    removed(&session, &route).await?;
    none(&session, &route.destination_cidr, "ROUTE-4").await?;
    // The destination is free again.
    let known = target(run, &session).await?;
    let again = made(&session, &wanted_to(&route.destination_cidr, &known)).await?;
    must(
        !again.blackhole,
        "ROUTE-5",
        "ListRoutes",
        "no blackhole",
        format_args!("{again:?}"),
    )?;
    removed(&session, &again).await
}

async fn target_goes(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (known, instance) = Known::made(run, &session).await?;
    let known = known.with_addresses(run, &session).await;
    let route = made(&session, &wanted(run, &known)).await?;
    run.change_instance(Hook::InstanceRemove, &instance).await?;
    let gone = look_up(run, &session, lookup(vec![known.node()], &ALL)).await?;
    gone.must_be(0, pb::InstanceState::Absent, "INST-1")?;
    for route in list_to(&session, &route.destination_cidr).await? {
        let expected = "blackhole, or no route: its instance was removed";
        must(
            route.blackhole,
            "ROUTE-1",
            "ListRoutes",
            expected,
            format_args!("{route:?}"),
        )?;
        removed(&session, &route).await?;
    }
    none(&session, &route.destination_cidr, "ROUTE-4").await
}

async fn refused(run: &Run, code: FailureCode) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let stands = made(&session, &wanted(run, &known)).await?;
    let wanted = wanted(run, &known);
    run.cloud_fail(short_code(code)).await?;
    refused_with(
        &session,
        pb::CreateRoutesRequest {
            cluster: None,
            routes: vec![wanted.clone()],
        },
        code,
    )
    .await?;
    refused_with(
        &session,
        pb::DeleteRoutesRequest {
            cluster: None,
            routes: vec![as_listed(&stands)],
        },
        code,
    )
    .await?;
    run.cloud_fail("NONE").await?;
    // A provider may wait for the delay that the cloud asked for.
    for _ in 0..50 {
        if list(&session).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    only(&session, &stands.destination_cidr, "ROUTE-4").await?;
    let route = made(&session, &wanted).await?;
    removed(&session, &route).await?;
    removed(&session, &stands).await
}

async fn throttled(run: &Run) -> Verdict {
    refused(run, FailureCode::Throttled).await
}

async fn credentials(run: &Run) -> Verdict {
    refused(run, FailureCode::Credentials).await
}

async fn unavailable(run: &Run) -> Verdict {
    refused(run, FailureCode::Unavailable).await
}

/// Every route is `failed` with this code, or the whole call is.
async fn refused_with<R>(session: &Session, request: R, code: FailureCode) -> Verdict
where
    R: Rpc,
    R::Response: Results,
{
    let exchange = session.call(request).await;
    let answer = exchange.answer()?;
    let (failed, results) = answer.failures();
    if failed.is_some() {
        exchange.failure("CORE-15", &[code])?;
        return Ok(());
    }
    let all = results.iter().all(|result| {
        matches!(&result.outcome, Some(pb::route_result::Outcome::Failed(failed)) if failed.code() == code)
    });
    let expected = format!("failed with {}: the cloud's code", short_code(code));
    exchange.must(all && !results.is_empty(), "CORE-15", expected)
}

/// The two answers with results by route.
trait Results {
    fn failures(&self) -> (Option<&pb::Failure>, &[pb::RouteResult]);
}

impl Results for pb::CreateRoutesResponse {
    fn failures(&self) -> (Option<&pb::Failure>, &[pb::RouteResult]) {
        (self.failed.as_ref(), &self.results)
    }
}

impl Results for pb::DeleteRoutesResponse {
    fn failures(&self) -> (Option<&pb::Failure>, &[pb::RouteResult]) {
        (self.failed.as_ref(), &self.results)
    }
}
