//! Writes the events of a sink, one after the other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::limits::Limits;
use super::pending::{Draft, EventKey};
use super::series::{Series, Written};
use crate::writes::{FIELD_MANAGER, WriteError};

/// How long after the stop the waiting events may still be written.
const DRAIN: Duration = Duration::from_secs(5);
/// Waits between the attempts of one request. After the last attempt the request has failed.
const DELAYS: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(8),
];
/// The longest beginning of an Event's name. With `.` and 16 hex digits, the name has at most 253
/// bytes.
const NAME_BYTES: usize = 236;

/// Writes the events of one sink.
pub(crate) struct EventWriter {
    shared: Arc<Shared>,
    client: Client,
    instance: String,
    series: Series,
    limits: Limits,
    /// Makes names differ even if the wall clock does not advance.
    named: u64,
}

impl EventWriter {
    pub(super) fn new(shared: Arc<Shared>, client: Client, instance: String) -> Self {
        Self {
            shared,
            client,
            instance,
            series: Series::default(),
            limits: Limits::new(Instant::now()),
            named: 0,
        }
    }

    /// Writes until `stop`, then the waiting events for at most 5 s.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let shared = Arc::clone(&self.shared);
        let write = self.write_all(&stop);
        let cap = async {
            stop.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            biased;
            () = write => {}
            () = cap => {
                let left = shared.pending().len();
                tracing::warn!(left, "did not write all events before the end");
            }
        }
    }

    async fn write_all(&mut self, stop: &CancellationToken) {
        while let Some((key, draft)) = self.next(stop).await {
            self.write(key, draft).await;
            if self.shared.pending().written() {
                self.shared.idle.notify_waiters();
            }
        }
    }

    /// The next event to write. `None`: after the stop, when none is waiting.
    async fn next(&mut self, stop: &CancellationToken) -> Option<(Arc<EventKey>, Draft)> {
        loop {
            let hurry = stop.is_cancelled() || self.shared.flushing.load(Ordering::Relaxed) > 0;
            let wake = match self.take(hurry) {
                Ok(next) => return Some(next),
                Err(wake) => wake,
            };
            if stop.is_cancelled() {
                return None;
            }
            tokio::select! {
                biased;
                () = self.shared.changed.notified() => {}
                () = stop.cancelled() => {}
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    /// The event to write now, else when to check again: limited events first, then the others,
    /// then those that were held back. With `hurry` nothing is held back, and the unlimited events
    /// come first: the end of a term has no time for many Warnings.
    fn take(&mut self, hurry: bool) -> Result<(Arc<EventKey>, Draft), Option<Instant>> {
        let shared = Arc::clone(&self.shared);
        let (mut pending, now) = (shared.pending(), Instant::now());
        let free_at = self.limits.all_free_at(now);
        let free = hurry || free_at <= now;
        // The limits bound the limited events, so these cannot starve the others.
        let queues: &[bool] = match (hurry, free) {
            (true, _) => &[false, true],
            (false, true) => &[true, false],
            (false, false) => &[false],
        };
        for limited in queues {
            while let Some((key, draft)) = pending.pop(*limited) {
                match self.series.not_before(&key, now) {
                    _ if hurry => return Ok((key, draft)),
                    Some(until) => pending.hold(key, draft, until),
                    None if self.limits.object_free_at(&key, now) <= now => {
                        self.limits.spend(&key, false, now);
                        return Ok((key, draft));
                    }
                    None => {
                        pending.written();
                        shared.metrics.dropped("limited");
                    }
                }
            }
        }
        while free
            && pending
                .held_until()
                .is_some_and(|until| hurry || until <= now)
        {
            let Some((key, draft)) = pending.pop_held() else {
                break;
            };
            let until = self.limits.object_free_at(&key, now);
            if hurry || until <= now {
                self.limits.spend(&key, true, now);
                return Ok((key, draft));
            }
            pending.hold(key, draft, until);
        }
        let held = pending.held_until().map(|until| until.max(free_at));
        let news = pending.has_limited().then_some(free_at);
        Err([held, news].into_iter().flatten().min())
    }

    async fn write(&mut self, key: Arc<EventKey>, draft: Draft) {
        let own = self.shared.own().get(key.component).cloned();
        let client = own.as_ref().unwrap_or(&self.client).clone();
        let mut answer = self.attempt(&client, &key, &draft).await;
        let refused = matches!(
            answer,
            Err(WriteError::Refused(_) | WriteError::Unavailable(_))
        );
        if own.is_some() && refused {
            // This client is not used again until the controller starts again: all later events
            // would wait for its failures.
            self.shared.own().remove(key.component);
            answer = self.attempt(&self.client.clone(), &key, &draft).await;
        }
        match answer {
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
                // A process that lost the Lease logs that once, elsewhere, not for each waiting
                // event.
                if matches!(error, WriteError::Fenced(_)) {
                    return;
                }
                tracing::warn!(
                    object = %key.object.name, namespace = %key.object.namespace, reason = %key.reason, message = %draft.message, %error,
                    "event not written"
                );
            }
        }
    }

    async fn attempt(
        &mut self,
        client: &Client,
        key: &EventKey,
        draft: &Draft,
    ) -> Result<Written, WriteError> {
        let namespace = match key.object.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let events = Api::<Event>::namespaced(client.clone(), namespace);
        if let Some(before) = self.series.take(key, Instant::now()) {
            let count = before.count.saturating_add(draft.count);
            let written = Written {
                count,
                writes: before.writes.saturating_add(1),
                ..before
            };
            match repeat(&events, &written, draft).await {
                // Expired or deleted: create a new one.
                Err(WriteError::Gone) => {}
                answer => return answer.map(|()| written),
            }
        }
        let mut event = self.event(namespace, key, draft);
        if let Err(error) = create(&events, &event).await {
            if !matches!(error, WriteError::Conflict) {
                return Err(error);
            }
            // Another Event has this name: try once more with another name.
            event.metadata.name = Some(self.name(&key.object.name));
            create(&events, &event).await?;
        }
        Ok(Written {
            name: event.metadata.name.unwrap_or_default(),
            count: draft.count,
            writes: 1,
        })
    }

    fn event(&mut self, namespace: &str, key: &EventKey, draft: &Draft) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(self.name(&key.object.name)),
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

/// Creates the event.
async fn create(events: &Api<Event>, event: &Event) -> Result<(), WriteError> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let mut attempts = 0;
    let answer = insistent(|| {
        attempts += 1;
        events.create(&params, event)
    });
    match answer.await {
        // An earlier attempt created it, but its answer was lost.
        Err(WriteError::Conflict) if attempts > 1 => Ok(()),
        answer => answer,
    }
}

/// Writes count, time and text of a repeat.
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
    let patch = Patch::Merge(&body);
    insistent(|| events.patch(&written.name, &params, &patch)).await
}

/// Writes, with further attempts after [`DELAYS`] if the API server is unavailable.
async fn insistent<T, F: Future<Output = kube::Result<T>>>(
    mut write: impl FnMut() -> F,
) -> Result<(), WriteError> {
    let mut delays = DELAYS.iter();
    loop {
        let answer = write().await.map(drop).map_err(WriteError::from);
        match (&answer, delays.next()) {
            (Err(WriteError::Unavailable(_)), Some(delay)) => tokio::time::sleep(*delay).await,
            _ => return answer,
        }
    }
}
