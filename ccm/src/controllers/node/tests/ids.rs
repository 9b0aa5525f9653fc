//! No Node gets a provider ID that another Node keeps (▲L6).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::testing::Fault;
use super::*;

#[tokio::test(start_paused = true)]
async fn l6_an_id_whose_write_did_not_happen_is_free_for_the_machine_under_its_new_name() {
    for refusal in [422, 503] {
        let bench = Bench::new();
        for name in ["n", "renamed"] {
            bench.api.put(&fresh(name));
        }
        bench.api.refuse([refusal]);
        bench.settle(bench.stored("n"), Ok(instance())).await;
        assert!(!bench.initialized("n"));
        // After 503 the result of the write is unknown, so the claim stays until the Node's next
        // attempt.
        let absent = api::Instance {
            state: api::InstanceState::Absent as i32,
            ..api::Instance::default()
        };
        bench.settle(bench.stored("n"), Ok(absent)).await;
        let renamed = bench.stored("renamed");
        bench.settle(renamed, Ok(instance())).await;
        assert!(bench.initialized("renamed"), "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn l6_an_id_that_the_api_server_has_and_a_late_watch_does_not_show_stays_claimed() {
    let bench = Bench::new();
    let mut node = fresh("n");
    let address = NodeAddress {
        type_: "InternalIP".to_owned(),
        address: "10.0.0.1".to_owned(),
    };
    node.status.get_or_insert_default().addresses = Some(vec![address]);
    bench.api.put(&node);
    bench.api.put(&fresh("other"));
    let stored = bench.stored("n");
    bench.api.faults.cut_watch(true);
    bench.api.before_next_write(|api| {
        let id = instance().provider_id;
        api.edit("n", |node| {
            node.spec.get_or_insert_default().provider_id = id;
        });
    });
    bench.settle(stored, Ok(instance())).await;
    assert!(bench.initialized("n"));
    bench.settle(bench.stored("other"), Ok(instance())).await;
    assert!(!bench.initialized("other"));
    let events = bench.events();
    let claimed = |event: &String| event.contains("which the ccm is giving to Node n");
    assert!(events.iter().any(claimed), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn l6_an_id_whose_write_got_no_answer_stays_claimed_while_the_watch_is_late() {
    let bench = Bench::new();
    bench.api.put(&fresh("n"));
    bench.api.put(&fresh("other"));
    let stored = bench.stored("n");
    bench.api.faults.cut_watch(true);
    // The answer to the second write is lost.
    bench.api.faults.writes(2, 1, Fault::Lost);
    bench.settle(Arc::clone(&stored), Ok(instance())).await;
    assert!(bench.initialized("n"));
    let absent = api::Instance {
        state: api::InstanceState::Absent as i32,
        ..api::Instance::default()
    };
    bench.settle(stored, Ok(absent)).await;
    bench.settle(bench.stored("other"), Ok(instance())).await;
    assert!(!bench.initialized("other"));
}

#[tokio::test(start_paused = true)]
async fn l6_the_id_of_another_node_is_refused_told_and_asked_for_again() {
    let bench = Bench::new();
    let mut other = fresh("other");
    let spec = other.spec.get_or_insert_default();
    spec.taints = None;
    spec.provider_id = Some("mock://i-1".to_owned());
    bench.api.put(&other);
    bench.api.put(&fresh("n"));
    bench.settle(bench.stored("n"), Ok(instance())).await;
    assert!(!bench.initialized("n") && bench.api.writes().is_empty());
    let events = bench.events();
    assert!(
        events.len() == 1
            && events[0].contains("NodeNotInitialized")
            && events[0].contains("Node other has"),
        "{events:?}"
    );
    assert_eq!(bench.worker.driver.queue.len(), 1);
    let right = api::Instance {
        provider_id: Some("mock://i-2".to_owned()),
        ..instance()
    };
    bench.settle(bench.stored("n"), Ok(right)).await;
    assert!(bench.initialized("n"));
}

/// Node `n` changes before its first write. After that, another Node gets the ID.
async fn frees_its_id(change: fn(&mut Node), addresses: Vec<api::NodeAddress>) {
    let bench = Bench::new();
    bench.claims(&["mock://"]);
    for name in ["n", "renamed"] {
        bench.api.put(&fresh(name));
    }
    bench
        .api
        .before_next_write(move |api| api.edit("n", change));
    let answer = api::Instance {
        addresses,
        ..instance()
    };
    bench.settle(bench.stored("n"), Ok(answer)).await;
    assert!(!bench.initialized("n") && !bench.worker.claims.holds("n"));
    bench.settle(bench.stored("renamed"), Ok(instance())).await;
    assert!(bench.initialized("renamed"));
}

#[tokio::test(start_paused = true)]
async fn l6_an_id_is_free_again_if_its_node_is_deleted_between_the_two_writes() {
    // A finalizer keeps this Node.
    fn going(node: &mut Node) {
        node.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    }
    frees_its_id(going, instance().addresses).await;
}

#[tokio::test(start_paused = true)]
async fn l6_an_id_is_free_again_if_its_node_belongs_to_another_provider_before_the_write() {
    fn theirs(node: &mut Node) {
        let label = ("grpc-ccm.io/provider".to_owned(), "other".to_owned());
        node.metadata.labels = Some([label].into());
    }
    // Without addresses, the write with the ID is the first one.
    frees_its_id(theirs, Vec::new()).await;
}
