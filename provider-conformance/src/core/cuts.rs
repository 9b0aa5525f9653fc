//! Calls that are cut: by their caller, by the deadline, by a closed connection, or by a killed
//! process (CORE-6 to CORE-9, CORE-19).

mod ended;
mod killed;
mod overdue;
mod overlapping;
mod reset;
mod writes;

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;

use super::super::check::{Check, Need, Verdict, must};
use super::super::hooks::Hook;
use super::super::listings::is_owner;
use super::super::run::{Run, targets};
use super::super::session::Session;
use super::tour;

/// When calls are cut: before the cloud's first operation can end.
const EARLY: Duration = Duration::from_millis(100);
/// How long each operation of the cloud takes while deadlines pass.
const MEANWHILE: Duration = Duration::from_secs(8);
/// How long a provider may take to end a call after its deadline (CORE-19).
const ENDING: Duration = Duration::from_secs(2);
const SLOW: Need = Need::Hook(Hook::CloudSlow);
const WRITES: Need = Need::Hook(Hook::CloudWrites);

pub(super) fn checks() -> Vec<Check> {
    let mut all = ended::checks();
    all.extend(writes::checks());
    all.extend(overlapping::checks());
    all.extend(overdue::checks());
    all.extend(killed::checks());
    all.extend(reset::checks());
    all
}

/// How many lookups to run at once: the provider's limit, at most 16.
fn lookups_at_once(run: &Run) -> usize {
    /// The limit of a provider that states none.
    const UNSTATED: u32 = 8;
    const MOST: usize = 16;
    let instances = run.capabilities().instances;
    let stated = instances.and_then(|of| of.max_in_flight);
    let limit = stated.filter(|limit| *limit > 0).unwrap_or(UNSTATED);
    MOST.min(limit as usize)
}

fn ensure_of(service: &pb::ServiceView, nodes: Vec<pb::NodeView>) -> pb::EnsureLoadBalancerRequest {
    pb::EnsureLoadBalancerRequest {
        service: Some(service.clone()),
        targets: Some(targets(nodes)),
        ..Default::default()
    }
}

fn routes_of(run: &Run, count: usize) -> Vec<pb::Route> {
    (0..count)
        .map(|number| pb::Route {
            route_key: number.to_string(),
            ..tour::route(run)
        })
        .collect()
}

/// The number of listed load balancers of this Service. `None`: there is no listing.
async fn listed(run: &Run, session: &Session, service: &pb::ServiceView) -> Verdict<Option<usize>> {
    if !run.sees(&[Need::LoadBalancerListing]) {
        return Ok(None);
    }
    let all = session
        .list(pb::ListLoadBalancersRequest::default())
        .await
        .items()?;
    let ours = all
        .iter()
        .filter(|of| of.owners.iter().any(|owner| is_owner(owner, service)));
    Ok(Some(ours.count()))
}

async fn must_be_one(
    run: &Run,
    session: &Session,
    service: &pb::ServiceView,
    after: &str,
) -> Verdict {
    let count = listed(run, session, service).await?;
    must(
        count.is_none_or(|count| count == 1),
        "CORE-6",
        format_args!("{after}, then ListLoadBalancers"),
        "one load balancer of the Service",
        format_args!("{count:?}"),
    )
}
