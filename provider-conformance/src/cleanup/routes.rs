//! The suite's routes.

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use tonic::Code;

use super::super::call::Answer as _;
use super::super::session::Session;
use super::super::well_formed::network;
use super::Stays;

/// Whether the owner of the session may have made the listed route. If the cloud keeps no marks,
/// every route is UNMARKED (ROUTE-12). Then `unmarked` is set if the destination can decide: nobody
/// else has a route to a destination of this run.
pub(super) fn may_be_ours(route: &pb::Route, unmarked: bool) -> bool {
    match route.ownership() {
        pb::Ownership::Ours => true,
        pb::Ownership::Unmarked => unmarked,
        pb::Ownership::Foreign | pb::Ownership::Unspecified => false,
    }
}

/// Deletes the routes to a destination.
pub(super) async fn remove(
    session: &Session,
    cidr: &str,
    // Whether an unmarked route is of this run. `Some(false)`: nobody knows.
    unmarked: Option<bool>,
    share: Duration,
) -> Result<(), Stays> {
    let listed = session
        .list_within(pb::ListRoutesRequest::default(), share)
        .await;
    let unserved = match &listed.came {
        Ok(listed) => matches!(listed.status, Some((Code::Unimplemented, _))),
        Err(status) => status.code() == Code::Unimplemented,
    };
    if unserved {
        return Ok(());
    }
    let asks = |error: String| Err(Stays::Asks(error, Duration::from_millis(500)));
    let Ok(routes) = listed.items() else {
        return asks(format!("ListRoutes: {:?}", listed.came));
    };
    let cidr = network(cidr);
    let leads_there = |route: &pb::Route| network(&route.destination_cidr) == cidr;
    let is_unmarked = |route: &pb::Route| route.ownership() == pb::Ownership::Unmarked;
    let left =
        unmarked == Some(false) && routes.iter().any(|it| leads_there(it) && is_unmarked(it));
    let ours: Vec<_> = routes
        .into_iter()
        .filter(|route| leads_there(route) && may_be_ours(route, unmarked == Some(true)))
        .enumerate()
        .map(|(number, route)| pb::Route {
            route_key: number.to_string(),
            ..route
        })
        .collect();
    if ours.is_empty() {
        if left {
            let why = "it has no mark, and the suite could not list the routes before the run";
            return Err(Stays::ForGood(why.into()));
        }
        return Ok(());
    }
    let request = pb::DeleteRoutesRequest {
        cluster: None,
        routes: ours,
    };
    let asked = session.call_within(request, share).await;
    if let Ok(answer) = &asked.came
        && answer.failed().is_none()
        && answer
            .results
            .iter()
            .all(|result| matches!(result.outcome, Some(pb::route_result::Outcome::Done(_))))
    {
        return Ok(());
    }
    asks(format!("DeleteRoutes: {:?}", asked.came))
}
