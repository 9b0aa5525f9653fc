//! Checks the invariants. The checker knows the protocols (the Lease, the contract, Kubernetes'
//! objects), but not the implementation.

mod by_hand;
mod calls;
mod deletions;
pub mod fields;
mod leases;
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
use by_hand::ByHand;
pub use calls::Call;
use calls::Calls;
use deletions::{Absences, Deletions};
pub use fields::{RECORD, has_finalizer, is_known, is_recorded};
use leases::Leases;
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
    /// Whether Services, routes and the lifecycle of Nodes run under the Lease of the leader
    /// migration.
    pub migration: bool,
    /// The duration of an operation that goes on in the cloud after its cancellation. `None`: none
    /// goes on.
    pub goes_on: Option<Duration>,
    /// How many calls of one service a provider takes at once.
    pub max_in_flight: usize,
}

impl Rules {
    /// How long a leader may write after it sent its last successful renewal.
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
    leases: Leases,
    /// Processes that the run ends or kills.
    ending: BTreeSet<String>,
    changes: u64,
    /// How many of the changes were calls of the provider.
    mutating: u64,
    deletions: Deletions,
    calls: Calls,
    connections: u64,
    refused: routes::Refused,
    by_hand: ByHand,
    /// How many writes the clouds had at the last check.
    writes: u64,
    /// Whether more instances were gone at some time than a brake lets go at once.
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
            leases: Leases::new(rules.renew_deadline()),
            ending: BTreeSet::new(),
            changes: 0,
            mutating: 0,
            deletions: Deletions::default(),
            calls: Calls::default(),
            connections: 0,
            refused: routes::Refused::default(),
            by_hand: ByHand::default(),
            writes: 0,
            braked: false,
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many requests to change the cluster or the cloud the processes have sent so far.
    /// Requests for Leases and Events do not count.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.inner().changes
    }

    /// How many calls of mutating RPCs the processes have sent so far.
    #[must_use]
    pub fn mutating_calls(&self) -> u64 {
        self.inner().mutating
    }

    /// Whether a call is under way, except for Probe and WatchChanges. Even a hanging list may lead
    /// to a change.
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.inner().calls.is_any_under_way()
    }

    /// How often the leader of a Lease changed.
    #[must_use]
    pub fn terms(&self) -> u64 {
        self.inner().leases.terms()
    }

    /// Whether a running process holds this Lease.
    #[must_use]
    pub fn is_led(&self, lease: &str) -> bool {
        self.inner().active_leader(lease).is_some()
    }

    /// Notes that this process is being ended or killed, so its requests in flight may break off.
    pub fn ends(&self, identity: &str) {
        self.inner().ending.insert(identity.to_owned());
    }

    /// A person created this load balancer, and no ccm may touch it.
    pub fn planted(&self, balancer: LoadBalancer) {
        self.inner().by_hand.balancers.push(balancer);
    }

    /// A person created this route, and no ccm may touch it. `shared`: its destination is a Node's.
    pub fn planted_route(&self, route: Route, shared: bool) {
        let mut inner = self.inner();
        if shared {
            inner.by_hand.shared.insert(route.name.clone());
        }
        inner.by_hand.routes.push(route);
    }

    /// Checks whether this process may send this request, which changes something.
    pub fn sent(&self, identity: &str, site: &str) {
        let mut inner = self.inner();
        inner.changes += 1;
        inner.mutating += u64::from(MUTATING_RPCS.contains(&site));
        let leases = inner.rules.leases(identity, site);
        if !leases
            .iter()
            .any(|lease| inner.leases.holds(lease, identity))
        {
            inner
                .trace
                .violation(format!("{identity} sends {site} past its renew deadline"));
        } else if !leases
            .iter()
            .any(|lease| inner.leases.leader(lease) == Some(identity))
        {
            let leader = inner.leases.leader(leases[0]).unwrap_or_default();
            inner
                .trace
                .violation(format!("{identity} sends {site} while {leader} leads"));
        }
    }

    /// Takes a request to delete this Node.
    pub(crate) fn deletes(&self, node: &Value) {
        self.inner().deletions.asked(node);
    }

    /// The API server refused to delete this Node.
    pub(crate) fn does_not_delete(&self, node: &Value) {
        self.inner().deletions.refused(node);
    }

    /// The process got the answer to a renewal that it sent at `at`.
    pub(crate) fn renewal_answered(&self, identity: &str, lease: &str, at: Instant) {
        self.inner().leases.confirm(lease, identity, at);
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
                "{identity} changes fields that are not its own in {site} of {name}: {what}"
            ));
        }
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let then = sent.over.as_ref().map(|object| version(object));
        if site.starts_with("PATCH services")
            && before.is_some_and(|before| version(before) != version(now))
            && before.map(version) != then
        {
            inner.trace.violation(format!(
                "{identity} overwrites in {site} of {name} a change that came meanwhile"
            ));
        }
        match site {
            "POST leases" | "PUT leases" if now["spec"]["holderIdentity"] == identity => {
                inner.renew(name, identity, sent.at);
            }
            "PUT leases" => inner.leases.release(name, identity),
            "DELETE nodes" => {
                // A plan has fewer than 20 Nodes. So the brake lets two go within a window.
                let count = inner.deletions.sent(identity, sent.at);
                if count > 2 {
                    inner.trace.violation(format!(
                        "{identity} deletes {count} Nodes within a window of the brake"
                    ));
                }
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
        // A process that loses the Lease of the ccm ends, whatever else it holds. The process does
        // not know of a renewal whose answer is lost.
        let holds = |lease: &str| inner.leases.knows_to_hold(lease, &call.identity);
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
        let Absences { gone, all, limit } = inner
            .deletions
            .absences(nodes, |node| inner.instance(node).is_some());
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
        inner
            .deletions
            .are_most(nodes, |node| inner.instance(node).is_some())
    }

    /// The instance of this Node; `None` if it does not exist.
    #[must_use]
    pub fn machine_of(&self, node: &Value) -> Option<Instance> {
        self.inner().instance(node)
    }
}

impl Inner {
    /// The leader of this Lease, if it runs and may write.
    fn active_leader(&self, lease: &str) -> Option<&str> {
        let leader = self.leases.leader(lease)?;
        (self.leases.holds(lease, leader) && !self.ending.contains(leader)).then_some(leader)
    }

    fn renew(&mut self, lease: &str, identity: &str, sent: Instant) {
        self.leases.renew(lease, identity, sent);
        let before = self.leases.leader(lease);
        if before == Some(identity) {
            return;
        }
        // If another process takes the Lease before its expiry, the old leader released it. A
        // leader that lets its Lease expire has done all it can.
        let is_early = |before: &&str| {
            let age = self.leases.age(lease, before);
            age.is_some_and(|age| age < self.rules.lease)
        };
        let given_back = before.filter(is_early);
        if let Some(before) = given_back
            && let Some(rpc) = self.calls.still_running(before)
            && self.rules.leases(before, &rpc).contains(&lease)
        {
            self.trace.violation(format!(
                "{identity} leads, and {rpc} of {before} is still under way in the cloud"
            ));
        }
        self.trace.note(format!("{identity} leads by {lease}"));
        self.leases.begin_term(lease, identity);
    }

    /// The instance of a Node: by its provider ID, else by its name.
    fn instance(&self, node: &Value) -> Option<Instance> {
        model::instance(self.clouds.first()?, node)
    }

    fn look_at_routes(&mut self, nodes: &[Arc<Object>], hindered: Hindered) {
        let lease = if self.rules.migration {
            MIGRATION_LEASE
        } else {
            LEASE
        };
        let leader = self.active_leader(lease).map(str::to_owned);
        let Some(cloud) = self.clouds.first() else {
            return;
        };
        for name in self
            .refused
            .hidden(cloud, nodes, leader.as_deref(), hindered)
        {
            self.trace.violation(format!(
                "the cloud refused the route of the Node {name}, and its condition does not show that"
            ));
        }
    }

    fn look_at_clouds(&self, services: &[Arc<Object>]) {
        let mut owners: BTreeMap<String, u32> = BTreeMap::new();
        for cloud in &self.clouds {
            let all = cloud.load_balancers();
            for handle in self.by_hand.changed(&all) {
                self.trace.violation(format!(
                    "the load balancer {handle} is not ours, and was changed"
                ));
            }
            let ours = all.into_iter().filter(|one| one.gone_at_ms.is_none());
            for owner in ours.filter_map(|one| one.owner) {
                if owner.owner_id != crate::run::FOREIGN_OWNER
                    && !services.iter().any(|service| {
                        service["metadata"]["uid"] == owner.uid.as_str() && has_finalizer(service)
                    })
                {
                    self.trace.violation(format!(
                        "a load balancer exists for the Service {}, which has no finalizer",
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
    /// The manually created objects that are missing or changed, and the manually created routes
    /// that a ccm asked to delete.
    #[must_use]
    pub fn touched(&self) -> Vec<String> {
        let inner = self.inner();
        let cloud = inner.clouds.first();
        cloud.map_or_else(Vec::new, |cloud| inner.by_hand.touched(cloud))
    }
}
