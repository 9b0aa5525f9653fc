//! Removes what the suite made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use pb::delete_load_balancer_response::Outcome;
use tokio::time::Instant;
use tonic::Code;

use super::call::Answer;
use super::check::cut;
use super::hooks::Hook;
use super::ledger::{Key, Thing};
use super::run::Shared;
use super::session::Session;

/// How long one call of the clean-up may take.
const CALL: Duration = Duration::from_secs(30);
/// How long the clean-up after a check may take; what does not go by then is left for the end.
const AFTER_A_CHECK: Duration = Duration::from_secs(15);
/// How long the clean-up at the end may take.
const AT_THE_END: Duration = Duration::from_mins(2);

/// Removes what a check made. What does not go is not tried again before the end: a provider that removes nothing must not cost a minute for each check.
pub(crate) async fn after_a_check(shared: &Arc<Shared>) {
    let things = shared.ledger.fresh_things();
    remove(shared, things, Instant::now() + AFTER_A_CHECK).await;
    shared.ledger.tried();
}

/// Removes all that may still be there. What could not be removed is named, for a person to remove.
pub(crate) async fn at_the_end(shared: &Arc<Shared>) -> Vec<String> {
    remove(shared, shared.ledger.things(), Instant::now() + AT_THE_END).await
}

async fn remove(shared: &Arc<Shared>, things: Vec<(Key, Thing)>, until: Instant) -> Vec<String> {
    let mut left = Vec::new();
    // What was made is removed all the same, as far as the cloud lets it.
    if let Err(stop) = shared.hooks.heal().await {
        left.push(format!(
            "the cloud was made to fail or to be slow, and is so still: {stop:?}"
        ));
    }
    if things.is_empty() {
        return left;
    }
    if let Err(error) = shared.target.start().await {
        left.push(format!(
            "the provider cannot be started to clean up: {error}"
        ));
    }
    let mut by_owner: BTreeMap<String, Vec<(Key, Thing)>> = BTreeMap::new();
    for (key, thing) in things {
        match &thing {
            Thing::LoadBalancer { cluster, .. } | Thing::Route { cluster, .. } => by_owner
                .entry(cluster.owner_id.clone())
                .or_default()
                .push((key, thing)),
            Thing::Instance { name, provider_id } => {
                let variables = [("NAME", name.as_str()), ("PROVIDER_ID", provider_id)];
                // A check may have removed it itself: the hook's complaint about that is none.
                let _ = shared.hooks.run(Hook::InstanceRemove, &variables).await;
                shared.ledger.gone(&key);
            }
            Thing::UnmarkedLoadBalancer { handle } => {
                let _ = shared
                    .hooks
                    .run(Hook::LoadBalancerRemove, &[("HANDLE", handle)])
                    .await;
                shared.ledger.gone(&key);
            }
            Thing::UnmarkedRoute { name, cidr } => {
                let variables = [("NAME", name.as_str()), ("CIDR", cidr)];
                let _ = shared.hooks.run(Hook::RouteRemove, &variables).await;
                shared.ledger.gone(&key);
            }
        }
    }
    for (owner_id, things) in by_owner {
        if let Err(why) = of_owner(shared, &owner_id, &things, until).await {
            for (key, _) in things
                .iter()
                .filter(|(key, _)| shared.ledger.things().iter().any(|(left, _)| left == key))
            {
                left.push(cut(&format_args!("{key:?} may be left: {why}")));
            }
        }
    }
    left
}

async fn of_owner(
    shared: &Arc<Shared>,
    owner_id: &str,
    things: &[(Key, Thing)],
    until: Instant,
) -> Result<(), String> {
    let cluster = pb::ClusterRef {
        name: shared.ledger.run_id().to_owned(),
        owner_id: owner_id.to_owned(),
    };
    let session = Session::dial(shared.target.path(), cluster, Arc::clone(&shared.ledger)).await?;
    let asked = session
        .call_within(pb::InitializeRequest::default(), CALL)
        .await;
    let initialized = asked.success("PROV-2").is_ok();
    if !initialized {
        return Err(format!("Initialize: {:?}", asked.came));
    }
    let mut why = Ok(());
    for (key, thing) in things {
        let gone = match thing {
            Thing::LoadBalancer {
                service, handle, ..
            } => load_balancer(&session, service, handle.as_deref(), until).await,
            Thing::Route { cidr, .. } => route(&session, cidr, until).await,
            _ => Ok(()),
        };
        match gone {
            Ok(()) => shared.ledger.gone(key),
            Err(error) => why = Err(error),
        }
    }
    why
}

async fn load_balancer(
    session: &Session,
    service: &pb::ServiceView,
    handle: Option<&str>,
    until: Instant,
) -> Result<(), String> {
    let mut handle = handle.map(str::to_owned);
    loop {
        let request = pb::DeleteLoadBalancerRequest {
            cluster: None,
            service: Some(service.clone()),
            handle: handle.clone(),
        };
        let asked = session.call_within(request, CALL).await;
        let wait = match asked.came.as_ref().map(|answer| &answer.outcome) {
            Ok(Some(Outcome::Done(_) | Outcome::Retained(_) | Outcome::HandledElsewhere(_))) => {
                return Ok(());
            }
            Ok(Some(Outcome::Pending(pending))) => pending.retry_after,
            // Nothing can have been made.
            Err(status) if status.code() == Code::Unimplemented => return Ok(()),
            // Another's handle that a check made up, most likely.
            Ok(Some(Outcome::Failed(failed)))
                if failed.code() == pb::FailureCode::Conflict && handle.is_some() =>
            {
                handle = None;
                continue;
            }
            _ => None,
        };
        if Instant::now() > until {
            return Err(format!("DeleteLoadBalancer: {:?}", asked.came));
        }
        let wait = wait
            .and_then(|wait| Duration::try_from(wait).ok())
            .unwrap_or(Duration::from_secs(1));
        tokio::time::sleep(wait.clamp(Duration::from_millis(50), Duration::from_secs(10))).await;
    }
}

async fn route(session: &Session, cidr: &str, until: Instant) -> Result<(), String> {
    loop {
        let listed = session
            .list_within(pb::ListRoutesRequest::default(), CALL)
            .await;
        let unserved = match &listed.came {
            Ok(listed) => matches!(listed.status, Some((Code::Unimplemented, _))),
            Err(status) => status.code() == Code::Unimplemented,
        };
        if unserved {
            return Ok(());
        }
        let mut error = format!("ListRoutes: {:?}", listed.came);
        if let Ok(routes) = listed.items() {
            let ours: Vec<_> = routes
                .into_iter()
                .filter(|route| {
                    route.destination_cidr == cidr && route.ownership() == pb::Ownership::Ours
                })
                .enumerate()
                .map(|(number, route)| pb::Route {
                    route_key: number.to_string(),
                    ..route
                })
                .collect();
            if ours.is_empty() {
                return Ok(());
            }
            let request = pb::DeleteRoutesRequest {
                cluster: None,
                routes: ours,
            };
            let asked = session.call_within(request, CALL).await;
            if let Ok(answer) = &asked.came
                && answer.failed().is_none()
                && answer.results.iter().all(|result| {
                    matches!(result.outcome, Some(pb::route_result::Outcome::Done(_)))
                })
            {
                return Ok(());
            }
            error = format!("DeleteRoutes: {:?}", asked.came);
        }
        if Instant::now() > until {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
