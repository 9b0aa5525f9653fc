//! Creates, lists and deletes routes, and checks the rules of every answer.

use std::collections::BTreeMap;
use std::net::IpAddr;

use cloud_provider_api::v1alpha1::route_result::Outcome;
use cloud_provider_api::v1alpha1::{self as pb, FailureCode, Ownership};

use super::super::call::{Exchange, short_code};
use super::super::check::{Stop, Verdict, must};
use super::super::config::RouteMarks;
use super::super::instances::ask::Known;
use super::super::run::{Run, batch_size};
use super::super::session::Session;
use super::super::well_formed;

/// The instance that a check's routes lead to.
pub(super) async fn target(run: &Run, session: &Session) -> Verdict<Known> {
    let known = match Known::named(run, session).await {
        Err(Stop::Skipped(_)) => Known::one(run, session).await,
        known => known,
    };
    Ok(known?.with_addresses(run, session).await)
}

pub(super) async fn two(run: &Run, session: &Session) -> Verdict<[Known; 2]> {
    let known = Known::some(run, session, 2).await?;
    let [one, other] =
        <[Known; 2]>::try_from(known).map_err(|_| Stop::not_set_up("it needs two instances"))?;
    Ok([
        one.with_addresses(run, session).await,
        other.with_addresses(run, session).await,
    ])
}

/// A route as the controller requests it, with a new destination.
pub(super) fn wanted(run: &Run, known: &Known) -> pb::Route {
    wanted_to(&run.cidr(), known)
}

/// A route as the controller requests it.
pub(super) fn wanted_to(cidr: &str, known: &Known) -> pb::Route {
    pb::Route {
        route_key: cidr.into(),
        name_hint: known.node().uid,
        destination_cidr: cidr.into(),
        node_name: Some(known.name.clone()),
        provider_id: Some(known.provider_id.clone()),
        node_addresses: known.addresses.clone(),
        ..Default::default()
    }
}

/// A route as the controller deletes it: as listed, with a key.
pub(super) fn as_listed(route: &pb::Route) -> pb::Route {
    pb::Route {
        route_key: format!("{} {}", route.name, route.destination_cidr),
        ..route.clone()
    }
}

/// The most routes in one call.
pub(super) fn max_batch(run: &Run) -> usize {
    batch_size(run.capabilities().routes.and_then(|of| of.max_batch))
}

/// The outcome of each route, in the order of the request.
pub(super) struct Written {
    sent: String,
    pub(super) outcomes: Vec<Outcome>,
}

/// Creates routes. The check fails at a failure of the whole call, a missing or additional result,
/// a result without an outcome (ROUTE-2), or a malformed failure of a route.
pub(super) async fn create(session: &Session, routes: Vec<pb::Route>) -> Verdict<Written> {
    let request = pb::CreateRoutesRequest {
        cluster: None,
        routes: routes.clone(),
    };
    let exchange = session.call(request).await;
    let results = &exchange.success("ROUTE-2")?.results;
    by_key(&exchange, &routes, results)
}

/// Deletes routes, and checks the answer as [`create`] does.
pub(super) async fn delete(session: &Session, routes: Vec<pb::Route>) -> Verdict<Written> {
    let request = pb::DeleteRoutesRequest {
        cluster: None,
        routes: routes.clone(),
    };
    let exchange = session.call(request).await;
    let results = &exchange.success("ROUTE-2")?.results;
    by_key(&exchange, &routes, results)
}

pub(super) fn by_key<T: std::fmt::Debug>(
    exchange: &Exchange<T>,
    routes: &[pb::Route],
    results: &[pb::RouteResult],
) -> Verdict<Written> {
    let broke = |expected: String| Err(exchange.broke("ROUTE-2", expected));
    let mut of_key = BTreeMap::new();
    for result in results {
        if of_key
            .insert(&*result.route_key, result.outcome.as_ref())
            .is_some()
        {
            return broke(format!(
                "one result for the route_key {:?}, not two",
                result.route_key
            ));
        }
    }
    let mut outcomes = Vec::new();
    for route in routes {
        match of_key.remove(&*route.route_key) {
            Some(Some(outcome)) => outcomes.push(outcome.clone()),
            _ => {
                return broke(format!(
                    "a result with an outcome for the route_key {:?}",
                    route.route_key
                ));
            }
        }
    }
    if let Some(key) = of_key.keys().next() {
        return broke(format!(
            "results only for the routes of the request, not for {key:?}"
        ));
    }
    well_formed::judge(
        exchange,
        outcomes.iter().map(|outcome| match outcome {
            Outcome::Failed(failure) => well_formed::failure(failure),
            Outcome::Done(_) => Ok(()),
        }),
    )?;
    Ok(Written {
        sent: exchange.sent(),
        outcomes,
    })
}

impl Written {
    /// Checks that all of them are done.
    pub(super) fn all_done(&self, rule: &str) -> Verdict {
        (0..self.outcomes.len()).try_for_each(|place| self.done(place, rule))
    }

    /// Checks that this one is done.
    pub(super) fn done(&self, place: usize, rule: &str) -> Verdict {
        let outcome = self.outcomes.get(place);
        let done = matches!(outcome, Some(Outcome::Done(_)));
        must(done, rule, &self.sent, "done", format_args!("{outcome:?}"))
    }

    /// Checks that this one failed with one of these codes.
    pub(super) fn failed(&self, place: usize, rule: &str, codes: &[FailureCode]) -> Verdict {
        let outcome = self.outcomes.get(place);
        let failed =
            matches!(outcome, Some(Outcome::Failed(failed)) if codes.contains(&failed.code()));
        let names: Vec<_> = codes.iter().map(|code| short_code(*code)).collect();
        let expected = format!("failed with {}", names.join(" or "));
        must(
            failed,
            rule,
            &self.sent,
            expected,
            format_args!("{outcome:?}"),
        )
    }
}

/// All routes, each well-formed.
pub(super) async fn list(session: &Session) -> Verdict<Vec<pb::Route>> {
    let exchange = session.list(pb::ListRoutesRequest::default()).await;
    let routes = exchange.items()?;
    well_formed::judge(&exchange, routes.iter().map(well_formed::route))?;
    Ok(routes)
}

/// The routes to this destination.
pub(super) async fn list_to(session: &Session, cidr: &str) -> Verdict<Vec<pb::Route>> {
    let mut routes = list(session).await?;
    let cidr = well_formed::network(cidr);
    routes.retain(|route| well_formed::network(&route.destination_cidr) == cidr);
    Ok(routes)
}

/// The only route to this destination, which must exist.
pub(super) async fn only(session: &Session, cidr: &str, rule: &str) -> Verdict<pb::Route> {
    let routes = list_to(session, cidr).await?;
    match <[pb::Route; 1]>::try_from(routes) {
        Ok([route]) => Ok(route),
        Err(routes) => Err(Stop::failed(
            rule,
            "ListRoutes",
            format_args!("one route to {cidr}"),
            format_args!("{}: {routes:?}", routes.len()),
        )),
    }
}

/// Checks that no route has this destination.
pub(super) async fn none(session: &Session, cidr: &str, rule: &str) -> Verdict {
    let routes = list_to(session, cidr).await?;
    let came = format!("{routes:?}");
    must(
        routes.is_empty(),
        rule,
        "ListRoutes",
        format_args!("no route to {cidr}"),
        came,
    )
}

/// Whether the route leads to this instance, according to the listing.
pub(super) fn leads_to(route: &pb::Route, known: &Known) -> bool {
    match (&route.provider_id, &route.node_name) {
        (Some(id), _) => *id == known.provider_id,
        (None, Some(name)) => *name == known.name,
        // The listing does not say whose address a next hop is. If the suite does not know the
        // Node's addresses either, any next hop counts.
        (None, None) => route.next_hop.as_ref().is_some_and(|hop| {
            let hop = hop.parse::<IpAddr>().ok();
            known.addresses.is_empty()
                || (hop.is_some()
                    && known
                        .addresses
                        .iter()
                        .any(|of| of.address.parse().ok() == hop))
        }),
    }
}

/// Creates one route and returns it as listed.
pub(super) async fn made(session: &Session, wanted: &pb::Route) -> Verdict<pb::Route> {
    create(session, vec![wanted.clone()])
        .await?
        .all_done("ROUTE-2")?;
    only(session, &wanted.destination_cidr, "ROUTE-2").await
}

/// Deletes a listed route.
pub(super) async fn removed(session: &Session, route: &pb::Route) -> Verdict {
    delete(session, vec![as_listed(route)])
        .await?
        .all_done("ROUTE-4")
}

/// Fails unless the listed route is OURS, or UNMARKED if the cloud keeps no marks (ROUTE-12).
pub(super) fn must_be_our_own(run: &Run, route: &pb::Route, rule: &str, to_whom: &str) -> Verdict {
    match run.config().route_marks {
        RouteMarks::Kept => must_be(route, Ownership::Ours, rule, to_whom),
        RouteMarks::None => must_be(route, Ownership::Unmarked, "ROUTE-12", to_whom),
    }
}

/// Fails unless the listed route has this ownership.
pub(super) fn must_be(
    route: &pb::Route,
    ownership: Ownership,
    rule: &str,
    to_whom: &str,
) -> Verdict {
    must(
        route.ownership() == ownership,
        rule,
        format_args!("ListRoutes {to_whom}"),
        ownership.as_str_name(),
        format_args!("{route:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_next_hop_is_an_address_of_the_node_if_these_are_known() {
        let leads = |hop: Option<&str>, addresses: &[&str]| {
            let address = |address: &&str| pb::NodeAddress {
                address: (*address).into(),
                ..Default::default()
            };
            let known = Known {
                name: "a".into(),
                provider_id: "x://a".into(),
                addresses: addresses.iter().map(address).collect(),
            };
            let route = pb::Route {
                next_hop: hop.map(Into::into),
                ..Default::default()
            };
            leads_to(&route, &known)
        };
        let addresses = ["a.example", "10.0.0.1", "fd00::1"];
        for (hop, expected) in [
            (Some("10.0.0.1"), true),
            (Some("fd00:0::1"), true),
            (Some("10.0.0.2"), false),
            (Some("a.example"), false),
            (None, false),
        ] {
            assert_eq!(leads(hop, &addresses), expected, "{hop:?}");
        }
        assert!(leads(Some("10.0.0.2"), &[]));
        assert!(!leads(None, &[]));
    }
}
