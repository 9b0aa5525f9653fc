//! One route at a time: made, listed, removed, and all that again (ROUTE-1 to ROUTE-5).

use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode, Ownership};

use super::super::call::short_code;
use super::super::check::{Check, Need, Verdict, check, must};
use super::super::hooks::Hook;
use super::super::instances::ask::{ALL, Known, look_up, lookup};
use super::super::instances::batches::call_with_unknown_fields;
use super::super::listings::{self, cut_off_anywhere, fails_whole, many_at_once, read_slowly};
use super::super::run::Run;
use super::super::session::Session;
use super::ask::{
    as_listed, create, delete, leads_to, list, list_to, made, must_be, none, only, removed, target,
    wanted, wanted_to,
};

const FAIL: Need = Need::Hook(Hook::CloudFail);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "routes/create-marks",
            ["ROUTE-1", "ROUTE-2", "ROUTE-3", "ROUTE-5", "CORE-14"],
            "a route that was made is listed once, as ours, with its destination and target",
            [Need::Routes],
            made_is_listed
        ),
        check!(
            "routes/create-twice",
            ["ROUTE-2", "CORE-6"],
            "making a route again is done and makes no second one",
            [Need::Routes],
            made_again
        ),
        check!(
            "routes/removed-is-gone",
            ["ROUTE-4"],
            "a route that was removed is not listed any more",
            [Need::Routes],
            removed_is_gone
        ),
        check!(
            "routes/removed-again-is-done",
            ["ROUTE-4", "CORE-6"],
            "removing a route again is done",
            [Need::Routes],
            removed_again
        ),
        check!(
            "routes/delete-of-none",
            ["ROUTE-4"],
            "removing a route that never was is done",
            [Need::Routes],
            never_made
        ),
        check!(
            "routes/made-after-removal",
            ["ROUTE-2", "CORE-6"],
            "a route can be made, removed and made again",
            [Need::Routes],
            made_after_removal
        ),
        check!(
            "routes/by-node-name-alone",
            ["ROUTE-2", "ROUTE-5"],
            "a route whose target is named by the Node's name alone is made, or refused in the body",
            [Need::Routes],
            by_node_name
        ),
        check!(
            "routes/node-addresses",
            ["ROUTE-2"],
            "with tracks_node_addresses the route follows the addresses that are sent",
            [Need::Routes],
            node_addresses
        ),
        check!(
            "routes/dual-stack",
            ["ROUTE-2", "ROUTE-5"],
            "an IPv4 and an IPv6 route to one Node stand beside each other, where the cloud has IPv6",
            [Need::Routes],
            dual_stack
        ),
        check!(
            "routes/several-nodes",
            ["ROUTE-2"],
            "routes to several Nodes lead to their own",
            [Need::Routes],
            several_nodes
        ),
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
            "when its instance is removed a route is a blackhole, or gone with it; it never seems to lead somewhere",
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
            "while the cloud throttles no route is done: `failed` with THROTTLED",
            [Need::Routes, FAIL],
            throttled
        ),
        check!(
            "routes/make-refused-credentials",
            ["ROUTE-2", "CORE-15"],
            "while the cloud refuses the credentials no route is done: `failed` with CREDENTIALS",
            [Need::Routes, FAIL],
            credentials
        ),
        check!(
            "routes/make-unavailable",
            ["ROUTE-2", "CORE-15"],
            "while the cloud is down no route is done: `failed` with UNAVAILABLE",
            [Need::Routes, FAIL],
            unavailable
        ),
        check!(
            "routes/list-is-whole",
            ["ROUTE-1", "ROUTE-5", "CORE-16"],
            "the listing ends with the right total; each route has a name, a destination, an owner, and a target or is a blackhole",
            [Need::Routes],
            whole
        ),
        check!(
            "routes/list-fails-throttled",
            ["ROUTE-1", "CORE-15"],
            "while the cloud throttles, the listing is `failed` with THROTTLED",
            [Need::Routes, FAIL],
            list_throttled
        ),
        check!(
            "routes/list-fails-with-credentials",
            ["ROUTE-1", "CORE-15"],
            "while the cloud refuses the credentials, the listing is `failed` with CREDENTIALS",
            [Need::Routes, FAIL],
            list_credentials
        ),
        check!(
            "routes/list-fails-unavailable",
            ["ROUTE-1", "CORE-15"],
            "while the cloud is down, the listing is `failed` with UNAVAILABLE",
            [Need::Routes, FAIL],
            list_unavailable
        ),
        check!(
            "routes/list-read-slowly",
            ["ROUTE-1", "CORE-16"],
            "a consumer that reads slowly gets all of it",
            [Need::Routes],
            slowly
        ),
        check!(
            "routes/list-cut-off",
            ["CORE-6", "CORE-16"],
            "listings that are cut off anywhere harm nothing",
            [Need::Routes],
            list_cut_off
        ),
        check!(
            "routes/list-at-once",
            ["CORE-6", "ROUTE-1"],
            "several listings at once are all complete",
            [Need::Routes],
            at_once
        ),
        check!(
            "routes/list-writes-nothing",
            ["ROUTE-6"],
            "listing writes nothing to the cloud",
            [Need::Routes, Need::Hook(Hook::CloudWrites)],
            list_writes_nothing
        ),
        check!(
            "routes/unknown-fields",
            ["CORE-13"],
            "fields of a minor to come are ignored",
            [Need::Routes],
            unknown_fields
        ),
    ]
}

async fn made_is_listed(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let wanted = wanted(run, &known);
    let route = made(&session, &wanted).await?;
    must_be(
        &route,
        Ownership::Ours,
        "ROUTE-3",
        "to the owner that made it",
    )?;
    must(
        leads_to(&route, &known) && !route.blackhole,
        "ROUTE-5",
        "ListRoutes",
        format_args!("a route to {:?}, no blackhole", known.provider_id),
        format_args!("{route:?}"),
    )?;
    removed(&session, &route).await
}

async fn made_again(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let wanted = wanted(run, &known);
    let first = made(&session, &wanted).await?;
    for _ in 0..3 {
        let again = made(&session, &wanted).await?;
        must(
            again.name == first.name && leads_to(&again, &known),
            "ROUTE-2",
            "CreateRoutes of a route that is as asked, then ListRoutes",
            format_args!("{first:?}"),
            format_args!("{again:?}"),
        )?;
    }
    removed(&session, &first).await
}

async fn removed_is_gone(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let kept = made(&session, &wanted(run, &known)).await?;
    let route = made(&session, &wanted(run, &known)).await?;
    removed(&session, &route).await?;
    none(&session, &route.destination_cidr, "ROUTE-4").await?;
    only(&session, &kept.destination_cidr, "ROUTE-4").await?;
    removed(&session, &kept).await
}

async fn removed_again(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let route = made(&session, &wanted(run, &known)).await?;
    for _ in 0..3 {
        removed(&session, &route).await?;
        none(&session, &route.destination_cidr, "ROUTE-4").await?;
    }
    Ok(())
}

async fn never_made(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let route = pb::Route {
        name: run.name("never-made"),
        ..wanted(run, &known)
    };
    removed(&session, &route).await
}

async fn made_after_removal(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let wanted = wanted(run, &known);
    for _ in 0..3 {
        let route = made(&session, &wanted).await?;
        removed(&session, &route).await?;
        none(&session, &wanted.destination_cidr, "ROUTE-4").await?;
    }
    Ok(())
}

/// Makes a route that this cloud may not be able to make: done, or one of these failures. Answers it where it is there.
async fn made_or_refused(session: &Session, wanted: &pb::Route) -> Verdict<Option<pb::Route>> {
    let written = create(session, vec![wanted.clone()]).await?;
    if written.done(0, "ROUTE-2").is_ok() {
        return only(session, &wanted.destination_cidr, "ROUTE-2")
            .await
            .map(Some);
    }
    written.failed(
        0,
        "CORE-15",
        &[FailureCode::Invalid, FailureCode::Precondition],
    )?;
    none(session, &wanted.destination_cidr, "ROUTE-2").await?;
    Ok(None)
}

async fn by_node_name(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::named(run, &session).await?;
    let wanted = pb::Route {
        provider_id: None,
        ..wanted(run, &known)
    };
    if let Some(route) = made_or_refused(&session, &wanted).await? {
        let right = leads_to(&route, &known) && !route.blackhole;
        let expected = format!("a route to {known:?}");
        must(
            right,
            "ROUTE-5",
            "ListRoutes",
            expected,
            format_args!("{route:?}"),
        )?;
        removed(&session, &route).await?;
    }
    Ok(())
}

async fn node_addresses(run: &Run) -> Verdict {
    let session = run.session().await?;
    let tracks = run
        .capabilities()
        .routes
        .is_some_and(|of| of.tracks_node_addresses);
    let known = target(run, &session).await?;
    let address = |address: &str| pb::NodeAddress {
        r#type: pb::NodeAddressType::InternalIp.into(),
        address: address.into(),
    };
    let mut wanted = wanted(run, &known);
    for addresses in [
        vec![address("192.0.2.10")],
        vec![address("192.0.2.11"), address("2001:db8::11")],
    ] {
        wanted.node_addresses = addresses;
        let route = made(&session, &wanted).await?;
        must(
            !tracks || route.node_addresses == wanted.node_addresses,
            "ROUTE-2",
            format_args!(
                "CreateRoutes with {:?}, then ListRoutes",
                wanted.node_addresses
            ),
            "these addresses: tracks_node_addresses is stated",
            format_args!("{route:?}"),
        )?;
        if !tracks {
            return removed(&session, &route).await;
        }
        removed(&session, &route).await?;
    }
    Ok(())
}

async fn dual_stack(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let four = wanted(run, &known);
    let six = wanted_to(&run.cidr6(), &known);
    let written = create(&session, vec![four.clone(), six.clone()]).await?;
    written.done(0, "ROUTE-2")?;
    if written.done(1, "ROUTE-2").is_err() {
        written.failed(
            1,
            "CORE-15",
            &[FailureCode::Invalid, FailureCode::Precondition],
        )?;
        let route = only(&session, &four.destination_cidr, "ROUTE-2").await?;
        return removed(&session, &route).await;
    }
    let mut routes = Vec::new();
    for cidr in [&four.destination_cidr, &six.destination_cidr] {
        let route = only(&session, cidr, "ROUTE-2").await?;
        let right = leads_to(&route, &known);
        must(
            right,
            "ROUTE-5",
            "ListRoutes",
            format_args!("{cidr} leads to {known:?}"),
            format_args!("{route:?}"),
        )?;
        routes.push(route);
    }
    removed(&session, &routes[0]).await?;
    only(&session, &six.destination_cidr, "ROUTE-4").await?;
    removed(&session, &routes[1]).await
}

async fn several_nodes(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::some(run, &session, 2).await?;
    let wanted: Vec<_> = known.iter().map(|known| wanted(run, known)).collect();
    create(&session, wanted.clone())
        .await?
        .all_done("ROUTE-2")?;
    let mut routes = Vec::new();
    for (wanted, known) in wanted.iter().zip(&known) {
        let route = only(&session, &wanted.destination_cidr, "ROUTE-2").await?;
        let came = format!("{route:?}");
        must(
            leads_to(&route, known),
            "ROUTE-5",
            "ListRoutes",
            format_args!("a route to {known:?}"),
            came,
        )?;
        routes.push(as_listed(&route));
    }
    delete(&session, routes).await?.all_done("ROUTE-4")
}

async fn blackhole_of(run: &Run, session: &Session) -> Verdict<pb::Route> {
    let cidr = run.cidr();
    run.blackhole_route(&run.name("blackhole"), &cidr).await?;
    let route = only(session, &cidr, "ROUTE-1").await?;
    must_be(
        &route,
        Ownership::Ours,
        "ROUTE-5",
        "to the owner that it is marked for",
    )?;
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
    // A provider may keep to the delay that the cloud asked for.
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

/// Every route is `failed` with this code, or the whole call is.
async fn refused_with<R>(session: &Session, request: R, code: FailureCode) -> Verdict
where
    R: super::super::call::Rpc,
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
    let expected = format!(
        "failed with {}: that is what the cloud said",
        short_code(code)
    );
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

async fn throttled(run: &Run) -> Verdict {
    refused(run, FailureCode::Throttled).await
}

async fn credentials(run: &Run) -> Verdict {
    refused(run, FailureCode::Credentials).await
}

async fn unavailable(run: &Run) -> Verdict {
    refused(run, FailureCode::Unavailable).await
}

async fn whole(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    // One is there at least, and goes with the check.
    made(&session, &wanted(run, &known)).await?;
    list(&session).await?;
    Ok(())
}

async fn list_throttled(run: &Run) -> Verdict {
    fails_whole(
        run,
        pb::ListRoutesRequest::default(),
        "ROUTE-1",
        FailureCode::Throttled,
    )
    .await
}

async fn list_credentials(run: &Run) -> Verdict {
    fails_whole(
        run,
        pb::ListRoutesRequest::default(),
        "ROUTE-1",
        FailureCode::Credentials,
    )
    .await
}

async fn list_unavailable(run: &Run) -> Verdict {
    fails_whole(
        run,
        pb::ListRoutesRequest::default(),
        "ROUTE-1",
        FailureCode::Unavailable,
    )
    .await
}

async fn slowly(run: &Run) -> Verdict {
    read_slowly(
        run,
        pb::ListRoutesRequest::default(),
        Duration::from_millis(100),
    )
    .await
}

async fn list_cut_off(run: &Run) -> Verdict {
    cut_off_anywhere(run, pb::ListRoutesRequest::default()).await
}

async fn at_once(run: &Run) -> Verdict {
    many_at_once(run, pb::ListRoutesRequest::default(), 4).await?;
    listings::another_owner(run, pb::ListRoutesRequest::default()).await
}

async fn list_writes_nothing(run: &Run) -> Verdict {
    let session = run.session().await?;
    let before = run.cloud_writes().await?;
    list(&session).await?;
    list(&session).await?;
    let after = run.cloud_writes().await?;
    let expected = format!("{before} writes to the cloud, as before");
    must(
        after == before,
        "ROUTE-6",
        "ListRoutes, twice",
        expected,
        after,
    )
}

async fn unknown_fields(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    // Of a route that never was: nothing is made, nothing is removed.
    let route = pb::Route {
        name: run.name("never-made"),
        ..wanted(run, &known)
    };
    let request = pb::DeleteRoutesRequest {
        cluster: None,
        routes: vec![route],
    };
    let exchange = call_with_unknown_fields(&session, request).await;
    let results = exchange.success("CORE-13")?.results.len();
    exchange.must(
        results == 1,
        "CORE-13",
        "the same as without them: one result",
    )
}
