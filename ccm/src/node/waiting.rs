//! The Nodes that wait to be initialised (▲N13). Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// After so long the Node gets an event: well within the minute that is promised.
const PATIENCE: Duration = Duration::from_secs(30);
/// So long until the same is said again; the API server forgets events after an hour.
const AGAIN: Duration = Duration::from_mins(15);

/// The Nodes with the taint, by name.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    nodes: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    uid: Option<String>,
    created: Option<Timestamp>,
    /// When this process first saw it so.
    since: Instant,
    /// Why it is not initialised yet, as far as it was tried.
    error: Option<String>,
    told: Option<(Instant, Option<String>)>,
    /// How often in a row it was BUSY.
    busy: u32,
}

impl Waiting {
    /// The Node has the taint.
    pub(super) fn seen(
        &mut self,
        name: &str,
        uid: Option<&str>,
        created: Option<Timestamp>,
        now: Instant,
    ) {
        if self
            .nodes
            .get(name)
            .is_some_and(|entry| entry.uid.as_deref() == uid)
        {
            return;
        }
        let entry = Entry {
            uid: uid.map(str::to_owned),
            created,
            since: now,
            error: None,
            told: None,
            busy: 0,
        };
        self.nodes.insert(name.to_owned(), entry);
    }

    /// The Node has no taint any more, is gone or is not ours.
    pub(super) fn gone(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// It was tried and did not work.
    pub(super) fn failed(&mut self, name: &str, error: &str) {
        if let Some(entry) = self.nodes.get_mut(name) {
            entry.error = Some(error.to_owned());
        }
    }

    /// It was BUSY, or not. Returns how often in a row it was before.
    pub(super) fn busy(&mut self, name: &str, busy: bool) -> u32 {
        let Some(entry) = self.nodes.get_mut(name) else {
            return 0;
        };
        let before = entry.busy;
        entry.busy = if busy { before.saturating_add(1) } else { 0 };
        before
    }

    /// The Nodes about which somebody must be told now, with the reason where it is known. Each is counted as told.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<(String, Option<String>)> {
        let mut overdue = Vec::new();
        for (name, entry) in &mut self.nodes {
            let news = match &entry.told {
                None => now.saturating_duration_since(entry.since) >= PATIENCE,
                Some((when, text)) => {
                    let ago = now.saturating_duration_since(*when);
                    ago >= AGAIN || *text != entry.error && ago >= PATIENCE
                }
            };
            if news {
                entry.told = Some((now, entry.error.clone()));
                overdue.push((name.clone(), entry.error.clone()));
            }
        }
        overdue
    }

    /// The age of the oldest; zero where none waits.
    pub(super) fn oldest(&self, wall: Timestamp) -> Duration {
        let created = self.nodes.values().filter_map(|entry| entry.created).min();
        created.map_or(Duration::ZERO, |created| {
            Duration::try_from(wall.duration_since(created)).unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n13_who_waits_for_half_a_minute_is_told_why() {
        let mut waiting = Waiting::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        waiting.seen("a", Some("1"), None, start);
        waiting.seen("b", Some("2"), None, at(20));
        waiting.failed("a", "quota");
        waiting.failed("nobody", "quota");
        assert!(waiting.overdue(at(29)).is_empty());
        let first = ("a".to_owned(), Some("quota".to_owned()));
        assert_eq!(waiting.overdue(at(35)), [first]);
        assert!(waiting.overdue(at(49)).is_empty());
        assert_eq!(waiting.overdue(at(50)), [("b".to_owned(), None)]);
        waiting.failed("b", "no subnet");
        assert!(waiting.overdue(at(60)).is_empty());
        assert_eq!(
            waiting.overdue(at(81)),
            [("b".to_owned(), Some("no subnet".to_owned()))]
        );
        waiting.gone("b");
        assert!(waiting.overdue(at(900)).is_empty());
        assert_eq!(waiting.overdue(at(940)).len(), 1);
        // Made again under the same name: it has its own time.
        waiting.seen("a", Some("3"), None, at(950));
        assert!(waiting.overdue(at(960)).is_empty());
        waiting.seen("a", Some("3"), None, at(970));
        assert_eq!(waiting.overdue(at(980)), [("a".to_owned(), None)]);
    }

    #[test]
    fn n13_the_age_of_the_oldest() {
        let mut waiting = Waiting::default();
        let now = Instant::now();
        let second = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(waiting.oldest(second(100)), Duration::ZERO);
        waiting.seen("a", None, Some(second(90)), now);
        waiting.seen("b", None, Some(second(40)), now);
        assert_eq!(waiting.oldest(second(100)), Duration::from_mins(1));
        assert_eq!(waiting.oldest(second(1)), Duration::ZERO);
    }
}
