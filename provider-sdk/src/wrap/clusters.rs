//! ClusterService.

use tonic::{Request, Response, Status};

use cloud_provider_api::v1alpha1::cluster_service_server::ClusterService;
use cloud_provider_api::v1alpha1::get_control_plane_address_response::Outcome;
use cloud_provider_api::v1alpha1::list_clusters_response::Part;
use cloud_provider_api::v1alpha1::{self as pb};

use super::limits::{NAME_BYTES, fault, fits};
use super::{PART_ITEMS, Parts, Wrap, convert, not_listed, not_offered};
use crate::Failure;

#[tonic::async_trait]
impl ClusterService for Wrap {
    type ListClustersStream = Parts<pb::ListClustersResponse>;

    async fn list_clusters(
        &self,
        request: Request<pb::ListClustersRequest>,
    ) -> Result<Response<Self::ListClustersStream>, Status> {
        let (metadata, _, request) = request.into_parts();
        let list = self
            .0
            .call(
                "ListClusters",
                &metadata,
                request.cluster,
                |provider, call| async move {
                    let clusters = provider
                        .clusters()
                        .ok_or_else(|| not_offered("ClusterService"))?;
                    let names = clusters.list(&call).await?;
                    for name in &names {
                        fits("the name of a cluster", name, NAME_BYTES)
                            .map_err(|what| fault("ListClusters", name, what))?;
                    }
                    Ok::<_, Failure>(names)
                },
            )
            .await?;
        let response = |part| pb::ListClustersResponse { part: Some(part) };
        Ok(Response::new(match list {
            Ok(names) => {
                let end = pb::ListEnd {
                    total: names.len() as u64,
                };
                let mut parts: Vec<_> = names
                    .chunks(PART_ITEMS)
                    .map(|names| {
                        Ok(response(Part::Clusters(pb::ClusterNames {
                            names: names.to_vec(),
                        })))
                    })
                    .collect();
                parts.push(Ok(response(Part::End(end))));
                Box::pin(futures::stream::iter(parts))
            }
            Err(failure) => not_listed(response(Part::Failed(convert::failure(&failure)))),
        }))
    }

    async fn get_control_plane_address(
        &self,
        request: Request<pb::GetControlPlaneAddressRequest>,
    ) -> Result<Response<pb::GetControlPlaneAddressResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let answer = self
            .0
            .call(
                "GetControlPlaneAddress",
                &metadata,
                request.cluster,
                |provider, call| async move {
                    let clusters = provider
                        .clusters()
                        .ok_or_else(|| not_offered("ClusterService"))?;
                    let address = clusters
                        .control_plane_address(&call, &request.cluster_name)
                        .await?;
                    fits("the address", &address, NAME_BYTES).map_err(|what| {
                        fault("GetControlPlaneAddress", &request.cluster_name, what)
                    })?;
                    Ok::<_, Failure>(address)
                },
            )
            .await?;
        Ok(Response::new(pb::GetControlPlaneAddressResponse {
            outcome: Some(match answer {
                Ok(address) => Outcome::Address(address),
                Err(failure) => Outcome::Failed(convert::failure(&failure)),
            }),
        }))
    }
}
