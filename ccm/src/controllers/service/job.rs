//! One job: its inputs, and the use of its results.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;

use super::ledger::Task;
use super::plan::asks;
use super::record::Record;
use super::sync::{Job, Run};
use super::targets::NodeSelector;
use super::{CHECK_GAP, State, Worker};
use crate::controller::Batch;
use crate::provider::Session;
use crate::queue::Requeue;

/// The delay of a Service whose targets are not known yet.
const TARGETS_AGAIN: Duration = Duration::from_secs(1);

impl Worker {
    pub(super) async fn sync(&self, session: &Arc<Session>, task: &Task, batch: &Batch<'_, Task>) {
        let Some((job, service, record)) = self.begin(session, task, batch) else {
            return;
        };
        let mut run = Run {
            worker: self,
            session,
            batch,
            task,
            job,
            base: service,
            record,
            accepted: false,
            is_current: false,
            missing: false,
            call_id: None,
            reports: Vec::new(),
        };
        let under_way = UnderWay {
            worker: self,
            task,
            started: Instant::now(),
            is_over: false,
        };
        let outcome = run.finish().await;
        self.finished(under_way, run, outcome);
    }

    /// Takes the record of a Service, and returns it with the Service. `None`: no job runs now, and
    /// the task is settled.
    fn begin(
        &self,
        session: &Arc<Session>,
        task: &Task,
        batch: &Batch<'_, Task>,
    ) -> Option<(Job, Arc<Service>, Option<Record>)> {
        let (driver, mut state) = (&self.driver, self.state());
        let state = &mut *state;
        for due in self.learn(state, session) {
            driver.queue.add(due);
        }
        let shown = match task {
            Task::Service(key) => driver.context.cluster.services.get(key),
            _ => None,
        };
        let taken = state.ledger.take(task, shown);
        if let Some(departed) = taken.departed {
            driver.queue.add(departed);
        }
        if taken.forgotten {
            tracing::error!(
                provider = %driver.context.provider,
                ?task,
                "too many load balancers without a Service wait for deletion: leaving this one to the search for orphaned load balancers"
            );
        }
        let (Some(service), Some(offer)) = (taken.service, state.offer.clone()) else {
            state.ledger.put(task, taken.record);
            batch.settle(task, Requeue::Forget);
            self.tried(state, task);
            return None;
        };
        let is_departed = matches!(task, Task::Departed(..));
        let is_ours = offer.owns(&service, &driver.context.provider);
        let selector = NodeSelector::of(&service);
        let used = selector.as_ref().ok();
        let used = used.filter(|_| asks(&service) && is_ours && !is_departed);
        if let Task::Service(key) = task {
            state.ledger.uses(key, used.cloned());
        }
        let uid = service.metadata.uid.as_deref();
        state.waiting.seen(task, uid, None, Instant::now());
        let targets = used.map(|selector| state.pool.targets_now(selector));
        if targets.as_ref().is_some_and(Option::is_none) {
            self.doubt(state);
            state.ledger.put(task, taken.record);
            batch.settle(task, Requeue::At(Instant::now() + TARGETS_AGAIN));
            return None;
        }
        let job = Job {
            offer,
            selector,
            targets: targets.flatten(),
            attempt: state.waiting.attempts(task) + 1,
        };
        Some((job, service, taken.record))
    }

    fn finished(&self, mut under_way: UnderWay<'_>, run: Run<'_>, outcome: Requeue) {
        let (driver, task, mut state) = (&self.driver, run.task, self.state());
        let state = &mut *state;
        let meanwhile = state.ledger.put(task, run.record);
        // After the key is settled, another job may run for this task.
        under_way.is_over = true;
        if run.accepted {
            run.batch.answered(task);
        }
        run.batch.settle(task, outcome);
        let mut again = state.ledger.overtaken(task);
        if meanwhile.changed
            && let Task::Service(key) = task
        {
            let now = driver.context.cluster.services.get(key);
            if now.is_none() {
                state.ledger.uses(key, None);
            }
            again |= state.ledger.is_news(key, now.as_deref());
        }
        // While changes of Nodes settle, this Service may have newer targets than other Services.
        // After they have settled, the controller compares this Service's targets again.
        let settling = state.pool.settled_at().is_some();
        again |= !state.ignores_nodes()
            && !settling
            && state.ledger.wants_targets(task, &state.pool.sets);
        if again {
            driver.queue.add(task.clone());
        }
        if !run.reports.is_empty() {
            self.report(state, task, &run.base, run.reports);
        } else if !driver.queue.holds(task) {
            state.waiting.gone(task);
        }
        if meanwhile.check && self.check(state, task) {
            let due = under_way.started + CHECK_GAP;
            driver.queue.add_at(task.clone(), due);
        }
        self.tried(state, task);
    }

    /// Removes the task from the current round. The round ends when no task is left.
    fn tried(&self, state: &mut State, task: &Task) {
        let Some((started, waiting)) = &mut state.round else {
            return;
        };
        waiting.remove(task);
        if waiting.is_empty() {
            let took = started.elapsed().as_secs_f64();
            self.metrics.nodesync_latency.observe(took);
            state.round = None;
        }
    }
}

/// A task with a running job. If the job is dropped, the ledger keeps the record.
struct UnderWay<'a> {
    worker: &'a Worker,
    task: &'a Task,
    started: Instant,
    is_over: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.worker.state().ledger.broke_off(self.task);
        }
    }
}
