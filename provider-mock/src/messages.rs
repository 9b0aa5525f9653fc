//! Reads requests and answers for the layer: the subjects of a call, its outcome, and single items
//! of a batch.

use std::time::Duration;

use bytes::Bytes;
use cloud_provider_api::v1alpha1 as pb;
use prost::Message;

use crate::calls::KEPT_NAMES;
use crate::faults::RPCS;

const PACKAGE: &str = "/cloudprovider.v1alpha1.";

/// The RPC of the contract that this path names.
pub(crate) fn rpc_of(path: &str) -> Option<&'static str> {
    let (_, rpc) = path.strip_prefix(PACKAGE)?.split_once('/')?;
    RPCS.into_iter().find(|of| *of == rpc)
}

/// Whether the RPC's answer has one result for each item.
pub(crate) fn is_batch(rpc: &str) -> bool {
    matches!(
        rpc,
        "LookupInstances" | "LookupZones" | "CreateRoutes" | "DeleteRoutes"
    )
}

/// Whether the layer answers NOT_INITIALIZED to this RPC after a forgotten Initialize (CORE-10).
pub(crate) fn needs_initialize(rpc: &str) -> bool {
    !matches!(rpc, "GetProviderInfo" | "Probe" | "Initialize")
}

/// The subjects of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subjects {
    /// The number of subjects.
    pub(crate) count: usize,
    /// The first of them, for the log.
    pub(crate) shown: Vec<String>,
    /// All names by which a fault may select one of them.
    pub(crate) matched: Vec<String>,
}

impl Subjects {
    pub(crate) fn of(rpc: &str, request: &Bytes) -> Self {
        fn read<M: Message + Default>(request: &Bytes) -> M {
            M::decode(request.clone()).unwrap_or_default()
        }
        match rpc {
            "LookupInstances" => Self::nodes(read::<pb::LookupInstancesRequest>(request).nodes),
            "LookupZones" => Self::nodes(read::<pb::LookupZonesRequest>(request).nodes),
            "CreateRoutes" => Self::routes(&read::<pb::CreateRoutesRequest>(request).routes),
            "DeleteRoutes" => Self::routes(&read::<pb::DeleteRoutesRequest>(request).routes),
            "GetLoadBalancer" => Self::service(read::<pb::GetLoadBalancerRequest>(request).service),
            "EnsureLoadBalancer" => {
                Self::service(read::<pb::EnsureLoadBalancerRequest>(request).service)
            }
            "UpdateLoadBalancer" => {
                Self::service(read::<pb::UpdateLoadBalancerRequest>(request).service)
            }
            "DeleteLoadBalancer" => {
                Self::service(read::<pb::DeleteLoadBalancerRequest>(request).service)
            }
            "GetVolumeLabels" => {
                let volume = read::<pb::GetVolumeLabelsRequest>(request).volume;
                Self::names(volume.into_iter().map(|volume| volume.name).collect())
            }
            "GetControlPlaneAddress" => Self::names(vec![
                read::<pb::GetControlPlaneAddressRequest>(request).cluster_name,
            ]),
            _ => Self::default(),
        }
    }

    fn nodes(nodes: Vec<pb::NodeView>) -> Self {
        Self::names(nodes.into_iter().map(|node| node.name).collect())
    }

    fn service(service: Option<pb::ServiceView>) -> Self {
        let name = |service: pb::ServiceView| format!("{}/{}", service.namespace, service.name);
        Self::names(service.into_iter().map(name).collect())
    }

    fn routes(routes: &[pb::Route]) -> Self {
        let shown = routes.iter().take(KEPT_NAMES);
        Self {
            count: routes.len(),
            shown: shown.map(|route| route.destination_cidr.clone()).collect(),
            matched: routes.iter().flat_map(keys_of_route).collect(),
        }
    }

    fn names(names: Vec<String>) -> Self {
        Self {
            count: names.len(),
            shown: names.iter().take(KEPT_NAMES).cloned().collect(),
            matched: names,
        }
    }
}

/// All names by which a fault may select a route.
fn keys_of_route(route: &pb::Route) -> Vec<String> {
    let mut keys = vec![route.route_key.clone(), route.destination_cidr.clone()];
    keys.extend(route.node_name.clone());
    keys
}

/// The keys of the batch's items that a fault with this subject selects. The results in the answer
/// have the same keys.
pub(crate) fn keys_of_items(rpc: &str, request: &Bytes, subject: &str) -> Vec<String> {
    if !matches!(rpc, "CreateRoutes" | "DeleteRoutes") {
        return vec![subject.to_owned()];
    }
    // The requests of CreateRoutes and DeleteRoutes have the same encoding.
    let request = pb::CreateRoutesRequest::decode(request.clone()).unwrap_or_default();
    let routes = request.routes.into_iter();
    routes
        .filter(|route| keys_of_route(route).iter().any(|key| key == subject))
        .map(|route| route.route_key)
        .collect()
}

/// Items that did not reach the provider: the key, and the UID of a Node.
pub(crate) type LeftOut = Vec<(String, String)>;

/// The request without the items of these subjects: their failure is scripted, so they do not reach
/// the cloud.
pub(crate) fn without_items(rpc: &str, body: &Bytes, subjects: &[&String]) -> (Bytes, LeftOut) {
    let named = |keys: &[String]| keys.iter().any(|key| subjects.contains(&key));
    let mut left_out = LeftOut::new();
    let mut keep_node = |node: &pb::NodeView| {
        let leave = named(std::slice::from_ref(&node.name));
        if leave {
            left_out.push((node.name.clone(), node.uid.clone()));
        }
        !leave
    };
    let message = body.slice(body.len().min(5)..);
    let changed = match rpc {
        _ if subjects.is_empty() => None,
        "LookupInstances" => pb::LookupInstancesRequest::decode(message)
            .ok()
            .map(|mut request| {
                request.nodes.retain(&mut keep_node);
                request.encode_to_vec()
            }),
        "LookupZones" => pb::LookupZonesRequest::decode(message)
            .ok()
            .map(|mut request| {
                request.nodes.retain(&mut keep_node);
                request.encode_to_vec()
            }),
        "CreateRoutes" | "DeleteRoutes" => {
            // The requests of CreateRoutes and DeleteRoutes have the same encoding.
            pb::CreateRoutesRequest::decode(message)
                .ok()
                .map(|mut request| {
                    request.routes.retain(|route| {
                        let leave = named(&keys_of_route(route));
                        if leave {
                            left_out.push((route.route_key.clone(), String::new()));
                        }
                        !leave
                    });
                    request.encode_to_vec()
                })
        }
        _ => None,
    };
    let body = changed.filter(|_| !left_out.is_empty()).map_or_else(
        || body.clone(),
        |message| {
            let mut framed = vec![0];
            framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
            framed.extend_from_slice(&message);
            framed.into()
        },
    );
    (body, left_out)
}

/// The answer with an unset result for each item that did not reach the provider.
pub(crate) fn with_items(rpc: &str, messages: Vec<Vec<u8>>, left_out: &LeftOut) -> Vec<Vec<u8>> {
    if left_out.is_empty() {
        return messages;
    }
    let change = |bytes: Vec<u8>| {
        let items = left_out.iter().cloned();
        let changed = match rpc {
            "LookupInstances" => {
                pb::LookupInstancesResponse::decode(bytes.as_slice()).map(|mut answer| {
                    answer.results.extend(items.map(|(node_name, node_uid)| {
                        pb::LookupInstanceResult {
                            node_name,
                            node_uid,
                            outcome: None,
                        }
                    }));
                    answer.encode_to_vec()
                })
            }
            "LookupZones" => pb::LookupZonesResponse::decode(bytes.as_slice()).map(|mut answer| {
                answer
                    .results
                    .extend(items.map(|(node_name, node_uid)| pb::LookupZoneResult {
                        node_name,
                        node_uid,
                        outcome: None,
                    }));
                answer.encode_to_vec()
            }),
            // The answers to CreateRoutes and DeleteRoutes have the same encoding.
            _ => pb::CreateRoutesResponse::decode(bytes.as_slice()).map(|mut answer| {
                answer
                    .results
                    .extend(items.map(|(route_key, _)| pb::RouteResult {
                        route_key,
                        outcome: None,
                    }));
                answer.encode_to_vec()
            }),
        };
        changed.unwrap_or(bytes)
    };
    messages.into_iter().map(change).collect()
}

/// The outcome of a call.
enum Came {
    Failed(pb::Failure),
    Other(String),
}

/// The outcome of a call, as the log shows it.
pub(crate) fn outcome(rpc: &str, messages: &[Bytes]) -> String {
    match came(rpc, messages) {
        Came::Failed(failure) => {
            let name = failure.code().as_str_name();
            let name = name.strip_prefix("FAILURE_CODE_").unwrap_or(name);
            format!("failed:{name}")
        }
        Came::Other(word) => word,
    }
}

/// The `retry_after` of a THROTTLED answer.
pub(crate) fn throttled(rpc: &str, messages: &[Bytes]) -> Option<Duration> {
    match came(rpc, messages) {
        Came::Failed(failure) if failure.code() == pb::FailureCode::Throttled => {
            failure.retry_after?.try_into().ok()
        }
        _ => None,
    }
}

/// The logged outcome of a batch in which this many items failed.
fn items_word(bad: usize) -> String {
    if bad == 0 {
        "ok".into()
    } else {
        format!("ok, {bad} failed")
    }
}

fn came(rpc: &str, messages: &[Bytes]) -> Came {
    let Some(last) = messages.last() else {
        return Came::Other("ok, no answer".into());
    };
    macro_rules! of {
        ($message:ident, $field:ident, $oneof:path $(, $other:ident = $text:literal)*) => {{
            use $oneof as Of;
            match pb::$message::decode(last.clone()).ok().and_then(|answer| answer.$field) {
                Some(Of::Failed(failure)) => return Came::Failed(failure),
                $(Some(Of::$other(_)) => $text.into(),)*
                Some(_) => "ok".into(),
                None => "unset".into(),
            }
        }};
    }
    macro_rules! of_batch {
        ($message:ident, $oneof:path) => {{
            use $oneof as Of;
            match pb::$message::decode(last.clone()) {
                Ok(answer) => match answer.failed {
                    Some(failure) => return Came::Failed(failure),
                    None => {
                        let bad = answer
                            .results
                            .iter()
                            .filter(|result| matches!(result.outcome, Some(Of::Failed(_)) | None))
                            .count();
                        items_word(bad)
                    }
                },
                Err(_) => "garbage".into(),
            }
        }};
    }
    Came::Other(match rpc {
        "Initialize" => of!(
            InitializeResponse,
            outcome,
            pb::initialize_response::Outcome
        ),
        "GetLoadBalancer" => of!(
            GetLoadBalancerResponse,
            outcome,
            pb::get_load_balancer_response::Outcome
        ),
        "EnsureLoadBalancer" => of!(
            EnsureLoadBalancerResponse,
            outcome,
            pb::ensure_load_balancer_response::Outcome,
            Pending = "pending",
            HandledElsewhere = "handled-elsewhere"
        ),
        "UpdateLoadBalancer" => of!(
            UpdateLoadBalancerResponse,
            outcome,
            pb::update_load_balancer_response::Outcome,
            Pending = "pending",
            HandledElsewhere = "handled-elsewhere"
        ),
        "DeleteLoadBalancer" => of!(
            DeleteLoadBalancerResponse,
            outcome,
            pb::delete_load_balancer_response::Outcome,
            Pending = "pending",
            HandledElsewhere = "handled-elsewhere",
            Retained = "retained"
        ),
        "GetControlPlaneAddress" => {
            of!(
                GetControlPlaneAddressResponse,
                outcome,
                pb::get_control_plane_address_response::Outcome
            )
        }
        "GetVolumeLabels" => of!(
            GetVolumeLabelsResponse,
            outcome,
            pb::get_volume_labels_response::Outcome
        ),
        "ListInstances" => of!(
            ListInstancesResponse,
            part,
            pb::list_instances_response::Part
        ),
        "ListLoadBalancers" => of!(
            ListLoadBalancersResponse,
            part,
            pb::list_load_balancers_response::Part
        ),
        "ListRoutes" => of!(ListRoutesResponse, part, pb::list_routes_response::Part),
        "ListClusters" => of!(ListClustersResponse, part, pb::list_clusters_response::Part),
        "LookupInstances" => {
            of_batch!(LookupInstancesResponse, pb::lookup_instance_result::Outcome)
        }
        "LookupZones" => of_batch!(LookupZonesResponse, pb::lookup_zone_result::Outcome),
        "CreateRoutes" => of_batch!(CreateRoutesResponse, pb::route_result::Outcome),
        "DeleteRoutes" => of_batch!(DeleteRoutesResponse, pb::route_result::Outcome),
        _ => "ok".into(),
    })
}
