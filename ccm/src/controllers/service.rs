//! The service controller (B-S1 to ▲S20): load balancers for Services.
//!
//! One loop per provider. A change of a Service, or of the target set it uses, puts it into the queue; a job works on it step by step ([`sync`]), many at once, never
//! two on one Service. What a job learns comes back as an [`record::Record`].

mod answer;
mod fingerprint;
#[cfg(test)]
mod fixtures;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod handle;
mod ledger;
mod memory;
mod notes;
mod orphans;
mod plan;
mod recheck;
mod record;
mod settle;
#[cfg(test)]
mod simulation;
mod standing;
mod support;
mod sync;
mod targets;
#[cfg(test)]
mod tests;
mod work;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep_until};

use crate::controller::LoopContext;
use crate::provider::Hint;
pub(crate) use memory::Memory;
use work::{HOUSEKEEPING, Work};

/// The loop of one provider. Returns after `context.stop`, when what is in flight is over.
pub(crate) async fn run(context: LoopContext, memory: Arc<Memory>, metrics: Metrics) {
    let stop = context.stop.clone();
    let synced = async {
        context.cluster.nodes.synced().await;
        context.cluster.services.synced().await;
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => return,
        () = synced => {}
    }
    if context.cluster.service_ranges().is_none() {
        tracing::warn!(
            "the ServiceCIDRs cannot be read: a load balancer may show an address of another Service until the ccm may list and watch them, or --service-cluster-ip-range says the range"
        );
    }
    let mut services = context.cluster.services.subscribe();
    let mut nodes = context.cluster.nodes.subscribe();
    let mut hints = context.hints.subscribe();
    let mut hinted = true;
    let mut ticks = tokio::time::interval(HOUSEKEEPING);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut status = context.status.clone();
    let mut work = Work::new(context, memory, metrics);
    work.provider_changed();
    loop {
        let settled = work.settled_at();
        let doubt = work.doubt_at();
        let throttled = work.throttled_until();
        let search = work.search_at();
        let room = work.room();
        let queue = work.queue.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(landed) = work.flights.next(), if !work.flights.is_empty() => work.finished(landed),
            changed = status.changed() => match changed {
                Ok(()) => work.provider_changed(),
                // The provider's room has ended: so does everything.
                Err(_) => break,
            },
            Some(found) = work.lists.jobs.join_next(), if !work.lists.jobs.is_empty() => work.searched(found),
            Some(verdict) = work.recheck.join_next(), if !work.recheck.is_empty() => work.rechecked(verdict),
            changes = nodes.next() => work.nodes_changed(&changes),
            changes = services.next() => work.services_changed(&changes),
            hint = hints.recv(), if hinted => match hint {
                Ok(hint) => work.hinted(&hint),
                Err(broadcast::error::RecvError::Lagged(_)) => work.hinted(&Hint::Resync),
                Err(broadcast::error::RecvError::Closed) => hinted = false,
            },
            _ = ticks.tick() => work.housekeep(),
            () = sleep_until(settled.unwrap_or_else(Instant::now)), if settled.is_some() => work.nodes_settled(),
            () = sleep_until(doubt.unwrap_or_else(Instant::now)), if doubt.is_some() => work.doubt(),
            () = sleep_until(search.unwrap_or_else(Instant::now)), if search.is_some() => work.search(),
            () = sleep_until(throttled.unwrap_or_else(Instant::now)), if throttled.is_some() => work.unthrottle(),
            batch = queue.next_batch(room, Duration::ZERO), if room > 0 => {
                for task in batch {
                    work.start(task);
                }
            }
        }
    }
    work.say_last_words();
    // What is in flight may end; the jobs make no further call.
    work.recheck.abort_all();
    work.lists.jobs.abort_all();
    while let Some(landed) = work.flights.next().await {
        work.finished(landed);
    }
}

/// `service_controller_*`.
#[derive(Clone)]
pub(crate) struct Metrics {
    synced: Counter,
    nodesync_errors: Counter,
    nodesync_latency: Histogram,
    update_latency: Histogram,
    orphans: Family<Provider, Gauge>,
    duplicates: Family<Provider, Gauge>,
    unlisted: Family<Provider, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Provider {
    provider: String,
}

impl Metrics {
    /// Registers the families (B-M7).
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            synced: Counter::default(),
            nodesync_errors: Counter::default(),
            nodesync_latency: Histogram::new(exponential_buckets(1.0, 2.0, 15)),
            update_latency: Histogram::new(exponential_buckets(1.0, 2.0, 15)),
            orphans: Family::default(),
            duplicates: Family::default(),
            unlisted: Family::default(),
        };
        registry.register(
            "service_controller_loadbalancer_sync",
            "Updates of a load balancer's targets: upstream counts these alone, too",
            metrics.synced.clone(),
        );
        registry.register(
            "service_controller_nodesync_error",
            "Updates of a load balancer's targets that failed",
            metrics.nodesync_errors.clone(),
        );
        registry.register(
            "service_controller_nodesync_latency_seconds",
            "Time from a settled change of Nodes until every load balancer that it concerns was tried",
            metrics.nodesync_latency.clone(),
        );
        registry.register(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "Time that one update of a load balancer's targets took",
            metrics.update_latency.clone(),
        );
        registry.register(
            "service_controller_orphaned_loadbalancers",
            "Load balancers in the cloud that are marked for Services which do not exist any more",
            metrics.orphans.clone(),
        );
        registry.register(
            "service_controller_duplicated_loadbalancers",
            "Services for which two lists of the provider in a row show more than one load balancer",
            metrics.duplicates.clone(),
        );
        registry.register(
            "service_controller_unlisted_loadbalancers",
            "Services whose load balancer the provider said stands, and which two of its lists in a row do not have",
            metrics.unlisted.clone(),
        );
        metrics
    }

    /// One without a Service, for tests of what is shown.
    #[cfg(test)]
    pub(crate) fn touch(&self) {
        self.orphans("mock", 1);
        self.standing("mock", 1, 1);
    }

    /// No list says anything any more: whoever leads next, or the next provider, has its own.
    fn unsaid(&self, provider: &str) {
        self.orphans(provider, 0);
        self.standing(provider, 0, 0);
    }

    fn orphans(&self, provider: &str, count: usize) {
        set(&self.orphans, provider, count);
    }

    /// What the list says of Services that exist: so many have more than one, so many have none in it.
    fn standing(&self, provider: &str, several: usize, unlisted: usize) {
        set(&self.duplicates, provider, several);
        set(&self.unlisted, provider, unlisted);
    }
}

fn set(family: &Family<Provider, Gauge>, provider: &str, count: usize) {
    let provider = provider.to_owned();
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    family.get_or_create(&Provider { provider }).set(count);
}
