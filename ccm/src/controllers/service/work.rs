//! The state of one provider's loop, and what each thing that happens does to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1::LoadBalancerCapability;
use k8s_openapi::api::core::v1::Service;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{error, info, warn};

mod flights;
mod nodes;
mod orphans;
mod told;

use flights::{Flights, Landed};
pub(super) use told::HOUSEKEEPING;

use orphans::Lists;

use super::ledger::{Ledger, Task};
use super::plan::asks;
use super::sync::{Finished, Job, Tools, UnderWay, sync};
use super::targets::{NodeSelector, Pool};
use super::{Memory, Metrics};
use crate::cluster::Change;
use crate::controller::LoopContext;
use crate::core::Key;
use crate::planted::planted;
use crate::provider::{Hint, Session};
use crate::queue::{Backoff, Outcome, Queue};
use crate::report::{Away, Waiting};
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

/// Hints make at most one check of a Service in this time.
const CHECK_GAP: Duration = Duration::from_secs(10);

/// What a recheck found: the selectors that were asked about, those whose set is empty indeed.
type Rechecked = (Vec<NodeSelector>, Result<Vec<NodeSelector>, kube::Error>);

/// The loop's state.
pub(super) struct Work {
    tools: Arc<Tools>,
    pub(super) queue: Queue<Task>,
    pub(super) flights: Flights,
    pub(super) recheck: JoinSet<Rechecked>,
    pub(super) lists: Lists,
    /// Who is not done, and what they were told.
    waiting: Waiting<Task>,
    away: Away,
    /// When a hint last had, or will have, a Service checked.
    checks: BTreeMap<Task, Instant>,
    ledger: Ledger,
    session: Option<Arc<Session>>,
    /// Whether calls may be made now.
    open: bool,
    pool: Pool,
    /// Nodes that would be targets if what is sent of them was not so large.
    too_large: BTreeSet<String>,
    throttled: Option<Instant>,
    /// A settled change of Nodes, and who was not tried since.
    round: Option<(Instant, BTreeSet<Task>)>,
    rng: StdRng,
}

impl Work {
    pub(super) fn new(context: LoopContext, memory: Arc<Memory>, metrics: Metrics) -> Self {
        let queue = Queue::new("service", BACKOFF, context.seed, &context.queue_metrics);
        queue.pause();
        let rng = StdRng::seed_from_u64(context.seed);
        let lists = Lists::new(Instant::now() + context.config.service.orphan_period);
        let tools = Tools {
            provider: context.provider,
            config: context.config,
            cluster: context.cluster,
            writes: Writes {
                client: context.writes.client,
                events: context.writes.events.for_component("service-controller"),
            },
            fence: context.fence,
            status: context.status,
            stop: context.stop,
            metrics,
            memory,
            wall: context.wall,
        };
        let mut ledger = Ledger::default();
        for (task, record) in tools.memory.take() {
            let shown = match &task {
                Task::Service(key) => tools.cluster.services.get(key),
                Task::Departed(..) => None,
            };
            ledger.put(&task, Some(record.inherited(shown.as_deref())));
            queue.add(task);
        }
        Self {
            tools: Arc::new(tools),
            queue,
            flights: Flights::default(),
            recheck: JoinSet::new(),
            lists,
            waiting: Waiting::default(),
            away: Away::default(),
            checks: BTreeMap::new(),
            ledger,
            session: None,
            open: false,
            pool: Pool::default(),
            too_large: BTreeSet::new(),
            throttled: None,
            round: None,
            rng,
        }
    }

    /// What the provider's LoadBalancerService can do.
    fn capability(&self) -> Option<&LoadBalancerCapability> {
        self.session.as_deref().and_then(load_balancers)
    }

    /// How many more Services may be worked on now.
    pub(super) fn room(&self) -> usize {
        if !self.open || self.throttled.is_some() {
            return 0;
        }
        let stated = self
            .capability()
            .and_then(|capability| capability.max_in_flight)
            .map_or(0, |most| most as usize);
        let most = if stated == 0 {
            DEFAULT_IN_FLIGHT
        } else {
            stated.min(MOST_IN_FLIGHT)
        };
        let lowered = self
            .tools
            .config
            .service
            .concurrent_syncs
            .map_or(most, |wanted| most.min(wanted))
            .max(1);
        lowered.saturating_sub(self.flights.len())
    }

    pub(super) fn settled_at(&self) -> Option<Instant> {
        self.pool.settled_at()
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
            let status = self.tools.status.borrow();
            (status.working().cloned(), status.scope_accepted)
        };
        let provider = Arc::clone(&self.tools.provider);
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
                self.lists.start_over();
            }
            let first = self.session.replace(session).is_none();
            if !same {
                self.rebuild();
                if !first {
                    self.tools.metrics.unsaid(&provider);
                    // Also those that it could not serve as it was before: a class, a feature.
                    let services = self.tools.cluster.services.all();
                    let wanted = services
                        .iter()
                        .map(|service| (key(service), service))
                        .filter(|(key, service)| {
                            self.ledger.is_news(key, Some(service.as_ref()))
                                && !planted!(LaterClassesAreNotServed)
                        })
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
            if let Some(flight) = self.flights.get_mut(&task) {
                flight.changed |= !planted!(ChangeDuringWorkIsForgotten);
            } else if self.ledger.is_news(&key, change.new.as_deref()) {
                self.queue.add(task);
            } else if change.new.is_none() {
                self.queue.remove(&task);
            }
        }
    }

    pub(super) fn hinted(&mut self, hint: &Hint) {
        let in_sync = self
            .capability()
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
            self.check(task);
        }
    }

    /// A hint or a list: the Service is checked soon, or when the job is over that works on it. No retry comes earlier for it: the retry checks first, and what
    /// failed is not tried at the pace of the hints.
    fn check(&mut self, task: Task) {
        if let Some(flight) = self.flights.get_mut(&task) {
            flight.check = true;
            return;
        }
        if !self.ledger.check(&task) {
            return;
        }
        // `pending` is no failure: that it is done now is what a hint is for.
        if self.queue.due(&task).is_some() && !self.ledger.is_pending(&task) {
            return;
        }
        let now = Instant::now();
        self.checks.retain(|_, at| *at + CHECK_GAP > now);
        let at = match self.checks.get(&task) {
            Some(planned) if *planned > now => *planned,
            Some(last) => *last + CHECK_GAP,
            None => now,
        };
        self.checks.insert(task.clone(), at);
        self.queue.add_at(task, at);
    }

    /// Begins to work on a task that the queue handed out.
    pub(super) fn start(&mut self, task: Task) {
        let now = match &task {
            Task::Service(key) => self.tools.cluster.services.get(key),
            Task::Departed(..) => None,
        };
        let taken = self.ledger.take(&task, now);
        if let Some(departed) = taken.departed {
            self.queue.add(departed);
        }
        if taken.forgotten {
            error!(
                provider = %self.tools.provider,
                ?task,
                "too many load balancers without a Service wait to be deleted: that of this one is not; the list of load balancers finds it later"
            );
        }
        let (Some(service), Some(session)) = (taken.service, self.session.clone()) else {
            self.ledger.put(&task, taken.record);
            self.queue.done(&task, Outcome::Forget);
            self.queue.remove(&task);
            self.tried(&task);
            return;
        };
        let departed = matches!(task, Task::Departed(..));
        let owner = session.ownership.service_owner(&service) == Some(self.tools.provider.as_ref());
        let needs = asks(&service) && owner && !departed;
        let selector = NodeSelector::of(&service);
        if let Task::Service(key) = &task {
            let used = selector.as_ref().ok().filter(|_| needs).cloned();
            self.ledger.uses(key, used);
        }
        let targets = match (&selector, needs) {
            (Ok(selector), true) => {
                let set = self.pool.targets_now(selector);
                if set.is_none() {
                    self.doubt();
                    self.ledger.put(&task, taken.record);
                    self.queue
                        .done(&task, Outcome::At(Instant::now() + TARGETS_AGAIN));
                    return;
                }
                set
            }
            _ => None,
        };
        let uid = service.metadata.uid.as_deref();
        self.waiting.seen(&task, uid, None, Instant::now());
        let under_way = Arc::new(UnderWay::new(taken.record.clone()));
        let job = Job {
            attempt: self.waiting.attempts(&task) + 1,
            under_way: Arc::clone(&under_way),
            service,
            record: taken.record,
            departed,
            session,
            selector,
            targets,
            jitter: self.rng.random(),
        };
        let work = sync(job, Arc::clone(&self.tools));
        self.flights.start(task, under_way, work);
    }

    /// A job is over.
    pub(super) fn finished(&mut self, landed: Landed) {
        let Landed {
            task,
            flight,
            finished,
        } = landed;
        let finished = finished.unwrap_or_else(|| {
            error!(?task, "the work on a Service broke off: a bug");
            Finished {
                record: flight.under_way.broken_off(),
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
        self.ledger.put(&task, finished.record);
        if finished.accepted {
            self.queue.accepted(&task);
        }
        self.queue.done(&task, finished.outcome);
        let mut again = self.ledger.overtaken(&task);
        if flight.changed
            && let Task::Service(key) = &task
        {
            let now = self.tools.cluster.services.get(key);
            again |= self.ledger.is_news(key, now.as_deref());
        }
        let ignores = self
            .capability()
            .is_some_and(|capability| capability.ignores_nodes);
        // While Nodes settle it may have newer targets than the others: when they have, it is looked at with them.
        let settling = self.pool.settled_at().is_some();
        again |= !ignores && !settling && self.ledger.wants_targets(&task, &self.pool.sets);
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
        if flight.check {
            self.check(task.clone());
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
            self.tools
                .metrics
                .nodesync_latency
                .observe(started.elapsed().as_secs_f64());
            self.round = None;
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let broken = self.flights.broken_off();
        self.tools.memory.keep(broken.chain(self.ledger.leave()));
    }
}

fn load_balancers(session: &Session) -> Option<&LoadBalancerCapability> {
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
