//! The tasks that follow from all Nodes and routes (B-R2 to B-R4, ▲R7). Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use cloud_provider_api::v1alpha1 as api;
use ipnet::IpNet;
use tokio::time::Instant;

use super::facts::{Index, NodeFacts, Owner, Target, follows_other_addresses, names_no_node, read};
use super::ledger::{Doubt, Known, Ledger, NodeName, Says};
use crate::planted::planted;

/// The inputs of a pass.
pub(super) struct Look<'a> {
    pub(super) nodes: &'a [NodeFacts],
    /// All listed routes.
    pub(super) routes: &'a [api::Route],
    /// The ccm removes only routes inside these.
    pub(super) cluster_cidrs: &'a [IpNet],
    /// Whether a route depends on its Node's addresses (B-R3).
    pub(super) tracks_addresses: bool,
    /// Whether routes may be removed: the provider is READY, and the list of Nodes is complete and
    /// not empty.
    pub(super) may_delete: bool,
    /// When the list of routes was requested.
    pub(super) asked_at: Instant,
}

/// The work for one destination, in this order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    pub(super) destination: IpNet,
    /// Delete these first, each as it was listed.
    pub(super) delete: Vec<api::Route>,
    /// Whether the Node's own route is missing, so that the routes in `delete` keep it from being
    /// created.
    pub(super) in_the_way: bool,
    /// Then create this.
    pub(super) create: Option<api::Route>,
}

/// The result of a pass.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// By destination.
    pub(super) tasks: Vec<Task>,
    /// How many routes should be removed, but must not be now.
    pub(super) held: usize,
    /// How many valid routes are inside the cluster's CIDRs, without those of another owner.
    pub(super) inside: usize,
    /// Nodes whose Pod CIDR another Node has: the Node, the CIDR, and the other Node's name.
    pub(super) clashes: Vec<(NodeName, IpNet, String)>,
    /// Another pass is due at once.
    pub(super) again: bool,
    /// Destinations whose keys need not wait in the queue.
    pub(super) settled: Vec<IpNet>,
    /// ▲R7: so many routes would be removed that the Nodes are read from the API server first.
    pub(super) needs_second_look: bool,
    /// Names of routes that violate the contract, and how. At most 10.
    pub(super) faults: Vec<(String, &'static str)>,
}

impl Pass {
    /// The result for the status page. `complaint`: the contract violation of a listed route.
    pub(super) fn summary(&self, complaint: Option<&str>) -> String {
        let (listed, wrong, held) = (self.inside, deletions(&self.tasks), self.held);
        let missing = self.tasks.iter().filter(|it| it.create.is_some()).count();
        let kept = if held > 0 {
            format!(
                ", {held} kept although they should go: the provider is not READY, or no Node is known"
            )
        } else {
            String::new()
        };
        let complaint = complaint.map_or(String::new(), |complaint| format!("; {complaint}"));
        format!(
            "the last reconciliation found {listed} routes, {missing} to create, {wrong} to delete{kept}{complaint}"
        )
    }
}

/// How many routes these tasks delete.
pub(super) fn deletions(tasks: &[Task]) -> usize {
    tasks.iter().map(|task| task.delete.len()).sum()
}

/// The Nodes of both views. If both have a Node, the one in the cache counts.
pub(super) fn in_either(cached: Vec<NodeFacts>, read: Vec<NodeFacts>) -> Vec<NodeFacts> {
    let uids: BTreeSet<String> = cached.iter().map(|node| node.uid.clone()).collect();
    let mut nodes = cached;
    nodes.extend(read.into_iter().filter(|node| !uids.contains(&node.uid)));
    nodes
}

/// The tasks of a second pass whose deletions the first pass also has. The second pass used the
/// Nodes from the API server too. Tasks without deletions stay: the second pass dropped the plans
/// of the first.
pub(super) fn confirmed(first: &[Task], second: Vec<Task>) -> Vec<Task> {
    let deletes: BTreeSet<(IpNet, &str)> = first
        .iter()
        .flat_map(|task| {
            let routes = task.delete.iter();
            routes.map(|route| (task.destination, route.name.as_str()))
        })
        .collect();
    let mut tasks = second;
    tasks.retain(|task| {
        let mut routes = task.delete.iter();
        let known = |route: &api::Route| deletes.contains(&(task.destination, route.name.as_str()));
        routes.all(known)
    });
    tasks
}

/// The wanted routes, by destination.
struct Wants<'a> {
    /// The Node that gets the route, and the destination in the Node's own text.
    routed: BTreeMap<IpNet, (&'a NodeFacts, &'a str)>,
    /// Destinations of Nodes that do not get routes from this controller now. Their routes are left
    /// alone.
    left_alone: BTreeSet<IpNet>,
}

impl<'a> Wants<'a> {
    fn of(nodes: &'a [NodeFacts], listed: &Listed<'_>, index: &Index<'_>) -> Self {
        let mut all: BTreeMap<IpNet, Vec<(&NodeFacts, &str)>> = BTreeMap::new();
        let mut left_alone = BTreeSet::new();
        for node in nodes {
            for (cidr, text) in &node.pod_cidrs {
                if node.is_routed() {
                    all.entry(*cidr).or_default().push((node, text));
                } else {
                    left_alone.insert(*cidr);
                }
            }
        }
        let routes = listed.routes.iter();
        let routes =
            routes.flat_map(|(cidr, routes)| routes.iter().map(move |route| (*cidr, *route)));
        let has_route: BTreeSet<(IpNet, &str)> = routes
            .filter_map(|(cidr, route)| Some((cidr, index.resolve(route)?.uid.as_str())))
            .collect();
        let routed = all.into_iter().filter_map(|(cidr, claims)| {
            // The Node that has the route keeps it. Otherwise the oldest Node gets it.
            let winner = claims.into_iter().min_by_key(|(node, _)| {
                let has = has_route.contains(&(cidr, node.uid.as_str()));
                (Reverse(has), node.created, &node.name)
            })?;
            Some((cidr, winner))
        });
        let routed: BTreeMap<_, _> = routed.collect();
        left_alone.retain(|cidr| !routed.contains_key(cidr));
        Self { routed, left_alone }
    }
}

/// The listed routes, by destination.
#[derive(Default)]
struct Listed<'a> {
    routes: BTreeMap<IpNet, Vec<&'a api::Route>>,
    /// Routes of another owner.
    foreign: BTreeMap<IpNet, Vec<&'a api::Route>>,
    /// Destinations with a route that violates the contract.
    faulty: BTreeSet<IpNet>,
}

impl<'a> Listed<'a> {
    fn of(routes: &'a [api::Route], pass: &mut Pass) -> Self {
        let mut listed = Self::default();
        for route in routes {
            match read(route) {
                Ok((cidr, api::Ownership::Foreign)) => {
                    listed.foreign.entry(cidr).or_default().push(route);
                }
                Ok((cidr, _)) => listed.routes.entry(cidr).or_default().push(route),
                Err((cidr, what)) => {
                    listed.faulty.extend(cidr);
                    if pass.faults.len() < 10 {
                        pass.faults.push((route.name.clone(), what));
                    }
                }
            }
        }
        listed
    }
}

/// Runs one pass. It stores the observed state in the ledger.
pub(super) fn pass(ledger: &mut Ledger, look: &Look<'_>) -> Pass {
    let mut pass = Pass::default();
    let listed = Listed::of(look.routes, &mut pass);
    let index = Index::new(look.nodes);
    let wants = Wants::of(look.nodes, &listed, &index);
    let destinations: BTreeSet<IpNet> = listed.routes.keys().copied().collect();
    let mut round = Round {
        look,
        ledger,
        index,
        listed,
        pass,
        known: BTreeMap::new(),
        doubts: BTreeSet::new(),
    };
    let inside = round.listed.routes.iter();
    let inside = inside.filter(|(cidr, _)| round.is_inside(cidr));
    round.pass.inside = inside.map(|(_, routes)| routes.len()).sum();
    for (destination, (node, text)) in &wants.routed {
        round.wanted(*destination, node, text);
    }
    let still_routed = round.unwanted(&wants);
    round.learn(&wants, &still_routed, &destinations)
}

/// A pass in progress.
struct Round<'a, 'l> {
    look: &'a Look<'a>,
    ledger: &'l mut Ledger,
    index: Index<'a>,
    listed: Listed<'a>,
    pass: Pass,
    known: BTreeMap<IpNet, Known>,
    doubts: BTreeSet<Doubt>,
}

/// The listed routes of a destination that a Node wants.
#[derive(Default)]
struct Seen<'a> {
    /// A route leads to the Node, or nothing proves that it does not.
    there: bool,
    /// Routes to remove: they lead elsewhere, or two lists in a row show that they lead nowhere or
    /// to an unknown address.
    wrong: Vec<&'a api::Route>,
    /// Routes with the Node's former addresses.
    old: Vec<&'a api::Route>,
    /// For the first time, a route leads nowhere or to an unknown address.
    doubtful: bool,
}

impl<'a> Round<'a, '_> {
    fn is_inside(&self, cidr: &IpNet) -> bool {
        let mut all = self.look.cluster_cidrs.iter();
        all.any(|all| all.contains(cidr))
    }

    /// Whether the list proves nothing about this destination.
    fn is_passed_over(&mut self, destination: &IpNet) -> bool {
        match self.ledger.says(destination, self.look.asked_at) {
            Says::Something => false,
            Says::LookAgain => {
                self.pass.again = true;
                true
            }
            Says::LookWhenDone => true,
        }
    }

    /// Plans a destination that a Node wants. `text` is the Node's own text.
    fn wanted(&mut self, destination: IpNet, node: &NodeFacts, text: &str) {
        let routes = self.listed.routes.remove(&destination);
        // The key may still wait for the former Node's retry.
        let waited = self.ledger.hand_over(destination, &node.uid);
        self.pass.settled.extend(waited.then_some(destination));
        if self.is_passed_over(&destination) {
            return;
        }
        if self.listed.faulty.contains(&destination) {
            return;
        }
        let seen = self.seen(destination, node, routes.unwrap_or_default());
        // Even beside a right route, a second list must decide about a doubtful route.
        self.pass.again |= seen.doubtful;
        let absent = !seen.there && !seen.doubtful;
        let missing = absent && seen.old.is_empty();
        // Beside a right route, a route with former addresses is a duplicate.
        let delete = seen.wrong.into_iter().chain(seen.old).map(as_listed);
        let delete: Vec<api::Route> = delete.collect();
        let known = match (seen.there, missing) {
            (true, _) if delete.is_empty() => Some(Known::There),
            (true, _) => Some(Known::Crowded),
            (false, true) => Some(Known::Missing),
            (false, false) => None,
        };
        self.known.extend(known.map(|known| (destination, known)));
        let may_create = absent && !(self.look.tracks_addresses && node.addresses.is_empty());
        self.add(Task {
            destination,
            in_the_way: missing,
            delete,
            create: may_create.then(|| wanted(node, text)),
        });
    }

    fn seen(
        &mut self,
        destination: IpNet,
        node: &NodeFacts,
        routes: Vec<&'a api::Route>,
    ) -> Seen<'a> {
        // The controller never removes another owner's route. If it leads to the Node, that Node
        // has its route.
        let foreign = self.listed.foreign.get(&destination);
        let there = foreign.is_some_and(|routes| {
            let mut routes = routes.iter().filter(|route| !route.blackhole);
            routes.any(|route| self.index.leads_to(route, node) == Target::Right)
        });
        let mut seen = Seen {
            there,
            ..Seen::default()
        };
        let removable = self.is_inside(&destination);
        for route in routes {
            let target = self.index.leads_to(route, node);
            let hop = route.next_hop.as_deref().unwrap_or_default();
            let strays = target == Target::Unknown
                && removable
                && !self.ledger.is_led_there(&destination, &node.uid, hop);
            if route.blackhole || strays {
                let name = route.name.clone();
                let doubt = (destination, name, hop.to_owned(), node.uid.clone());
                if self.ledger.doubted(&doubt) {
                    seen.wrong.extend(removable.then_some(route));
                    if strays {
                        self.ledger.strays(destination, hop);
                    }
                } else {
                    // One list is not enough to delete such a route, because it may serve a live
                    // Node.
                    seen.doubtful |= removable;
                }
                self.doubts.insert(doubt);
            } else if target == Target::Wrong {
                seen.wrong.extend(removable.then_some(route));
            } else if self.look.tracks_addresses
                && !planted!(FormerAddressesStay)
                && removable
                && !node.addresses.is_empty()
                && follows_other_addresses(route, &node.addresses)
            {
                seen.old.push(route);
            } else {
                seen.there = true;
            }
        }
        seen
    }

    /// Plans the destinations that no Node wants. Returns the UIDs of the Nodes to which the
    /// unwanted routes lead.
    fn unwanted(&mut self, wants: &Wants<'_>) -> BTreeSet<&'a str> {
        let mut still_routed = BTreeSet::new();
        for (destination, mut routes) in std::mem::take(&mut self.listed.routes) {
            let unwanted = self.is_inside(&destination)
                && !wants.left_alone.contains(&destination)
                && !self.listed.faulty.contains(&destination);
            routes.retain(|route| unwanted && is_ours_to_remove(route, &self.index));
            let nodes = routes.iter().filter_map(|route| self.index.resolve(route));
            still_routed.extend(nodes.map(|node| node.uid.as_str()));
            if self.is_passed_over(&destination) {
                continue;
            }
            self.add(Task {
                destination,
                in_the_way: false,
                delete: routes.into_iter().map(as_listed).collect(),
                create: None,
            });
        }
        still_routed
    }

    /// Adds a task to the pass, unless the task is empty or must wait.
    fn add(&mut self, task: Task) {
        if task.delete.is_empty() && task.create.is_none() {
            return;
        }
        if !task.delete.is_empty() && !self.look.may_delete {
            // The routes in the way must go first: the controller creates nothing beside them.
            self.pass.held += task.delete.len();
            return;
        }
        let create = task.create.as_ref();
        if !task.delete.is_empty() && self.ledger.is_delayed(&task.destination, create) {
            // The list at the time of the retry decides about the removal, not this list.
            return;
        }
        self.pass.tasks.push(task);
    }

    /// Stores the observed state in the ledger.
    fn learn(
        mut self,
        wants: &Wants<'_>,
        still_routed: &BTreeSet<&str>,
        listed: &BTreeSet<IpNet>,
    ) -> Pass {
        let mut nodes = BTreeMap::new();
        for node in self.look.nodes {
            if node.is_routed() {
                for (cidr, _) in &node.pod_cidrs {
                    if let Some((winner, _)) = wants.routed.get(cidr)
                        && winner.uid != node.uid
                    {
                        let name = NodeName {
                            name: node.name.clone(),
                            uid: node.uid.clone(),
                        };
                        self.pass.clashes.push((name, *cidr, winner.name.clone()));
                    }
                }
                let destinations = node.pod_cidrs.iter().map(|(cidr, _)| *cidr).collect();
                nodes.insert(node.uid.clone(), (node.name.clone(), destinations));
            } else if node.owner == Owner::Ours
                && !node.leaving
                && still_routed.contains(node.uid.as_str())
            {
                // The Node has a route that it does not want. After its removal, the Node has none.
                nodes.insert(node.uid.clone(), (node.name.clone(), Vec::new()));
            }
        }
        let owned = wants.routed.keys().copied().collect();
        let few = (self.pass.inside / 10).max(5);
        self.pass.needs_second_look = deletions(&self.pass.tasks) > few;
        let settled = self.ledger.learn(nodes, &owned, &self.known, listed);
        self.pass.settled.extend(settled);
        self.ledger.doubt(self.doubts);
        self.pass
    }
}

/// Whether to remove a route to a destination that no Node wants: it is marked as ours, its target
/// is gone, it names a Node, or it leads to an address of just one Node. Any other unmarked route
/// stays, for example one to an address that no Node has.
fn is_ours_to_remove(route: &api::Route, index: &Index<'_>) -> bool {
    planted!(OthersRoutesAreUnwanted)
        || route.ownership == i32::from(api::Ownership::Ours)
        || route.blackhole
        || !names_no_node(route)
        || index.resolve(route).is_some()
}

fn as_listed(route: &api::Route) -> api::Route {
    api::Route {
        route_key: format!("{} {}", route.name, route.destination_cidr),
        ..route.clone()
    }
}

fn wanted(node: &NodeFacts, destination: &str) -> api::Route {
    api::Route {
        route_key: destination.to_owned(),
        name_hint: node.uid.clone(),
        destination_cidr: destination.to_owned(),
        node_name: Some(node.name.clone()),
        provider_id: Some(node.provider_id.clone()).filter(|id| !id.is_empty()),
        // Always set, as upstream does: clouds find the route's target address among them.
        node_addresses: node.addresses.clone(),
        ..api::Route::default()
    }
}

#[cfg(test)]
mod tests;
