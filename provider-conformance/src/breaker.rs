//! A provider that answers nothing must not cost the whole deadline of every call of every check.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::check::{Lack, Skipped};

/// After so many checks that ended since a call was not answered at all, those that need it are not tried any more.
const SILENT: usize = 3;
/// How long the next check of a service may take after one that never ended: a good one takes less, and the reason is told already.
const HURRIED: Duration = Duration::from_secs(45);
/// Without these nothing works.
const ALL_NEED: [&str; 3] = ["GetProviderInfo", "Initialize", "Probe"];

/// Whom the silence concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    All,
    /// The checks whose IDs begin with this.
    Service(&'static str),
}

/// Counts calls that were not answered.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    silent: BTreeMap<Scope, (usize, &'static str)>,
    /// Services of which a check did not end since a call did not.
    endless: BTreeSet<&'static str>,
}

impl Breaker {
    /// The check with this ID ended since this RPC was not answered.
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

    /// The check with this ID did not end in its time; its oldest call that was not answered yet was open for so long. Where each was answered the cloud is slow, which nobody must be hurried for.
    pub(super) fn note_endless(&mut self, id: &'static str, open: Option<Duration>) {
        if open.is_some_and(|open| open >= HURRIED) {
            self.endless.insert(service(id));
        }
    }

    /// How long the check with this ID may take, of as much as it may usually.
    pub(super) fn patience(&self, id: &'static str, usual: Duration) -> Duration {
        if self.endless.contains(service(id)) {
            usual.min(HURRIED)
        } else {
            usual
        }
    }

    /// Why the check with this ID is not tried.
    pub(super) fn refuses(&self, id: &'static str) -> Option<Skipped> {
        let scopes = [Scope::All, Scope::Service(service(id))];
        scopes.iter().find_map(|scope| {
            let (count, rpc) = self.silent.get(scope)?;
            (*count >= SILENT).then(|| Skipped {
                reason: format!(
                    "the provider does not answer ({rpc}: nothing came by the deadline, in {count} checks)"
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
        // A slow cloud: all was answered, or is asked just now.
        breaker.note_endless("routes/a", None);
        breaker.note_endless("routes/a", Some(Duration::from_secs(20)));
        assert_eq!(breaker.patience("routes/b", usual), usual);
        breaker.note_endless("routes/a", Some(usual));
        assert_eq!(breaker.patience("routes/b", usual), HURRIED);
        assert_eq!(breaker.patience("zones/b", usual), usual);
        // Never more than usual.
        let short = Duration::from_secs(5);
        assert_eq!(breaker.patience("routes/b", short), short);
        // What one service that hangs costs in all.
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
        // Others may be answered.
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
