//! The state and the plan of each destination. Pure: callers pass `now`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use ipnet::IpNet;
use tokio::time::Instant;

use super::plan::Task;
use crate::planted::planted;
use crate::provider::{CallError, CallErrorCode};

/// Work that removes routes begins only on a plan that is younger than this.
const REMOVED_ON: Duration = Duration::from_mins(5);

/// The state of the route that a Node wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Unknown. The condition stays as it is.
    #[default]
    Unknown,
    /// The route exists.
    There,
    /// The route is missing and could not be created.
    Failed,
}

/// Whether work on a destination is in progress, or when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touched {
    Working,
    Ended(Instant),
}

/// The reason why the key of a destination waits in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waits {
    /// Nothing: it is due, or not in the queue.
    #[default]
    No,
    /// A time, after a failure.
    Time,
    /// The next list.
    List,
}

#[derive(Debug, Default)]
struct Entry {
    /// The UID of the Node that wants it.
    node: Option<String>,
    state: State,
    /// Failures in a row.
    failures: u32,
    /// An attempt that counts as failed (`in_vain`) ended since the route last existed.
    vain: bool,
    waits: Waits,
    /// The plan, and when it was made. The age of its list does not count: a list and the Nodes may
    /// take longer than [`REMOVED_ON`] to arrive.
    plan: Option<(Task, Instant)>,
    /// The route that the provider refused as INVALID. Another route may be tried at once.
    refused: Option<api::Route>,
    touched: Option<Touched>,
    /// After the work in progress, another list is needed.
    look_again: bool,
    /// A next hop that is not one of its Node's addresses, and whether the route was created again
    /// since.
    stray: Option<(String, bool)>,
}

/// A route that may not lead to its Node: its destination, name and next hop, and the Node's UID.
pub(super) type Doubt = (IpNet, String, String, String);

/// The evidence of a list about a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// The list shows the current routes.
    Something,
    /// Nothing: work on it ended after the list was requested.
    LookAgain,
    /// Nothing: work on it is in progress. [`Ledger::take_look_again`] reports its end.
    LookWhenDone,
}

/// The name and UID of a Node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeName {
    pub(super) name: String,
    pub(super) uid: String,
}

/// The result of a call for a route.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended<'a> {
    /// It succeeded.
    Done,
    /// The failure of this route or of the whole call, which may be a lost connection too.
    Failed(&'a CallError),
    /// BUSY: another operation holds the route. It is tried again without backoff.
    Busy,
    /// The call was not sent, or its result is unknown.
    Unsent,
}

/// The work for a key that left the queue.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Due {
    /// Do this now.
    Work(Box<Task>),
    /// List the provider's routes first.
    List,
    /// Do nothing.
    Nothing,
}

/// The destinations that a Node wants, or that have work in progress or left.
#[derive(Default)]
pub(super) struct Ledger {
    entries: BTreeMap<IpNet, Entry>,
    /// By UID: the names and destinations of Nodes that want routes. A Node without destinations
    /// has a route that it does not want.
    nodes: BTreeMap<String, (String, Vec<IpNet>)>,
    /// Blackholes and routes to unknown addresses in the last list, for destinations that a Node
    /// wants.
    doubted: BTreeSet<Doubt>,
    look_again: bool,
}

impl Ledger {
    /// The evidence about this destination in a list that was requested at `asked_at`. If the list
    /// shows the current routes, the earlier plan is dropped.
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

    /// Whether another list is needed because work has ended. The next call returns false, unless
    /// more such work ends.
    pub(super) fn take_look_again(&mut self) -> bool {
        std::mem::take(&mut self.look_again)
    }

    /// Whether the destination waits after a failure. It does not if the wanted route differs from
    /// the one that was refused.
    pub(super) fn is_delayed(&self, destination: &IpNet, create: Option<&api::Route>) -> bool {
        self.entries.get(destination).is_some_and(|entry| {
            let changed = entry.refused.is_some() && entry.refused.as_ref() != create;
            entry.waits == Waits::Time && !changed
        })
    }

    /// Stores a plan from a list. Returns whether the destination is due now: after a failure it
    /// waits for its time.
    pub(super) fn plan(&mut self, task: Task, now: Instant) -> bool {
        let delayed = self.is_delayed(&task.destination, task.create.as_ref());
        let entry = self.entries.entry(task.destination).or_default();
        entry.plan = Some((task, now));
        if !delayed {
            entry.waits = Waits::No;
        }
        !delayed
    }

    /// Drops the plans, because they were for another session.
    pub(super) fn forget_plans(&mut self) {
        for entry in self.entries.values_mut() {
            entry.plan = None;
        }
    }

    /// Stores the result of a pass: the wanted routes and their states. It forgets destinations
    /// that no Node wants and that have no work left. Returns the destinations whose keys need not
    /// wait any more.
    pub(super) fn learn(
        &mut self,
        nodes: BTreeMap<String, (String, Vec<IpNet>)>,
        owned: &BTreeSet<IpNet>,
        known: &BTreeMap<IpNet, Known>,
        listed: &BTreeSet<IpNet>,
    ) -> Vec<IpNet> {
        self.nodes = nodes;
        let mut settled = Vec::new();
        self.entries.retain(|destination, entry| {
            let wanted = owned.contains(destination)
                || entry.waits != Waits::No && listed.contains(destination);
            let working = entry.touched == Some(Touched::Working);
            // A call in flight may still create a route. The next list shows that.
            entry.look_again |= working && !wanted;
            let stays = wanted || working;
            if !stays && entry.waits != Waits::No {
                settled.push(*destination);
            }
            stays
        });
        for destination in owned {
            let entry = self.entries.entry(*destination).or_default();
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
                // An attempt failed, and the list shows that the route does not exist.
                Some(Known::Missing) if entry.vain => entry.state = State::Failed,
                Some(Known::Missing) if entry.state == State::There => {
                    entry.state = State::Unknown;
                }
                Some(Known::Missing) | None => {}
            }
        }
        settled
    }

    /// A Node wants this destination. If another Node had it before, its state, plan and failures do
    /// not count. Returns whether the destination's key waited for that Node.
    pub(super) fn hand_over(&mut self, destination: IpNet, uid: &str) -> bool {
        let entry = self.entries.entry(destination).or_default();
        if entry.node.as_deref() == Some(uid) {
            return false;
        }
        entry.node = Some(uid.to_owned());
        entry.state = State::Unknown;
        entry.stray = None;
        entry.failures = 0;
        entry.vain = false;
        entry.refused = None;
        entry.plan = None;
        std::mem::take(&mut entry.waits) != Waits::No
    }

    /// Stores the doubtful routes of the current list.
    pub(super) fn doubt(&mut self, routes: BTreeSet<Doubt>) {
        self.doubted = routes;
    }

    /// Whether the last list had the same doubt.
    pub(super) fn doubted(&self, doubt: &Doubt) -> bool {
        self.doubted.contains(doubt)
    }

    /// Records that a route is to be deleted, because its next hop is not one of the Node's
    /// addresses.
    pub(super) fn strays(&mut self, destination: IpNet, hop: &str) {
        let stray = &mut self.entries.entry(destination).or_default().stray;
        *stray = Some((hop.to_owned(), false));
    }

    /// Whether the route still has this next hop after it was created again. Then this cloud
    /// reaches the Node that way, and another creation would not help.
    pub(super) fn is_led_there(&self, destination: &IpNet, uid: &str, hop: &str) -> bool {
        let entry = self.entries.get(destination);
        let entry = entry.filter(|entry| entry.node.as_deref() == Some(uid));
        let stray = entry.and_then(|entry| entry.stray.as_ref());
        stray.is_some_and(|(known, made)| *made && known == hop)
    }

    /// The key of this destination left the queue. The work that this returns is in progress from
    /// now on. `listed`: the plans are from the current session.
    pub(super) fn begin(&mut self, destination: &IpNet, listed: bool, now: Instant) -> Due {
        let Some(entry) = self.entries.get_mut(destination) else {
            return Due::Nothing;
        };
        let plan = entry.plan.as_ref().filter(|_| listed);
        let current = |made: Instant| now.saturating_duration_since(made) < REMOVED_ON;
        match plan {
            Some((task, made)) if task.delete.is_empty() || current(*made) => {
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

    /// Whether the destination has a plan, so that it may be tried again without another list.
    pub(super) fn has_plan(&self, destination: &IpNet) -> bool {
        let entry = self.entries.get(destination);
        entry.is_some_and(|entry| entry.plan.is_some())
    }

    /// Whether the destination waits for a new list.
    pub(super) fn waits_for_list(&self, destination: &IpNet) -> bool {
        let entry = self.entries.get(destination);
        entry.is_some_and(|entry| entry.waits == Waits::List)
    }

    /// Stores the result of a create.
    pub(super) fn created(
        &mut self,
        destination: IpNet,
        sent: &api::Route,
        ended: Ended<'_>,
        now: Instant,
    ) {
        let entry = self.entries.entry(destination).or_default();
        let anothers = entry
            .node
            .as_ref()
            .is_some_and(|uid| *uid != sent.name_hint);
        // The Node of this route does not have the destination any more, so the next list decides.
        let ended = if anothers { Ended::Unsent } else { ended };
        self.ended(destination, ended, now);
        let entry = self.entries.entry(destination).or_default();
        if anothers {
            entry.waits = Waits::No;
        }
        match ended {
            Ended::Done => {
                entry.state = State::There;
                entry.failures = 0;
                entry.vain = false;
                if let Some((_, made)) = &mut entry.stray {
                    *made = true;
                }
            }
            Ended::Failed(trouble) if says_something(trouble.code) => {
                entry.state = if planted!(FirstRouteFailureIsSilent) && entry.failures < 4 {
                    State::Unknown
                } else {
                    State::Failed
                };
                if trouble.code == CallErrorCode::Invalid {
                    entry.refused = Some(sent.clone());
                }
            }
            Ended::Failed(_) | Ended::Unsent => entry.state = State::Unknown,
            Ended::Busy => {}
        }
    }

    /// One of the destination's routes was deleted. More of its task may be left.
    pub(super) fn removed(&mut self, destination: &IpNet, route: &api::Route) {
        let entry = self.entries.get_mut(destination);
        if let Some((task, _)) = entry.and_then(|entry| entry.plan.as_mut()) {
            task.delete.retain(|planned| planned != route);
        }
    }

    /// Stores the result of the deletions. `in_the_way`: these routes keep the Node's own route
    /// from being created.
    pub(super) fn deleted(
        &mut self,
        destination: IpNet,
        in_the_way: bool,
        ended: Ended<'_>,
        now: Instant,
    ) {
        self.ended(destination, ended, now);
        let entry = self.entries.entry(destination).or_default();
        if let Ended::Failed(trouble) = ended
            && in_the_way
            && says_something(trouble.code)
        {
            entry.state = State::Failed;
        }
    }

    fn ended(&mut self, destination: IpNet, ended: Ended<'_>, now: Instant) {
        let entry = self.entries.entry(destination).or_default();
        entry.touched = Some(Touched::Ended(now));
        // The destination waits for the result of its last call, not of a create before it.
        entry.refused = None;
        self.look_again |= std::mem::take(&mut entry.look_again);
        entry.waits = match ended {
            Ended::Done => Waits::No,
            _ => Waits::Time,
        };
        let trouble = match ended {
            Ended::Done | Ended::Unsent => {
                entry.plan = None;
                return;
            }
            Ended::Busy => return,
            Ended::Failed(trouble) => trouble,
        };
        if !says_something(trouble.code) {
            // The next list shows the result.
            entry.plan = None;
        }
        entry.vain |= in_vain(trouble.code, entry.failures);
        entry.failures = entry.failures.saturating_add(1);
    }

    /// Whether the last attempts for this destination failed, and its route is not known to exist.
    pub(super) fn is_failing(&self, destination: &IpNet) -> bool {
        let entry = self.entries.get(destination);
        entry.is_some_and(|entry| entry.failures > 0 && entry.state != State::There)
    }

    /// The work on the destination ended with an unknown result.
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

    /// Whether all routes of a Node exist (B-R4). `None`: unknown, and its condition stays as it
    /// is.
    pub(super) fn verdict(&self, uid: &str) -> Option<bool> {
        let (_, destinations) = self.nodes.get(uid)?;
        if destinations.is_empty() {
            return Some(false);
        }
        let states: Vec<State> = destinations
            .iter()
            .map(|destination| match self.entries.get(destination) {
                Some(entry) if entry.node.as_deref() == Some(uid) => entry.state,
                // Another Node has the same CIDR, and gets the route.
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

    /// All Nodes that want routes, or have a route that they do not want.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeName> {
        self.nodes.iter().map(|(uid, (name, _))| NodeName {
            name: name.clone(),
            uid: uid.clone(),
        })
    }

    /// Whether a Node wants this destination, or work on it is left.
    pub(super) fn has(&self, destination: &IpNet) -> bool {
        self.entries.contains_key(destination)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// The state of a wanted route, if the list proves it. The list proves nothing without
/// [`Says::Something`], or if a listed route of the destination violates the contract. If no route
/// leads to the Node, two kinds of routes inside the cluster's CIDRs prove nothing. One has the
/// Node's former addresses. The other leads nowhere or to an unknown address, for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It exists.
    There,
    /// It exists, and others beside it should go.
    Crowded,
    /// It is missing, or another route is in its place.
    Missing,
}

/// Whether the attempt counts as failed. A fenced call does not. A lost connection or
/// NOT_INITIALIZED does not count if it is the first failure: the provider usually returns soon,
/// and the condition must not flap.
fn in_vain(code: CallErrorCode, failures: u32) -> bool {
    match code {
        CallErrorCode::Fenced => false,
        CallErrorCode::Disconnected | CallErrorCode::NotInitialized => failures > 0,
        _ => true,
    }
}

/// Whether the failure counts as proof that the route does not exist. NOT_INITIALIZED, a broken
/// answer and a missing answer prove nothing. Then the next list shows whether the route exists.
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
