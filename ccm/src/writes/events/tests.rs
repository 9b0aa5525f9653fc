use super::series::{Series, Written};
use super::*;
use tokio::time::Instant;

fn node(name: &str) -> ObjectReference {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.uid = Some(format!("uid-{name}"));
    node_reference(&node)
}

#[test]
fn the_newest_text_wins_in_the_place_of_the_first() {
    let sink = EventSink::unwritten();
    sink.record(&node("a"), EventType::Warning, "Failed", "one".to_owned());
    sink.record(&node("b"), EventType::Normal, "Synced", "done".to_owned());
    sink.record(&node("a"), EventType::Warning, "Failed", "two".to_owned());
    sink.record(&node("a"), EventType::Normal, "Failed", "no".to_owned());
    assert_eq!(
        sink.recorded(),
        [
            "Warning Failed a: two (x2)",
            "Normal Synced b: done",
            "Normal Failed a: no"
        ]
    );
}

#[test]
fn m10_a_full_queue_drops_and_counts_but_takes_repeats() {
    let sink = EventSink::unwritten();
    for number in 0..BOUND + 5 {
        let object = node(&number.to_string());
        sink.record(&object, EventType::Normal, "Synced", String::new());
    }
    sink.record(&node("0"), EventType::Normal, "Synced", "again".to_owned());
    assert_eq!(sink.recorded().len(), BOUND);
    assert_eq!(sink.recorded()[0], "Normal Synced 0: again (x2)");
    let dropped = &sink.shared.metrics.dropped;
    assert_eq!(dropped.get_or_create(&[("why", "full")]).get(), 5);
}

#[test]
fn messages_are_cut_between_characters() {
    assert_eq!(cut("short".to_owned()), "short");
    let long = "x".repeat(MESSAGE_BYTES - 1) + "ü and more";
    assert_eq!(cut(long), "x".repeat(MESSAGE_BYTES - 1));
}

#[tokio::test(start_paused = true)]
async fn what_was_written_is_remembered_for_a_while_and_not_without_bound() {
    let key = |number: usize| EventKey {
        uid: number.to_string(),
        reason: String::new(),
        kind: EventType::Normal,
        component: COMPONENT,
        object_kind: String::new(),
        namespace: String::new(),
        name: String::new(),
    };
    let written = |count| Written {
        name: "e".to_owned(),
        count,
    };
    let mut series = Series::default();
    let now = Instant::now();
    for number in 0..5_000 {
        series.put(Arc::new(key(number)), written(1), now);
    }
    series.put(Arc::new(key(4_999)), written(2), now);
    assert_eq!(series.len(), 4_096);
    assert_eq!(series.take(&key(0), now), None);
    assert_eq!(series.take(&key(4_999), now), Some(written(2)));
    assert_eq!(series.take(&key(4_999), now), None);
    let later = now + std::time::Duration::from_hours(1);
    assert_eq!(series.take(&key(4_998), later), None);
    assert_eq!(series.len(), 4_094);
}

/// A writer over an API server that answers every request with `code`; the number of requests, and how often an event was dropped for `why`.
async fn answered(code: u16, events: usize, why: &'static str) -> (usize, u64) {
    use http::{Request, Response};
    use kube::client::Body;
    use tokio_util::sync::CancellationToken;

    let requests = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let server = tower::service_fn(move |_: Request<Body>| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let status = format!(r#"{{"kind":"Status","status":"Failure","code":{code}}}"#);
        let answer = Response::builder()
            .status(code)
            .body(Body::from(status.into_bytes()));
        std::future::ready(answer)
    });
    let metrics = EventMetrics::register(&mut Registry::default());
    let dropped = metrics.dropped.clone();
    let wall: WallClock = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
    let client = Client::new(server, "default");
    let (sink, writer) = EventSink::new(client, "test".to_owned(), wall, metrics);
    for number in 0..events {
        let object = node(&number.to_string());
        sink.record(&object, EventType::Normal, "Synced", String::new());
    }
    let stop = CancellationToken::new();
    let run = writer.run(stop.clone());
    let all = async {
        let expected = u64::try_from(events).unwrap();
        while dropped.get_or_create(&[("why", why)]).get() < expected {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        stop.cancel();
    };
    let deadline = std::time::Duration::from_mins(5);
    let ended = tokio::time::timeout(deadline, async { tokio::join!(run, all) }).await;
    assert!(ended.is_ok());
    let requests = requests.load(std::sync::atomic::Ordering::Relaxed);
    (requests, dropped.get_or_create(&[("why", why)]).get())
}

#[tokio::test(start_paused = true)]
async fn m10_an_event_is_tried_four_times_and_what_is_refused_once() {
    assert_eq!(answered(503, 2, "unavailable").await, (8, 2));
    assert_eq!(answered(403, 2, "refused").await, (2, 2));
}
