//! The whole loop, with a session of a provider in memory.

mod faults;

use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Metrics, run};
use crate::node::testing::{Cloud, FakeApi};
use crate::provider::testing::{InMemory, Running, maintained};
use crate::run::{Hint, LoopContext};

fn node(i: usize, ready: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(format!("n{i:04}"));
    node.metadata.creation_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    node.spec.get_or_insert_default().provider_id = Some(format!("mock://n{i:04}"));
    let condition = NodeCondition {
        type_: "Ready".to_owned(),
        status: ready.to_owned(),
        ..NodeCondition::default()
    };
    node.status.get_or_insert_default().conditions = Some(vec![condition]);
    node
}

struct Looping {
    api: FakeApi,
    cloud: Cloud,
    process: InMemory,
    provider: Running,
    context: LoopContext,
    metrics: Metrics,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Looping {
    async fn start(nodes: usize) -> Self {
        Self::start_offering(nodes, |_| {}).await.0
    }

    async fn start_offering(
        nodes: usize,
        offer: impl FnOnce(&mut api::InstanceCapability),
    ) -> (Self, Cloud) {
        let (api, cloud) = (FakeApi::default(), Cloud::new());
        offer(&mut cloud.state().offered);
        for i in 0..nodes {
            api.put(&node(i, "True"));
        }
        let process = InMemory::running(cloud.service());
        let provider = maintained(process.clone());
        provider.lead();
        provider
            .until(
                "a session",
                crate::provider::ProviderStatus::may_delete_nodes,
            )
            .await;
        let context = api.context(provider.status.clone());
        let stop = context.stop.clone();
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(run(context.clone(), metrics.clone()));
        let this = Self {
            api,
            cloud: cloud.clone(),
            process,
            provider,
            context,
            metrics,
            stop,
            tasks,
        };
        (this, cloud)
    }

    /// Leads no more, and leads again.
    async fn again(&mut self) {
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
        self.context.stop = CancellationToken::new();
        self.stop = self.context.stop.clone();
        self.tasks
            .spawn(run(self.context.clone(), self.metrics.clone()));
    }

    fn down(&self, nodes: impl IntoIterator<Item = usize>, state: api::InstanceState) {
        for i in nodes {
            self.cloud.state().states.insert(format!("n{i:04}"), state);
            self.api.edit(&format!("n{i:04}"), |old| {
                old.status = node(i, "Unknown").status;
            });
        }
    }

    fn left(&self) -> usize {
        self.api.count()
    }

    async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) -> Duration {
        let start = Instant::now();
        while !wanted(self) {
            assert!(
                start.elapsed() < Duration::from_hours(1),
                "never came: {what}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        start.elapsed()
    }

    fn lookups(&self) -> usize {
        self.cloud.state().lookups.len()
    }
}

#[tokio::test(start_paused = true)]
async fn b_l1_without_a_node_that_is_not_ready_nobody_is_asked() {
    let looping = Looping::start(20).await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(looping.lookups(), 0);
}

#[tokio::test(start_paused = true)]
async fn b_l2_a_node_whose_instance_is_gone_goes_after_two_passes() {
    let looping = Looping::start(20).await;
    looping.down([3], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 19).await;
    assert!(took <= Duration::from_secs(11), "{took:?}");
    assert_eq!(looping.lookups(), 2);
    assert_eq!(looping.api.writes(), ["DELETE n0003"]);
}

#[tokio::test(start_paused = true)]
async fn l6_the_listing_vetoes_and_degraded_deletes_nothing() {
    let looping = Looping::start(20).await;
    looping.cloud.state().listed.push("mock://n0003".to_owned());
    looping.down([3], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(looping.left(), 20);
    looping.cloud.state().probe = api::ProbeState::Degraded;
    looping
        .provider
        .until("degraded", |status| !status.may_delete_nodes())
        .await;
    looping.cloud.state().listed.clear();
    let calls = looping.lookups();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(looping.left(), 20);
    assert!(looping.lookups() > calls);
    looping.cloud.state().probe = api::ProbeState::Ready;
    looping.until("deleted", |this| this.left() == 19).await;
}

#[tokio::test(start_paused = true)]
async fn l6_a_mass_absence_is_held_and_said() {
    let looping = Looping::start(100).await;
    looping.down(0..40, api::InstanceState::Absent);
    let took = looping
        .until("the first go", |this| this.left() < 100)
        .await;
    assert!(
        took > Duration::from_mins(15) && took < Duration::from_mins(16),
        "{took:?}"
    );
    let held = looping.metrics.status_lines();
    assert!(
        held.len() == 1 && held[0].contains("holds back"),
        "{held:?}"
    );
    let events = looping.context.writes.events.recorded();
    assert!(
        events
            .iter()
            .any(|event| event.contains("NodeDeletionHeld")),
        "{events:?}"
    );
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(looping.left(), 90);
    // The rest turns out to be there after all.
    looping.cloud.state().states.clear();
    looping
        .until("let go", |this| this.metrics.status_lines().is_empty())
        .await;
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(looping.left(), 90);
}

#[tokio::test(start_paused = true)]
async fn l6_the_brake_outlives_the_loop() {
    let mut looping = Looping::start(100).await;
    // The first window of a process knows the floor alone.
    tokio::time::sleep(Duration::from_mins(11)).await;
    looping.down(0..10, api::InstanceState::Absent);
    looping.until("a tenth", |this| this.left() == 90).await;
    // Each start of the loop finds another tenth.
    for round in 1..5 {
        looping.again().await;
        looping.down(round * 10..round * 10 + 9, api::InstanceState::Absent);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(looping.left(), 90, "round {round}");
    }
    // It still holds when the window is over: for a quarter of an hour since the last start.
    tokio::time::sleep(Duration::from_mins(13)).await;
    looping.again().await;
    let took = looping.until("the next", |this| this.left() < 90).await;
    assert!(took > Duration::from_mins(15), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn l6_a_new_process_deletes_two_at_once_and_not_the_share() {
    let looping = Looping::start(100).await;
    looping.down(0..2, api::InstanceState::Absent);
    let took = looping.until("two", |this| this.left() == 98).await;
    assert!(took <= Duration::from_secs(11), "{took:?}");
    looping.down([2], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(9)).await;
    assert_eq!(looping.left(), 98);
}

#[tokio::test(start_paused = true)]
async fn l6_a_provider_of_another_account_deletes_nothing() {
    let looping = Looping::start(20).await;
    let all = (0..20).map(|i| (format!("n{i:04}"), api::InstanceState::Absent));
    looping.cloud.state().states = all.collect();
    looping.down([1], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(40)).await;
    assert_eq!(looping.left(), 20);
}

#[tokio::test(start_paused = true)]
async fn b_l4_a_provider_that_dies_again_and_again_deletes_nothing() {
    let looping = Looping::start(20).await;
    looping.down([1], api::InstanceState::Absent);
    let mut asked = looping.lookups();
    for _ in 0..20 {
        looping.until("asked", |this| this.lookups() > asked).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        asked = looping.lookups();
        looping.process.start(looping.cloud.service());
        looping
            .provider
            .until("gone", |status| status.working().is_none())
            .await;
        looping
            .provider
            .until("back", crate::provider::ProviderStatus::may_delete_nodes)
            .await;
        assert_eq!(looping.left(), 20, "one answer of each session");
    }
    looping.until("deleted", |this| this.left() == 19).await;
}

#[tokio::test(start_paused = true)]
async fn m9_a_provider_that_is_back_is_asked_at_once() {
    let looping = Looping::start(20).await;
    looping.down([3], api::InstanceState::Running);
    for state in [api::ProbeState::Broken, api::ProbeState::Starting] {
        looping.cloud.state().probe = state;
        looping
            .provider
            .until("paused", |status| status.working().is_none())
            .await;
        // A pass comes to nothing.
        tokio::time::sleep(Duration::from_secs(6)).await;
        let calls = looping.lookups();
        looping.cloud.state().probe = api::ProbeState::Ready;
        looping
            .provider
            .until("back", |status| status.working().is_some())
            .await;
        let took = looping.until("asked", |this| this.lookups() > calls).await;
        assert!(took <= Duration::from_millis(100), "{took:?}");
    }
    // Another process, too.
    let calls = looping.lookups();
    looping.process.start(looping.cloud.service());
    looping
        .provider
        .until("gone", |status| status.working().is_none())
        .await;
    looping
        .provider
        .until("back", crate::provider::ProviderStatus::may_delete_nodes)
        .await;
    let took = looping.until("asked", |this| this.lookups() > calls).await;
    assert!(took <= Duration::from_millis(100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn l7_a_hint_is_followed_at_once_and_many_are_one() {
    let looping = Looping::start(20).await;
    looping.down([3], api::InstanceState::Running);
    let calls = looping.lookups();
    looping.until("asked", |this| this.lookups() > calls).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let calls = looping.lookups();
    for _ in 0..10 {
        let _ = looping.context.hints.send(Hint::Instance {
            provider_id: "mock://n0003".to_owned(),
            node_name: String::new(),
        });
    }
    let took = looping.until("asked", |this| this.lookups() > calls).await;
    assert!(took <= Duration::from_millis(300), "{took:?}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(looping.lookups(), calls + 1);
    looping.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn b_l3_l5_stopped_nodes_are_tainted_all_in_one_pass() {
    let looping = Looping::start(300).await;
    looping.down(0..250, api::InstanceState::Stopped);
    let tainted = |this: &Looping| {
        let nodes = this.api.nodes();
        let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone());
        nodes
            .iter()
            .filter(|node| taints(node).is_some_and(|taints| !taints.is_empty()))
            .count()
    };
    let took = looping.until("tainted", |this| tainted(this) == 250).await;
    assert!(took < Duration::from_secs(7), "{took:?}");
    for i in 0..250 {
        looping.api.edit(&format!("n{i:04}"), |old| {
            old.status = node(i, "True").status;
        });
    }
    looping.until("untainted", |this| tainted(this) == 0).await;
    assert_eq!(looping.left(), 300);
}

#[tokio::test(start_paused = true)]
async fn b_l3_a_node_that_is_ready_again_loses_the_taint_while_the_provider_is_away() {
    let looping = Looping::start(20).await;
    looping.down([3], api::InstanceState::Stopped);
    let tainted = |this: &Looping| {
        let spec = this.api.node("n0003").unwrap().spec.unwrap();
        spec.taints.is_some_and(|taints| !taints.is_empty())
    };
    looping.until("tainted", tainted).await;
    looping.process.kill();
    looping
        .provider
        .until("gone", |status| status.info.is_none())
        .await;
    looping.api.edit("n0003", |old| {
        old.status = node(3, "True").status;
    });
    let took = looping.until("untainted", |this| !tainted(this)).await;
    assert!(took <= PERIOD + SOON, "{took:?}");
}

const PERIOD: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn m10_a_node_whose_lookup_hangs_keeps_no_other_waiting() {
    let looping = Looping::start(200).await;
    looping.cloud.state().hang.insert("n0005".to_owned());
    looping.down([5], api::InstanceState::Running);
    looping.down([3], api::InstanceState::Absent);
    looping.down(10..150, api::InstanceState::Running);
    // Nobody knows yet which one it is: two short waits, and two passes.
    let took = looping.until("deleted", |this| this.left() == 199).await;
    assert!(took <= 7 * PERIOD, "{took:?}");
    // Now it is known.
    tokio::time::sleep(Duration::from_mins(1)).await;
    for next in [4, 7] {
        looping.down([next], api::InstanceState::Absent);
        let left = looping.left();
        let took = looping.until("next", |this| this.left() < left).await;
        assert!(took <= 3 * PERIOD + SOON, "{took:?}");
        tokio::time::sleep(Duration::from_mins(11)).await;
    }
    // It is asked about alone, and as seldom as it takes to wait for its deadline.
    let lookups = looping.cloud.state().lookups.clone();
    let last = &lookups[lookups.len() - 100..];
    assert!(
        last.iter()
            .all(|names| names.len() == 1 || !names.iter().any(|name| name == "n0005")),
        "{last:?}"
    );
    // It answers again, and is treated as all others.
    looping.cloud.state().hang.clear();
    looping.down([5], api::InstanceState::Absent);
    looping.until("it too", |this| this.left() == 196).await;
}

#[tokio::test(start_paused = true)]
async fn m10_many_nodes_whose_lookups_hang_keep_no_other_waiting() {
    let looping = Looping::start(200).await;
    // A zone whose API hangs, spread over all batches.
    let zone = (0..100).filter(|i| i % 3 == 0);
    let hang = zone.map(|i| format!("n{i:04}"));
    looping.cloud.state().hang.extend(hang);
    looping.down(0..100, api::InstanceState::Running);
    looping.down([50], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 199).await;
    assert!(took <= Duration::from_mins(4), "{took:?}");
    tokio::time::sleep(Duration::from_mins(5)).await;
    looping.down([52], api::InstanceState::Absent);
    let took = looping.until("next", |this| this.left() == 198).await;
    assert!(took <= 3 * PERIOD + SOON, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn m10_a_slow_answer_about_one_node_counts_and_holds_nobody_up() {
    let looping = Looping::start(20).await;
    let slow = ("n0003".to_owned(), Duration::from_secs(30));
    looping.cloud.state().slow.insert(slow.0, slow.1);
    looping.down([3], api::InstanceState::Absent);
    looping.down([5], api::InstanceState::Absent);
    let gone = |name: &'static str| move |this: &Looping| this.api.node(name).is_none();
    let took = looping.until("the other", gone("n0005")).await;
    assert!(took <= 6 * PERIOD, "{took:?}");
    let took = looping.until("the slow one", gone("n0003")).await;
    assert!(took <= Duration::from_mins(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn m10_a_provider_that_is_slow_is_waited_for() {
    for seconds in [9, 12, 30, 50] {
        let looping = Looping::start(300).await;
        looping.cloud.state().delay = Duration::from_secs(seconds);
        looping.down(1..280, api::InstanceState::Running);
        looping.down([0], api::InstanceState::Absent);
        let what = format!("deleted at {seconds} s a call");
        let took = looping.until(&what, |this| this.left() == 299).await;
        assert!(took <= Duration::from_mins(5), "{seconds} s: {took:?}");
        // It is asked in full batches.
        let lookups = looping.cloud.state().lookups.clone();
        let before = lookups.len();
        tokio::time::sleep(Duration::from_mins(10)).await;
        let lookups = looping.cloud.state().lookups.split_off(before);
        assert!(
            lookups.iter().all(|names| names.len() > 50),
            "{seconds} s: {:?}",
            lookups.iter().map(Vec::len).collect::<Vec<_>>()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn m10_one_call_at_a_time_is_enough() {
    let (looping, cloud) = Looping::start_offering(40, |offered| {
        offered.max_in_flight = Some(1);
        offered.max_batch = Some(10);
    })
    .await;
    cloud.state().hang.insert("n0005".to_owned());
    looping.down(5..25, api::InstanceState::Running);
    looping.down([3], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 39).await;
    assert!(took <= Duration::from_mins(2), "{took:?}");
    tokio::time::sleep(Duration::from_mins(11)).await;
    looping.down([4], api::InstanceState::Absent);
    let took = looping.until("next", |this| this.left() == 38).await;
    assert!(took <= 4 * PERIOD, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn l6_who_shares_a_provider_id_is_told_and_stays() {
    let looping = Looping::start(20).await;
    looping.api.edit("n0004", |node| {
        let spec = node.spec.get_or_insert_default();
        spec.provider_id = Some("mock://n0003".to_owned());
    });
    looping.down([3], api::InstanceState::Absent);
    // Whoever runs under the name of the other one does not report either.
    looping
        .cloud
        .state()
        .states
        .insert("n0004".to_owned(), api::InstanceState::Absent);
    looping.api.edit("n0004", |node| {
        node.status.get_or_insert_default().conditions = None;
    });
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(looping.left(), 20);
    let events = looping.context.writes.events.recorded();
    assert_eq!(events.len(), 2, "{events:?}");
    for (event, other) in events.iter().zip(["Node n0004", "Node n0003"]) {
        assert!(event.contains("NodeDeletionHeld"), "{event}");
        assert!(event.contains("instance mock://n0003 is gone"), "{event}");
        assert!(event.contains(other), "{event}");
    }
    // A person decides.
    looping.api.delete("n0003");
    looping.until("deleted", |this| this.left() == 18).await;
}
