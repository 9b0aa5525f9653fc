//! Applies faults to an answer, below the SDK's native types, which cannot express invalid answers.

mod empty;
mod outcomes;

use cloud_provider_api::v1alpha1 as pb;
use prost::Message;

use outcomes::{Batch, SingleOutcome, batch, listing, single};

use super::{Fault, FaultKind};

/// An answer of 20 MiB is more than the controller accepts.
const OVERSIZED_BYTES: usize = 20 * 1024 * 1024;
/// A field number that the contract does not use.
const UNKNOWN_FIELD: u32 = 15_000;

/// The messages of an answer after the fault. An answer to which the fault does not apply stays.
/// `keys` names the items of a batch to which the fault applies; `None`: all.
pub(crate) fn rewrite(
    rpc: &str,
    fault: &Fault,
    keys: Option<&[String]>,
    mut messages: Vec<Vec<u8>>,
) -> Vec<Vec<u8>> {
    match fault.kind {
        FaultKind::EmptyAnswer => return vec![Vec::new()],
        FaultKind::NoAnswer => return Vec::new(),
        // Field 1 with a length beyond the end.
        FaultKind::Garbage => return vec![vec![0x0a, 0xff, 0xff, 0x03, 0x00]],
        FaultKind::EmptyItems => return empty::items(rpc, fault.value.as_deref()),
        FaultKind::Oversized => {
            if messages.is_empty() {
                messages.push(Vec::new());
            }
            let tag = prost::encoding::WireType::LengthDelimited;
            prost::encoding::encode_key(UNKNOWN_FIELD, tag, &mut messages[0]);
            prost::encoding::encode_varint(OVERSIZED_BYTES as u64, &mut messages[0]);
            let size = messages[0].len() + OVERSIZED_BYTES;
            messages[0].resize(size, b'x');
            return messages;
        }
        _ => {}
    }
    match rpc {
        "GetProviderInfo" => each(messages, |answer| provider_info(fault, answer)),
        "Probe" => each(messages, |answer| probe(fault, answer)),
        "LookupInstances" => each(messages, |answer| {
            batch::<pb::LookupInstancesResponse>(fault, keys, answer);
            for result in &mut answer.results {
                let ours = keys.is_none_or(|keys| keys.contains(&result.node_name));
                if let (true, Some(pb::lookup_instance_result::Outcome::Found(found))) =
                    (ours, &mut result.outcome)
                {
                    instance(fault, found);
                }
            }
        }),
        "LookupZones" => each(messages, |answer| {
            batch::<pb::LookupZonesResponse>(fault, keys, answer);
        }),
        "CreateRoutes" => each(messages, |answer| {
            batch::<pb::CreateRoutesResponse>(fault, keys, answer);
        }),
        "DeleteRoutes" => each(messages, |answer| {
            batch::<pb::DeleteRoutesResponse>(fault, keys, answer);
        }),
        "Initialize" => each(messages, |answer: &mut pb::InitializeResponse| {
            if let (
                FaultKind::CloudScope,
                Some(pb::initialize_response::Outcome::Initialized(done)),
            ) = (fault.kind, &mut answer.outcome)
            {
                done.cloud_scope = fault.value.clone().unwrap_or_default();
            }
            single(fault, answer);
        }),
        "GetControlPlaneAddress" => each(
            messages,
            |answer: &mut pb::GetControlPlaneAddressResponse| {
                single(fault, answer);
            },
        ),
        "GetVolumeLabels" => each(messages, |answer: &mut pb::GetVolumeLabelsResponse| {
            single(fault, answer);
        }),
        "ListInstances" => {
            let messages = each(messages, |answer: &mut pb::ListInstancesResponse| {
                if let Some(pb::list_instances_response::Part::Instances(list)) = &mut answer.part {
                    list.instances
                        .iter_mut()
                        .for_each(|found| instance(fault, found));
                }
            });
            listing::<pb::ListInstancesResponse>(fault, &messages)
        }
        "ListRoutes" => {
            let messages = each(messages, |answer: &mut pb::ListRoutesResponse| {
                if let (FaultKind::Ownership, Some(pb::list_routes_response::Part::Routes(list))) =
                    (fault.kind, &mut answer.part)
                {
                    list.routes
                        .iter_mut()
                        .for_each(|route| route.ownership = number(fault, ownership));
                }
            });
            listing::<pb::ListRoutesResponse>(fault, &messages)
        }
        "ListLoadBalancers" => {
            use pb::list_load_balancers_response::Part;
            let messages = each(messages, |answer: &mut pb::ListLoadBalancersResponse| {
                if let (FaultKind::OwnerUid, Some(Part::LoadBalancer(listed))) =
                    (fault.kind, &mut answer.part)
                {
                    for owner in &mut listed.owners {
                        owner.uid = fault.value.clone().unwrap_or_default();
                    }
                }
            });
            listing::<pb::ListLoadBalancersResponse>(fault, &messages)
        }
        "ListClusters" => listing::<pb::ListClustersResponse>(fault, &messages),
        _ => load_balancer(rpc, fault, messages),
    }
}

/// [`rewrite`] for the calls about one load balancer.
fn load_balancer(rpc: &str, fault: &Fault, messages: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    match rpc {
        "GetLoadBalancer" => each(messages, |answer: &mut pb::GetLoadBalancerResponse| {
            handle(fault, &mut answer.handle);
            if let Some(pb::get_load_balancer_response::Outcome::Found(found)) = &mut answer.outcome
            {
                match fault.kind {
                    FaultKind::InSync => {
                        found.in_sync = fault.value.as_deref().map(|v| v == "true");
                    }
                    FaultKind::Presence => found.presence = number(fault, presence),
                    FaultKind::Ownership => found.ownership = number(fault, ownership),
                    FaultKind::IngressAddress => found.status = Some(status(fault)),
                    _ => {}
                }
            }
            single(fault, answer);
        }),
        "EnsureLoadBalancer" => each(messages, |answer: &mut pb::EnsureLoadBalancerResponse| {
            handle(fault, &mut answer.handle);
            match fault.kind {
                FaultKind::IngressAddress => {
                    answer.outcome = Some(pb::ensure_load_balancer_response::Outcome::Ready(
                        pb::LoadBalancerReady {
                            status: Some(status(fault)),
                        },
                    ));
                }
                FaultKind::Pending => {
                    answer.outcome = Some(pb::ensure_load_balancer_response::Outcome::Pending(
                        pending(fault),
                    ));
                }
                _ => single(fault, answer),
            }
        }),
        "UpdateLoadBalancer" => each(messages, |answer: &mut pb::UpdateLoadBalancerResponse| {
            handle(fault, &mut answer.handle);
            if fault.kind == FaultKind::Pending {
                answer.outcome = Some(pb::update_load_balancer_response::Outcome::Pending(
                    pending(fault),
                ));
            }
            single(fault, answer);
        }),
        "DeleteLoadBalancer" => each(messages, |answer: &mut pb::DeleteLoadBalancerResponse| {
            handle(fault, &mut answer.handle);
            if fault.kind == FaultKind::Pending {
                answer.outcome = Some(pb::delete_load_balancer_response::Outcome::Pending(
                    pending(fault),
                ));
            }
            single(fault, answer);
        }),
        _ => messages,
    }
}

/// An answer that is `failed` for the whole call.
pub(crate) fn failed(rpc: &str, failure: pb::Failure) -> Vec<Vec<u8>> {
    fn whole<M: SingleOutcome>(failure: pb::Failure) -> Vec<u8> {
        let mut answer = M::default();
        answer.fail(failure);
        answer.encode_to_vec()
    }
    fn of_batch<M: Batch>(failure: pb::Failure) -> Vec<u8> {
        let mut answer = M::default();
        *answer.failed() = Some(failure);
        answer.encode_to_vec()
    }
    let message = match rpc {
        "Initialize" => whole::<pb::InitializeResponse>(failure),
        "WatchChanges" => whole::<pb::WatchChangesResponse>(failure),
        "GetLoadBalancer" => whole::<pb::GetLoadBalancerResponse>(failure),
        "EnsureLoadBalancer" => whole::<pb::EnsureLoadBalancerResponse>(failure),
        "UpdateLoadBalancer" => whole::<pb::UpdateLoadBalancerResponse>(failure),
        "DeleteLoadBalancer" => whole::<pb::DeleteLoadBalancerResponse>(failure),
        "GetControlPlaneAddress" => whole::<pb::GetControlPlaneAddressResponse>(failure),
        "GetVolumeLabels" => whole::<pb::GetVolumeLabelsResponse>(failure),
        "LookupInstances" => of_batch::<pb::LookupInstancesResponse>(failure),
        "LookupZones" => of_batch::<pb::LookupZonesResponse>(failure),
        "CreateRoutes" => of_batch::<pb::CreateRoutesResponse>(failure),
        "DeleteRoutes" => of_batch::<pb::DeleteRoutesResponse>(failure),
        "ListInstances" => whole::<pb::ListInstancesResponse>(failure),
        "ListLoadBalancers" => whole::<pb::ListLoadBalancersResponse>(failure),
        "ListRoutes" => whole::<pb::ListRoutesResponse>(failure),
        "ListClusters" => whole::<pb::ListClustersResponse>(failure),
        _ => return Vec::new(),
    };
    vec![message]
}

/// The failure of a fault as a message.
pub(crate) fn failure_of(fault: &Fault) -> pb::Failure {
    let failure = fault.failure_spec().to_failure();
    let code = pb::FailureCode::from_str_name(&format!("FAILURE_CODE_{}", failure.code().as_str()));
    pb::Failure {
        code: code.unwrap_or(pb::FailureCode::Internal).into(),
        reason: failure.reason().into(),
        message: failure.message().into(),
        retry_after: failure
            .retry_delay()
            .and_then(|delay| prost_types::Duration::try_from(delay).ok()),
    }
}

/// An error says why the fault's kind cannot use its value.
pub(super) fn check_value(fault: &Fault) -> Result<(), String> {
    let Some(value) = &fault.value else {
        return Ok(());
    };
    let known = match fault.kind {
        FaultKind::InstanceState => value.parse::<i32>().is_ok() || instance_state(value).is_some(),
        FaultKind::Presence => value.parse::<i32>().is_ok() || presence(value).is_some(),
        FaultKind::Ownership => value.parse::<i32>().is_ok() || ownership(value).is_some(),
        FaultKind::ProbeState => value.parse::<i32>().is_ok() || probe_state(value).is_some(),
        FaultKind::ContractMinor | FaultKind::MinControllerMinor | FaultKind::EmptyItems => {
            value.parse::<u32>().is_ok()
        }
        FaultKind::InSync => value == "true" || value == "false",
        FaultKind::InstanceLabel => value.contains('='),
        _ => true,
    };
    if known {
        Ok(())
    } else {
        Err(format!(
            "value: {value:?} does not fit {}; write {}",
            fault.kind,
            fault.kind.row().value
        ))
    }
}

fn each<M: Message + Default>(
    messages: Vec<Vec<u8>>,
    mut change: impl FnMut(&mut M),
) -> Vec<Vec<u8>> {
    messages
        .into_iter()
        .map(|bytes| match M::decode(bytes.as_slice()) {
            Ok(mut message) => {
                change(&mut message);
                message.encode_to_vec()
            }
            Err(_) => bytes,
        })
        .collect()
}

fn instance_state(name: &str) -> Option<i32> {
    pb::InstanceState::from_str_name(&format!("INSTANCE_STATE_{name}")).map(Into::into)
}

fn presence(name: &str) -> Option<i32> {
    pb::LoadBalancerPresence::from_str_name(&format!("LOAD_BALANCER_PRESENCE_{name}"))
        .map(Into::into)
}

fn ownership(name: &str) -> Option<i32> {
    pb::Ownership::from_str_name(&format!("OWNERSHIP_{name}")).map(Into::into)
}

fn probe_state(name: &str) -> Option<i32> {
    pb::ProbeState::from_str_name(&format!("PROBE_STATE_{name}")).map(Into::into)
}

/// The fault's value as a number for an enum. The enum need not have this number.
fn number(fault: &Fault, name: impl Fn(&str) -> Option<i32>) -> i32 {
    let value = fault.value.as_deref().unwrap_or("UNSPECIFIED");
    name(value).or_else(|| value.parse().ok()).unwrap_or(0)
}

fn provider_info(fault: &Fault, answer: &mut pb::GetProviderInfoResponse) {
    let text = || fault.value.clone().unwrap_or_default();
    let minor = || text().parse().unwrap_or_default();
    match fault.kind {
        FaultKind::BootId => answer.boot_id = text(),
        FaultKind::ContractMinor => answer.contract_minor = minor(),
        FaultKind::MinControllerMinor => answer.min_controller_minor = minor(),
        FaultKind::ProviderName => answer.provider_name = text(),
        FaultKind::ProviderIdPrefix => {
            answer.provider_id_prefixes = fault.value.iter().cloned().collect();
        }
        FaultKind::LoadBalancerClass => {
            let offered = answer.capabilities.as_mut();
            if let Some(offer) = offered.and_then(|offered| offered.load_balancers.as_mut()) {
                offer.classes.extend(fault.value.clone());
            }
        }
        FaultKind::NoCapabilities => answer.capabilities = None,
        _ => {}
    }
}

fn probe(fault: &Fault, answer: &mut pb::ProbeResponse) {
    match fault.kind {
        FaultKind::BootId => answer.boot_id = fault.value.clone().unwrap_or_default(),
        FaultKind::ProbeState => {
            answer.state = number(fault, probe_state);
            answer.message = "scripted by the mock".into();
        }
        _ => {}
    }
}

fn instance(fault: &Fault, instance: &mut pb::Instance) {
    match fault.kind {
        FaultKind::InstanceState => instance.state = number(fault, instance_state),
        FaultKind::ProviderId => instance.provider_id.clone_from(&fault.value),
        FaultKind::InstanceLabel => {
            if let Some((key, value)) = fault.value.as_deref().and_then(|text| text.split_once('='))
            {
                instance.labels.insert(key.into(), value.into());
            }
        }
        FaultKind::InstanceAddress => {
            let internal = pb::NodeAddressType::InternalIp;
            let address = |address: &String| pb::NodeAddress {
                r#type: internal.into(),
                address: address.clone(),
            };
            instance.addresses = fault.value.iter().map(address).collect();
        }
        _ => {}
    }
}

fn handle(fault: &Fault, handle: &mut Option<String>) {
    if fault.kind == FaultKind::Handle {
        handle.clone_from(&fault.value);
    }
}

fn status(fault: &Fault) -> pb::LoadBalancerStatus {
    let ingress = |ip: &String| pb::LoadBalancerIngress {
        ip: Some(ip.clone()),
        ..pb::LoadBalancerIngress::default()
    };
    pb::LoadBalancerStatus {
        ingress: fault.value.iter().map(ingress).collect(),
    }
}

fn pending(fault: &Fault) -> pb::Pending {
    let delay = fault.delay.map(|delay| delay.0);
    pb::Pending {
        retry_after: delay.and_then(|delay| prost_types::Duration::try_from(delay).ok()),
        message: "scripted by the mock".into(),
    }
}
