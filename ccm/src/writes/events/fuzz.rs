//! A provider with arbitrary failures and texts for ten minutes: the number of event writes is
//! bounded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arbitrary::Unstructured;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::Client;
use kube::client::Body;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{EventMetrics, EventSink, EventType};
use crate::writes::reason;

const TIME: Duration = Duration::from_mins(10);
const OF_OBJECT: usize = 27;
const OF_ALL: usize = 2_000;
const REASONS: [&str; 4] = [
    reason::SYNC_LOAD_BALANCER_FAILED,
    reason::ENSURING_LOAD_BALANCER,
    reason::PROVIDER_EVENT,
    "MadeUp",
];

/// The event writes that the API server received.
#[derive(Default)]
struct Written {
    /// The number of writes for each object.
    of_object: BTreeMap<String, usize>,
    /// New `Normal` Events with a reason of the ccm, by object and reason. The number of objects
    /// bounds them.
    news: BTreeMap<(String, String), usize>,
    /// All other writes.
    limited: usize,
}

impl Written {
    fn count(&mut self, object: &str, created: Option<&Event>) {
        *self.of_object.entry(object.to_owned()).or_default() += 1;
        let normal = created.filter(|event| event.type_.as_deref() == Some("Normal"));
        match normal.and_then(|event| event.reason.clone()) {
            Some(reason) if reason::is_ours(&reason) && reason != reason::PROVIDER_EVENT => {
                *self.news.entry((object.to_owned(), reason)).or_default() += 1;
            }
            _ => self.limited += 1,
        }
    }

    fn check(&self) {
        assert!(
            self.limited <= OF_ALL,
            "{} events in ten minutes",
            self.limited
        );
        for (object, count) in &self.of_object {
            assert!(
                *count <= OF_OBJECT,
                "{count} events of {object} in ten minutes"
            );
        }
        for ((object, reason), count) in &self.news {
            assert_eq!(*count, 1, "new Events {reason} of {object}");
        }
    }
}

/// An API server that accepts every event.
fn api_server(written: &Arc<Mutex<Written>>) -> Client {
    let written = Arc::clone(written);
    let answer = tower::service_fn(move |request: Request<Body>| {
        let written = Arc::clone(&written);
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await?.to_bytes();
            let created = serde_json::from_slice::<Event>(&body).ok();
            let created = created.filter(|event| event.involved_object.name.is_some());
            // The path of a patch has the Event's name, which begins with the object's name.
            let of_path = || path.rsplit('/').next()?.split('.').next();
            let object = match &created {
                Some(event) => event.involved_object.name.as_deref(),
                None => of_path(),
            };
            let mut written = written.lock().expect("nobody panicked");
            written.count(object.unwrap_or_default(), created.as_ref());
            let event = serde_json::json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}, "involvedObject": {},
            });
            let answer = Response::new(Body::from(event.to_string().into_bytes()));
            Ok::<_, tower::BoxError>(answer)
        }
    });
    Client::new(answer, "default")
}

/// Plays one provider and checks the bounds.
pub(crate) fn events(input: &[u8]) {
    let written = Arc::new(Mutex::new(Written::default()));
    crate::fuzz::runtime().block_on(play(input, &written));
    written.lock().expect("nobody panicked").check();
}

async fn play(input: &[u8], written: &Arc<Mutex<Written>>) {
    let metrics = EventMetrics::register(&mut Registry::default());
    let wall = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
    let (sink, writer) = EventSink::new(api_server(written), "fuzz".into(), wall, metrics);
    let stop = CancellationToken::new();
    let reported = async {
        let end = Instant::now() + TIME;
        let mut input = Unstructured::new(input);
        let mut burst = 0;
        while !input.is_empty() && Instant::now() < end {
            if record(&sink, burst, &mut input, end).await.is_err() {
                break;
            }
            burst += 1;
        }
        tokio::time::sleep_until(end).await;
    };
    tokio::select! {
        () = writer.run(stop.clone()) => {}
        () = reported => {}
    }
}

/// A burst of events, and a pause.
async fn record(
    sink: &EventSink,
    burst: usize,
    input: &mut Unstructured<'_>,
    end: Instant,
) -> arbitrary::Result<()> {
    // Events on many objects reach the limit for all objects together.
    let objects = *input.choose(&[1, 3, 30, 300])?;
    let made_up = input.ratio(1, 2)?;
    let kind = *input.choose(&[EventType::Warning, EventType::Normal])?;
    let reason = *input.choose(&REASONS)?;
    let repeats = input.int_in_range(1..=10)?;
    for round in 0..repeats {
        for number in 0..objects {
            let object = ObjectReference {
                kind: Some("Service".to_owned()),
                namespace: Some("default".to_owned()),
                name: Some(format!("web-{number}")),
                uid: Some(format!("uid-{number}")),
                ..ObjectReference::default()
            };
            let reason = if made_up {
                // A new reason in each round, because the writer holds repeats back anyway.
                format!("{reason}{burst}x{round}")
            } else {
                reason.to_owned()
            };
            sink.record(&object, kind, &reason, format!("{round}"));
        }
    }
    let pause = Duration::from_millis(input.int_in_range(0..=90_000)?);
    tokio::time::sleep_until(end.min(Instant::now() + pause)).await;
    Ok(())
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = crate::fuzz::noise(200);
    // 300 Services get an event every ten seconds: the same one, or one of two in turn. Random
    // input hardly ever repeats an event that often.
    let burst = |kind, reason| [3, 1, kind, reason, 0, 0, 0x27, 0x10];
    let (warning, normal) = (0, 1);
    seeds.push(burst(normal, 1).repeat(60));
    seeds.push([burst(warning, 0), burst(warning, 1)].concat().repeat(30));
    seeds
}
