//! The loop of a controller: sources make keys due, and batches of them are reconciled while the provider can be used.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::future::pending;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::LoopContext;
use super::batch::Batch;
use super::failures::Failures;
use super::gate;
use super::load::{Load, UnderWay, Width};
use super::sources::Sources;
use crate::core::lock;
use crate::provider::{Capability, ProviderStatus, Session};
use crate::queue::{Backoff, Outcome, Queue};

/// A controller.
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// Identifies one unit of work, such as an object's name. `()` if each pass reconciles everything.
    type Key: Clone + Ord + Hash + Send + Sync + 'static;

    /// Its queue, and what it shares with the loop.
    fn driver(&self) -> &Driver<Self::Key>;

    /// Adds what makes its keys due.
    fn sources<'a>(&'a self, sources: &mut Sources<'a, Self::Key>);

    /// The provider can be used, and has a new session: the keys that are due because of it.
    fn renewed(&self, session: &Arc<Session>, status: &ProviderStatus) -> Vec<Self::Key>;

    /// How much of its work may be under way at once.
    fn width(&self, session: &Arc<Session>) -> Width;

    /// Does the work of these keys, and settles each. It begins no call and no write after the stop.
    fn reconcile(
        &self,
        session: &Arc<Session>,
        batch: &Batch<'_, Self::Key>,
    ) -> impl Future<Output = ()> + Send;
}

/// What tells one controller's loop from another's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// Its name in events and in the log, as upstream has it.
    pub(crate) name: &'static str,
    /// The label of its `workqueue_*` metrics.
    pub(crate) queue: &'static str,
    /// The delays of a key that fails.
    pub(crate) backoff: Backoff,
    /// What the provider must offer.
    pub(crate) needs: Capability,
}

/// What a controller and its loop share.
pub(crate) struct Driver<K> {
    /// What the loop was started with. Events have the controller's name.
    pub(crate) context: LoopContext,
    /// The keys that are due, or will be.
    pub(crate) queue: Queue<K>,
    pub(super) name: &'static str,
    pub(super) needs: Capability,
    load: watch::Sender<Load>,
    failures: Mutex<Failures<K>>,
}

impl<K: Clone + Ord + Hash + Send + 'static> Driver<K> {
    /// Paused until the provider can be used.
    pub(crate) fn new(mut context: LoopContext, spec: Spec) -> Self {
        context.writes = context.writes.with_component(spec.name);
        let queue = Queue::new(
            spec.queue,
            spec.backoff,
            context.seed,
            &context.queue_metrics,
        );
        queue.pause();
        Self {
            queue,
            name: spec.name,
            needs: spec.needs,
            load: watch::Sender::new(Load::default()),
            failures: Mutex::new(Failures::new(context.seed)),
            context,
        }
    }

    /// The session, while the controller may use it.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.context.status.borrow().usable(self.needs)
    }

    /// The key's object is gone.
    pub(crate) fn remove(&self, key: &K) {
        self.failures().forget(key);
        self.queue.remove(key);
    }

    /// Keys that left the queue, or none: also work of no queue takes a place of a call.
    pub(crate) fn batch(&self, keys: Vec<K>) -> Batch<'_, K> {
        Batch::new(self, keys, UnderWay::call(&self.load))
    }

    /// A key whose calls are over is written for as long as this exists.
    pub(crate) fn writing(&self) -> UnderWay {
        UnderWay::write(&self.load)
    }

    /// The cloud said slow down: no batch leaves the queue before this.
    pub(super) fn slow_down(&self, until: Instant) {
        self.load
            .send_modify(|load| load.not_before = load.not_before.max(Some(until)));
    }

    /// Until when all keys wait because the cloud said slow down; `None`: they do not.
    pub(crate) fn slowed_until(&self) -> Option<Instant> {
        let until = self.load.borrow().not_before;
        until.filter(|until| *until > Instant::now())
    }

    pub(super) fn failures(&self) -> MutexGuard<'_, Failures<K>> {
        lock(&self.failures)
    }

    /// A task has ended; one that panicked is a bug.
    pub(crate) fn ended(&self, ended: Result<(), JoinError>) {
        if let Err(error) = ended {
            let provider = &self.context.provider;
            tracing::error!(%provider, controller = self.name, %error, "reconcile task panicked");
        }
    }
}

/// Runs a controller. Returns after `context.stop`, when what is in flight is over.
pub(crate) async fn run<R: Reconciler>(reconciler: &Arc<R>) {
    let mut sources = Sources::new(reconciler.driver());
    reconciler.sources(&mut sources);
    tokio::join!(
        sources.run(),
        gate::follow(&**reconciler),
        dispatch(reconciler),
    );
}

/// Reconciles batch after batch, as many at once as there is room for.
async fn dispatch<R: Reconciler>(reconciler: &Arc<R>) {
    let driver = reconciler.driver();
    let mut load = driver.load.subscribe();
    let mut status = driver.context.status.clone();
    let mut tasks = JoinSet::new();
    loop {
        let under_way = *load.borrow_and_update();
        let width = driver.session().map(|session| reconciler.width(&session));
        let width = width.filter(|width| under_way.has_room(width));
        let batch = async {
            let Some(width) = width else {
                return pending().await;
            };
            if let Some(not_before) = under_way.not_before {
                sleep_until(not_before).await;
            }
            driver.queue.next_batch(width.batch, width.linger).await
        };
        tokio::select! {
            biased;
            () = driver.context.stop.cancelled() => break,
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => driver.ended(ended),
            // Either may make or take room.
            Ok(()) = load.changed() => {}
            Ok(()) = status.changed() => {}
            keys = batch => {
                let call = UnderWay::call(&driver.load);
                let reconciler = Arc::clone(reconciler);
                tasks.spawn(async move { work(&*reconciler, keys, call).await });
            }
        }
    }
    while let Some(ended) = tasks.join_next().await {
        driver.ended(ended);
    }
}

async fn work<R: Reconciler>(reconciler: &R, keys: Vec<R::Key>, call: UnderWay) {
    let driver = reconciler.driver();
    let batch = Batch::new(driver, keys, call);
    if let Some(session) = driver.session() {
        reconciler.reconcile(&session, &batch).await;
    } else {
        // It went away in this moment.
        for key in batch.keys() {
            batch.settle(&key, Outcome::RetryTransport);
        }
    }
}
