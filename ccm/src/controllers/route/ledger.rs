//! What is known of each destination, and when it may be tried again. Pure: `now` is passed in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use ipnet::IpNet;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use crate::planted::planted;
use crate::provider::{Retry, Trouble, TroubleCode};
use crate::queue::{Backoff, PROBE, Refused};

const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(5),
    max: Duration::from_mins(5),
};

/// What is known of the route that a Node wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing that a condition could be made of.
    #[default]
    Unknown,
    /// It is there.
    There,
    /// It is not there, and could not be made.
    Failed,
}

/// Who works on a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touched {
    Working,
    Ended(Instant),
}

#[derive(Debug, Default)]
struct Entry {
    /// The UID of the Node that wants it.
    node: Option<String>,
    state: State,
    /// In a row.
    failures: u32,
    /// It was tried in vain since it was there last.
    vain: bool,
    /// Not before.
    due: Option<Instant>,
    /// The last failure was the transport's.
    transport: bool,
    /// What was refused as INVALID: something else may be tried at once.
    refused: Option<api::Route>,
    /// A call of its own failed as a whole: it is sent alone.
    alone: bool,
    touched: Option<Touched>,
    /// A look passed over it while it was worked on.
    look_again: bool,
    /// The next hop that was none of its Node's addresses, and whether the route was made anew since.
    stray: Option<(String, bool)>,
}

/// A route that may not lead to its Node: its destination, name and next hop, and the Node's UID.
pub(super) type Doubt = (IpNet, String, String, String);

/// What a list says of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// What is there.
    Something,
    /// Nothing: somebody worked on it since the list was asked for.
    LookAgain,
    /// Nothing: somebody works on it, and [`Ledger::take_look_again`] tells when it is over.
    LookWhenDone,
}

/// A Node, by what a reader needs to find it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeName {
    pub(super) name: String,
    pub(super) uid: String,
}

/// What a failure leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// When it is tried again.
    pub(super) again_in: Duration,
    /// Whether an event tells of it.
    pub(super) event: bool,
}

/// How a write ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended<'a> {
    /// As asked.
    Done,
    /// The provider's answer for this route.
    Failed(&'a Trouble),
    /// The call failed as a whole.
    Whole(&'a Trouble),
    /// It was never sent.
    Unsent,
}

/// All destinations that a Node wants or that something is going on with. No second copy of Nodes or routes.
pub(super) struct Ledger {
    entries: BTreeMap<IpNet, Entry>,
    /// Nodes that want routes: by UID, name and destinations.
    nodes: BTreeMap<String, (String, Vec<IpNet>)>,
    /// Blackholes and routes to unknown addresses that the last list showed where a Node wants a route.
    doubted: BTreeSet<Doubt>,
    /// What waits for other credentials of the provider.
    refused: Refused<IpNet>,
    random: ChaCha8Rng,
    look_again: bool,
}

impl Ledger {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            entries: BTreeMap::new(),
            nodes: BTreeMap::new(),
            doubted: BTreeSet::new(),
            refused: Refused::default(),
            random: ChaCha8Rng::seed_from_u64(seed),
            look_again: false,
        }
    }

    /// What a list that was asked for then says of this destination.
    pub(super) fn says(&mut self, destination: &IpNet, asked_at: Instant) -> Says {
        let Some(entry) = self.entries.get_mut(destination) else {
            return Says::Something;
        };
        match entry.touched {
            Some(Touched::Working) => {
                entry.look_again = true;
                Says::LookWhenDone
            }
            Some(Touched::Ended(at)) if at >= asked_at => Says::LookAgain,
            Some(Touched::Ended(_)) | None => Says::Something,
        }
    }

    /// Whether a look passed over something that is over now.
    pub(super) fn take_look_again(&mut self) -> bool {
        std::mem::take(&mut self.look_again)
    }

    /// When this may be tried; `None`: now.
    pub(super) fn not_before(
        &self,
        destination: &IpNet,
        create: Option<&api::Route>,
        now: Instant,
    ) -> Option<Instant> {
        let entry = self.entries.get(destination)?;
        let changed = entry.refused.is_some() && entry.refused.as_ref() != create;
        entry.due.filter(|due| *due > now && !changed)
    }

    /// The routes of a pass: what Nodes want, and what is known of them now. Who wants nothing any more is forgotten.
    pub(super) fn learn(
        &mut self,
        nodes: BTreeMap<String, (String, Vec<IpNet>)>,
        owners: &BTreeMap<IpNet, String>,
        known: &BTreeMap<IpNet, Known>,
        listed: &BTreeSet<IpNet>,
    ) {
        self.nodes = nodes;
        self.entries.retain(|destination, entry| {
            entry.touched == Some(Touched::Working)
                || owners.contains_key(destination)
                || entry.due.is_some() && listed.contains(destination)
        });
        for (destination, uid) in owners {
            let entry = self.entries.entry(*destination).or_default();
            if entry.node.as_ref() != Some(uid) {
                // Another Node has it now: what was known is of the one before.
                entry.state = State::Unknown;
                entry.stray = None;
                entry.node = Some(uid.clone());
            }
            match known.get(destination) {
                Some(Known::There) => {
                    entry.state = State::There;
                    entry.failures = 0;
                    entry.vain = false;
                    entry.due = None;
                    entry.refused = None;
                }
                Some(Known::Crowded) => entry.state = State::There,
                // It was tried, and the cloud's own list shows that it did not come to be.
                Some(Known::Missing | Known::Making) if entry.vain => {
                    entry.state = State::Failed;
                }
                Some(Known::Missing | Known::Making) if entry.state == State::There => {
                    entry.state = State::Unknown;
                }
                Some(Known::Missing | Known::Making | Known::Old | Known::Doubtful) | None => {}
            }
        }
        let waits = |destination: &IpNet| {
            let entry = self.entries.get(destination);
            entry.is_some_and(|entry| entry.due.is_some())
        };
        let gone: Vec<IpNet> = self
            .refused
            .keys()
            .filter(|it| !waits(it))
            .copied()
            .collect();
        for destination in gone {
            // The next one has its turn in this pass.
            if let Some(next) = self.refused.remove(&destination)
                && let Some(entry) = self.entries.get_mut(&next)
            {
                entry.due = None;
            }
        }
    }

    /// Whether the list before this one said so too; notes that this one does.
    pub(super) fn doubt(&mut self, routes: BTreeSet<Doubt>) {
        self.doubted = routes;
    }

    /// Whether the last list gave reason to doubt this route.
    pub(super) fn doubted(&self, doubt: &Doubt) -> bool {
        self.doubted.contains(doubt)
    }

    /// A route whose next hop is none of the Node's addresses is made anew.
    pub(super) fn strays(&mut self, destination: IpNet, hop: &str) {
        let stray = &mut self.entries.entry(destination).or_default().stray;
        *stray = Some((hop.to_owned(), false));
    }

    /// Whether the route was made anew, and leads there all the same: that is how this cloud reaches the Node, and making it for ever helps nobody.
    pub(super) fn is_led_there(&self, destination: &IpNet, uid: &str, hop: &str) -> bool {
        let entry = self.entries.get(destination);
        let entry = entry.filter(|entry| entry.node.as_deref() == Some(uid));
        let stray = entry.and_then(|entry| entry.stray.as_ref());
        stray.is_some_and(|(known, made)| *made && known == hop)
    }

    /// A call for this destination is about to be made.
    pub(super) fn begin(&mut self, destination: IpNet) {
        self.entries.entry(destination).or_default().touched = Some(Touched::Working);
    }

    /// Whether it is sent alone.
    pub(super) fn is_alone(&self, destination: &IpNet) -> bool {
        self.entries
            .get(destination)
            .is_some_and(|entry| entry.alone)
    }

    /// The route was made, or not.
    pub(super) fn created(
        &mut self,
        destination: IpNet,
        sent: &api::Route,
        ended: Ended<'_>,
        now: Instant,
    ) -> Option<Failed> {
        let failed = self.ended(destination, ended, now);
        let entry = self.entries.entry(destination).or_default();
        entry.refused = None;
        match ended {
            Ended::Done => {
                entry.state = State::There;
                entry.failures = 0;
                entry.vain = false;
                if let Some((_, made)) = &mut entry.stray {
                    *made = true;
                }
            }
            Ended::Failed(trouble) | Ended::Whole(trouble) if says_something(trouble.code) => {
                entry.state = if planted!(FirstRouteFailureIsSilent) && entry.failures < 4 {
                    State::Unknown
                } else {
                    State::Failed
                };
                if trouble.code == TroubleCode::Invalid {
                    entry.refused = Some(sent.clone());
                }
            }
            Ended::Failed(_) | Ended::Whole(_) | Ended::Unsent => entry.state = State::Unknown,
        }
        failed
    }

    /// A route was removed, or not. `in_the_way`: the Node's own route is not there while this one is.
    pub(super) fn deleted(
        &mut self,
        destination: IpNet,
        in_the_way: bool,
        ended: Ended<'_>,
        now: Instant,
    ) -> Option<Failed> {
        let failed = self.ended(destination, ended, now);
        let entry = self.entries.entry(destination).or_default();
        if let Ended::Failed(trouble) | Ended::Whole(trouble) = ended
            && in_the_way
            && says_something(trouble.code)
        {
            entry.state = State::Failed;
        }
        failed
    }

    fn ended(&mut self, destination: IpNet, ended: Ended<'_>, now: Instant) -> Option<Failed> {
        let jitter = self.random.random_range(0.0..1.0);
        let entry = self.entries.entry(destination).or_default();
        entry.touched = Some(Touched::Ended(now));
        self.look_again |= std::mem::take(&mut entry.look_again);
        let trouble = match ended {
            Ended::Done => {
                entry.due = None;
                entry.alone = false;
                entry.transport = false;
                self.accepted(&destination, now);
                return None;
            }
            Ended::Unsent => return None,
            Ended::Failed(trouble) | Ended::Whole(trouble) => trouble,
        };
        if let Ended::Failed(_) = ended {
            entry.alone = false;
        }
        let reaction = trouble.reaction_jittered(entry.failures, jitter);
        let again_in = match reaction.retry {
            Retry::WhenChangedElse(wait) | Retry::After(wait) => wait,
            Retry::Refused { each, .. } => each,
            Retry::Backoff | Retry::TransportBackoff => BACKOFF.delay(entry.failures, jitter),
        };
        entry.vain |= in_vain(trouble.code, entry.failures);
        entry.failures = entry.failures.saturating_add(1);
        entry.due = Some(now + again_in);
        entry.transport = reaction.retry == Retry::TransportBackoff;
        let (next, probe) = match reaction.retry {
            Retry::Refused { probe, .. } => (self.refused.add(&destination), probe),
            _ => (self.refused.remove(&destination), PROBE),
        };
        let mut again_in = again_in;
        if let Some(next) = next {
            self.hasten(&next, now + probe);
            again_in = again_in.min(probe);
        }
        Some(Failed {
            again_in,
            event: reaction.event,
        })
    }

    /// The cloud took the provider's credentials for this destination: what they were refused for is due.
    fn accepted(&mut self, destination: &IpNet, now: Instant) {
        for released in self.refused.accept(destination) {
            self.hasten(&released, now);
            self.look_again = true;
        }
    }

    fn hasten(&mut self, destination: &IpNet, at: Instant) {
        if let Some(entry) = self.entries.get_mut(destination) {
            entry.due = entry.due.map(|due| due.min(at));
        }
    }

    /// Whether a Node waits for it, and it was tried in vain.
    pub(super) fn is_failing(&self, destination: &IpNet) -> bool {
        let entry = self.entries.get(destination);
        entry.is_some_and(|entry| entry.failures > 0 && entry.state != State::There)
    }

    /// When it is tried again.
    pub(super) fn due(&self, destination: &IpNet) -> Option<Instant> {
        self.entries.get(destination)?.due
    }

    /// A call with this route alone failed as a whole.
    pub(super) fn set_alone(&mut self, destination: IpNet) {
        self.entries.entry(destination).or_default().alone = true;
    }

    /// A provider that is back: what the transport failed is due now (▲M9).
    pub(super) fn reset_transport_backoffs(&mut self, now: Instant) {
        // It may have other credentials.
        if let Some(probe) = self.refused.probe().copied() {
            self.hasten(&probe, now);
        }
        for entry in self.entries.values_mut().filter(|entry| entry.transport) {
            entry.transport = false;
            entry.due = entry.due.map(|due| due.min(now));
        }
    }

    /// Nobody knows any more who works on what.
    pub(super) fn forget_work(&mut self, now: Instant) {
        for entry in self.entries.values_mut() {
            if entry.touched == Some(Touched::Working) {
                entry.touched = Some(Touched::Ended(now));
                entry.state = State::Unknown;
            }
        }
    }

    /// The Node that wants this destination.
    pub(super) fn node_of(&self, destination: &IpNet) -> Option<NodeName> {
        let uid = self.entries.get(destination)?.node.as_ref()?;
        let (name, _) = self.nodes.get(uid)?;
        Some(NodeName {
            name: name.clone(),
            uid: uid.clone(),
        })
    }

    /// Whether all routes of a Node are there (B-R4); `None`: not known, and then its condition is left as it is.
    pub(super) fn verdict(&self, uid: &str) -> Option<bool> {
        let (_, destinations) = self.nodes.get(uid)?;
        let states: Vec<State> = destinations
            .iter()
            .map(|destination| match self.entries.get(destination) {
                Some(entry) if entry.node.as_deref() == Some(uid) => entry.state,
                // Another Node has the same CIDR, and the route.
                Some(_) => State::Failed,
                None => State::Unknown,
            })
            .collect();
        if states.contains(&State::Failed) {
            Some(false)
        } else if states.iter().all(|state| *state == State::There) {
            Some(true)
        } else {
            None
        }
    }

    /// All Nodes that want routes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeName> {
        self.nodes.iter().map(|(uid, (name, _))| NodeName {
            name: name.clone(),
            uid: uid.clone(),
        })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// What a list says of a route that a Node wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It is there.
    There,
    /// It is there, beside others that go.
    Crowded,
    /// It is not there, or something else is in its place.
    Missing,
    /// It is not there, and is made now.
    Making,
    /// It is there with the Node's former addresses.
    Old,
    /// It is said to lead nowhere, or to an unknown address, for the first time.
    Doubtful,
}

/// Whether it was tried. A provider that went away with the call is back in a moment, and a condition is not to flap for that; one that goes away with it again is not forgiven.
fn in_vain(code: TroubleCode, failures: u32) -> bool {
    match code {
        TroubleCode::Fenced => false,
        TroubleCode::Disconnected | TroubleCode::NotInitialized => failures > 0,
        _ => true,
    }
}

/// Whether a failure in the body says that the route was not made. What concerns the provider itself says nothing of a route, and nothing is known without an answer: the next
/// list tells.
fn says_something(code: TroubleCode) -> bool {
    match code {
        TroubleCode::Invalid
        | TroubleCode::Precondition
        | TroubleCode::NotFound
        | TroubleCode::Conflict
        | TroubleCode::Busy
        | TroubleCode::Throttled
        | TroubleCode::Credentials
        | TroubleCode::Unavailable
        | TroubleCode::Internal => true,
        TroubleCode::NotInitialized
        | TroubleCode::Unknown
        | TroubleCode::Deadline
        | TroubleCode::Disconnected
        | TroubleCode::Fault
        | TroubleCode::Fenced => false,
    }
}
