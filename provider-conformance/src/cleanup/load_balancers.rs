//! The suite's load balancers.

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use pb::delete_load_balancer_response::Outcome;
use tonic::Code;

use super::super::check::cut;
use super::super::session::Session;
use super::Stays;

/// Whether a Delete left nothing. `made` is the handle in the ledger. Returns `None` if the Delete
/// failed, or if the deletion is still in progress.
fn deletion(outcome: &Outcome, made: Option<&str>) -> Option<Result<(), String>> {
    match outcome {
        Outcome::Done(_) => Some(Ok(())),
        Outcome::Retained(retained) => Some(Err(cut(&format_args!(
            "DeleteLoadBalancer kept it on purpose (`retained`): {}",
            retained.reason
        )))),
        // Without a handle the controller too counts this as deleted.
        Outcome::HandledElsewhere(_) if made.is_none() => Some(Ok(())),
        Outcome::HandledElsewhere(_) => Some(Err(
            "DeleteLoadBalancer answered `handled_elsewhere`, although this provider made it"
                .into(),
        )),
        Outcome::Failed(_) | Outcome::Pending(_) => None,
    }
}

/// Deletes the load balancers of a Service.
pub(super) async fn remove(
    session: &Session,
    service: &pb::ServiceView,
    made: Option<&str>,
    share: Duration,
) -> Result<(), Stays> {
    let mut handle = made.map(str::to_owned);
    let mut adopt_unmarked = false;
    loop {
        let request = pb::DeleteLoadBalancerRequest {
            cluster: None,
            service: Some(service.clone()),
            handle: handle.clone(),
            adopt_unmarked,
        };
        let asked = session.call_within(request, share).await;
        let error = cut(&format_args!("DeleteLoadBalancer: {:?}", asked.came));
        let wait = match asked.came.as_ref().map(|answer| &answer.outcome) {
            Ok(Some(outcome)) if let Some(ended) = deletion(outcome, made) => {
                return ended.map_err(Stays::ForGood);
            }
            Ok(Some(Outcome::Pending(pending))) => pending.retry_after,
            // Nothing can have been created.
            Err(status) if status.code() == Code::Unimplemented => return Ok(()),
            Ok(Some(Outcome::Failed(failed))) if failed.code() == pb::FailureCode::Conflict => {
                if handle.take().is_some() {
                    // Most likely an invented handle of another load balancer.
                    continue;
                }
                // The cloud may keep no marks (LB-27). The grant covers only what has the name or a
                // tag of this Service (LB-26), and no other Service has a UID of this run.
                if !adopt_unmarked && !service.uid.is_empty() {
                    adopt_unmarked = true;
                    continue;
                }
                return Err(Stays::ForGood(error));
            }
            _ => None,
        };
        let wait = wait
            .and_then(|wait| Duration::try_from(wait).ok())
            .unwrap_or(Duration::from_secs(1));
        let wait = wait.clamp(Duration::from_millis(50), Duration::from_secs(10));
        return Err(Stays::Asks(error, wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_or_left_to_others_is_not_gone() {
        let kept = Outcome::Retained(pb::Retained {
            reason: "its annotation asks for it".into(),
        });
        for made in [Some("h-1"), None] {
            let why = deletion(&kept, made).unwrap().unwrap_err();
            assert!(why.contains("its annotation asks for it"), "{why}");
        }
        let elsewhere = Outcome::HandledElsewhere(pb::HandledElsewhere {});
        let why = deletion(&elsewhere, Some("h-1")).unwrap().unwrap_err();
        assert!(why.contains("handled_elsewhere"), "{why}");
        assert_eq!(deletion(&elsewhere, None), Some(Ok(())));
        assert_eq!(
            deletion(&Outcome::Done(pb::Done {}), Some("h-1")),
            Some(Ok(()))
        );
        let asked_again = Outcome::Pending(pb::Pending::default());
        assert_eq!(deletion(&asked_again, Some("h-1")), None);
    }
}
