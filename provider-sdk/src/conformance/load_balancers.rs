//! LoadBalancerService (LB).

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use pb::ensure_load_balancer_response::Outcome;

use tokio::time::Instant;

use super::call::Exchange;
use super::check::{Check, Need, Verdict, check};
use super::run::{Run, targets};
use super::session::Session;

/// How long a load balancer may be pending.
const MADE: Duration = Duration::from_mins(2);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(200);

pub(super) fn checks() -> Vec<Check> {
    vec![check!(
        "load-balancers/ensure-makes-one",
        ["LB-1", "CORE-14"],
        "Ensure makes a load balancer, which Get then finds as ours",
        [Need::LoadBalancers],
        ensure_makes_one
    )]
}

async fn ensure_makes_one(run: &Run) -> Verdict {
    let session = run.session().await?;
    let service = run.service("web");
    let made = ensure(&session, &service, Vec::new()).await?;
    let asked = session
        .call(pb::GetLoadBalancerRequest {
            service: Some(service),
            handle: made.answer()?.handle.clone(),
            ..Default::default()
        })
        .await;
    let ours = match &asked.success("LB-1")?.outcome {
        Some(pb::get_load_balancer_response::Outcome::Found(found)) => {
            found.presence() == pb::LoadBalancerPresence::Present
                && found.ownership() == pb::Ownership::Ours
        }
        _ => false,
    };
    asked.must(ours, "LB-1", "a load balancer that is PRESENT and OURS")
}

/// Ensures until it is ready; answers the last answer.
pub(super) async fn ensure(
    session: &Session,
    service: &pb::ServiceView,
    nodes: Vec<pb::NodeView>,
) -> Verdict<Exchange<pb::EnsureLoadBalancerResponse>> {
    let until = Instant::now() + MADE;
    let mut handle = None;
    loop {
        let asked = session
            .call(pb::EnsureLoadBalancerRequest {
                service: Some(service.clone()),
                handle: handle.clone(),
                targets: Some(targets(nodes.clone())),
                ..Default::default()
            })
            .await;
        let answer = asked.success("LB-7")?;
        // Absent means: as it was (LB-3).
        handle = answer.handle.clone().or(handle);
        let Some(Outcome::Pending(pending)) = &answer.outcome else {
            let ready = matches!(answer.outcome, Some(Outcome::Ready(_)));
            asked.must(ready, "LB-7", "`ready`")?;
            return Ok(asked);
        };
        asked.must(
            Instant::now() < until,
            "LB-7",
            format_args!("`ready` within {MADE:?}"),
        )?;
        let wait = pending
            .retry_after
            .and_then(|wait| Duration::try_from(wait).ok());
        tokio::time::sleep(wait.unwrap_or(LOOK).min(LOOK)).await;
    }
}
