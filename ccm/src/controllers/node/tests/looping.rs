//! The whole loop with a session of a provider in memory.

mod faults;
mod hints;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::testing::{Cloud, FakeApi, Instead, Zones};
use super::super::{Metrics, plan, run};
use super::fresh;
use crate::controller::LoopContext;
use crate::provider::Hint;
use crate::provider::testing::{InMemory, Running, maintained};

struct Looping {
    api: FakeApi,
    cloud: Cloud,
    process: InMemory,
    provider: Running,
    context: LoopContext,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Looping {
    async fn start(nodes: usize) -> Self {
        Self::start_with(nodes, |_| {}).await
    }

    async fn start_with(nodes: usize, change: impl FnOnce(&mut LoopContext)) -> Self {
        Self::start_on(Cloud::new(), nodes, change).await
    }

    async fn start_on(cloud: Cloud, nodes: usize, change: impl FnOnce(&mut LoopContext)) -> Self {
        let api = FakeApi::default();
        for i in 0..nodes {
            api.put(&fresh(&format!("n{i:04}")));
        }
        let process = InMemory::running(cloud.service());
        let provider = maintained(process.clone());
        provider.lead();
        provider
            .until("a session", |status| {
                status.working().is_some() && status.scope_accepted
            })
            .await;
        let mut context = api.context(provider.status.clone());
        change(&mut context);
        let stop = context.stop.clone();
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(run(context.clone(), metrics));
        Self {
            api,
            cloud,
            process,
            provider,
            context,
            stop,
            tasks,
        }
    }

    /// Waits until the condition holds, for at most ten minutes of tokio's time. Returns how long
    /// it took.
    async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) -> Duration {
        self.until_at_most(what, Duration::from_mins(10), wanted)
            .await
    }

    async fn until_at_most(
        &self,
        what: &str,
        longest: Duration,
        wanted: impl Fn(&Self) -> bool,
    ) -> Duration {
        let start = Instant::now();
        while !wanted(self) {
            assert!(start.elapsed() < longest, "never came: {what}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        start.elapsed()
    }

    fn uninitialized(&self) -> usize {
        let nodes = self.api.nodes();
        nodes
            .iter()
            .filter(|node| plan::is_uninitialized(node))
            .count()
    }

    /// Whether an event has all these texts.
    fn tells(&self, words: &[&str]) -> bool {
        let mut events = self.context.writes.events.recorded().into_iter();
        events.any(|event| words.iter().all(|word| event.contains(word)))
    }

    fn sizes(&self) -> Vec<usize> {
        self.cloud.state().lookups.iter().map(Vec::len).collect()
    }

    async fn stop(mut self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(Duration::from_mins(2), self.tasks.join_next()).await;
        ended.expect("the loop returns").unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_nodes_take_ten_lookups_and_two_writes_each() {
    let looping = Looping::start(1000).await;
    let took = looping
        .until("all initialised", |this| this.uninitialized() == 0)
        .await;
    assert_eq!(looping.sizes(), [100; 10]);
    assert_eq!(looping.api.writes().len(), 2000);
    assert!(took < Duration::from_secs(4), "{took:?}");
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_poison_node_keeps_only_itself_waiting() {
    let looping = Looping::start(100).await;
    looping.cloud.state().poison.insert("n0042".to_owned());
    let took = looping
        .until("all others", |this| this.uninitialized() == 1)
        .await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    // From then on that Node is looked up alone, also when a new Node joins.
    let calls = looping.sizes().len();
    looping.api.put(&fresh("n9999"));
    looping
        .until("the new one", |this| this.uninitialized() == 1)
        .await;
    looping
        .until("it was asked about again", |this| {
            this.sizes().len() > calls + 4
        })
        .await;
    let lookups = looping.cloud.state().lookups.clone();
    for names in &lookups[calls..] {
        assert!(
            names.len() == 1 || !names.iter().any(|name| name == "n0042"),
            "{names:?}"
        );
    }
    looping.cloud.state().poison.clear();
    looping
        .until("it too", |this| this.uninitialized() == 0)
        .await;
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_refused_is_asked_about_again_when_what_the_provider_reads_of_it_changes() {
    const KEY: &str = "example.com/rack";
    fn with(key: &str) -> BTreeMap<String, String> {
        [(key.to_owned(), "1".to_owned())].into()
    }
    fn another_label(node: &mut Node) {
        node.metadata.labels = Some(with("example.com/other"));
    }
    fn informed(node: &mut Node) {
        let status = node.status.get_or_insert_default();
        status.node_info.get_or_insert_default().system_uuid = "uuid".to_owned();
    }
    type Change = fn(&mut Node);
    type Row = (&'static str, api::NodeProjection, Change);
    let label = api::NodeProjection {
        label_keys: vec![KEY.to_owned()],
        ..api::NodeProjection::default()
    };
    let annotation = api::NodeProjection {
        annotation_keys: vec![KEY.to_owned()],
        ..api::NodeProjection::default()
    };
    let info = api::NodeProjection {
        field_groups: vec![api::NodeFieldGroup::NodeInfo.into()],
        ..api::NodeProjection::default()
    };
    let rows: [Row; 3] = [
        ("a label", label, |node| {
            node.metadata.labels = Some(with(KEY));
        }),
        ("an annotation", annotation, |node| {
            node.metadata.annotations = Some(with(KEY));
        }),
        ("the node info", info, informed),
    ];
    for answer in ["INVALID", "UNMANAGED"] {
        for (what, reads, change) in &rows {
            let cloud = Cloud::new();
            if answer == "UNMANAGED" {
                let state = ("n0000".to_owned(), api::InstanceState::Unmanaged);
                cloud.state().states.extend([state]);
            } else {
                let invalid = Instead::Failed(api::FailureCode::Invalid.into());
                let answers = ("n0000".to_owned(), [invalid; 2].into());
                cloud.state().instead.extend([answers]);
            }
            cloud.state().projection = reads.clone();
            let looping = Looping::start_on(cloud, 1, |_| {}).await;
            looping.until("asked", |this| this.sizes().len() == 1).await;
            let others = rows.iter().filter(|row| row.0 != *what);
            let others = others.map(|(other, _, change)| (*other, *change));
            for (other, change) in others.chain([("another label", another_label as Change)]) {
                looping.api.edit("n0000", change);
                tokio::time::sleep(Duration::from_mins(5)).await;
                let asked = looping.sizes().len();
                assert_eq!(asked, 1, "{answer}: it reads {what}, and not {other}");
            }
            looping.api.edit("n0000", change);
            let took = looping
                .until(&format!("asked again after {answer} and {what}"), |this| {
                    this.sizes().len() == 2
                })
                .await;
            assert!(took < Duration::from_secs(2), "{answer}, {what}: {took:?}");
            looping.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn m10_a_node_whose_zone_hangs_keeps_only_itself_waiting() {
    let cloud = Cloud::new();
    let zones = Zones {
        hang: ["n0042".to_owned()].into(),
        reported: (0..50)
            .map(|i| format!("n{i:04}"))
            .filter(|n| n != "n0042")
            .collect(),
        ..Zones::default()
    };
    cloud.state().zones = Some(zones);
    let looping = Looping::start_on(cloud, 100, |_| {}).await;
    // Nodes whose instances have a zone do not wait for the other Nodes.
    let took = looping
        .until("those with a zone", |this| this.uninitialized() <= 51)
        .await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    let took = looping
        .until("all others", |this| this.uninitialized() == 1)
        .await;
    assert!(took < Duration::from_secs(125), "{took:?}");
    looping
        .until("asked about alone", |this| {
            let state = this.cloud.state();
            let mut calls = state.zones.as_ref().unwrap().lookups.iter();
            calls.any(|names| *names == ["n0042"])
        })
        .await;
    // n0042 and n9999 become due together, after the deadline of n0042's lookup.
    tokio::time::sleep(Duration::from_millis(60_500)).await;
    looping.api.put(&fresh("n9999"));
    looping.context.hints.send(Hint::Resync).unwrap();
    let took = looping
        .until("the new one", |this| this.uninitialized() == 1)
        .await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    let last = looping.cloud.state().lookups.split_off(1);
    assert_eq!(last, [["n9999"], ["n0042"]]);
    if let Some(zones) = &mut looping.cloud.state().zones {
        zones.hang.clear();
    }
    looping
        .until("it too", |this| this.uninitialized() == 0)
        .await;
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn m10_what_a_batch_that_panicked_left_undone_comes_again() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    let looked = Arc::new(AtomicUsize::new(0));
    let clock = Arc::clone(&looked);
    let looping = Looping::start_with(0, |context| {
        let wall = Arc::clone(&context.wall);
        // The clock panics once, while Nodes are being initialised.
        context.wall = Arc::new(move || {
            assert_ne!(clock.fetch_add(1, Ordering::SeqCst), 40, "a bug");
            wall()
        });
    })
    .await;
    for i in 0..100 {
        let mut node = fresh(&format!("n{i:04}"));
        let created = jiff::Timestamp::from_second(999_999).unwrap();
        node.metadata.creation_timestamp = Some(Time(created));
        looping.api.put(&node);
    }
    looping
        .until("all initialised", |this| this.uninitialized() == 0)
        .await;
    assert!(looked.load(Ordering::SeqCst) > 40);
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn m9_a_provider_that_was_down_is_asked_within_a_second_of_its_return() {
    let looping = Looping::start(3).await;
    looping
        .until("initialised", |this| this.uninitialized() == 0)
        .await;
    looping.process.kill();
    looping.api.put(&fresh("n1000"));
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(looping.uninitialized(), 1);
    looping.process.start(looping.cloud.service());
    // Reconnecting takes up to 5 s. After that the initialisation takes less than a second.
    looping
        .provider
        .until("a session", |status| status.working().is_some())
        .await;
    let took = looping
        .until("the new one", |this| this.uninitialized() == 0)
        .await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn b_n11_n11_addresses_are_refreshed_in_full_batches_and_written_on_a_change_only() {
    let looping = Looping::start(250).await;
    looping
        .until("initialised", |this| this.uninitialized() == 0)
        .await;
    let (writes, lookups) = (looping.api.writes().len(), looping.sizes().len());
    // Two rounds of five minutes without changes.
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert_eq!(looping.api.writes().len(), writes);
    let sizes = looping.sizes().split_off(lookups);
    assert!(sizes.len() == 6, "{sizes:?}");
    assert!(
        sizes.iter().all(|size| [100, 50].contains(size)),
        "{sizes:?}"
    );
    looping.cloud.state().network = "10.1".to_owned();
    tokio::time::sleep(Duration::from_mins(6)).await;
    let moved = looping.api.writes().split_off(writes);
    assert_eq!(moved.len(), 250);
    assert!(moved.iter().all(|write| write.ends_with("/status")));
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn n11_an_answer_with_the_id_of_another_node_changes_nothing() {
    let looping = Looping::start(4).await;
    // The cloud finds instances by the Nodes' names. So the answer for n0002 has the ID of n0003,
    // and that for n0001 has an ID that no Node has.
    let ids = [
        (1, "mock:///n0001"),
        (2, "mock://n0000"),
        (3, "mock://n0002"),
    ];
    for (i, id) in ids {
        looping.api.edit(&format!("n{i:04}"), |node| {
            node.spec.get_or_insert_default().provider_id = Some(id.to_owned());
        });
    }
    looping.api.delete("n0000");
    looping
        .until("the others", |this| this.uninitialized() == 1)
        .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let left = looping.api.node("n0002").unwrap();
    assert!(plan::is_uninitialized(&left) && left.status.is_none());
    let words = ["NodeNotInitialized n0002", "that of Node n0003"];
    assert!(looping.tells(&words));
    // The same for a Node that is initialised.
    looping.api.edit("n0002", |node| {
        node.spec.get_or_insert_default().taints = None;
    });
    looping.cloud.state().network = "10.1".to_owned();
    tokio::time::sleep(Duration::from_mins(6)).await;
    let addresses = |name: &str| {
        let status = looping.api.node(name).unwrap().status;
        status
            .and_then(|status| status.addresses)
            .map(|all| all[0].address.clone())
    };
    assert_eq!(addresses("n0001").as_deref(), Some("10.1.0.1"));
    assert_eq!(addresses("n0002"), None);
    // A Node that is being deleted keeps its ID from no other one (▲L6).
    looping.api.edit("n0003", |node| {
        node.metadata.finalizers = Some(vec!["example.com/wait".to_owned()]);
        node.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    });
    tokio::time::sleep(Duration::from_mins(6)).await;
    assert_eq!(addresses("n0002").as_deref(), Some("10.1.0.2"));
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn n15_a_node_with_neither_taint_nor_provider_id_is_left_alone() {
    let looping = Looping::start(1).await;
    looping
        .until("initialised", |this| this.uninitialized() == 0)
        .await;
    let bare = [("n7", None), ("n8", Some("mock"))];
    for (name, provider) in bare {
        let mut bare = fresh(name);
        bare.spec = None;
        bare.metadata.labels = provider
            .map(|provider| [("grpc-ccm.io/provider".to_owned(), provider.to_owned())].into());
        looping.api.put(&bare);
    }
    let (writes, lookups) = (looping.api.writes().len(), looping.sizes().len());
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert_eq!(looping.api.writes().len(), writes);
    let asked = looping.sizes().split_off(lookups);
    assert_eq!(asked, [1, 1], "the other Node is refreshed alone");
    // The operator adds the taint: then the whole Node is initialised.
    for (name, _) in bare {
        looping.api.edit(name, |node| node.spec = fresh(name).spec);
    }
    looping
        .until("initialised", |this| {
            let has_id = |name: &str| {
                let spec = this.api.node(name).and_then(|node| node.spec);
                spec.is_some_and(|spec| spec.provider_id.is_some())
            };
            this.uninitialized() == 0 && bare.iter().all(|&(name, _)| has_id(name))
        })
        .await;
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn b_n8_pending_and_absent_wait_and_a_broken_provider_is_not_asked() {
    let looping = Looping::start(0).await;
    let states = [
        ("n1", api::InstanceState::Pending),
        ("n2", api::InstanceState::Absent),
    ];
    looping.cloud.state().states = states.map(|(name, state)| (name.to_owned(), state)).into();
    for name in ["n1", "n2", "n3"] {
        looping.api.put(&fresh(name));
    }
    looping
        .until("the third", |this| this.uninitialized() == 2)
        .await;
    looping.cloud.state().states.clear();
    looping.until("all", |this| this.uninitialized() == 0).await;

    looping.cloud.state().probe = api::ProbeState::Broken;
    looping
        .provider
        .until("broken", |status| status.working().is_none())
        .await;
    let calls = looping.sizes().len();
    looping.api.put(&fresh("n4"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((looping.sizes().len(), looping.uninitialized()), (calls, 1));
    looping.cloud.state().probe = api::ProbeState::Ready;
    looping
        .until("again", |this| this.uninitialized() == 0)
        .await;
    looping.stop().await;
}

#[tokio::test(start_paused = true)]
async fn b_m3_a_loop_that_is_stopped_waits_for_no_lookup() {
    for initialised in [false, true] {
        let looping = Looping::start(0).await;
        let mut node = fresh("n1");
        if initialised {
            node.spec = None;
            node.spec.get_or_insert_default().provider_id = Some("mock://n1".to_owned());
        }
        looping.cloud.state().hang.insert("n1".to_owned());
        looping.api.put(&node);
        looping
            .until("asked", |this| !this.sizes().is_empty())
            .await;
        let start = Instant::now();
        looping.stop().await;
        assert!(
            start.elapsed() < Duration::from_millis(100),
            "{:?}",
            start.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b_m3_a_loop_that_is_stopped_finishes_what_it_writes_and_begins_nothing() {
    let looping = Looping::start(200).await;
    let (api, stop) = (looping.api.clone(), looping.stop.clone());
    api.before_next_write(move |_| stop.cancel());
    looping
        .until("written", |this| !this.api.writes().is_empty())
        .await;
    looping.stop().await;
    // The write of the addresses had begun, so the taint is removed too.
    let left = api
        .nodes()
        .iter()
        .filter(|node| plan::is_uninitialized(node))
        .count();
    assert!((100..200).contains(&left), "{left}");
    assert_eq!(api.writes().len(), 2 * (200 - left));
}

#[tokio::test(start_paused = true)]
async fn an_hour_makes_the_lookups_that_the_operator_guide_counts() {
    use crate::run::operator_guide::refreshes_an_hour;

    const HOUR: Duration = Duration::from_hours(1);
    for nodes in [10, 100, 1_000] {
        let looping = Looping::start(nodes).await;
        let period = looping.context.config.node.status_update_frequency;
        assert_eq!(period, Duration::from_mins(5));
        looping
            .until("initialised", |this| this.uninitialized() == 0)
            .await;
        // In the middle between two rounds.
        tokio::time::sleep(period + period / 2).await;
        let before = looping.sizes().len();
        tokio::time::sleep(HOUR).await;
        let made = looping.sizes().len() - before;
        assert_eq!(made as u64, refreshes_an_hour(nodes, 100, period));
        looping.stop().await;
    }
}
