//! The call log: counts of all calls, and the last entries.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::faults::MUTATING_RPCS;

/// The most entries of each RPC that the log keeps.
pub const KEPT_ENTRIES: usize = 1_000;
/// The most names in one entry.
pub const KEPT_NAMES: usize = 16;

/// One call that the provider received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEntry {
    /// The call's number among the calls of all RPCs, from 1, in the order in which they ended.
    pub number: u64,
    /// When it arrived, in milliseconds of the cloud's time.
    pub at_ms: u64,
    /// The RPC.
    pub rpc: String,
    /// How many Nodes or routes it was about; 1 for a Service, a volume or a cluster, else 0.
    pub count: usize,
    /// The names of the first 16: Nodes, volumes and clusters by name, a Service as
    /// `namespace/name`, routes by destination.
    pub names: Vec<String>,
    /// `ok`, `pending`, `handled-elsewhere`, `retained`, `failed:<CODE>` or `status:<CODE>`. With
    /// failed items in a batch: `ok, 2 failed`. `cancelled`: the call ended before its answer.
    /// `cut`: a fault ended the provider or its connections. Faults in answers have further words,
    /// such as `unset`.
    pub outcome: String,
    /// How long it took.
    pub duration_ms: u64,
}

/// The log of calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallLog {
    total: u64,
    by_rpc: BTreeMap<String, (u64, VecDeque<CallEntry>)>,
    /// Calls that have not ended.
    pub(crate) in_flight: BTreeMap<String, u64>,
    /// The most calls in flight at once.
    pub(crate) most_in_flight: BTreeMap<String, u64>,
}

impl CallLog {
    pub(crate) fn begin(&mut self, rpc: &str) {
        let now = self.in_flight.entry(rpc.to_owned()).or_default();
        *now += 1;
        let most = self.most_in_flight.entry(rpc.to_owned()).or_default();
        *most = (*most).max(*now);
    }

    pub(crate) fn end(&mut self, mut entry: CallEntry) {
        if let Some(now) = self.in_flight.get_mut(&entry.rpc) {
            *now = now.saturating_sub(1);
        }
        self.total += 1;
        entry.number = self.total;
        entry.names.truncate(KEPT_NAMES);
        let (count, entries) = self.by_rpc.entry(entry.rpc.clone()).or_default();
        *count += 1;
        if entries.len() == KEPT_ENTRIES {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    pub(crate) fn count(&self, rpc: &str) -> u64 {
        self.by_rpc.get(rpc).map_or(0, |(count, _)| *count)
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.by_rpc
            .iter()
            .map(|(rpc, (count, _))| (rpc.clone(), *count))
            .collect()
    }

    pub(crate) fn mutating(&self) -> u64 {
        MUTATING_RPCS.iter().map(|rpc| self.count(rpc)).sum()
    }

    /// The last entries of one RPC, or of all, oldest first.
    pub(crate) fn entries(&self, rpc: Option<&str>) -> Vec<CallEntry> {
        let mut entries: Vec<CallEntry> = self
            .by_rpc
            .iter()
            .filter(|(of, _)| rpc.is_none_or(|rpc| rpc == *of))
            .flat_map(|(_, (_, entries))| entries.iter().cloned())
            .collect();
        entries.sort_by_key(|entry| entry.number);
        entries
    }

    /// Removes all calls from the log except those in flight.
    pub(crate) fn reset(&mut self) {
        self.total = 0;
        self.by_rpc.clear();
        self.most_in_flight.clone_from(&self.in_flight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_and_entries_are_bounded() {
        let mut log = CallLog::default();
        for n in 0..1_005u64 {
            log.begin("Probe");
            log.end(CallEntry {
                number: 0,
                at_ms: n,
                rpc: "Probe".into(),
                count: 20,
                names: vec!["n".into(); 20],
                outcome: "ok".into(),
                duration_ms: 0,
            });
        }
        assert_eq!(log.count("Probe"), 1_005);
        let entries = log.entries(Some("Probe"));
        assert_eq!(
            (entries.len(), entries[0].at_ms, entries[0].names.len()),
            (1_000, 5, 16)
        );
        assert_eq!(log.most_in_flight["Probe"], 1);
        log.reset();
        assert_eq!(log.count("Probe"), 0);
    }
}
