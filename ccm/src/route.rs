//! The route controller (B-R1 to ▲R7): a route to the Pods of each Node.
//!
//! ```text
//! a change of Nodes, a hint, a provider that is back, something to retry: list -> plan::pass -> delete, create -> conditions
//! ```
//!
//! A look never waits for the calls of the one before: a destination that somebody works on is passed over, so that one route that hangs keeps no
//! other waiting (▲M10).

mod condition;
mod facts;
mod fresh;
mod jobs;
mod ledger;
mod plan;
mod results;
mod work;

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::broadcast;

use crate::run::{Hint, LoopContext};
use work::Work;

/// The loop of one provider. Returns after `context.stop`, when what is in flight is over.
pub(crate) async fn run(mut context: LoopContext, metrics: Metrics) {
    context.writes = context.writes.with_component("route_controller");
    let stop = context.stop.clone();
    let mut nodes = context.cluster.nodes.subscribe();
    let mut hints = context.hints.subscribe();
    let mut hinted = true;
    let mut status = context.status.clone();
    status.mark_unchanged();
    let mut work = Work::new(context, metrics);
    // What is there already is what the first look is about.
    nodes.unread();
    work.provider_changed();
    loop {
        let queue = work.queue.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(done) = work.jobs.join_next(), if !work.jobs.is_empty() => work.finished(done),
            changed = status.changed() => match changed {
                Ok(()) => work.provider_changed(),
                // The provider's room has ended: so does everything.
                Err(_) => break,
            },
            changes = nodes.next() => work.nodes_changed(&changes),
            hint = hints.recv(), if hinted => match hint {
                Ok(Hint::Routes | Hint::Resync) | Err(broadcast::error::RecvError::Lagged(_)) => work.hinted(),
                Ok(Hint::Instance { .. } | Hint::LoadBalancer { .. }) => {}
                Err(broadcast::error::RecvError::Closed) => hinted = false,
            },
            _look = queue.next_batch(1, Duration::ZERO) => work.look(),
        }
    }
    // Calls that change the cloud may end; nothing new is begun.
    while let Some(done) = work.jobs.join_next().await {
        work.finished(done);
    }
}

/// `route_controller_*`.
#[derive(Clone)]
pub(crate) struct Metrics {
    synced: Counter,
}

impl Metrics {
    /// Registers the families (B-M7).
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            synced: Counter::default(),
        };
        registry.register(
            "route_controller_route_sync",
            "How often routes were compared with the provider's",
            metrics.synced.clone(),
        );
        metrics
    }
}

#[cfg(test)]
mod tests;
