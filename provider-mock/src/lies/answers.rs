//! Applies twists to an answer, below the SDK's native types, which cannot express invalid answers.

use cloud_provider_api::v1alpha1 as pb;
use pb::lookup_instance_result::Outcome as Lookup;
use prost::Message;
use provider_sdk::FailureCode;

use super::{Twist, Twists};
use crate::cloud::Cloud;
use crate::faults::{Fault, FaultKind, rewrite};
use crate::fixture::FailureSpec;
use crate::messages;
use crate::weather::is_trouble;

/// The messages of an answer after the twists. `Err`: the gRPC status instead.
pub(crate) fn twist(
    cloud: &Cloud,
    rpc: &'static str,
    request: &[u8],
    mut answer: Vec<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, tonic::Status> {
    let twists = cloud.twists();
    if twists.none() {
        return Ok(answer);
    }
    let outcome = {
        let bytes: Vec<_> = answer.iter().map(|bytes| bytes.clone().into()).collect();
        messages::outcome(rpc, &bytes)
    };
    if let Some(code) = outcome.strip_prefix("failed:") {
        // CORE-10 requires NOT_INITIALIZED, so it does not count as trouble.
        if code != "NOT_INITIALIZED" {
            let trouble = cloud.weather().failure().filter(is_trouble);
            if let Some(trouble) = trouble.filter(|_| twists.has(Twist::StaysDegraded)) {
                cloud.mischief().lasting_trouble = Some(trouble.message().to_owned());
            }
            if twists.has(Twist::FailedInitializeForgets) && rpc == "Initialize" {
                cloud.count_lie();
                cloud.mischief().forgot_initialize = true;
            }
            return failed(twists, rpc, code, request, answer);
        }
        return Ok(answer);
    }
    match rpc {
        "LookupInstances" => each(&mut answer, |answer| lookup(cloud, twists, request, answer)),
        "LookupZones" if twists.has(Twist::LastResultMissing) => {
            each(&mut answer, |answer: &mut pb::LookupZonesResponse| {
                answer.results.pop();
            });
        }
        "CreateRoutes" | "DeleteRoutes" => {
            // The answers to CreateRoutes and DeleteRoutes have the same encoding.
            each(&mut answer, |answer| routes_written(twists, answer));
        }
        "GetProviderInfo" if twists.has(Twist::BootIdChanges) => {
            each(&mut answer, |answer: &mut pb::GetProviderInfoResponse| {
                answer.boot_id = format!("{}-{}", answer.boot_id, number(cloud));
            });
        }
        "Probe" => each(&mut answer, |answer: &mut pb::ProbeResponse| {
            if twists.has(Twist::BootIdChanges) {
                answer.boot_id = format!("{}-{}", answer.boot_id, number(cloud));
            }
            if twists.has(Twist::ReadyOnlyInitialized) && cloud.mischief().initialized.is_none() {
                answer.state = pb::ProbeState::Starting.into();
                answer.message = "Initialize has not come yet".into();
            }
            if twists.has(Twist::ProbeAlwaysReady) {
                answer.state = pb::ProbeState::Ready.into();
                answer.message.clear();
            }
        }),
        "Initialize" => each(&mut answer, |answer: &mut pb::InitializeResponse| {
            if let Some(pb::initialize_response::Outcome::Initialized(done)) = &mut answer.outcome {
                if twists.has(Twist::ScopeChanges) {
                    done.cloud_scope = format!("{}, {}", done.cloud_scope, number(cloud));
                }
                if twists.has(Twist::ReadOnlyIgnored) {
                    let asked = pb::InitializeRequest::decode(request).unwrap_or_default();
                    done.read_only = asked.read_only;
                }
                if twists.has(Twist::ReadOnlyUnsaid) {
                    done.read_only = false;
                }
            }
        }),
        "EnsureLoadBalancer" if twists.has(Twist::ManyEvents) => {
            each(
                &mut answer,
                |answer: &mut pb::EnsureLoadBalancerResponse| {
                    let event = |number| pb::Event {
                        severity: pb::EventSeverity::Normal.into(),
                        reason: format!("Step{number}"),
                        message: format!("step {number} of 40"),
                    };
                    answer.events.extend((1..=40).map(event));
                },
            );
        }
        "GetVolumeLabels" if twists.has(Twist::ManyVolumeLabels) => {
            use pb::get_volume_labels_response::Outcome;
            each(&mut answer, |answer: &mut pb::GetVolumeLabelsResponse| {
                if let Some(Outcome::Labels(labels)) = &mut answer.outcome {
                    let label = |number| (format!("mock.grpc-ccm.io/{number}"), "x".repeat(63));
                    labels.labels.extend((0..2_000).map(label));
                }
            });
        }
        "GetVolumeLabels" if twists.has(Twist::ForeignVolumeNotFound) => {
            use pb::get_volume_labels_response::Outcome;
            each(&mut answer, |answer: &mut pb::GetVolumeLabelsResponse| {
                if matches!(&answer.outcome, Some(Outcome::Labels(labels)) if labels.labels.is_empty())
                {
                    answer.outcome = Some(Outcome::Failed(failure(FailureCode::NotFound)));
                }
            });
        }
        _ if rpc.starts_with("List") => answer = listing(twists, rpc, answer),
        _ => {}
    }
    Ok(answer)
}

/// Applies twists to an answer that is `failed` for the whole call.
fn failed(
    twists: Twists,
    rpc: &'static str,
    code: &str,
    request: &[u8],
    answer: Vec<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, tonic::Status> {
    if twists.has(Twist::StatusOnFailure) {
        return Err(tonic::Status::unknown(format!("the cloud said {code}")));
    }
    let taken = twists.has(Twist::BrokenRequestsTaken) && code == "INVALID";
    if (twists.has(Twist::AbsentOnFailure) || taken) && rpc == "LookupInstances" {
        let nodes = pb::LookupInstancesRequest::decode(request)
            .unwrap_or_default()
            .nodes;
        let absent = |node: pb::NodeView| pb::LookupInstanceResult {
            node_name: node.name,
            node_uid: node.uid,
            outcome: Some(Lookup::Found(absent())),
        };
        let answer = pb::LookupInstancesResponse {
            failed: None,
            results: nodes.into_iter().map(absent).collect(),
        };
        return Ok(vec![answer.encode_to_vec()]);
    }
    if taken && rpc == "LookupZones" {
        let nodes = pb::LookupZonesRequest::decode(request)
            .unwrap_or_default()
            .nodes;
        let nowhere = |node: pb::NodeView| pb::LookupZoneResult {
            node_name: node.name,
            node_uid: node.uid,
            outcome: Some(pb::lookup_zone_result::Outcome::Zone(pb::Zone::default())),
        };
        let answer = pb::LookupZonesResponse {
            failed: None,
            results: nodes.into_iter().map(nowhere).collect(),
        };
        return Ok(vec![answer.encode_to_vec()]);
    }
    if twists.has(Twist::NamelessServiceDeleted) && code == "INVALID" && rpc == "DeleteLoadBalancer"
    {
        use pb::delete_load_balancer_response::Outcome;
        let request = pb::DeleteLoadBalancerRequest::decode(request).unwrap_or_default();
        if request
            .service
            .is_some_and(|service| service.name.is_empty())
        {
            let answer = pb::DeleteLoadBalancerResponse {
                outcome: Some(Outcome::Done(pb::Done {})),
                ..Default::default()
            };
            return Ok(vec![answer.encode_to_vec()]);
        }
    }
    if twists.has(Twist::OkListOnFailure) && rpc.starts_with("List") {
        return Ok(rewrite::rewrite(
            rpc,
            &Fault::new(rpc, FaultKind::ListEmpty),
            None,
            answer,
        ));
    }
    if twists.has(Twist::UnknownDiskEmpty) && rpc == "GetVolumeLabels" && code == "NOT_FOUND" {
        use pb::get_volume_labels_response::Outcome;
        let outcome = Some(Outcome::Labels(pb::VolumeLabels::default()));
        return Ok(vec![
            pb::GetVolumeLabelsResponse { outcome }.encode_to_vec(),
        ]);
    }
    if twists.has(Twist::BatchesUnchecked) && code == "INVALID" && rpc.ends_with("Routes") {
        // The requests of CreateRoutes and DeleteRoutes have the same encoding, and so have the
        // answers.
        let routes = pb::CreateRoutesRequest::decode(request).unwrap_or_default();
        let done = |route: pb::Route| pb::RouteResult {
            route_key: route.route_key,
            outcome: Some(pb::route_result::Outcome::Done(pb::Done {})),
        };
        let answer = pb::CreateRoutesResponse {
            failed: None,
            results: routes.routes.into_iter().map(done).collect(),
        };
        return Ok(vec![answer.encode_to_vec()]);
    }
    if twists.has(Twist::LongTexts) {
        return Ok(rewrite::rewrite(
            rpc,
            &Fault::new(rpc, FaultKind::LongText),
            None,
            answer,
        ));
    }
    if twists.has(Twist::WrongCode) {
        return Ok(rewrite::failed(rpc, failure(FailureCode::Conflict)));
    }
    Ok(answer)
}

fn lookup(cloud: &Cloud, twists: Twists, request: &[u8], answer: &mut pb::LookupInstancesResponse) {
    let request = pb::LookupInstancesRequest::decode(request).unwrap_or_default();
    let metadata_asked = request.facets().any(|of| of == pb::InstanceFacet::Metadata);
    let nodes = request.nodes;
    for result in &mut answer.results {
        let node = nodes.iter().find(|node| node.name == result.node_name);
        let Some(Lookup::Found(found)) = &mut result.outcome else {
            continue;
        };
        let ready = node.is_some_and(|node| node.ready == Some(true));
        if (twists.has(Twist::ReadyAbsent) && ready)
            || (twists.has(Twist::StoppedAbsent) && found.state() == pb::InstanceState::Stopped)
            || (twists.has(Twist::ForeignAbsent) && found.state() == pb::InstanceState::Unmanaged)
        {
            *found = absent();
        }
        let nameless = node.is_some_and(|node| node.provider_id.is_none());
        if twists.has(Twist::NamelessUnmanaged)
            && nameless
            && found.state() == pb::InstanceState::Absent
        {
            found.state = pb::InstanceState::Unmanaged.into();
        }
        let stopped = found.state() == pb::InstanceState::Stopped;
        if twists.has(Twist::RunsWithoutMetadata) && stopped && !metadata_asked {
            found.state = pb::InstanceState::Running.into();
        }
        if let Some(id) = &mut found.provider_id {
            if twists.has(Twist::ForeignPrefix) {
                let rest = id.split_once("://").map_or("", |(_, rest)| rest);
                *id = format!("elsewhere://{rest}");
            }
            if twists.has(Twist::IdChanges) {
                *id = format!("{id}-{}", number(cloud));
            }
        }
        if twists.has(Twist::Stale) {
            let id = node.and_then(|node| node.provider_id.as_deref());
            let key = format!("{} {}", result.node_name, id.unwrap_or_default());
            let first = cloud.mischief().first_answers.get(&key).cloned();
            match first {
                Some(first) => *found = first,
                None => {
                    cloud.mischief().first_answers.insert(key, found.clone());
                }
            }
        }
    }
    let is_absent = |result: &pb::LookupInstanceResult| matches!(&result.outcome, Some(Lookup::Found(found)) if found.state() == pb::InstanceState::Absent);
    if twists.has(Twist::WholeBatchFails) && answer.results.iter().any(is_absent) {
        answer.failed = Some(failure(FailureCode::Internal));
        answer.results.clear();
    }
    if twists.has(Twist::LastResultMissing) {
        answer.results.pop();
    }
}

fn routes_written(twists: Twists, answer: &mut pb::CreateRoutesResponse) {
    use pb::route_result::Outcome;
    let of_failed = |result: &pb::RouteResult| match &result.outcome {
        Some(Outcome::Failed(failure)) => Some(failure.clone()),
        _ => None,
    };
    let first_failed = answer.results.iter().find_map(of_failed);
    if let (true, Some(failure)) = (twists.has(Twist::WholeBatchFails), first_failed) {
        answer.results.clear();
        answer.failed = Some(failure);
    }
    if twists.has(Twist::NamelessRouteDone) {
        let nameless = |failure: &pb::Failure| {
            failure.code() == pb::FailureCode::Invalid && failure.message.contains("no name")
        };
        for result in &mut answer.results {
            if of_failed(result).is_some_and(|failure| nameless(&failure)) {
                result.outcome = Some(Outcome::Done(pb::Done {}));
            }
        }
    }
    if twists.has(Twist::LastResultMissing) {
        answer.results.pop();
    }
}

/// With some twists, a listing omits items and ends as if it were complete.
fn listing(twists: Twists, rpc: &str, answer: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    macro_rules! of {
        ($message:ident, $part:path, $keep:expr) => {{
            use $part as Part;
            let mut parts: Vec<pb::$message> = answer
                .iter()
                .filter_map(|bytes| pb::$message::decode(bytes.as_slice()).ok())
                .collect();
            let mut count = 0;
            #[allow(unused_mut)] // only some of them count
            let mut keep = $keep;
            parts.retain_mut(|part| match &mut part.part {
                Some(Part::End(end)) => {
                    end.total = count;
                    true
                }
                Some(other) => keep(other, &mut count),
                None => true,
            });
            parts.iter().map(Message::encode_to_vec).collect()
        }};
    }
    let partial = twists.has(Twist::PartialList);
    match rpc {
        "ListInstances" if partial => of!(
            ListInstancesResponse,
            pb::list_instances_response::Part,
            |part: &mut Part, count: &mut u64| {
                if let Part::Instances(list) = part {
                    every_second(&mut list.instances, count);
                }
                true
            }
        ),
        "ListRoutes" if partial => of!(
            ListRoutesResponse,
            pb::list_routes_response::Part,
            |part: &mut Part, count: &mut u64| {
                if let Part::Routes(list) = part {
                    every_second(&mut list.routes, count);
                }
                true
            }
        ),
        "ListRoutes" if twists.has(Twist::BlackholesLeftOut) => of!(
            ListRoutesResponse,
            pb::list_routes_response::Part,
            |part: &mut Part, count: &mut u64| {
                if let Part::Routes(list) = part {
                    list.routes.retain(|route| !route.blackhole);
                    *count += list.routes.len() as u64;
                }
                true
            }
        ),
        "ListClusters" if partial => of!(
            ListClustersResponse,
            pb::list_clusters_response::Part,
            |part: &mut Part, count: &mut u64| {
                if let Part::Clusters(list) = part {
                    every_second(&mut list.names, count);
                }
                true
            }
        ),
        "ListLoadBalancers" if partial => {
            let mut number = 0;
            of!(
                ListLoadBalancersResponse,
                pb::list_load_balancers_response::Part,
                |_: &mut Part, count: &mut u64| {
                    number += 1;
                    let kept = number % 2 == 0;
                    *count += u64::from(kept);
                    kept
                }
            )
        }
        _ => answer,
    }
}

/// Removes the first, third, … item.
fn every_second<T>(items: &mut Vec<T>, count: &mut u64) {
    let mut number = 0;
    items.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    *count += items.len() as u64;
}

fn absent() -> pb::Instance {
    pb::Instance {
        state: pb::InstanceState::Absent.into(),
        ..pb::Instance::default()
    }
}

fn failure(code: FailureCode) -> pb::Failure {
    let mut fault = Fault::failure("LookupInstances", code);
    fault.failure = Some(FailureSpec::new(code));
    rewrite::failure_of(&fault)
}

/// A different number at each call.
fn number(cloud: &Cloud) -> u64 {
    let mut mischief = cloud.mischief();
    mischief.last_lie += 1;
    mischief.last_lie
}

fn each<M: Message + Default>(messages: &mut [Vec<u8>], mut change: impl FnMut(&mut M)) {
    for bytes in messages {
        if let Ok(mut message) = M::decode(bytes.as_slice()) {
            change(&mut message);
            *bytes = message.encode_to_vec();
        }
    }
}
