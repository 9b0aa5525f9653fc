//! The provider's calls and writes.

use std::collections::BTreeMap;

use super::Cloud;
use crate::calls::CallEntry;
use crate::duration::HumanDuration;

impl Cloud {
    /// How many calls of this RPC have ended since the beginning or the last reset.
    pub fn call_count(&self, rpc: &str) -> u64 {
        self.state().calls.count(rpc)
    }

    /// How many calls have ended, for every RPC that was called.
    pub fn call_counts(&self) -> BTreeMap<String, u64> {
        self.state().calls.counts()
    }

    /// How many calls of mutating RPCs have ended, whether or not they changed the cloud.
    pub fn mutating_calls(&self) -> u64 {
        self.state().calls.mutating()
    }

    /// The last calls, oldest first: of one RPC, or of all.
    pub fn calls(&self, rpc: Option<&str>) -> Vec<CallEntry> {
        self.state().calls.entries(rpc)
    }

    /// How many calls of this RPC have not ended.
    pub fn in_flight(&self, rpc: &str) -> u64 {
        self.state().calls.in_flight.get(rpc).copied().unwrap_or(0)
    }

    /// The most calls of this RPC in flight at once.
    pub fn most_in_flight(&self, rpc: &str) -> u64 {
        self.state()
            .calls
            .most_in_flight
            .get(rpc)
            .copied()
            .unwrap_or(0)
    }

    /// How many deviations from an honest provider the faults and twists have made since the
    /// beginning or the last reset. Examples are a changed or omitted answer, a changed request, a
    /// write to the cloud, and a frame of their own. Some do not count, such as delays and garbage
    /// on a connection.
    pub fn lied(&self) -> u64 {
        self.mischief().lied
    }

    /// Clears the log of calls and of writes, and the count of lies.
    pub fn reset_calls(&self) {
        {
            let mut state = self.state();
            state.calls.reset();
            state.cloud_writes = 0;
            state.writes.clear();
        }
        self.mischief().lied = 0;
        self.changed();
    }

    /// How many times the provider wrote to the cloud: it created, changed, adopted or deleted a
    /// load balancer, or created, replaced or deleted a route. A call that found nothing to change
    /// wrote nothing.
    pub fn cloud_writes(&self) -> u64 {
        self.state().cloud_writes
    }

    /// How many times any provider wrote to the cloud. A reset does not change the count. With a
    /// state file, the count outlives the process.
    pub fn all_writes(&self) -> u64 {
        self.state().all_writes
    }

    /// Descriptions of the last writes, oldest first, one line each.
    pub fn writes(&self) -> Vec<String> {
        self.state().writes.iter().cloned().collect()
    }

    /// Begins a call. Returns its latency.
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

    /// The caller may hold the lock of the state, but not that of the mischief.
    pub(crate) fn count_lie(&self) {
        self.mischief().lied += 1;
    }

    pub(crate) fn end_call(&self, entry: CallEntry) {
        self.state().calls.end(entry);
        self.changed();
    }
}
