//! Tables of passes.

mod rules;

use std::time::Duration;

use super::super::ledger::{Due, Ended};
use super::*;
use crate::provider::{CallError, CallErrorCode};

/// Parses `name cidr,cidr address`, with `-` for none. The Node's provider ID is `mock://name`.
fn node(text: &str) -> NodeFacts {
    let words: Vec<&str> = text.split_whitespace().collect();
    let list = |word: &str| -> Vec<String> {
        let words = word.split(',').filter(|word| *word != "-");
        words.map(str::to_owned).collect()
    };
    let mut pod_cidrs: Vec<(IpNet, String)> = Vec::new();
    for cidr in list(words[1]) {
        let parsed = cidr.parse().unwrap();
        if pod_cidrs.iter().all(|(known, _)| *known != parsed) {
            pod_cidrs.push((parsed, cidr));
        }
    }
    NodeFacts {
        name: words[0].to_owned(),
        uid: format!("uid-{}", words[0]),
        provider_id: format!("mock://{}", words[0]),
        owner: Owner::Ours,
        pod_cidrs,
        addresses: addresses(words.get(2).copied().unwrap_or("-")),
        leaving: false,
        created: None,
    }
}

fn addresses(text: &str) -> Vec<api::NodeAddress> {
    let each = text.split(',').filter(|word| *word != "-");
    each.map(|address| api::NodeAddress {
        r#type: api::NodeAddressType::InternalIp.into(),
        address: address.to_owned(),
    })
    .collect()
}

/// Parses `name cidr target [addresses] [foreign|unmarked]`. Target: `>n` by name and provider ID,
/// `=n` by name, `#id` by provider ID, `@ip` next hop, `-` none, `!` a blackhole without a target,
/// `!>n` a blackhole that names a Node.
fn route(text: &str) -> api::Route {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (blackhole, target) = match words[2].strip_prefix('!') {
        Some(target) => (true, target),
        None => (false, words[2]),
    };
    let (node_name, provider_id, next_hop) = match target.split_at_checked(1) {
        Some((">", name)) => (Some(name), Some(format!("mock://{name}")), None),
        Some(("=", name)) => (Some(name), None, None),
        Some(("#", id)) => (None, Some(id.to_owned()), None),
        Some(("@", hop)) => (None, None, Some(hop)),
        _ => (None, None, None),
    };
    let ownership = match words.last() {
        Some(&"foreign") => api::Ownership::Foreign,
        Some(&"unmarked") => api::Ownership::Unmarked,
        _ => api::Ownership::Ours,
    };
    let known = words.get(3).filter(|word| word.contains('.'));
    api::Route {
        name: words[0].to_owned(),
        destination_cidr: words[1].to_owned(),
        node_name: node_name.map(str::to_owned),
        provider_id,
        next_hop: next_hop.map(str::to_owned),
        node_addresses: addresses(known.copied().unwrap_or("-")),
        blackhole,
        ownership: ownership.into(),
        ..api::Route::default()
    }
}

struct Scene {
    nodes: Vec<NodeFacts>,
    routes: Vec<api::Route>,
    cidrs: Vec<IpNet>,
    tracks: bool,
    may_delete: bool,
    ledger: Ledger,
    now: Instant,
}

impl Scene {
    fn new(nodes: &[&str], routes: &[&str]) -> Self {
        Self {
            nodes: nodes.iter().map(|text| node(text)).collect(),
            routes: routes.iter().map(|text| route(text)).collect(),
            cidrs: ["10.8.0.0/16", "fd00:8::/32"]
                .map(|it| it.parse().unwrap())
                .into(),
            tracks: false,
            may_delete: true,
            ledger: Ledger::default(),
            now: Instant::now(),
        }
    }

    fn tracking(mut self) -> Self {
        self.tracks = true;
        self
    }

    fn node(&mut self, name: &str) -> &mut NodeFacts {
        self.nodes
            .iter_mut()
            .find(|node| node.name == name)
            .unwrap()
    }

    /// A pass, 10 s after the one before. Returns the tasks that are due now.
    fn look(&mut self) -> Pass {
        self.now += Duration::from_secs(10);
        let look = Look {
            nodes: &self.nodes,
            routes: &self.routes,
            cluster_cidrs: &self.cidrs,
            tracks_addresses: self.tracks,
            may_delete: self.may_delete,
            asked_at: self.now,
        };
        let mut pass = pass(&mut self.ledger, &look);
        let (ledger, now) = (&mut self.ledger, self.now);
        pass.tasks.retain(|task| ledger.plan(task.clone(), now));
        pass
    }

    /// The result for this destination's key when it leaves the queue.
    fn due(&mut self, destination: &str) -> Due {
        let destination = destination.parse().unwrap();
        self.ledger.begin(&destination, true, self.now)
    }

    /// The tasks of a pass: `-route` and `+node:cidr`. The wanted destinations come first, then the
    /// others, each in their order.
    fn shown(&mut self) -> String {
        show(&self.look())
    }

    /// Executes the tasks in the cloud of this scene. Returns the conditions after that, as
    /// `node=created` or `node=failed`.
    fn done(&mut self, pass: &Pass) -> String {
        let later = self.now + Duration::from_secs(1);
        for task in &pass.tasks {
            let due = self.ledger.begin(&task.destination, true, self.now);
            assert_eq!(due, Due::Work(Box::new(task.clone())));
            for gone in &task.delete {
                self.routes.retain(|route| route.name != gone.name);
                self.ledger.removed(&task.destination, gone);
            }
            if task.create.is_none() {
                self.ledger
                    .deleted(task.destination, task.in_the_way, Ended::Done, later);
            }
            if let Some(create) = &task.create {
                let taken = |route: &api::Route| {
                    route.destination_cidr == create.destination_cidr
                        && route.ownership != i32::from(api::Ownership::Foreign)
                };
                assert!(
                    !self.routes.iter().any(taken),
                    "made beside another: {create:?}"
                );
                self.routes.push(api::Route {
                    name: format!("made-{}", create.destination_cidr),
                    ownership: api::Ownership::Ours.into(),
                    ..create.clone()
                });
                self.ledger
                    .created(task.destination, create, Ended::Done, later);
            }
        }
        self.conditions()
    }

    fn conditions(&self) -> String {
        let mut shown = Vec::new();
        for node in &self.nodes {
            if let Some(created) = self.ledger.verdict(&node.uid) {
                let word = if created { "created" } else { "failed" };
                shown.push(format!("{}={word}", node.name));
            }
        }
        shown.join(" ")
    }

    /// Lets each task's create fail with this code.
    fn fails(&mut self, pass: &Pass, code: CallErrorCode) {
        let trouble = CallError::new(code, "no");
        let later = self.now + Duration::from_secs(1);
        for task in &pass.tasks {
            self.ledger.begin(&task.destination, true, self.now);
            let sent = task.create.clone().unwrap();
            let ended = Ended::Failed(&trouble);
            self.ledger.created(task.destination, &sent, ended, later);
        }
    }
}

fn show(pass: &Pass) -> String {
    let mut shown = Vec::new();
    for task in &pass.tasks {
        shown.extend(task.delete.iter().map(|route| format!("-{}", route.name)));
        shown.extend(task.create.iter().map(|route| {
            let node = route.node_name.as_deref().unwrap_or("?");
            format!("+{node}:{}", route.destination_cidr)
        }));
    }
    shown.join(" ")
}

/// Case, Nodes, routes, tasks, and the conditions after them.
type Row = (
    &'static str,
    Vec<&'static str>,
    Vec<&'static str>,
    &'static str,
    &'static str,
);

/// The cases of upstream's tests and similar ones.
#[test]
fn b_r2_b_r4_each_node_gets_the_routes_to_its_pods_and_no_other_stays() {
    let (a, b) = ("a 10.8.1.0/24 10.0.0.1", "b 10.8.2.0/24 10.0.0.2");
    let (da, db) = (
        "a 10.8.1.0/24,fd00:8:1::/64 10.0.0.1",
        "b 10.8.2.0/24,fd00:8:2::/64 10.0.0.2",
    );
    let both = "a=created b=created";
    #[rustfmt::skip]
    let rows: Vec<Row> = vec![
        ("single stack, none is there", vec![a, b], vec![], "+a:10.8.1.0/24 +b:10.8.2.0/24", both),
        ("single stack, one is there", vec![a, b], vec!["r1 10.8.1.0/24 >a"], "+b:10.8.2.0/24", both),
        ("single stack, all are there", vec![a, b], vec!["r1 10.8.1.0/24 >a", "r2 10.8.2.0/24 >b"], "", both),
        ("single stack, more than is wanted", vec![a, b], vec!["r1 10.8.1.0/24 >a", "r2 10.8.2.0/24 >b", "r3 10.8.3.0/24 >a", "r4 10.8.4.0/24 >b"], "-r3 -r4", both),
        ("single stack, one leads elsewhere", vec![a, b], vec!["r1 10.8.1.0/24 >a", "r2 10.8.2.0/24 >a"], "-r2 +b:10.8.2.0/24", both),
        ("single stack, one Node has no Pod CIDR", vec![a, "b -"], vec![], "+a:10.8.1.0/24", "a=created"),
        ("a Node lost its Pod CIDR", vec![a, "b -"], vec!["r2 10.8.2.0/24 >b"], "+a:10.8.1.0/24 -r2", "a=created b=failed"),
        ("a blackhole of no Node inside", vec![a, b], vec!["r1 10.8.1.0/24 >a", "r2 10.8.2.0/24 >b", "r3 10.8.3.0/24 !"], "-r3", both),
        ("a blackhole outside", vec![a, b], vec!["r1 10.8.1.0/24 >a", "r2 10.8.2.0/24 >b", "r3 10.9.3.0/24 !"], "", both),
        ("the same Pod CIDR twice on a Node", vec!["a 10.8.1.0/24,10.8.1.0/24"], vec![], "+a:10.8.1.0/24", "a=created"),
        ("dual stack, none is there", vec![da, db], vec![], "+a:10.8.1.0/24 +b:10.8.2.0/24 +a:fd00:8:1::/64 +b:fd00:8:2::/64", both),
        ("dual stack, all are there", vec![da, db], vec!["r1 10.8.1.0/24 >a", "r2 10.8.2.0/24 >b", "r3 fd00:8:1::/64 >a", "r4 fd00:8:2::/64 >b"], "", both),
        ("dual stack, crossed", vec![da, db], vec!["r1 10.8.2.0/24 >a", "r2 10.8.1.0/24 >b", "r3 fd00:8:2::/64 >a", "r4 fd00:8:1::/64 >b"], "-r2 +a:10.8.1.0/24 -r1 +b:10.8.2.0/24 -r4 +a:fd00:8:1::/64 -r3 +b:fd00:8:2::/64", both),
        ("dual stack, some are there", vec![da, db], vec!["r1 10.8.1.0/24 >a", "r4 fd00:8:2::/64 >b"], "+b:10.8.2.0/24 +a:fd00:8:1::/64", both),
        ("dual stack, more than is wanted", vec![da, db], vec!["r1 10.8.1.0/24 >a", "r2 10.8.2.0/24 >b", "r3 fd00:8:1::/64 >a", "r4 fd00:8:2::/64 >b", "r5 10.8.5.0/24 >a", "r6 fd00:8:6::/64 >b"], "-r5 -r6", both),
        // Cases that upstream does not test.
        ("its Node is gone", vec![a], vec!["r1 10.8.1.0/24 >a", "r2 10.8.2.0/24 >b"], "-r2", "a=created"),
        ("made again under its name, another CIDR", vec!["a 10.8.7.0/24"], vec!["r1 10.8.1.0/24 >a"], "+a:10.8.7.0/24 -r1", "a=created"),
        ("a right one and a wrong one", vec![a, b], vec!["r1 10.8.1.0/24 >a", "x 10.8.1.0/24 >b", "r2 10.8.2.0/24 >b"], "-x", both),
        ("by the name alone", vec![a], vec!["r1 10.8.1.0/24 =a"], "", "a=created"),
        ("by the provider ID alone", vec![a], vec!["r1 10.8.1.0/24 #mock://a"], "", "a=created"),
        ("by the next hop", vec![a, b], vec!["r1 10.8.1.0/24 @10.0.0.1", "r2 10.8.2.0/24 @10.0.0.1"], "-r2 +b:10.8.2.0/24", both),
        ("a next hop that is no Node's, and an address of the Node's is not known", vec!["a 10.8.1.0/24"], vec!["r1 10.8.1.0/24 @10.0.0.9"], "", "a=created"),
        ("ours to an address of no Node, for no Node", vec![a], vec!["r1 10.8.1.0/24 >a", "r9 10.8.9.0/24 @10.0.0.9"], "-r9", "a=created"),
        ("unmarked to a gateway (ROUTE-11), for no Node", vec![a], vec!["r1 10.8.1.0/24 >a", "g 10.8.9.0/24 - unmarked"], "", "a=created"),
        ("unmarked to a gateway, in the place of a Node's", vec![a], vec!["g 10.8.1.0/24 - unmarked"], "", "a=created"),
        ("unmarked, the right one", vec![a], vec!["r1 10.8.1.0/24 >a unmarked"], "", "a=created"),
        ("unmarked, a wrong one", vec![a, b], vec!["r1 10.8.1.0/24 >b unmarked", "r2 10.8.2.0/24 >b"], "-r1 +a:10.8.1.0/24", both),
        ("unmarked, its Node is gone", vec![a], vec!["r1 10.8.1.0/24 >a", "r2 10.8.2.0/24 >b unmarked"], "-r2", "a=created"),
        ("foreign, inside, for no Node", vec![a], vec!["r1 10.8.1.0/24 >a", "r2 10.8.2.0/24 >b foreign"], "", "a=created"),
        ("foreign, a blackhole inside", vec![a], vec!["r1 10.8.1.0/24 >a", "r2 10.8.2.0/24 ! foreign"], "", "a=created"),
        ("foreign, leads to the Node", vec![a], vec!["r1 10.8.1.0/24 >a foreign"], "", "a=created"),
        ("foreign, leads elsewhere: the provider says whether there is room beside it", vec![a, b], vec!["r1 10.8.1.0/24 >b foreign", "r2 10.8.2.0/24 >b"], "+a:10.8.1.0/24", both),
        ("a Pod CIDR with host bits", vec!["a 10.8.1.0/24"], vec!["r1 10.8.1.7/24 >a"], "", "a=created"),
        ("the default route", vec![a], vec!["r1 10.8.1.0/24 >a", "d 0.0.0.0/0 @10.0.0.254", "v6 ::/0 !"], "", "a=created"),
        ("a destination that is no CIDR", vec![a], vec!["r1 10.8.1.0/24 >a", "list pl-123 >a"], "", "a=created"),
    ];
    for (situation, nodes, routes, does, conditions) in rows {
        let mut scene = Scene::new(&nodes, &routes);
        let pass = scene.look();
        assert_eq!(show(&pass), does, "{situation}");
        assert_eq!(scene.done(&pass), conditions, "{situation}");
        assert_eq!(
            scene.shown(),
            "",
            "{situation}: and then nothing is left to do"
        );
    }
}

#[test]
fn b_r3_a_route_with_other_addresses_is_deleted_and_made_again_in_that_order() {
    let (a, b) = (
        "a 10.8.1.0/24,fd00:8:1::/64 10.0.0.1,10.0.0.11",
        "b 10.8.2.0/24 10.0.0.2",
    );
    #[rustfmt::skip]
    let rows: Vec<(&str, Vec<&str>, &str)> = vec![
        ("no route has addresses yet", vec!["r1 10.8.1.0/24 >a", "r2 10.8.2.0/24 >b", "r3 fd00:8:1::/64 >a"], "-r1 +a:10.8.1.0/24 -r2 +b:10.8.2.0/24 -r3 +a:fd00:8:1::/64"),
        ("the addresses changed, dual stack", vec!["r1 10.8.1.0/24 >a 10.0.0.7", "r2 10.8.2.0/24 >b 10.0.0.2", "r3 fd00:8:1::/64 >a 10.0.0.7"], "-r1 +a:10.8.1.0/24 -r3 +a:fd00:8:1::/64"),
        ("the address of a single-stack Node changed", vec!["r1 10.8.1.0/24 >a 10.0.0.1,10.0.0.11", "r2 10.8.2.0/24 >b 10.0.0.8", "r3 fd00:8:1::/64 >a 10.0.0.1,10.0.0.11"], "-r2 +b:10.8.2.0/24"),
        ("the same in another order", vec!["r1 10.8.1.0/24 >a 10.0.0.11,10.0.0.1", "r2 10.8.2.0/24 >b 10.0.0.2", "r3 fd00:8:1::/64 >a 10.0.0.1,10.0.0.11"], ""),
        ("a right one beside it", vec!["old 10.8.2.0/24 >b 10.0.0.8", "r2 10.8.2.0/24 >b 10.0.0.2", "r1 10.8.1.0/24 >a 10.0.0.11,10.0.0.1", "r3 fd00:8:1::/64 >a 10.0.0.1,10.0.0.11"], "-old"),
    ];
    for (situation, routes, does) in rows {
        let mut scene = Scene::new(&[a, b], &routes).tracking();
        let pass = scene.look();
        assert_eq!(show(&pass), does, "{situation}");
        assert_eq!(scene.done(&pass), "a=created b=created", "{situation}");
        assert_eq!(scene.shown(), "", "{situation}");
        // If routes do not depend on addresses, the addresses do not matter.
        assert_eq!(Scene::new(&[a, b], &routes).shown(), "", "{situation}");
    }
    // A route of another controller serves its Node until its recorded addresses are wrong
    // (ROUTE-9).
    for (unmarked, does) in [
        ("r2 10.8.2.0/24 >b unmarked", ""),
        ("r2 10.8.2.0/24 >b 10.0.0.8 unmarked", "-r2 +b:10.8.2.0/24"),
    ] {
        let mut scene = Scene::new(&["b 10.8.2.0/24 10.0.0.2"], &[unmarked]).tracking();
        assert_eq!(scene.shown(), does, "{unmarked}");
    }
    // A Node without an address (yet, or for a moment) changes nothing.
    let mut scene = Scene::new(
        &["a 10.8.1.0/24", "b 10.8.2.0/24"],
        &["r1 10.8.1.0/24 >a 10.0.0.1"],
    )
    .tracking();
    assert_eq!(scene.shown(), "");
    assert_eq!(scene.conditions(), "a=created");
}

#[test]
fn b_r2_a_route_outside_is_never_touched() {
    // The cluster's CIDR, a route's destination, and whether it is inside.
    let rows = [
        ("10.8.0.0/16", "10.8.0.0/24", true),
        ("10.8.0.0/16", "10.8.77.0/24", true),
        ("10.8.0.0/16", "10.8.255.0/24", true),
        ("10.8.0.0/14", "10.8.0.0/24", true),
        ("10.8.0.0/14", "10.11.255.0/24", true),
        ("fd00::/10", "fd00:100::/24", true),
        ("10.8.0.0/16", "10.9.0.0/24", false),
        ("10.8.0.0/16", "10.0.10.0/24", false),
        ("10.8.0.0/16", "10.255.255.0/24", false),
        ("10.8.0.0/14", "10.12.0.0/24", false),
        ("10.8.0.0/14", "10.7.255.0/24", false),
        ("fd00::/10", "b00:100::/24", false),
        // Both destinations are larger than the cluster's CIDR. The first begins inside the CIDR,
        // and upstream would delete that route.
        ("10.8.0.0/16", "10.8.0.0/13", false),
        ("10.8.0.0/16", "0.0.0.0/0", false),
    ];
    for (cluster, destination, inside) in rows {
        let text = format!("r {destination} >gone");
        for text in [text.clone(), text.replace('>', "!>")] {
            let mut scene = Scene::new(&["a -"], &[text.as_str()]);
            scene.cidrs = vec![cluster.parse().unwrap()];
            let does = if inside { "-r" } else { "" };
            assert_eq!(scene.shown(), does, "{cluster} {text}");
        }
    }
    // A Node's Pod CIDR is outside the cluster's CIDR: the controller creates the Node's route and
    // does not remove the wrong one.
    let mut scene = Scene::new(&["a 10.99.1.0/24"], &["x 10.99.1.0/24 >b"]);
    assert_eq!(scene.shown(), "+a:10.99.1.0/24");
}
