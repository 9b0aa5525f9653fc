//! RouteService.

use api::route_service_client::RouteServiceClient;
use cloud_provider_api::v1alpha1 as api;
use prost::Message;

use super::super::connect::Link;
use super::super::failures::{self, Place};
use super::super::limits::{self, Named};
use super::super::lookup::{IsolatedKeys, Item};
use super::super::{CallError, Session};
use super::listing::{Part, collect};
use super::{Answered, Answers, Items, Rpc};
use crate::core::Fence;

const ROUTES: Items = Items {
    what: "the route",
    stray: "nobody asked for the route",
};

fn client(link: Link) -> RouteServiceClient<Link> {
    RouteServiceClient::with_origin(link, Link::origin())
        .max_decoding_message_size(api::MOST_MESSAGE_BYTES)
}

impl Session {
    /// `RouteCapability.max_batch`, with its default.
    pub(crate) fn max_route_batch(&self) -> usize {
        self.route_capability()
            .and_then(|routes| routes.max_batch)
            .filter(|batch| *batch > 0)
            .map_or(100, |batch| batch as usize)
    }

    /// The provider's RouteCapability. `None`: it offers no routes.
    pub(crate) fn route_capability(&self) -> Option<&api::RouteCapability> {
        self.info.capabilities.as_ref()?.routes.as_ref()
    }

    fn route_rpc(&self, name: &'static str) -> Rpc<'_> {
        Rpc::new(name, &self.limiters.routes, self.deadlines.routes)
    }

    /// All routes of the cluster's network. `Err` if the listing is not complete. Of a route's
    /// content only the ownership is checked. A route with an unknown ownership is reported as a
    /// fault, and is in the result all the same.
    pub(crate) async fn list_routes(&self) -> Result<Vec<api::Route>, CallError> {
        let rpc = Rpc::new("ListRoutes", &self.limiters.routes, self.deadlines.list);
        let request = api::ListRoutesRequest {
            cluster: Some(self.cluster.clone()),
        };
        self.call(rpc, None, request, |link, request| async move {
            use api::list_routes_response::Part as P;
            let stream = client(link).list_routes(request).await?.into_inner();
            let list = collect(rpc.name, stream, |message| match message.part {
                None => Part::Unset,
                Some(P::Failed(failure)) => Part::Failed(failure),
                Some(P::Routes(list)) => Part::Items(list.routes),
                Some(P::End(end)) => Part::End(end),
            })
            .await?;
            let unowned = list
                .iter()
                .find(|route| route.ownership() == api::Ownership::Unspecified);
            // The other routes count. The callers leave this one alone.
            let reported = unowned.map(|route| {
                CallError::fault(format!(
                    "the ownership {} of route {:?} is not known",
                    route.ownership,
                    limits::shown(&route.name)
                ))
            });
            Ok(Answered {
                reported,
                ..Answered::well(list)
            })
        })
        .await
    }

    /// The items in batches for `create_routes` and `delete_routes`: each of at most
    /// `max_route_batch` routes and `max_request_bytes` bytes.
    pub(crate) fn route_batches<I: Item>(
        &self,
        isolated: &IsolatedKeys<I::Key>,
        items: Vec<I>,
        route: impl Fn(&I) -> &api::Route,
    ) -> Vec<Vec<I>> {
        let batches = isolated.batches(items, self.max_route_batch());
        self.fitting(batches, |item| route(item).encoded_len())
    }

    /// CreateRoutes, in one request. The answers are in the order of `routes`. Each is matched by
    /// its `route_key`, which is unique in `routes`. A result that is missing, duplicated or unset
    /// is that route's `Fault`. `Err`: nothing is known of any route.
    pub(crate) async fn create_routes(
        &self,
        fence: &Fence,
        routes: Vec<api::Route>,
    ) -> Answers<()> {
        let (rpc, asked) = (self.route_rpc("CreateRoutes"), keys(&routes));
        let request = api::CreateRoutesRequest {
            cluster: Some(self.cluster.clone()),
            routes,
        };
        self.call_each(rpc, Some(fence), request, |link, request| async move {
            let answer = client(link).create_routes(request).await?.into_inner();
            let items = named(rpc.name, answer.results);
            self.matched(rpc, &ROUTES, &asked, answer.failed, items)
        })
        .await
    }

    /// DeleteRoutes; as `create_routes`.
    pub(crate) async fn delete_routes(
        &self,
        fence: &Fence,
        routes: Vec<api::Route>,
    ) -> Answers<()> {
        let (rpc, asked) = (self.route_rpc("DeleteRoutes"), keys(&routes));
        let request = api::DeleteRoutesRequest {
            cluster: Some(self.cluster.clone()),
            routes,
        };
        self.call_each(rpc, Some(fence), request, |link, request| async move {
            let answer = client(link).delete_routes(request).await?.into_inner();
            let items = named(rpc.name, answer.results);
            self.matched(rpc, &ROUTES, &asked, answer.failed, items)
        })
        .await
    }
}

/// The keys of these routes, as the names of a request. A route has no UID.
fn keys(routes: &[api::Route]) -> Vec<(String, String)> {
    let keys = routes.iter().map(|route| route.route_key.clone());
    keys.map(|key| (key, String::new())).collect()
}

/// The results of an answer, by their keys.
fn named(rpc: &str, results: Vec<api::RouteResult>) -> impl Iterator<Item = Named<()>> {
    use api::route_result::Outcome;
    results.into_iter().map(move |result| Named {
        name: result.route_key,
        uid: String::new(),
        outcome: result.outcome.map(|outcome| match outcome {
            Outcome::Failed(failure) => Err(failures::trouble(rpc, Place::Item, failure)),
            Outcome::Done(_) => Ok(()),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::CallErrorCode;
    use super::super::super::limits::{Matched, match_results};
    use super::super::reported;
    use super::*;

    fn matched(rpc: &str, asked: &[&str], items: Vec<api::RouteResult>) -> Matched<()> {
        let asked = asked.iter().map(|key| ((*key).to_owned(), String::new()));
        match_results(ROUTES.what, &asked.collect::<Vec<_>>(), named(rpc, items))
    }

    fn result(key: &str, outcome: Option<api::route_result::Outcome>) -> api::RouteResult {
        api::RouteResult {
            route_key: key.to_owned(),
            outcome,
        }
    }

    #[test]
    fn b_r2_a_result_that_nobody_asked_for_is_a_fault_of_the_call_and_the_others_stand() {
        use api::route_result::Outcome::{Done, Failed};
        let done = |key: &str| result(key, Some(Done(api::Done {})));
        let read = |items| {
            let Matched { results, strays } = matched("CreateRoutes", &["a", "b"], items);
            let code = reported(&ROUTES, &results, &strays).map(|trouble| trouble.code);
            (results.iter().filter(|it| it.is_ok()).count(), code)
        };
        assert_eq!(read(vec![done("a"), done("b")]), (2, None));
        assert_eq!(read(vec![done("b")]), (1, None), "a fault of its route");
        let stray = vec![done("a"), done("z")];
        assert_eq!(read(stray), (1, Some(CallErrorCode::Fault)));
        // A failure that concerns all calls comes first.
        for (code, expected) in [
            (api::FailureCode::Throttled, CallErrorCode::Throttled),
            (api::FailureCode::Credentials, CallErrorCode::Credentials),
        ] {
            let failure = api::Failure {
                code: code.into(),
                ..api::Failure::default()
            };
            let both = vec![done("z"), result("a", Some(Failed(failure)))];
            assert_eq!(read(both), (0, Some(expected)));
        }
    }

    #[test]
    fn b_r2_results_go_by_key_never_by_position() {
        use api::route_result::Outcome::{Done, Failed};
        let busy = api::Failure {
            code: api::FailureCode::Busy.into(),
            ..api::Failure::default()
        };
        let Matched { results, strays } = matched(
            "DeleteRoutes",
            &["a", "b", "c", "d", "e"],
            vec![
                result("e", Some(Done(api::Done {}))),
                result("z", Some(Done(api::Done {}))),
                result("d", None),
                result("b", Some(Failed(busy))),
                result("c", Some(Done(api::Done {}))),
                result("c", Some(Done(api::Done {}))),
            ],
        );
        let codes: Vec<_> = results
            .iter()
            .map(|result| result.as_ref().map_err(|trouble| trouble.code))
            .collect();
        assert_eq!(
            codes,
            [
                Err(CallErrorCode::Fault),
                Err(CallErrorCode::Busy),
                Err(CallErrorCode::Fault),
                Err(CallErrorCode::Fault),
                Ok(&()),
            ]
        );
        assert_eq!(strays, ["z"]);
    }
}
