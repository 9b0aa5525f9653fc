//! InstanceService and ZoneService.

use std::sync::Arc;
use std::time::Duration;

use api::instance_service_client::InstanceServiceClient;
use api::zone_service_client::ZoneServiceClient;
use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Node;
use prost::Message;

use super::super::connect::Link;
use super::super::failures::{self, Place};
use super::super::limits::{self, Named};
use super::super::lookup::IsolatedKeys;
use super::super::view::node_view;
use super::super::{CallError, Session};
use super::listing::{Part, collect};
use super::{Answered, Answers, Items, Rpc};

const NODES: Items = Items {
    what: "node",
    stray: "nobody asked about node",
};

fn client(link: Link) -> InstanceServiceClient<Link> {
    InstanceServiceClient::with_origin(link, Link::origin())
        .max_decoding_message_size(api::MOST_MESSAGE_BYTES)
}

impl Session {
    /// The Nodes in batches for `lookup_instances` and `lookup_zones`: each of at most `max_batch`
    /// Nodes and `max_request_bytes` bytes.
    pub(crate) fn batches(
        &self,
        isolated: &IsolatedKeys,
        nodes: Vec<Arc<Node>>,
    ) -> Vec<Vec<Arc<Node>>> {
        let batches = isolated.batches(nodes, self.max_batch());
        self.fitting(batches, |node| self.view(node).encoded_len())
    }

    /// Asks about these Nodes, in one request. The answers are in the order of `nodes`. Each was
    /// matched by name and UID, and checked against the contract's limits. A result that is
    /// missing, duplicated or unset is that Node's `Fault`. `Err`: nothing is known of any Node.
    pub(crate) async fn lookup_instances(
        &self,
        nodes: &[&Node],
        facets: &[api::InstanceFacet],
        max_age: Duration,
    ) -> Answers<api::Instance> {
        let asked = names(nodes);
        let request = api::LookupInstancesRequest {
            cluster: Some(self.cluster.clone()),
            nodes: nodes.iter().map(|node| self.view(node)).collect(),
            facets: facets.iter().map(|facet| i32::from(*facet)).collect(),
            // A `max_age` beyond protobuf's range is left out.
            max_age: prost_types::Duration::try_from(max_age).ok(),
        };
        let limiter = &self.limiters.instances;
        let rpc = Rpc::new("LookupInstances", limiter, self.deadlines.lookup);
        let prefixes = &self.info.provider_id_prefixes;
        self.call_each(rpc, None, request, |link, request| async move {
            use api::lookup_instance_result::Outcome;
            let answer = client(link).lookup_instances(request).await?.into_inner();
            let items = answer.results.into_iter().map(|result| Named {
                name: result.node_name,
                uid: result.node_uid,
                outcome: result.outcome.map(|outcome| match outcome {
                    Outcome::Failed(failure) => {
                        Err(failures::trouble(rpc.name, Place::Item, failure))
                    }
                    Outcome::Found(instance) => limits::check_instance(instance, Some(prefixes)),
                }),
            });
            self.matched(rpc, &NODES, &asked, answer.failed, items)
        })
        .await
    }

    /// The zones of these Nodes, as `lookup_instances`.
    pub(crate) async fn lookup_zones(&self, nodes: &[&Node]) -> Answers<api::Zone> {
        let asked = names(nodes);
        let request = api::LookupZonesRequest {
            cluster: Some(self.cluster.clone()),
            nodes: nodes.iter().map(|node| self.view(node)).collect(),
        };
        let rpc = Rpc::new("LookupZones", &self.limiters.zones, self.deadlines.lookup);
        self.call_each(rpc, None, request, |link, request| async move {
            use api::lookup_zone_result::Outcome;
            let answer = ZoneServiceClient::with_origin(link, Link::origin())
                .max_decoding_message_size(api::MOST_MESSAGE_BYTES)
                .lookup_zones(request)
                .await?
                .into_inner();
            let items = answer.results.into_iter().map(|result| Named {
                name: result.node_name,
                uid: result.node_uid,
                outcome: result.outcome.map(|outcome| match outcome {
                    Outcome::Failed(failure) => {
                        Err(failures::trouble(rpc.name, Place::Item, failure))
                    }
                    Outcome::Zone(zone) => limits::check_zone(zone),
                }),
            });
            self.matched(rpc, &NODES, &asked, answer.failed, items)
        })
        .await
    }

    /// All instances. `Err` if the listing is not complete, or an instance breaks the contract.
    pub(crate) async fn list_instances(
        &self,
        facets: &[api::InstanceFacet],
    ) -> Result<Vec<api::Instance>, CallError> {
        let request = api::ListInstancesRequest {
            cluster: Some(self.cluster.clone()),
            facets: facets.iter().map(|facet| i32::from(*facet)).collect(),
        };
        let rpc = Rpc::new(
            "ListInstances",
            &self.limiters.instances,
            self.deadlines.list,
        );
        self.call(rpc, None, request, |link, request| async move {
            use api::list_instances_response::Part as P;
            let stream = client(link).list_instances(request).await?.into_inner();
            let list = collect(rpc.name, stream, |message| match message.part {
                None => Part::Unset,
                Some(P::Failed(failure)) => Part::Failed(failure),
                Some(P::Instances(list)) => Part::Items(list.instances),
                Some(P::End(end)) => Part::End(end),
            })
            .await?;
            // The list also has instances whose prefix does not count (▲S21).
            list.into_iter()
                .map(|instance| limits::check_instance(instance, None))
                .collect::<Result<_, _>>()
                .map(Answered::well)
        })
        .await
    }

    fn view(&self, node: &Node) -> api::NodeView {
        node_view(node, &self.projections.nodes)
    }
}

/// The names and UIDs of these Nodes.
fn names(nodes: &[&Node]) -> Vec<(String, String)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let metadata = nodes.iter().map(|node| &node.metadata);
    metadata
        .map(|metadata| (text(&metadata.name), text(&metadata.uid)))
        .collect()
}
