//! What one look at all Nodes and routes leads to (B-R2 to B-R4, ▲R7). Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use cloud_provider_api::v1alpha1 as api;
use ipnet::IpNet;
use tokio::time::Instant;

use super::facts::{Index, NodeFacts, Owner, Target, follows_other_addresses, names_no_node, read};
use super::ledger::{Known, Ledger, NodeName, Says};

/// What a pass looks at.
pub(super) struct Look<'a> {
    /// All Nodes.
    pub(super) nodes: &'a [NodeFacts],
    /// All routes, as listed.
    pub(super) routes: &'a [api::Route],
    /// What is inside of them is ours.
    pub(super) cluster_cidrs: &'a [IpNet],
    /// A route depends on its Node's addresses (B-R3).
    pub(super) tracks_addresses: bool,
    /// Routes may be removed: the provider is READY, and the view of the Nodes is complete and not empty.
    pub(super) may_delete: bool,
    /// When the list of routes was asked for.
    pub(super) asked_at: Instant,
    pub(super) now: Instant,
}

/// What is to be done for one destination, in this order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    pub(super) destination: IpNet,
    /// First these go, each as it was listed.
    pub(super) delete: Vec<api::Route>,
    /// While they are there the Node's own route is not.
    pub(super) in_the_way: bool,
    /// Then this is made.
    pub(super) create: Option<api::Route>,
}

/// What follows from a look.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// By destination.
    pub(super) tasks: Vec<Task>,
    /// Routes that should go, and must not now.
    pub(super) held: usize,
    /// Routes inside of the cluster's CIDRs.
    pub(super) inside: usize,
    /// Nodes that want no route and have one: it goes, and then they have none.
    pub(super) unrouted: Vec<NodeName>,
    /// Nodes whose Pod CIDR another Node has: which, and the other's name.
    pub(super) clashes: Vec<(NodeName, IpNet, String)>,
    /// The earliest time at which something that waits may be tried; `Some(now)`: in the next look.
    pub(super) again_at: Option<Instant>,
    /// ▲R7: so many routes would go that the Nodes are read from the API server first.
    pub(super) needs_second_look: bool,
    /// Routes that break the contract, by name, and how; at most 10.
    pub(super) faults: Vec<(String, &'static str)>,
}

impl Pass {
    /// How many routes would go.
    fn deletions(&self) -> usize {
        self.tasks.iter().map(|task| task.delete.len()).sum()
    }

    /// Whether the list says nothing of this destination.
    fn is_passed_over(
        &mut self,
        ledger: &mut Ledger,
        destination: &IpNet,
        look: &Look<'_>,
    ) -> bool {
        match ledger.says(destination, look.asked_at) {
            Says::Something => false,
            Says::LookAgain => {
                self.again(look.now);
                true
            }
            Says::LookWhenDone => true,
        }
    }

    fn again(&mut self, at: Instant) {
        self.again_at = Some(self.again_at.map_or(at, |before| before.min(at)));
    }
}

/// Of the tasks of a first look, those that a second one with other Nodes confirms; what deletes nothing is not among them.
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
        !task.delete.is_empty() && routes.all(known)
    });
    tasks
}

/// What Nodes want, by destination.
struct Wants<'a> {
    /// The Node that gets the route, and the destination as it wrote it.
    routed: BTreeMap<IpNet, (&'a NodeFacts, &'a str)>,
    /// Destinations of Nodes that are not ours to route (yet, or any more): what leads there is left alone.
    left_alone: BTreeSet<IpNet>,
}

impl<'a> Wants<'a> {
    fn of(nodes: &'a [NodeFacts], routes: &[(IpNet, &api::Route)], index: &Index<'_>) -> Self {
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
        let has_route: BTreeSet<(IpNet, &str)> = routes
            .iter()
            .filter_map(|(cidr, route)| Some((*cidr, index.resolve(route)?.uid.as_str())))
            .collect();
        let routed = all.into_iter().filter_map(|(cidr, claims)| {
            // Who has the route keeps it; else who was there first.
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

/// One look at everything. The ledger learns what was seen.
pub(super) fn pass(ledger: &mut Ledger, look: &Look<'_>) -> Pass {
    let mut pass = Pass::default();
    let inside = |cidr: &IpNet| look.cluster_cidrs.iter().any(|all| all.contains(cidr));
    let index = Index::new(look.nodes);

    let mut routes: Vec<(IpNet, &api::Route)> = Vec::new();
    let mut foreign: BTreeMap<IpNet, Vec<&api::Route>> = BTreeMap::new();
    // A destination with a route that nobody understands.
    let mut faulty = BTreeSet::new();
    for route in look.routes {
        match read(route) {
            Ok((cidr, api::Ownership::Foreign)) => foreign.entry(cidr).or_default().push(route),
            Ok((cidr, _)) => routes.push((cidr, route)),
            Err((cidr, what)) => {
                faulty.extend(cidr);
                if pass.faults.len() < 10 {
                    pass.faults.push((route.name.clone(), what));
                }
            }
        }
    }
    pass.inside = routes.iter().filter(|(cidr, _)| inside(cidr)).count();
    let wants = Wants::of(look.nodes, &routes, &index);

    let mut found: BTreeMap<IpNet, Vec<&api::Route>> = BTreeMap::new();
    for (cidr, route) in routes {
        found.entry(cidr).or_default().push(route);
    }
    let listed: BTreeSet<IpNet> = found.keys().copied().collect();
    let mut known = BTreeMap::new();
    let mut doubts = BTreeSet::new();

    for (destination, (node, text)) in &wants.routed {
        let routes = found.remove(destination).unwrap_or_default();
        if pass.is_passed_over(ledger, destination, look) {
            continue;
        }
        if faulty.contains(destination) {
            known.insert(*destination, Known::Doubtful);
            continue;
        }
        // Another owner's route is never removed, and leads there all the same.
        let mut there = foreign.get(destination).is_some_and(|routes| {
            let mut routes = routes.iter().filter(|route| !route.blackhole);
            routes.any(|route| index.leads_to(route, node) == Target::Right)
        });
        let mut seen = Seen::default();
        for route in routes {
            let removable = inside(destination);
            let target = index.leads_to(route, node);
            let hop = route.next_hop.as_deref().unwrap_or_default();
            let strays = target == Target::Unknown
                && removable
                && !ledger.is_led_there(destination, &node.uid, hop);
            if route.blackhole || strays {
                let name = route.name.clone();
                let doubt = (*destination, name, hop.to_owned(), node.uid.clone());
                if ledger.doubted(&doubt) {
                    seen.wrong.extend(removable.then_some(route));
                    if strays {
                        ledger.strays(*destination, hop);
                    }
                } else {
                    // Nothing is deleted on one answer: a live Node's route least of all.
                    seen.doubtful |= removable;
                }
                doubts.insert(doubt);
            } else if target == Target::Wrong {
                seen.wrong.extend(removable.then_some(route));
            } else if look.tracks_addresses
                && removable
                && !node.addresses.is_empty()
                && follows_other_addresses(route, &node.addresses)
            {
                seen.old.push(route);
            } else {
                there = true;
            }
        }
        let state = if there {
            Known::There
        } else if seen.doubtful {
            pass.again(look.now);
            Known::Doubtful
        } else if seen.old.is_empty() {
            Known::Missing
        } else {
            Known::Old
        };
        // With a right one beside it, one with former addresses is a duplicate.
        let delete = seen.wrong.into_iter().chain(seen.old).map(as_listed);
        let delete: Vec<api::Route> = delete.collect();
        let state = match state {
            Known::There if !delete.is_empty() => Known::Crowded,
            state => state,
        };
        let may_create = matches!(state, Known::Missing | Known::Old)
            && !(look.tracks_addresses && node.addresses.is_empty());
        let begun = add(
            &mut pass,
            ledger,
            look,
            Task {
                destination: *destination,
                in_the_way: state == Known::Missing,
                delete,
                create: may_create.then(|| wanted(node, text)),
            },
        );
        let state = match state {
            Known::Missing if begun => Known::Making,
            state => state,
        };
        known.insert(*destination, state);
    }

    let mut still_routed: BTreeSet<&str> = BTreeSet::new();
    for (destination, routes) in found {
        let unwanted = inside(&destination)
            && !wants.left_alone.contains(&destination)
            && !faulty.contains(&destination);
        let delete: Vec<&api::Route> = routes
            .into_iter()
            .filter(|route| unwanted && is_ours_to_remove(route, &index))
            .collect();
        still_routed.extend(
            delete
                .iter()
                .filter_map(|route| Some(index.resolve(route)?.uid.as_str())),
        );
        if pass.is_passed_over(ledger, &destination, look) {
            continue;
        }
        add(
            &mut pass,
            ledger,
            look,
            Task {
                destination,
                in_the_way: false,
                delete: delete.into_iter().map(as_listed).collect(),
                create: None,
            },
        );
    }

    let mut nodes = BTreeMap::new();
    for node in look.nodes {
        let name = || NodeName {
            name: node.name.clone(),
            uid: node.uid.clone(),
        };
        if node.is_routed() {
            for (cidr, _) in &node.pod_cidrs {
                if let Some((winner, _)) = wants.routed.get(cidr)
                    && winner.uid != node.uid
                {
                    pass.clashes.push((name(), *cidr, winner.name.clone()));
                }
            }
            let destinations = node.pod_cidrs.iter().map(|(cidr, _)| *cidr).collect();
            nodes.insert(node.uid.clone(), (node.name.clone(), destinations));
        } else if node.owner == Owner::Ours
            && !node.leaving
            && still_routed.contains(node.uid.as_str())
        {
            pass.unrouted.push(name());
        }
    }
    let winners: BTreeMap<IpNet, String> = wants
        .routed
        .iter()
        .map(|(cidr, (node, _))| (*cidr, node.uid.clone()))
        .collect();
    pass.needs_second_look = pass.deletions() > (pass.inside / 10).max(5);
    ledger.learn(nodes, &winners, &known, &listed);
    ledger.doubt(doubts);
    pass
}

/// Routes to a Node that are not as they should be.
#[derive(Default)]
struct Seen<'a> {
    /// They lead elsewhere, or nowhere.
    wrong: Vec<&'a api::Route>,
    /// They have the Node's former addresses.
    old: Vec<&'a api::Route>,
    /// One is said to lead nowhere, or to nobody knows whom, for the first time.
    doubtful: bool,
}

/// Takes a task into the pass, unless it must wait; whether it did.
fn add(pass: &mut Pass, ledger: &Ledger, look: &Look<'_>, task: Task) -> bool {
    if task.delete.is_empty() && task.create.is_none() {
        return false;
    }
    if !task.delete.is_empty() && !look.may_delete {
        // What is in the way must go before: nothing is made beside it.
        pass.held += task.delete.len();
        return false;
    }
    if let Some(due) = ledger.not_before(&task.destination, task.create.as_ref(), look.now) {
        pass.again(due);
        return false;
    }
    pass.tasks.push(task);
    true
}

/// Whether a route to no Node's Pods is one that goes: it is ours, its target is gone, or it names a Node. One without a mark that leads to an address
/// which is no Node's was made by somebody for something else.
fn is_ours_to_remove(route: &api::Route, index: &Index<'_>) -> bool {
    route.ownership == i32::from(api::Ownership::Ours)
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
        // Always, as upstream's: clouds look among them for the one that the route leads to.
        node_addresses: node.addresses.clone(),
        ..api::Route::default()
    }
}

#[cfg(test)]
mod tests;
