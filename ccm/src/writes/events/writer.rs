//! Writes the events of a sink, one after the other.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::pending::{Draft, EventKey};
use super::series::{Series, Written};
use crate::writes::{FIELD_MANAGER, WriteError};

/// How long after the stop what waits may still be written.
const DRAIN: Duration = Duration::from_secs(5);
/// Waits between the attempts of one event; after the last it is dropped.
const DELAYS: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(8),
];
/// Bytes of an Event's name before its suffix: with `.` and 16 hex digits it has at most 253.
const NAME_BYTES: usize = 236;

/// Writes the events of one sink.
pub(crate) struct EventWriter {
    shared: Arc<Shared>,
    client: Client,
    instance: String,
    series: Series,
    /// Makes names unlike where the wall clock stands still.
    named: u64,
}

impl EventWriter {
    pub(super) fn new(shared: Arc<Shared>, client: Client, instance: String) -> Self {
        Self {
            shared,
            client,
            instance,
            series: Series::default(),
            named: 0,
        }
    }

    /// Writes until `stop`, then what still waits, for at most 5 s.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let shared = Arc::clone(&self.shared);
        let write = async {
            while let Some((key, draft)) = next(&shared, &stop).await {
                self.write(key, draft).await;
                if shared.pending().written() {
                    shared.idle.notify_waiters();
                }
            }
        };
        let cap = async {
            stop.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            () = write => {}
            () = cap => {
                let left = shared.pending().len();
                tracing::warn!(left, "events were not written before the end");
            }
        }
    }

    async fn write(&mut self, key: Arc<EventKey>, draft: Draft) {
        match self.attempt(&key, &draft).await {
            Ok(written) => {
                self.shared.metrics.written();
                self.series.put(key, written, Instant::now());
            }
            Err(error) => {
                let why = match &error {
                    WriteError::Fenced(_) => "fenced",
                    WriteError::Unavailable(_) => "unavailable",
                    WriteError::Gone | WriteError::Conflict | WriteError::Refused(_) => "refused",
                };
                self.shared.metrics.dropped(why);
                tracing::warn!(
                    object = %key.name, namespace = %key.namespace, reason = %key.reason, message = %draft.message, %error,
                    "event not written"
                );
            }
        }
    }

    async fn attempt(&mut self, key: &EventKey, draft: &Draft) -> Result<Written, WriteError> {
        let namespace = match key.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let events = Api::<Event>::namespaced(self.client.clone(), namespace);
        if let Some(before) = self.series.take(key, Instant::now()) {
            let count = before.count.saturating_add(draft.count);
            let written = Written { count, ..before };
            match with_retries(&events, Request::Repeat(&written, draft)).await {
                // Expired or deleted: a new one.
                Err(WriteError::Gone) => {}
                answer => return answer.map(|()| written),
            }
        }
        let mut event = self.event(namespace, key, draft);
        match with_retries(&events, Request::Create(&event)).await {
            // The name is somebody else's: once more, with another.
            Err(WriteError::Conflict) => {
                event.metadata.name = Some(self.name(&key.name));
                create(&events, &event).await?;
            }
            answer => answer?,
        }
        Ok(Written {
            name: event.metadata.name.unwrap_or_default(),
            count: draft.count,
        })
    }

    fn event(&mut self, namespace: &str, key: &EventKey, draft: &Draft) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(self.name(&key.name)),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: draft.object.clone(),
            type_: Some(key.kind.as_str().to_owned()),
            reason: Some(key.reason.clone()),
            message: Some(draft.message.clone()),
            count: Some(draft.count),
            first_timestamp: Some(Time(draft.first)),
            last_timestamp: Some(Time(draft.last)),
            source: Some(EventSource {
                component: Some(key.component.to_owned()),
                host: None,
            }),
            reporting_component: Some(key.component.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }

    /// `<object>.<hex>`, as upstream makes it from the time.
    fn name(&mut self, object: &str) -> String {
        let nanos = (self.shared.wall)().as_nanosecond() as u64;
        self.named = self.named.wrapping_add(1);
        let (object, _) = object.split_at(object.floor_char_boundary(NAME_BYTES));
        let object = object.trim_end_matches(['.', '-']);
        format!("{object}.{:016x}", nanos.wrapping_add(self.named))
    }
}

/// `None` after the stop, when nothing waits any more.
async fn next(shared: &Shared, stop: &CancellationToken) -> Option<(Arc<EventKey>, Draft)> {
    loop {
        if let Some(next) = shared.pending().pop() {
            return Some(next);
        }
        if stop.is_cancelled() {
            return None;
        }
        tokio::select! {
            () = shared.changed.notified() => {}
            () = stop.cancelled() => {}
        }
    }
}

/// Repeats what did not get through, and nothing else.
/// One request about an event.
#[derive(Clone, Copy)]
enum Request<'a> {
    Create(&'a Event),
    Repeat(&'a Written, &'a Draft),
}

async fn with_retries(events: &Api<Event>, request: Request<'_>) -> Result<(), WriteError> {
    let mut delays = DELAYS.into_iter();
    let mut again = false;
    loop {
        let answer = match request {
            Request::Create(event) => create(events, event).await,
            Request::Repeat(written, draft) => repeat(events, written, draft).await,
        };
        match (answer, request) {
            // An attempt whose answer was lost has made it.
            (Err(WriteError::Conflict), Request::Create(_)) if again => return Ok(()),
            (Err(error @ WriteError::Unavailable(_)), _) => match delays.next() {
                Some(delay) => tokio::time::sleep(delay).await,
                None => return Err(error),
            },
            (answer, _) => return answer,
        }
        again = true;
    }
}

async fn create(events: &Api<Event>, event: &Event) -> Result<(), WriteError> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    events.create(&params, event).await?;
    Ok(())
}

async fn repeat(events: &Api<Event>, written: &Written, draft: &Draft) -> Result<(), WriteError> {
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let body = json!({
        "count": written.count,
        "lastTimestamp": Time(draft.last),
        "message": draft.message,
    });
    events
        .patch(&written.name, &params, &Patch::Merge(&body))
        .await?;
    Ok(())
}
