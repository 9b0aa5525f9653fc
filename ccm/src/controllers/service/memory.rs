//! State that outlives a loop within a process. A step-down must not lose a load balancer that only
//! this process knows (▲S9).

use std::sync::{Mutex, MutexGuard};

use tracing::error;

use super::ledger::Task;
use super::record::Record;
use crate::core::lock;

/// The most load balancers to keep between two loops.
const MOST: usize = 20_000;

/// Shared by consecutive loops for one provider.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Vec<(Task, Record)>>);

impl Memory {
    fn balancers(&self) -> MutexGuard<'_, Vec<(Task, Record)>> {
        lock(&self.0)
    }

    /// Keeps the records of load balancers that may exist, for the next loop.
    pub(super) fn keep(&self, known: impl Iterator<Item = (Task, Record)>) {
        let mut balancers = self.balancers();
        for entry in known.filter(|(_, record)| record.cloud.by().is_some()) {
            if balancers.len() >= MOST {
                error!(
                    most = MOST,
                    "cannot remember more load balancers: if a Service vanishes now without its finalizer, its load balancer may stay"
                );
                return;
            }
            balancers.push(entry);
        }
    }

    /// Returns and removes the records of the previous loop.
    pub(super) fn take(&self) -> Vec<(Task, Record)> {
        std::mem::take(&mut *self.balancers())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::controllers::service::fixtures::service;
    use crate::controllers::service::record::Cloud;
    use crate::core::Key;

    #[test]
    fn s9_what_is_kept_between_two_loops_is_bounded() {
        let memory = Memory::default();
        let service = Arc::new(service());
        let by = "mock".to_owned();
        let made = Record {
            cloud: Cloud::MayStand { by },
            ..Record::new(&service)
        };
        let task = |i: usize| Task::Departed(Key::of(&*service), format!("uid-{i}"));
        memory.keep([(task(0), Record::new(&service))].into_iter());
        assert!(memory.take().is_empty(), "no load balancer can exist");
        memory.keep((0..=MOST).map(|i| (task(i), made.clone())));
        assert_eq!(memory.take().len(), MOST);
        assert!(memory.take().is_empty());
    }
}
