//! The answers and frames that fuzzing starts with.

use cloud_provider_api::v1alpha1 as api;
use prost::Message as _;

use super::{NAMES, frame, info};

fn zones(zone: &str, region: &str) -> api::LookupZonesResponse {
    api::LookupZonesResponse {
        results: vec![api::LookupZoneResult {
            node_name: NAMES[0].into(),
            node_uid: format!("uid-{}", NAMES[0]),
            outcome: Some(api::lookup_zone_result::Outcome::Zone(api::Zone {
                zone: Some(zone.to_owned()),
                region: Some(region.to_owned()),
            })),
        }],
        ..Default::default()
    }
}

fn failure() -> api::Failure {
    api::Failure {
        code: api::FailureCode::Throttled.into(),
        reason: "Slow".into(),
        message: "slow down".into(),
        retry_after: Some(prost_types::Duration {
            seconds: 3,
            nanos: 0,
        }),
    }
}

fn lookup() -> api::LookupInstancesResponse {
    api::LookupInstancesResponse {
        results: NAMES
            .map(|name| api::LookupInstanceResult {
                node_name: name.into(),
                node_uid: format!("uid-{name}"),
                outcome: Some(api::lookup_instance_result::Outcome::Found(api::Instance {
                    state: api::InstanceState::Running.into(),
                    provider_id: Some(format!("mock://{name}")),
                    instance_type: Some("large".into()),
                    addresses: vec![api::NodeAddress {
                        r#type: api::NodeAddressType::InternalIp.into(),
                        address: "192.0.2.1".into(),
                    }],
                    labels: [("a".to_owned(), "b".to_owned())].into(),
                    ..Default::default()
                })),
            })
            .into(),
        ..Default::default()
    }
}

/// At least one answer of each RPC. Some are valid, others have only empty fields or break the
/// contract.
pub(crate) fn answer_seeds() -> Vec<Vec<u8>> {
    let zones = zones("z", "r");
    let found = api::GetLoadBalancerResponse {
        handle: Some("lb-1".into()),
        events: vec![api::Event {
            reason: "Made".into(),
            message: "it was made".into(),
            ..Default::default()
        }],
        outcome: Some(api::get_load_balancer_response::Outcome::Found(
            api::LoadBalancer {
                presence: api::LoadBalancerPresence::Present.into(),
                ownership: api::Ownership::Ours.into(),
                load_balancer_name: "a-lb".into(),
                in_sync: Some(true),
                status: Some(api::LoadBalancerStatus {
                    ingress: vec![api::LoadBalancerIngress {
                        ip: Some("192.0.2.1".into()),
                        ..Default::default()
                    }],
                }),
            },
        )),
        ..Default::default()
    };
    let ensured = api::EnsureLoadBalancerResponse {
        handle: Some("lb-1".into()),
        outcome: Some(api::ensure_load_balancer_response::Outcome::Failed(
            failure(),
        )),
        target_errors: vec![api::TargetError {
            node_name: NAMES[0].into(),
            failure: Some(failure()),
        }],
        ..Default::default()
    };
    let labels = api::GetVolumeLabelsResponse {
        outcome: Some(api::get_volume_labels_response::Outcome::Labels(
            api::VolumeLabels {
                labels: [("z".to_owned(), "a".to_owned())].into(),
            },
        )),
    };
    let initialized = api::InitializeResponse {
        outcome: Some(api::initialize_response::Outcome::Initialized(
            api::Initialized {
                cloud_scope: "account 1".into(),
                ..Default::default()
            },
        )),
    };
    let messages = [
        (0, lookup().encode_to_vec()),
        (1, zones.encode_to_vec()),
        (3, found.encode_to_vec()),
        (4, ensured.encode_to_vec()),
        (11, labels.encode_to_vec()),
        (12, info().encode_to_vec()),
        (13, initialized.encode_to_vec()),
    ];
    let seed = |(rpc, message): (u8, Vec<u8>)| [&[rpc][..], &message].concat();
    let mut seeds: Vec<_> = messages.into_iter().map(seed).collect();
    // Listings: one part and an empty message, each as a frame.
    let list =
        |rpc: u8, message: Vec<u8>| [&[0x80 | rpc][..], &frame(&message), &frame(&[])].concat();
    let instance = api::ListInstancesResponse {
        part: Some(api::list_instances_response::Part::Failed(failure())),
    };
    let routes = api::ListRoutesResponse {
        part: Some(api::list_routes_response::Part::Routes(api::RouteList {
            routes: vec![api::Route {
                route_key: "a".into(),
                name: "r".into(),
                ..Default::default()
            }],
        })),
    };
    seeds.push(list(2, instance.encode_to_vec()));
    seeds.push(list(8, routes.encode_to_vec()));
    seeds.extend([5, 6, 7, 9, 10, 14, 15].map(|rpc| vec![rpc, 0x0a, 0x00, 0x12, 0x00]));
    seeds.extend(breaking_answer_seeds());
    seeds
}

/// Answers at or beyond the limits: long lists, texts that are too long, and required fields left
/// out.
fn breaking_answer_seeds() -> Vec<Vec<u8>> {
    let name = |number: usize| format!("n{number}");
    let message = || "slow down ".repeat(120);
    let failed = || {
        Some(api::Failure {
            code: api::FailureCode::Internal.into(),
            message: message(),
            ..Default::default()
        })
    };
    let address = |number: usize| api::NodeAddress {
        r#type: api::NodeAddressType::InternalIp.into(),
        address: format!("10.0.0.{number}"),
    };
    let instance = api::Instance {
        state: api::InstanceState::Running.into(),
        addresses: (0..60).map(address).collect(),
        labels: (0..60).map(|number| (name(number), name(number))).collect(),
        ..Default::default()
    };
    let result = |number: usize| api::LookupInstanceResult {
        node_name: NAMES[number % 2].into(),
        node_uid: format!("uid-{}", NAMES[number % 2]),
        outcome: Some(api::lookup_instance_result::Outcome::Found(
            if number == 0 {
                instance.clone()
            } else {
                api::Instance::default()
            },
        )),
    };
    let lookup = api::LookupInstancesResponse {
        results: (0..20).map(result).collect(),
        failed: None,
    };
    let refused = api::LookupInstancesResponse {
        failed: failed(),
        ..Default::default()
    };
    let event = |number: usize| api::Event {
        reason: name(number),
        message: if number == 0 {
            message()
        } else {
            String::new()
        },
        ..Default::default()
    };
    let target = |number: usize| api::TargetError {
        node_name: name(number),
        failure: None,
    };
    let point = |number: usize| api::LoadBalancerIngress {
        ip: Some(format!("192.0.2.{number}")),
        ..Default::default()
    };
    let ready = api::EnsureLoadBalancerResponse {
        handle: Some("h".repeat(600)),
        events: (0..40).map(event).collect(),
        target_errors: (0..40).map(target).collect(),
        outcome: Some(api::ensure_load_balancer_response::Outcome::Ready(
            api::LoadBalancerReady {
                status: Some(api::LoadBalancerStatus {
                    ingress: (0..40).map(point).collect(),
                }),
            },
        )),
        ..Default::default()
    };
    let zones = zones(&"z".repeat(250), &"r".repeat(260));
    let labels = api::GetVolumeLabelsResponse {
        outcome: Some(api::get_volume_labels_response::Outcome::Labels(
            api::VolumeLabels {
                labels: (0..60).map(|number| (name(number), name(number))).collect(),
            },
        )),
    };
    // An instance without a state, and a provider whose prefix claims the IDs of others.
    let forgetful = api::LookupInstancesResponse {
        results: vec![result(1)],
        failed: None,
    };
    let greedy = api::GetProviderInfoResponse {
        provider_id_prefixes: vec!["m".into()],
        ..info()
    };
    [
        (0, forgetful.encode_to_vec()),
        (12, greedy.encode_to_vec()),
        (0, lookup.encode_to_vec()),
        (0, refused.encode_to_vec()),
        (1, zones.encode_to_vec()),
        (4, ready.encode_to_vec()),
        (11, labels.encode_to_vec()),
    ]
    .map(|(rpc, message): (u8, Vec<u8>)| [&[rpc][..], &message].concat())
    .into()
}

/// Frames that a valid provider may write, such as settings, an answer with its headers and its
/// end, a reset, and the GOAWAY of a shutdown.
pub(crate) fn connection_seeds() -> Vec<Vec<u8>> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const ACK: [u8; 9] = [0, 0, 0, 4, 1, 0, 0, 0, 0];
    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    const WINDOW: [u8; 13] = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    const RESET: [u8; 13] = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8];
    const FAREWELL: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    let http2 = |kind: u8, flags: u8, payload: &[u8]| {
        let length = u32::try_from(payload.len())
            .unwrap_or_default()
            .to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    };
    let field = |name: &str, value: &str| {
        let length = |text: &str| u8::try_from(text.len()).unwrap_or_default();
        let (name_length, value_length) = ([0, length(name)], [length(value)]);
        [
            &name_length,
            name.as_bytes(),
            &value_length,
            value.as_bytes(),
        ]
        .concat()
    };
    // `:status: 200` is number 8 of HPACK's static table.
    let head = [vec![0x88], field("content-type", "application/grpc")].concat();
    let message = api::GetLoadBalancerResponse {
        handle: Some("lb-1".into()),
        ..Default::default()
    };
    let answer = [
        http2(1, 4, &head),
        http2(0, 0, &frame(&message.encode_to_vec())),
        http2(1, 5, &field("grpc-status", "0")),
    ]
    .concat();
    let seed = |pieces: &[&[u8]]| [&[16][..], &pieces.concat()].concat();
    vec![
        seed(&[&SETTINGS, &ACK, &answer]),
        seed(&[&SETTINGS, &PING, &WINDOW, &answer, &FAREWELL]),
        seed(&[&SETTINGS, &ACK, &RESET]),
        seed(&[&FAREWELL]),
    ]
}
