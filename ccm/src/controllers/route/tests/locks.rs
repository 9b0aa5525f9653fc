//! What happens under the lock of the routes' state.

use std::sync::Arc;

use super::super::Routes;
use super::super::lists::Lists;
use super::*;
use crate::controller::Reconciler as _;
use crate::core::{at_each_line, lock};
use crate::provider::Capability;

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
    let logged = Arc::clone(&routes);
    let (was_free, _logging) = at_each_line("ccm::controllers::route::lists=trace", move || {
        logged.state.try_lock().is_ok()
    });
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
    assert_eq!(world.api.lists(), 1);
    // The list failed, was faulty and valid again; many routes would have gone, and were kept.
    assert_eq!(*lock(&was_free), [true; 5]);
}
