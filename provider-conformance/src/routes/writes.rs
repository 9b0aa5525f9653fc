//! Routes that are created, listed and deleted, and calls that are repeated (ROUTE-1 to ROUTE-5,
//! ROUTE-8 to ROUTE-10, ROUTE-12).

use cloud_provider_api::v1alpha1::{self as pb, FailureCode, Ownership};

use super::super::check::{Check, Need, Stop, Verdict, check, must, must_equal};
use super::super::hooks::Hook;
use super::super::instances::ask::Known;
use super::super::run::{Run, holds_two};
use super::super::session::Session;
use super::super::unknown::call_with_unknown_fields;
use super::ask::{
    as_listed, create, delete, leads_to, made, max_batch, must_be, must_be_our_own, none, only,
    removed, target, two, wanted, wanted_to,
};

pub(super) fn checks() -> Vec<Check> {
    CHECKS.to_vec()
}

const CHECKS: &[Check] = &[
    check!(
        "routes/create-marks",
        [
            "ROUTE-1", "ROUTE-2", "ROUTE-3", "ROUTE-5", "ROUTE-12", "CORE-14"
        ],
        "a route that was made is listed once, as OURS (UNMARKED if the cloud keeps no marks), with its destination and target",
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
        "the answer to removing a route again is `done`",
        [Need::Routes],
        removed_again
    ),
    check!(
        "routes/delete-of-none",
        ["ROUTE-4"],
        "the answer to removing a route that never existed is `done`",
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
        "routes/living-route-is-not-turned",
        ["ROUTE-9"],
        "CreateRoutes that would lead the destination of our route to another live Node is CONFLICT; our route stays as it is, alone",
        [Need::Routes],
        not_turned
    ),
    check!(
        "routes/blackhole-is-replaced",
        ["ROUTE-9"],
        "CreateRoutes to the destination of a blackhole of ours replaces the blackhole",
        [
            Need::Routes,
            Need::RouteMarks,
            Need::Hook(Hook::RouteBlackhole)
        ],
        blackhole_replaced
    ),
    check!(
        "routes/removed-by-name-and-destination",
        ["ROUTE-8", "ROUTE-4"],
        "a route is removed by its name and its destination: with the name of another, or an unknown name, the answer is `done` and nothing is removed",
        [Need::Routes],
        by_name_and_destination
    ),
    check!(
        "routes/without-a-name-is-not-removed",
        ["ROUTE-10", "ROUTE-2"],
        "in DeleteRoutes a route without a name is `failed` with INVALID and stays, and the provider removes the other route",
        [Need::Routes],
        nameless
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
        ["ROUTE-2", "ROUTE-9"],
        "with tracks_node_addresses a route with other addresses replaces the existing one; without it the provider writes nothing",
        [Need::Routes],
        node_addresses
    ),
    check!(
        "routes/dual-stack",
        ["ROUTE-2", "ROUTE-5"],
        "an IPv4 and an IPv6 route to one Node coexist, if the cloud has IPv6",
        [Need::Routes],
        dual_stack
    ),
    check!(
        "routes/several-nodes",
        ["ROUTE-2"],
        "routes to several Nodes lead each to its own Node",
        [Need::Routes],
        several_nodes
    ),
    check!(
        "routes/unknown-fields",
        ["CORE-13"],
        "the provider ignores fields of a later minor version",
        [Need::Routes],
        unknown_fields
    ),
];

async fn made_is_listed(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let wanted = wanted(run, &known);
    let route = made(&session, &wanted).await?;
    must_be_our_own(run, &route, "ROUTE-3", "to the owner that made it")?;
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

async fn not_turned(run: &Run) -> Verdict {
    let session = run.session().await?;
    let [one, other] = two(run, &session).await?;
    let before = made(&session, &wanted(run, &one)).await?;
    let asked = wanted_to(&before.destination_cidr, &other);
    let written = create(&session, vec![asked]).await?;
    written.failed(0, "ROUTE-9", &[FailureCode::Conflict])?;
    let after = only(&session, &before.destination_cidr, "ROUTE-9").await?;
    must_equal(
        &after,
        &before,
        "ROUTE-9",
        "CreateRoutes that was CONFLICT, then ListRoutes",
    )?;
    removed(&session, &before).await
}

async fn blackhole_replaced(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let cidr = run.cidr();
    run.blackhole_route(&run.name("blackhole"), &cidr).await?;
    let written = create(&session, vec![wanted_to(&cidr, &known)]).await?;
    written.done(0, "ROUTE-9")?;
    let route = only(&session, &cidr, "ROUTE-9").await?;
    must_be(
        &route,
        Ownership::Ours,
        "ROUTE-9",
        "after CreateRoutes where a blackhole led",
    )?;
    must(
        leads_to(&route, &known) && !route.blackhole,
        "ROUTE-9",
        "CreateRoutes where a blackhole of ours led, then ListRoutes",
        format_args!("a route to {:?}, no blackhole", known.provider_id),
        format_args!("{route:?}"),
    )?;
    removed(&session, &route).await
}

async fn by_name_and_destination(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let one = made(&session, &wanted(run, &known)).await?;
    let other = made(&session, &wanted(run, &known)).await?;
    for name in [other.name.clone(), run.name("no-such-route")] {
        let mixed = pb::Route {
            name,
            ..one.clone()
        };
        let written = delete(&session, vec![as_listed(&mixed)]).await?;
        written.done(0, "ROUTE-4")?;
        for route in [&one, &other] {
            only(&session, &route.destination_cidr, "ROUTE-8").await?;
        }
    }
    removed(&session, &one).await?;
    removed(&session, &other).await
}

async fn nameless(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let one = made(&session, &wanted(run, &known)).await?;
    let other = made(&session, &wanted(run, &known)).await?;
    let nameless = pb::Route {
        name: String::new(),
        ..as_listed(&one)
    };
    let mut batch = vec![nameless, as_listed(&other)];
    batch.truncate(max_batch(run));
    let written = delete(&session, batch.clone()).await?;
    written.failed(0, "ROUTE-10", &[FailureCode::Invalid])?;
    only(&session, &one.destination_cidr, "ROUTE-10").await?;
    if batch.len() == 2 {
        written.done(1, "ROUTE-2")?;
    }
    removed(&session, &one).await?;
    removed(&session, &other).await
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

/// Creates a route that this cloud may not support: the answer is `done`, INVALID or PRECONDITION.
/// Returns the route if the provider made it.
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
    let known = Known::named(run, &session)
        .await?
        .with_addresses(run, &session)
        .await;
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
    // A cloud may search these addresses for the one that it routes to.
    let beside_its_own = |more: Vec<pb::NodeAddress>| [known.addresses.clone(), more].concat();
    let mut wanted = wanted(run, &known);
    wanted.node_addresses = beside_its_own(vec![address("192.0.2.10")]);
    made(&session, &wanted).await?;
    let before = writes(run).await?;
    wanted.node_addresses = beside_its_own(vec![address("192.0.2.11"), address("2001:db8::11")]);
    let second = made(&session, &wanted).await?;
    if tracks {
        must_equal(
            &second.node_addresses,
            &wanted.node_addresses,
            "ROUTE-9",
            "CreateRoutes with other node_addresses, then ListRoutes",
        )?;
    } else {
        run.unseen(Stop::not_offered(
            "the provider does not offer Capabilities.routes.tracks_node_addresses",
        ));
        must_equal(
            &writes(run).await?,
            &before,
            "ROUTE-9",
            "writes of the cloud, before and after CreateRoutes with other node_addresses, as tracks_node_addresses is not stated",
        )?;
    }
    removed(&session, &second).await
}

/// How often the cloud was written to, if a hook counts that.
async fn writes(run: &Run) -> Verdict<Option<u64>> {
    if run.has_hook(Hook::CloudWrites) {
        run.cloud_writes().await.map(Some)
    } else {
        Ok(None)
    }
}

async fn dual_stack(run: &Run) -> Verdict {
    holds_two(max_batch(run))?;
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
    let known = two(run, &session).await?;
    let wanted: Vec<_> = known.iter().map(|known| wanted(run, known)).collect();
    for part in wanted.chunks(max_batch(run)) {
        let written = create(&session, part.to_vec()).await?;
        written.all_done("ROUTE-2")?;
    }
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
    for part in routes.chunks(max_batch(run)) {
        let deleted = delete(&session, part.to_vec()).await?;
        deleted.all_done("ROUTE-4")?;
    }
    Ok(())
}

async fn unknown_fields(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    // A route that never existed: nothing is created and nothing is deleted.
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
