//! The records and jobs of all Services, and load balancers of deleted Services. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;

use super::notes::Op;
use super::plan::{is_news, uid, wants_targets};
use super::record::{Cloud, Record, version};
use super::targets::{NodeSelector, Sets};
use crate::core::Key;
use crate::planted::planted;

/// With this many load balancers of deleted Services, the ledger accepts no new one.
const MOST_DEPARTED: usize = 10_000;

/// The keys of the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Task {
    /// A Service.
    Service(Key),
    /// The load balancer of a Service that is gone from the API server (▲S9), with the Service's
    /// name and UID.
    Departed(Key, String),
    /// Ask the API server about empty target sets that it has not confirmed yet (B-S7).
    EmptySets,
    /// Ask the provider for all load balancers (▲S16).
    List,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The records of tasks without a job.
    entries: BTreeMap<Task, Record>,
    /// The tasks with a job.
    working: BTreeMap<Task, Working>,
    selectors: BTreeMap<Key, NodeSelector>,
    departed: usize,
}

/// A task with a job.
#[derive(Debug, Default)]
struct Working {
    /// The record when the job began, or when its last call began or was answered.
    record: Option<Record>,
    /// The call in flight, and when it began.
    call: Option<(Op, Instant)>,
    meanwhile: Meanwhile,
}

/// Changes of a Service during its job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meanwhile {
    /// The watch delivered another version, most often after the job's own writes.
    pub(super) changed: bool,
    /// The next job has to check the load balancer.
    pub(super) check: bool,
}

/// The inputs of a job.
#[derive(Debug)]
pub(super) struct Taken {
    /// The newest version of the Service. `None`: there is nothing to do.
    pub(super) service: Option<Arc<Service>>,
    pub(super) record: Option<Record>,
    /// A load balancer without a Service was found, and has to be queued.
    pub(super) departed: Option<Task>,
    /// A load balancer without a Service was found, but the ledger has no room for it.
    pub(super) forgotten: bool,
}

impl Ledger {
    /// Takes the record of a task for a job, until `put`. `now` is the Service in the store.
    pub(super) fn take(&mut self, task: &Task, now: Option<Arc<Service>>) -> Taken {
        let mut taken = Taken {
            service: None,
            record: self.entries.remove(task),
            departed: None,
            forgotten: false,
        };
        match task {
            Task::Departed(..) => {
                self.departed = self.departed.saturating_sub(1);
                let record = taken.record.as_ref();
                taken.service = record.map(|record| Arc::clone(&record.latest));
            }
            Task::Service(key) => {
                let same = now.as_ref().is_some_and(|now| {
                    taken
                        .record
                        .as_ref()
                        .is_none_or(|record| record.uid() == uid(now))
                });
                if !same && let Some(record) = taken.record.take() {
                    self.depart(key, record, &mut taken);
                }
                if now.is_none() {
                    self.selectors.remove(key);
                }
                taken.service = match (now, &taken.record) {
                    // The watch may not have shown our own writes yet.
                    (Some(now), Some(record)) if version(&now) < version(&record.latest) => {
                        Some(Arc::clone(&record.latest))
                    }
                    (now, _) => now,
                };
            }
            Task::EmptySets | Task::List => {}
        }
        let working = Working {
            record: taken.record.clone(),
            ..Working::default()
        };
        self.working.insert(task.clone(), working);
        taken
    }

    fn depart(&mut self, key: &Key, record: Record, taken: &mut Taken) {
        if record.cloud.by().is_none() {
            return;
        }
        if self.departed >= MOST_DEPARTED {
            taken.forgotten = true;
            return;
        }
        let task = Task::Departed(key.clone(), record.uid().to_owned());
        if self.entries.insert(task.clone(), record).is_none() {
            self.departed += 1;
        }
        taken.departed = Some(task);
    }

    /// Stores the call in flight (`None`: there is none) and the current record.
    pub(super) fn calls(&mut self, task: &Task, call: Option<(Op, Instant)>, record: &Record) {
        if let Some(working) = self.working.get_mut(task) {
            working.call = call;
            working.record = Some(record.clone());
        }
    }

    /// The call in flight of a task, and when it began.
    pub(super) fn call(&self, task: &Task) -> Option<(Op, Instant)> {
        self.working.get(task)?.call
    }

    /// How many tasks have a job.
    pub(super) fn working(&self) -> usize {
        self.working.len()
    }

    /// Whether the task has a job.
    pub(super) fn works_on(&self, task: &Task) -> bool {
        self.working.contains_key(task)
    }

    /// The watch delivered another version of the Service. Returns whether a job runs for it. If
    /// so, the change is examined after the job, because only then are the job's own writes known.
    pub(super) fn changed(&mut self, task: &Task) -> bool {
        let working = self.working.get_mut(task);
        working
            .map(|working| working.meanwhile.changed |= !planted!(ChangeDuringWorkIsForgotten))
            .is_some()
    }

    /// Puts a record back after a job. Returns what changed during the job.
    pub(super) fn put(&mut self, task: &Task, record: Option<Record>) -> Meanwhile {
        let working = self.working.remove(task).unwrap_or_default();
        if let Some(record) = record {
            let former = self.entries.insert(task.clone(), record);
            if former.is_none() && matches!(task, Task::Departed(..)) {
                self.departed += 1;
            }
        }
        working.meanwhile
    }

    /// The job was dropped, and the effect of its calls is unknown. So the load balancer is checked
    /// as after a restart. The record keeps the provider that may have made the load balancer, even
    /// if the Service is gone.
    pub(super) fn broke_off(&mut self, task: &Task) {
        if let Some(working) = self.working.get_mut(task) {
            let record = working.record.take().map(Record::doubted);
            self.put(task, record);
        }
    }

    /// Adds a listed load balancer whose Service is gone (▲S16). Returns the task to queue. `None`:
    /// the task has a record already, or the ledger is full. `by` is the provider that lists the
    /// load balancer.
    pub(super) fn adopt(&mut self, ghost: &Arc<Service>, by: &str) -> Option<Task> {
        let task = Task::Departed(Key::of(&**ghost), uid(ghost).to_owned());
        if self.departed >= MOST_DEPARTED || self.entries.contains_key(&task) {
            return None;
        }
        self.departed += 1;
        let by = by.to_owned();
        let record = Record {
            cloud: Cloud::MayStand { by },
            ..Record::new(ghost)
        };
        self.entries.insert(task.clone(), record);
        Some(task)
    }

    /// The UIDs of all Services with a record, including deleted ones.
    pub(super) fn uids(&self) -> impl Iterator<Item = &str> {
        let working = self.working.values();
        let working = working.filter_map(|working| working.record.as_ref());
        self.entries.values().chain(working).map(Record::uid)
    }

    /// The UIDs of the Services that have no job now and whose load balancer the provider
    /// confirmed.
    pub(super) fn confirmed(&self) -> BTreeSet<&str> {
        let confirmed = self.entries.iter().filter(|(task, record)| {
            matches!(task, Task::Service(_)) && record.progress.confirmed().is_some()
        });
        confirmed.map(|(_, record)| record.uid()).collect()
    }

    /// Stores the selector of the Service's targets. `None`: it uses none.
    pub(super) fn uses(&mut self, key: &Key, selector: Option<NodeSelector>) {
        match selector {
            Some(selector) => self.selectors.insert(key.clone(), selector),
            None => self.selectors.remove(key),
        };
    }

    fn selector(&self, task: &Task) -> Option<&NodeSelector> {
        match task {
            Task::Service(key) => self.selectors.get(key),
            Task::Departed(..) | Task::EmptySets | Task::List => None,
        }
    }

    pub(super) fn selectors(&self) -> BTreeSet<&NodeSelector> {
        self.selectors.values().collect()
    }

    /// The last version of a deleted Service. `None` for a [`Task::Service`] without a job: only its
    /// next job finds out whether it is deleted.
    pub(super) fn latest(&self, task: &Task) -> Option<Arc<Service>> {
        let record = match (self.working.get(task), task) {
            (Some(working), _) => working.record.as_ref(),
            (None, Task::Service(_)) => None,
            (None, _) => self.entries.get(task),
        };
        record.map(|record| Arc::clone(&record.latest))
    }

    /// Whether the version in the store needs a job.
    pub(super) fn is_news(&self, key: &Key, now: Option<&Service>) -> bool {
        let record = self.entries.get(&Task::Service(key.clone()));
        match now {
            Some(now) => is_news(now, record),
            None => record.is_some(),
        }
    }

    /// Whether the last read or write returned somebody else's change that the last decision did
    /// not include.
    pub(super) fn overtaken(&self, task: &Task) -> bool {
        self.entries
            .get(task)
            .is_some_and(|record| is_news(&record.latest, Some(record)))
    }

    /// Whether the Service needs targets, and its set is not known yet.
    pub(super) fn lacks_targets(&self, task: &Task, sets: &Sets) -> bool {
        let selector = self.selector(task);
        selector.is_some_and(|selector| sets.get(selector).is_none())
    }

    /// Whether the Service's targets are a reason for a call now.
    pub(super) fn wants_targets(&self, task: &Task, sets: &Sets) -> bool {
        let set = self.selector(task).and_then(|selector| sets.get(selector));
        match (self.entries.get(task), set) {
            (Some(record), Some(set)) => wants_targets(record, set.fingerprint),
            _ => false,
        }
    }

    /// The tasks for which changed targets are a reason for a call now.
    pub(super) fn retargeted(&self, sets: &Sets) -> Vec<Task> {
        self.entries
            .keys()
            .filter(|task| self.wants_targets(task, sets))
            .cloned()
            .collect()
    }

    /// The Services with this selector and a confirmed load balancer whose cut set was not reported
    /// yet. They count as reported now.
    pub(super) fn report_cut(&mut self, selector: &NodeSelector) -> Vec<Arc<Service>> {
        let selectors = &self.selectors;
        let uses = |task: &Task| match task {
            Task::Service(key) => selectors.get(key) == Some(selector),
            _ => false,
        };
        let untold = self.entries.iter_mut().filter(|(task, record)| {
            uses(task) && record.progress.confirmed().is_some() && !record.cut_told
        });
        untold
            .map(|(_, record)| {
                record.cut_told = true;
                Arc::clone(&record.latest)
            })
            .collect()
    }

    /// All records, for the next loop.
    pub(super) fn leave(&mut self) -> impl Iterator<Item = (Task, Record)> + use<> {
        let working: Vec<Task> = self.working.keys().cloned().collect();
        for task in &working {
            self.broke_off(task);
        }
        self.departed = 0;
        std::mem::take(&mut self.entries).into_iter()
    }

    /// All tasks with a record and without a job.
    pub(super) fn known(&self) -> Vec<Task> {
        self.entries.keys().cloned().collect()
    }

    /// All tasks, also those with a job.
    pub(super) fn tasks(&self) -> Vec<Task> {
        let tasks = self.entries.keys().chain(self.working.keys());
        tasks.cloned().collect()
    }

    /// Whether the provider's last answer was `pending`.
    pub(super) fn is_pending(&self, task: &Task) -> bool {
        let record = self.entries.get(task);
        record.is_some_and(|record| record.progress.is_pending())
    }

    /// Marks all tasks for a check. If a job runs, the check follows it.
    pub(super) fn check_all(&mut self) {
        let records = self.entries.values_mut();
        records.for_each(|record| record.check = true);
        let working = self.working.values_mut();
        working.for_each(|working| working.meanwhile.check = true);
    }

    /// Marks the task for a check. Returns whether the task has a record and no job. If a job runs,
    /// the check follows it.
    pub(super) fn check(&mut self, task: &Task) -> bool {
        if let Some(working) = self.working.get_mut(task) {
            working.meanwhile.check = true;
            return false;
        }
        let record = self.entries.get_mut(task);
        record.map(|record| record.check = true).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::service::fixtures::service;

    fn key() -> Key {
        Key::of(&service())
    }

    fn at(uid: &str, version: &str) -> Arc<Service> {
        let mut service = service();
        service.metadata.uid = Some(uid.to_owned());
        service.metadata.resource_version = Some(version.to_owned());
        Arc::new(service)
    }

    fn made(service: &Arc<Service>) -> Record {
        let by = "mock".to_owned();
        Record {
            cloud: Cloud::MayStand { by },
            ..Record::new(service)
        }
    }

    #[test]
    fn s9_what_this_process_knew_is_not_forgotten_with_its_service() {
        let task = Task::Service(key());
        let old = at("uid-1", "10");
        for now in [None, Some(at("uid-2", "11"))] {
            let mut ledger = Ledger::default();
            ledger.put(&task, Some(made(&old)));
            assert!(ledger.is_news(&key(), now.as_deref()));
            let taken = ledger.take(&task, now.clone());
            let departed = taken.departed.expect("it is left behind");
            assert!(taken.record.is_none(), "the new Service has no record yet");
            assert_eq!(taken.service, now);
            let taken = ledger.take(&departed, None);
            assert_eq!(taken.service, Some(Arc::clone(&old)));
            assert_eq!(taken.record.unwrap().cloud.by(), Some("mock"));
        }
        for harmless in [
            Record::new(&old),
            Record {
                cloud: Cloud::Deleted,
                ..made(&old)
            },
        ] {
            let mut ledger = Ledger::default();
            ledger.put(&task, Some(harmless));
            assert_eq!(ledger.take(&task, None).departed, None);
        }
    }

    #[test]
    fn s9_the_list_of_what_is_left_behind_is_bounded() {
        let mut ledger = Ledger::default();
        for i in 0..=MOST_DEPARTED {
            let task = Task::Service(key());
            ledger.put(&task, Some(made(&at(&format!("uid-{i}"), "1"))));
            let taken = ledger.take(&task, None);
            assert_eq!(taken.forgotten, i == MOST_DEPARTED);
        }
        // One load balancer is deleted, so there is room again.
        ledger.take(&Task::Departed(key(), "uid-7".to_owned()), None);
        ledger.put(&Task::Service(key()), Some(made(&at("again", "1"))));
        assert!(!ledger.take(&Task::Service(key()), None).forgotten);
    }

    #[test]
    fn s19_a_watch_that_is_behind_does_not_hide_what_we_wrote() {
        let mut ledger = Ledger::default();
        let task = Task::Service(key());
        let written = at("uid-1", "10");
        for (shown, expected) in [("9", "10"), ("10", "10"), ("11", "11")] {
            ledger.put(&task, Some(made(&written)));
            let taken = ledger.take(&task, Some(at("uid-1", shown)));
            let version = taken.service.unwrap().metadata.resource_version.clone();
            assert_eq!(version.as_deref(), Some(expected));
        }
    }
}
