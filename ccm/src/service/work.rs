//! The state of one provider's loop, and what each thing that happens does to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{error, info, warn};

mod nodes;
mod orphans;
mod told;

pub(super) use told::HOUSEKEEPING;

use super::Metrics;
use super::ledger::{Ledger, Task};
use super::orphans::Orphans;
use super::plan::{Applied, asks};
use super::standing::Standing;
use super::sync::{Finished, Job, Tools, UnderWay, sync};
use super::targets::{Candidates, NodeSelector, Sets, Settle, TargetSet};
use crate::cluster::{Change, Key};
use crate::planted::planted;
use crate::provider::Session;
use crate::queue::{Backoff, Outcome, Queue};
use crate::run::{Hint, LoopContext};
use crate::stuck::{Away, Waiting};
use crate::writes::Writes;

const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(5),
    max: Duration::from_mins(5),
};
/// `max_in_flight` where the provider states none.
const DEFAULT_IN_FLIGHT: usize = 8;
/// No provider gets more calls at once.
const MOST_IN_FLIGHT: usize = 32;
/// A Service whose targets are not known yet waits so long.
const TARGETS_AGAIN: Duration = Duration::from_secs(1);

/// Hints make at most one look at a Service in this time.
const LOOK_GAP: Duration = Duration::from_secs(10);

/// What a recheck found: the selectors that were asked about, those whose set is empty indeed.
type Rechecked = (Vec<NodeSelector>, Result<Vec<NodeSelector>, kube::Error>);

/// The loop's state.
pub(super) struct Work {
    context: LoopContext,
    tools: Arc<Tools>,
    pub(super) queue: Queue<Task>,
    pub(super) jobs: JoinSet<Finished>,
    pub(super) recheck: JoinSet<Rechecked>,
    pub(super) search: JoinSet<orphans::Search>,
    search_due: Instant,
    orphans: Orphans,
    standing: Standing,
    /// A list of this session was seen: one alone says nothing, and what was counted before stands.
    listed_before: bool,
    /// What each job works on, and what was known before.
    ids: HashMap<Id, (Task, Option<Applied>)>,
    in_flight: BTreeMap<Task, Arc<UnderWay>>,
    /// Who is not done, and what they were told.
    waiting: Waiting<Task>,
    away: Away,
    /// Changed while it was worked on.
    dirty: BTreeSet<Task>,
    /// Hinted at while it was worked on.
    looked_for: BTreeSet<Task>,
    /// When a hint last had, or will have, a Service looked at.
    looks: BTreeMap<Task, Instant>,
    ledger: Ledger,
    session: Option<Arc<Session>>,
    /// Whether calls may be made now.
    open: bool,
    candidates: Candidates,
    /// Nodes that would be targets if what is sent of them was not so large.
    too_large: BTreeSet<String>,
    sets: Sets,
    settle: Settle,
    /// Sets as they are while changes of Nodes wait to settle, for the calls that are made meanwhile.
    unsettled: BTreeMap<NodeSelector, Arc<TargetSet>>,
    throttled: Option<Instant>,
    /// A settled change of Nodes, and who was not tried since.
    round: Option<(Instant, BTreeSet<Task>)>,
    rng: StdRng,
    metrics: Metrics,
}

impl Work {
    pub(super) fn new(context: LoopContext, metrics: Metrics) -> Self {
        let queue = Queue::new("service", BACKOFF, context.seed, &context.queue_metrics);
        queue.pause();
        let tools = Arc::new(Tools {
            provider: Arc::clone(&context.provider),
            config: Arc::clone(&context.config),
            cluster: context.cluster.clone(),
            writes: Writes {
                client: context.writes.client.clone(),
                events: context.writes.events.for_component("service-controller"),
            },
            fence: context.fence.clone(),
            status: context.status.clone(),
            stop: context.stop.clone(),
            metrics: metrics.clone(),
            memory: Arc::clone(&context.service_memory),
            wall: Arc::clone(&context.wall),
        });
        let mut ledger = Ledger::default();
        for (task, applied) in context.service_memory.take() {
            let shown = match &task {
                Task::Service(key) => context.cluster.services.get(key),
                Task::Departed(..) => None,
            };
            ledger.put(&task, Some(applied.anew(shown.as_deref())));
            queue.add(task);
        }
        let rng = StdRng::seed_from_u64(context.seed);
        let search_due = Instant::now() + context.config.service.orphan_period;
        Self {
            context,
            tools,
            queue,
            jobs: JoinSet::new(),
            recheck: JoinSet::new(),
            search: JoinSet::new(),
            search_due,
            orphans: Orphans::default(),
            standing: Standing::default(),
            listed_before: false,
            ids: HashMap::new(),
            in_flight: BTreeMap::new(),
            waiting: Waiting::default(),
            away: Away::default(),
            dirty: BTreeSet::new(),
            looked_for: BTreeSet::new(),
            looks: BTreeMap::new(),
            ledger,
            session: None,
            open: false,
            candidates: Candidates::default(),
            too_large: BTreeSet::new(),
            sets: Sets::default(),
            settle: Settle::default(),
            unsettled: BTreeMap::new(),
            throttled: None,
            round: None,
            rng,
            metrics,
        }
    }

    /// How many more Services may be worked on now.
    pub(super) fn room(&self) -> usize {
        if !self.open || self.throttled.is_some() {
            return 0;
        }
        let stated = self
            .session
            .as_ref()
            .and_then(|session| load_balancers(session))
            .and_then(|capability| capability.max_in_flight)
            .map_or(0, |most| most as usize);
        let most = if stated == 0 {
            DEFAULT_IN_FLIGHT
        } else {
            stated.min(MOST_IN_FLIGHT)
        };
        let lowered = self
            .context
            .config
            .service
            .concurrent_syncs
            .map_or(most, |wanted| most.min(wanted))
            .max(1);
        lowered.saturating_sub(self.in_flight.len())
    }

    pub(super) fn settled_at(&self) -> Option<Instant> {
        self.settle.due()
    }

    pub(super) fn throttled_until(&self) -> Option<Instant> {
        self.throttled
    }

    pub(super) fn unthrottle(&mut self) {
        self.throttled = None;
    }

    /// The provider came, went, or says something else of itself (▲M9, ▲S20).
    pub(super) fn provider_changed(&mut self) {
        let (working, accepted) = {
            let status = self.context.status.borrow();
            (status.working().cloned(), status.scope_accepted)
        };
        let provider = Arc::clone(&self.context.provider);
        let working = working.filter(|session| load_balancers(session).is_some());
        let open = working.is_some() && accepted;
        if let Some(session) = working {
            let same = self
                .session
                .as_ref()
                .is_some_and(|before| says_the_same(before, &session));
            let again = self
                .session
                .as_ref()
                .is_some_and(|before| Arc::ptr_eq(before, &session));
            if !again {
                self.orphans.start_over();
                self.standing.start_over();
                self.listed_before = false;
            }
            let first = self.session.replace(session).is_none();
            if !same {
                self.rebuild();
                if !first {
                    self.metrics.unsaid(&provider);
                    // Also those that it could not serve as it was before: a class, a feature.
                    let services = self.context.cluster.services.all();
                    let wanted = services
                        .iter()
                        .map(|service| (key(service), service))
                        .filter(|(key, service)| self.ledger.is_news(key, Some(service.as_ref())))
                        .map(|(key, _)| Task::Service(key));
                    for task in self.ledger.known().into_iter().chain(wanted) {
                        self.queue.add(task);
                    }
                }
            }
            if !accepted {
                warn!(%provider, "the provider reaches another account, project or region than before: no load balancer is made or deleted until that is accepted");
            }
        }
        if open && !self.open {
            self.queue.resume();
            self.queue.reset_transport_backoffs();
            info!(%provider, "load balancers are worked on");
        } else if !open && self.open {
            self.queue.pause();
            info!(%provider, "load balancers wait for the provider");
        }
        self.open = open;
    }

    pub(super) fn services_changed(&mut self, changes: &[Change<Service>]) {
        for change in changes {
            let Some(key) = change.new.as_ref().or(change.old.as_ref()).map(|s| key(s)) else {
                continue;
            };
            let task = Task::Service(key.clone());
            if self.in_flight.contains_key(&task) {
                if !planted!(ChangeDuringWorkIsForgotten) {
                    self.dirty.insert(task);
                }
            } else if self.ledger.is_news(&key, change.new.as_deref()) {
                self.queue.add(task);
            } else if change.new.is_none() {
                self.queue.remove(&task);
            }
        }
    }

    pub(super) fn hinted(&mut self, hint: &Hint) {
        let in_sync = self
            .session
            .as_ref()
            .and_then(|session| load_balancers(session))
            .is_some_and(|capability| capability.in_sync);
        let tasks = match hint {
            Hint::LoadBalancer { namespace, name } => vec![Task::Service(Key {
                namespace: namespace.clone(),
                name: name.clone(),
            })],
            // Without `in_sync` it would be an Ensure of everything, on no more than a hint.
            Hint::Resync if in_sync => self.ledger.known(),
            Hint::Resync | Hint::Instance { .. } | Hint::Routes => Vec::new(),
        };
        for task in tasks {
            self.look_soon(task);
        }
    }

    /// The Service is looked at, when what is being done for it is over.
    fn look_soon(&mut self, task: Task) {
        if self.in_flight.contains_key(&task) {
            self.looked_for.insert(task);
        } else {
            self.look_for(task);
        }
    }

    /// A hint or a list: the Service is looked at, soon, but no retry comes earlier for it. The retry looks first: what failed is not tried in the rhythm of the hints.
    fn look_for(&mut self, task: Task) {
        if !self.ledger.look(&task) {
            return;
        }
        // `pending` is no failure: that it is done now is what a hint is for.
        if self.queue.due(&task).is_some() && !self.ledger.is_pending(&task) {
            return;
        }
        let now = Instant::now();
        self.looks.retain(|_, at| *at + LOOK_GAP > now);
        let at = match self.looks.get(&task) {
            Some(planned) if *planned > now => *planned,
            Some(last) => *last + LOOK_GAP,
            None => now,
        };
        self.looks.insert(task.clone(), at);
        self.queue.add_at(task, at);
    }

    /// Begins to work on a task that the queue handed out.
    pub(super) fn start(&mut self, task: Task) {
        let now = match &task {
            Task::Service(key) => self.context.cluster.services.get(key),
            Task::Departed(..) => None,
        };
        let taken = self.ledger.take(&task, now);
        if let Some(departed) = taken.departed {
            self.queue.add(departed);
        }
        if taken.forgotten {
            error!(
                provider = %self.context.provider,
                ?task,
                "too many load balancers without a Service wait to be deleted: that of this one is not; the list of load balancers finds it later"
            );
        }
        let (Some(service), Some(session)) = (taken.service, self.session.clone()) else {
            self.ledger.put(&task, taken.applied);
            self.queue.done(&task, Outcome::Forget);
            self.queue.remove(&task);
            self.tried(&task);
            return;
        };
        let departed = matches!(task, Task::Departed(..));
        let owner =
            session.ownership.service_owner(&service) == Some(self.context.provider.as_ref());
        let needs = asks(&service) && owner && !departed;
        let selector = NodeSelector::of(&service);
        if let Task::Service(key) = &task {
            let used = selector.as_ref().ok().filter(|_| needs).cloned();
            self.ledger.uses(key, used);
        }
        let targets = match (&selector, needs) {
            (Ok(selector), true) => {
                let set = self.targets_now(selector);
                if set.is_none() {
                    self.ledger.put(&task, taken.applied);
                    self.queue
                        .done(&task, Outcome::At(Instant::now() + TARGETS_AGAIN));
                    return;
                }
                set
            }
            _ => None,
        };
        let mut kept = taken.applied.clone();
        if let (Some(kept), Some(targets)) = (&mut kept, &targets) {
            kept.tried = Some(targets.fingerprint);
        }
        let uid = service.metadata.uid.as_deref();
        self.waiting.seen(&task, uid, None, Instant::now());
        let under_way = Arc::new(UnderWay::default());
        let job = Job {
            attempt: self.waiting.attempts(&task) + 1,
            under_way: Arc::clone(&under_way),
            service,
            applied: taken.applied,
            departed,
            session,
            selector,
            targets,
            jitter: self.rng.random(),
        };
        let handle = self.jobs.spawn(sync(job, Arc::clone(&self.tools)));
        self.ids.insert(handle.id(), (task.clone(), kept));
        self.in_flight.insert(task, under_way);
    }

    /// A job is over.
    pub(super) fn finished(&mut self, done: Result<(Id, Finished), JoinError>) {
        let (id, finished) = match done {
            Ok((id, finished)) => (id, Some(finished)),
            Err(error) => (error.id(), None),
        };
        let Some((task, kept)) = self.ids.remove(&id) else {
            return;
        };
        let under_way = self.in_flight.remove(&task);
        let finished = finished.unwrap_or_else(|| {
            error!(?task, "the work on a Service broke off: a bug");
            Finished {
                applied: broken_off(under_way.as_deref(), kept),
                outcome: Outcome::Retry,
                throttle: None,
                accepted: false,
                reports: Vec::new(),
                service: None,
            }
        });
        if let Some(wait) = finished.throttle {
            self.throttled = self.throttled.max(Some(Instant::now() + wait));
        }
        self.ledger.put(&task, finished.applied);
        if finished.accepted {
            self.queue.accepted(&task);
        }
        self.queue.done(&task, finished.outcome);
        let mut again = self.ledger.overtaken(&task);
        if self.dirty.remove(&task)
            && let Task::Service(key) = &task
        {
            let now = self.context.cluster.services.get(key);
            again |= self.ledger.is_news(key, now.as_deref());
        }
        let ignores = self
            .session
            .as_ref()
            .and_then(|session| load_balancers(session))
            .is_some_and(|capability| capability.ignores_nodes);
        // While Nodes settle it may have newer targets than the others: when they have, it is looked at with them.
        let settling = self.settle.due().is_some();
        again |= !ignores && !settling && self.ledger.wants_targets(&task, &self.sets);
        if again {
            self.queue.add(task.clone());
        }
        match finished.service {
            Some(service) if !finished.reports.is_empty() => {
                self.report(&task, &service, finished.reports);
            }
            _ if !self.queue.holds(&task) => self.waiting.gone(&task),
            _ => {}
        }
        if self.looked_for.remove(&task) {
            self.look_for(task.clone());
        }
        self.tried(&task);
    }

    /// A Service was tried with the newest targets, or needs them no more.
    fn tried(&mut self, task: &Task) {
        let Some((started, waiting)) = &mut self.round else {
            return;
        };
        waiting.remove(task);
        if waiting.is_empty() {
            self.metrics
                .nodesync_latency
                .observe(started.elapsed().as_secs_f64());
            self.round = None;
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let in_flight = std::mem::take(&mut self.in_flight);
        let broken = self.ids.drain().filter_map(|(_, (task, kept))| {
            let under_way = in_flight.get(&task).map(|under_way| &**under_way);
            let applied = broken_off(under_way, kept)?;
            Some((task, applied))
        });
        self.context
            .service_memory
            .keep(broken.chain(self.ledger.leave()));
    }
}

/// What is to be remembered of a job that broke off.
fn broken_off(under_way: Option<&UnderWay>, before: Option<Applied>) -> Option<Applied> {
    match under_way {
        Some(under_way) => under_way.broken_off(before),
        None => before,
    }
}

fn load_balancers(
    session: &Session,
) -> Option<&cloud_provider_api::v1alpha1::LoadBalancerCapability> {
    session
        .info
        .capabilities
        .as_ref()
        .and_then(|all| all.load_balancers.as_ref())
}

/// Whether a provider that came back sees Nodes and Services as before.
fn says_the_same(before: &Session, now: &Session) -> bool {
    before.info.provider_name == now.info.provider_name
        && load_balancers(before) == load_balancers(now)
        && before.projection == now.projection
        && before.ownership == now.ownership
}

fn key(service: &Service) -> Key {
    Key {
        namespace: service.metadata.namespace.clone().unwrap_or_default(),
        name: service.metadata.name.clone().unwrap_or_default(),
    }
}
