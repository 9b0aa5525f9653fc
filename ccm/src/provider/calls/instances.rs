//! InstanceService and ZoneService.

use std::collections::BTreeSet;
use std::time::Duration;

use api::instance_service_client::InstanceServiceClient;
use api::zone_service_client::ZoneServiceClient;
use cloud_provider_api::v1alpha1 as api;
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::Node;
use prost::Message;

use super::super::connect::Link;
use super::super::failures::{self, Place};
use super::super::limits::{self, Named};
use super::super::view::node_view;
use super::super::{Session, Trouble, TroubleCode};
use super::listing::{Part, collect};
use super::{Answered, Rpc, timed};

fn client(link: Link) -> InstanceServiceClient<Link> {
    InstanceServiceClient::with_origin(link, Link::origin())
        .max_decoding_message_size(api::MOST_MESSAGE_BYTES)
}

impl Session {
    /// Asks about these Nodes. The answers are in the order of `nodes`; each was matched by name and UID and checked against
    /// the contract's limits, so that a result that is missing, doubled or unset is that Node's `Fault`.
    /// `Err`: the call failed as a whole. `nodes` is at most `max_batch` long; it is cut further to `max_request_bytes`.
    pub(crate) async fn lookup_instances(
        &self,
        nodes: &[&Node],
        facets: &[api::InstanceFacet],
        max_age: Duration,
    ) -> Result<Vec<Result<api::Instance, Trouble>>, Trouble> {
        self.offered("instances", self.offers(|c| c.instances.is_some()))?;
        let frame = api::LookupInstancesRequest {
            cluster: Some(self.cluster.clone()),
            nodes: Vec::new(),
            facets: facets.iter().map(|facet| i32::from(*facet)).collect(),
            // A `max_age` beyond what protobuf can say is no real one.
            max_age: prost_types::Duration::try_from(max_age).ok(),
        };
        let rpc = Rpc {
            name: "LookupInstances",
            lane: &self.lanes.instances,
            deadline: self.deadlines.lookup,
        };
        let frame_bytes = frame.encoded_len();
        let ask = |nodes| -> BoxFuture<'_, Result<Vec<Named<api::Instance>>, Trouble>> {
            let request = api::LookupInstancesRequest {
                nodes,
                ..frame.clone()
            };
            let asked = names(&request.nodes);
            Box::pin(self.call(rpc, None, |link, deadline| async move {
                use api::lookup_instance_result::Outcome;
                let answer = client(link)
                    .lookup_instances(timed(request, deadline))
                    .await?
                    .into_inner();
                named(rpc.name, &asked, answer.failed, answer.results, |result| {
                    Named {
                        name: result.node_name,
                        uid: result.node_uid,
                        outcome: result.outcome.map(|outcome| match outcome {
                            Outcome::Failed(failure) => {
                                Err(failures::trouble(rpc.name, Place::Item, failure))
                            }
                            Outcome::Found(instance) => Ok(instance),
                        }),
                    }
                })
            }))
        };
        let prefixes = &self.info.provider_id_prefixes;
        self.lookup(nodes, frame_bytes, ask, |instance| {
            limits::check_instance(instance, prefixes)
        })
        .await
    }

    /// Zones of these Nodes, as `lookup_instances`.
    pub(crate) async fn lookup_zones(
        &self,
        nodes: &[&Node],
    ) -> Result<Vec<Result<api::Zone, Trouble>>, Trouble> {
        self.offered("zones", self.offers(|c| c.zones.is_some()))?;
        let frame = api::LookupZonesRequest {
            cluster: Some(self.cluster.clone()),
            nodes: Vec::new(),
        };
        let rpc = Rpc {
            name: "LookupZones",
            lane: &self.lanes.zones,
            deadline: self.deadlines.lookup,
        };
        let frame_bytes = frame.encoded_len();
        let ask = |nodes| -> BoxFuture<'_, Result<Vec<Named<api::Zone>>, Trouble>> {
            let request = api::LookupZonesRequest {
                nodes,
                ..frame.clone()
            };
            let asked = names(&request.nodes);
            Box::pin(self.call(rpc, None, |link, deadline| async move {
                use api::lookup_zone_result::Outcome;
                let answer = ZoneServiceClient::with_origin(link, Link::origin())
                    .max_decoding_message_size(api::MOST_MESSAGE_BYTES)
                    .lookup_zones(timed(request, deadline))
                    .await?
                    .into_inner();
                named(rpc.name, &asked, answer.failed, answer.results, |result| {
                    Named {
                        name: result.node_name,
                        uid: result.node_uid,
                        outcome: result.outcome.map(|outcome| match outcome {
                            Outcome::Failed(failure) => {
                                Err(failures::trouble(rpc.name, Place::Item, failure))
                            }
                            Outcome::Zone(zone) => Ok(zone),
                        }),
                    }
                })
            }))
        };
        self.lookup(nodes, frame_bytes, ask, limits::check_zone)
            .await
    }

    /// All instances; `Err` where the listing was not complete, or one of them breaks the contract.
    pub(crate) async fn list_instances(
        &self,
        facets: &[api::InstanceFacet],
    ) -> Result<Vec<api::Instance>, Trouble> {
        let listing = self.offers(|c| c.instances.as_ref().is_some_and(|c| c.listing));
        self.offered("the listing of instances", listing)?;
        let request = api::ListInstancesRequest {
            cluster: Some(self.cluster.clone()),
            facets: facets.iter().map(|facet| i32::from(*facet)).collect(),
        };
        let rpc = Rpc {
            name: "ListInstances",
            lane: &self.lanes.instances,
            deadline: self.deadlines.list,
        };
        self.call(rpc, None, |link, deadline| async move {
            use api::list_instances_response::Part as P;
            let stream = client(link)
                .list_instances(timed(request, deadline))
                .await?
                .into_inner();
            let list = collect(rpc.name, stream, |message| match message.part {
                None => Part::Unset,
                Some(P::Failed(failure)) => Part::Failed(failure),
                Some(P::Instances(list)) => Part::Items(list.instances),
                Some(P::End(end)) => Part::End(end),
            })
            .await?;
            let prefixes = &self.info.provider_id_prefixes;
            list.into_iter()
                .map(|instance| limits::check_instance(instance, prefixes))
                .collect::<Result<_, _>>()
                .map(Answered::well)
        })
        .await
    }

    /// Cuts the Nodes into requests that fit, asks, and gives each Node its answer.
    async fn lookup<'a, T>(
        &'a self,
        nodes: &[&Node],
        frame_bytes: usize,
        ask: impl Fn(Vec<api::NodeView>) -> BoxFuture<'a, Result<Vec<Named<T>>, Trouble>>,
        check: impl Fn(T) -> Result<T, Trouble>,
    ) -> Result<Vec<Result<T, Trouble>>, Trouble> {
        let mut views: Vec<Option<api::NodeView>> = nodes
            .iter()
            .map(|node| Some(node_view(node, &self.projection)))
            .collect();
        let cut = limits::cut_batches(
            views.iter().flatten().map(Message::encoded_len),
            frame_bytes,
            self.max_batch(),
            self.max_request_bytes,
        );
        let requests = cut.batches.iter().map(|range| {
            let batch = views.get_mut(range.clone()).unwrap_or_default();
            ask(batch.iter_mut().filter_map(Option::take).collect())
        });
        let requests: Vec<_> = requests.collect();
        let answers = join_all(requests).await;
        if cut.too_large.is_empty()
            && let Some(Err(first)) = answers.first()
            && answers.iter().all(Result::is_err)
        {
            return Err(first.clone());
        }

        let mut results: Vec<Option<Result<T, Trouble>>> = nodes.iter().map(|_| None).collect();
        for (index, trouble) in cut.too_large {
            if let Some(slot) = results.get_mut(index) {
                *slot = Some(Err(trouble));
            }
        }
        for (range, answer) in cut.batches.iter().zip(answers) {
            let asked: Vec<_> = nodes
                .get(range.clone())
                .unwrap_or_default()
                .iter()
                .map(|node| {
                    let metadata = &node.metadata;
                    (
                        metadata.name.as_deref().unwrap_or_default(),
                        metadata.uid.as_deref().unwrap_or_default(),
                    )
                })
                .collect();
            let found: Vec<Result<T, Trouble>> = match answer {
                Ok(answer) => {
                    let matched = limits::match_results(&asked, answer, &check);
                    if !matched.strays.is_empty() {
                        tracing::warn!(
                            provider = %self.name,
                            nodes = ?matched.strays,
                            "the provider answered for nodes that nobody asked about: ignored"
                        );
                    }
                    matched.results
                }
                Err(trouble) => asked.iter().map(|_| Err(trouble.clone())).collect(),
            };
            for (slot, result) in results.iter_mut().skip(range.start).zip(found) {
                *slot = Some(result);
            }
        }
        Ok(results
            .into_iter()
            .map(|result| {
                result.unwrap_or_else(|| Err(Trouble::fault("the node was not asked about")))
            })
            .collect())
    }
}

/// The names of the Nodes that are asked about.
fn names(nodes: &[api::NodeView]) -> BTreeSet<String> {
    nodes.iter().map(|node| node.name.clone()).collect()
}

/// The items of an answer, unless it failed as a whole. Trouble of an item that concerns all is told, else that something is there that nobody asked for: the others stand.
fn named<R, T>(
    rpc: &str,
    asked: &BTreeSet<String>,
    failed: Option<api::Failure>,
    results: Vec<R>,
    named: impl Fn(R) -> Named<T>,
) -> Result<Answered<Vec<Named<T>>>, Trouble> {
    if let Some(failure) = failed {
        return Err(failures::trouble(rpc, Place::Whole, failure));
    }
    let answer: Vec<_> = results.into_iter().map(named).collect();
    let told = answer
        .iter()
        .filter_map(|item| item.outcome.as_ref()?.as_ref().err())
        .filter(|trouble| {
            matches!(
                trouble.code,
                TroubleCode::Throttled | TroubleCode::Credentials | TroubleCode::NotInitialized
            )
        })
        .max_by_key(|trouble| (trouble.code, trouble.retry_after))
        .cloned();
    let stray = answer.iter().find(|item| !asked.contains(&item.name));
    let stray = stray.map(|item| {
        Trouble::fault(format!(
            "nobody asked about node {:?}",
            limits::shown(&item.name)
        ))
    });
    let told = told.or(stray);
    Ok(Answered { answer, told })
}
