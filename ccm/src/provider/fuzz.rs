//! A provider that answers any bytes, and one that writes any bytes into the connection.

mod seeds;

use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cloud_provider_api::v1alpha1 as api;
use futures::stream::{self, StreamExt as _};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Node;
use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::call_log::{CallIds, CallLog};
use super::calls::CallLimiters;
use super::connect::{Connection, Link, Tasks};
use super::handshake::{Deadlines, check_info, check_initialized};
use super::limits::{NAME_LIMIT, TEXT_LIMIT};
use super::weigh::{Budget, Weight};
use super::{CallError, CallErrorCode, Metrics, Session, load_balancer_status};
use crate::core::Fence;
use crate::fuzz::runtime;

pub(crate) use seeds::{answer_seeds, connection_seeds};

const NAMES: [&str; 2] = ["node-1", "node-2"];
/// How much decoding may allocate beyond the counted bytes. It matters for answers that are nearly
/// empty.
const SLACK: u64 = 256;

/// An RPC: its path, and a decoder of its answer that returns the peak of the allocated bytes.
type Rpc = (&'static str, fn(&[u8]) -> u64);

macro_rules! rpcs {
    ($($service:literal $rpc:ident $answer:ident,)*) => {
        [$((
            concat!("/cloudprovider.v1alpha1.", $service, "/", stringify!($rpc)),
            peak::<api::$answer>,
        )),*]
    };
}

const RPCS: [Rpc; 16] = rpcs! {
    "InstanceService" LookupInstances LookupInstancesResponse,
    "ZoneService" LookupZones LookupZonesResponse,
    "InstanceService" ListInstances ListInstancesResponse,
    "LoadBalancerService" GetLoadBalancer GetLoadBalancerResponse,
    "LoadBalancerService" EnsureLoadBalancer EnsureLoadBalancerResponse,
    "LoadBalancerService" UpdateLoadBalancer UpdateLoadBalancerResponse,
    "LoadBalancerService" DeleteLoadBalancer DeleteLoadBalancerResponse,
    "LoadBalancerService" ListLoadBalancers ListLoadBalancersResponse,
    "RouteService" ListRoutes ListRoutesResponse,
    "RouteService" CreateRoutes CreateRoutesResponse,
    "RouteService" DeleteRoutes DeleteRoutesResponse,
    "VolumeService" GetVolumeLabels GetVolumeLabelsResponse,
    "ProviderService" GetProviderInfo GetProviderInfoResponse,
    "ProviderService" Initialize InitializeResponse,
    "ProviderService" Probe ProbeResponse,
    "ProviderService" WatchChanges WatchChangesResponse,
};

fn peak<M: Message + Default>(bytes: &[u8]) -> u64 {
    let info = allocation_counter::measure(|| drop(M::decode(bytes)));
    info.bytes_max
}

/// The RPC that the first byte selects, whether the rest is a whole message, and the rest.
fn read(input: &[u8]) -> Option<(usize, bool, &[u8])> {
    let (&first, rest) = input.split_first()?;
    Some((usize::from(first & 0x7f) % RPCS.len(), first < 0x80, rest))
}

pub(super) fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), message].concat()
}

/// Asserts that decoding an answer allocates at most `SLACK` bytes more than were counted before.
pub(crate) fn decoding(input: &[u8]) {
    let Some((rpc, _, message)) = read(input) else {
        return;
    };
    let (path, peak) = RPCS[rpc];
    let mut weight = Weight::of(path, &Budget::default());
    if weight.add(&frame(message)).is_ok() {
        let (peak, counted) = (peak(message), weight.decoded());
        assert!(
            peak <= counted + SLACK,
            "{path}: {} bytes take {peak}, and {counted} were counted",
            message.len()
        );
    }
}

/// Whatever an RPC answers, the result keeps to the contract.
pub(crate) fn answers(input: &[u8]) {
    let Some((rpc, whole, rest)) = read(input) else {
        return;
    };
    let body = if whole { frame(rest) } else { rest.to_vec() };
    runtime().block_on(async move {
        let (ours, theirs) = duplex(64 * 1024);
        let tasks = Tasks::default();
        let body = Bytes::from(body);
        serve(&tasks, theirs, move |_| (body.clone(), ready(())));
        if let Ok(connection) = Connection::over(Box::new(ours), Budget::default()).await {
            ask(rpc, &connection.link).await;
        }
    });
}

/// Whatever a provider writes into the connection, a call ends with the connection and does not
/// wait for more.
pub(crate) fn connection(input: &[u8]) {
    let Some((&size, bytes)) = input.split_first() else {
        return;
    };
    let (size, bytes) = (usize::from(size).max(1), bytes.to_vec());
    runtime().block_on(async move {
        let (ours, theirs) = duplex(64 * 1024);
        let (mut reads, mut writes) = tokio::io::split(theirs);
        let mut process = JoinSet::new();
        process.spawn(async move {
            for piece in bytes.chunks(size) {
                if writes.write_all(piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
            let _ = writes.shutdown().await;
        });
        process.spawn(async move {
            let mut sink = vec![0; 1024];
            while reads.read(&mut sink).await.is_ok_and(|count| count > 0) {}
        });
        let began = Instant::now();
        if let Ok(connection) = Connection::over(Box::new(ours), Budget::default()).await {
            ask(3, &connection.link).await;
        }
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "the call outlives the connection"
        );
    });
}

/// Answers each call by its path: with a body, and with the trailers once the future is ready.
pub(super) fn serve<F>(
    tasks: &Tasks,
    pipe: DuplexStream,
    answer: impl Fn(&str) -> (Bytes, F) + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    use hyper::rt::Executor as _;
    let handler = service_fn(move |request: http::Request<Incoming>| {
        let (body, until) = answer(request.uri().path());
        let end = async move {
            until.await;
            let done = http::HeaderValue::from_static("0");
            let status = http::HeaderName::from_static("grpc-status");
            Frame::trailers(http::HeaderMap::from_iter([(status, done)]))
        };
        let frames = stream::iter([Frame::data(body)]).chain(stream::once(end));
        let answer = http::Response::builder()
            .header("content-type", "application/grpc")
            .body(StreamBody::new(frames.map(Ok::<_, std::io::Error>)));
        async move { answer }
    });
    let connection = hyper::server::conn::http2::Builder::new(tasks.executor())
        .serve_connection(TokioIo::new(pipe), handler);
    tasks.executor().execute(async move {
        let _ = connection.await;
    });
}

pub(super) fn session(link: &Link) -> Session {
    let info = info();
    let none = api::Capabilities::default();
    let offered = info.capabilities.as_ref().unwrap_or(&none);
    let limiters = Arc::new(CallLimiters::of(offered));
    let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
    Session::new(
        info,
        Arc::default(),
        api::ClusterRef::default(),
        link.clone(),
        limiters,
        Deadlines::raised(None, Duration::from_mins(15)),
        CallLog::new("mock".into(), CallIds::new(7), metrics),
    )
}

fn info() -> api::GetProviderInfoResponse {
    api::GetProviderInfoResponse {
        provider_name: "mock".into(),
        provider_version: "1".into(),
        boot_id: "b".into(),
        provider_id_prefixes: vec!["mock://".into()],
        capabilities: Some(api::Capabilities {
            instances: Some(api::InstanceCapability {
                listing: true,
                ..Default::default()
            }),
            zones: Some(api::ZoneCapability::default()),
            load_balancers: Some(api::LoadBalancerCapability {
                listing: true,
                ..Default::default()
            }),
            routes: Some(api::RouteCapability::default()),
            volumes: Some(api::VolumeCapability::default()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(super) fn node(name: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.uid = Some(format!("uid-{name}"));
    node
}

/// Asserts that an error can be shown to people.
fn well_told<T>(result: Result<T, CallError>) -> Option<T> {
    match result {
        Ok(found) => Some(found),
        Err(trouble) => {
            assert_ne!(trouble.code, CallErrorCode::Fenced);
            for text in [&trouble.reason, &trouble.message] {
                assert!(text.len() <= TEXT_LIMIT, "{} bytes: {text}", text.len());
                let hidden = |char: char| char.is_control() || char == '\u{202e}';
                assert!(!text.contains(hidden), "{text:?}");
            }
            None
        }
    }
}

fn check_extras(handle: Option<&str>, events: &[api::Event], errors: Vec<api::TargetError>) {
    assert!(handle.is_none_or(|handle| (1..=TEXT_LIMIT).contains(&handle.len())));
    for event in events {
        assert!(event.reason.len() <= TEXT_LIMIT && event.message.len() <= TEXT_LIMIT);
    }
    for error in errors {
        assert!(error.node_name.len() <= NAME_LIMIT);
        well_told(Err::<(), _>(CallError::from(
            error.failure.unwrap_or_default(),
        )));
    }
}

async fn ask(rpc: usize, link: &Link) {
    let session = session(link);
    let fence = Fence::open();
    match rpc {
        0..=2 => ask_instances(rpc, &session).await,
        3 => {
            let answer = session.get_load_balancer(api::GetLoadBalancerRequest::default());
            if let Some((answer, _)) = well_told(answer.await) {
                use api::get_load_balancer_response::Outcome::Found;
                check_extras(
                    answer.handle.as_deref(),
                    &answer.events,
                    answer.target_errors,
                );
                if let Some(Found(found)) = well_told(answer.outcome) {
                    assert!(found.load_balancer_name.len() <= NAME_LIMIT);
                    let status = found.status.as_ref();
                    status.and_then(|status| well_told(load_balancer_status(status, &[])));
                }
            }
        }
        4 => {
            let request = api::EnsureLoadBalancerRequest::default();
            if let Some((answer, _)) =
                well_told(session.ensure_load_balancer(&fence, request).await)
            {
                well_told(answer.outcome);
                check_extras(
                    answer.handle.as_deref(),
                    &answer.events,
                    answer.target_errors,
                );
            }
        }
        5 => {
            let request = api::UpdateLoadBalancerRequest::default();
            if let Some((answer, _)) =
                well_told(session.update_load_balancer(&fence, request).await)
            {
                well_told(answer.outcome);
                check_extras(
                    answer.handle.as_deref(),
                    &answer.events,
                    answer.target_errors,
                );
            }
        }
        6 => {
            let request = api::DeleteLoadBalancerRequest::default();
            if let Some((answer, _)) =
                well_told(session.delete_load_balancer(&fence, request).await)
            {
                well_told(answer.outcome);
                check_extras(answer.handle.as_deref(), &answer.events, Vec::new());
            }
        }
        7 => {
            for listed in well_told(session.list_load_balancers().await).unwrap_or_default() {
                assert!(listed.load_balancer_name.len() <= NAME_LIMIT);
                for owner in &listed.owners {
                    assert!(owner.namespace.len() <= NAME_LIMIT && owner.name.len() <= NAME_LIMIT);
                }
            }
        }
        8 => {
            well_told(session.list_routes().await);
        }
        9 | 10 => {
            let route = |key: &str| api::Route {
                route_key: key.to_owned(),
                ..Default::default()
            };
            let routes = vec![route("a"), route("b")];
            let written = match rpc {
                9 => session.create_routes(&fence, routes).await,
                _ => session.delete_routes(&fence, routes).await,
            };
            let written = well_told(written).unwrap_or_default();
            assert!(written.is_empty() || written.len() == 2);
            for one in written {
                well_told(one);
            }
        }
        11 => {
            well_told(session.get_volume_labels(api::VolumeView::default()).await);
        }
        _ => ask_itself(rpc, link.clone()).await,
    }
}

async fn ask_instances(rpc: usize, session: &Session) {
    let nodes = NAMES.map(node);
    let nodes: Vec<&Node> = nodes.iter().collect();
    let prefix = "mock://";
    match rpc {
        0 => {
            let facets = [api::InstanceFacet::Metadata];
            let found = session
                .lookup_instances(&nodes, &facets, Duration::ZERO)
                .await;
            let found = well_told(found).unwrap_or_default();
            assert!(found.is_empty() || found.len() == nodes.len());
            for instance in found.into_iter().filter_map(well_told) {
                assert_ne!(instance.state(), api::InstanceState::Unspecified);
                let id = instance.provider_id.as_deref().unwrap_or(prefix);
                assert!(id.starts_with(prefix) && id.len() <= TEXT_LIMIT);
            }
        }
        1 => {
            let found = well_told(session.lookup_zones(&nodes).await).unwrap_or_default();
            for zone in found.into_iter().filter_map(well_told) {
                let long = |text: Option<String>| text.is_some_and(|text| text.len() > NAME_LIMIT);
                assert!(!long(zone.zone) && !long(zone.region));
            }
        }
        _ => {
            well_told(session.list_instances(&[]).await);
        }
    }
}

/// Calls an RPC of ProviderService.
async fn ask_itself(rpc: usize, link: Link) {
    use api::provider_service_client::ProviderServiceClient;
    let mut client = ProviderServiceClient::with_origin(link, Link::origin());
    match rpc {
        12 => {
            let request = api::GetProviderInfoRequest::default();
            if let Ok(info) = client.get_provider_info(request).await {
                let info = info.into_inner();
                if check_info(&info).is_ok() {
                    let prefixes = &info.provider_id_prefixes;
                    assert!(prefixes.iter().all(|prefix| prefix.contains("://")));
                    assert!((1..=63).contains(&info.provider_name.len()));
                }
            }
        }
        13 => {
            let request = api::InitializeRequest::default();
            if let Ok(answer) = client.initialize(request).await {
                use api::initialize_response::Outcome::Initialized;
                if let Some(Initialized(initialized)) = answer.into_inner().outcome
                    && check_initialized(&initialized).is_ok()
                {
                    let obeyed = |char| "$`'\"\\;&|<>()\n*?!#~{}[]".contains(char);
                    assert!(!initialized.cloud_scope.contains(obeyed));
                }
            }
        }
        14 => {
            let answer = client.probe(api::ProbeRequest::default()).await;
            drop(answer);
        }
        _ => {
            let request = api::WatchChangesRequest::default();
            if let Ok(changes) = client.watch_changes(request).await {
                let mut changes = changes.into_inner();
                while let Ok(Some(_)) = changes.message().await {}
            }
        }
    }
}

/// One address of an instance. Either the ccm refuses it, or a Node shows it unchanged. A shown
/// address of an IP type is an IP.
pub(crate) fn address(given: &api::NodeAddress) {
    match super::view::node_addresses(std::slice::from_ref(given)) {
        Err(trouble) => drop(well_told(Err::<(), _>(trouble))),
        Ok(shown) => {
            let [shown] = shown.as_slice() else {
                panic!("{shown:?}");
            };
            assert_eq!(shown.address, given.address);
            let is_ip = shown.address.parse::<std::net::IpAddr>().is_ok();
            assert!(is_ip || !shown.type_.ends_with("IP"), "{shown:?}");
            assert!((1..=NAME_LIMIT).contains(&shown.address.len()));
            assert!(!shown.address.contains([' ', '/', '\n', '%']), "{shown:?}");
        }
    }
}
