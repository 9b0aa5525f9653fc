//! Limits the time that the suite spends on a provider that does not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::check::{Lack, Skipped};

/// If an unanswered call ended this many checks of one service, the suite runs no more checks of
/// that service. For an RPC of [`ALL_NEED`], checks of all services count together, and then the
/// suite runs no more checks at all.
const SILENT: usize = 3;
/// If a check does not end, and a call is unanswered for this long, each later check of the service
/// gets only this time. Most checks of a working provider need less, and the report already has the
/// reason.
const HURRIED: Duration = Duration::from_secs(45);
/// Every caller of a provider needs these RPCs.
const ALL_NEED: [&str; 3] = ["GetProviderInfo", "Initialize", "Probe"];

/// The checks that an unanswered call affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    All,
    /// The checks whose IDs begin with this.
    Service(&'static str),
}

/// Counts the checks that an unanswered call ended.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    silent: BTreeMap<Scope, (usize, &'static str)>,
    /// Services with a check that did not end in time because of an unanswered call.
    endless: BTreeSet<&'static str>,
}

impl Breaker {
    /// Records that the check with this ID ended because of an unanswered call of this RPC.
    pub(super) fn note(&mut self, id: &'static str, rpc: &'static str) {
        let scope = if ALL_NEED.contains(&rpc) {
            Scope::All
        } else {
            Scope::Service(service(id))
        };
        let (count, last) = self.silent.entry(scope).or_insert((0, rpc));
        *count += 1;
        *last = rpc;
    }

    /// Records that the check with this ID did not end in time. `open` is how long its oldest
    /// unanswered call was open. If that is less than [`HURRIED`], or no call is open, the cloud
    /// may be slow, and later checks keep their full time.
    pub(super) fn note_endless(&mut self, id: &'static str, open: Option<Duration>) {
        if open.is_some_and(|open| open >= HURRIED) {
            self.endless.insert(service(id));
        }
    }

    /// The time for the check with this ID. `usual` is the upper limit.
    pub(super) fn patience(&self, id: &'static str, usual: Duration) -> Duration {
        if self.endless.contains(service(id)) {
            usual.min(HURRIED)
        } else {
            usual
        }
    }

    /// Why the check with this ID is not run.
    pub(super) fn refuses(&self, id: &'static str) -> Option<Skipped> {
        let scopes = [Scope::All, Scope::Service(service(id))];
        scopes.iter().find_map(|scope| {
            let (count, rpc) = self.silent.get(scope)?;
            (*count >= SILENT).then(|| Skipped {
                reason: format!(
                    "the provider does not answer ({rpc}: no answer by the deadline, in {count} checks)"
                ),
                lack: Lack::Answer,
            })
        })
    }
}

fn service(id: &'static str) -> &'static str {
    id.split('/').next().unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_call_that_did_not_end_the_next_checks_of_its_service_have_less_time() {
        let mut breaker = Breaker::default();
        let usual = Duration::from_mins(3);
        assert_eq!(breaker.patience("routes/b", usual), usual);
        // A slow cloud: the provider answered every call, or the open call is recent.
        breaker.note_endless("routes/a", None);
        breaker.note_endless("routes/a", Some(Duration::from_secs(20)));
        assert_eq!(breaker.patience("routes/b", usual), usual);
        breaker.note_endless("routes/a", Some(usual));
        assert_eq!(breaker.patience("routes/b", usual), HURRIED);
        assert_eq!(breaker.patience("zones/b", usual), usual);
        // Never more than `usual`.
        let short = Duration::from_secs(5);
        assert_eq!(breaker.patience("routes/b", short), short);
        // The total cost of one service that hangs.
        let tries = u32::try_from(SILENT).unwrap() - 1;
        assert!(usual + HURRIED * tries < Duration::from_mins(5));
    }

    #[test]
    fn who_does_not_answer_is_not_asked_for_ever() {
        let mut breaker = Breaker::default();
        for _ in 0..SILENT {
            assert!(breaker.refuses("zones/x").is_none());
            breaker.note("zones/a", "LookupZones");
        }
        let why = breaker.refuses("zones/x").unwrap();
        assert!(why.reason.contains("LookupZones"), "{}", why.reason);
        assert_eq!(why.lack, Lack::Answer);
        // Other services may answer.
        assert!(breaker.refuses("routes/x").is_none());
        for (id, rpc) in [
            ("core/a", "Initialize"),
            ("routes/a", "Initialize"),
            ("routes/b", "Probe"),
        ] {
            breaker.note(id, rpc);
        }
        assert!(breaker.refuses("routes/x").is_some() && breaker.refuses("volumes/x").is_some());
    }
}
