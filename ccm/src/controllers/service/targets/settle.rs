//! Delays changes of Nodes until they settle, before load balancers are updated (▲S12).

use std::time::Duration;

use tokio::time::Instant;

/// Changes settle after this time without another one.
const QUIET: Duration = Duration::from_secs(1);
/// The longest delay of a change.
const LONGEST: Duration = Duration::from_secs(5);

/// The changes that wait.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::controllers::service) struct Settle {
    /// The first and the last change that wait.
    waiting: Option<(Instant, Instant)>,
}

impl Settle {
    pub(in crate::controllers::service) fn note(&mut self, now: Instant) {
        let first = self.waiting.map_or(now, |(first, _)| first);
        self.waiting = Some((first, now));
    }

    /// When the waiting changes settle. `None`: there are none.
    pub(in crate::controllers::service) fn due(&self) -> Option<Instant> {
        self.waiting
            .map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }

    /// The waiting changes are handled now.
    pub(in crate::controllers::service) fn clear(&mut self) {
        self.waiting = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When sets are built if Nodes change at these milliseconds.
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
        // Fifty joins within five seconds are one round: 200 updates for 200 load balancers.
        assert_eq!(rounds((0..50).map(|i| i * 100)), [5000]);
        // Twenty joins half a second apart are at most three rounds: 600 updates for 200 load
        // balancers.
        assert!(rounds((0..20).map(|i| i * 500)).len() <= 3);
        // Endless changes still lead to rounds.
        assert_eq!(rounds((0..200).map(|i| i * 100)).len(), 4);
    }
}
