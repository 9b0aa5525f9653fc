//! A provider process whose cloud is a map, for tests of the loop.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use api::load_balancer_service_server::{LoadBalancerService, LoadBalancerServiceServer};
use api::provider_service_server::{ProviderService, ProviderServiceServer};
use cloud_provider_api::v1alpha1 as api;
use futures::stream::{BoxStream, StreamExt as _, empty, pending};
use provider_sdk::GrpcService;
use tonic::{Request, Response, Status};
use tower::util::BoxCloneSyncService;

type Answer<T> = Result<Response<T>, Status>;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Balancer {
    pub(super) targets: Vec<String>,
    ports: Vec<api::ServicePort>,
}

#[derive(Default)]
pub(super) struct State {
    /// By the Service's UID.
    pub(super) balancers: BTreeMap<String, Balancer>,
    /// `RPC name handle`, in order.
    pub(super) calls: Vec<String>,
    /// What the next Ensures answer instead of being done.
    pub(super) instead: VecDeque<api::ensure_load_balancer_response::Outcome>,
    /// What each Update answers instead of being done.
    pub(super) update_fails: Option<api::Failure>,
    /// Nodes that cannot be attached.
    pub(super) bad_targets: Vec<String>,
    /// Annotations of each Ensure, instead of a handle.
    pub(super) annotations: Option<api::AnnotationChanges>,
    /// How many calls run, and ran at most, at once.
    pub(super) running: (usize, usize),
}

#[derive(Clone, Default)]
pub(super) struct Cloud(Arc<Mutex<State>>);

impl Cloud {
    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// How many calls of this RPC there were.
    pub(super) fn called(&self, rpc: &str) -> usize {
        let state = self.state();
        state
            .calls
            .iter()
            .filter(|call| call.starts_with(rpc))
            .count()
    }

    pub(super) fn service(&self) -> GrpcService {
        let routes = tonic::service::Routes::new(ProviderServiceServer::new(self.clone()))
            .add_service(LoadBalancerServiceServer::new(self.clone()));
        let routes =
            <_ as tower::ServiceExt<http::Request<tonic::body::Body>>>::map_err(routes, Into::into);
        BoxCloneSyncService::new(routes)
    }

    async fn enter(&self, rpc: &str, service: Option<&api::ServiceView>, handle: Option<&String>) {
        {
            let mut state = self.state();
            let name = service.map_or("", |service| service.name.as_str());
            let handle = handle.map_or("-", String::as_str);
            state.calls.push(format!("{rpc} {name} {handle}"));
            state.running.0 += 1;
            state.running.1 = state.running.1.max(state.running.0);
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        self.state().running.0 -= 1;
    }
}

fn names(targets: Option<api::TargetSet>) -> Vec<String> {
    match targets.and_then(|targets| targets.set) {
        Some(api::target_set::Set::Inline(list)) => {
            list.nodes.into_iter().map(|node| node.name).collect()
        }
        _ => Vec::new(),
    }
}

fn wanted(service: &api::ServiceView, targets: Option<api::TargetSet>) -> Balancer {
    Balancer {
        targets: names(targets),
        ports: service.ports.clone(),
    }
}

fn status() -> api::LoadBalancerStatus {
    api::LoadBalancerStatus {
        ingress: vec![api::LoadBalancerIngress {
            ip: Some("192.0.2.1".into()),
            ..Default::default()
        }],
    }
}

#[tonic::async_trait]
impl ProviderService for Cloud {
    async fn get_provider_info(
        &self,
        _request: Request<api::GetProviderInfoRequest>,
    ) -> Answer<api::GetProviderInfoResponse> {
        Ok(Response::new(api::GetProviderInfoResponse {
            provider_name: "mock".into(),
            provider_version: "1.0.0".into(),
            boot_id: "boot".into(),
            provider_id_prefixes: vec!["mock://".into()],
            capabilities: Some(api::Capabilities {
                load_balancers: Some(api::LoadBalancerCapability {
                    default_class: true,
                    in_sync: true,
                    max_in_flight: Some(4),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }))
    }

    async fn initialize(
        &self,
        _request: Request<api::InitializeRequest>,
    ) -> Answer<api::InitializeResponse> {
        Ok(Response::new(api::InitializeResponse {
            outcome: Some(api::initialize_response::Outcome::Initialized(
                api::Initialized {
                    cloud_scope: "account 1".into(),
                    ..Default::default()
                },
            )),
        }))
    }

    async fn probe(&self, _request: Request<api::ProbeRequest>) -> Answer<api::ProbeResponse> {
        Ok(Response::new(api::ProbeResponse {
            state: api::ProbeState::Ready.into(),
            boot_id: "boot".into(),
            ..Default::default()
        }))
    }

    type WatchChangesStream = BoxStream<'static, Result<api::WatchChangesResponse, Status>>;

    async fn watch_changes(
        &self,
        _request: Request<api::WatchChangesRequest>,
    ) -> Answer<Self::WatchChangesStream> {
        Ok(Response::new(pending().boxed()))
    }
}

#[tonic::async_trait]
impl LoadBalancerService for Cloud {
    async fn get_load_balancer(
        &self,
        request: Request<api::GetLoadBalancerRequest>,
    ) -> Answer<api::GetLoadBalancerResponse> {
        let request = request.into_inner();
        let service = request.service.unwrap_or_default();
        self.enter("Get", Some(&service), request.handle.as_ref())
            .await;
        let state = self.state();
        let found = match state.balancers.get(&service.uid) {
            None => api::LoadBalancer {
                presence: api::LoadBalancerPresence::Absent.into(),
                ..Default::default()
            },
            Some(balancer) => api::LoadBalancer {
                presence: api::LoadBalancerPresence::Present.into(),
                ownership: api::Ownership::Ours.into(),
                load_balancer_name: "lb".into(),
                status: Some(status()),
                in_sync: Some(*balancer == wanted(&service, request.targets)),
            },
        };
        Ok(Response::new(api::GetLoadBalancerResponse {
            outcome: Some(api::get_load_balancer_response::Outcome::Found(found)),
            ..Default::default()
        }))
    }

    async fn ensure_load_balancer(
        &self,
        request: Request<api::EnsureLoadBalancerRequest>,
    ) -> Answer<api::EnsureLoadBalancerResponse> {
        use api::ensure_load_balancer_response::Outcome;
        let request = request.into_inner();
        let service = request.service.unwrap_or_default();
        self.enter("Ensure", Some(&service), request.handle.as_ref())
            .await;
        let mut state = self.state();
        let outcome = state.instead.pop_front().unwrap_or_else(|| {
            let balancer = wanted(&service, request.targets);
            state.balancers.insert(service.uid.clone(), balancer);
            Outcome::Ready(api::LoadBalancerReady {
                status: Some(status()),
            })
        });
        Ok(Response::new(api::EnsureLoadBalancerResponse {
            handle: state
                .annotations
                .is_none()
                .then(|| format!("h-{}", service.uid)),
            annotations: state.annotations.clone(),
            outcome: Some(outcome),
            ..Default::default()
        }))
    }

    async fn update_load_balancer(
        &self,
        request: Request<api::UpdateLoadBalancerRequest>,
    ) -> Answer<api::UpdateLoadBalancerResponse> {
        use api::update_load_balancer_response::Outcome;
        let request = request.into_inner();
        let service = request.service.unwrap_or_default();
        self.enter("Update", Some(&service), request.handle.as_ref())
            .await;
        let mut state = self.state();
        let (bad, fails) = (state.bad_targets.clone(), state.update_fails.clone());
        let mut target_errors = Vec::new();
        let outcome = match (state.balancers.get_mut(&service.uid), fails) {
            (_, Some(failure)) => Outcome::Failed(failure),
            (Some(balancer), None) => {
                balancer.targets = names(request.targets);
                for node_name in bad {
                    if !balancer.targets.contains(&node_name) {
                        continue;
                    }
                    balancer.targets.retain(|target| *target != node_name);
                    target_errors.push(api::TargetError {
                        node_name,
                        failure: Some(api::Failure {
                            code: api::FailureCode::Precondition.into(),
                            message: "another subnet".into(),
                            ..Default::default()
                        }),
                    });
                }
                Outcome::Done(api::Done {})
            }
            (None, None) => Outcome::Failed(api::Failure {
                code: api::FailureCode::NotFound.into(),
                ..Default::default()
            }),
        };
        Ok(Response::new(api::UpdateLoadBalancerResponse {
            outcome: Some(outcome),
            target_errors,
            ..Default::default()
        }))
    }

    async fn delete_load_balancer(
        &self,
        request: Request<api::DeleteLoadBalancerRequest>,
    ) -> Answer<api::DeleteLoadBalancerResponse> {
        let request = request.into_inner();
        let service = request.service.unwrap_or_default();
        self.enter("Delete", Some(&service), request.handle.as_ref())
            .await;
        self.state().balancers.remove(&service.uid);
        Ok(Response::new(api::DeleteLoadBalancerResponse {
            outcome: Some(api::delete_load_balancer_response::Outcome::Done(
                api::Done {},
            )),
            ..Default::default()
        }))
    }

    type ListLoadBalancersStream =
        BoxStream<'static, Result<api::ListLoadBalancersResponse, Status>>;

    async fn list_load_balancers(
        &self,
        _request: Request<api::ListLoadBalancersRequest>,
    ) -> Answer<Self::ListLoadBalancersStream> {
        Ok(Response::new(empty().boxed()))
    }
}
