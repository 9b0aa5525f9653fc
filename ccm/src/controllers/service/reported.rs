//! Events and log entries about Services that are not done.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::ledger::Task;
use super::notes::{Note, PENDING};
use super::plan::{asks, has_finalizer, uid};
use super::settle::Report;
use super::{State, Worker};
use crate::core::{Key, millis};
use crate::report::{self, Obstacle};
use crate::writes::{EventType, reference};

impl Worker {
    /// Logs why a Service is not done and, if it is time, records an event.
    pub(super) fn report(
        &self,
        state: &mut State,
        task: &Task,
        service: &Service,
        reports: Vec<Report>,
    ) {
        let now = Instant::now();
        let last = reports.len().saturating_sub(1);
        for (number, report) in reports.into_iter().enumerate() {
            let answered = report.answered;
            // All reports belong to one attempt, so only the last one counts as an attempt.
            let tell = if number == last {
                let waiting = &mut state.waiting;
                waiting.answered(task, &answered, report.at_once, now)
            } else {
                report.at_once
            };
            let attempt = state.waiting.attempts(task) + u32::from(number != last);
            let next = self.driver.next(task, report.when_changed);
            let (name, provider) = (Key::of(service), &self.driver.context.provider);
            let took_ms = report.took.map(millis);
            let (rpc, code, error) = (answered.rpc, answered.code, answered.words.as_str());
            let call_id = answered.call_id.as_deref();
            let due = self.driver.queue.due(task);
            let due = due.filter(|_| self.driver.session().is_some());
            let retry_in_ms = due.map(|due| millis(due.saturating_duration_since(now)));
            if answered.kind == EventType::Normal {
                debug!(service = %name, %provider, rpc, call_id, code, took_ms, error, attempt, retry_in_ms, "load balancer is pending");
            } else if report.logged {
                debug!(service = %name, %provider, rpc, call_id, code, took_ms, error, attempt, retry_in_ms, "load balancer not synced");
            } else {
                warn!(service = %name, %provider, rpc, call_id, code, took_ms, error, attempt, retry_in_ms, "load balancer not synced");
            }
            if tell {
                let message = report::reported(&answered, provider, None, attempt, next);
                self.reported(service, answered.kind, answered.reason, message);
            }
        }
    }

    /// ▲N13 for Services: reports those that wait too long, also while the provider is unavailable.
    pub(super) async fn housekeep(&self) {
        let report = |patience| self.report_overdue(patience);
        self.driver.housekeep(report).await;
        self.metrics.unsaid(&self.driver.context.provider);
    }

    fn report_overdue(&self, patience: Duration) {
        let (queue, now, mut state) = (&self.driver.queue, Instant::now(), self.state());
        for task in queue.busy() {
            if let Some(service) = self.shown(&state, &task) {
                let uid = service.metadata.uid.as_deref();
                state.waiting.seen(&task, uid, None, now);
            }
        }
        let mut waiting = std::mem::take(&mut state.waiting);
        waiting.keep(|task| queue.holds(task));
        let provider = &self.driver.context.provider;
        self.metrics.overdue(provider, waiting.count_overdue(now));
        let overdue = waiting.overdue(now, patience, |task, _| self.obstacle(&state, task));
        state.waiting = waiting;
        for overdue in overdue {
            let service = self.shown(&state, &overdue.key);
            let Some(service) = service.filter(|service| self.concerns(&state, service)) else {
                continue;
            };
            match (overdue.obstacle, overdue.answered) {
                (Some(obstacle), _) => {
                    self.reported(&service, EventType::Warning, PENDING, obstacle.in_full());
                }
                (None, Some(answered)) => {
                    let next = self.driver.next(&overdue.key, false);
                    let message =
                        report::reported(&answered, provider, None, overdue.attempts, next);
                    self.reported(&service, answered.kind, answered.reason, message);
                }
                // There is nothing to report yet: for example, a job runs between two calls.
                (None, None) => {}
            }
        }
    }

    /// Whether the Service belongs, or probably belongs, to this provider.
    fn concerns(&self, state: &State, service: &Service) -> bool {
        if !asks(service) {
            return has_finalizer(service);
        }
        match &state.offer {
            Some(offer) => offer.owns(service, &self.driver.context.provider),
            None => service
                .spec
                .as_ref()
                .is_some_and(|spec| spec.load_balancer_class.is_none()),
        }
    }

    /// Why the ccm is not trying this Service now, or has no answer about it.
    fn obstacle(&self, state: &State, task: &Task) -> Option<Obstacle> {
        let (driver, provider) = (&self.driver, &self.driver.context.provider);
        let obstacle = Obstacle::of_provider(provider, &driver.context.status.borrow());
        if obstacle.is_some() {
            return obstacle;
        }
        let session = driver.session();
        if state.ledger.works_on(task) {
            let (op, since) = state.ledger.call(task)?;
            let since = self.driver.context.wall_time(since);
            let deadline = session.map(|session| session.deadlines.load_balancer);
            return Some(Obstacle::unanswered(provider, op.rpc(), since, deadline));
        }
        if let Some(until) = driver.slowed_until() {
            let until = self.driver.context.wall_time(until);
            return Some(Obstacle::slowed(provider, "load balancers", until));
        }
        if state.ledger.lacks_targets(task, &state.pool.sets) {
            let text = "waits for its targets: the cache has no target for it, and the API server has not confirmed that";
            return Some(Obstacle::new(text.to_owned(), None));
        }
        let due = driver.queue.due(task)? <= Instant::now();
        let jobs = state.ledger.working();
        if !due || jobs < self.most_jobs(&*session?) {
            return None;
        }
        let text = format!(
            "waits for a free call: provider {provider} works on {jobs} other load balancers, the most at once"
        );
        Some(Obstacle::new(text, None))
    }

    /// The Service in the store, or the last version of a deleted one. While a job works on a
    /// deleted one, a new Service may have its name.
    fn shown(&self, state: &State, task: &Task) -> Option<Arc<Service>> {
        let stored = match task {
            Task::Service(key) => self.driver.context.cluster.services.get(key),
            _ => None,
        };
        let latest = state.ledger.latest(task);
        let is_other = |now: &Service| latest.as_ref().is_some_and(|it| uid(it) != uid(now));
        stored.filter(|now| !is_other(now)).or(latest)
    }

    pub(super) fn event(&self, service: &Service, note: Note) {
        self.reported(service, note.kind, &note.reason, note.message);
    }

    fn reported(&self, service: &Service, kind: EventType, reason: &str, message: String) {
        let events = &self.driver.context.writes.events;
        events.record(&reference(service), kind, reason, message);
    }
}
