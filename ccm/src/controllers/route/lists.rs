//! A pass: lists the provider's routes and plans the work for each destination.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use rand::RngExt;
use tokio::time::{Instant, timeout};

use super::facts::{NodeFacts, matters};
use super::plan::{self, Look, Pass, Task, deletions};
use super::{RESYNC, Routes, State};
use crate::cluster::Change;
use crate::controller::{Batch, Driver, Reconciler, Wake, Width, changes, hints};
use crate::provider::{CallError, Hint, ProviderStatus, Retry, Session};
use crate::queue::Requeue;
use crate::writes::WriteError;

/// Changes within this time make one pass.
const LINGER: Duration = Duration::from_millis(500);
/// The time limit for listing all Nodes from the API server.
const READ: Duration = Duration::from_mins(1);

/// Reconciles all routes together. Its key is the pass.
pub(super) struct Lists(pub(super) Arc<Routes>);

impl Reconciler for Lists {
    type Key = ();

    fn driver(&self) -> &Driver<()> {
        &self.0.lists
    }

    async fn sources(&self) {
        let routes = &*self.0;
        let (driver, nodes) = (&routes.lists, &routes.context().cluster.nodes);
        let wakes = |change: &Change<Node>| {
            routes.follow_condition(change);
            routes.is_changed(change).then_some(Wake::Due(()))
        };
        let about = |hint: &Hint| match hint {
            Hint::Routes | Hint::Resync => vec![()],
            Hint::Instance { .. } | Hint::LoadBalancer { .. } => Vec::new(),
        };
        tokio::join!(
            changes(driver, nodes, wakes),
            hints(driver, Duration::ZERO, routes.period(), about),
            routes.follow_readiness(),
        );
    }

    /// Makes a pass due at once if there is a Node to route. Otherwise it is due after the period,
    /// or at an earlier change or hint.
    fn renewed(&self, session: &Arc<Session>, _: &ProviderStatus) -> Vec<()> {
        self.0.state().ownership = Some(Arc::clone(&session.ownership));
        if self.0.facts(session).iter().any(NodeFacts::is_routed) {
            return vec![()];
        }
        let later = Instant::now() + self.0.period();
        self.0.lists.queue.add_at((), later);
        Vec::new()
    }

    fn width(&self, _: &Arc<Session>) -> Width {
        Width {
            // A batch is never full, so each pass lingers.
            batch: 2,
            linger: LINGER,
            calls: 1,
            writes: 1,
        }
    }

    async fn reconcile(&self, session: &Arc<Session>, batch: &Batch<'_, ()>) {
        let (routes, asked_at) = (&*self.0, Instant::now());
        if let Some(earliest) = routes.begin_list(session, asked_at) {
            return batch.settle(&(), Requeue::At(earliest));
        }
        let stop = &routes.context().stop;
        let Some(listed) = stop.run_until_cancelled(session.list_routes()).await else {
            return;
        };
        batch.called();
        let listed = match listed {
            Ok(listed) => listed,
            Err(trouble) => return routes.no_list(&trouble, batch),
        };
        batch.answered(&());
        if !routes.is_current(session) {
            // The next pass lists the routes with the current session.
            return routes.list_again(batch, Instant::now());
        }
        let (next, doubtful) = routes.listed(session, asked_at, &listed);
        if !doubtful.is_empty() {
            routes.confirm(session, asked_at, &listed, &doubtful).await;
        }
        // No other pass begins before, so the second look judges the newest list.
        routes.list_again(batch, next);
    }
}

/// The changes since the last pass that [`Routes::tell`] logs.
struct News {
    /// The contract violation of a listed route.
    complaint: Option<String>,
    /// The list is valid again.
    valid: bool,
    /// It keeps more routes that should go.
    held: bool,
}

impl Routes {
    /// Whether a change of a Node needs a pass. Before the first session, the owner of a Node is
    /// unknown, so no change needs a pass. That session makes a pass due.
    fn is_changed(&self, change: &Change<Node>) -> bool {
        let Some(ownership) = self.state().ownership.clone() else {
            return false;
        };
        let provider = &self.context().provider;
        let facts =
            |node: Option<&Arc<Node>>| node.map(|node| NodeFacts::of(node, &ownership, provider));
        let (old, new) = (facts(change.old.as_ref()), facts(change.new.as_ref()));
        matters(old.as_ref(), new.as_ref())
    }

    /// Begins a pass. `Some`: it must wait until then, because passes begin at least one period
    /// apart (▲R6).
    fn begin_list(&self, session: &Arc<Session>, now: Instant) -> Option<Instant> {
        let mut state = self.state();
        let earliest = self.earliest(&state).filter(|earliest| *earliest > now);
        if earliest.is_some() {
            return earliest;
        }
        state.last_list = Some(now);
        let current = Arc::downgrade(session);
        if !current.ptr_eq(&state.session) {
            state.session = current;
            state.ledger.forget_plans();
        }
        self.metrics.synced.inc();
        None
    }

    /// The earliest time of the next pass.
    pub(super) fn earliest(&self, state: &State) -> Option<Instant> {
        state.last_list.map(|last| last + self.period())
    }

    /// Ends a pass with a list, so that the next failure begins a new backoff. The next pass is due
    /// then, or earlier if something made it due meanwhile.
    fn list_again(&self, batch: &Batch<'_, ()>, then: Instant) {
        batch.settle(&(), Requeue::Idle);
        self.lists.queue.add_at((), then);
    }

    fn no_list(&self, trouble: &CallError, batch: &Batch<'_, ()>) {
        let failed = batch.reaction(&(), trouble);
        // No change of an object makes the list succeed.
        let outcome = match failed.retry {
            Retry::WhenChangedElse(_) if trouble.retry_after.is_none() => Requeue::Retry,
            retry => retry.outcome(Instant::now()),
        };
        batch.settle(&(), outcome);
        let provider = &self.context().provider;
        let complaint = Some(trouble.message.clone());
        let former = std::mem::replace(&mut self.state().complaint, complaint);
        if former.as_ref() != Some(&trouble.message) {
            tracing::warn!(%provider, call_id = trouble.call_id(), error = %trouble, "ListRoutes failed: planning no create and no delete");
        }
        self.metrics
            .found(provider, format!("routes cannot be listed: {trouble}"));
    }

    /// Plans the work that follows from a list. Returns when the next pass is due, and which tasks
    /// need a second check of the Nodes.
    fn listed(
        &self,
        session: &Session,
        asked_at: Instant,
        routes: &[api::Route],
    ) -> (Instant, Vec<Task>) {
        let nodes = self.facts(session);
        let mut state = self.state();
        let mut pass = self.pass(&mut state, session, asked_at, routes, &nodes);
        let news = self.news(&mut state, &mut pass);
        let tasks = std::mem::take(&mut pass.tasks);
        let (ready, doubtful) = if pass.needs_second_look {
            tasks.into_iter().partition(|task| task.delete.is_empty())
        } else {
            (tasks, Vec::new())
        };
        self.plan(&mut state, ready);
        for node in state.ledger.nodes() {
            self.conclude(&state, &node);
        }
        let now = Instant::now();
        let next = if pass.again {
            now
        } else {
            now + RESYNC.mul_f64(state.random.random_range(1.0..=1.25))
        };
        drop(state);
        self.tell(&pass, &news);
        if !doubtful.is_empty() {
            tracing::warn!(
                provider = %self.context().provider,
                routes = deletions(&doubtful),
                of = pass.inside,
                "many routes would go: reading the Nodes from the API server first"
            );
        }
        (next, doubtful)
    }

    /// Makes the destinations of these tasks due, except those that wait after a failure.
    fn plan(&self, state: &mut State, tasks: Vec<Task>) {
        let now = Instant::now();
        for task in tasks {
            let destination = task.destination;
            if state.ledger.plan(task, now) {
                self.calls.queue.add(destination);
            }
        }
    }

    fn pass(
        &self,
        state: &mut State,
        session: &Session,
        asked_at: Instant,
        routes: &[api::Route],
        nodes: &[NodeFacts],
    ) -> Pass {
        let context = self.context();
        let viewed = context.cluster.nodes.is_synced() && !nodes.is_empty();
        let look = Look {
            nodes,
            routes,
            cluster_cidrs: &context.config.cluster.cidrs,
            tracks_addresses: session
                .route_capability()
                .is_some_and(|routes| routes.tracks_node_addresses),
            may_delete: viewed && context.status.borrow().may_delete(),
            asked_at,
        };
        let pass = plan::pass(&mut state.ledger, &look);
        self.isolated
            .keep(|(destination, _)| state.ledger.has(destination));
        for destination in &pass.settled {
            self.calls.remove(destination);
        }
        pass
    }

    /// ▲R7: reads the Nodes from the API server, and removes the routes that are wrong for these
    /// Nodes and for those in the cache. A Node may have joined while the API server answered.
    async fn confirm(
        &self,
        session: &Arc<Session>,
        asked_at: Instant,
        routes: &[api::Route],
        first: &[Task],
    ) {
        let (context, provider) = (self.context(), &self.context().provider);
        let mut nodes = Vec::new();
        let list = context.writes.list_nodes(|node| {
            nodes.push(NodeFacts::of(node, &session.ownership, provider));
            true
        });
        let Some(listed) = context.stop.run_until_cancelled(timeout(READ, list)).await else {
            return;
        };
        let listed = listed.unwrap_or_else(|_| {
            let text = format!("no answer within {} s", READ.as_secs());
            Err(WriteError::Unavailable(text))
        });
        if let Err(error) = listed {
            tracing::warn!(%provider, %error, "deleting no route: cannot read the Nodes from the API server");
            return self.lists.queue.add(());
        }
        if !self.is_current(session) {
            // The same session may be usable again later, which alone makes no pass due.
            return self.lists.queue.add(());
        }
        let nodes = plan::in_either(self.facts(session), nodes);
        let mut state = self.state();
        let second = self.pass(&mut state, session, asked_at, routes, &nodes);
        let tasks = plan::confirmed(first, second.tasks);
        let kept = deletions(first).saturating_sub(deletions(&tasks));
        self.plan(&mut state, tasks);
        drop(state);
        if kept > 0 {
            tracing::warn!(
                %provider,
                kept,
                "keeping routes: the API server and the cache have different Nodes"
            );
            self.lists.queue.add(());
        }
    }

    /// Publishes the result of a pass. Returns what is new in it, and leaves only new clashes.
    fn news(&self, state: &mut State, pass: &mut Pass) -> News {
        let provider = &self.context().provider;
        let complaint = pass.faults.first().map(|(route, what)| {
            format!("the route {route:?} of the listing breaks the contract: {what}; the ccm leaves routes to its destination alone")
        });
        let news = News {
            complaint: complaint.clone().filter(|_| complaint != state.complaint),
            valid: complaint.is_none() && state.complaint.is_some(),
            held: pass.held > state.held,
        };
        state.held = pass.held;
        self.metrics
            .found(provider, pass.summary(complaint.as_deref()));
        state.complaint = complaint;
        let clashes: BTreeSet<(String, IpNet)> = pass
            .clashes
            .iter()
            .map(|(node, cidr, _)| (node.uid.clone(), *cidr))
            .collect();
        let known = std::mem::replace(&mut state.clashes, clashes);
        pass.clashes
            .retain(|(node, cidr, _)| !known.contains(&(node.uid.clone(), *cidr)));
        news
    }

    /// Logs and reports what is new in a pass.
    fn tell(&self, pass: &Pass, news: &News) {
        let provider = &self.context().provider;
        if news.complaint.is_some() {
            tracing::warn!(%provider, faults = pass.faults.len(), error = news.complaint.as_deref(), "leaving routes alone");
        }
        if news.valid {
            tracing::info!(%provider, "ListRoutes gives a valid list again");
        }
        if news.held {
            tracing::info!(
                %provider,
                routes = pass.held,
                "keeping routes that should go: the provider is not READY, or no Node is known"
            );
        }
        for (node, cidr, other) in &pass.clashes {
            self.report_clash(node, cidr, other);
        }
    }
}
