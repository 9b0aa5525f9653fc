//! Records what the suite created, so that the suite can remove it, and prevents writes to other
//! objects.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use tokio::time::Instant;

use super::call::Rpc;
use super::hooks::Hook;
use super::well_formed::network;

/// Objects that may still exist, and the names that were issued for creating them.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The prefix of every owner ID of this run.
    run_id: String,
    state: Mutex<State>,
    /// When each unanswered unary call or listing of a `Session` began.
    open: Mutex<BTreeMap<u64, Instant>>,
}

/// A call until it is answered or abandoned.
#[derive(Debug)]
pub(crate) struct Open<'a> {
    ledger: &'a Ledger,
    number: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.ledger.calls().remove(&self.number);
    }
}

#[derive(Debug, Default)]
struct State {
    uids: BTreeSet<String>,
    /// The issued destinations in canonical form.
    cidrs: BTreeSet<String>,
    /// The destinations of somebody else's routes, if the cloud keeps no marks with routes.
    foreign_cidrs: BTreeSet<String>,
    /// The UID of each Service for which a load balancer may have been created, by namespace and
    /// name. If two Services had one name, that of the later one.
    uid_by_name: BTreeMap<(String, String), String>,
    things: BTreeMap<Key, Thing>,
    /// Objects that the suite could not remove. It tries them again only at the end.
    stubborn: BTreeSet<Key>,
    /// Owners for whom something may have been created since the last [`Ledger::take_unseen`].
    unseen: BTreeSet<String>,
    /// Owners whose listings the suite could not check. It tries them again only at the end.
    unseeable: BTreeSet<String>,
}

/// Destinations in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    LoadBalancer { owner_id: String, uid: String },
    Route { owner_id: String, cidr: String },
    Instance { name: String },
    UnmarkedLoadBalancer { handle: String },
    UnmarkedRoute { name: String, cidr: String },
}

/// A created object.
#[derive(Debug, Clone)]
pub(crate) enum Thing {
    LoadBalancer {
        cluster: pb::ClusterRef,
        service: Box<pb::ServiceView>,
        handle: Option<String>,
    },
    Route {
        cluster: pb::ClusterRef,
        cidr: String,
    },
    Instance {
        name: String,
        provider_id: String,
    },
    UnmarkedLoadBalancer {
        handle: String,
    },
    UnmarkedRoute {
        name: String,
        cidr: String,
    },
}

impl Thing {
    pub(super) fn key(&self) -> Key {
        match self {
            Thing::Instance { name, .. } => Key::Instance { name: name.clone() },
            Thing::UnmarkedLoadBalancer { handle } => Key::UnmarkedLoadBalancer {
                handle: handle.clone(),
            },
            Thing::UnmarkedRoute { name, cidr } => Key::UnmarkedRoute {
                name: name.clone(),
                cidr: network(cidr),
            },
            Thing::LoadBalancer {
                cluster, service, ..
            } => Key::LoadBalancer {
                owner_id: cluster.owner_id.clone(),
                uid: service.uid.clone(),
            },
            Thing::Route { cluster, cidr } => Key::Route {
                owner_id: cluster.owner_id.clone(),
                cidr: network(cidr),
            },
        }
    }
}

impl fmt::Display for Thing {
    /// The description for a person who has to remove it by hand.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoadBalancer {
                cluster,
                service,
                handle,
            } => {
                write!(
                    f,
                    "the load balancer of the Service {}/{} (UID {}, owner ID {}",
                    service.namespace, service.name, service.uid, cluster.owner_id
                )?;
                match handle {
                    Some(handle) => write!(f, ", handle {handle})"),
                    None => write!(f, ", no handle)"),
                }
            }
            Self::Route { cluster, cidr } => {
                write!(f, "the route to {cidr} (owner ID {})", cluster.owner_id)
            }
            Self::Instance { name, provider_id } => {
                write!(f, "the instance {name} (provider ID {provider_id})")
            }
            Self::UnmarkedLoadBalancer { handle } => {
                write!(f, "the load balancer with the handle {handle}, unmarked")
            }
            Self::UnmarkedRoute { name, cidr } => {
                write!(f, "the route {name} to {cidr}, unmarked")
            }
        }
    }
}

/// A mutating request.
#[derive(Debug)]
pub(crate) enum Made {
    Ensure(pb::EnsureLoadBalancerRequest),
    Update(pb::UpdateLoadBalancerRequest),
    Delete(pb::DeleteLoadBalancerRequest),
    Create(pb::CreateRoutesRequest),
    Remove(pb::DeleteRoutesRequest),
}

impl Made {
    pub(crate) fn by<R: Rpc>(request: &R) -> Option<Self> {
        let request = request as &dyn Any;
        None.or_else(|| request.downcast_ref().cloned().map(Self::Ensure))
            .or_else(|| request.downcast_ref().cloned().map(Self::Update))
            .or_else(|| request.downcast_ref().cloned().map(Self::Delete))
            .or_else(|| request.downcast_ref().cloned().map(Self::Create))
            .or_else(|| request.downcast_ref().cloned().map(Self::Remove))
    }

    fn cluster(&self) -> Option<&pb::ClusterRef> {
        match self {
            Self::Ensure(request) => request.cluster.as_ref(),
            Self::Update(request) => request.cluster.as_ref(),
            Self::Delete(request) => request.cluster.as_ref(),
            Self::Create(request) => request.cluster.as_ref(),
            Self::Remove(request) => request.cluster.as_ref(),
        }
    }

    fn service(&self) -> Option<&pb::ServiceView> {
        match self {
            Self::Ensure(request) => request.service.as_ref(),
            Self::Update(request) => request.service.as_ref(),
            Self::Delete(request) => request.service.as_ref(),
            Self::Create(_) | Self::Remove(_) => None,
        }
    }

    fn routes(&self) -> &[pb::Route] {
        match self {
            Self::Create(request) => &request.routes,
            Self::Remove(request) => &request.routes,
            _ => &[],
        }
    }
}

impl Ledger {
    pub(crate) fn new(run_id: String) -> Self {
        Self {
            run_id,
            state: Mutex::default(),
            open: Mutex::default(),
        }
    }

    /// Begins a call, which ends when the result is dropped.
    pub(crate) fn opens(&self) -> Open<'_> {
        let mut calls = self.calls();
        let number = calls.last_key_value().map_or(0, |(last, _)| last + 1);
        calls.insert(number, Instant::now());
        Open {
            ledger: self,
            number,
        }
    }

    /// How long the oldest unanswered call has been open.
    pub(crate) fn open_for(&self) -> Option<Duration> {
        self.calls().values().map(Instant::elapsed).max()
    }

    fn calls(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn run_id(&self) -> &str {
        &self.run_id
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits calls that write for the Service with this UID.
    pub(crate) fn issue_uid(&self, uid: &str) {
        self.state().uids.insert(uid.to_owned());
    }

    /// Permits calls that write routes to this destination. `false`: they were permitted already,
    /// or somebody else has a route to it.
    pub(crate) fn issue_cidr(&self, cidr: &str) -> bool {
        let mut state = self.state();
        let cidr = network(cidr);
        !state.foreign_cidrs.contains(&cidr) && state.cidrs.insert(cidr)
    }

    /// Somebody else has a route to this destination.
    pub(crate) fn avoid_cidr(&self, cidr: &str) {
        self.state().foreign_cidrs.insert(network(cidr));
    }

    /// Whether this destination was issued.
    pub(crate) fn has_issued(&self, cidr: &str) -> bool {
        self.state().cidrs.contains(&network(cidr))
    }

    /// Whether the suite may remove this object, which a listing showed.
    pub(crate) fn may_remove(&self, thing: &Thing) -> bool {
        match thing {
            Thing::LoadBalancer { service, .. } => self.state().uids.contains(&service.uid),
            Thing::Route { cidr, .. } => self.has_issued(cidr),
            _ => false,
        }
    }

    /// Whether this destination was issued, and no route to it is recorded.
    pub(crate) fn has_lost_route(&self, cidr: &str) -> bool {
        let state = self.state();
        let cidr = network(cidr);
        let recorded = state.things.keys().any(|key| match key {
            Key::Route { cidr: of, .. } | Key::UnmarkedRoute { cidr: of, .. } => *of == cidr,
            _ => false,
        });
        state.cidrs.contains(&cidr) && !recorded
    }

    /// The UID of a listed owner, also if the listing does not have it (LB-30). Empty if this run
    /// has no such Service.
    pub(crate) fn uid_of(&self, owner: &pb::ServiceRef) -> String {
        if !owner.uid.is_empty() {
            return owner.uid.clone();
        }
        let name = (owner.namespace.clone(), owner.name.clone());
        let state = self.state();
        state.uid_by_name.get(&name).cloned().unwrap_or_default()
    }

    /// Checks that a mutating call concerns only issued names. Before the call, records what it may
    /// create.
    pub(crate) fn permit(&self, made: &Made) -> Result<(), String> {
        let mut state = self.state();
        if let Some(cluster) = made.cluster()
            && !cluster.owner_id.is_empty()
            && !cluster.owner_id.starts_with(&self.run_id)
        {
            return Err(format!(
                "the suite does not send it: the owner ID {:?} is not of this run",
                cluster.owner_id
            ));
        }
        if let Some(service) = made.service()
            && !service.uid.is_empty()
            && !state.uids.contains(&service.uid)
        {
            return Err(format!(
                "the suite does not send it: the UID {:?} does not come from Run::uid",
                service.uid
            ));
        }
        if let Some(route) = made.routes().iter().find(|route| {
            let cidr = &route.destination_cidr;
            cidr.contains('/') && !state.cidrs.contains(&network(cidr))
        }) {
            return Err(format!(
                "the suite does not send it: the destination {} does not come from Run::cidr, or no /24 of `route_cidr` is free",
                route.destination_cidr
            ));
        }
        state.note(made);
        Ok(())
    }

    /// Records the result of a mutating call.
    pub(crate) fn answered(&self, made: &Made, answer: &dyn Any) {
        let mut state = self.state();
        state.note(made);
        let handle = None
            .or_else(|| {
                Some(
                    answer
                        .downcast_ref::<pb::EnsureLoadBalancerResponse>()?
                        .handle
                        .clone(),
                )
            })
            .or_else(|| {
                Some(
                    answer
                        .downcast_ref::<pb::UpdateLoadBalancerResponse>()?
                        .handle
                        .clone(),
                )
            })
            .flatten();
        if let (Some(handle), Some(key)) = (handle, load_balancer_key(made))
            && let Some(Thing::LoadBalancer { handle: kept, .. }) = state.things.get_mut(&key)
        {
            *kept = Some(handle);
        }
        if let Some(answer) = answer.downcast_ref::<pb::DeleteLoadBalancerResponse>()
            && matches!(
                answer.outcome,
                Some(pb::delete_load_balancer_response::Outcome::Done(_))
            )
            && let Some(key) = load_balancer_key(made)
        {
            state.things.remove(&key);
        }
        if let (Made::Remove(request), Some(answer)) =
            (made, answer.downcast_ref::<pb::DeleteRoutesResponse>())
        {
            let owner_id = made.cluster().map(|cluster| cluster.owner_id.clone());
            for route in &request.routes {
                let done = answer.results.iter().any(|result| {
                    result.route_key == route.route_key
                        && matches!(result.outcome, Some(pb::route_result::Outcome::Done(_)))
                });
                if done && let Some(owner_id) = owner_id.clone() {
                    let cidr = network(&route.destination_cidr);
                    state.things.remove(&Key::Route { owner_id, cidr });
                }
            }
        }
    }

    /// Records an object that a hook created, or that was found.
    pub(crate) fn note(&self, thing: Thing) {
        self.state().things.insert(thing.key(), thing);
    }

    /// All objects that may still exist.
    pub(crate) fn things(&self) -> Vec<(Key, Thing)> {
        let state = self.state();
        state
            .things
            .iter()
            .map(|(key, thing)| (key.clone(), thing.clone()))
            .collect()
    }

    /// The objects that the suite has not tried to remove yet.
    pub(crate) fn fresh_things(&self) -> Vec<(Key, Thing)> {
        let mut things = self.things();
        let state = self.state();
        things.retain(|(key, _)| !state.stubborn.contains(key));
        things
    }

    /// Marks all remaining objects as tried.
    pub(crate) fn tried(&self) {
        let mut state = self.state();
        state.stubborn = state.things.keys().cloned().collect();
    }

    /// Forgets the instance or the unmarked object that a hook removed.
    pub(crate) fn removed_by(&self, hook: Hook, variables: &[(&str, &str)]) {
        let of = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found
                .map(|(_, value)| (*value).to_owned())
                .unwrap_or_default()
        };
        let key = match hook {
            Hook::InstanceRemove => Key::Instance { name: of("NAME") },
            Hook::LoadBalancerRemove => Key::UnmarkedLoadBalancer {
                handle: of("HANDLE"),
            },
            Hook::RouteRemove => Key::UnmarkedRoute {
                name: of("NAME"),
                cidr: network(&of("CIDR")),
            },
            _ => return,
        };
        self.gone(&key);
    }

    /// The owners for whom something may have been created since the last call of this method.
    pub(crate) fn take_unseen(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.state().unseen)
    }

    /// The owners whose listings the suite could not check since the last call of this method.
    pub(crate) fn take_unseeable(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.state().unseeable)
    }

    /// Records that the suite could not check the listings of this owner.
    pub(crate) fn could_not_look(&self, owner_id: &str) {
        self.state().unseeable.insert(owner_id.to_owned());
    }

    pub(crate) fn gone(&self, key: &Key) {
        self.state().things.remove(key);
    }
}

impl State {
    fn note(&mut self, made: &Made) {
        // Without an owner ID, or with one that is too long (CORE-11), the provider should create
        // nothing, and no session could remove what it created.
        let is_one = |of: &&pb::ClusterRef| (1..=253).contains(&of.owner_id.len());
        let Some(cluster) = made.cluster().filter(is_one) else {
            return;
        };
        if matches!(made, Made::Ensure(_) | Made::Update(_) | Made::Create(_)) {
            self.unseen.insert(cluster.owner_id.clone());
        }
        match made {
            // An Update must create nothing if it finds nothing (LB-11), but the code of some
            // clouds creates a load balancer then.
            Made::Ensure(_) | Made::Update(_) => {
                if let (Some(key), Some(service)) = (load_balancer_key(made), made.service()) {
                    self.uid_by_name.insert(
                        (service.namespace.clone(), service.name.clone()),
                        service.uid.clone(),
                    );
                    let known = self.things.get(&key);
                    let handle = match known {
                        Some(Thing::LoadBalancer { handle, .. }) => handle.clone(),
                        _ => None,
                    };
                    let mut service = Box::new(service.clone());
                    // Without a name no Delete is valid (CORE-20). The UID identifies the Service.
                    if service.name.is_empty() {
                        service.name = "nameless".into();
                    }
                    let thing = Thing::LoadBalancer {
                        cluster: cluster.clone(),
                        service,
                        handle,
                    };
                    self.things.insert(key, thing);
                }
            }
            Made::Create(request) => {
                for route in &request.routes {
                    let thing = Thing::Route {
                        cluster: cluster.clone(),
                        cidr: route.destination_cidr.clone(),
                    };
                    self.things.insert(thing.key(), thing);
                }
            }
            Made::Delete(_) | Made::Remove(_) => {}
        }
    }
}

/// `None`: the request names no owner or no UID of a Service, so no Delete can name its result.
fn load_balancer_key(made: &Made) -> Option<Key> {
    let owner_id = made.cluster()?.owner_id.clone();
    let uid = made.service()?.uid.clone();
    (!owner_id.is_empty() && !uid.is_empty()).then_some(Key::LoadBalancer { owner_id, uid })
}

#[cfg(test)]
mod tests;
