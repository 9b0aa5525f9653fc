//! The search for load balancers whose Service does not exist any more (▲S16), and for those of a Service that are too many or too few: one list at a time, and nothing waits for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use cloud_provider_api::v1alpha1::ListedLoadBalancer;
use k8s_openapi::api::core::v1::Service;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::{Work, key};
use crate::args::OrphanPolicy;
use crate::controllers::service::handle::Stored;
use crate::controllers::service::ledger::Task;
use crate::controllers::service::notes;
use crate::controllers::service::orphans::{Orphan, Orphans};
use crate::controllers::service::plan::{asks, uid};
use crate::controllers::service::standing::{Known, Odd, Standing, Stands};
use crate::core::millis;
use crate::planted::planted;
use crate::provider::{Session, Trouble};
use crate::writes::{Writes, service_reference};

/// So many are told of by name at once.
const TOLD_AT: usize = 10;

/// What a part of the search found.
pub(in crate::controllers::service) enum Search {
    /// A list of this session.
    Listed(Arc<Session>, Result<Vec<ListedLoadBalancer>, Trouble>),
    /// Orphans that the API server, too, knows no Services of.
    Confirmed(Vec<Orphan>),
}

/// The provider's lists: what they said so far, and when the next one is due.
pub(in crate::controllers::service) struct Lists {
    /// A list that was asked for, or what follows from it.
    pub(in crate::controllers::service) jobs: JoinSet<Search>,
    due: Instant,
    orphans: Orphans,
    standing: Standing,
    /// A list of this session was seen. One alone says nothing, and what was counted before stands.
    seen: bool,
}

impl Lists {
    pub(super) fn new(due: Instant) -> Self {
        Self {
            jobs: JoinSet::new(),
            due,
            orphans: Orphans::default(),
            standing: Standing::default(),
            seen: false,
        }
    }

    /// The provider is another one, or came again: what its lists said before says nothing.
    pub(super) fn start_over(&mut self) {
        self.orphans.start_over();
        self.standing.start_over();
        self.seen = false;
    }
}

impl Work {
    /// When the next list is to be asked for.
    pub(in crate::controllers::service) fn search_at(&self) -> Option<Instant> {
        let listing = self
            .capability()
            .is_some_and(|capability| capability.listing);
        let wanted = self.tools.config.service.orphans != OrphanPolicy::Ignore;
        (self.open && wanted && listing && self.lists.jobs.is_empty()).then_some(self.lists.due)
    }

    pub(in crate::controllers::service) fn search(&mut self) {
        self.lists.due = Instant::now() + self.tools.config.service.orphan_period;
        if let Some(session) = self.session.clone() {
            self.lists.jobs.spawn(async move {
                let listed = session.list_load_balancers().await;
                Search::Listed(session, listed)
            });
        }
    }

    pub(in crate::controllers::service) fn searched(&mut self, found: Result<Search, JoinError>) {
        let provider = Arc::clone(&self.tools.provider);
        match found {
            Ok(Search::Listed(session, listed)) => {
                let current = self.session.as_ref();
                if !current.is_some_and(|current| Arc::ptr_eq(current, &session)) {
                    return;
                }
                match listed {
                    Ok(listed) => {
                        self.listed(&session, &listed);
                        self.stand(&session, &listed);
                        self.lists.seen = true;
                    }
                    Err(trouble) => {
                        let again_in = self.lists.due.saturating_duration_since(Instant::now());
                        warn!(%provider, rpc = "ListLoadBalancers", error = %trouble, retry_in_ms = millis(again_in), "cannot list the load balancers: what has no Service is not known");
                    }
                }
            }
            Ok(Search::Confirmed(orphans)) => self.adopt(&orphans),
            Err(error) => {
                error!(%provider, %error, "the search for orphaned load balancers broke off: a bug");
            }
        }
    }

    fn listed(&mut self, session: &Session, listed: &[ListedLoadBalancer]) {
        let services = self.tools.cluster.services.all();
        let in_flight = self.flights.uids();
        let mut known: BTreeSet<&str> = services
            .iter()
            .filter_map(|service| service.metadata.uid.as_deref())
            .collect();
        known.extend(self.ledger.uids());
        known.extend(in_flight.iter().map(String::as_str));
        let found = self.lists.orphans.pass(listed, |uid| known.contains(uid));
        let provider = &self.tools.provider;
        if self.lists.seen {
            self.tools.metrics.orphans(provider, found.all.len());
        }
        let delete = self.tools.config.service.orphans == OrphanPolicy::Delete;
        for orphan in found.news.iter().take(TOLD_AT) {
            let Orphan {
                load_balancer, uid, ..
            } = orphan;
            warn!(%provider, load_balancer, service = %orphan.service, uid, "the load balancer's Service does not exist any more");
            if uid.is_empty() {
                continue;
            }
            let note = notes::without_service(load_balancer, delete);
            let reference = service_reference(&orphan.ghost(&session.info.provider_name));
            self.tools
                .writes
                .events
                .record(&reference, note.kind, &note.reason, note.message);
        }
        if found.news.len() > TOLD_AT {
            warn!(%provider, count = found.news.len(), "so many load balancers have no Service any more");
        }
        let doubted = found.deletable();
        if delete && !doubted.is_empty() {
            let writes = self.tools.writes.clone();
            self.lists
                .jobs
                .spawn(async move { Search::Confirmed(without_service(&writes, doubted).await) });
        }
    }

    /// What the list says of Services that exist.
    fn stand(&mut self, session: &Session, listed: &[ListedLoadBalancer]) {
        let provider = Arc::clone(&self.tools.provider);
        let services: Vec<(Arc<Service>, Stored)> = self
            .tools
            .cluster
            .services
            .all()
            .into_iter()
            .filter(|service| {
                asks(service) && session.ownership.service_owner(service) == Some(provider.as_ref())
            })
            .map(|service| {
                let stored = Stored::of(&service);
                (service, stored)
            })
            .collect();
        let confirmed = self.ledger.confirmed();
        let known: Vec<Known<'_>> = services
            .iter()
            .map(|(service, stored)| Known {
                uid: uid(service),
                namespace: service.metadata.namespace.as_deref().unwrap_or_default(),
                name: service.metadata.name.as_deref().unwrap_or_default(),
                handle: stored.handle_of(&session.info.provider_name),
                confirmed: confirmed.contains(uid(service)),
            })
            .collect();
        let Stands {
            news,
            looks,
            several,
            unlisted,
        } = self.lists.standing.pass(listed, &known);
        if self.lists.seen {
            self.tools.metrics.standing(&provider, several, unlisted);
        }
        for (index, odd) in news.iter().take(TOLD_AT) {
            let Some((service, _)) = services.get(*index) else {
                continue;
            };
            let note = match odd {
                Odd::Several(others) => notes::several(others),
                Odd::Unlisted => notes::unlisted(),
            };
            warn!(%provider, service = %key(service), why = note.message, "the list of load balancers says of a Service what it should not");
            let reference = service_reference(service);
            self.tools
                .writes
                .events
                .record(&reference, note.kind, &note.reason, note.message);
        }
        let looks = looks
            .iter()
            .filter(|_| !planted!(UnlistedIsNotLookedAt))
            .filter_map(|index| services.get(*index));
        for (service, _) in looks {
            self.check(Task::Service(key(service)));
        }
        if news.len() > TOLD_AT {
            warn!(%provider, count = news.len(), "of so many Services the list of load balancers says what it should not");
        }
    }

    /// Their load balancers go like those of a Service that vanished under us.
    fn adopt(&mut self, orphans: &[Orphan]) {
        let Some(session) = self.session.clone().filter(|_| self.open) else {
            return;
        };
        for orphan in orphans {
            // Whatever is being done for a Service of that name has its own end.
            let task = Task::Service(orphan.service.clone());
            if self.flights.get(&task).is_some() {
                continue;
            }
            let me = &session.info.provider_name;
            let ghost = Arc::new(orphan.ghost(me));
            if let Some(task) = self.ledger.adopt(&ghost, me) {
                let Orphan {
                    load_balancer,
                    service,
                    ..
                } = orphan;
                info!(provider = %self.tools.provider, load_balancer, %service, "deletes the load balancer of a Service that does not exist any more");
                self.queue.add(task);
            }
        }
    }
}

/// Those whose Service the API server itself does not know: the watch may be behind.
async fn without_service(writes: &Writes, doubted: Vec<Orphan>) -> Vec<Orphan> {
    let mut confirmed = Vec::with_capacity(doubted.len());
    for orphan in doubted {
        let (namespace, name) = (&orphan.service.namespace, &orphan.service.name);
        match writes.read_service(namespace, name).await {
            Ok(now)
                if now
                    .as_ref()
                    .is_none_or(|now| now.metadata.uid.as_deref() != Some(&orphan.uid)) =>
            {
                confirmed.push(orphan);
            }
            Ok(_) => {}
            Err(error) => {
                warn!(service = %orphan.service, %error, "cannot read the Service: its load balancer stays");
            }
        }
    }
    confirmed
}
