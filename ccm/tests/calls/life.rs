//! The situations of Nodes and Services that both sides go through, and their counted calls.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::half::{Calls, Half, Periods, Restart, Who, node};

/// A situation, and the calls that the cloud saw.
pub struct Row {
    pub situation: &'static str,
    pub upstream: Calls,
    pub ours: Calls,
}

impl Row {
    pub fn totals(&self) -> (usize, usize) {
        (self.upstream.values().sum(), self.ours.values().sum())
    }
}

/// Both sides of one cloud.
struct Pair {
    upstream: Half,
    ours: Half,
    rows: Vec<Row>,
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// How long a failure of the cloud lasts.
const OUTAGE: Duration = seconds(30);
/// This factor shortens the idle hour and, during it, the [`Periods`].
const IDLE_PACE: u32 = 50;
const IDLE: Duration = seconds(3600 / IDLE_PACE as u64);

impl Pair {
    /// Runs `act` on both sides. Counts calls for `window` from the start, but at least until two
    /// seconds after the action.
    async fn count(
        &mut self,
        situation: &'static str,
        window: Duration,
        act: impl AsyncFn(&Half) -> (),
    ) {
        let (_, first_upstream) = self.upstream.calls_from(0);
        let (_, first_ours) = self.ours.calls_from(0);
        let end = Instant::now() + window;
        tokio::join!(act(&self.upstream), act(&self.ours));
        sleep_until(end.max(Instant::now() + seconds(2))).await;
        let (upstream, _) = self.upstream.calls_from(first_upstream);
        self.take(situation, upstream, first_ours);
    }

    /// Takes our calls after the first `first`.
    fn take(&mut self, situation: &'static str, upstream: Calls, first: usize) {
        let (cloud, (ours, all)) = (self.ours.cloud, self.ours.calls_from(first));
        eprintln!("{cloud}, {situation}: upstream {upstream:?}, ours {ours:?}");
        let row = Row {
            situation,
            upstream,
            ours,
        };
        if row.totals().1 > row.totals().0 {
            let lines = self.ours.log();
            let ours = lines.lines().take(all).skip(first);
            eprintln!("our calls:\n{}", ours.collect::<Vec<_>>().join("\n"));
        }
        self.rows.push(row);
    }

    /// [`Self::count`] on the ccm's side alone. The row has upstream's counts of the situation
    /// `like`, because upstream is one process.
    async fn count_ours(
        &mut self,
        situation: &'static str,
        like: &str,
        window: Duration,
        act: impl AsyncFn(&Half) -> (),
    ) {
        let (_, first) = self.ours.calls_from(0);
        let end = Instant::now() + window;
        act(&self.ours).await;
        sleep_until(end.max(Instant::now() + seconds(2))).await;
        let known = self.rows.iter().find(|row| row.situation == like).unwrap();
        let upstream = known.upstream.clone();
        self.take(situation, upstream, first);
    }

    /// Patches the first Node on both sides, and counts the calls that follow.
    async fn count_edit(&mut self, situation: &'static str, patch: Value) {
        self.count(situation, seconds(8), async |half| {
            half.edit_node(&node(1), patch.clone()).await;
        })
        .await;
    }
}

/// All situations of a cloud.
pub async fn of(cloud: &'static str) -> Vec<Row> {
    let (upstream, ours) = tokio::join!(
        Half::start(Who::Upstream, cloud),
        Half::start(Who::Ours, cloud)
    );
    let mut pair = Pair {
        upstream,
        ours,
        rows: Vec::new(),
    };
    nodes_and_services(&mut pair).await;
    changes_of_nodes(&mut pair).await;
    restarts(&mut pair).await;
    failures(&mut pair).await;
    ends(&mut pair).await;
    idle(&mut pair).await;
    pair.rows
}

async fn nodes_and_services(pair: &mut Pair) {
    // A pass over routes may be up to ten seconds away.
    pair.count("three Nodes join", seconds(20), async |half| {
        for number in 1..=3 {
            half.register(number).await;
        }
        for number in 1..=3 {
            half.initialised(number).await;
        }
    })
    .await;
    pair.count("a Service is made", seconds(10), async |half| {
        half.serve("one").await;
        half.served("one").await;
    })
    .await;
    pair.count("a second Service is made", seconds(8), async |half| {
        half.serve("two").await;
        half.served("two").await;
    })
    .await;
    pair.count(
        "a Node joins under two Services",
        seconds(20),
        async |half| {
            half.register(4).await;
            half.initialised(4).await;
        },
    )
    .await;
    pair.count(
        "an annotation of a Service changes",
        seconds(10),
        async |half| {
            half.annotate("one", "yes").await;
        },
    )
    .await;
}

async fn changes_of_nodes(pair: &mut Pair) {
    // A cordon as kubectl and Kubernetes' node lifecycle controller write it.
    let taint = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
    let cordon = json!({"spec": {"unschedulable": true, "taints": taint}});
    pair.count_edit("cordon", cordon).await;
    let uncordon = json!({"spec": {"unschedulable": null, "taints": null}});
    pair.count_edit("uncordon", uncordon).await;
    let label = json!({"metadata": {"labels": {"example.com/pool": "blue"}}});
    pair.count_edit("a label of a Node changes", label).await;
    pair.count(
        "a Node is not ready for ten seconds",
        seconds(20),
        async |half| {
            half.ready(1, "Unknown").await;
            let taint = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]);
            half.edit_node(&node(1), json!({"spec": {"taints": taint}}))
                .await;
            sleep(seconds(10)).await;
            half.ready(1, "True").await;
            half.edit_node(&node(1), json!({"spec": {"taints": null}}))
                .await;
        },
    )
    .await;
    pair.count("power off for 20 s", seconds(20), async |half| {
        half.edit(&["instance-stop", "node-4"]);
        half.ready(4, "Unknown").await;
        half.is_shut_down(4, true).await;
    })
    .await;
    pair.count("power on", seconds(20), async |half| {
        half.edit(&["instance-start", "node-4"]);
        half.ready(4, "True").await;
        half.is_shut_down(4, false).await;
    })
    .await;
}

async fn restarts(pair: &mut Pair) {
    const BOTH: &str = "restart of both";
    pair.count(BOTH, seconds(20), async |half| {
        half.restart(Restart::Both).await;
    })
    .await;
    pair.count_ours("restart of the ccm", BOTH, seconds(20), async |half| {
        half.restart(Restart::Ccm).await;
    })
    .await;
    pair.count_ours("restart of the provider", BOTH, seconds(20), async |half| {
        half.restart(Restart::Provider).await;
    })
    .await;
}

/// A port changes while the cloud refuses everything.
async fn failures(pair: &mut Pair) {
    let failures = [
        ("429 for half a minute", "throttled", 8429),
        ("422 for half a minute", "invalid", 8422),
        ("503 for half a minute", "unavailable", 8503),
        ("401 for half a minute", "credentials", 8401),
    ];
    for (situation, fail, port) in failures {
        pair.count(situation, OUTAGE + seconds(10), async |half| {
            let (_, first) = half.calls_from(0);
            half.edit(&["cloud-fail", fail]);
            half.listen("one", port).await;
            sleep(OUTAGE).await;
            half.edit(&["cloud-fail", ""]);
            if fail == "invalid" {
                // An INVALID Service waits until somebody corrects it.
                half.listen("one", port + 1).await;
            }
            half.written_since(first).await;
        })
        .await;
    }
}

async fn ends(pair: &mut Pair) {
    pair.count("kill -9 during a create", seconds(20), async |half| {
        let (_, first) = half.calls_from(0);
        // The cloud has created it, but the caller has no answer.
        half.edit(&["cloud-late", "30000"]);
        half.serve("three").await;
        half.written_since(first).await;
        half.edit(&["cloud-late", "0"]);
        half.kill_cloud();
        half.served("three").await;
    })
    .await;
    pair.count(
        "an instance is gone, until its Node is deleted",
        seconds(30),
        async |half| {
            half.edit(&["instance-remove", "node-4"]);
            half.ready(4, "Unknown").await;
            half.is_gone(4).await;
        },
    )
    .await;
    pair.count("a Service is deleted", seconds(10), async |half| {
        half.delete_service("three").await;
        half.unserved("three").await;
    })
    .await;
    pair.count("a Service becomes ClusterIP", seconds(10), async |half| {
        half.edit_service("two", json!({"spec": {"type": "ClusterIP"}}))
            .await;
        half.unserved("two").await;
    })
    .await;
}

/// Three Nodes and a Service, and nothing happens.
async fn idle(pair: &mut Pair) {
    for half in [&pair.upstream, &pair.ours] {
        half.set_periods(Periods::DEFAULT.divided_by(IDLE_PACE));
    }
    tokio::join!(
        pair.upstream.restart(Restart::Both),
        pair.ours.restart(Restart::Both)
    );
    // The calls of this start do not count: the situations of a restart counted such calls.
    sleep(seconds(20)).await;
    pair.count("an idle hour", IDLE, async |_| ()).await;
}
