//! The loop of a controller: sources make keys due, and batches of them are reconciled while the
//! provider can be used.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::pending;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::LoopContext;
use super::batch::Batch;
use super::failures::Failures;
use super::gate::Gate;
use super::load::{Load, UnderWay, Width};
use crate::core::{Backoff, lock};
use crate::provider::{Capability, ProviderStatus, Session};
use crate::queue::{Queue, Requeue};
use crate::report::{Away, Next};

/// How often a controller checks which objects wait too long.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// A controller, or one of its loops.
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// Identifies one unit of work, such as an object's name. `()` if each pass reconciles
    /// everything.
    type Key: Clone + Ord + Hash + Send + Sync + 'static;

    /// The controller's queue, and the state that it shares with the loop.
    fn driver(&self) -> &Driver<Self::Key>;

    /// Runs the sources that make keys due. The loop drops them at the stop.
    fn sources(&self) -> impl Future<Output = ()> + Send;

    /// The provider is usable and has a new session. Returns the keys that this makes due.
    fn renewed(&self, session: &Arc<Session>, status: &ProviderStatus) -> Vec<Self::Key>;

    /// How much of the controller's work may be in progress at once.
    fn width(&self, session: &Arc<Session>) -> Width;

    /// Reconciles these keys and settles each. It begins no call after the stop, and no write
    /// except those of a finished call's results.
    fn reconcile(
        &self,
        session: &Arc<Session>,
        batch: &Batch<'_, Self::Key>,
    ) -> impl Future<Output = ()> + Send;
}

/// The settings of a controller's loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// The name in events and in the log: upstream's, if upstream has the controller.
    pub(crate) name: &'static str,
    /// The `name` label of its `workqueue_*` metrics.
    pub(crate) queue: &'static str,
    /// The delays of a key that fails repeatedly.
    pub(crate) backoff: Backoff,
    /// The capability that the provider must offer.
    pub(crate) needs: Capability,
}

/// The state that a controller and its loop share.
pub(crate) struct Driver<K> {
    /// The inputs of the loop. `writes` records events under the controller's name.
    pub(crate) context: LoopContext,
    pub(crate) queue: Queue<K>,
    pub(super) name: &'static str,
    pub(super) needs: Capability,
    load: watch::Sender<Load>,
    failures: Mutex<Failures<K>>,
}

impl<K: Clone + Ord + Hash + Send + 'static> Driver<K> {
    pub(crate) fn new(mut context: LoopContext, spec: Spec) -> Self {
        context.writes = context.writes.with_component(spec.name);
        let queue = Queue::new(
            spec.queue,
            spec.backoff,
            context.seed,
            &context.queue_metrics,
        );
        Self {
            queue,
            name: spec.name,
            needs: spec.needs,
            load: watch::Sender::new(Load::default()),
            failures: Mutex::new(Failures::new(context.seed)),
            context,
        }
    }

    /// The session, if the controller may use it.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.context.status.borrow().usable(self.needs)
    }

    /// The key's object is gone.
    pub(crate) fn remove(&self, key: &K) {
        self.failures().forget(key);
        self.queue.remove(key);
    }

    /// A batch of keys that left the queue. Work without a queue takes an empty batch, so that its
    /// calls count too.
    pub(crate) fn batch(&self, keys: Vec<K>) -> Batch<'_, K> {
        Batch::new(self, keys, UnderWay::call(&self.load))
    }

    /// Counts a write of a key, whose calls have ended, until the result is dropped.
    pub(crate) fn writing(&self) -> UnderWay {
        UnderWay::write(&self.load)
    }

    /// THROTTLED: no batch leaves the queue before this time.
    pub(super) fn slow_down(&self, until: Instant) {
        self.load
            .send_modify(|load| load.not_before = load.not_before.max(Some(until)));
    }

    /// Until when THROTTLED makes all keys wait. `None`: it makes none wait.
    pub(crate) fn slowed_until(&self) -> Option<Instant> {
        let until = self.load.borrow().not_before;
        until.filter(|until| *until > Instant::now())
    }

    /// When the ccm tries this key next. `None`: the key is not waiting. `when_changed`: a change
    /// of the object leads to another attempt at once.
    pub(crate) fn next(&self, key: &K, when_changed: bool) -> Option<Next> {
        let due = self.queue.due(key)?;
        if self.session().is_none() {
            return Some(Next::WhenBack);
        }
        let at = due.max(self.slowed_until().unwrap_or(due));
        let at = self.context.wall_time(at);
        Some(if when_changed {
            Next::WhenChangedOr(at)
        } else {
            Next::At(at)
        })
    }

    /// Calls `report` every [`HOUSEKEEPING`] until the stop, also while the provider is unavailable
    /// (▲N13). Its argument is how long an object waits before its event.
    pub(crate) async fn housekeep(&self, mut report: impl FnMut(Duration)) {
        let (stop, status) = (&self.context.stop, &self.context.status);
        let mut ticks = interval(HOUSEKEEPING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut away = Away::default();
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let patience = away.patience(&status.borrow(), Instant::now());
            report(patience);
        }
        // After this report, no `ccm` reports until there is a new leader.
        if status.borrow().working().is_none() {
            report(Duration::ZERO);
        }
    }

    pub(super) fn failures(&self) -> MutexGuard<'_, Failures<K>> {
        lock(&self.failures)
    }

    /// A task has ended. A panic is logged as an error, because it is a bug.
    pub(crate) fn ended(&self, ended: Result<(), JoinError>) {
        if let Err(error) = ended {
            let provider = &self.context.provider;
            tracing::error!(%provider, controller = self.name, %error, "reconcile task panicked");
        }
    }
}

/// Runs a controller. Returns after `context.stop`, when the work in flight has ended.
pub(crate) async fn run<R: Reconciler>(reconciler: &Arc<R>) {
    let stop = &reconciler.driver().context.stop;
    // The sources come first, so they have subscribed before the first session is used.
    tokio::join!(
        stop.run_until_cancelled(reconciler.sources()),
        dispatch(reconciler),
    );
}

/// Reconciles batches, as many at once as the width allows. While the provider is unusable, keys
/// wait in the queue.
async fn dispatch<R: Reconciler>(reconciler: &Arc<R>) {
    let driver = reconciler.driver();
    let mut load = driver.load.subscribe();
    let mut status = driver.context.status.clone();
    let mut tasks = JoinSet::new();
    let mut gate = Gate::default();
    loop {
        let under_way = *load.borrow_and_update();
        // Keeps no session while waiting: the last user of a session frees it.
        let session = gate.session(&**reconciler);
        let width = session.map(|session| reconciler.width(&session));
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
            // Load and status decide how many batches may run.
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
        // The provider became unusable after the batch left the queue.
        for key in batch.keys() {
            batch.settle(&key, Requeue::RetryTransport);
        }
    }
}
