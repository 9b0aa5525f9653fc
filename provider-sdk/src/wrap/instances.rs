//! InstanceService.

use std::time::Duration;

use tonic::{Request, Response, Status};

use cloud_provider_api::v1alpha1::instance_service_server::InstanceService;
use cloud_provider_api::v1alpha1::list_instances_response::Part;
use cloud_provider_api::v1alpha1::lookup_instance_result::Outcome;
use cloud_provider_api::v1alpha1::{self as pb};

use super::limits::{ID_BYTES, fault, fits, is_dns_name, is_label_value, within_batch};
use super::{Parts, Wrap, convert, listed, not_listed, not_offered};
use crate::{
    AddressKind, Answers, Failure, Instance, InstanceFacet, InstanceQuery, InstanceState, Node,
    NodeAddress,
};

#[tonic::async_trait]
impl InstanceService for Wrap {
    async fn lookup_instances(
        &self,
        request: Request<pb::LookupInstancesRequest>,
    ) -> Result<Response<pb::LookupInstancesResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let prefixes = self.0.inline("LookupInstances", |provider| {
            provider.info().provider_id_prefixes
        })?;
        let query = InstanceQuery {
            facets: facets_from(&request.facets),
            max_age: request
                .max_age
                .and_then(|age| Duration::try_from(age).ok())
                .unwrap_or_default(),
        };
        let metadata_asked = query.wants(InstanceFacet::Metadata);
        let looked_up = self
            .0
            .call(
                "LookupInstances",
                &metadata,
                request.cluster,
                |provider, call| async move {
                    let instances = provider
                        .instances()
                        .ok_or_else(|| not_offered("InstanceService"))?;
                    let nodes = convert::nodes_from(request.nodes)?;
                    within_batch("Nodes", nodes.len(), instances.options().max_batch)?;
                    let answers = instances.lookup_batch(&call, &nodes, &query).await?;
                    Ok((nodes, answers))
                },
            )
            .await?;
        let (failed, results) = match looked_up {
            Ok((nodes, answers)) => {
                let results = by_node("LookupInstances", nodes, answers)
                    .map(|(node, answer)| {
                        let outcome = answer.and_then(|instance| {
                            instance_to(instance, &prefixes, metadata_asked)
                                .map_err(|what| fault("LookupInstances", &node.name, what))
                        });
                        pb::LookupInstanceResult {
                            node_name: node.name,
                            node_uid: node.uid,
                            outcome: Some(match outcome {
                                Ok(instance) => Outcome::Found(instance),
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
        Ok(Response::new(pb::LookupInstancesResponse {
            failed,
            results,
        }))
    }

    type ListInstancesStream = Parts<pb::ListInstancesResponse>;

    async fn list_instances(
        &self,
        request: Request<pb::ListInstancesRequest>,
    ) -> Result<Response<Self::ListInstancesStream>, Status> {
        let (metadata, _, request) = request.into_parts();
        let prefixes = self.0.inline("ListInstances", |provider| {
            provider.info().provider_id_prefixes
        })?;
        let facets = facets_from(&request.facets);
        let list = self
            .0
            .call(
                "ListInstances",
                &metadata,
                request.cluster,
                |provider, call| async move {
                    let listing = provider
                        .instances()
                        .and_then(|instances| instances.listing())
                        .ok_or_else(|| not_offered("ListInstances"))?;
                    let mut list = Vec::new();
                    for instance in listing.list(&call, &facets).await? {
                        let id = instance.provider_id.clone().unwrap_or_default();
                        list.push(
                            instance_to(instance, &prefixes, true)
                                .map_err(|what| fault("ListInstances", &id, what))?,
                        );
                    }
                    Ok::<_, Failure>(list)
                },
            )
            .await?;
        let response = |part| pb::ListInstancesResponse { part: Some(part) };
        Ok(Response::new(match list {
            Ok(list) => listed(
                list,
                |instances| response(Part::Instances(pb::InstanceList { instances })),
                |end| response(Part::End(end)),
            ),
            Err(failure) => not_listed(response(Part::Failed(convert::failure(&failure)))),
        }))
    }
}

/// Each Node of the request with its answer. Logs a warning about answers for other Nodes.
pub(super) fn by_node<T>(
    rpc: &'static str,
    nodes: Vec<Node>,
    mut answers: Answers<T>,
) -> impl Iterator<Item = (Node, Result<T, Failure>)> {
    let matched: Vec<_> = nodes
        .into_iter()
        .map(|node| {
            let answer = answers.by_key.remove(&node.name).unwrap_or_else(|| {
                Err(fault(
                    rpc,
                    &node.name,
                    "the provider has no answer for this Node",
                ))
            });
            (node, answer)
        })
        .collect();
    for name in answers.by_key.keys() {
        tracing::warn!(
            rpc,
            item = name,
            "the provider answered for an item that is not in the request"
        );
    }
    matched.into_iter()
}

/// Without a known facet, the request is for EXISTENCE.
fn facets_from(facets: &[i32]) -> Vec<InstanceFacet> {
    let known: Vec<_> = facets
        .iter()
        .filter_map(|facet| match pb::InstanceFacet::try_from(*facet).ok()? {
            pb::InstanceFacet::Unspecified => None,
            pb::InstanceFacet::Existence => Some(InstanceFacet::Existence),
            pb::InstanceFacet::Power => Some(InstanceFacet::Power),
            pb::InstanceFacet::Metadata => Some(InstanceFacet::Metadata),
        })
        .collect();
    if known.is_empty() {
        return vec![InstanceFacet::Existence];
    }
    known
}

/// Drops and logs a value that is not a label value (INST-15, ZONE-2).
pub(super) fn formed(what: &str, item: &str, value: Option<String>) -> Option<String> {
    let value = value?;
    if is_label_value(&value) {
        return Some(value);
    }
    tracing::warn!(
        item,
        value,
        "{what} is no label value: leaving it out of the answer"
    );
    None
}

/// An instance's addresses without the names that are no DNS names: the contract cannot express
/// them (INST-8, INST-15).
fn expressible(item: &str, addresses: Vec<NodeAddress>) -> Vec<NodeAddress> {
    let is_ip = |kind| matches!(kind, AddressKind::InternalIp | AddressKind::ExternalIp);
    let fits = |address: &NodeAddress| {
        if is_ip(address.kind) {
            return true;
        }
        let judged = is_dns_name("an address", &address.address);
        if let Err(why) = &judged {
            tracing::warn!(item, why, "leaving an address out of the answer");
        }
        judged.is_ok()
    };
    addresses.into_iter().filter(fits).collect()
}

fn instance_to(
    instance: Instance,
    prefixes: &[String],
    metadata: bool,
) -> Result<pb::Instance, String> {
    let exists = matches!(
        instance.state,
        InstanceState::Present | InstanceState::Running | InstanceState::Stopped
    );
    match &instance.provider_id {
        Some(id) => {
            fits("the provider ID", id, ID_BYTES)?;
            if !prefixes
                .iter()
                .any(|prefix| id.starts_with(prefix.as_str()))
            {
                return Err(format!(
                    "the provider ID {id:?} begins with none of the stated prefixes {prefixes:?}"
                ));
            }
        }
        None if metadata && exists => {
            return Err("an instance that exists has no provider ID (INST-7)".into());
        }
        None => {}
    }
    let state = match instance.state {
        InstanceState::Present => pb::InstanceState::Present,
        InstanceState::Running => pb::InstanceState::Running,
        InstanceState::Stopped => pb::InstanceState::Stopped,
        InstanceState::Absent => pb::InstanceState::Absent,
        InstanceState::Pending => pb::InstanceState::Pending,
        InstanceState::Unmanaged => pb::InstanceState::Unmanaged,
    };
    let id = instance.provider_id.as_deref().unwrap_or_default();
    Ok(pb::Instance {
        state: state.into(),
        provider_id: instance.provider_id.clone(),
        instance_type: formed("its type", id, instance.instance_type),
        addresses: convert::addresses(expressible(id, instance.addresses))?,
        zone: formed("its zone", id, instance.zone),
        region: formed("its region", id, instance.region),
        labels: instance.labels,
        retry_after: instance.retry_after.map(convert::duration),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_facet_asks_for_existence() {
        assert_eq!(facets_from(&[]), [InstanceFacet::Existence]);
        assert_eq!(facets_from(&[99]), [InstanceFacet::Existence]);
        let power = pb::InstanceFacet::Power as i32;
        assert_eq!(facets_from(&[power]), [InstanceFacet::Power]);
    }

    /// INST-8, INST-15.
    #[test]
    fn an_address_that_is_no_dns_name_is_left_out() {
        let judged = |name: &str| !expressible("a", vec![NodeAddress::hostname(name)]).is_empty();
        for good in ["a", "Host-1.example.com", "1.2.3.example"] {
            assert!(judged(good), "{good}");
        }
        let long = "a".repeat(254);
        for bad in [
            "",
            ".",
            "a.",
            "-a",
            "a-.b",
            "a_b",
            "a..b",
            "ü",
            "a b",
            long.as_str(),
        ] {
            assert!(!judged(bad), "{bad}");
        }
        let ip = vec![NodeAddress::internal_ip("::1")];
        assert_eq!(expressible("a", ip.clone()), ip);
    }
}
