//! Checks the invariants. The checker knows the protocols (the Lease, the contract, Kubernetes'
//! objects), but not the implementation.

mod calls;
pub mod fields;
pub mod model;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use provider_mock::{Cloud, Instance, LoadBalancer, MUTATING_RPCS, Route};
use serde_json::Value;
use tokio::time::Instant;

use crate::api_server::store::Object;
use crate::trace::Trace;
pub use calls::Call;
use calls::Calls;
pub use fields::{RECORD, has_finalizer, is_known, is_recorded};
pub use routes::Hindered;

/// The finalizer that keeps a Service until its load balancer is gone.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The taint that a Node registers with.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The Lease of the ccm.
pub const LEASE: &str = "cloud-controller-manager";
/// The Lease of the leader migration.
pub const MIGRATION_LEASE: &str = "cloud-provider-extraction-migration";
/// The Lease of the second ccm.
pub const SECOND_LEASE: &str = "second-ccm";
/// The prefix of the second ccm's identities.
pub const SECOND: &str = "second";

/// The inputs of the invariants.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The lease duration.
    pub lease: Duration,
    /// Services, routes and the lifecycle of Nodes run under the Lease of the leader migration.
    pub migration: bool,
    /// How long a cancelled operation goes on in the cloud.
    pub goes_on: Option<Duration>,
    /// How many calls of one service a provider takes at once.
    pub max_in_flight: usize,
}

impl Rules {
    /// How long after its last successful renewal was sent a leader may still write.
    #[must_use]
    pub fn renew_deadline(&self) -> Duration {
        Duration::from_secs(self.lease.as_secs() * 2 / 3)
    }

    /// The Leases that permit this request. One of them is enough.
    fn leases(&self, identity: &str, site: &str) -> &'static [&'static str] {
        let rpc = MUTATING_RPCS.contains(&site);
        if identity.starts_with(SECOND) {
            &[SECOND_LEASE]
        } else if !self.migration {
            &[LEASE]
        } else if rpc || site.contains("services") || site == "DELETE nodes" {
            &[MIGRATION_LEASE]
        } else {
            &[LEASE, MIGRATION_LEASE]
        }
    }
}

/// When a request was sent, and its target at that time.
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) over: Option<Arc<Object>>,
}

/// The checker of a run. Clones share its state.
#[derive(Clone)]
pub struct Checker(Arc<Mutex<Inner>>);

struct Inner {
    trace: Trace,
    clouds: Vec<Cloud>,
    rules: Rules,
    /// When each process sent its last successful renewal of each Lease.
    renewed: BTreeMap<(String, String), Instant>,
    /// The same for renewals whose answers arrived.
    confirmed: BTreeMap<(String, String), Instant>,
    /// The Leases that a process released after its last renewal.
    released: BTreeSet<(String, String)>,
    /// The last process to acquire each Lease.
    leader: BTreeMap<String, String>,
    /// How often the leader of a Lease changed.
    terms: u64,
    /// Processes that a step ends or kills.
    ending: BTreeSet<String>,
    changes: u64,
    /// How many of the changes were calls of the provider.
    mutating: u64,
    /// When each process sent its requests that deleted Nodes.
    deletions: BTreeMap<String, Vec<Instant>>,
    /// When processes last asked for the deletion of each Node, by UID. They cannot know whether a
    /// request without an answer deleted it.
    deleted: BTreeMap<String, Instant>,
    calls: Calls,
    connections: u64,
    refused: routes::Refused,
    /// Objects that people created in the cloud. No ccm may touch them.
    by_hand: Vec<LoadBalancer>,
    routes_by_hand: Vec<Route>,
    /// How many writes the clouds had at the last check.
    writes: u64,
    /// At some time, more instances were gone than a brake lets go at once.
    braked: bool,
}

impl Checker {
    /// A checker of these clouds and their cluster.
    #[must_use]
    pub fn new(clouds: Vec<Cloud>, trace: Trace, rules: Rules) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            trace,
            clouds,
            rules,
            renewed: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            released: BTreeSet::new(),
            leader: BTreeMap::new(),
            terms: 0,
            ending: BTreeSet::new(),
            changes: 0,
            mutating: 0,
            deletions: BTreeMap::new(),
            deleted: BTreeMap::new(),
            calls: Calls::default(),
            connections: 0,
            refused: routes::Refused::default(),
            by_hand: Vec::new(),
            routes_by_hand: Vec::new(),
            writes: 0,
            braked: false,
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many changes of the cluster and the cloud processes asked for so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.inner().changes
    }

    /// How many calls could change the cloud so far.
    #[must_use]
    pub fn mutating_calls(&self) -> u64 {
        self.inner().mutating
    }

    /// Whether a call is under way. Even a hanging list may lead to a change.
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.inner().calls.is_any_under_way()
    }

    /// The process that leads by the ccm's Lease.
    #[must_use]
    pub fn leader(&self) -> Option<String> {
        self.inner().leader.get(LEASE).cloned()
    }

    /// How often a process began to lead.
    #[must_use]
    pub fn terms(&self) -> u64 {
        self.inner().terms
    }

    /// Whether a running process holds this Lease.
    #[must_use]
    pub fn is_led(&self, lease: &str) -> bool {
        let inner = self.inner();
        inner
            .leader
            .get(lease)
            .is_some_and(|leader| inner.holds(lease, leader) && !inner.ending.contains(leader))
    }

    /// This process is being ended or killed, so its requests in flight may break off.
    pub fn ends(&self, identity: &str) {
        self.inner().ending.insert(identity.to_owned());
    }

    /// A person created this load balancer, and no ccm may touch it.
    pub fn planted(&self, balancer: LoadBalancer) {
        self.inner().by_hand.push(balancer);
    }

    /// A person created this route, and no ccm may touch it.
    pub fn planted_route(&self, route: Route) {
        self.inner().routes_by_hand.push(route);
    }

    /// Checks whether this process may send this request, which changes something.
    pub fn sent(&self, identity: &str, site: &str) {
        let mut inner = self.inner();
        inner.changes += 1;
        inner.mutating += u64::from(MUTATING_RPCS.contains(&site));
        let leases = inner.rules.leases(identity, site);
        if !leases.iter().any(|lease| inner.holds(lease, identity)) {
            inner
                .trace
                .violation(format!("{identity} sends {site} past its renew deadline"));
        } else if !leases
            .iter()
            .any(|lease| inner.leader.get(*lease).map(String::as_str) == Some(identity))
        {
            let leader = inner.leader.get(leases[0]).cloned().unwrap_or_default();
            inner
                .trace
                .violation(format!("{identity} sends {site} while {leader} leads"));
        }
    }

    /// Takes a request to delete this Node.
    pub(crate) fn deletes(&self, node: &Value) {
        let uid = fields::uid(node).to_owned();
        self.inner().deleted.insert(uid, Instant::now());
    }

    /// The API server refused to delete this Node.
    pub(crate) fn does_not_delete(&self, node: &Value) {
        self.inner().deleted.remove(fields::uid(node));
    }

    /// The process got the answer to a renewal that it sent at `at`.
    pub(crate) fn renewal_answered(&self, identity: &str, lease: &str, at: Instant) {
        let key = (lease.to_owned(), identity.to_owned());
        let mut inner = self.inner();
        let known = inner.confirmed.entry(key).or_insert(at);
        *known = at.max(*known);
    }

    /// Checks the effect of a process's request on the API server.
    pub(crate) fn wrote(
        &self,
        identity: &str,
        sent: &Sent,
        site: &str,
        before: Option<&Value>,
        now: &Value,
    ) {
        let mut inner = self.inner();
        let name = now["metadata"]["name"].as_str().unwrap_or_default();
        for what in before.map_or_else(Vec::new, |before| fields::wrong(site, before, now)) {
            inner.trace.violation(format!(
                "{identity} changes what is not its own in {site} of {name}: {what}"
            ));
        }
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let then = sent.over.as_ref().map(|object| version(object));
        if site.starts_with("PATCH services")
            && before.is_some_and(|before| version(before) != version(now))
            && before.map(version) != then
        {
            inner.trace.violation(format!(
                "{identity} overwrites in {site} of {name} what was written while it was on its way"
            ));
        }
        match site {
            "POST leases" | "PUT leases" if now["spec"]["holderIdentity"] == identity => {
                inner.renew(name, identity, sent.at);
            }
            "PUT leases" => {
                let key = (name.to_owned(), identity.to_owned());
                inner.released.insert(key);
            }
            "DELETE nodes" => {
                inner.brakes(identity, sent.at);
                if inner.instance(now).is_some() {
                    inner.trace.violation(format!(
                        "{identity} deletes the Node {name}, whose instance exists"
                    ));
                }
            }
            "PATCH nodes" if is_known(now) && !before.is_some_and(is_known) => {
                let Inner {
                    refused, clouds, ..
                } = &mut *inner;
                if let Some(cloud) = clouds.first() {
                    refused.is_known(cloud, now);
                }
            }
            "PATCH services" => {
                let released = before.is_some_and(has_finalizer) && !has_finalizer(now);
                let uid = fields::uid(now);
                let exists = |cloud: &Cloud| model::balancers_of(cloud, uid) > 0;
                if released && inner.clouds.iter().any(exists) {
                    inner.trace.violation(format!(
                        "{identity} releases the Service {name}, whose load balancer exists"
                    ));
                }
            }
            _ => {}
        }
    }

    /// A process ended because it lost its Lease. `excused`: the Lease was out of its reach.
    pub fn lost_lease(&self, identity: &str, excused: bool) {
        if !excused {
            self.inner().trace.violation(format!(
                "{identity} lost its Lease, though the API server answered it in time"
            ));
        }
    }

    /// A number for a new connection.
    #[must_use]
    pub fn connection(&self) -> u64 {
        let mut inner = self.inner();
        inner.connections += 1;
        inner.connections
    }

    /// Takes a call to a provider. Connections have numbers; `deadline` is the caller's.
    #[must_use]
    pub fn call(&self, identity: &str, connection: u64, rpc: &str, deadline: Duration) -> Call {
        let mut inner = self.inner();
        let (number, early) = inner.calls.begin(identity, connection, rpc, deadline);
        if let Some(early) = early {
            inner.trace.violation(format!(
                "{identity} calls {rpc} {early:?} before the end of the time that THROTTLED asked for"
            ));
        }
        Call::new(self.clone(), number)
    }

    /// Takes the answer of a call. `throttled`: it is THROTTLED, with this `retry_after`.
    fn answered(&self, number: u64, throttled: Option<Duration>) {
        self.inner().calls.answered(number, throttled);
    }

    /// Takes the end of a call without an answer. `drained`: the provider was finishing its calls
    /// in flight.
    fn broke_off(&self, number: u64, drained: bool) {
        let mut inner = self.inner();
        let Some(call) = inner.calls.end(number) else {
            return;
        };
        if call.rpc == "EnsureLoadBalancer"
            && let Some(lasts) = inner.rules.goes_on
        {
            inner.calls.goes_on(&call, lasts);
        }
        let leases = inner.rules.leases(&call.identity, &call.rpc);
        // A process that loses the Lease of the ccm ends, whatever else it holds. It does not know
        // of a renewal whose answer is lost.
        let holds = |lease: &str| inner.is_recent(&inner.confirmed, lease, &call.identity);
        let alive = !inner.ending.contains(&call.identity)
            && (call.identity.starts_with(SECOND) || holds(LEASE))
            && leases.iter().all(|lease| holds(lease));
        if drained && alive && MUTATING_RPCS.contains(&call.rpc.as_str()) && !call.is_due() {
            inner.trace.violation(format!(
                "{} gives up {}, which the provider finishes before it ends",
                call.identity, call.rpc
            ));
        }
    }

    /// Checks after each step what must hold at any time.
    pub fn always(&self, nodes: &[Arc<Object>], services: &[Arc<Object>], hindered: Hindered) {
        let mut inner = self.inner();
        inner.look_at_routes(nodes, hindered);
        let limit = inner.rules.max_in_flight;
        for (identity, service, count) in inner.calls.crowded(limit) {
            inner.trace.violation(format!(
                "{identity} has {count} calls of {service} in flight, and the provider takes {limit}"
            ));
        }
        let (gone, all, limit) = inner.absences(nodes);
        inner.braked |= gone > limit && all > 0;
        let writes = inner.clouds.iter().map(Cloud::all_writes).sum();
        if std::mem::replace(&mut inner.writes, writes) != writes {
            inner.look_at_clouds(services);
        }
    }

    /// Whether a deletion brake may hold Nodes for a while. If so, more instances were gone at some
    /// time than may go at once.
    #[must_use]
    pub fn may_brake(&self) -> bool {
        self.inner().braked
    }

    /// Whether the deletion brake may hold Nodes for longer than a run. If so, half of the Nodes or
    /// more have no instance or were deleted.
    #[must_use]
    pub fn is_braked(&self, nodes: &[Arc<Object>]) -> bool {
        let inner = self.inner();
        let deleted = inner.deleted(nodes, Duration::MAX);
        let nodes = nodes.iter().filter(|node| is_known(node));
        let gone = nodes.clone().filter(|node| inner.instance(node).is_none());
        let gone = gone.count() + deleted;
        let all = nodes.count() + deleted;
        gone * 2 >= all && (gone, all) != (1, 2)
    }

    /// The instance of this Node; `None` if it does not exist.
    #[must_use]
    pub fn machine_of(&self, node: &Value) -> Option<Instance> {
        self.inner().instance(node)
    }
}

impl Inner {
    fn holds(&self, lease: &str, identity: &str) -> bool {
        self.is_recent(&self.renewed, lease, identity)
    }

    fn is_recent(
        &self,
        renewals: &BTreeMap<(String, String), Instant>,
        lease: &str,
        identity: &str,
    ) -> bool {
        let key = (lease.to_owned(), identity.to_owned());
        let renewed = renewals.get(&key);
        renewed.is_some_and(|at| at.elapsed() < self.rules.renew_deadline())
            && !self.released.contains(&key)
    }

    /// Checks a deletion against the brake: of the 12 Nodes that a plan has at most, it lets two go
    /// within a window.
    fn brakes(&mut self, identity: &str, at: Instant) {
        // The brake counts a deletion before it sends the first request.
        const WINDOW: Duration = Duration::from_mins(9);
        let all = self.deletions.entry(identity.to_owned()).or_default();
        all.retain(|before| at.saturating_duration_since(*before) < WINDOW);
        all.push(at);
        if all.len() > 2 {
            self.trace.violation(format!(
                "{identity} deletes {} Nodes within a window of the brake",
                all.len()
            ));
        }
    }

    /// How many Nodes the ccms deleted within this time. A Node that still exists does not count.
    fn deleted(&self, nodes: &[Arc<Object>], within: Duration) -> usize {
        let exists = |uid: &String| nodes.iter().any(|node| fields::uid(node) == uid);
        let all = self.deleted.iter();
        all.filter(|(uid, at)| at.elapsed() < within && !exists(uid))
            .count()
    }

    fn renew(&mut self, lease: &str, identity: &str, sent: Instant) {
        let key = (lease.to_owned(), identity.to_owned());
        self.released.remove(&key);
        self.renewed.insert(key, sent);
        let before = self.leader.get(lease);
        if before.map(String::as_str) == Some(identity) {
            return;
        }
        // The old leader released a Lease that was taken before its expiry. One that lets it expire
        // has done all it can.
        let given_back = before.filter(|before| {
            let key = (lease.to_owned(), (*before).clone());
            let renewed = self.renewed.get(&key);
            renewed.is_some_and(|at| at.elapsed() < self.rules.lease)
        });
        if let Some(before) = given_back
            && let Some(rpc) = self.calls.still_running(before)
            && self.rules.leases(before, &rpc).contains(&lease)
        {
            self.trace.violation(format!(
                "{identity} leads, and {rpc} of {before} is still under way in the cloud"
            ));
        }
        self.trace.note(format!("{identity} leads by {lease}"));
        self.terms += 1;
        self.leader.insert(lease.to_owned(), identity.to_owned());
    }

    /// The instance of a Node: by its provider ID, else by its name.
    fn instance(&self, node: &Value) -> Option<Instance> {
        model::instance(self.clouds.first()?, node)
    }

    /// The number of absences, of Nodes, and of Nodes that may go at once. An absence is a Node
    /// that is not Ready and has no instance, or a recent deletion.
    fn absences(&self, nodes: &[Arc<Object>]) -> (usize, usize, usize) {
        const WINDOW: Duration = Duration::from_mins(12);
        let deleted = self.deleted(nodes, WINDOW);
        let mut nodes = nodes.iter().filter(|node| is_known(node));
        let gone = nodes
            .clone()
            .filter(|node| !fields::is_ready(node) && self.instance(node).is_none())
            .count();
        let all = nodes.clone().count() + deleted;
        let others_ready =
            nodes.all(|node| fields::is_ready(node) || self.instance(node).is_none());
        let limit = match all {
            0 | 1 => 0,
            2 => usize::from(others_ready),
            3 | 4 => 1,
            _ => 2,
        };
        (gone + deleted, all, limit)
    }

    fn look_at_routes(&mut self, nodes: &[Arc<Object>], hindered: Hindered) {
        let lease = if self.rules.migration {
            MIGRATION_LEASE
        } else {
            LEASE
        };
        let leader = self.leader.get(lease);
        let leader =
            leader.filter(|leader| self.holds(lease, leader) && !self.ending.contains(*leader));
        let Some(cloud) = self.clouds.first() else {
            return;
        };
        for name in self.refused.hidden(cloud, nodes, leader, hindered) {
            self.trace.violation(format!(
                "the cloud refused the route of the Node {name}, which does not say so"
            ));
        }
    }

    fn look_at_clouds(&self, services: &[Arc<Object>]) {
        let mut owners: BTreeMap<String, u32> = BTreeMap::new();
        for cloud in &self.clouds {
            let all = cloud.load_balancers();
            for planted in &self.by_hand {
                let now = all.iter().find(|one| one.name == planted.name);
                if now.is_some_and(|now| now != planted) {
                    self.trace.violation(format!(
                        "the load balancer {} is not ours, and was changed",
                        planted.handle
                    ));
                }
            }
            let ours = all.into_iter().filter(|one| one.gone_at_ms.is_none());
            for owner in ours.filter_map(|one| one.owner) {
                if owner.owner_id != crate::run::FOREIGN_OWNER
                    && !services.iter().any(|service| {
                        service["metadata"]["uid"] == owner.uid.as_str() && has_finalizer(service)
                    })
                {
                    self.trace.violation(format!(
                        "a load balancer of the Service {}, which has no finalizer",
                        owner.name
                    ));
                }
                *owners.entry(owner.uid).or_default() += 1;
            }
        }
        for (uid, count) in owners.into_iter().filter(|(_, count)| *count > 1) {
            self.trace.violation(format!(
                "{count} load balancers of the Service with UID {uid}"
            ));
        }
    }
}

impl Checker {
    /// Manually created objects that are missing or changed.
    #[must_use]
    pub fn touched(&self) -> Vec<String> {
        let inner = self.inner();
        let Some(cloud) = inner.clouds.first() else {
            return Vec::new();
        };
        let (balancers, routes) = (cloud.load_balancers(), cloud.routes());
        let balancers = inner
            .by_hand
            .iter()
            .filter(|planted| !balancers.contains(planted))
            .map(|planted| format!("the load balancer {}", planted.handle));
        let routes = inner
            .routes_by_hand
            .iter()
            .filter(|planted| !routes.contains(planted))
            .map(|planted| format!("the route {}", planted.name));
        balancers
            .chain(routes)
            .map(|what| format!("{what} is somebody else's, and was changed or removed"))
            .collect()
    }
}
