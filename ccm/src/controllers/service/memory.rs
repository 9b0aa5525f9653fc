//! State that outlives a loop within a process. A step-down must not lose a load balancer that only
//! this process knows (▲S9).

use std::sync::Mutex;

use super::ledger::Task;
use super::record::Record;
use crate::core::lock;

/// Shared by consecutive loops for one provider.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Vec<(Task, Record)>>);

impl Memory {
    /// Keeps the records of load balancers that may exist, for the next loop.
    pub(super) fn keep(&self, known: impl Iterator<Item = (Task, Record)>) {
        let may_exist = known.filter(|(_, record)| record.cloud.by().is_some());
        lock(&self.0).extend(may_exist);
    }

    /// Returns and removes the records of the previous loop.
    pub(super) fn take(&self) -> Vec<(Task, Record)> {
        std::mem::take(&mut *lock(&self.0))
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
    fn s9_load_balancers_that_may_exist_are_kept_between_two_loops() {
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
        memory.keep((0..3).map(|i| (task(i), made.clone())));
        assert_eq!(memory.take().len(), 3);
        assert!(memory.take().is_empty());
    }
}
