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
mod told;
mod work;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::broadcast;

use crate::controller::LoopContext;
use crate::provider::Hint;
#[cfg(test)]
pub(crate) use work::RESYNC;
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
    let (provider, page) = (Arc::clone(&context.provider), metrics.clone());
    let mut work = Work::new(context, metrics);
    // What is there already is what the first look is about.
    nodes.unread();
    work.provider_changed();
    let mut ticks = tokio::time::interval(told::HOUSEKEEPING);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
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
            _ = ticks.tick() => work.housekeep(),
        }
    }
    // Calls that change the cloud may end; nothing new is begun.
    while let Some(done) = work.jobs.join_next().await {
        work.finished(done);
    }
    page.forget(&provider);
}

/// `route_controller_*`.
#[derive(Clone)]
pub(crate) struct Metrics {
    synced: Counter,
    /// By provider: what the last look found.
    found: Arc<Mutex<BTreeMap<String, Found>>>,
}

/// What a look found, for the status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The provider's routes were listed.
    Routes {
        /// Inside of the cluster's CIDRs.
        listed: usize,
        /// To be made.
        missing: usize,
        /// To be removed.
        wrong: usize,
        /// They should go, and must not now.
        held: usize,
        /// Of no look: what is wrong with a route of the listing.
        complaint: Option<String>,
    },
    /// There is no list, and why.
    NoList(String),
}

impl Metrics {
    /// Registers the families (B-M7).
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            synced: Counter::default(),
            found: Arc::default(),
        };
        registry.register(
            "route_controller_route_sync",
            "How often routes were compared with the provider's",
            metrics.synced.clone(),
        );
        metrics
    }

    /// Lines for the status page: one for each provider whose routes were looked at.
    pub(crate) fn status_lines(&self) -> Vec<String> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |(provider, found): (&String, &Found)| format!("{provider}: {found}");
        found.iter().map(line).collect()
    }

    pub(crate) fn found(&self, provider: &str, found: Found) {
        let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(provider.to_owned(), found);
    }

    /// Nothing is looked at any more.
    fn forget(&self, provider: &str) {
        let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(provider);
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Routes {
                listed,
                missing,
                wrong,
                held,
                complaint,
            } => {
                write!(
                    f,
                    "the last look found {listed} routes, {missing} to make, {wrong} to remove"
                )?;
                if *held > 0 {
                    write!(
                        f,
                        ", {held} that stay though they should go: the provider is not READY, or no Node is known"
                    )?;
                }
                match complaint {
                    Some(complaint) => write!(f, "; {complaint}"),
                    None => Ok(()),
                }
            }
            Self::NoList(why) => write!(f, "routes cannot be listed: {why}"),
        }
    }
}

#[cfg(test)]
mod tests;
