use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use http::{Request, Response};
use k8s_openapi::api::core::v1::{ContainerImage, NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::Resource;
use kube::client::Body;
use kube::core::Status;
use kube::runtime::watcher::{Error, Event};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::*;
use crate::core::Prune;

fn node(name: &str, uid: &str, version: u32) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.uid = Some(uid.to_owned());
    node.metadata.resource_version = Some(version.to_string());
    node
}

fn labelled(name: &str, uid: &str, version: u32, label: &str) -> Node {
    let mut node = node(name, uid, version);
    node.metadata.labels = Some(BTreeMap::from([("l".to_owned(), label.to_owned())]));
    node
}

/// Each change as `name: old uid/version -> new uid/version`.
fn shown(changes: &[Change<Node>]) -> Vec<String> {
    let side = |node: &Option<Arc<Node>>| {
        node.as_ref().map_or("-".to_owned(), |node| {
            format!(
                "{}/{}",
                node.metadata.uid.as_deref().unwrap_or_default(),
                node.metadata
                    .resource_version
                    .as_deref()
                    .unwrap_or_default()
            )
        })
    };
    changes
        .iter()
        .map(|change| {
            let name = Key::of(change.latest().unwrap().as_ref());
            format!("{name}: {} -> {}", side(&change.old), side(&change.new))
        })
        .collect()
}

fn store(nodes: impl IntoIterator<Item = Node>) -> Store<Node> {
    nodes.into_iter().collect()
}

#[test]
fn a_deletion_during_a_relist_is_seen() {
    let store = store([node("a", "1", 1), node("b", "2", 1), node("c", "3", 1)]);
    let mut changes = store.subscribe();
    assert_eq!(changes.unread().len(), 3);
    store.apply(Event::Init);
    store.apply(Event::InitApply(node("a", "1", 1)));
    assert_eq!(store.len(), 3, "nothing is missing while the list comes in");
    store.apply(Event::InitApply(node("c", "9", 5)));
    store.apply(Event::InitDone);
    assert_eq!(shown(&changes.unread()), ["b: 2/1 -> -", "c: 3/1 -> 9/5"]);
    assert_eq!(store.len(), 2);
}

#[test]
fn a_list_that_breaks_off_deletes_nothing_and_the_next_one_starts_anew() {
    let store = store([node("a", "1", 1), node("b", "2", 1)]);
    store.apply(Event::Init);
    store.apply(Event::InitApply(node("a", "1", 1)));
    store.apply(Event::Init);
    store.apply(Event::InitApply(node("b", "2", 1)));
    store.apply(Event::InitDone);
    assert_eq!(store.len(), 1);
    assert!(store.get(&Key::node("b")).is_some());
}

#[test]
fn changes_are_coalesced_by_key_from_what_the_reader_saw_last() {
    let store = store([labelled("a", "1", 1, "x"), labelled("b", "2", 1, "x")]);
    let mut changes = store.subscribe();
    assert_eq!(
        shown(&changes.unread()),
        ["a: - -> 1/1", "b: - -> 2/1"],
        "what is there first"
    );
    assert!(changes.unread().is_empty());
    store.apply(Event::Apply(labelled("b", "2", 2, "y")));
    store.apply(Event::Apply(labelled("a", "1", 2, "y")));
    store.apply(Event::Apply(labelled("a", "1", 3, "z")));
    store.apply(Event::Apply(node("new", "3", 4)));
    store.apply(Event::Apply(node("short", "4", 5)));
    store.apply(Event::Delete(node("short", "4", 6)));
    store.apply(Event::Delete(node("b", "2", 7)));
    store.apply(Event::Apply(node("b", "5", 8)));
    assert_eq!(
        shown(&changes.unread()),
        ["a: 1/1 -> 1/3", "b: 2/1 -> 5/8", "new: - -> 3/4"]
    );
}

#[test]
fn m8_a_heartbeat_is_no_change_but_its_version_is_kept() {
    let heartbeat = |version: u32, second: i64, ready: &str| {
        let mut node = node("a", "1", version);
        let condition = |type_: &str, status: &str| NodeCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            message: Some(format!("at {second}")),
            last_heartbeat_time: Some(Time(jiff::Timestamp::from_second(second).unwrap())),
            ..NodeCondition::default()
        };
        node.status = Some(NodeStatus {
            conditions: Some(vec![
                condition("Ready", ready),
                condition("DiskPressure", &second.to_string()),
            ]),
            images: Some(vec![
                ContainerImage::default();
                usize::try_from(second).unwrap()
            ]),
            ..NodeStatus::default()
        });
        node
    };
    let store = store([heartbeat(1, 1, "True")]);
    let mut changes = store.subscribe();
    assert_eq!(changes.unread().len(), 1);
    store.apply(Event::Apply(heartbeat(2, 2, "True")));
    assert!(changes.unread().is_empty());
    let now = store.get(&Key::node("a")).unwrap();
    assert_eq!(now.metadata.resource_version.as_deref(), Some("2"));
    let conditions = now
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    assert_eq!(conditions.unwrap().len(), 1);
    store.apply(Event::Apply(heartbeat(3, 3, "False")));
    assert_eq!(shown(&changes.unread()), ["a: 1/2 -> 1/3"]);
}

#[test]
fn m8_what_nobody_reads_is_not_kept() {
    let whole = serde_json::json!({
        "metadata": {
            "name": "a", "uid": "1", "resourceVersion": "1", "labels": {"l": "1"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "1"},
            "managedFields": [{"manager": "kubelet", "operation": "Update"}],
        },
        "spec": {"providerID": "mock://a", "podCIDRs": ["10.1.0.0/24"]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "images": [{"names": ["image"]}],
            "volumesInUse": ["volume"],
            "volumesAttached": [{"name": "volume", "devicePath": "/dev/sda"}],
            "capacity": {"cpu": "2"},
            "conditions": [
                {"type": "Ready", "status": "True", "message": "fine", "lastHeartbeatTime": "2026-01-02T03:04:05Z"},
                {"type": "DiskPressure", "status": "False"},
            ],
        },
    });
    let kept = serde_json::json!({
        "metadata": {
            "name": "a", "uid": "1", "resourceVersion": "1", "labels": {"l": "1"}, "annotations": {"kept": "1"},
        },
        "spec": {"providerID": "mock://a", "podCIDRs": ["10.1.0.0/24"]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    let node = |value: &serde_json::Value| serde_json::from_value::<Node>(value.clone()).unwrap();
    let store = store([]);
    store.apply(Event::Apply(node(&whole)));
    assert_eq!(*store.get(&Key::node("a")).unwrap(), node(&kept));
}

#[test]
fn a_dropped_reader_is_forgotten_with_what_it_did_not_read() {
    let store = store([node("a", "1", 1)]);
    let held = Arc::downgrade(&store.get(&Key::node("a")).unwrap());
    let changes = store.subscribe();
    store.apply(Event::Apply(labelled("a", "1", 2, "x")));
    drop(changes);
    assert!(held.upgrade().is_none());
    store.apply(Event::Apply(labelled("a", "1", 3, "y")));
    assert!(store.state().readers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_is_woken_and_cancelling_it_loses_nothing() {
    let store = Store::<Node>::default();
    let mut changes = store.subscribe();
    let waited = timeout(Duration::from_secs(1), changes.next()).await;
    assert!(waited.is_err());
    store.apply(Event::Apply(node("a", "1", 1)));
    let waited = timeout(Duration::from_secs(1), changes.next()).await;
    assert_eq!(shown(&waited.unwrap()), ["a: - -> 1/1"]);
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        store.apply(Event::Delete(node("a", "1", 2)));
    };
    let (changes, ()) = tokio::join!(changes.next(), later);
    assert_eq!(shown(&changes), ["a: 1/1 -> -"]);
}

#[tokio::test(start_paused = true)]
async fn b_m8_synced_after_the_first_whole_list_only() {
    let store = Store::<Node>::default();
    store.apply(Event::Init);
    store.apply(Event::InitApply(node("a", "1", 1)));
    assert!(!store.is_synced());
    assert!(
        timeout(Duration::from_secs(1), store.synced())
            .await
            .is_err()
    );
    store.apply(Event::InitDone);
    assert!(store.is_synced());
    store.synced().await;
}

fn refused(code: u16) -> Error {
    let status = Status::failure("no", "No").with_code(code).boxed();
    Error::WatchStartFailed(kube::Error::Api(status))
}

#[tokio::test(start_paused = true)]
async fn m10_the_watch_goes_on_after_failures_with_a_capped_delay() {
    let store = Store::<Node>::default();
    let start = Instant::now();
    // `Init` between the failures, as when the API server is down, must not reset the delay.
    let failures = futures::stream::iter(0..20)
        .flat_map(|_| futures::stream::iter([Ok(Event::Init), Err(refused(503))]))
        .chain(futures::stream::iter([
            Ok(Event::InitApply(node("a", "1", 1))),
            Ok(Event::InitDone),
        ]))
        .chain(futures::stream::pending());
    let mut failures = Some(failures);
    let feed = store.feed(|| failures.take().unwrap(), 1);
    let trouble = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(store.trouble().is_some());
        store.synced().await;
    };
    tokio::select! {
        () = feed => unreachable!("the watch never ends"),
        () = trouble => {}
    }
    let took = start.elapsed();
    assert!(
        took > Duration::from_secs(200) && took < Duration::from_mins(10),
        "{took:?}"
    );
    assert_eq!(store.trouble(), None);
    assert_eq!(store.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_refused_for_its_version_lists_anew() {
    let store = store([node("a", "1", 1)]);
    let mut rounds = 0;
    let feed = store.feed(
        || {
            rounds += 1;
            let events = match rounds {
                1 => vec![Err(refused(503)), Err(refused(410))],
                _ => vec![Ok(Event::Init), Ok(Event::InitDone)],
            };
            futures::stream::iter(events).chain(futures::stream::pending())
        },
        1,
    );
    let mut changes = store.subscribe();
    changes.unread();
    tokio::select! {
        () = feed => unreachable!("the watch never ends"),
        gone = changes.next() => assert_eq!(shown(&gone), ["a: 1/1 -> -"]),
    }
}

#[test]
fn l6_nodes_are_found_by_their_provider_id_whatever_the_watch_brings() {
    let named = |name: &str, version, id: &str| {
        let mut node = node(name, name, version);
        node.spec.get_or_insert_default().provider_id = Some(id.to_owned());
        node
    };
    let store = store([named("a", 1, "x"), named("b", 1, "x"), named("c", 1, "")]);
    let found = |by: &str| -> Vec<String> {
        let found = store.found_by(by);
        found
            .iter()
            .map(|node| node.metadata.name.clone().unwrap())
            .collect()
    };
    assert_eq!(found("x"), ["a", "b"]);
    assert!(found("").is_empty() && found("y").is_empty());
    store.apply(Event::Apply(named("a", 2, "y")));
    // A heartbeat.
    store.apply(Event::Apply(named("b", 2, "x")));
    assert_eq!(
        (found("x"), found("y")),
        (vec!["b".into()], vec!["a".into()])
    );
    store.apply(Event::Delete(named("b", 3, "x")));
    assert!(found("x").is_empty());
    // An object that is missing in a relist is gone.
    store.apply(Event::Init);
    store.apply(Event::InitApply(named("c", 4, "x")));
    store.apply(Event::InitDone);
    assert_eq!((found("x"), found("y")), (vec!["c".into()], vec![]));
    store.apply(Event::Delete(named("c", 5, "x")));
    assert!(store.state().found_by.is_empty(), "nothing is left behind");
}

/// An API server that lists the first object, then sends the event, and then no more.
fn serving(listed: &Value, event: &Value) -> Client {
    let list = json!({"metadata": {"resourceVersion": "1"}, "items": [listed, {"metadata": {"name": "plain"}}]});
    let (list, mut event) = (list.to_string(), Some(format!("{event}\n")));
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let body = if query.contains("watch=") {
            event.take()
        } else {
            Some(list.clone())
        };
        async {
            match body {
                Some(body) => Response::builder().body(Body::from(body.into_bytes())),
                None => std::future::pending().await,
            }
        }
    });
    Client::new(service, "default")
}

/// The names in a store whose watch gets this object in a list and in an event.
async fn names_of_watched<K>(odd: &Value) -> Vec<String>
where
    K: Resource<DynamicType = ()> + Prune + Clone + Debug + DeserializeOwned,
    K: Send + Sync + 'static,
{
    let named = |name: &str| {
        let mut object = odd.clone();
        object["metadata"]["name"] = json!(name);
        object["metadata"]["resourceVersion"] = json!("2");
        object
    };
    let event = json!({"type": "ADDED", "object": named("odd later")});
    let client = serving(&named("odd"), &event);
    let store = Store::<K>::default();
    let mut changes = store.subscribe();
    let all = async {
        while store.len() < 3 {
            changes.next().await;
        }
    };
    tokio::select! {
        () = store.watch(client, 1) => unreachable!("the watch never ends"),
        _ = timeout(Duration::from_mins(1), all) => {}
    }
    let all = store.all().into_iter();
    all.map(|it| it.meta().name.clone().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn b_m8_an_object_with_a_time_beyond_jiffs_range_is_delivered_with_the_others() {
    let never = "9999-12-31T23:59:59Z";
    let node = json!({
        "metadata": {},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": never}]},
    });
    let service = json!({"metadata": {"managedFields": [{"manager": "m", "time": never}]}});
    let names = ["odd", "odd later", "plain"];
    assert_eq!(names_of_watched::<Node>(&node).await, names);
    assert_eq!(names_of_watched::<Service>(&service).await, names);
}
