//! Runs the whole loop with a session of a provider in memory.

mod calls;
mod faults;
mod guards;
mod slow;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Memory, Metrics, run};
use crate::controller::LoopContext;
use crate::controllers::node::testing::{Cloud, CloudState, FakeApi};
use crate::provider::testing::{InMemory, Running, maintained_probed};
use crate::provider::{Hint, PROBE_PERIOD};

const PERIOD: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(1);
/// The deadline of a lookup.
const DEADLINE: Duration = Duration::from_mins(1);

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
        Self::start_probed(nodes, PROBE_PERIOD, offer).await
    }

    async fn start_probed(
        nodes: usize,
        probe_period: Duration,
        offer: impl FnOnce(&mut api::InstanceCapability),
    ) -> (Self, Cloud) {
        Self::start_with(nodes, probe_period, |cloud| offer(&mut cloud.offered)).await
    }

    async fn start_with(
        nodes: usize,
        probe_period: Duration,
        change: impl FnOnce(&mut CloudState),
    ) -> (Self, Cloud) {
        let (api, cloud) = (FakeApi::default(), Cloud::new());
        change(&mut cloud.state());
        for i in 0..nodes {
            api.put(&node(i, "True"));
        }
        let process = InMemory::running(cloud.service());
        let provider = maintained_probed(process.clone(), probe_period);
        provider.lead();
        provider
            .until("a session", crate::provider::ProviderStatus::may_delete)
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

    /// Loses the leadership and gets it again.
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
    // One Ready Node vouches for the first answer, and another one for the second.
    assert_eq!(lookups.len(), 3, "{lookups:?}");
    assert_eq!(lookups[2].len(), 2, "{lookups:?}");
    assert_ne!(lookups[1][0], lookups[2][0], "{lookups:?}");
    assert_eq!(looping.api.writes(), ["DELETE n0003"]);
}

#[tokio::test(start_paused = true)]
async fn m9_what_a_provider_was_asked_before_it_was_away_counts_for_nothing() {
    let looping = Looping::start(20).await;
    let slow = ("n0003".to_owned(), Duration::from_secs(30));
    looping.cloud.state().slow.insert(slow.0, slow.1);
    looping.down([3], api::InstanceState::Absent);
    looping.until("asked", |this| this.lookups() == 1).await;
    for_a_while(&looping, api::ProbeState::Broken).await;
    let took = looping.until("again", |this| this.lookups() == 2).await;
    assert!(
        took <= PERIOD,
        "the first answer is not waited for: {took:?}"
    );
    looping.until("deleted", |this| this.left() == 19).await;
    let lookups = looping.cloud.state().lookups.clone();
    let about = lookups.iter().flatten().filter(|name| *name == "n0003");
    assert_eq!(about.count(), 3, "two answers since: {lookups:?}");
}

/// The provider is in this state for a while, in one session.
async fn for_a_while(looping: &Looping, state: api::ProbeState) {
    for (state, ready) in [(state, false), (api::ProbeState::Ready, true)] {
        looping.cloud.state().probe = state;
        let seen = looping
            .provider
            .until("it is seen", |it| it.may_delete() == ready);
        seen.await;
    }
}

#[tokio::test(start_paused = true)]
async fn l6_an_absent_from_before_the_provider_was_broken_does_not_count() {
    let looping = Looping::start(20).await;
    looping.down([3], api::InstanceState::Absent);
    let first = looping.until("the Node and a witness", |this| this.lookups() == 2);
    first.await;
    // The second answer does not come before the provider is BROKEN.
    let slow = ("n0003".to_owned(), Duration::from_mins(1));
    looping.cloud.state().slow.insert(slow.0, slow.1);
    looping
        .until("asked again", |this| this.lookups() == 3)
        .await;
    looping.cloud.state().slow.clear();
    for_a_while(&looping, api::ProbeState::Broken).await;
    looping.until("deleted", |this| this.left() == 19).await;
    let lookups = looping.cloud.state().lookups.clone();
    let about = lookups.iter().flatten().filter(|name| *name == "n0003");
    assert_eq!(about.count(), 4, "two answers since: {lookups:?}");
}

#[tokio::test(start_paused = true)]
async fn l6_a_pass_during_which_the_provider_was_not_ready_deletes_nothing() {
    let second = Duration::from_secs(1);
    for state in [api::ProbeState::Broken, api::ProbeState::Degraded] {
        // The list comes within the pass, or after it.
        for takes in [4, 12] {
            let (looping, cloud) = Looping::start_probed(20, second, |it| it.listing = true).await;
            cloud.state().listing_takes = takes * second;
            looping.down([3], api::InstanceState::Absent);
            let listed = |this: &Looping| this.cloud.state().listings == 1;
            looping.until("a list is under way", listed).await;
            for_a_while(&looping, state).await;
            looping.until("deleted", |this| this.left() == 19).await;
            let lookups = cloud.state().lookups.clone();
            let about = lookups.iter().flatten().filter(|name| *name == "n0003");
            // Two answers since. While a list is awaited, the controller asks again.
            assert!(about.count() >= 4, "{state:?} {takes}: {lookups:?}");
            let listings = cloud.state().listings;
            assert_eq!(listings, 2, "{state:?} {takes}: a new list vetoes");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn m10_a_pass_that_panics_is_followed_by_another_which_begins_anew() {
    let mut looping = Looping::start(20).await;
    let armed = Arc::new(AtomicBool::new(false));
    let (wall, panics) = (Arc::clone(&looping.context.wall), Arc::clone(&armed));
    looping.context.wall = Arc::new(move || {
        assert!(!panics.swap(false, Ordering::Relaxed), "this pass is over");
        wall()
    });
    looping.again().await;
    looping.down([3], api::InstanceState::Absent);
    looping.until("asked", |this| this.lookups() == 2).await;
    armed.store(true, Ordering::Relaxed);
    looping
        .until("panicked", |_| !armed.load(Ordering::Relaxed))
        .await;
    let before = looping.lookups();
    let took = looping.until("deleted", |this| this.left() == 19).await;
    assert!(took <= 4 * PERIOD, "{took:?}");
    let lookups = looping.cloud.state().lookups.split_off(before);
    let about = lookups.iter().flatten().filter(|name| *name == "n0003");
    assert_eq!(about.count(), 2, "two new answers: {lookups:?}");
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
            .until("back", crate::provider::ProviderStatus::may_delete)
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
        // A period passes meanwhile.
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
    // The same after a new provider process.
    let calls = looping.lookups();
    looping.process.start(looping.cloud.service());
    looping
        .provider
        .until("gone", |status| status.working().is_none())
        .await;
    looping
        .provider
        .until("back", crate::provider::ProviderStatus::may_delete)
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
    // A hint soon after a pass waits: at least a second lies between the starts of two passes.
    looping
        .until("asked", |this| this.lookups() > calls + 1)
        .await;
    let _ = looping.context.hints.send(Hint::Resync);
    looping
        .until("again", |this| this.lookups() > calls + 2)
        .await;
    let times = looping.cloud.state().times.clone();
    let gap = times[times.len() - 1] - times[times.len() - 2];
    assert!((SOON..2 * SOON).contains(&gap), "{gap:?}");
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
