//! RouteService.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use cloud_provider_api::v1alpha1::list_routes_response::Part;
use cloud_provider_api::v1alpha1::route_result::Outcome;
use cloud_provider_api::v1alpha1::route_service_server::RouteService;
use cloud_provider_api::v1alpha1::{self as pb};

use super::limits::{ID_BYTES, NAME_BYTES, fault, fits, is_ip, within_batch};
use super::{Parts, Wrap, convert, listed, not_listed, not_offered};
use crate::{Answers, Failure, Ownership, Route};

#[derive(Clone, Copy)]
enum Write {
    Create,
    Delete,
}

/// The CIDR in one form, because the same network may be written in several ways (ROUTE-8).
fn network(cidr: &str) -> String {
    cidr.parse::<IpNet>()
        .map_or_else(|_| cidr.to_owned(), |net| net.trunc().to_string())
}

#[tonic::async_trait]
impl RouteService for Wrap {
    type ListRoutesStream = Parts<pb::ListRoutesResponse>;

    async fn list_routes(
        &self,
        request: Request<pb::ListRoutesRequest>,
    ) -> Result<Response<Self::ListRoutesStream>, Status> {
        let (metadata, _, request) = request.into_parts();
        let list = self
            .0
            .call(
                "ListRoutes",
                &metadata,
                request.cluster,
                |provider, call| async move {
                    let routes = provider
                        .routes()
                        .ok_or_else(|| not_offered("RouteService"))?;
                    let mut list = Vec::new();
                    for route in routes.list(&call).await? {
                        let name = route.name.clone();
                        list.push(
                            route_to(route).map_err(|what| fault("ListRoutes", &name, what))?,
                        );
                    }
                    Ok::<_, Failure>(list)
                },
            )
            .await?;
        let response = |part| pb::ListRoutesResponse { part: Some(part) };
        Ok(Response::new(match list {
            Ok(list) => listed(
                list,
                |routes| response(Part::Routes(pb::RouteList { routes })),
                |end| response(Part::End(end)),
            ),
            Err(failure) => not_listed(response(Part::Failed(convert::failure(&failure)))),
        }))
    }

    async fn create_routes(
        &self,
        request: Request<pb::CreateRoutesRequest>,
    ) -> Result<Response<pb::CreateRoutesResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let (failed, results) = self
            .write(
                Write::Create,
                "CreateRoutes",
                &metadata,
                request.cluster,
                request.routes,
            )
            .await?;
        Ok(Response::new(pb::CreateRoutesResponse { failed, results }))
    }

    async fn delete_routes(
        &self,
        request: Request<pb::DeleteRoutesRequest>,
    ) -> Result<Response<pb::DeleteRoutesResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let (failed, results) = self
            .write(
                Write::Delete,
                "DeleteRoutes",
                &metadata,
                request.cluster,
                request.routes,
            )
            .await?;
        Ok(Response::new(pb::DeleteRoutesResponse { failed, results }))
    }
}

impl Wrap {
    async fn write(
        &self,
        write: Write,
        rpc: &'static str,
        metadata: &MetadataMap,
        cluster: Option<pb::ClusterRef>,
        routes: Vec<pb::Route>,
    ) -> Result<(Option<pb::Failure>, Vec<pb::RouteResult>), Status> {
        let core = Arc::clone(&self.0);
        let written = self
            .0
            .call(rpc, metadata, cluster, |provider, call| async move {
                let service = provider
                    .routes()
                    .ok_or_else(|| not_offered("RouteService"))?;
                let routes: Vec<Route> = routes.into_iter().map(route_from).collect();
                within_batch("routes", routes.len(), service.options().max_batch)?;
                let mut keys = BTreeSet::new();
                if let Some(route) = routes.iter().find(|route| !keys.insert(&route.key)) {
                    return Err(Failure::invalid(format!(
                        "the request has the route_key {:?} twice",
                        route.key
                    )));
                }
                let keys: Vec<String> = routes.iter().map(|route| route.key.clone()).collect();

                // One hold for each destination of this call, whoever the owner is (PROV-18). If
                // another call holds it, the answer for the route is BUSY.
                let mut holds = BTreeMap::new();
                let mut refused = Vec::new();
                let mut free = Vec::new();
                for route in routes {
                    if matches!(write, Write::Delete) && route.name.is_empty() {
                        let destination = &route.destination_cidr;
                        let nameless = Failure::invalid(format!(
                            "the route to {destination} has no name; send it as ListRoutes gave it"
                        ));
                        refused.push((route.key, nameless));
                        continue;
                    }
                    let destination = network(&route.destination_cidr);
                    let hold = holds.entry(destination).or_insert_with_key(|destination| {
                        core.held.take(format!("the route to {destination}"))
                    });
                    match hold {
                        Ok(_) => free.push(route),
                        Err(failure) => refused.push((route.key, failure.clone())),
                    }
                }
                let mut answers = match write {
                    _ if free.is_empty() => Answers::new(),
                    Write::Create => service.create_batch(&call, &free).await?,
                    Write::Delete => service.delete_batch(&call, &free).await?,
                };
                for (key, failure) in refused {
                    answers.set(key, Err(failure));
                }
                Ok((keys, answers))
            })
            .await?;
        Ok(match written {
            Ok((keys, mut answers)) => {
                let results = keys
                    .into_iter()
                    .map(|route_key| {
                        let answer = answers.by_key.remove(&route_key).unwrap_or_else(|| {
                            Err(fault(
                                rpc,
                                &route_key,
                                "the provider has no answer for this route",
                            ))
                        });
                        pb::RouteResult {
                            route_key,
                            outcome: Some(match answer {
                                Ok(()) => Outcome::Done(pb::Done {}),
                                Err(failure) => Outcome::Failed(convert::failure(&failure)),
                            }),
                        }
                    })
                    .collect();
                for key in answers.by_key.keys() {
                    tracing::warn!(
                        rpc,
                        item = key,
                        "the provider answered for an item that is not in the request"
                    );
                }
                (None, results)
            }
            Err(failure) => {
                let failure: Failure = failure;
                (Some(convert::failure(&failure)), Vec::new())
            }
        })
    }
}

fn route_from(route: pb::Route) -> Route {
    Route {
        key: route.route_key,
        name: route.name,
        name_hint: route.name_hint,
        destination_cidr: route.destination_cidr,
        node_name: route.node_name,
        provider_id: route.provider_id,
        next_hop: route.next_hop,
        node_addresses: convert::addresses_from(route.node_addresses),
        blackhole: route.blackhole,
        ownership: convert::ownership_from(route.ownership),
    }
}

fn route_to(route: Route) -> Result<pb::Route, String> {
    let ownership = route.ownership.ok_or("a route has no ownership")?;
    // The contract cannot express a gateway or a peering as a target (ROUTE-11).
    if ownership == Ownership::Ours
        && !route.blackhole
        && route.node_name.is_none()
        && route.provider_id.is_none()
        && route.next_hop.is_none()
    {
        return Err("a route of ours that is no blackhole has no target".into());
    }
    fits("the name of a route", &route.name, NAME_BYTES)?;
    fits(
        "the destination of a route",
        &route.destination_cidr,
        NAME_BYTES,
    )?;
    convert::optional_at_most("the Node's name", route.node_name.as_ref(), NAME_BYTES)?;
    convert::optional_at_most("the provider ID", route.provider_id.as_ref(), ID_BYTES)?;
    if let Some(next_hop) = &route.next_hop {
        is_ip("the next hop", next_hop)?;
    }
    Ok(pb::Route {
        route_key: String::new(),
        name: route.name,
        name_hint: String::new(),
        destination_cidr: route.destination_cidr,
        node_name: route.node_name,
        provider_id: route.provider_id,
        next_hop: route.next_hop,
        node_addresses: convert::addresses(route.node_addresses)?,
        blackhole: route.blackhole,
        ownership: convert::ownership(ownership).into(),
    })
}
