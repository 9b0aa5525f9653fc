//! The state and the plan of each destination. Pure: `now` is passed in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use ipnet::IpNet;
use tokio::time::Instant;

use super::plan::Task;
use crate::planted::planted;
use crate::provider::{CallError, CallErrorCode};

/// Routes are removed only on a list that is no older than this.
const REMOVED_ON: Duration = Duration::from_mins(5);

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

/// When a destination was worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touched {
    Working,
    Ended(Instant),
}

/// What a destination's key in the queue waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waits {
    /// Nothing: it is due, or not in the queue.
    #[default]
    No,
    /// For its time, after a failure.
    Time,
    /// For the next list.
    List,
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
    waits: Waits,
    /// The plan, and when the controller asked for the list that led to it.
    plan: Option<(Task, Instant)>,
    /// What was refused as INVALID: something else may be tried at once.
    refused: Option<api::Route>,
    /// A call of its own failed as a whole: it is sent alone.
    alone: bool,
    touched: Option<Touched>,
    /// A list passed over it while it was worked on.
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

/// How a write ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended<'a> {
    /// As asked.
    Done,
    /// The provider's answer for this route.
    Failed(&'a CallError),
    /// The call failed as a whole.
    Whole(&'a CallError),
    /// Another operation holds it: it is tried again within seconds.
    Busy,
    /// It was never sent.
    Unsent,
}

/// The work for a key that left the queue.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Due {
    /// This, now.
    Work(Box<Task>),
    /// The provider's routes are listed first.
    List,
    /// Nothing.
    Nothing,
}

/// All destinations that a Node wants or that something is going on with. No second copy of Nodes or routes.
#[derive(Default)]
pub(super) struct Ledger {
    entries: BTreeMap<IpNet, Entry>,
    /// Nodes that want routes: by UID, name and destinations. One without destinations has a route that it does not want.
    nodes: BTreeMap<String, (String, Vec<IpNet>)>,
    /// Blackholes and routes to unknown addresses that the last list showed where a Node wants a route.
    doubted: BTreeSet<Doubt>,
    look_again: bool,
}

impl Ledger {
    /// What a list that was asked for then says of this destination. Where it says something, what was planned before is void.
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
            Some(Touched::Ended(_)) | None => {
                entry.plan = None;
                Says::Something
            }
        }
    }

    /// Whether a look passed over something that is over now.
    pub(super) fn take_look_again(&mut self) -> bool {
        std::mem::take(&mut self.look_again)
    }

    /// Whether this waits for its time after a failure, and a create of this route would be no other one than was refused.
    pub(super) fn is_delayed(&self, destination: &IpNet, create: Option<&api::Route>) -> bool {
        self.entries.get(destination).is_some_and(|entry| {
            let changed = entry.refused.is_some() && entry.refused.as_ref() != create;
            entry.waits == Waits::Time && !changed
        })
    }

    /// Takes what a list leads to. Whether the destination is due now: one that failed waits for its time.
    pub(super) fn plan(&mut self, task: Task, asked_at: Instant) -> bool {
        let delayed = self.is_delayed(&task.destination, task.create.as_ref());
        let entry = self.entries.entry(task.destination).or_default();
        entry.plan = Some((task, asked_at));
        if !delayed {
            entry.waits = Waits::No;
        }
        !delayed
    }

    /// Drops the plans, which were for another session.
    pub(super) fn forget_plans(&mut self) {
        for entry in self.entries.values_mut() {
            entry.plan = None;
        }
    }

    /// The routes of a pass: what Nodes want, and what is known of them now. Destinations that no Node wants any more are forgotten. Returns those whose keys need not wait any more.
    pub(super) fn learn(
        &mut self,
        nodes: BTreeMap<String, (String, Vec<IpNet>)>,
        owners: &BTreeMap<IpNet, String>,
        known: &BTreeMap<IpNet, Known>,
        listed: &BTreeSet<IpNet>,
    ) -> Vec<IpNet> {
        self.nodes = nodes;
        let mut settled = Vec::new();
        self.entries.retain(|destination, entry| {
            let wanted = owners.contains_key(destination)
                || entry.waits != Waits::No && listed.contains(destination);
            let working = entry.touched == Some(Touched::Working);
            // A call that is under way for it may still make a route: the next list shows that.
            entry.look_again |= working && !wanted;
            let stays = wanted || working;
            if !stays && entry.waits != Waits::No {
                settled.push(*destination);
            }
            stays
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
                    entry.refused = None;
                    if std::mem::take(&mut entry.waits) != Waits::No {
                        settled.push(*destination);
                    }
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
        settled
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

    /// The key of this destination left the queue. Work that it gets is under way from now on. `listed`: the plans are of the session that it would be done with.
    pub(super) fn begin(&mut self, destination: &IpNet, listed: bool, now: Instant) -> Due {
        let Some(entry) = self.entries.get_mut(destination) else {
            return Due::Nothing;
        };
        let plan = entry.plan.as_ref().filter(|_| listed);
        let current = |asked_at: Instant| now.saturating_duration_since(asked_at) < REMOVED_ON;
        match plan {
            Some((task, asked_at)) if task.delete.is_empty() || current(*asked_at) => {
                entry.touched = Some(Touched::Working);
                entry.waits = Waits::No;
                Due::Work(Box::new(task.clone()))
            }
            None if entry.state == State::There && entry.waits == Waits::No => Due::Nothing,
            _ => {
                entry.waits = Waits::List;
                Due::List
            }
        }
    }

    /// Whether it is tried again without another list.
    pub(super) fn has_plan(&self, destination: &IpNet) -> bool {
        let entry = self.entries.get(destination);
        entry.is_some_and(|entry| entry.plan.is_some())
    }

    /// Whether its time has come, and the next list decides.
    pub(super) fn waits_for_list(&self, destination: &IpNet) -> bool {
        let entry = self.entries.get(destination);
        entry.is_some_and(|entry| entry.waits == Waits::List)
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
    ) {
        self.ended(destination, ended, now);
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
                if trouble.code == CallErrorCode::Invalid {
                    entry.refused = Some(sent.clone());
                }
            }
            Ended::Failed(_) | Ended::Whole(_) | Ended::Unsent => entry.state = State::Unknown,
            Ended::Busy => {}
        }
    }

    /// A route is gone, and more is to be done for its destination.
    pub(super) fn removed(&mut self, destination: &IpNet, route: &api::Route) {
        let entry = self.entries.get_mut(destination);
        if let Some((task, _)) = entry.and_then(|entry| entry.plan.as_mut()) {
            task.delete.retain(|planned| planned != route);
        }
    }

    /// The routes were removed, or not all. `in_the_way`: the Node's own route is not there while these are.
    pub(super) fn deleted(
        &mut self,
        destination: IpNet,
        in_the_way: bool,
        ended: Ended<'_>,
        now: Instant,
    ) {
        self.ended(destination, ended, now);
        let entry = self.entries.entry(destination).or_default();
        if let Ended::Failed(trouble) | Ended::Whole(trouble) = ended
            && in_the_way
            && says_something(trouble.code)
        {
            entry.state = State::Failed;
        }
    }

    fn ended(&mut self, destination: IpNet, ended: Ended<'_>, now: Instant) {
        let entry = self.entries.entry(destination).or_default();
        entry.touched = Some(Touched::Ended(now));
        self.look_again |= std::mem::take(&mut entry.look_again);
        entry.waits = match ended {
            Ended::Done => Waits::No,
            _ => Waits::Time,
        };
        let trouble = match ended {
            Ended::Done => {
                entry.alone = false;
                entry.plan = None;
                return;
            }
            Ended::Unsent => {
                entry.plan = None;
                return;
            }
            Ended::Busy => return,
            Ended::Failed(trouble) | Ended::Whole(trouble) => trouble,
        };
        if let Ended::Failed(_) = ended {
            entry.alone = false;
        }
        if !says_something(trouble.code) {
            // The next list tells what became of it.
            entry.plan = None;
        }
        entry.vain |= in_vain(trouble.code, entry.failures);
        entry.failures = entry.failures.saturating_add(1);
    }

    /// Whether a Node waits for it, and it was tried in vain.
    pub(super) fn is_failing(&self, destination: &IpNet) -> bool {
        let entry = self.entries.get(destination);
        entry.is_some_and(|entry| entry.failures > 0 && entry.state != State::There)
    }

    /// A call with this route alone failed as a whole.
    pub(super) fn set_alone(&mut self, destination: IpNet) {
        self.entries.entry(destination).or_default().alone = true;
    }

    /// Its work ended, and nobody knows how.
    pub(super) fn lost(&mut self, destination: &IpNet, now: Instant) {
        self.ended(*destination, Ended::Unsent, now);
        if let Some(entry) = self.entries.get_mut(destination) {
            entry.state = State::Unknown;
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
        if destinations.is_empty() {
            return Some(false);
        }
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

    /// All Nodes that want routes, or have one that they do not want.
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
fn in_vain(code: CallErrorCode, failures: u32) -> bool {
    match code {
        CallErrorCode::Fenced => false,
        CallErrorCode::Disconnected | CallErrorCode::NotInitialized => failures > 0,
        _ => true,
    }
}

/// Whether a failure in the body says that the route was not made. What concerns the provider itself says nothing of a route, and nothing is known without an answer: the next
/// list tells.
fn says_something(code: CallErrorCode) -> bool {
    match code {
        CallErrorCode::Invalid
        | CallErrorCode::Precondition
        | CallErrorCode::NotFound
        | CallErrorCode::Conflict
        | CallErrorCode::Busy
        | CallErrorCode::Throttled
        | CallErrorCode::Credentials
        | CallErrorCode::Unavailable
        | CallErrorCode::Internal => true,
        CallErrorCode::NotInitialized
        | CallErrorCode::Unknown
        | CallErrorCode::Deadline
        | CallErrorCode::Disconnected
        | CallErrorCode::Fault
        | CallErrorCode::Fenced => false,
    }
}
