//! Several routes at once (ROUTE-2, ROUTE-13).

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::super::check::{Check, Need, Verdict, check, must};
use super::super::instances::ask::id_of_none;
use super::super::run::{Run, beyond_batch, holds_two};
use super::super::session::Session;
use super::ask::{
    Written, as_listed, by_key, create, delete, leads_to, list, list_to, made, max_batch, none,
    only, removed, target, two, wanted, wanted_to,
};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "routes/each-key-once",
            ["ROUTE-2"],
            "every route of a batch has exactly one result, by its key, whatever the keys are",
            [Need::Routes],
            keys
        ),
        check!(
            "routes/keys-are-not-stored",
            ["ROUTE-2"],
            "another call may use the same keys for other routes",
            [Need::Routes],
            keys_again
        ),
        check!(
            "routes/empty-batch",
            ["ROUTE-2", "CORE-4"],
            "a request without routes gets no results",
            [Need::Routes],
            empty
        ),
        check!(
            "routes/full-batch",
            ["ROUTE-2"],
            "max_batch routes, but at most 100, are made in one call, listed, and removed in one call",
            [Need::Routes],
            full
        ),
        check!(
            "routes/beyond-max-batch",
            ["ROUTE-13", "CORE-4", "CORE-11"],
            "DeleteRoutes with more routes than max_batch is `failed` with INVALID as a whole",
            [Need::Routes],
            beyond
        ),
        check!(
            "routes/same-key-twice",
            ["ROUTE-13", "CORE-4"],
            "a request that has one route_key twice is `failed` with INVALID as a whole, and nothing is made or removed",
            [Need::Routes],
            same_key
        ),
        check!(
            "routes/same-destination-twice",
            ["ROUTE-2", "CORE-6"],
            "for a destination that is sent twice the provider makes one route",
            [Need::Routes],
            same_destination
        ),
        check!(
            "routes/same-destination-to-two",
            ["ROUTE-13", "ROUTE-9"],
            "a destination that is sent twice with differing targets leads to one of them, and the other is CONFLICT",
            [Need::Routes],
            same_destination_to_two
        ),
        check!(
            "routes/one-bad-route-fails-alone",
            ["ROUTE-2", "CORE-15"],
            "a destination that is no CIDR is `failed` with INVALID, and its neighbours are made",
            [Need::Routes],
            bad_destination
        ),
        check!(
            "routes/unknown-target-fails-alone",
            ["ROUTE-2"],
            "a target that the cloud does not know does not fail its neighbours",
            [Need::Routes],
            unknown_target
        ),
        check!(
            "routes/no-target-fails-alone",
            ["ROUTE-2", "CORE-15"],
            "a route without a target is refused, and its neighbours are made",
            [Need::Routes],
            no_target
        ),
        check!(
            "routes/5000-at-once",
            ["CORE-11", "CORE-4"],
            "the provider reads a request to remove 5,000 routes that never existed, and may answer INVALID",
            [Need::Routes],
            many
        ),
    ]
}

fn keyed(key: &str, route: pb::Route) -> pb::Route {
    pb::Route {
        route_key: key.into(),
        ..route
    }
}

async fn remove_all(session: &Session, routes: &[pb::Route]) -> Verdict {
    let listed = list(session).await?;
    let ours = listed.iter().filter(|listed| {
        routes
            .iter()
            .any(|route| route.destination_cidr == listed.destination_cidr)
    });
    delete(session, ours.map(as_listed).collect())
        .await?
        .all_done("ROUTE-4")
}

async fn keys(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let names = [
        "plain",
        "with space and / slash",
        "schlüssel-路由",
        &"k".repeat(253),
        "",
    ];
    let mut routes: Vec<_> = names
        .iter()
        .map(|key| keyed(key, wanted(run, &known)))
        .collect();
    routes.truncate(max_batch(run));
    create(&session, routes.clone())
        .await?
        .all_done("ROUTE-2")?;
    routes.reverse();
    create(&session, routes.clone())
        .await?
        .all_done("ROUTE-2")?;
    for route in &routes {
        only(&session, &route.destination_cidr, "ROUTE-2").await?;
    }
    remove_all(&session, &routes).await
}

async fn keys_again(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let routes: Vec<_> = (0..3)
        .map(|_| keyed("the-key", wanted(run, &known)))
        .collect();
    for route in &routes {
        create(&session, vec![route.clone()])
            .await?
            .all_done("ROUTE-2")?;
    }
    for route in &routes {
        let route = only(&session, &route.destination_cidr, "ROUTE-2").await?;
        must(
            route.route_key.is_empty(),
            "ROUTE-2",
            "ListRoutes",
            "no route_key: it names a route of one request",
            format_args!("{route:?}"),
        )?;
        removed(&session, &route).await?;
    }
    Ok(())
}

async fn empty(run: &Run) -> Verdict {
    let session = run.session().await?;
    create(&session, Vec::new()).await?;
    delete(&session, Vec::new()).await?;
    Ok(())
}

async fn full(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    // At most 100, because the network of a cloud may have room for only a few hundred routes.
    let count = max_batch(run).min(100);
    let routes: Vec<_> = (0..count).map(|_| wanted(run, &known)).collect();
    create(&session, routes.clone())
        .await?
        .all_done("ROUTE-2")?;
    let listed = list(&session).await?;
    for route in &routes {
        let there: Vec<_> = listed
            .iter()
            .filter(|listed| listed.destination_cidr == route.destination_cidr)
            .collect();
        let right = there.len() == 1 && leads_to(there[0], &known);
        let expected = format!("one route to {}", route.destination_cidr);
        must(
            right,
            "ROUTE-2",
            "ListRoutes after CreateRoutes of a full batch",
            expected,
            format_args!("{there:?}"),
        )?;
    }
    remove_all(&session, &routes).await?;
    let left = list(&session).await?;
    let left = left.iter().find(|listed| {
        routes
            .iter()
            .any(|route| route.destination_cidr == listed.destination_cidr)
    });
    must(
        left.is_none(),
        "ROUTE-4",
        "ListRoutes after DeleteRoutes of a full batch",
        "none of its routes",
        format_args!("{left:?}"),
    )
}

/// A DeleteRoutes: INVALID as a whole if it has more than max_batch routes, else `done`.
async fn too_many(run: &Run, session: &Session, routes: Vec<pb::Route>) -> Verdict {
    let request = pb::DeleteRoutesRequest {
        cluster: None,
        routes: routes.clone(),
    };
    let exchange = session.call(request).await;
    if routes.len() > max_batch(run) {
        exchange.failure("ROUTE-13", &[FailureCode::Invalid])?;
        return Ok(());
    }
    let results = &exchange.success("ROUTE-2")?.results;
    by_key(&exchange, &routes, results)?.all_done("ROUTE-4")
}

fn never_made(run: &Run, cidr: &str, number: usize) -> pb::Route {
    pb::Route {
        route_key: number.to_string(),
        name: format!("{}-{number}", run.shared.ledger.run_id()),
        destination_cidr: cidr.into(),
        ..Default::default()
    }
}

async fn beyond(run: &Run) -> Verdict {
    let session = run.session().await?;
    let cidr = run.cidr();
    let count = beyond_batch(max_batch(run))?;
    let routes = (0..count).map(|number| never_made(run, &cidr, number));
    too_many(run, &session, routes.collect()).await
}

async fn many(run: &Run) -> Verdict {
    let session = run.session().await?;
    let cidr = run.cidr();
    let routes = (0..5_000).map(|number| never_made(run, &cidr, number));
    too_many(run, &session, routes.collect()).await
}

async fn same_key(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    holds_two(max_batch(run))?;
    let routes: Vec<_> = (0..2)
        .map(|_| keyed("twice", wanted(run, &known)))
        .collect();
    let request = pb::CreateRoutesRequest {
        cluster: None,
        routes: routes.clone(),
    };
    let exchange = session.call(request).await;
    exchange.failure("ROUTE-13", &[FailureCode::Invalid])?;
    for route in &routes {
        none(&session, &route.destination_cidr, "ROUTE-13").await?;
    }
    let stands = made(&session, &wanted(run, &known)).await?;
    let twice = keyed("twice", as_listed(&stands));
    let request = pb::DeleteRoutesRequest {
        cluster: None,
        routes: vec![twice.clone(), twice],
    };
    let exchange = session.call(request).await;
    exchange.failure("ROUTE-13", &[FailureCode::Invalid])?;
    only(&session, &stands.destination_cidr, "ROUTE-13").await?;
    removed(&session, &stands).await
}

async fn same_destination(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    holds_two(max_batch(run))?;
    let route = wanted(run, &known);
    let twice = vec![keyed("one", route.clone()), keyed("two", route.clone())];
    let request = pb::CreateRoutesRequest {
        cluster: None,
        routes: twice.clone(),
    };
    let exchange = session.call(request).await;
    let results = &exchange.success("ROUTE-13")?.results;
    let written = by_key(&exchange, &twice, results)?;
    if written.done(0, "ROUTE-2").is_err() {
        written.done(1, "ROUTE-2")?;
    }
    let route = only(&session, &route.destination_cidr, "ROUTE-2").await?;
    removed(&session, &route).await
}

async fn same_destination_to_two(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = two(run, &session).await?;
    holds_two(max_batch(run))?;
    let cidr = run.cidr();
    let routes: Vec<_> = ["one", "two"]
        .into_iter()
        .zip(&known)
        .map(|(key, known)| keyed(key, wanted_to(&cidr, known)))
        .collect();
    let written = create(&session, routes).await?;
    let (made, refused) = match written.done(0, "ROUTE-13") {
        Ok(()) => (0, 1),
        Err(_) => (1, 0),
    };
    written.done(made, "ROUTE-13")?;
    written.failed(refused, "ROUTE-13", &[FailureCode::Conflict])?;
    let route = only(&session, &cidr, "ROUTE-13").await?;
    must(
        leads_to(&route, &known[made]),
        "ROUTE-13",
        "ListRoutes after a CreateRoutes of two routes to one destination",
        format_args!("the route that was `done`, to {}", known[made].name),
        format_args!("{route:?}"),
    )?;
    removed(&session, &route).await
}

/// An invalid route between two valid ones, or alone if `max_batch` is below 3. The provider must
/// create the valid ones nevertheless. Returns the result of the invalid one.
async fn between_good_ones(run: &Run, session: &Session, bad: pb::Route) -> Verdict<Written> {
    let known = target(run, session).await?;
    let good = [wanted(run, &known), wanted(run, &known)];
    let mut routes = vec![good[0].clone(), keyed("the bad one", bad), good[1].clone()];
    if max_batch(run) < 3 {
        routes = vec![routes[1].clone()];
    }
    let together = routes.len() == 3;
    let mut written = create(session, routes).await?;
    if together {
        written.done(0, "ROUTE-2")?;
        written.done(2, "ROUTE-2")?;
        for route in &good {
            let route = only(session, &route.destination_cidr, "ROUTE-2").await?;
            removed(session, &route).await?;
        }
        written.outcomes = vec![written.outcomes[1].clone()];
    }
    Ok(written)
}

async fn bad_destination(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    for bad in [
        "",
        "no-cidr",
        "100.64.1.1",
        "100.64.1.0/33",
        "100.64.256.0/24",
        "fd00::/129",
        "100.64.1.0/-1",
    ] {
        run.shared.ledger.issue_cidr(bad);
        let bad = pb::Route {
            destination_cidr: bad.into(),
            ..wanted(run, &known)
        };
        let written = between_good_ones(run, &session, bad).await?;
        written.failed(0, "CORE-15", &[FailureCode::Invalid])?;
    }
    Ok(())
}

async fn unknown_target(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let route = pb::Route {
        node_name: Some(run.name("nobody")),
        provider_id: Some(id_of_none(run)),
        ..wanted(run, &known)
    };
    let cidr = route.destination_cidr.clone();
    let written = between_good_ones(run, &session, route).await?;
    // A cloud that does not check the target may have created a blackhole.
    let routes = list_to(&session, &cidr).await?;
    if written.done(0, "ROUTE-2").is_err() {
        let codes = [FailureCode::Precondition, FailureCode::Invalid];
        written.failed(0, "CORE-15", &codes)?;
        return must(
            routes.is_empty(),
            "ROUTE-2",
            "CreateRoutes that `failed`, then ListRoutes",
            "no route",
            format_args!("{routes:?}"),
        );
    }
    for route in routes {
        removed(&session, &route).await?;
    }
    Ok(())
}

async fn no_target(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let route = pb::Route {
        node_name: None,
        provider_id: None,
        ..wanted(run, &known)
    };
    let cidr = route.destination_cidr.clone();
    let written = between_good_ones(run, &session, route).await?;
    written.failed(
        0,
        "CORE-15",
        &[FailureCode::Invalid, FailureCode::Precondition],
    )?;
    none(&session, &cidr, "ROUTE-2").await
}
