//! RouteService.

use std::collections::BTreeMap;

use api::route_service_client::RouteServiceClient;
use cloud_provider_api::v1alpha1 as api;
use futures::future::{BoxFuture, join_all};
use prost::Message;

use super::super::connect::Link;
use super::super::failures::{self, Place};
use super::super::limits;
use super::super::{CallError, CallErrorCode, Session};
use super::listing::{Part, collect};
use super::{Answered, Rpc, timed};
use crate::core::Fence;

fn client(link: Link) -> RouteServiceClient<Link> {
    RouteServiceClient::with_origin(link, Link::origin())
        .max_decoding_message_size(api::MOST_MESSAGE_BYTES)
}

/// The answer of CreateRoutes and DeleteRoutes for each route, in the order of the request. `Err`:
/// nothing is known of any route.
type Answers = Result<Vec<Result<(), CallError>>, CallError>;

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

    fn route_rpc(&self, name: &'static str) -> Result<Rpc<'_>, CallError> {
        self.offered("routes", self.route_capability().is_some())?;
        Ok(Rpc {
            name,
            limiter: &self.limiters.routes,
            deadline: self.deadlines.routes,
        })
    }

    /// All routes of the cluster's network. `Err` if the listing is not complete. Of a route's
    /// content only the ownership is checked. A route with an unknown ownership is reported as a
    /// fault, and is in the result all the same.
    pub(crate) async fn list_routes(&self) -> Result<Vec<api::Route>, CallError> {
        let rpc = Rpc {
            deadline: self.deadlines.list,
            ..self.route_rpc("ListRoutes")?
        };
        let request = api::ListRoutesRequest {
            cluster: Some(self.cluster.clone()),
        };
        self.call(rpc, None, |link, deadline| async move {
            use api::list_routes_response::Part as P;
            let stream = client(link)
                .list_routes(timed(request, deadline))
                .await?
                .into_inner();
            let list = collect(rpc.name, stream, |message| match message.part {
                None => Part::Unset,
                Some(P::Failed(failure)) => Part::Failed(failure),
                Some(P::Routes(list)) => Part::Items(list.routes),
                Some(P::End(end)) => Part::End(end),
            })
            .await?;
            let unowned = list.iter().find(|route| {
                matches!(
                    api::Ownership::try_from(route.ownership),
                    Ok(api::Ownership::Unspecified) | Err(_)
                )
            });
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
                answer: list,
            })
        })
        .await
    }

    /// CreateRoutes. The answers are in the order of `routes`. Each is matched by its `route_key`,
    /// which is unique in `routes`. A result that is missing, duplicated or unset is that route's
    /// `Fault`.
    ///
    /// The routes are cut into requests of at most `max_route_batch` routes and `max_request_bytes`
    /// bytes. `Err`: there was one request, it failed as a whole, and nothing is known of any
    /// route.
    pub(crate) async fn create_routes(
        &self,
        fence: &Fence,
        routes: Vec<api::Route>,
    ) -> Result<Vec<Result<(), CallError>>, CallError> {
        let rpc = self.route_rpc("CreateRoutes")?;
        self.write_routes(routes, |routes| {
            let asked = keys(&routes);
            let request = api::CreateRoutesRequest {
                cluster: Some(self.cluster.clone()),
                routes,
            };
            Box::pin(
                self.call_each(rpc, Some(fence), |link, deadline| async move {
                    let answer = client(link)
                        .create_routes(timed(request, deadline))
                        .await?
                        .into_inner();
                    self.matched_routes(rpc.name, &asked, answer.failed, answer.results)
                }),
            )
        })
        .await
    }

    /// DeleteRoutes; as `create_routes`.
    pub(crate) async fn delete_routes(
        &self,
        fence: &Fence,
        routes: Vec<api::Route>,
    ) -> Result<Vec<Result<(), CallError>>, CallError> {
        let rpc = self.route_rpc("DeleteRoutes")?;
        self.write_routes(routes, |routes| {
            let asked = keys(&routes);
            let request = api::DeleteRoutesRequest {
                cluster: Some(self.cluster.clone()),
                routes,
            };
            Box::pin(
                self.call_each(rpc, Some(fence), |link, deadline| async move {
                    let answer = client(link)
                        .delete_routes(timed(request, deadline))
                        .await?
                        .into_inner();
                    self.matched_routes(rpc.name, &asked, answer.failed, answer.results)
                }),
            )
        })
        .await
    }

    /// Cuts the routes into requests that fit, sends them, and gives each route its answer.
    async fn write_routes<'a>(
        &'a self,
        mut routes: Vec<api::Route>,
        send: impl Fn(Vec<api::Route>) -> BoxFuture<'a, Answers>,
    ) -> Answers {
        let cluster = self.cluster.encoded_len();
        // The field `cluster` of the request: its tag, its length, itself.
        let frame = 1 + prost::length_delimiter_len(cluster) + cluster;
        let cut = limits::cut_batches(
            routes.iter().map(Message::encoded_len),
            frame,
            self.max_route_batch(),
            self.max_request_bytes,
        );
        let requests = cut.batches.iter().map(|range| {
            let batch = routes.get_mut(range.clone()).unwrap_or_default();
            send(batch.iter_mut().map(std::mem::take).collect())
        });
        let requests: Vec<_> = requests.collect();
        let answers = join_all(requests).await;
        if cut.too_large.is_empty()
            && let [Err(only)] = answers.as_slice()
        {
            return Err(only.clone());
        }
        let mut written: Vec<Option<Result<(), CallError>>> = routes.iter().map(|_| None).collect();
        for (index, trouble) in cut.too_large {
            if let Some(slot) = written.get_mut(index) {
                *slot = Some(Err(trouble));
            }
        }
        for (range, answer) in cut.batches.iter().zip(answers) {
            let found: Vec<Result<(), CallError>> = answer
                .unwrap_or_else(|trouble| range.clone().map(|_| Err(trouble.clone())).collect());
            for (slot, result) in written.iter_mut().skip(range.start).zip(found) {
                *slot = Some(result);
            }
        }
        let unsent = || Err(CallError::fault("the route was in no request"));
        Ok(written
            .into_iter()
            .map(|result| result.unwrap_or_else(unsent))
            .collect())
    }

    fn matched_routes(
        &self,
        rpc: &str,
        asked: &[String],
        failed: Option<api::Failure>,
        results: Vec<api::RouteResult>,
    ) -> Result<Answered<Vec<Result<(), CallError>>>, CallError> {
        if let Some(failure) = failed {
            return Err(failures::trouble(rpc, Place::Whole, failure));
        }
        let (matched, strays) = match_results(rpc, asked, results);
        if !strays.is_empty() {
            tracing::warn!(
                provider = %self.log.provider(),
                routes = ?strays,
                "ignoring results for routes that were not in the request"
            );
        }
        let reported = reported(&matched, &strays);
        Ok(Answered {
            answer: matched,
            reported,
        })
    }
}

/// The keys of these routes.
fn keys(routes: &[api::Route]) -> Vec<String> {
    routes.iter().map(|route| route.route_key.clone()).collect()
}

/// The failure that an answer reports. It is a route's failure that concerns other calls too, such
/// as THROTTLED. Without one, it is a fault for a result without a route in the request. Even
/// then each route keeps its own result.
fn reported(results: &[Result<(), CallError>], strays: &[String]) -> Option<CallError> {
    let of_all = results
        .iter()
        .filter_map(|result| result.as_ref().err())
        .filter(|trouble| {
            matches!(
                trouble.code,
                CallErrorCode::Throttled | CallErrorCode::NotInitialized
            )
        })
        .max_by_key(|trouble| (trouble.code, trouble.retry_after));
    let stray = || {
        let key = strays.first()?;
        Some(CallError::fault(format!(
            "nobody asked for the route {key:?}"
        )))
    };
    of_all.cloned().or_else(stray)
}

/// Gives each result to the route that it names. Also returns the keys that the request did not
/// name (cut, at most 10).
fn match_results(
    rpc: &str,
    asked: &[String],
    results: Vec<api::RouteResult>,
) -> (Vec<Result<(), CallError>>, Vec<String>) {
    use api::route_result::Outcome;
    let index: BTreeMap<&str, usize> = asked
        .iter()
        .enumerate()
        .map(|(position, key)| (key.as_str(), position))
        .collect();
    let mut found: Vec<Option<Result<(), CallError>>> = asked.iter().map(|_| None).collect();
    let mut strays = Vec::new();
    for result in results {
        let key = result.route_key.as_str();
        let Some(slot) = index.get(key).and_then(|position| found.get_mut(*position)) else {
            if strays.len() < 10 {
                strays.push(limits::shown(key).to_owned());
            }
            continue;
        };
        *slot = Some(match (&slot, result.outcome) {
            (Some(_), _) => Err(CallError::fault(format!(
                "the provider's answer names the route {key:?} more than once"
            ))),
            (None, None) => Err(CallError::fault(format!(
                "the provider's answer for the route {key:?} has no outcome, or one that this contract minor does not know"
            ))),
            (None, Some(Outcome::Failed(failure))) => {
                Err(failures::trouble(rpc, Place::Item, failure))
            }
            (None, Some(Outcome::Done(_))) => Ok(()),
        });
    }
    let missing = |key: &String| {
        Err(CallError::fault(format!(
            "the provider's answer has no result for the route {key:?}"
        )))
    };
    let found = found.into_iter().zip(asked);
    let found = found.map(|(result, key)| result.unwrap_or_else(|| missing(key)));
    (found.collect(), strays)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(key: &str, outcome: Option<api::route_result::Outcome>) -> api::RouteResult {
        api::RouteResult {
            route_key: key.to_owned(),
            outcome,
        }
    }

    #[test]
    fn b_r2_a_result_that_nobody_asked_for_is_a_fault_of_the_call_and_the_others_stand() {
        use api::route_result::Outcome::{Done, Failed};
        let asked = ["a", "b"].map(str::to_owned);
        let done = |key: &str| result(key, Some(Done(api::Done {})));
        let read = |items| {
            let (results, strays) = match_results("CreateRoutes", &asked, items);
            let code = reported(&results, &strays).map(|trouble| trouble.code);
            (results.iter().filter(|it| it.is_ok()).count(), code)
        };
        assert_eq!(read(vec![done("a"), done("b")]), (2, None));
        assert_eq!(read(vec![done("b")]), (1, None), "a fault of its route");
        let stray = vec![done("a"), done("z")];
        assert_eq!(read(stray), (1, Some(CallErrorCode::Fault)));
        // A failure that slows all calls comes first.
        let throttled = api::Failure {
            code: api::FailureCode::Throttled.into(),
            ..api::Failure::default()
        };
        let both = vec![done("z"), result("a", Some(Failed(throttled)))];
        assert_eq!(read(both), (0, Some(CallErrorCode::Throttled)));
    }

    #[test]
    fn b_r2_results_go_by_key_never_by_position() {
        use api::route_result::Outcome::{Done, Failed};
        let asked: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
        let busy = api::Failure {
            code: api::FailureCode::Busy.into(),
            ..api::Failure::default()
        };
        let (found, strays) = match_results(
            "DeleteRoutes",
            &asked,
            vec![
                result("e", Some(Done(api::Done {}))),
                result("z", Some(Done(api::Done {}))),
                result("d", None),
                result("b", Some(Failed(busy))),
                result("c", Some(Done(api::Done {}))),
                result("c", Some(Done(api::Done {}))),
            ],
        );
        let codes: Vec<_> = found
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
