//! LoadBalancerService.

mod messages;

use std::sync::Arc;

use prost::Message as _;
use tonic::{Request, Response, Status};

use cloud_provider_api::v1alpha1::load_balancer_service_server::LoadBalancerService;
use cloud_provider_api::v1alpha1::{self as pb};
use pb::delete_load_balancer_response::Outcome as DeleteOutcome;
use pb::ensure_load_balancer_response::Outcome as EnsureOutcome;
use pb::get_load_balancer_response::Outcome as GetOutcome;
use pb::list_load_balancers_response::Part;
use pb::update_load_balancer_response::Outcome as UpdateOutcome;

use super::limits::{ID_BYTES, fault, fits};
use super::run::Hold;
use super::{Core, Parts, Wrap, convert, not_listed, not_offered};
use crate::failure::truncate;
use crate::{
    Call, DeleteLoadBalancer, Deleted, EnsureLoadBalancer, Ensured, Failure, GetLoadBalancer,
    LoadBalancer, LoadBalancerResult, LoadBalancers, Notes, Provider, Service, UpdateLoadBalancer,
    Updated,
};
use messages::{listed_to, load_balancer_to, service_from, status_to, targets_from};

/// A call about the load balancer of one Service: the differences between get, ensure, update and
/// delete. [`Wrap::about_one`] has the rest.
#[tonic::async_trait]
trait Operation: Send + Sized + 'static {
    const RPC: &'static str;
    /// The type of the vendor's answer.
    type Answer: Send + 'static;
    type Outcome;
    type Response;

    fn cluster(&mut self) -> Option<pb::ClusterRef>;
    fn service(&self) -> Option<&pb::ServiceView>;
    /// Parses the request and calls the vendor's code.
    async fn ask(
        self,
        core: &Core,
        provider: &dyn Provider,
        call: &Call,
    ) -> LoadBalancerResult<Self::Answer>;
    fn outcome(answer: Self::Answer) -> Result<Self::Outcome, String>;
    fn response(notes: NotesTo, outcome: Result<Self::Outcome, pb::Failure>) -> Self::Response;
}

/// The associated items that all four operations share.
macro_rules! fields {
    ($rpc:literal, $response:ident, $outcome:ident) => {
        const RPC: &'static str = $rpc;
        type Outcome = $outcome;
        type Response = pb::$response;

        fn cluster(&mut self) -> Option<pb::ClusterRef> {
            self.cluster.take()
        }

        fn service(&self) -> Option<&pb::ServiceView> {
            self.service.as_ref()
        }

        fn response(notes: NotesTo, outcome: Result<$outcome, pb::Failure>) -> pb::$response {
            pb::$response {
                handle: notes.handle,
                events: notes.events,
                annotations: notes.annotations,
                target_errors: notes.target_errors,
                outcome: Some(outcome.unwrap_or_else($outcome::Failed)),
            }
        }
    };
}

#[tonic::async_trait]
impl Operation for pb::GetLoadBalancerRequest {
    type Answer = LoadBalancer;
    fields!("GetLoadBalancer", GetLoadBalancerResponse, GetOutcome);

    async fn ask(
        self,
        _: &Core,
        provider: &dyn Provider,
        call: &Call,
    ) -> LoadBalancerResult<LoadBalancer> {
        let request = GetLoadBalancer {
            service: service_from(self.service)?,
            handle: self.handle,
            targets: targets_from(self.targets)?,
        };
        offered(provider)?.get(call, &request).await
    }

    fn outcome(found: LoadBalancer) -> Result<GetOutcome, String> {
        Ok(GetOutcome::Found(load_balancer_to(found)?))
    }
}

#[tonic::async_trait]
impl Operation for pb::EnsureLoadBalancerRequest {
    type Answer = Ensured;
    fields!(
        "EnsureLoadBalancer",
        EnsureLoadBalancerResponse,
        EnsureOutcome
    );

    async fn ask(
        self,
        core: &Core,
        provider: &dyn Provider,
        call: &Call,
    ) -> LoadBalancerResult<Ensured> {
        let request = EnsureLoadBalancer {
            service: service_from(self.service)?,
            handle: self.handle,
            targets: targets_from(self.targets)?,
            adopt_unmarked: self.adopt_unmarked,
        };
        let _hold = hold(core, &request.service)?;
        offered(provider)?.ensure(call, &request).await
    }

    fn outcome(ensured: Ensured) -> Result<EnsureOutcome, String> {
        Ok(match ensured {
            Ensured::Ready(status) => EnsureOutcome::Ready(pb::LoadBalancerReady {
                status: Some(status_to(status)?),
            }),
            Ensured::Pending(pending) => EnsureOutcome::Pending(convert::pending(pending)),
            Ensured::HandledElsewhere => EnsureOutcome::HandledElsewhere(pb::HandledElsewhere {}),
        })
    }
}

#[tonic::async_trait]
impl Operation for pb::UpdateLoadBalancerRequest {
    type Answer = Updated;
    fields!(
        "UpdateLoadBalancer",
        UpdateLoadBalancerResponse,
        UpdateOutcome
    );

    async fn ask(
        self,
        core: &Core,
        provider: &dyn Provider,
        call: &Call,
    ) -> LoadBalancerResult<Updated> {
        let request = UpdateLoadBalancer {
            service: service_from(self.service)?,
            handle: self.handle,
            targets: targets_from(self.targets)?
                .ok_or_else(|| Failure::invalid("the request has no targets"))?,
        };
        let _hold = hold(core, &request.service)?;
        offered(provider)?.update(call, &request).await
    }

    fn outcome(updated: Updated) -> Result<UpdateOutcome, String> {
        Ok(match updated {
            Updated::Done => UpdateOutcome::Done(pb::Done {}),
            Updated::Pending(pending) => UpdateOutcome::Pending(convert::pending(pending)),
            Updated::HandledElsewhere => UpdateOutcome::HandledElsewhere(pb::HandledElsewhere {}),
        })
    }
}

#[tonic::async_trait]
impl Operation for pb::DeleteLoadBalancerRequest {
    type Answer = Deleted;
    fields!(
        "DeleteLoadBalancer",
        DeleteLoadBalancerResponse,
        DeleteOutcome
    );

    async fn ask(
        self,
        core: &Core,
        provider: &dyn Provider,
        call: &Call,
    ) -> LoadBalancerResult<Deleted> {
        let request = DeleteLoadBalancer {
            service: service_from(self.service)?,
            handle: self.handle,
            adopt_unmarked: self.adopt_unmarked,
        };
        let _hold = hold(core, &request.service)?;
        offered(provider)?.delete(call, &request).await
    }

    fn outcome(deleted: Deleted) -> Result<DeleteOutcome, String> {
        Ok(match deleted {
            Deleted::Done => DeleteOutcome::Done(pb::Done {}),
            Deleted::Pending(pending) => DeleteOutcome::Pending(convert::pending(pending)),
            Deleted::Retained { reason } => DeleteOutcome::Retained(pb::Retained {
                reason: convert::text(reason),
            }),
            Deleted::HandledElsewhere => DeleteOutcome::HandledElsewhere(pb::HandledElsewhere {}),
        })
    }
}

impl Wrap {
    async fn about_one<R: Operation>(
        &self,
        request: Request<R>,
    ) -> Result<Response<R::Response>, Status> {
        let (metadata, _, mut request) = request.into_parts();
        let key = key_of(request.service());
        let cluster = request.cluster();
        let core = Arc::clone(&self.0);
        let work = |provider: Arc<dyn Provider>, call: Call| async move {
            request.ask(&core, &*provider, &call).await
        };
        let result = self.0.call(R::RPC, &metadata, cluster, work).await?;
        let (notes, outcome) = said(R::RPC, &key, result, R::outcome);
        Ok(Response::new(R::response(notes, outcome)))
    }
}

#[tonic::async_trait]
impl LoadBalancerService for Wrap {
    async fn get_load_balancer(
        &self,
        request: Request<pb::GetLoadBalancerRequest>,
    ) -> Result<Response<pb::GetLoadBalancerResponse>, Status> {
        self.about_one(request).await
    }

    async fn ensure_load_balancer(
        &self,
        request: Request<pb::EnsureLoadBalancerRequest>,
    ) -> Result<Response<pb::EnsureLoadBalancerResponse>, Status> {
        self.about_one(request).await
    }

    async fn update_load_balancer(
        &self,
        request: Request<pb::UpdateLoadBalancerRequest>,
    ) -> Result<Response<pb::UpdateLoadBalancerResponse>, Status> {
        self.about_one(request).await
    }

    async fn delete_load_balancer(
        &self,
        request: Request<pb::DeleteLoadBalancerRequest>,
    ) -> Result<Response<pb::DeleteLoadBalancerResponse>, Status> {
        self.about_one(request).await
    }

    type ListLoadBalancersStream = Parts<pb::ListLoadBalancersResponse>;

    async fn list_load_balancers(
        &self,
        request: Request<pb::ListLoadBalancersRequest>,
    ) -> Result<Response<Self::ListLoadBalancersStream>, Status> {
        const RPC: &str = "ListLoadBalancers";
        let (metadata, _, request) = request.into_parts();
        let list = self
            .0
            .call(
                RPC,
                &metadata,
                request.cluster,
                |provider, call| async move {
                    let listing = offered(&*provider)?
                        .listing()
                        .ok_or_else(|| not_offered("ListLoadBalancers"))?;
                    let mut list = Vec::new();
                    for item in listing.list(&call).await? {
                        let name = item.name.clone();
                        list.push(listed_to(item).map_err(|what| fault(RPC, &name, what))?);
                    }
                    Ok::<_, Failure>(list)
                },
            )
            .await?;
        let response = |part| pb::ListLoadBalancersResponse { part: Some(part) };
        Ok(Response::new(match list {
            Ok(list) => {
                let end = pb::ListEnd {
                    total: list.len() as u64,
                };
                let parts: Vec<_> = list
                    .into_iter()
                    .map(Part::LoadBalancer)
                    .chain([Part::End(end)])
                    .map(|part| Ok(response(part)))
                    .collect();
                Box::pin(futures::stream::iter(parts))
            }
            Err(failure) => not_listed(response(Part::Failed(convert::failure(&failure)))),
        }))
    }
}

fn offered(provider: &dyn Provider) -> Result<&dyn LoadBalancers, Failure> {
    provider
        .load_balancers()
        .ok_or_else(|| not_offered("LoadBalancerService"))
}

/// Holds the Service's load balancer for this call. The owner ID does not count: after Initialize
/// with another one, a call of the former owner may still work on this Service (PROV-18).
fn hold(core: &Core, service: &Service) -> Result<Hold, Failure> {
    core.held
        .take(format!("the load balancer of the Service {}", service.uid))
}

/// The Service's name for the log.
fn key_of(service: Option<&pb::ServiceView>) -> String {
    service.map_or_else(String::new, |service| {
        format!("{}/{}", service.namespace, service.name)
    })
}

/// The most events of one answer that the controller reads (CORE-11).
const MOST_EVENTS: usize = 32;
/// The most bytes that the target errors of one answer take. The whole answer has at most 1 MiB
/// (CORE-11).
const MOST_TARGET_ERRORS: usize = 512 * 1024;

/// Cuts the messages if the target errors are too large for an answer. Leaves out the last ones if
/// that is not enough. The controller calls again because of the others, and learns of them later.
fn bounded(mut all: Vec<pb::TargetError>) -> Vec<pb::TargetError> {
    const TAG_AND_LENGTH: usize = 4;
    let size = |one: &pb::TargetError| one.encoded_len() + TAG_AND_LENGTH;
    let bytes: usize = all.iter().map(size).sum();
    if bytes <= MOST_TARGET_ERRORS {
        return all;
    }
    let failures = all.iter().filter_map(|one| one.failure.as_ref());
    let messages: usize = failures.map(|failure| failure.message.len()).sum();
    let each = MOST_TARGET_ERRORS.saturating_sub(bytes - messages) / all.len();
    for failure in all.iter_mut().filter_map(|one| one.failure.as_mut()) {
        truncate(&mut failure.message, each);
    }
    let mut bytes = 0;
    let fit = all.iter().take_while(|one| {
        bytes += size(one);
        bytes <= MOST_TARGET_ERRORS
    });
    let count = fit.count();
    all.truncate(count);
    all
}

/// The notes as messages.
#[derive(Default)]
struct NotesTo {
    handle: Option<String>,
    events: Vec<pb::Event>,
    annotations: Option<pb::AnnotationChanges>,
    target_errors: Vec<pb::TargetError>,
}

/// The vendor's answer as messages. A fault in the outcome keeps the notes, so that a handle is not
/// lost. A fault in the handle drops the handle.
fn said<T, O>(
    rpc: &'static str,
    key: &str,
    result: LoadBalancerResult<T>,
    to: impl FnOnce(T) -> Result<O, String>,
) -> (NotesTo, Result<O, pb::Failure>) {
    let (notes, outcome) = match result {
        Ok(answer) => (answer.notes, Ok(answer.outcome)),
        Err(answer) => (answer.notes, Err(answer.outcome)),
    };
    let (notes, handle_fault) = notes_to(*notes);
    let outcome = outcome
        .and_then(|outcome| to(outcome).map_err(|what| fault(rpc, key, what)))
        .and_then(|outcome| match handle_fault {
            None => Ok(outcome),
            Some(what) => Err(fault(rpc, key, what)),
        })
        .map_err(|failure| convert::failure(&failure));
    (notes, outcome)
}

fn notes_to(notes: Notes) -> (NotesTo, Option<String>) {
    let fault = notes
        .handle
        .as_ref()
        .and_then(|handle| fits("the handle", handle, ID_BYTES).err());
    let handle = if fault.is_some() { None } else { notes.handle };
    let events = notes
        .events
        .into_iter()
        .take(MOST_EVENTS)
        .map(|event| {
            let severity = if event.warning {
                pb::EventSeverity::Warning
            } else {
                pb::EventSeverity::Normal
            };
            pb::Event {
                severity: severity.into(),
                reason: convert::text(event.reason),
                message: convert::text(event.message),
            }
        })
        .collect();
    let annotations = (!notes.set_annotations.is_empty() || !notes.remove_annotations.is_empty())
        .then_some(pb::AnnotationChanges {
            set: notes.set_annotations,
            remove: notes.remove_annotations,
        });
    let target_errors = notes
        .target_errors
        .into_iter()
        .map(|(node_name, failure)| pb::TargetError {
            node_name,
            failure: Some(convert::failure(&failure)),
        })
        .collect();
    (
        NotesTo {
            handle,
            events,
            annotations,
            target_errors: bounded(target_errors),
        },
        fault,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    /// CORE-11: the controller reads no answer of more than 1 MiB, and 32 events.
    #[test]
    fn many_events_and_target_errors_leave_room_for_the_rest_of_the_answer() {
        // Targets, the bytes of a name and of a message, the least errors that the answer has.
        for (targets, name, message, least) in [
            (1000, 10, 100, 1000),
            (3000, 63, 1024, 3000),
            (9000, 253, 1024, 1000),
            (2000, 253, 0, 1000),
        ] {
            let mut notes = Notes {
                handle: Some("lb-1".into()),
                ..Notes::default()
            };
            for number in 0..2000 {
                let text = format!("{number}{}", "e".repeat(1024));
                notes.events.push(Event::warning("Made", text));
            }
            for number in 0..targets {
                let failure = Failure::invalid("m".repeat(message));
                let node = format!("{number:0name$}");
                notes.target_errors.insert(node, failure);
            }
            let (notes, fault) = notes_to(notes);
            assert_eq!((fault, notes.handle.as_deref()), (None, Some("lb-1")));
            assert_eq!(notes.events.len(), 32);
            assert!(notes.events[31].message.starts_with("31e"));
            let count = notes.target_errors.len();
            assert!(count >= least, "{count} of {targets}");
            if message == 100 {
                let first = notes.target_errors[0].failure.as_ref().unwrap();
                assert_eq!(first.message.len(), 100, "cut without need");
            }
            let answer = pb::EnsureLoadBalancerResponse {
                events: notes.events,
                target_errors: notes.target_errors,
                ..Default::default()
            };
            let size = answer.encoded_len();
            assert!(size < 1024 * 1024, "{size} bytes for {targets} targets");
        }
    }
}
