//! Executes the plans of destinations: deletes and creates their routes, in batches.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use futures::stream::{Stream, StreamExt};
use ipnet::IpNet;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::ledger::{Due, Ended};
use super::plan::Task;
use super::{RESYNC, Routes, State};
use crate::controller::{Batch, Driver, Reconciler, Width, lowered};
use crate::core::lock;
use crate::provider::lookup::{self, Divided, Lookup};
use crate::provider::{CallError, CallErrorCode, Capability, ProviderStatus, Session};
use crate::queue::Requeue;

/// How long a batch waits, so that the destinations of one pass need few calls.
const LINGER: Duration = Duration::from_millis(5);
/// The most names in a line of the log.
const NAMED: usize = 5;

/// Reconciles destinations. Passes make them due.
pub(super) struct Calls(pub(super) Arc<Routes>);

impl Reconciler for Calls {
    type Key = IpNet;

    fn driver(&self) -> &Driver<IpNet> {
        &self.0.calls
    }

    async fn sources(&self) {}

    fn renewed(&self, _: &Arc<Session>, _: &ProviderStatus) -> Vec<IpNet> {
        Vec::new()
    }

    fn width(&self, session: &Arc<Session>) -> Width {
        Width {
            batch: session.max_route_batch(),
            linger: LINGER,
            calls: self.0.permits(session).0,
            writes: 1,
        }
    }

    async fn reconcile(&self, session: &Arc<Session>, batch: &Batch<'_, IpNet>) {
        let routes = &*self.0;
        let _lost = Unsettled(routes, batch);
        let mut work = Work {
            routes,
            session,
            batch,
            chains: Mutex::default(),
        };
        let (deletes, creates) = work.begin();
        tokio::join!(work.remove(deletes), work.create(creates));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    Delete,
}

/// A route in a call.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) destination: IpNet,
    pub(super) route: api::Route,
    /// How long its call took.
    pub(super) took: Duration,
}

impl lookup::Item for Item {
    type Key = (IpNet, String);

    fn key(&self) -> Option<Self::Key> {
        Some((self.destination, self.route.route_key.clone()))
    }
}

impl Item {
    fn new(destination: IpNet, route: api::Route) -> Self {
        let took = Duration::ZERO;
        Self {
            destination,
            route,
            took,
        }
    }
}

/// The work on a destination with routes to delete. If a route to it is planned, that route is
/// created after the deletions, if all succeed.
struct Chain {
    task: Task,
    /// Deletions that have not ended.
    left: usize,
    /// The first failure: its route, the error, and whether the whole call failed.
    failed: Option<(Item, CallError, bool)>,
}

/// The work of one batch.
struct Work<'a> {
    routes: &'a Routes,
    session: &'a Arc<Session>,
    batch: &'a Batch<'a, IpNet>,
    chains: Mutex<BTreeMap<IpNet, Chain>>,
}

impl Work<'_> {
    /// The routes to delete, and the routes to create at once. A destination without a valid plan
    /// waits for a list, unless nothing is left to do.
    fn begin(&mut self) -> (Vec<Item>, Vec<Item>) {
        let (mut deletes, mut creates) = (Vec::new(), Vec::new());
        let now = Instant::now();
        let mut state = self.routes.state();
        let listed = Arc::downgrade(self.session).ptr_eq(&state.session);
        let chains = self
            .chains
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for destination in self.batch.keys() {
            let task = match state.ledger.begin(&destination, listed, now) {
                Due::Work(task) => *task,
                Due::List => {
                    self.routes.lists.queue.add(());
                    let waits = Requeue::At(now + RESYNC);
                    self.batch.settle(&destination, waits);
                    continue;
                }
                Due::Nothing => {
                    self.batch.settle(&destination, Requeue::Forget);
                    continue;
                }
            };
            if task.delete.is_empty() {
                let create = task.create.into_iter();
                creates.extend(create.map(|route| Item::new(destination, route)));
                continue;
            }
            let routes = task.delete.iter().cloned();
            deletes.extend(routes.map(|route| Item::new(destination, route)));
            let chain = Chain {
                left: task.delete.len(),
                failed: None,
                task,
            };
            chains.insert(destination, chain);
        }
        (deletes, creates)
    }

    /// Makes one call for each part of these items. If a route may have made its call fail, smaller
    /// calls repeat the items of that call.
    fn call(&self, kind: Kind, items: Vec<Item>) -> impl Stream<Item = Divided<Item, ()>> {
        let isolated = &self.routes.isolated;
        let parts = self
            .session
            .route_batches(isolated, items, |item| &item.route);
        lookup::divide(parts, move |mut items: Vec<Item>| async move {
            let (_, permits) = self.routes.permits(self.session);
            // The semaphore is never closed.
            let _permit = permits.acquire().await;
            let began = Instant::now();
            let outcome = self.routes.call(self.session, kind, &items).await;
            for item in &mut items {
                item.took = began.elapsed();
            }
            (items, outcome)
        })
    }

    async fn remove(&self, items: Vec<Item>) {
        self.call(Kind::Delete, items)
            .for_each_concurrent(None, |called| self.replace(called))
            .await;
    }

    async fn replace(&self, called: Divided<Item, ()>) {
        let follow = self.removed(called);
        self.create(follow).await;
    }

    async fn create(&self, items: Vec<Item>) {
        let calls = self.call(Kind::Create, items);
        calls
            .for_each(|called| {
                self.created(called);
                ready(())
            })
            .await;
    }

    /// Handles the results of a create call.
    fn created(&self, called: Divided<Item, ()>) {
        self.routes.log(Kind::Create, &called);
        let mut state = self.routes.state();
        for result in self.each(called) {
            let (item, whole) = (result.item, result.whole);
            match result.answer {
                Ok(()) => {
                    let (destination, now) = (item.destination, Instant::now());
                    let ledger = &mut state.ledger;
                    ledger.created(destination, &item.route, Ended::Done, now);
                    self.done(&mut state, destination);
                }
                Err(trouble) => {
                    self.failed(&mut state, Kind::Create, true, &item, &trouble, whole);
                }
            }
        }
    }

    /// Handles the results of a delete call. Returns the routes to create after it.
    fn removed(&self, called: Divided<Item, ()>) -> Vec<Item> {
        self.routes.log(Kind::Delete, &called);
        let mut state = self.routes.state();
        let mut chains = lock(&self.chains);
        let mut follow = Vec::new();
        for result in self.each(called) {
            let (item, whole) = (result.item, result.whole);
            let destination = item.destination;
            let Some(chain) = chains.get_mut(&destination) else {
                continue;
            };
            chain.left = chain.left.saturating_sub(1);
            match result.answer {
                Ok(()) => state.ledger.removed(&destination, &item.route),
                Err(trouble) => {
                    chain.failed.get_or_insert((item, trouble, whole));
                }
            }
            if chain.left > 0 {
                continue;
            }
            let Some(Chain { task, failed, .. }) = chains.remove(&destination) else {
                continue;
            };
            let in_the_way = task.in_the_way;
            match (failed, task.create) {
                (Some((item, trouble, whole)), _) => {
                    self.failed(&mut state, Kind::Delete, in_the_way, &item, &trouble, whole);
                }
                (None, Some(create)) => follow.push(Item::new(destination, create)),
                (None, None) => {
                    let now = Instant::now();
                    let ledger = &mut state.ledger;
                    ledger.deleted(destination, in_the_way, Ended::Done, now);
                    self.done(&mut state, destination);
                }
            }
        }
        follow
    }

    /// The result of each route in a call.
    fn each(&self, (items, outcome): Divided<Item, ()>) -> Vec<Lookup<(), Item>> {
        let each = lookup::of_call(items, outcome);
        self.routes.isolated.learn(&each);
        each
    }

    fn done(&self, state: &mut State, destination: IpNet) {
        self.batch.answered(&destination);
        self.batch.settle(&destination, Requeue::Forget);
        self.routes.concluded(state, &destination);
    }

    /// `in_the_way`: this failure keeps the Node's own route from being created.
    fn failed(
        &self,
        state: &mut State,
        kind: Kind,
        in_the_way: bool,
        item: &Item,
        trouble: &CallError,
        whole: bool,
    ) {
        let (destination, now) = (item.destination, Instant::now());
        let (ended, event) = if trouble.code == CallErrorCode::Fenced {
            self.batch.settle(&destination, Requeue::RetryTransport);
            (Ended::Unsent, None)
        } else {
            let failed = self.batch.failed(&destination, trouble);
            // Refused credentials get no event at once: the report follows if they last (▲R9).
            let event = failed.event && trouble.code != CallErrorCode::Credentials;
            match trouble.code {
                CallErrorCode::Busy if !failed.event && !whole => (Ended::Busy, None),
                _ => (Ended::Failed(trouble), Some(event)),
            }
        };
        match kind {
            Kind::Create => state.ledger.created(destination, &item.route, ended, now),
            Kind::Delete => state.ledger.deleted(destination, in_the_way, ended, now),
        }
        let node = state.ledger.node_of(&destination);
        // The destination may be another Node's by now.
        let node = node.filter(|node| kind == Kind::Delete || node.uid == item.route.name_hint);
        if in_the_way && let (Some(node), Some(event)) = (node, event) {
            self.routes
                .not_routed(state, &node, item, kind, trouble, event);
        }
        self.routes.concluded(state, &destination);
    }
}

impl Routes {
    /// How many calls that change routes may run at once, and the permits for them. One place of
    /// `max_in_flight` stays free for the list, if there are several.
    fn permits(&self, session: &Arc<Session>) -> (usize, Arc<Semaphore>) {
        self.permits.of(session, || {
            let most = session.limiters.routes.width.saturating_sub(1);
            lowered(most, self.context().config.route.concurrent_syncs)
        })
    }

    /// Creates or deletes these routes. Returns `Fenced` if the ccm must not do that now.
    pub(super) async fn call(
        &self,
        session: &Arc<Session>,
        kind: Kind,
        items: &[Item],
    ) -> Result<Vec<Result<(), CallError>>, CallError> {
        if !self.may_send(session, kind) {
            let why = "the provider or the process may not change routes any more";
            return Err(CallError::new(CallErrorCode::Fenced, why));
        }
        let routes = items.iter().map(|item| item.route.clone()).collect();
        let fence = &self.context().fence;
        match kind {
            Kind::Create => session.create_routes(fence, routes).await,
            Kind::Delete => session.delete_routes(fence, routes).await,
        }
    }

    fn may_send(&self, session: &Arc<Session>, kind: Kind) -> bool {
        let context = self.context();
        let may_delete = || context.status.borrow().may_delete();
        !context.stop.is_cancelled()
            && self.is_current(session)
            && (kind == Kind::Create || may_delete())
    }

    pub(super) fn is_current(&self, session: &Arc<Session>) -> bool {
        let current = self.context().status.borrow().usable(Capability::Routes);
        current.is_some_and(|current| Arc::ptr_eq(&current, session))
    }

    /// The work on this destination has ended for now.
    fn concluded(&self, state: &mut State, destination: &IpNet) {
        if !state.ledger.is_failing(destination) {
            state.waiting.gone(destination);
        }
        if state.ledger.take_look_again() {
            self.lists.queue.add(());
        }
        if let Some(node) = state.ledger.node_of(destination) {
            self.conclude(state, &node);
        }
    }

    /// Logs the result of a call: a line for the routes that succeeded, and one for those that
    /// failed.
    fn log(&self, kind: Kind, (items, outcome): &Divided<Item, ()>) {
        let provider = &self.context().provider;
        let what = match kind {
            Kind::Create => "made",
            Kind::Delete => "removed",
        };
        let answers = match outcome {
            Ok(answers) => answers,
            Err(trouble) if trouble.code == CallErrorCode::Fenced => return,
            Err(trouble) => {
                let (routes, first) = (items.len(), items.first().map(shown));
                tracing::warn!(%provider, routes, first, call_id = trouble.call_id(), error = %trouble, "the call failed as a whole: its routes may not be {what}");
                return;
            }
        };
        let done = answers.iter().filter(|answer| answer.is_ok()).count();
        let each = || items.iter().zip(answers);
        if let Some(took) = items.first().map(|item| item.took).filter(|_| done > 0) {
            let good = each().filter(|(_, answer)| answer.is_ok());
            let names: Vec<&str> = good.map(|(item, _)| shown(item)).take(NAMED).collect();
            tracing::info!(%provider, routes = done, first = ?names, ?took, "routes {what}");
        }
        let first = each().find_map(|(item, answer)| Some((item, answer.as_ref().err()?)));
        if let Some((item, trouble)) = first {
            let routes = answers.len() - done;
            tracing::warn!(%provider, routes, first = shown(item), call_id = trouble.call_id(), error = %trouble, "routes not {what}");
        }
    }
}

fn shown(item: &Item) -> &str {
    match &item.route.node_name {
        Some(name) => name,
        None => &item.route.destination_cidr,
    }
}

/// When it is dropped, it tells the ledger that each unsettled destination of the batch has no
/// result.
struct Unsettled<'a>(&'a Routes, &'a Batch<'a, IpNet>);

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        let (left, now) = (self.1.keys(), Instant::now());
        let mut state = self.0.state();
        for destination in left {
            state.ledger.lost(&destination, now);
        }
    }
}
