//! A provider process whose cloud is a map, for tests of the loop.

mod provider;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use api::load_balancer_service_server::{LoadBalancerService, LoadBalancerServiceServer};
use api::provider_service_server::ProviderServiceServer;
use cloud_provider_api::v1alpha1 as api;
use futures::stream::{BoxStream, StreamExt as _, iter};
use provider_sdk::GrpcService;
use tonic::{Request, Response, Status};
use tower::util::BoxCloneSyncService;

type Answer<T> = Result<Response<T>, Status>;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Balancer {
    pub(super) targets: Vec<String>,
    ports: Vec<api::ServicePort>,
    service: String,
}

/// The fault of a call.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// It fails with this failure.
    Fails(api::Failure),
    /// Its outcome is not set.
    Unset,
    /// A gRPC status.
    Status(tonic::Code),
    /// It is neither executed nor answered.
    Hangs,
    /// It is executed but not answered before the deadline, so the answer is lost.
    Late,
    /// The provider's process dies before it does anything.
    DiesBefore,
    /// The provider's process dies after the work.
    DiesAfter,
    /// The provider's process shuts down after the call has begun, and finishes the work in this
    /// time.
    Drains(std::time::Duration),
    /// The ccm dies after the call has begun.
    CcmDiesBefore,
    /// The ccm dies after the work.
    CcmDiesAfter,
}

/// A call that arrived.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) rpc: &'static str,
    pub(super) name: String,
    pub(super) at: tokio::time::Instant,
    pub(super) fault: Option<Fault>,
}

#[derive(Default)]
pub(super) struct State {
    /// Changes to the provider's info.
    pub(super) says: Option<fn(&mut api::GetProviderInfoResponse)>,
    /// The targets of the last Ensure or Update, by the Service's name.
    pub(super) views: BTreeMap<String, Vec<api::NodeView>>,
    /// The faults of the next calls of an RPC for `web`.
    pub(super) faults: BTreeMap<&'static str, VecDeque<Fault>>,
    /// How many of the next Ensures hang, of any Service.
    pub(super) hang: usize,
    /// The cloud scope; `account 1` if unset.
    pub(super) scope: Option<&'static str>,
    /// The number of Initialize calls.
    pub(super) initialized: usize,
    /// All calls about a Service, with their faults.
    pub(super) log: Vec<Call>,
    /// How many load balancers were ever created.
    pub(super) made: usize,
    /// The provider's process has to die.
    pub(super) dead: bool,
    /// The provider's process has to shut down.
    pub(super) terminated: bool,
    /// Services with a call in progress.
    under_way: BTreeSet<String>,
    /// How often two calls ran at once for one Service.
    pub(super) overlaps: usize,
    /// Whether the ccm has to die.
    pub(super) kill_ccm: bool,
    /// By the Service's UID.
    pub(super) balancers: BTreeMap<String, Balancer>,
    /// `RPC name handle`, in order.
    pub(super) calls: Vec<String>,
    /// The outcomes of the next Ensures. These Ensures do not change the cloud.
    pub(super) instead: VecDeque<api::ensure_load_balancer_response::Outcome>,
    /// The answers of the next Deletes. These Deletes do not change the cloud.
    pub(super) deletes: VecDeque<api::DeleteLoadBalancerResponse>,
    /// The failure of each Update. No Update changes the cloud then.
    pub(super) update_fails: Option<api::Failure>,
    /// Nodes that an Update cannot attach.
    pub(super) bad_targets: Vec<String>,
    /// The target errors of each Ensure and Update. In an Update they come before those of
    /// `bad_targets`.
    pub(super) target_errors: Vec<api::TargetError>,
    /// The annotations in each answer of Ensure and Update. With them, Ensure gives no handle.
    pub(super) annotations: Option<api::AnnotationChanges>,
    /// The numbers of targets in Updates and in Ensures that change the cloud, by the Service's
    /// UID.
    pub(super) sets: BTreeMap<String, Vec<usize>>,
    /// The number of lists.
    pub(super) lists: usize,
    /// How many more load balancers the lists announce than they contain.
    pub(super) miscounted: u64,
    /// UIDs of Services whose load balancers the lists omit.
    pub(super) unlisted: BTreeSet<String>,
    /// UIDs of Services whose load balancers the lists contain a second time, with another handle.
    pub(super) doubled: BTreeSet<String>,
    /// How many calls run, and how many ran at most at once.
    pub(super) running: (usize, usize),
}

#[derive(Clone, Default)]
pub(super) struct Cloud(Arc<Mutex<State>>);

impl Cloud {
    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

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

    /// Records the call. Returns the fault for the rest of the call.
    async fn enter(
        &self,
        rpc: &'static str,
        service: &api::ServiceView,
        handle: Option<&String>,
    ) -> Result<Option<Fault>, Status> {
        let fault = {
            let mut state = self.state();
            let name = service.name.clone();
            let record = service
                .annotations
                .get(crate::controllers::service::handle::ANNOTATION);
            let stored = record.is_some_and(|record| record.contains("\"handle\":"));
            assert!(
                !stored || handle.is_some(),
                "a stored handle is sent (▲S19)"
            );
            let sent = handle.map_or("-", String::as_str);
            state.calls.push(format!("{rpc} {name} {sent}"));
            let mut fault = (name == "web")
                .then(|| state.faults.get_mut(rpc)?.pop_front())
                .flatten();
            if rpc == "Ensure" && state.hang > 0 {
                state.hang -= 1;
                fault = Some(Fault::Hangs);
            }
            state.log.push(Call {
                rpc,
                name,
                at: tokio::time::Instant::now(),
                fault: fault.clone(),
            });
            state.running.0 += 1;
            state.running.1 = state.running.1.max(state.running.0);
            if !state.under_way.insert(service.name.clone()) {
                state.overlaps += 1;
            }
            fault
        };
        let _running = Leaving(self, &service.name);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        match &fault {
            Some(Fault::Status(code)) => Err(Status::new(*code, "on purpose")),
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::DiesBefore) => self.never(|state| state.dead = true).await,
            Some(Fault::Drains(wait)) => {
                self.state().terminated = true;
                tokio::time::sleep(*wait).await;
                Ok(fault)
            }
            Some(Fault::CcmDiesBefore) => self.never(|state| state.kill_ccm = true).await,
            _ => Ok(fault),
        }
    }

    /// Ends a call whose work is done.
    async fn leave(&self, fault: Option<Fault>) -> Result<(), Status> {
        match fault {
            Some(Fault::Late) => std::future::pending().await,
            Some(Fault::DiesAfter) => self.never(|state| state.dead = true).await,
            Some(Fault::CcmDiesAfter) => self.never(|state| state.kill_ccm = true).await,
            _ => Ok(()),
        }
    }

    async fn never<T>(&self, note: impl FnOnce(&mut State)) -> T {
        note(&mut self.state());
        std::future::pending().await
    }
}

/// A call before its work, which counts as running. Dropping this ends the count.
struct Leaving<'a>(&'a Cloud, &'a str);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.running.0 -= 1;
        state.under_way.remove(self.1);
    }
}

/// Returns the outcome that a fault demands instead of the work. Without such a fault, the work
/// goes on.
macro_rules! instead {
    ($fault:expr, $response:ty, $failed:path) => {
        match &$fault {
            Some(Fault::Fails(failure)) => {
                return Ok(Response::new(<$response>::from_outcome(Some($failed(
                    failure.clone(),
                )))));
            }
            Some(Fault::Unset) => {
                return Ok(Response::new(<$response>::from_outcome(None)));
            }
            _ => {}
        }
    };
}

trait FromOutcome<O>: Default {
    fn from_outcome(outcome: Option<O>) -> Self;
}

macro_rules! from_outcome {
    ($response:ty, $outcome:ty) => {
        impl FromOutcome<$outcome> for $response {
            fn from_outcome(outcome: Option<$outcome>) -> Self {
                Self {
                    outcome,
                    ..Self::default()
                }
            }
        }
    };
}

from_outcome!(
    api::GetLoadBalancerResponse,
    api::get_load_balancer_response::Outcome
);
from_outcome!(
    api::EnsureLoadBalancerResponse,
    api::ensure_load_balancer_response::Outcome
);
from_outcome!(
    api::UpdateLoadBalancerResponse,
    api::update_load_balancer_response::Outcome
);
from_outcome!(
    api::DeleteLoadBalancerResponse,
    api::delete_load_balancer_response::Outcome
);

/// An answer that asks for the next call after this many seconds.
pub(super) fn pending(seconds: i64, message: &str) -> api::Pending {
    api::Pending {
        retry_after: Some(prost_types::Duration { seconds, nanos: 0 }),
        message: message.into(),
    }
}

fn views(targets: Option<api::TargetSet>) -> Vec<api::NodeView> {
    match targets.and_then(|targets| targets.set) {
        Some(api::target_set::Set::Inline(list)) => list.nodes,
        _ => Vec::new(),
    }
}

fn names(targets: Option<api::TargetSet>) -> Vec<String> {
    let views = views(targets).into_iter();
    views.map(|node| node.name).collect()
}

fn wanted(service: &api::ServiceView, targets: Option<api::TargetSet>) -> Balancer {
    Balancer {
        targets: names(targets),
        ports: service.ports.clone(),
        service: service.name.clone(),
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
impl LoadBalancerService for Cloud {
    async fn get_load_balancer(
        &self,
        request: Request<api::GetLoadBalancerRequest>,
    ) -> Answer<api::GetLoadBalancerResponse> {
        let request = request.into_inner();
        let service = request.service.unwrap_or_default();
        let fault = self.enter("Get", &service, request.handle.as_ref()).await?;
        instead!(
            fault,
            api::GetLoadBalancerResponse,
            api::get_load_balancer_response::Outcome::Failed
        );
        let balancer = self.state().balancers.get(&service.uid).cloned();
        let found = match &balancer {
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
        self.leave(fault).await?;
        Ok(Response::new(api::GetLoadBalancerResponse {
            handle: balancer.map(|_| format!("h-{}", service.uid)),
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
        let fault = self
            .enter("Ensure", &service, request.handle.as_ref())
            .await?;
        instead!(
            fault,
            api::EnsureLoadBalancerResponse,
            api::ensure_load_balancer_response::Outcome::Failed
        );
        let (outcome, target_errors, annotations) = {
            let mut state = self.state();
            let sent = views(request.targets.clone());
            state.views.insert(service.name.clone(), sent);
            let outcome = state.instead.pop_front().unwrap_or_else(|| {
                let balancer = wanted(&service, request.targets);
                let sets = state.sets.entry(service.uid.clone()).or_default();
                sets.push(balancer.targets.len());
                let before = state.balancers.insert(service.uid.clone(), balancer);
                state.made += usize::from(before.is_none());
                Outcome::Ready(api::LoadBalancerReady {
                    status: Some(status()),
                })
            });
            (
                outcome,
                state.target_errors.clone(),
                state.annotations.clone(),
            )
        };
        self.leave(fault).await?;
        Ok(Response::new(api::EnsureLoadBalancerResponse {
            target_errors,
            handle: annotations.is_none().then(|| format!("h-{}", service.uid)),
            annotations,
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
        let fault = self
            .enter("Update", &service, request.handle.as_ref())
            .await?;
        instead!(
            fault,
            api::UpdateLoadBalancerResponse,
            api::update_load_balancer_response::Outcome::Failed
        );
        let (bad, fails, mut target_errors, annotations) = {
            let state = self.state();
            (
                state.bad_targets.clone(),
                state.update_fails.clone(),
                state.target_errors.clone(),
                state.annotations.clone(),
            )
        };
        let sent = views(request.targets.clone());
        self.state().views.insert(service.name.clone(), sent);
        let wanted = names(request.targets);
        let many = wanted.len();
        self.state()
            .sets
            .entry(service.uid.clone())
            .or_default()
            .push(many);
        let outcome = match (self.state().balancers.get_mut(&service.uid), fails) {
            (_, Some(failure)) => Outcome::Failed(failure),
            (Some(balancer), None) => {
                balancer.targets = wanted;
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
        self.leave(fault).await?;
        Ok(Response::new(api::UpdateLoadBalancerResponse {
            outcome: Some(outcome),
            target_errors,
            annotations,
            ..Default::default()
        }))
    }

    async fn delete_load_balancer(
        &self,
        request: Request<api::DeleteLoadBalancerRequest>,
    ) -> Answer<api::DeleteLoadBalancerResponse> {
        let request = request.into_inner();
        let service = request.service.unwrap_or_default();
        let fault = self
            .enter("Delete", &service, request.handle.as_ref())
            .await?;
        instead!(
            fault,
            api::DeleteLoadBalancerResponse,
            api::delete_load_balancer_response::Outcome::Failed
        );
        if let Some(answer) = self.state().deletes.pop_front() {
            return Ok(Response::new(answer));
        }
        self.state().balancers.remove(&service.uid);
        self.leave(fault).await?;
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
        use api::list_load_balancers_response::Part;
        let mut state = self.state();
        state.lists += 1;
        let owned = |uid: &String, balancer: &Balancer, mark: &str| {
            Part::LoadBalancer(api::ListedLoadBalancer {
                load_balancer_name: format!("lb-{uid}{mark}"),
                handle: Some(format!("h-{uid}{mark}")),
                owners: vec![api::ServiceRef {
                    namespace: "default".into(),
                    name: balancer.service.clone(),
                    uid: uid.clone(),
                }],
            })
        };
        let mut parts = Vec::new();
        for (uid, balancer) in &state.balancers {
            if !state.unlisted.contains(uid) {
                parts.push(owned(uid, balancer, ""));
            }
            if state.doubled.contains(uid) {
                parts.push(owned(uid, balancer, "-old"));
            }
        }
        let total = parts.len() as u64 + state.miscounted;
        parts.push(Part::End(api::ListEnd { total }));
        let message = |part| Ok(api::ListLoadBalancersResponse { part: Some(part) });
        Ok(Response::new(iter(parts.into_iter().map(message)).boxed()))
    }
}
