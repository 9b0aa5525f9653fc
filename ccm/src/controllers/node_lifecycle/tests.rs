//! The whole loop, with a session of a provider in memory.

mod faults;

use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Hinted, Memory, Metrics, run};
use crate::controller::LoopContext;
use crate::controllers::node::testing::{Cloud, FakeApi};
use crate::provider::Hint;
use crate::provider::testing::{InMemory, Running, maintained};

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
    memory: Arc<Memory>,
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
        let memory = Arc::<Memory>::default();
        tasks.spawn(run(context.clone(), Arc::clone(&memory), metrics.clone()));
        let this = Self {
            api,
            cloud: cloud.clone(),
            process,
            provider,
            context,
            memory,
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
        self.run();
    }

    fn run(&mut self) {
        let memory = Arc::clone(&self.memory);
        self.tasks
            .spawn(run(self.context.clone(), memory, self.metrics.clone()));
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
    let lookups = looping.cloud.state().lookups.clone();
    // A Ready Node vouches for the first answer, and another one for the second.
    assert_eq!(lookups.len(), 3, "{lookups:?}");
    assert_eq!(lookups[2].len(), 2, "{lookups:?}");
    assert_ne!(lookups[1][0], lookups[2][0], "{lookups:?}");
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
/// Of a lookup.
const DEADLINE: Duration = Duration::from_mins(1);

#[tokio::test(start_paused = true)]
async fn m10_a_node_whose_lookup_hangs_keeps_no_other_waiting() {
    let looping = Looping::start(200).await;
    looping.cloud.state().hang.insert("n0005".to_owned());
    looping.down([5], api::InstanceState::Running);
    looping.down([3], api::InstanceState::Absent);
    looping.down(10..150, api::InstanceState::Running);
    // Nobody knows yet which one it is: the others wait for two deadlines at most, and two passes.
    let took = looping.until("deleted", |this| this.left() == 199).await;
    assert!(took <= 2 * DEADLINE + 2 * PERIOD + SOON, "{took:?}");
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
    let last = &lookups[lookups.len() - 20..];
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
    assert!(took <= Duration::from_mins(7), "{took:?}");
    tokio::time::sleep(Duration::from_mins(5)).await;
    looping.down([52], api::InstanceState::Absent);
    // It was not Ready for so long that it is asked about every half minute.
    let took = looping.until("next", |this| this.left() == 198).await;
    assert!(took <= 8 * PERIOD, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn m10_a_slow_answer_about_one_node_counts_and_holds_nobody_up() {
    let looping = Looping::start(20).await;
    let slow = ("n0003".to_owned(), Duration::from_secs(30));
    looping.cloud.state().slow.insert(slow.0, slow.1);
    looping.down([3], api::InstanceState::Absent);
    looping.down([5], api::InstanceState::Absent);
    let gone = |name: &'static str| move |this: &Looping| this.api.node(name).is_none();
    // Both are asked about in one call.
    let took = looping.until("the other", gone("n0005")).await;
    assert!(took <= Duration::from_mins(1) + 2 * PERIOD, "{took:?}");
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
    assert!(took <= 6 * PERIOD, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn l6_where_no_node_is_ready_a_slow_answer_vouches_too() {
    let (looping, cloud) = Looping::start_offering(5, |offered| {
        offered.max_in_flight = Some(1);
        offered.max_batch = Some(1);
    })
    .await;
    cloud.state().delay = Duration::from_secs(20);
    looping.down(1..5, api::InstanceState::Running);
    looping.down([0], api::InstanceState::Absent);
    // It is asked about first, and while it is answered for no other Node was.
    let took = looping.until("deleted", |this| this.left() == 4).await;
    assert!(took <= Duration::from_mins(20), "{took:?}");
    assert!(looping.api.node("n0000").is_none());
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

/// A1: so many are down, all but one of them with an instance, and a call takes so long for each Node.
async fn goes_in_time(down: usize, per_node: Duration, batch: u32) {
    let offer = |offered: &mut api::InstanceCapability| {
        offered.max_batch = Some(batch);
        offered.max_in_flight = Some(8);
    };
    let (looping, cloud) = Looping::start_offering(120, offer).await;
    cloud.state().per_node = per_node;
    looping.down(0..down, api::InstanceState::Running);
    looping.down([7], api::InstanceState::Absent);
    let what = format!("deleted of {down} at {per_node:?} each in batches of {batch}");
    let took = looping.until(&what, |this| this.left() == 119).await;
    assert!(took <= Duration::from_mins(5), "{took:?}");
    assert!(looping.api.node("n0007").is_none());
}

#[tokio::test(start_paused = true)]
async fn m10_a_provider_whose_latency_grows_with_the_batch_is_waited_for() {
    goes_in_time(97, Duration::from_millis(200), 100).await;
    goes_in_time(96, Duration::from_millis(400), 100).await;
}

#[tokio::test(start_paused = true)]
async fn m10_a_provider_without_batches_is_waited_for() {
    goes_in_time(96, Duration::from_millis(400), 1).await;
    goes_in_time(96, Duration::from_secs(2), 1).await;
    goes_in_time(96, Duration::from_millis(400), 48).await;
}

#[tokio::test(start_paused = true)]
async fn l6_of_two_nodes_the_one_whose_machine_is_gone_goes_at_once() {
    let looping = Looping::start(2).await;
    looping.down([1], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 1).await;
    assert!(took <= Duration::from_secs(11), "{took:?}");
    // The other one has nobody to vouch for the provider.
    looping.down([0], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(40)).await;
    assert_eq!(looping.left(), 1);
}

#[tokio::test(start_paused = true)]
async fn l6_of_two_nodes_the_one_goes_only_by_a_complete_list() {
    let looping = Looping::start(2).await;
    looping.cloud.state().listing_fails = true;
    looping.down([1], api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 1).await;
    let hold = Duration::from_mins(15);
    assert!(
        took >= hold && took <= hold + Duration::from_mins(1),
        "{took:?}"
    );
    let events = looping.context.writes.events.recorded();
    let said = |event: &String| event.contains("NodeDeletionHeld") && event.contains("one of two");
    assert!(events.iter().any(said), "{events:?}");

    let looping = Looping::start(2).await;
    looping.cloud.state().listed.push("mock://n0001".to_owned());
    looping.down([1], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(looping.left(), 2, "its list has it");
}

#[tokio::test(start_paused = true)]
async fn l6_where_a_witness_is_not_recognised_others_are_asked() {
    let looping = Looping::start(5).await;
    let fail = |node: &str| looping.cloud.state().poison.insert(node.to_owned());
    fail("n0000");
    fail("n0002");
    looping.down([1], api::InstanceState::Absent);
    looping.until("deleted", |this| this.left() == 4).await;
    let first = looping.cloud.state().lookups[1].clone();
    assert!(first == ["n0000"] || first == ["n0002"], "{first:?}");

    // Three are enough to say that the provider recognises nobody.
    for node in ["n0003", "n0004"] {
        fail(node);
    }
    looping.api.put(&node(5, "True"));
    looping.api.put(&node(6, "True"));
    fail("n0005");
    fail("n0006");
    looping.down([0], api::InstanceState::Absent);
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(looping.left(), 6);
}

#[tokio::test(start_paused = true)]
async fn l1_a_node_about_which_nothing_changes_is_asked_about_less_often() {
    let looping = Looping::start(20).await;
    looping.down([3, 4], api::InstanceState::Running);
    let in_the_next = async |time: Duration| {
        let before = looping.lookups();
        tokio::time::sleep(time).await;
        looping.lookups() - before
    };
    // Each period at first, as upstream.
    let minute = in_the_next(Duration::from_mins(1)).await;
    assert!((11..=12).contains(&minute), "{minute}");
    tokio::time::sleep(Duration::from_mins(9)).await;
    let hour = in_the_next(Duration::from_hours(1)).await;
    assert_eq!(hour, 120);
    // A hint: the one Node, at once.
    tokio::time::sleep(SOON).await;
    let before = looping.lookups();
    let _ = looping.context.hints.send(Hint::Instance {
        provider_id: String::new(),
        node_name: "n0004".to_owned(),
    });
    let took = looping.until("asked", |this| this.lookups() > before).await;
    assert!(took <= Duration::from_millis(200), "{took:?}");
    assert_eq!(looping.cloud.state().lookups[before], ["n0004"]);
    // Its Ready condition: with the next pass, and each period again.
    tokio::time::sleep(Duration::from_mins(5)).await;
    looping.api.edit("n0003", |old| {
        old.status = node(3, "False").status;
    });
    let before = looping.lookups();
    tokio::time::sleep(PERIOD + SOON).await;
    let lookups = looping.cloud.state().lookups.clone();
    let about = lookups[before..].iter().flatten();
    assert!(about.clone().any(|name| name == "n0003"), "{lookups:?}");
    // Gone, or shut down: half a minute later than upstream at most, and a period for the second answer.
    let state = |node: &str, state| {
        let states = &mut looping.cloud.state().states;
        states.insert(node.to_owned(), state);
    };
    tokio::time::sleep(Duration::from_mins(20)).await;
    state("n0003", api::InstanceState::Stopped);
    let tainted = |this: &Looping| {
        let spec = this.api.node("n0003").unwrap().spec.unwrap();
        spec.taints.is_some_and(|taints| !taints.is_empty())
    };
    let took = looping.until("tainted", tainted).await;
    assert!(took <= 6 * PERIOD + SOON, "{took:?}");
    state("n0004", api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 19).await;
    assert!(took <= 7 * PERIOD + SOON, "{took:?}");
}

/// What a cloud without batches is asked, and what a controller would ask that asks in each period, for each Node that is not Ready, whether its instance
/// exists and then whether it runs (upstream's does).
#[tokio::test(start_paused = true)]
async fn l1_calls_by_situation() {
    use api::InstanceState::{Absent, Running, Stopped};
    struct Situation {
        what: &'static str,
        down: usize,
        state: api::InstanceState,
        lasts: Duration,
        upstream: usize,
        ours: usize,
    }
    let each = |down: usize, lasts: Duration| {
        let periods = lasts.as_secs() / PERIOD.as_secs();
        2 * down * usize::try_from(periods).unwrap()
    };
    let (ten, hour) = (Duration::from_secs(10), Duration::from_hours(1));
    let minute = Duration::from_mins(1);
    let situations = [
        Situation {
            what: "nothing happens for an hour",
            down: 0,
            state: Running,
            lasts: hour,
            upstream: 0,
            ours: 0,
        },
        Situation {
            what: "a Node is not Ready for ten seconds",
            down: 1,
            state: Running,
            lasts: ten,
            upstream: each(1, ten),
            ours: each(1, ten),
        },
        Situation {
            what: "three Nodes are not Ready for a minute",
            down: 3,
            state: Running,
            lasts: minute,
            upstream: each(3, minute),
            ours: each(3, minute),
        },
        Situation {
            what: "a Node is not Ready for an hour",
            down: 1,
            state: Running,
            lasts: hour,
            upstream: each(1, hour),
            ours: 290,
        },
        Situation {
            what: "a machine is shut down for ten seconds: the taint",
            down: 1,
            state: Stopped,
            lasts: ten,
            upstream: each(1, ten),
            ours: each(1, ten),
        },
        // ▲L6: two answers, and a Ready Node vouches for the provider with each of them.
        Situation {
            what: "an instance is gone: the Node is deleted",
            down: 1,
            state: Absent,
            lasts: minute,
            upstream: 1,
            ours: 4,
        },
        Situation {
            what: "two instances are gone: the Nodes are deleted",
            down: 2,
            state: Absent,
            lasts: minute,
            upstream: 2,
            ours: 8,
        },
        // ▲L6: the brake holds; upstream deletes them all at once.
        Situation {
            what: "ten instances of twenty are gone, for ten minutes",
            down: 10,
            state: Absent,
            lasts: minute * 10,
            upstream: 10,
            ours: 160,
        },
    ];
    for situation in situations {
        let looping = Looping::start(20).await;
        // Just after a pass.
        tokio::time::sleep(Duration::from_millis(10)).await;
        looping.down(0..situation.down, situation.state);
        tokio::time::sleep(situation.lasts + SOON).await;
        let reads = looping.cloud.state().reads;
        let (what, upstream) = (situation.what, situation.upstream);
        println!("{what}: {reads}, upstream {upstream}");
        assert!(reads <= situation.ours, "{what}: {reads}");
        let safety = situation.state == Absent;
        assert!(safety || reads <= upstream, "{what}: {reads}");
        assert!(situation.down == 0 || reads > 0, "{}", situation.what);
    }
}

/// A provider that is not READY may send hints all the same.
#[test]
fn l7_hints_that_no_pass_takes_are_kept_up_to_a_bound() {
    let mut hinted = Hinted::default();
    for number in 0..=Hinted::MOST {
        hinted.add(Hint::Instance {
            provider_id: format!("mock://{number}"),
            node_name: String::new(),
        });
        assert!(hinted.some.len() <= Hinted::MOST);
    }
    assert!(hinted.all, "any of them may be meant");
}
