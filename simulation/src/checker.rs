//! Invariants. They know the protocols (the Lease, the contract, Kubernetes' objects) and nothing of the implementation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use provider_mock::Cloud;
use serde_json::Value;
use tokio::time::Instant;

use crate::trace::Trace;

/// What keeps a Service until its load balancer is gone.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// What a Node registers with.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The checker of a run. Clones are the same one.
#[derive(Clone)]
pub struct Checker(Arc<Mutex<Inner>>);

struct Inner {
    trace: Trace,
    cloud: Cloud,
    /// A leader writes nothing later than this after the last renewal that succeeded was sent.
    renew_deadline: Duration,
    /// When each process sent its last renewal that succeeded.
    renewed: BTreeMap<String, Instant>,
    /// Who acquired the Lease last.
    leader: Option<String>,
    changes: u64,
    /// Nodes that processes deleted.
    deleted: usize,
    /// How many writes of the cloud were looked at.
    seen: u64,
}

impl Checker {
    /// A checker of this cloud and its cluster.
    #[must_use]
    pub fn new(cloud: Cloud, trace: Trace, renew_deadline: Duration) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            trace,
            cloud,
            renew_deadline,
            renewed: BTreeMap::new(),
            leader: None,
            changes: 0,
            deleted: 0,
            seen: 0,
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

    /// A process sends a request that changes something.
    pub fn sent(&self, identity: &str, site: &str) {
        let mut inner = self.inner();
        inner.changes += 1;
        let open = inner
            .renewed
            .get(identity)
            .is_some_and(|at| at.elapsed() < inner.renew_deadline);
        if !open {
            inner
                .trace
                .violation(format!("{identity} sends {site} past its renew deadline"));
        } else if inner.leader.as_deref() != Some(identity) {
            let leader = inner.leader.clone().unwrap_or_default();
            inner
                .trace
                .violation(format!("{identity} sends {site} while {leader} leads"));
        }
    }

    /// The API server did what a process asked for.
    pub(crate) fn wrote(
        &self,
        identity: &str,
        sent: Instant,
        site: &str,
        before: Option<&Value>,
        now: &Value,
    ) {
        let mut inner = self.inner();
        match site {
            "POST leases" | "PUT leases" if now["spec"]["holderIdentity"] == identity => {
                inner.renewed.insert(identity.to_owned(), sent);
                if inner.leader.as_deref() != Some(identity) {
                    inner.trace.note(format_args!("{identity} leads"));
                    inner.leader = Some(identity.to_owned());
                }
            }
            "DELETE nodes" => {
                inner.deleted += 1;
                let name = now["metadata"]["name"].as_str().unwrap_or_default();
                if inner.cloud.instance(name).is_some() {
                    inner.trace.violation(format!(
                        "{identity} deletes the Node {name}, whose instance exists"
                    ));
                }
            }
            "PATCH services" => {
                let released = before.is_some_and(has_finalizer) && !has_finalizer(now);
                let uid = now["metadata"]["uid"].as_str().unwrap_or_default();
                if released && of(&inner.cloud, uid) > 0 {
                    let name = now["metadata"]["name"].as_str().unwrap_or_default();
                    inner.trace.violation(format!(
                        "{identity} releases the Service {name}, whose load balancer exists"
                    ));
                }
            }
            _ => {}
        }
    }

    /// After each step: what must hold at any time.
    pub fn always(&self) {
        let mut inner = self.inner();
        let writes = inner.cloud.all_writes();
        if std::mem::replace(&mut inner.seen, writes) == writes {
            return;
        }
        let mut owners: BTreeMap<String, u32> = BTreeMap::new();
        for one in inner.cloud.load_balancers() {
            if one.gone_at_ms.is_none()
                && let Some(owner) = one.owner
            {
                *owners.entry(owner.uid).or_default() += 1;
            }
        }
        for (uid, count) in owners.into_iter().filter(|(_, count)| *count > 1) {
            inner.trace.violation(format!(
                "{count} load balancers of the Service with UID {uid}"
            ));
        }
    }
}

impl Checker {
    /// Whether the deletion brake may hold Nodes for longer than a run: so many instances went that half of the Nodes or more would have to follow.
    #[must_use]
    pub fn is_braked(&self, nodes: &[Value]) -> bool {
        let inner = self.inner();
        let name = |node: &Value| {
            node["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let gone = nodes
            .iter()
            .filter(|node| inner.cloud.instance(&name(node)).is_none());
        let (gone, all) = (gone.count() + inner.deleted, nodes.len() + inner.deleted);
        gone * 2 >= all && (gone, all) != (1, 2)
    }
}

/// Whether the Service is kept until its load balancer is gone.
#[must_use]
pub fn has_finalizer(service: &Value) -> bool {
    let all = service["metadata"]["finalizers"].as_array();
    all.is_some_and(|all| all.iter().any(|one| one == FINALIZER))
}

/// How many load balancers are marked for the Service with this UID.
fn of(cloud: &Cloud, uid: &str) -> usize {
    let all = cloud.load_balancers();
    all.iter()
        .filter(|one| one.owner.as_ref().is_some_and(|owner| owner.uid == uid))
        .count()
}

/// What must hold when nothing went wrong for long, from what users, kubelets and the console did last.
///
/// `braked`: the deletion brake may still hold Nodes whose instances are gone.
#[must_use]
pub fn converged(nodes: &[Value], services: &[Value], cloud: &Cloud, braked: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = |object: &Value| {
        object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let mut targets = Vec::new();
    for node in nodes {
        let (name, instance) = (name(node), cloud.instance(&name(node)));
        let taints = node["spec"]["taints"].as_array();
        let waits = taints.is_some_and(|all| all.iter().any(|taint| taint["key"] == UNINITIALIZED));
        let ready = node["status"]["conditions"].as_array().is_some_and(|all| {
            all.iter()
                .any(|one| one["type"] == "Ready" && one["status"] == "True")
        });
        match instance {
            None if !ready && !braked => wrong.push(format!(
                "the Node {name} is there, and its instance is gone"
            )),
            None => {}
            Some(instance) => {
                if waits {
                    wrong.push(format!("the Node {name} is not initialised"));
                }
                if node["spec"]["providerID"] != instance.provider_id.as_str() {
                    wrong.push(format!(
                        "the Node {name} has the provider ID {}, its instance {}",
                        node["spec"]["providerID"], instance.provider_id
                    ));
                }
                let shown: Vec<&str> = node["status"]["addresses"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|one| one["address"].as_str())
                    .collect();
                let has = serde_json::to_value(&instance.addresses).unwrap_or_default();
                if !shown
                    .iter()
                    .any(|address| has.to_string().contains(address))
                {
                    wrong.push(format!(
                        "the Node {name} shows the addresses {shown:?}, its instance has {has}"
                    ));
                }
            }
        }
        if !node["spec"]["providerID"].is_null() && !waits {
            targets.push(name);
        }
    }
    targets.sort();
    let balancers = cloud.load_balancers();
    for service in services {
        let (name, uid) = (
            name(service),
            service["metadata"]["uid"].as_str().unwrap_or_default(),
        );
        let class = service["spec"]["loadBalancerClass"].as_str();
        let served = service["spec"]["type"] == "LoadBalancer"
            && class.is_none_or(|class| class == crate::plan::CLASS);
        if !service["metadata"]["deletionTimestamp"].is_null() {
            wrong.push(format!("the Service {name} is still being deleted"));
            continue;
        }
        let own: Vec<_> = balancers
            .iter()
            .filter(|one| one.owner.as_ref().is_some_and(|owner| owner.uid == uid))
            .collect();
        let shown: Vec<&str> = service["status"]["loadBalancer"]["ingress"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["ip"].as_str())
            .collect();
        if !served {
            if !own.is_empty() {
                wrong.push(format!(
                    "the Service {name} is none of ours any more, and its load balancer exists"
                ));
            }
            if has_finalizer(service) {
                wrong.push(format!(
                    "the Service {name} is none of ours any more, and has our finalizer"
                ));
            }
            if !shown.is_empty() {
                wrong.push(format!(
                    "the Service {name} is none of ours any more, and shows {shown:?}"
                ));
            }
            continue;
        }
        let [balancer] = own.as_slice() else {
            wrong.push(format!(
                "the Service {name} has {} load balancers",
                own.len()
            ));
            continue;
        };
        if !has_finalizer(service) {
            wrong.push(format!(
                "the Service {name} has a load balancer and no finalizer"
            ));
        }
        let addresses: Vec<String> = balancer.addresses.iter().map(ToString::to_string).collect();
        if shown != addresses {
            wrong.push(format!(
                "the Service {name} shows {shown:?}, its load balancer has {addresses:?}"
            ));
        }
        let ports: Vec<String> = service["spec"]["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|port| port["port"].to_string())
            .collect();
        let does: Vec<String> = balancer
            .config
            .ports
            .iter()
            .filter_map(|port| port.split(':').nth(2).map(str::to_owned))
            .collect();
        if ports != does {
            wrong.push(format!(
                "the Service {name} asks for the ports {ports:?}, its load balancer has {does:?}"
            ));
        }
        let mut attached = balancer.targets.clone();
        attached.sort();
        if attached != targets {
            wrong.push(format!(
                "the Service {name} has the targets {attached:?}, and right would be {targets:?}"
            ));
        }
    }
    for one in &balancers {
        let uid = one
            .owner
            .as_ref()
            .map(|owner| owner.uid.as_str())
            .unwrap_or_default();
        if !services
            .iter()
            .any(|service| service["metadata"]["uid"] == uid)
        {
            wrong.push(format!(
                "the load balancer {} belongs to no Service",
                one.handle
            ));
        }
    }
    wrong
}
