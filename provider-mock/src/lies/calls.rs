//! Applies twists to a call before its answer, and to the transport of the answer.

use std::time::Duration;

use bytes::Bytes;
use cloud_provider_api::v1alpha1 as pb;
use prost::Message;
use tonic::body::Body;
use tonic::codegen::http;

use super::Twist;
use crate::cloud::Cloud;

/// The time between two bytes of a dripping answer.
const DRIP: Duration = Duration::from_secs(1);
/// How often to check whether other calls have ended.
const LOOK: Duration = Duration::from_millis(20);

const INITIALIZE: &str = "/cloudprovider.v1alpha1.ProviderService/Initialize";

/// Delays a call if a twist asks for it. `Err`: the gRPC status instead of an answer.
pub(crate) async fn before(cloud: &Cloud, rpc: &str) -> Result<(), tonic::Status> {
    let twists = cloud.twists();
    let weather = cloud.weather();
    match rpc {
        "Probe" if twists.has(Twist::ProbeWaitsForCloud) => {
            tokio::time::sleep(weather.delay()).await;
        }
        "Probe" if twists.has(Twist::ProbeWaitsForCalls) => {
            let busy = || {
                let state = cloud.state();
                let mut in_flight = state.calls.in_flight.iter();
                in_flight.any(|(rpc, count)| {
                    !["Probe", "WatchChanges"].contains(&rpc.as_str()) && *count > 0
                })
            };
            while busy() {
                tokio::time::sleep(LOOK).await;
            }
        }
        "GetProviderInfo" if twists.has(Twist::InfoNeedsCloud) => {
            tokio::time::sleep(weather.delay()).await;
            if let Some(failure) = weather.failure() {
                return Err(tonic::Status::unavailable(failure.message()));
            }
        }
        "LookupInstances" if twists.has(Twist::OverloadIsStatus) => {
            let state = cloud.state();
            let most = state.settings.capabilities.instances.max_in_flight;
            if state
                .calls
                .in_flight
                .get(rpc)
                .is_some_and(|count| *count > u64::from(most))
            {
                return Err(tonic::Status::resource_exhausted("too many calls at once"));
            }
        }
        _ => {}
    }
    Ok(())
}

/// The request without its `read_only`, if the twist `ReadOnlyIgnored` is active.
pub(crate) fn read_only_ignored(cloud: &Cloud, rpc: &str, request: &[u8]) -> Option<Bytes> {
    if rpc != "Initialize" || !cloud.twisted(Twist::ReadOnlyIgnored) {
        return None;
    }
    let mut message = pb::InitializeRequest::decode(request).ok()?;
    message.read_only.then(|| {
        cloud.count_lie();
        message.read_only = false;
        Bytes::from(framed(&message.encode_to_vec()))
    })
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.extend_from_slice(message);
    body
}

/// An Initialize that the provider sends to itself, so that it can answer calls that it should
/// refuse.
pub(crate) fn own_initialize(cloud: &Cloud, request: &[u8]) -> Option<http::Request<Body>> {
    let twists = cloud.twists();
    // `cluster` is the first field of every request that has it.
    let cluster = pb::ListRoutesRequest::decode(request).ok()?.cluster?;
    let initialized = cloud.mischief().initialized.clone();
    let lies = match &initialized {
        None => twists.has(Twist::LazyInitialize),
        Some(owner) => twists.has(Twist::AnyOwner) && *owner != cluster.owner_id,
    };
    if !lies {
        return None;
    }
    cloud.mischief().initialized = Some(cluster.owner_id.clone());
    let message = pb::InitializeRequest {
        cluster: Some(cluster),
        ..pb::InitializeRequest::default()
    };
    let body = framed(&message.encode_to_vec());
    http::Request::post(INITIALIZE)
        .version(http::Version::HTTP_2)
        .header(http::header::CONTENT_TYPE, "application/grpc")
        .header(http::header::TE, "trailers")
        .body(Body::new(http_body_util::Full::new(Bytes::from(body))))
        .ok()
}

/// Records the owner ID in an Initialize.
pub(crate) fn initialized(cloud: &Cloud, request: &[u8]) {
    let cluster = pb::InitializeRequest::decode(request)
        .ok()
        .and_then(|request| request.cluster);
    cloud.mischief().initialized = cluster.map(|cluster| cluster.owner_id);
}

/// Sends the answer at one byte a second.
pub(crate) fn drip(response: http::Response<Body>) -> http::Response<Body> {
    use http_body_util::BodyExt;
    let (parts, body) = response.into_parts();
    let frames = futures::stream::unfold((body, Bytes::new()), |(mut body, mut rest)| async move {
        if rest.is_empty() {
            let frame = body.frame().await?;
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => rest = data,
                Ok(Err(trailers)) => return Some((Ok(trailers), (body, rest))),
                Err(error) => return Some((Err(error), (body, rest))),
            }
        }
        tokio::time::sleep(DRIP).await;
        let byte = rest.split_to(rest.len().min(1));
        Some((Ok(http_body::Frame::data(byte)), (body, rest)))
    });
    http::Response::from_parts(parts, Body::new(http_body_util::StreamBody::new(frames)))
}
