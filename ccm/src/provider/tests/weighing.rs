//! Large answers: several at the same time, and items that are too large for a Kubernetes object.

use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use cloud_provider_api::v1alpha1 as api;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use prost::Message as _;
use tokio::io::duplex;
use tokio::sync::watch;

use super::super::connect::{Connection, Tasks};
use super::super::fuzz::{frame, node, serve, session};
use super::super::weigh::{Budget, Weight};
use super::super::{CallError, CallErrorCode, load_balancer_status};
use crate::core::Fence;
use crate::fuzz::runtime;

const LOOKUP: &str = "/cloudprovider.v1alpha1.InstanceService/LookupInstances";
const MIB: u64 = 1024 * 1024;
const CALLS: usize = 8;

fn empty_items(count: u64) -> Vec<u8> {
    frame(&[0x12, 0x00].repeat(usize::try_from(count).unwrap()))
}

/// The body of an answer that takes about `bytes` bytes of memory.
fn answer_of(bytes: u64) -> Bytes {
    let weight = |items| {
        let mut weight = Weight::of(LOOKUP, &Budget::default());
        weight.add(&empty_items(items)).unwrap();
        weight.decoded()
    };
    empty_items(bytes / (weight(2) - weight(1))).into()
}

async fn play() {
    let budget = Budget::default();
    let (ours, theirs) = duplex(64 * 1024);
    let tasks = Tasks::default();
    let (end, ended) = watch::channel(false);
    let large = answer_of(80 * MIB);
    serve(&tasks, theirs, move |path| {
        let (large, mut ended) = (large.clone(), ended.clone());
        let is_lookup = path == LOOKUP;
        let body = if is_lookup { large } else { frame(&[]).into() };
        // The decoded part is kept until the answer ends.
        let until = async move {
            if is_lookup {
                ended.wait_for(|over| *over).await.unwrap();
            }
        };
        (body, until)
    });
    let connection = Connection::over(Box::new(ours), budget.clone())
        .await
        .unwrap();
    let session = session(&connection.link);
    let node = node("node-1");
    let nodes: [&Node; 1] = [&node];
    let lookup = || session.lookup_instances(&nodes, &[], Duration::ZERO);

    let mut calls: FuturesUnordered<_> = (0..CALLS).map(|_| lookup()).collect();
    for _ in 1..CALLS {
        let trouble = calls.next().await.unwrap().unwrap_err();
        assert_eq!(trouble.code, CallErrorCode::Unknown, "{trouble}");
        let why = "the answer of LookupInstances was not read: with the others that the provider sends at the same time";
        assert!(trouble.message.starts_with(why), "{trouble}");
    }
    // The ccm reads a small answer beside the large one.
    let small = session
        .get_load_balancer(api::GetLoadBalancerRequest::default())
        .await;
    small.unwrap();
    assert!(budget.taken() > 80 * MIB);
    end.send(true).unwrap();
    calls.next().await.unwrap().unwrap();
    assert_eq!(budget.taken(), 0, "it went back");
    lookup().await.unwrap();
}

#[test]
fn m14_large_answers_at_once_take_what_one_may_and_small_ones_are_read() {
    let measured = allocation_counter::measure(|| runtime().block_on(play()));
    let peak = measured.bytes_max / MIB;
    assert!(peak < 160, "{peak} MiB");
}

/// The largest answers, which take no memory but that of their bytes.
async fn play_bytes() {
    let field = usize::try_from(16 * MIB - 8).unwrap();
    let mut message = vec![0xfa, 0x7f];
    prost::encoding::encode_varint(field as u64, &mut message);
    message.resize(message.len() + field, 0);
    let body = Bytes::from(frame(&message));
    drop(message);
    let (ours, theirs) = duplex(64 * 1024);
    let tasks = Tasks::default();
    serve(&tasks, theirs, move |_| (body.clone(), ready(())));
    let budget = Budget::default();
    let connection = Connection::over(Box::new(ours), budget.clone());
    let connection = connection.await.unwrap();
    let session = session(&connection.link);
    let node = node("node-1");
    let nodes: [&Node; 1] = [&node];
    let calls = (0..CALLS).map(|_| session.lookup_instances(&nodes, &[], Duration::ZERO));
    let (read, refused): (Vec<_>, Vec<_>) =
        join_all(calls).await.into_iter().partition(Result::is_ok);
    // Each of them is held twice for a moment.
    assert_eq!((read.len(), refused.len()), (4, 4), "{refused:?}");
    assert_eq!(budget.taken(), 0, "it went back");
}

#[test]
fn m14_bytes_that_are_held_twice_count_twice() {
    let measured = allocation_counter::measure(|| runtime().block_on(play_bytes()));
    let peak = measured.bytes_max / MIB;
    assert!(peak < 160, "{peak} MiB");
}

/// Connects to a provider that answers each RPC with its body from `bodies`.
async fn answering(bodies: fn(&str) -> Vec<u8>) -> (Connection, Tasks) {
    let (ours, theirs) = duplex(64 * 1024);
    let tasks = Tasks::default();
    serve(&tasks, theirs, move |path| {
        let rpc = path.rsplit('/').next().unwrap();
        (frame(&bodies(rpc)).into(), ready(()))
    });
    let connection = Connection::over(Box::new(ours), Budget::default());
    (connection.await.unwrap(), tasks)
}

#[tokio::test(start_paused = true)]
async fn m14_what_becomes_a_part_of_an_object_has_at_most_64_kib() {
    use api::ensure_load_balancer_response::Outcome::Ready;
    let (connection, _tasks) = answering(|rpc| {
        let labels = |bytes| [("a".to_owned(), "x".repeat(bytes))].into();
        let found = |name: &str, bytes| api::LookupInstanceResult {
            node_name: name.to_owned(),
            node_uid: format!("uid-{name}"),
            outcome: Some(api::lookup_instance_result::Outcome::Found(api::Instance {
                state: api::InstanceState::Running.into(),
                labels: labels(bytes),
                ..Default::default()
            })),
        };
        let point = |number: usize| api::LoadBalancerIngress {
            ip: Some(format!("2001:db8::{number:x}")),
            ..Default::default()
        };
        match rpc {
            "LookupInstances" => api::LookupInstancesResponse {
                results: vec![found("node-1", 65_000), found("node-2", 66_000)],
                failed: None,
            }
            .encode_to_vec(),
            "GetVolumeLabels" => api::GetVolumeLabelsResponse {
                outcome: Some(api::get_volume_labels_response::Outcome::Labels(
                    api::VolumeLabels {
                        labels: labels(66_000),
                    },
                )),
            }
            .encode_to_vec(),
            _ => api::EnsureLoadBalancerResponse {
                events: vec![api::Event::default(); 100],
                outcome: Some(Ready(api::LoadBalancerReady {
                    status: Some(api::LoadBalancerStatus {
                        ingress: (0..4_000).map(point).collect(),
                    }),
                })),
                ..Default::default()
            }
            .encode_to_vec(),
        }
    })
    .await;
    let session = session(&connection.link);
    let nodes = [node("node-1"), node("node-2")];
    let nodes: Vec<_> = nodes.iter().collect();
    let found = session.lookup_instances(&nodes, &[], Duration::ZERO);
    let found = found.await.unwrap();
    assert!(found[0].is_ok());
    let large = |trouble: &CallError| {
        assert_eq!(trouble.code, CallErrorCode::Fault);
        let text = &trouble.message;
        assert!(text.ends_with("at most 65536 are allowed"), "{text}");
    };
    large(found[1].as_ref().unwrap_err());
    let labels = session.get_volume_labels(api::VolumeView::default());
    large(&labels.await.unwrap_err());
    let fence = Fence::open();
    let request = api::EnsureLoadBalancerRequest::default();
    let (ensured, _) = session.ensure_load_balancer(&fence, request).await.unwrap();
    assert_eq!(ensured.events.len(), 32);
    let Ok(Ready(ready)) = ensured.outcome else {
        panic!("{:?}", ensured.outcome);
    };
    large(&load_balancer_status(&ready.status.unwrap(), &[]).unwrap_err());
}
