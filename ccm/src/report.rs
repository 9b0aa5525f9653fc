//! Which objects get an event within a minute of waiting (▲N13), and the event's text. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::provider::{CallId, ProviderStatus};
use crate::writes::EventType;

/// An object that has waited for this long gets an event, within the minute that ▲N13 promises.
/// Without a new attempt, a report about a changed state follows the previous report after at least
/// this time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A provider that is unavailable for this long is not just restarting. Then waiting objects get
/// their event without `PATIENCE`, because by default the leader steps down after a minute.
const AWAY: Duration = Duration::from_secs(10);
/// Without a new attempt, an unchanged report is repeated only after this time. By default the API
/// server deletes events after an hour.
pub(crate) const REPORT_AGAIN: Duration = Duration::from_mins(15);
/// The limit of `events.k8s.io/v1` for a message, in bytes.
const MESSAGE_BYTES: usize = 1_024;

/// How the last attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    /// The type of the event about it.
    pub(crate) kind: EventType,
    /// The reason of the event about it.
    pub(crate) reason: &'static str,
    /// The message of the provider or the API server.
    pub(crate) words: String,
    /// The error code of the failed call as the contract names it, how the call ended, or
    /// `PENDING`.
    pub(crate) code: Option<&'static str>,
    /// The name of the call to the provider that the event is about.
    pub(crate) rpc: Option<&'static str>,
    /// The ID of that call, for the log.
    pub(crate) call_id: Option<CallId>,
}

/// When the ccm tries next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// At this time.
    At(Timestamp),
    /// At this time, or when the object changes.
    WhenChangedOr(Timestamp),
    /// As soon as the provider is available.
    WhenBack,
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => write!(f, "next try at {at:.0}"),
            Self::WhenChangedOr(at) => write!(
                f,
                "next try when the object changes, at the latest at {at:.0}"
            ),
            Self::WhenBack => write!(f, "next try as soon as the provider is available"),
        }
    }
}

/// The message of the event. If it is too long, only `Answered::words` is cut. `about` says which
/// object the provider was asked about, if the event's object does not.
pub(crate) fn reported(
    answered: &Answered,
    provider: &str,
    about: Option<&str>,
    attempt: u32,
    next: Option<Next>,
) -> String {
    let words = answered.words.as_str();
    let mut facts = Vec::new();
    let about = about.map_or(String::new(), |about| format!(" for {about}"));
    match (answered.code, answered.rpc) {
        (Some(code), Some(rpc)) => {
            facts.push(format!("{code} from {rpc} of provider {provider}{about}"));
        }
        (None, Some(rpc)) => facts.push(format!("{rpc} of provider {provider}{about}")),
        (_, None) => {}
    }
    if attempt > 0 {
        facts.push(format!("attempt {attempt}"));
    }
    facts.extend(next.map(|next| next.to_string()));
    let rest = match facts.as_slice() {
        [] => String::new(),
        facts => format!(" ({})", facts.join(", ")),
    };
    let room = MESSAGE_BYTES.saturating_sub(rest.len());
    if words.len() <= room {
        return format!("{words}{rest}");
    }
    let end = words.floor_char_boundary(room.saturating_sub('…'.len_utf8()));
    format!("{}…{rest}", &words[..end])
}

/// Why the ccm is not trying, or why its attempt has no result yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// The part that stays the same between checks.
    text: String,
    /// The part that changes between checks, such as a time.
    more: Option<String>,
}

impl Obstacle {
    /// The provider is unavailable, or its cloud scope is not the accepted one. `None`: neither.
    pub(crate) fn of_provider(provider: &str, status: &ProviderStatus) -> Option<Self> {
        let text = if status.working().is_none() {
            let why = match status.complaint() {
                "" => "it has not answered yet",
                complaint => complaint,
            };
            format!(
                "provider {provider} is not available: {why} ({})",
                Next::WhenBack
            )
        } else if status.scope_accepted {
            return None;
        } else {
            let why = match status.complaint() {
                "" => "",
                complaint => &format!(": {complaint}"),
            };
            format!(
                "the cloud scope of provider {provider} is not the accepted one, so the ccm creates, changes and deletes nothing{why} (next try as soon as an operator accepts it)"
            )
        };
        Some(Self { text, more: None })
    }

    /// Any other obstacle. `more` is the part that changes between checks.
    pub(crate) fn new(text: String, more: Option<String>) -> Self {
        Self { text, more }
    }

    /// The provider has not answered a call yet. `deadline` is the deadline of one call.
    pub(crate) fn unanswered(
        provider: &str,
        rpc: &str,
        since: Timestamp,
        deadline: Option<Duration>,
    ) -> Self {
        let then = deadline.map_or(String::new(), |deadline| {
            let seconds = deadline.as_secs();
            format!("; the ccm gives up a call after {seconds} s, and retries")
        });
        Self {
            text: format!("provider {provider} has not answered {rpc} yet"),
            more: Some(format!("it was asked at {since:.0}{then}")),
        }
    }

    /// The cloud asked the provider to slow down, so all these objects wait.
    pub(crate) fn slowed(provider: &str, objects: &str, until: Timestamp) -> Self {
        Self {
            text: format!(
                "the cloud asked provider {provider} to slow down: all its {objects} wait"
            ),
            more: Some(Next::At(until).to_string()),
        }
    }

    /// The whole text for the event.
    pub(crate) fn in_full(&self) -> String {
        match &self.more {
            Some(more) => format!("{}; {more}", self.text),
            None => self.text.clone(),
        }
    }
}

/// Since when the provider is unavailable.
#[derive(Debug, Default)]
pub(crate) struct Away(Option<Instant>);

impl Away {
    /// How long an object waits before its event.
    pub(crate) fn patience(&mut self, status: &ProviderStatus, now: Instant) -> Duration {
        if status.working().is_some() {
            self.0 = None;
            return PATIENCE;
        }
        let since = *self.0.get_or_insert(now);
        if now.saturating_duration_since(since) < AWAY {
            PATIENCE
        } else {
            Duration::ZERO
        }
    }
}

/// The objects that wait to be reconciled.
#[derive(Debug)]
pub(crate) struct Waiting<K> {
    entries: BTreeMap<K, Entry>,
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
        }
    }
}

/// An object that has waited too long.
#[derive(Debug)]
pub(crate) struct Overdue<K> {
    pub(crate) key: K,
    pub(crate) obstacle: Option<Obstacle>,
    /// How the last attempt ended.
    pub(crate) answered: Option<Answered>,
    /// How many attempts did not succeed.
    pub(crate) attempts: u32,
}

#[derive(Debug)]
struct Entry {
    uid: Option<String>,
    created: Option<Timestamp>,
    /// When this process first saw the object waiting.
    since: Instant,
    attempts: u32,
    /// How the last attempt ended.
    answered: Option<Answered>,
    /// When the last report was made, and of which state.
    reported: Option<(Instant, String)>,
}

impl<K: Clone + Ord> Waiting<K> {
    /// Records that the object waits. Replaces an entry of the same key that has another UID.
    pub(crate) fn seen(
        &mut self,
        key: &K,
        uid: Option<&str>,
        created: Option<Timestamp>,
        now: Instant,
    ) {
        let known = self.entries.get(key);
        if known.is_some_and(|entry| entry.uid.as_deref() == uid) {
            return;
        }
        let entry = Entry {
            uid: uid.map(str::to_owned),
            created,
            since: now,
            attempts: 0,
            answered: None,
            reported: None,
        };
        self.entries.insert(key.clone(), entry);
    }

    pub(crate) fn gone(&mut self, key: &K) {
        self.entries.remove(key);
    }

    /// The object with this UID no longer waits.
    pub(crate) fn done(&mut self, key: &K, uid: Option<&str>) {
        let entry = self.entries.get(key);
        if entry.is_some_and(|entry| entry.uid.as_deref() == uid) {
            self.entries.remove(key);
        }
    }

    /// Drops the objects that no longer wait.
    pub(crate) fn keep(&mut self, waits: impl Fn(&K) -> bool) {
        self.entries.retain(|key, _| waits(key));
    }

    pub(crate) fn keys(&self) -> Vec<K> {
        self.entries.keys().cloned().collect()
    }

    /// How many attempts did not succeed.
    pub(crate) fn attempts(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.attempts)
    }

    /// Counts an attempt that did not succeed. Returns whether to report it now: always with
    /// `at_once`, else only if the object was reported before.
    pub(crate) fn answered(
        &mut self,
        key: &K,
        answered: &Answered,
        at_once: bool,
        now: Instant,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            return at_once;
        };
        entry.attempts = entry.attempts.saturating_add(1);
        entry.answered = Some(answered.clone());
        let tell = at_once || entry.reported.is_some();
        if tell {
            entry.reported = Some((now, answered.words.clone()));
        }
        tell
    }

    /// The waiting objects to report now, which then count as reported. Without a report so
    /// far, an object is due after `patience`. After a report it is due when its state changed (not
    /// within `PATIENCE`), or after `REPORT_AGAIN`. Its state is the obstacle's unchanging text, or
    /// else the words of the last attempt. `obstacle` gets the last attempt.
    pub(crate) fn overdue(
        &mut self,
        now: Instant,
        patience: Duration,
        obstacle: impl Fn(&K, Option<&Answered>) -> Option<Obstacle>,
    ) -> Vec<Overdue<K>> {
        let mut overdue = Vec::new();
        for (key, entry) in &mut self.entries {
            let (last, patience) = match &entry.reported {
                Some((when, _)) => (*when, PATIENCE),
                None => (entry.since, patience),
            };
            let ago = now.saturating_duration_since(last);
            if ago < patience {
                continue;
            }
            let obstacle = obstacle(key, entry.answered.as_ref());
            let answered = entry.answered.clone();
            let state = match (&obstacle, &answered) {
                (Some(obstacle), _) => obstacle.text.clone(),
                (None, Some(answered)) => answered.words.clone(),
                (None, None) => String::new(),
            };
            if ago < REPORT_AGAIN
                && entry
                    .reported
                    .as_ref()
                    .is_some_and(|(_, reported)| *reported == state)
            {
                continue;
            }
            entry.reported = Some((now, state));
            overdue.push(Overdue {
                key: key.clone(),
                obstacle,
                answered,
                attempts: entry.attempts,
            });
        }
        overdue
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many have waited for longer than [`PATIENCE`].
    pub(crate) fn count_overdue(&self, now: Instant) -> usize {
        let waits = |entry: &&Entry| now.saturating_duration_since(entry.since) > PATIENCE;
        self.entries.values().filter(waits).count()
    }

    /// The age of the oldest waiting object; zero if none waits.
    pub(crate) fn oldest(&self, wall: Timestamp) -> Duration {
        let created = self
            .entries
            .values()
            .filter_map(|entry| entry.created)
            .min();
        created.map_or(Duration::ZERO, |created| {
            Duration::try_from(wall.duration_since(created)).unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests;
