//! LoadBalancerService.

use api::delete_load_balancer_response::Outcome as Deleted;
use api::ensure_load_balancer_response::Outcome as Ensured;
use api::get_load_balancer_response::Outcome as Got;
use api::load_balancer_service_client::LoadBalancerServiceClient;
use api::update_load_balancer_response::Outcome as Updated;
use cloud_provider_api::v1alpha1 as api;

use super::super::connect::Link;
use super::super::failures::{self, Place};
use super::super::limits;
use super::super::{CallError, CallErrorCode, CallId, Session};
use super::listing::{Part, collect};
use super::{Answered, Rpc};
use crate::core::Fence;

fn client(link: Link) -> LoadBalancerServiceClient<Link> {
    LoadBalancerServiceClient::with_origin(link, Link::origin())
        .max_decoding_message_size(api::MOST_MESSAGE_BYTES)
}

/// The answer to a call about a single load balancer, as the contract requires it.
#[derive(Clone, Debug)]
pub(crate) struct BalancerAnswer<O> {
    /// Kept also if the outcome breaks the contract.
    pub(crate) handle: Option<String>,
    pub(crate) events: Vec<api::Event>,
    pub(crate) annotations: Option<api::AnnotationChanges>,
    pub(crate) target_errors: Vec<api::TargetError>,
    /// `Ok` is never `failed`. `Err`: the provider's failure, or INTERNAL with the reason
    /// `ContractFault`.
    pub(crate) outcome: Result<O, CallError>,
}

/// A message with the parts of a [`BalancerAnswer`].
pub(crate) trait Parts {
    type Outcome;

    /// The parts, unchecked but for the outcome: it is a fault if the message has none.
    fn parts(self, rpc: &str) -> BalancerAnswer<Self::Outcome>;
}

macro_rules! parts {
    ($message:ty, $outcome:ident) => {
        impl Parts for $message {
            type Outcome = $outcome;

            fn parts(self, rpc: &str) -> BalancerAnswer<$outcome> {
                BalancerAnswer {
                    handle: self.handle,
                    events: self.events,
                    annotations: self.annotations,
                    target_errors: self.target_errors,
                    outcome: match self.outcome {
                        None => Err(CallError::fault(
                            "the answer has no outcome, or one that this contract minor does not know",
                        )),
                        Some($outcome::Failed(failure)) => {
                            Err(failures::trouble(rpc, Place::Whole, failure))
                        }
                        Some(outcome) => Ok(outcome),
                    },
                }
            }
        }
    };
}

parts!(api::GetLoadBalancerResponse, Got);
parts!(api::EnsureLoadBalancerResponse, Ensured);
parts!(api::UpdateLoadBalancerResponse, Updated);
parts!(api::DeleteLoadBalancerResponse, Deleted);

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

/// The answer as the contract requires it. `check` finds further faults in the outcome. A fault
/// becomes INTERNAL with the reason `ContractFault`, and a valid handle is kept all the same.
fn checked<T: Parts>(
    rpc: &str,
    message: T,
    check: impl FnOnce(&T::Outcome) -> Result<(), CallError>,
) -> Answered<BalancerAnswer<T::Outcome>> {
    let mut answer = message.parts(rpc);
    answer.outcome = answer
        .outcome
        .and_then(|outcome| check(&outcome).map(|()| outcome));
    if let Err(fault) = limits::check_handle(answer.handle.as_deref()) {
        answer.handle = None;
        answer.outcome = Err(fault);
    }
    let reported = answer.outcome.as_ref().err().cloned();
    if let Err(trouble) = &mut answer.outcome
        && trouble.code == CallErrorCode::Fault
    {
        trouble.code = CallErrorCode::Internal;
        "ContractFault".clone_into(&mut trouble.reason);
    }
    limits::cut_events(&mut answer.events);
    answer
        .target_errors
        .retain(|error| limits::check_name("node_name", &error.node_name).is_ok());
    for error in &mut answer.target_errors {
        let failure = error.failure.take();
        error.failure = failure.map(|failure| failures::read(rpc, Place::Item, failure));
    }
    Answered {
        reported,
        ..Answered::well(answer)
    }
}

impl Session {
    fn balancer_rpc(&self, name: &'static str) -> Rpc<'_> {
        let limiter = &self.limiters.load_balancers;
        Rpc::new(name, limiter, self.deadlines.load_balancer)
    }

    /// GetLoadBalancer. Returns the answer and the call's ID. This function fills in `cluster`. As
    /// in all calls about a single load balancer, an answer with an invalid outcome or handle
    /// becomes a failure with the reason `ContractFault`.
    pub(crate) async fn get_load_balancer(
        &self,
        mut request: api::GetLoadBalancerRequest,
    ) -> Result<(BalancerAnswer<Got>, CallId), CallError> {
        request.cluster = Some(self.cluster.clone());
        let rpc = self.balancer_rpc("GetLoadBalancer");
        self.call_with_id(rpc, None, request, |link, request| async move {
            let mut client = client(link);
            let answer = client.get_load_balancer(request).await?;
            Ok(checked(rpc.name, answer.into_inner(), |got| match got {
                Got::Found(found) => check_found(found),
                Got::Failed(_) => Ok(()),
            }))
        })
        .await
    }

    /// EnsureLoadBalancer. This function fills in `cluster`. An answer with a failure is `Ok` here,
    /// because it can carry a handle.
    pub(crate) async fn ensure_load_balancer(
        &self,
        fence: &Fence,
        mut request: api::EnsureLoadBalancerRequest,
    ) -> Result<(BalancerAnswer<Ensured>, CallId), CallError> {
        request.cluster = Some(self.cluster.clone());
        let rpc = self.balancer_rpc("EnsureLoadBalancer");
        self.call_with_id(rpc, Some(fence), request, |link, request| async move {
            let mut client = client(link);
            let answer = client.ensure_load_balancer(request).await?;
            Ok(checked(rpc.name, answer.into_inner(), |_| Ok(())))
        })
        .await
    }

    /// UpdateLoadBalancer; as `ensure_load_balancer`.
    pub(crate) async fn update_load_balancer(
        &self,
        fence: &Fence,
        mut request: api::UpdateLoadBalancerRequest,
    ) -> Result<(BalancerAnswer<Updated>, CallId), CallError> {
        request.cluster = Some(self.cluster.clone());
        let rpc = self.balancer_rpc("UpdateLoadBalancer");
        self.call_with_id(rpc, Some(fence), request, |link, request| async move {
            let mut client = client(link);
            let answer = client.update_load_balancer(request).await?;
            Ok(checked(rpc.name, answer.into_inner(), |_| Ok(())))
        })
        .await
    }

    /// DeleteLoadBalancer; as `ensure_load_balancer`.
    pub(crate) async fn delete_load_balancer(
        &self,
        fence: &Fence,
        mut request: api::DeleteLoadBalancerRequest,
    ) -> Result<(BalancerAnswer<Deleted>, CallId), CallError> {
        request.cluster = Some(self.cluster.clone());
        let rpc = self.balancer_rpc("DeleteLoadBalancer");
        self.call_with_id(rpc, Some(fence), request, |link, request| async move {
            let mut client = client(link);
            let answer = client.delete_load_balancer(request).await?;
            Ok(checked(rpc.name, answer.into_inner(), |_| Ok(())))
        })
        .await
    }

    /// ListLoadBalancers. `Err` if the listing is not complete, or an item breaks the contract's
    /// limits.
    pub(crate) async fn list_load_balancers(
        &self,
    ) -> Result<Vec<api::ListedLoadBalancer>, CallError> {
        let request = api::ListLoadBalancersRequest {
            cluster: Some(self.cluster.clone()),
        };
        let limiter = &self.limiters.load_balancers;
        let rpc = Rpc::new("ListLoadBalancers", limiter, self.deadlines.list);
        self.call(rpc, None, request, |link, request| async move {
            use api::list_load_balancers_response::Part as P;
            let mut client = client(link);
            let stream = client.list_load_balancers(request).await?;
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
