//! What happens under the lock of the routes' state.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::span;

use super::super::Routes;
use super::super::lists::Lists;
use super::*;
use crate::controller::Reconciler as _;
use crate::provider::Capability;

/// Counts the log lines of the route controller, and those under the lock.
#[derive(Clone)]
struct Log {
    routes: Arc<Routes>,
    lines: Arc<AtomicUsize>,
    locked: Arc<AtomicUsize>,
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target().ends_with("route::lists") {
            self.lines.fetch_add(1, Ordering::Relaxed);
            if self.routes.state.try_lock().is_err() {
                self.locked.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_pass_logs_no_line_under_the_lock() {
    let world = World::new(30, |_| {}).await;
    world.plant(0..30);
    world.provider.lead();
    let usable = |status: &ProviderStatus| {
        status.usable(Capability::Routes).is_some() && status.may_delete()
    };
    let status = world.provider.until("a usable session", usable).await;
    let session = status.session.unwrap();
    let metrics = Metrics::register(&mut Registry::default());
    let routes = Arc::new(Routes::new(world.context.clone(), metrics));
    let log = Log {
        routes: Arc::clone(&routes),
        lines: Arc::default(),
        locked: Arc::default(),
    };
    // With one subscriber only, a test in another thread may switch log statements off for all.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let _logging = tracing::subscriber::set_default(log.clone());
    let pass = async || {
        let lists = Lists(Arc::clone(&routes));
        let batch = routes.lists.batch(vec![()]);
        lists.reconcile(&session, &batch).await;
        drop(batch);
        sleep(routes.period() * 2).await;
    };
    world.fault(Fault::failure("ListRoutes", FailureCode::Internal).times(1));
    pass().await;
    world.fault(Fault::new("ListRoutes", FaultKind::Ownership).times(1));
    pass().await;
    // The store has lost Nodes that the API server has.
    for i in 0..7 {
        world.api.hide(&name(i));
    }
    pass().await;
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    assert_eq!(world.api.lists(), 1);
    // The list failed, was faulty and valid again; many routes would have gone, and were kept.
    assert_eq!(count(&log.lines), 5);
    assert_eq!(count(&log.locked), 0);
}
