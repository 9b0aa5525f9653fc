//! ZoneService.

use tonic::{Request, Response, Status};

use cloud_provider_api::v1alpha1::lookup_zone_result::Outcome;
use cloud_provider_api::v1alpha1::zone_service_server::ZoneService;
use cloud_provider_api::v1alpha1::{self as pb};

use super::instances::by_node;
use super::limits::{NAME_BYTES, fault, within_batch};
use super::{Wrap, convert, not_offered};
use crate::{Failure, InstanceOptions, Instances, Zone};

#[tonic::async_trait]
impl ZoneService for Wrap {
    async fn lookup_zones(
        &self,
        request: Request<pb::LookupZonesRequest>,
    ) -> Result<Response<pb::LookupZonesResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let looked_up = self
            .0
            .call(
                "LookupZones",
                &metadata,
                request.cluster,
                |provider, call| async move {
                    let zones = provider.zones().ok_or_else(|| not_offered("ZoneService"))?;
                    let nodes = convert::nodes_from(request.nodes)?;
                    let max_batch = provider
                        .instances()
                        .map_or_else(InstanceOptions::default, Instances::options)
                        .max_batch;
                    within_batch("Nodes", nodes.len(), max_batch)?;
                    let answers = zones.zone_batch(&call, &nodes).await?;
                    Ok((nodes, answers))
                },
            )
            .await?;
        let (failed, results) = match looked_up {
            Ok((nodes, answers)) => {
                let results = by_node("LookupZones", nodes, answers)
                    .map(|(node, answer)| {
                        let outcome = answer.and_then(|zone| {
                            zone_to(zone).map_err(|what| fault("LookupZones", &node.name, what))
                        });
                        pb::LookupZoneResult {
                            node_name: node.name,
                            node_uid: node.uid,
                            outcome: Some(match outcome {
                                Ok(zone) => Outcome::Zone(zone),
                                Err(failure) => Outcome::Failed(convert::failure(&failure)),
                            }),
                        }
                    })
                    .collect();
                (None, results)
            }
            Err(failure) => {
                let failure: Failure = failure;
                (Some(convert::failure(&failure)), Vec::new())
            }
        };
        Ok(Response::new(pb::LookupZonesResponse { failed, results }))
    }
}

fn zone_to(zone: Zone) -> Result<pb::Zone, String> {
    convert::optional_at_most("the zone", zone.zone.as_ref(), NAME_BYTES)?;
    convert::optional_at_most("the region", zone.region.as_ref(), NAME_BYTES)?;
    Ok(pb::Zone {
        zone: zone.zone,
        region: zone.region,
    })
}
