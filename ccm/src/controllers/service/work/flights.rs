//! The Services that are worked on: one job for each, and what happens to the Service meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::{Id, JoinSet};

use crate::controllers::service::ledger::Task;
use crate::controllers::service::record::Record;
use crate::controllers::service::sync::{Finished, UnderWay};

/// All jobs.
#[derive(Default)]
pub(in crate::controllers::service) struct Flights {
    jobs: JoinSet<Finished>,
    flights: BTreeMap<Task, Flight>,
}

/// A Service that is worked on.
pub(in crate::controllers::service) struct Flight {
    id: Id,
    pub(super) under_way: Arc<UnderWay>,
    /// It changed meanwhile.
    pub(super) changed: bool,
    /// It is to be checked when the job is over.
    pub(super) check: bool,
}

/// A job that is over.
pub(in crate::controllers::service) struct Landed {
    pub(super) task: Task,
    pub(super) flight: Flight,
    /// `None`: it broke off.
    pub(super) finished: Option<Finished>,
}

impl Flights {
    pub(super) fn start(
        &mut self,
        task: Task,
        under_way: Arc<UnderWay>,
        work: impl Future<Output = Finished> + Send + 'static,
    ) {
        let flight = Flight {
            id: self.jobs.spawn(work).id(),
            under_way,
            changed: false,
            check: false,
        };
        self.flights.insert(task, flight);
    }

    /// The next job that is over; `None`: there is none. A dropped future loses nothing.
    pub(in crate::controllers::service) async fn next(&mut self) -> Option<Landed> {
        loop {
            let (id, finished) = match self.jobs.join_next_with_id().await? {
                Ok((id, finished)) => (id, Some(finished)),
                Err(error) => (error.id(), None),
            };
            let mut flights = self.flights.iter();
            let task = flights.find_map(|(task, flight)| (flight.id == id).then(|| task.clone()));
            if let Some((task, flight)) = task.and_then(|task| self.flights.remove_entry(&task)) {
                return Some(Landed {
                    task,
                    flight,
                    finished,
                });
            }
        }
    }

    pub(in crate::controllers::service) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }

    pub(super) fn get(&self, task: &Task) -> Option<&Flight> {
        self.flights.get(task)
    }

    pub(super) fn get_mut(&mut self, task: &Task) -> Option<&mut Flight> {
        self.flights.get_mut(task)
    }

    /// The UIDs of the Services, as far as they are known.
    pub(super) fn uids(&self) -> Vec<String> {
        let flights = self.flights.iter();
        let uids = flights.filter_map(|(task, flight)| match task {
            Task::Departed(_, uid) => Some(uid.clone()),
            Task::Service(_) => flight.under_way.uid(),
        });
        uids.collect()
    }

    /// What is left of all jobs, which end here.
    pub(super) fn broken_off(&mut self) -> impl Iterator<Item = (Task, Record)> + use<> {
        self.jobs.abort_all();
        let flights = std::mem::take(&mut self.flights).into_iter();
        flights.filter_map(|(task, flight)| Some((task, flight.under_way.broken_off()?)))
    }
}
