//! Counts the calls to AWS's API from AWS's own controller and from the ccm, for the table of
//! docs/aws.md. Also checks the rights that the provider needs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use testenv::eventually;
use testenv::objects::LoadBalancerBuilder;
use tokio::time::{Instant, sleep};

use crate::aws::{self, Aws};
use crate::clouds::{Cloud, Instance};
use crate::life::{PLANES, SOON, World};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/aws.md");
const BEGIN: &str = "<!-- cost:begin -->\n";
const END: &str = "<!-- cost:end -->";

/// An hour divided by fifty. The refresh period of five minutes is divided too: it is six seconds.
const IDLE: Duration = Duration::from_secs(72);
/// The refresh period in the other situations. It is so long that Nodes are refreshed only at the
/// start of a controller.
const SELDOM: &str = "--node-status-update-frequency=2h";
const OFTEN: &str = "--node-status-update-frequency=6s";

/// How many calls of each action.
type Calls = BTreeMap<String, usize>;

/// The number of calls counted so far, and a row for each situation.
struct Counted {
    seen: usize,
    rows: Vec<(&'static str, Calls)>,
}

impl Counted {
    /// Adds a row with the calls since the last row, after five seconds without a call.
    async fn row(&mut self, world: &World, situation: &'static str) {
        self.settle(world, Duration::from_secs(5)).await;
        self.take(world, situation);
    }

    fn take(&mut self, world: &World, situation: &'static str) {
        let all = calls(world);
        let mut row = Calls::new();
        for call in &all[self.seen..] {
            let action = call.split(':').nth(1).unwrap();
            *row.entry(action.to_owned()).or_default() += 1;
        }
        self.seen = all.len();
        self.rows.push((situation, row));
    }

    async fn settle(&mut self, world: &World, still: Duration) {
        let (mut last, mut since) = (0, Instant::now());
        eventually("no more calls come", SOON, async || {
            let count = calls(world).len();
            if count != last {
                (last, since) = (count, Instant::now());
            }
            let quiet = since.elapsed() >= still;
            quiet.then_some(()).ok_or(count)
        })
        .await;
    }
}

fn calls(world: &World) -> Vec<String> {
    world.aws().calls()
}

/// Three Nodes join. A Service is created and, after a restart, deleted. Then it is created again,
/// the controller restarts, and nothing happens for 72 s, which stand for an hour.
async fn story(ours: bool) -> Vec<(&'static str, Calls)> {
    let plane = PLANES.take().await.unwrap();
    let (aws, machines) = Aws::start(plane.directory(), &["a", "b", "c"]).await;
    let mut world = World::new(plane, Cloud::Aws(aws));
    let mut counted = Counted {
        seen: 0,
        rows: Vec::new(),
    };
    start(&mut world, ours, SELDOM).await;
    counted.row(&world, "a start without Nodes").await;
    world.join(&machines).await;
    counted.row(&world, "three Nodes join").await;
    world.serve("web").await;
    counted.row(&world, "a Service is made").await;
    end(&mut world, ours).await;
    start(&mut world, ours, SELDOM).await;
    counted.row(&world, "a restart").await;
    world.unserve("web").await;
    counted.row(&world, "a Service is deleted").await;
    world.serve("web").await;
    end(&mut world, ours).await;
    start(&mut world, ours, OFTEN).await;
    // Waits for the pause between two refreshes.
    counted.settle(&world, Duration::from_secs(3)).await;
    counted.seen = calls(&world).len();
    sleep(IDLE).await;
    counted.take(&world, "an idle hour");
    world.unserve("web").await;
    counted.rows
}

async fn end(world: &mut World, ours: bool) {
    let running: &[_] = if ours {
        &["ccm", "provider"]
    } else {
        &["upstream"]
    };
    for name in running {
        world.end(name).await;
    }
}

async fn start(world: &mut World, ours: bool, refresh: &str) {
    let before = world.holder().await;
    let flags = [
        refresh,
        "--configure-cloud-routes=false",
        "--leader-elect-lease-duration=12s",
        "--leader-elect-renew-deadline=10s",
        "--leader-elect-retry-period=1s",
    ];
    if ours {
        world.start_ours(&flags);
    } else {
        world.start_upstream(&flags);
    }
    world.led_by_another(before.as_deref()).await;
}

/// The rows of the page's table.
fn table(upstream: &[(&str, Calls)], ours: &[(&str, Calls)]) -> String {
    let cell = |calls: &Calls| {
        if calls.is_empty() {
            return "0".to_owned();
        }
        let each = calls.iter().map(|(action, n)| format!("{n} {action}"));
        let each: Vec<_> = each.collect();
        format!("{}: {}", calls.values().sum::<usize>(), each.join(", "))
    };
    let mut text = "| situation | AWS's own controller | ours |\n|---|---|---|\n".to_owned();
    for ((situation, theirs), (_, ours)) in upstream.iter().zip(ours) {
        writeln!(text, "| {situation} | {} | {} |", cell(theirs), cell(ours)).unwrap();
    }
    text
}

/// Situation and the two counts of each row of the table.
fn read(text: &str) -> Vec<(String, usize, usize)> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, situation, theirs, ours, _] = cells[..] else {
            return None;
        };
        let count = |cell: &str| cell.split(':').next()?.parse::<usize>().ok();
        Some((situation.to_owned(), count(theirs)?, count(ours)?))
    };
    text.lines().filter_map(row).collect()
}

/// It takes about four minutes. `UPDATE_DOCS=1` writes the table.
#[tokio::test(flavor = "multi_thread")]
async fn whole_cost_of_aws_is_what_its_page_says_and_no_more_than_its_own_controllers() {
    let (theirs, ours) = tokio::join!(story(false), story(true));
    let table = table(&theirs, &ours);
    eprintln!("{table}");
    let page = fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    if std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1") {
        fs::write(PAGE, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    let (written, found) = (read(written), read(&table));
    assert_eq!(written.len(), found.len(), "{table}");
    let near = |a: usize, b: usize| a.abs_diff(b) <= 4 + a.max(b) / 4;
    for (was, is) in written.iter().zip(&found) {
        let same = was.0 == is.0 && near(was.1, is.1) && near(was.2, is.2);
        assert!(same, "{was:?} is in the page, and {is:?} came out");
        assert!(
            is.2 <= is.1 + 2,
            "{is:?}: more than of AWS's own controller"
        );
    }
}

/// Rights that the calls here do not use. AWS requires the first two for creating tagged objects.
/// The others are for annotations that change later.
const UNSEEN: [&str; 8] = [
    "ec2:CreateTags",
    "elasticloadbalancing:AddTags",
    "elasticloadbalancing:ApplySecurityGroupsToLoadBalancer",
    "elasticloadbalancing:AttachLoadBalancerToSubnets",
    "elasticloadbalancing:DescribeTargetGroupAttributes",
    "elasticloadbalancing:DetachLoadBalancerFromSubnets",
    "elasticloadbalancing:ModifyTargetGroup",
    "elasticloadbalancing:ModifyTargetGroupAttributes",
];

/// The actions of the provider's policy.
fn policy() -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(aws::FOLDER).join("policy.json")).unwrap();
    let policy: serde_json::Value = serde_json::from_str(&text).unwrap();
    let statements = policy["Statement"].as_array().unwrap().iter();
    let actions = statements.flat_map(|one| one["Action"].as_array().unwrap());
    actions
        .map(|one| one.as_str().unwrap().to_owned())
        .collect()
}

impl World {
    pub fn aws(&self) -> &Aws {
        let Cloud::Aws(aws) = &self.cloud else {
            panic!("only AWS")
        };
        aws
    }

    async fn exclude(&self, instance: &Instance) {
        let label = json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""});
        let patch = Patch::Merge(json!({"metadata": {"labels": label}}));
        let (nodes, how) = (self.nodes(), PatchParams::default());
        nodes.patch(&instance.node, &how, &patch).await.unwrap();
    }

    async fn make(&self, service: LoadBalancerBuilder) {
        let service = service.build();
        let name = service.metadata.name.clone().unwrap();
        let (services, how) = (self.services(), PostParams::default());
        services.create(&how, &service).await.unwrap();
        self.service_becomes(&name, "has an address", |it| {
            testenv::objects::ingress(it).is_some()
        })
        .await;
    }
}

/// The test API refuses calls that the policy does not allow, so the calls here need no other
/// right. The policy grants only rights that the calls here use, and those in [`UNSEEN`].
#[tokio::test(flavor = "multi_thread")]
async fn whole_the_policy_of_aws_allows_what_is_needed_and_nothing_else() {
    const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";
    let plane = PLANES.take().await.unwrap();
    let (aws, machines) = Aws::start(plane.directory(), &["a", "b"]).await;
    let certificate = aws.run(&["certificate"]);
    let mut world = World::new(plane, Cloud::Aws(aws));
    world.start_ours(&["--cluster-cidr=10.244.0.0/16", "--allocate-node-cidrs=true"]);
    world.join(&machines).await;
    let annotated = |name: &str, annotations: &[(&str, &str)]| {
        let service = LoadBalancerBuilder::new("default", name);
        annotations.iter().fold(service, |service, (key, value)| {
            service.annotation(&format!("{PREFIX}{key}"), value)
        })
    };
    let secure = [
        ("proxy-protocol", "*"),
        ("ssl-cert", certificate.trim()),
        ("ssl-negotiation-policy", "ELBSecurityPolicy-2016-08"),
    ];
    for annotations in [&secure[..], &[("type", "nlb")]] {
        world.make(annotated("web", annotations)).await;
        world.listen(8081).await;
        world.unserve("web").await;
    }
    world.make(annotated("network", &[("type", "nlb")])).await;
    world.make(annotated("classic", &[])).await;
    let (gone, others) = machines.split_last().unwrap();
    // moto takes a terminated instance out of a target group by itself.
    world.exclude(gone).await;
    eventually("the excluded Node is no target", SOON, async || {
        let used = calls(&world);
        let taken_out = |call: &String| call.ends_with(":DeregisterTargets");
        used.iter().any(taken_out).then_some(()).ok_or(used.len())
    })
    .await;
    world.lose(gone, others).await;
    eventually("what is granted is called", SOON, async || {
        let used: BTreeSet<String> = calls(&world).into_iter().collect();
        let unseen: Vec<_> = policy().difference(&used).cloned().collect();
        (unseen == UNSEEN)
            .then_some(())
            .ok_or_else(|| unseen.join(" "))
    })
    .await;

    // The event on the Service names a missing right.
    let right = "action=elasticloadbalancing:CreateLoadBalancer";
    world.aws().run(&["console", "deny", right]);
    let refused = LoadBalancerBuilder::new("default", "refused").build();
    let (services, how) = (world.services(), PostParams::default());
    services.create(&how, &refused).await.unwrap();
    eventually("the event names the right", SOON, async || {
        let events = world.events("refused").await;
        let named = |text: &String| text.contains("AccessDenied") && text.contains(&right[7..]);
        let told = events.iter().any(named);
        told.then_some(()).ok_or_else(|| events.join("\n"))
    })
    .await;
    world.aws().run(&["console", "allow", right]);
    let good = |service: &Service| testenv::objects::ingress(service).is_some();
    world.service_becomes("refused", "is served", good).await;
}
