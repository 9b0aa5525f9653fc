//! What the provider was asked and what it wrote.

use std::collections::BTreeMap;

use super::Cloud;
use crate::calls::CallEntry;
use crate::duration::HumanDuration;

impl Cloud {
    /// How many calls of this RPC have ended since the beginning or the last reset.
    pub fn call_count(&self, rpc: &str) -> u64 {
        self.state().calls.count(rpc)
    }

    /// The same for every RPC that was called.
    pub fn call_counts(&self) -> BTreeMap<String, u64> {
        self.state().calls.counts()
    }

    /// How many calls have ended that may change the cloud, whether or not they did.
    pub fn mutating_calls(&self) -> u64 {
        self.state().calls.mutating()
    }

    /// The last calls, oldest first: of one RPC, or of all.
    pub fn calls(&self, rpc: Option<&str>) -> Vec<CallEntry> {
        self.state().calls.entries(rpc)
    }

    /// How many calls of this RPC are not answered yet.
    pub fn in_flight(&self, rpc: &str) -> u64 {
        self.state().calls.in_flight.get(rpc).copied().unwrap_or(0)
    }

    /// How many calls of this RPC were in flight at once at most.
    pub fn most_in_flight(&self, rpc: &str) -> u64 {
        self.state()
            .calls
            .most_in_flight
            .get(rpc)
            .copied()
            .unwrap_or(0)
    }

    /// How many calls were not answered as the cloud would have it, since the beginning or the last reset: the answer was changed, or nothing or something else came in its
    /// place. What a lie makes of the cloud itself, and how long an answer takes, is not counted.
    pub fn lied(&self) -> u64 {
        self.state().calls.lied
    }

    /// Forgets all calls and the count of writes.
    pub fn reset_calls(&self) {
        {
            let mut state = self.state();
            state.calls.reset();
            state.cloud_writes = 0;
            state.writes.clear();
        }
        self.changed();
    }

    /// How many times the provider wrote to the cloud: a load balancer made, changed, taken over or deleted, a route made or deleted. A call that found
    /// everything as asked wrote nothing.
    pub fn cloud_writes(&self) -> u64 {
        self.state().cloud_writes
    }

    /// How many times a provider ever wrote to the cloud: no reset forgets one, and with a state file neither does the end of the process.
    pub fn all_writes(&self) -> u64 {
        self.state().all_writes
    }

    /// The last writes, oldest first, one line for each.
    pub fn writes(&self) -> Vec<String> {
        self.state().writes.iter().cloned().collect()
    }

    /// A call begins: how long it is to take.
    pub(crate) fn begin_call(&self, rpc: &str) -> HumanDuration {
        let latency = {
            let mut state = self.state();
            state.calls.begin(rpc);
            let latency = &state.settings.latency;
            latency.get(rpc).or_else(|| latency.get("default")).copied()
        };
        self.changed();
        latency.unwrap_or_default()
    }

    pub(crate) fn count_lie(&self) {
        self.state().calls.lied += 1;
    }

    pub(crate) fn end_call(&self, entry: CallEntry) {
        self.state().calls.end(entry);
        self.changed();
    }
}
