//! Changes of Nodes settle before load balancers hear of them (▲S12).

use std::time::Duration;

use tokio::time::Instant;

/// So long nothing must have changed.
const QUIET: Duration = Duration::from_secs(1);
/// And no change waits longer than this.
const LONGEST: Duration = Duration::from_secs(5);

/// Whether changes wait, and until when.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::controllers::service) struct Settle {
    /// The first and the last change that wait.
    waiting: Option<(Instant, Instant)>,
}

impl Settle {
    /// Something changed.
    pub(in crate::controllers::service) fn note(&mut self, now: Instant) {
        let first = self.waiting.map_or(now, |(first, _)| first);
        self.waiting = Some((first, now));
    }

    /// When what waits has settled.
    pub(in crate::controllers::service) fn due(&self) -> Option<Instant> {
        self.waiting
            .map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }

    /// What waited is being looked at.
    pub(in crate::controllers::service) fn clear(&mut self) {
        self.waiting = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a set is made, when Nodes change at these milliseconds.
    fn rounds(changes: impl IntoIterator<Item = u64>) -> Vec<u128> {
        let start = Instant::now();
        let mut settle = Settle::default();
        let mut rounds = Vec::new();
        for at in changes.into_iter().map(Duration::from_millis) {
            if let Some(due) = settle.due().filter(|due| *due <= start + at) {
                rounds.push((due - start).as_millis());
                settle.clear();
            }
            settle.note(start + at);
        }
        rounds.extend(settle.due().map(|due| (due - start).as_millis()));
        rounds
    }

    #[test]
    fn s12_changes_settle_for_a_second_and_at_most_five() {
        assert_eq!(rounds([]), Vec::<u128>::new());
        assert_eq!(rounds([0]), [1000]);
        assert_eq!(rounds([0, 900, 1800]), [2800]);
        assert_eq!(rounds([0, 2000]), [1000, 3000]);
        // Fifty joins within five seconds are one round: with 200 load balancers, 200 updates.
        assert_eq!(rounds((0..50).map(|i| i * 100)), [5000]);
        // Twenty joins half a second apart: with 200 load balancers at most 800 updates are allowed.
        assert!(rounds((0..20).map(|i| i * 500)).len() <= 3);
        // A storm without end does not starve anybody.
        assert_eq!(rounds((0..200).map(|i| i * 100)).len(), 4);
    }
}
