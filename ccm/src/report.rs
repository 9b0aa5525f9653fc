//! Objects that wait to be done, and what a user who describes one is told within a minute (▲N13). Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::provider::ProviderStatus;
use crate::writes::EventType;

/// After so long the object gets an event: well within the minute that is promised.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A provider that is away for so long is not just being restarted: nobody waits longer to be told, as the leader steps down within the minute.
const AWAY: Duration = Duration::from_secs(10);
/// So long until the same is said again; the API server forgets events after an hour.
pub(crate) const TOLD_AGAIN: Duration = Duration::from_mins(15);
/// Bytes of a message: the API's limit for events.
const MESSAGE_BYTES: usize = 1_024;

/// What the last attempt brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    /// Of the event that tells it.
    pub(crate) kind: EventType,
    /// Of the event that tells it.
    pub(crate) reason: &'static str,
    /// In the words of who answered.
    pub(crate) words: String,
    /// Of a call of the provider: its code, as the contract names it, or what became of the call.
    pub(crate) code: Option<&'static str>,
    /// That call.
    pub(crate) rpc: Option<&'static str>,
}

/// When it is tried next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Then.
    At(Timestamp),
    /// Then, or when the object changes.
    WhenChangedOr(Timestamp),
    /// When the provider is there again.
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

/// The whole of what is told. Where there is too little room the words are cut, and the rest is not. `about`: what the provider was asked for, where the object's own name does not say it.
pub(crate) fn told(
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

/// Why nothing is tried, or nothing comes of it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// Whatever is the same at each look.
    pub(crate) text: String,
    /// What is not.
    more: Option<String>,
}

impl Obstacle {
    /// The provider cannot be asked, or must not be.
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

    /// Another one. `more`: what is otherwise at each look.
    pub(crate) fn new(text: String, more: Option<String>) -> Self {
        Self { text, more }
    }

    /// A call was made and is not answered yet. `deadline`: of one call.
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

    /// As it is told.
    pub(crate) fn in_full(&self) -> String {
        match &self.more {
            Some(more) => format!("{}; {more}", self.text),
            None => self.text.clone(),
        }
    }
}

/// Since when the provider cannot be asked.
#[derive(Debug, Default)]
pub(crate) struct Away(Option<Instant>);

impl Away {
    /// How long an object waits until it is told why.
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

    /// The same where these are the last words of a leader, who steps down because of it or for other reasons. `None`: there is nothing to say.
    pub(crate) fn last_patience(status: &ProviderStatus) -> Option<Duration> {
        status.working().is_none().then_some(Duration::ZERO)
    }
}

/// The objects that wait.
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

#[derive(Debug)]
struct Entry {
    uid: Option<String>,
    created: Option<Timestamp>,
    /// When this process first saw it so.
    since: Instant,
    attempts: u32,
    /// What the last attempt brought.
    answered: Option<Answered>,
    /// When it was told of last, and of which state.
    told: Option<(Instant, String)>,
}

impl<K: Clone + Ord> Waiting<K> {
    /// It waits; what is known of another object of that key is forgotten.
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
            told: None,
        };
        self.entries.insert(key.clone(), entry);
    }

    /// It waits no more.
    pub(crate) fn gone(&mut self, key: &K) {
        self.entries.remove(key);
    }

    /// Only these wait still.
    pub(crate) fn keep(&mut self, waits: impl Fn(&K) -> bool) {
        self.entries.retain(|key, _| waits(key));
    }

    /// All that wait.
    pub(crate) fn keys(&self) -> Vec<K> {
        self.entries.keys().cloned().collect()
    }

    /// How often it was tried in vain.
    pub(crate) fn attempts(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.attempts)
    }

    /// It was tried in vain. Whether somebody must be told now: at once where `at_once`, else as soon as it was told of before.
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
        let tell = at_once || entry.told.is_some();
        if tell {
            entry.told = Some((now, answered.words.clone()));
        }
        tell
    }

    /// Those about which somebody must be told now, because they have waited for longer than `patience`, or because what is in their way is another than what was told. `state` says what
    /// that is, without anything that is otherwise at each look; it is given what the last attempt brought. Each is counted as told.
    pub(crate) fn overdue(
        &mut self,
        now: Instant,
        patience: Duration,
        state: impl Fn(&K, Option<&Answered>) -> String,
    ) -> Vec<(K, Option<Answered>, u32)> {
        let mut overdue = Vec::new();
        for (key, entry) in &mut self.entries {
            let (last, patience) = match &entry.told {
                Some((when, _)) => (*when, PATIENCE),
                None => (entry.since, patience),
            };
            let ago = now.saturating_duration_since(last);
            if ago < patience {
                continue;
            }
            let state = state(key, entry.answered.as_ref());
            if ago < TOLD_AGAIN && entry.told.as_ref().is_some_and(|(_, told)| *told == state) {
                continue;
            }
            entry.told = Some((now, state));
            overdue.push((key.clone(), entry.answered.clone(), entry.attempts));
        }
        overdue
    }

    /// How many have waited for longer than [`PATIENCE`].
    pub(crate) fn count_overdue(&self, now: Instant) -> usize {
        let waits = |entry: &&Entry| now.saturating_duration_since(entry.since) > PATIENCE;
        self.entries.values().filter(waits).count()
    }

    /// The age of the oldest; zero where none waits.
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
