//! Removes what the suite created, and looks in the listings for what is left.

mod hooked;
mod load_balancers;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use tokio::time::Instant;

use super::check::{Stop, cut};
use super::config::RouteMarks;
use super::ledger::{Key, Thing};
use super::run::Shared;
use super::session::Session;

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
            | Thing::UnmarkedRoute { .. } => match hooked::remove(shared, &thing).await {
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
                    let stay = left.names();
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
    /// What a person reads of each: two load balancers of one Service have one key.
    fn names(&self) -> BTreeSet<String> {
        let things = self.things.iter();
        things.map(|(_, thing)| thing.to_string()).collect()
    }

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
            } => load_balancers::remove(&session, service, handle.as_deref(), share).await,
            Thing::Route { cidr, .. } => {
                let unmarked =
                    shared.config.route_marks == RouteMarks::None && shared.ledger.has_issued(cidr);
                let unmarked = unmarked.then_some(shared.clears_unmarked);
                routes::remove(&session, cidr, unmarked, share).await
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
    let kept = left.names();
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
            routes::may_be_ours(route, shared.clears_unmarked && lost())
        });
        left.extend(ours.map(|route| Thing::Route {
            cluster: cluster.clone(),
            cidr: route.destination_cidr,
        }));
    }
    Ok(left)
}
