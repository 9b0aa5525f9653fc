//! A provider whose answers a test scripts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::instance_service_server::{InstanceService, InstanceServiceServer};
use api::load_balancer_service_server::{LoadBalancerService, LoadBalancerServiceServer};
use api::provider_service_server::{ProviderService, ProviderServiceServer};
use cloud_provider_api::v1alpha1 as api;
use futures::stream::{BoxStream, StreamExt as _, iter};
use provider_sdk::GrpcService;
use tonic::{Request, Response, Status};
use tower::util::BoxCloneSyncService;

type Answer<T> = Result<Response<T>, Status>;
type Lookup = fn(&api::LookupInstancesRequest) -> Vec<api::LookupInstanceResult>;

/// The answers of the process, and a log of its calls.
pub(super) struct Script {
    pub(super) info: api::GetProviderInfoResponse,
    pub(super) probe: api::ProbeState,
    pub(super) probe_message: String,
    /// The boot ID in the answer of Probe, if it differs from that in `info`.
    pub(super) probed_boot_id: Option<String>,
    pub(super) scope: String,
    /// RPCs that never answer.
    pub(super) hang: BTreeSet<&'static str>,
    /// How long these RPCs take.
    pub(super) slow: BTreeMap<&'static str, Duration>,
    /// The failures of the next calls of Initialize.
    pub(super) initialize: VecDeque<api::Failure>,
    /// The failures of the next calls of EnsureLoadBalancer and LookupInstances.
    pub(super) failures: VecDeque<api::Failure>,
    pub(super) lookup: Lookup,
    pub(super) list: Vec<api::ListInstancesResponse>,
    pub(super) ensure: api::EnsureLoadBalancerResponse,
    pub(super) changes: Vec<api::WatchChangesResponse>,
    /// The calls so far, in order; WatchChanges with its token.
    pub(super) log: Vec<String>,
    /// How many LookupInstances run now, and the most that ran at once.
    pub(super) running: (usize, usize),
    /// The `grpc-timeout` of the last call of GetProviderInfo, Initialize, Probe and
    /// LookupInstances.
    pub(super) reported: BTreeMap<&'static str, Duration>,
}

#[derive(Clone)]
pub(super) struct Fake(pub(super) Arc<Mutex<Script>>);

pub(super) fn failure(code: api::FailureCode, retry_after: Option<i64>) -> api::Failure {
    api::Failure {
        code: code.into(),
        message: "scripted".into(),
        retry_after: retry_after.map(|seconds| prost_types::Duration { seconds, nanos: 0 }),
        ..Default::default()
    }
}

/// Answers that every Node runs.
pub(super) fn all_run(request: &api::LookupInstancesRequest) -> Vec<api::LookupInstanceResult> {
    let result = |node: &api::NodeView| api::LookupInstanceResult {
        node_name: node.name.clone(),
        node_uid: node.uid.clone(),
        outcome: Some(api::lookup_instance_result::Outcome::Found(api::Instance {
            state: api::InstanceState::Running.into(),
            provider_id: Some(format!("mock://{}", node.name)),
            ..Default::default()
        })),
    };
    request.nodes.iter().map(result).collect()
}

/// Parses a `grpc-timeout`.
fn timeout(text: &str) -> Duration {
    let (number, unit) = text.split_at(text.len() - 1);
    let number: u64 = number.parse().unwrap();
    match unit {
        "H" => Duration::from_hours(number),
        "M" => Duration::from_mins(number),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        unit => panic!("{unit}"),
    }
}

impl Fake {
    pub(super) fn new(boot_id: &str) -> Self {
        Self(Arc::new(Mutex::new(Script {
            info: api::GetProviderInfoResponse {
                provider_name: "mock".into(),
                provider_version: "1.0.0".into(),
                boot_id: boot_id.into(),
                provider_id_prefixes: vec!["mock://".into()],
                capabilities: Some(api::Capabilities {
                    instances: Some(api::InstanceCapability {
                        listing: true,
                        max_in_flight: Some(2),
                        ..Default::default()
                    }),
                    load_balancers: Some(api::LoadBalancerCapability::default()),
                    ..Default::default()
                }),
                ..Default::default()
            },
            probe: api::ProbeState::Ready,
            probe_message: String::new(),
            probed_boot_id: None,
            scope: "account 1".into(),
            hang: BTreeSet::new(),
            slow: BTreeMap::new(),
            initialize: VecDeque::new(),
            failures: VecDeque::new(),
            lookup: all_run,
            list: Vec::new(),
            ensure: api::EnsureLoadBalancerResponse::default(),
            changes: Vec::new(),
            log: Vec::new(),
            running: (0, 0),
            reported: BTreeMap::new(),
        })))
    }

    /// Changes the script.
    pub(super) fn set(&self, change: impl FnOnce(&mut Script)) -> &Self {
        change(&mut self.0.lock().unwrap());
        self
    }

    /// The calls so far, without Probes.
    pub(super) fn log(&self) -> Vec<String> {
        let script = self.0.lock().unwrap();
        script
            .log
            .iter()
            .filter(|rpc| *rpc != "Probe")
            .cloned()
            .collect()
    }

    pub(super) fn called(&self, rpc: &str) -> usize {
        let script = self.0.lock().unwrap();
        script.log.iter().filter(|entry| *entry == rpc).count()
    }

    /// The deadline of the RPC's last call, as the provider learned it.
    pub(super) fn reported(&self, rpc: &str) -> Option<Duration> {
        self.0.lock().unwrap().reported.get(rpc).copied()
    }

    fn note_told<T>(&self, rpc: &'static str, request: &Request<T>) {
        if let Some(reported) = request.metadata().get("grpc-timeout") {
            let reported = timeout(reported.to_str().unwrap());
            self.0.lock().unwrap().reported.insert(rpc, reported);
        }
    }

    pub(super) fn service(&self) -> GrpcService {
        let routes = <_ as tower::ServiceExt<http::Request<tonic::body::Body>>>::map_err(
            self.routes(),
            Into::into,
        );
        BoxCloneSyncService::new(routes)
    }

    pub(super) fn routes(&self) -> tonic::service::Routes {
        const MAX: usize = 64 * 1024 * 1024;
        tonic::service::Routes::new(ProviderServiceServer::new(self.clone()))
            .add_service(InstanceServiceServer::new(self.clone()).max_encoding_message_size(MAX))
            .add_service(LoadBalancerServiceServer::new(self.clone()))
    }

    async fn enter(&self, rpc: &'static str) {
        let (hangs, takes) = {
            let mut script = self.0.lock().unwrap();
            script.log.push(rpc.to_owned());
            let takes = script.slow.get(rpc).copied();
            (script.hang.contains(rpc), takes.unwrap_or_default())
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(takes).await;
    }

    fn next_failure(&self) -> Option<api::Failure> {
        self.0.lock().unwrap().failures.pop_front()
    }
}

#[tonic::async_trait]
impl ProviderService for Fake {
    async fn get_provider_info(
        &self,
        request: Request<api::GetProviderInfoRequest>,
    ) -> Answer<api::GetProviderInfoResponse> {
        self.note_told("GetProviderInfo", &request);
        self.enter("GetProviderInfo").await;
        assert_eq!(request.into_inner().contract_minor, api::CONTRACT_MINOR);
        Ok(Response::new(self.0.lock().unwrap().info.clone()))
    }

    async fn initialize(
        &self,
        request: Request<api::InitializeRequest>,
    ) -> Answer<api::InitializeResponse> {
        use api::initialize_response::Outcome;
        self.note_told("Initialize", &request);
        self.enter("Initialize").await;
        let mut script = self.0.lock().unwrap();
        let outcome = match script.initialize.pop_front() {
            Some(failure) => Outcome::Failed(failure),
            None => Outcome::Initialized(api::Initialized {
                cloud_scope: script.scope.clone(),
                ..Default::default()
            }),
        };
        Ok(Response::new(api::InitializeResponse {
            outcome: Some(outcome),
        }))
    }

    async fn probe(&self, request: Request<api::ProbeRequest>) -> Answer<api::ProbeResponse> {
        self.note_told("Probe", &request);
        self.enter("Probe").await;
        let script = self.0.lock().unwrap();
        let boot_id = script.probed_boot_id.as_ref();
        Ok(Response::new(api::ProbeResponse {
            state: script.probe.into(),
            message: script.probe_message.clone(),
            boot_id: boot_id.unwrap_or(&script.info.boot_id).clone(),
            last_cloud_success: None,
        }))
    }

    type WatchChangesStream = BoxStream<'static, Result<api::WatchChangesResponse, Status>>;

    async fn watch_changes(
        &self,
        request: Request<api::WatchChangesRequest>,
    ) -> Answer<Self::WatchChangesStream> {
        let token = request.into_inner().resume_token;
        let mut script = self.0.lock().unwrap();
        script.log.push(format!("WatchChanges {token}"));
        let changes = std::mem::take(&mut script.changes);
        Ok(Response::new(iter(changes.into_iter().map(Ok)).boxed()))
    }
}

#[tonic::async_trait]
impl InstanceService for Fake {
    async fn lookup_instances(
        &self,
        request: Request<api::LookupInstancesRequest>,
    ) -> Answer<api::LookupInstancesResponse> {
        self.note_told("LookupInstances", &request);
        {
            let mut script = self.0.lock().unwrap();
            script.running.0 += 1;
            script.running.1 = script.running.1.max(script.running.0);
        }
        self.enter("LookupInstances").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let failed = self.next_failure();
        let mut script = self.0.lock().unwrap();
        script.running.0 -= 1;
        let results = (script.lookup)(request.get_ref());
        Ok(Response::new(api::LookupInstancesResponse {
            failed,
            results,
        }))
    }

    type ListInstancesStream = BoxStream<'static, Result<api::ListInstancesResponse, Status>>;

    async fn list_instances(
        &self,
        _request: Request<api::ListInstancesRequest>,
    ) -> Answer<Self::ListInstancesStream> {
        self.enter("ListInstances").await;
        let list = self.0.lock().unwrap().list.clone();
        Ok(Response::new(iter(list.into_iter().map(Ok)).boxed()))
    }
}

#[tonic::async_trait]
impl LoadBalancerService for Fake {
    async fn get_load_balancer(
        &self,
        _request: Request<api::GetLoadBalancerRequest>,
    ) -> Answer<api::GetLoadBalancerResponse> {
        self.enter("GetLoadBalancer").await;
        Err(Status::not_found("a status is no answer"))
    }

    async fn ensure_load_balancer(
        &self,
        _request: Request<api::EnsureLoadBalancerRequest>,
    ) -> Answer<api::EnsureLoadBalancerResponse> {
        self.enter("EnsureLoadBalancer").await;
        let mut answer = self.0.lock().unwrap().ensure.clone();
        if let Some(failure) = self.next_failure() {
            answer.outcome = Some(api::ensure_load_balancer_response::Outcome::Failed(failure));
        }
        Ok(Response::new(answer))
    }

    async fn update_load_balancer(
        &self,
        _request: Request<api::UpdateLoadBalancerRequest>,
    ) -> Answer<api::UpdateLoadBalancerResponse> {
        self.enter("UpdateLoadBalancer").await;
        Ok(Response::new(api::UpdateLoadBalancerResponse::default()))
    }

    async fn delete_load_balancer(
        &self,
        _request: Request<api::DeleteLoadBalancerRequest>,
    ) -> Answer<api::DeleteLoadBalancerResponse> {
        self.enter("DeleteLoadBalancer").await;
        Ok(Response::new(api::DeleteLoadBalancerResponse::default()))
    }

    type ListLoadBalancersStream =
        BoxStream<'static, Result<api::ListLoadBalancersResponse, Status>>;

    async fn list_load_balancers(
        &self,
        _request: Request<api::ListLoadBalancersRequest>,
    ) -> Answer<Self::ListLoadBalancersStream> {
        self.enter("ListLoadBalancers").await;
        Err(Status::unimplemented("not offered"))
    }
}
