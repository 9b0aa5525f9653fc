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
