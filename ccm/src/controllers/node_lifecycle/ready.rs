//! Nodes that are Ready again lose the shutdown taint (B-L3). That needs no provider, and waits for no lookup.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::{act, owned, plan};
use crate::controller::LoopContext;
use crate::ownership::Ownership;

/// Every period, until `context.stop`.
pub(super) async fn watch(context: &LoopContext) {
    let period = context.config.node_lifecycle.monitor_period;
    let mut ownership = None;
    loop {
        let start = Instant::now();
        if let Some(now) = known(context) {
            ownership = Some(now);
        }
        if let Some(ownership) = &ownership {
            take_taints_off(context, ownership).await;
        }
        let next = sleep_until(start + period);
        if context.stop.run_until_cancelled(next).await.is_none() {
            return;
        }
    }
}

/// Which Nodes are the provider's; `None` while it is away: then it is as it was.
fn known(context: &LoopContext) -> Option<Arc<Ownership>> {
    let status = context.status.borrow();
    if let Some(session) = &status.session {
        return Some(Arc::clone(&session.ownership));
    }
    // It is there, and cannot be initialised.
    let info = status.info.as_deref()?;
    let ownership = Ownership::of(&[(&context.provider, info)], None).ok()?;
    Some(Arc::new(ownership))
}

/// Nodes that are Ready again.
pub(super) async fn take_taints_off(context: &LoopContext, ownership: &Ownership) {
    let nodes = owned(context, ownership);
    let tainted = nodes.into_iter().filter_map(|node| {
        let taints = plan::without_shutdown_taint(&node)?;
        Some((node, taints))
    });
    act::set_all_taints(context, tainted.collect(), "removed").await;
}
