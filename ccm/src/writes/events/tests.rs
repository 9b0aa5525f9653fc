use k8s_openapi::api::core::v1::Node;

use super::series::{Series, Written};
use super::*;
use crate::writes::reason;
use tokio::time::Instant;

fn node(name: &str) -> ObjectReference {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.uid = Some(format!("uid-{name}"));
    reference(&node)
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
    // A message has neither a second line nor a terminal's control characters.
    let nasty = "a\r\nWarning: b\u{1b}[31m\u{0}\u{9b}é";
    assert_eq!(cut(nasty.to_owned()), "a  Warning: b [31m  é");
    let long = "x".repeat(MESSAGE_BYTES - 1) + "ü and more";
    assert_eq!(cut(long), "x".repeat(MESSAGE_BYTES - 1));
}

#[tokio::test(start_paused = true)]
async fn what_was_written_is_remembered_for_a_while_and_not_without_bound() {
    let key = |number: usize| EventKey {
        object: Arc::new(Object {
            uid: number.to_string(),
            ..Object::default()
        }),
        reason: String::new(),
        kind: EventType::Normal,
        component: COMPONENT,
    };
    let written = |count| Written {
        name: "e".to_owned(),
        count,
        writes: 1,
    };
    let mut series = Series::default();
    let mut now = Instant::now();
    // The first one is written again before there are too many.
    for number in (0..9_000).chain([0]).chain(9_000..11_000) {
        now += std::time::Duration::from_micros(1);
        series.put(Arc::new(key(number)), written(1), now);
    }
    series.put(Arc::new(key(10_999)), written(2), now);
    assert_eq!(series.len(), 10_000);
    // Those that were not written for the longest time are forgotten.
    for (number, left) in [
        (1_000, None),
        (1_001, Some(written(1))),
        (0, Some(written(1))),
    ] {
        assert_eq!(series.take(&key(number), now), left, "{number}");
    }
    assert_eq!(series.take(&key(10_999), now), Some(written(2)));
    assert_eq!(series.take(&key(10_999), now), None);
    let later = now + std::time::Duration::from_hours(1);
    assert_eq!(series.take(&key(10_998), later), None);
    assert_eq!(series.len(), 9_996);
}

/// A writer over an API server that answers every request with `code`. Returns the number of
/// requests, and how many events were dropped for `why`.
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

/// A client whose requests all get this answer, and the number of requests.
fn answering(code: u16) -> (Client, Arc<std::sync::atomic::AtomicUsize>) {
    use http::{Request, Response};
    use kube::client::Body;

    let requests = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let server = tower::service_fn(move |_: Request<Body>| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let body = if code == 200 {
            r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},"involvedObject":{}}"#
                .to_owned()
        } else {
            format!(r#"{{"kind":"Status","status":"Failure","code":{code}}}"#)
        };
        let answer = Response::builder()
            .status(code)
            .body(Body::from(body.into_bytes()));
        std::future::ready(answer)
    });
    (Client::new(server, "default"), requests)
}

#[tokio::test(start_paused = true)]
async fn b_m5_a_controllers_events_are_written_as_itself_or_else_by_the_process() {
    for (code, own_requests, process_requests) in [(200, 3, 1), (403, 1, 4), (503, 4, 4)] {
        let (process, of_process) = answering(200);
        let (own, of_own) = answering(code);
        let metrics = EventMetrics::register(&mut Registry::default());
        let written = metrics.written.clone();
        let wall: WallClock = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
        let (sink, writer) = EventSink::new(process, "test".to_owned(), wall, metrics);
        let controller = sink.written_by(own).for_component("service-controller");
        for number in 0..3 {
            let object = node(&number.to_string());
            controller.record(&object, EventType::Normal, "Synced", String::new());
        }
        // The Lease's events have the process's identity.
        sink.record(&node("lease"), EventType::Normal, "Led", String::new());
        let stop = tokio_util::sync::CancellationToken::new();
        let all = async {
            while written.get() < 4 {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            stop.cancel();
        };
        let deadline = std::time::Duration::from_mins(5);
        let ended = async { tokio::join!(writer.run(stop.clone()), all) };
        assert!(
            tokio::time::timeout(deadline, ended).await.is_ok(),
            "{code}"
        );
        let count =
            |of: &std::sync::atomic::AtomicUsize| of.load(std::sync::atomic::Ordering::Relaxed);
        let counts = (count(&of_own), count(&of_process));
        assert_eq!(counts, (own_requests, process_requests), "{code}");
        assert_eq!(written.get(), 4, "{code}");
    }
}

/// The requests to an API server that accepts every event, with the seconds since the start.
type Requests = Arc<std::sync::Mutex<Vec<(u64, http::Method, serde_json::Value)>>>;

fn taking() -> (EventSink, EventWriter, Requests) {
    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;

    let requests = Requests::default();
    let (seen, began) = (Arc::clone(&requests), Instant::now());
    let server = tower::service_fn(move |request: Request<Body>| {
        let seen = Arc::clone(&seen);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let at = began.elapsed().as_secs();
            seen.lock().unwrap().push((at, head.method, value));
            let event =
                r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},"involvedObject":{}}"#;
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(event.as_bytes().to_vec())))
        }
    });
    let metrics = EventMetrics::register(&mut Registry::default());
    let wall: WallClock = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
    let (sink, writer) = EventSink::new(
        Client::new(server, "default"),
        "test".to_owned(),
        wall,
        metrics,
    );
    (sink, writer, requests)
}

#[tokio::test(start_paused = true)]
async fn n13_a_text_that_changes_each_second_is_one_event_that_is_patched_ever_less_often() {
    use std::time::Duration;

    let (sink, writer, requests) = taking();
    let stop = tokio_util::sync::CancellationToken::new();
    let attempts = async {
        for attempt in 1..=300 {
            sink.record(
                &node("a"),
                EventType::Warning,
                "Failed",
                format!("attempt {attempt}"),
            );
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        stop.cancel();
    };
    tokio::join!(writer.run(stop.clone()), attempts);
    let requests = requests.lock().unwrap();
    let made = requests
        .iter()
        .filter(|(_, method, _)| method == http::Method::POST);
    assert_eq!(made.count(), 1, "one Event");
    let at: Vec<u64> = requests.iter().map(|(at, ..)| *at).collect();
    assert!((14..=18).contains(&at.len()), "{at:?}");
    assert!(
        at.windows(2).all(|pair| pair[1] - pair[0] <= 61),
        "never older than a minute: {at:?}"
    );
    let (_, _, last) = requests.last().unwrap();
    assert_eq!(
        (&last["message"], &last["count"]),
        (&"attempt 300".into(), &300.into())
    );
}

#[tokio::test(start_paused = true)]
async fn n13_what_lasts_for_hours_is_written_as_client_go_does_it() {
    use std::time::Duration;

    let (sink, writer, requests) = taking();
    let stop = tokio_util::sync::CancellationToken::new();
    let attempts = async {
        for attempt in 1..=3 * 60 * 60 {
            let text = format!("attempt {attempt}");
            sink.record(&node("a"), EventType::Warning, "Failed", text);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        stop.cancel();
    };
    tokio::join!(writer.run(stop.clone()), attempts);
    let requests = requests.lock().unwrap();
    let made = requests
        .iter()
        .filter(|(_, method, _)| method == http::Method::POST);
    assert_eq!(made.count(), 1, "one Event");
    // 25 at first, then one in five minutes.
    let three_hours = requests.len();
    assert!((25..=25 + 36).contains(&three_hours), "{three_hours}");
}

#[tokio::test(start_paused = true)]
async fn n13_repeats_on_a_thousand_objects_are_no_flood_and_nothing_new_waits_for_them() {
    use std::time::Duration;

    let (sink, writer, requests) = taking();
    let stop = tokio_util::sync::CancellationToken::new();
    let attempts = async {
        for round in 0..30 {
            for number in 0..1_000 {
                let text = format!("round {round}");
                sink.record(
                    &node(&number.to_string()),
                    EventType::Warning,
                    "Failed",
                    text,
                );
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        sink.record(&node("new"), EventType::Normal, "Synced", "done".to_owned());
        tokio::time::sleep(Duration::from_millis(10)).await;
        let reported = |words: &str| {
            let requests = requests.lock().unwrap();
            let last = requests.iter().rev().take(3);
            last.clone().any(|(.., event)| event["message"] == words)
        };
        assert!(reported("done"));
        stop.cancel();
    };
    let count = async {
        attempts.await;
        requests.lock().unwrap().len()
    };
    let ((), before_the_end) = tokio::join!(writer.run(stop.clone()), count);
    let patches = before_the_end - 1_001;
    assert!((490..=510).contains(&patches), "{patches} in 300 s");
}

#[tokio::test(start_paused = true)]
async fn b_m3_a_flush_holds_nothing_back() {
    use std::time::Duration;

    let (sink, writer, requests) = taking();
    let stop = tokio_util::sync::CancellationToken::new();
    let all = async {
        for text in ["one", "two", "three", "four", "five", "six"] {
            sink.record(&node("a"), EventType::Warning, "Failed", text.to_owned());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let written = || requests.lock().unwrap().last().unwrap().2["message"].clone();
        assert_eq!(written(), "four", "the others wait");
        let began = Instant::now();
        sink.flush(Duration::from_millis(300)).await;
        assert!(
            began.elapsed() < Duration::from_millis(50),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(requests.lock().unwrap().last().unwrap().2["message"], "six");
        stop.cancel();
    };
    tokio::join!(writer.run(stop.clone()), all);
}

#[tokio::test(start_paused = true)]
async fn b_m3_the_end_of_a_term_is_not_reported_behind_a_backlog_of_warnings() {
    let (sink, writer, requests) = taking();
    let stop = tokio_util::sync::CancellationToken::new();
    let all = async {
        for number in 0..100 {
            let (on, kind) = (node(&number.to_string()), EventType::Warning);
            sink.record(&on, kind, "Failed", String::new());
        }
        let (kind, what) = (EventType::Normal, "stopped leading".to_owned());
        sink.record(&node("lease"), kind, reason::LEADER_ELECTION, what);
        sink.flush(std::time::Duration::from_millis(300)).await;
        stop.cancel();
    };
    tokio::join!(writer.run(stop.clone()), all);
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 101);
    assert_eq!(requests[0].2["message"], "stopped leading");
}

/// A provider invents a new reason every second on each of these objects, for ten minutes. Returns
/// the number of event writes, the most new events on one object, and the number of dropped events.
async fn made_up(objects: usize) -> (usize, usize, u64) {
    use std::collections::BTreeMap;
    use std::time::Duration;

    let (sink, writer, requests) = taking();
    let stop = tokio_util::sync::CancellationToken::new();
    let dropped = sink.shared.metrics.dropped.clone();
    let attempts = async {
        for second in 0..600 {
            for number in 0..objects {
                let reason = format!("MadeUp{second}");
                let on = node(&number.to_string());
                sink.record(&on, EventType::Normal, &reason, "x".repeat(2_000));
                sink.record(&on, EventType::Warning, "Failed", reason.clone());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        // Meanwhile a success is reported at once.
        sink.record(
            &node("new"),
            EventType::Normal,
            reason::SYNCED,
            "done".to_owned(),
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
        let requests = requests.lock().unwrap();
        assert!(
            requests
                .iter()
                .any(|(.., event)| event["message"] == "done")
        );
        let mut on: BTreeMap<String, usize> = BTreeMap::new();
        for (_, _, event) in requests.iter() {
            let name = event["involvedObject"]["name"].as_str();
            *on.entry(name.unwrap_or("repeats").to_owned()).or_default() += 1;
        }
        let most = on
            .iter()
            .filter(|(name, _)| *name != "repeats")
            .map(|(_, count)| *count)
            .max();
        (requests.len() - 1, most.unwrap())
    };
    let ended = async {
        let counted = attempts.await;
        let full = dropped.get_or_create(&[("why", "full")]).get();
        let limited = dropped.get_or_create(&[("why", "limited")]).get();
        stop.cancel();
        (counted, full + limited)
    };
    let ((), ((writes, most), dropped)) = tokio::join!(writer.run(stop.clone()), ended);
    (writes, most, dropped)
}

#[tokio::test(start_paused = true)]
async fn n13_events_of_a_provider_without_a_reason_of_their_own_do_not_fill_etcd() {
    use std::time::Duration;

    let (sink, writer, requests) = taking();
    let stop = tokio_util::sync::CancellationToken::new();
    let all = async {
        for number in 0..5_000 {
            let (on, text) = (node(&number.to_string()), "x".to_owned());
            sink.record(&on, EventType::Normal, reason::PROVIDER_EVENT, text);
        }
        tokio::time::sleep(Duration::from_mins(10)).await;
        let writes = requests.lock().unwrap().len();
        assert!((1_000..=2_000).contains(&writes), "{writes}");
        stop.cancel();
    };
    tokio::join!(writer.run(stop.clone()), all);
}

#[tokio::test(start_paused = true)]
async fn n13_reasons_that_a_provider_makes_up_do_not_fill_etcd() {
    let (writes, most, dropped) = made_up(1).await;
    assert!(writes <= 27 && most <= 27, "{writes} {most}");
    assert!(dropped > 500, "{dropped}");
    let (writes, most, _) = made_up(100).await;
    assert!((1_000..=2_000).contains(&writes), "{writes}");
    assert!(most <= 27, "{most}");
}
