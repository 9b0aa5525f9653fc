//! Owners of routes: other owners, former owners, and routes without a mark (CORE-10, CORE-14).

use cloud_provider_api::v1alpha1::{self as pb, FailureCode, Ownership};

use super::super::check::{Check, Need, Verdict, check, must, must_equal};
use super::super::hooks::Hook;
use super::super::instances::ask::Known;
use super::super::run::Run;
use super::super::session::Session;
use super::ask::{
    as_listed, by_key, create, delete, list_to, made, must_be, must_be_our_own, none, only,
    removed, target, two, wanted, wanted_to,
};

const UNMARKED: Need = Need::Hook(Hook::RouteUnmarked);

pub(super) fn checks() -> Vec<Check> {
    CHECKS.to_vec()
}

const CHECKS: &[Check] = &[
    check!(
        "routes/foreign-is-listed-as-foreign",
        ["ROUTE-1", "ROUTE-5", "CORE-14"],
        "another cluster's route is listed, as FOREIGN",
        [Need::Routes, Need::RouteMarks],
        foreign_listed
    ),
    check!(
        "routes/foreign-is-not-removed",
        ["ROUTE-4"],
        "removing another cluster's route is CONFLICT, and the route still exists",
        [Need::Routes, Need::RouteMarks],
        foreign_kept
    ),
    check!(
        "routes/foreign-in-a-batch",
        ["ROUTE-2", "ROUTE-4"],
        "another cluster's route in a batch is CONFLICT alone; ours beside it is removed",
        [Need::Routes, Need::RouteMarks],
        foreign_in_batch
    ),
    check!(
        "routes/foreign-destination-is-not-taken",
        ["ROUTE-4", "CORE-15"],
        "CreateRoutes to the destination of another cluster's route leaves that route alone",
        [Need::Routes, Need::RouteMarks],
        foreign_destination
    ),
    check!(
        "routes/previous-owner-is-ours",
        ["ROUTE-7"],
        "a route of a previous owner ID is OURS",
        [Need::Routes],
        previous_is_ours
    ),
    check!(
        "routes/previous-owner-can-be-removed",
        ["ROUTE-7", "ROUTE-4"],
        "a route of a previous owner ID can be removed",
        [Need::Routes],
        previous_removed
    ),
    check!(
        "routes/previous-owner-made-again",
        ["ROUTE-7", "ROUTE-2"],
        "making a route that exists under a previous owner ID is done, and makes no second one",
        [Need::Routes],
        previous_again
    ),
    check!(
        "routes/former-owner-unsaid-is-foreign",
        ["ROUTE-7", "ROUTE-4"],
        "a route of an owner ID that Initialize no longer names as a previous one is FOREIGN again",
        [Need::Routes, Need::RouteMarks],
        previous_unsaid
    ),
    check!(
        "routes/unmarked-is-listed",
        ["ROUTE-1", "ROUTE-5", "ROUTE-12"],
        "a route without a mark is listed, as UNMARKED",
        [Need::Routes, UNMARKED],
        unmarked_listed
    ),
    check!(
        "routes/unmarked-target-is-not-replaced",
        ["ROUTE-9"],
        "CreateRoutes to the destination and target of an unmarked route is done; that route stays as it is, alone and UNMARKED",
        [Need::Routes, UNMARKED],
        unmarked_destination
    ),
    check!(
        "routes/unmarked-elsewhere-is-not-turned",
        ["ROUTE-9"],
        "CreateRoutes to the destination of an unmarked route with another target is CONFLICT; that route stays as it is",
        [Need::Routes, UNMARKED],
        unmarked_elsewhere
    ),
    check!(
        "routes/unmarked-is-removed",
        ["ROUTE-9"],
        "DeleteRoutes removes an unmarked route",
        [Need::Routes, UNMARKED],
        unmarked_removed
    ),
    check!(
        "routes/gateway-is-listed",
        ["ROUTE-11", "ROUTE-9"],
        "a route to a target that is no Node is listed without a target and is no blackhole; the provider makes no route beside it",
        [Need::Routes, Need::Hook(Hook::RouteGateway)],
        gateway
    ),
    check!(
        "routes/another-owner",
        ["CORE-10"],
        "calls for an owner that was not initialised are NOT_INITIALIZED and make no route",
        [Need::Routes],
        another_owner
    ),
    check!(
        "routes/before-initialize",
        ["CORE-10"],
        "a new process answers NOT_INITIALIZED, and the routes of its former process still exist",
        [Need::Routes, Need::Command],
        before_initialize
    ),
];

async fn foreign_listed(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let route = made(&session, &wanted(run, &known)).await?;
    let other = run.session_for(run.other_cluster("b"), &[]).await?;
    let seen = only(&other, &route.destination_cidr, "ROUTE-1").await?;
    must_be(
        &seen,
        Ownership::Foreign,
        "ROUTE-5",
        "to another owner than the one that made it",
    )?;
    let session = run.session().await?;
    removed(&session, &route).await
}

async fn foreign_kept(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let route = made(&session, &wanted(run, &known)).await?;
    let other = run.session_for(run.other_cluster("b"), &[]).await?;
    let foreign = only(&other, &route.destination_cidr, "ROUTE-1").await?;
    for _ in 0..2 {
        let written = delete(&other, vec![as_listed(&foreign)]).await?;
        written.failed(0, "ROUTE-4", &[FailureCode::Conflict])?;
        only(&other, &route.destination_cidr, "ROUTE-4").await?;
    }
    // The route also stays if the request calls it ours, or lacks its name.
    for disguised in [
        pb::Route {
            ownership: Ownership::Ours.into(),
            ..as_listed(&foreign)
        },
        pb::Route {
            name: String::new(),
            ..as_listed(&foreign)
        },
    ] {
        delete(&other, vec![disguised]).await?;
        only(&other, &route.destination_cidr, "ROUTE-4").await?;
    }
    let session = run.session().await?;
    let seen = only(&session, &route.destination_cidr, "ROUTE-4").await?;
    must_be(
        &seen,
        Ownership::Ours,
        "ROUTE-4",
        "to the owner that made it",
    )?;
    removed(&session, &seen).await
}

async fn foreign_in_batch(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let theirs = made(&session, &wanted(run, &known)).await?;
    let other = run.session_for(run.other_cluster("b"), &[]).await?;
    let ours = made(&other, &wanted(run, &known)).await?;
    let theirs = only(&other, &theirs.destination_cidr, "ROUTE-1").await?;
    let mut batch = vec![as_listed(&theirs), as_listed(&ours)];
    if super::ask::max_batch(run) < 2 {
        batch.truncate(1);
        removed(&other, &ours).await?;
    }
    let both = batch.len() == 2;
    let written = delete(&other, batch).await?;
    written.failed(0, "ROUTE-4", &[FailureCode::Conflict])?;
    if both {
        written.done(1, "ROUTE-2")?;
    }
    none(&other, &ours.destination_cidr, "ROUTE-2").await?;
    only(&other, &theirs.destination_cidr, "ROUTE-4").await?;
    let session = run.session().await?;
    removed(&session, &theirs).await
}

async fn foreign_destination(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let wanted = wanted(run, &known);
    let route = made(&session, &wanted).await?;
    let other = run.session_for(run.other_cluster("b"), &[]).await?;
    let written = create(&other, vec![wanted.clone()]).await?;
    let taken = written.done(0, "CORE-15").is_ok();
    if !taken {
        written.failed(0, "CORE-15", &[FailureCode::Conflict])?;
    }
    // Some networks allow several routes to one destination. There, both owners' routes exist.
    for seen in list_to(&other, &wanted.destination_cidr).await? {
        if seen.ownership() == Ownership::Ours {
            removed(&other, &seen).await?;
        }
    }
    let session = run.session().await?;
    let seen = only(&session, &wanted.destination_cidr, "ROUTE-4").await?;
    let came = format!("{seen:?}");
    let same = seen.name == route.name && seen.ownership() == Ownership::Ours;
    must(
        same,
        "ROUTE-4",
        "CreateRoutes by another owner to the same destination, then ListRoutes",
        format_args!("{route:?}"),
        came,
    )?;
    removed(&session, &seen).await
}

/// A route of the owner ID `a`, from the view of a cluster with the owner ID `b` and the previous
/// one `a`.
async fn inherited(run: &Run) -> Verdict<(Session, pb::Route, pb::Route)> {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let wanted = wanted(run, &known);
    made(&session, &wanted).await?;
    let before = run.cluster().owner_id;
    let session = run
        .session_for(run.other_cluster("b"), &[&before, "somebody-else"])
        .await?;
    let route = only(&session, &wanted.destination_cidr, "ROUTE-1").await?;
    must_be_our_own(
        run,
        &route,
        "ROUTE-7",
        "to an owner whose previous owner ID made it",
    )?;
    Ok((session, wanted, route))
}

async fn previous_is_ours(run: &Run) -> Verdict {
    let (session, _, route) = inherited(run).await?;
    removed(&session, &route).await
}

async fn previous_removed(run: &Run) -> Verdict {
    let (session, _, route) = inherited(run).await?;
    removed(&session, &route).await?;
    none(&session, &route.destination_cidr, "ROUTE-4").await?;
    let session = run.session().await?;
    none(&session, &route.destination_cidr, "ROUTE-4").await
}

async fn previous_again(run: &Run) -> Verdict {
    let (session, wanted, _) = inherited(run).await?;
    let route = made(&session, &wanted).await?;
    must_be_our_own(
        run,
        &route,
        "ROUTE-7",
        "after CreateRoutes by the new owner",
    )?;
    removed(&session, &route).await
}

async fn previous_unsaid(run: &Run) -> Verdict {
    let (_, wanted, _) = inherited(run).await?;
    let session = run.session_for(run.other_cluster("b"), &[]).await?;
    let foreign = only(&session, &wanted.destination_cidr, "ROUTE-1").await?;
    must_be(
        &foreign,
        Ownership::Foreign,
        "ROUTE-7",
        "after an Initialize without previous owner IDs",
    )?;
    let written = delete(&session, vec![as_listed(&foreign)]).await?;
    written.failed(0, "ROUTE-4", &[FailureCode::Conflict])?;
    let session = run.session().await?;
    let route = only(&session, &wanted.destination_cidr, "ROUTE-4").await?;
    removed(&session, &route).await
}

async fn unmarked_listed(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let cidr = run.cidr();
    run.unmarked_route(&run.name("unmarked"), &cidr, &known.provider_id)
        .await?;
    let route = only(&session, &cidr, "ROUTE-1").await?;
    must_be(
        &route,
        Ownership::Unmarked,
        "ROUTE-5",
        "after a route without a mark was made",
    )
}

/// Checks that an unmarked route to this destination exists, alone and unchanged.
async fn as_it_was(session: &Session, before: &pb::Route, what: &str) -> Verdict {
    let after = only(session, &before.destination_cidr, "ROUTE-9").await?;
    must_equal(
        &after,
        before,
        "ROUTE-9",
        format_args!("{what}, then ListRoutes"),
    )
}

/// An unmarked route to this instance.
async fn unmarked(run: &Run, session: &Session, known: &Known) -> Verdict<pb::Route> {
    let cidr = run.cidr();
    run.unmarked_route(&run.name("unmarked"), &cidr, &known.provider_id)
        .await?;
    only(session, &cidr, "ROUTE-1").await
}

async fn unmarked_destination(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let before = unmarked(run, &session, &known).await?;
    let asked = wanted_to(&before.destination_cidr, &known);
    let written = create(&session, vec![asked]).await?;
    written.done(0, "ROUTE-9")?;
    as_it_was(
        &session,
        &before,
        "CreateRoutes of an existing unmarked route",
    )
    .await
}

async fn unmarked_elsewhere(run: &Run) -> Verdict {
    let session = run.session().await?;
    let [known, other] = two(run, &session).await?;
    let before = unmarked(run, &session, &other).await?;
    let asked = wanted_to(&before.destination_cidr, &known);
    let written = create(&session, vec![asked]).await?;
    written.failed(0, "ROUTE-9", &[FailureCode::Conflict])?;
    as_it_was(&session, &before, "CreateRoutes that was CONFLICT").await
}

async fn unmarked_removed(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let route = unmarked(run, &session, &known).await?;
    let written = delete(&session, vec![as_listed(&route)]).await?;
    written.done(0, "ROUTE-9")?;
    none(&session, &route.destination_cidr, "ROUTE-9").await
}

async fn gateway(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let cidr = run.cidr();
    run.gateway_route(&run.name("gateway"), &cidr).await?;
    let before = only(&session, &cidr, "ROUTE-11").await?;
    let target = [&before.node_name, &before.provider_id, &before.next_hop];
    must(
        target.iter().all(|part| part.is_none()) && !before.blackhole,
        "ROUTE-11",
        "ListRoutes after a route to a gateway was made",
        "neither a target nor a blackhole",
        format_args!("{before:?}"),
    )?;
    must_be(
        &before,
        Ownership::Unmarked,
        "ROUTE-12",
        "after a route without a mark was made",
    )?;
    let written = create(&session, vec![wanted_to(&cidr, &known)]).await?;
    written.failed(0, "ROUTE-9", &[FailureCode::Conflict])?;
    as_it_was(&session, &before, "CreateRoutes that was CONFLICT").await
}

async fn another_owner(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let stands = made(&session, &wanted(run, &known)).await?;
    let stranger = session.speaking_for(run.other_cluster("stranger"));
    let wanted = wanted(run, &known);
    not_initialized(&stranger, &wanted, &stands).await?;
    none(&session, &wanted.destination_cidr, "CORE-10").await?;
    removed(&session, &stands).await
}

async fn not_initialized(session: &Session, wanted: &pb::Route, stands: &pb::Route) -> Verdict {
    let code = [FailureCode::NotInitialized];
    let routes = vec![wanted.clone()];
    let exchange = session
        .call(pb::CreateRoutesRequest {
            cluster: None,
            routes: routes.clone(),
        })
        .await;
    let answer = exchange.answer()?;
    if answer.failed.is_some() {
        exchange.failure("CORE-10", &code)?;
    } else {
        by_key(&exchange, &routes, &answer.results)?.failed(0, "CORE-10", &code)?;
    }
    let routes = vec![as_listed(stands)];
    let exchange = session
        .call(pb::DeleteRoutesRequest {
            cluster: None,
            routes: routes.clone(),
        })
        .await;
    let answer = exchange.answer()?;
    if answer.failed.is_some() {
        exchange.failure("CORE-10", &code)?;
        return Ok(());
    }
    by_key(&exchange, &routes, &answer.results)?.failed(0, "CORE-10", &code)
}

async fn before_initialize(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let stands = made(&session, &wanted(run, &known)).await?;
    run.target().restart().await?;
    let wanted = wanted(run, &known);
    not_initialized(&run.connect().await?, &wanted, &stands).await?;
    let session = run.session().await?;
    none(&session, &wanted.destination_cidr, "CORE-10").await?;
    let stands = only(&session, &stands.destination_cidr, "CORE-6").await?;
    removed(&session, &stands).await
}
