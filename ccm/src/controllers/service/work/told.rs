//! What a user who describes a Service is told while it is not done.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::Work;
use crate::controllers::service::ledger::Task;
use crate::controllers::service::notes::PENDING;
use crate::controllers::service::plan::{asks, has_finalizer};
use crate::controllers::service::sync::Report;
use crate::core::{Key, millis, wall_time};
use crate::report::{self, Answered, Away, Next, Obstacle};
use crate::writes::{EventType, service_reference};

/// How often it is looked at who waits for too long.
pub(in crate::controllers::service) const HOUSEKEEPING: Duration = Duration::from_secs(5);

impl Work {
    /// Says why a Service is not done: in the log, and to the user where it is time.
    pub(super) fn report(&mut self, task: &Task, service: &Service, reports: Vec<Report>) {
        let now = Instant::now();
        let last = reports.len().saturating_sub(1);
        for (number, report) in reports.into_iter().enumerate() {
            let told = report.told;
            let answered = Answered {
                kind: told.note.kind,
                reason: match told.note.reason {
                    std::borrow::Cow::Borrowed(reason) => reason,
                    // Only the provider's own events have others, and those are no reports.
                    std::borrow::Cow::Owned(_) => PENDING,
                },
                words: told.note.message,
                code: told.code,
                rpc: report.rpc,
            };
            // All of them are of one attempt.
            let tell = if number == last {
                self.waiting.answered(task, &answered, told.at_once, now)
            } else {
                told.at_once
            };
            let attempt = self.waiting.attempts(task) + u32::from(number != last);
            let next = self.next(task, told.when_changed);
            let (name, provider) = (Key::of(service), &self.tools.provider);
            let service_name = format!("{}/{}", name.namespace, name.name);
            let took_ms = report.took.map(millis);
            let (rpc, code, error) = (answered.rpc, answered.code, answered.words.as_str());
            let due = self.queue.due(task).filter(|_| self.open);
            let retry_in_ms = due.map(|due| millis(due.saturating_duration_since(now)));
            if answered.kind == EventType::Normal {
                debug!(service = %service_name, %provider, rpc, code, took_ms, error, attempt, retry_in_ms, "load balancer is pending");
            } else {
                warn!(service = %service_name, %provider, rpc, code, took_ms, error, attempt, retry_in_ms, "load balancer not synced");
            }
            if tell {
                let message = report::told(&answered, provider, None, attempt, next);
                self.event(service, answered.kind, answered.reason, message);
            }
        }
    }

    /// ▲N13, of Services: tells about those that wait, also while there is no provider to ask.
    pub(in crate::controllers::service) fn housekeep(&mut self) {
        let status = self.tools.status.borrow();
        let patience = self.away.patience(&status, Instant::now());
        drop(status);
        self.tell_the_overdue(patience);
    }

    /// Until somebody leads again nobody may tell.
    pub(in crate::controllers::service) fn say_last_words(&mut self) {
        self.tools.metrics.unsaid(&self.tools.provider);
        let patience = Away::last_patience(&self.tools.status.borrow());
        if let Some(patience) = patience {
            self.tell_the_overdue(patience);
        }
    }

    fn tell_the_overdue(&mut self, patience: Duration) {
        let now = Instant::now();
        for task in self.queue.busy() {
            if let Some(service) = self.shown(&task) {
                let uid = service.metadata.uid.as_deref();
                self.waiting.seen(&task, uid, None, now);
            }
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.keep(|task| self.queue.holds(task));
        let overdue = waiting.overdue(now, patience, |task, answered| {
            let obstacle = self.obstacle(task).map(|obstacle| obstacle.text);
            obstacle
                .or_else(|| answered.map(|answered| answered.words.clone()))
                .unwrap_or_default()
        });
        self.waiting = waiting;
        for (task, answered, attempts) in overdue {
            let Some(service) = self.shown(&task).filter(|service| self.concerns(service)) else {
                continue;
            };
            match (self.obstacle(&task), answered) {
                (Some(obstacle), _) => {
                    self.event(&service, EventType::Warning, PENDING, obstacle.in_full());
                }
                (None, Some(answered)) => {
                    let next = self.next(&task, false);
                    let provider = &self.tools.provider;
                    let message = report::told(&answered, provider, None, attempts, next);
                    self.event(&service, answered.kind, answered.reason, message);
                }
                // It is just being worked on.
                (None, None) => {}
            }
        }
    }

    /// Whether the Service is, or may be, one of this provider's.
    fn concerns(&self, service: &Service) -> bool {
        if !asks(service) {
            return has_finalizer(service);
        }
        match &self.session {
            Some(session) => {
                let owner = session.ownership.service_owner(service);
                owner == Some(self.tools.provider.as_ref())
            }
            None => service
                .spec
                .as_ref()
                .is_some_and(|spec| spec.load_balancer_class.is_none()),
        }
    }

    /// Why nothing is tried for this Service now, or nothing comes of it.
    fn obstacle(&self, task: &Task) -> Option<Obstacle> {
        let provider = &self.tools.provider;
        if let Some(obstacle) = Obstacle::of_provider(provider, &self.tools.status.borrow()) {
            return Some(obstacle);
        }
        if let Some(flight) = self.flights.get(task) {
            let (op, since) = flight.under_way.call()?;
            let since = self.wall_time(since);
            let deadline = self.session.as_ref();
            let deadline = deadline.map(|session| session.load_balancer_deadline());
            return Some(Obstacle::unanswered(provider, op.rpc(), since, deadline));
        }
        if let Some(until) = self.throttled {
            let next = Next::At(self.wall_time(until));
            return Some(Obstacle::new(
                format!(
                    "the cloud asked provider {provider} to slow down: all its load balancers wait"
                ),
                Some(next.to_string()),
            ));
        }
        let due = self.queue.due(task)? <= Instant::now();
        (due && self.room() == 0).then(|| {
            Obstacle::new(
                format!(
                    "waits for its turn: provider {provider} works on {} other load balancers, and takes no more at once",
                    self.flights.len()
                ),
                None,
            )
        })
    }

    fn next(&self, task: &Task, when_changed: bool) -> Option<Next> {
        let due = self.queue.due(task)?;
        if !self.open {
            return Some(Next::WhenBack);
        }
        let at = self.wall_time(due.max(self.throttled.unwrap_or(due)));
        Some(if when_changed {
            Next::WhenChangedOr(at)
        } else {
            Next::At(at)
        })
    }

    fn wall_time(&self, at: Instant) -> jiff::Timestamp {
        wall_time(at, Instant::now(), (self.tools.wall)())
    }

    /// The Service as it is known.
    fn shown(&self, task: &Task) -> Option<Arc<Service>> {
        match task {
            Task::Service(key) => self.tools.cluster.services.get(key),
            Task::Departed(..) => self.ledger.latest(task),
        }
    }

    fn event(&self, service: &Service, kind: EventType, reason: &str, message: String) {
        let events = &self.tools.writes.events;
        events.record(&service_reference(service), kind, reason, message);
    }
}
