//! The search for load balancers without a Service (▲S16), and for Services with several or no load
//! balancers.

use std::collections::BTreeSet;
use std::sync::Arc;

use cloud_provider_api::v1alpha1::{Capabilities, ListedLoadBalancer};
use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;
use tracing::{info, warn};

use super::handle::Stored;
use super::ledger::Task;
use super::orphans::{Orphan, Orphans};
use super::plan::{asks, uid};
use super::standing::{Known, Odd, Standing};
use super::{State, Worker, notes};
use crate::args::OrphanPolicy;
use crate::controller::Batch;
use crate::core::{Key, millis};
use crate::planted::planted;
use crate::provider::Session;
use crate::queue::Requeue;

/// For each list, the log and the events report at most this many new orphans by name, and as many
/// other findings.
const MOST_REPORTED: usize = 10;

/// The results of the provider's lists so far.
#[derive(Default)]
pub(super) struct Lists {
    orphans: Orphans,
    standing: Standing,
    /// Whether a list of this session was seen. The first list does not set the gauges.
    seen: bool,
}

impl Worker {
    /// Lists the provider's load balancers, once in `--orphaned-load-balancer-period`, if the
    /// provider offers the list.
    pub(super) async fn list(&self, session: &Arc<Session>, batch: &Batch<'_, Task>) {
        // The list must not take a Service's place.
        batch.called();
        let context = &self.driver.context;
        let next = Instant::now() + context.config.service.orphan_period;
        let listing = |offered: &Capabilities| {
            let balancers = offered.load_balancers.as_ref();
            balancers.is_some_and(|balancers| balancers.listing)
        };
        if session.offers(listing) {
            let search = self.search(session, next);
            if context.stop.run_until_cancelled(search).await.is_none() {
                return;
            }
        }
        batch.settle(&Task::List, Requeue::At(next));
    }

    async fn search(&self, session: &Arc<Session>, next: Instant) {
        let context = &self.driver.context;
        let listed = match session.list_load_balancers().await {
            Ok(listed) => listed,
            Err(trouble) => {
                let provider = &context.provider;
                let retry_in = next.saturating_duration_since(Instant::now());
                warn!(%provider, rpc = "ListLoadBalancers", call_id = trouble.call_id(), error = %trouble, retry_in_ms = millis(retry_in), "cannot list the load balancers: cannot tell which have no Service");
                return;
            }
        };
        let mut state = self.state();
        // The list is from an old session.
        if !Arc::downgrade(session).ptr_eq(&state.session) {
            return;
        }
        let me = &session.info.provider_name;
        let orphans = self.listed(&mut state, me, &listed);
        self.stand(&mut state, session, &listed);
        state.lists.seen = true;
        self.adopt(&mut state, me, &orphans);
    }

    /// Finds listed load balancers without a Service. Returns the orphans to delete. `me` is the
    /// name that the provider states.
    fn listed(&self, state: &mut State, me: &str, listed: &[ListedLoadBalancer]) -> Vec<Orphan> {
        let services = self.driver.context.cluster.services.all();
        let mut known: BTreeSet<&str> = services
            .iter()
            .filter_map(|service| service.metadata.uid.as_deref())
            .collect();
        known.extend(state.ledger.uids());
        let orphans = &mut state.lists.orphans;
        let found = orphans.pass(listed, |uid| known.contains(uid));
        let provider = &self.driver.context.provider;
        if state.lists.seen {
            self.metrics.orphans(provider, found.all.len());
        }
        let delete = self.driver.context.config.service.orphans == OrphanPolicy::Delete;
        for orphan in found.news.iter().take(MOST_REPORTED) {
            warn!(%provider, load_balancer = orphan.load_balancer, service = %orphan.service, uid = orphan.uid, "load balancer without a Service");
            if !orphan.uid.is_empty() {
                let note = notes::without_service(&orphan.load_balancer, delete);
                self.event(&orphan.ghost(me), note);
            }
        }
        if found.news.len() > MOST_REPORTED {
            warn!(%provider, count = found.news.len(), "many load balancers without a Service");
        }
        if delete {
            found.deletable()
        } else {
            Vec::new()
        }
    }

    /// Compares the list with the Services that want a load balancer of this provider.
    fn stand(&self, state: &mut State, session: &Session, listed: &[ListedLoadBalancer]) {
        let provider = &self.driver.context.provider;
        let all = self.driver.context.cluster.services.all().into_iter();
        let ours = all.filter(|service| {
            asks(service) && session.ownership.service_owner(service) == Some(provider.as_ref())
        });
        let services: Vec<(Stored, Arc<Service>)> = ours
            .map(|service| (Stored::of(&service), service))
            .collect();
        let confirmed = state.ledger.confirmed();
        let known: Vec<Known<'_>> = services
            .iter()
            .map(|(stored, service)| Known {
                uid: uid(service),
                namespace: service.metadata.namespace.as_deref().unwrap_or_default(),
                name: service.metadata.name.as_deref().unwrap_or_default(),
                handle: stored.handle_of(&session.info.provider_name),
                confirmed: confirmed.contains(uid(service)),
            })
            .collect();
        let found = state.lists.standing.pass(listed, &known);
        if state.lists.seen {
            let (several, unlisted) = (found.several, found.unlisted);
            self.metrics.standing(provider, several, unlisted);
        }
        for (index, odd) in found.news.iter().take(MOST_REPORTED) {
            let Some((_, service)) = services.get(*index) else {
                continue;
            };
            let note = match odd {
                Odd::Several(others) => notes::several(others),
                Odd::Unlisted => notes::unlisted(),
            };
            warn!(%provider, service = %Key::of(&**service), why = note.message, "ListLoadBalancers disagrees with the cluster for a Service");
            self.event(service, note);
        }
        let looks = found
            .looks
            .iter()
            .filter(|_| !planted!(UnlistedIsNotLookedAt))
            .filter_map(|index| services.get(*index));
        for (_, service) in looks {
            let task = Task::Service(Key::of(&**service));
            if self.check(state, &task) {
                self.driver.queue.add(task);
            }
        }
        if found.news.len() > MOST_REPORTED {
            warn!(%provider, count = found.news.len(), "ListLoadBalancers disagrees with the cluster for many Services");
        }
    }

    /// Queues these load balancers for deletion, like the load balancer of a Service that vanished.
    fn adopt(&self, state: &mut State, me: &str, orphans: &[Orphan]) {
        for orphan in orphans {
            // While a job for a Service of this name runs, the decision waits for the next list.
            let same_name = Task::Service(orphan.service.clone());
            if state.ledger.works_on(&same_name) {
                continue;
            }
            let ghost = Arc::new(orphan.ghost(me));
            if let Some(task) = state.ledger.adopt(&ghost, me) {
                info!(provider = %self.driver.context.provider, load_balancer = orphan.load_balancer, service = %orphan.service, "deleting the load balancer if the API server does not have the Service either");
                self.driver.queue.add(task);
            }
        }
    }
}
