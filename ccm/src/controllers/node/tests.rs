mod ids;
mod looping;

use std::sync::Arc;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{Node, Taint};
use tokio::sync::watch;

use super::testing::FakeApi;
use super::*;
use crate::provider::lookup::Lookup;
use crate::provider::{CallError, CallErrorCode, ProviderStatus};

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

fn fresh(name: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    let taint = Taint {
        key: UNINITIALIZED.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    node.spec.get_or_insert_default().taints = Some(vec![taint]);
    node
}

fn instance() -> api::Instance {
    api::Instance {
        state: api::InstanceState::Running as i32,
        provider_id: Some("mock://i-1".to_owned()),
        instance_type: Some("small".to_owned()),
        addresses: vec![api::NodeAddress {
            r#type: api::NodeAddressType::InternalIp as i32,
            address: "10.0.0.1".to_owned(),
        }],
        ..api::Instance::default()
    }
}

struct Bench {
    api: FakeApi,
    worker: Worker,
    /// Publishes the state of the provider.
    status: watch::Sender<ProviderStatus>,
}

impl Bench {
    fn new() -> Self {
        let api = FakeApi::default();
        let status = watch::Sender::new(ProviderStatus {
            probe: api::ProbeState::Ready,
            scope_accepted: true,
            ..ProviderStatus::default()
        });
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let flags = ["--provider=mock=unix:///mock.sock"];
        let worker = Worker::new(api.context_with(status.subscribe(), &flags), metrics);
        Self {
            api,
            worker,
            status,
        }
    }

    fn stored(&self, name: &str) -> Arc<Node> {
        self.worker.node(name).unwrap()
    }

    /// Settles this view of the Node with this answer. A Node with the taint comes from the queue.
    async fn settle(&self, node: Arc<Node>, answer: Result<api::Instance, CallError>) {
        let queue = &self.worker.driver.queue;
        let mut names = Vec::new();
        if plan::is_uninitialized(&node) {
            self.worker.wait_for(&node);
            queue.add(name(&node).to_owned());
            names = queue.next_batch(1, Duration::ZERO).await;
        }
        let batch = self.worker.driver.batch(names);
        let lookup = Lookup {
            item: node,
            answer,
            whole: false,
        };
        let prefixes = ["mock://".to_owned()];
        self.worker.settle(&prefixes, lookup, &batch).await;
        assert_eq!(self.worker.driver.queue.in_flight(), 0);
    }

    /// Observes and reports the waiting Nodes.
    async fn watching(&self) {
        let stop = &self.worker.driver.context.stop;
        tokio::join!(
            stop.run_until_cancelled(self.worker.sources()),
            self.worker.housekeep(),
        );
    }

    fn events(&self) -> Vec<String> {
        self.worker.driver.context.writes.events.recorded()
    }

    fn initialized(&self, name: &str) -> bool {
        let node = self.api.node(name).unwrap();
        !plan::is_uninitialized(&node) && node.spec.unwrap().provider_id.is_some()
    }
}

#[tokio::test(start_paused = true)]
async fn n7_two_writes_initialise_a_node_and_the_addresses_come_first() {
    let bench = Bench::new();
    bench.api.put(&fresh("n"));
    bench.settle(bench.stored("n"), Ok(instance())).await;
    assert_eq!(bench.api.writes(), ["PATCH n/status", "PATCH n"]);
    assert!(bench.initialized("n"));
    assert_eq!(bench.events().len(), 1, "{:?}", bench.events());
    assert_eq!(bench.worker.driver.queue.len(), 0);
    // The same answer again, as after a restart, leads to no write.
    bench.settle(bench.stored("n"), Ok(instance())).await;
    assert_eq!(bench.api.writes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn somebody_else_writes_in_between_and_nothing_of_theirs_is_lost() {
    let bench = Bench::new();
    bench.api.put(&fresh("n"));
    bench
        .settle_after(
            |api| {
                // Runs before the first write, which sets the addresses.
                api.before_next_write(|api| {
                    api.edit("n", |node| {
                        let taints = node
                            .spec
                            .get_or_insert_default()
                            .taints
                            .get_or_insert_default();
                        taints.push(Taint {
                            key: "theirs".to_owned(),
                            effect: "NoSchedule".to_owned(),
                            ..Taint::default()
                        });
                    });
                });
            },
            instance(),
        )
        .await;
    assert!(bench.initialized("n"));
    let taints = bench.api.node("n").unwrap().spec.unwrap().taints.unwrap();
    assert_eq!(taints.len(), 1);
    assert_eq!(taints[0].key, "theirs");
}

impl Bench {
    /// Settles with a stale view: the Node changed after the lookup.
    async fn settle_after(&self, change: impl FnOnce(&FakeApi), answer: api::Instance) {
        let stale = self.stored("n");
        change(&self.api);
        self.settle(stale, Ok(answer)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_made_again_under_the_same_name_gets_nothing_of_the_old_answer() {
    let bench = Bench::new();
    bench.api.put(&fresh("n"));
    bench
        .settle_after(
            |api| {
                api.delete("n");
                api.put(&fresh("n"));
            },
            instance(),
        )
        .await;
    assert!(bench.api.writes().is_empty());
    assert!(!bench.initialized("n"));
}

#[tokio::test(start_paused = true)]
async fn b_s11_a_node_that_is_gone_is_forgotten() {
    let bench = Bench::new();
    bench.api.put(&fresh("n"));
    bench.settle_after(|api| api.delete("n"), instance()).await;
    assert!(bench.events().is_empty() && bench.worker.driver.queue.len() == 0);
}

/// An initialised Node whose instance-type labels this manager wrote last.
async fn labelled_by(manager: &str) -> Bench {
    let bench = Bench::new();
    bench.api.put(&fresh("n"));
    bench.settle(bench.stored("n"), Ok(instance())).await;
    bench.api.edit("n", |node| {
        let labels = serde_json::json!({
            "f:beta.kubernetes.io/instance-type": {}, "f:node.kubernetes.io/instance-type": {},
        });
        let entry = serde_json::json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": labels}},
        });
        node.metadata.managed_fields = serde_json::from_value(serde_json::json!([entry])).unwrap();
    });
    bench
}

impl Bench {
    /// Refreshes with this instance type. Returns the Node's label after that.
    async fn refreshed(&self, instance_type: &str) -> String {
        let instance = api::Instance {
            instance_type: Some(instance_type.to_owned()),
            ..instance()
        };
        self.settle(self.stored("n"), Ok(instance)).await;
        let labels = self.api.node("n").unwrap().metadata.labels.unwrap();
        labels["node.kubernetes.io/instance-type"].clone()
    }
}

#[tokio::test(start_paused = true)]
async fn n12_a_label_of_ours_follows_the_cloud_and_one_of_theirs_stays() {
    for (manager, wanted) in [("ccm", "big"), ("kubectl-label", "small")] {
        let bench = labelled_by(manager).await;
        assert_eq!(
            bench.stored("n").metadata.managed_fields,
            None,
            "the store does not have them"
        );
        assert_eq!(bench.refreshed("big").await, wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn n12_whose_a_label_is_is_read_once_as_long_as_the_labels_stay() {
    let bench = labelled_by("kubectl-label").await;
    for instance_type in ["big", "big", "huge"] {
        assert_eq!(bench.refreshed(instance_type).await, "small");
        assert_eq!(bench.api.reads(), 1);
        // A heartbeat keeps the labels, so the controller does not read the Node again.
        bench.api.edit("n", |_| {});
    }
    // The other writer gives up the labels: now the controller sets and keeps them.
    bench.api.edit("n", |node| {
        node.metadata.labels = None;
        let fields = node.metadata.managed_fields.as_mut().unwrap();
        fields[0].manager = Some("ccm".to_owned());
    });
    assert_eq!(bench.refreshed("small").await, "small");
    assert_eq!(bench.api.reads(), 1, "nobody holds them");
    assert_eq!(bench.refreshed("big").await, "big");
    assert_eq!(bench.api.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn b_n8_a_failure_keeps_the_taint_and_comes_again() {
    let bench = Bench::new();
    bench.api.put(&fresh("n"));
    let trouble = |code| CallError {
        code,
        reason: "Broken".to_owned(),
        message: "it broke".to_owned(),
        retry_after: None,
        rpc: None,
        call_id: None,
    };
    bench
        .settle(bench.stored("n"), Err(trouble(CallErrorCode::Disconnected)))
        .await;
    assert!(bench.events().is_empty());
    assert_eq!(bench.worker.driver.queue.len(), 1);
    bench
        .settle(bench.stored("n"), Err(trouble(CallErrorCode::Unavailable)))
        .await;
    assert!(
        bench.events()[0].contains("it broke"),
        "{:?}",
        bench.events()
    );
    let absent = api::Instance {
        state: api::InstanceState::Absent as i32,
        ..api::Instance::default()
    };
    bench.settle(bench.stored("n"), Ok(absent)).await;
    assert!(bench.api.writes().is_empty() && bench.worker.driver.queue.len() == 1);
}

#[tokio::test(start_paused = true)]
async fn n13_a_failure_that_does_not_pass_by_itself_is_told_at_once_and_tried_again() {
    let bench = Bench::new();
    bench.api.put(&fresh("n"));
    let nameless = api::Instance {
        provider_id: None,
        ..instance()
    };
    bench.settle(bench.stored("n"), Ok(nameless)).await;
    let events = bench.events();
    assert!(
        events.len() == 1 && events[0].contains("NodeNotInitialized n"),
        "{events:?}"
    );
    assert!(bench.api.writes().is_empty() && bench.worker.driver.queue.len() == 1);
}

#[tokio::test(start_paused = true)]
async fn n13_who_waits_is_told_why_even_without_a_provider() {
    let bench = Bench::new();
    bench.api.put(&fresh("n"));
    let stop = bench.worker.driver.context.stop.clone();
    let watching = bench.watching();
    let within_a_minute = async {
        tokio::time::sleep(Duration::from_secs(45)).await;
        stop.cancel();
    };
    tokio::join!(watching, within_a_minute);
    let events = bench.events();
    assert!(
        events.len() == 1
            && events[0].contains("NodeNotInitialized")
            && events[0].contains("is not available")
            && events[0].contains("next try as soon as the provider is available"),
        "{events:?}"
    );
}

impl Bench {
    /// From now on the provider claims these prefixes of provider IDs.
    fn claims(&self, prefixes: &[&str]) {
        let info = api::GetProviderInfoResponse {
            provider_id_prefixes: prefixes.iter().map(|&prefix| prefix.to_owned()).collect(),
            capabilities: Some(api::Capabilities {
                instances: Some(api::InstanceCapability::default()),
                ..api::Capabilities::default()
            }),
            ..api::GetProviderInfoResponse::default()
        };
        let me = &self.worker.driver.context.provider;
        let ownership = Ownership::of(&[(me, &info)], None).unwrap();
        let ownership = Some(Arc::new(ownership));
        self.status
            .send_modify(|status| status.ownership = ownership);
    }
}

/// An uninitialised Node with this provider ID.
fn with_id(name: &str, id: &str) -> Node {
    let mut node = fresh(name);
    node.spec.get_or_insert_default().provider_id = Some(id.to_owned());
    node
}

#[tokio::test(start_paused = true)]
async fn n13_a_node_of_another_provider_is_told_nothing_while_ours_is_away() {
    let bench = Bench::new();
    bench.claims(&["mock://"]);
    bench.api.put(&with_id("theirs", "other://i-1"));
    bench.api.put(&with_id("ours", "mock://i-2"));
    let stop = bench.worker.driver.context.stop.clone();
    let watching = bench.watching();
    let within_a_minute = async {
        tokio::time::sleep(Duration::from_secs(45)).await;
        stop.cancel();
    };
    tokio::join!(watching, within_a_minute);
    let events = bench.events();
    assert!(
        events.len() == 1 && events[0].contains("NodeNotInitialized ours"),
        "{events:?}"
    );
}

/// Initialize never succeeds.
#[tokio::test(start_paused = true)]
async fn n13_before_the_first_session_the_claims_of_the_provider_decide_who_is_told() {
    let bench = Bench::new();
    bench.api.put(&with_id("theirs", "other://i-1"));
    bench.api.put(&with_id("ours", "mock://i-2"));
    let stop = bench.worker.driver.context.stop.clone();
    let watching = bench.watching();
    let script = async {
        let told = || bench.events().join("\n");
        tokio::time::sleep(Duration::from_secs(3)).await;
        bench.claims(&["mock://"]);
        tokio::time::sleep(Duration::from_secs(10)).await;
        bench.api.put(&with_id("later", "other://i-3"));
        tokio::time::sleep(Duration::from_mins(1)).await;
        let first = told();
        assert!(first.contains("NodeNotInitialized ours"), "{first}");
        assert!(
            !first.contains("theirs") && !first.contains("later"),
            "{first}"
        );
        // Another version claims more.
        bench.claims(&["mock://", "other://"]);
        tokio::time::sleep(Duration::from_mins(1)).await;
        let second = told();
        assert!(second.contains("NodeNotInitialized theirs"), "{second}");
        assert!(second.contains("NodeNotInitialized later"), "{second}");
        stop.cancel();
    };
    tokio::join!(watching, script);
}

#[tokio::test(start_paused = true)]
async fn b_n9_a_node_that_is_left_alone_is_told_nothing_when_it_changes() {
    let bench = Bench::new();
    bench.api.put(&fresh("n"));
    let stop = bench.worker.driver.context.stop.clone();
    let watching = bench.watching();
    let changing = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let unmanaged = api::Instance {
            state: api::InstanceState::Unmanaged as i32,
            ..api::Instance::default()
        };
        bench.settle(bench.stored("n"), Ok(unmanaged)).await;
        bench.api.edit("n", |node| {
            node.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        });
        tokio::time::sleep(Duration::from_mins(1)).await;
        stop.cancel();
    };
    tokio::join!(watching, changing);
    assert_eq!(bench.events(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn b_n8_busy_comes_again_five_times_and_then_backs_off() {
    let bench = Bench::new();
    bench.api.put(&fresh("n"));
    for round in 1..=8_u32 {
        let busy = CallError {
            code: CallErrorCode::Busy,
            reason: String::new(),
            message: "in use".to_owned(),
            retry_after: None,
            rpc: None,
            call_id: None,
        };
        bench.settle(bench.stored("n"), Err(busy)).await;
        let failures = bench.worker.driver.queue.failures(&"n".to_owned());
        assert_eq!(failures, round.saturating_sub(5), "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn n13_a_node_tells_who_answered_what_how_often_and_when_it_is_tried_next() {
    let bench = Bench::new();
    bench.api.put(&fresh("n"));
    bench.worker.wait_for(&bench.stored("n"));
    let trouble = |code, message: &str| CallError {
        code,
        reason: "NoQuota".to_owned(),
        message: message.to_owned(),
        retry_after: None,
        rpc: None,
        call_id: None,
    };
    // A failure that passes within seconds is not reported at once.
    let busy = trouble(CallErrorCode::Busy, "in use");
    bench.settle(bench.stored("n"), Err(busy)).await;
    assert_eq!(bench.events(), [""; 0]);
    let quota = trouble(CallErrorCode::Precondition, "no quota left");
    bench.settle(bench.stored("n"), Err(quota)).await;
    let events = bench.events();
    assert_eq!(events.len(), 1, "{events:?}");
    for words in [
        "NodeNotInitialized",
        "NoQuota: no quota left (PRECONDITION from LookupInstances of provider ",
        " for the name \"n\", without a provider ID, attempt 2, next try ",
    ] {
        assert!(events[0].contains(words), "{words} in {events:?}");
    }
    // After the first report, the next failed attempt updates the event at once.
    let down = trouble(CallErrorCode::Unavailable, "on fire");
    bench.settle(bench.stored("n"), Err(down)).await;
    let events = bench.events();
    let last = "NoQuota: on fire (UNAVAILABLE from LookupInstances of provider ";
    assert!(
        events[0].contains(last) && events[0].contains("attempt 3"),
        "{events:?}"
    );
    // A Node with a provider ID is looked up by it.
    let bench = Bench::new();
    let mut known = fresh("n");
    let id = format!("mock://{}", "k".repeat(900));
    known.spec.get_or_insert_default().provider_id = Some(id);
    bench.api.put(&known);
    bench.worker.wait_for(&bench.stored("n"));
    let quota = trouble(CallErrorCode::Precondition, "no quota left");
    bench.settle(bench.stored("n"), Err(quota)).await;
    let events = bench.events();
    let by = " for provider ID \"mock://kkk";
    let reported = events.iter().find(|event| event.contains(by)).unwrap();
    assert!(reported.contains("k\", attempt 1, next try "), "{reported}");
}

#[tokio::test(start_paused = true)]
async fn n13_a_node_that_joins_late_while_the_provider_is_away_is_told_before_nobody_leads() {
    // The Node joins well before the leader steps down, and at the last moment.
    for (joins, ends) in [(45, 55), (58, 60)] {
        let bench = Bench::new();
        let stop = bench.worker.driver.context.stop.clone();
        let watching = bench.watching();
        let joining = async {
            tokio::time::sleep(Duration::from_secs(joins)).await;
            bench.api.put(&fresh("n"));
            tokio::time::sleep(Duration::from_secs(ends - joins)).await;
            stop.cancel();
        };
        tokio::join!(watching, joining);
        let events = bench.events();
        assert!(
            events.len() == 1 && events[0].contains("is not available"),
            "{joins}: {events:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn n13_a_refresh_that_fails_is_no_success_of_the_provider() {
    let bench = Bench::new();
    bench.api.put(&fresh("n"));
    bench.settle(bench.stored("n"), Ok(instance())).await;
    let (batch, waits) = (bench.worker.driver.batch(Vec::new()), "waits".to_owned());
    let refused = || CallError::new(CallErrorCode::Credentials, "refused");
    let warns = || batch.reaction(&waits, &refused()).warn;
    assert!(warns());
    bench.settle(bench.stored("n"), Err(refused())).await;
    assert!(!warns(), "the log has it already");
    bench.settle(bench.stored("n"), Ok(instance())).await;
    assert!(warns());
}
