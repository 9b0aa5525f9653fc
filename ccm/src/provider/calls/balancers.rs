//! LoadBalancerService.

use api::load_balancer_service_client::LoadBalancerServiceClient;
use cloud_provider_api::v1alpha1 as api;

use super::super::connect::Link;
use super::super::failures::{self, Place};
use super::super::limits;
use super::super::{CallError, CallId, Session};
use super::listing::{Part, collect};
use super::{Answered, Rpc, timed};
use crate::core::Fence;

fn client(link: Link) -> LoadBalancerServiceClient<Link> {
    LoadBalancerServiceClient::with_origin(link, Link::origin())
        .max_decoding_message_size(api::MOST_MESSAGE_BYTES)
}

/// The common parts of the answers.
trait Answer {
    fn handle(&mut self) -> &mut Option<String>;
    fn events(&mut self) -> &mut Vec<api::Event>;
    fn target_errors(&mut self) -> &mut Vec<api::TargetError>;
    /// The failure, or a fault if the answer has no outcome or one that breaks the contract.
    fn trouble(&self) -> Option<CallError>;
    /// Takes the failure out of the answer.
    fn take_failure(&mut self) -> Option<api::Failure>;
    fn fail(&mut self, failure: api::Failure);
}

macro_rules! answer {
    ($message:ty, $outcomes:path, $check:expr) => {
        impl Answer for $message {
            fn handle(&mut self) -> &mut Option<String> {
                &mut self.handle
            }
            fn events(&mut self) -> &mut Vec<api::Event> {
                &mut self.events
            }
            fn target_errors(&mut self) -> &mut Vec<api::TargetError> {
                &mut self.target_errors
            }
            fn trouble(&self) -> Option<CallError> {
                use $outcomes as Outcome;
                match &self.outcome {
                    None => Some(CallError::fault(
                        "the answer has no outcome, or one that this contract minor does not know",
                    )),
                    Some(Outcome::Failed(failure)) => Some(failure.clone().into()),
                    #[allow(clippy::redundant_closure_call)]
                    Some(outcome) => ($check)(outcome),
                }
            }
            fn take_failure(&mut self) -> Option<api::Failure> {
                use $outcomes as Outcome;
                match self.outcome.take() {
                    Some(Outcome::Failed(failure)) => Some(failure),
                    other => {
                        self.outcome = other;
                        None
                    }
                }
            }
            fn fail(&mut self, failure: api::Failure) {
                use $outcomes as Outcome;
                self.outcome = Some(Outcome::Failed(failure));
            }
        }
    };
}

answer!(
    api::GetLoadBalancerResponse,
    api::get_load_balancer_response::Outcome,
    |outcome: &api::get_load_balancer_response::Outcome| match outcome {
        api::get_load_balancer_response::Outcome::Found(found) => check_found(found).err(),
        api::get_load_balancer_response::Outcome::Failed(_) => None,
    }
);
answer!(
    api::EnsureLoadBalancerResponse,
    api::ensure_load_balancer_response::Outcome,
    |_| None
);
answer!(
    api::UpdateLoadBalancerResponse,
    api::update_load_balancer_response::Outcome,
    |_| None
);
answer!(
    api::DeleteLoadBalancerResponse,
    api::delete_load_balancer_response::Outcome,
    |_| None
);

fn check_found(found: &api::LoadBalancer) -> Result<(), CallError> {
    use api::LoadBalancerPresence as P;
    let absent = match P::try_from(found.presence) {
        Ok(P::Absent) => true,
        Ok(P::Present | P::Remnants) => false,
        Ok(P::Unspecified) | Err(_) => {
            return Err(CallError::fault(format!(
                "the load balancer's presence {} is not known",
                found.presence
            )));
        }
    };
    match api::Ownership::try_from(found.ownership) {
        Ok(api::Ownership::Unspecified) if absent => {}
        Ok(api::Ownership::Unspecified) | Err(_) => {
            return Err(CallError::fault(format!(
                "the load balancer's ownership {} is not known",
                found.ownership
            )));
        }
        Ok(_) => {}
    }
    limits::check_name("load_balancer_name", &found.load_balancer_name)
}

/// The answer as the contract requires it. A fault becomes a `failed` that describes it, and a
/// valid handle is kept all the same.
fn checked<T: Answer>(rpc: &str, mut answer: T) -> Answered<T> {
    if let Some(failure) = answer.take_failure() {
        answer.fail(failures::read(rpc, Place::Whole, failure));
    }
    for error in answer.target_errors() {
        let failure = error.failure.take();
        error.failure = failure.map(|failure| failures::read(rpc, Place::Item, failure));
    }
    let mut reported = answer.trouble();
    if let Err(fault) = limits::check_handle(answer.handle().as_deref()) {
        *answer.handle() = None;
        reported = Some(fault);
    }
    if let Some(trouble) = &reported
        && trouble.code == super::CallErrorCode::Fault
    {
        answer.fail(api::Failure {
            code: api::FailureCode::Internal.into(),
            reason: "ContractFault".to_owned(),
            message: trouble.message.clone(),
            retry_after: None,
        });
    }
    limits::cut_events(answer.events());
    answer
        .target_errors()
        .retain(|error| limits::check_name("node_name", &error.node_name).is_ok());
    Answered { answer, reported }
}

impl Session {
    fn balancer_rpc(&self, name: &'static str) -> Result<Rpc<'_>, CallError> {
        self.offered(
            "load balancers",
            self.offers(|c| c.load_balancers.is_some()),
        )?;
        Ok(Rpc {
            name,
            limiter: &self.limiters.load_balancers,
            deadline: self.deadlines.load_balancer,
        })
    }

    /// GetLoadBalancer. Returns the answer and the call's ID. This function fills in `cluster`. The
    /// answer's `outcome` is set. As in all calls about a single load balancer, an answer with an
    /// invalid outcome or handle becomes a `failed` with the reason `ContractFault`.
    pub(crate) async fn get_load_balancer(
        &self,
        mut request: api::GetLoadBalancerRequest,
    ) -> Result<(api::GetLoadBalancerResponse, CallId), CallError> {
        request.cluster = Some(self.cluster.clone());
        limits::check_request(&request, self.max_request_bytes)?;
        let rpc = self.balancer_rpc("GetLoadBalancer")?;
        self.call_with_id(rpc, None, |link, deadline| async move {
            let mut client = client(link);
            let answer = client.get_load_balancer(timed(request, deadline)).await?;
            Ok(checked(rpc.name, answer.into_inner()))
        })
        .await
    }

    /// EnsureLoadBalancer. This function fills in `cluster`. A `failed` outcome is `Ok` here,
    /// because it can carry a handle.
    pub(crate) async fn ensure_load_balancer(
        &self,
        fence: &Fence,
        mut request: api::EnsureLoadBalancerRequest,
    ) -> Result<(api::EnsureLoadBalancerResponse, CallId), CallError> {
        request.cluster = Some(self.cluster.clone());
        limits::check_request(&request, self.max_request_bytes)?;
        let rpc = self.balancer_rpc("EnsureLoadBalancer")?;
        self.call_with_id(rpc, Some(fence), |link, deadline| async move {
            let mut client = client(link);
            let answer = client
                .ensure_load_balancer(timed(request, deadline))
                .await?;
            Ok(checked(rpc.name, answer.into_inner()))
        })
        .await
    }

    /// UpdateLoadBalancer; as `ensure_load_balancer`.
    pub(crate) async fn update_load_balancer(
        &self,
        fence: &Fence,
        mut request: api::UpdateLoadBalancerRequest,
    ) -> Result<(api::UpdateLoadBalancerResponse, CallId), CallError> {
        request.cluster = Some(self.cluster.clone());
        limits::check_request(&request, self.max_request_bytes)?;
        let rpc = self.balancer_rpc("UpdateLoadBalancer")?;
        self.call_with_id(rpc, Some(fence), |link, deadline| async move {
            let mut client = client(link);
            let answer = client
                .update_load_balancer(timed(request, deadline))
                .await?;
            Ok(checked(rpc.name, answer.into_inner()))
        })
        .await
    }

    /// DeleteLoadBalancer; as `ensure_load_balancer`.
    pub(crate) async fn delete_load_balancer(
        &self,
        fence: &Fence,
        mut request: api::DeleteLoadBalancerRequest,
    ) -> Result<(api::DeleteLoadBalancerResponse, CallId), CallError> {
        request.cluster = Some(self.cluster.clone());
        limits::check_request(&request, self.max_request_bytes)?;
        let rpc = self.balancer_rpc("DeleteLoadBalancer")?;
        self.call_with_id(rpc, Some(fence), |link, deadline| async move {
            let mut client = client(link);
            let answer = client
                .delete_load_balancer(timed(request, deadline))
                .await?;
            Ok(checked(rpc.name, answer.into_inner()))
        })
        .await
    }

    /// ListLoadBalancers. `Err` if the listing is not complete, or an item breaks the contract's
    /// limits.
    pub(crate) async fn list_load_balancers(
        &self,
    ) -> Result<Vec<api::ListedLoadBalancer>, CallError> {
        let listing = self.offers(|c| c.load_balancers.as_ref().is_some_and(|c| c.listing));
        self.offered("the listing of load balancers", listing)?;
        let request = api::ListLoadBalancersRequest {
            cluster: Some(self.cluster.clone()),
        };
        let rpc = Rpc {
            deadline: self.deadlines.list,
            ..self.balancer_rpc("ListLoadBalancers")?
        };
        self.call(rpc, None, |link, deadline| async move {
            use api::list_load_balancers_response::Part as P;
            let mut client = client(link);
            let stream = client.list_load_balancers(timed(request, deadline)).await?;
            let list = collect(rpc.name, stream.into_inner(), |message| {
                match message.part {
                    None => Part::Unset,
                    Some(P::Failed(failure)) => Part::Failed(failure),
                    Some(P::LoadBalancer(balancer)) => Part::Items(vec![balancer]),
                    Some(P::End(end)) => Part::End(end),
                }
            })
            .await?;
            for balancer in &list {
                limits::check_handle(balancer.handle.as_deref())?;
                limits::check_name("load_balancer_name", &balancer.load_balancer_name)?;
                for owner in &balancer.owners {
                    for part in [&owner.namespace, &owner.name, &owner.uid] {
                        limits::check_name("owners[]", part)?;
                    }
                }
            }
            Ok(Answered::well(list))
        })
        .await
    }
}
