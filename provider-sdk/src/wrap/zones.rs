//! ZoneService.

use tonic::{Request, Response, Status};

use cloud_provider_api::v1alpha1::lookup_zone_result::Outcome;
use cloud_provider_api::v1alpha1::zone_service_server::ZoneService;
use cloud_provider_api::v1alpha1::{self as pb};

use super::instances::{by_node, formed};
use super::limits::within_batch;
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
                        let outcome = answer.map(|zone| zone_to(&node.name, zone));
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

fn zone_to(node: &str, zone: Zone) -> pb::Zone {
    pb::Zone {
        zone: formed("its zone", node, zone.zone),
        region: formed("its region", node, zone.region),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ZONE-2.
    #[test]
    fn a_zone_or_region_that_is_no_label_value_is_left_out() {
        let kept = |zone: &str, region: &str| {
            let zone = Zone {
                zone: Some(zone.into()),
                region: Some(region.into()),
            };
            let sent = zone_to("node-1", zone);
            (sent.zone.is_some(), sent.region.is_some())
        };
        assert_eq!(kept("rack-1", "eu_west.1"), (true, true));
        assert_eq!(kept("Rack 1, left", "eu"), (false, true));
        assert_eq!(kept(&"z".repeat(64), ""), (false, false));
    }
}
