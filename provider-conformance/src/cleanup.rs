//! Removes what the suite created, and looks in the listings for what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use pb::delete_load_balancer_response::Outcome;
use tokio::time::Instant;
use tonic::Code;

use super::call::{Answer, shown};
use super::check::{Stop, cut};
use super::config::RouteMarks;
use super::hooks::Hook;
use super::ledger::{Key, Thing};
use super::run::Shared;
use super::session::Session;
use super::well_formed::network;

/// The limit for one call of the clean-up.
const CALL: Duration = Duration::from_secs(30);
/// The least time for a call, even if little time is left: a slow cloud cannot remove an object
/// faster.
const LEAST_CALL: Duration = Duration::from_secs(5);
/// The time for the clean-up after a check. The clean-up at the end tries to remove the rest.
const AFTER_A_CHECK: Duration = Duration::from_secs(15);
/// The time for the clean-up at the end.
const AT_THE_END: Duration = Duration::from_mins(2);
/// After this time the clean-up tries again what only a listing shows. The clean-up at the end also
/// tries an owner again whose objects it could not look for.
const AGAIN: Duration = Duration::from_secs(1);

/// Removes what a check created, and checks whether anything is left. What remains after
/// [`AFTER_A_CHECK`] is tried again only at the end, so that a provider that removes nothing does
/// not delay every later check.
pub(crate) async fn after_a_check(shared: &Arc<Shared>) {
    let things = shared.ledger.fresh_things();
    let until = Instant::now() + AFTER_A_CHECK;
    let owners = shared.ledger.take_unseen();
    // The clean-up at the end tries again and reports.
    remove(shared, things, owners, until, None).await;
    shared.ledger.tried();
}

/// Removes everything that may still exist, as far as it can. Returns what is left, so that a
/// person can remove it, and other failures of the clean-up.
pub(crate) async fn at_the_end(shared: &Arc<Shared>) -> Vec<String> {
    let until = Instant::now() + AT_THE_END;
    let mut owners = shared.ledger.take_unseen();
    owners.extend(shared.ledger.take_unseeable());
    let why = remove(shared, shared.ledger.things(), owners, until, Some(AGAIN)).await;
    let left = shared.ledger.things();
    let mut told: Vec<_> = left
        .iter()
        .map(|(key, thing)| {
            let why = why
                .of
                .get(key)
                .map_or("the clean-up did not check it", String::as_str);
            cut(&format_args!("{thing}: {why}"))
        })
        .collect();
    told.extend(why.besides);
    told
}

/// Why objects still exist.
#[derive(Default)]
struct Why {
    of: BTreeMap<Key, String>,
    /// What only a listing showed. The clean-up tries each of these once more.
    listed: BTreeSet<String>,
    /// Reasons that are not about a single object.
    besides: Vec<String>,
}

async fn remove(
    shared: &Arc<Shared>,
    things: Vec<(Key, Thing)>,
    owners: BTreeSet<String>,
    until: Instant,
    again: Option<Duration>,
) -> Why {
    let mut why = Why::default();
    // Even after a failure, the suite removes what the cloud lets it remove.
    if let Err(stop) = shared.hooks.heal().await {
        why.besides.push(format!(
            "a hook made the cloud fail or slow, and could not undo it: {}",
            said(&stop)
        ));
    }
    if things.is_empty() && owners.is_empty() {
        return why;
    }
    // The hooks may need the provider. If it does not start, `of_owner` tries again and says why.
    let _ = shared.target.start().await;
    let mut by_owner = Owned::new();
    for owner_id in owners {
        by_owner.entry(owner_id).or_default();
    }
    for (key, thing) in things {
        match &thing {
            Thing::LoadBalancer { cluster, .. } | Thing::Route { cluster, .. } => by_owner
                .entry(cluster.owner_id.clone())
                .or_default()
                .push((key, thing)),
            Thing::Instance { .. }
            | Thing::UnmarkedLoadBalancer { .. }
            | Thing::UnmarkedRoute { .. } => match by_hook(shared, &thing).await {
                Ok(()) => shared.ledger.gone(&key),
                Err(error) => {
                    why.of.insert(key, error);
                }
            },
        }
    }
    rounds(shared, by_owner, until, again, &mut why).await;
    why
}

/// By owner ID. The process is initialised for one owner at a time.
type Owned = BTreeMap<String, Vec<(Key, Thing)>>;

/// Tries each object once in a round, so that an object that stays does not delay the others. If an
/// object now belongs to another owner, it is removed with that owner's objects. `again` says when
/// to try an owner again whose objects the clean-up could not look for. `None`: only at the end.
async fn rounds(
    shared: &Arc<Shared>,
    mut owned: Owned,
    until: Instant,
    again: Option<Duration>,
    why: &mut Why,
) {
    let mut tried = BTreeSet::new();
    let mut listed = BTreeSet::new();
    let mut unseen = BTreeMap::new();
    while !owned.is_empty() {
        let mut tries: u32 = owned.values().map(|things| things.len() as u32 + 1).sum();
        let mut wait: Option<Duration> = None;
        let mut some_went = false;
        for (owner_id, things) in std::mem::take(&mut owned) {
            let share =
                (until.saturating_duration_since(Instant::now()) / tries).clamp(LEAST_CALL, CALL);
            tries -= things.len() as u32 + 1;
            let looked = if Instant::now() <= until {
                let lists = !listed.contains(&owner_id);
                of_owner(shared, &owner_id, &things, share, lists, why).await
            } else if tried.contains(&owner_id) {
                // An earlier round has recorded the reason.
                owned.insert(owner_id, things);
                continue;
            } else {
                Err("the clean-up ran out of time".to_owned())
            };
            tried.insert(owner_id.clone());
            match looked {
                Ok(left) => {
                    let stay: BTreeSet<_> = left
                        .things
                        .iter()
                        .map(|(_, thing)| thing.to_string())
                        .collect();
                    some_went |= stay.is_empty();
                    some_went |= things.iter().any(|(_, it)| !stay.contains(&it.to_string()));
                    wait = wait.into_iter().chain(left.wait).min();
                    match left.listed {
                        Some(Ok(())) => {
                            listed.insert(owner_id.clone());
                            unseen.remove(&owner_id);
                        }
                        Some(Err(error)) => {
                            unseen.insert(owner_id.clone(), error);
                        }
                        None => {}
                    }
                    if !left.things.is_empty() {
                        owned.insert(owner_id, left.things);
                    }
                }
                Err(error) => {
                    for (key, _) in &things {
                        why.of.entry(key.clone()).or_insert_with(|| error.clone());
                    }
                    if again.is_some() {
                        wait = wait.into_iter().chain(again).min();
                        owned.insert(owner_id.clone(), things);
                    }
                    unseen.insert(owner_id, error);
                }
            }
        }
        let wait = match wait {
            // An object that stays may be removable after another one is gone.
            None if some_went => Duration::ZERO,
            Some(wait) => wait,
            None => break,
        };
        if Instant::now() + wait > until {
            break;
        }
        tokio::time::sleep(wait).await;
    }
    // The clean-up at the end searches for further objects of these owners.
    for owner_id in owned.keys().chain(unseen.keys()) {
        shared.ledger.could_not_look(owner_id);
    }
    why.besides.extend(unseen.iter().map(|(owner_id, error)| {
        cut(&format_args!(
            "objects of the owner ID {owner_id}, if any are left: the clean-up could not look for them: {error}"
        ))
    }));
}

fn said(stop: &Stop) -> String {
    match stop {
        Stop::Failed(failed) | Stop::Warned(failed) => format!("{}: {}", failed.sent, failed.came),
        Stop::Skipped(skipped) => skipped.reason.clone(),
    }
}

/// Removes what a hook created. A check may have removed it already. So if the hook fails, the
/// suite asks the provider whether the object still exists.
async fn by_hook(shared: &Arc<Shared>, thing: &Thing) -> Result<(), String> {
    let removed = match thing {
        Thing::Instance { name, provider_id } => {
            let variables = [("NAME", name.as_str()), ("PROVIDER_ID", provider_id)];
            shared.hooks.run(Hook::InstanceRemove, &variables).await
        }
        Thing::UnmarkedLoadBalancer { handle } => {
            let variables = [("HANDLE", handle.as_str())];
            shared.hooks.run(Hook::LoadBalancerRemove, &variables).await
        }
        Thing::UnmarkedRoute { name, cidr } => {
            let variables = [("NAME", name.as_str()), ("CIDR", cidr)];
            shared.hooks.run(Hook::RouteRemove, &variables).await
        }
        Thing::LoadBalancer { .. } | Thing::Route { .. } => return Ok(()),
    };
    match removed {
        Err(stop) if is_there(shared, thing).await.unwrap_or(true) => Err(said(&stop)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether the provider still finds the object.
async fn is_there(shared: &Arc<Shared>, thing: &Thing) -> Result<bool, String> {
    let session = session_of(shared, &format!("{}-look", shared.ledger.run_id())).await?;
    match thing {
        Thing::Instance { name, provider_id } => {
            let request = pb::LookupInstancesRequest {
                nodes: vec![pb::NodeView {
                    name: name.clone(),
                    uid: uuid::Uuid::new_v4().to_string(),
                    provider_id: Some(provider_id.clone()),
                    ..Default::default()
                }],
                facets: vec![pb::InstanceFacet::Existence.into()],
                ..Default::default()
            };
            let asked = session.call_within(request, CALL).await;
            let answer = asked.came.map_err(|status| shown(&status))?;
            let absent = answer.results.iter().any(|result| {
                matches!(&result.outcome, Some(pb::lookup_instance_result::Outcome::Found(found))
                    if found.state() == pb::InstanceState::Absent)
            });
            Ok(!absent)
        }
        Thing::UnmarkedLoadBalancer { handle } => {
            let service = pb::ServiceView {
                namespace: "default".into(),
                name: "look".into(),
                uid: uuid::Uuid::new_v4().to_string(),
                r#type: "LoadBalancer".into(),
                ..Default::default()
            };
            let request = pb::GetLoadBalancerRequest {
                service: Some(service),
                handle: Some(handle.clone()),
                ..Default::default()
            };
            let asked = session.call_within(request, CALL).await;
            let answer = asked.came.map_err(|status| shown(&status))?;
            let absent = matches!(&answer.outcome, Some(pb::get_load_balancer_response::Outcome::Found(found))
                if found.presence() == pb::LoadBalancerPresence::Absent);
            Ok(!absent)
        }
        Thing::UnmarkedRoute { cidr, .. } => {
            let listed = session
                .list_within(pb::ListRoutesRequest::default(), CALL)
                .await;
            let routes = listed.items().map_err(|stop| said(&stop))?;
            let cidr = network(cidr);
            Ok(routes
                .iter()
                .any(|route| network(&route.destination_cidr) == cidr))
        }
        Thing::LoadBalancer { .. } | Thing::Route { .. } => Ok(true),
    }
}

/// A session that is initialised for this owner.
async fn session_of(shared: &Arc<Shared>, owner_id: &str) -> Result<Session, String> {
    let cluster = pb::ClusterRef {
        name: shared.ledger.run_id().to_owned(),
        owner_id: owner_id.to_owned(),
    };
    let session = Session::dial(shared.target.path(), cluster, Arc::clone(&shared.ledger)).await?;
    let asked = session
        .call_within(pb::InitializeRequest::default(), CALL)
        .await;
    match asked.success("PROV-2") {
        Ok(_) => Ok(session),
        Err(stop) => Err(said(&stop)),
    }
}

/// The objects of an owner that still exist, and when to try again if that may help.
#[derive(Default)]
struct Left {
    things: Vec<(Key, Thing)>,
    wait: Option<Duration>,
    /// Whether the listings say whether there are others. `None`: the clean-up did not ask again.
    listed: Option<Result<(), String>>,
}

impl Left {
    fn asks_again_after(&mut self, wait: Duration) {
        self.wait = Some(self.wait.map_or(wait, |least| least.min(wait)));
    }
}

/// The result of one attempt to remove an object that still exists.
#[derive(Debug, PartialEq)]
enum Stays {
    /// Another attempt may succeed after this delay.
    Asks(String, Duration),
    /// Another attempt helps only after another object is gone.
    ForGood(String),
}

/// Tries each object once, and adds what only the listings show. If objects stay, it reads the
/// listings only if `lists`: a slow listing must not take the time for the objects in each round.
async fn of_owner(
    shared: &Arc<Shared>,
    owner_id: &str,
    things: &[(Key, Thing)],
    share: Duration,
    lists: bool,
    why: &mut Why,
) -> Result<Left, String> {
    // The provider's process may have ended since.
    shared.target.start().await?;
    let session = session_of(shared, owner_id).await?;
    let mut left = Left::default();
    for (key, thing) in things {
        let gone = match thing {
            Thing::LoadBalancer {
                service, handle, ..
            } => load_balancer(&session, service, handle.as_deref(), share).await,
            Thing::Route { cidr, .. } => {
                let unmarked =
                    shared.config.route_marks == RouteMarks::None && shared.ledger.has_issued(cidr);
                let unmarked = unmarked.then_some(shared.clears_unmarked);
                route(&session, cidr, unmarked, share).await
            }
            _ => Ok(()),
        };
        let error = match gone {
            Ok(()) => {
                shared.ledger.gone(key);
                // Another load balancer of this Service may stay.
                if !left.things.iter().any(|(stays, _)| stays == key) {
                    why.of.remove(key);
                }
                continue;
            }
            Err(Stays::Asks(error, wait)) => {
                left.asks_again_after(wait);
                error
            }
            Err(Stays::ForGood(error)) => error,
        };
        why.of.insert(key.clone(), error);
        left.things.push((key.clone(), thing.clone()));
    }
    // The ledger forgets a Service with the first of its load balancers that goes.
    for (_, thing) in &left.things {
        shared.ledger.note(thing.clone());
    }
    if !lists && !left.things.is_empty() {
        return Ok(left);
    }
    let listed = match still_listed(shared, &session, share).await {
        Err(error) if left.things.is_empty() => return Err(error),
        Err(error) => {
            left.listed = Some(Err(error));
            Vec::new()
        }
        Ok(listed) => {
            left.listed = Some(Ok(()));
            listed
        }
    };
    let kept: BTreeSet<_> = left
        .things
        .iter()
        .map(|(_, thing)| thing.to_string())
        .collect();
    for thing in listed {
        if kept.contains(&thing.to_string()) {
            continue;
        }
        let key = thing.key();
        why.of.entry(key.clone()).or_insert_with(|| {
            "it is still in the list, although the clean-up met no obstacle".into()
        });
        shared.ledger.note(thing.clone());
        if shared.ledger.may_remove(&thing) && why.listed.insert(thing.to_string()) {
            left.asks_again_after(AGAIN);
            left.things.push((key, thing));
        }
    }
    Ok(left)
}

/// The objects of this owner that are still in a listing, if one is offered.
async fn still_listed(
    shared: &Shared,
    session: &Session,
    share: Duration,
) -> Result<Vec<Thing>, String> {
    let offered = shared.info.capabilities.clone().unwrap_or_default();
    let cluster = session.cluster();
    let mut left = Vec::new();
    if offered.load_balancers.is_some_and(|of| of.listing) {
        let request = pb::ListLoadBalancersRequest::default();
        let listed = session.list_within(request, share).await;
        for one in listed.items().map_err(|stop| said(&stop))? {
            for owner in &one.owners {
                left.push(Thing::LoadBalancer {
                    cluster: cluster.clone(),
                    service: Box::new(pb::ServiceView {
                        namespace: owner.namespace.clone(),
                        name: owner.name.clone(),
                        uid: shared.ledger.uid_of(owner),
                        r#type: "LoadBalancer".into(),
                        ..Default::default()
                    }),
                    handle: one.handle.clone(),
                });
            }
        }
    }
    if offered.routes.is_some() {
        let request = pb::ListRoutesRequest::default();
        let listed = session.list_within(request, share).await;
        let routes = listed.items().map_err(|stop| said(&stop))?;
        let ours = routes.into_iter().filter(|route| {
            let lost = || shared.ledger.has_lost_route(&route.destination_cidr);
            may_be_ours(route, shared.clears_unmarked && lost())
        });
        left.extend(ours.map(|route| Thing::Route {
            cluster: cluster.clone(),
            cidr: route.destination_cidr,
        }));
    }
    Ok(left)
}

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

async fn load_balancer(
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

/// Whether the owner of the session may have made the listed route. If the cloud keeps no marks,
/// every route is UNMARKED (ROUTE-12). Then `unmarked` is set if the destination can decide: nobody
/// else has a route to a destination of this run.
fn may_be_ours(route: &pb::Route, unmarked: bool) -> bool {
    match route.ownership() {
        pb::Ownership::Ours => true,
        pb::Ownership::Unmarked => unmarked,
        pb::Ownership::Foreign | pb::Ownership::Unspecified => false,
    }
}

async fn route(
    session: &Session,
    cidr: &str,
    // Whether an unmarked route is of this run. `Some(false)`: nobody knows.
    unmarked: Option<bool>,
    share: Duration,
) -> Result<(), Stays> {
    let listed = session
        .list_within(pb::ListRoutesRequest::default(), share)
        .await;
    let unserved = match &listed.came {
        Ok(listed) => matches!(listed.status, Some((Code::Unimplemented, _))),
        Err(status) => status.code() == Code::Unimplemented,
    };
    if unserved {
        return Ok(());
    }
    let asks = |error: String| Err(Stays::Asks(error, Duration::from_millis(500)));
    let Ok(routes) = listed.items() else {
        return asks(format!("ListRoutes: {:?}", listed.came));
    };
    let cidr = network(cidr);
    let leads_there = |route: &pb::Route| network(&route.destination_cidr) == cidr;
    let is_unmarked = |route: &pb::Route| route.ownership() == pb::Ownership::Unmarked;
    let left =
        unmarked == Some(false) && routes.iter().any(|it| leads_there(it) && is_unmarked(it));
    let ours: Vec<_> = routes
        .into_iter()
        .filter(|route| leads_there(route) && may_be_ours(route, unmarked == Some(true)))
        .enumerate()
        .map(|(number, route)| pb::Route {
            route_key: number.to_string(),
            ..route
        })
        .collect();
    if ours.is_empty() {
        if left {
            let why = "it has no mark, and the suite could not list the routes before the run";
            return Err(Stays::ForGood(why.into()));
        }
        return Ok(());
    }
    let request = pb::DeleteRoutesRequest {
        cluster: None,
        routes: ours,
    };
    let asked = session.call_within(request, share).await;
    if let Ok(answer) = &asked.came
        && answer.failed().is_none()
        && answer
            .results
            .iter()
            .all(|result| matches!(result.outcome, Some(pb::route_result::Outcome::Done(_))))
    {
        return Ok(());
    }
    asks(format!("DeleteRoutes: {:?}", asked.came))
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
